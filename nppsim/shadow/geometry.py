"""Tiles as outlines, entities in type order, and states of environments, as plain Python values.

Source: docs/physics.md, sections 2.2, 2.3, 3.3, 7.4 and 7.10.
"""

import math
from collections import Counter, namedtuple
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nppsim.levels import kinds
from nppsim.levels.format import POSITION_UNIT
from nppsim.levels.level import Level
from nppsim.levels.stage import CELLS_X, CELLS_Y, TILE
from nppsim.physics.shooters import FIRING, ROCKET_SPEEDS, WATCHING
from nppsim.physics.state import ENTITY_DTYPE, MOVER_DTYPE

# ---------------------------------------------------------------------------------------------------------------- tiles
# Corners of a tile and middles of its edges:
#   a b c
#   d   e
#   f g h
_POINTS = dict(zip("abcdefgh", [(0, 0), (12, 0), (24, 0), (0, 12), (24, 12), (0, 24), (12, 24), (24, 24)], strict=True))
# Outlines of tiles 1 to 9 and 18 to 33, clockwise (docs/physics.md, section 3.3).
_OUTLINES = (
    "achf aced bchg dehf abgf acf ach chf ahf acd ace ehf dhf acef achd chfd aehf abf bch chg agf acgf achg bchf abhf"
)
# Tiles 10 to 17: (x, y) of the arc's centre, direction (x, y) from there into the tile, True if the disc is solid.
_CORNERS = ((0, 0, 1, 1), (24, 0, -1, 1), (24, 24, -1, -1), (0, 24, 1, -1))
ARCS = {10 + k: (*_CORNERS[k], True) for k in range(4)} | {14 + k: (*_CORNERS[k - 2], False) for k in range(4)}
ONE_FACED = range(34, 38)
Side = tuple[tuple[int, int], tuple[int, int]]
SIDES: dict[int, list[Side]] = {
    tile: [(_POINTS[a], _POINTS[b]) for a, b in zip(outline, outline[1:] + outline[0], strict=True)]
    for tile, outline in zip((*range(1, 10), *range(18, 34)), _OUTLINES.split(), strict=True)
}


def solid(tile: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return True for the solid points of a tile.  x, y: px from its corner.  One-sided tiles count as solid."""
    if tile in ARCS:
        cx, cy, _, _, is_disc = ARCS[tile]
        return ((x - cx) ** 2 + (y - cy) ** 2 < TILE**2) == is_disc
    sides = SIDES.get(1 if tile in ONE_FACED else tile, [])
    inside = np.full(np.shape(x), bool(sides))
    for (x1, y1), (x2, y2) in sides:
        inside &= (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) > 0
    return inside


def stage(level: Level) -> np.ndarray:
    """Return the tiles with the border of solid tiles, uint8[44, 25], x first."""
    return np.pad(level.tiles, 1, constant_values=1).T


def _edge_lines(tile: int) -> list[tuple[int, int, int, int]]:
    """Return the straight surfaces of a tile as (x1, y1, x2, y2), px, pointing right or down.

    Horizontal and vertical surfaces are split into pieces of 12 px.
    """
    sides = [SIDES[1][tile - ONE_FACED[0]]] if tile in ONE_FACED else SIDES.get(tile, [])
    if tile in ARCS:
        x, y, _, _, is_disc = ARCS[tile]
        x, y = (x, y) if is_disc else (TILE - x, TILE - y)
        sides = [((x, y), (TILE - x, y)), ((x, y), (x, TILE - y))]
    lines = []
    for side in sides:
        (x1, y1), (x2, y2) = sorted(side)
        parts = 1 if x1 != x2 and y1 != y2 else (x2 - x1 + y2 - y1) // 12
        dx, dy = (x2 - x1) // parts, (y2 - y1) // parts
        lines += [(x1 + k * dx, y1 + k * dy, x1 + (k + 1) * dx, y1 + (k + 1) * dy) for k in range(parts)]
    return lines


def _from_line(x1: int, y1: int, x2: int, y2: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    dx, dy = x2 - x1, y2 - y1
    share = np.clip(((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy), 0, 1)
    return np.hypot(x - x1 - share * dx, y - y1 - share * dy)


def _from_arc(cx: int, cy: int, hor: int, ver: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    ends = np.minimum(np.hypot(x - cx - TILE * hor, y - cy), np.hypot(x - cx, y - cy - TILE * ver))
    facing = ((x - cx) * hor > 0) & ((y - cy) * ver > 0)
    return np.where(facing, abs(np.hypot(x - cx, y - cy) - TILE), ends)


def surfaces(level: Level) -> list[tuple[tuple[int, int, int, int], partial[np.ndarray]]]:
    """Bounding box (left, top, right, bottom), px, and distance function of each surface of a level's tiles.

    Surfaces of two tiles at the same edge cancel each other, and the rim of the stage has none.
    """
    lines: Counter[tuple[int, int, int, int]] = Counter()
    shapes = []
    for (column, row), tile in np.ndenumerate(stage(level)):
        left, top = TILE * column, TILE * row
        lines.update((left + x1, top + y1, left + x2, top + y2) for x1, y1, x2, y2 in _edge_lines(tile))
        if tile in ARCS:
            x, y, hor, ver, _ = ARCS[tile]
            shapes.append(((left, top, left + TILE, top + TILE), partial(_from_arc, left + x, top + y, hor, ver)))
    for (x1, y1, x2, y2), count in lines.items():
        at_rim = x1 == x2 in (0, TILE * CELLS_X) or y1 == y2 in (0, TILE * CELLS_Y)
        if count == 1 and not at_rim:
            shapes.append(((x1, min(y1, y2), x2, max(y1, y2)), partial(_from_line, x1, y1, x2, y2)))
    return shapes


def raster(level: Level, points: int) -> np.ndarray:
    """Sample each tile at points x points positions; return bool[25 * points, 44 * points], y first, True if solid."""
    centre = (np.arange(points) + 0.5) * TILE / points
    x, y = np.meshgrid(centre, centre)
    tiles, index = np.unique(stage(level).T, return_inverse=True)
    samples = np.stack([solid(tile, x, y) for tile in tiles.tolist()])[index.reshape(CELLS_Y, CELLS_X)]
    return samples.swapaxes(1, 2).reshape(CELLS_Y * points, CELLS_X * points)


def averaged(image: np.ndarray, size: int) -> np.ndarray:
    """Return the means of size x size blocks of an image."""
    h, w = image.shape
    return image.reshape(h // size, size, w // size, size).mean(axis=(1, 3))


# ------------------------------------------------------------------------------------------------------------- entities
# Entity types whose record in a level creates one entity, at the position of the record.
_PLAIN = frozenset(kinds.CREATING) - {kinds.EXIT, *kinds.DOORS}
_Q = math.sqrt(2) / 2
ORIENTATIONS = ((1, 0), (_Q, _Q), (0, 1), (-_Q, _Q), (-1, 0), (-_Q, -_Q), (0, -1), (_Q, -_Q))


@dataclass
class ReferenceEntity:
    """One entity of a level in its initial state.

    x, y: position, px; for a door with a switch, that of the switch.
    order: index in file order.
    index: index in type order.
    door: segment (x1, y1, x2, y2) of a door, px.
    partner: index of an exit's switch or a switch's exit.
    facing: unit vector (x, y) of a one-way or thwump.
    """

    kind: int
    x: float
    y: float
    order: int
    index: int = -1
    active: int = 1
    closed: int = 0
    door: tuple[float, ...] = ()
    partner: int = -1
    facing: tuple[float, ...] = ()


def clamped_cell(x: float, y: float) -> tuple[int, int]:
    """Return the cell (cx, cy) of a point in px, clamped to the stage."""
    return min(max(math.floor(x / TILE), 0), CELLS_X - 1), min(max(math.floor(y / TILE), 0), CELLS_Y - 1)


def entities(level: Level, completions: bool = True) -> list[ReferenceEntity]:
    """Return the entities of a level in type order; each exit is followed by its switch.

    A switch that is missing in the file is inactive at (0, 0).  completions: include the types that the
    reference simulator leaves out (``kinds.COMPLETIONS``).
    """
    records = [tuple(int(v) for v in r) for r in level.records]
    created: list[ReferenceEntity] = []

    def add(kind: int, x: int, y: int, **more: Any) -> None:
        created.append(ReferenceEntity(kind, float(POSITION_UNIT * x), float(POSITION_UNIT * y), len(created), **more))

    def add_switched(kind: int, switch: int, **more: Any) -> None:
        x, y = records[switch][1:3] if switch < len(records) else (0, 0)
        add(kind, x, y, active=int(switch < len(records)), **more)

    for i, (kind, x, y, orientation, _) in enumerate(records):
        if kind in kinds.COMPLETIONS and not completions:
            continue
        if kind in _PLAIN:
            # A thwump with a diagonal orientation faces up.
            turn = 6 if kind == kinds.THWUMP and orientation % 2 else orientation
            add(kind, x, y, facing=ORIENTATIONS[turn] if kind in (kinds.ONE_WAY, kinds.THWUMP) else ())
        elif kind == kinds.EXIT:
            add(kinds.EXIT, x, y)
            add_switched(kinds.EXIT_SWITCH, i + (level.exit_count or 0))
        elif kind in kinds.DOORS:
            px, py, half = POSITION_UNIT * x, POSITION_UNIT * y, TILE / 2
            door = (px, py - half, px, py + half) if orientation in (0, 4) else (px - half, py, px + half, py)
            more = {"door": door, "closed": int(kind != kinds.TRAP_DOOR)}
            if kind == kinds.REGULAR_DOOR:
                add(kind, x, y, **more)
            else:
                add_switched(kind, i + 1, **more)
    ordered = sorted(created, key=lambda e: kinds.EXIT if e.kind == kinds.EXIT_SWITCH else e.kind)
    for i, e in enumerate(ordered):
        e.index = i
        if e.kind == kinds.EXIT:
            ordered[i].partner, ordered[i + 1].partner = i + 1, i
    return ordered


# ---------------------------------------------------------------------------------------------------------------- state
EntityState: Any = namedtuple("EntityState", ENTITY_DTYPE.names or ())  # type: ignore[misc]  # mypy requires literal names
MoverState: Any = namedtuple("MoverState", MOVER_DTYPE.names or ())  # type: ignore[misc]


class ReferenceState(NamedTuple):
    """State of one environment."""

    ninja: dict[str, Any]  # fields of NINJA_DTYPE
    states: list[Any]  # EntityState of each entity
    movers: dict[int, Any]  # index of the entity -> MoverState


def position(entity: ReferenceEntity, now: ReferenceState) -> tuple[float, float]:
    """Return (x, y) of an entity, px; for a door with a switch, those of the switch."""
    at = now.movers.get(entity.index) or entity
    return at.x, at.y


def velocity(entity: ReferenceEntity, now: ReferenceState) -> tuple[float, float]:
    """Return the velocity (x, y) of an entity, px per frame; 0 for beams and crosshairs."""
    if entity.kind not in (*kinds.MOVING, kinds.ROCKET_TURRET):
        return 0.0, 0.0
    mover = now.movers[entity.index]
    if entity.kind == kinds.ROCKET_TURRET:
        speed = float(ROCKET_SPEEDS[mover.timer]) if mover.state == FIRING else 0.0
        return speed * mover.vx, speed * mover.vy
    if entity.kind in kinds.SHOOTING_DRONES and mover.state != WATCHING:
        return 0.0, 0.0
    return mover.vx, mover.vy
