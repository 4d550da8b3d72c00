"""Event files: written values are read back, and write errors are reported immediately."""

import os

import numpy as np
import pytest
from stable_baselines3.common.logger import Logger

from rl.events import EventsError, EventWriter, read_scalars
from rl.ppo.logs import ScalarOutput


def test_scalars_are_on_disk_after_a_flush_and_several_files_are_one_history(tmp_path):
    with EventWriter(tmp_path) as first:
        first.add_scalar("loss", 0.5, 3)
        first.flush()
        assert read_scalars(tmp_path)["loss"].values.tolist() == [0.5]
        first.add_scalar("loss", np.float32(0.25), 4)
    with EventWriter(tmp_path) as second:
        second.add_scalar("loss", 0, 5)
    found = read_scalars(tmp_path)["loss"]
    assert (found.steps.tolist(), found.values.tolist()) == ([3, 4, 5], [0.5, 0.25, 0])


def test_what_does_not_fit_is_an_error_that_names_the_file_and_leaves_it_whole(tmp_path, largest_file):
    writer = EventWriter(tmp_path)
    writer.add_scalar("loss", 0.5, 1)
    writer.flush()
    whole = writer.path.read_bytes()
    for step in range(2, 100):
        writer.add_scalar("loss", 0.5, step)
    with largest_file(len(whole) + 100), pytest.raises(OSError, match="File too large") as error:
        writer.flush()
    assert error.value.filename == str(writer.path)
    assert writer.path.read_bytes() == whole
    writer.close()
    assert read_scalars(tmp_path)["loss"].steps.tolist() == list(range(1, 100))


def test_a_folder_that_tensorboard_cannot_read_is_refused(tmp_path):
    with pytest.raises(EventsError, match="reads no folder whose name is not UTF-8"):
        EventWriter(tmp_path / os.fsdecode(b"caf\xe9"))
    EventWriter(tmp_path / "café").close()
    assert read_scalars(tmp_path) == {}


def test_a_file_that_is_removed_meanwhile_is_an_error(tmp_path):
    with EventWriter(tmp_path) as writer:
        writer.path.unlink()
        with pytest.raises(EventsError, match="was removed while"):
            writer.flush()
        writer.path.touch()


def test_the_logger_of_stable_baselines3_writes_numbers_and_nothing_else(tmp_path):
    logger = Logger(str(tmp_path), [ScalarOutput(tmp_path)])
    logger.record("train/loss", np.float64(1.5))
    logger.record("only/table", 1, exclude="tensorboard")
    logger.dump(7)
    assert {tag: (s.steps.tolist(), s.values.tolist()) for tag, s in read_scalars(tmp_path).items()} == {
        "train/loss": ([7], [1.5])
    }
    logger.record("note", "words")
    with pytest.raises(ValueError, match="could not convert"):
        logger.dump(8)
