"""Curves on disk: a resumed run has neither gaps nor duplicates."""

import csv

import pytest
from stable_baselines3.common.logger import Logger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rl.events import EventsError, event_files, read_scalars
from rl.ppo.logs import CSVOutput, FunctionOutput, ScalarLog, write_settings


def write(log, steps, **more):
    """A row for each step; ``more`` from the second one on."""
    logger = Logger(None, log.outputs)
    for step in steps:
        logger.record("a", float(step))
        logger.record("hidden", 1.0, exclude="tensorboard")
        for name, value in more.items() if step > 1 else ():
            logger.record(name, value)
        logger.dump(step)


def rows(folder):
    with open(folder / "progress.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_scalar_log_resumed_continues_at_checkpoint(tmp_path):
    log = ScalarLog(tmp_path)
    write(log, [1, 2], b=0.5)
    written = log.written
    assert written == {"rows": 2}
    write(log, [3, 4], later=1.0)
    with open(tmp_path / "progress.csv", "a") as file:
        file.write("5.0,1")  # incomplete
    with open(event_files(tmp_path / "tensorboard")[-1], "ab") as file:
        file.write(b"\x10incomplete")
    write(ScalarLog(tmp_path, **written, purge_step=3), [3, 4], b=0.5)
    assert [row["a"] for row in rows(tmp_path)] == ["1.0", "2.0", "3.0", "4.0"]
    assert [row["b"] for row in rows(tmp_path)] == ["", "0.5", "0.5", "0.5"]
    scalars = read_scalars(tmp_path)
    assert scalars["a"].steps.tolist() == [1, 2, 3, 4] and "later" not in scalars
    ScalarLog(tmp_path)
    assert not (tmp_path / "progress.csv").exists()


def test_settings_are_in_tensorboard_once(tmp_path):
    settings = {"ppo.gamma": {"value": 0.995, "source": "default"}, "seeds": {"value": [1, 2], "source": "a | b"}}
    board = tmp_path / "tensorboard"
    write_settings(board, settings)
    write(ScalarLog(tmp_path), [1])
    write_settings(board, settings)
    write(ScalarLog(tmp_path, rows=1, purge_step=2), [2])
    found = EventAccumulator(str(board)).Reload()
    assert read_scalars(board)["a"].steps.tolist() == [1, 2]
    (text,) = found.Tensors("configuration/text_summary")
    assert b"| ppo.gamma | 0.995 | default |" in text.tensor_proto.string_val[0]
    assert len(found.PluginTagToContent("hparams")) == 2


def test_columns_stay_in_order_when_added_later(tmp_path):
    logger = Logger(None, [CSVOutput(tmp_path / "progress.csv")])
    for names in (["x/b", "train/loss"], ["time/fps", "x/a", "train/loss"], ["x/b"]):
        for name in names:
            logger.record(name, len(name))
        logger.dump()
    assert (tmp_path / "progress.csv").read_text() == "time/fps,train/loss,x/a,x/b\n,10,,3\n8,10,3,\n,,,3\n"


def test_scalar_log_fewer_rows_than_checkpoint_raises(tmp_path):
    log = ScalarLog(tmp_path)
    write(log, [1, 2])
    (tmp_path / "progress.csv").unlink()
    with pytest.raises(EventsError, match="progress.csv.* has 0 rows, expected 2"):
        ScalarLog(tmp_path, **log.written)


def test_function_output_calls_once_per_step():
    seen = []
    output = FunctionOutput(lambda *row: seen.append(row))
    for step, values in ((1, {"b": 1, "a": 2}), (2, {"a": 3}), (2, {"c": 4})):
        output.write(values, {}, step)
    assert seen == [(1, {"a": 2.0, "b": 1.0})]
    for _ in range(2):
        output.close()
        assert seen[1:] == [(2, {"a": 3.0, "c": 4.0})]
