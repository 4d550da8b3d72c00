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

from nppsim.measure.intervals import Estimate, difference_of_medians, slope
from rl.curriculum import STRATEGIES, CurriculumManager, Levels, Outcomes
from rl.curriculum.learning_progress import DETAILED, SUMMARY, LearningProgress
from rl.curriculum.statistics import as_json
from rl.curriculum.strategy import Strategy
from rl.curriculum.uniform import Uniform
from rl.curriculum_config import CURRICULA, CurriculumConfig

ENVIRONMENTS = 64
CATEGORIES = ("simplest", "simpler", "simple", "medium", "complex", "exploration", "mine_heavy")
MOST_SHARE = 0.01  # of the time of training
MOST_LOSS = 0.005  # of the speed of training, over the run or by a resume; other programs move it by a few thousandths
MOST_BYTES = 1024  # by which containers may grow, beside a twentieth
WARM_UP = 10  # a tenth of the updates, while caches fill, has no part in the slope


class NaiveRescan(Strategy):
    """Planted: the whole distribution anew after each draw and each episode, level by level, as in the slow original."""

    def draw(self, n: int) -> np.ndarray:
        return np.concatenate([self._draw_one() for _ in range(n)])

    def _draw_one(self) -> np.ndarray:
        self.weigh(np.array([1.0 + 0.0 * level for level in range(len(self.levels))]))
        return super().draw(1)

    def update(self, outcomes: Outcomes) -> None:
        """Nothing: all is done, again and again, when levels are drawn."""


class Hoarder(Strategy):
    """Planted: keeps all episodes, and looks through them once for each environment."""

    kept = ("past",)

    def __init__(self, levels: Levels, config: CurriculumConfig, rng: np.random.Generator):
        super().__init__(levels, config, rng)
        self.past: list[int] = []

    def update(self, outcomes: Outcomes) -> None:
        self.past += outcomes.levels.tolist()
        for _ in range(ENVIRONMENTS):
            sum(self.past)


@dataclass(frozen=True, eq=False)
class Costs:
    """Of one strategy with one number of levels.

    episode_us: of a draw and a record, microseconds per episode.
    update_ms: of ``learn``, milliseconds, mean over the updates.
    metrics_ms, state_ms: of statistics and of a checkpoint's state.
    each_us: float64[updates], all that the curriculum took, microseconds per episode.
    resumed_at: update before which there was a resume.
    scans: recalculations of the distribution per 1,000 episodes.
    bytes_before, bytes_after: of all containers, after the first third and at the end.
    """

    strategy: str
    levels: int
    episode_us: float
    update_ms: float
    metrics_ms: float
    state_ms: float
    each_us: np.ndarray
    resumed_at: int
    scans: float
    bytes_before: int
    bytes_after: int

    def share(self, training_us: float) -> float:
        """Of the time of training, where an episode is one decision that takes so long; draws and updates together."""
        each = float(self.each_us.mean())
        return each / (each + training_us)

    def speed(self, training_us: float) -> np.ndarray:
        """float64[updates]: steps/s of training at each update, over those of a training without the curriculum."""
        return training_us / (training_us + self.each_us)

    def change(self, training_us: float) -> Estimate:
        """Of that speed from the first to the last update, by its slope."""
        steady = self.speed(training_us)[len(self.each_us) // WARM_UP :]
        per_update = slope(steady)
        ends = [end and (len(steady) - 1) * end for end in (per_update.low, per_update.high)]
        return Estimate((len(steady) - 1) * per_update.value, *ends)

    def change_by_resume(self, training_us: float) -> Estimate:
        """Of that speed, from as many updates before the resume to those after it."""
        speed, after = self.speed(training_us), len(self.each_us) - self.resumed_at
        return difference_of_medians(speed[self.resumed_at :], speed[self.resumed_at - after : self.resumed_at])


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
            stored = as_json(manager.state_dict())
            manager = made(strategy, config, count, seed=9)
            manager.load_state_dict(json.loads(stored))
        original = type(manager.strategy).weigh.__get__(manager.strategy)
        manager.strategy.weigh = counted  # type: ignore[method-assign]
        each.append(play(manager, rng, episodes))
        decided = manager.draw(episodes).astype(np.int64) if manager.wants_advantages else None
        advantages = rng.normal(size=episodes).astype(np.float32) if manager.wants_advantages else None
        metrics.append(seconds_of(manager.metrics))
        learn.append(seconds_of(lambda: manager.learn(decided=decided, advantages=advantages)))  # noqa: B023
        del manager.strategy.weigh
        if number % third == 0:
            state.append(seconds_of(lambda: as_json(manager.state_dict())))  # noqa: B023
        sizes.append(sum(manager.container_sizes().values()))
    return Costs(
        name,
        count,
        episode_us=float(1e6 * np.mean(each) / episodes),
        update_ms=float(1e3 * np.mean(learn)),
        metrics_ms=float(1e3 * np.mean(metrics)),
        state_ms=float(1e3 * np.median(state)),
        each_us=1e6 * np.sum([each, learn, metrics], axis=0) / episodes,
        resumed_at=resumed_at,
        scans=1000 * scans / (updates * episodes),
        bytes_before=sizes[third - 1],
        bytes_after=sizes[-1],
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
        for group in (SUMMARY, *DETAILED)
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
        rows = [
            (c.strategy, f"{c.levels:,}", f"{c.episode_us:.2f}", _points(c.change(self.training_us))) for c in costs
        ]
        bad = [c for c in costs if _is_lost(c.change(self.training_us))]
        verdict = f"steady over {self.updates} updates: no loss above {MOST_LOSS:.1%}"
        header = ("strategy", "levels", "µs per episode", "change of steps/s over the run [95 %]")
        return Section("1 Speed over the run", header, rows, f"falls: {_names(bad)}" if bad else verdict, not bad)

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
        changes = [(c, c.change_by_resume(self.training_us)) for c in costs]
        rows = [(c.strategy, f"{c.levels:,}", _points(change), f"{c.state_ms:.1f}") for c, change in changes]
        bad = [
            c
            for c, change in changes
            if _is_lost(change) or (change.low is not None and change.low > MOST_LOSS)  # faster: something had piled up
        ]
        verdict = f"differs: {_names(bad)}" if bad else "a resume neither slows down nor speeds up: nothing piles up"
        header = ("strategy", "levels", "change of steps/s [95 %]", "ms to save")
        return Section("4 Speed before and after a resume", header, rows, verdict, not bad)

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
        bad = [c for c in costs if _grows(c)]
        verdict = "bounded" if not bad else f"grows: {_names(bad)}"
        return Section(
            "6 Containers", ("strategy", "levels", "bytes after a third", "bytes at the end"), rows, verdict, not bad
        )

    def _side_by_side(self, costs: list[Costs]) -> Section:
        rows = [(c.strategy, f"{c.levels:,}", f"{c.episode_us:.2f}", f"{c.share(self.training_us):.2%}") for c in costs]
        bad = [c for c in costs if c.share(self.training_us) > MOST_SHARE]
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
        hoarder = measure("planted: hoarding", Hoarder, CurriculumConfig(), 100, 24, 2 * ENVIRONMENTS)
        rows = [
            (
                c.strategy,
                f"{c.levels:,}",
                f"{c.scans:.0f}",
                f"{c.share(self.training_us):.1%}",
                _points(c.change(self.training_us)),
                f"{c.bytes_after / c.bytes_before - 1:+.0%}",
            )
            for c in (uniform, naive, hoarder)
        ]
        unnoticed = [
            fault
            for fault, noticed in (
                ("the planted scan", naive.scans >= 900 and naive.share(self.training_us) > MOST_SHARE),
                ("the planted hoard", _is_lost(hoarder.change(self.training_us)) and _grows(hoarder)),
            )
            if not noticed
        ]
        verdict = (
            f"not noticed: {', '.join(unnoticed)}; trust nothing above"
            if unnoticed
            else "both planted faults are convicted"
        )
        header = ("strategy", "levels", "recalculations per 1,000", "share", "change of steps/s", "containers")
        return Section("9 Planted faults", header, rows, verdict, not unnoticed)


def _is_lost(change: Estimate) -> bool:
    """Whether speed has surely fallen by more than is allowed."""
    return change.high is not None and change.high < -MOST_LOSS


def _points(change: Estimate) -> str:
    ends = "" if change.low is None or change.high is None else f" [{change.low:+.2%}, {change.high:+.2%}]"
    return f"{change.value:+.2%}{ends}"


def _grows(costs: Costs) -> bool:
    """Whether containers have grown after the first third, by more than rounding up."""
    return costs.bytes_after > 1.05 * costs.bytes_before + MOST_BYTES


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
