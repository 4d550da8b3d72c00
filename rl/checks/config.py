"""Checks of settings: rewards, discount, hardware and budget of a run."""

from collections.abc import Sequence

import numpy as np

from hardware import Plan
from nppsim import reward as rewards
from rl.checks.data import Levels
from rl.checks.doctor import BEFORE, UPDATE, CheckWarned, check, require
from rl.config import ExperimentConfig, PPOConfig
from rl.ppo.ppo import PPO
from rl.ppo.vec_env import BatchVecEnv
from rl.training.callbacks import memory_mib

MIN_DISCOUNT = 0.01  # smallest accepted discount (gamma ** decisions) of the win reward at the start of an episode
SLOW_UPDATE_S = 120.0  # duration of an update in seconds above which there is a warning
FEW_UPDATES = 200  # number of updates below which there is a warning
LONG_RUN_HOURS = 48.0  # duration of the training in hours above which there is a warning


@check(BEFORE)
def rewards_are_ordered(config: ExperimentConfig, settings: PPOConfig, levels: Levels, env: BatchVecEnv) -> str:
    """Check per category that winning pays more than waiting, waiting at least as much as dying, and that approaching pays.

    The returns are computed from the reward settings, without playing.
    """
    win = env.sim.reward_config.win
    require(win > 0, f"the reward of a win is {win:g}", "choose --reward-preset default, or set a reward for wins")
    rows = _arithmetic(config, settings, levels, env)
    problems = [f"{row.category}: {problem}" for row in rows for problem in row.problems]
    if problems:
        remedy = "raise --gamma towards 1, or choose --reward-preset default"
        require(not config.reward.is_default, problems[0], remedy)
        raise CheckWarned(f"{len(problems)} problems with rewards {config.reward}, e.g. {problems[0]}", remedy)
    least = min(rows, key=lambda row: row.win_return - max(row.timeout_return, row.death_return))
    return (
        f"{len(rows)} categories; smallest advantage of a win on {least.category}: win {least.win_return:+.2f}, time-out "
        f"{least.timeout_return:+.2f}, death {least.death_return:+.2f}"
    )


@check(BEFORE)
def wins_are_within_the_discount_horizon(
    config: ExperimentConfig, settings: PPOConfig, levels: Levels, env: BatchVecEnv
) -> str:
    """Check that the discounted reward of a win, at a third of top speed, is large enough at the start of long levels."""
    rows = _arithmetic(config, settings, levels, env)
    longest = max(rows, key=lambda row: row.win_frames)
    decisions = -(-longest.win_frames // config.frame_skip)
    left = settings.gamma**decisions
    found = f"{longest.category}: {decisions} decisions before a win; discounting reduces its reward to {left:.1%}"
    if left < MIN_DISCOUNT:
        raise CheckWarned(found, f"raise --gamma from {settings.gamma:g} towards 1, or train on shorter levels")
    return found


def _arithmetic(
    config: ExperimentConfig, settings: PPOConfig, levels: Levels, env: BatchVecEnv
) -> Sequence[rewards.AuditRow]:
    names = np.array([category for _, category in levels["train"]])
    by_category = {name: env.sim.bank.path_length[names == name].tolist() for name in dict.fromkeys(names.tolist())}
    return rewards.audit(env.sim.reward_config, settings.gamma, config.frame_skip, by_category)


@check(BEFORE)
def the_plan_fits_the_machine(full_plan: Plan) -> str:
    """Check that the plan has no warnings, e.g. about the numbers of updates and environments, or the memory."""
    plan = full_plan
    found = (
        f"{plan.updates} updates of {plan.num_envs} × {plan.rollout_length} decisions in minibatches of "
        f"{plan.minibatch_size}, {plan.host_bytes / 1e9:.1f} of {plan.host_budget / 1e9:.1f} GB"
    )
    if plan.warnings:
        raise CheckWarned(found, "; ".join(plan.warnings))
    return found


@check(UPDATE)
def updates_fit_the_budget(ppo: PPO, full_config: ExperimentConfig, full_plan: Plan) -> str:
    """Project update time, number of updates, duration and memory of the whole run from measurements."""
    rate = ppo.decisions_played / max(ppo.seconds, 1e-9)
    each = full_plan.batch_size / rate
    hours = full_config.ppo.total_timesteps / rate / 3600
    if full_config.ppo.time_budget_minutes:
        hours = min(hours, full_config.ppo.time_budget_minutes / 60)
    updates = hours * 3600 / each
    memory = memory_mib() * 2**20
    found = (
        f"{each:.1f} s per update, about {updates:,.0f} updates in {hours * 60:,.0f} min, {memory / 1e9:.1f} GB used"
    )
    advice = {
        f"updates take more than {SLOW_UPDATE_S:.0f} s: lower --num-envs or --rollout-length": each > SLOW_UPDATE_S,
        f"fewer than {FEW_UPDATES} updates: raise --total-timesteps or lower --num-envs": updates < FEW_UPDATES,
        "training takes days: lower --total-timesteps, or give --time-budget-minutes": hours > LONG_RUN_HOURS,
        "more memory is used than planned: lower --num-envs": memory > full_plan.host_budget,
    }
    if any(advice.values()):
        raise CheckWarned(found, "; ".join(text for text, applies in advice.items() if applies))
    return found
