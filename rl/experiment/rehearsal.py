"""The rehearsal of an experiment: the same job, on the same data, at a size of seconds, with the doctor beside it.

    doctor = rehearse(config, print)     # doctor.failed, doctor.findings

What the main job does, this does, with the same functions: levels, demonstrations (a few of each category), imitation (a few
passes), the transfer, some updates of PPO of which the first belongs to the critic alone, evaluation on dev levels,
checkpoints.  Its folder is temporary.
"""

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hardware
from rl.config import ExperimentConfig, UploadConfig, VideoConfig
from rl.doctor.doctor import BEFORE, REHEARSAL, Doctor
from rl.experiment.data import Data, Log, audit_rewards, load_data
from rl.experiment.stages import make_jobs, train_one

DEMONSTRATIONS = 6  # of each category
UPDATES = 8  # the second is the actor's first, while it is still regularised towards the BC policy
NUM_ENVS, ROLLOUT, MINIBATCH = 32, 32, 256  # enough environments for threads to share them
EPOCHS, BATCH, RATE = 5, 64, 1e-3  # of imitation: so few demonstrations make few steps


def rehearse(config: ExperimentConfig, log: Log, only: tuple[str, ...] | None = None) -> Doctor:
    """Rehearse every architecture of an experiment, with its first seed; what the doctor found.

    only: names of the checks to make; None: all.
    """
    doctor = Doctor(log, only=only, rehearses=True)
    with tempfile.TemporaryDirectory(prefix="rehearsal_") as folder:
        data = _attempt(doctor, "levels", lambda: load_data(config, log))
        if data is not None:
            _attempt(doctor, "rewards", lambda: audit_rewards(config, data, log))
            _attempt(doctor, "rehearsal", lambda: _rehearse_jobs(config, data, Path(folder), doctor, log))
    return doctor


def _rehearse_jobs(config: ExperimentConfig, data: Data, folder: Path, doctor: Doctor, log: Log) -> None:
    machine = hardware.detect()
    doctor.provide(full_config=config)
    for job in make_jobs(in_small(config, folder), data, machine, folder, None, log):
        doctor.provide(
            full_plan=hardware.plan(
                job.observations,
                config.plan_request,
                stacking=job.architecture.stacking,
                carried_bytes=job.architecture.carried_bytes,
                machine=machine,
            )
        )
        _attempt(
            doctor, f"rehearsal of {job.title}", lambda job=job: train_one(dataclasses.replace(job, doctor=doctor))
        )
        doctor.examine(REHEARSAL)


def _attempt(doctor: Doctor, name: str, step: Callable) -> Any:
    """What a step returns; None if it failed, which is a finding."""
    try:
        return step()
    except Exception as error:  # noqa: BLE001  # whatever stops the rehearsal would stop the run
        doctor.record_failure(BEFORE, name, error)
        return None


def in_small(config: ExperimentConfig, folder: Path) -> ExperimentConfig:
    """The same experiment at a size of seconds: one seed, one condition, no films, no upload."""
    change = dataclasses.replace
    return change(
        config,
        output_dir=folder,
        resume_from=None,
        seeds=config.seeds[:1],
        test_pretraining=False,
        max_demonstrations_per_category=DEMONSTRATIONS,
        save_freq=2 * NUM_ENVS * ROLLOUT,
        # An agent that is to be trained first is not there yet, and one of a few seconds has nothing to teach.
        teacher=change(
            config.teacher,
            name=config.teacher.name if config.teacher.file else None,
            decisions=2 * NUM_ENVS * ROLLOUT,
            minutes=None,
            minibatch_size=MINIBATCH,
        ),
        bc=change(config.bc, epochs=EPOCHS, batch_size=BATCH, learning_rate=RATE),
        ppo=change(
            config.ppo,
            total_timesteps=UPDATES * NUM_ENVS * ROLLOUT,
            time_budget_minutes=None,
            critic_warmup_min_updates=1,
            critic_warmup_max_updates=1,
        ),
        evaluation=change(
            config.evaluation,
            periodic_episodes_per_category=1,
            eval_freq=UPDATES * NUM_ENVS * ROLLOUT if config.evaluation.in_training else 0,
            eval_every_minutes=None,
            num_eval_episodes=1,
        ),
        video=VideoConfig(),
        upload=UploadConfig(),
        hardware=change(
            config.hardware,
            num_envs=NUM_ENVS,
            rollout_length=ROLLOUT,
            minibatch_size=MINIBATCH,
            num_gpus=min(config.hardware.num_gpus, 1),
            num_processes=None,
            distributed_backend=None,
        ),
    )
