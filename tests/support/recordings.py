"""Replays that win, for tests of imitation."""

import numpy as np

import nppsim
from nppsim.levels.level import Level
from nppsim.replays.replay import Replay

RIGHT = 2
STATE = ("game_state",)


def level(distance=40, name=""):
    """A flat room: the exit's switch and the exit to the right of the spawn, ``distance`` units of 6 px apart."""
    exits = [((30, 94), (30 + distance, 94))]
    return Level.build(np.zeros((23, 42), np.uint8), (20, 94), exits=exits, name=name)


def winning_inputs(of):
    run = nppsim.simulate(of, np.full(600, RIGHT, np.uint8))
    assert run.outcome == "won"
    return np.full(run.frames, RIGHT, np.uint8)


def replay_folder(folder, distances=(20, 40, 60)):
    folder.mkdir(parents=True, exist_ok=True)
    for i, distance in enumerate(distances):
        Replay(level(distance), winning_inputs(level(distance))).save(folder / f"2025_train_simple_{i}.replay")
    return folder
