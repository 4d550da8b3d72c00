"""Segment records (``SEGMENT_DTYPE``) and the table of their shapes (``SHAPES``).  Source: docs/physics.md, section 3.5.

All coordinates of a level are integers, so eight bytes store a segment exactly, and the segments of a cell fit in one or two
cache lines.  The remaining properties of a segment depend on its shape alone; there are a few dozen shapes.
"""

import numpy as np

from nppsim.levels import tiles
from nppsim.levels.stage import HALF_CELL, TILE

SEGMENT_DTYPE = np.dtype(
    [
        ("x", "i2"), ("y", "i2"),  # px, first point of a line, or centre of an arc
        ("shape", "u2"),  # row of SHAPES
        ("entity", "i2"),  # index of the door among the level's entities; -1 for a tile
    ],
    align=True,
)  # fmt: skip

# Kinds of shapes.
LINE, CONVEX_ARC, CONCAVE_ARC, DOOR_LINE = range(4)

# Columns of SHAPES.  Lines have a direction (DX, DY), its squared length, its length and its unit vector.  In arcs,
# (DX, DY) is the quadrant: the signs of x and y, relative to the centre.  The last four columns are the bounding box
# relative to (x, y) of the segment.
KIND, DX, DY, LENGTH_SQUARED, LENGTH, UNIT_X, UNIT_Y, MIN_X, MAX_X, MIN_Y, MAX_Y = range(11)

ARC_RADIUS = float(TILE)  # px


def _shape_table() -> tuple[np.ndarray, dict[tuple[int, int, int], int]]:
    """Build SHAPES and SHAPE_OF."""
    half = HALF_CELL
    every = [(LINE, dx, dy) for dx, dy in ((half, 0), (-half, 0), (0, half), (0, -half))]
    every += [(LINE, x2 - x1, y2 - y1) for (x1, y1), (x2, y2) in tiles.DIAGONALS.values()]
    every += [(CONVEX_ARC if convex else CONCAVE_ARC, *quadrant) for _, quadrant, convex in tiles.ARCS.values()]
    every += [(DOOR_LINE, TILE, 0), (DOOR_LINE, 0, TILE)]
    keys = list(dict.fromkeys(every))
    table = np.zeros((len(keys), 11))
    for row, (kind, dx, dy) in zip(table, keys, strict=True):
        row[[KIND, DX, DY]] = kind, dx, dy
        reach_x, reach_y = dx, dy
        if kind in (CONVEX_ARC, CONCAVE_ARC):
            reach_x, reach_y = TILE * dx, TILE * dy
        else:
            row[LENGTH_SQUARED] = float(dx) * dx + float(dy) * dy
            row[LENGTH] = np.sqrt(row[LENGTH_SQUARED])
            row[[UNIT_X, UNIT_Y]] = dx / row[LENGTH], dy / row[LENGTH]
        row[[MIN_X, MAX_X]] = min(0, reach_x), max(0, reach_x)
        row[[MIN_Y, MAX_Y]] = min(0, reach_y), max(0, reach_y)
    return table, {key: i for i, key in enumerate(keys)}


SHAPES, SHAPE_OF = _shape_table()  # float64[shapes, 11]; dictionary (kind, DX, DY) -> row of SHAPES
RIGHT, LEFT, DOWN, UP = range(4)  # rows of SHAPES: lines half as long as an edge of a tile, by direction


def _of_tiles() -> np.ndarray:
    """int16[38, 3]: (x, y, shape) of the diagonal or arc in each tile, relative to the tile; shape -1 if there is none."""
    table = np.full((tiles.NUM_TILE_SHAPES, 3), -1, np.int16)
    for tile, ((x1, y1), (x2, y2)) in tiles.DIAGONALS.items():
        table[tile] = x1, y1, SHAPE_OF[LINE, x2 - x1, y2 - y1]
    for tile, ((x, y), quadrant, convex) in tiles.ARCS.items():
        table[tile] = x, y, SHAPE_OF[CONVEX_ARC if convex else CONCAVE_ARC, *quadrant]
    return table


OF_TILE = _of_tiles()
