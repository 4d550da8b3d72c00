"""The visible part of the stage: solid pixels, the reachable region of a level, and the scale of its picture."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from nppsim.errors import UserError
from nppsim.levels import kinds, tiles
from nppsim.levels.level import POSITION_UNIT, TYPE, Level, X, Y
from nppsim.levels.stage import CELLS_X, CELLS_Y, TILE

STAGE = (CELLS_X, CELLS_Y)  # width and height of the stage with its solid frame, tiles
FILM_SIZE = (1056, 600)  # px; at scale 1, a region is enlarged to fit into this size, at most by the factor 2
MIN_VIEW = (12, 5)  # minimum width and height of a film's region, tiles; leaves room for the text below it
MAX_SCALE = 8.0  # maximum output pixels per level pixel; drawing the stage at this scale needs 2 GB of memory
_STEP = 4  # px between the samples of the flood fill in ``used_region``

Box = tuple[int, int, int, int]  # left, top, right, bottom
WHOLE_STAGE: Box = (0, 0, *STAGE)


class RenderError(UserError, ValueError):
    """A picture that cannot be drawn as requested; the message states the reason and the remedy."""


@cache
def tile_masks(samples: int) -> np.ndarray:
    """Return ``tiles.solid_mask`` of every tile id: bool[256, samples, samples], indexed [id, y, x]."""
    masks = np.array([tiles.solid_mask(tile, samples) for tile in range(256)])
    masks.setflags(write=False)
    return masks


def solid_samples(level: Level, samples: int, region: Box = WHOLE_STAGE, margin: int = 0) -> np.ndarray:
    """Return a mask of the solid sample points of a region: bool[rows * samples, columns * samples].

    samples: sample points per tile along each axis.
    margin: number of columns and rows of solid tiles added on each side of the region.
    """
    stage = np.pad(level.tiles, 1, constant_values=tiles.SOLID)  # the solid frame
    left, top, right, bottom = region
    ids = np.pad(stage[top:bottom, left:right], margin, constant_values=tiles.SOLID)
    rows, columns = ids.shape
    return tile_masks(samples)[ids].transpose(0, 2, 1, 3).reshape(rows * samples, columns * samples)


def used_region(level: Level, positions: np.ndarray | Sequence = ()) -> Box:
    """Return the region (left, top, right, bottom; tiles) that the ninja can reach from its spawn, with a margin of one tile.

    The region includes exits and their switches.  All doors count as open, and the ninja's radius is reduced to 9 px.
    positions: float[n, 2] px, additional points to include, for example the positions of the ninja in a run.
    """
    samples = TILE // _STEP
    open_ = ~solid_samples(level, samples)
    free = open_.copy()  # possible centres of the ninja: no solid sample within 9 px
    for offset in [(dy, dx) for dy in range(-2, 3) for dx in range(-2, 3) if 0 < dy * dy + dx * dx <= 5]:
        free &= np.roll(open_, offset, axis=(0, 1))
    goals = level.records[np.isin(level.records[:, TYPE], (kinds.EXIT, kinds.EXIT_SWITCH)), X : Y + 1] * float(
        POSITION_UNIT
    )
    points = np.vstack([[level.spawn], np.reshape(positions, (-1, 2)), goals])
    columns = np.clip(points[:, 0] // _STEP, 0, free.shape[1] - 1).astype(int)
    rows = np.clip(points[:, 1] // _STEP, 0, free.shape[0] - 1).astype(int)
    seen = np.zeros_like(free)
    seen[rows, columns] = True
    start = np.zeros_like(free)
    start[rows[0], columns[0]] = True
    for _ in range(3):  # a spawn that touches a wall is not free
        start = _grown(start)
    seen |= _flooded(start & free, free)
    for _ in range(2):
        seen = _grown(seen)
    rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
    return (
        max(int(columns[0]) // samples - 1, 0),
        max(int(rows[0]) // samples - 1, 0),
        min(int(columns[-1]) // samples + 2, STAGE[0]),
        min(int(rows[-1]) // samples + 2, STAGE[1]),
    )


def _grown(mask: np.ndarray) -> np.ndarray:
    """Return the mask grown by one sample in four directions."""
    grown = mask.copy()
    grown[1:] |= mask[:-1]
    grown[:-1] |= mask[1:]
    grown[:, 1:] |= mask[:, :-1]
    grown[:, :-1] |= mask[:, 1:]
    return grown


def _flooded(seen: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return the samples of ``free`` that are connected to ``seen``."""
    before, count = -1, int(np.count_nonzero(seen))
    while count != before:
        for _ in range(8):
            seen = _grown(seen) & free
        before, count = count, int(np.count_nonzero(seen))
    return seen


def widened(region: Box) -> Box:
    """Return the region enlarged to at least MIN_VIEW, within the stage."""
    left, top, right, bottom = region
    left, right = _widened_side(left, right, MIN_VIEW[0], STAGE[0])
    top, bottom = _widened_side(top, bottom, MIN_VIEW[1], STAGE[1])
    return left, top, right, bottom


def _widened_side(low: int, high: int, least: int, most: int) -> tuple[int, int]:
    missing = least - (high - low)
    if missing > 0:
        low = min(max(low - missing // 2, 0), most - least)
    return low, max(high, low + least)


def pixels_per_tile(scale: float) -> int:
    """Return the number of pixels per tile at a scale, an integer.  Raises RenderError for a scale out of range."""
    if not 0 < scale <= MAX_SCALE:
        raise RenderError(
            f"scale={scale} is outside 0..{MAX_SCALE:g}; 1.0 draws the stage at {FILM_SIZE[0]} x {FILM_SIZE[1]} px"
        )
    return max(1, round(TILE * scale))


def film_pixels_per_tile(region: Box, scale: float) -> int:
    """Return the largest even number of pixels per tile at which a region fits into FILM_SIZE * scale, at most 2 * TILE."""
    pixels_per_tile(scale)  # raises RenderError for an invalid scale
    fit = min(FILM_SIZE[0] / (region[2] - region[0]), FILM_SIZE[1] / (region[3] - region[1]), 2 * TILE)
    return max(2, 2 * int(fit * scale / 2))


def fitting_pixels_per_tile(region: Box, size: tuple[int, int]) -> int:
    """Return the largest whole number of pixels per tile at which a region fits into ``size`` (px), at most 2 * TILE.

    Raises RenderError if ``size`` has less than one pixel per tile of the stage.
    """
    if min(size[0] // STAGE[0], size[1] // STAGE[1]) < 1:
        raise RenderError(f"a picture of {size[0]} x {size[1]} px is too small; give at least {STAGE[0]} x {STAGE[1]}")
    return min(size[0] // (region[2] - region[0]), size[1] // (region[3] - region[1]), 2 * TILE)
