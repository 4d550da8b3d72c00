"""FramePlayer and DecisionPlayer agree with the simulator."""

import numpy as np
import pytest

from nppsim import BatchSimulator, simulate
from nppsim.bank import LevelBank
from nppsim.levels.level import Level
from nppsim.measure.player import DecisionPlayer, FramePlayer
from nppsim.measure.workload import trace_plays

from places import EXCERPT

EMPTY = Level(np.zeros((23, 42), int), np.array([[0, 80, 50, 0, 0]]))  # no tile but the border


@pytest.fixture(scope="module")
def plays():
    return trace_plays(EXCERPT)[:3]


@pytest.mark.parametrize("threads", [1, 2])
def test_frame_player_restarts_at_the_end_of_a_recording(plays, threads):
    player = FramePlayer(LevelBank([play.level for play in plays]), [play.inputs for play in plays], 5, threads=threads)
    frames = max(len(play.inputs) for play in plays) + 30
    assert player.play(frames - 7) + player.play(7) == 5 * frames
    for i, ninja in enumerate(player.ninjas):
        play = plays[i % 3]
        left = frames % simulate(play.level, play.inputs).frames
        expected = simulate(play.level, play.inputs[:left]).position[-1] if left else play.level.spawn
        assert (ninja["x"], ninja["y"]) == tuple(expected)


def test_frame_player_without_restart_continues_after_a_death(plays):
    suicide = np.full(40, 8, np.uint8)  # the self-destruct bit
    player = FramePlayer(LevelBank([EMPTY]), [suicide])
    player.play(40, restart=False)
    assert player.ninjas["frame"][0] == 40
    player = FramePlayer(LevelBank([EMPTY]), [suicide])
    player.play(40)
    assert player.ninjas["frame"][0] == 40 % simulate(EMPTY, suicide).frames


def test_decision_player_repeats_its_rows():
    actions = np.random.default_rng(0).integers(6, size=(3, 2))
    next_level = np.array([[0, 1], [1, 0], [1, 1]], np.int32)
    simulator = BatchSimulator([EMPTY, EMPTY], 2, threads=1, profile=True)
    player = DecisionPlayer(simulator, actions, next_level, start=np.array([1, 1]))
    assert simulator.level.tolist() == [1, 1]
    assert player.play(2) == 4 and player.play(3) == 6
    assert simulator.next_level.tolist() == next_level[1].tolist()  # the fifth row is the second
    other = BatchSimulator([EMPTY, EMPTY], 2, threads=1)
    other.reset(np.array([1, 1]))
    for t in (0, 1, 2, 0, 1):
        expected = other.step(actions[t])
    assert player.observations["game_state"].tobytes() == expected["game_state"].tobytes()
    assert player.phases["ninja"] > 0
