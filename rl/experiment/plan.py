"""Hardware plans (sizes, precision, device) from measurements on this machine.

Trainings use ``plan_of``, and ``python -m hardware plan --measure`` uses ``measured``.

plan = plan_of(setup)                  # also stores the plan in the run's folder, for resuming
report = measured("vision_free", hardware.PlanRequest(), hardware.detect())
print(report)
"""

from collections.abc import Callable
from functools import partial

import torch

import hardware
from hardware.figures import stored_figures
from hardware.memory import estimate_update, measure_update
from hardware.plan_report import PlanReport, Speed
from hardware.profiles import PlanError
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels.level_set import LevelSet
from rl.config import CurriculumConfig, PPOConfig
from rl.curriculum import make_sampler
from rl.experiment.data import statistics_of_random_play
from rl.experiment.record import read_plan, save_plan
from rl.experiment.setup import TrainingSetup
from rl.policy.architectures import Architecture, get_architecture
from rl.ppo import make_ppo
from rl.ppo.update_benchmark import UpdateBenchmark, stored_timings
from rl.ppo.vec_env import BatchVecEnv

TIMED_UPDATES = 2  # number of timed updates, after a warm-up update


def plan_of(setup: TrainingSetup) -> hardware.Plan:
    """Return the stored plan of a run; without one, make a plan from measured updates, and store it."""
    plan_request = setup.config.plan_request
    condition = "with imitation" if setup.pretrained else "without imitation"
    heading = f"\n{setup.architecture.name}, {condition}, seed {setup.seed}"
    plan = read_plan(setup.folder, plan_request)
    if plan is not None:
        setup.log(f"{heading}: resumes with its stored plan\n{plan}")
        if plan.machine.cpu != setup.machine.cpu:
            setup.log(f"warning: the run began on {plan.machine.name}; results may differ in rounding")
    else:
        planned = planner(setup.architecture, plan_request, setup.machine.times(setup.ranks.machines))
        plan = _measured_plan(setup.architecture, planned, planned(), setup.machine)
        setup.log(f"{heading}\n{plan}")
        save_plan(setup.folder, plan, plan_request)
    torch.set_num_threads(1)  # threads for parts of a minibatch (``ThreadPool``) are faster than threads in operations
    return plan


def planner(
    network: Architecture, plan_request: hardware.PlanRequest, machine: hardware.Machine
) -> Callable[..., hardware.Plan]:
    """Return the function ``hardware.plan`` with its arguments for a network, request and machine bound."""
    return partial(
        hardware.plan,
        network.observations,
        plan_request,
        stacking=network.stacking,
        carried_bytes=network.carried_bytes,
        machine=machine,
    )


def _measured_plan(
    network: Architecture,
    planned: Callable[..., hardware.Plan],
    first: hardware.Plan,
    machine: hardware.Machine,
    *,
    measure: bool = False,
) -> hardware.Plan:
    """Return a plan from measured updates, in the device and precision of the plan ``first``.

    planned: see ``planner``.  measure: measure threads and precision even if their timings are stored.
    """
    probe = UpdateBenchmark(network.name, first.device, first.precision)
    update = measure_update(probe.peak_bytes, network.observations, network.stacking)
    return planned(update=update, benchmark=stored_timings(probe, machine, measure=measure))


def measured(architecture: str, plan_request: hardware.PlanRequest, machine: hardware.Machine) -> PlanReport:
    """Return a report with the plan for this machine, made from measured memory and threads, and its measured speed."""
    network = get_architecture(architecture)
    planned = planner(network, plan_request, machine)
    figures = stored_figures(architecture, network.observations, network.stacking)
    update = figures.update if figures else estimate_update(network.observations, network.stacking)
    try:
        plan = _measured_plan(network, planned, planned(update=update), machine, measure=True)
    except PlanError as error:
        return PlanReport(architecture, error)
    source = f"measured on this machine, {TIMED_UPDATES} updates on the levels of the package"
    return PlanReport(architecture, plan, Speed(decisions_per_s(architecture, plan), source))


def decisions_per_s(architecture: str, plan: hardware.Plan) -> float:
    """Measure the speed of PPO (decisions per second) with a plan, on the levels that the package contains."""
    torch.set_num_threads(1)
    settings = PPOConfig(target_kl=None).settled(plan)  # target_kl None: no update ends early
    levels = LevelSet.open(STARTER_LEVELS)
    network = get_architecture(architecture)
    sim = BatchSimulator(
        LevelBank(list(levels)),
        plan.num_envs,
        observations=network.observations,
        stacking=network.stacking,
        gamma=settings.gamma,
        threads=plan.simulator_threads,
    )
    env = BatchVecEnv(sim, make_sampler([entry.category for entry in levels.entries], CurriculumConfig(), seed=0))
    statistics = statistics_of_random_play(env, seed=0)
    ppo = make_ppo(env, architecture, settings, plan, statistics=statistics, device=plan.device)
    ppo.learn(plan.batch_size)
    decisions, seconds = ppo.decisions_played, ppo.seconds
    ppo.learn(TIMED_UPDATES * plan.batch_size, reset_num_timesteps=False)
    return (ppo.decisions_played - decisions) / (ppo.seconds - seconds)
