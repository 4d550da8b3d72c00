"""Artificial demonstrations in memory."""

import numpy as np

from bc.dataset import BCDataset


def remembering(lengths, seed=0):
    """Return a dataset in which the action equals the previous observation, so that only recurrent policies can learn it."""
    rng, rows = np.random.default_rng(seed), sum(lengths)
    shown = rng.integers(0, 2, rows)
    demonstration = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    actions = np.where(np.arange(rows) - first[demonstration] >= 1, np.roll(shown, 1), 0)
    state = np.zeros((rows, 26), np.float32)
    state[np.arange(rows), shown] = 1.0
    state[:, 2] = np.arange(rows) - first[demonstration]  # age, which the test reads
    previous = np.where(np.arange(rows) == first[demonstration], 0, np.roll(actions, 1))
    count = len(lengths)
    return BCDataset(
        path="toy", key="toy", frame_skip=4, observations={"game_state": state}, actions=actions.astype(np.int8),
        previous_actions=previous.astype(np.int8), demonstration=demonstration, categories=("toy",),
        names=tuple(map(str, range(count))), level_fingerprints=tuple(map(str, range(count))),
        category=np.zeros(count, np.int16), validation=np.arange(count) % 4 == 1,
        selection="toy",
    )  # fmt: skip
