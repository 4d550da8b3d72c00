"""The curriculum's manager: draws the level of every next episode, and hears how the one before ended.

    manager = make_sampler(categories, config, seed)
    manager.start(sim)                  # episodes begin in every environment
    ended = manager.next_episodes(sim)  # after each step: records of the episodes that ended; the next levels are drawn
    manager.watch(sim, actions)         # before each step
    manager.update(sim)                 # after each update of the policy: shares anew, and waiting draws with them

It lives in the process that owns the simulator, so that there are no copies of it.  An episode costs O(log levels), an
update O(levels + episodes), all in numpy; memory is a few arrays of fixed size.  Statistics that look at all levels are
worked out at each update for up to LEVELS_PER_UPDATE levels, and more rarely the more there are.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError, UserError
from nppsim.outcomes import WON
from rl.curriculum.memory_usage import Size, sizes_of
from rl.curriculum.start_states import StartStates
from rl.curriculum.statistics import Windows, as_json, gini, joined, unpacked
from rl.curriculum.strategy import Levels, Outcomes, Strategy
from rl.curriculum_config import CurriculumConfig

MASTERED = 0.95  # success, of all its episodes so far, from which a level counts as won for good ...
MASTERED_EPISODES = 10  # ... once there were so many
OWN = (
    "playing",
    "began",
    "drawn_at",
    "lag",
    "details",
    "start_states",
    "rng",
)  # of the state: each process has its own
LEVELS_PER_UPDATE = 10_000  # that statistics of all levels look at, on average


class LevelMismatchError(UserError, RuntimeError):
    """A level was played that the curriculum did not draw."""


class CurriculumManager:
    """Draws by a strategy, records episodes, keeps counts.

    levels: to draw from.
    strategy: made for them.
    rng: that the strategy draws with.
    fingerprints: of the levels, where they are known; None: those of the simulator's bank.

    stages: categories that occur, easiest first.
    stage_of: int32[L], place of each level's category there.
    updates: of the policy, so far.
    starts: start states; None where all episodes begin where their levels do.
    true_starts: bool[k], of the episodes that ``next_episodes`` returned last, whether they began there.  Only these count.
    """

    def __init__(
        self,
        levels: Levels,
        strategy: Strategy,
        config: CurriculumConfig,
        rng: np.random.Generator,
        fingerprints: Sequence[str] | None = None,
    ):
        if fingerprints is not None and len(fingerprints) != len(levels):
            raise ValueError(f"{len(fingerprints)} fingerprints of {len(levels)} levels")
        self.levels, self.strategy, self.config = levels, strategy, config
        self.stages, self.stage_of = levels.names, levels.category
        self._rng = rng
        self._drawn_prints = None if fingerprints is None else _short(fingerprints)
        self._bank_prints: np.ndarray | None = None  # of the levels in the simulator
        self.updates = 0
        self._playing = np.empty(0, np.int64)  # level drawn for each environment's present episode
        self._began = np.empty(0, np.int64)  # updates there had been when that began
        self._drawn_at = np.empty(0, np.int64)  # likewise when the next level was drawn
        self._lag = 0  # largest number of updates between the draw of a level and the start of its episode
        self._waiting: list[tuple[np.ndarray, ...]] = []  # episodes since the latest update
        self._settled = 0  # of these, how many entries are in the statistics
        categories = len(levels.names)
        self._episodes = np.zeros(categories, np.int64)
        self._successes = Windows(categories, config.window)
        self._returns = Windows(categories, config.window)
        self._played, self._won = np.zeros(len(levels), np.int64), np.zeros(len(levels), np.int64)
        self._details: dict[str, float] = {}  # statistics of all levels, when they were worked out last
        self._details_at = 0  # update of that
        self.starts = StartStates(config) if config.start_states else None
        self.true_starts = np.empty(0, bool)

    # -----------------------------------------------------------------------------------------------------------------
    # With a simulator

    def start(self, sim: BatchSimulator) -> None:
        """Begin an episode in every environment, and draw the levels that come after."""
        sim.reset(self.draw(sim.num_envs))
        sim.next_level[:] = self.draw(sim.num_envs)
        self.adopt(sim)
        if self.starts:
            self.starts.tracks.begin(sim, np.arange(sim.num_envs))

    def adopt(self, sim: BatchSimulator) -> None:
        """Take what the environments play, and will play next, as drawn now: after they were put there by hand."""
        self._read_fingerprints(sim)
        self._playing = sim.level.astype(np.int64)
        self._began = np.full(sim.num_envs, self.updates)
        self._drawn_at = np.full(sim.num_envs, self.updates)
        if self.starts:
            self.starts.adopt()

    def watch(self, sim: BatchSimulator, actions: np.ndarray) -> None:
        """Take note of what is about to be decided; start states are made of that.  actions: int[N]."""
        if self.starts:
            if self._bank_prints is None:  # a run that goes on in other environments' stead
                self._read_fingerprints(sim)
            self.starts.watch(sim, actions)

    def counts(self, env: int) -> bool:
        """Whether the present episode of an environment began where its level does."""
        return self.starts is None or not self.starts.began[env]

    def credited(self, sim: BatchSimulator) -> np.ndarray:
        """int32[N]: the level that each environment plays; -1 where its episode does not count."""
        return np.where(self.starts.began > 0, -1, sim.level) if self.starts else sim.level

    def next_episodes(self, sim: BatchSimulator) -> np.ndarray:
        """EPISODE_DTYPE[k], of the episodes that ended in the latest step; draws what their environments play after next.

        With start states, some environments are put further on in the level that they have just begun.

        LevelMismatchError where an episode was played, or begins, on another level than the one that was drawn for it.
        """
        finished = sim.finished
        ended = sim.episode.take(finished)  # seven times as fast as by an index
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

    def _read_fingerprints(self, sim: BatchSimulator) -> None:
        prints = [level.fingerprint for level in sim.bank.levels]
        self._bank_prints = _short(prints)
        if self.starts:
            self.starts.attach(sim, prints, self._won_before())
        if self._drawn_prints is None or np.array_equal(self._drawn_prints, self._bank_prints):
            self._drawn_prints = self._bank_prints  # one array: nobody has to compare them again

    def _check(self, sim: BatchSimulator, ended: np.ndarray) -> None:
        finished = sim.finished
        if len(self._playing) != sim.num_envs:
            raise RuntimeError("the environments were not begun by the curriculum: reset them, or call adopt() first")
        if self._bank_prints is None:  # a run that goes on in other environments' stead
            self._read_fingerprints(sim)
        assert self._drawn_prints is not None and self._bank_prints is not None
        if not np.array_equal(sim.level[finished], sim.next_level[finished]):
            raise LevelMismatchError(
                f"levels {sim.next_level[finished]} were drawn, {sim.level[finished]} are played: something "
                "overwrites the curriculum's choice"
            )
        drawn = self._playing[finished]
        if self._drawn_prints is self._bank_prints and np.array_equal(drawn, ended["level"]):
            return
        wrong = self._drawn_prints[drawn] != self._bank_prints[ended["level"]]
        if wrong.any():
            env, one, other = finished[wrong][0], drawn[wrong][0], ended["level"][wrong][0]
            raise LevelMismatchError(
                f"environment {env} was to play level {one} (fingerprint {self._drawn_prints[one]:016x}…), it played "
                f"level {other} ({self._bank_prints[other]:016x}…): curriculum and simulator know different levels"
            )

    def pool(self, all_gather: Callable[[np.ndarray], np.ndarray]) -> None:
        """Let the episodes since the latest update be those of all processes that train together.

        all_gather: rows of this process -> rows of all, one process after the other.
        To be called before anybody asks for statistics, whose windows depend on the order.
        """
        new = self._waiting[self._settled :]
        none = Outcomes.none()
        columns = zip(*new, (none.levels, none.won, none.returns, none.began), strict=True)
        pooled = tuple(all_gather(np.concatenate(column)) for column in columns)
        self._waiting[self._settled :] = [pooled] if len(pooled[0]) else []

    def update(
        self,
        sim: BatchSimulator,
        decided: np.ndarray | None = None,
        advantages: np.ndarray | None = None,
        all_gather: Callable[[np.ndarray], np.ndarray] = lambda rows: rows,
    ) -> None:
        """Let the strategy learn from the episodes since the update before; levels that wait to be played are drawn anew.

        decided, advantages: level and advantage of each decision of the rollout, where ``wants_advantages``.
        all_gather: as in ``pool``, so that the strategy of each process learns from all.
        """
        counts = slice(None) if self.starts is None else self.starts.began == 0
        columns = (self._playing[counts], self._began[counts], decided, advantages)
        self.learn(*(None if column is None else all_gather(column) for column in columns))
        sim.next_level[:] = self.draw(sim.num_envs)
        self._drawn_at = np.full(sim.num_envs, self.updates)

    # -----------------------------------------------------------------------------------------------------------------
    # Without one

    @property
    def wants_advantages(self) -> bool:
        """Whether ``update`` needs the advantages of the rollout's decisions."""
        return self.strategy.wants_advantages

    def seed(self, seed: int) -> None:
        """Begin the sequence of draws anew from this seed; what was recorded stays."""
        self._rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state

    def draw(self, n: int) -> np.ndarray:
        """int32[n]: indices of the levels to play next."""
        return self.strategy.draw(n)

    def record(
        self,
        levels: Sequence[int] | np.ndarray,
        wins: Sequence[bool] | np.ndarray,
        returns: np.ndarray | None = None,
        began: np.ndarray | None = None,
    ) -> None:
        """Take note of episodes that ended.

        levels: int[k], the levels played.
        wins: bool[k].
        returns: float[k], undiscounted; None: 1 for a win, else 0.
        began: int[k], how many updates there had been when each began; None: as many as now.
        """
        levels, wins = np.asarray(levels, np.int64), np.asarray(wins, bool)
        if levels.shape != wins.shape:
            raise ValueError(f"levels and wins differ in shape: {levels.shape}, {wins.shape}")
        if not len(levels):
            return
        returns = wins.astype(np.float64) if returns is None else np.asarray(returns, np.float64)
        began = np.full(len(levels), self.updates) if began is None else np.asarray(began, np.int64)
        self._waiting.append((levels, wins, returns, began))

    def learn(
        self,
        running: np.ndarray | None = None,
        running_began: np.ndarray | None = None,
        decided: np.ndarray | None = None,
        advantages: np.ndarray | None = None,
    ) -> None:
        """The part of ``update`` that needs no simulator; see ``Outcomes`` for the arguments."""
        self._settle()
        none = Outcomes.none()
        ended = (np.concatenate(column) for column in zip(*self._waiting, strict=True)) if self._waiting else None
        levels, won, returns, began = ended or (none.levels, none.won, none.returns, none.began)
        if decided is not None and advantages is not None:
            decided, advantages = decided.ravel(), advantages.ravel()
            decided, advantages = decided[decided >= 0].astype(np.int64), advantages[decided >= 0]
        self.strategy.update(
            Outcomes(
                levels,
                won,
                returns,
                began,
                none.running if running is None else running,
                none.running_began if running_began is None else running_began,
                none.decided if decided is None else decided,
                none.advantages if advantages is None else advantages,
            )
        )
        self.updates += 1
        self._waiting.clear()
        self._settled = 0
        if self.starts:
            self.starts.update(self._won)

    def _won_before(self) -> np.ndarray:
        """int64[L]: wins of each level as of the latest update."""
        won = self._won.copy()
        for levels, wins, *_ in self._waiting[: self._settled]:
            np.subtract.at(won, levels[wins], 1)
        return won

    def _settle(self) -> None:
        """Bring the statistics up to date: in one go for many episodes, as each step has only a few."""
        new = self._waiting[self._settled :]
        if not new:
            return
        levels, wins, returns, began = (np.concatenate(column) for column in zip(*new, strict=True))
        self._waiting[self._settled :] = [(levels, wins, returns, began)]
        self._settled = len(self._waiting)
        category = self.stage_of[levels]
        self._episodes += np.bincount(category, minlength=len(self.stages))
        self._successes.extend(category, wins)
        self._returns.extend(category, returns)
        np.add.at(self._played, levels, 1)
        np.add.at(self._won, levels[wins], 1)

    # -----------------------------------------------------------------------------------------------------------------
    # What came of it

    @property
    def stage(self) -> str:
        """The category that is being learned, where the strategy has one; else ""."""
        return self.strategy.stage

    @property
    def events(self) -> list[dict]:
        """What happened, oldest first."""
        return self.strategy.events

    @property
    def episodes(self) -> np.ndarray:
        """int64[C]: episodes of each category that have ended so far."""
        self._settle()
        return self._episodes.copy()

    def shares(self) -> np.ndarray:
        """float64[C], sums to 1: how draws are spread over the categories."""
        return np.bincount(self.stage_of, self.probabilities(), minlength=len(self.stages))

    def probabilities(self) -> np.ndarray:
        """float64[L], sums to 1: how likely each level is at the next draw."""
        return self.strategy.probabilities()

    def container_sizes(self) -> dict[str, Size]:
        """Of everything that could grow, by "<class>.<attribute>"."""
        return sizes_of(self, self.strategy, *([self.starts] if self.starts else []))

    def metrics(self) -> dict[str, float]:
        """Scalars by TensorBoard tag; those of a category are missing until an episode of it has ended."""
        self._settle()
        if not self._details or self.updates % (1 + len(self.levels) // LEVELS_PER_UPDATE) == 0:
            self._details = self._of_all_levels() | self.strategy.details()
            self._details_at = self.updates
        played, shares, sizes = self._played, self.shares(), self.container_sizes()
        result = {
            "curriculum/episodes": float(self._episodes.sum()),
            "curriculum/lag_updates": float(self._lag),
            "curriculum/statistics_age": float(self.updates - self._details_at),
            "curriculum/episodes_since_update": float(sum(len(some[0]) for some in self._waiting)),
            "curriculum/kib": Size.sum(sizes.values()).nbytes / 1024,
        } | {f"curriculum_size/{name}": float(size.nbytes) for name, size in sizes.items()}
        success, returns = self._successes.means(), self._returns.means()
        latest = np.zeros(len(self.stages), np.int64)
        for levels, *_ in self._waiting:
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
        return joined(result, self._details, self.strategy.metrics(), self.starts.metrics() if self.starts else {})

    def _of_all_levels(self) -> dict[str, float]:
        played = self._played
        mastered = (played >= MASTERED_EPISODES) & (self._won >= MASTERED * played)
        return {
            "curriculum/levels_seen": float(np.count_nonzero(played)),
            "curriculum/gini_of_episodes": gini(played),
            "curriculum/share_on_mastered": float(played[mastered].sum() / max(1, played.sum())),
        }

    def summary(self) -> dict[str, Any]:
        """What came of it, for results.json: by category, the latest statistics, and the events with their reasons."""
        self._settle()
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
        found = {
            "strategy": self.config.chosen,
            "categories": rows,
            "statistics": self.metrics(),
            "events": [dict(event) for event in self.events],
        }
        return found | ({"start_states": self.starts.summary()} if self.starts else {})

    def state_dict(self) -> dict[str, Any]:
        """Everything that the future depends on, as plain values and copies of arrays; see ``statistics.as_json``."""
        self._settle()
        return {
            "strategy": self.config.chosen,
            "stages": list(self.stages),
            "level_counts": self.levels.counts.tolist(),
            "updates": self.updates,
            "playing": self._playing.tolist(),
            "began": self._began.tolist(),
            "drawn_at": self._drawn_at.tolist(),
            "lag": self._lag,
            "waiting": [np.concatenate(column) for column in zip(*self._waiting, strict=True)],
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
        """Of what all processes that train together must have alike."""
        state = {name: value for name, value in self.state_dict().items() if name not in OWN}
        return hashlib.sha256(as_json(state).encode()).hexdigest()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where ``state_dict`` was taken; ConfigError if that was with other levels or another strategy."""
        mine = dict(zip(self.stages, self.levels.counts.tolist(), strict=True))
        theirs = dict(zip(state["stages"], state["level_counts"], strict=True))
        if mine != theirs:
            raise ConfigError(
                f"the saved curriculum has levels {theirs}, this dataset {mine}; go on with the same dataset"
            )
        if state.get("strategy") is None:
            raise ConfigError("the curriculum was saved by an earlier version; go on with that one, or begin anew")
        if state["strategy"] != self.config.chosen:
            raise ConfigError(f"the saved run drew by {state['strategy']!r}", "--curriculum", self.config.chosen)
        self.updates, self._lag = state["updates"], state["lag"]
        self._playing, self._began = np.array(state["playing"], np.int64), np.array(state["began"], np.int64)
        if self._playing.size and not 0 <= self._playing.min() <= self._playing.max() < len(self.levels):
            raise ConfigError("the saved curriculum plays levels that do not exist: the file was changed")
        self._drawn_at = np.array(state["drawn_at"], np.int64)
        waiting = tuple(unpacked(column) for column in state["waiting"])
        self._waiting = [waiting] if waiting else []
        self._settled = len(self._waiting)
        self._episodes = np.array(state["episodes"], np.int64)
        for number, (wins, returns) in enumerate(zip(state["windows"], state["returns"], strict=True)):
            self._successes.fill(number, np.array(wins))
            self._returns.fill(number, unpacked(returns))
        self._played, self._won = unpacked(state["played"]), unpacked(state["won"])
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


def _short(fingerprints: Sequence[str]) -> np.ndarray:
    """uint64[L]: the first 64 bits of each."""
    return np.array([int(one[:16], 16) for one in fingerprints], np.uint64)
