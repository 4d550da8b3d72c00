"""Generator "jump": platforms and pits between them, with a few mines."""

import numpy as np

from nppsim.generate.cave import Cave, level_ground, sections, spread_mines
from nppsim.generate.sketch import Span, draw, level_rng, place
from nppsim.levels.level import Level

DEPTH = (2, 4)  # tiles from the lowest platform to the bottom of the pits
PLATFORM = 4  # minimum number of columns of a platform
HEADROOM = 4  # minimum number of tiles above a platform


def jump(seed: int, *, width: Span, height: Span, pit: Span, mines: Span = (0, 0), deadly: float = 0.5) -> Level:
    """Generate two platforms (or three if there is room); spawn on the first one, a goal on the last one.

    width, height: tiles.
    pit: columns of a pit.
    mines: number of mines per platform.
    deadly: probability that mines cover the bottom of the pits; the ninja can climb out of other pits.
    """
    rng = level_rng("jump", seed)
    columns, rows = draw(rng, width), draw(rng, height)
    bottom = min(draw(rng, DEPTH), rows - HEADROOM)
    pits = [draw(rng, pit)]
    if columns >= 3 * PLATFORM + 2 * pit[1] and rng.random() < 0.5:
        pits.append(draw(rng, pit))
    spare = columns - sum(pits) - PLATFORM * (len(pits) + 1)
    parts, edge = [], 0  # (columns, height) of each section, and first column of the next one
    platforms = []
    for i in range(len(pits) + 1):
        extra = draw(rng, (0, max(0, spare))) if i < len(pits) else max(0, spare)
        spare -= extra
        rise = draw(rng, (0, min(2, rows - HEADROOM - bottom)))
        parts.append((PLATFORM + extra, 2 * (bottom + rise)))
        platforms.append(range(edge, edge + PLATFORM + extra))
        edge += PLATFORM + extra
        if i < len(pits):
            parts.append((pits[i], 0))
            edge += pits[i]
    cave = Cave(sections(*parts), level_ground(edge), rows)

    spawn = draw(rng, (0, 2))
    across = int(rng.choice(platforms[-1][2:]))
    anywhere = np.concatenate([platform[3:] for platform in platforms])
    other = int(rng.choice(anywhere[anywhere != across]))
    switch, door = rng.permutation([across, other]).tolist()
    sketch = cave.sketch(rng, spawn, switch, door)
    for platform in platforms:
        sketch.entities += spread_mines(rng, cave, draw(rng, mines), platform[1:-1], (spawn, switch, door))
    if rng.random() < deadly:
        sketch.entities += [cave.mine(c) for c in range(edge) if cave.ground[c, 0] == 0]
    return place(sketch, rng)
