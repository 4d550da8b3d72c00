"""Inputs as text: round trip, hand-written lines, errors, and the command."""

import numpy as np
import pytest

from nppsim import simulate
from nppsim.__main__ import main
from nppsim.actions import JUMP, LEFT, RIGHT
from nppsim.replays.input_text import from_text, to_text
from nppsim.replays.replay import Replay, ReplayError

from worlds import straight

TEXT = """# up the wall
  2
3,R
 1, r , J   # a jump

***
0,L
2 L R
"""


def test_from_text_hand_written_lines():
    assert from_text(TEXT).tolist() == [0, 0] + [RIGHT] * 3 + [RIGHT | JUMP] + [LEFT | RIGHT] * 2


@pytest.mark.parametrize("seed", range(3))
def test_to_text_round_trip(seed):
    inputs = np.repeat(np.random.default_rng(seed).integers(0, 16, 200).astype(np.uint8), 2)
    assert np.array_equal(from_text(to_text(inputs, "two\nlines")), inputs)
    assert to_text(np.array([RIGHT] * 12 + [0], np.uint8), "a b") == "# a b\n  12,R\n   1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("12,R\n3,X", "line 2 is '3,X'; expected a number of frames"),
        ("R,12", "line 1 is 'R,12'"),
        ("# nothing\n", "no frames"),
        ("0", "no frames"),
        ("999999999", "line 1: more than"),
        ("12R", "line 1"),
    ],
)
def test_from_text_invalid_line_raises_error(text, message):
    with pytest.raises(ReplayError, match=message):
        from_text(text, "run.txt")


def test_inputs_command_there_and_back(tmp_path, capsys):
    run, text, back = (tmp_path / name for name in ("run.replay", "run.txt", "back.replay"))
    level = straight()
    frames = simulate(level, np.full(400, RIGHT, np.uint8)).frames
    replay = Replay(level, np.full(frames, RIGHT, np.uint8), success=True)
    replay.save(run)
    assert main(["inputs", str(run)]) == 0
    text.write_text(capsys.readouterr().out, encoding="utf-16")
    assert main(["inputs", str(text), "--level", str(run), "--out", str(back)]) == 0
    assert f"won after {replay.frames} frames" in capsys.readouterr().out
    assert np.array_equal(Replay.load(back).inputs, replay.inputs) and Replay.load(back).success
    assert main(["inputs", str(text), "--out", str(back)]) == 2
    assert "--level and --out" in capsys.readouterr().err
