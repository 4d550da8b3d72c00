"""Folder of ``scripts/pretrain_bc.py``: one for each call, and none for a call without output."""

from datetime import datetime

import pytest

from nppsim.errors import ConfigError
from rl.tools import pretrain


class Noon(datetime):
    """A clock with a constant time."""

    @classmethod
    def now(cls):
        return cls(2026, 1, 1, 12)


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain, "datetime", Noon)
    flags = ["--architecture", "vision_free", "--replay-data-dir", tmp_path, "--output-dir", tmp_path / "out"]
    return pretrain.parse(list(map(str, flags)))


def test_run_in_same_second_uses_new_folder(job, monkeypatch):
    monkeypatch.setattr(pretrain, "train", lambda job, folder, best: best.touch())
    pretrain.run(job)
    pretrain.run(job)
    name = "pretrain_vision_free_20260101_120000"
    found = sorted(str(path.relative_to(job.output_dir)) for path in job.output_dir.glob("*/*"))
    assert found == [f"{name}/bc_best.safetensors", f"{name}_2/bc_best.safetensors"]


def test_run_failed_leaves_no_folder(job, monkeypatch):
    def train(job, folder, best):
        raise ConfigError("no demonstrations")

    monkeypatch.setattr(pretrain, "train", train)
    with pytest.raises(ConfigError):
        pretrain.run(job)
    assert list(job.output_dir.iterdir()) == []
