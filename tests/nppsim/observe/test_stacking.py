"""Frame stacking: names, and equality with a queue of frames per environment."""

from collections import deque

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nppsim.batch import BatchSimulator
from nppsim.gym.env import NppEnv
from nppsim.gym.vector_env import NppVectorEnv
from nppsim.levels import kinds
from nppsim.observe import layout
from nppsim.observe.stacking import MOST_FRAMES, NO_STACKS, PADDINGS, Stacking, frames_back

from worlds import FLOOR, corridor

LEVELS = [corridor(door=40), corridor(entities=[(kinds.MINE, 24, FLOOR)])]
KEYS = ("game_state", "reachability_features", "player_frame", "global_view")
SETTINGS = [Stacking(visual=3, state=4), Stacking(visual=2, state=5, padding="repeat"), Stacking(state=12)]


class NaiveStacks:
    """A queue of frames for each environment."""

    def __init__(self, stacking, num_envs):
        self.stacking = stacking
        self.queues = [{} for _ in range(num_envs)]

    def begin(self, env, frame):
        """Begin an episode; frame: its first observation, key -> array."""
        for key, value in frame.items():
            frames = self.stacking.frames(key)
            first = value.copy() if self.stacking.padding == "repeat" else np.zeros_like(value)
            self.queues[env][key] = deque([first] * (frames - 1), maxlen=frames)
        self.add(env, frame)

    def add(self, env, frame):
        for key, value in frame.items():
            self.queues[env][key].append(value.copy())

    def stack(self, env):
        return {
            key: np.stack(queue) if self.stacking.frames(key) > 1 else queue[-1]
            for key, queue in self.queues[env].items()
        }


def row(observations, env):
    return {key: values[env] for key, values in observations.items()}


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for key in found:
        np.testing.assert_array_equal(found[key], wanted[key], err_msg=key)


@given(visual=st.integers(1, MOST_FRAMES), state=st.integers(1, MOST_FRAMES), padding=st.sampled_from(PADDINGS))
def test_parse_name_states_all_parameters(visual, state, padding):
    stacking = Stacking(visual, state, padding)
    if stacking:
        assert Stacking.named(stacking.name) == stacking
    else:
        assert stacking.name == ""


@pytest.mark.parametrize(
    "name", ["", "visual1", "state13", "state04", "repeat", "-repeat", "state4-visual4", "visual4state4"]
)
def test_parse_invalid_name_raises_error(name):
    with pytest.raises(ValueError, match="give visualN, stateM or visualN-stateM, N and M from 2 to 12"):
        Stacking.named(name)


def test_stacking_invalid_values_raise_error():
    with pytest.raises(ValueError, match="a stack of 13 frames: give 1 to 12"):
        Stacking(state=13)
    with pytest.raises(ValueError, match="padding 'mirror': give zero or repeat"):
        Stacking(state=2, padding="mirror")
    with pytest.raises(ValueError, match="no visual observations to stack: only game_state are observed"):
        BatchSimulator(LEVELS, 1, observations=("state",), stacking=Stacking(visual=2))


def test_stacks_at_start_repeat_first_frame_with_mask():
    back, padded = frames_back(np.arange(3, -1, -1), np.array([[0], [2], [9]]))
    assert back.tolist() == [[0, 0, 0, 0], [2, 2, 1, 0], [3, 2, 1, 0]]
    assert padded.tolist() == [[True, True, True, False], [True, False, False, False], [False] * 4]


@pytest.mark.parametrize("stacking", SETTINGS, ids=lambda stacking: stacking.name)
def test_simulator_stacks_equal_queue(stacking):
    """Through wins, deaths and time-outs; a simulator restored to an earlier state has the same stacks again."""
    sim = BatchSimulator(LEVELS, 5, observations=KEYS, stacking=stacking, threads=1)
    rng, naive = np.random.default_rng(0), NaiveStacks(stacking, 5)
    sim.reset()
    for env in range(5):
        naive.begin(env, row(sim.latest, env))
    outcomes, middle, again = set(), None, []
    for t in range(60):
        for env in range(5):
            same(row(sim.obs, env), naive.stack(env))
        if t == 30:
            middle = sim.snapshot(slice(None)), sim.next_level.copy()
        if t in (5, 15, 25):
            sim.state.ninja["frame"][:2] = (
                sim.bank.time_limit[sim.level[:2]] - 6
            )  # time is up after the next decision or two
        actions = np.where(rng.random(5) < 0.7, 2, rng.integers(0, 6, 5))
        sim.step(actions)
        if t >= 30:
            again.append((actions, {key: values.copy() for key, values in sim.obs.items()}))
        for env in range(5):
            if env in sim.finished:
                outcomes.add(int(sim.episode["outcome"][env]))
                if sim.truncated[env]:
                    naive.add(env, row(sim.latest_final, env))
                    same(row(sim.final_obs, env), naive.stack(env))
                naive.begin(env, row(sim.latest, env))
            else:
                naive.add(env, row(sim.latest, env))
    assert len(outcomes) == 3, "not all ends were met"
    other = sim.sibling(5, KEYS)
    assert middle is not None
    other.restore(slice(None), middle[0])
    other.next_level[:] = middle[1]
    other.observe()
    for actions, wanted in again:
        same(other.step(actions), wanted)


def test_restore_snapshot_of_other_stacking_raises_error():
    plain = BatchSimulator(LEVELS, 2, observations=KEYS, threads=1)
    stacked = BatchSimulator(LEVELS, 2, observations=KEYS, stacking=Stacking(state=4), threads=1)
    plain.reset()
    stacked.reset()
    assert stacked.snapshot(0).size == plain.snapshot(0).size + 4 * layout.SPECS["game_state"].bytes
    assert stacked.snapshot(np.empty(0, int)).shape == (0, stacked.snapshot(0).size)
    with pytest.raises(ValueError, match="snapshot has .* bytes"):
        stacked.restore(0, plain.snapshot(0))
    assert plain.obs is plain.latest and plain.stacking == NO_STACKS


def test_restore_and_reset_single_environment():
    sim = BatchSimulator(LEVELS, 3, observations=("state",), stacking=Stacking(state=3, padding="repeat"), threads=1)
    sim.reset()
    for _ in range(4):
        sim.step(np.full(3, 2))
    before, snapshot = sim.obs["game_state"].copy(), sim.snapshot(1)
    sim.step(np.full(3, 2))
    sim.restore(1, snapshot)
    sim.observe(np.array([1]))
    same({"one": sim.obs["game_state"][1]}, {"one": before[1]})
    sim.forget_frames(np.array([1]))
    assert (sim.obs["game_state"][1] == before[1, -1]).all()
    assert not (sim.obs["game_state"][0] == sim.obs["game_state"][0, -1]).all()


@pytest.mark.parametrize("padding", PADDINGS)
def test_gymnasium_environments_stack_alike(padding):
    seen = {"observations": KEYS, "stacking": Stacking(visual=2, state=3, padding=padding)}
    alone, many = NppEnv(LEVELS[:1], **seen), NppVectorEnv(LEVELS[:1], 2, autoreset_mode="NextStep", threads=1, **seen)
    batch = BatchSimulator(LEVELS[:1], 1, threads=1, **seen)
    one, _ = alone.reset(seed=0)
    all_of_them, _ = many.reset(seed=0)
    batch.reset()
    assert one["game_state"].shape == (3 * 26,) and one["player_frame"].shape == (2, 84, 84, 1)
    over = False
    while not over:
        for key in KEYS:
            np.testing.assert_array_equal(one[key].ravel(), batch.obs[key][0].ravel())
            np.testing.assert_array_equal(one[key], all_of_them[key][0])
        assert alone.observation_space.contains(one)
        one, _, terminated, truncated, _ = alone.step(2)
        all_of_them, *_ = many.step(np.array([2, 2]))
        batch.step(np.array([2]))
        over = terminated or truncated
    last = one["game_state"].reshape(3, 26)
    np.testing.assert_array_equal(all_of_them["game_state"][0].reshape(3, 26), last)
    first, *_ = many.step(np.array([2, 2]))  # no decision, but a new episode
    again, _ = alone.reset(seed=0)
    same(row(first, 0), again)
    assert isinstance(many, gymnasium.vector.VectorEnv)
