"""Kernels of the planner: simulate all six actions from many states, and hash states to find duplicates.

A child is the state after one action, applied for one decision.  These kernels have their own file so that
changes of the search do not recompile them (``nppsim._cache``).
"""

from collections import namedtuple

import numpy as np

from nppsim._kernel import allocating_entry, entry, kernel
from nppsim.actions import ACTION_INPUT, NUM_ACTIONS
from nppsim.paths import NODES_Y, SPACING, nearest_node, waypoint
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.physics.tick import start, tick
from nppsim.planner.tour import field_of, leg_of, mix

# Scores, in px; lower is better.  ROUTE: distance to a recorded route.  PATH: remaining path along a tour to the exit.
ROUTE, PATH = range(2)
LOST = 1e12  # score of a child that is dead, has no path, finishes before its goals, or is excluded by ``min_hold``
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

# Parameters of a search.
#   width: number of states that are expanded together.
#   noise: px, amplitude of the random part of a score.
#   fill: px, penalty per earlier visit of a region.
#   momentum: frames, weight of the speed towards the exit.
#   min_hold: minimum number of decisions per action.
SearchParams = namedtuple("SearchParams", "width noise fill momentum min_hold")
# Arrays with one value per child: scores, hashes of cells, numbers of regions, numbers of simulated frames, and legs
# (``tour.leg_of``).
Children = namedtuple("Children", "scores cells regions frames legs")


@allocating_entry
def expand(
    states, children, bytes_from, bytes_to, last_action, lasted, frame_skip, world, tour, mode, target, params, random,
    visits, out
):  # fmt: skip
    """Simulate all six actions from each of the first ``count = len(last_action)`` states.

    states, children: ``decision.State``; bytes_from, bytes_to: the same states and children as bytes, one row each.
    last_action, lasted: int64[count], the action that led to a state, and its duration in decisions so far.
    tour: ``Tour``, goals to collect before the exit, for PATH.
    mode: ROUTE or PATH.  target: float64[5], for ROUTE the state to reach: x, y, vx, vy, 1 if the switch is collected.
    random: float64[6 * count], uniform in [0, 1).
    visits: int32[NUM_REGIONS], number of visits per region; increased by 6 for a state whose children are all dead.
    out: Children; entry 6 i + a of each array is filled with the result of action a in state i.
    Returns the number of simulated frames.
    """
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
            leg = out.legs[c] = leg_of(entities, tour)
            if ninja["state"] == CELEBRATING:
                out.scores[c] = WIN if leg == len(tour.goals) else LOST
                continue
            out.cells[c] = cell(ninja, entities, movers, world, frame_skip)
            if params.min_hold > 1:
                held = min(lasted[i], params.min_hold) if a == last_action[i] else 0
                out.cells[c] = mix(mix(out.cells[c], a), held)
            out.regions[c] = _region_of_tour(ninja, entities, world, tour)
            if len(tour.goals) > 0:
                out.cells[c] = mix(mix(out.cells[c], leg), np.int64(ninja["gold"]))
            if mode == ROUTE:
                out.scores[c] = _distance_to(ninja, target)
                continue
            row, phase = field_of(leg, ninja, entities, world, tour)
            length, node = nearest_node(tour.distance[row, phase], ninja["x"], ninja["y"])
            if node < 0:
                continue
            out.scores[c] = max(length - params.momentum * _speed_along(ninja, node, tour.next_step[row, phase]), 0.0)
            out.scores[c] += tour.lengths[leg] + params.noise * random[c] + params.fill * visits[out.regions[c]]
            if a != last_action[i]:
                out.scores[c] += CHANGE_COST
        if not alive:
            visits[_region_of_tour(states.ninja[i], states.entities[i], world, tour)] += NUM_ACTIONS
    return simulated


@kernel
def _distance_to(ninja, target):
    """Score of a ninja in the mode ROUTE."""
    dx, dy = ninja["x"] - target[0], ninja["y"] - target[1]
    du, dv = ninja["vx"] - target[2], ninja["vy"] - target[3]
    distance = np.sqrt(dx * dx + dy * dy) + SPEED_WEIGHT * np.sqrt(du * du + dv * dv)
    return distance + (OFF_PHASE if (ninja["switch_taken"] != 0) != (target[4] != 0.0) else 0.0)


@kernel
def _speed_along(ninja, node, next_step):
    """Speed of the ninja, in px per frame, towards the lattice point three steps ahead on its remaining path."""
    ahead = waypoint(next_step, node, 3)
    dx, dy = SPACING * (ahead // NODES_Y) - ninja["x"], SPACING * (ahead % NODES_Y) - ninja["y"]
    return (dx * ninja["vx"] + dy * ninja["vy"]) / max(np.sqrt(dx * dx + dy * dy), 1.0)


@kernel
def _region_of_tour(ninja, entities, world, tour):
    """Region of a state; it depends on the next goal, if there are goals."""
    found = region(ninja, entities, world)
    return found if len(tour.goals) == 0 else mix(found, leg_of(entities, tour)) & (NUM_REGIONS - 1)


@entry
def cell(ninja, entities, movers, world, frame_skip):
    """Cell of a state: int64, hash of the rounded ninja, switches, doors, open exits, and movers near the ninja.

    The hash includes movers so that a state in which the ninja waits for a mover is no duplicate.
    """
    position, speed = POSITION_CELL * frame_skip, SPEED_CELL * frame_skip
    key = mix(np.int64(0), ninja["x"] / position)
    key = mix(key, ninja["y"] / position)
    key = mix(key, ninja["vx"] / speed)
    key = mix(key, ninja["vy"] / speed)
    key = mix(key, ninja["state"] * 2 + ninja["jump_held"])
    key = _mix_progress(key, ninja, entities, world)
    record = world.level[ninja["level"]]
    for m in range(record["first_moving"], record["mover_end"] - record["mover_first"]):
        dx, dy = movers[m]["x"] - ninja["x"], movers[m]["y"] - ninja["y"]
        if abs(dx) < MOVER_REACH and abs(dy) < MOVER_REACH:
            key = mix(key, m)
            key = mix(key, movers[m]["x"] / MOVER_CELL)
            key = mix(key, movers[m]["y"] / MOVER_CELL)
            key = mix(key, movers[m]["state"] * 8 + movers[m]["direction"])
    return key


@kernel
def region(ninja, entities, world):
    """Region of a state: hash, 0 to NUM_REGIONS - 1, of rounded position and velocity, switches, doors, open exits."""
    key = mix(np.int64(1), ninja["x"] / REGION)
    key = mix(key, ninja["y"] / REGION)
    key = mix(key, ninja["vx"] / REGION_SPEED)
    key = mix(key, ninja["vy"] / REGION_SPEED)
    return _mix_progress(key, ninja, entities, world) & (NUM_REGIONS - 1)


@kernel
def _mix_progress(key, ninja, entities, world):
    """Add the exit switch, closed doors and open exits to a hash."""
    key = mix(key, ninja["switch_taken"])
    record = world.level[ninja["level"]]
    base = record["entity_first"]
    for k in range(record["switches_first"], record["switches_end"]):
        key = mix(key, entities[k - base]["closed"])
    if record["exits_end"] - record["exits_first"] > 2:
        for k in range(record["exits_first"], record["exits_end"]):
            key = mix(key, 1 if entities[k - base]["clock"] > 0 else 0)
    return key


@entry
def begin(state, world):
    state.ninja[0]["level"] = 0
    start(state.ninja[0], state.entities[0], state.movers[0], world, 0)
