"""Checkpoints contain all state that training changes, found by comparing all attributes of its objects."""

from collections import deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
import torch

from rl.config.curriculum import CURRICULA, CurriculumConfig
from rl.ppo.base import EPISODE_WINDOW

from learners import Patient, make_ppo

pytestmark = pytest.mark.usefixtures("one_thread")
# Attributes that a resumed training does not need: results of the latest rollout or update, clocks and caches.  Simulator,
# windows of episodes and policy are compared by what they store.
TRANSIENT = {
    "losses", "explained_variance", "finished_episodes", "counted_episodes", "timeouts", "_total_timesteps", "rollout_buffer",
    "logger", "true_starts", "_decided", "_after", "_began", "_begin", "elapsed_before_s", "reset_infos", "sim", "policy",
    "_prefixes", "_probabilities", "_values", "_next",
}  # fmt: skip
UPDATES = 8
CASES = {
    "plain": {"target_kl": None},
    "targets": {"returns_from": "current"},
    "memory": {"architecture": "vision_free+gru"},
    "subtasks": {"architecture": "vision_free+subtasks5"},
    "stages": {"curriculum": CurriculumConfig(True, "stages", min_episodes=2)},
    **{name: {"curriculum": CurriculumConfig(True, name, start_states=True)} for name in CURRICULA if name != "stages"},
}  # fmt: skip


def changed(value, other, path, seen):
    """Yield the paths of attributes that differ between two objects, through containers and objects of this project."""
    if id(value) in seen or path[-1] in TRANSIENT:
        return
    if type(value) is not type(other):
        yield ".".join(path)
        return
    if isinstance(value, torch.Generator):
        value, other = value.get_state(), other.get_state()
    elif isinstance(value, np.random.Generator):
        value, other = value.bit_generator.state, other.bit_generator.state
    if isinstance(value, torch.Tensor):
        value, other = value.numpy(), other.numpy()
    if isinstance(value, np.ndarray):
        if value.shape != other.shape or value.tobytes() != other.tobytes():
            yield ".".join(path)
    elif isinstance(value, str | int | float | bool | type(None)):
        if value != other and not (value != value and other != other):
            yield ".".join(path)
    elif isinstance(value, Mapping):
        if value.keys() != other.keys():
            yield ".".join(path)
        else:
            for key in value:
                yield from changed(value[key], other[key], (*path, str(key)), seen)
    elif isinstance(value, list | tuple | deque):
        if len(value) != len(other):
            yield ".".join(path)
        for i, (one, two) in enumerate(zip(value, other, strict=False)):
            yield from changed(one, two, (*path, str(i)), seen)
    elif type(value).__module__.startswith(("rl.", "nppsim.")) and not callable(value):
        seen.add(id(value))
        names = [one.name for one in fields(value)] if is_dataclass(value) else []
        for name in [*vars(value)] if hasattr(value, "__dict__") else names:
            yield from changed(getattr(value, name), getattr(other, name), (*path, name), seen)


@pytest.mark.parametrize("case", CASES)
def test_checkpoint_restores_all_changed_attributes(case):
    """After more episodes than the longest window of statistics has."""
    sizes = {"num_envs": 32, "minibatch_size": 512, "frame_skip": 16} | CASES[case]
    (trained, _), (fresh, _) = make_ppo(**sizes), make_ppo(**sizes, seed=1)
    trained.learn(UPDATES * 32 * 32, Patient())
    assert len(trained.episode_returns) == EPISODE_WINDOW
    assert {"ppo.updates", "ppo.num_timesteps"} < set(changed(trained, fresh, ("ppo",), set()))
    stored = trained.training_state()
    fresh.load_training_state(trained.policy.state_dict(), stored)
    assert list(changed(trained, fresh, ("ppo",), set())) == []
    again = fresh.training_state()
    for part in ("environments", "curriculum"):
        assert list(changed(stored[part], again[part], (part,), set())) == []
