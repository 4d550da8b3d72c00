"""Settings: rewards, discount, hardware and budget of the run that was configured."""

from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from hardware import Plan
from nppsim import reward as rewards
from rl.config import ExperimentConfig, PPOConfig
from rl.doctor.checks_data import Levels
from rl.doctor.doctor import BEFORE, UPDATE, CheckWarned, check, require
from rl.ppo.callbacks import memory_mib
from rl.ppo.ppo import PPO
from rl.ppo.vec_env import BatchVecEnv

LEAST_DISCOUNT = 0.01  # share of a win's reward that must be left at the start of an episode
SLOW_UPDATE_S = 120.0
FEW_UPDATES = 200
LONG_RUN_HOURS = 48.0


@check(BEFORE)
def given_settings(full_config: ExperimentConfig) -> str:
    """Settings that were given, with their sources (for information)."""
    given = [f"{name} {attrgetter(name)(full_config)} ({source})" for name, source in full_config.sources.items()]
    return ", ".join(given) or "none"


@check(BEFORE)
def rewards_are_ordered(config: ExperimentConfig, settings: PPOConfig, levels: Levels, env: BatchVecEnv) -> str:
    """Winning is worth more than waiting, waiting no less than dying, and approaching pays: by arithmetic, per category."""
    win = env.sim.reward_config.win
    require(win > 0, f"the reward of a win is {win:g}", "choose --reward-preset default, or give winning a reward")
    rows = _arithmetic(config, settings, levels, env)
    problems = [f"{row.category}: {problem}" for row in rows for problem in row.problems]
    if problems:
        remedy = "raise --gamma towards 1, or choose --reward-preset default"
        require(not config.reward.is_default, problems[0], remedy)
        raise CheckWarned(f"{len(problems)} problems of rewards {config.reward}, e.g. {problems[0]}", remedy)
    least = min(rows, key=lambda row: row.win_return - max(row.timeout_return, row.death_return))
    return (
        f"{len(rows)} categories; smallest lead on {least.category}: win {least.win_return:+.2f}, time-out "
        f"{least.timeout_return:+.2f}, death {least.death_return:+.2f}"
    )


@check(BEFORE)
def wins_are_within_the_discount_horizon(
    config: ExperimentConfig, settings: PPOConfig, levels: Levels, env: BatchVecEnv
) -> str:
    """At the start of a long level, the discounted reward of a win at a third of top speed is not negligible."""
    rows = _arithmetic(config, settings, levels, env)
    longest = max(rows, key=lambda row: row.win_frames)
    decisions = -(-longest.win_frames // config.frame_skip)
    left = settings.gamma**decisions
    found = f"{longest.category}: {left:.1%} of a win's reward is left {decisions} decisions before it"
    if left < LEAST_DISCOUNT:
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
    """Enough updates, environments and memory, and minibatches that divide the rollout."""
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
    """Time of an update, number of updates, duration and memory of the whole run, projected from what was measured."""
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
        "days of training: lower --total-timesteps, or give --time-budget-minutes": hours > LONG_RUN_HOURS,
        "more memory than planned: lower --num-envs": memory > full_plan.host_budget,
    }
    if any(advice.values()):
        raise CheckWarned(found, "; ".join(text for text, applies in advice.items() if applies))
    return found
