"""Cost of the curriculum: time and memory of every strategy on artificial episodes, relative to an update of training.

    python benchmarks/curriculum.py                    # all strategies, 10 to 100,000 levels: about a minute
    python benchmarks/curriculum.py --levels 1000 --updates 30

How to read it: docs/curriculum.md.

Episodes are artificial, because the cost of the curriculum itself is measured: all calls of training, and saving.  Only
start states need a simulator, with random play on the starter levels.  Times are processor times, which other programs do
not change.
"""

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from nppsim import errors
from nppsim.batch import BatchSimulator
from nppsim.decision import EPISODE_DTYPE
from nppsim.gym.env import STARTER_LEVELS
from nppsim.io.files import table
from nppsim.levels.level_set import LevelSet
from nppsim.measure.intervals import Z95, Estimate, IntervalError, Sample, bootstrap
from nppsim.physics.outcomes import TIMEOUT, WON
from nppsim.settings import Parser
from rl.config.curriculum import CURRICULA, CurriculumConfig
from rl.curriculum import STRATEGIES, CurriculumManager, Levels, make_sampler
from rl.curriculum.learning_progress import DETAILED, LearningProgress
from rl.curriculum.strategy import Strategy
from rl.policy.checkpoint import from_bytes, to_bytes

ENVIRONMENTS = 512  # as many as train by default
CATEGORIES = ("simplest", "simpler", "simple", "medium", "complex", "exploration", "mine_heavy")
MOST_SHARE = 0.01  # of the time of training
MOST_LOSS = 0.005  # of the speed of training, over the run or by a resume; other programs move it by a few thousandths
MOST_BYTES = 1024  # by which containers may grow, beside a twentieth
WARM_UP = 10  # a tenth of the updates, while caches fill, has no part in the slope
STEADY_UPDATES = 100  # over which speed has to stay the same to count as constant
START_UPDATES = 16  # of random play with start states, of which the first half only finds runs
HEAD = 100  # approximate bytes of an array or a container without its entries
SLOT = {list: 8, tuple: 8, deque: 8, set: 33, dict: 45}  # approximate bytes per entry in CPython
SAMPLE = 32  # entries measured, evenly spread; the others are extrapolated


class Size(NamedTuple):
    """Size of a container with its content.

    nbytes: exact for arrays, approximate otherwise.
    entries: numbers in arrays, and entries of Python containers at all depths.
    """

    nbytes: int
    entries: int

    @staticmethod
    def sum(sizes: Iterable["Size"]) -> "Size":
        """Sum of sizes."""
        all_sizes = [*sizes]
        return Size(sum(one.nbytes for one in all_sizes), sum(one.entries for one in all_sizes))


def sizes_of(*owners: object) -> dict[str, Size]:
    """Sizes by "<class>.<attribute>" of arrays, containers, and objects of this package that have some.

    Shared objects are counted once; simulators, configurations and plain numbers are not counted.
    """
    seen, found = {id(owner) for owner in owners}, {}
    for owner in owners:
        for name, value in vars(owner).items():
            if id(value) not in seen and _holds(value):
                seen |= {id(value), *(map(id, vars(value).values()) if _is_ours(value) else ())}
                found[f"{type(owner).__name__}.{name}"] = _size(value)
    return found


def _holds(value: object) -> bool:
    plain = isinstance(value, (np.ndarray, *SLOT))
    return plain or (_is_ours(value) and any(map(_holds, vars(value).values())))


def _is_ours(value: object) -> bool:
    return type(value).__module__.startswith("rl.curriculum.") and hasattr(value, "__dict__")


def _size(value: Any) -> Size:
    if isinstance(value, np.ndarray):
        return Size(HEAD + value.nbytes, value.size)
    if isinstance(value, tuple(SLOT)):
        return _of_entries(value)
    if _is_ours(value):
        return Size.sum(map(_size, vars(value).values()))
    return Size(sys.getsizeof(value), 0)


def _of_entries(container: Any) -> Size:
    count, step = len(container), len(container) // SAMPLE + 1
    if isinstance(container, dict):
        looked = [Size.sum(map(_size, pair)) for pair in islice(container.items(), 0, None, step)]
    else:
        looked = [_size(one) for one in islice(container, 0, None, step)]
    inside, scale = Size.sum(looked), count / max(1, len(looked))
    slot = next(slot for kind, slot in SLOT.items() if isinstance(container, kind))
    return Size(HEAD + count * slot + round(inside.nbytes * scale), count + round(inside.entries * scale))


def sizes_of_curriculum(manager: CurriculumManager) -> dict[str, Size]:
    """Sizes of all containers of a manager, its strategy and its start states."""
    return sizes_of(manager, manager.strategy, *([manager.starts] if manager.starts else []))


@dataclass(frozen=True, eq=False)
class Costs:
    """Of one strategy with one number of levels.

    episode_us: of what is done in each step, microseconds per episode.
    update_ms: of ``update``, milliseconds, mean over the updates.
    metrics_ms, state_ms: of statistics and of a checkpoint's state.
    each_us: float64[updates], all that the curriculum took, microseconds per episode.
    resumed_at: update before which there was a resume.
    scans: recalculations of the distribution per 1,000 episodes.
    before, after: of each container, after the first third and at the end.
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
    before: dict[str, Size]
    after: dict[str, Size]

    @property
    def totals(self) -> tuple[Size, Size]:
        """Of all containers together, after the first third and at the end."""
        return Size.sum(self.before.values()), Size.sum(self.after.values())

    @property
    def grown(self) -> list[str]:
        """Containers that have grown since, most of all first; none where all together have by no more than rounding up."""
        before, after = self.totals
        if after.nbytes <= 1.05 * before.nbytes + MOST_BYTES:
            return []
        more = {name: size.nbytes - self.before.get(name, Size(0, 0)).nbytes for name, size in self.after.items()}
        return sorted((name for name in more if more[name] > 0), key=lambda name: -more[name])

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
        return bootstrap(
            lambda a, b: np.median(a, axis=1) - np.median(b, axis=1),
            speed[self.resumed_at :],
            speed[self.resumed_at - after : self.resumed_at],
        )


def slope(values: Sample) -> Estimate:
    """Theil-Sen slope of a series, per index step; robust to up to 29 % outliers.

    The interval assumes that the noise of the values is independent.  Raises IntervalError for fewer than two values.
    Sources: Theil 1950; Sen 1968 for the interval, from the variance of Kendall's tau.
    """
    series = np.asarray(values, float)
    if series.ndim != 1 or len(series) < 2:
        raise IntervalError(f"a series of shape {series.shape} has no slope; give at least two values")
    n = len(series)
    first, second = np.triu_indices(n, 1)
    slopes = np.sort((series[second] - series[first]) / (second - first))
    away = Z95 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18) / 2
    low, high = math.floor(len(slopes) / 2 - away) - 1, math.ceil(len(slopes) / 2 + away)
    if low < 0 or high >= len(slopes):
        return Estimate(float(np.median(slopes)), None, None)
    return Estimate(float(np.median(slopes)), float(slopes[low]), float(slopes[high]))


class OneStepEpisodes:
    """Stand-in for the simulator with artificial levels: every decision ends an episode in each environment."""

    def __init__(self, count: int):
        self.num_envs, self.finished = ENVIRONMENTS, np.empty(0, np.int64)
        self.level, self.next_level = np.zeros(ENVIRONMENTS, np.int32), np.zeros(ENVIRONMENTS, np.int32)
        self.episode = np.zeros(ENVIRONMENTS, EPISODE_DTYPE)
        self.bank = SimpleNamespace(levels=[SimpleNamespace(fingerprint=f"{number:016x}") for number in range(count)])

    def reset(self, levels: np.ndarray) -> None:
        self.level[:] = levels

    def step(self, won: np.ndarray, returns: np.ndarray) -> None:
        """The episodes of the first environments, as many as there are outcomes, end; those on ``next_level`` begin."""
        self.finished = ended = np.arange(len(won))
        self.episode["level"][ended], self.episode["ret"][ended] = self.level[ended], returns
        self.episode["outcome"][ended] = np.where(won, WON, TIMEOUT)
        self.level[ended] = self.next_level[ended]


def made(strategy: type[Strategy], config: CurriculumConfig, count: int, seed: int = 0) -> CurriculumManager:
    """A manager of so many made-up levels."""
    names = [CATEGORIES[i % len(CATEGORIES)] for i in range(count)]
    levels, rng = Levels.of(names, np.arange(count)), np.random.default_rng(seed)
    return CurriculumManager(levels, strategy(levels, config, rng), config, rng)


def begun(manager: CurriculumManager) -> Any:
    """OneStepEpisodes, in place of a simulator, in which the manager has begun episodes."""
    sim: Any = OneStepEpisodes(len(manager.levels))
    manager.start(sim)
    return sim


def play(manager: CurriculumManager, sim: Any, rng: np.random.Generator, episodes: int) -> float:
    """An update's worth of one-step episodes, as many at a time as there are environments; seconds of that.

    sim: of ``begun``.
    """
    chance, actions = rng.random(len(manager.levels)), np.zeros(ENVIRONMENTS, np.int64)
    seconds = 0.0
    for done in range(0, episodes, ENVIRONMENTS):
        luck = rng.random(min(ENVIRONMENTS, episodes - done))
        begin = time.thread_time()
        manager.watch(sim, actions)
        manager.counted_levels(sim)
        seconds += time.thread_time() - begin
        sim.step(luck < chance[sim.level[: len(luck)]], luck)
        begin = time.thread_time()
        manager.next_episodes(sim)
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
    sim, scans = begun(manager), 0
    original = manager.strategy.weigh

    def counted(weights: np.ndarray) -> None:
        nonlocal scans
        scans += 1
        original(weights)

    each, learn, metrics, state, sizes = [], [], [], [], []
    third, resumed_at = max(1, updates // 3), updates - max(1, updates // 3)
    for number in range(updates):
        if number == resumed_at:
            stored = to_bytes(manager.state_dict(), "curriculum")
            manager = made(strategy, config, count, seed=9)
            manager.load_state_dict(from_bytes(stored))
        original = type(manager.strategy).weigh.__get__(manager.strategy)
        manager.strategy.weigh = counted  # type: ignore[method-assign]
        each.append(play(manager, sim, rng, episodes))
        decided = manager.draw(episodes).astype(np.int64) if manager.wants_advantages else None
        advantages = rng.normal(size=episodes).astype(np.float32) if manager.wants_advantages else None
        metrics.append(seconds_of(manager.metrics))
        learn.append(seconds_of(lambda: manager.update(sim, decided, advantages)))  # noqa: B023
        del manager.strategy.weigh
        if number % third == 0:
            state.append(seconds_of(lambda: to_bytes(manager.state_dict(), "curriculum")))  # noqa: B023
        sizes.append(sizes_of_curriculum(manager))
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
        before=sizes[third - 1],
        after=sizes[-1],
    )


def statistics_costs(count: int) -> dict[str, float]:
    """Milliseconds of each group of statistics of learning progress, alone."""
    config = CurriculumConfig(strategy="learning_progress", active_levels=count)
    manager, rng = made(LearningProgress, config, count), np.random.default_rng(0)
    sim = begun(manager)
    for _ in range(3):
        play(manager, sim, rng, 1000)
        manager.update(sim)
    strategy = manager.strategy
    assert isinstance(strategy, LearningProgress)
    return {
        group.__name__.strip("_"): 1e3 * min(seconds_of(lambda: group(strategy)) for _ in range(3))  # noqa: B023
        for group in (LearningProgress.metrics, *DETAILED)
    }


class RandomPlay:
    """Random actions on the starter levels, uniform draws, with or without start states.

    simulated_s, curriculum_s: seconds of ``steps``, by what they went into.
    """

    def __init__(self, *, start_states: bool):
        levels = list(LevelSet.open(STARTER_LEVELS))
        self.sim = BatchSimulator(levels, ENVIRONMENTS, threads=1)
        self.manager = make_sampler(["starter"] * len(levels), CurriculumConfig(start_states=start_states), 0)
        self.manager.start(self.sim)
        self.rng = np.random.default_rng(0)
        self.simulated_s = self.curriculum_s = 0.0

    def steps(self, count: int) -> None:
        """So many decisions of each environment, and an update."""
        for _ in range(count):
            actions = self.rng.integers(0, 6, ENVIRONMENTS)
            self.curriculum_s += seconds_of(lambda: self.manager.watch(self.sim, actions))  # noqa: B023
            self.simulated_s += seconds_of(lambda: self.sim.step(actions))  # noqa: B023
            if self.sim.finished.size:
                self.curriculum_s += seconds_of(lambda: self.manager.next_episodes(self.sim))
        self.curriculum_s += seconds_of(lambda: self.manager.update(self.sim))


# ---------------------------------------------------------------------------------------------------------------------
# The investigation, phase by phase

STEADINESS = "1 Speed over the run"


@dataclass(frozen=True)
class Section:
    """A phase: its title, a table, and whether what it looks for was found to be well; None: for information.

    blamed: what was found not to be well.
    """

    title: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    verdict: str
    good: bool | None
    blamed: Sequence[Costs] = ()


@dataclass(frozen=True)
class Benchmark:
    """Settings of the benchmark.

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
        yield self._decay(costs)
        yield self._recalculation(costs)
        yield self._resume(costs)
        yield self._statistics(costs)
        yield self._memory(costs)
        yield self._side_by_side(costs)
        yield self._pools()
        yield self._start_states()

    def _decay(self, costs: list[Costs]) -> Section:
        rows = [
            (c.strategy, f"{c.levels:,}", f"{c.episode_us:.2f}", _points(c.change(self.training_us))) for c in costs
        ]
        bad = [c for c in costs if _is_lost(c.change(self.training_us))]
        verdict = f"steady over {self.updates} updates: no loss above {MOST_LOSS:.1%}"
        header = ("strategy", "levels", "µs per episode", "change of steps/s over the run [95 %]")
        return Section(STEADINESS, header, rows, f"falls: {_names(bad)}" if bad else verdict, not bad, bad)

    def _recalculation(self, costs: list[Costs]) -> Section:
        rows = [
            (
                c.strategy,
                f"{c.levels:,}",
                f"{c.scans:.2f}",
                f"{c.update_ms:.2f}",
                f"{c.update_ms * self.updates / 1e3:.2f}",
            )
            for c in costs
        ]
        limit = 2 * 1000 / self.episodes
        bad = [c for c in costs if c.scans > limit]
        verdict = "once per update, whatever ends in it" if not bad else f"too often: {_names(bad)}"
        header = ("strategy", "levels", "recalculations per 1,000 episodes", "ms each", "s in all")
        return Section("2 Recalculation of scores; 3 a tree in place of scans", header, rows, verdict, not bad, bad)

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
        return Section("4 Speed before and after a resume", header, rows, verdict, not bad, bad)

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
        header = ("statistic", "levels", "ms per update")
        return Section("5 Statistics, one by one", header, rows, verdict, not bad, bad)

    def _memory(self, costs: list[Costs]) -> Section:
        rows = []
        for c in costs:
            before, after = c.totals
            numbers = (c.levels, before.nbytes, after.nbytes, before.entries, after.entries)
            rows.append((c.strategy, *(f"{x:,}" for x in numbers)))
        bad = [c for c in costs if c.grown]
        grown = dict.fromkeys(name for c in bad for name in c.grown)
        verdict = "bounded" if not bad else f"grows: {', '.join(grown)} ({_names(bad)})"
        header = ("strategy", "levels", "bytes after a third", "at the end", "entries after a third", "at the end")
        return Section("6 Containers", header, rows, verdict, not bad, bad)

    def _side_by_side(self, costs: list[Costs]) -> Section:
        rows = [(c.strategy, f"{c.levels:,}", f"{c.episode_us:.2f}", f"{c.share(self.training_us):.2%}") for c in costs]
        bad = [c for c in costs if c.share(self.training_us) > MOST_SHARE]
        verdict = "at most 1 % of the time of training, at one-step episodes"
        verdict = verdict if not bad else f"more than 1 %: {_names(bad)}"
        header = ("strategy", "levels", "µs per episode", f"share of {self.training_us:g} µs")
        return Section("7 Strategies side by side", header, rows, verdict, not bad, bad)

    def _pools(self) -> Section:
        """A smaller pool, as a test of a hypothesis."""
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

    def _start_states(self) -> Section:
        """In turns, so that a machine that slows down does so for both."""
        updates, steps = min(START_UPDATES, self.updates), max(1, self.episodes // ENVIRONMENTS)
        plays = {"without": RandomPlay(start_states=False), "with": RandomPlay(start_states=True)}
        for number in range(updates):
            for play in plays.values():
                if number == updates // 2:
                    play.simulated_s = play.curriculum_s = 0.0
                play.steps(steps)
        decisions = (updates - updates // 2) * steps * ENVIRONMENTS
        rows, took = [], {}
        for name, play in plays.items():
            starts = play.manager.starts
            took[name] = 1e6 * play.curriculum_s / decisions
            share = play.curriculum_s / (play.simulated_s + play.curriculum_s)
            simulated = f"{1e6 * play.simulated_s / decisions:.2f}"
            rows.append((name, starts.episodes if starts else 0, simulated, f"{took[name]:.2f}", f"{share:.1%}"))
        more = took["with"] - took["without"]
        of_training = f"{more / self.training_us:.2%} of {self.training_us:g} µs"
        verdict = f"for information: {more:.2f} µs more per decision, {of_training}"
        header = ("start states", "episodes from there", "µs per decision: simulator", "curriculum", "share of both")
        return Section("9 Start states, at random play", header, rows, verdict, None)


def _is_lost(change: Estimate) -> bool:
    """Return True if speed has fallen by more than the limit, beyond its interval."""
    return change.high is not None and change.high < -MOST_LOSS


def _points(change: Estimate) -> str:
    ends = "" if change.low is None or change.high is None else f" [{change.low:+.2%}, {change.high:+.2%}]"
    return f"{change.value:+.2%}{ends}"


def _names(costs: list[Costs]) -> str:
    return ", ".join(f"{c.strategy} with {c.levels:,} levels" for c in costs)


# Hypothesis, section that tests it, test, what that shows if the hypothesis holds, what to do then.
HYPOTHESES = (
    (
        "scores are recalculated after each episode",
        "2 Re",
        "recalculations per 1,000 episodes",
        "1,000 or more, not one per update",
        "update less often",
    ),
    ("statistics are expensive", "5 ", "each alone", "more than 1 % of an update", "--curriculum-performance-mode"),
    ("something leaks", "6 ", "bytes over the run", "more at the end than after a third", "bound what grows"),
    (
        "speed depends on how long the process has run",
        "4 ",
        "before and after a resume",
        "another speed after it",
        "look for what a resume empties",
    ),
    (
        "the curriculum is too slow for this many levels",
        "7 ",
        "share of the time",
        "more than 1 %",
        "fewer levels",
    ),
)


def outcome_table(sections: list[Section]) -> list[tuple[str, str, str, str, str]]:
    """(hypothesis, test, what that shows if it holds, whether it does, what to do next) of each suspicion."""
    rows = []
    for hypothesis, mark, test, expected, remedy in HYPOTHESES:
        good = _section(sections, mark).good
        rows.append((hypothesis, test, expected, "no" if good else "yes", "nothing" if good else remedy))
    return rows


def criteria(sections: list[Section], updates: int, training_us: float) -> list[tuple[str, str]]:
    """(criterion, verdict): is speed constant with learning progress, and is all known that mending a fault takes?"""
    constant = f"constant steps/s over {STEADY_UPDATES}+ updates with learning progress"
    names = (constant, "cause known", "impact quantified", "fix known")
    bad = [section for section in sections if section.good is False]
    confirmed = [(row[0], row[-1]) for row in outcome_table(sections) if row[-2] == "yes"]
    blamed = {(c.strategy, c.levels): c for section in bad for c in section.blamed}.values()
    if not bad:
        cause = impact = fix = "met: nothing is at fault"
    else:
        titles = ", ".join(section.title for section in bad)
        hypotheses, remedies = (", ".join(one[i] for one in confirmed) for i in (0, 1))
        cause = f"met: {hypotheses} ({titles})" if confirmed else f"not met: {titles}, and no suspicion is confirmed"
        impact = "met: " + ", ".join(f"{_names([c])} takes {c.share(training_us):.2%} of the time" for c in blamed)
        fix = f"met: {remedies}" if confirmed else "not met: look into a profile of the run (docs/curriculum.md)"
    return [*zip(names, (_steadiness(sections, updates), cause, impact, fix), strict=True)]


def _steadiness(sections: list[Section], updates: int) -> str:
    if updates < STEADY_UPDATES:
        return f"not evaluated: fewer than {STEADY_UPDATES} updates"
    bad = [c for c in _section(sections, STEADINESS).blamed if c.strategy == "learning_progress"]
    return f"not met: falls, {_names(bad)}" if bad else "met"


def _section(sections: list[Section], mark: str) -> Section:
    return next(one for one in sections if one.title.startswith(mark))


def main(argv: list[str]) -> int:
    """Returns the exit status: 0 if the curriculum costs what it should, 1 if it does not, 2 for bad input."""

    def job() -> int:
        parser = Parser(prog="curriculum.py", description=(__doc__ or "").partition("\n")[0])
        default = Benchmark()
        parser.add_argument(
            "--levels", type=int, nargs="+", default=default.counts, metavar="N", help="numbers of levels"
        )
        parser.add_argument("--updates", type=int, default=default.updates, metavar="N", help="updates per measurement")
        parser.add_argument("--episodes", type=int, default=default.episodes, metavar="N", help="episodes per update")
        parser.add_argument(
            "--training-us",
            type=float,
            default=default.training_us,
            metavar="X",
            help="microseconds that a decision of your training takes (1,000,000 / its decisions per second)",
        )
        parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
        given = parser.parse_args(argv)
        smallest = min(*given.levels, given.updates // 6, given.episodes // 64)
        if smallest < 1 or given.training_us <= 0:
            raise errors.ConfigError("give at least 1 level, 6 updates, 64 episodes and a positive time")
        benchmark = Benchmark(tuple(given.levels), given.updates, given.episodes, given.training_us)
        sections = []
        for section in benchmark.sections():
            sections.append(section)
            print(f"\n{section.title}\n{table(section.header, section.rows)}\n-> {section.verdict}", flush=True)
        header = ("suspicion", "test", "expected, if so", "confirmed", "next step")
        print("\nOutcome\n" + table(header, outcome_table(sections), "lllll"))
        met = criteria(sections, benchmark.updates, benchmark.training_us)
        print("\nCriteria\n" + table(("criterion", "verdict"), met, "ll"))
        bad = [section.title for section in sections if section.good is False]
        names = ", ".join(bad)
        print(f"\nto blame: {names}" if bad else "\nthe curriculum is not what slows training down")
        return int(bool(bad))

    return errors.run(job, debug="--debug" in argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
