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
from collections import OrderedDict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from nppsim.batch import BatchSimulator
from nppsim.errors import UserError
from nppsim.outcomes import WON
from rl.config.curriculum import CurriculumConfig
from rl.curriculum.statistics import unpacked

STEPS = 10  # parts of a run; episodes begin at the end of a part
MOST_LOSSES = 20  # in a row, after which an attempt of the agent is dropped
LEAST_PROGRESS = 0.1  # smallest progress of a stored attempt, in units of ``unit``
MARGIN = 0.02  # additional progress needed to replace it
FADE = 0.5  # factor of the fraction for each win from the true start
MOST_WINS = 4  # wins from the true start after which a level has no start states
MOST_RUNS = 4096  # levels with a run
RECENT = 100  # episodes of the reported success rate
MOST_BYTES = 128 << 20  # of the cached states


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


class Tracks:
    """Actions and progress of the current episode of N environments.

    Progress is the shaping potential, plus its range once the switch is taken, relative to the start of the level.

    actions: uint8[N, longest], from the start of the level, including those before a start state.
    length: int64[N], number of actions.
    origin: float64[N], potential at the start of the level.
    best, best_at: float64[N], int64[N], largest progress, and the number of actions before it.
    known: bool[N], the actions are complete; False if the state was set externally.
    """

    STORED: ClassVar[tuple[str, ...]] = ("actions", "length", "origin", "best", "best_at", "known")

    def __init__(self, sim: BatchSimulator):
        longest = int(sim.bank.time_limit.max()) // sim.frame_skip + 2
        count = sim.num_envs
        self.actions = np.zeros((count, longest), np.uint8)
        self.length, self.best_at = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.origin, self.best = np.zeros(count), np.zeros(count)
        self.known = np.zeros(count, bool)

    def watch(self, sim: BatchSimulator, actions: np.ndarray) -> None:
        """Record the current progress and the next actions.  actions: int[N]."""
        far = self._worth(sim, slice(None)) - self.origin
        better = far > self.best
        self.best[better], self.best_at[better] = far[better], self.length[better]
        self.actions[np.arange(len(actions)), self.length] = actions
        self.length += 1

    def begin(self, sim: BatchSimulator, envs: np.ndarray) -> None:
        """Start tracks at the start of the level."""
        self.length[envs] = self.best_at[envs] = 0
        self.best[envs] = 0.0
        self.origin[envs] = self._worth(sim, envs)
        self.known[envs] = True

    def follow(self, sim: BatchSimulator, env: int, actions: np.ndarray) -> None:
        """Start a track at the state after these actions."""
        self.actions[env, : len(actions)] = actions
        self.length[env] = self.best_at[env] = len(actions)
        self.best[env] = self._worth(sim, env) - self.origin[env]

    def forget(self) -> None:
        """Mark all tracks as incomplete: environment states were set externally."""
        self.length[:] = self.best_at[:] = 0
        self.known[:] = False

    def run(self, env: int, length: int) -> np.ndarray:
        """First actions uint8[length] of an episode."""
        return self.actions[env, :length].copy()

    @staticmethod
    def _worth(sim: BatchSimulator, envs: Any) -> Any:
        count = sim.num_envs
        potential, switch = sim.state.progress["potential"][:count], sim.state.ninja["switch_taken"][:count]
        return potential[envs] + unit(sim) * switch[envs]

    def state_dict(self) -> dict[str, Any]:
        """Copies of the arrays."""
        return {name: getattr(self, name).copy() for name in self.STORED}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore ``state_dict``."""
        for name in self.STORED:
            setattr(self, name, unpacked(state[name]))


def unit(sim: BatchSimulator) -> float:
    """Unit of progress: range of the shaping potential; 1 without shaping."""
    return float(abs(sim.reward_config.shaping)) or 1.0


class StartStateError(UserError, RuntimeError):
    """A stored run whose playback differs from its recording."""


class Prefixes:
    """LRU cache of states by (level, actions).

    requests, hits: counts so far.
    """

    def __init__(self) -> None:
        self.requests = self.hits = 0
        self._states: OrderedDict[tuple[int, bytes], np.ndarray] = OrderedDict()
        self._sim: BatchSimulator | None = None  # one environment with the same levels

    def __len__(self) -> int:
        return len(self._states)

    def forget(self) -> None:
        """Drop all states, as level indices may have changed."""
        self._states.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of the cached states."""
        return sum(state.nbytes for state in self._states.values())

    def state(self, sim: BatchSimulator, level: int, actions: np.ndarray, stops: Collection[int] = ()) -> np.ndarray:
        """Snapshot uint8[B] for ``sim`` after these actions, with counts of decisions and rewards reset.

        The level's clock includes the actions.
        stops: numbers of actions whose states are cached as well.
        Raises StartStateError if the actions end the episode.
        """
        key = (level, actions.tobytes())
        self.requests += 1
        self.hits += key in self._states
        if key not in self._states:
            self._play(sim, level, actions, {*stops, len(actions)})
            while len(self._states) > max(1, MOST_BYTES // self._states[key].nbytes):
                self._states.popitem(last=False)
        self._states.move_to_end(key)
        return self._states[key]

    def _play(self, sim: BatchSimulator, level: int, actions: np.ndarray, stops: Collection[int]) -> None:
        if self._sim is None or self._sim.bank is not sim.bank:
            self._sim = sim.sibling()
        single = self._sim
        single.reset(np.array([level]))
        for number, action in enumerate(actions, 1):
            single.step(np.array([action]))
            if single.finished.size:
                raise StartStateError(
                    f"level {sim.bank.levels[level].fingerprint[:16]}: a stored run ends after decision {number} of "
                    f"{len(actions)}, unlike its recording; start a new run, or train without --start-states"
                )
            if number in stops:
                self._states[level, actions[:number].tobytes()] = _as_start(single)


def _as_start(sim: BatchSimulator) -> np.ndarray:
    """Snapshot of the environment with decisions and rewards set to 0."""
    before = sim.snapshot(0)
    sim.state.progress["decisions"][0] = 0
    sim.state.terms[0] = 0.0
    sim.forget_frames(np.zeros(1, int))
    found = sim.snapshot(0)
    sim.restore(0, before)
    return found


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
