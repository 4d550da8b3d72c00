"""The stage as people see it: the solid region of each tile shape, and the part of a level that is worth showing."""

import numpy as np

TILE = 24  # level pixels per tile
STAGE = (44, 25)  # tiles of the whole stage, with its solid frame
NUM_SHAPES = 38
MIN_VIEW = (12, 5)  # tiles, width and height: a film's camera comes no closer, so that the texts below it have room
_STEP = 4  # px between the samples of the flood fill in ``used_region``

Box = tuple[int, int, int, int]  # left, top, right, bottom

# Corners of the solid region of the straight-edged shapes (convex, level pixels from the tile's top-left corner).
# Source: docs/physics.md, section 3.3.
_POLYGONS = {
    1: ((0, 0), (24, 0), (24, 24), (0, 24)),
    2: ((0, 0), (24, 0), (24, 12), (0, 12)),
    3: ((12, 0), (24, 0), (24, 24), (12, 24)),
    4: ((0, 12), (24, 12), (24, 24), (0, 24)),
    5: ((0, 0), (12, 0), (12, 24), (0, 24)),
    6: ((0, 0), (24, 0), (0, 24)),
    7: ((0, 0), (24, 0), (24, 24)),
    8: ((24, 0), (24, 24), (0, 24)),
    9: ((0, 0), (24, 24), (0, 24)),
    18: ((0, 0), (24, 0), (0, 12)),
    19: ((0, 0), (24, 0), (24, 12)),
    20: ((24, 12), (24, 24), (0, 24)),
    21: ((0, 12), (24, 24), (0, 24)),
    22: ((0, 0), (24, 0), (24, 12), (0, 24)),
    23: ((0, 0), (24, 0), (24, 24), (0, 12)),
    24: ((24, 0), (24, 24), (0, 24), (0, 12)),
    25: ((0, 0), (24, 12), (24, 24), (0, 24)),
    26: ((0, 0), (12, 0), (0, 24)),
    27: ((12, 0), (24, 0), (24, 24)),
    28: ((24, 0), (24, 24), (12, 24)),
    29: ((0, 0), (12, 24), (0, 24)),
    30: ((0, 0), (24, 0), (12, 24), (0, 24)),
    31: ((0, 0), (24, 0), (24, 24), (12, 24)),
    32: ((12, 0), (24, 0), (24, 24), (0, 24)),
    33: ((0, 0), (12, 0), (24, 24), (0, 24)),
}
# Centre of the quarter circle of the curved shapes; 10..13 are solid inside it, 14..17 outside.
_ARCS = {10: (0, 0), 11: (24, 0), 12: (24, 24), 13: (0, 24), 14: (24, 24), 15: (0, 24), 16: (0, 0), 17: (24, 0)}


def tile_masks(samples: int) -> np.ndarray:
    """Solid region of every tile id: bool[256, samples, samples], [id, y, x], at the centres of a square grid.

    Ids 34..37 are single faces in the physics and drawn as full tiles; ids from 38 on have no geometry and stay open.
    """
    centre = (np.arange(samples) + 0.5) * TILE / samples
    x, y = centre[None, :], centre[:, None]
    masks = np.zeros((256, samples, samples), dtype=bool)
    for shape, corners in _POLYGONS.items():
        inside = np.ones((samples, samples), dtype=bool)
        for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
            inside &= (bx - ax) * (y - ay) - (by - ay) * (x - ax) >= 0  # corners run clockwise on screen
        masks[shape] = inside
    for shape, (cx, cy) in _ARCS.items():
        disc = (x - cx) ** 2 + (y - cy) ** 2 <= TILE**2
        masks[shape] = disc if shape < 14 else ~disc
    masks[34:NUM_SHAPES] = True
    return masks


def stage_tiles(tiles: np.ndarray) -> np.ndarray:
    """Tile ids of the whole stage, uint8[25, 44]: the 23 x 42 tiles of a level inside the solid frame."""
    stage = np.ones((STAGE[1], STAGE[0]), dtype=np.uint8)
    stage[1:-1, 1:-1] = tiles
    return stage


def used_region(level, positions=(), margin: int = 1) -> Box:
    """Tiles (left, top, right, bottom) around all that the ninja's body can get to from its spawn, plus a margin.

    The exit and its switch always lie inside, and so do ``positions``: [n, 2] px, e.g. those of a run.  Doors count as
    open, and the body as a little smaller than it is.
    """
    samples = TILE // _STEP
    open_ = ~tile_masks(samples)[stage_tiles(level.tiles)].transpose(0, 2, 1, 3).reshape(
        STAGE[1] * samples, STAGE[0] * samples
    )
    offsets = [(dy, dx) for dy in range(-2, 3) for dx in range(-2, 3) if 0 < dy * dy + dx * dx <= 5]
    free = open_.copy()  # where the body's centre may be: no solid sample within 9 px
    for offset in offsets:
        free &= np.roll(open_, offset, axis=(0, 1))
    goals = [(6.0 * x, 6.0 * y) for kind, x, y, *_ in level.records.tolist() if kind in (3, 4)]
    points = np.vstack([[level.spawn], np.reshape(positions, (-1, 2)), np.reshape(goals, (-1, 2))])
    columns = np.clip(points[:, 0] // _STEP, 0, free.shape[1] - 1).astype(int)
    rows = np.clip(points[:, 1] // _STEP, 0, free.shape[0] - 1).astype(int)
    seen = np.zeros_like(free)
    seen[rows, columns] = True
    start = np.zeros_like(free)
    start[rows[0], columns[0]] = True
    for _ in range(3):  # a spawn that touches a wall is not free itself
        start = _grown(start)
    seen |= _flooded(start & free, free)
    for _ in range(2):
        seen = _grown(seen)
    rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
    return (
        max(int(columns[0]) // samples - margin, 0),
        max(int(rows[0]) // samples - margin, 0),
        min(int(columns[-1]) // samples + 1 + margin, STAGE[0]),
        min(int(rows[-1]) // samples + 1 + margin, STAGE[1]),
    )


def _grown(mask):
    """The mask and its four neighbours."""
    grown = mask.copy()
    grown[1:] |= mask[:-1]
    grown[:-1] |= mask[1:]
    grown[:, 1:] |= mask[:, :-1]
    grown[:, :-1] |= mask[:, 1:]
    return grown


def _flooded(seen, free):
    """Everything in ``free`` that is connected with ``seen``."""
    count = -1
    while count != (count := np.count_nonzero(seen)):
        for _ in range(8):
            seen = _grown(seen) & free
    return seen


def widened(region: Box) -> Box:
    """The region grown on both sides, within the stage, to at least MIN_VIEW tiles."""
    sides = []
    for low, high, least, most in zip(region[:2], region[2:], MIN_VIEW, STAGE, strict=True):
        low = min(max(low - max(least - (high - low), 0) // 2, 0), max(most - least, 0)) if high - low < least else low
        sides.append((low, max(high, low + least)))
    return (sides[0][0], sides[1][0], sides[0][1], sides[1][1])
