"""``nppsim diff``: first difference of two runs, frames gained and lost."""

import json

import numpy as np
import pytest

import nppsim
from nppsim.__main__ import main
from nppsim.bank import LevelBank
from nppsim.replays.diff import compare_replays, difference_text, remaining_path
from nppsim.replays.replay import Replay, ReplayError
from nppsim.replays.score import score

from worlds import FLOOR, corridor, tiles

LEVEL = corridor()
FAST = Replay(LEVEL, np.full(200, 2), name="fast")
SLOW = Replay(LEVEL, np.array([2] * 20 + [0] * 15 + [2] * 200), name="slow")
STOPS = Replay(LEVEL, np.full(30, 2), name="stops")


def test_compare_run_with_itself_has_no_difference():
    difference, *_ = compare_replays(FAST, FAST)
    assert difference.inputs_part is difference.positions_part is None
    assert difference.total == 0
    assert {mark.lead for mark in difference.marks} == {0}
    assert "never" in difference_text(difference) and difference_text(difference).endswith("total: equally fast")


def test_compare_pause_found_where_inserted():
    difference, fast, slow = compare_replays(FAST, SLOW, sections=40)
    assert difference.inputs_part == 21
    assert difference.positions_part > 21
    gap = np.hypot(*(fast.position[:40] - slow.position[:40]).T)
    assert gap[difference.positions_part - 1] > 1 >= gap[difference.positions_part - 2]
    assert difference.total == slow.frames - fast.frames > 0
    assert difference.scores == (score(fast.frames, 0), score(slow.frames, 0))
    leads = [mark.lead for mark in difference.marks]
    assert leads[0] == 0 and leads[-1] == difference.total
    assert np.diff(leads).min() >= -1  # whole frames: one may be lost by rounding
    other, *_ = compare_replays(SLOW, FAST, sections=40)
    assert [mark.lead for mark in other.marks] == [-lead for lead in leads]
    assert "B is faster by" in difference_text(other) and "A is faster by" in difference_text(difference)


def test_compare_inputs_after_end_ignored():
    assert compare_replays(FAST, Replay(LEVEL, np.array([2] * 200 + [4])))[0].inputs_part is None
    assert compare_replays(FAST, STOPS)[0].inputs_part == 31


def test_compare_unfinished_run_has_no_total():
    difference, *_ = compare_replays(STOPS, FAST)
    assert difference.outcomes == ("running", "won") and difference.total is None
    assert difference.marks[-1].frame_a is None and difference.marks[-1].lead is None
    assert difference.marks[0].lead == 0
    assert "at least one run does not finish" in difference_text(difference)


def test_remaining_path_equals_simulator_path():
    run = nppsim.simulate(LEVEL, FAST.inputs)
    bank = LevelBank([LEVEL])
    left = remaining_path(bank, run)
    assert left[0] == pytest.approx(bank.path_length[0], abs=3)
    assert (np.diff(left) <= 3).all() and left[-1] < 30


def test_remaining_path_follows_opening_doors():
    # the way to the switch on the right is free; the locked door bars the exit on the left until its switch is taken
    grid = tiles()
    grid[:9] = 1
    level = nppsim.Level.build(
        grid, (60, FLOOR), exits=[((66, FLOOR), (20, FLOOR))], locked_doors=[((72, FLOOR), (40, FLOOR), 0)]
    )
    run = nppsim.simulate(level, np.array([2] * 60))
    bank = LevelBank([level])
    left = remaining_path(bank, run)
    assert left[0] == pytest.approx(bank.path_length[0], abs=3)
    door = np.flatnonzero(run.entities[:, 0] == 6)[0]
    opened = int(np.argmax((run.entity_state[:, door] >> 4 & 1) == 0))
    assert opened > 0
    assert left[:opened].min() >= left[opened] - 20  # it never was nearer than when the door opened
    assert left[opened] == pytest.approx(run.position[opened, 0] - 6 * 20, abs=45)


def test_compare_invalid_arguments_raise_error():
    with pytest.raises(ReplayError, match="fast and B were recorded"):
        compare_replays(FAST, Replay(corridor(spawn=22), FAST.inputs))
    with pytest.raises(ReplayError, match="sections=0"):
        compare_replays(FAST, SLOW, sections=0)


def test_compare_level_without_path_has_no_marks():
    level = nppsim.Level.build(tiles(), (60, FLOOR))
    assert compare_replays(Replay(level, np.full(9, 2)), Replay(level, np.full(9, 4)))[0].marks == ()


def test_diff_command_prints_text_json_and_picture(tmp_path, capsys):
    FAST.save(tmp_path / "a.replay")
    SLOW.save(tmp_path / "b.replay")
    arguments = ["diff", str(tmp_path / "a.replay"), str(tmp_path / "b.replay")]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "inputs differ     from frame 21 on\n" in text and len(text.splitlines()) == 17
    assert main([*arguments, "--json", "--sections", "3"]) == 0
    message = json.loads(capsys.readouterr().out)
    assert message["inputs_part"] == 21 and len(message["marks"]) == 3 and message["outcomes"] == ["won", "won"]
    image = pytest.importorskip("PIL.Image")
    assert main([*arguments, "--out", str(tmp_path / "both.png")]) == 0
    assert image.open(tmp_path / "both.png").width == 1056
    assert main([*arguments, "--out", str(tmp_path / "both.unknown")]) == 2
