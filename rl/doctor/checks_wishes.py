"""What somebody asked for is what is done: nothing wins over an explicit setting, and nothing is forgotten."""

from dataclasses import fields
from typing import Any

from hardware import Plan, PlanRequest
from rl.config import ExperimentConfig, PPOConfig
from rl.curriculum import STRATEGIES
from rl.doctor.doctor import BEFORE, UPDATE, check, require
from rl.ppo.ppo import BatchPPO
from rl.ppo.vec_env import BatchVecEnv

_PROGRAM = "this is a mistake in the program, not in your settings: please report it"


@check(BEFORE)
def what_was_asked_for_is_in_force(config: ExperimentConfig, settings: PPOConfig, plan: Plan, env: BatchVecEnv) -> str:
    """Sizes, device and precision of the plan are those that were asked for; PPO's settings are the configured ones; levels
    are drawn by the strategy that was asked for."""
    wishes = config.plan_request
    asked = {
        field.name: getattr(wishes, field.name)
        for field in fields(PlanRequest)
        if hasattr(plan, field.name) and getattr(wishes, field.name) is not None
    }
    for name, value in asked.items():
        found = getattr(plan, name)
        require(found == value, f"{name} is {found}, asked for was {value}", _PROGRAM)
    count = env.num_envs * config.hardware.processes
    require(count == plan.num_envs, f"{count} environments, planned were {plan.num_envs}", _PROGRAM)
    configured = {field.name: getattr(config.ppo, field.name) for field in fields(PPOConfig)}
    for name, value in configured.items():
        found = getattr(settings, name)
        require(value is None or found == value, f"{name} of PPO is {found}, configured is {value}", _PROGRAM)
    chosen = config.curriculum.chosen
    drawing = type(env.sampler.strategy)
    require(
        drawing is STRATEGIES[chosen], f"levels are drawn by {drawing.__name__}, asked for was {chosen!r}", _PROGRAM
    )
    require(bool(env.sampler.starts) == config.curriculum.start_states, "start states are not as asked for", _PROGRAM)
    for part, given in (("the curriculum", env.sampler.config), ("its strategy", env.sampler.strategy.config)):
        other = _others(given, config.curriculum)
        require(not other, f"{part} has other settings than configured: {', '.join(other)}", _PROGRAM)
    return f"{len(asked)} wishes, {len(configured)} settings of PPO"


@check(UPDATE)
def ppo_has_the_settings_that_it_was_given(ppo: BatchPPO, settings: PPOConfig) -> str:
    """Every setting of PPO is what was configured, still, after its first updates."""
    other = _others(ppo.config, settings)
    require(not other, f"PPO has other settings than it was given: {', '.join(other)}", _PROGRAM)
    return f"{len(fields(settings))} settings"


def _others(found: Any, wanted: Any) -> list[str]:
    """Names of the fields of two data classes that differ, with both values."""
    pairs = {one.name: (getattr(found, one.name), getattr(wanted, one.name)) for one in fields(wanted)}
    return [f"{name} {have!r}, not {asked!r}" for name, (have, asked) in pairs.items() if have != asked]
