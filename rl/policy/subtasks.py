"""Subtasks of a hierarchical policy: the high-level network that chooses them, and the active subtask of each environment.

    high_level = HighLevelPolicy(features=256, max_decisions=50)
    high_level(features, observations)                            # features for the low level, float[N, 256]
    logits, values = high_level.choose(features, observations)    # logits float32[N, 5] of the subtasks, values float32[N]

    subtasks = ActiveSubtasks(num_envs, max_decisions=50)
    subtasks.start(envs, chosen, obs)                             # obs: raw observations of the environments envs
    over, completed = subtasks.step(obs, ended)                   # after a decision in every environment

The active subtask is the observation SUBTASK: int64[N, 2], its index and the number of decisions since it was chosen.  A
rollout stores it with each decision.  With index NO_SUBTASK, the features are those of the network without subtasks.  Without
this observation, the network uses the most probable subtask with age 0, as at the start of an episode.
The conditioning weights are initially zero, so the weights of a policy without subtasks act unchanged.

A subtask ends when it is completed, after ``max_decisions`` decisions, or with its episode.  It is completed when:

    exit_switch   the exit switch is taken
    locked_door   more of the five observed doors are open than at the start
    exit          the level is won, which ends the episode
    mine          the path to the exit became shorter by more than the initial distance of the nearest hazard
    explore       the ninja is EXPLORED_PX away from its position at the start

Source: Sutton, Precup & Singh 1999 (options).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from nppsim.observe import layout

SUBTASKS = ("exit_switch", "locked_door", "exit", "mine", "explore")
EXIT_SWITCH, LOCKED_DOOR, EXIT, MINE, EXPLORE = range(len(SUBTASKS))
SUBTASK = "subtask"  # key of the observation
NO_SUBTASK = -1  # index if there is no subtask
NEAR_PX = 120.0  # px, unit of the offsets to targets
EXPLORED_PX = 144.0  # px, distance that completes ``explore``: six tiles
PER_SUBTASK = 5  # number of features of a subtask: active, age, offset (2), distance
HIDDEN = 64
IMPOSSIBLE = -1e9  # logit of a subtask without a target

Observations = Mapping[str, torch.Tensor]

_DOORS = len(layout.SPECS["switch_states"].components) // layout.NUM_DOORS
_ENTITY = layout.slots(layout.SPECS["entity_positions"].components)
_PATH = layout.slots(layout.SPECS["reachability_features"].components)
_HAZARD = layout.slots(layout.SPECS["hazards"].components)
_QUANTITIES = np.dtype(
    [("x", "f8"), ("y", "f8"), ("switch_taken", "?"), ("open_doors", "i8"), ("path", "f8"), ("hazard", "f8")]
)


class HighLevelPolicy(nn.Module):
    """High-level policy over subtasks, its value function, and the conditioning of the low level.

    features: number of features of the encoder.
    max_decisions: largest number of decisions of a subtask, and the unit of its age.
    """

    def __init__(self, features: int, max_decisions: int):
        super().__init__()
        self.max_decisions = max_decisions
        # not an nn.Linear: without an active subtask, these weights are unused and have no gradient
        self.condition = nn.Parameter(torch.zeros(features, len(SUBTASKS) * PER_SUBTASK))
        last = nn.Linear(HIDDEN, len(SUBTASKS))
        nn.init.orthogonal_(last.weight, 0.01)  # initially all possible subtasks are equally likely
        self.policy_net = nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), last)
        self.value_net = nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, features: torch.Tensor, observations: Observations) -> torch.Tensor:
        """Return features for the low level, float[N, F], which depend on the active subtasks."""
        if SUBTASK in observations:
            subtask = observations[SUBTASK]
            if bool((subtask[:, 0] == NO_SUBTASK).all()):
                return features
        else:
            chosen = self.choose(features, observations)[0].argmax(dim=1)
            subtask = torch.stack([chosen, torch.zeros_like(chosen)], dim=1)
        return features + subtask_features(observations, subtask, self.max_decisions) @ self.condition.T

    def choose(self, features: torch.Tensor, observations: Observations) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits float32[N, 5] of the subtasks (IMPOSSIBLE for those without a target) and values float32[N]."""
        with torch.autocast(features.device.type, enabled=False):
            full = features.float()
            logits = self.policy_net(full).masked_fill(~possible(observations), IMPOSSIBLE)
            return logits, self.value_net(full)[:, 0]


def possible(observations: Observations) -> torch.Tensor:
    """Return bool[N, 5], True for subtasks that have a target.

    The targets are a switch that is not taken, a closed door, an open exit, and an observed hazard.  Exploring is
    always possible.
    """
    collected = observations["reachability_features"][:, _PATH.switch_collected] > 0
    exists, closed, _ = _doors(observations)
    near = (_hazards(observations)[..., _HAZARD.radius] > 0).any(dim=1)
    return torch.stack([~collected, (exists & closed).any(dim=1), collected, near, torch.ones_like(near)], dim=1)


def targets(observations: Observations) -> torch.Tensor:
    """Return offsets float32[N, 5, 2] in px from the ninja to the target of each subtask; 0 without a target.

    Targets are the exit switch, the nearest switch of a closed door, the exit, the nearest hazard and the second waypoint.
    """
    entities, path = observations["entity_positions"], observations["reachability_features"]
    ninja = entities[:, _ENTITY.ninja_x : _ENTITY.ninja_y + 1]
    exists, closed, switches = _doors(observations)
    offsets = switches - ninja[:, None]
    distances = offsets.square().sum(dim=2).masked_fill(~(exists & closed), torch.inf)
    hazard = _hazards(observations)[:, 0]
    stacked = torch.stack(
        [
            entities[:, _ENTITY.switch_x : _ENTITY.switch_y + 1] - ninja,
            offsets[torch.arange(len(distances), device=distances.device), distances.argmin(dim=1)],
            entities[:, _ENTITY.exit_x : _ENTITY.exit_y + 1] - ninja,
            hazard[:, _HAZARD.dx : _HAZARD.dy + 1],
            path[:, _PATH.waypoint2_dx : _PATH.waypoint2_dy + 1],
        ],
        dim=1,
    )
    return stacked.masked_fill(~possible(observations)[:, :, None], 0.0)


def subtask_features(observations: Observations, subtask: torch.Tensor, max_decisions: int) -> torch.Tensor:
    """Return features float32[N, 25]: 1, age, offset and distance in the columns of the active subtask, 0 elsewhere.

    subtask: int64[N, 2], the observation SUBTASK.
    max_decisions: number of decisions that is the unit of the age.
    """
    chosen = subtask[:, 0].clamp(min=0)
    offset = targets(observations)[torch.arange(len(chosen), device=chosen.device), chosen] / NEAR_PX
    offset = offset / offset.norm(dim=1, keepdim=True).clamp(min=1.0).sqrt()  # compress large distances
    distance = offset.norm(dim=1)
    time = subtask[:, 1].float() / max_decisions
    values = torch.stack([torch.ones_like(time), time, offset[:, 0], offset[:, 1], distance], dim=1)
    active = nn.functional.one_hot(chosen, len(SUBTASKS)) * (subtask[:, :1] != NO_SUBTASK)
    return (active[:, :, None] * values[:, None]).flatten(1)


def _doors(observations: Observations) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return exists bool[N, 5], closed bool[N, 5] and switch positions float32[N, 5, 2] in px of the observed doors."""
    doors = observations["switch_states"].unflatten(1, (layout.NUM_DOORS, _DOORS))
    return doors[..., :2].any(dim=2), doors[..., _DOORS - 1] == 0, doors[..., :2]


def _hazards(observations: Observations) -> torch.Tensor:
    """Return the observed hazards, float32[N, 8, 5], the nearest first."""
    return observations["hazards"].reshape(-1, *layout.SPECS["hazards"].shape)


class ActiveSubtasks:
    """Active subtasks of N environments.

    max_decisions: largest number of decisions of a subtask.
    active: int64[N, 2], the observation SUBTASK.
    start_quantities: [N], result of ``quantities`` at the start of each subtask.
    """

    def __init__(self, num_envs: int, max_decisions: int):
        self.max_decisions = max_decisions
        self.active = np.zeros((num_envs, 2), np.int64)
        self.active[:, 0] = NO_SUBTASK
        self.start_quantities = np.zeros(num_envs, _QUANTITIES)

    def start(self, envs: np.ndarray, chosen: np.ndarray, obs: Mapping[str, np.ndarray]) -> None:
        """Start the subtasks ``chosen``, int64[k].  obs: raw observations [k, ...] of the environments ``envs``, int64[k]."""
        self.active[envs, 0], self.active[envs, 1] = chosen, 0
        self.start_quantities[envs] = quantities(obs)

    def step(
        self, obs: Mapping[str, np.ndarray], ended: np.ndarray, envs: np.ndarray | slice = slice(None)
    ) -> tuple[np.ndarray, np.ndarray]:
        """Update the subtasks after a decision; return bool[k] for subtasks that are over, and bool[k] for completed ones.

        obs: raw observations [k, ...] after the decision.
        ended: bool[k], True if the decision ended its episode.  This ends the subtask, too; ``completed`` is then False.
        envs: int64[k], the environments; default: all.
        """
        self.active[envs, 1] += 1
        completed = is_completed(self.active[envs, 0], self.start_quantities[envs], quantities(obs)) & ~ended
        return ended | completed | (self.active[envs, 1] >= self.max_decisions), completed

    def state(self) -> dict[str, np.ndarray]:
        """Return the state for ``load`` as arrays of numbers."""
        return {
            "now": self.active.copy(),
            "begun": np.stack([self.start_quantities[name].astype("f8") for name in _QUANTITIES.names or ()]),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore a ``state``."""
        self.active[:] = state["now"]
        for name, values in zip(_QUANTITIES.names or (), state["begun"], strict=True):
            self.start_quantities[name] = values


def quantities(obs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the quantities [N] that determine completion (fields of _QUANTITIES), from raw observations [N, ...]."""
    path, entities = obs["reachability_features"], obs["entity_positions"]
    doors = obs["switch_states"].reshape(len(path), layout.NUM_DOORS, -1)
    hazard = obs["hazards"].reshape(len(path), *layout.SPECS["hazards"].shape)[:, 0]
    result = np.empty(len(path), _QUANTITIES)
    result["x"], result["y"] = entities[:, _ENTITY.ninja_x], entities[:, _ENTITY.ninja_y]
    result["switch_taken"] = path[:, _PATH.switch_collected] > 0
    result["open_doors"] = (doors[:, :, -1] > 0).sum(axis=1)
    result["path"] = path[:, _PATH.path_to_exit]
    result["hazard"] = np.hypot(hazard[:, _HAZARD.dx], hazard[:, _HAZARD.dy])
    return result


def is_completed(subtask: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return bool[N], True for completed subtasks.  before, after: results of ``quantities`` at its start and now."""
    return np.select(
        [subtask == EXIT_SWITCH, subtask == LOCKED_DOOR, subtask == MINE, subtask == EXPLORE],
        [
            after["switch_taken"],
            after["open_doors"] > before["open_doors"],
            before["path"] - after["path"] > before["hazard"],
            np.hypot(after["x"] - before["x"], after["y"] - before["y"]) >= EXPLORED_PX,
        ],
        default=False,
    )
