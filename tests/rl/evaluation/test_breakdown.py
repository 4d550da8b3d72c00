"""Breakdown of evaluations, on corridors with one hazard each."""

from dataclasses import replace

import numpy as np

from nppsim.levels import kinds
from nppsim.replays.ending import LOOP, SLOW, ending_of
from rl.evaluation.breakdown import by_contents, endings, format_endings, losses, losses_text
from rl.evaluation.results import EpisodeRecord

from worlds import FLOOR, corridor

RIGHT = 2


def record(level, outcome="won", index=0, frames=48, path=300.0, **more):
    inputs = np.full(frames, RIGHT, np.uint8)
    return EpisodeRecord(index, f"l{index}", "c", level, inputs, outcome, frames, frames // 4, 0.0, 0, path, **more)


def test_by_contents_counts_each_episode_once_per_entity():
    plain, mined = corridor(), corridor(entities=[(kinds.MINE, 130, FLOOR), (kinds.MINE, 134, FLOOR)])
    found = by_contents([record(plain), record(mined, "died", 1, path=5000.0), record(mined, "won", 2, path=500.0)])
    counts = {name: (row["episodes"], row["wins"]) for name, row in found.items()}
    assert counts == {
        "with mine": (2, 1),
        "path 0 to 500 px": (1, 1),
        "path 500 to 1,000 px": (1, 1),
        "path above 4,000 px": (1, 0),
        "no locked or trap doors": (3, 2),
        "all": (3, 2),
    }


def test_format_endings_counts_lost_episodes_by_cause():
    level = corridor(switch=140, door=150, entities=[(kinds.MINE, 45, FLOOR)])
    found = endings([record(level, "died", frames=200), record(level, "timeout"), record(corridor(), frames=200)])
    assert [ending.cause for ending in found] == ["mine", SLOW, "won"]
    table = format_endings(found)
    assert "mine" in table and SLOW in table and "won" not in table
    assert format_endings(found[2:]) == "no episode was lost"


def test_losses_are_grouped_by_cause_with_place_and_covered_path():
    level = corridor(switch=140, door=150, entities=[(kinds.MINE, 45, FLOOR)])
    died = replace(record(level, "died"), inputs=np.full(200, RIGHT, np.uint8), backtracks=3)
    waited = replace(record(level, "timeout"), inputs=np.zeros(48, np.uint8))
    mine, loop = losses([waited, died, died, record(corridor())])
    ending = ending_of(level, died.inputs)
    assert (mine.cause, mine.episodes, mine.covered) == ("mine", 2, ending.covered)
    assert (mine.x, mine.y) == ending.last
    assert mine.why == ending.text(3)
    assert (mine.inputs == died.inputs).all()
    assert (loop.cause, loop.episodes, loop.covered) == (LOOP, 1, 0.0)
    assert (loop.x, loop.y) == level.spawn
    assert losses_text([mine], 300.0).startswith(f"2 × mine at ({mine.x:.0f}, {mine.y:.0f}) after ")
    assert losses([record(corridor())]) == []
