"""An evaluation of many levels, cut into units that any process of any machine plays alike.

A unit is a suite of its own: what is sampled depends on the levels that are played side by side (``EvaluationSuite``), so
these are the same whoever plays, and whatever the number of processes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from nppsim.errors import ConfigError
from nppsim.executor import open_executor
from nppsim.levels.level import Level
from nppsim.observe.stacking import Stacking
from nppsim.workers import usable_cores
from rl.config.shipped import Shipped
from rl.evaluation.results import EpisodeRecord
from rl.evaluation.suite import EvaluationSuite, NoOpPolicy, RandomPolicy
from rl.seeds import own_seed

UNIT = 128  # episodes, about: fewer play slower, as the last ones of each unit are alone; more occupy fewer processes
MIN_PARALLEL = 8  # units; fewer are played before the other processes have started

Levels = Sequence[tuple[Level, str]]
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Play:
    """How levels are played: an agent, what it reads, and what ``EvaluationSuite`` is told."""

    agent: Shipped
    observations: tuple[str, ...]
    stacking: Stacking
    frame_skip: int
    episodes_per_level: int
    seed: int
    deterministic: bool


@dataclass(frozen=True)
class Played:
    """Episodes of the agent, of random play and of doing nothing, in the order of the levels."""

    agent: list[EpisodeRecord] = field(default_factory=list)
    random: list[EpisodeRecord] = field(default_factory=list)
    nothing: list[EpisodeRecord] = field(default_factory=list)


def play(
    how: Play, levels: Levels, progress: Progress, *, workers: int | None = None, cluster: str | None = None
) -> Played:
    """Play every level.

    progress: called with the number of the agent's episodes that have just ended.
    workers, cluster: as in ``nppsim.cluster.Workers``; they change nothing but the time that it takes.
    Raises ConfigError where there are no levels or a worker dies, ClusterError.
    """
    size = max(1, UNIT // how.episodes_per_level)
    starts = range(0, max(1, len(levels)), size)  # no levels are a unit, too: the suite says what is wrong
    units = [(number, levels[start : start + size]) for number, start in enumerate(starts)]
    if workers is None and cluster is None:
        workers = usable_cores() if len(units) >= MIN_PARALLEL else 1
    if workers is not None:
        workers = min(workers, len(units))
    here = cluster is None and workers == 1
    play_unit = partial(_play_unit, how, progress) if here else partial(_play_unit, how, None)
    played = Played()
    with open_executor(workers, ConfigError, cluster) as executor, executor.map(play_unit, units) as results:
        for start, one in zip(starts, results, strict=True):
            for all_episodes, episodes in zip(_lists(played), _lists(one), strict=True):
                all_episodes += [replace(episode, level_index=start + episode.level_index) for episode in episodes]
            if not here:
                progress(len(one.agent))
    return played


def _lists(played: Played) -> tuple[list[EpisodeRecord], ...]:
    return played.agent, played.random, played.nothing


def _play_unit(how: Play, progress: Progress | None, unit: tuple[int, Levels]) -> Played:
    """One unit; progress: None where it is one of several processes, which have one core each."""
    number, levels = unit
    suite = EvaluationSuite(
        levels,
        episodes_per_category=None,
        episodes_per_level=how.episodes_per_level,
        seed=own_seed(how.seed, number),
        frame_skip=how.frame_skip,
        observations=how.observations,
        stacking=how.stacking,
        threads=1 if progress is None else None,
    )
    policy = how.agent.unpack()
    played = Played(
        suite.run(policy, deterministic=how.deterministic, progress=progress),
        suite.run(RandomPolicy(), deterministic=False),
        suite.run(NoOpPolicy(), deterministic=True),
    )
    return played
