"""Start states: on levels that are never won, a part of the episodes begins along a run that leads further.

    starts = StartStates(config)
    starts.add(runs)                          # level fingerprint -> actions that win it: demonstrations
    starts.watch(sim, actions)                # before each decision
    starts.end(sim, ended)                    # episodes that ended ...
    starts.begin(sim, sim.finished, rng)      # ... and those that begin: some are put further on
    starts.update(won)                        # once per update of the policy

A run is a demonstration, or the agent's own best attempt so far.  Episodes begin at nine tenths of it, a tenth of it earlier
after each win, and a little later after each loss, so that they move back where success is above a threshold p: a loss
counts p / (1 - p) of a win.  A level has some tens of episodes in a training with thousands of levels; to wait for so and so
many tries at each place would take longer than that.  With each win from the true start, the share is halved.
Sources: Salimans & Chen 2018 (backwards along one demonstration); Ecoffet et al. 2021 (going on from the best so far);
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
from rl.curriculum.prefixes import Prefixes
from rl.curriculum.statistics import unpacked
from rl.curriculum.tracks import Tracks, unit
from rl.curriculum_config import CurriculumConfig

STEPS = 10  # parts of a run; episodes begin at the end of one of them
MOST_LOSSES = 20  # in a row, after which an attempt of the agent's own is given up
LEAST_PROGRESS = 0.1  # in units of ``tracks.unit``: what an attempt must have come to be kept, ...
MARGIN = 0.02  # ... and by how much another one must have come further to replace it
FADE = 0.5  # times the share, for each win from the true start
MOST_WINS = 4  # from the true start, with which a level needs no start states any more
MOST_RUNS = 4096  # levels with one
RECENT = 100  # episodes that success is taken over


@dataclass
class Run:
    """A way to play a level, and how far back along it episodes begin.

    actions: uint8[n], one per decision, from the true start.
    wins: whether they win the level; else they end where the attempt had come furthest.
    progress: how far that was.
    position: from STEPS - 1 to 0, the true start; rounded down.
    losses: of episodes from there, in a row.
    """

    actions: np.ndarray
    wins: bool
    progress: float = math.inf
    position: float = STEPS - 1
    losses: int = 0

    @property
    def stops(self) -> list[int]:
        """After how many actions episodes may begin, by position."""
        return [len(self.actions) * step // STEPS for step in range(STEPS)]

    @property
    def prefix(self) -> np.ndarray:
        """uint8[k]: what leads to where episodes begin now."""
        return self.actions[: self.stops[int(self.position)]]


class StartStates:
    """runs: by level fingerprint.

    began: int64[N], decisions before the beginning of each environment's present episode; 0: the true start.
    episodes, reached: so far, from start states; how often one has come back to the true start.
    """

    def __init__(self, config: CurriculumConfig):
        self.config = config
        self.runs: dict[str, Run] = {}
        self.began = np.empty(0, np.int64)
        self.episodes = self.reached = 0
        self._recent: deque[bool] = deque(maxlen=RECENT)
        self._prefixes = Prefixes()
        self._tracks: Tracks | None = None
        self._stored_tracks: dict[str, Any] | None = None  # that wait for environments
        self._prints: list[str] = []  # of the environments' levels
        self._place: dict[str, int] = {}  # of each fingerprint there
        self._unit = 1.0
        self._won = np.empty(0, np.int64)  # wins of each level from the true start, as of the latest update
        self._chance = np.empty(0)  # of each level, that an episode begins along its run
        self._bar = np.empty(0)  # how far an attempt must have come on each level to be kept
        self._back = np.empty(0, bool)  # levels whose run has come back to the true start

    def add(self, runs: Mapping[str, np.ndarray]) -> int:
        """Take runs that win, by level fingerprint, and say how many there is room for.  actions: int[n], 0..5."""
        room = list(runs.items())[: MOST_RUNS - len(self.runs)]
        for name, actions in room:
            self.runs[name] = Run(np.asarray(actions, np.uint8), wins=True)
        self.update(self._won)
        return len(room)

    def attach(self, sim: BatchSimulator, prints: list[str], won: np.ndarray) -> None:
        """Play in these environments.  prints: fingerprint of each of their levels.  won: as for ``update``."""
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
        """Of the environments."""
        if self._tracks is None:
            raise RuntimeError("the environments were not begun by the curriculum: reset them, or call adopt() first")
        return self._tracks

    # -----------------------------------------------------------------------------------------------------------------
    # Episodes

    def adopt(self) -> None:
        """Somebody has put the environments somewhere: what they do until their episodes end is no run."""
        self.tracks.forget()
        self.began[:] = 0

    def watch(self, sim: BatchSimulator, actions: np.ndarray) -> None:
        """Take note of a decision that is about to be made.  actions: int[N]."""
        self.tracks.watch(sim, actions)

    def end(self, sim: BatchSimulator, ended: np.ndarray) -> None:
        """Learn from the episodes that have just ended.  ended: EPISODE_DTYPE[k], of the environments ``sim.finished``."""
        envs, tracks = sim.finished, self.tracks
        further = tracks.known[envs] & (tracks.best[envs] > self._unit * self._bar[ended["level"]])
        for place in np.flatnonzero(further | (self.began[envs] > 0) | self._back[ended["level"]]).tolist():
            env, name = int(envs[place]), self._prints[ended["level"][place]]
            won = bool(ended["outcome"][place] == WON)
            if self.began[env]:
                self.episodes += 1
                self._recent.append(won)
            run = self.runs.get(name)
            if run is not None and len(run.prefix) == self.began[env]:  # it has not moved since
                self._move(name, run, won)
                run = self.runs.get(name)
            if won and self.began[env] and (run is None or not run.wins):
                self._keep(env, name, int(tracks.length[env]), wins=True)
            elif not won and further[place] and tracks.best[env] > self._unit * self._bar[ended["level"][place]]:
                self._keep(env, name, int(tracks.best_at[env]), wins=False)

    def _move(self, name: str, run: Run, won: bool) -> None:
        """An episode that began where the level's episodes begin now has ended."""
        threshold = self.config.start_threshold
        run.losses = 0 if won else run.losses + 1
        if won:
            was_on_the_way = len(run.prefix) > 0
            run.position = max(0.0, run.position - 1)
            self.reached += was_on_the_way and not len(run.prefix)
        elif not run.wins and run.losses >= MOST_LOSSES:
            del self.runs[name]
        else:
            run.position = min(STEPS - 1, run.position + threshold / (1 - threshold))
        self._spread(name)

    def _keep(self, env: int, name: str, length: int, *, wins: bool) -> None:
        """What was played is the level's run from now on.  length: of that, actions."""
        if name not in self.runs and len(self.runs) >= MOST_RUNS:
            return
        run = Run(self.tracks.run(env, length), wins)
        if wins:
            run.position = float(min(STEPS - 1, int(self.began[env]) * STEPS // length))
        else:
            run.progress = float(self.tracks.best[env]) / self._unit
        self.runs[name] = run
        self._spread(name)

    def begin(self, sim: BatchSimulator, envs: np.ndarray, rng: np.random.Generator) -> None:
        """Episodes begin in these environments, which stand at the beginning of a level; put some of them further on."""
        tracks = self.tracks
        tracks.begin(sim, envs)
        self.began[envs] = 0
        chance = self._chance[sim.level[envs]]
        asked = envs[chance > 0]
        chosen = asked[rng.random(len(asked)) < chance[chance > 0]]
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
        """Shares from now on.  won: int64[L], wins of each level from the true start so far."""
        self._won = won.copy()
        self._chance = np.zeros(len(won))
        self._bar = np.where(won == 0, LEAST_PROGRESS, np.inf)
        self._back = np.zeros(len(won), bool)
        for name in list(self.runs):
            self._spread(name)

    def _spread(self, name: str) -> None:
        """How often episodes begin along the run of a level, if it has one, and what would be a better one."""
        level = self._place.get(name)
        if level is None:
            return  # it may come back
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
        if self._prefixes.asked:
            found["start_states/known"] = self._prefixes.known / self._prefixes.asked
        if active:
            found["start_states/position"] = float(np.mean([run.position / STEPS for run in active]))
        if self._recent:
            found["start_states/success_rate"] = float(np.mean(self._recent))
        return found

    def summary(self) -> dict[str, Any]:
        """What came of it, for results.json."""
        return {"episodes": self.episodes, "reached": self.reached, "levels": len(self.runs)}

    def state_dict(self) -> dict[str, Any]:
        """Everything that the future depends on beside wins and random numbers: plain values and copies of arrays."""
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
        """Continue where ``state_dict`` was taken; ``update`` has to follow.  Levels may have other places by now."""
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
