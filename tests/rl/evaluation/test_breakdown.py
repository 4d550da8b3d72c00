"""Breakdown of evaluations, on corridors with one hazard each."""

from dataclasses import replace

import numpy as np
import pytest

from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.simulate import simulate
from rl.evaluation.breakdown import (
    IMPACT,
    LOOP,
    SLOW,
    by_contents,
    cause_of_death,
    endings,
    format_endings,
    losses,
    losses_text,
)
from rl.evaluation.results import EpisodeRecord

from worlds import FLOOR, corridor

RIGHT = 2


def death(level, key=RIGHT):
    inputs = np.full(600, key, np.uint8)
    run = simulate(level, inputs)
    assert run.outcome == "died"
    return level, inputs[: run.frames], run


@pytest.mark.parametrize(
    "kind", [kinds.MINE, kinds.ZAP_DRONE, kinds.FLOOR_GUARD, kinds.DEATH_BALL, kinds.GAUSS_TURRET, kinds.ROCKET_TURRET]
)
def test_endings_death_cause_is_the_decisive_hazard(kind):
    harmless = [(kinds.LAUNCH_PAD, 150, FLOOR), (kinds.MINE, 155, FLOOR)]
    key = 0 if kind in kinds.TURRETS else RIGHT
    level = corridor(switch=140, door=150, entities=[(kind, 45, FLOOR - (kind in kinds.TURRETS)), *harmless])
    assert cause_of_death(*death(level, key)) == kinds.ENTITY_NAMES[kind]


def test_endings_thwump_alone_is_the_cause():
    level = corridor(switch=140, door=150, entities=[(kinds.THWUMP, 40, FLOOR, 4)])
    assert cause_of_death(*death(level)) == kinds.ENTITY_NAMES[kinds.THWUMP]


def test_endings_hard_landing_has_no_entity():
    tiles = np.ones((23, 42), np.uint8)
    tiles[0:20, 2:10] = 0
    level = Level.build(tiles, (20, 8), exits=[((140, FLOOR), (150, FLOOR))], entities=[(kinds.MINE, 40, 78)])
    assert cause_of_death(*death(level, 0)) == IMPACT


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


def test_endings_timeout_without_late_progress_is_a_loop():
    early, late = (record(corridor(), "timeout", last_gain=decision, covered=0.5) for decision in (5, 7))
    found = endings([early, late, record(corridor())])
    assert [ending.cause for ending in found] == [LOOP, SLOW, "won"]
    assert [ending.switch_taken for ending in found] == [True] * 3, "the switch is 60 px to the right"
    assert not endings([replace(early, inputs=np.zeros(48, np.uint8))])[0].switch_taken
    table = format_endings(found, [early, late, record(corridor())])
    assert LOOP in table and SLOW in table and "won" not in table


def test_losses_are_grouped_by_cause_with_place_and_covered_path():
    level = corridor(switch=140, door=150, entities=[(kinds.MINE, 45, FLOOR)])
    _, inputs, run = death(level)
    died = replace(record(level, "died", covered=0.25), inputs=inputs)
    waited = replace(record(level, "timeout", covered=0.5, last_gain=1), inputs=np.zeros(48, np.uint8))
    mine, loop = losses([waited, died, died, record(corridor())])
    assert (mine.cause, mine.episodes, mine.covered) == ("mine", 2, 75.0)
    assert (mine.x, mine.y) == tuple(run.position[-1])
    assert (loop.cause, loop.episodes, loop.covered) == (LOOP, 1, 150.0)
    assert losses_text([mine], 300.0) == f"2 × mine at ({mine.x:.0f}, {mine.y:.0f}) after 75 of 300 px"
    assert (loop.x, loop.y) == tuple(
        simulate(level, waited.inputs).position[4]
    )  # after the last decision with progress
    assert losses([record(corridor())]) == []
