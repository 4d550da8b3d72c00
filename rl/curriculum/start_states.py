"""Start states: on levels not won yet, some episodes begin at a state along a stored run.

    starts = StartStates(config)
    starts.add(runs)                          # level fingerprint -> actions that win it: demonstrations
    starts.watch(sim, actions)                # before each decision
    starts.end(sim, ended)                    # episodes that ended ...
    starts.begin(sim, sim.finished, rng)      # ... and those that begin, some from start states
    starts.update(won)                        # once per update of the policy

A run is a demonstration, or the agent's best attempt so far.  Episodes begin at nine tenths of it.  The start moves a tenth
back after each win, and p / (1 - p) tenths forward after each loss, so it moves back while success is above a threshold p.
Waiting for a number of trials at each position would take more episodes than a level has.
Each win from the true start halves the fraction of these episodes.
Sources: Salimans & Chen 2018 (backwards along one demonstration); Ecoffet et al. 2021 (returning to the best state so far);
Kaernbach 1991 (weighted up-down method).
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nppsim.batch import BatchSimulator
from nppsim.outcomes import WON
from rl.config.curriculum import CurriculumConfig
from rl.curriculum.prefixes import Prefixes
from rl.curriculum.statistics import unpacked
from rl.curriculum.tracks import Tracks, unit

STEPS = 10  # parts of a run; episodes begin at the end of a part
MOST_LOSSES = 20  # in a row, after which an attempt of the agent is dropped
LEAST_PROGRESS = 0.1  # smallest progress of a stored attempt, in units of ``tracks.unit``
MARGIN = 0.02  # additional progress needed to replace it
FADE = 0.5  # factor of the fraction for each win from the true start
MOST_WINS = 4  # wins from the true start after which a level has no start states
MOST_RUNS = 4096  # levels with a run
RECENT = 100  # episodes of the reported success rate


@dataclass
class Run:
    """A run through a level, and the position at which episodes begin.

    actions: uint8[n], one per decision, from the true start.
    wins: they win the level; else they end at the largest progress of an attempt.
    progress: of the attempt.
    position: from STEPS - 1 to 0, the true start; rounded down.
    losses: of episodes from this position, in a row.
    """

    actions: np.ndarray
    wins: bool
    progress: float = math.inf
    position: float = STEPS - 1
    losses: int = 0

    @property
    def stops(self) -> list[int]:
        """Numbers of actions before the start, by position."""
        return [len(self.actions) * step // STEPS for step in range(STEPS)]

    @property
    def prefix(self) -> np.ndarray:
        """Actions uint8[k] before the current start."""
        return self.actions[: self.stops[int(self.position)]]


class StartStates:
    """runs: by level fingerprint.

    began: int64[N], decisions before the start of each current episode; 0: the true start.
    episodes, reached: episodes from start states; number of times a start moved back to the true start.
    """

    def __init__(self, config: CurriculumConfig):
        self.config = config
        self.runs: dict[str, Run] = {}
        self.began = np.empty(0, np.int64)
        self.episodes = self.reached = 0
        self._recent: deque[bool] = deque(maxlen=RECENT)
        self._prefixes = Prefixes()
        self._tracks: Tracks | None = None
        self._stored_tracks: dict[str, Any] | None = None  # until environments are attached
        self._prints: list[str] = []  # fingerprints of the environments' levels
        self._place: dict[str, int] = {}  # index of each fingerprint
        self._unit = 1.0
        self._won = np.empty(0, np.int64)  # wins of each level from the true start, at the latest update
        self._chance = np.empty(0)  # probability of a start state, by level
        self._bar = np.empty(0)  # progress needed to store an attempt, by level
        self._back = np.empty(0, bool)  # levels whose start moved back to the true start

    def add(self, runs: Mapping[str, np.ndarray]) -> int:
        """Add winning runs by level fingerprint; return how many fit.  Actions: int[n], 0..5."""
        room = list(runs.items())[: MOST_RUNS - len(self.runs)]
        for name, actions in room:
            self.runs[name] = Run(np.asarray(actions, np.uint8), wins=True)
        self.update(self._won)
        return len(room)

    def attach(self, sim: BatchSimulator, prints: list[str], won: np.ndarray) -> None:
        """Attach to environments.  prints: fingerprints of their levels.  won: as for ``update``."""
        self._prints, self._place = prints, {name: level for level, name in enumerate(prints)}
        self._unit, self._tracks = unit(sim), Tracks(sim)
        self._prefixes.forget()
        if self._stored_tracks is None:
            self.began = np.zeros(sim.num_envs, np.int64)
        else:
            self._tracks.load_state_dict(self._stored_tracks)
            self._stored_tracks = None
        self.update(won)

    @property
    def tracks(self) -> Tracks:
        """Tracks of the environments."""
        if self._tracks is None:
            raise RuntimeError("the curriculum has not started these environments: call start() or adopt() first")
        return self._tracks

    # -----------------------------------------------------------------------------------------------------------------
    # Episodes

    def adopt(self) -> None:
        """Ignore the current episodes: environment states were set externally."""
        self.tracks.forget()
        self.began[:] = 0

    def watch(self, sim: BatchSimulator, actions: np.ndarray) -> None:
        """Record actions before a step.  actions: int[N]."""
        self.tracks.watch(sim, actions)

    def end(self, sim: BatchSimulator, ended: np.ndarray) -> None:
        """Update runs from finished episodes.  ended: EPISODE_DTYPE[k], of the environments ``sim.finished``."""
        envs, tracks = sim.finished, self.tracks
        further = tracks.known[envs] & (tracks.best[envs] > self._unit * self._bar[ended["level"]])
        for place in np.flatnonzero(further | (self.began[envs] > 0) | self._back[ended["level"]]).tolist():
            env, name = int(envs[place]), self._prints[ended["level"][place]]
            won = bool(ended["outcome"][place] == WON)
            if self.began[env]:
                self.episodes += 1
                self._recent.append(won)
            run = self.runs.get(name)
            if run is not None and len(run.prefix) == self.began[env]:  # the start has not moved since
                self._move(name, run, won)
                run = self.runs.get(name)
            if won and self.began[env] and (run is None or not run.wins):
                self._store(env, name, int(tracks.length[env]), wins=True)
            elif not won and further[place] and tracks.best[env] > self._unit * self._bar[ended["level"][place]]:
                self._store(env, name, int(tracks.best_at[env]), wins=False)

    def _move(self, name: str, run: Run, won: bool) -> None:
        """Move the start of a level after an episode from its current position."""
        threshold = self.config.start_threshold
        run.losses = 0 if won else run.losses + 1
        if won:
            was_start_state = len(run.prefix) > 0
            run.position = max(0.0, run.position - 1)
            self.reached += was_start_state and not len(run.prefix)
        elif not run.wins and run.losses >= MOST_LOSSES:
            del self.runs[name]
        else:
            run.position = min(STEPS - 1, run.position + threshold / (1 - threshold))
        self._set_chance(name)

    def _store(self, env: int, name: str, length: int, *, wins: bool) -> None:
        """Store the first ``length`` actions of the episode as the level's run."""
        if name not in self.runs and len(self.runs) >= MOST_RUNS:
            return
        run = Run(self.tracks.run(env, length), wins)
        if wins:
            run.position = float(min(STEPS - 1, int(self.began[env]) * STEPS // length))
        else:
            run.progress = float(self.tracks.best[env]) / self._unit
        self.runs[name] = run
        self._set_chance(name)

    def begin(self, sim: BatchSimulator, envs: np.ndarray, rng: np.random.Generator) -> None:
        """Begin episodes in these environments, some of them from start states."""
        tracks = self.tracks
        tracks.begin(sim, envs)
        self.began[envs] = 0
        chance = self._chance[sim.level[envs]]
        candidates = envs[chance > 0]
        chosen = candidates[rng.random(len(candidates)) < chance[chance > 0]]
        if not len(chosen):
            return
        levels = sim.level[chosen].tolist()
        runs = [self.runs[self._prints[level]] for level in levels]
        prefixes = [run.prefix for run in runs]
        states = [
            self._prefixes.state(sim, level, run.prefix, run.stops) for level, run in zip(levels, runs, strict=True)
        ]
        sim.restore(chosen, np.stack(states))
        sim.observe(chosen)
        for env, prefix in zip(chosen.tolist(), prefixes, strict=True):
            tracks.follow(sim, env, prefix)
            self.began[env] = len(prefix)

    # -----------------------------------------------------------------------------------------------------------------
    # Updates

    def update(self, won: np.ndarray) -> None:
        """Set the probabilities of start states.  won: int64[L], wins of each level from the true start."""
        self._won = won.copy()
        self._chance = np.zeros(len(won))
        self._bar = np.where(won == 0, LEAST_PROGRESS, np.inf)
        self._back = np.zeros(len(won), bool)
        for name in list(self.runs):
            self._set_chance(name)

    def _set_chance(self, name: str) -> None:
        """Set the probability of a start state on a level, and the progress that replaces its run."""
        level = self._place.get(name)
        if level is None:
            return  # not in this dataset; it may be in a later one
        wins, run = int(self._won[level]), self.runs.get(name)
        if wins >= MOST_WINS:
            self.runs.pop(name, None)
        helps = run is not None and wins < MOST_WINS and len(run.prefix) > 0
        self._chance[level] = self.config.start_share * FADE**wins if helps else 0.0
        bar = LEAST_PROGRESS if run is None else run.progress + MARGIN
        self._bar[level] = math.inf if wins else bar
        self._back[level] = run is not None and not wins and not len(run.prefix)

    def metrics(self) -> dict[str, float]:
        """Scalars by TensorBoard tag."""
        active = [run for run in self.runs.values() if len(run.prefix)]
        found = {
            "start_states/levels": float(len(active)),
            "start_states/own_runs": float(sum(not run.wins for run in active)),
            "start_states/episodes": float(self.episodes),
            "start_states/reached": float(self.reached),
            "start_states/running": float((self.began > 0).mean()) if len(self.began) else 0.0,
            "start_states/kib": (self._prefixes.nbytes + sum(run.actions.nbytes for run in self.runs.values())) / 1024,
        }
        if self._prefixes.requests:
            found["start_states/known"] = self._prefixes.hits / self._prefixes.requests
        if active:
            found["start_states/position"] = float(np.mean([run.position / STEPS for run in active]))
        if self._recent:
            found["start_states/success_rate"] = float(np.mean(self._recent))
        return found

    def summary(self) -> dict[str, Any]:
        """Summary for results.json."""
        return {"episodes": self.episodes, "reached": self.reached, "levels": len(self.runs)}

    def state_dict(self) -> dict[str, Any]:
        """State for ``load_state_dict``, without wins and random numbers: plain values and copies of arrays."""
        runs = self.runs.values()
        tracks = self._stored_tracks if self._tracks is None else self._tracks.state_dict()
        return {
            "levels": list(self.runs),
            "actions": np.concatenate([np.empty(0, np.uint8), *(run.actions for run in runs)]),
            "runs": [[len(r.actions), r.wins, min(r.progress, 1e9), r.position, r.losses] for r in runs],
            "began": self.began.copy(),
            "episodes": self.episodes,
            "reached": self.reached,
            "recent": list(self._recent),
            "tracks": tracks and {name: unpacked(values) for name, values in tracks.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore ``state_dict``; call ``update`` afterwards.  Level indices may have changed."""
        actions = unpacked(state["actions"])
        ends = np.cumsum([length for length, *_ in state["runs"]], dtype=np.int64)
        self.runs = {
            name: Run(actions[end - length : end], wins, progress if progress < 1e9 else math.inf, *rest)
            for name, end, (length, wins, progress, *rest) in zip(state["levels"], ends, state["runs"], strict=True)
        }
        self.began, self.episodes, self.reached = unpacked(state["began"]), state["episodes"], state["reached"]
        self._recent = deque(state["recent"], maxlen=RECENT)
        if self._tracks is None or state["tracks"] is None:
            self._stored_tracks = state["tracks"]
        else:
            self._tracks.load_state_dict(state["tracks"])
