"""Time and score as N++ shows them."""

import pytest

from nppsim.replays.score import score, seconds, time_text


@pytest.mark.parametrize(
    ("frames", "gold", "expected"), [(0, 0, 90.0), (1, 0, 90.0), (2, 0, 89.983), (754, 3, 83.45), (6001, 0, -10.0)]
)
def test_score_is_time_left_on_clock(frames, gold, expected):
    assert score(frames, gold) == expected


def test_score_matches_community_formula():
    assert score(600, gold=4) == round((90 * 60 - 600 + 1 + 120 * 4) / 60, 3)
    episode = [(600, 4), (300, 0), (1000, 2)]  # frames and gold of each level
    frames, gold = map(sum, zip(*episode, strict=True))
    assert score(frames, gold, levels=3) == round((90 * 60 + sum(-f + 1 + 120 * g for f, g in episode)) / 60, 3)


def test_time_text_has_three_decimals():
    assert seconds(754) == 12.567
    assert time_text(60) == "1.000 s"
