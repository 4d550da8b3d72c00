"""Breakdown of an evaluation by the entities, path lengths and doors of the levels, and by the ends of the episodes.

by_contents(episodes)        # {"with mine": {"episodes": 80, "wins": 31, ...}, "path below 500 px": ...}
endings(episodes)            # [Ending(cause="mine", last=(312.0, 408.0), ...), ...], one per episode
losses(episodes)             # [Loss(cause="mine", episodes=3, ...), ...], for episodes on one level
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nppsim.io.files import table
from nppsim.levels import kinds
from nppsim.levels.format import TYPE
from nppsim.physics.outcomes import NAMES, WON
from nppsim.replays.ending import REACH, Ending, ending_of
from rl.evaluation.results import ALL, EpisodeRecord, Stats, aggregate

MIN_LEVELS = 5  # smallest number of levels in a printed row; ``results.json`` has all rows
PATH_EDGES = (500, 1_000, 2_000, 4_000)  # px, bounds of the groups by path length
DOOR_COUNTS = (("no", 0, 0), ("1", 1, 1), ("2 to 3", 2, 3), ("4 or more", 4, np.inf))  # label, range


@dataclass(frozen=True)
class Loss:
    """Lost episodes of one level with the same cause.

    cause: as in ``Ending``.
    episodes: number of episodes.
    x, y: ``Ending.place`` of the episode with the most others at most REACH away.
    covered: mean length of the covered path, px.
    why: ``Ending.text`` of that episode.
    farthest_frame, inputs: of that episode, see ``Ending`` and ``EpisodeRecord``.
    """

    cause: str
    episodes: int
    x: float
    y: float
    covered: float
    why: str
    farthest_frame: int
    inputs: np.ndarray = field(repr=False)


def by_contents(episodes: Sequence[EpisodeRecord]) -> dict[str, Stats]:
    """Return statistics by entity in the level, by path length, by number of locked and trap doors, and in total."""
    counts = np.stack([np.bincount(e.level.records[:, TYPE], minlength=256) for e in episodes])
    doors = counts[:, list(kinds.SWITCH_OF_DOOR)].sum(axis=1)
    paths = np.array([e.path_length for e in episodes])
    groups = {
        f"with {kinds.ENTITY_NAMES[kind]}": counts[:, kind] > 0
        for kind in kinds.CREATING
        if kind not in (kinds.EXIT, kinds.GOLD)
    }
    for low, high in itertools.pairwise((0, *PATH_EDGES)):
        groups[f"path {low:,} to {high:,} px"] = (low <= paths) & (paths < high)
    groups[f"path above {PATH_EDGES[-1]:,} px"] = paths >= PATH_EDGES[-1]
    for label, first, last in DOOR_COUNTS:
        groups[f"{label} locked or trap doors"] = (first <= doors) & (doors <= last)
    groups[ALL] = np.ones(len(episodes), bool)
    return {
        name: aggregate([episodes[i] for i in np.flatnonzero(rows).tolist()])[ALL]
        for name, rows in groups.items()
        if rows.any()
    }


def with_enough_levels(breakdown: dict[str, Stats], episodes_per_level: int) -> dict[str, Stats]:
    """Select the rows of ``by_contents`` with at least MIN_LEVELS levels."""
    return {name: row for name, row in breakdown.items() if row["episodes"] >= MIN_LEVELS * episodes_per_level}


def endings(episodes: Sequence[EpisodeRecord]) -> list[Ending]:
    """Replay all episodes in the simulator; return the ending of each."""
    return [ending_of(episode.level, episode.inputs) for episode in episodes]


def losses(episodes: Sequence[EpisodeRecord]) -> list[Loss]:
    """Return why episodes on one level are lost, the most frequent cause first."""
    lost = [episode for episode in episodes if not episode.won]
    pairs = list(zip(endings(lost), lost, strict=True))
    causes = []
    for cause, count in Counter(ending.cause for ending, _ in pairs).most_common():
        own = [pair for pair in pairs if pair[0].cause == cause]
        places = np.array([ending.place for ending, _ in own])
        near = np.hypot(*(places[:, None] - places).T) <= REACH
        ending, episode = own[near.sum(axis=0).argmax()]
        x, y = ending.place
        covered = float(np.mean([end.covered for end, _ in own]))
        why = ending.text(episode.backtracks)
        causes.append(Loss(cause, count, x, y, covered, why, ending.farthest_frame, episode.inputs))
    return causes


def losses_text(losses: Sequence[Loss], path_length: float) -> str:
    """Format the result of ``losses`` in one line.  path_length: of the level, px."""
    parts = []
    for loss in losses:
        number = f"{loss.episodes} × " if sum(other.episodes for other in losses) > 1 else ""
        parts.append(
            f"{number}{loss.cause} at ({loss.x:.0f}, {loss.y:.0f}) after {loss.covered:,.0f} of {path_length:,.0f} px"
        )
    return "; ".join(parts)


def format_endings(endings: Sequence[Ending]) -> str:
    """Format a table of lost episodes by cause: number, share, share with switch taken, mean share of path covered."""
    lost = [ending for ending in endings if ending.outcome != NAMES[WON]]
    if not lost:
        return "no episode was lost"
    rows = []
    for cause, count in Counter(ending.cause for ending in lost).most_common():
        own = [ending for ending in lost if ending.cause == cause]
        shares = count / len(lost), np.mean([e.switch_taken for e in own]), np.mean([e.share for e in own])
        rows.append([cause, count, *(f"{100 * share:.0f}" for share in shares)])
    header = ["end of lost episodes", "episodes", "%", "exit switch taken, %", "path covered, %"]
    return table(header, rows, align="lrrrr")
