"""Number of processes of a run, and what it resumes after a failure."""

import signal
from dataclasses import replace

import pytest

from nppsim.errors import ConfigError
from nppsim.io.files import write_json
from rl.config import ExperimentConfig, HardwareConfig
from rl.config.resume import CONFIG
from rl.distributed.launch import _cause
from rl.distributed.ranks import SINGLE_PROCESS, TorchrunEnvironment
from rl.experiment.record import SUMMARY
from rl.experiment.run import run
from rl.experiment.train import as_started, find_unfinished

CONFIG_OF_ONE = ExperimentConfig(experiment_name="first", architectures=("vision_free",))


def with_processes(count, **more):
    return replace(CONFIG_OF_ONE, hardware=HardwareConfig(num_processes=count), **more)


def started(size, restarts=0):
    return TorchrunEnvironment(rank=0, size=size, local_rank=0, local_size=size, restarts=restarts)


def test_started_from_environment_of_torchrun(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert TorchrunEnvironment.from_environment() is None
    for name, value in {"RANK": 3, "WORLD_SIZE": 4, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert TorchrunEnvironment.from_environment() == TorchrunEnvironment(3, 4, 1, 2, 2)
    assert as_started(CONFIG_OF_ONE, started(4)).hardware.processes == 4
    assert as_started(CONFIG_OF_ONE, started(1)) == CONFIG_OF_ONE


@pytest.mark.parametrize("config", [with_processes(2), with_processes(2, resume_from="folder")])
def test_as_started_other_number_of_processes_raises(config):
    with pytest.raises(ConfigError, match="--num-processes"):
        as_started(config, started(3))
    assert as_started(config, started(2)) == config


def test_run_with_too_few_processes_raises():
    with pytest.raises(ConfigError, match="num_processes 2: "):
        run(with_processes(2), ranks=SINGLE_PROCESS)


def test_unfinished_returns_newest_matching_experiment(tmp_path):
    config = with_processes(2, output_dir=tmp_path)
    assert find_unfinished(config) is None
    for number, settings in enumerate([config, config, config, replace(config, seeds=(7,))]):
        folder = tmp_path / f"first_2026010{number}_000000"
        folder.mkdir()
        write_json(folder / CONFIG, settings.to_dict())
    (tmp_path / "first_20260102_000000" / SUMMARY).touch()
    (tmp_path / "first_other_20260101_000000").mkdir()
    write_json(tmp_path / "first_other_20260101_000000" / CONFIG, {"experiment_name": "first_other", "old_setting": 1})
    assert find_unfinished(config) == tmp_path / "first_20260101_000000"
    assert as_started(config, started(2)).resume_from is None
    assert as_started(config, started(2, restarts=1)).resume_from == find_unfinished(config)


def test_cause_of_several_failures():
    killed, ended = -signal.SIGKILL, -signal.SIGTERM
    assert _cause({0: 2, 1: killed}) == (1, killed)
    assert _cause({0: ended, 1: 2}) == (1, 2)
    assert _cause({0: ended, 1: ended}) == (0, ended)
