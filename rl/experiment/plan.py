"""How fast PPO trains an architecture on this machine, and what memory it takes: a short probe for the hardware plan.

answer = measured("vision_free", hardware.PlanRequest(), hardware.detect())
print(answer)
"""

from functools import partial

import torch

import hardware
from hardware.figures import stored_figures
from hardware.memory import estimate_update, measure_update
from hardware.plan_report import PlanReport, Speed
from hardware.profiles import PlanError
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.env import STARTER_LEVELS
from nppsim.levels.level_set import LevelSet
from rl.config import CurriculumConfig, PPOConfig
from rl.curriculum import make_sampler
from rl.experiment.stages import statistics_of_random_play
from rl.policy.architectures import get_architecture
from rl.ppo import make_ppo
from rl.ppo.update_benchmark import UpdateBenchmark, stored_timings
from rl.ppo.vec_env import BatchVecEnv

UPDATES = 2  # that are timed, after one that warms up


def measured(architecture: str, plan_request: hardware.PlanRequest, machine: hardware.Machine) -> PlanReport:
    """The plan that training would make here, with measured memory, threads and speed."""
    known = get_architecture(architecture)
    seen, stacking = known.observations, known.stacking
    planned = partial(
        hardware.plan, seen, plan_request, stacking=stacking, carried_bytes=known.carried_bytes, machine=machine
    )
    figures = stored_figures(architecture, seen, stacking)
    update = figures.update if figures else estimate_update(seen, stacking)
    try:
        first = planned(update=update)  # device and precision to measure memory with
        probe = UpdateBenchmark(architecture, first.device, first.precision)
        update = measure_update(probe.peak_bytes, seen, stacking)
        plan = planned(update=update, benchmark=stored_timings(probe, machine, measure=True))
    except PlanError as error:
        return PlanReport(architecture, error, update)
    source = f"measured here just now, {UPDATES} updates on the levels that come with the package"
    return PlanReport(architecture, plan, update, Speed(decisions_per_s(architecture, plan), source))


def decisions_per_s(architecture: str, plan: hardware.Plan) -> float:
    """Of PPO alone, rollouts and updates, with these sizes, on the levels that come with the package."""
    torch.set_num_threads(1)
    settings = PPOConfig(target_kl=None).settled(plan)  # no update ends early
    levels = LevelSet.open(STARTER_LEVELS)
    known = get_architecture(architecture)
    sim = BatchSimulator(
        LevelBank(list(levels)),
        plan.num_envs,
        observations=known.observations,
        stacking=known.stacking,
        gamma=settings.gamma,
        threads=plan.simulator_threads,
    )
    env = BatchVecEnv(sim, make_sampler([entry.category for entry in levels.entries], CurriculumConfig(), seed=0))
    statistics = statistics_of_random_play(env, seed=0)
    ppo = make_ppo(env, architecture, settings, plan, statistics=statistics, device=plan.device)
    ppo.learn(plan.batch_size)
    warm = ppo.decisions_played, ppo.seconds
    ppo.learn((1 + UPDATES) * plan.batch_size)
    return (ppo.decisions_played - warm[0]) / (ppo.seconds - warm[1])
