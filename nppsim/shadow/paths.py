"""Reference implementation of ``nppsim.paths``: Dijkstra's algorithm with a heap, for any state of doors and exits.

``docs/observations.md``, reachability_features, defines the paths.  Arrays are [column, row] of the lattice.
"""

import dataclasses
import functools
import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.shadow.geometry import ReferenceEntity, solid, stage, surfaces

COLUMNS, ROWS = 89, 51  # lattice points
SPACING = 12  # px between lattice points
STRAIGHT, DIAGONAL = 10, 14  # length of a straight and of a diagonal step, units
UNIT = 1.2  # px per unit
MAX_PATH = 8000.0  # px, length if there is no path
SAMPLE = 3  # px between samples
BODY = 9.4  # px, radius of the circle that must fit through passages on a path
SURFACE_BODY = 8.4  # px, the same radius if only the surfaces of tiles block
ONE_WAY_REACH = 17.1  # px from a one-way's middle to either end of its effect
MINE_REACH = 14.5  # px around a mine; steps to points in this circle cost more
MINE_PRICE = 6  # factor by which these steps cost more
EXIT_REACH = 22.0  # px, touching distances of exit, exit switch and door switch
SWITCH_REACH = 16.0
DOOR_SWITCH_REACH = 15.0
LONGEST = 65533  # units, largest length in the simulator's uint16 arrays.  The next two numbers mark points:
BLOCKED = 65534
UNREACHED = 65535
# Elements of ``next_step`` are indices into this tuple.
DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
NO_STEP = 255
Point = tuple[int, int]  # column and row of the lattice
Goal = tuple[float, float, float, int]  # x, y, touching distance (px), length of the path from there in units


# -------------------------------------------------------------------------------------------------------------- lattice
@functools.cache
def _samples_near(tile: int) -> np.ndarray:
    """Return True for samples nearer than BODY to the solid part of a tile: bool[15, 15], x first, every 3 px from -9 px."""
    centre = np.arange(24) + 0.5
    x, y = (a.ravel() for a in np.meshgrid(centre, centre))
    inside = solid(tile, x, y)
    at = SAMPLE * (np.arange(15) - 3)
    dx, dy = at[:, None, None] - x[inside], at[None, :, None] - y[inside]
    return (dx * dx + dy * dy).min(axis=2, initial=np.inf) < BODY * BODY


def _gap(point: Point, x: float, y: float) -> float:
    """Return the distance of a lattice point from (x, y), px, rounded as in the kernels, unlike ``math.hypot``."""
    dx, dy = SPACING * point[0] - x, SPACING * point[1] - y
    return math.sqrt(dx * dx + dy * dy)


def _around(x: float, y: float, ring: int) -> list[Point]:
    """Return the four lattice points around (x, y) and ``ring`` rings of points around these."""
    i, j = int(x / SPACING), int(y / SPACING)
    return [
        (a, b)
        for a in range(max(i - ring, 0), min(i + 2 + ring, COLUMNS))
        for b in range(max(j - ring, 0), min(j + 2 + ring, ROWS))
    ]


def points_within(x: float, y: float, reach: float) -> dict[Point, float]:
    """Return {lattice point: distance in px} for the points nearer than ``reach`` px to (x, y)."""
    gaps = {p: _gap(p, x, y) for p in _around(x, y, int(reach / SPACING))}
    return {p: gap for p, gap in gaps.items() if gap < reach}


@dataclass(frozen=True)
class Lattice:
    """The lattice with some doors closed.

    samples: bool[353, 201], True if no tile blocks the sample; one sample every 3 px.
    price: int16[89, 51], cost factor of steps to each point; 0 if it is blocked.
    right, down: bool[89, 51], True if a point is joined to its right or lower neighbour.
    barred: bool[8, 89, 51], True if a one-way blocks the step from a point in each of DIRECTIONS.
    """

    samples: np.ndarray
    price: np.ndarray
    right: np.ndarray
    down: np.ndarray
    barred: np.ndarray

    @functools.cached_property
    def steps(self) -> list[np.ndarray]:
        """bool[89, 51] for each of DIRECTIONS: True if a step from a point in this direction is possible."""
        straight = {
            (1, 0): self.right,
            (-1, 0): _moved(self.right, -1, 0),
            (0, 1): self.down,
            (0, -1): _moved(self.down, 0, -1),
        }
        diagonal = {
            (dx, dy): straight[dx, 0]
            & _moved(straight[0, dy], dx, 0)
            & straight[0, dy]
            & _moved(straight[dx, 0], 0, dy)
            for dx in (1, -1)
            for dy in (1, -1)
        }
        joined, free = straight | diagonal, self.price > 0
        return [
            joined[direction] & free & _moved(free, *direction) & ~barred
            for direction, barred in zip(DIRECTIONS, self.barred, strict=True)
        ]

    @functools.cached_property
    def arrivals(self) -> list[np.ndarray]:
        """bool[89, 51] for each of DIRECTIONS: True if a point's neighbour in this direction has a step to the point."""
        return [_moved(self.steps[DIRECTIONS.index((-dx, -dy))], dx, dy) for dx, dy in DIRECTIONS]


def _moved(array: np.ndarray, dx: int, dy: int) -> np.ndarray:
    """Return the values of the neighbours at (dx, dy); 0 outside the lattice."""
    padded = np.pad(array, 1)
    return padded[1 + dx : 1 + dx + array.shape[0], 1 + dy : 1 + dy + array.shape[1]]


def _openings(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three bool[89, 51]: points that are free, joined to the right neighbour, joined to the lower neighbour."""
    squares = np.lib.stride_tricks.sliding_window_view(np.pad(samples, 2), (5, 5))[::4, ::4]
    return np.any(squares, axis=(2, 3)), np.any(squares[:, :, -1], axis=2), np.any(squares[:, :, :, -1], axis=2)


def _free_samples(level: Level, leniency: int) -> np.ndarray:
    """Return True for samples that tiles do not block: bool[353, 201].

    leniency: with 0, the solid parts of tiles block; with 1 and 2, only their surfaces do.
    """
    samples = np.pad(np.ones((4 * (COLUMNS - 1) + 1, 4 * (ROWS - 1) + 1), bool), 3)
    if leniency:
        x, y = (SAMPLE * (np.arange(n, dtype=float) - 3) for n in samples.shape)
        for (x1, y1, x2, y2), distance in surfaces(level):
            near = slice(max(x1 // 3 - 1, 0), x2 // 3 + 8), slice(max(y1 // 3 - 1, 0), y2 // 3 + 8)
            samples[near] &= distance(x[near[0], None], y[None, near[1]]) >= SURFACE_BODY
    else:
        for (cx, cy), tile in np.ndenumerate(stage(level)):
            samples[8 * cx : 8 * cx + 15, 8 * cy : 8 * cy + 15] &= ~_samples_near(tile)
    return samples[3:-3, 3:-3]


def _barred(one_ways: Iterable[ReferenceEntity]) -> np.ndarray:
    """Return True for steps from the front of a one-way to its back: bool[8, 89, 51]."""
    barred = np.zeros((8, COLUMNS, ROWS), bool)
    px, py = SPACING * np.arange(COLUMNS)[:, None], SPACING * np.arange(ROWS)[None, :]
    for e in one_ways:
        nx, ny = e.facing
        front, along = (px - e.x) * nx + (py - e.y) * ny, (py - e.y) * nx - (px - e.x) * ny
        for number, (dx, dy) in enumerate(DIRECTIONS):
            then = (px + SPACING * dx - e.x) * nx + (py + SPACING * dy - e.y) * ny
            crosses = (front > 0) & (then <= 0)
            share = np.divide(front, front - then, out=np.zeros_like(front), where=crosses)
            barred[number] |= crosses & (abs(along + share * SPACING * (dy * nx - dx * ny)) < ONE_WAY_REACH)
    return barred


def lattice(level: Level, listed: list[ReferenceEntity], leniency: int = 0) -> Lattice:
    """Return the lattice with all doors open.

    leniency: 0: solid parts of tiles and the fronts of one-ways block.  1: surfaces of tiles and the fronts of one-ways
        block.  2: only surfaces of tiles block.
    """
    samples = _free_samples(level, leniency)
    free, right, down = _openings(samples)
    price = free.astype(np.int16)
    for e in listed:
        if e.kind in kinds.MINES:
            for p in points_within(e.x, e.y, MINE_REACH):
                price[p] = MINE_PRICE if price[p] else 0
    one_ways = [e for e in listed if e.kind == kinds.ONE_WAY and leniency < 2]
    return Lattice(samples, price, right, down, _barred(one_ways))


def with_doors(open_: Lattice, doors: Iterable[ReferenceEntity]) -> Lattice:
    """Return the lattice with these doors closed.  Each door's effect is computed as if the others were open."""
    price, right, down = open_.price.copy(), open_.right.copy(), open_.down.copy()
    for e in doors:
        x1, y1, x2, y2 = e.door
        middle = round((x1 + x2) / 2 / SPACING), round((y1 + y2) / 2 / SPACING)
        # Points around the door, and one more on each side: their squares are incomplete, but the door does not reach them.
        (i, i_end), (j, j_end) = (
            (max(at - 5, 0), min(at + 5, size - 1)) for at, size in zip(middle, (COLUMNS, ROWS), strict=True)
        )
        part = open_.samples[4 * i : 4 * i_end + 1, 4 * j : 4 * j_end + 1]
        x, y = (
            SAMPLE * (4 * i + np.arange(part.shape[0])[:, None]),
            SAMPLE * (4 * j + np.arange(part.shape[1])[None, :]),
        )
        dx, dy = x - np.clip(x, x1, x2), y - np.clip(y, y1, y2)
        before, after = _openings(part), _openings(part & (dx * dx + dy * dy >= BODY * BODY))
        for there, was, is_now in zip((price, right, down), before, after, strict=True):
            there[i : i_end + 1, j : j_end + 1][was & ~is_now] = 0
    return dataclasses.replace(open_, price=price, right=right, down=down)


def without_points(lattice: Lattice, points: Iterable[Point]) -> Lattice:
    """Return the lattice with some points blocked."""
    price = lattice.price.copy()
    for p in points:
        price[p] = 0
    return dataclasses.replace(lattice, price=price)


# --------------------------------------------------------------------------------------------------------------- fields
def dijkstra(lattice: Lattice, seeds: dict[Point, int], fixed: np.ndarray | None = None) -> np.ndarray:
    """Return the path length from each point in units, int32[89, 51]; -1 if there is no path.

    A step costs its length times the price of the point where it ends.
    seeds: {point: units}, path lengths at the points where the search begins.
    fixed: int32[89, 51], lengths that do not change; -1 for all other points.
    """
    arrivals = [(direction, free.tolist()) for direction, free in zip(DIRECTIONS, lattice.arrivals, strict=True)]
    price = lattice.price.tolist()
    best = np.full((COLUMNS, ROWS), -1, np.int32)
    given = best if fixed is None else fixed
    heap = [(length, point) for point, length in seeds.items()]
    heapq.heapify(heap)
    while heap:
        length, (i, j) = heapq.heappop(heap)
        if best[i, j] >= 0:
            continue
        best[i, j] = length
        for (dx, dy), free in arrivals:
            if free[i][j] and best[i + dx, j + dy] < 0 and given[i + dx, j + dy] < 0:
                after = length + (DIAGONAL if dx and dy else STRAIGHT) * price[i][j]
                if after <= LONGEST:
                    heapq.heappush(heap, (after, (i + dx, j + dy)))
    return best if fixed is None else np.where(fixed >= 0, fixed, best)


def seeds_around(lattice: Lattice, goals: Iterable[Goal]) -> dict[Point, int]:
    """Return {point: path length in units} for the free points within touching distance of goals."""
    seeds: dict[Point, int] = {}
    for x, y, reach, offset in goals:
        for p, gap in points_within(x, y, reach).items():
            if lattice.price[p]:
                length = offset + int(gap / UNIT)
                seeds[p] = min(length, seeds.get(p, length))
    return seeds


@dataclass(frozen=True)
class Field:
    """Path lengths to one objective.

    lattice: lattice with the closed doors.
    distance: result of ``dijkstra``.
    seeds: {point: units} of the points that touch the objective or a door switch on the path.
    """

    lattice: Lattice
    distance: np.ndarray
    seeds: dict[Point, int]

    def path(self, x: float, y: float) -> tuple[float, Point | None]:
        """Return (px, first point) of the path from (x, y), at most MAX_PATH - UNIT px; (MAX_PATH, None) without a path."""
        length, point = self.nearest(x, y)
        return (MAX_PATH, None) if point is None else (min(length, MAX_PATH - UNIT), point)

    def units(self, x: float, y: float) -> int | None:
        """Return the length of the path from (x, y) in whole units; None without a path."""
        length, point = self.nearest(x, y)
        return None if point is None else int(length / UNIT)

    def nearest(self, x: float, y: float) -> tuple[float, Point | None]:
        """Return (px, first point) of the shortest path that begins at one of the four points around (x, y).

        If all four are blocked, the twelve points around them are tried, too.
        """
        for ring in (0, 1):
            around = _around(x, y, ring)
            candidates = [(int(self.distance[p]) * UNIT + _gap(p, x, y), p) for p in around if self.distance[p] >= 0]
            if candidates:
                return min(candidates)
            if any(self.lattice.price[p] for p in around):
                break
        return math.inf, None

    def wrong_steps(self, next_step: np.ndarray) -> np.ndarray:
        """Return True for points whose next step is not part of any shortest path: bool[89, 51].

        next_step: uint8[89, 51], index into DIRECTIONS; NO_STEP for goals and points without a path.
        """
        at_goal = np.zeros(next_step.shape, bool)
        for p, length in self.seeds.items():
            at_goal[p] = self.distance[p] == length
        good = (next_step == NO_STEP) & (at_goal | (self.distance < 0))
        for number, ((dx, dy), free) in enumerate(zip(DIRECTIONS, self.lattice.steps, strict=True)):
            after = _moved(self.distance + 1, dx, dy) - 1  # -1 outside
            step = (DIAGONAL if dx and dy else STRAIGHT) * _moved(self.lattice.price, dx, dy)
            shortest = (after >= 0) & (after + step == self.distance)
            good |= (next_step == number) & free & shortest & ~at_goal & (self.distance >= 0)
        return ~good


def follow(next_step: np.ndarray, point: Point, steps: int) -> Point:
    """Return the point after at most ``steps`` steps."""
    for _ in range(steps):
        if next_step[point] == NO_STEP:
            break
        dx, dy = DIRECTIONS[next_step[point]]
        point = (point[0] + dx, point[1] + dy)
    return point


def first_path(field: Field, point: Point) -> Iterator[tuple[Point, int]]:
    """Yield (point, index into DIRECTIONS) for each step of a shortest path; the smallest index wins ties."""
    while True:
        for number, ((dx, dy), free) in enumerate(zip(DIRECTIONS, field.lattice.steps, strict=True)):
            other = (point[0] + dx, point[1] + dy)
            length = DIAGONAL if dx and dy else STRAIGHT
            after = int(field.distance[other]) if free[point] else -1
            if after >= 0 and after + length * int(field.lattice.price[other]) == field.distance[point]:
                yield point, number
                point = other
                break
        else:
            return


def _on_path(field: Field, x: float, y: float, door: ReferenceEntity) -> bool:
    """Return True if the path from (x, y) crosses a door."""
    _, point = field.nearest(x, y)
    x1, y1, x2, y2 = door.door
    near = [
        (p, number)
        for p, number in (first_path(field, point) if point else ())
        if max(abs(SPACING * p[0] - (x1 + x2) / 2), abs(SPACING * p[1] - (y1 + y2) / 2)) < 5 * SPACING
    ]
    if not near:
        return False
    shut = with_doors(field.lattice, [door]).steps
    return any(not shut[number][p] for p, number in near)


def _to_switches(field: Field, unlocked: Field, closed: list[ReferenceEntity]) -> Field:
    """Extend a field to points that closed doors separate from its goals.

    From such a point, the path leads to the switch of a closed locked door that blocks it, and continues from this
    switch as if locked doors were open.  If closed doors separate the point from this switch, the rule is applied to
    the path to the switch.
    """
    shut, distance, seeds, lattice = field.lattice, field.distance, dict(field.seeds), unlocked.lattice
    pending = [e for e in closed if e.kind == kinds.LOCKED_DOOR and e.active]
    on_path_only = True
    while pending and ((distance < 0) & (shut.price > 0)).any():
        wanted = [(e, units) for e in pending if (units := unlocked.units(e.x, e.y)) is not None]
        wanted = [(e, units) for e, units in wanted if not on_path_only or _on_path(unlocked, e.x, e.y, e)]
        pending = [e for e in pending if e not in [door for door, _ in wanted]]
        switches = [(e.x, e.y, DOOR_SWITCH_REACH, units) for e, units in wanted]
        new = {p: units for p, units in seeds_around(shut, switches).items() if distance[p] < 0}
        if not new:
            if not on_path_only:
                break
            on_path_only = False
            continue
        seeds |= new
        distance = dijkstra(shut, new, distance)
        lattice = with_doors(lattice, [door for door, _ in wanted])  # closed until the ninja touches their switches
        reached = _lengths(distance)
        unlocked = Field(lattice, dijkstra(lattice, reached), reached)
    return Field(shut, distance, seeds)


def _lengths(distance: np.ndarray) -> dict[Point, int]:
    """Return {point: path length in units} for the points with a path."""
    return {(i, j): int(distance[i, j]) for i, j in np.argwhere(distance >= 0).tolist()}


def _straight_to(lattice: Lattice, goals: Iterable[Goal]) -> Field:
    seeds = seeds_around(lattice, goals)
    return Field(lattice, dijkstra(lattice, seeds), seeds)


def field(
    open_: Lattice,
    doors: list[ReferenceEntity],
    closed: list[ReferenceEntity],
    goals: tuple[Goal, ...],
    needed: tuple[int, ...],
) -> tuple[Field, Field]:
    """Return two fields of paths to ``goals``: with ``closed`` doors shut, and with only the trap doors among them shut.

    doors: all doors with switches.
    needed: indices of trap doors that the ninja must pass after the goals.

    If possible, paths do not touch the switch of a trap door that they cross later.
    """
    shut, open_lattice = with_doors(open_, closed), with_doors(open_, [e for e in closed if e.kind == kinds.TRAP_DOOR])
    unlocked = _straight_to(open_lattice, goals)
    avoided = [e for e in _closing(doors, closed) if e.index in needed or _on_path(unlocked, e.x, e.y, e)]
    if not avoided:
        return _to_switches(_straight_to(shut, goals), unlocked, closed), unlocked
    touching = {p for e in avoided for p in points_within(e.x, e.y, DOOR_SWITCH_REACH)}
    elsewhere = _straight_to(without_points(open_lattice, touching), goals)
    around = _to_switches(_straight_to(without_points(shut, touching), goals), elsewhere, closed)
    if reached := _lengths(around.distance):
        extended = Field(shut, dijkstra(shut, reached, around.distance), around.seeds)
    else:
        extended = _straight_to(shut, goals)
    return _to_switches(extended, unlocked, closed), unlocked


def _closing(doors: list[ReferenceEntity], closed: list[ReferenceEntity]) -> list[ReferenceEntity]:
    """Return the trap doors whose switches have not been touched."""
    return [e for e in doors if e.kind == kinds.TRAP_DOOR and e.active and e not in closed]


@dataclass(eq=False)
class ReferenceFields:
    """Fields of a level for one state of its doors and exits.

    to_switch: paths via an exit switch to its exit.
    to_exit: paths to the open exits, or to all exits if none is open.
    switch_to_exit: units of the shortest path from a switch to its exit; None without a path.
    accepted: bytes of the last ``next_step`` in which ``wrong_steps`` found no error.
    """

    to_switch: Field
    to_exit: Field
    switch_to_exit: int | None
    accepted: bytes = b""

    @functools.cached_property
    def distances(self) -> np.ndarray:
        """Both fields in the format of the simulator, uint16[2, 4539]."""
        parts = [
            np.where(f.lattice.price == 0, BLOCKED, np.where(f.distance < 0, UNREACHED, f.distance)).ravel()
            for f in (self.to_switch, self.to_exit)
        ]
        return np.stack(parts).astype(np.uint16)

    def wrong_steps(self, next_step: np.ndarray) -> np.ndarray:
        """Return (field, column, row) of steps that are not part of any shortest path, int64[n, 3].

        next_step: uint8[2, 4539], of the simulator.
        """
        if next_step.tobytes() == self.accepted:
            return np.empty((0, 3), np.int64)
        tables = next_step.reshape(2, COLUMNS, ROWS)
        wrong = np.argwhere([f.wrong_steps(h) for f, h in zip((self.to_switch, self.to_exit), tables, strict=True)])
        if not len(wrong):
            self.accepted = next_step.tobytes()
        return wrong


def path_fields(
    open_: Lattice, listed: list[ReferenceEntity], closed: Iterable[int], opened: Iterable[int] = ()
) -> ReferenceFields:
    """Return the path fields of a level.

    open_: lattice with all doors open.
    closed: indices of the closed doors with switches.
    opened: indices of the open exits.
    """
    doors, shut = [e for e in listed if e.kind in kinds.SWITCH_OF_DOOR], [listed[k] for k in closed]
    field_to = functools.cache(lambda goals, needed: field(open_, doors, shut, goals, needed))
    exits = [e for e in listed if e.kind == kinds.EXIT]
    switches = []
    needed: set[int] = set()
    for e in exits:
        switch = listed[e.partner]
        if switch.active:
            fields = field_to(((e.x, e.y, EXIT_REACH, 0),), ())
            lengths = [f.units(switch.x, switch.y) for f in fields]
            switches += [(switch.x, switch.y, SWITCH_REACH, units) for units in lengths if units is not None][:1]
            needed.update(d.index for d in _closing(doors, shut) if _on_path(fields[1], switch.x, switch.y, d))
    opened = set(opened) or {e.index for e in exits}
    to_exit, _ = field_to(tuple((e.x, e.y, EXIT_REACH, 0) for e in exits if e.index in opened), ())
    to_switch, _ = field_to(tuple(switches), tuple(sorted(needed)))
    return ReferenceFields(to_switch, to_exit, min((goal[3] for goal in switches), default=None))
