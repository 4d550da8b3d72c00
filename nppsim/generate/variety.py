"""Measures of the variety of levels within a category."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from nppsim.bank import LevelBank
from nppsim.io.files import table
from nppsim.levels import kinds
from nppsim.levels.level import POSITION_UNIT, TYPE, Level, mirror, symmetric_fingerprint
from nppsim.levels.tiles import SOLID
from nppsim.paths import NO_STEP, NODES_Y, STEP_X, STEP_Y, nearest_node

MEASURES = ("path_length_px", "turns", "vertical_moves", "hazards")
CHUNK = 256  # number of levels that are compiled together
STRETCH = 4  # lattice steps (12 px) in a piece of a path whose direction is measured


@dataclass(frozen=True)
class Variety:
    """Measures of the levels of one category.

    levels, distinct_levels, distinct_layouts: counts.  Mirror images count as equal.  A layout consists of the tiles,
        independent of their position on the stage.
    values: float64[levels, 4], one column per entry of ``MEASURES``.  The path leads from the spawn via the switch to the
        exit, with all doors open and without gravity, and is cut into pieces of two tiles.  A turn is a change of the
        main direction (left, right, up, down).  A vertical move is a sequence of pieces in one vertical direction.
        Turns and vertical moves are 0 if there is no path.
    """

    levels: int
    distinct_levels: int
    distinct_layouts: int
    values: np.ndarray


def variety(levels: Iterable[tuple[str, Level]]) -> dict[str, Variety]:
    """Measure (category, level) pairs; return category -> measures, in order of first appearance."""
    rows: dict[str, list] = {}
    pairs = iter(levels)
    while chunk := list(islice(pairs, CHUNK)):
        lengths = LevelBank([level for _, level in chunk]).path_length
        paths = _moves([level for _, level in chunk])
        for (category, level), length, moves in zip(chunk, lengths.tolist(), paths, strict=True):
            hazards = int(np.isin(level.records[:, TYPE], kinds.HAZARDS).sum())
            row = (length, max(0, len(moves) - 1), sum(move in "UD" for move in moves), hazards)
            rows.setdefault(category, []).append((symmetric_fingerprint(level), _layout(level), row))
    return {
        category: Variety(
            len(category_rows),
            len({fingerprint for fingerprint, _, _ in category_rows}),
            len({layout for _, layout, _ in category_rows}),
            np.array([row for _, _, row in category_rows], dtype=np.float64),
        )
        for category, category_rows in rows.items()
    }


def variety_table(measured: dict[str, Variety]) -> str:
    """Format a table with counts, and minimum / median / maximum of each measure."""
    rows = []
    for category, category_variety in measured.items():
        spans = [
            f"{column.min():.0f} / {np.median(column):.0f} / {column.max():.0f}" for column in category_variety.values.T
        ]
        rows.append(
            (
                category,
                category_variety.levels,
                category_variety.distinct_levels,
                category_variety.distinct_layouts,
                *spans,
            )
        )
    return table(("category", "levels", "distinct", "layouts", *MEASURES), rows)


def _layout(level: Level) -> bytes:
    """Encode the tiles without the solid rows and columns around them; mirror images have equal codes."""
    rows, columns = np.nonzero(level.tiles != SOLID)
    if len(rows) == 0:
        return b""
    box = slice(rows.min(), rows.max() + 1), slice(columns.min(), columns.max() + 1)
    mirrored = level.tiles.shape[1] - box[1].stop, level.tiles.shape[1] - box[1].start
    seen = [level.tiles[box], mirror(level).tiles[box[0], slice(*mirrored)]]
    return min(bytes((tiles.shape[1],)) + tiles.tobytes() for tiles in seen)


def _moves(levels: Sequence[Level]) -> Iterator[str]:
    """Yield the path through each level as a string of directions L, R, U and D; equal directions in a row are merged."""
    bank = LevelBank([_without_doors(level) for level in levels])
    for level, distance, next_step in zip(levels, bank.paths.distance, bank.paths.next_step, strict=True):
        switches = level.records[level.records[:, TYPE] == kinds.EXIT_SWITCH]
        if len(switches) == 0:
            yield ""
            continue
        x, y = (POSITION_UNIT * float(v) for v in switches[0, 1:3])
        points = _points(distance[0], next_step[0], *level.spawn) + _points(distance[1], next_step[1], x, y)
        moves = ""
        for start, end in zip(points[:-STRETCH:STRETCH], points[STRETCH::STRETCH], strict=True):
            dx, dy = end[0] - start[0], end[1] - start[1]
            move = "LR"[dx > 0] if abs(dx) >= abs(dy) else "UD"[dy > 0]
            if not moves.endswith(move):
                moves += move
        yield moves


def _without_doors(level: Level) -> Level:
    records = level.records[~np.isin(level.records[:, TYPE], (kinds.LOCKED_DOOR, kinds.LOCKED_SWITCH))]
    return Level(level.tiles, records, name=level.name, exit_count=level.exit_count, ball_count=level.ball_count)


def _points(distance: np.ndarray, next_step: np.ndarray, x: float, y: float) -> list[tuple[int, int]]:
    """Follow a path field from a point (px) to its goal; return the lattice points (column, row)."""
    _, node = nearest_node(distance, x, y)
    points = []
    while node >= 0:
        points.append(divmod(int(node), NODES_Y))
        if next_step[node] == NO_STEP:
            break
        node += STEP_X[next_step[node]] * NODES_Y + STEP_Y[next_step[node]]
    return points
