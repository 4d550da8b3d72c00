"""Event files: written values are read back, and write errors are reported."""

import os

import numpy as np
import pytest
from stable_baselines3.common.logger import Logger

from rl.events import EventsError, event_files, open_events, read_scalars
from rl.ppo.logs import TensorBoardOutput


def test_read_scalars_several_files_returns_one_history(tmp_path):
    with open_events(tmp_path) as first:
        first.add_scalar("loss", 0.5, 3)
        first.flush()
        assert read_scalars(tmp_path)["loss"].values.tolist() == [0.5]
        first.add_scalar("loss", np.float32(0.25), 4)
    with open_events(tmp_path) as second:
        second.add_scalar("loss", 0.25, 4)  # repeated after a resume
        second.add_scalar("loss", 0, 5)
    found = read_scalars(tmp_path)["loss"]
    assert (found.steps.tolist(), found.values.tolist()) == ([3, 4, 5], [0.5, 0.25, 0])


def test_open_events_purge_step_hides_later_events_of_earlier_files(tmp_path):
    for steps, purge_step in (((1, 2, 3, 4), None), ((3,), 3)):
        with open_events(tmp_path, purge_step) as writer:
            for step in steps:
                writer.add_scalar("loss", 0.5, step)
    assert read_scalars(tmp_path)["loss"].steps.tolist() == [1, 2, 3]


def test_open_events_folder_not_utf8_raises(tmp_path):
    with pytest.raises(EventsError, match="reads no folder whose name is not UTF-8"):
        open_events(tmp_path / os.fsdecode(b"caf\xe9"))
    open_events(tmp_path / "café").close()
    assert read_scalars(tmp_path) == {}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_tensorboard_output_full_disk_raises(tmp_path, largest_file):
    output = TensorBoardOutput(tmp_path)
    (file,) = event_files(tmp_path)
    values = {f"loss_{i}": 0.5 for i in range(100)}
    with largest_file(file.stat().st_size + 100), pytest.raises(OSError, match="File too large"):
        output.write(values, dict.fromkeys(values, ("",)), 1)


def test_tensorboard_output_excluded_tag_is_not_written(tmp_path):
    logger = Logger(str(tmp_path), [TensorBoardOutput(tmp_path)])
    logger.record("train/loss", np.float64(1.5))
    logger.record("only/table", 1, exclude="tensorboard")
    logger.dump(7)
    assert {tag: (s.steps.tolist(), s.values.tolist()) for tag, s in read_scalars(tmp_path).items()} == {
        "train/loss": ([7], [1.5])
    }
