"""Kernels of the planner: all six actions played from many states, and keys of states for duplicate detection.

In a file of their own, so that a change of the search around them does not recompile them (``nppsim._cache``).
"""

from collections import namedtuple

import numpy as np

from nppsim._kernel import allocating, kernel
from nppsim.actions import ACTION_INPUT, NUM_ACTIONS
from nppsim.decision import has_own_fields, remaining_path
from nppsim.paths import NODES_Y, SPACING, waypoint
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.physics.tick import start, tick

ROUTE, PATH = range(2)  # what a score measures: the distance to a recorded route, or the path left to the exit
LOST = 1e12  # score of a child that is dead or not allowed
WIN = -1.0  # score of a child that finishes the level; all others are at least 0

CHANGE_COST = 1.5  # px: an action that goes on is preferred to an equally good new one
POSITION_CELL = 1.0  # px, times frame_skip: states in one cell count as the same
SPEED_CELL = 0.05  # px per frame, times frame_skip: likewise
MOVER_REACH = 192.0  # px from the ninja, in x and y: movers within it distinguish cells
MOVER_CELL = 24.0  # px: how finely their positions do
REGION = 16.0  # px: size of a region, whose visits are counted
REGION_SPEED = 1.5  # px per frame: the same of its velocities
NUM_REGIONS = 1 << 18  # counters; regions that share one do no harm
SPEED_WEIGHT = 4.0  # frames: what a difference of velocity to the route counts in px
OFF_PHASE = 60.0  # px: cost where the switch is taken in the state but not on the route, or the reverse
_MIX = -7046029254386353131  # odd; the golden ratio of 2^64

# Parameters of a search.  width: states expanded together.  noise: px, random part of a score.  fill: px per earlier
# visit of a region.  momentum: frames, how far ahead speed towards the exit counts.  min_hold: decisions that an action
# lasts at least.
Taste = namedtuple("Taste", "width noise fill momentum min_hold")
# Of each child: score (lower is better), cell, region, frames that the action took.
Children = namedtuple("Children", "scores cells regions frames")


@allocating
def expand(
    states, children, bytes_from, bytes_to, last_action, lasted, frame_skip, world, fields, mode, target, taste, random,
    visits, out
):  # fmt: skip
    """Play all six actions from each of the first ``len(last_action)`` states.

    states, children: State views.
    bytes_from, bytes_to: their rows of bytes.
    last_action, lasted: int64[count], the action that led to a state, and for how many decisions it has lasted.
    mode: ROUTE or PATH.
    target: float64[5], what ROUTE follows: x, y, vx, vy, switch taken.
    random: float64[6 * count], 0 to 1.
    visits: int32[NUM_REGIONS].
    Fills row 6 i + a of ``out`` and returns the number of frames simulated.  States without a future count as visits.
    """
    x, y, vx, vy, switch_taken = target[0], target[1], target[2], target[3], target[4]
    simulated = 0
    for i in range(len(last_action)):
        alive = False
        for a in range(NUM_ACTIONS):
            c = NUM_ACTIONS * i + a
            out.frames[c] = 0
            out.scores[c] = LOST
            if a != last_action[i] and lasted[i] < taste.min_hold:
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
            if taste.min_hold > 1:
                out.cells[c] = _mix(_mix(out.cells[c], a), 0 if a != last_action[i] else min(lasted[i], taste.min_hold))
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
            out.scores[c] = max(length - taste.momentum * _speed_along(c, node, children, world, fields), 0.0)
            out.scores[c] += taste.noise * random[c] + taste.fill * visits[out.regions[c]]
            if a != last_action[i]:
                out.scores[c] += CHANGE_COST
        if not alive:
            visits[region(states.ninja[i], states.entities[i], world)] += NUM_ACTIONS
    return simulated


@kernel
def _speed_along(c, node, children, world, fields):
    """px per frame towards the third lattice point of the path that child c has left."""
    ninja = children.ninja[c]
    phase = 1 if ninja["switch_taken"] else 0
    if has_own_fields(c, children, world, fields):
        ahead = waypoint(fields.own_hop[c, phase], node, 3)
    else:
        ahead = waypoint(fields.hop[ninja["level"], phase], node, 3)
    dx, dy = SPACING * (ahead // NODES_Y) - ninja["x"], SPACING * (ahead % NODES_Y) - ninja["y"]
    return (dx * ninja["vx"] + dy * ninja["vy"]) / max(np.sqrt(dx * dx + dy * dy), 1.0)


@kernel
def _mix(key, value):
    """Hash of an int64 and one more number, made a whole one by rounding down."""
    key = (key ^ np.int64(np.floor(value))) * np.int64(_MIX)
    return key ^ (key >> 29 & 0x7FFFFFFFF)


@kernel
def cell(ninja, entities, movers, world, frame_skip):
    """Cell of a state, int64: position, velocity, ninja state, whether jump is pressed, switches, doors and open exits, and
    where the movers near the ninja are and what they are about to do: so that waiting for one leads to a new cell."""
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
    """Counter, 0 to NUM_REGIONS - 1, of the coarse cell of a state: position, velocity, and what is open."""
    key = _mix(np.int64(1), ninja["x"] / REGION)
    key = _mix(key, ninja["y"] / REGION)
    key = _mix(key, ninja["vx"] / REGION_SPEED)
    key = _mix(key, ninja["vy"] / REGION_SPEED)
    return _mix_progress(key, ninja, entities, world) & (NUM_REGIONS - 1)


@kernel
def _mix_progress(key, ninja, entities, world):
    """Add the switch, the doors that are closed and the exits that are open to a hash."""
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


@kernel
def play_on(state, world, inputs):
    """Play inputs (uint8[frames]) from state 0 on; returns the number of frames played, fewer after a win or a death."""
    for f in range(len(inputs)):
        tick(state.ninja[0], state.entities[0], state.movers[0], state.trail[0], world, inputs[f])
        if state.ninja[0]["state"] == DEAD or state.ninja[0]["state"] == CELEBRATING:
            return f + 1
    return len(inputs)
