"""Checks of ``scripts/doctor.py``: of an experiment before it runs, of its folder afterwards, or of an agent.

    doctor = rehearse(config, print)     # doctor.failed, doctor.findings

A rehearsal is a short trial run of the experiment: some seconds per architecture, on the experiment's data, in a temporary
folder.  It covers imitation, weight transfer, some updates of PPO, evaluations on dev and test levels, and checkpoints.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

import hardware
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.generate import generate
from nppsim.io.reading import read_object
from rl.checks.doctor import BEFORE, CHECKPOINT, REHEARSAL, STORED, Doctor
from rl.config import ExperimentConfig, UploadConfig, VideoConfig
from rl.config.command_line import check_prepared, resolve
from rl.config.files import config_from_dict
from rl.config.resume import RUN_FILE
from rl.experiment.data import Data, load_data
from rl.experiment.plan import planner
from rl.experiment.setup import make_setups
from rl.experiment.stages import run_stages
from rl.log import Log
from rl.policy import checkpoint
from rl.policy.player import player_of
from rl.ppo.logs import BOARD

Only = tuple[str, ...] | None  # names of the checks to run; None: all
Result = TypeVar("Result")
CATEGORIES = ("simplest", "simple", "medium", "mine_heavy")  # categories of the levels on which agents are checked
DEFAULT_FLAGS = (
    *("--experiment-name", "doctor", "--architectures", "mlp_baseline", "--use-curriculum"),
    *("--dev-dataset", "datasets/dev", "--replay-data-dir", "datasets/demonstrations"),
)
# Sizes of a rehearsal.
DEMONSTRATIONS = 6  # per category
UPDATES = 8  # updates of PPO; the first trains only the critic
NUM_ENVS, ROLLOUT, MINIBATCH = 32, 32, 256  # enough environments for several threads
EPOCHS, BATCH, RATE = 5, 64, 1e-3  # of imitation: epochs, batch size, learning rate; adapted to few demonstrations


def examine_config(path: Path | None, log: Log, only: Only = None) -> Doctor:
    """Rehearse the experiment of a config.json, or if ``path`` is None, a default experiment on the shipped data.

    Raises ConfigError for an invalid configuration or missing files.
    """
    return rehearse(resolve(DEFAULT_FLAGS) if path is None else read_config(path), log, only)


def examine_run(folder: Path, log: Log, only: Only = None) -> Doctor:
    """Check the files of all trainings of an experiment, then rehearse the experiment; ConfigError without trainings."""
    config = read_config(folder / "config.json")
    runs = sorted({path.parent for name in (RUN_FILE, BOARD) for path in folder.rglob(name)})
    if not runs:
        raise ConfigError("contains no training; give the folder of an experiment", "--run", folder)
    stored = Doctor(log, only=only)
    for run in runs:
        log(f"{run}")
        stored.examine(STORED, folder=run)
        if (run / "agent.safetensors").is_file():
            _examine_agent(stored, run / "agent.safetensors")
    doctor = rehearse(config, log, only)
    doctor.findings = stored.findings + doctor.findings
    return doctor


def examine_checkpoint(path: Path, log: Log, only: Only = None) -> Doctor:
    """Check the agent of a checkpoint; CheckpointError if the checkpoint cannot be loaded."""
    doctor = Doctor(log, only=only)
    _examine_agent(doctor, path)
    return doctor


def _examine_agent(doctor: Doctor, path: Path) -> None:
    policy, stored = checkpoint.load_policy(path)
    levels = [generate(category, seed)[0] for category in CATEGORIES for seed in range(4)]
    sim = BatchSimulator(
        levels, len(levels), frame_skip=stored["frame_skip"], observations=policy.observations, stacking=policy.stacking
    )
    rng, seen = torch.Generator().manual_seed(0), []
    player, environments = player_of(policy, sim.num_envs), np.arange(sim.num_envs)
    sim.reset()
    for _ in range(16):
        seen.append({key: torch.from_numpy(values.copy()) for key, values in sim.obs.items()})
        sim.step(player.act(sim.obs, environments, deterministic=False, rng=rng))
        player.begin(sim.finished)
    sample = {key: torch.cat([some[key] for some in seen]) for key in policy.observations}
    doctor.examine(CHECKPOINT, policy=policy, sample=sample)


def read_config(path: Path) -> ExperimentConfig:
    """Read the configuration of a config.json; ConfigError if the configuration is invalid or names missing files."""
    remedy = "give the config.json of a run"
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; {remedy}")
    config = config_from_dict(read_object(path, ConfigError, remedy), str(path))
    try:
        check_prepared(config)
    except OSError as error:  # e.g. a file name that is too long
        raise ConfigError(f"{path}: {error.filename}: {error.strerror}") from error
    return config


def rehearse(config: ExperimentConfig, log: Log, only: Only = None) -> Doctor:
    """Rehearse every architecture of an experiment with its first seed; return the doctor with its findings."""
    doctor = Doctor(log, only=only, rehearses=True)
    with tempfile.TemporaryDirectory(prefix="rehearsal_") as folder:
        data = _attempt(doctor, "levels", lambda: load_data(config, log))
        if data is not None:
            _attempt(doctor, "rehearsal", lambda: _rehearse_architectures(config, data, Path(folder), doctor, log))
    return doctor


def _rehearse_architectures(config: ExperimentConfig, data: Data, folder: Path, doctor: Doctor, log: Log) -> None:
    machine = hardware.detect()
    doctor.provide(full_config=config)
    for setup in make_setups(in_small(config, folder), data, machine, folder, log):
        doctor.provide(full_plan=planner(setup.architecture, config.plan_request, machine)())
        _attempt(doctor, f"rehearsal of {setup.title}", partial(run_stages, replace(setup, doctor=doctor)))
        doctor.examine(REHEARSAL)


def _attempt(doctor: Doctor, name: str, step: Callable[[], Result]) -> Result | None:
    """Return the result of a step; record an exception as a finding, and return None."""
    try:
        return step()
    except Exception as error:  # noqa: BLE001  # any error would also stop the run
        doctor.record_failure(BEFORE, name, error)
        return None


def in_small(config: ExperimentConfig, folder: Path) -> ExperimentConfig:
    """Return a version of the experiment that takes seconds: one seed, one condition, no films, no upload."""
    two_updates = 2 * NUM_ENVS * ROLLOUT
    return replace(
        config,
        output_dir=folder,
        resume_from=None,
        seeds=config.seeds[:1],
        test_pretraining=False,
        max_demonstrations_per_category=DEMONSTRATIONS,
        save_freq=two_updates,
        # If the teacher is an architecture of this experiment, its checkpoint does not exist yet.
        teacher=replace(
            config.teacher,
            name=config.teacher.name if config.teacher.file else None,
            decisions=two_updates,
            minutes=None,
            minibatch_size=MINIBATCH,
        ),
        bc=replace(config.bc, epochs=EPOCHS, batch_size=BATCH, learning_rate=RATE),
        ppo=replace(
            config.ppo,
            total_timesteps=UPDATES * NUM_ENVS * ROLLOUT,
            time_budget_minutes=None,
            critic_warmup_min_updates=1,
            critic_warmup_max_updates=1,
            memory_segment=None,
        ),
        evaluation=replace(
            config.evaluation,
            periodic_episodes_per_category=1,
            eval_freq=UPDATES * NUM_ENVS * ROLLOUT if config.evaluation.in_training else 0,
            eval_every_minutes=None,
            num_eval_episodes=1,
        ),
        video=VideoConfig(),
        upload=UploadConfig(),
        hardware=replace(
            config.hardware,
            num_envs=NUM_ENVS,
            rollout_length=ROLLOUT,
            minibatch_size=MINIBATCH,
            num_gpus=min(config.hardware.num_gpus, 1),
            num_processes=None,
            distributed_backend=None,
        ),
    )
