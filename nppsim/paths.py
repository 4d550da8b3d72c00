"""Geodesic path distances for a body of the ninja's size, on a lattice of 12 px.

A lattice point represents the square of 12 px around it.  The square is sampled every 3 px.  A sample is free if a circle of
radius ``BODY`` around it contains nothing solid.  A point is free if any sample of its square is free.  Two neighbours are
joined if a sample on the common edge of their squares is free.  One-way platforms can be crossed in one direction only.

For each level and each state of its doors there are two fields of path lengths to the exit: field 0, via an exit switch, and
field 1, after a switch is taken.  Gravity is ignored.  Mines make a path longer but do not block it.

Where a locked door blocks the path, the path leads to the switch of this door, and continues as if all locked doors were
open.  If that switch is behind another locked door, the path leads to the switch of the other door first.  The same rule
applies between an exit switch and its exit.  A path avoids the switch of a trap door through which it has to pass later,
unless there is no other path.
"""

import math

import numpy as np

from nppsim._numba.decorators import allocating, allocating_entry, entry, inlined, kernel, merged
from nppsim.levels import kinds
from nppsim.levels.stage import CELLS_X, CELLS_Y, LINES_X, LINES_Y, NUM_CELLS, TILE
from nppsim.levels.tiles import NUM_TILE_SHAPES, OPEN, SOLID, solid_mask
from nppsim.physics.groups import is_mine
from nppsim.physics.segments import closest_point
from nppsim.physics.shapes import MAX_X, MAX_Y, MIN_X, MIN_Y, SHAPES

SPACING = 12.0  # px between lattice points
NODES_X, NODES_Y = LINES_X, LINES_Y  # numbers of lattice points, which are the corners of half-cells
NUM_NODES = NODES_X * NODES_Y
BODY = 9.4  # px, radius of the body; less than the ninja's radius, because samples are 3 px apart
SURFACE_BODY = 8.4  # px, radius with leniency 1 and 2; like the ninja, this body fits between diagonals 17 px apart
SAMPLE = 3  # px between samples
PER_POINT = 4  # samples from one lattice point to the next
MARGIN = 3  # samples outside the stage that tiles of its border can block
SAMPLES_X, SAMPLES_Y = PER_POINT * (NODES_X - 1) + 1, PER_POINT * (NODES_Y - 1) + 1
MINE_REACH = 14.5  # px, radius around a mine's centre within which steps count as longer
MINE_WEIGHT = 6  # factor on the length of a step within MINE_REACH of a mine
STRAIGHT, DIAGONAL = 10, 14  # lengths of a straight and a diagonal step, in units
UNIT = SPACING / STRAIGHT  # px, the unit of stored path lengths
MAX_PATH = 8000.0  # px; length that stands for "no path"
UNREACHABLE = 65535  # distance at a free lattice point without a path to a goal
WALL = 65534  # distance at a blocked lattice point
NO_STEP = 255  # value of ``next_step`` at a goal, and at points without a path
NOT_SEARCHED = 254  # see ``_on_path``
# Distances in px at which the ninja's centre touches a goal.
EXIT_REACH = 22.0
SWITCH_REACH = 16.0
DOOR_SWITCH_REACH = 15.0
MOST_LENIENT = 2  # see ``prepare_level``
ONE_WAY_REACH = 17.1  # px from a one-way's middle to either end of its effect: half its length + 0.51 * ninja's radius
# Bits of a lattice point: it is free; it is near a mine; FROM << d: its neighbour in direction d has a step to it.
FREE, MINED, FROM = 1, 2, 256
ALL = 65535  # all bits
RIGHT, DOWN = 4, 8  # bits during ``prepare_level``: the point is joined to its right neighbour, to its lower neighbour
DOOR_WINDOW = 9  # lattice points per side of the square around a door; the door does not affect points outside
QUEUED, FIXED = 1, 2  # marks of a point in a search: it is in the queue; its distance is final

# Steps by direction, straight ones first.
STEP_X = np.array([1, -1, 0, 0, 1, 1, -1, -1])
STEP_Y = np.array([0, 0, 1, -1, 1, -1, 1, -1])
STEP = STEP_X * NODES_Y + STEP_Y  # number of the neighbour minus number of the point
BACK = np.array([1, 0, 3, 2, 7, 6, 5, 4])  # opposite direction


def _blocked_samples() -> np.ndarray:
    """uint8[38, 15, 16]: 1 for samples that a tile's solid part blocks, -9 to 33 px from its corner, x first.

    The last column is 0: with rows of 16 bytes, ``_block_tiles`` compiles to vector instructions.
    """
    size = 24
    centre = (np.arange(size) + 0.5) * TILE / size
    at = SAMPLE * (np.arange(15) - 3.0)
    table = np.zeros((NUM_TILE_SHAPES, 15, 16), np.uint8)
    for tile in range(NUM_TILE_SHAPES):
        rows, columns = np.nonzero(solid_mask(tile, size))
        if len(rows):
            dx, dy = centre[columns] - at[:, None], centre[rows] - at[:, None]
            gaps = dx[:, None, :] ** 2 + dy[None, :, :] ** 2
            table[tile, :, :15] = gaps.min(axis=2) < BODY**2
    return table


_BLOCKED = _blocked_samples()


@merged
def prepare_level(world, level, stage, leniency, nodes, effects):
    """Fill ``nodes`` and ``effects`` of a level, the input of ``compute_fields``.

    stage: uint8[44, 25], tile ids, x first.
    leniency: 0: the solid parts of tiles block.
        1: only surfaces block.  Like the game, this permits paths through solid parts that the ninja enters through one-sided
        tiles, and through gaps between diagonals that are narrower than its diameter.
        2: in addition, one-ways do not block.  The ninja can pass them at corners, or when a thwump pushes it.
    nodes: uint16[4539], output: bits FREE, MINED and FROM << d of each point, x first, with all doors open.
    effects: uint16[doors, 81], output: for each door with a switch, the bits FREE and FROM << d that the closed door
        clears at each point of its window.
    """
    padded = np.zeros((SAMPLES_X + 2 * MARGIN, SAMPLES_Y + 2 * MARGIN + 1), np.uint8)
    samples = padded[MARGIN : MARGIN + SAMPLES_X, MARGIN : MARGIN + SAMPLES_Y]
    if leniency > 0:
        _block_surfaces(world, level, samples)
    else:
        _block_tiles(stage, padded)
    openings = np.zeros(NUM_NODES, np.uint8)
    for i in range(NODES_X):
        for j in range(NODES_Y):
            if leniency > 0 or not _in_solid_tiles(stage, i, j):
                openings[i * NODES_Y + j] = _openings(samples, i, j, np.inf, np.inf, np.inf, np.inf)
    for node in range(NUM_NODES):
        nodes[node] = int(openings[node]) & FREE | FROM * _joined(openings, node)
    record = world.level[level]
    for k in range(record["entity_first"], record["entity_end"]):
        if is_mine(world.entity[k]["type"]):
            _mark_mine(nodes, world.entity[k]["x"], world.entity[k]["y"])
        elif world.entity[k]["type"] == kinds.ONE_WAY and leniency < 2:
            _mark_one_way(nodes, world.entity[k])
    for k in range(record["switches_first"], record["switches_end"]):
        _find_effect(world.entity[k], samples, openings, nodes, effects[k - record["switches_first"]])


@merged
def _find_effect(door, samples, openings, nodes, effect):
    """Fill ``effects`` of one door, see ``prepare_level``."""
    shut = openings.copy()
    left, top = _window(door)
    for a in range(DOOR_WINDOW):
        for b in range(DOOR_WINDOW):
            i, j = left + a, top + b
            if 0 <= i < NODES_X and 0 <= j < NODES_Y:
                shut[i * NODES_Y + j] = _openings(samples, i, j, door["x1"], door["y1"], door["x2"], door["y2"])
    for a in range(DOOR_WINDOW):
        for b in range(DOOR_WINDOW):
            i, j = left + a, top + b
            effect[DOOR_WINDOW * a + b] = 0
            if 0 <= i < NODES_X and 0 <= j < NODES_Y:
                node = i * NODES_Y + j
                left_over = MINED | int(shut[node]) & FREE | FROM * _joined(shut, node)
                effect[DOOR_WINDOW * a + b] = nodes[node] & (ALL ^ left_over)


@inlined
def _in_solid_tiles(stage, i, j):
    """Return True if the square of a lattice point lies in solid tiles, which block all of its samples."""
    left, right, top, bottom = (
        max(i - 1, 0) // 2,
        min(i, NODES_X - 2) // 2,
        max(j - 1, 0) // 2,
        min(j, NODES_Y - 2) // 2,
    )
    return (
        stage[left, top] == SOLID
        and stage[right, top] == SOLID
        and stage[left, bottom] == SOLID
        and stage[right, bottom] == SOLID
    )


@merged
def _block_tiles(stage, padded):
    """Mark the samples that tiles block.  padded: samples with MARGIN more at each side."""
    for cx in range(CELLS_X):
        for cy in range(CELLS_Y):
            tile = stage[cx, cy]
            if tile == OPEN:
                continue
            for a in range(15):
                for b in range(16):
                    padded[2 * PER_POINT * cx + a, 2 * PER_POINT * cy + b] |= _BLOCKED[tile, a, b]


@merged
def _block_surfaces(world, level, samples):
    """Mark the samples that surfaces of tiles block."""
    first = world.level[level]["segment_first"]
    for k in range(first, first + world.cell_start[level, NUM_CELLS]):
        if world.segments[k]["entity"] >= 0:
            continue
        x, y, shape = world.segments[k]["x"], world.segments[k]["y"], world.segments[k]["shape"]
        left, right = x + SHAPES[shape, MIN_X] - SURFACE_BODY, x + SHAPES[shape, MAX_X] + SURFACE_BODY
        top, bottom = y + SHAPES[shape, MIN_Y] - SURFACE_BODY, y + SHAPES[shape, MAX_Y] + SURFACE_BODY
        for a in range(max(int(left / SAMPLE), 0), min(int(right / SAMPLE) + 1, SAMPLES_X)):
            for b in range(max(int(top / SAMPLE), 0), min(int(bottom / SAMPLE) + 1, SAMPLES_Y)):
                px, py = float(SAMPLE * a), float(SAMPLE * b)
                at_x, at_y, _side = closest_point(px, py, x, y, shape)
                if (px - at_x) * (px - at_x) + (py - at_y) * (py - at_y) < SURFACE_BODY * SURFACE_BODY:
                    samples[a, b] = 1


@merged
def _mark_one_way(nodes, platform):
    """Remove the steps that cross a one-way against its normal."""
    x, y, nx, ny = platform["x"], platform["y"], platform["x1"], platform["y1"]
    reach = ONE_WAY_REACH + 2.0 * SPACING
    for i in range(max(int((x - reach) / SPACING), 0), min(int((x + reach) / SPACING) + 2, NODES_X)):
        for j in range(max(int((y - reach) / SPACING), 0), min(int((y + reach) / SPACING) + 2, NODES_Y)):
            ex, ey = SPACING * i - x, SPACING * j - y
            behind = ex * nx + ey * ny
            for d in range(8):
                from_x, from_y = ex + SPACING * STEP_X[d], ey + SPACING * STEP_Y[d]
                before = from_x * nx + from_y * ny
                if behind <= 0.0 < before:
                    share = before / (before - behind)
                    at_x, at_y = from_x + share * (ex - from_x), from_y + share * (ey - from_y)
                    if abs(at_y * nx - at_x * ny) < ONE_WAY_REACH:
                        nodes[i * NODES_Y + j] &= ALL ^ FROM << d


@merged
def _mark_mine(nodes, x, y):
    for i in range(max(int((x - MINE_REACH) / SPACING), 0), min(int((x + MINE_REACH) / SPACING) + 2, NODES_X)):
        for j in range(max(int((y - MINE_REACH) / SPACING), 0), min(int((y + MINE_REACH) / SPACING) + 2, NODES_Y)):
            dx, dy = SPACING * i - x, SPACING * j - y
            if dx * dx + dy * dy < MINE_REACH * MINE_REACH:
                nodes[i * NODES_Y + j] |= MINED


@kernel
def _openings(samples, i, j, x1, y1, x2, y2):
    """Bits FREE, RIGHT and DOWN of a point, with a closed door from (x1, y1) to (x2, y2) px; no door if infinite."""
    found = 0
    half = PER_POINT // 2
    for a in range(min(PER_POINT * i + half, SAMPLES_X - 1), max(PER_POINT * i - half, 0) - 1, -1):
        for b in range(min(PER_POINT * j + half, SAMPLES_Y - 1), max(PER_POINT * j - half, 0) - 1, -1):
            if samples[a, b]:
                continue
            if x1 < np.inf:
                px, py = float(SAMPLE * a), float(SAMPLE * b)
                dx, dy = px - min(max(px, x1), x2), py - min(max(py, y1), y2)
                if dx * dx + dy * dy < BODY * BODY:
                    continue
            found |= FREE
            if a == PER_POINT * i + half:
                found |= RIGHT
            if b == PER_POINT * j + half:
                found |= DOWN
            if found == FREE | RIGHT | DOWN:  # in open space after the first sample
                return found
    return found


@kernel
def _joined(openings, node):
    """Bits of the directions in which a point is joined to its neighbours; a diagonal step must not cut a corner."""
    right, left = openings[node] & RIGHT != 0, node >= NODES_Y and openings[node - NODES_Y] & RIGHT != 0
    down, up = openings[node] & DOWN != 0, node > 0 and openings[node - 1] & DOWN != 0
    found = right | left << 1 | down << 2 | up << 3
    if right and down and openings[node + NODES_Y] & DOWN and openings[node + 1] & RIGHT:
        found |= 1 << 4
    if right and up and openings[node + NODES_Y - 1] & DOWN and openings[node - 1] & RIGHT:
        found |= 1 << 5
    if left and down and openings[node - NODES_Y] & DOWN and openings[node - NODES_Y + 1] & RIGHT:
        found |= 1 << 6
    if left and up and openings[node - NODES_Y - 1] & DOWN and openings[node - NODES_Y - 1] & RIGHT:
        found |= 1 << 7
    return found


@inlined
def _window(door):
    """Column and row of the first lattice point of the window around a door."""
    x, y = (door["x1"] + door["x2"]) / 2.0, (door["y1"] + door["y2"]) / 2.0
    half = DOOR_WINDOW // 2
    return int(math.floor(x / SPACING + 0.5)) - half, int(math.floor(y / SPACING + 0.5)) - half


@kernel
def _close_door(nodes, door, effect):
    left, top = _window(door)
    for a in range(DOOR_WINDOW):
        for b in range(DOOR_WINDOW):
            if effect[DOOR_WINDOW * a + b]:
                nodes[(left + a) * NODES_Y + top + b] &= ~effect[DOOR_WINDOW * a + b]


@kernel
def _block_around(nodes, x, y, reach):
    """Block the points closer than ``reach`` px to (x, y)."""
    for i in range(max(int((x - reach) / SPACING), 0), min(int((x + reach) / SPACING) + 2, NODES_X)):
        for j in range(max(int((y - reach) / SPACING), 0), min(int((y + reach) / SPACING) + 2, NODES_Y)):
            dx, dy = SPACING * i - x, SPACING * j - y
            if math.sqrt(dx * dx + dy * dy) < reach:
                nodes[i * NODES_Y + j] = 0
                for d in range(8):
                    if 0 <= i + STEP_X[d] < NODES_X and 0 <= j + STEP_Y[d] < NODES_Y:
                        nodes[i * NODES_Y + j + STEP[d]] &= ALL ^ FROM << BACK[d]


@kernel
def _seed(nodes, x, y, reach, offset, distance, marks, queue, tail):
    """Queue the free lattice points within ``reach`` px of a goal; return the new end of the queue.

    offset: distance at the goal in units.
    Before the search, the only free points with a distance are those in the queue and those that are FIXED.
    """
    for i in range(max(int((x - reach) / SPACING), 0), min(int((x + reach) / SPACING) + 2, NODES_X)):
        for j in range(max(int((y - reach) / SPACING), 0), min(int((y + reach) / SPACING) + 2, NODES_Y)):
            node = i * NODES_Y + j
            dx, dy = SPACING * i - x, SPACING * j - y
            gap = math.sqrt(dx * dx + dy * dy)
            length = offset + int(gap / UNIT)
            if gap < reach and nodes[node] & FREE and length < distance[node] and marks[node] != FIXED:
                if distance[node] == UNREACHABLE:  # queued only once: there may be more goals than room in the queue
                    queue[tail] = node
                    tail += 1
                distance[node] = length
    return tail


@kernel
def _spread(nodes, distance, next_step, marks, queue, tail):
    """Find shortest paths to the queued points over free points, by a label-correcting search with a ring buffer as queue.

    marks: uint8[4539], FIXED or 0.
    queue: int32[4539]; the search begins at the first ``tail`` entries.
    """
    for k in range(tail):
        if marks[queue[k]] != FIXED:
            next_step[queue[k]] = NO_STEP
        marks[queue[k]] |= QUEUED
    head = 0
    while head < tail:
        node = queue[head % NUM_NODES]
        head += 1
        marks[node] &= FIXED
        here = np.int64(distance[node])
        weight = MINE_WEIGHT if nodes[node] & MINED else 1
        came_from = nodes[node] // FROM
        for d in range(8):
            if not came_from >> d & 1:
                continue
            other = node + STEP[d]
            length = here + weight * (DIAGONAL if d >= 4 else STRAIGHT)
            if length < distance[other] and length < WALL and not marks[other] & FIXED:
                distance[other] = length
                next_step[other] = BACK[d]
                if not marks[other] & QUEUED:
                    marks[other] |= QUEUED
                    queue[tail % NUM_NODES] = other
                    tail += 1


@kernel
def _at(distance, x, y):
    """Length of the path from (x, y) in whole units; UNREACHABLE if there is none."""
    value, node = _nearest(distance, x, y)
    return UNREACHABLE if node < 0 else int(value / UNIT)


@entry
def nearest_node(distance, x, y):
    """Return (length in px, first lattice point) of the path from (x, y); (MAX_PATH, -1) if there is none.

    The length is at most MAX_PATH - UNIT.  The first point is one of the four lattice points around (x, y), or, if all
    four are blocked, one of the twelve points around these.  If one of the four is free but has no path, the twelve are
    not tried, because they may be beyond a closed door.
    """
    value, node = _nearest(distance, x, y)
    return (MAX_PATH, -1) if node < 0 else (min(value, MAX_PATH - UNIT), node)


@inlined
def _nearest(distance, x, y):
    """Return ``nearest_node`` without an upper limit of the length; (inf, -1) if there is no path."""
    i, j = int(x / SPACING), int(y / SPACING)
    for ring in range(2):
        best, best_node, cut_off = math.inf, -1, False
        for a in range(max(i - ring, 0), min(i + 2 + ring, NODES_X)):
            for b in range(max(j - ring, 0), min(j + 2 + ring, NODES_Y)):
                node = a * NODES_Y + b
                cut_off |= distance[node] != WALL
                if distance[node] < WALL:
                    dx, dy = x - SPACING * a, y - SPACING * b
                    value = distance[node] * UNIT + math.sqrt(dx * dx + dy * dy)
                    if value < best:
                        best, best_node = value, node
        if best_node >= 0 or cut_off:
            return best, best_node
    return math.inf, -1


@kernel
def _clear(nodes, distance, next_step):
    """Reset a field: no point has a path."""
    next_step[:] = NO_STEP
    for node in range(NUM_NODES):
        distance[node] = UNREACHABLE if nodes[node] & FREE else WALL


@allocating
def _direct_field(nodes, nodes_open, effects, world, level, closed, length_after, distance, next_step, unlocked):
    """Compute a field (see ``_field``) whose paths may touch any switch."""
    queue = np.empty(NUM_NODES, np.int32)
    marks = np.zeros(NUM_NODES, np.uint8)
    _clear(nodes, distance, next_step)
    tail = _seed_goals(nodes, world, level, length_after, distance, marks, queue)
    _spread(nodes, distance, next_step, marks, queue, tail)
    if len(closed) == 0:
        for node in range(NUM_NODES):  # Numba takes two seconds to compile ``unlocked[:] = distance``
            unlocked[node] = distance[node]
        return
    unlocked_step = np.empty(NUM_NODES, np.uint8)
    _clear(nodes_open, unlocked, unlocked_step)
    tail = _seed_goals(nodes_open, world, level, length_after, unlocked, marks, queue)
    _spread(nodes_open, unlocked, unlocked_step, marks, queue, tail)
    _lead_to_switches(nodes, nodes_open, effects, world, level, closed, unlocked, queue, distance, next_step)


@allocating
def _lead_to_switches(nodes, nodes_open, effects, world, level, closed, unlocked, queue, distance, next_step):
    """Extend a field to the points that closed doors separate from the goals, by paths to switches of locked doors.

    unlocked: distances of the paths that would exist if all locked doors were open.  Each round adds the switches whose
        unlocked path leads through the door that they open.  If there are none, the round adds all remaining switches
        with an unlocked path.
    """
    first = world.level[level]["switches_first"]
    pending = np.zeros(len(closed), np.uint8)
    for k in range(len(closed)):
        door = world.entity[first + k]
        pending[k] = door["type"] == kinds.LOCKED_DOOR and closed[k] and door["active"]
    if not pending.any() or not (distance == UNREACHABLE).any():
        return
    unlocked, nodes_open = unlocked.copy(), nodes_open.copy()  # the doors of a round are closed in later rounds
    marks, unlocked_step = np.empty(NUM_NODES, np.uint8), np.empty(NUM_NODES, np.uint8)
    on_path_only = True
    while True:
        for node in range(NUM_NODES):
            marks[node] = FIXED if distance[node] != UNREACHABLE else 0
        tail = np.int64(0)  # typed, because Numba would compile kernels again for a literal
        steps = np.full(NUM_NODES, NOT_SEARCHED, np.uint8)
        opening = np.zeros(len(closed), np.uint8)
        for k in range(len(closed)):
            door = world.entity[first + k]
            length = _at(unlocked, door["x"], door["y"]) if pending[k] else UNREACHABLE
            if length == UNREACHABLE or (
                on_path_only and not _on_path(nodes_open, door["x"], door["y"], door, effects[k], unlocked, steps)
            ):
                continue
            pending[k], opening[k] = 0, 1
            tail = _seed(nodes, door["x"], door["y"], DOOR_SWITCH_REACH, length, distance, marks, queue, tail)
        if tail == 0:
            if not on_path_only:
                return
            on_path_only = False
            continue
        _spread(nodes, distance, next_step, marks, queue, tail)
        if not pending.any() or not (distance == UNREACHABLE).any():
            return
        for k in range(len(closed)):
            if opening[k]:
                _close_door(nodes_open, world.entity[first + k], effects[k])
        marks[:] = 0
        tail = _seed_reached(nodes_open, distance, unlocked, queue)
        _spread(nodes_open, unlocked, unlocked_step, marks, queue, tail)


@kernel
def _seed_reached(nodes, distance, unlocked, queue):
    """Queue all points that have a path, with their distances; return the end of the queue."""
    tail = 0
    for node in range(NUM_NODES):
        unlocked[node] = UNREACHABLE if nodes[node] & FREE else WALL
        if distance[node] < WALL:
            unlocked[node] = distance[node]
            queue[tail] = node
            tail += 1
    return tail


@kernel
def _on_path(nodes, x, y, door, effect, distance, steps):
    """Return True if the path from (x, y) leads through a door; False if there is no path.

    If several paths are shortest, the one whose steps come first in STEP counts.
    steps: uint8[4539], cache of the path's direction at each point; NOT_SEARCHED where it is unknown.
    """
    left, top = _window(door)
    _length, node = _nearest(distance, x, y)
    while node >= 0:
        if steps[node] == NOT_SEARCHED:
            steps[node] = _first_step(nodes, node, distance)
        d = steps[node]
        if d == NO_STEP:
            return False
        node += STEP[d]
        a, b = node // NODES_Y - left, node % NODES_Y - top
        if 0 <= a < DOOR_WINDOW and 0 <= b < DOOR_WINDOW and effect[DOOR_WINDOW * a + b] // FROM >> BACK[d] & 1:
            return True
    return False


@kernel
def _first_step(nodes, node, distance):
    """First direction of a shortest path from a point; NO_STEP at its end."""
    for d in range(8):
        other = node + STEP[d]
        if 0 <= other < NUM_NODES and nodes[other] // FROM >> BACK[d] & 1:
            step = (MINE_WEIGHT if nodes[other] & MINED else 1) * (DIAGONAL if d >= 4 else STRAIGHT)
            if np.int64(distance[other]) + step == distance[node]:
                return d
    return NO_STEP


@allocating
def _field(shut, open_, effects, world, level, closed, length_after, avoided, distance, next_step, unlocked):
    """Compute one field: each point's distance to the goals (uint16, in units), and the direction of its next step.

    length_after: int64[m], for each exit door and exit switch of the level: length of the path after it, in units;
        UNREACHABLE if it is not a goal.
    avoided: uint8[n], 1 for each trap door whose switch the paths avoid.  The caller marks the trap doors that the ninja must
        pass after the goal.  This function adds the trap doors that lie on the path from their own switch.
    unlocked: uint16[4539], output: the distances if all locked doors were open.
    """
    _direct_field(shut, open_, effects, world, level, closed, length_after, distance, next_step, unlocked)
    first = world.level[level]["switches_first"]
    steps = np.full(NUM_NODES, NOT_SEARCHED, np.uint8)
    for k in range(len(closed)):
        door = world.entity[first + k]
        if _can_close(door, closed[k]) and not avoided[k]:
            avoided[k] = _on_path(open_, door["x"], door["y"], door, effects[k], unlocked, steps)
    if not avoided.any():
        return
    around, around_open = shut.copy(), open_.copy()
    for k in range(len(closed)):
        if avoided[k]:
            door = world.entity[first + k]
            _block_around(around, door["x"], door["y"], DOOR_SWITCH_REACH)
            _block_around(around_open, door["x"], door["y"], DOOR_SWITCH_REACH)
    elsewhere = np.empty(NUM_NODES, np.uint16)
    _direct_field(around, around_open, effects, world, level, closed, length_after, distance, next_step, elsewhere)
    queue = np.empty(NUM_NODES, np.int32)
    _extend(shut, world, level, length_after, queue, distance, next_step)
    _lead_to_switches(shut, open_, effects, world, level, closed, unlocked, queue, distance, next_step)


@kernel
def _can_close(door, closed):
    """Return True for a trap door whose switch has not been touched."""
    return door["type"] == kinds.TRAP_DOOR and door["active"] and not closed


@merged
def _extend(nodes, world, level, length_after, queue, distance, next_step):
    """Complete a field whose paths avoid some switches: elsewhere, allow paths via these switches."""
    marks = np.zeros(NUM_NODES, np.uint8)
    tail = np.int64(0)
    for node in range(NUM_NODES):
        if distance[node] < WALL:
            marks[node] = FIXED
            queue[tail] = node
            tail += 1
        elif nodes[node] & FREE:
            distance[node] = UNREACHABLE
    if tail == 0:
        tail = _seed_goals(nodes, world, level, length_after, distance, marks, queue)
    _spread(nodes, distance, next_step, marks, queue, tail)


@kernel
def _seed_goals(nodes, world, level, length_after, distance, marks, queue):
    tail = np.int64(0)
    first = world.level[level]["exits_first"]
    for row in range(len(length_after)):
        if length_after[row] != UNREACHABLE:
            goal = world.entity[first + row]
            reach = EXIT_REACH if goal["type"] == kinds.EXIT else SWITCH_REACH
            tail = _seed(nodes, goal["x"], goal["y"], reach, length_after[row], distance, marks, queue, tail)
    return tail


@allocating_entry
def compute_fields(world, nodes, effects, level, closed, opened, distance, next_step):
    """Compute the two fields of a level for one state of its doors and exits.

    Field 0 leads via an exit switch to the exit of this switch, field 1 to the open exits, or to all exits if none is open.
    nodes, effects: arrays of the level from ``prepare_level``.
    closed: uint8[n], 1 for each closed door, of all doors with a switch in type order.
    opened: uint8[m], 1 for each open exit door, of all exit doors and exit switches in type order.
    distance: uint16[2, 4539], output: path length in units of 1.2 px, UNREACHABLE or WALL.
    next_step: uint8[2, 4539], output: direction of the path, an index into STEP; NO_STEP at a goal and without a path.
    Returns the length of the shortest path from an exit switch to its exit in units, UNREACHABLE if there is none.
    """
    record = world.level[level]
    shut, open_ = nodes.copy(), nodes.copy()
    for k in range(record["switches_first"], record["switches_end"]):
        if closed[k - record["switches_first"]]:
            door, effect = world.entity[k], effects[k - record["switches_first"]]
            _close_door(shut, door, effect)
            if door["type"] != kinds.LOCKED_DOOR:
                _close_door(open_, door, effect)
    first = record["exits_first"]
    rows = record["exits_end"] - first
    length_after = np.full(rows, UNREACHABLE, np.int64)
    to_switch = np.full(rows, UNREACHABLE, np.int64)
    unlocked = np.empty(NUM_NODES, np.uint16)
    needed = np.zeros(len(closed), np.uint8)  # trap doors between an exit switch and its exit
    least = UNREACHABLE
    for row in range(rows):  # for each exit: path from its switch to it
        switch = world.entity[first + row]
        if switch["type"] != kinds.EXIT_SWITCH or not switch["active"]:
            continue
        own_exit = record["entity_first"] + switch["partner"] - first
        length_after[own_exit] = 0
        avoided = np.zeros(len(closed), np.uint8)
        _field(shut, open_, effects, world, level, closed, length_after, avoided, distance[1], next_step[1], unlocked)
        length_after[own_exit] = UNREACHABLE
        to_switch[row] = _at(distance[1], switch["x"], switch["y"])
        if to_switch[row] == UNREACHABLE:
            to_switch[row] = _at(unlocked, switch["x"], switch["y"])
        least = min(least, to_switch[row])
        steps = np.full(NUM_NODES, NOT_SEARCHED, np.uint8)
        for k in range(len(closed)):
            door = world.entity[record["switches_first"] + k]
            if _can_close(door, closed[k]) and not needed[k]:
                needed[k] = _on_path(open_, switch["x"], switch["y"], door, effects[k], unlocked, steps)
    _field(shut, open_, effects, world, level, closed, to_switch, needed, distance[0], next_step[0], unlocked)
    if rows != 2 or least == UNREACHABLE:  # with one exit, the loop has computed field 1
        for row in range(rows):
            if world.entity[first + row]["type"] == kinds.EXIT and (opened[row] or not opened.any()):
                length_after[row] = 0
        avoided = np.zeros(len(closed), np.uint8)
        _field(shut, open_, effects, world, level, closed, length_after, avoided, distance[1], next_step[1], unlocked)
    return least


@kernel
def waypoint(next_step, node, steps):
    """Lattice point reached from ``node`` after at most ``steps`` steps of the path."""
    for _ in range(steps):
        d = next_step[node]
        if d == NO_STEP:
            break
        node += STEP[d]
    return node
