"""Agents available in a studio, and the experiment whose training it displays.

    registry = AgentRegistry(["agent.safetensors"], experiment="experiments/mine_20260101_000000")
    registry.agents()                             # cards with ids
    registry.policy("0")                          # file for the page, which plays the agent
    registry.agent("0")                           # loaded on first use, if the page cannot play it
    registry.agent("run vision_free, seed 3")     # newest weights of one of the experiment's runs

The page identifies agents by id, never by path.  Loading the first agent takes seconds, because it imports torch; reading
policies for the page does not.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from nppsim.errors import MissingPackageError
from nppsim.studio.agents import AgentError, PagePolicy, Plugin, StudioAgent, find_plugin
from nppsim.studio.errors import StudioError

RUN_PREFIX = "run "  # prefix of the ids of an experiment's agents
_MAX_LOADED = 8  # maximum number of loaded agents, in addition to those of the command line
_NOT_FOUND = 404


class AgentRegistry:
    """Agents and experiment of a studio.

    agents: files of checkpoints or exported networks.  Without agents and experiment, the shipped agent is used.
    experiment: folder of an experiment.
    find: function that returns the plug-in that loads agents, or None if none is installed.
    trust_plugins: import the plug-ins that the experiment names, which runs their code.
    """

    def __init__(
        self,
        agents: Sequence[str | Path] = (),
        experiment: str | Path | None = None,
        find: Callable[[], Plugin | None] = find_plugin,
        trust_plugins: bool = False,
    ):
        self._given = [Path(path) for path in agents]
        self._experiment = None if experiment is None else Path(experiment)
        self._find, self._trust_plugins = find, trust_plugins
        self._loaded: dict[tuple[Path, float], StudioAgent] = {}
        self._policies: dict[tuple[Path, float], PagePolicy | None] = {}
        self._lock = threading.RLock()

    @property
    def files(self) -> list[str]:
        """Files of the given agents."""
        return list(map(str, self._given))

    def check(self) -> None:
        """Load the given agents and read the experiment; raise a UserError if either fails."""
        if self._given or self._experiment is not None:
            self._require_plugin()
            for path in self._given:
                self._facts(path)
            if self._experiment is not None:
                self.experiment()

    def agents(self) -> dict[str, Any]:
        """Return {"agents": [card, ...], "why_none": why the list is empty, or null}.

        card: {"id", "name", "facts": displayed properties, "in_page": whether the page plays the agent}.
        """
        try:
            names = Counter(path.stem for path in self._files)
            cards = [
                {
                    "id": str(number),
                    "name": path.stem if names[path.stem] == 1 else f"{path.absolute().parent.name}/{path.stem}",
                    "facts": dict(self._facts(path)),
                    "in_page": self._policy(path) is not None,
                }
                for number, path in enumerate(self._files)
            ]
        except MissingPackageError as error:
            return {"agents": [], "why_none": str(error)}
        if self._experiment is not None:
            for run in filter(lambda run: run["checkpoint"], self._read()["runs"]):
                facts, in_page = (
                    {"checkpoint": run["checkpoint"]["name"]},
                    self._policy(Path(run["checkpoint"]["path"])),
                )
                id = f"{RUN_PREFIX}{_title(run)}"
                cards.append({"id": id, "name": _title(run), "facts": facts, "in_page": in_page is not None})
        why = None if cards else "there is no agent: start the studio with --agent CHECKPOINT"
        return {"agents": cards, "why_none": why}

    def policy(self, id: str) -> bytes:
        """Return the file of an agent for the page; raise StudioError for an unknown id or if the page cannot play it."""
        policy = self._policy(self._path(id))
        if policy is None:
            raise StudioError(f"the page cannot play the agent {id!r}", _NOT_FOUND)
        return policy.data

    def agent(self, id: str) -> StudioAgent:
        """Return an agent by its id; raise StudioError for an unknown id and a UserError for an invalid file."""
        return self._load(self._path(id))

    def _path(self, id: str) -> Path:
        if id.startswith(RUN_PREFIX) and self._experiment is not None:
            for run in self._read()["runs"]:  # found by title, since indices change when a run begins
                if _title(run) == id.removeprefix(RUN_PREFIX) and run["checkpoint"]:
                    return Path(run["checkpoint"]["path"])
        elif id in (numbers := [str(number) for number in range(len(self._files))]):
            return self._files[numbers.index(id)]
        raise StudioError(f"there is no agent {id!r} here (yet)", _NOT_FOUND)

    @property
    def has_experiment(self) -> bool:
        """True if an experiment is displayed."""
        return self._experiment is not None

    def experiment(self) -> dict[str, Any] | None:
        """Return the state of the displayed experiment (docs/lab/studio.md) without file paths, or None."""
        if self._experiment is None:
            return None
        state = self._read()
        for run in state["runs"]:
            if run["checkpoint"]:
                run["checkpoint"] = {key: value for key, value in run["checkpoint"].items() if key != "path"}
                run["agent"] = f"{RUN_PREFIX}{_title(run)}"
        return state

    def _read(self) -> dict[str, Any]:
        assert self._experiment is not None
        with self._lock:
            return dict(self._require_plugin().read_experiment(self._experiment, self._trust_plugins))

    @cached_property
    def _plugin(self) -> Plugin | None:
        return self._find()

    def _require_plugin(self) -> Plugin:
        with self._lock:
            if self._plugin is None:
                raise AgentError("no plug-in that plays agents is installed: install this project with its extra train")
            return self._plugin

    @cached_property
    def _files(self) -> list[Path]:
        if self._given or self._experiment is not None:
            return self._given
        shipped = self._plugin.shipped_agent() if self._plugin is not None else None
        return [] if shipped is None else [shipped]

    def _facts(self, path: Path) -> Mapping[str, str]:
        policy = self._policy(path)
        return self._load(path).facts if policy is None else policy.facts

    def _policy(self, path: Path) -> PagePolicy | None:
        """Return the policy of a file for the page; read it again if the file has changed."""
        key = _version(path)
        with self._lock:
            if key not in self._policies:
                self._policies = {old: policy for old, policy in self._policies.items() if old[0] != path}
                self._policies[key] = self._require_plugin().page_policy(path)
            return self._policies[key]

    def _load(self, path: Path) -> StudioAgent:
        """Return the agent of a file; load it again if the file has changed."""
        key = _version(path)
        with self._lock:
            if key not in self._loaded:
                agent = self._require_plugin().load_agent(path)
                for old in [loaded for loaded in self._loaded if loaded[0] == path]:
                    del self._loaded[old]
                others = [loaded for loaded in self._loaded if loaded[0] not in self._given]
                for old in others[: max(len(others) + 1 - _MAX_LOADED, 0)]:
                    del self._loaded[old]
                self._loaded[key] = agent
            return self._loaded[key]


def _version(path: Path) -> tuple[Path, float]:
    return path, path.stat().st_mtime if path.is_file() else 0.0


def _title(run: Mapping[str, Any]) -> str:
    return run["label"] if run["seed"] is None else f"{run['label']}, seed {run['seed']}"
