"""Geodesic path distances for a body of the ninja's size, on a lattice of 12 px.

A lattice point is free if a circle of radius ``BODY`` around it meets nothing solid.  For each level, and for each state
of its doors, two fields are computed: the length of the path to the exit before an exit switch is taken (via the
switch) and after.  Gravity is ignored; mines make a path longer, they do not block it.

Where doors block the path, it leads to the switch of a locked door, and from there as if all locked doors were open.
The same applies to the path from an exit switch to its exit if doors separate them: a ninja that has reached the switch
has opened doors before.
"""

import math

import numpy as np

from nppsim._kernel import allocating, kernel
from nppsim.levels import kinds
from nppsim.levels.stage import CELLS_X, CELLS_Y, LINES_X, LINES_Y, TILE
from nppsim.levels.tiles import NUM_TILE_SHAPES, OPEN, solid_mask
from nppsim.physics.groups import is_mine

SPACING = 12.0  # px between lattice points
NODES_X, NODES_Y = LINES_X, LINES_Y  # lattice points: the corners of half-cells
NUM_NODES = NODES_X * NODES_Y
BODY = 9.4  # px; a little below the ninja's radius, as the lattice is coarse
MINE_REACH = 14.5  # px around a mine's centre where a step counts more
MINE_WEIGHT = 6  # times its length there
STRAIGHT, DIAGONAL = 10, 14  # lengths of a step, in units
UNIT = SPACING / STRAIGHT  # px
MAX_PATH = 8000.0  # px; path distances are cut off here, and an unreachable goal reads this value
UNREACHABLE = 65535  # distance of a free lattice point without a path to a goal
WALL = 65534  # distance of a blocked one
NO_HOP = 255  # next hop of a goal, and of points without a path
EXIT_REACH = 22.0  # px, touching distances
SWITCH_REACH = 16.0
DOOR_SWITCH_REACH = 15.0
FREE, BLOCKED, MINED = range(3)  # kinds of lattice points

# By hop: straight ones first.
STEP_X = np.array([1, -1, 0, 0, 1, 1, -1, -1])
STEP_Y = np.array([0, 0, 1, -1, 1, -1, 1, -1])


def _blocked_offsets() -> np.ndarray:
    """uint8[38, 5, 5]: lattice points around a tile (from -12 to 36 px, x first) that its solid part blocks."""
    size = 48
    centre = (np.arange(size) + 0.5) * TILE / size
    table = np.zeros((NUM_TILE_SHAPES, 5, 5), np.uint8)
    for tile in range(NUM_TILE_SHAPES):
        rows, columns = np.nonzero(solid_mask(tile, size))
        if len(rows) == 0:
            continue
        for i in range(5):
            for j in range(5):
                gap = np.hypot(centre[columns] - SPACING * (i - 1), centre[rows] - SPACING * (j - 1)).min()
                table[tile, i, j] = gap < BODY
    return table


_BLOCKED = _blocked_offsets()


@kernel
def static_nodes(world, level, stage, nodes):
    """Fill ``nodes`` (uint8[4539], x first) of a level: FREE, BLOCKED by tiles, or MINED.  stage: uint8[44, 25], x first."""
    nodes[:] = FREE
    base = world.level[level]["entity_first"]
    for k in range(base, world.level[level]["entity_end"]):
        kind = world.entity[k]["type"]
        if is_mine(kind):
            _mark_disc(nodes, world.entity[k]["x"], world.entity[k]["y"], MINE_REACH, MINED)
    for cx in range(CELLS_X):
        for cy in range(CELLS_Y):
            tile = stage[cx, cy]
            if tile == OPEN:
                continue
            for i in range(5):
                for j in range(5):
                    x, y = 2 * cx + i - 1, 2 * cy + j - 1
                    if _BLOCKED[tile, i, j] and 0 <= x < NODES_X and 0 <= y < NODES_Y:
                        nodes[x * NODES_Y + y] = BLOCKED


@kernel
def _mark_disc(nodes, x, y, radius, mark):
    for i in range(max(int((x - radius) / SPACING), 0), min(int((x + radius) / SPACING) + 2, NODES_X)):
        for j in range(max(int((y - radius) / SPACING), 0), min(int((y + radius) / SPACING) + 2, NODES_Y)):
            dx, dy = SPACING * i - x, SPACING * j - y
            if dx * dx + dy * dy < radius * radius:
                nodes[i * NODES_Y + j] = mark


@kernel
def _close_door(nodes, x1, y1, x2, y2):
    """Block the lattice points that a closed door keeps the ninja from."""
    for i in range(max(int((x1 - 12) / SPACING), 0), min(int((x2 + 12) / SPACING) + 2, NODES_X)):
        for j in range(max(int((y1 - 12) / SPACING), 0), min(int((y2 + 12) / SPACING) + 2, NODES_Y)):
            px, py = SPACING * i, SPACING * j
            dx, dy = px - min(max(px, x1), x2), py - min(max(py, y1), y2)
            if dx * dx + dy * dy < BODY * BODY:
                nodes[i * NODES_Y + j] = BLOCKED


@kernel
def _seed(nodes, x, y, reach, offset, distance, queue, tail):
    """Put the free lattice points within touching distance of a goal into the queue; returns its new end.

    Of free points, those in the queue are reached and no others.
    """
    for i in range(max(int((x - reach) / SPACING), 0), min(int((x + reach) / SPACING) + 2, NODES_X)):
        for j in range(max(int((y - reach) / SPACING), 0), min(int((y + reach) / SPACING) + 2, NODES_Y)):
            node = i * NODES_Y + j
            dx, dy = SPACING * i - x, SPACING * j - y
            gap = math.sqrt(dx * dx + dy * dy)
            length = offset + int(gap / UNIT)
            if gap < reach and nodes[node] != BLOCKED and length < distance[node]:
                if distance[node] == UNREACHABLE:  # once only: there may be more goals than room in the queue
                    queue[tail] = node
                    tail += 1
                distance[node] = length
    return tail


@allocating
def _spread(nodes, distance, hop, queue, tail):
    """Find shortest paths from the seeds over free points: label-correcting search with a ring of pending points."""
    pending = np.zeros(NUM_NODES, np.uint8)
    for k in range(tail):
        pending[queue[k]] = 1
        hop[queue[k]] = NO_HOP
    head = 0
    while head < tail:
        node = queue[head % NUM_NODES]
        head += 1
        pending[node] = 0
        i, j = node // NODES_Y, node % NODES_Y
        here = np.int64(distance[node])
        weight = MINE_WEIGHT if nodes[node] == MINED else 1
        for d in range(8):
            x, y = i + STEP_X[d], j + STEP_Y[d]
            if x < 0 or x >= NODES_X or y < 0 or y >= NODES_Y:
                continue
            other = x * NODES_Y + y
            if nodes[other] == BLOCKED:
                continue
            if d >= 4 and (nodes[x * NODES_Y + j] == BLOCKED or nodes[i * NODES_Y + y] == BLOCKED):
                continue  # no cutting of corners
            length = here + weight * (DIAGONAL if d >= 4 else STRAIGHT)
            if length < distance[other] and length < WALL:
                distance[other] = length
                hop[other] = d ^ 1 if d < 4 else 11 - d  # opposite direction of the step
                if pending[other] == 0:
                    pending[other] = 1
                    queue[tail % NUM_NODES] = other
                    tail += 1


@kernel
def _at(distance, x, y):
    """Return the path length from a point in whole units; UNREACHABLE if there is no path."""
    value, _node = nearest_node(distance, x, y)
    return UNREACHABLE if value >= MAX_PATH else int(value / UNIT)


@kernel
def nearest_node(distance, x, y):
    """Return (path length from a point in px, first lattice point of the path); (MAX_PATH, -1) if there is no path.

    The first point is one of the four around; if all four are blocked, one of those around them.
    (Where one is free but not reached, a point farther away that is reached may lie beyond a closed door.)
    """
    i, j = int(x / SPACING), int(y / SPACING)
    for ring in range(2):
        best, best_node, cut_off = MAX_PATH, -1, False
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
    return MAX_PATH, -1


@kernel
def _clear(nodes, distance, hop):
    """Reset a field: no point is reached."""
    hop[:] = NO_HOP
    for node in range(NUM_NODES):
        distance[node] = WALL if nodes[node] == BLOCKED else UNREACHABLE


@allocating
def _field(nodes, nodes_open, world, level, closed, onward_of, distance, hop, onward):
    """Compute one field: distances (uint16 units) and next hops towards the goals in ``onward_of``.

    onward_of: int64, one per exit door or exit switch of the level: path length from there in units;
    UNREACHABLE: no goal.  onward: uint16[4539], filled with what the distances were if locked doors were open.
    """
    queue = np.empty(NUM_NODES, np.int32)
    _clear(nodes, distance, hop)
    tail = _seed_goals(nodes, world, level, onward_of, distance, queue)
    _spread(nodes, distance, hop, queue, tail)
    first, end = world.level[level]["switches_first"], world.level[level]["switches_end"]
    if first == end:
        onward[:] = distance
        return
    # Where doors cut the objective off: to a locked door's switch, and on as if locked doors were open.
    onward_hop = np.empty(NUM_NODES, np.uint8)
    _clear(nodes_open, onward, onward_hop)
    tail = _seed_goals(nodes_open, world, level, onward_of, onward, queue)
    _spread(nodes_open, onward, onward_hop, queue, tail)
    cut_off = nodes.copy()
    for node in range(NUM_NODES):
        if distance[node] != UNREACHABLE:
            cut_off[node] = BLOCKED
    tail = 0
    for k in range(first, end):
        if world.entity[k]["type"] == kinds.LOCKED_DOOR and closed[k - first] and world.entity[k]["active"]:
            x, y = world.entity[k]["x"], world.entity[k]["y"]
            length = _at(onward, x, y)
            if length != UNREACHABLE:
                tail = _seed(cut_off, x, y, DOOR_SWITCH_REACH, length, distance, queue, tail)
    _spread(cut_off, distance, hop, queue, tail)


@kernel
def _seed_goals(nodes, world, level, onward_of, distance, queue):
    tail = 0
    first = world.level[level]["exits_first"]
    for row in range(len(onward_of)):
        if onward_of[row] != UNREACHABLE:
            goal = world.entity[first + row]
            reach = EXIT_REACH if goal["type"] == kinds.EXIT else SWITCH_REACH
            tail = _seed(nodes, goal["x"], goal["y"], reach, onward_of[row], distance, queue, tail)
    return tail


@allocating
def compute_fields(world, nodes, level, closed, opened, distance, hop):
    """Compute both fields of a level for one state of its doors and exits: 0 before an exit switch is taken, 1 after.

    nodes: uint8[4539] of the level (``static_nodes``).
    closed: uint8[n], one flag per door with a switch, in type order.
    opened: uint8[m], one flag per exit door and exit switch, in type order; an exit door's is set once it is open.
    distance: uint16[2, 4539], units of 1.2 px, UNREACHABLE or WALL.
    hop: uint8[2, 4539], direction of the next lattice point, NO_HOP at the goal.
    Field 1 leads to the exits that are open (to all while none is); field 0 leads over a switch
    to its own exit.  Returns the least length from a switch to its exit in units, UNREACHABLE if there is none.
    """
    record = world.level[level]
    shut, open_ = nodes.copy(), nodes.copy()
    for k in range(record["switches_first"], record["switches_end"]):
        if closed[k - record["switches_first"]]:
            door = world.entity[k]
            _close_door(shut, door["x1"], door["y1"], door["x2"], door["y2"])
            if door["type"] != kinds.LOCKED_DOOR:
                _close_door(open_, door["x1"], door["y1"], door["x2"], door["y2"])
    first = record["exits_first"]
    rows = record["exits_end"] - first
    onward_of = np.full(rows, UNREACHABLE, np.int64)
    to_switch = np.full(rows, UNREACHABLE, np.int64)
    onward = np.empty(NUM_NODES, np.uint16)
    least = UNREACHABLE
    for row in range(rows):  # one exit after the other: from its switch to itself
        switch = world.entity[first + row]
        if switch["type"] != kinds.EXIT_SWITCH or not switch["active"]:
            continue
        own_exit = record["entity_first"] + switch["partner"] - first
        onward_of[own_exit] = 0
        _field(shut, open_, world, level, closed, onward_of, distance[1], hop[1], onward)
        onward_of[own_exit] = UNREACHABLE
        to_switch[row] = _at(distance[1], switch["x"], switch["y"])
        if to_switch[row] == UNREACHABLE:
            to_switch[row] = _at(onward, switch["x"], switch["y"])
        least = min(least, to_switch[row])
    _field(shut, open_, world, level, closed, to_switch, distance[0], hop[0], onward)
    if rows != 2 or least == UNREACHABLE:  # with one exit, field 1 is there already
        for row in range(rows):
            if world.entity[first + row]["type"] == kinds.EXIT and (opened[row] or not opened.any()):
                onward_of[row] = 0
        _field(shut, open_, world, level, closed, onward_of, distance[1], hop[1], onward)
    return least


@kernel
def waypoint(hop, node, steps):
    """Lattice point reached from ``node`` after at most ``steps`` hops."""
    for _ in range(steps):
        d = hop[node]
        if d == NO_HOP:
            break
        node += STEP_X[d] * NODES_Y + STEP_Y[d]
    return node
