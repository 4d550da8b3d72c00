"""Targets: times and scores to reach, found by the id of the game or by the fingerprint."""

from dataclasses import replace

import pytest

from nppsim.errors import ConfigError
from nppsim.replays.targets import Target, Targets

from worlds import corridor

LEVEL = replace(corridor(), id="S-C-12-03")


def targets(tmp_path, text):
    file = tmp_path / "targets.txt"
    file.write_text(text)
    return Targets(file)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("S-C-12-03  12.567", Target(frames=754)),
        ("s-c-12-03, Score 91.2  # hard", Target(score=91.2)),
        (f"{LEVEL.fingerprint[:8]}; 3", Target(frames=180)),
        (f"{LEVEL.fingerprint[:7]} 3", None),
        ("S-C-12-04 3", None),
    ],
)
def test_target_of_a_level(tmp_path, line, expected):
    assert targets(tmp_path, f"# mine\n\n{line}\n").of(LEVEL) == expected


def test_time_is_reached_at_the_clock_and_score_with_gold():
    assert Target(frames=754).is_reached(754, 0)
    assert not Target(frames=754).is_reached(755, 9)
    assert Target(score=83.45).is_reached(754, 3)
    assert not Target(score=83.45).is_reached(754, 2)


def test_missing_file_is_an_error_with_its_name(tmp_path):
    with pytest.raises(ConfigError, match="none.txt"):
        Targets(tmp_path / "none.txt")


@pytest.mark.parametrize("text", ["S-C-12-03", "S-C-12-03 fast", "$Title#00 12"])
def test_line_of_another_form_is_an_error(tmp_path, text):
    with pytest.raises(ConfigError, match="line 2"):
        targets(tmp_path, f"\n{text}")
