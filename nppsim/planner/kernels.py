"""Kernels of the planner: simulate all six actions from many states, and hash states to find duplicates.

A child is the state after one action, applied for one decision.  These kernels have their own file so that
changes of the search do not recompile them (``nppsim._cache``).
"""

from collections import namedtuple

import numpy as np

from nppsim._kernel import allocating, kernel
from nppsim.actions import ACTION_INPUT, NUM_ACTIONS
from nppsim.decision import has_own_fields, remaining_path
from nppsim.paths import NODES_Y, SPACING, waypoint
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.physics.tick import start, tick

# Scores, in px; lower is better.  ROUTE: distance to a recorded route.  PATH: remaining path to the exit.
ROUTE, PATH = range(2)
LOST = 1e12  # score of a child that is dead, has no path to the exit, or is excluded by ``min_hold``
WIN = -1.0  # score of a child that finishes the level; all others are at least 0

CHANGE_COST = 1.5  # px, penalty for an action that differs from the previous one
# States in the same cell count as duplicates.
POSITION_CELL = 1.0  # size of a cell in x and y: px, times the frames per decision
SPEED_CELL = 0.05  # size of a cell in vx and vy: px per frame, times the frames per decision
MOVER_REACH = 192.0  # px; a cell depends on the movers that are closer to the ninja than this in x and in y
MOVER_CELL = 24.0  # px, resolution of the movers' positions in a cell
# Regions are coarser than cells.  The search counts how often it visits each region.
REGION = 16.0  # px, size of a region in x and y
REGION_SPEED = 1.5  # px per frame, size of a region in vx and vy
NUM_REGIONS = 1 << 18  # number of counters; regions whose hashes collide share one, which is harmless
SPEED_WEIGHT = 4.0  # frames, weight of the difference in velocity from the route
OFF_PHASE = 60.0  # px, penalty if the exit switch is collected in the state but not on the route, or vice versa
_MIX = -7046029254386353131  # multiplier of the hash: 2^64 divided by the golden ratio, an odd number, as int64

# Parameters of a search.
#   width: number of states that are expanded together.
#   noise: px, amplitude of the random part of a score.
#   fill: px, penalty per earlier visit of a region.
#   momentum: frames, weight of the speed towards the exit.
#   min_hold: minimum number of decisions per action.
SearchParams = namedtuple("SearchParams", "width noise fill momentum min_hold")
# Arrays with one value per child: scores, hashes of cells, numbers of regions, and numbers of simulated frames.
Children = namedtuple("Children", "scores cells regions frames")


@allocating
def expand(
    states, children, bytes_from, bytes_to, last_action, lasted, frame_skip, world, fields, mode, target, params, random,
    visits, out
):  # fmt: skip
    """Simulate all six actions from each of the first ``count = len(last_action)`` states.

    states, children: ``decision.State``; bytes_from, bytes_to: the same states and children as bytes, one row each.
    last_action, lasted: int64[count], the action that led to a state, and its duration in decisions so far.
    mode: ROUTE or PATH.  target: float64[5], for ROUTE the state to reach: x, y, vx, vy, 1 if the switch is collected.
    random: float64[6 * count], uniform in [0, 1).
    visits: int32[NUM_REGIONS], number of visits per region; increased by 6 for a state whose children are all dead.
    out: Children; entry 6 i + a of each array is filled with the result of action a in state i.
    Returns the number of simulated frames.
    """
    x, y, vx, vy, switch_taken = target[0], target[1], target[2], target[3], target[4]
    simulated = 0
    for i in range(len(last_action)):
        alive = False
        for a in range(NUM_ACTIONS):
            c = NUM_ACTIONS * i + a
            out.frames[c] = 0
            out.scores[c] = LOST
            if a != last_action[i] and lasted[i] < params.min_hold:
                continue
            bytes_to[c] = bytes_from[i]
            ninja, entities, movers = children.ninja[c], children.entities[c], children.movers[c]
            for _ in range(frame_skip):
                tick(ninja, entities, movers, children.trail[c], world, ACTION_INPUT[a])
                out.frames[c] += 1
                if ninja["state"] == DEAD or ninja["state"] == CELEBRATING:
                    break
            simulated += out.frames[c]
            if ninja["state"] == DEAD:
                continue
            alive = True
            if ninja["state"] == CELEBRATING:
                out.scores[c] = WIN
                continue
            out.cells[c] = cell(ninja, entities, movers, world, frame_skip)
            if params.min_hold > 1:
                held = min(lasted[i], params.min_hold) if a == last_action[i] else 0
                out.cells[c] = _mix(_mix(out.cells[c], a), held)
            out.regions[c] = region(ninja, entities, world)
            if mode == ROUTE:
                dx, dy = ninja["x"] - x, ninja["y"] - y
                du, dv = ninja["vx"] - vx, ninja["vy"] - vy
                out.scores[c] = np.sqrt(dx * dx + dy * dy) + SPEED_WEIGHT * np.sqrt(du * du + dv * dv)
                if (ninja["switch_taken"] != 0) != (switch_taken != 0.0):
                    out.scores[c] += OFF_PHASE
                continue
            length, node = remaining_path(c, children, world, fields)
            if node < 0:
                continue
            out.scores[c] = max(length - params.momentum * _speed_along(c, node, children, world, fields), 0.0)
            out.scores[c] += params.noise * random[c] + params.fill * visits[out.regions[c]]
            if a != last_action[i]:
                out.scores[c] += CHANGE_COST
        if not alive:
            visits[region(states.ninja[i], states.entities[i], world)] += NUM_ACTIONS
    return simulated


@kernel
def _speed_along(c, node, children, world, fields):
    """Speed of child c, in px per frame, towards the lattice point three steps ahead on its remaining path."""
    ninja = children.ninja[c]
    phase = 1 if ninja["switch_taken"] else 0
    if has_own_fields(c, children, world, fields):
        ahead = waypoint(fields.own_next_step[c, phase], node, 3)
    else:
        ahead = waypoint(fields.next_step[ninja["level"], phase], node, 3)
    dx, dy = SPACING * (ahead // NODES_Y) - ninja["x"], SPACING * (ahead % NODES_Y) - ninja["y"]
    return (dx * ninja["vx"] + dy * ninja["vy"]) / max(np.sqrt(dx * dx + dy * dy), 1.0)


@kernel
def _mix(key, value):
    """Hash of an int64 and another number, which is rounded down."""
    key = (key ^ np.int64(np.floor(value))) * np.int64(_MIX)
    return key ^ (key >> 29 & 0x7FFFFFFFF)


@kernel
def cell(ninja, entities, movers, world, frame_skip):
    """Cell of a state: int64, hash of the rounded ninja, switches, doors, open exits, and movers near the ninja.

    The hash includes movers so that a state in which the ninja waits for a mover is no duplicate.
    """
    position, speed = POSITION_CELL * frame_skip, SPEED_CELL * frame_skip
    key = _mix(np.int64(0), ninja["x"] / position)
    key = _mix(key, ninja["y"] / position)
    key = _mix(key, ninja["vx"] / speed)
    key = _mix(key, ninja["vy"] / speed)
    key = _mix(key, ninja["state"] * 2 + ninja["jump_held"])
    key = _mix_progress(key, ninja, entities, world)
    record = world.level[ninja["level"]]
    for m in range(record["first_moving"], record["mover_end"] - record["mover_first"]):
        dx, dy = movers[m]["x"] - ninja["x"], movers[m]["y"] - ninja["y"]
        if abs(dx) < MOVER_REACH and abs(dy) < MOVER_REACH:
            key = _mix(key, m)
            key = _mix(key, movers[m]["x"] / MOVER_CELL)
            key = _mix(key, movers[m]["y"] / MOVER_CELL)
            key = _mix(key, movers[m]["state"] * 8 + movers[m]["direction"])
    return key


@kernel
def region(ninja, entities, world):
    """Region of a state: hash, 0 to NUM_REGIONS - 1, of rounded position and velocity, switches, doors, open exits."""
    key = _mix(np.int64(1), ninja["x"] / REGION)
    key = _mix(key, ninja["y"] / REGION)
    key = _mix(key, ninja["vx"] / REGION_SPEED)
    key = _mix(key, ninja["vy"] / REGION_SPEED)
    return _mix_progress(key, ninja, entities, world) & (NUM_REGIONS - 1)


@kernel
def _mix_progress(key, ninja, entities, world):
    """Add the exit switch, closed doors and open exits to a hash."""
    key = _mix(key, ninja["switch_taken"])
    record = world.level[ninja["level"]]
    base = record["entity_first"]
    for k in range(record["switches_first"], record["switches_end"]):
        key = _mix(key, entities[k - base]["closed"])
    if record["exits_end"] - record["exits_first"] > 2:
        for k in range(record["exits_first"], record["exits_end"]):
            key = _mix(key, 1 if entities[k - base]["clock"] > 0 else 0)
    return key


@kernel
def begin(state, world):
    state.ninja[0]["level"] = 0
    start(state.ninja[0], state.entities[0], state.movers[0], world, 0)
