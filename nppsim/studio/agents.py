"""Agents that the studio shows: what plays them is found among the installed packages, never imported by name.

    plugin = find_plugin()
    agent = plugin.load_agent(path)
    for decision in agent.play(level, seed=1): ...          # one episode, decision by decision
    endings = list(agent.tries([level], 64))                # how 64 episodes end, and where
    plugin.read_experiment(folder)                          # an experiment in training, as its files tell it

nppsim knows no networks: a package that trains agents names its plug-in in the entry-point group ``nppsim.agents``
(this project's is ``rl.studio``).
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nppsim.errors import UserError
from nppsim.levels.level import Level

GROUP = "nppsim.agents"


class AgentError(UserError, ValueError):
    """An agent or an experiment that cannot be shown; the message says why, and what to do."""


@dataclass(frozen=True, eq=False)
class Decision:
    """One decision of an episode: what the agent saw, what it made of that, and what came of it.

    seen: key of ``observe.layout`` -> what the agent saw before it decided, raw and without a batch axis; of stacked
        frames the latest.
    probabilities: float32[6], of the actions.
    value: of the state, as the critic has it.
    entropy: nats.
    action: taken, 0..5.
    inputs: uint8[frames], what was pressed; the last decision of an episode may be cut short.
    terms: name of ``reward.TERMS`` -> reward.
    outcome: of the episode, one of ``outcomes.NAMES``; None while it goes on.
    note: what else there is to say, such as the subtask in force; "" for nothing.
    """

    seen: Mapping[str, np.ndarray]
    probabilities: np.ndarray
    value: float
    entropy: float
    action: int
    inputs: np.ndarray
    terms: Mapping[str, float]
    outcome: str | None
    note: str = ""


@dataclass(frozen=True)
class Ending:
    """How an episode ended.

    level: place of its level among those that were given.
    outcome: one of ``outcomes.NAMES``.
    frames: that it lasted.
    x, y: px, where the ninja was then.
    """

    level: int
    outcome: str
    frames: int
    x: float
    y: float


class Agent(Protocol):
    """A trained agent.  Several threads may let it play at once.

    name: for people.
    facts: what is known about it, name -> words.
    frame_skip: frames per decision.
    observations: keys of ``observe.layout`` that it reads.
    """

    name: str
    facts: Mapping[str, str]
    frame_skip: int
    observations: tuple[str, ...]

    def play(self, level: Level, *, seed: int = 0, deterministic: bool = False) -> Generator[Decision, None, None]:
        """One episode.  deterministic: the likeliest action instead of a drawn one.  Ends when the iterator is closed."""

    def tries(
        self, levels: Sequence[Level], episodes: int, *, seed: int = 0, deterministic: bool = False
    ) -> Generator[Ending, None, None]:
        """``episodes`` on each level; given as they end, in groups.  What is still to play is dropped with the iterator."""


class Plugin(Protocol):
    """What loads agents and reads experiments."""

    def load_agent(self, path: Path) -> Agent:
        """The agent of a file.  Raises a UserError for one that is missing, damaged or something else."""

    def shipped_agent(self) -> Path | None:
        """The file of an agent that comes with the package; None without any."""

    def read_experiment(self, folder: Path) -> Mapping[str, Any]:
        """An experiment as its files tell it now, in plain values as JSON has them (``docs/play.md``).

        Raises a UserError for a folder that is none.
        """


def find_plugin() -> Plugin | None:
    """The installed plug-in; None where there is none.  Imports what it needs, which may take seconds.

    Raises AgentError where there are several, MissingPackageError where it lacks a package.
    """
    found = {entry.value: entry for entry in entry_points(group=GROUP)}
    if len(found) > 1:
        raise AgentError(f"{len(found)} packages play agents ({', '.join(found)}); uninstall all but one")
    return next((entry.load()() for entry in found.values()), None)
