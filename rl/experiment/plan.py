"""Hardware plans (sizes, precision, device) from measurements on this machine.

Trainings use ``plan_of``, and ``scripts/hardware_plan.py --measure`` uses ``measured_plan``.

    plan = plan_of(setup)                  # also stores the plan in the run's folder, for resuming
    print(measured_plan("vision_free", hardware.PlanRequest(), hardware.detect()))
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

import hardware
from hardware.memory import measure_update
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.gym.env import STARTER_LEVELS
from nppsim.io.files import write_json
from nppsim.levels.level_set import LevelSet
from rl.config import CurriculumConfig, PPOConfig
from rl.curriculum import make_sampler
from rl.experiment.data import statistics_of_random_play
from rl.experiment.record import read_plan, save_plan
from rl.experiment.setup import TrainingSetup
from rl.log import warn
from rl.policy.architectures import Architecture, get_architecture
from rl.ppo import PPO, make_ppo, update_benchmark
from rl.ppo.update_benchmark import UpdateBenchmark, machine_key, read_measurements, stored_timings
from rl.ppo.vec_env import BatchVecEnv

TIMED_UPDATES = 2  # number of timed updates, after a warm-up update


def plan_of(setup: TrainingSetup) -> hardware.Plan:
    """Return the stored plan of a run; without one, make a plan from measured updates, and store it."""
    plan_request, network = setup.config.plan_request, setup.architecture
    condition = "with imitation" if setup.pretrained else "without imitation"
    heading = f"\n{network.name}, {condition}, seed {setup.seed}"
    plan = read_plan(setup.folder, plan_request)
    if plan is not None:
        setup.log(f"{heading}: resumes with its stored plan\n{plan}")
        if plan.machine.cpu != setup.machine.cpu:
            warn(setup.log, f"the run began on {plan.machine.name}; results may differ in rounding")
    else:
        planned = planner(network, plan_request, setup.machine.times(setup.ranks.machines))
        speeds = stored_speeds(network, setup.machine)

        def throughput(sizes: hardware.Sizes) -> float:
            return speeds.get(_label(sizes), 0.0)  # sizes without a measurement are not chosen

        by_speeds = planned(throughput=throughput)
        if _label(by_speeds.sizes) in speeds:  # else by the speed model of ``hardware.plan``
            planned = partial(planned, throughput=throughput)
        plan = _with_measured_updates(network, planned, planned(), setup.machine)
        setup.log(f"{heading}\n{plan}")
        save_plan(setup.folder, plan, plan_request)
    return plan


def planner(
    network: Architecture, plan_request: hardware.PlanRequest, machine: hardware.Machine
) -> Callable[..., hardware.Plan]:
    """Return the function ``hardware.plan`` with its arguments for a network, request and machine bound."""
    return partial(
        hardware.plan,
        network.observations,
        plan_request,
        architecture=network.name,
        stacking=network.stacking,
        carried_bytes=network.carried_bytes,
        machine=machine,
    )


def _with_measured_updates(
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


def measured_plan(architecture: str, plan_request: hardware.PlanRequest, machine: hardware.Machine) -> hardware.Plan:
    """Return a plan for this machine from measured memory, threads and speed.

    On a GPU, PPO is timed with several numbers of environments.  The speeds are stored for later trainings.
    """
    network = get_architecture(architecture)
    planned = planner(network, plan_request, machine)
    plan = _with_measured_updates(network, planned, planned(), machine, measure=True)
    speeds: dict[str, float] = {}

    def throughput(sizes: hardware.Sizes) -> float:
        if _label(sizes) not in speeds:
            settings = dict(plan.settings)
            for name, value in sizes._asdict().items():
                settings[name] = replace(settings[name], value=value)
            speeds[_label(sizes)] = decisions_per_s(architecture, replace(plan, settings=settings))
        return speeds[_label(sizes)]

    if plan.gpus:
        plan = _with_measured_updates(network, partial(planned, throughput=throughput), plan, machine)
    speed = throughput(plan.sizes)
    file = _speeds_file()
    measurements = read_measurements(file, _SPEEDS)  # another process may have added measurements meanwhile
    key = _key(network, machine)
    write_json(file, measurements | {key: measurements.get(key, {}) | speeds})
    source = f"measured on this machine, {TIMED_UPDATES} updates on the levels of the package"
    return replace(plan, speed=hardware.Speed(speed, source))


_SPEEDS = {...: {...: float}}  # network and machine -> sizes -> decisions per second


def stored_speeds(network: Architecture, machine: hardware.Machine) -> dict[str, float]:
    """Return sizes -> decisions per second of ``measured_plan`` on this machine; {} without a measurement."""
    return read_measurements(_speeds_file(), _SPEEDS).get(_key(network, machine), {})


def _speeds_file() -> Path:
    return update_benchmark.FILE.with_name("speeds.json")


def _key(network: Architecture, machine: hardware.Machine) -> str:
    gpus = ", ".join(gpu.name for gpu in machine.gpus)
    return f"{network.name} {network.fingerprint}; {machine_key(machine)}; {gpus or 'no GPU'}"


def _label(sizes: hardware.Sizes) -> str:
    return f"{sizes.num_envs} x {sizes.rollout_length}, minibatch {sizes.minibatch_size}"


def decisions_per_s(architecture: str, plan: hardware.Plan) -> float:
    """Measure the speed of PPO (decisions per second) with a plan."""
    return TIMED_UPDATES * plan.batch_size / timed_ppo(architecture, plan).seconds


def timed_ppo(architecture: str, plan: hardware.Plan, updates: int = TIMED_UPDATES) -> PPO:
    """Return a PPO after some updates on the levels of the package; its timers exclude a first update."""
    torch.set_num_threads(1)
    settings = PPOConfig(target_kl=None).settled(plan)  # target_kl None: no update ends early
    levels = LevelSet.open(STARTER_LEVELS)
    network = get_architecture(architecture)
    sim = BatchSimulator(
        LevelBank(list(levels)),
        plan.num_envs,
        observations=network.observations,
        stacking=network.stacking,
        foresight=network.foresight,
        gamma=settings.gamma,
        threads=plan.simulator_threads,
    )
    env = BatchVecEnv(sim, make_sampler([entry.category for entry in levels.entries], CurriculumConfig(), seed=0))
    statistics = statistics_of_random_play(env, seed=0)
    ppo = make_ppo(env, architecture, settings, plan, statistics=statistics, device=plan.device)
    ppo.learn(plan.batch_size)
    ppo.seconds = ppo.cpu_seconds = 0.0
    ppo.learn(updates * plan.batch_size, reset_num_timesteps=False)
    return ppo
