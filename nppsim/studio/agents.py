"""Interface between the studio and plug-ins that load trained agents.

    plugin = find_plugin()
    agent = plugin.load_agent(path)
    for decision in agent.play(level, seed=1): ...          # one episode, decision by decision
    endings = list(agent.evaluate([level], 64))                # outcomes and final positions of 64 episodes
    policy = plugin.page_policy(path)                       # for the page, which plays most agents itself
    plugin.read_experiment(folder)                          # current state of an experiment in training

nppsim does not depend on a neural network library.  Packages with networks register a plug-in in the entry-point group
``nppsim.agents``; in this project it is ``rl.studio``.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nppsim.errors import UserError
from nppsim.levels.level import Level
from nppsim.observe.layout import SPECS

if TYPE_CHECKING:
    from nppsim.planner.search import PlanStart

GROUP = "nppsim.agents"
CLOCKS = ("counted", "measured")  # clocks of live play (docs/evaluate.md)


class AgentError(UserError, ValueError):
    """An agent or an experiment cannot be shown."""


@dataclass(frozen=True, eq=False)
class Decision:
    """One decision of an agent in an episode: observation, policy outputs, action and reward.

    seen: key of ``observe.layout`` -> unnormalised observation before the decision, without a batch axis; with frame
        stacking, only the latest frame.
    probabilities: float32[6], probabilities of the actions.
    value: value of the state before the decision, predicted by the critic.
    entropy: entropy of the action distribution, nats.
    action: index of the chosen action, 0..5.
    inputs: uint8[frames], key inputs of the frames that the action lasts; fewer if the episode ends earlier.
    terms: name in ``reward.TERMS`` -> reward of this term for the decision.
    outcome: outcome of the episode, one of ``outcomes.NAMES``; None if the episode continues after the decision.
    note: additional text to display, such as the active subtask; may be "".
    backtracks: how often decisions of the episode have been taken back so far.
    thinks, ahead: for live play, True if the agent thinks meanwhile, and the number of final decisions from this one on;
        None otherwise.
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
    backtracks: int = 0
    thinks: bool | None = None
    ahead: int | None = None


@dataclass(frozen=True)
class EpisodeEnd:
    """End of an episode.

    level: index of the episode's level in the argument of ``StudioAgent.evaluate``.
    outcome: one of ``outcomes.NAMES``.
    frames: length of the episode.
    x, y: ``nppsim.replays.ending.Ending.place``, px.
    share: covered share of the path, 0 to 1.
    """

    level: int
    outcome: str
    frames: int
    x: float
    y: float
    share: float


class StudioAgent(Protocol):
    """A trained agent.  Its methods are thread-safe.

    name: displayed name.
    facts: displayed properties, name -> text.
    frame_skip: frames per decision.
    observations: keys of ``observe.layout`` that the agent observes.
    """

    name: str
    facts: Mapping[str, str]
    frame_skip: int
    observations: tuple[str, ...]

    def play(
        self,
        level: Level,
        *,
        seed: int = 0,
        deterministic: bool = False,
        start: "PlanStart | None" = None,
        live: str = "",
    ) -> Generator[Decision, None, None]:
        """Play one episode until it ends or the iterator is closed.

        deterministic: take greedy instead of sampled actions.
        start: state to play from instead of the spawn.
        live: clock of live play from the spawn (docs/evaluate.md), one of CLOCKS; "" for play without a clock.
        """

    def evaluate(
        self, levels: Sequence[Level], episodes: int, *, seed: int = 0, deterministic: bool = False
    ) -> Generator[EpisodeEnd, None, None]:
        """Play ``episodes`` episodes on each level and yield the end of each; closing the iterator cancels the rest."""


@dataclass(frozen=True, eq=False)
class PagePolicy:
    """The policy of an agent that the page plays.

    facts: displayed properties, name -> text.
    data: file for ``nppsim/wasm/policy.js``.
    """

    facts: Mapping[str, str]
    data: bytes


class Plugin(Protocol):
    """Plug-in that loads agents and reads experiments."""

    def page_policy(self, path: Path) -> PagePolicy | None:
        """Return the policy of an agent; None if the page cannot run it, or if ``load_agent`` raises an error."""

    def load_agent(self, path: Path) -> StudioAgent:
        """Load an agent; raise a UserError if the file is missing, damaged or not an agent."""

    def shipped_agent(self) -> Path | None:
        """Return the file of the shipped agent, or None if there is none."""

    def read_experiment(self, folder: Path, trust_plugins: bool = False) -> Mapping[str, Any]:
        """Return the current state of an experiment as plain JSON values (``docs/lab/studio.md``).

        Raises a UserError if the folder is not an experiment.
        """


def find_plugin() -> Plugin | None:
    """Load and return the installed plug-in, or None if there is none.  The imports of a plug-in may take seconds.

    Raises AgentError if several plug-ins are installed, MissingPackageError if a dependency of the plug-in is missing.
    """
    plugins = {entry.value: entry for entry in entry_points(group=GROUP)}
    if len(plugins) > 1:
        raise AgentError(f"{len(plugins)} plug-ins play agents ({', '.join(plugins)}); uninstall all but one")
    return next((entry.load()() for entry in plugins.values()), None)


def layout_document(keys: Sequence[str]) -> dict[str, Any]:
    """Describe observations for the page: key -> description.

    Each description is {"shape", "picture": true for an image, "components": names along the last axis}.
    """
    return {
        key: {
            "shape": list(SPECS[key].shape),
            "picture": SPECS[key].dtype == "uint8",
            "components": list(SPECS[key].components),
        }
        for key in keys
    }
