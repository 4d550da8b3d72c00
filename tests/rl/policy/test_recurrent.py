"""Memory of a recurrent policy: sequences compared with single steps, names, transfer, and policies that need memory."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nppsim.observe.statistics import ObservationStatistics
from rl.policy import checkpoint
from rl.policy.architectures import ArchitectureError, get_architecture
from rl.policy.networks import ObservationError
from rl.policy.player import RecurrentPlayer, player_of
from rl.policy.recurrent import FOLLOWS, RECURRENT_STATE, RecurrentLayer, packed
from rl.policy.weight_map import WeightTransferError, check_same_policy, transfer

from networks import made_up_policy

NAME = "vision_free+gru"


def naive(memory, features, states, follows):
    """Rows one after the other through a cell of torch."""
    cell = torch.nn.GRUCell(features.shape[1], memory.size)
    cell.load_state_dict({name.removesuffix("_l0"): weight for name, weight in memory.cell.state_dict().items()})
    after = []
    for row, goes_on in enumerate(follows.tolist()):
        after.append(cell(features[row], after[-1] if goes_on else states[row]))
    return torch.stack(after)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 30), share=st.floats(0.0, 1.0))
def test_sequences_equal_manually_stepped_cell(seed, rows, share):
    torch.manual_seed(seed)
    memory, features, states = (
        RecurrentLayer(5, 3),
        torch.randn(rows, 5, requires_grad=True),
        torch.randn(rows, 3, requires_grad=True),
    )
    follows = torch.rand(rows) < share
    follows[0] = False
    found, after = memory(features, {RECURRENT_STATE: states, FOLLOWS: follows})
    wanted = naive(memory, features, states, follows)
    torch.testing.assert_close(after, wanted)
    torch.testing.assert_close(found, features + memory.projection(wanted))
    mine, theirs = (torch.autograd.grad(x.sin().sum(), [features, states]) for x in (after, wanted))
    torch.testing.assert_close(mine, theirs)


def test_memory_single_row_equals_one_gru_step():
    memory, features, states = RecurrentLayer(5, 3), torch.randn(4, 5), torch.randn(4, 3)
    alone = memory(features, {RECURRENT_STATE: states})[1]
    torch.testing.assert_close(alone, naive(memory, features, states, torch.zeros(4, dtype=torch.bool)))
    assert torch.equal(memory(features, {})[1], memory(features, {RECURRENT_STATE: torch.zeros(4, 3)})[1])


def test_memory_first_row_that_follows_another_raises():
    with pytest.raises(ValueError, match="the first row of a batch cannot follow"):
        packed(torch.tensor([True, False]))


@pytest.mark.parametrize(
    "name",
    [
        "vision_free+gru",
        "mlp_baseline+gru",
        "vision_free_foresight+state2-repeat+deep2+gru",
        "mlp_baseline_foresight+gru",
    ],
)
def test_get_architecture_names_with_gru(name, tmp_path):
    known = get_architecture(name)
    assert (known.name, known.memory, known.imitated) == (name, 64, known)
    policy, obs = made_up_policy(name, rows=3)
    checkpoint.save(tmp_path / "agent.safetensors", policy, frame_skip=4)
    loaded, _ = checkpoint.load_policy(tmp_path / "agent.safetensors")
    remembered = {**obs, RECURRENT_STATE: torch.randn(3, 64)}
    for mine, theirs in zip(policy.step(remembered), loaded.step(remembered), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vision_free+gru+subtasks5", "subtasks and a GRU cannot be combined"),
        ("vision_free+subtasks5+gru", "'gru' is not possible there"),
        ("vision_free+gru+gru", "'gru' is not possible there"),
        ("vision_free+gru+deep2", "'deep2' is not possible there"),
        ("vision_free+gru+state3", "'state3' is not possible there"),
        ("vision_free_gcn+gru", "give .gru to a network without a graph"),
    ],
)
def test_get_architecture_names_without_gru_raise(name, message):
    with pytest.raises(ArchitectureError, match=message):
        get_architecture(name)


def test_recurrent_weights_transferred_and_compared_with_state():
    (clone, obs), (other, _) = made_up_policy(NAME, rows=40), made_up_policy(NAME, rows=40)
    probe = {key: values.numpy() for key, values in obs.items()}
    report = transfer(clone.state_dict(), other)
    assert report.tensors == len(other.state_dict()) and not report.fresh
    assert check_same_policy(clone, other, probe) == 1
    with torch.no_grad():
        other.memory.cell.weight_hh_l0.mul_(3.0)  # which nothing shows at the start of an episode
    with pytest.raises(WeightTransferError, match="logits of the two policies differ"):
        check_same_policy(clone, other, probe)


def test_act_of_a_recurrent_policy_raises():
    policy, obs = made_up_policy(NAME, rows=2)
    probe = {key: values.numpy() for key, values in obs.items()}
    with pytest.raises(ObservationError, match="player_of"):
        policy.act(probe, deterministic=True)


def test_predict_carries_states_and_resets_them_at_episode_starts():
    policy, obs = made_up_policy(NAME, rows=6)
    rows = {key: values.numpy().reshape(2, 3, *values.shape[1:]) for key, values in obs.items()}
    first, second = ({key: values[t] for key, values in rows.items()} for t in (0, 1))
    _, (zero,) = policy.predict(first, None)
    _, (carried,) = policy.predict(second, (zero,), np.zeros(3, bool))
    _, (reset,) = policy.predict(second, (zero,), np.array([True, False, True]))
    _, (fresh,) = policy.predict(second, None)
    assert zero.shape == (3, 64) and not np.allclose(carried, fresh)
    np.testing.assert_allclose(reset, np.where(np.array([[True], [False], [True]]), fresh, carried), atol=1e-6)


def test_recurrent_player_resets_states_at_episode_starts():
    policy, obs = made_up_policy(NAME, rows=12)
    rows = {key: values.numpy().reshape(4, 3, *values.shape[1:]) for key, values in obs.items()}
    player, only = player_of(policy, 3), np.array([0, 2])
    assert isinstance(player, RecurrentPlayer) and not player.states.any()
    states = torch.zeros(3, 64)
    for t in range(4):
        if t == 2:
            player.begin(np.array([2]))
            states[2] = 0
        envs = np.arange(3) if t != 1 else only
        seen = {key: np.ascontiguousarray(values[t, envs]) for key, values in rows.items()}
        actions = player.act(seen, envs, deterministic=True, rng=None)
        with torch.no_grad():
            logits, _, states[envs] = policy.step({**policy.to_tensors(seen), RECURRENT_STATE: states[envs]})
        assert (actions == logits.argmax(1).numpy()).all()
        np.testing.assert_array_equal(player.states, states.numpy())


def test_recurrent_state_float32_for_any_precision():
    policy, obs = made_up_policy(NAME, rows=4)
    policy.precision = "bf16"
    with torch.no_grad():
        logits, _, states = policy.step(obs)
    assert logits.dtype == states.dtype == torch.float32
    assert isinstance(policy.statistics, ObservationStatistics)
