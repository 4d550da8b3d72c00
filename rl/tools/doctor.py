"""Checks of ``scripts/doctor.py``: of an experiment before it runs, of its folder afterwards, or of an agent.

    doctor = trial_run(config, print)     # doctor.failed, doctor.results

A trial run takes some seconds per architecture, on the experiment's data, in a temporary folder.  It covers imitation, weight
transfer, some updates of PPO, evaluations on dev and test levels, and checkpoints.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

import hardware
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.generate import generate
from nppsim.io.reading import read_object
from rl.checks.check import BEFORE, CHECKPOINT, STORED, TRIAL
from rl.checks.doctor import Doctor
from rl.config import ExperimentConfig, UploadConfig, VideoConfig
from rl.config.command_line import check_prepared, resolve
from rl.config.files import Given, config_from_dict, with_settings
from rl.config.resume import RUN_FILE
from rl.experiment.data import Data, load_data
from rl.experiment.plan import planner
from rl.experiment.setup import make_setups
from rl.experiment.stages import run_stages
from rl.log import Log
from rl.policy import checkpoint
from rl.policy.player import player_of
from rl.ppo.logs import TENSORBOARD_FOLDER

Only = tuple[str, ...] | None  # names of the checks to run; None: all
Value = TypeVar("Value")
CATEGORIES = ("simplest", "simple", "medium", "mine_heavy")  # categories of the levels on which agents are checked
DEFAULT_FLAGS = (
    *("--experiment-name", "doctor", "--architectures", "mlp_baseline", "--use-curriculum"),
    *("--dev-dataset", "datasets/dev", "--replay-data-dir", "datasets/demonstrations"),
)
# Sizes of a trial run.
UPDATES = 8  # updates of PPO; the first trains only the critic
NUM_ENVS, ROLLOUT, MINIBATCH = 32, 32, 256  # enough environments for several threads


def check_config(path: Path, log: Log, only: Only = None, trust_plugins: bool = False) -> Doctor:
    """Check the experiment of a config.json in a trial run; ConfigError if it is invalid or names missing files."""
    return trial_run(read_config(path, trust_plugins), log, only)


def check_default(log: Log, only: Only = None) -> Doctor:
    """Check an experiment with default settings on the shipped data."""
    return trial_run(resolve(DEFAULT_FLAGS), log, only)


def check_run(folder: Path, log: Log, only: Only = None, trust_plugins: bool = False) -> Doctor:
    """Check the files of all trainings of an experiment, then its settings in a trial run; ConfigError without trainings."""
    config = read_config(folder / "config.json", trust_plugins)
    runs = sorted({path.parent for name in (RUN_FILE, TENSORBOARD_FOLDER) for path in folder.rglob(name)})
    if not runs:
        raise ConfigError("contains no training; give the folder of an experiment", "--run", folder)
    stored = Doctor(log, only=only)
    for run in runs:
        log(f"{run}")
        stored.run(STORED, folder=run)
        if (run / "agent.safetensors").is_file():
            _check_agent(stored, run / "agent.safetensors")
    doctor = trial_run(config, log, only)
    doctor.results = stored.results + doctor.results
    return doctor


def check_agent(path: Path, log: Log, only: Only = None) -> Doctor:
    """Check the agent of a checkpoint; CheckpointError if the checkpoint cannot be loaded."""
    doctor = Doctor(log, only=only)
    _check_agent(doctor, path)
    return doctor


def _check_agent(doctor: Doctor, path: Path) -> None:
    policy, stored = checkpoint.load_policy(path)
    levels = [generate(category, seed)[0] for category in CATEGORIES for seed in range(4)]
    sim = BatchSimulator(
        levels,
        len(levels),
        frame_skip=stored["frame_skip"],
        observations=policy.observations,
        stacking=policy.stacking,
        foresight=policy.foresight,
    )
    rng, observed = torch.Generator().manual_seed(0), []
    player, environments = player_of(policy, sim.num_envs), np.arange(sim.num_envs)
    sim.reset()
    for _ in range(16):
        observed.append({key: torch.from_numpy(values.copy()) for key, values in sim.obs.items()})
        sim.step(player.act(sim.obs, environments, deterministic=False, rng=rng))
        player.begin(sim.finished)
    sample = {key: torch.cat([observation[key] for observation in observed]) for key in policy.observations}
    doctor.run(CHECKPOINT, policy=policy, sample=sample)


def read_config(path: Path, trust_plugins: bool = False) -> ExperimentConfig:
    """Read the configuration of a config.json.

    Raises ConfigError if it is invalid, names missing files, or names plug-ins that are not trusted.
    """
    remedy = "give the config.json of a run"
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; {remedy}")
    stored = read_object(path, ConfigError, remedy)
    config = config_from_dict(stored, str(path), trust_plugins)
    try:
        check_prepared(config)
    except OSError as error:  # e.g. a file name that is too long
        raise ConfigError(f"{path}: {error.filename}: {error.strerror}") from error
    return config


def trial_run(config: ExperimentConfig, log: Log, only: Only = None) -> Doctor:
    """Train every architecture of an experiment for some updates, with its first seed; return the doctor with its results."""
    doctor = Doctor(log, only=only, trial=True)
    with tempfile.TemporaryDirectory(prefix="trial_") as folder:
        data = _attempt(doctor, "levels", lambda: load_data(config, log))
        if data is not None:
            _attempt(doctor, "trial run", lambda: _run_architectures(config, data, Path(folder), doctor, log))
    return doctor


def _run_architectures(config: ExperimentConfig, data: Data, folder: Path, doctor: Doctor, log: Log) -> None:
    machine = hardware.detect()
    doctor.add(full_config=config)
    for setup in make_setups(trial_config(config, folder), data, machine, folder, log):
        doctor.add(full_plan=planner(setup.architecture, config.plan_request, machine)())
        _attempt(doctor, f"trial run of {setup.title}", partial(run_stages, replace(setup, doctor=doctor)))
        doctor.run(TRIAL)


def _attempt(doctor: Doctor, name: str, step: Callable[[], Value]) -> Value | None:
    """Return the value of a step; record an exception as a failed check, and return None."""
    try:
        return step()
    except Exception as error:  # noqa: BLE001  # any error would also stop the run
        doctor.record_failure(BEFORE, name, error)
        return None


def trial_config(config: ExperimentConfig, folder: Path) -> ExperimentConfig:
    """Return a version of the experiment that takes seconds: one seed, one condition, no films, no upload."""
    decisions = NUM_ENVS * ROLLOUT  # of an update
    values: dict[str, Any] = {
        ".output_dir": folder,
        ".resume_from": None,
        ".seeds": config.seeds[:1],
        ".test_pretraining": False,
        ".max_demonstrations_per_category": 6,
        ".save_freq": 2 * decisions,
        # If the teacher is an architecture of this experiment, its checkpoint does not exist yet.
        "teacher.name": config.teacher.name if config.teacher.file else None,
        "teacher.decisions": 2 * decisions,
        "teacher.minutes": None,
        "teacher.minibatch_size": MINIBATCH,
        "bc.epochs": 5,
        "bc.batch_size": 64,
        "bc.learning_rate": 1e-3,  # for few demonstrations
        "ppo.total_timesteps": UPDATES * decisions,
        "ppo.time_budget_minutes": None,
        "ppo.critic_warmup_min_updates": 1,
        "ppo.critic_warmup_max_updates": 1,
        "ppo.memory_segment": None,
        "evaluation.periodic_episodes_per_category": 1,
        "evaluation.eval_freq": UPDATES * decisions if config.evaluation.in_training else 0,
        "evaluation.eval_every_minutes": None,
        "evaluation.num_eval_episodes": 1,
        "hardware.num_envs": NUM_ENVS,
        "hardware.rollout_length": ROLLOUT,
        "hardware.minibatch_size": MINIBATCH,
        "hardware.num_gpus": min(config.hardware.num_gpus, 1),
        "hardware.num_processes": None,
        "hardware.distributed_backend": None,
    }
    settings = {}
    for name, value in values.items():
        section, _, own = name.partition(".")
        settings[section, own] = Given(value, f"trial run: {name}", "trial run")
    return with_settings(replace(config, video=VideoConfig(), upload=UploadConfig()), settings)
