"""Time and score as N++ shows them."""

import pytest

from nppsim.replays.score import score, seconds, time_text


@pytest.mark.parametrize(
    ("frames", "gold", "expected"), [(0, 0, 90.0), (1, 0, 89.983), (754, 3, 83.433), (6000, 0, -10.0)]
)
def test_the_score_is_the_time_left_on_the_clock(frames, gold, expected):
    assert score(frames, gold) == expected


def test_times_have_three_decimals():
    assert seconds(754) == 12.567
    assert time_text(60) == "1.000 s"
