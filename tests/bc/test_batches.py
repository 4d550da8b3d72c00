"""Batches of single decisions and of sequences for recurrent policies."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from demonstrated import remembering

from bc.batches import EVALUATION_BATCH, SEGMENT, Batches, Segments, Sequences, batches_of
from bc.dataset import GRAPH
from bc.thread_pool import ThreadPool
from bc.train import BCConfig, evaluate, pretrain
from rl.policy.recurrent import FOLLOWS, RECURRENT_STATE, RecurrentLayer

pytestmark = pytest.mark.usefixtures("one_thread")
LENGTHS = (5, 32, 40, 70, 100, 900, 300)


class Counter(torch.nn.Module):
    """Counts the rows that it has been shown since its start."""

    memory = torch.nn.Identity()

    def step(self, observations):
        count, states = [], observations.get(RECURRENT_STATE)
        for row, goes_on in enumerate(observations[FOLLOWS].tolist()):
            count.append((count[-1] if goes_on else 0.0 if states is None else float(states[row])) + 1)
        return torch.zeros(len(count), 6), torch.zeros(len(count)), torch.tensor(count)[:, None]

    @staticmethod
    def in_sequences(observations, follows, states=None):
        return {**observations, FOLLOWS: follows, **({} if states is None else {RECURRENT_STATE: states})}


class Remembering(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.memory = torch.nn.Linear(26, 16), RecurrentLayer(16, 16)
        self.actor = torch.nn.Linear(16, 6)

    def step(self, observations):
        shown = observations["game_state"].clone()
        shown[:, 2] = 0
        features, states = self.memory(torch.relu(self.body(shown)), observations)
        return self.actor(features), features[:, 0], states

    def logits_and_values(self, observations):
        return self.step(observations)[:2]

    in_sequences = staticmethod(Counter.in_sequences)


def test_epoch_sequences_cover_rows_once_from_initial_states():
    dataset = remembering(LENGTHS)
    rows, batches = dataset.rows(validation=False), batches_of(Counter(), dataset, "cpu")
    assert isinstance(batches, Sequences)
    found = list(batches.epoch(rows, 128, np.random.default_rng(0)))
    assert sorted(np.concatenate(found).tolist()) == rows.tolist()
    assert len(found) == batches.steps(rows, 128)
    for batch in found:
        observations, actions = batches.observe(batch)
        age, follows = observations["game_state"][:, 2], observations[FOLLOWS]
        assert (actions.numpy() == dataset.actions[batch]).all()
        assert (follows == (age % SEGMENT != 0)).all()
        assert (observations[RECURRENT_STATE][~follows, 0] == age[~follows]).all(), (
            "the cell has counted each earlier decision"
        )
        assert (batches.begins(batch) == np.flatnonzero(~follows.numpy())).all()
        assert (Counter().step(observations)[2][:, 0] == age + 1).all()


def test_evaluation_batches_are_whole_demonstrations():
    dataset = remembering((*LENGTHS, 3 * EVALUATION_BATCH, 7))
    rows, batches = dataset.rows(validation=False), Sequences(Counter(), dataset, "cpu")
    parts = list(batches.parts(rows))
    assert (np.concatenate(parts) == rows).all()
    for part in parts:
        observations, _ = batches.observe_whole(part)
        assert (Counter().step(observations)[2][:, 0] == observations["game_state"][:, 2] + 1).all()
    assert max(len(part) for part in parts[:-1]) <= EVALUATION_BATCH + max(LENGTHS) + 3 * EVALUATION_BATCH
    with pytest.raises(ValueError, match="whole demonstrations"):
        list(batches.parts(rows[1:]))


def test_epoch_without_memory_is_random_order():
    dataset = remembering(LENGTHS)
    rows, batches = dataset.rows(validation=False), batches_of(torch.nn.Linear(1, 1), dataset, "cpu")
    assert type(batches) is Batches
    found, order = list(batches.epoch(rows, 128, np.random.default_rng(3))), np.random.default_rng(3).permutation(rows)
    assert (np.concatenate(found) == order).all() and {len(batch) for batch in found[:-1]} == {128}
    assert batches.steps(rows, 128) == len(found) and batches.begins(rows) is None


def test_epoch_graph_networks_uses_consecutive_decisions():
    dataset = remembering(LENGTHS)
    dataset = replace(dataset, observations={**dataset.observations, GRAPH: np.zeros(len(dataset))})
    rows, batches = dataset.rows(validation=False), batches_of(torch.nn.Linear(1, 1), dataset, "cpu")
    assert type(batches) is Segments
    found = list(batches.epoch(rows, 128, np.random.default_rng(0)))
    assert sorted(np.concatenate(found).tolist()) == rows.tolist() != np.concatenate(found).tolist()
    assert len(found) == batches.steps(rows, 128)
    for batch in found:
        assert len(batch) <= 128
        pieces = np.split(batch, batches.begins(batch)[1:])
        assert all(len(piece) <= SEGMENT and len(set(dataset.demonstration[piece])) == 1 for piece in pieces)
        assert len(pieces) <= 128 // SEGMENT and (np.diff(np.concatenate([*map(np.diff, pieces)])) == 0).all()


def test_train_recurrent_policy_same_with_any_thread_count():
    dataset = remembering((40, 64, 90) * 4)
    policies = []
    for threads, epochs in ((1, 1), (2, 1), (1, 16)):
        policy = Remembering()
        settings = BCConfig(epochs=epochs, batch_size=64, learning_rate=1e-2)
        result = pretrain(policy, dataset, settings, pool=ThreadPool(threads), log=lambda line: None)
        policies.append(policy)
    *pair, without_memory = policies
    assert result.validation.accuracy > 0.95
    assert result.baselines["majority"].accuracy < 0.7
    for mine, theirs in zip(*(policy.parameters() for policy in pair), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-3)
    with torch.no_grad():
        without_memory.memory.projection.weight.zero_()
    assert (evaluate(without_memory, dataset, dataset.rows(validation=True)).loss or 0) > math.log(2) / 2
