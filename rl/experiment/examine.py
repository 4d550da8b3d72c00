"""What ``scripts/doctor.py`` examines: an experiment that is about to run, one that has run, or an agent."""

from pathlib import Path

import numpy as np
import torch

from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.generate import generate
from nppsim.reading import read_json
from rl.config import ExperimentConfig
from rl.config.command_line import check_prepared, resolve
from rl.config.resume import config_from_dict
from rl.doctor.doctor import CHECKPOINT, STORED, Doctor
from rl.doctor.runs import RUN_FILE
from rl.experiment.data import Log
from rl.experiment.rehearsal import rehearse
from rl.policy import checkpoint
from rl.policy.player import player_of
from rl.ppo.logs import BOARD

SHOWN = ("simplest", "simple", "medium", "mine_heavy")  # categories of the levels that an agent is shown
Only = tuple[str, ...] | None  # names of the checks to make; None: all
DEFAULT_FLAGS = (
    *("--experiment-name", "doctor", "--architectures", "mlp_baseline", "--use-curriculum"),
    *("--dev-dataset", "datasets/dev", "--replay-data-dir", "datasets/demonstrations"),
)


def examine_config(path: Path | None, log: Log, only: Only = None) -> Doctor:
    """Rehearse the experiment of a config.json; None: the main job's defaults on the shipped data.

    ConfigError for a file that is none, or what it names is not there.
    """
    return rehearse(resolve(DEFAULT_FLAGS) if path is None else read_config(path), log, only)


def examine_run(folder: Path, log: Log, only: Only = None) -> Doctor:
    """Look at what each run of an experiment has written, then rehearse the experiment.

    ConfigError for a folder in which no run has begun.
    """
    config = read_config(folder / "config.json")
    runs = sorted({path.parent for name in (RUN_FILE, BOARD) for path in folder.rglob(name)})
    if not runs:
        raise ConfigError("no training has begun there; give the folder of an experiment that has", "--run", folder)
    stored = Doctor(log, only=only)
    for run in runs:
        log(f"{run}")
        stored.examine(STORED, folder=run)
        if (run / "agent.safetensors").is_file():
            _look_at_agent(stored, run / "agent.safetensors")
    doctor = rehearse(config, log, only)
    doctor.findings = stored.findings + doctor.findings
    return doctor


def examine_checkpoint(path: Path, log: Log, only: Only = None) -> Doctor:
    """Look at one agent."""
    doctor = Doctor(log, only=only)
    _look_at_agent(doctor, path)
    return doctor


def _look_at_agent(doctor: Doctor, path: Path) -> None:
    """CheckpointError if it cannot be loaded."""
    policy, facts = checkpoint.load_policy(path)
    levels = [generate(category, seed)[0] for category in SHOWN for seed in range(4)]
    sim = BatchSimulator(
        levels,
        len(levels),
        frame_skip=facts["frame_skip"],
        observations=policy.observations,
        stacking=policy.stacking,
    )
    rng, seen = torch.Generator().manual_seed(0), []
    player, everybody = player_of(policy, sim.num_envs), np.arange(sim.num_envs)
    sim.reset()
    for _ in range(16):
        seen.append({key: torch.from_numpy(values.copy()) for key, values in sim.obs.items()})
        sim.step(player.act(sim.obs, everybody, deterministic=False, rng=rng))
        player.begin(sim.finished)
    sample = {key: torch.cat([some[key] for some in seen]) for key in policy.observations}
    doctor.examine(CHECKPOINT, policy=policy, facts=facts, sample=sample)


def read_config(path: Path) -> ExperimentConfig:
    """The configuration in a config.json, with all that it needs there; ConfigError if not."""
    data = read_json(path, ConfigError, "give the config.json of a run")
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: no configuration; give the config.json of a run")
    config = config_from_dict(data, str(path))
    try:
        check_prepared(config)
    except OSError as error:  # such as a name that no file can have
        raise ConfigError(f"{path}: {error.filename}: {error.strerror}") from error
    return config
