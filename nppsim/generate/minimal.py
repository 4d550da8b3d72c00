"""Generator "minimal": a straight, empty corridor, sometimes with a door across it."""

from nppsim.generate.cave import Cave, level_ground, order_of_goals
from nppsim.generate.sketch import UPRIGHT, Rng, Sketch, Span, draw, level_rng, nudge, place
from nppsim.levels import kinds
from nppsim.levels.level import STEPS_PER_TILE, Level


def minimal(seed: int, *, width: Span, height: Span, door_share: float = 0.0) -> Level:
    """Generate a corridor with spawn, switch and exit on its floor in any order.

    width, height: tiles; width at least 3.
    door_share: probability of a locked, regular or trap door between the spawn and the goals, for corridors of height 1
        and width 5 or more.
    """
    rng = level_rng("minimal", seed)
    columns, rows = draw(rng, width), draw(rng, height)
    cave = Cave(level_ground(columns), level_ground(columns), rows)
    if rows == 1 and columns >= 5 and rng.random() < door_share:
        return place(_with_door(rng, cave), rng)
    return place(cave.sketch(rng, *order_of_goals(rng, range(columns), apart=2)), rng)


def _with_door(rng: Rng, cave: Cave) -> Sketch:
    kind = rng.choice(["locked", "regular", "trap"])
    border = draw(rng, (2, cave.columns - 3))  # the door stands at the left border of this column
    before, behind = rng.permutation(border), border + 1 + rng.permutation(cave.columns - border - 1)
    sketch = cave.sketch(rng, int(before[0]), int(behind[0]), int(behind[1]))
    door = (STEPS_PER_TILE * border, cave.standing(border)[1])
    if kind == "locked":
        sketch.locked_doors.append((nudge(rng, cave.standing(int(before[1]))), door, UPRIGHT))
    elif kind == "trap":  # the switch is behind the door, so the door closes after the ninja has passed
        sketch.trap_doors.append((cave.standing(int(behind[-1])), door, UPRIGHT))
    else:
        sketch.entities.append((kinds.REGULAR_DOOR, *door, UPRIGHT))
    return sketch
