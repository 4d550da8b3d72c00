"""One decision of an environment: frames, reward terms, end and restart of the episode, observations.

``advance`` is the kernel for a range of environments.  ``nppsim.batch`` allocates its arrays.
"""

from collections import namedtuple

import numpy as np

from nppsim import paths
from nppsim import reward as rewards
from nppsim._numba import phases as clock
from nppsim._numba.decorators import allocating, entry, kernel, merged
from nppsim._numba.phases import PHASE
from nppsim.actions import ACTION_INPUT
from nppsim.bank import LevelBank
from nppsim.levels import kinds
from nppsim.levels.stage import CELLS_X, CELLS_Y
from nppsim.observe import foresight, images, layout, vectors
from nppsim.observe.graph_state import graph_state
from nppsim.physics import outcomes
from nppsim.physics.lasers import update_beams
from nppsim.physics.segments import clamped_cell
from nppsim.physics.state import CELEBRATING, DEAD, ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE, TRAIL_DTYPE, allocate
from nppsim.physics.tick import start, tick

# Profiling times one environment in PROFILE_EVERY, a different one in each call, because reading the clock takes as long as
# the shorter phases.
PROFILE_EVERY = 64
BLOCK_SIZES = (1, 4, 8, 16)  # cells per side of square blocks, whose first visits the term ``exploration`` rewards
RESTING, ASLEEP = -1, -2  # special values of an action, see ``advance``
NUM_BLOCKS = sum(-(-CELLS_X // size) * -(-CELLS_Y // size) for size in BLOCK_SIZES)

# Progress of the current episode of an environment.
PROGRESS_DTYPE = np.dtype(
    [
        ("potential", "f8"),  # shaping potential of the current state
        ("path_start", "f8"),  # px, length of the level's path from the spawn to the exit
        ("best", "f8"),  # px, smallest straight-line distance to the current objective so far
        ("decisions", "i4"),  # number of decisions so far
        ("near", "i4"),  # whether the proximity reward was paid: bit 0 for the exit switch, bit 1 for the exit
    ],
    align=True,
)
# A finished episode; ``terms`` are in the order of ``reward.TERMS``.
EPISODE_DTYPE = np.dtype(
    [
        ("level", "i4"),
        ("outcome", "i1"),  # constant of ``nppsim.physics.outcomes``
        ("frames", "i4"),
        ("decisions", "i4"),
        ("gold", "i4"),
        ("ret", "f8"),  # undiscounted return, the sum of ``terms``
        ("terms", "f8", (rewards.NUM_TERMS,)),
    ],
    align=True,
)

# Arrays of observations, in the order of ``layout.SPECS``.  The first N rows are the current observations, the next N
# rows the last observations of finished episodes.  Arrays that are not requested have length 0.  The last two fields are
# work space of the kernels: ``gaps``, float64[2 N, 8], and ``branches`` (foresight.Branches).
_VIEWS = (*layout.SPECS, "gaps", "branches")
Views = namedtuple("Views", _VIEWS)  # type: ignore[misc]  # mypy wants the names written out
# The state of the environments, one row each.  ``visited`` is used only if exploration is rewarded.
State = namedtuple("State", "ninja progress terms entities movers trail visited")
# Path fields of each level with its doors in their initial state, and (``own_...``) of each environment whose doors have
# changed.  The latter are a cache: they are valid for the level ``own_level`` and the state of its doors and exits
# ``own_doors`` (closed flags of the doors with a switch, then open flags of the exits).
Fields = namedtuple(
    "Fields",
    "nodes effects effects_first distance next_step switch_to_exit "
    "own_level own_doors own_distance own_next_step own_switch_to_exit",
)
# Constants: arrays with one row per level, and ``reward``, the reward weights (WEIGHTS_DTYPE[1]).
Static = namedtuple("Static", "stage solid background time_limit path_length level_ids reward")
# Results of a step for each environment, the fields of EPISODE_DTYPE, and laps: int64[N, NUM_PHASES], nanoseconds of each
# phase in the last call, or int64[N, 0] to measure nothing.
Output = namedtuple("Output", "rewards terminated truncated level outcome frames decisions gold ret terms laps")


def make_states(count: int, bank: LevelBank) -> tuple[np.ndarray, State]:
    """Allocate states; return their bytes, one row per state, and views of ninja, entities, movers and trail."""
    parts = [
        (NINJA_DTYPE, ()),
        (ENTITY_DTYPE, (bank.max_entities,)),
        (MOVER_DTYPE, (bank.max_movers,)),
        (TRAIL_DTYPE, (bank.max_trail,)),
    ]
    rows, (ninja, entities, movers, trail) = allocate(count, parts)
    nothing = rows[:, :0]
    return rows, State(ninja, ninja, nothing, entities, movers, trail, nothing)


def make_fields(bank: LevelBank, count: int) -> Fields:
    """Return path fields of a bank; if doors can change paths, with separate fields for each of ``count`` environments."""
    rows = count if bank.paths_change else 1
    level = bank.world.level
    doors = level["switches_end"] - level["switches_first"] + level["exits_end"] - level["exits_first"]
    return Fields(
        bank.paths.nodes,
        bank.paths.effects,
        bank.paths.effects_first,
        bank.paths.distance,
        bank.paths.next_step,
        bank.paths.switch_to_exit,
        own_level=np.full(count, -1, np.int64),
        own_doors=np.zeros((rows, doors.max()), np.uint8),
        own_distance=np.zeros((rows, 2, paths.NUM_NODES), np.uint16),
        own_next_step=np.zeros((rows, 2, paths.NUM_NODES), np.uint8),
        own_switch_to_exit=np.zeros(rows, np.int64),
    )


@allocating
def _compute_own_fields(i, state, world, fields):
    """Compute the path fields of environment i for the current state of its doors and exits."""
    level = np.int64(state.ninja[i]["level"])  # the type that ``bank`` uses, so that kernels are compiled only once
    record = world.level[level]
    first, exits, base = record["switches_first"], record["exits_first"], record["entity_first"]
    doors = record["switches_end"] - first
    closed, opened = fields.own_doors[i, :doors], fields.own_doors[i, doors : doors + record["exits_end"] - exits]
    for k in range(len(closed)):
        closed[k] = state.entities[i, first - base + k]["closed"]
    for k in range(len(opened)):
        opened[k] = state.entities[i, exits - base + k]["clock"] > 0
    fields.own_level[i] = level
    effects = fields.effects[fields.effects_first[level] : fields.effects_first[level + 1]]
    fields.own_switch_to_exit[i] = paths.compute_fields(
        world, fields.nodes[level], effects, level, closed, opened, fields.own_distance[i], fields.own_next_step[i]
    )


@merged
def has_own_fields(i, state, world, fields):
    """Return True if the doors or exits of environment i have changed since the start of its level.

    If so, the environment's own path fields are valid instead of the level's.  They are updated here if needed.
    """
    level = state.ninja[i]["level"]
    exits, exits_end = world.level[level]["exits_first"], world.level[level]["exits_end"]
    first, end = world.level[level]["switches_first"], world.level[level]["switches_end"]
    base = world.level[level]["entity_first"]
    changed = False
    valid = fields.own_level[i] == level
    for k in range(first, end):
        closed = state.entities[i, k - base]["closed"]
        changed |= closed != world.entity[k]["closed"]
        valid &= closed == fields.own_doors[i, k - first]
    if exits_end - exits > 2:
        for k in range(exits, exits_end):
            is_open = state.entities[i, k - base]["clock"] > 0
            changed |= is_open
            valid &= is_open == fields.own_doors[i, end - first + k - exits]
    if changed and not valid:
        _compute_own_fields(i, state, world, fields)
    return changed


@merged
def remaining_path(i, state, world, fields):
    """Return (length in px of the remaining path of environment i, next lattice point on it or -1)."""
    ninja = state.ninja[i]
    phase = 1 if ninja["switch_taken"] else 0
    if has_own_fields(i, state, world, fields):
        return paths.nearest_node(fields.own_distance[i, phase], ninja["x"], ninja["y"])
    return paths.nearest_node(fields.distance[ninja["level"], phase], ninja["x"], ninja["y"])


@kernel
def _straight_distance(ninja, entities, world, level):
    """Straight-line distance in px to the objective: the nearest untouched exit switch, else the nearest open exit."""
    base = world.level[level]["entity_first"]
    wanted = kinds.EXIT if ninja["switch_taken"] else kinds.EXIT_SWITCH
    shortest = rewards.STAGE_DIAGONAL
    for k in range(world.level[level]["exits_first"], world.level[level]["exits_end"]):
        if world.entity[k]["type"] == wanted and (wanted == kinds.EXIT_SWITCH or entities[k - base]["clock"] > 0):
            dx, dy = world.entity[k]["x"] - ninja["x"], world.entity[k]["y"] - ninja["y"]
            shortest = min(shortest, np.sqrt(dx * dx + dy * dy))
    return shortest


@merged
def _potential(i, state, world, fields, weights):
    """Shaping potential of the current state of environment i."""
    ninja = state.ninja[i]
    if weights["shaping"] == 0.0:
        return 0.0
    if weights["potential"] == rewards.STRAIGHT_LINE_SHAPING:
        distance = _straight_distance(ninja, state.entities[i], world, ninja["level"])
        return weights["shaping"] * (1.0 - distance / rewards.STAGE_DIAGONAL)
    length, _node = remaining_path(i, state, world, fields)
    reach = state.progress[i]["path_start"]
    return weights["shaping"] * (reach - min(length, 2.0 * reach)) / max(reach, rewards.MIN_PATH)


@merged
def _restart(i, level, state, world, fields, static):
    ninja, progress = state.ninja[i], state.progress[i]
    start(ninja, state.entities[i], state.movers[i], world, level)
    progress["path_start"] = static.path_length[level]
    progress["decisions"] = 0
    progress["near"] = 0
    progress["best"] = _straight_distance(ninja, state.entities[i], world, level)
    state.terms[i, :] = 0.0
    state.visited[i, :] = 0
    if static.reward[0]["exploration"] != 0.0:
        _explore(ninja, state.visited[i])
    progress["potential"] = _potential(i, state, world, fields, static.reward[0])


@kernel
def _explore(ninja, visited):
    """Mark the blocks of all sizes that contain the ninja as visited; return the number of blocks that are new."""
    cx, cy = clamped_cell(ninja["x"], CELLS_X), clamped_cell(ninja["y"], CELLS_Y)
    new = 0
    first = 0
    for size in BLOCK_SIZES:
        columns, rows = (CELLS_X + size - 1) // size, (CELLS_Y + size - 1) // size
        block = first + (cx // size) * rows + cy // size
        new += 1 - visited[block]
        visited[block] = 1
        first += columns * rows
    return new


@merged
def _closer(i, switched, state, world):
    """Return the decrease in px of environment i's smallest distance to its objective; 0 when the objective changes."""
    ninja, progress = state.ninja[i], state.progress[i]
    distance = _straight_distance(ninja, state.entities[i], world, ninja["level"])
    gained = 0.0
    if not switched:
        if distance >= progress["best"]:
            return 0.0
        gained = progress["best"] - distance
    progress["best"] = distance
    return gained


@merged
def _near_first(i, state, world):
    """Return True the first time environment i is near an exit switch and, after the switch, the first time near an exit."""
    ninja, progress = state.ninja[i], state.progress[i]
    phase = 1 if ninja["switch_taken"] else 0
    if progress["near"] >> phase & 1:
        return False
    near = _straight_distance(ninja, state.entities[i], world, ninja["level"]) < rewards.PROXIMITY_REACH
    if near:
        progress["near"] |= 1 << phase
    return near


@merged
def _play(i, input_byte, frame_skip, state, world, weights, laps):
    """Simulate the frames of one decision; return the number of newly visited blocks, 0 if exploration has no reward."""
    ninja = state.ninja[i]
    new_blocks = 0
    for _ in range(frame_skip):
        tick(ninja, state.entities[i], state.movers[i], state.trail[i], world, input_byte, laps)
        if weights["exploration"] != 0.0:
            new_blocks += _explore(ninja, state.visited[i])
        if ninja["state"] == DEAD or ninja["state"] == CELEBRATING:
            break
    update_beams(state.entities[i], state.movers[i], world, ninja["level"])
    return new_blocks


@merged
def _decide(i, input_byte, frame_skip, gamma, state, world, fields, static, out, laps):
    """Take one decision in one environment: frames, end of the episode, reward."""
    since = clock.begin(laps)
    ninja, progress, weights = state.ninja[i], state.progress[i], static.reward[0]
    had_switch, first_frame = ninja["switch_taken"], ninja["frame"]
    since = clock.stamp(laps, PHASE.actions, since)
    new_blocks = _play(i, input_byte, frame_skip, state, world, weights, laps)
    since = clock.begin(laps)
    progress["decisions"] += 1
    won, died = ninja["state"] == CELEBRATING, ninja["state"] == DEAD
    terminal = won or died
    switched = ninja["switch_taken"] != had_switch
    since = clock.stamp(laps, PHASE.events, since)
    truncated = not terminal and ninja["frame"] >= static.time_limit[ninja["level"]]
    since = clock.stamp(laps, PHASE.truncation, since)
    potential = 0.0 if terminal else _potential(i, state, world, fields, weights)
    since = clock.stamp(laps, PHASE.path, since)
    gained = rewards.Terms(
        win=weights["win"] if won else 0.0,
        death=weights["death"] if died else 0.0,
        switch=weights["switch"] if switched else 0.0,
        time=weights["time"] * (ninja["frame"] - first_frame),
        shaping=gamma * potential - progress["potential"],
        closest=weights["closest"] * _closer(i, switched, state, world) if weights["closest"] != 0.0 else 0.0,
        proximity=weights["proximity"] if weights["proximity"] != 0.0 and _near_first(i, state, world) else 0.0,
        exploration=weights["exploration"] * new_blocks,
    )
    progress["potential"] = potential
    total = 0.0
    for term in range(len(gained)):
        state.terms[i, term] += gained[term]
        total += gained[term]
    since = clock.stamp(laps, PHASE.rewards, since)
    out.rewards[i] = total
    out.terminated[i] = terminal
    out.truncated[i] = truncated
    if terminal or truncated:
        _record_end(i, outcomes.WON if won else (outcomes.DIED if died else outcomes.TIMEOUT), state, out)
    clock.stamp(laps, PHASE.events, since)


@merged
def _record_end(i, outcome, state, out):
    """Write the record of environment i's episode, which has just ended."""
    ninja = state.ninja[i]
    out.level[i] = ninja["level"]
    out.outcome[i] = outcome
    out.frames[i] = ninja["frame"]
    out.decisions[i] = state.progress[i]["decisions"]
    out.gold[i] = ninja["gold"]
    out.ret[i] = 0.0
    for term in range(rewards.NUM_TERMS):  # not sum(), which adds in another order in plain Python
        out.terms[i, term] = state.terms[i, term]
        out.ret[i] += state.terms[i, term]


@merged
def _observe_path(i, row, state, world, fields, views, laps):
    """Write ``reachability_features`` of environment i from its current path fields."""
    since = clock.begin(laps)
    ninja, out = state.ninja[i], views.reachability_features[row]
    level, path_start = ninja["level"], state.progress[i]["path_start"]
    if has_own_fields(i, state, world, fields):
        since = clock.stamp(laps, PHASE.path, since)
        vectors.reachability_features(
            ninja, fields.own_distance[i], fields.own_next_step[i], fields.own_switch_to_exit[i], path_start, out
        )
    else:
        since = clock.stamp(laps, PHASE.path, since)
        vectors.reachability_features(
            ninja, fields.distance[level], fields.next_step[level], fields.switch_to_exit[level], path_start, out
        )
    clock.stamp(laps, PHASE.reachability_features, since)


@merged
def _look_ahead(i, row, frame_skip, state, world, fields, views, laps):
    """Write ``foresight`` of environment i from its current path fields."""
    since = clock.begin(laps)
    ninja, entities, movers, out = state.ninja[i], state.entities[i], state.movers[i], views.foresight[row]
    if has_own_fields(i, state, world, fields):
        distance = fields.own_distance[i]
    else:
        distance = fields.distance[ninja["level"]]
    trail = state.trail[i]
    foresight.foresight(i, ninja, entities, movers, trail, world, distance, frame_skip, views.branches, out, laps[:0])
    clock.stamp(laps, PHASE.foresight, since)


@merged
def _draw(i, row, state, world, static, views, laps):
    """Draw the requested images of environment i into a row of ``views``."""
    since = clock.begin(laps)
    ninja, entities, movers = state.ninja[i], state.entities[i], state.movers[i]
    level = ninja["level"]
    if len(views.player_frame):
        images.player_frame(ninja, entities, movers, world, level, static.stage[level], views.player_frame[row])
        since = clock.stamp(laps, PHASE.player_frame, since)
    if len(views.global_view):
        images.global_view(ninja, entities, movers, world, level, static.background[level], views.global_view[row])
        clock.stamp(laps, PHASE.global_view, since)


@merged
def _observe(i, row, frame_skip, state, world, fields, static, views, laps):
    """Write the requested observations of environment i into a row of ``views``."""
    ninja, entities, movers = state.ninja[i], state.entities[i], state.movers[i]
    level = ninja["level"]
    since = clock.begin(laps)
    if len(views.game_state):
        vectors.game_state(ninja, views.game_state[row])
        clock.stamp(laps, PHASE.game_state, since)
    if len(views.reachability_features):
        _observe_path(i, row, state, world, fields, views, laps)
    since = clock.begin(laps)
    if len(views.entity_positions):
        vectors.entity_positions(ninja, entities, world, level, views.entity_positions[row])
        since = clock.stamp(laps, PHASE.entity_positions, since)
    if len(views.switch_states):
        vectors.switch_states(entities, world, level, views.switch_states[row])
        since = clock.stamp(laps, PHASE.switch_states, since)
    if len(views.hazards):
        solid, gaps = static.solid[level], views.gaps[row]
        hazards, surroundings = views.hazards[row], views.surroundings[row]
        vectors.hazards_and_surroundings(ninja, entities, movers, world, level, solid, gaps, hazards, surroundings)
        clock.stamp(laps, PHASE.hazards_and_surroundings, since)
    if len(views.foresight):
        _look_ahead(i, row, frame_skip, state, world, fields, views, laps)
    if len(views.graph_state):
        since = clock.begin(laps)
        graph_state(entities, world, level, static.level_ids[level], views.graph_state[row])
        clock.stamp(laps, PHASE.graph_state, since)
    _draw(i, row, state, world, static, views, laps)


@merged
def _phases_timed(i, turn, out):
    """Return the number of phases to time for environment i in this call, all or 0; if all, set its times to 0."""
    phases = out.laps.shape[1]
    if phases == 0 or i % min(PROFILE_EVERY, len(out.laps)) != turn:
        return 0
    for phase in range(phases):
        out.laps[i, phase] = 0
    return phases


@entry
def advance(
    begin, end, turn, actions, next_level, every_end, frame_skip, gamma, state, world, fields, static, out, views
):
    """Advance environments ``begin`` to ``end`` - 1 by one decision, with restarts and observations.

    turn: first of the environments to time (see ``PROFILE_EVERY``).
    actions: int64[N].  RESTING: no decision, but a restart.  ASLEEP: neither.  Otherwise an action, and a restart if
        the action ends the episode.
    next_level: int32[N], level of a restart; below 0 to leave the environment without a restart.
    every_end: write the last observations of all finished episodes, not only of truncated ones.
    """
    for i in range(begin, end):
        laps = out.laps[i, : _phases_timed(i, turn, out)]
        if actions[i] == ASLEEP:
            continue
        restart, final = next_level[i] >= 0, False
        if actions[i] >= 0:
            _decide(i, ACTION_INPUT[actions[i]], frame_skip, gamma, state, world, fields, static, out, laps)
            restart = restart and (out.terminated[i] or out.truncated[i])
            final = restart and (every_end or out.truncated[i])
        for row in (len(out.rewards) + i, i):
            if row == i and restart:
                since = clock.begin(laps)
                _restart(i, next_level[i], state, world, fields, static)
                clock.stamp(laps, PHASE.reset, since)
            if row == i or final:
                _observe(i, row, frame_skip, state, world, fields, static, views, laps)


@entry
def masks(state, out):
    """Fill ``out``, bool[N, 6], with ``vectors.action_mask`` of each environment."""
    for i in range(len(out)):
        vectors.action_mask(state.ninja[i], out[i])


@entry
def prepare_static(stage, solid, background):
    """Fill ``vectors.solid_map`` of each level, and ``images.background`` if ``background`` is not empty."""
    for level in range(len(solid)):
        vectors.solid_map(stage[level], solid[level])
    for level in range(len(background)):
        images.background(stage[level], background[level])
