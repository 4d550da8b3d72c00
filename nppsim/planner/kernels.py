"""Kernels of the planner: simulate all six actions from many states, and hash states to find duplicates.

A child is the state after one action, applied for one decision.  These kernels have their own file so that
changes of the search do not recompile them (``nppsim._numba.cache``).
"""

from collections import namedtuple

import numpy as np

from nppsim._numba.decorators import allocating, allocating_entry, entry, kernel
from nppsim.actions import ACTION_INPUT, NUM_ACTIONS
from nppsim.paths import NODES_Y, SPACING, nearest_node, waypoint
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.physics.tick import start, tick
from nppsim.planner.goal_sequence import field_of, leg_of, mix

# Scores, in px; lower is better.  ROUTE: distance to a recorded route.  PATH: remaining path along a sequence to the exit.
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
#   time_cost: px per frame, penalty for later states in the best-first search.
SearchParams = namedtuple("SearchParams", "width noise fill momentum min_hold time_cost", defaults=[0.0])
# Arrays with one value per child: scores, hashes of cells, numbers of regions, numbers of simulated frames, and legs
# (``sequence.leg_of``).
Children = namedtuple("Children", "scores cells regions frames legs")
# Open states of a best-first search.
#   scores, slots: float64[n] and int64[n]; the first ``count`` entries are a binary heap, the other slots are free.
#   nodes, actions, lasted: int64[n], for each slot, node of the tree, last action, and its duration in decisions.
#   count: int64[1].
Queue = namedtuple("Queue", "scores slots nodes actions lasted count")
# Tree of a best-first search: parent (int32[n]) and action (int8[n]) of each node, and the number of nodes (int64[1]).
Tree = namedtuple("Tree", "parents actions count")


@allocating_entry
def expand(
    states, children, words_from, words_to, last_action, lasted, frame_skip, world, sequence, mode, target, params, random,
    visits, out
):  # fmt: skip
    """Simulate all six actions from each of the first ``count = len(last_action)`` states.

    states, children: ``decision.State``; words_from, words_to: their bytes, as uint64[n, w].
    last_action, lasted: int64[count], the action that led to a state, and its duration in decisions so far.
    sequence: ``GoalSequence``, goals to collect before the exit, for PATH.
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
            words_to[c] = words_from[i]
            ninja, entities, movers = children.ninja[c], children.entities[c], children.movers[c]
            out.frames[c] = _advance(ninja, entities, movers, children.trail[c], world, frame_skip, a)
            simulated += out.frames[c]
            if ninja["state"] == DEAD:
                continue
            alive = True
            leg = out.legs[c] = leg_of(entities, sequence)
            if ninja["state"] == CELEBRATING:
                out.scores[c] = WIN if leg == len(sequence.goals) else LOST
                continue
            out.cells[c] = _cell_of_child(
                ninja, entities, movers, world, frame_skip, params, a, last_action[i], lasted[i]
            )
            out.regions[c] = _region_of_sequence(ninja, entities, world, sequence)
            if len(sequence.goals) > 0:
                out.cells[c] = mix(mix(out.cells[c], leg), np.int64(ninja["gold"]))
            if mode == ROUTE:
                out.scores[c] = _distance_to(ninja, target)
                continue
            out.scores[c] = _path_score(leg, ninja, entities, world, sequence, params, random[c])
            out.scores[c] += params.fill * visits[out.regions[c]]
            if a != last_action[i]:
                out.scores[c] += CHANGE_COST
        if not alive:
            visits[_region_of_sequence(states.ninja[i], states.entities[i], world, sequence)] += NUM_ACTIONS
    return simulated


@kernel
def _advance(ninja, entities, movers, trail, world, frame_skip, action):
    """Simulate an action for one decision, or until the episode ends; return the number of frames."""
    for frame in range(frame_skip):
        tick(ninja, entities, movers, trail, world, ACTION_INPUT[action])
        if ninja["state"] == DEAD or ninja["state"] == CELEBRATING:
            return frame + 1
    return frame_skip


@kernel
def _cell_of_child(ninja, entities, movers, world, frame_skip, params, action, last_action, lasted):
    """Cell of a child; with ``min_hold``, it depends on the action and on how long the action has been held."""
    found = cell(ninja, entities, movers, world, frame_skip)
    if params.min_hold > 1:
        held = min(lasted, params.min_hold) if action == last_action else 0
        found = mix(mix(found, action), held)
    return found


@allocating
def _path_score(leg, ninja, entities, world, sequence, params, random):
    """Remaining path in px, minus a bonus for the speed along it, plus noise; LOST without a path."""
    row, phase = field_of(leg, ninja, entities, world, sequence)
    length, node = nearest_node(sequence.distance[row, phase], ninja["x"], ninja["y"])
    if node < 0:
        return LOST
    if params.momentum > 0.0:
        length = max(length - params.momentum * _speed_along(ninja, node, sequence.next_step[row, phase]), 0.0)
    return length + sequence.lengths[leg] + params.noise * random


@allocating_entry
def best_first(open_states, child, open_words, child_words, queue, tree, visited, visits, world, sequence, frame_skip,
               max_frame, params, random):  # fmt: skip
    """Expand the best open states; return (number of simulated frames, winning action or -1, its parent, its frames).

    open_states, child: ``decision.State`` of all slots, and of a child and its parent; open_words, child_words: their bytes,
        as uint64[n, w].
    queue: ``Queue`` of open states.  tree: ``Tree``, with room for 6 more nodes per expansion.
    visited: int64[2^n], hash table of cells, 0 for none, at most half full.
    visits: int32[NUM_REGIONS], number of expansions per region.
    max_frame: last frame of the episode.
    random: float64[expansions, 6], uniform in [0, 1), one row for each expansion.
    """
    simulated = 0
    ninja, entities, movers, trail = child.ninja[0], child.entities[0], child.movers[0], child.trail[0]
    for expansion in range(len(random)):
        if queue.count[0] == 0:
            break
        slot = _pop(queue)
        node, last_action, lasted = queue.nodes[slot], queue.actions[slot], queue.lasted[slot]
        here = region(open_states.ninja[slot], open_states.entities[slot], world)
        visits[here] += 1
        child_words[1] = open_words[slot]  # the slot is free for children
        alive, win, win_frames = False, -1, frame_skip + 1
        for a in range(NUM_ACTIONS):
            if a != last_action and lasted < params.min_hold:
                continue
            child_words[0] = child_words[1]
            frames = _advance(ninja, entities, movers, trail, world, frame_skip, a)
            simulated += frames
            if ninja["state"] == DEAD:
                continue
            alive = True
            if ninja["state"] == CELEBRATING:
                if frames < win_frames:
                    win, win_frames = a, frames
                continue
            if ninja["frame"] + frame_skip > max_frame:
                continue
            found = _cell_of_child(ninja, entities, movers, world, frame_skip, params, a, last_action, lasted)
            if not _is_new(visited, found):
                continue
            score = _path_score(0, ninja, entities, world, sequence, params, random[expansion, a])
            if score >= LOST:
                continue
            score += params.fill * visits[region(ninja, entities, world)]
            score += params.time_cost * ninja["frame"] + (CHANGE_COST if a != last_action else 0.0)
            tree.parents[tree.count[0]], tree.actions[tree.count[0]] = node, a
            target = _push(queue, score, tree.count[0], a, lasted + 1 if a == last_action else 1)
            open_words[target] = child_words[0]
            tree.count[0] += 1
        if win >= 0:
            return simulated, win, node, win_frames
        if not alive:
            visits[here] += NUM_ACTIONS
    return simulated, -1, -1, 0


@allocating_entry
def shortest_path(states, slots, world, sequence, params):
    """Return the smallest ``_path_score`` without noise of the states ``slots``, int64[n]; LOST without a path."""
    shortest = LOST
    for slot in slots:
        score = _path_score(0, states.ninja[slot], states.entities[slot], world, sequence, params, 0.0)
        shortest = min(shortest, score)
    return shortest


@kernel
def _is_new(table, key):
    """Add a key to a hash table; return False if it was in the table."""
    key = key if key != 0 else np.int64(1)  # 0 marks unused places
    place = key & (len(table) - 1)
    while table[place] != 0:
        if table[place] == key:
            return False
        place = (place + 1) & (len(table) - 1)
    table[place] = key
    return True


@entry
def rehash(keys, table):
    """Add all keys of a hash table to another one; return their number."""
    count = 0
    for key in keys:
        if key != 0 and _is_new(table, key):
            count += 1
    return count


@allocating
def _push(queue, score, node, action, lasted):
    """Add a state to the queue and return its slot.  If no slot is free, the worse half of the states is dropped."""
    if queue.count[0] == len(queue.scores):
        order = np.argsort(queue.scores)
        scores, slots = queue.scores[order], queue.slots[order]
        queue.scores[:], queue.slots[:] = scores, slots  # a sorted array is a heap; the slots behind it are free
        queue.count[0] = len(order) // 2
    place = queue.count[0]
    slot = queue.slots[place]
    queue.nodes[slot], queue.actions[slot], queue.lasted[slot] = node, action, lasted
    queue.count[0] += 1
    while place > 0 and queue.scores[(place - 1) // 2] > score:
        queue.scores[place], queue.slots[place] = queue.scores[(place - 1) // 2], queue.slots[(place - 1) // 2]
        place = (place - 1) // 2
    queue.scores[place], queue.slots[place] = score, slot
    return slot


@kernel
def _pop(queue):
    """Remove the state with the lowest score; return its slot, which is used again only after the next ``_push``."""
    slot, last = queue.slots[0], queue.count[0] - 1
    score, moved = queue.scores[last], queue.slots[last]
    queue.count[0], place = last, 0
    while 2 * place + 1 < last:
        lower = 2 * place + 1
        if lower + 1 < last and queue.scores[lower + 1] < queue.scores[lower]:
            lower += 1
        if queue.scores[lower] >= score:
            break
        queue.scores[place], queue.slots[place] = queue.scores[lower], queue.slots[lower]
        place = lower
    queue.scores[place], queue.slots[place] = score, moved
    queue.slots[last] = slot
    return slot


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
def _region_of_sequence(ninja, entities, world, sequence):
    """Region of a state; it depends on the next goal, if there are goals."""
    found = region(ninja, entities, world)
    return found if len(sequence.goals) == 0 else mix(found, leg_of(entities, sequence)) & (NUM_REGIONS - 1)


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
    """Set the first state to the start of the bank's only level."""
    state.ninja[0]["level"] = 0
    start(state.ninja[0], state.entities[0], state.movers[0], world, 0)
