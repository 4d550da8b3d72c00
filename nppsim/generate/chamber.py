"""Generator "chamber": one room, empty, with an uneven floor, or with an obstacle or gap between the spawn and a goal."""

import numpy as np

from nppsim.generate.cave import Cave, level_ground, order_of_goals, sections
from nppsim.generate.sketch import Rng, Span, draw, level_rng, place
from nppsim.levels.level import Level

SIDE = 3  # minimum number of columns on either side of an obstacle or gap
HEADROOM = 2  # minimum number of tiles between an obstacle and the ceiling


def chamber(seed: int, *, width: Span, height: Span, kind: str) -> Level:
    """Generate a room.

    width, height: tiles; height at least 4.
    kind: "flat"; "uneven" (floor 0 to 3 tiles high); "obstacle" (a block of 1-3 x 1-3 tiles); "gap" (a pit of 2-4 columns,
        1-3 tiles deep, without mines).
    """
    rng = level_rng("chamber", seed)
    columns, rows = draw(rng, width), draw(rng, height)
    if kind in ("flat", "uneven"):
        ground = level_ground(columns) if kind == "flat" else _uneven(rng, columns, rows)
        cave = Cave(ground, level_ground(columns), rows)
        return place(cave.sketch(rng, *order_of_goals(rng, cave.flat(), apart=3)), rng)
    if kind == "obstacle":
        middle, floor, barrier = draw(rng, (1, 3)), 0, 2 * draw(rng, (1, min(3, rows - HEADROOM)))
    elif kind == "gap":
        deep = draw(rng, (1, 3))
        middle, floor, barrier, rows = draw(rng, (2, 4)), 2 * deep, 0, rows + deep
    else:
        raise ValueError(f"kind={kind!r}; use 'flat', 'uneven', 'obstacle' or 'gap'")
    left = draw(rng, (SIDE, max(SIDE, columns - middle - SIDE)))
    right = max(SIDE, columns - middle - left)
    ground = sections((left, floor), (middle, barrier), (right, floor))
    if kind == "obstacle" and rng.random() < 0.4:  # a ramp on the near side
        ramp = min(barrier // 2, left - 2)
        for i in range(ramp):
            ground[left - 1 - i] = (barrier - 2 * i - 2, barrier - 2 * i)
    cave = Cave(ground, level_ground(len(ground)), rows)
    near, far = np.arange(left - 1), np.arange(left + middle, len(ground))
    spawn = int(rng.choice(near[: max(1, len(near) - 1)]))
    # One goal is on the far side, the other one anywhere except at the spawn.
    across = int(rng.choice(far))
    other = int(rng.choice([c for c in (*near, *far) if c not in (spawn, across) and c in cave.flat()] or [across - 1]))
    switch, door = (across, other) if rng.random() < 0.5 else (other, across)
    return place(cave.sketch(rng, spawn, switch, door), rng)


def _uneven(rng: Rng, columns: int, rows: int) -> np.ndarray:
    """Return a floor of level pieces with 2 to 4 columns each."""
    highest = min(3, rows - 3)
    parts = []
    while columns > 0:
        piece = min(columns, draw(rng, (2, 4)))
        parts.append((piece, 2 * draw(rng, (0, highest))))
        columns -= piece
    return sections(*parts)
