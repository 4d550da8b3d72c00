"""What the curriculum costs: every strategy on made-up episodes, against what an update of training costs.

    python scripts/benchmark_curriculum.py

Made-up episodes, as what is measured is the bookkeeping: draws, records, scores, statistics, saving.  A planted strategy that
scans all levels after each episode has to be convicted, or the measurement proves nothing.  Times are of the processor, so
that other programs do not count; nothing here waits for anything.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rl.curriculum import STRATEGIES, CurriculumManager, Levels, Outcomes
from rl.curriculum.learning_progress import CHEAP, DETAILED, LearningProgress
from rl.curriculum.strategy import Strategy
from rl.curriculum.uniform import Uniform
from rl.curriculum_config import CURRICULA, CurriculumConfig

ENVIRONMENTS = 64
CATEGORIES = ("simplest", "simpler", "simple", "medium", "complex", "exploration", "mine_heavy")
MOST_SHARE = 0.01  # of the time of training
MOST_RISE = 1.3  # of an episode's costs over the updates, last third against first
MOST_GROWTH = 12.0  # of an episode's costs from the fewest levels to the most; binary search and caches cost a little
RESUME_SHIFT = 0.3  # by which speed after a resume may differ, as these are few and short measurements


class NaiveRescan(Strategy):
    """Planted: the whole distribution anew after each draw and each episode, level by level, as in the slow original."""

    def draw(self, n: int) -> np.ndarray:
        return np.concatenate([self._draw_one() for _ in range(n)])

    def _draw_one(self) -> np.ndarray:
        self.weigh(np.array([1.0 + 0.0 * level for level in range(len(self.levels))]))
        return super().draw(1)

    def update(self, outcomes: Outcomes) -> None:
        """Nothing: all is done, again and again, when levels are drawn."""


@dataclass(frozen=True)
class Costs:
    """Of one strategy with one number of levels.

    episode_us: of a draw and a record, microseconds per episode.
    update_ms: of ``learn``, milliseconds.
    metrics_ms, state_ms: of statistics and of a checkpoint's state.
    rise: an episode's costs in the last third of the updates, over those in the first.
    scans: recalculations of the distribution per 1,000 episodes.
    bytes_before, bytes_after: of all containers, after the first third and at the end.
    resume: an episode's costs after a resume, over those before.
    """

    strategy: str
    levels: int
    episode_us: float
    update_ms: float
    metrics_ms: float
    state_ms: float
    rise: float
    scans: float
    bytes_before: int
    bytes_after: int
    resume: float

    def share(self, episode_us: float, episodes: int) -> float:
        """Of the time of training, where an episode takes so long and so many end in an update; draws and update together."""
        each = self.episode_us + 1000 * (self.update_ms + self.metrics_ms) / episodes
        return each / (each + episode_us)


def made(strategy: type[Strategy], config: CurriculumConfig, count: int, seed: int = 0) -> CurriculumManager:
    """A manager of so many made-up levels."""
    names = [CATEGORIES[i % len(CATEGORIES)] for i in range(count)]
    levels, rng = Levels.of(names, np.arange(count)), np.random.default_rng(seed)
    return CurriculumManager(levels, strategy(levels, config, rng), config, rng)


def play(manager: CurriculumManager, rng: np.random.Generator, episodes: int) -> float:
    """An update's worth of one-step episodes, as many at a time as there are environments; seconds of that."""
    chance = rng.random(len(manager.levels))
    seconds = 0.0
    for _ in range(-(-episodes // ENVIRONMENTS)):
        luck = rng.random(ENVIRONMENTS)
        begin = time.thread_time()
        levels = manager.draw(ENVIRONMENTS)
        manager.record(levels, luck < chance[levels], luck)
        seconds += time.thread_time() - begin
    return seconds


def seconds_of(work: Callable[[], object]) -> float:
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def measure(
    name: str, strategy: type[Strategy], config: CurriculumConfig, count: int, updates: int, episodes: int
) -> Costs:
    """Play so many updates of so many episodes each, with a resume before the last third."""
    manager, rng = made(strategy, config, count), np.random.default_rng(1)
    scans = 0
    original = manager.strategy.weigh

    def counted(weights: np.ndarray) -> None:
        nonlocal scans
        scans += 1
        original(weights)

    each, learn, metrics, state, sizes = [], [], [], [], []
    third, resumed_at = max(1, updates // 3), updates - max(1, updates // 3)
    for number in range(updates):
        if number == resumed_at:
            stored = json.dumps(manager.state_dict())
            manager = made(strategy, config, count, seed=9)
            manager.load_state_dict(json.loads(stored))
        original = type(manager.strategy).weigh.__get__(manager.strategy)
        manager.strategy.weigh = counted  # type: ignore[method-assign]
        each.append(play(manager, rng, episodes) / episodes)
        decided = manager.draw(episodes).astype(np.int64) if manager.wants_advantages else None
        advantages = rng.normal(size=episodes).astype(np.float32) if manager.wants_advantages else None
        metrics.append(seconds_of(manager.metrics))
        learn.append(seconds_of(lambda: manager.learn(decided=decided, advantages=advantages)))  # noqa: B023
        del manager.strategy.weigh
        if number % third == 0:
            state.append(seconds_of(lambda: json.dumps(manager.state_dict())))  # noqa: B023
        sizes.append(sum(manager.container_sizes().values()))
    median = np.median
    return Costs(
        name,
        count,
        float(1e6 * median(each)),
        float(1e3 * median(learn)),
        float(1e3 * median(metrics)),
        float(1e3 * median(state)),
        float(median(each[-third:]) / median(each[:third])),
        1000 * scans / (updates * episodes),
        sizes[third - 1],
        sizes[-1],
        float(median(each[resumed_at:]) / median(each[resumed_at - third : resumed_at])),
    )


def statistics_costs(count: int) -> dict[str, float]:
    """Milliseconds of each group of statistics of learning progress, alone."""
    config = CurriculumConfig(strategy="learning_progress", active_levels=count)
    manager, rng = made(LearningProgress, config, count), np.random.default_rng(0)
    for _ in range(3):
        play(manager, rng, 1000)
        manager.learn()
    strategy = manager.strategy
    assert isinstance(strategy, LearningProgress)
    return {
        group.__name__.strip("_"): 1e3 * min(seconds_of(lambda: group(strategy)) for _ in range(3))  # noqa: B023
        for group in (*CHEAP, *DETAILED)
    }


# ---------------------------------------------------------------------------------------------------------------------
# The investigation, phase by phase


@dataclass(frozen=True)
class Section:
    """A phase: its title, a table, and whether what it looks for was found to be well; None: for information."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    verdict: str
    good: bool | None


@dataclass(frozen=True)
class Benchmark:
    """What to measure.

    counts: numbers of levels.
    updates, episodes: per strategy.
    training_us: of a decision of training, microseconds; an
        episode of one step takes no less.
    """

    counts: tuple[int, ...] = (10, 1000, 100_000)
    updates: int = 100
    episodes: int = 16_384
    training_us: float = 100.0

    def sections(self) -> Iterator[Section]:
        """Each phase when it is done."""
        config = CurriculumConfig()
        strategies = {name: (STRATEGIES[name], replace(config, strategy=name)) for name in CURRICULA}
        costs = [
            measure(name, kind, its, count, self.updates, self.episodes)
            for name, (kind, its) in strategies.items()
            for count in self.counts
        ]
        naive = measure("planted: rescan", NaiveRescan, config, min(1000, max(self.counts)), 3, 2 * ENVIRONMENTS)
        yield self._decay(costs)
        yield self._recalculation(costs, naive)
        yield self._resume(costs)
        yield self._statistics(costs)
        yield self._memory(costs)
        yield self._side_by_side(costs)
        yield self._pools()
        yield self._planted(naive)

    def _decay(self, costs: list[Costs]) -> Section:
        rows = [(c.strategy, f"{c.levels:,}", f"{c.episode_us:.2f}", f"{c.rise:.2f}") for c in costs]
        # Shares of time, as a factor on a tenth of a microsecond says nothing.
        bad = [c for c in costs if c.rise > MOST_RISE and c.episode_us > MOST_SHARE * self.training_us / 2]
        verdict = f"an episode costs the same after {self.updates} updates" if not bad else f"decays: {_names(bad)}"
        return Section(
            "1 Speed over the run", ("strategy", "levels", "µs per episode", "last / first"), rows, verdict, not bad
        )

    def _recalculation(self, costs: list[Costs], naive: Costs) -> Section:
        rows = [
            (
                c.strategy,
                f"{c.levels:,}",
                f"{c.scans:.2f}",
                f"{c.update_ms:.2f}",
                f"{c.update_ms * self.updates / 1e3:.2f}",
            )
            for c in (*costs, naive)
        ]
        limit = 2 * 1000 / self.episodes
        bad = [c for c in costs if c.scans > limit]
        verdict = "once per update, whatever ends in it" if not bad else f"too often: {_names(bad)}"
        header = ("strategy", "levels", "recalculations per 1,000 episodes", "ms each", "s in all")
        return Section("2 Recalculation of scores; 3 a tree in place of scans", header, rows, verdict, not bad)

    def _resume(self, costs: list[Costs]) -> Section:
        rows = [(c.strategy, f"{c.levels:,}", f"{c.resume:.2f}", f"{c.state_ms:.1f}") for c in costs]
        bad = [
            c for c in costs if abs(c.resume - 1) > RESUME_SHIFT and c.episode_us > MOST_SHARE * self.training_us / 2
        ]
        verdict = (
            "a resume neither slows down nor speeds up: nothing piles up" if not bad else f"differs: {_names(bad)}"
        )
        return Section(
            "4 Speed before and after a resume",
            ("strategy", "levels", "after / before", "ms to save"),
            rows,
            verdict,
            not bad,
        )

    def _statistics(self, costs: list[Costs]) -> Section:
        each = {count: statistics_costs(count) for count in self.counts}
        rows: list[tuple[object, ...]] = [
            (f"learning_progress: {group}", f"{count:,}", f"{ms:.2f}")
            for count, found in each.items()
            for group, ms in found.items()
        ]
        rows += [(f"{c.strategy}: all", f"{c.levels:,}", f"{c.metrics_ms:.2f}") for c in costs]
        update_ms = self.training_us * self.episodes / 1e3
        bad = [c for c in costs if c.metrics_ms > MOST_SHARE * update_ms]
        verdict = (
            "once per update, below 1 % of it"
            if not bad
            else f"more than 1 %: {_names(bad)}; --curriculum-performance-mode"
        )
        return Section("5 Statistics, one by one", ("statistic", "levels", "ms per update"), rows, verdict, not bad)

    def _memory(self, costs: list[Costs]) -> Section:
        rows = [(c.strategy, f"{c.levels:,}", f"{c.bytes_before:,}", f"{c.bytes_after:,}") for c in costs]
        bad = [c for c in costs if c.bytes_after > 1.05 * c.bytes_before + 65_536]
        verdict = "bounded" if not bad else f"grows: {_names(bad)}"
        return Section(
            "6 Containers", ("strategy", "levels", "bytes after a third", "bytes at the end"), rows, verdict, not bad
        )

    def _side_by_side(self, costs: list[Costs]) -> Section:
        rows = [
            (c.strategy, f"{c.levels:,}", f"{c.episode_us:.2f}", f"{c.share(self.training_us, self.episodes):.2%}")
            for c in costs
        ]
        bad = [c for c in costs if c.share(self.training_us, self.episodes) > MOST_SHARE]
        verdict = "at most 1 % of the time of training, at one-step episodes"
        verdict = verdict if not bad else f"more than 1 %: {_names(bad)}"
        header = ("strategy", "levels", "µs per episode", f"share of {self.training_us:g} µs")
        return Section("7 Strategies side by side", header, rows, verdict, not bad)

    def _pools(self) -> Section:
        """S262: a smaller pool, as a test of a hypothesis."""
        count = max(self.counts)
        rows = []
        for size in (100, 256, 1000):
            config = CurriculumConfig(strategy="learning_progress", active_levels=size)
            c = measure("learning_progress", LearningProgress, config, count, 6, self.episodes)
            rows.append((f"{min(size, count):,} of {count:,}", f"{c.episode_us:.2f}", f"{c.update_ms:.2f}"))
        return Section(
            "8 Size of the pool",
            ("levels in the pool", "µs per episode", "ms per update"),
            rows,
            "for information: a smaller pool costs variety, and here gains next to nothing",
            None,
        )

    def _planted(self, naive: Costs) -> Section:
        uniform = measure("uniform", Uniform, CurriculumConfig(), naive.levels, 3, 2 * ENVIRONMENTS)
        rows = [
            (
                c.strategy,
                f"{c.levels:,}",
                f"{c.episode_us:.1f}",
                f"{c.scans:.0f}",
                f"{c.share(self.training_us, 4096):.1%}",
            )
            for c in (uniform, naive)
        ]
        convicted = naive.scans >= 900 and naive.share(self.training_us, 4096) > MOST_SHARE
        verdict = (
            "the planted scan is convicted" if convicted else "the planted scan was not noticed: trust nothing above"
        )
        header = ("strategy", "levels", "µs per episode", "recalculations per 1,000", "share")
        return Section("9 A planted fault", header, rows, verdict, convicted)


def _names(costs: list[Costs]) -> str:
    return ", ".join(f"{c.strategy} with {c.levels:,} levels" for c in costs)


HYPOTHESES = (
    ("scores are recalculated after each episode", "2 Re", "recalculations per 1,000 episodes", "update less often"),
    ("statistics are expensive", "5 ", "each alone", "--curriculum-performance-mode"),
    ("something leaks", "6 ", "bytes over the run", "bound what grows"),
    (
        "speed depends on how long the process has run",
        "4 ",
        "before and after a resume",
        "look for what a resume empties",
    ),
    ("the curriculum is too slow for this many levels", "7 ", "share of the time", "fewer levels"),
)


def outcome_table(sections: list[Section]) -> list[tuple[str, str, str, str]]:
    """(hypothesis, test, result, what to do next) of each suspicion."""
    rows = []
    for hypothesis, mark, test, remedy in HYPOTHESES:
        section = next(one for one in sections if one.title.startswith(mark))
        rows.append((hypothesis, test, "no" if section.good else "yes", "nothing" if section.good else remedy))
    return rows
