"""Generator "horizontal": a straight corridor with bumps on floor and ceiling, steps, and mines."""

from nppsim.generate.cave import Cave, add_bumps, level_ground, order_of_goals, spread_mines
from nppsim.generate.sketch import Span, draw, level_rng, line_with_mines, place
from nppsim.levels.level import Level

# Heights in half-tiles at the left and right border of each column.  The ninja walks over bumps, and jumps onto steps.
BUMPS = (
    [(0, 1), (1, 0)],
    [(0, 1), (1, 1), (1, 0)],
    [(0, 1), (1, 2), (2, 1), (1, 0)],
    [(0, 2), (2, 0)],
    [(0, 2), (2, 2), (2, 1), (1, 0)],
)
STEPS_UP = (
    [(1, 1)],
    [(1, 1), (1, 1)],
    [(2, 2)],
    [(2, 2), (2, 2)],
    [(0, 2), (2, 2)],
    [(2, 1), (1, 0)],
)
CEILING_BUMPS = ([(0, 1), (1, 0)], [(1, 1)], [(0, 1), (1, 1), (1, 1), (1, 0)])


def horizontal(
    seed: int,
    *,
    width: Span,
    height: Span,
    bumps: Span = (0, 0),
    steps: Span = (0, 0),
    mines: Span = (0, 0),
    hanging: Span = (0, 0),
) -> Level:
    """Generate a corridor with spawn, switch and exit in any order.

    width, height: tiles; width at least 4.
    bumps, steps, mines: numbers of each; fewer where they do not fit.  Corridors lower than 2 tiles have no bumps;
        corridors lower than 3 have no steps and mines.
    hanging: number of mines on the ceiling, where two tiles below them are free.
    """
    rng = level_rng("horizontal", seed)
    columns, rows = draw(rng, width), draw(rng, height)
    ground, ceiling = level_ground(columns), level_ground(columns)
    if rows >= 2:
        add_bumps(rng, ground, BUMPS, draw(rng, bumps))
    if rows >= 3:
        add_bumps(rng, ground, STEPS_UP, draw(rng, steps))
        add_bumps(rng, ceiling, CEILING_BUMPS, draw(rng, bumps))
    cave = Cave(ground, ceiling, rows)
    spawn, switch, door = order_of_goals(rng, cave.flat(), apart=2)
    sketch = cave.sketch(rng, spawn, switch, door)
    if rows >= 3:
        sketch.entities += spread_mines(rng, cave, draw(rng, mines), cave.flat(), (spawn, switch, door))
    if hanging[1]:
        sketch.entities += line_with_mines(rng, sketch.tiles, draw(rng, hanging), (), ("ceiling",))
    return place(sketch, rng)
