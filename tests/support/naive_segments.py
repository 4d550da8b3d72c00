"""Slow twins of the segments of a level and of the queries on them, by other methods than the kernels'.

Segments are tuples; closest points are found on the complex plane and by angles.
"""

import cmath
import math

import numpy as np

from nppsim.shadow.geometry import (
    CORNERS,
    FILLETS,
    HEIGHT,
    OUTLINES,
    QUARTER_DISCS,
    WIDTH,
    clamped_cell,
    entities,
    stage,
)

ONE_FACE = {34: ("H", 0, -1), 35: ("V", 2, 1), 36: ("H", 2, 1), 37: ("V", 0, -1)}


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


def segments(level):
    """{cell: [segment, ...]} in the order of docs/physics.md, section 3.5.

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
    """[(D, result, x, y), ...] best first (docs/physics.md, section 4.4).

    closed: indices of the entities whose doors are closed.
    """
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
