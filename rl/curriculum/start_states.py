"""Start states: on difficult levels, some episodes begin at a state along a stored run.

    starts = StartStates(config)
    starts.add(runs)                          # demonstrations: level fingerprint -> winning actions
    starts.tracks.watch(sim, actions)         # before each decision
    starts.end(sim, ended)                    # record the episodes that ended
    starts.begin(sim, sim.finished, rng)      # begin new episodes, some of them from start states
    starts.update(won)                        # once per update of the policy

A run is a demonstration, or the best attempt of the agent so far.  At first, episodes begin at nine tenths of the run.  After
a win the start moves back by a tenth of the run, after a loss forward by p / (1 - p) tenths.  On average it thus moves back
while the success rate is above the threshold p.  A fixed number of trials per position would need too many episodes.
Each win from the start of a level halves the fraction of its episodes that begin at a start state.
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
from nppsim.physics.outcomes import WON
from rl.config.curriculum import CurriculumConfig

STEPS = 10  # number of equal parts of a run; episodes begin at the end of a part
MAX_LOSSES = 20  # consecutive losses after which an attempt of the agent is dropped
MIN_PROGRESS = 0.1  # smallest progress of a stored attempt, as a multiple of ``unit``
MARGIN = 0.02  # progress by which an attempt must exceed the stored one to replace it, as a multiple of ``unit``
FADE = 0.5  # factor of the fraction of episodes from start states, per win from the start of the level
MAX_WINS = 4  # number of wins from the start of a level after which it has no start states
MAX_RUNS = 4096  # largest number of levels with a run
RECENT = 100  # number of episodes in the reported success rate
MAX_BYTES = 128 << 20  # largest size of the cached states in bytes


@dataclass
class GuideRun:
    """A run through a level, and the position along it at which episodes begin."""

    actions: np.ndarray  # uint8[n], one per decision, from the start of the level
    wins: bool  # True if the actions win the level; False if they end where an attempt made most progress
    progress: float = math.inf  # progress of the attempt as a multiple of ``unit``; infinite for a winning run
    position: float = STEPS - 1  # parts of the run before the start state; rounded down when used; 0: the level's start
    losses: int = 0  # number of consecutive losses from start states of this run

    @property
    def stops(self) -> list[int]:
        """Number of actions before each of the STEPS positions."""
        return [len(self.actions) * step // STEPS for step in range(STEPS)]

    @property
    def prefix(self) -> np.ndarray:
        """Actions uint8[k] before the current start state."""
        return self.actions[: self.stops[int(self.position)]]


class Tracks:
    """Actions and progress of the current episodes of N environments.

    Progress is the increase of the shaping potential since the start of the level.  After the switch is taken, the range of
    the potential is added.

    actions: uint8[N, longest], actions from the start of the level, including those before a start state.
    length: int64[N], number of actions.
    origin: float64[N], potential at the start of the level.
    best: float64[N], largest progress.
    best_at: int64[N], number of actions before the largest progress.
    known: bool[N], True if the actions are complete; False if the state was set externally.
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
        """Record the current progress, and the actions int[N] of the next step."""
        progress = self._potential(sim, slice(None)) - self.origin
        improved = progress > self.best
        self.best[improved], self.best_at[improved] = progress[improved], self.length[improved]
        self.actions[np.arange(len(actions)), self.length] = actions
        self.length += 1

    def begin(self, sim: BatchSimulator, envs: np.ndarray) -> None:
        """Begin to track episodes at the start of the level.  envs: int[k], indices of the environments."""
        self.length[envs] = self.best_at[envs] = 0
        self.best[envs] = 0.0
        self.origin[envs] = self._potential(sim, envs)
        self.known[envs] = True

    def follow(self, sim: BatchSimulator, env: int, actions: np.ndarray) -> None:
        """Begin to track an episode at the state after these actions."""
        self.actions[env, : len(actions)] = actions
        self.length[env] = self.best_at[env] = len(actions)
        self.best[env] = self._potential(sim, env) - self.origin[env]

    def forget(self) -> None:
        """Mark the actions as incomplete, after environment states were set externally."""
        self.length[:] = self.best_at[:] = 0
        self.known[:] = False

    @staticmethod
    def _potential(sim: BatchSimulator, envs: Any) -> Any:
        count = sim.num_envs
        potential, switch = sim.state.progress["potential"][:count], sim.state.ninja["switch_taken"][:count]
        return potential[envs] + unit(sim) * switch[envs]

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the arrays."""
        return {name: getattr(self, name).copy() for name in self.STORED}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore ``state_dict``."""
        for name in self.STORED:
            setattr(self, name, state[name].copy())


def unit(sim: BatchSimulator) -> float:
    """Return the unit of progress: the range of the shaping potential, or 1 without shaping."""
    return float(abs(sim.reward_config.shaping)) or 1.0


class StartStateError(UserError, RuntimeError):
    """A stored run does not play back as it was recorded."""


class Prefixes:
    """LRU cache of the states after given actions on given levels."""

    def __init__(self) -> None:
        self.requests = self.hits = 0  # number of requested states, and number of those that were in the cache
        self._states: OrderedDict[tuple[int, bytes], np.ndarray] = OrderedDict()
        self._sim: BatchSimulator | None = None  # a single environment, with the same levels

    def __len__(self) -> int:
        return len(self._states)

    def forget(self) -> None:
        """Drop all states.  Call this if level indices may have changed."""
        self._states.clear()

    @property
    def nbytes(self) -> int:
        """Size of the cached states in bytes."""
        return sum(state.nbytes for state in self._states.values())

    def state(self, sim: BatchSimulator, level: int, actions: np.ndarray, stops: Collection[int] = ()) -> np.ndarray:
        """Return a snapshot uint8[B] for ``sim`` of the state after these actions.

        Its counts of decisions and rewards are 0, but its frame number includes the actions.
        stops: numbers of actions after which the states are cached as well.
        Raises StartStateError if the actions end the episode.
        """
        key = (level, actions.tobytes())
        self.requests += 1
        self.hits += key in self._states
        if key not in self._states:
            self._play(sim, level, actions, {*stops, len(actions)})
            while len(self._states) > max(1, MAX_BYTES // self._states[key].nbytes):
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
                    f"level {sim.bank.levels[level].fingerprint[:16]}: a stored run ends at decision {number} of "
                    f"{len(actions)}, unlike when it was recorded; start a new training, or omit --start-states"
                )
            if number in stops:
                self._states[level, actions[:number].tobytes()] = _as_start(single)


def _as_start(sim: BatchSimulator) -> np.ndarray:
    """Return a snapshot of the environment in which the counts of decisions and rewards are 0."""
    before = sim.snapshot(0)
    sim.state.progress["decisions"][0] = 0
    sim.state.terms[0] = 0.0
    sim.forget_frames(np.zeros(1, int))
    snapshot = sim.snapshot(0)
    sim.restore(0, before)
    return snapshot


class StartStates:
    """Stored runs, and the choice of start states along them."""

    def __init__(self, config: CurriculumConfig):
        self.config = config
        self.runs: dict[str, GuideRun] = {}  # run of each level, by level fingerprint
        # For each environment: number of decisions of the run before its start state; 0: start of the level.
        self.began = np.empty(0, np.int64)
        self.episodes = 0  # finished episodes from start states
        self.reached = 0  # number of times a start state has moved back to the start of the level
        self._recent: deque[bool] = deque(maxlen=RECENT)
        self._prefixes = Prefixes()
        self._tracks: Tracks | None = None
        self._stored_tracks: dict[str, Any] | None = None  # loaded state, until environments are attached
        self._fingerprints: list[str] = []  # fingerprints of the environments' levels
        self._level_index: dict[str, int] = {}  # index of the level with each fingerprint
        self._unit = 1.0
        self._won = np.empty(0, np.int64)  # by level: wins from the start of the level, at the latest update
        self._probability = np.empty(0)  # by level: probability that an episode begins at a start state
        self._needed_progress = np.empty(0)  # by level: progress needed to store an attempt
        self._at_level_start = np.empty(0, bool)  # by level: True if its start state is the start of the level

    def add(self, runs: Mapping[str, np.ndarray]) -> int:
        """Add winning runs until MAX_RUNS is reached; return the number of added runs.

        runs: actions int[n], each 0 to 5, by level fingerprint.
        """
        added = list(runs.items())[: MAX_RUNS - len(self.runs)]
        for name, actions in added:
            self.runs[name] = GuideRun(np.asarray(actions, np.uint8), wins=True)
        self.update(self._won)
        return len(added)

    def attach(self, sim: BatchSimulator, won: np.ndarray) -> None:
        """Attach to environments.  won: as for ``update``."""
        self._fingerprints = [level.fingerprint for level in sim.bank.levels]
        self._level_index = {name: level for level, name in enumerate(self._fingerprints)}
        self._unit, self._tracks = unit(sim), Tracks(sim)
        self._prefixes.forget()
        if self._stored_tracks is None:
            self.began = np.zeros(sim.num_envs, np.int64)
        else:
            self._tracks.load_state_dict(self._stored_tracks)
            self._stored_tracks = None
        self.update(won)

    @property
    def attached(self) -> bool:
        """True after ``attach``."""
        return self._tracks is not None

    @property
    def tracks(self) -> Tracks:
        """Actions and progress of the environments."""
        if self._tracks is None:
            raise RuntimeError(
                "the curriculum has not started these environments: call start() or sync_episodes() first"
            )
        return self._tracks

    # -----------------------------------------------------------------------------------------------------------------
    # Episodes

    def ignore_episodes(self) -> None:
        """Ignore the current episodes, after environment states were set externally."""
        self.tracks.forget()
        self.began[:] = 0

    def end(self, sim: BatchSimulator, ended: np.ndarray) -> None:
        """Update runs and start states.  ended: EPISODE_DTYPE[k], records of the environments ``sim.finished``."""
        envs, tracks = sim.finished, self.tracks
        improved = tracks.known[envs] & (tracks.best[envs] > self._unit * self._needed_progress[ended["level"]])
        for row in np.flatnonzero(improved | (self.began[envs] > 0) | self._at_level_start[ended["level"]]).tolist():
            env, name = int(envs[row]), self._fingerprints[ended["level"][row]]
            won = bool(ended["outcome"][row] == WON)
            if self.began[env]:
                self.episodes += 1
                self._recent.append(won)
            run = self.runs.get(name)
            # The start has not moved, and the run was not replaced, since the episode began.
            if run is not None and np.array_equal(tracks.actions[env, : self.began[env]], run.prefix):
                self._move(name, run, won)
                run = self.runs.get(name)
            if won and self.began[env] and (run is None or not run.wins):
                self._store(env, name, int(tracks.length[env]), wins=True)
            elif (
                not won and improved[row] and tracks.best[env] > self._unit * self._needed_progress[ended["level"][row]]
            ):
                self._store(env, name, int(tracks.best_at[env]), wins=False)

    def _move(self, name: str, run: GuideRun, won: bool) -> None:
        """Move the start state of a level after an episode that began at it."""
        threshold = self.config.start_threshold
        run.losses = 0 if won else run.losses + 1
        if won:
            was_start_state = len(run.prefix) > 0
            run.position = max(0.0, run.position - 1)
            self.reached += was_start_state and not len(run.prefix)
        elif not run.wins and run.losses >= MAX_LOSSES:
            del self.runs[name]
        else:
            run.position = min(STEPS - 1, run.position + threshold / (1 - threshold))
        self._set_probability(name)

    def _store(self, env: int, name: str, length: int, *, wins: bool) -> None:
        """Store the first ``length`` actions of the episode as the level's run."""
        if name not in self.runs and len(self.runs) >= MAX_RUNS:
            return
        run = GuideRun(self.tracks.actions[env, :length].copy(), wins)
        if wins:
            run.position = float(min(STEPS - 1, int(self.began[env]) * STEPS // length))
        else:
            run.progress = float(self.tracks.best[env]) / self._unit
        self.runs[name] = run
        self._set_probability(name)

    def begin(self, sim: BatchSimulator, envs: np.ndarray, rng: np.random.Generator) -> None:
        """Begin to track new episodes int[k] of environments; move some of them to start states."""
        tracks = self.tracks
        tracks.begin(sim, envs)
        self.began[envs] = 0
        probability = self._probability[sim.level[envs]]
        candidates = envs[probability > 0]
        chosen = candidates[rng.random(len(candidates)) < probability[probability > 0]]
        if not len(chosen):
            return
        levels = sim.level[chosen].tolist()
        runs = [self.runs[self._fingerprints[level]] for level in levels]
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
        """Set the probabilities of start states.  won: int64[L], wins of each level from its start."""
        self._won = won.copy()
        self._probability = np.zeros(len(won))
        self._needed_progress = np.where(won == 0, MIN_PROGRESS, np.inf)
        self._at_level_start = np.zeros(len(won), bool)
        for name in list(self.runs):
            self._set_probability(name)

    def _set_probability(self, name: str) -> None:
        """Set the probability of start states on a level, and the progress with which an attempt replaces its run."""
        level = self._level_index.get(name)
        if level is None:
            return  # the level is not in this dataset, but may be in a later one
        wins, run = int(self._won[level]), self.runs.get(name)
        if wins >= MAX_WINS:
            self.runs.pop(name, None)
        active = run is not None and wins < MAX_WINS and len(run.prefix) > 0
        self._probability[level] = self.config.start_share * FADE**wins if active else 0.0
        needed = MIN_PROGRESS if run is None else run.progress + MARGIN
        self._needed_progress[level] = math.inf if wins else needed
        self._at_level_start[level] = run is not None and not wins and not len(run.prefix)

    def metrics(self) -> dict[str, float]:
        """Return scalars by TensorBoard tag."""
        active = [run for run in self.runs.values() if len(run.prefix)]
        metrics = {
            "start_states/levels": float(len(active)),
            "start_states/own_runs": float(sum(not run.wins for run in active)),
            "start_states/episodes": float(self.episodes),
            "start_states/reached": float(self.reached),
            "start_states/running": float((self.began > 0).mean()) if len(self.began) else 0.0,
            "start_states/kib": (self._prefixes.nbytes + sum(run.actions.nbytes for run in self.runs.values())) / 1024,
        }
        if self._prefixes.requests:
            metrics["start_states/known"] = self._prefixes.hits / self._prefixes.requests
        if active:
            metrics["start_states/position"] = float(np.mean([run.position / STEPS for run in active]))
        if self._recent:
            metrics["start_states/success_rate"] = float(np.mean(self._recent))
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values and copies of arrays, without wins and random generator."""
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
            "tracks": tracks and {name: values.copy() for name, values in tracks.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore ``state_dict``, also for another dataset.  Call ``update`` afterwards."""
        actions = state["actions"].copy()
        ends = np.cumsum([length for length, *_ in state["runs"]], dtype=np.int64)
        self.runs = {
            name: GuideRun(actions[end - length : end], wins, progress if progress < 1e9 else math.inf, *rest)
            for name, end, (length, wins, progress, *rest) in zip(state["levels"], ends, state["runs"], strict=True)
        }
        self.began, self.episodes, self.reached = state["began"].copy(), state["episodes"], state["reached"]
        self._recent = deque(state["recent"], maxlen=RECENT)
        if self._tracks is None or state["tracks"] is None:
            self._stored_tracks = state["tracks"]
        else:
            self._tracks.load_state_dict(state["tracks"])
