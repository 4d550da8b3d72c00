"""Digest files: equal runs have equal files, and the first difference of other runs is found."""

import copy
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl.ppo import ppo as ppo_module
from rl.training.digests import (
    PARTS,
    TRAIL_FILE,
    DigestTrail,
    TrailError,
    first_divergence,
    latest_row,
    read_trail,
    rollout_digests,
    row_sums,
    tensor_hash,
)

from learners import Patient, make_ppo

pytestmark = pytest.mark.usefixtures("one_thread")

ROLLOUT = 128  # decisions of an update


class ChangesThirdRollout(Patient):
    """Changes the PPO before its third rollout."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def _on_rollout_start(self):
        if self.model.updates == 2:
            self.change(self.model)


def trail_of(folder, updates=3, change=lambda ppo: None, **settings):
    ppo, _ = make_ppo(total_timesteps=updates * ROLLOUT, **settings)
    ppo.learn(updates * ROLLOUT, callback=[DigestTrail(folder), ChangesThirdRollout(change)])
    return read_trail(folder)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """Digests of three updates."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the tests; with several, the initial weights differ in their last bits
    yield trail_of(tmp_path_factory.mktemp("usual"))
    torch.set_num_threads(threads)


def test_digest_file_has_a_line_for_the_start_and_each_update(usual, tmp_path):
    assert [row["update"] for row in usual] == [0, 1, 2, 3]
    assert [row["decisions"] for row in usual] == [0, ROLLOUT, 2 * ROLLOUT, 3 * ROLLOUT]
    assert all(set(row["digests"]) == set(PARTS) for row in usual[1:])
    assert set(usual[0]["digests"]) == {"curriculum", "environments", "parameters", "optimiser", "random"}
    for part in ("observations", "actions", "parameters", "random", "environments"):
        assert len({row["digests"][part] for row in usual[1:]}) == 3, f"{part} never change"
    again = trail_of(tmp_path)
    assert first_divergence(usual, again) is None and again == usual


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"gae_lambda": 0.9}, "update 1: advantages"),
        ({"clip_range": 0.001, "n_epochs": 2}, "update 1: parameters"),
        ({"vf_coef": 0.4}, "update 1: parameters"),
        ({"learning_rate": 2e-3}, "before training: optimiser"),
        ({"seed": 1}, "before training: curriculum"),
        ({"gamma": 0.99}, "update 1, decision 1: rewards"),
    ],
)
def test_first_divergence_of_a_changed_setting_is_in_its_part(usual, tmp_path, settings, expected):
    if "n_epochs" in settings:
        usual = trail_of(tmp_path / "usual", updates=1, n_epochs=2)
    found = first_divergence(usual, trail_of(tmp_path, updates=1, **settings))
    assert str(found) == expected
    if "learning_rate" in settings:
        assert found.schedule["learning_rate"] == (1e-3, 2e-3)


def change_a_weight(ppo):
    with torch.no_grad():
        next(ppo.policy.parameters()).view(-1)[0] += 1e-3


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (change_a_weight, "log_probs"),
        (lambda ppo: torch.rand(1, generator=ppo.action_rng), "actions"),
        (lambda ppo: ppo.policy.optimizer.state.clear(), "parameters"),
        (lambda ppo: ppo.sampler.seed(99), "curriculum"),
    ],
)
def test_first_divergence_of_a_changed_state_is_in_the_next_update(usual, tmp_path, change, part):
    found = first_divergence(usual, trail_of(tmp_path, change=change))
    assert (found.update, found.part) == (3, part)


def test_first_divergence_within_a_rollout_names_the_decision(tmp_path, monkeypatch):
    """One action of the sixth decision is changed: the observations that differ come later."""
    one = trail_of(tmp_path / "one", updates=1)
    draw, calls = ppo_module.sample_actions, []

    def other(logits, rng):
        actions = draw(logits, rng)
        calls.append(1)
        if len(calls) == 6:
            actions[2] = (actions[2] + 1) % 6
        return actions

    monkeypatch.setattr(ppo_module, "sample_actions", other)
    found = first_divergence(one, trail_of(tmp_path / "other", updates=1))
    assert (found.part, found.decision) == ("actions", 6)
    assert "observations" in found.others


def test_resumed_run_continues_the_digest_file(usual, tmp_path):
    ppo, _ = make_ppo(total_timesteps=3 * ROLLOUT)
    stop = ChangesThirdRollout(lambda ppo: setattr(ppo, "stop_training", True))
    ppo.learn(3 * ROLLOUT, callback=[DigestTrail(tmp_path), stop])
    state = copy.deepcopy(ppo.training_state()), ppo.policy.state_dict()
    path = tmp_path / TRAIL_FILE
    lines = path.read_text().splitlines()
    row = json.loads(lines[-1]) | {"update": 3}  # after the checkpoint, and again after that: both are lost
    path.write_text("\n".join([*lines, json.dumps(row), json.dumps(row)[:50]]))
    again, _ = make_ppo(total_timesteps=3 * ROLLOUT)
    again.load_training_state(state[1], state[0])
    again.learn(ROLLOUT, callback=DigestTrail(tmp_path), reset_num_timesteps=False)
    found = read_trail(tmp_path)
    assert [row["update"] for row in found] == [0, 1, 2, 3]
    assert found[:3] == usual[:3]


def test_read_trail_of_an_empty_or_damaged_file(tmp_path):
    (tmp_path / TRAIL_FILE).touch()  # as after a resume without the file
    assert latest_row(tmp_path) is None
    assert read_trail(tmp_path) == []
    (tmp_path / TRAIL_FILE).write_text('{"update": 0, "digests": {}}\nnonsense\n')
    with pytest.raises(TrailError, match=r"digests\.jsonl, line 2"):
        read_trail(tmp_path)


def test_first_divergence_ignores_parts_and_updates_of_one_file(usual):
    old = [{"update": row["update"], "digests": {"actions": row["digests"].get("actions", "")}} for row in usual[1:]]
    assert first_divergence(old, usual) is first_divergence(usual, old) is None
    old[1]["digests"]["actions"] = "else"
    assert str(first_divergence(usual, old)) == "update 2: actions"
    new = [row | {"digests": row["digests"] | {"later": str(i)}} for i, row in enumerate(usual)]
    newer = [row | {"digests": row["digests"] | {"later": "lost"}} for row in usual]
    assert str(first_divergence(new, newer)) == "before training: later"


@given(
    size=st.integers(1, 300),
    at=st.integers(0, 10_000),
    bit=st.integers(0, 7),
    offset=st.integers(0, 9),
    seed=st.integers(0, 99),
)
def test_tensor_hash_depends_on_every_bit(size, at, bit, offset, seed):
    rng = np.random.default_rng(seed)
    whole = torch.from_numpy(rng.integers(0, 256, size + offset, np.uint8))
    part = whole[offset:]  # at any address
    before = tensor_hash(part)
    assert before == tensor_hash(part.clone()) == tensor_hash(torch.stack([part, part])[1])
    part[at % size] ^= 1 << bit
    assert tensor_hash(part) != before


def test_tensor_hash_depends_on_order_and_length():
    rng = torch.Generator().manual_seed(0)
    numbers = torch.randn(3, 70_000, generator=rng)  # more than a block
    found = {
        tensor_hash(numbers),
        tensor_hash(numbers[[1, 0, 2]]),
        tensor_hash(numbers.flip(1)),
        tensor_hash(torch.cat([numbers, torch.zeros(1, 70_000)])),
        tensor_hash(numbers[:, :-1]),
    }
    assert len(found) == 5
    assert row_sums(numbers)[1].tolist() == row_sums(numbers[1:2])[0].tolist()
    swapped = numbers.clone()
    swapped[0, [4, 5]] = swapped[0, [5, 4]]
    assert tensor_hash(swapped) not in found


def test_rollout_digests_depend_on_the_fields_of_a_step():
    ppo, _ = make_ppo()
    buffer = ppo.rollout_buffer
    before, steps = rollout_digests(buffer)
    buffer.rewards[7, 2] = 1e-30
    after, later = rollout_digests(buffer)
    assert {part for part in before if before[part] != after[part]} == {"rewards"}
    assert [i for i in range(32) if steps["rewards"][4 * i :][:4] != later["rewards"][4 * i :][:4]] == [7]
