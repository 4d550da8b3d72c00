"""Cost of the curriculum: time and memory of every strategy on artificial episodes, relative to the time of training.

    python benchmarks/curriculum.py                    # all strategies, 10 to 100,000 levels: about a minute
    python benchmarks/curriculum.py --levels 1000 --updates 30

Each decision ends an episode, which is the highest load of a curriculum.  All calls that training makes are timed,
and saving.  Times are processor times, which other programs hardly change.  Only the part about start states needs a
simulator, with random play on the starter levels.  Exit status: 0; 1 if a limit of HYPOTHESES is exceeded; 2 for bad input.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from nppsim import errors
from nppsim.batch import BatchSimulator
from nppsim.decision import EPISODE_DTYPE
from nppsim.gym.env import STARTER_LEVELS
from nppsim.io.files import table
from nppsim.levels.level_set import LevelSet
from nppsim.measure.intervals import Estimate, bootstrap
from nppsim.physics.outcomes import TIMEOUT, WON
from nppsim.settings import Parser, Setting
from rl.config.curriculum import CURRICULA, CurriculumConfig
from rl.curriculum import STRATEGIES, CurriculumManager, Levels, make_sampler
from rl.curriculum.learning_progress import DETAILED, LearningProgress
from rl.curriculum.strategy import Strategy
from rl.policy.checkpoint import from_bytes, to_bytes

ENVIRONMENTS = 512  # as many as train by default
CATEGORIES = ("simplest", "simpler", "simple", "medium", "complex", "exploration", "mine_heavy")
MAX_SHARE = 0.01  # accepted share of the time of training
MAX_LOSS = 0.005  # accepted loss of training speed over the run or by a resume
MAX_GROWTH = 1.05, 1024  # accepted growth of all containers: factor, and additional bytes
START_UPDATES = 16  # updates with start states; the first half finds runs and is not timed
POOLS = (100, 256, 1000)  # sizes of the pool of learning progress to compare


class Size(NamedTuple):
    """Approximate bytes of a container with its content, and number of entries at all depths."""

    nbytes: int
    entries: int


def sizes_of(*owners: object) -> dict[str, Size]:
    """Return the sizes, by "<class>.<attribute>", of arrays, containers, and objects of ``rl.curriculum`` with some.

    Shared objects count once; simulators, configurations and plain numbers do not count.
    """
    seen, sizes = {id(owner) for owner in owners}, {}
    for owner in owners:
        for name, value in vars(owner).items():
            if id(value) not in seen and (size := _size(value)).entries:
                seen |= {id(value), *(map(id, vars(value).values()) if _has_parts(value) else ())}
                sizes[f"{type(owner).__name__}.{name}"] = size
    return sizes


def sizes_of_curriculum(manager: CurriculumManager) -> dict[str, Size]:
    """Return the sizes of all containers of a manager, its strategy and its start states."""
    return sizes_of(manager, manager.strategy, *([manager.starts] if manager.starts else []))


def _has_parts(value: object) -> bool:
    return type(value).__module__.startswith("rl.curriculum.") and hasattr(value, "__dict__")


def _size(value: Any) -> Size:
    if isinstance(value, np.ndarray):
        return Size(value.nbytes, max(value.size, 1))
    if _has_parts(value):
        return _sum(map(_size, vars(value).values()))
    if isinstance(value, dict):
        inside = _sum(map(_size, (*value, *value.values())))
        return Size(50 * len(value) + inside.nbytes, 1 + len(value) + inside.entries)
    if isinstance(value, list | tuple | deque | set):
        inside = _sum(map(_size, value))
        return Size(8 * len(value) + inside.nbytes, 1 + len(value) + inside.entries)
    return Size(sys.getsizeof(value), 0)


def _sum(sizes: Iterable[Size]) -> Size:
    both = list(sizes)
    return Size(sum(size.nbytes for size in both), sum(size.entries for size in both))


@dataclass(frozen=True)
class Costs:
    """Costs of one strategy with one number of levels.

    episode_us: time of the calls in each step, µs per episode.
    update_ms, metrics_ms, state_ms: mean time of ``update`` and of statistics per update, and of packing the state.
    share: share of the time of training.
    over_run, by_resume: change of the training speed, relative to training without a curriculum, from the first to the
        second third, and from there to the last third, before which the run is resumed.
    recalculations: recalculations of the distribution per update.
    before, after: sizes of the containers after the first third and at the end.
    """

    strategy: str
    levels: int
    episode_us: float
    update_ms: float
    metrics_ms: float
    state_ms: float
    share: float
    over_run: Estimate
    by_resume: Estimate
    recalculations: float
    before: dict[str, Size]
    after: dict[str, Size]

    @property
    def grown(self) -> bool:
        """True if all containers together have grown by more than MAX_GROWTH."""
        before, after = (_sum(sizes.values()).nbytes for sizes in (self.before, self.after))
        return after > MAX_GROWTH[0] * before + MAX_GROWTH[1]

    def row(self) -> tuple[str, ...]:
        """Return the cells of a table with the header HEADER."""
        times = (self.episode_us, self.update_ms, self.metrics_ms, self.state_ms, self.recalculations)
        changes = (_percent(self.over_run), _percent(self.by_resume))
        sizes = (f"{_sum(sizes.values()).nbytes / 1e3:,.1f}" for sizes in (self.before, self.after))
        figures = (*(f"{value:.2f}" for value in times), f"{self.share:.2%}", *changes, *sizes)
        return self.strategy, f"{self.levels:,}", *figures


HEADER: tuple[str, ...] = (
    *("strategy", "levels", "µs per episode", "ms per update", "ms of statistics", "ms to save"),
    *("recalculations per update", "share of training", "speed over the run", "after a resume"),
    *("kB after a third", "kB at the end"),
)


def _percent(change: Estimate) -> str:
    interval = "" if change.low is None or change.high is None else f" [{change.low:+.2%}, {change.high:+.2%}]"
    return f"{change.value:+.2%}{interval}"


def _slower(change: Estimate) -> bool:
    return change.high is not None and change.high < -MAX_LOSS


# (hypothesis, test of Costs that is true if it holds, limit, remedy)
HYPOTHESES: tuple[tuple[str, Callable[[Costs], bool], str, str], ...] = (
    ("speed falls during the run", lambda c: _slower(c.over_run), f"{MAX_LOSS:.1%} loss", "profile the run"),
    ("scores are recalculated per episode", lambda c: c.recalculations > 2, "2 per update", "recalculate per update"),
    (
        "speed depends on the age of the process",
        lambda c: abs(c.by_resume.value) > MAX_LOSS and not (c.by_resume.low or 0) <= 0 <= (c.by_resume.high or 0),
        f"{MAX_LOSS:.1%} change",
        "compare what a resume resets",
    ),
    (
        "statistics are slow",
        lambda c: c.share * c.metrics_ms > MAX_SHARE * (c.metrics_ms + c.update_ms),
        f"{MAX_SHARE:.0%} of training",
        "--curriculum-performance-mode",
    ),
    ("containers grow", lambda c: c.grown, f"{MAX_GROWTH[0] - 1:.0%}", "bound the containers"),
    ("the curriculum is slow", lambda c: c.share > MAX_SHARE, f"{MAX_SHARE:.0%} of training", "use fewer levels"),
)


def outcome_table(costs: Iterable[Costs]) -> list[tuple[str, str, str, str]]:
    """Return (hypothesis, limit, strategies that exceed it, remedy) for each hypothesis."""
    rows, costs = [], list(costs)
    for hypothesis, holds, limit, remedy in HYPOTHESES:
        matches = [f"{c.strategy} with {c.levels:,} levels" for c in costs if holds(c)]
        rows.append((hypothesis, limit, ", ".join(matches) or "none", remedy if matches else "–"))
    return rows


class OneStepEpisodes:
    """Substitute for a simulator with artificial levels: every decision ends an episode in each environment."""

    def __init__(self, count: int):
        self.num_envs, self.finished = ENVIRONMENTS, np.empty(0, np.int64)
        self.level, self.next_level = np.zeros(ENVIRONMENTS, np.int32), np.zeros(ENVIRONMENTS, np.int32)
        self.episode = np.zeros(ENVIRONMENTS, EPISODE_DTYPE)
        self.bank = SimpleNamespace(levels=[SimpleNamespace(fingerprint=f"{number:016x}") for number in range(count)])

    def reset(self, levels: np.ndarray) -> None:
        """Begin an episode in every environment."""
        self.level[:] = levels

    def step(self, won: np.ndarray, returns: np.ndarray) -> None:
        """End the episodes of the first ``len(won)`` environments, and begin episodes on ``next_level``."""
        self.finished = ended = np.arange(len(won))
        self.episode["level"][ended], self.episode["ret"][ended] = self.level[ended], returns
        self.episode["outcome"][ended] = np.where(won, WON, TIMEOUT)
        self.level[ended] = self.next_level[ended]


def make_manager(strategy: type[Strategy], config: CurriculumConfig, count: int, seed: int = 0) -> CurriculumManager:
    """Return a manager of ``count`` artificial levels."""
    names = [CATEGORIES[i % len(CATEGORIES)] for i in range(count)]
    levels, rng = Levels.of(names, np.arange(count)), np.random.default_rng(seed)
    return CurriculumManager(levels, strategy(levels, config, rng), config, rng)


def processor_seconds(work: Callable[[], object]) -> float:
    """Return the processor time of one call in seconds."""
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def play(manager: CurriculumManager, sim: Any, rng: np.random.Generator, episodes: int) -> float:
    """Play one-step episodes, ENVIRONMENTS at a time; return the seconds of the manager's calls."""
    chance, actions = rng.random(len(manager.levels)), np.zeros(ENVIRONMENTS, np.int64)
    seconds = 0.0
    for done in range(0, episodes, ENVIRONMENTS):
        luck = rng.random(min(ENVIRONMENTS, episodes - done))
        seconds += processor_seconds(lambda: manager.watch(sim, actions))
        seconds += processor_seconds(lambda: manager.counted_levels(sim))
        sim.step(luck < chance[sim.level[: len(luck)]], luck)
        seconds += processor_seconds(lambda: manager.next_episodes(sim))
    return seconds


def measure(
    name: str,
    strategy: type[Strategy],
    config: CurriculumConfig,
    count: int,
    updates: int,
    episodes: int,
    training_us: float = 100.0,
) -> Costs:
    """Play ``updates`` updates of ``episodes`` episodes, with a resume before the last third.

    training_us: time of one decision of training without the curriculum, µs.
    """
    manager, rng, calls = make_manager(strategy, config, count), np.random.default_rng(1), [0]
    sim: Any = OneStepEpisodes(count)
    manager.start(sim)

    def count_calls(manager: CurriculumManager) -> None:
        original = manager.strategy.weigh

        def counted(weights: np.ndarray) -> None:
            calls[0] += 1
            original(weights)

        manager.strategy.weigh = counted  # type: ignore[method-assign]

    times, state, sizes, third = np.zeros((updates, 3)), [], [], max(1, updates // 3)
    count_calls(manager)
    for number in range(updates):
        if number % third == 0:
            sizes.append(sizes_of_curriculum(manager))
            state.append(processor_seconds(lambda: to_bytes(manager.state_dict(), "curriculum")))  # noqa: B023
        if number == updates - third:
            stored = to_bytes(manager.state_dict(), "curriculum")
            manager = make_manager(strategy, config, count, seed=9)
            manager.load_state_dict(from_bytes(stored))
            count_calls(manager)
        played = play(manager, sim, rng, episodes)
        decided = manager.draw(episodes).astype(np.int64) if manager.wants_advantages else None
        advantages = rng.normal(size=episodes).astype(np.float32) if manager.wants_advantages else None
        metrics = processor_seconds(manager.metrics)
        times[number] = played, processor_seconds(lambda: manager.update(sim, decided, advantages)), metrics  # noqa: B023
    each_us = 1e6 * times.sum(axis=1) / episodes
    speed = training_us / (training_us + each_us)

    def change(late: np.ndarray, early: np.ndarray) -> Estimate:
        return bootstrap(lambda a, b: np.median(a, axis=1) - np.median(b, axis=1), late, early)

    return Costs(
        name,
        count,
        episode_us=float(1e6 * times[:, 0].mean() / episodes),
        update_ms=float(1e3 * times[:, 1].mean()),
        metrics_ms=float(1e3 * times[:, 2].mean()),
        state_ms=1e3 * float(np.median(state)),
        share=float(each_us.mean() / (each_us.mean() + training_us)),
        over_run=change(speed[third : 2 * third], speed[updates // 10 : third]),
        by_resume=change(speed[-third:], speed[-2 * third : -third]),
        recalculations=calls[0] / updates,
        before=sizes[1],
        after=sizes_of_curriculum(manager),
    )


def statistics_costs(count: int) -> dict[str, float]:
    """Return the milliseconds of each group of statistics of learning progress with ``count`` active levels."""
    manager = make_manager(LearningProgress, CurriculumConfig(strategy="learning_progress", active_levels=count), count)
    sim: Any = OneStepEpisodes(count)
    manager.start(sim)
    for _ in range(3):
        play(manager, sim, np.random.default_rng(0), 1000)
        manager.update(sim)
    groups: Any = (LearningProgress.metrics, *DETAILED)
    return {
        group.__name__.strip("_"): 1e3 * min(processor_seconds(lambda: group(manager.strategy)) for _ in range(3))  # noqa: B023
        for group in groups
    }


def start_state_costs(updates: int, steps: int) -> dict[str, tuple[float, float]]:
    """Return µs per decision of (simulator, curriculum) in random play on the starter levels, by use of start states."""
    levels, rng, costs = list(LevelSet.open(STARTER_LEVELS)), np.random.default_rng(0), {}
    for name, start_states in (("without start states", False), ("with start states", True)):
        sim = BatchSimulator(levels, ENVIRONMENTS, threads=1)
        manager = make_sampler(["starter"] * len(levels), CurriculumConfig(start_states=start_states), 0)
        manager.start(sim)
        seconds = np.zeros(2)
        for update in range(updates):
            if update == updates // 2:
                seconds[:] = 0.0
            for _ in range(steps):
                actions = rng.integers(0, 6, ENVIRONMENTS)
                seconds[1] += processor_seconds(lambda: manager.watch(sim, actions))  # noqa: B023
                seconds[0] += processor_seconds(lambda: sim.step(actions))  # noqa: B023
                seconds[1] += processor_seconds(lambda: manager.next_episodes(sim))  # noqa: B023
            seconds[1] += processor_seconds(lambda: manager.update(sim))  # noqa: B023
        simulator, curriculum = 1e6 * seconds / ((updates - updates // 2) * steps * ENVIRONMENTS)
        costs[name] = float(simulator), float(curriculum)
    return costs


def run(argv: list[str]) -> int:
    """Measure, and print all tables; return the exit status."""
    parser = Parser(prog="curriculum.py", description=(__doc__ or "").partition("\n")[0])
    flag = parser.add_flag
    flag(Setting("numbers of levels", flag="levels", kind=int, many=True, default=(10, 1000, 100_000), low=1))
    flag(Setting("updates per measurement", flag="updates", kind=int, default=100, low=6))
    flag(Setting("episodes per update", flag="episodes", kind=int, default=16_384, low=64))
    training = "microseconds that one decision of training takes (1,000,000 / decisions per second)"
    flag(Setting(training, flag="training-us", kind=float, default=100.0, above=0))
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    arguments = parser.parse_args(argv)
    config, amount = CurriculumConfig(), (arguments.updates, arguments.episodes, arguments.training_us)
    costs = [
        measure(name, STRATEGIES[name], replace(config, strategy=name), count, *amount)
        for name in CURRICULA
        for count in arguments.levels
    ]
    print(table(HEADER, [c.row() for c in costs]))
    details = {count: statistics_costs(count) for count in arguments.levels}
    rows: list[tuple[object, ...]] = [
        (name, f"{count:,}", f"{ms:.2f}") for count, found in details.items() for name, ms in found.items()
    ]
    print("\n" + table(("statistics of learning progress", "levels", "ms"), rows))
    rows, most = [], max(arguments.levels)
    for size in POOLS:
        c = measure(
            "pool",
            LearningProgress,
            replace(config, strategy="learning_progress", active_levels=size),
            most,
            6,
            *amount[1:],
        )
        rows.append((f"{min(size, most):,} of {most:,}", f"{c.episode_us:.2f}", f"{c.update_ms:.2f}"))
    print("\n" + table(("levels in the pool of learning progress", "µs per episode", "ms per update"), rows))
    starts = start_state_costs(min(START_UPDATES, arguments.updates), max(1, arguments.episodes // ENVIRONMENTS))
    rows = [(name, f"{simulator:.2f}", f"{curriculum:.2f}") for name, (simulator, curriculum) in starts.items()]
    print("\n" + table(("random play, µs per decision", "simulator", "curriculum"), rows))
    outcomes = outcome_table(costs)
    print("\n" + table(("hypothesis", "limit", "exceeded by", "remedy"), outcomes, "llll"))
    return int(any(row[2] != "none" for row in outcomes))


def main(argv: list[str]) -> int:
    """Run the command; return the exit status (see the module's docstring)."""
    return errors.run(lambda: run(argv), debug="--debug" in argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
