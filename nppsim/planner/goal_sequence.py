"""Goal sequences: entities to collect in a given order, and then the exit.  They guide the searches of the planner.

A sequence without goals leads to the exit, via an exit switch.  The path to a goal (gold or an exit switch) is computed by
``paths.compute_fields`` on a copy of the level in which all exits and exit switches are at the goal.  Path fields depend on
the goal and on the state of doors and exits.  They are computed when they are needed, and stored.
"""

from collections import namedtuple

import numpy as np

from nppsim import paths
from nppsim._numba.decorators import allocating, allocating_entry, kernel
from nppsim.bank import LevelBank
from nppsim.paths import NUM_NODES

NUM_FIELDS = 512  # maximum number of stored fields
PROBES = 16  # number of adjacent rows in which a given field may be stored
EXIT_LEG = -1  # in place of a goal, for the leg to the exit
GOAL_BONUS = 24.0  # px, added per remaining goal, so that a state after a goal is better than one before it
_MIX = -7046029254386353131  # multiplier of the hash: 2^64 divided by the golden ratio, an odd number, as int64

# One sequence on a bank with a single level.
#   goals: int64[n], entities in the order of the sequence, counted from the level's first entity.
#   lengths: float64[n + 1], px of path from each goal to the exit along the sequence; the last is 0, for the exit.
#   world: the bank's world with its own ``entity``, in which exits are moved.
#   nodes, effects: lattice of the level, see ``paths.prepare_level``.
#   keys: int64[NUM_FIELDS], hash of goal, doors and exits of each stored field; 0 for none.
#   distance, next_step: uint16[NUM_FIELDS, 2, 4539], uint8[NUM_FIELDS, 2, 4539], stored fields.
GoalSequence = namedtuple("GoalSequence", "goals lengths world nodes effects keys distance next_step")


def make_sequence(bank: LevelBank) -> GoalSequence:
    """Return the sequence without goals of a bank's only level.  Other sequences may share its fields: ``with_goals``."""
    nodes, effects = bank.paths.lattice(0)
    return GoalSequence(
        goals=np.zeros(0, np.int64),
        lengths=np.zeros(1),
        world=bank.world._replace(entity=bank.world.entity.copy()),
        nodes=nodes,
        effects=effects,
        keys=np.zeros(NUM_FIELDS, np.int64),
        distance=np.empty((NUM_FIELDS, 2, NUM_NODES), np.uint16),
        next_step=np.empty((NUM_FIELDS, 2, NUM_NODES), np.uint8),
    )


def with_goals(sequence: GoalSequence, goals: np.ndarray, legs: np.ndarray) -> GoalSequence:
    """Return a sequence with goals that shares the stored fields of another.

    legs: float64[n], px of path from each goal to the next, and from the last goal to the exit.
    """
    lengths = np.append(np.cumsum((legs + GOAL_BONUS)[::-1])[::-1], 0.0)
    return sequence._replace(goals=np.asarray(goals, np.int64), lengths=lengths)


@kernel
def mix(key, value):
    """Hash of an int64 and another number, which is rounded down."""
    key = (key ^ np.int64(np.floor(value))) * np.int64(_MIX)
    return key ^ (key >> 29 & 0x7FFFFFFFF)


@kernel
def leg_of(entities, sequence):
    """Return the index in ``sequence.goals`` of the next goal to collect; len(goals) on the way to the exit."""
    for leg in range(len(sequence.goals)):
        if entities[sequence.goals[leg]]["active"]:
            return leg
    return len(sequence.goals)


@allocating
def field_of(leg, ninja, entities, world, sequence):
    """Return (row in ``sequence.distance``, phase) of the path field for a leg of the sequence and the state's doors."""
    goal = sequence.goals[leg] if leg < len(sequence.goals) else np.int64(EXIT_LEG)
    record = world.level[0]
    first, end, base = record["switches_first"], record["switches_end"], record["entity_first"]
    exits, exits_end = record["exits_first"], record["exits_end"]
    key = mix(np.int64(1), goal)
    for k in range(first, end):
        key = mix(key, entities[k - base]["closed"])
    if exits_end - exits > 2:
        for k in range(exits, exits_end):
            key = mix(key, 1 if entities[k - base]["clock"] > 0 else 0)
    key = key if key != 0 else np.int64(1)  # 0 marks unused rows
    phase = 1 if goal == EXIT_LEG and ninja["switch_taken"] else 0
    slot = key & (NUM_FIELDS - 1)
    for probe in range(PROBES):
        row = (slot + probe) & (NUM_FIELDS - 1)
        if sequence.keys[row] == key:
            return row, phase
        if sequence.keys[row] == 0:
            slot = row
            break
    sequence.keys[slot] = key
    _compute(goal, entities, world, sequence, sequence.distance[slot], sequence.next_step[slot])
    return slot, phase


@allocating
def _compute(goal, entities, world, sequence, distance, next_step):
    """Compute the path fields to a goal or to the exits for the doors and exits of a state."""
    record = world.level[0]
    first, exits, base = record["switches_first"], record["exits_first"], record["entity_first"]
    closed = np.empty(record["switches_end"] - first, np.uint8)
    for k in range(len(closed)):
        closed[k] = entities[first - base + k]["closed"]
    opened = np.empty(record["exits_end"] - exits, np.uint8)
    for k in range(len(opened)):
        row = exits + k
        opened[k] = entities[row - base]["clock"] > 0
        source = row if goal == EXIT_LEG else base + goal
        sequence.world.entity[row]["x"], sequence.world.entity[row]["y"] = (
            world.entity[source]["x"],
            world.entity[source]["y"],
        )
    paths.compute_fields(
        sequence.world, sequence.nodes, sequence.effects, np.int64(0), closed, opened, distance, next_step
    )


@allocating_entry
def path_lengths(leg, states, world, sequence, points, out):
    """Fill ``out`` (float64[n]) with the lengths in px of the paths from points (float64[n, 2]) to a goal of the sequence.

    states: ``decision.State``, of which the first row is used.  MAX_PATH stands for no path.
    """
    row, phase = field_of(leg, states.ninja[0], states.entities[0], world, sequence)
    for i in range(len(points)):
        out[i] = paths.nearest_node(sequence.distance[row, phase], points[i, 0], points[i, 1])[0]
