"""The 38 tile shapes as tables (docs/physics.md, sections 3.1 to 3.4).

Coordinates are relative to the tile's top-left corner; a tile is 24 x 24 px, y grows downward.
"""

import numpy as np

from nppsim.levels.stage import HALF_CELL, TILE

NUM_TILE_SHAPES = 38  # ids 0..37; higher ids have no geometry
OPEN = 0
SOLID = 1
HALVES = range(2, 6)  # 2, 3, 4, 5: solid in the upper, right, lower, left half
SLOPES = range(6, 10)  # of 45 degrees
CONVEX = range(10, 14)
CONCAVE = range(14, 18)
GENTLE_SLOPES = range(18, 26)  # rise half a tile per tile
STEEP_SLOPES = range(26, 34)  # rise a tile per half tile
ONE_SIDED = range(34, NUM_TILE_SHAPES)  # 34, 35, 36, 37: only one edge, at the top, right, bottom, left

# uint8[256]: tile id -> id of the horizontally mirrored tile.
MIRRORED = np.arange(256, dtype=np.uint8)
for _tile, _mirrored in [(tile, tile ^ 1) for tile in range(6, 34)] + [(3, 5), (5, 3), (35, 37), (37, 35)]:
    MIRRORED[_tile] = _mirrored
MIRRORED.setflags(write=False)

# Signs of the half-edges of each tile: horizontal half-edges row by row | vertical half-edges column by column.
# "-": a segment whose open side is up or left, "+": down or right, ".": no segment.
EDGE_SIGNS = (
    ".. .. .. | .. .. ..",  # 0
    "-- .. ++ | -- .. ++",  # 1
    "-- ++ .. | -. .. +.",  # 2
    ".- .. .+ | .. -- ++",  # 3
    ".. -- ++ | .- .. .+",  # 4
    "-. .. +. | -- ++ ..",  # 5
    "-- .. .. | -- .. ..",  # 6
    "-- .. .. | .. .. ++",  # 7
    ".. .. ++ | .. .. ++",  # 8
    ".. .. ++ | -- .. ..",  # 9
    "-- .. .. | -- .. ..",  # 10
    "-- .. .. | .. .. ++",  # 11
    ".. .. ++ | .. .. ++",  # 12
    ".. .. ++ | -- .. ..",  # 13
    "-- .. .. | -- .. ..",  # 14
    "-- .. .. | .. .. ++",  # 15
    ".. .. ++ | .. .. ++",  # 16
    ".. .. ++ | -- .. ..",  # 17
    "-- .. .. | -. .. ..",  # 18
    "-- .. .. | .. .. +.",  # 19
    ".. .. ++ | .. .. .+",  # 20
    ".. .. ++ | .- .. ..",  # 21
    "-- .. .. | -- .. +.",  # 22
    "-- .. .. | -. .. ++",  # 23
    ".. .. ++ | .- .. ++",  # 24
    ".. .. ++ | -- .. .+",  # 25
    "-. .. .. | -- .. ..",  # 26
    ".- .. .. | .. .. ++",  # 27
    ".. .. .+ | .. .. ++",  # 28
    ".. .. +. | -- .. ..",  # 29
    "-- .. +. | -- .. ..",  # 30
    "-- .. .+ | .. .. ++",  # 31
    ".- .. ++ | .. .. ++",  # 32
    "-. .. ++ | -- .. ..",  # 33
    "-- .. .. | .. .. ..",  # 34
    ".. .. .. | .. .. ++",  # 35
    ".. .. ++ | .. .. ..",  # 36
    ".. .. .. | -- .. ..",  # 37
)

# Diagonals, directed from p1 to p2; the open side is on the right of the direction of travel (on screen).
DIAGONALS = {
    6: ((0, 24), (24, 0)),
    7: ((0, 0), (24, 24)),
    8: ((24, 0), (0, 24)),
    9: ((24, 24), (0, 0)),
    18: ((0, 12), (24, 0)),
    19: ((0, 0), (24, 12)),
    20: ((24, 12), (0, 24)),
    21: ((24, 24), (0, 12)),
    22: ((0, 24), (24, 12)),
    23: ((0, 12), (24, 24)),
    24: ((24, 0), (0, 12)),
    25: ((24, 12), (0, 0)),
    26: ((0, 24), (12, 0)),
    27: ((12, 0), (24, 24)),
    28: ((24, 0), (12, 24)),
    29: ((12, 24), (0, 0)),
    30: ((12, 24), (24, 0)),
    31: ((0, 0), (12, 24)),
    32: ((12, 0), (0, 24)),
    33: ((24, 24), (12, 0)),
}

# Quarter circles of radius 24: centre, direction (x, y) from the centre into the quadrant, convex (True: solid inside
# the circle, False: solid outside it).
ARCS = {
    10: ((0, 0), (1, 1), True),
    11: ((24, 0), (-1, 1), True),
    12: ((24, 24), (-1, -1), True),
    13: ((0, 24), (1, -1), True),
    14: ((24, 24), (-1, -1), False),
    15: ((0, 24), (1, -1), False),
    16: ((0, 0), (1, 1), False),
    17: ((24, 0), (-1, 1), False),
}


def _sign_table(half: int) -> np.ndarray:
    sign = {"-": -1, "+": 1, ".": 0}
    return np.array([[sign[c] for c in row.split(" | ")[half].replace(" ", "")] for row in EDGE_SIGNS], np.int8)


HORIZONTAL_SIGNS = _sign_table(0)  # int8[38, 6]: top-left, top-right, middle-left, ..., bottom-right
VERTICAL_SIGNS = _sign_table(1)  # int8[38, 6]: left-upper, left-lower, middle-upper, ..., right-lower


def solid_mask(tile: int, size: int) -> np.ndarray:
    """Compute the solid points of a size x size grid inside a tile.

    Returns bool[size, size], row (y) first; entry [r, c] belongs to the point ((c + 0.5), (r + 0.5)) * 24 / size.
    One-sided tiles count as solid, because pictures of levels show them as solid.
    """
    centre = (np.arange(size) + 0.5) * TILE / size
    x, y = np.meshgrid(centre, centre)
    if tile == OPEN or tile >= NUM_TILE_SHAPES:
        return np.zeros((size, size), bool)
    if tile == SOLID or tile in ONE_SIDED:
        return np.ones((size, size), bool)
    if tile in HALVES:
        return (y < HALF_CELL, x > HALF_CELL, y > HALF_CELL, x < HALF_CELL)[tile - HALVES.start]
    if tile in ARCS:
        (cx, cy), _, convex = ARCS[tile]
        inside = np.hypot(x - cx, y - cy) < TILE
        return inside if convex else ~inside
    (x1, y1), (x2, y2) = DIAGONALS[tile]
    return (y - y1) * (x2 - x1) - (x - x1) * (y2 - y1) < 0


def _grid_codes() -> tuple[np.ndarray, np.ndarray]:
    """Codes of the half-edges in the grid on which drones, guards and thwumps move (docs/physics.md, section 3.4).

    2: the half-edge is a segment.  1: it is no segment, but one side is a half-cell with solid parts, and the other an
    empty half-cell or the outside of the tile.  0: all others.
    """
    horizontal, vertical = 2 * np.abs(HORIZONTAL_SIGNS), 2 * np.abs(VERTICAL_SIGNS)
    for tile in range(ONE_SIDED.start):  # one-sided tiles have only their segments
        solid = np.zeros((4, 4), bool)  # [row, column] of half-cells, with a margin for the outside
        solid[1:3, 1:3] = solid_mask(tile, TILE).reshape(2, HALF_CELL, 2, HALF_CELL).any(axis=(1, 3))
        crossed_down = (solid[1:] != solid[:-1])[:, 1:3].ravel()  # row by row
        crossed_right = (solid[:, 1:] != solid[:, :-1])[1:3].T.ravel()  # column by column
        horizontal[tile] = np.maximum(horizontal[tile], crossed_down)
        vertical[tile] = np.maximum(vertical[tile], crossed_right)
    return horizontal.astype(np.uint8), vertical.astype(np.uint8)


HORIZONTAL_CODES, VERTICAL_CODES = _grid_codes()  # uint8[38, 6], in the order of HORIZONTAL_SIGNS and VERTICAL_SIGNS
