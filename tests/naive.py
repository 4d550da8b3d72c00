"""Slow twins of the simulator's kernels, written from the specifications by other methods.

Nothing here comes from the package but numbers and names: level constants, the observation layout and the size of the
lattice.  Tiles are outlines, segments are dictionaries, ways are found with a heap, images are painted from a raster of
the whole level.  States come in as the records of the simulator (a ninja, and its entities in type order).
"""

import cmath
import heapq
import math
from dataclasses import dataclass

import numpy as np

from nppsim.level import (
    EXIT,
    EXIT_SWITCH,
    GOLD,
    LOCKED_DOOR,
    MINE,
    REGULAR_DOOR,
    TOGGLE_MINE,
    TRAP_DOOR,
)
from nppsim.observe import layout

WIDTH, HEIGHT = 44, 25  # cells

# ---------------------------------------------------------------------------------------------------------------- tiles
CORNERS = {(1, 1): (0, 0), (-1, 1): (24, 0), (-1, -1): (24, 24), (1, -1): (0, 24)}  # direction inwards -> corner
# Solid polygons, as listed in section 3.3 of the physics specification.
OUTLINES = {
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
OUTLINES = {t: [tuple(map(int, p.split(","))) for p in text.split()] for t, text in OUTLINES.items()}
QUARTER_DISCS = dict(zip((10, 11, 12, 13), CORNERS, strict=True))
FILLETS = dict(zip((14, 15, 16, 17), CORNERS, strict=True))
ONE_FACE = {34: ("H", 0, -1), 35: ("V", 2, 1), 36: ("H", 2, 1), 37: ("V", 0, -1)}


def solid(tile, x, y):
    """Whether points of a tile (arrays of coordinates, px from its corner) are solid; one-faced tiles count as full."""
    if tile == 0 or tile > 37:
        return np.zeros(np.shape(x), bool)
    if tile in QUARTER_DISCS or tile in FILLETS:
        inwards = QUARTER_DISCS.get(tile) or FILLETS[tile]
        if tile in QUARTER_DISCS:
            cx, cy = CORNERS[inwards]
            return (x - cx) ** 2 + (y - cy) ** 2 < 24**2
        cx, cy = (24 - c for c in CORNERS[inwards])
        return (x - cx) ** 2 + (y - cy) ** 2 >= 24**2
    outline = OUTLINES[1 if tile >= 34 else tile]
    inside = np.ones(np.shape(x), bool)
    for (x1, y1), (x2, y2) in zip(outline, outline[1:] + outline[:1], strict=True):
        inside &= (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) > 0
    return inside


def faces(tile):
    """({(kind "H" or "V", half column, half row): sign}, diagonal or arc or None) of one tile."""
    if tile in ONE_FACE:
        kind, place, sign = ONE_FACE[tile]
        return {(kind, *((k, place) if kind == "H" else (place, k))): sign for k in (0, 1)}, None
    if tile in QUARTER_DISCS or tile in FILLETS:
        hor, ver = inwards = QUARTER_DISCS.get(tile) or FILLETS[tile]
        x, y = CORNERS[inwards]
        halves = {("H", k, y // 12): -1 if y == 0 else 1 for k in (0, 1)}
        halves |= {("V", x // 12, k): -1 if x == 0 else 1 for k in (0, 1)}
        if tile in QUARTER_DISCS:
            return halves, ("arc", x, y, hor, ver, True)
        return halves, ("arc", 24 - x, 24 - y, -hor, -ver, False)
    halves, diagonal = {}, None
    outline = OUTLINES.get(tile, [])
    middle = np.mean(outline, axis=0) if outline else None
    for (x1, y1), (x2, y2) in zip(outline, outline[1:] + outline[:1], strict=True):
        if y1 == y2:
            for i in range(min(x1, x2) // 12, max(x1, x2) // 12):
                halves["H", i, y1 // 12] = -1 if middle[1] > y1 else 1
        elif x1 == x2:
            for j in range(min(y1, y2) // 12, max(y1, y2) // 12):
                halves["V", x1 // 12, j] = -1 if middle[0] > x1 else 1
        else:  # directed so that the solid side is the back
            back = is_back(("line", x1, y1, x2, y2), *middle)
            diagonal = ("line", x1, y1, x2, y2) if back else ("line", x2, y2, x1, y1)
    return halves, diagonal


def stage(level):
    """{(cx, cy): tile} with the border of full tiles."""
    inner = {(c + 1, r + 1): int(t) for (r, c), t in np.ndenumerate(level.tiles)}
    return {(x, y): inner.get((x, y), 1) for x in range(WIDTH) for y in range(HEIGHT)}


# ------------------------------------------------------------------------------------------------------------- entities
@dataclass
class Entity:
    """One entity; door: (x1, y1, x2, y2) of its segment.  place: file order among all entities."""

    kind: int
    number: int
    x: float
    y: float
    place: int
    active: int = 1
    closed: int = 0
    door: tuple | None = None
    door_cell: tuple | None = None
    partner: int | None = None


def clamped_cell(x, y):
    return min(max(math.floor(x / 24), 0), WIDTH - 1), min(max(math.floor(y / 24), 0), HEIGHT - 1)


def entities(level):
    """The level's entities in type order; an exit's switch directly follows it (partner: index of the other)."""
    records = [tuple(int(v) for v in r) for r in level.records]
    found, counts = [], {}

    def add(kind, x, y, **more):
        found.append(Entity(kind, counts.get(kind, 0), 6.0 * x, 6.0 * y, len(found), **more))
        counts[kind] = counts.get(kind, 0) + 1

    for i, (kind, x, y, o, _) in enumerate(records):
        if kind in (MINE, GOLD, TOGGLE_MINE):
            add(kind, x, y)
        elif kind == EXIT:
            add(EXIT, x, y)
            add(EXIT_SWITCH, *records[i + level.exit_count][1:3])
        elif kind in (REGULAR_DOOR, LOCKED_DOOR, TRAP_DOOR):
            px, py = 6.0 * x, 6.0 * y
            ux, uy = round(math.cos(o * math.pi / 4), 12), round(math.sin(o * math.pi / 4), 12)
            door = (px, py - 12, px, py + 12) if o in (0, 4) else (px - 12, py, px + 12, py)
            at = (x, y) if kind == REGULAR_DOOR else records[i + 1][1:3]
            cell = clamped_cell(px - 12 * ux, py - 12 * uy)
            add(kind, *at, door=door, door_cell=cell, closed=int(kind != TRAP_DOOR))
    ordered = sorted(found, key=lambda e: (EXIT if e.kind == EXIT_SWITCH else e.kind, e.number, e.kind))
    for i, e in enumerate(ordered):
        if e.kind == EXIT:
            ordered[i].partner, ordered[i + 1].partner = i + 1, i
    return ordered


# ------------------------------------------------------------------------------------------------------------- segments
def segments(level):
    """{cell: [segment, ...]} in the order of section 3.5.

    A segment is ("line", x1, y1, x2, y2), ("arc", x, y, hor, ver, convex) or ("door", x1, y1, x2, y2, entity).
    """
    cells = {(x, y): [] for x in range(WIDTH) for y in range(HEIGHT)}
    total = {}
    for i in range(2 * WIDTH):
        total["H", i, 0], total["H", i, 2 * HEIGHT] = 1, -1
    for j in range(2 * HEIGHT):
        total["V", 0, j], total["V", 2 * WIDTH, j] = 1, -1
    for (cx, cy), tile in stage(level).items():
        halves, slanted = faces(tile)
        for (kind, i, j), sign in halves.items():
            key = kind, 2 * cx + i, 2 * cy + j
            total[key] = total.get(key, 0) + sign
        if slanted:
            kind, x, y, *rest = slanted
            if kind == "line":
                rest = [rest[0] + 24 * cx, rest[1] + 24 * cy]
            cells[cx, cy].append((kind, x + 24 * cx, y + 24 * cy, *rest))
    for (kind, i, j), sign in sorted(total.items()):  # H before V, i outer, j inner
        x, y = 12 * i, 12 * j
        if sign and kind == "H":
            ends = (x, y, x + 12, y) if sign > 0 else (x + 12, y, x, y)
            cells[i // 2, math.floor((j - 0.1 * sign) / 2)].append(("line", *ends))
        elif sign:
            ends = (x, y + 12, x, y) if sign > 0 else (x, y, x, y + 12)
            cells[math.floor((i - 0.1 * sign) / 2), j // 2].append(("line", *ends))
    listed = entities(level)
    for e in sorted(listed, key=lambda e: e.place):
        if e.door:
            cells[e.door_cell].append(("door", *e.door, listed.index(e)))
    return cells


def is_back(segment, px, py):
    """Whether a point is on the solid side of a segment (where its closest point is not an end of an arc)."""
    if segment[0] == "door":
        return False
    if segment[0] == "line":
        a, b = complex(*segment[1:3]), complex(*segment[3:5])
        return ((b - a).conjugate() * (complex(px, py) - a)).imag < 0
    _, cx, cy, hor, ver, convex = segment
    inside = math.dist((px, py), (cx, cy)) < 24
    return (px - cx) * hor > 0 and (py - cy) * ver > 0 and inside == convex


def closest(segment, px, py):
    """(x, y) of the closest point: a foot on the complex plane, or an angle cut off to the quadrant."""
    p = complex(px, py)
    if segment[0] != "arc":
        a, b = complex(*segment[1:3]), complex(*segment[3:5])
        foot = a + (b - a) * min(max(((p - a) / (b - a)).real, 0.0), 1.0)
        return foot.real, foot.imag
    _, cx, cy, hor, ver, _ = segment
    angle = cmath.phase(complex((px - cx) * hor, (py - cy) * ver))
    if not 0.0 < angle < math.pi / 2:
        ends = (cx + 24 * hor, cy), (cx, cy + 24 * ver)
        return min(ends[::-1], key=lambda end: math.dist(end, (px, py)))  # the vertical end wins ties
    return cx + 24 * hor * math.cos(angle), cy + 24 * ver * math.sin(angle)


def gathered(cells, x1, y1, x2, y2):
    """Segments of the cells that a rectangle touches, x-major."""
    (a, b), (c, d) = clamped_cell(x1, y1), clamped_cell(x2, y2)
    return [s for x in range(a, c + 1) for y in range(b, d + 1) for s in cells[x, y]]


def surfaces(cells, px, py, radius, closed):
    """[(D, result, x, y), ...] of section 4.4, best first; closed: indices of the entities whose doors are closed."""
    found = []
    for s in gathered(cells, px - radius, py - radius, px + radius, py + radius):
        if s[0] != "door" or s[5] in closed:
            x, y = closest(s, px, py)
            back = is_back(s, px, py)
            found.append(((px - x) ** 2 + (py - y) ** 2 - (0.0 if back else 0.1), -1 if back else 1, x, y))
    return sorted(found, key=lambda f: f[0])


def clearance(cells, px, py, closed):
    """Distance from a point to the nearest segment of the whole level."""
    every = (s for part in cells.values() for s in part)
    return min(math.dist(closest(s, px, py), (px, py)) for s in every if s[0] != "door" or s[5] in closed)


# ---------------------------------------------------------------------------------------------------------------- paths
COLUMNS, ROWS = 89, 51  # lattice points, 12 px apart
UNIT = 1.2  # px; a straight step is 10 units, a diagonal one 14
BODY = 9.4
_NEAR_TILE = {}


def _points_near(tile):
    """Lattice points around a tile (steps of 12 px from its corner) closer to its solid part than the body's radius."""
    if tile not in _NEAR_TILE:
        centre = (np.arange(48) + 0.5) / 2
        x, y = (a.ravel() for a in np.meshgrid(centre, centre))
        inside = solid(tile, x, y)
        points = [(12 * i, 12 * j) for i in range(-1, 4) for j in range(-1, 4)]
        _NEAR_TILE[tile] = [
            (px // 12, py // 12)
            for px, py in points
            if inside.any() and np.sqrt((x[inside] - px) ** 2 + (y[inside] - py) ** 2).min() < BODY
        ]
    return _NEAR_TILE[tile]


def distance_to_box(x, y, box):
    return math.hypot(x - min(max(x, box[0]), box[2]), y - min(max(y, box[1]), box[3]))


def points_within(x, y, reach):
    """{lattice point: distance} of those closer than ``reach`` px to a place."""
    i, j, n = int(x // 12), int(y // 12), int(reach // 12) + 2
    around = [(a, b) for a in range(i - n, i + n + 1) for b in range(j - n, j + n + 1)]
    gaps = {p: math.sqrt((12 * p[0] - x) * (12 * p[0] - x) + (12 * p[1] - y) * (12 * p[1] - y)) for p in around}
    return {p: gap for p, gap in gaps.items() if gap < reach}


def lattice(level, listed, closed):
    """{point: price of entering it} of all free points; closed: indices of the entities whose doors are closed."""
    price = {(i, j): 1 for i in range(COLUMNS) for j in range(ROWS)}
    for e in listed:
        if e.kind in (MINE, TOGGLE_MINE):
            price |= {p: 6 for p in points_within(e.x, e.y, 14.5) if p in price}
    for (cx, cy), tile in stage(level).items():
        for i, j in _points_near(tile) if tile else ():
            price.pop((2 * cx + i, 2 * cy + j), None)
    for k in closed:
        x1, y1, x2, y2 = listed[k].door
        for i, j in points_within((x1 + x2) / 2, (y1 + y2) / 2, 30.0):
            if distance_to_box(12 * i, 12 * j, listed[k].door) < BODY:
                price.pop((i, j), None)
    return price


def steps_from(price, i, j):
    """(next point, length) of the steps from a point; corners are not cut."""
    for di in (-1, 0, 1):
        for dj in (-1, 0, 1):
            if (di or dj) and all(p in price for p in ((i + di, j + dj), (i + di, j), (i, j + dj))):
                yield (i + di, j + dj), 14 if di and dj else 10


def dijkstra(price, seeds):
    """{point: units of way left}; seeds: {point: units}.  A step costs its length times the price where it ends."""
    best = {}
    heap = [(length, point) for point, length in seeds.items()]
    heapq.heapify(heap)
    while heap:
        length, point = heapq.heappop(heap)
        if point in best:
            continue
        best[point] = length
        for other, step in steps_from(price, *point):
            if other not in best:
                heapq.heappush(heap, (length + step * price[point], other))
    return best


def seeds_around(price, x, y, reach, offset):
    """Free points within touching distance of a goal."""
    return {p: offset + int(gap / UNIT) for p, gap in points_within(x, y, reach).items() if p in price}


def merged(*many):
    """The smaller entry of each key."""
    out = {}
    for seeds in many:
        for p, length in seeds.items():
            out[p] = min(length, out.get(p, length))
    return out


def way_from(distance, price, x, y):
    """(px, point) of the way from a place: over the four points around it, or over those around them if no free point
    is among the four; (MAX_PATH, None) if there is none."""
    i, j = int(x / 12), int(y / 12)
    for ring in (0, 1):
        around = [(a, b) for a in range(i - ring, i + 2 + ring) for b in range(j - ring, j + 2 + ring)]
        ways = [
            (distance[p] * UNIT + math.sqrt((x - 12 * p[0]) * (x - 12 * p[0]) + (y - 12 * p[1]) * (y - 12 * p[1])), p)
            for p in around
            if p in distance
        ]
        ways = [way for way in ways if way[0] < layout.MAX_PATH]
        if ways:
            return min(ways)
        if any(p in price for p in around):
            break
    return layout.MAX_PATH, None


@dataclass
class Field:
    """Ways to one objective.  seeds: the points where it, or a door switch on the way, is touched."""

    price: dict
    distance: dict
    seeds: dict

    def way(self, x, y):
        return way_from(self.distance, self.price, x, y)

    def units(self, x, y):
        """Whole units of way from a place, None if there is none."""
        px, point = self.way(x, y)
        return None if point is None else int(px / UNIT)


def field(level, listed, closed, goals):
    """Ways to ``goals`` [(x, y, reach, units from there)], for one set of closed doors (indices of entities).

    Where they cut the way off, it leads to the switch of a closed locked door, and on as if locked doors were open.
    """
    price = lattice(level, listed, closed)
    seeds = merged(*(seeds_around(price, *goal) for goal in goals))
    direct = Field(price, dijkstra(price, seeds), seeds)
    trapped = [k for k in closed if listed[k].kind == TRAP_DOOR]
    open_price = lattice(level, listed, trapped)
    open_seeds = merged(*(seeds_around(open_price, *goal) for goal in goals))
    onward = Field(open_price, dijkstra(open_price, open_seeds), open_seeds)
    for k in closed:
        e = listed[k]
        if e.kind == LOCKED_DOOR and onward.units(e.x, e.y) is not None:
            beside = seeds_around(price, e.x, e.y, 15.0, onward.units(e.x, e.y))
            seeds = merged(seeds, {p: length for p, length in beside.items() if p not in direct.distance})
    return Field(price, dijkstra(price, seeds), seeds)


def fields(level, closed):
    """(ways over the switch to the exit, ways to the exit, units from switch to exit), for one set of closed doors."""
    listed = entities(level)
    to_exit = field(level, listed, closed, [(e.x, e.y, 22.0, 0) for e in listed if e.kind == EXIT])
    switches = [e for e in listed if e.kind == EXIT_SWITCH]
    onward = next((u for e in switches if (u := to_exit.units(e.x, e.y)) is not None), None)
    if onward is None:
        return Field(to_exit.price, {}, {}), to_exit, None
    return field(level, listed, closed, [(e.x, e.y, 16.0, onward) for e in switches]), to_exit, onward


def descents(field, start, steps):
    """All points that a shortest way from ``start`` can be at after ``steps`` steps, or at its goal before."""
    here = {start}
    for _ in range(steps):
        following = set()
        for p in here:
            if field.seeds.get(p) == field.distance[p]:
                following.add(p)
            for other, step in steps_from(field.price, *p):
                if field.distance.get(other, math.inf) + step * field.price[other] == field.distance[p]:
                    following.add(other)
        here = following
    return here
