"""Graphs for probes and checks on made-up data: a number cannot be made up, it has to be some level's."""

import functools

import numpy as np

from nppsim.bank import LevelBank
from nppsim.generate import CATEGORIES, generate
from nppsim.observe.graph import announce, state_at_start

LEVELS = 64  # of all categories
DECISIONS = 4  # of each level in a row; a minibatch of a rollout has some six of each


@functools.cache
def _bank() -> LevelBank:
    bank = LevelBank([generate(CATEGORIES[seed % len(CATEGORIES)], seed)[0] for seed in range(LEVELS)])
    announce(bank)
    return bank


def graph_states(rows: int) -> np.ndarray:
    """``graph_state`` int64[rows, 8] of generated levels as they are at the start, DECISIONS of each in a row."""
    bank = _bank()
    return np.stack([state_at_start(bank, level // DECISIONS % LEVELS) for level in range(rows)])
