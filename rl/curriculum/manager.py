"""Curriculum manager: draws the level of each episode and records outcomes.

    manager = make_sampler(categories, config, seed)
    manager.start(sim)                  # begin an episode in every environment
    manager.watch(sim, actions)         # before each step
    ended = manager.next_episodes(sim)  # after each step: get records of ended episodes, draw the next levels
    manager.update(sim)                 # after each update of the policy: new distribution, draw the next levels again

An episode takes O(log levels) operations, an update O(levels + episodes) in numpy.  Memory is a few arrays of fixed size.
Statistics over all levels are computed at each update with up to LEVELS_PER_UPDATE levels, and less often with more levels.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError, UserError
from nppsim.physics.outcomes import WON
from rl.config.curriculum import CurriculumConfig
from rl.curriculum.start_states import StartStates
from rl.curriculum.statistics import Windows, gini
from rl.curriculum.strategy import Levels, Outcomes, Strategy

MASTERED = 0.95  # success rate from which a level counts as mastered ...
MASTERED_EPISODES = 10  # ... after at least this number of episodes
# Keys of ``state_dict`` whose values differ between processes.
PER_PROCESS = ("playing", "began", "drawn_at", "lag", "details", "start_states", "rng")
LEVELS_PER_UPDATE = 10_000  # with more levels, statistics over all levels are less frequent


class LevelMismatchError(UserError, RuntimeError):
    """An episode was played on another level than the curriculum has drawn."""


class CurriculumManager:
    """Draws levels with a strategy and records episodes.

    levels, strategy, rng: levels to draw from, their strategy, and its random generator.
    """

    def __init__(self, levels: Levels, strategy: Strategy, config: CurriculumConfig, rng: np.random.Generator):
        self.levels, self.strategy, self.config = levels, strategy, config
        self.stages = levels.names  # categories, easiest first
        self.stage_of = levels.category  # int32[L], index of the category of each level in ``stages``
        self._rng = rng
        self.updates = 0  # policy updates so far
        self._playing = np.empty(0, np.int64)  # level drawn for the current episode of each environment
        self._began = np.empty(0, np.int64)  # number of updates at the start of the current episode of each environment
        self._drawn_at = np.empty(0, np.int64)  # number of updates when the next level of each environment was drawn
        self._lag = 0  # largest number of updates between the draw of a level and the start of its episode
        self._pending: list[tuple[np.ndarray, ...]] = []  # episodes since the latest update
        self._num_counted = 0  # number of entries of ``_pending`` that are already in the statistics
        categories = len(levels.names)
        self._episodes = np.zeros(categories, np.int64)
        self._successes = Windows(categories, config.window)
        self._returns = Windows(categories, config.window)
        self._played, self._won = np.zeros(len(levels), np.int64), np.zeros(len(levels), np.int64)
        self._details: dict[str, float] = {}  # latest statistics over all levels
        self._details_at = 0  # number of updates when ``_details`` was computed
        self.starts = StartStates(config) if config.start_states else None
        # True for each episode of the latest ``next_episodes`` that began at the start of the level.  Only such episodes
        # enter the statistics.
        self.true_starts = np.empty(0, bool)

    # -----------------------------------------------------------------------------------------------------------------
    # With a simulator

    def start(self, sim: BatchSimulator, levels: np.ndarray | None = None) -> None:
        """Begin an episode in each environment, and draw the levels of the next episodes.

        levels: int[N], levels of the first episodes; -1 or None: draw them.
        """
        drawn = self.draw(sim.num_envs)
        sim.reset(drawn if levels is None else np.where(levels < 0, drawn, levels))
        sim.next_level[:] = self.draw(sim.num_envs)
        self.sync_episodes(sim)
        if self.starts:
            self.starts.tracks.begin(sim, np.arange(sim.num_envs))

    def sync_episodes(self, sim: BatchSimulator) -> None:
        """Call this after environment states were set externally: current and next levels count as drawn now."""
        self._playing = sim.level.astype(np.int64)
        self._began = np.full(sim.num_envs, self.updates)
        self._drawn_at = np.full(sim.num_envs, self.updates)
        if self.starts:
            self.starts.attach(sim, self._won_before())
            self.starts.ignore_episodes()

    def watch(self, sim: BatchSimulator, actions: np.ndarray) -> None:
        """Record the actions int[N] of the next step, for start states."""
        if self.starts:
            if not self.starts.attached:  # in a resumed run, start() is not called
                self.starts.attach(sim, self._won_before())
            self.starts.tracks.watch(sim, actions)

    def counts(self, env: int) -> bool:
        """Return True if the current episode of an environment began at the start of the level."""
        return self.starts is None or not self.starts.began[env]

    def counted_levels(self, sim: BatchSimulator) -> np.ndarray:
        """Return the level int32[N] of each environment; -1 for episodes from start states, which are not counted."""
        return np.where(self.starts.began > 0, -1, sim.level) if self.starts else sim.level

    def next_episodes(self, sim: BatchSimulator) -> np.ndarray:
        """Return records EPISODE_DTYPE[k] of the episodes that ended in the latest step.

        Draws the next level of each environment in which an episode ended.  With start states, some of the new episodes are
        moved to a later state of the level.
        Raises LevelMismatchError for an episode on another level than the drawn one.
        """
        finished = sim.finished
        ended = sim.episode.take(finished)  # seven times as fast as fancy indexing
        self._check(sim, ended)
        counted, envs, self.true_starts = ended, finished, np.ones(len(ended), bool)
        if self.starts:
            self.true_starts = self.starts.began[finished] == 0
            counted, envs = ended[self.true_starts], finished[self.true_starts]
            self.starts.end(sim, ended)
        self.record(counted["level"], counted["outcome"] == WON, counted["ret"], self._began[envs])
        self._lag = max(self._lag, int((self.updates - self._drawn_at[finished]).max(initial=0)))
        self._playing[finished] = sim.next_level[finished]
        self._began[finished] = self._drawn_at[finished] = self.updates
        sim.next_level[finished] = self.draw(len(finished))
        if self.starts:
            self.starts.begin(sim, finished, self._rng)
        return ended

    def _check(self, sim: BatchSimulator, ended: np.ndarray) -> None:
        finished = sim.finished
        if len(self._playing) != sim.num_envs:
            raise RuntimeError(
                "the curriculum has not started these environments: call start() or sync_episodes() first"
            )
        if not np.array_equal(sim.level[finished], sim.next_level[finished]):
            raise LevelMismatchError(
                f"levels {sim.next_level[finished]} were drawn, {sim.level[finished]} are played: next_level "
                "was overwritten"
            )
        drawn = self._playing[finished]
        if not np.array_equal(drawn, ended["level"]):
            raise LevelMismatchError(
                f"levels {drawn} were drawn, {ended['level']} were played: call sync_episodes() after setting states"
            )

    def gather_episodes(self, all_gather: Callable[[np.ndarray], np.ndarray]) -> None:
        """Replace the episodes since the latest update by the episodes of all processes.

        all_gather: function that concatenates rows of all processes in order of rank.
        Call this before reading statistics, because their sliding windows depend on the order of episodes.
        """
        new = self._pending[self._num_counted :]
        empty = Outcomes.none()
        columns = zip(*new, (empty.levels, empty.won, empty.returns, empty.began), strict=True)
        pooled = tuple(all_gather(np.concatenate(column)) for column in columns)
        self._pending[self._num_counted :] = [pooled] if len(pooled[0]) else []

    def update(
        self,
        sim: BatchSimulator,
        decided: np.ndarray | None = None,
        advantages: np.ndarray | None = None,
        all_gather: Callable[[np.ndarray], np.ndarray] = lambda rows: rows,
    ) -> None:
        """Update the strategy with the episodes since the previous update, and draw the next levels again.

        decided, advantages: level and advantage of each decision of the rollout, if ``wants_advantages``.
        all_gather: as for ``gather_episodes``, so that all processes compute the same distribution.
        """
        counts = slice(None) if self.starts is None else self.starts.began == 0
        columns = (self._playing[counts], self._began[counts], decided, advantages)
        self.learn(*(None if column is None else all_gather(column) for column in columns))
        sim.next_level[:] = self.draw(sim.num_envs)
        self._drawn_at = np.full(sim.num_envs, self.updates)

    # -----------------------------------------------------------------------------------------------------------------
    # Without a simulator

    @property
    def wants_advantages(self) -> bool:
        """True if ``update`` needs the advantages of the rollout."""
        return self.strategy.wants_advantages

    def seed(self, seed: int) -> None:
        """Reseed the random generator.  Recorded episodes are unchanged."""
        self._rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state

    def draw(self, n: int) -> np.ndarray:
        """Draw ``n`` levels; return their indices int32[n]."""
        return self.strategy.draw(n)

    def record(
        self,
        levels: Sequence[int] | np.ndarray,
        wins: Sequence[bool] | np.ndarray,
        returns: np.ndarray | None = None,
        began: np.ndarray | None = None,
    ) -> None:
        """Record finished episodes.

        levels: int[k], level of each episode.
        wins: bool[k], True for wins.
        returns: float[k], undiscounted returns; None: 1 for a win, else 0.
        began: int[k], number of updates at the start of each episode; None: the current number.
        """
        levels, wins = np.asarray(levels, np.int64), np.asarray(wins, bool)
        if levels.shape != wins.shape:
            raise ValueError(f"levels and wins differ in shape: {levels.shape}, {wins.shape}")
        if not len(levels):
            return
        returns = wins.astype(np.float64) if returns is None else np.asarray(returns, np.float64)
        began = np.full(len(levels), self.updates) if began is None else np.asarray(began, np.int64)
        self._pending.append((levels, wins, returns, began))

    def learn(
        self,
        running: np.ndarray | None = None,
        running_began: np.ndarray | None = None,
        decided: np.ndarray | None = None,
        advantages: np.ndarray | None = None,
    ) -> None:
        """Update the strategy with the recorded episodes; part of ``update``.  Arguments: see ``Outcomes``."""
        self._count_pending()
        empty = Outcomes.none()
        ended = (np.concatenate(column) for column in zip(*self._pending, strict=True)) if self._pending else None
        levels, won, returns, began = ended or (empty.levels, empty.won, empty.returns, empty.began)
        more = {"running": running, "running_began": running_began}
        if decided is not None and advantages is not None:
            more |= {"decided": decided[decided >= 0].astype(np.int64), "advantages": advantages[decided >= 0]}
        optional = {name: column for name, column in more.items() if column is not None}
        self.strategy.update(Outcomes(levels, won, returns, began, **optional))
        self.updates += 1
        self._pending.clear()
        self._num_counted = 0
        if self.starts:
            self.starts.update(self._won)

    def _won_before(self) -> np.ndarray:
        """Return the wins int64[L] of each level up to the latest update."""
        won = self._won.copy()
        for levels, wins, *_ in self._pending[: self._num_counted]:
            np.subtract.at(won, levels[wins], 1)
        return won

    def _count_pending(self) -> None:
        """Add all newly recorded episodes to the statistics.  Faster than adding the few episodes of each step."""
        new = self._pending[self._num_counted :]
        if not new:
            return
        levels, wins, returns, began = (np.concatenate(column) for column in zip(*new, strict=True))
        self._pending[self._num_counted :] = [(levels, wins, returns, began)]
        self._num_counted = len(self._pending)
        category = self.stage_of[levels]
        self._episodes += np.bincount(category, minlength=len(self.stages))
        self._successes.extend(category, wins)
        self._returns.extend(category, returns)
        np.add.at(self._played, levels, 1)
        np.add.at(self._won, levels[wins], 1)

    # -----------------------------------------------------------------------------------------------------------------
    # Statistics and state

    @property
    def stage(self) -> str:
        """Current category of a strategy with stages, else ""."""
        return self.strategy.stage

    @property
    def events(self) -> list[dict]:
        """Events of the strategy, oldest first."""
        return self.strategy.events

    @property
    def episodes(self) -> np.ndarray:
        """Number of finished episodes int64[C] of each category."""
        self._count_pending()
        return self._episodes.copy()

    def shares(self) -> np.ndarray:
        """Return the probability float64[C] of each category in the next draw."""
        return np.bincount(self.stage_of, self.probabilities(), minlength=len(self.stages))

    def probabilities(self) -> np.ndarray:
        """Return the probability float64[L] of each level in the next draw."""
        return self.strategy.probabilities()

    def metrics(self) -> dict[str, float]:
        """Return scalars by TensorBoard tag.  Success and return of a category are absent before its first episode ends."""
        self._count_pending()
        if not self._details or self.updates % (1 + len(self.levels) // LEVELS_PER_UPDATE) == 0:
            self._details = self._of_all_levels() | self.strategy.details()
            self._details_at = self.updates
        played, shares = self._played, self.shares()
        arrays = (*vars(self).values(), *vars(self.strategy).values())
        result = {
            "curriculum/episodes": float(self._episodes.sum()),
            "curriculum/lag_updates": float(self._lag),
            "curriculum/statistics_age": float(self.updates - self._details_at),
            "curriculum/episodes_since_update": float(sum(len(columns[0]) for columns in self._pending)),
            "curriculum/kib": sum(array.nbytes for array in arrays if isinstance(array, np.ndarray)) / 1024,
        }
        success, returns = self._successes.means(), self._returns.means()
        latest = np.zeros(len(self.stages), np.int64)
        for levels, *_ in self._pending:
            latest += np.bincount(self.stage_of[levels], minlength=len(latest))
        for number, name in enumerate(self.stages):
            result[f"curriculum_stages/{name}_episodes"] = float(self._episodes[number])
            result[f"env_curriculum_stats/per_label_samples/{name}"] = float(latest[number])
            result[f"curriculum_stages/{name}_share"] = float(shares[number])
            if self.stage:
                result[f"curriculum_stages/{name}_place"] = float(number)
            if self._episodes[number]:
                result[f"curriculum_stages/{name}_success_rate"] = float(success[number])
                result[f"env_task_reward/{name}"] = float(returns[number])
        if self._episodes.any():
            result["overview/reward"] = float(np.nanmean(returns))
            result["overview/success"] = float(np.nanmean(success))
        for level in range(min(self.config.tracked_levels, len(played))):
            if played[level]:
                result[f"curriculum_levels/{level}_episodes"] = float(played[level])
                result[f"curriculum_levels/{level}_success"] = float(self._won[level] / played[level])
                result[f"curriculum_levels/{level}_probability"] = float(self.probabilities()[level])
        return result | self._details | self.strategy.metrics() | (self.starts.metrics() if self.starts else {})

    def _of_all_levels(self) -> dict[str, float]:
        played = self._played
        mastered = (played >= MASTERED_EPISODES) & (self._won >= MASTERED * played)
        return {
            "curriculum/levels_seen": float(np.count_nonzero(played)),
            "curriculum/gini_of_episodes": gini(played),
            "curriculum/share_on_mastered": float(played[mastered].sum() / max(1, played.sum())),
        }

    def summary(self) -> dict[str, Any]:
        """Return a summary for results.json: categories and latest statistics."""
        self._count_pending()
        success, returns, shares = self._successes.means(), self._returns.means(), self.shares()
        rows = {
            name: {
                "episodes": int(self._episodes[number]),
                "success": None if np.isnan(success[number]) else float(success[number]),
                "return": None if np.isnan(returns[number]) else float(returns[number]),
                "share": float(shares[number]),
            }
            for number, name in enumerate(self.stages)
        }
        return {"strategy": self.config.chosen, "categories": rows, "statistics": self.metrics()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain values and copies of arrays."""
        self._count_pending()
        return {
            "strategy": self.config.chosen,
            "stages": list(self.stages),
            "level_counts": self.levels.counts.tolist(),
            "updates": self.updates,
            "playing": self._playing.tolist(),
            "began": self._began.tolist(),
            "drawn_at": self._drawn_at.tolist(),
            "lag": self._lag,
            "waiting": [np.concatenate(column) for column in zip(*self._pending, strict=True)],
            "episodes": self._episodes.tolist(),
            "windows": [self._successes.values(i).astype(int).tolist() for i in range(len(self.stages))],
            "returns": [self._returns.values(i) for i in range(len(self.stages))],
            "played": self._played.copy(),
            "won": self._won.copy(),
            "details": [self._details_at, dict(self._details)],
            "start_states": self.starts and self.starts.state_dict(),
            "rng": self._rng.bit_generator.state,
            "of_strategy": self.strategy.state_dict(),
        }

    def common_digest(self) -> str:
        """Return a digest of the part of the state that must be equal in all processes."""
        state = {name: value for name, value in self.state_dict().items() if name not in PER_PROCESS}
        return hashlib.sha256(json.dumps(state, default=np.ndarray.tolist).encode()).hexdigest()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore ``state_dict``.  Raises ConfigError if the state is of other levels or another strategy."""
        current = dict(zip(self.stages, self.levels.counts.tolist(), strict=True))
        stored = dict(zip(state["stages"], state["level_counts"], strict=True))
        if current != stored:
            raise ConfigError(
                f"the saved curriculum has levels {stored}, this dataset {current}; resume with the same dataset"
            )
        if state["strategy"] != self.config.chosen:
            raise ConfigError(f"the saved run uses {state['strategy']!r}", "--curriculum", self.config.chosen)
        self.updates, self._lag = state["updates"], state["lag"]
        self._playing, self._began = np.array(state["playing"], np.int64), np.array(state["began"], np.int64)
        self._drawn_at = np.array(state["drawn_at"], np.int64)
        self._pending = [tuple(state["waiting"])] if state["waiting"] else []
        self._num_counted = len(self._pending)
        self._episodes = np.array(state["episodes"], np.int64)
        for number, (wins, returns) in enumerate(zip(state["windows"], state["returns"], strict=True)):
            self._successes.fill(number, np.array(wins))
            self._returns.fill(number, returns)
        self._played, self._won = state["played"].copy(), state["won"].copy()
        self._details_at, self._details = state["details"]
        if bool(self.starts) != bool(state["start_states"]):
            raise ConfigError(
                f"the saved run had {'' if state['start_states'] else 'no '}start states", "--start-states"
            )
        if self.starts:
            self.starts.load_state_dict(state["start_states"])
            self.starts.update(self._won_before())
        self._rng.bit_generator.state = state["rng"]
        self.strategy.load_state_dict(state["of_strategy"])
