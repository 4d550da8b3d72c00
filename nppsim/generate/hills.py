"""Generator "hills": a wide cave over hills with gentle, 45-degree and vertical slopes."""

import numpy as np

from nppsim.generate.cave import Cave, level_ground, order_of_goals, spread_mines
from nppsim.generate.sketch import Rng, Span, draw, level_rng, place
from nppsim.levels.level import Level
from nppsim.levels.stage import COLUMNS

HEADROOM = 3  # minimum number of tiles between a hill and the ceiling


def hills(seed: int, *, width: Span, height: Span, hills: Span, step: Span, mines: Span = (0, 0)) -> Level:
    """Generate hills in a row; spawn, switch and exit are on level ground.

    width, height: tiles; the width increases if the hills need it.
    hills: number of hills.
    step: height of a hill in tiles, at most 3 (a jump rises 3.2).
    mines: number of mines on level ground.
    """
    rng = level_rng("hills", seed)
    columns, rows = draw(rng, width), draw(rng, height)
    ground = _valley(rng, draw(rng, (0, 1)))
    for _ in range(draw(rng, hills)):
        tallest = min(step[1], rows - HEADROOM - ground[-1, 1] // 2)
        up = draw(rng, (min(step[0], tallest), tallest))
        down = min(draw(rng, step), ground[-1, 1] // 2 + up)
        hill = _flank(rng, ground, up)
        hill = np.concatenate([hill, level_ground(draw(rng, (1, 3)), hill[-1, 1])])
        hill = _flank(rng, hill, -down)
        hill = np.concatenate([hill, _valley(rng, hill[-1, 1] // 2)])
        if len(hill) > COLUMNS:
            break  # the stage is full
        ground = hill
    missing = columns - len(ground)
    if missing > 0:  # widen both ends
        left = draw(rng, (0, missing))
        ground = np.concatenate([level_ground(left, ground[0, 0]), ground, level_ground(missing - left, ground[-1, 1])])
    cave = Cave(ground, level_ground(len(ground)), rows)
    goals = order_of_goals(rng, cave.flat(), apart=len(ground) // 3)
    sketch = cave.sketch(rng, *goals)
    if mines[1]:
        sketch.entities += spread_mines(rng, cave, draw(rng, mines), cave.flat(), goals)
    return place(sketch, rng)


def _valley(rng: Rng, tiles: int) -> np.ndarray:
    return level_ground(draw(rng, (2, 4)), 2 * tiles)


def _flank(rng: Rng, ground: np.ndarray, rise: int) -> np.ndarray:
    """Append to ``ground`` a slope of ``rise`` tiles (negative: down): gentle, 45 degrees, or a cliff."""
    columns_per_tile = rng.choice([0, 1, 2], p=[0.3, 0.4, 0.3])
    if columns_per_tile == 0:
        return np.concatenate([ground, level_ground(1, ground[-1, 1] + 2 * rise)])
    heights = ground[-1, 1] + np.linspace(0, 2 * rise, abs(rise) * columns_per_tile + 1).astype(np.int64)
    return np.concatenate([ground, np.stack([heights[:-1], heights[1:]], axis=1)])
