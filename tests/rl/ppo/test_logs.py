"""Curves on disk: rows and events of a run that is gone on with, without a gap and without a doubled one."""

import csv

import pytest
from stable_baselines3.common.logger import Logger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from rl.events import EventsError, EventWriter, event_files, read_scalars
from rl.ppo.logs import GrowingTable, ScalarLog, cut_events, write_settings


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


def test_curves_are_truncated_to_the_checkpoint_and_continue(tmp_path):
    log = ScalarLog(tmp_path)
    write(log, [1, 2], b=0.5)
    written = log.written
    assert written == {"rows": 2, "events": 3}
    write(log, [3, 4], later=1.0)
    with open(tmp_path / "progress.csv", "a") as file:
        file.write("5.0,1")  # torn
    with open(event_files(tmp_path / "tensorboard")[-1], "ab") as file:
        file.write(b"\x10torn")
    write(ScalarLog(tmp_path, **written), [3, 4], b=0.5)
    assert [row["a"] for row in rows(tmp_path)] == ["1.0", "2.0", "3.0", "4.0"]
    assert [row["b"] for row in rows(tmp_path)] == ["", "0.5", "0.5", "0.5"]
    assert read_scalars(tmp_path)["a"].steps.tolist() == [1, 2, 3, 4]
    ScalarLog(tmp_path)
    assert not (tmp_path / "progress.csv").exists()


def test_events_of_imitation_remain_except_those_of_repeated_epochs(tmp_path):
    def imitate(epochs):
        with EventWriter(tmp_path / "tensorboard") as writer:
            for epoch in epochs:
                writer.add_scalar("bc/loss", epoch, epoch)

    imitate([0, 1, 2, 3])
    cut_events(tmp_path / "tensorboard", 0, epochs=2)
    imitate([3, 4])
    write(ScalarLog(tmp_path), [100])
    log = ScalarLog(tmp_path, rows=1, events=1)
    write(log, [200])
    scalars = read_scalars(tmp_path)
    assert scalars["bc/loss"].steps.tolist() == [0, 1, 2, 3, 4]
    assert scalars["a"].steps.tolist() == [100, 200]
    cut_events(tmp_path / "tensorboard", 0, epochs=-1)
    assert event_files(tmp_path / "tensorboard") == []


def test_event_files_of_others_are_not_changed(tmp_path):
    board = tmp_path / "tensorboard"
    write_settings(board, {"ppo.gamma": {"value": 0.995, "source": "default"}})
    foreign = board / "events.out.tfevents.0000000001.other"  # sorts before ours
    with SummaryWriter(tmp_path / "elsewhere") as writer:
        for step in range(9):
            writer.add_scalar("theirs", step, step)
    foreign.write_bytes(event_files(tmp_path / "elsewhere")[0].read_bytes())
    content = foreign.read_bytes()
    log = ScalarLog(tmp_path)
    write(log, [1, 2])
    for step in (3, 4):
        log = ScalarLog(tmp_path, **log.written)
        write(log, [step])
    assert foreign.read_bytes() == content
    assert read_scalars(board)["a"].steps.tolist() == [1, 2, 3, 4]
    assert len(read_scalars(board)["theirs"].steps) == 9
    ScalarLog(tmp_path)
    assert foreign.read_bytes() == content


def test_a_run_without_recorded_names_goes_on(tmp_path):
    """As of version 0.1."""
    log = ScalarLog(tmp_path)
    write(log, [1, 2])
    (tmp_path / "tensorboard" / "written.txt").unlink()
    for step in (3, 4):
        log = ScalarLog(tmp_path, **log.written)
        write(log, [step])
    assert read_scalars(tmp_path)["a"].steps.tolist() == [1, 2, 3, 4]


def test_settings_are_in_tensorboard_once(tmp_path):
    settings = {"ppo.gamma": {"value": 0.995, "source": "default"}, "seeds": {"value": [1, 2], "source": "a | b"}}
    board = tmp_path / "tensorboard"
    write_settings(board, settings)
    write(ScalarLog(tmp_path), [1])
    write_settings(board, settings)
    write(ScalarLog(tmp_path, rows=1, events=1), [2])
    found = EventAccumulator(str(board)).Reload()
    assert read_scalars(board)["a"].steps.tolist() == [1, 2]
    (text,) = found.Tensors("configuration/text_summary")
    assert b"| ppo.gamma | 0.995 | default |" in text.tensor_proto.string_val[0]
    assert len(found.PluginTagToContent("hparams")) == 2


def test_columns_are_in_order_whenever_they_appear(tmp_path):
    logger = Logger(None, [GrowingTable(tmp_path / "progress.csv")])
    for names in (["x/b", "train/loss"], ["time/fps", "x/a", "train/loss"], ["x/b"]):
        for name in names:
            logger.record(name, len(name))
        logger.dump()
    assert (tmp_path / "progress.csv").read_text() == "time/fps,train/loss,x/a,x/b\n,10,,3\n8,10,3,\n,,,3\n"


@pytest.mark.parametrize("lost", ["progress.csv", "tensorboard"])
def test_truncated_curves_are_an_error(tmp_path, lost):
    log = ScalarLog(tmp_path)
    write(log, [1, 2])
    for file in [tmp_path / lost] if lost.endswith("csv") else event_files(tmp_path / lost):
        file.unlink()
    with pytest.raises(EventsError, match=f"{lost}.* has .*expected 2"):
        ScalarLog(tmp_path, **log.written)
