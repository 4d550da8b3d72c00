"""Breakdown of an evaluation by the entities, path lengths and doors of the levels, and by the ends of the episodes.

by_contents(episodes)        # {"with mine": {"episodes": 80, "wins": 31, ...}, "path below 500 px": ...}
endings(episodes)            # [Ending(cause="mine", switch_taken=False, x=312.0, y=408.0), ...], one per episode
losses(episodes)             # [Loss(cause="mine", episodes=3, ...), ...], for episodes on one level
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nppsim.io.files import table
from nppsim.levels import kinds
from nppsim.levels.format import TYPE
from nppsim.levels.level import COUNTED, Level
from nppsim.physics.outcomes import DIED, NAMES, TIMEOUT, WON
from nppsim.simulate import Run, is_active, simulate
from rl.evaluation.results import ALL, EpisodeRecord, Stats, aggregate

MIN_LEVELS = 5  # smallest number of levels in a printed row; ``results.json`` has all rows
PATH_EDGES = (500, 1_000, 2_000, 4_000)  # px, bounds of the groups by path length
DOOR_COUNTS = (("no", 0, 0), ("1", 1, 1), ("2 to 3", 2, 3), ("4 or more", 4, np.inf))  # label, range
LOOP_SHARE = 0.5  # a time-out without progress in this share of its decisions, the last ones, is a LOOP
REACH = 60.0  # px, largest distance of an entity that may have killed the ninja; balls move up to 10 px per frame

# Endings of episodes that are not won.  Deaths caused by an entity have the entity's name.
LOOP = "time-out without progress in its second half"
SLOW = "time-out with progress"
IMPACT = "fall or crush"

_RANGED = (kinds.LASER, *kinds.TURRETS, *kinds.SHOOTING_DRONES)  # entities that kill at a distance
_SOLID = (kinds.THWUMP, kinds.SHOVE_THWUMP)  # entities with solid sides, which ``cause_of_death`` never removes


@dataclass(frozen=True)
class Ending:
    """End of one episode.

    cause: "won", a name of an entity (``kinds.ENTITY_NAMES``), IMPACT, LOOP or SLOW.
    switch_taken: True if an exit switch was taken.
    x, y: position of the ninja, px: the last one, and where it last made progress for a time-out.
    """

    cause: str
    switch_taken: bool
    x: float
    y: float


@dataclass(frozen=True)
class Loss:
    """Lost episodes of one level with the same cause.

    cause: as in ``Ending``.
    episodes: number of episodes.
    x, y: position of ``Ending``, of the episode with the most others at most REACH away.
    covered: mean length of the covered path, px.
    """

    cause: str
    episodes: int
    x: float
    y: float
    covered: float


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
    return [_ending(episode) for episode in episodes]


def _ending(episode: EpisodeRecord) -> Ending:
    run = simulate(episode.level, episode.inputs)
    switches = run.entity_state[:, run.entities[:, 0] == kinds.EXIT_SWITCH]
    taken = bool(len(switches) and (is_active(switches[-1]) == 0).any())
    x, y = run.position[-1].tolist()
    if episode.outcome == NAMES[DIED]:
        return Ending(cause_of_death(episode.level, episode.inputs, run), taken, x, y)
    if episode.outcome == NAMES[TIMEOUT]:
        loop = episode.last_gain < (1 - LOOP_SHARE) * episode.decisions
        x, y = run.position[min(episode.last_gain * episode.frames // episode.decisions, run.frames)].tolist()
        return Ending(LOOP if loop else SLOW, taken, x, y)
    return Ending(NAMES[WON], taken, x, y)


def losses(episodes: Sequence[EpisodeRecord]) -> list[Loss]:
    """Return why episodes on one level are lost, the most frequent cause first."""
    lost = [(ending, e) for ending, e in zip(endings(episodes), episodes, strict=True) if not e.won]
    found = []
    for cause, count in Counter(ending.cause for ending, _ in lost).most_common():
        own = [(ending, e) for ending, e in lost if ending.cause == cause]
        places = np.array([(ending.x, ending.y) for ending, _ in own])
        near = np.hypot(*(places[:, None] - places).T) <= REACH
        x, y = places[near.sum(axis=0).argmax()].tolist()
        found.append(Loss(cause, count, x, y, float(np.mean([e.covered * e.path_length for _, e in own]))))
    return found


def losses_text(found: Sequence[Loss], path_length: float) -> str:
    """Format the result of ``losses`` in one line.  path_length: of the level, px."""
    parts = []
    for loss in found:
        number = f"{loss.episodes} × " if sum(one.episodes for one in found) > 1 else ""
        parts.append(
            f"{number}{loss.cause} at ({loss.x:.0f}, {loss.y:.0f}) after {loss.covered:,.0f} of {path_length:,.0f} px"
        )
    return "; ".join(parts)


def cause_of_death(level: Level, inputs: np.ndarray, run: Run) -> str:
    """Return the name of the entity type without which the ninja would survive the last frame of ``run``, or IMPACT.

    For each type of hazard near the ninja, the inputs are simulated without the entities of this type.  A thwump within
    reach is the cause if no other type is.  Thwumps are never removed: without solid entities, the path would differ.
    """
    near = _near(run)
    for kind in near:
        if kind not in _SOLID:
            records = level.records[level.records[:, TYPE] != kind]
            without = replace(level, records=records, exit_count=COUNTED, ball_count=COUNTED)
            if simulate(without, inputs).outcome != NAMES[DIED]:
                return kinds.ENTITY_NAMES[kind]
    return next((kinds.ENTITY_NAMES[kind] for kind in near if kind in _SOLID), IMPACT)


def _near(run: Run) -> list[int]:
    """Return the types of the hazards that may have killed the ninja in the last frame, the nearest first."""
    distance = np.hypot(*(run.entity_position[-1] - run.position[-1]).T)
    types = run.entities[:, 0]
    reach = {kind: float(distance[types == kind].min()) for kind in set(types.tolist()) & set(kinds.HAZARDS)}
    limits = {kind: np.inf if kind in _RANGED else 24.0 if kind in _SOLID else REACH for kind in reach}
    return sorted((kind for kind in reach if reach[kind] <= limits[kind]), key=reach.__getitem__)


def format_endings(found: Sequence[Ending], episodes: Sequence[EpisodeRecord]) -> str:
    """Format a table of lost episodes by cause: number, share, share with switch taken, mean share of path covered."""
    lost = [(ending, e) for ending, e in zip(found, episodes, strict=True) if not e.won]
    if not lost:
        return "no episode was lost"
    rows = []
    for cause, count in Counter(ending.cause for ending, _ in lost).most_common():
        own = [(ending, e) for ending, e in lost if ending.cause == cause]
        taken = np.mean([ending.switch_taken for ending, _ in own])
        covered = np.mean([e.covered for _, e in own])
        rows.append([cause, count, *(f"{100 * share:.0f}" for share in (count / len(lost), taken, covered))])
    header = ["end of lost episodes", "episodes", "%", "exit switch taken, %", "path covered, %"]
    return table(header, rows, align="lrrrr")
