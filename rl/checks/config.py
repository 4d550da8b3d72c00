"""Checks of settings: rewards, discount, hardware and budget of a run."""

from collections.abc import Sequence

import numpy as np

from hardware import Plan
from nppsim import reward as rewards
from rl.checks.check import BEFORE, UPDATE, CheckWarned, check, require
from rl.checks.data import LevelPairs
from rl.config import ExperimentConfig, PPOConfig
from rl.ppo.ppo import PPO
from rl.ppo.vec_env import BatchVecEnv
from rl.training.callbacks import memory_mib

MIN_DISCOUNT = 0.01  # smallest accepted discount (gamma ** decisions) of the win reward at the start of an episode
SLOW_UPDATE_S = 120.0  # duration of an update in seconds above which there is a warning
FEW_UPDATES = 200  # number of updates below which there is a warning
LONG_RUN_HOURS = 48.0  # duration of the training in hours above which there is a warning


@check(BEFORE)
def rewards_are_ordered(config: ExperimentConfig, settings: PPOConfig, levels: LevelPairs, env: BatchVecEnv) -> str:
    """Check the order of returns per category: a win above a time-out, a time-out not below an early death.

    Decisions towards the goal must also have a positive reward.

    The returns are computed from the reward settings, without playing.
    """
    win = env.sim.reward_config.win
    require(win > 0, f"the reward of a win is {win:g}", "choose --reward-preset default, or set a reward for wins")
    rows = _returns(config, settings, levels, env)
    problems = [f"{row.category}: {problem}" for row in rows for problem in row.problems]
    if problems:
        remedy = "raise --gamma towards 1, or choose --reward-preset default"
        require(not config.reward.is_default, problems[0], remedy)
        raise CheckWarned(f"{len(problems)} problems with rewards {config.reward}, e.g. {problems[0]}", remedy)
    return margin_text(rows)


@check(BEFORE)
def wins_are_within_the_discount_horizon(
    config: ExperimentConfig, settings: PPOConfig, levels: LevelPairs, env: BatchVecEnv
) -> str:
    """Check that the discounted reward of a win, at a third of top speed, is large enough at the start of long levels."""
    longest = max(_returns(config, settings, levels, env), key=lambda row: row.win_frames)
    decisions = -(-longest.win_frames // config.frame_skip)
    discount = settings.gamma**decisions
    message = (
        f"{longest.category}: {decisions} decisions before a win; discounting reduces its reward to {discount:.1%}"
    )
    if discount < MIN_DISCOUNT:
        raise CheckWarned(message, f"raise --gamma from {settings.gamma:g} towards 1, or train on shorter levels")
    return message


def margin_text(rows: Sequence[rewards.AuditRow]) -> str:
    """Describe the category on which the return of a win exceeds the other returns by the smallest margin."""
    least = min(rows, key=lambda row: row.win_return - max(row.timeout_return, row.death_return))
    return f"winning returns more than waiting or dying in all {len(rows)} categories; smallest margin: {returns_text(least)}"


def returns_text(row: rewards.AuditRow) -> str:
    """Describe the discounted returns of a win, a time-out and an early death on a category."""
    returns = f"win {row.win_return:+.2f}, time-out {row.timeout_return:+.2f}, early death {row.death_return:+.2f}"
    return f"{row.category} (path of {row.path_px:.0f} px): {returns}"


def _returns(
    config: ExperimentConfig, settings: PPOConfig, levels: LevelPairs, env: BatchVecEnv
) -> list[rewards.AuditRow]:
    names = np.array([category for _, category in levels["train"]])
    by_category = {name: env.sim.bank.path_length[names == name].tolist() for name in dict.fromkeys(names.tolist())}
    return rewards.audit(env.sim.reward_config, settings.gamma, config.frame_skip, by_category)


@check(BEFORE)
def the_plan_fits_the_machine(full_plan: Plan) -> str:
    """Check that the plan has no warnings, e.g. about the numbers of updates and environments, or the memory."""
    message = (
        f"{full_plan.updates} updates of {full_plan.num_envs} × {full_plan.rollout_length} decisions in minibatches of "
        f"{full_plan.minibatch_size}, {full_plan.host_bytes / 1e9:.1f} of {full_plan.host_budget / 1e9:.1f} GB"
    )
    if full_plan.warnings:
        raise CheckWarned(message, "; ".join(full_plan.warnings))
    return message


@check(UPDATE)
def updates_fit_the_budget(ppo: PPO, full_config: ExperimentConfig, full_plan: Plan) -> str:
    """Project update time, number of updates, duration and memory of the whole run from measurements."""
    rate = ppo.decisions_played / max(ppo.seconds, 1e-9)
    update_s = full_plan.batch_size / rate
    minutes = full_config.ppo.total_timesteps / rate / 60
    if full_config.ppo.time_budget_minutes:
        minutes = min(minutes, full_config.ppo.time_budget_minutes)
    updates, memory = 60 * minutes / update_s, memory_mib() * 2**20
    message = (
        f"{update_s:.1f} s per update, about {updates:,.0f} updates in {minutes:,.0f} min, {memory / 1e9:.1f} GB used"
    )
    remedies = {
        f"updates take more than {SLOW_UPDATE_S:.0f} s: lower --num-envs or --rollout-length": update_s > SLOW_UPDATE_S,
        f"fewer than {FEW_UPDATES} updates: raise --total-timesteps or lower --num-envs": updates < FEW_UPDATES,
        "training takes days: lower --total-timesteps, or give --time-budget-minutes": minutes > 60 * LONG_RUN_HOURS,
        "more memory is used than planned: lower --num-envs": memory > full_plan.host_budget,
    }
    if any(remedies.values()):
        raise CheckWarned(message, "; ".join(text for text, applies in remedies.items() if applies))
    return message
