"""Paths through a level: a search by heap on the lattice of 12 px, for any state of doors and exits.

What it means is said in ``docs/observations.md``, reachability_features; arrays are [column, row] of the lattice.
"""

import functools
import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.shadow.geometry import EntityTwin, solid, stage

COLUMNS, ROWS = 89, 51  # lattice points
SPACING = 12  # px between them
STRAIGHT, DIAGONAL = 10, 14  # units of a step
UNIT = 1.2  # px
MAX_PATH = 8000.0  # px, length where there is no path
BODY = 9.4  # px, radius of what must fit through
MINE_REACH = 14.5  # px around a mine where entering a point costs more
MINE_PRICE = 6  # times as much
EXIT_REACH = 22.0  # px, touching distances
SWITCH_REACH = 16.0
DOOR_SWITCH_REACH = 15.0
LONGEST = 65533  # units; the simulator's have 16 bits, and the two numbers above this have a meaning:
BLOCKED = 65534
UNREACHED = 65535
DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))  # numbers of a hop
NO_HOP = 255
Point = tuple[int, int]  # column and row of the lattice
Goal = tuple[float, float, float, int]  # x, y, touching distance (px), units of path from there


# -------------------------------------------------------------------------------------------------------------- lattice
@functools.cache
def _points_near(tile: int) -> list[Point]:
    """Lattice points around a tile (steps of 12 px from its corner) closer to its solid part than the body's radius."""
    centre = (np.arange(48) + 0.5) / 2
    x, y = (a.ravel() for a in np.meshgrid(centre, centre))
    inside = solid(tile, x, y)
    points = [(i, j) for i in range(-1, 4) for j in range(-1, 4)] if inside.any() else []
    return [
        (i, j)
        for i, j in points
        if np.sqrt((x[inside] - SPACING * i) ** 2 + (y[inside] - SPACING * j) ** 2).min() < BODY
    ]


def _gap(point: Point, x: float, y: float) -> float:
    """px; not by math.hypot, which rounds differently from the root of the sum of squares."""
    dx, dy = SPACING * point[0] - x, SPACING * point[1] - y
    return math.sqrt(dx * dx + dy * dy)


def points_within(x: float, y: float, reach: float) -> dict[Point, float]:
    """{lattice point: distance} of those closer than ``reach`` px to a place."""
    i, j, n = int(x // SPACING), int(y // SPACING), int(reach // SPACING) + 2
    around = [
        (a, b)
        for a in range(max(i - n, 0), min(i + n + 1, COLUMNS))
        for b in range(max(j - n, 0), min(j + n + 1, ROWS))
    ]
    gaps = {p: _gap(p, x, y) for p in around}
    return {p: gap for p, gap in gaps.items() if gap < reach}


def lattice(level: Level, listed: list[EntityTwin]) -> np.ndarray:
    """int16[89, 51]: price of entering each point with all doors open; 0: blocked."""
    price = np.ones((COLUMNS, ROWS), np.int16)
    for e in listed:
        if e.kind in kinds.MINES:
            for p in points_within(e.x, e.y, MINE_REACH):
                price[p] = MINE_PRICE
    for (cx, cy), tile in stage(level).items():
        for i, j in _points_near(tile) if tile else ():
            if 0 <= 2 * cx + i < COLUMNS and 0 <= 2 * cy + j < ROWS:
                price[2 * cx + i, 2 * cy + j] = 0
    return price


def with_doors(price: np.ndarray, doors: Iterable[EntityTwin]) -> np.ndarray:
    """The lattice with these doors closed."""
    price = price.copy()
    for e in doors:
        x1, y1, x2, y2 = e.door
        for i, j in points_within((x1 + x2) / 2, (y1 + y2) / 2, 30.0):
            x, y = SPACING * i, SPACING * j
            if math.hypot(x - min(max(x, x1), x2), y - min(max(y, y1), y2)) < BODY:
                price[i, j] = 0
    return price


# --------------------------------------------------------------------------------------------------------------- fields
def dijkstra(price: np.ndarray, seeds: dict[Point, int]) -> np.ndarray:
    """int32[89, 51], units of path left, -1: not reached.  A step costs its length times the price where it ends; corners
    are not cut.  seeds: {point: units}."""
    width = ROWS + 2
    cost = np.pad(price, 1).ravel().tolist()  # with a border of blocked points
    best = [-1] * len(cost)
    heap = [(length, (i + 1) * width + j + 1) for (i, j), length in seeds.items()]
    heapq.heapify(heap)
    while heap:
        length, p = heapq.heappop(heap)
        if best[p] >= 0:
            continue
        best[p] = length
        straight, diagonal = length + STRAIGHT * cost[p], length + DIAGONAL * cost[p]
        for q in (p - 1, p + 1, p - width, p + width):
            if cost[q] and best[q] < 0 and straight <= LONGEST:
                heapq.heappush(heap, (straight, q))
        for a, b in ((-1, -width), (-1, width), (1, -width), (1, width)):
            q = p + a + b
            if cost[q] and best[q] < 0 and cost[p + a] and cost[p + b] and diagonal <= LONGEST:
                heapq.heappush(heap, (diagonal, q))
    return np.array(best, np.int32).reshape(COLUMNS + 2, width)[1:-1, 1:-1]


def seeds_around(price: np.ndarray, goals: Iterable[Goal]) -> dict[Point, int]:
    """{point: units} of the free points within touching distance of goals."""
    seeds: dict[Point, int] = {}
    for x, y, reach, offset in goals:
        for p, gap in points_within(x, y, reach).items():
            if price[p]:
                length = offset + int(gap / UNIT)
                seeds[p] = min(length, seeds.get(p, length))
    return seeds


@dataclass(frozen=True)
class Field:
    """Path lengths to one objective.

    price: as ``lattice``.
    distance: as ``dijkstra``.
    seeds: units of the points where the objective, or a door switch on the path, is touched.
    """

    price: np.ndarray
    distance: np.ndarray
    seeds: dict[Point, int]

    def path(self, x: float, y: float) -> tuple[float, Point | None]:
        """(px, point) of the path from a place: over one of the four points around it, or over one of those around them
        if all four are blocked; (MAX_PATH, None) if there is none."""
        i, j = int(x / SPACING), int(y / SPACING)
        for ring in (0, 1):
            around = [
                (a, b)
                for a in range(max(i - ring, 0), min(i + 2 + ring, COLUMNS))
                for b in range(max(j - ring, 0), min(j + 2 + ring, ROWS))
            ]
            paths = [(int(self.distance[p]) * UNIT + _gap(p, x, y), p) for p in around if self.distance[p] >= 0]
            paths = [path for path in paths if path[0] < MAX_PATH]
            if paths:
                return min(paths)
            if any(self.price[p] for p in around):
                break
        return MAX_PATH, None

    def units(self, x: float, y: float) -> int | None:
        """Whole units of path from a place, None if there is none."""
        px, point = self.path(x, y)
        return None if point is None else int(px / UNIT)

    def wrong_hops(self, hop: np.ndarray) -> np.ndarray:
        """bool[89, 51]: points whose hop (uint8[89, 51], a number of DIRECTIONS) is no step of a shortest path.

        Of equally short paths any will do.  A goal has NO_HOP, and so has a point from where there is no path.
        """
        at_goal = np.zeros(hop.shape, bool)
        for p, length in self.seeds.items():
            at_goal[p] = self.distance[p] == length
        good = (hop == NO_HOP) & (at_goal | (self.distance < 0))
        price, distance = np.pad(self.price, 1), np.pad(self.distance, 1, constant_values=-1)

        def moved(array: np.ndarray, dx: int, dy: int) -> np.ndarray:
            return array[1 + dx : 1 + dx + COLUMNS, 1 + dy : 1 + dy + ROWS]

        for number, (dx, dy) in enumerate(DIRECTIONS):
            step = (DIAGONAL if dx and dy else STRAIGHT) * moved(price, dx, dy)
            free = (moved(price, dx, 0) > 0) & (moved(price, 0, dy) > 0) & (moved(distance, dx, dy) >= 0)
            shortest = moved(distance, dx, dy) + step == self.distance
            good |= (hop == number) & free & shortest & ~at_goal & (self.distance >= 0)
        return ~good


def follow(hop: np.ndarray, point: Point, steps: int) -> Point:
    """Where ``steps`` hops lead to from a point, or the goal before."""
    for _ in range(steps):
        if hop[point] == NO_HOP:
            break
        dx, dy = DIRECTIONS[hop[point]]
        point = (point[0] + dx, point[1] + dy)
    return point


def field(price: np.ndarray, closed: list[EntityTwin], goals: Iterable[Goal]) -> tuple[Field, Field]:
    """Path lengths to ``goals``, for one set of closed doors with switches, and what they were
    if locked doors were open.

    Where the doors cut the path off, it leads to the switch of a closed locked door, and on as if locked doors were open.
    """
    shut = with_doors(price, closed)
    seeds = seeds_around(shut, goals)
    distance = dijkstra(shut, seeds)
    locked = [e for e in closed if e.kind == kinds.LOCKED_DOOR and e.active]
    if not locked:
        here = Field(shut, distance, seeds)
        return here, here
    unlocked = with_doors(price, [e for e in closed if e.kind == kinds.TRAP_DOOR])
    beyond = seeds_around(unlocked, goals)
    onward = Field(unlocked, dijkstra(unlocked, beyond), beyond)
    switches = [(e.x, e.y, DOOR_SWITCH_REACH, units) for e in locked if (units := onward.units(e.x, e.y)) is not None]
    seeds |= {p: units for p, units in seeds_around(shut, switches).items() if distance[p] < 0}
    return Field(shut, dijkstra(shut, seeds), seeds), onward


@dataclass(eq=False)
class PathFields:
    """The fields of a level for one state of its doors and exits.

    to_switch: over a switch to its own exit.
    to_exit: to the open exits, to all while none is open.
    onward: least units from a switch to its exit, None if there is no path.
    accepted: hops found to be right.
    """

    to_switch: Field
    to_exit: Field
    onward: int | None
    accepted: bytes = b""

    @functools.cached_property
    def distances(self) -> np.ndarray:
        """uint16[2, 4539]: both fields as the simulator stores them."""
        parts = [
            np.where(f.price == 0, BLOCKED, np.where(f.distance < 0, UNREACHED, f.distance)).ravel()
            for f in (self.to_switch, self.to_exit)
        ]
        return np.stack(parts).astype(np.uint16)

    def wrong_hops(self, hop: np.ndarray) -> np.ndarray:
        """int64[n, 3]: (field, column, row) of the hops (uint8[2, 4539]) that are no step of a shortest path."""
        if hop.tobytes() == self.accepted:
            return np.empty((0, 3), np.int64)
        tables = hop.reshape(2, COLUMNS, ROWS)
        wrong = np.argwhere([f.wrong_hops(h) for f, h in zip((self.to_switch, self.to_exit), tables, strict=True)])
        if not len(wrong):
            self.accepted = hop.tobytes()
        return wrong


def path_fields(
    price: np.ndarray, listed: list[EntityTwin], closed: Iterable[int], opened: Iterable[int] = ()
) -> PathFields:
    """The paths of a level.

    price: ``lattice``.
    closed: indices of the closed doors with switches.
    opened: of the open exits.
    """
    doors = [listed[k] for k in closed]
    field_to = functools.cache(lambda goals: field(price, doors, goals))
    exits = [e for e in listed if e.kind == kinds.EXIT]
    switches = []
    for e in exits:
        switch = listed[e.partner]
        if switch.active:
            lengths = [f.units(switch.x, switch.y) for f in field_to(((e.x, e.y, EXIT_REACH, 0),))]
            switches += [(switch.x, switch.y, SWITCH_REACH, units) for units in lengths if units is not None][:1]
    opened = set(opened) or {e.index for e in exits}
    to_exit, _ = field_to(tuple((e.x, e.y, EXIT_REACH, 0) for e in exits if e.index in opened))
    return PathFields(field_to(tuple(switches))[0], to_exit, min((goal[3] for goal in switches), default=None))
