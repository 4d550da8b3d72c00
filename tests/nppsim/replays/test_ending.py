"""Endings of runs, on corridors with one hazard each."""

import numpy as np
import pytest

from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.replays.ending import IMPACT, LOOP, SLOW, cause_of_death, ending_of
from nppsim.simulate import simulate

from worlds import FLOOR, corridor

PRESSED = 2  # input byte


def death(level, key=PRESSED):
    inputs = np.full(600, key, np.uint8)
    run = simulate(level, inputs)
    assert run.outcome == "died"
    return level, inputs[: run.frames], run


@pytest.mark.parametrize(
    "kind", [kinds.MINE, kinds.ZAP_DRONE, kinds.FLOOR_GUARD, kinds.DEATH_BALL, kinds.GAUSS_TURRET, kinds.ROCKET_TURRET]
)
def test_cause_of_death_is_the_decisive_hazard(kind):
    harmless = [(kinds.LAUNCH_PAD, 150, FLOOR), (kinds.MINE, 155, FLOOR)]
    key = 0 if kind in kinds.TURRETS else PRESSED
    level = corridor(switch=140, door=150, entities=[(kind, 45, FLOOR - (kind in kinds.TURRETS)), *harmless])
    assert cause_of_death(*death(level, key)) == kinds.ENTITY_NAMES[kind]


def test_cause_of_death_thwump_alone_is_the_cause():
    level = corridor(switch=140, door=150, entities=[(kinds.THWUMP, 40, FLOOR, 4)])
    assert cause_of_death(*death(level)) == kinds.ENTITY_NAMES[kinds.THWUMP]


def test_cause_of_death_hard_landing_has_no_entity():
    tiles = np.ones((23, 42), np.uint8)
    tiles[0:20, 2:10] = 0
    level = Level.build(tiles, (20, 8), exits=[((140, FLOOR), (150, FLOOR))], entities=[(kinds.MINE, 40, 78)])
    assert cause_of_death(*death(level, 0)) == IMPACT


MINED = corridor(switch=140, door=150, entities=[(kinds.MINE, 45, FLOOR)])


def test_ending_of_death_has_place_and_first_frame_at_which_all_actions_are_deadly():
    _, inputs, run = death(MINED)
    ending = ending_of(MINED, inputs)
    assert (ending.outcome, ending.cause, ending.frames) == ("died", "mine", run.frames)
    assert ending.place == ending.last == tuple(run.position[-1])
    assert not ending.switch_taken
    assert 0 < ending.covered < ending.path_length
    assert ending.deadly_from < run.frames
    assert ending.deadly_from % 4 == 0
    for frame, survives in ((ending.deadly_from, False), (ending.deadly_from - 4, True)):
        outcomes = set()
        for first in range(8):  # input bytes, held for a decision and then exchanged for another one
            for then in range(8):
                tried = np.concatenate([inputs[:frame], np.full(4, first), np.full(60, then)])
                outcomes.add(simulate(MINED, tried).outcome)
        assert ("running" in outcomes) == survives


def test_ending_text_of_death_names_killer_places_and_returns():
    _, inputs, run = death(MINED)
    ending = ending_of(MINED, inputs)
    text = ending.text(16)
    x, y = run.position[-1]
    assert text.startswith(f"killed by a mine at ({x:.0f}, {y:.0f}) after {run.frames / 60:.2f} s")
    assert f"deadly from {ending.deadly_from / 60:.2f} s on" in text
    assert "went back 16 times" in text
    assert "no progress" not in text, "it dies on the path"
    assert "went back" not in ending.text()


def test_ending_of_timeout_has_place_of_last_progress():
    inputs = np.concatenate([np.full(40, PRESSED), np.zeros(500)]).astype(np.uint8)
    ending, run = ending_of(MINED, inputs), simulate(MINED, inputs)
    assert (ending.outcome, ending.cause, ending.deadly_from) == ("timeout", LOOP, None)
    assert 40 <= ending.farthest_frame < 200, "it slides on for a while"
    assert ending.place == ending.farthest == tuple(run.position[ending.farthest_frame - 1])
    assert f"no progress after {ending.farthest_frame / 60:.2f} s" in ending.text()
    assert ending_of(MINED, inputs[:60]).cause == SLOW


def test_ending_of_win_covers_the_whole_path():
    ending = ending_of(corridor(), np.full(600, PRESSED, np.uint8))
    assert (ending.outcome, ending.cause, ending.switch_taken) == ("won", "won", True)
    assert ending.covered == ending.path_length
    assert ending.share == 1


def test_ending_without_a_path_says_so():
    walls = np.ones((23, 42), np.uint8)
    walls[9:11, 3:10] = 0
    walls[9:11, 20:30] = 0
    level = Level.build(walls, (20, FLOOR), exits=[((30, FLOOR), (100, FLOOR))])
    ending = ending_of(level, np.zeros(10, np.uint8))
    assert ending.covered == 0
    assert "no path leads to the exit" in ending.text()


def test_ending_of_empty_run_is_at_the_spawn():
    ending = ending_of(MINED, np.zeros(0, np.uint8))
    assert (ending.frames, ending.last, ending.farthest) == (0, MINED.spawn, MINED.spawn)
