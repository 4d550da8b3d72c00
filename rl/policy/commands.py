"""Active subtasks of a batch of environments: choice, age and termination.

    commands = Commands(num_envs, longest=50)
    commands.give(envs, chosen, obs)                 # obs: raw observations of those environments
    over, completed = commands.follow(obs, ended)    # after a step of every environment; obs: the new observations

A subtask ends when it is completed, after ``longest`` decisions, or with its episode.  It is completed when:

    exit_switch   the exit switch is taken
    locked_door   one more of the five observed doors is open than at its start
    exit          the level is won, which ends the episode
    mine          the path to the exit is shorter by more than the initial distance of the nearest hazard
    explore       the ninja is EXPLORED_PX away from its position at the start
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nppsim.observe import layout
from rl.policy.commander import COMMAND, EXIT_SWITCH, EXPLORE, LOCKED_DOOR, MINE, NO_SUBTASK

EXPLORED_PX = 144.0  # six tiles

_PLACE = layout.slots(layout.SPECS["entity_positions"].components)
_WAY = layout.slots(layout.SPECS["reachability_features"].components)
_HAZARD = layout.slots(layout.SPECS["hazards"].components)
_FACTS = np.dtype([("x", "f8"), ("y", "f8"), ("taken", "?"), ("doors", "i8"), ("way", "f8"), ("hazard", "f8")])


class Commands:
    """Subtasks of N environments.

    longest: largest number of decisions of a subtask.
    now: int64[N, 2], observation of the policy (``rl.policy.commander``).
    begun: [N], facts at the start of each subtask.
    """

    def __init__(self, num_envs: int, longest: int):
        self.longest = longest
        self.now = np.zeros((num_envs, 2), np.int64)
        self.now[:, 0] = NO_SUBTASK
        self.begun = np.zeros(num_envs, _FACTS)

    def give(self, envs: np.ndarray, chosen: np.ndarray, obs: Mapping[str, np.ndarray]) -> None:
        """Start subtasks.  envs, chosen: int64[k].  obs: raw observations of these environments, [k, ...]."""
        self.now[envs, 0], self.now[envs, 1] = chosen, 0
        self.begun[envs] = facts(obs)

    def follow(
        self, obs: Mapping[str, np.ndarray], ended: np.ndarray, envs: np.ndarray | slice = slice(None)
    ) -> tuple[np.ndarray, np.ndarray]:
        """Update ages after a decision; return (over, completed), bool[k] each.

        obs: raw observations after the decision, [k, ...].
        ended: bool[k], ends of episodes, which also end the subtask; the caller decides from the outcome whether it was
            completed.
        envs: int64[k]; default: all environments.
        """
        self.now[envs, 1] += 1
        completed = done(self.now[envs, 0], self.begun[envs], facts(obs)) & ~ended
        return ended | completed | (self.now[envs, 1] >= self.longest), completed

    def state(self) -> dict[str, np.ndarray]:
        """State for ``load``, as arrays of numbers."""
        return {
            "now": self.now.copy(),
            "begun": np.stack([self.begun[name].astype("f8") for name in _FACTS.names or ()]),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore ``state``."""
        self.now[:] = state["now"]
        for name, values in zip(_FACTS.names or (), state["begun"], strict=True):
            self.begun[name] = values


def facts(obs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Facts [N] for the rules of completion, from raw observations."""
    way, places = obs["reachability_features"], obs["entity_positions"]
    doors = obs["switch_states"].reshape(len(way), layout.NUM_DOORS, -1)
    hazard = obs["hazards"].reshape(len(way), *layout.SPECS["hazards"].shape)[:, 0]
    found = np.empty(len(way), _FACTS)
    found["x"], found["y"] = places[:, _PLACE.ninja_x], places[:, _PLACE.ninja_y]
    found["taken"] = way[:, _WAY.switch_collected] > 0
    found["doors"] = (doors[:, :, -1] > 0).sum(axis=1)
    found["way"] = way[:, _WAY.path_to_exit]
    found["hazard"] = np.hypot(hazard[:, _HAZARD.dx], hazard[:, _HAZARD.dy])
    return found


def done(subtask: np.ndarray, begun: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Completed subtasks, bool[N].  begun, now: facts at the start and now, in the same episode."""
    return np.select(
        [subtask == EXIT_SWITCH, subtask == LOCKED_DOOR, subtask == MINE, subtask == EXPLORE],
        [
            now["taken"],
            now["doors"] > begun["doors"],
            begun["way"] - now["way"] > begun["hazard"],
            np.hypot(now["x"] - begun["x"], now["y"] - begun["y"]) >= EXPLORED_PX,
        ],
        default=False,
    )


def with_command(obs: Mapping[str, np.ndarray], command: np.ndarray) -> dict[str, np.ndarray]:
    """Add the commands int64[N, 2] to observations."""
    return {**obs, COMMAND: command}
