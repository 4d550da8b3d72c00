"""Tiles as outlines, entities in type order, and the state of an environment, as plain Python values.

Source: docs/physics.md, sections 2.2, 2.3, 3.3, 7.4 and 7.10.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.physics.shooters import FIRING, ROCKET_SPEEDS, WATCHING
from nppsim.physics.state import ENTITY_DTYPE, MOVER_DTYPE

WIDTH, HEIGHT = 44, 25  # cells
TILE = 24  # px, side of a cell
UNIT = 6.0  # px, of coordinates in level files

# ---------------------------------------------------------------------------------------------------------------- tiles
CORNERS = {(1, 1): (0, 0), (-1, 1): (24, 0), (-1, -1): (24, 24), (1, -1): (0, 24)}  # direction inwards -> corner
# Solid polygons, as listed in docs/physics.md, section 3.3.
_OUTLINES = {
    1: "0,0 24,0 24,24 0,24",
    2: "0,0 24,0 24,12 0,12",
    3: "12,0 24,0 24,24 12,24",
    4: "0,12 24,12 24,24 0,24",
    5: "0,0 12,0 12,24 0,24",
    6: "0,0 24,0 0,24",
    7: "0,0 24,0 24,24",
    8: "24,0 24,24 0,24",
    9: "0,0 24,24 0,24",
    18: "0,0 24,0 0,12",
    19: "0,0 24,0 24,12",
    20: "24,12 24,24 0,24",
    21: "0,12 24,24 0,24",
    22: "0,0 24,0 24,12 0,24",
    23: "0,0 24,0 24,24 0,12",
    24: "24,0 24,24 0,24 0,12",
    25: "0,0 24,12 24,24 0,24",
    26: "0,0 12,0 0,24",
    27: "12,0 24,0 24,24",
    28: "24,0 24,24 12,24",
    29: "0,0 12,24 0,24",
    30: "0,0 24,0 12,24 0,24",
    31: "0,0 24,0 24,24 12,24",
    32: "12,0 24,0 24,24 0,24",
    33: "0,0 12,0 24,24 0,24",
}
OUTLINES: dict[int, list[tuple[int, int]]] = {
    t: [(int(x), int(y)) for x, y in (p.split(",") for p in text.split())] for t, text in _OUTLINES.items()
}
QUARTER_DISCS = dict(zip((10, 11, 12, 13), CORNERS, strict=True))
FILLETS = dict(zip((14, 15, 16, 17), CORNERS, strict=True))
ONE_FACED = range(34, 38)


def solid(tile: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which points of a tile (px from its corner) are solid: bool of their shape; one-faced tiles count as full."""
    if tile == 0 or tile > 37:
        return np.zeros(np.shape(x), bool)
    if tile in QUARTER_DISCS or tile in FILLETS:
        inwards = QUARTER_DISCS.get(tile) or FILLETS[tile]
        if tile in QUARTER_DISCS:
            cx, cy = CORNERS[inwards]
            return (x - cx) ** 2 + (y - cy) ** 2 < 24**2
        cx, cy = (24 - c for c in CORNERS[inwards])
        return (x - cx) ** 2 + (y - cy) ** 2 >= 24**2
    outline = OUTLINES[1 if tile in ONE_FACED else tile]
    inside = np.ones(np.shape(x), bool)
    for (x1, y1), (x2, y2) in zip(outline, outline[1:] + outline[:1], strict=True):
        inside &= (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) > 0
    return inside


def stage(level: Level) -> dict[tuple[int, int], int]:
    """{(cx, cy): tile} with the border of full tiles."""
    inner = {(c + 1, r + 1): int(t) for (r, c), t in np.ndenumerate(level.tiles)}
    return {(x, y): inner.get((x, y), 1) for x in range(WIDTH) for y in range(HEIGHT)}


def _edge_lines(tile: int) -> list[tuple[int, int, int, int]]:
    """Straight surfaces of a tile, as (x1, y1, x2, y2): those on its border by half, from left to right or downwards."""
    if tile in ONE_FACED:
        ends = [((0, 0), (24, 0)), ((24, 0), (24, 24)), ((0, 24), (24, 24)), ((0, 0), (0, 24))][tile - ONE_FACED[0]]
        sides = [ends]
    elif tile in QUARTER_DISCS or tile in FILLETS:
        inwards = QUARTER_DISCS.get(tile) or FILLETS[tile]
        x, y = CORNERS[inwards]
        sides = [((x, y), (24 - x, y)), ((x, y), (x, 24 - y))]
    else:
        outline = OUTLINES.get(tile, [])
        sides = list(zip(outline, outline[1:] + outline[:1], strict=True))
    lines = []
    for (x1, y1), (x2, y2) in sides:
        x1, y1, x2, y2 = (x1, y1, x2, y2) if (x1, y1) < (x2, y2) else (x2, y2, x1, y1)
        if x1 != x2 and y1 != y2:
            lines.append((x1, y1, x2, y2))
        elif y1 == y2:
            lines += [(x, y1, x + 12, y1) for x in range(x1, x2, 12)]
        else:
            lines += [(x1, y, x1, y + 12) for y in range(y1, y2, 12)]
    return lines


Distance = Callable[[np.ndarray, np.ndarray], np.ndarray]  # px from points (x, y)


def _from_line(x1: int, y1: int, x2: int, y2: int) -> Distance:
    def distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        dx, dy = x2 - x1, y2 - y1
        share = np.clip(((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy), 0, 1)
        return np.hypot(x - x1 - share * dx, y - y1 - share * dy)

    return distance


def _from_arc(cx: int, cy: int, hor: int, ver: int) -> Distance:
    def distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        ends = np.minimum(np.hypot(x - cx - 24 * hor, y - cy), np.hypot(x - cx, y - cy - 24 * ver))
        facing = ((x - cx) * hor > 0) & ((y - cy) * ver > 0)
        return np.where(facing, abs(np.hypot(x - cx, y - cy) - 24), ends)

    return distance


def surfaces(level: Level) -> list[tuple[tuple[int, int, int, int], Distance]]:
    """Surfaces of a level's tiles: (left, top, right, bottom) in px, and the distance from it.

    Where both tiles at an edge have a surface there, there is none; nor at the rim of the stage.
    """
    lines: Counter[tuple[int, int, int, int]] = Counter()
    found = []
    for (column, row), tile in stage(level).items():
        left, top = TILE * column, TILE * row
        lines.update((left + x1, top + y1, left + x2, top + y2) for x1, y1, x2, y2 in _edge_lines(tile))
        if tile in QUARTER_DISCS or tile in FILLETS:
            hor, ver = QUARTER_DISCS.get(tile) or FILLETS[tile]
            x, y = CORNERS[hor, ver]
            if tile in FILLETS:
                x, y, hor, ver = 24 - x, 24 - y, -hor, -ver
            found.append(((left, top, left + 24, top + 24), _from_arc(left + x, top + y, hor, ver)))
    for (x1, y1, x2, y2), count in lines.items():
        at_rim = x1 == x2 in (0, TILE * WIDTH) or y1 == y2 in (0, TILE * HEIGHT)
        if count == 1 and not at_rim:
            found.append(((x1, min(y1, y2), x2, max(y1, y2)), _from_line(x1, y1, x2, y2)))
    return found


def raster(level: Level, points: int) -> np.ndarray:
    """bool[25 * points, 44 * points], y first: which of points x points samples of each tile are solid."""
    centre = (np.arange(points) + 0.5) * 24 / points
    x, y = np.meshgrid(centre, centre)
    tiles = stage(level)
    samples = {tile: solid(tile, x, y) for tile in set(tiles.values())}
    out = np.zeros((HEIGHT * points, WIDTH * points), bool)
    for (cx, cy), tile in tiles.items():
        out[cy * points : (cy + 1) * points, cx * points : (cx + 1) * points] = samples[tile]
    return out


def averaged(image: np.ndarray, size: int) -> np.ndarray:
    """Means of size x size blocks."""
    h, w = image.shape
    return image.reshape(h // size, size, w // size, size).mean(axis=(1, 3))


# ------------------------------------------------------------------------------------------------------------- entities
_PLAIN = frozenset(kinds.CREATING) - {kinds.EXIT, *kinds.DOORS}  # one record, one entity where it says
_Q = math.sqrt(2) / 2
ORIENTATIONS = ((1, 0), (_Q, _Q), (0, 1), (-_Q, _Q), (-1, 0), (-_Q, -_Q), (0, -1), (_Q, -_Q))


@dataclass
class EntityTwin:
    """One entity of a level in its initial state.

    number: among those of its kind, in file order.
    x, y: px; of doors with a switch, of the switch.
    place: place in file order.
    index: place in type order.
    door: (x1, y1, x2, y2) of its segment, px, of doors only.
    partner: index of an exit's switch, and of a switch's exit.
    facing: unit vector (x, y), of one-ways and thwumps only.
    """

    kind: int
    number: int
    x: float
    y: float
    place: int
    index: int = -1
    active: int = 1
    closed: int = 0
    door: tuple[float, ...] = ()
    partner: int = -1
    facing: tuple[float, ...] = ()


def clamped_cell(x: float, y: float) -> tuple[int, int]:
    """Cell of a point in px, inside the stage."""
    return min(max(math.floor(x / TILE), 0), WIDTH - 1), min(max(math.floor(y / TILE), 0), HEIGHT - 1)


def entities(level: Level, completions: bool = True) -> list[EntityTwin]:
    """The level's entities in type order; an exit's switch directly follows it.

    A switch that the file lacks is at (0, 0) and never active.  completions: with chaser drones and lasers.
    """
    records = [tuple(int(v) for v in r) for r in level.records]
    found: list[EntityTwin] = []
    counts: dict[int, int] = {}

    def add(kind: int, x: int, y: int, **more: Any) -> None:
        found.append(EntityTwin(kind, counts.get(kind, 0), UNIT * x, UNIT * y, len(found), **more))
        counts[kind] = counts.get(kind, 0) + 1

    def add_switched(kind: int, switch: int, **more: Any) -> None:
        x, y = records[switch][1:3] if switch < len(records) else (0, 0)
        add(kind, x, y, active=int(switch < len(records)), **more)

    for i, (kind, x, y, orientation, _) in enumerate(records):
        if kind in kinds.COMPLETIONS and not completions:
            continue
        if kind in _PLAIN:
            # An oblique thwump faces up.
            turn = 6 if kind == kinds.THWUMP and orientation % 2 else orientation
            add(kind, x, y, facing=ORIENTATIONS[turn] if kind in (kinds.ONE_WAY, kinds.THWUMP) else ())
        elif kind == kinds.EXIT:
            add(kinds.EXIT, x, y)
            add_switched(kinds.EXIT_SWITCH, i + (level.exit_count or 0))
        elif kind in kinds.DOORS:
            px, py, half = UNIT * x, UNIT * y, TILE / 2
            door = (px, py - half, px, py + half) if orientation in (0, 4) else (px - half, py, px + half, py)
            more = {"door": door, "closed": int(kind != kinds.TRAP_DOOR)}
            if kind == kinds.REGULAR_DOOR:
                add(kind, x, y, **more)
            else:
                add_switched(kind, i + 1, **more)
    ordered = sorted(found, key=lambda e: (kinds.EXIT if e.kind == kinds.EXIT_SWITCH else e.kind, e.number, e.kind))
    for i, e in enumerate(ordered):
        e.index = i
        if e.kind == kinds.EXIT:
            ordered[i].partner, ordered[i + 1].partner = i + 1, i
    return ordered


# ---------------------------------------------------------------------------------------------------------------- state
class EntityState(NamedTuple):
    """State of an entity, as in ENTITY_DTYPE."""

    active: int
    state: int
    closed: int
    clock: int
    blocking: int


class MoverState(NamedTuple):
    """An entity that moves, as in MOVER_DTYPE."""

    x: float
    y: float
    vx: float
    vy: float
    target_x: float
    target_y: float
    beam: float
    order: int
    entity: int
    type: int
    cell_x: int
    cell_y: int
    mode: int
    state: int
    direction: int
    timer: int
    push_x: int
    push_y: int
    flag: int


assert EntityState._fields == ENTITY_DTYPE.names
assert MoverState._fields == MOVER_DTYPE.names


class StateTwin(NamedTuple):
    """One environment after a frame."""

    ninja: dict[str, Any]  # name -> value of the fields of NINJA_DTYPE
    states: list[EntityState]  # of each entity
    movers: dict[int, MoverState]  # by index of the entity: those that move (and exits, which stay)


def position(entity: EntityTwin, now: StateTwin) -> tuple[float, float]:
    """(x, y) of an entity in a state, px; of doors with a switch, of the switch."""
    at = now.movers.get(entity.index) or entity
    return at.x, at.y


def velocity(entity: EntityTwin, now: StateTwin) -> tuple[float, float]:
    """Of an entity in a state, px per frame; beams and crosshairs have none."""
    if entity.kind not in (*kinds.MOVING, kinds.ROCKET_TURRET):
        return 0.0, 0.0
    mover = now.movers[entity.index]
    if entity.kind == kinds.ROCKET_TURRET:
        speed = float(ROCKET_SPEEDS[mover.timer]) if mover.state == FIRING else 0.0
        return speed * mover.vx, speed * mover.vy
    if entity.kind in kinds.SHOOTING_DRONES and mover.state != WATCHING:
        return 0.0, 0.0
    return mover.vx, mover.vy
