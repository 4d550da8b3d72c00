"""The subtasks in force in a batch of environments: when they are given, how old they are, and when they are over.

    commands = Commands(num_envs, longest=50)
    commands.give(envs, chosen, obs)                 # obs: raw observations of those environments
    over, completed = commands.follow(obs, ended)    # after a decision of every environment; obs: what came of it

A subtask is over when it is completed by the rules of the game, after ``longest`` decisions, or with its episode:

    exit_switch   the exit's switch is taken
    locked_door   one more door is open than when it was given (of the five that are observed)
    exit          the level is won, which ends the episode
    mine          the way that is left is shorter by more than the nearest hazard was away: it lies behind
    explore       the ninja is EXPLORED_PX away from where it was given
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

    longest: decisions after which a subtask is over.
    now: int64[N, 2], as the policy observes them (``rl.policy.commander``).
    begun: [N], how things stood when they were given.
    """

    def __init__(self, num_envs: int, longest: int):
        self.longest = longest
        self.now = np.zeros((num_envs, 2), np.int64)
        self.now[:, 0] = NO_SUBTASK
        self.begun = np.zeros(num_envs, _FACTS)

    def give(self, envs: np.ndarray, chosen: np.ndarray, obs: Mapping[str, np.ndarray]) -> None:
        """New subtasks.  envs: int64[k].  chosen: int64[k].  obs: raw observations of these environments, [k, ...]."""
        self.now[envs, 0], self.now[envs, 1] = chosen, 0
        self.begun[envs] = facts(obs)

    def follow(
        self, obs: Mapping[str, np.ndarray], ended: np.ndarray, envs: np.ndarray | slice = slice(None)
    ) -> tuple[np.ndarray, np.ndarray]:
        """(whether a subtask is over, whether it was completed), bool[k] both, after a decision under each of them.

        obs: raw observations after it, [k, ...].
        ended: bool[k], whether it ended its episode: the subtask is over then, and whether it was completed is for the
            caller to know, who knows the outcome.
        envs: int64[k], the environments in question; all by default.
        """
        self.now[envs, 1] += 1
        completed = done(self.now[envs, 0], self.begun[envs], facts(obs)) & ~ended
        return ended | completed | (self.now[envs, 1] >= self.longest), completed

    def state(self) -> dict[str, np.ndarray]:
        """Everything that the future depends on, as arrays of numbers."""
        return {
            "now": self.now.copy(),
            "begun": np.stack([self.begun[name].astype("f8") for name in _FACTS.names or ()]),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on where ``state`` was taken."""
        self.now[:] = state["now"]
        for name, values in zip(_FACTS.names or (), state["begun"], strict=True):
            self.begun[name] = values


def facts(obs: Mapping[str, np.ndarray]) -> np.ndarray:
    """[N] of what the rules of completion look at, from raw observations."""
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
    """bool[N]: whether subtasks are completed.  begun, now: facts when they were given, and now, in the same episode."""
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
    """Observations and the commands beside them, int64[N, 2]."""
    return {**obs, COMMAND: command}
