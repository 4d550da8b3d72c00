"""One decision of an environment: frames, reward terms, end and restart of the episode, observations.

``advance`` does it for a range of environments, each of which is a row of bytes; ``nppsim.batch`` owns the rows.
"""

from collections import namedtuple

import numpy as np

from nppsim import _phases as clock
from nppsim import paths
from nppsim import reward as rewards
from nppsim._kernel import allocating, inlined, kernel
from nppsim.actions import ACTION_INPUT
from nppsim.bank import LevelBank
from nppsim.levels import kinds
from nppsim.levels.stage import CELLS_X, CELLS_Y
from nppsim.observe import images, layout, vectors
from nppsim.physics.segments import clamped_cell
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.physics.tick import start, tick

TIMEOUT, WON, DIED = 0, 1, 2
# With profiling only every so-manieth environment is timed, others in each call: reading the clock costs as much as the
# shorter phases.
PROFILE_EVERY = 64

# The running episode of an environment.
PROGRESS_DTYPE = np.dtype(
    [
        ("potential", "f8"),  # phi of the present state
        ("path_start", "f8"),  # px, length of the level's way
        ("best", "f8"),  # px, smallest straight distance to the current objective so far
        ("decisions", "i4"),
        ("near", "i4"),  # bit p: the proximity reward of phase p has been given
    ],
    align=True,
)
# A finished episode; ``ret`` is the undiscounted return and the sum of ``terms``.
EPISODE_DTYPE = np.dtype(
    [("level", "i4"), ("outcome", "i1"), ("frames", "i4"), ("decisions", "i4"), ("gold", "i4"), ("ret", "f8")]
    + [("terms", "f8", (rewards.NUM_TERMS,))],
    align=True,
)
NUM_BLOCKS = CELLS_X * CELLS_Y + 11 * 7 + 6 * 4 + 3 * 2  # cells and blocks of 4, 8, 16 cells

# Arrays of observations, in the order of ``layout.SPECS``: rows 0 to N - 1 the present ones, then the last ones of episodes;
# those not wanted have length 0.  gaps: float64[2 N, 8], room to work in.
Views = namedtuple("Views", (*layout.SPECS, "gaps"))
# Everything of the environments, one row each; visited is empty unless exploration is rewarded.
State = namedtuple("State", "ninja running terms entities movers visited")
# Path fields: of each level with its doors as at the start, and of environments whose doors are otherwise (a cache:
# recomputed when the key differs).
Fields = namedtuple("Fields", "nodes distance hop key own_distance own_hop own_switch_to_exit")
Static = namedtuple("Static", "stage solid background time_limit path_length reward")
# The last: int64[N, NUM_PHASES], nanoseconds of each phase of the last call, or int64[N, 0] to measure nothing.
Output = namedtuple("Output", "rewards terminated truncated level outcome frames decisions gold ret terms laps")


def make_fields(bank: LevelBank, count: int) -> Fields:
    """Path fields of a bank, with room for ``count`` environments' own ones where doors can change."""
    rows = count if bank.ways_change else 1
    return Fields(
        bank.nodes,
        bank.distance,
        bank.hop,
        np.full(count, -1, np.int64),
        np.zeros((rows, 2, paths.NUM_NODES), np.uint16),
        np.zeros((rows, 2, paths.NUM_NODES), np.uint8),
        np.zeros(rows, np.int64),
    )


@allocating
def _compute_own_fields(i, state, world, fields):
    """Path fields of environment i for its doors and exits as they are now."""
    record = world.level[state.ninja[i]["level"]]
    first, exits, base = record["switches_first"], record["exits_first"], record["entity_first"]
    closed = np.empty(record["switches_end"] - first, np.uint8)
    for k in range(len(closed)):
        closed[k] = state.entities[i, first - base + k]["closed"]
    opened = np.empty(record["exits_end"] - exits, np.uint8)
    for k in range(len(opened)):
        opened[k] = state.entities[i, exits - base + k]["clock"] > 0
    level = state.ninja[i]["level"]
    fields.own_switch_to_exit[i] = paths.compute_fields(
        world, fields.nodes[level], level, closed, opened, fields.own_distance[i], fields.own_hop[i]
    )


@inlined
def has_own_fields(i, state, world, fields):
    """Whether the doors and exits of environment i are not as at the start of its level: its own path fields, which are
    computed now if need be, then hold instead of the level's."""
    level = state.ninja[i]["level"]
    exits, exits_end = world.level[level]["exits_first"], world.level[level]["exits_end"]
    first, end = world.level[level]["switches_first"], world.level[level]["switches_end"]
    base = world.level[level]["entity_first"]
    changed = False
    key = np.int64(0)
    for k in range(first, end):
        closed = state.entities[i, k - base]["closed"]
        changed |= closed != world.entity[k]["closed"]
        key = key * 3 + closed + 1
    if exits_end - exits > 2:
        for k in range(exits, exits_end):
            is_open = state.entities[i, k - base]["clock"] > 0
            changed |= is_open
            key = key * 3 + is_open  # an odd factor: no bit of an earlier one is ever lost
    key = (key << 22) + level  # levels differ in their number of doors: the level goes into bits of its own
    if changed and fields.key[i] != key:
        _compute_own_fields(i, state, world, fields)
        fields.key[i] = key
    return changed


@inlined
def way(i, state, world, fields):
    """(length in px of the way that is left to environment i, the lattice point it leads over or -1)."""
    ninja = state.ninja[i]
    phase = 1 if ninja["switch_taken"] else 0
    if has_own_fields(i, state, world, fields):
        return paths.nearest_node(fields.own_distance[i, phase], ninja["x"], ninja["y"])
    return paths.nearest_node(fields.distance[ninja["level"], phase], ninja["x"], ninja["y"])


@kernel
def _straight_distance(ninja, entities, world, level):
    """Straight distance in px to the current objective: the nearest switch left, or the nearest open exit."""
    base = world.level[level]["entity_first"]
    wanted = kinds.EXIT if ninja["switch_taken"] else kinds.EXIT_SWITCH
    best = rewards.DIAGONAL
    for k in range(world.level[level]["exits_first"], world.level[level]["exits_end"]):
        if world.entity[k]["type"] == wanted and (wanted == kinds.EXIT_SWITCH or entities[k - base]["clock"] > 0):
            dx, dy = world.entity[k]["x"] - ninja["x"], world.entity[k]["y"] - ninja["y"]
            best = min(best, np.sqrt(dx * dx + dy * dy))
    return best


@inlined
def _potential(i, state, world, fields, reward):
    """phi of the present state of environment i."""
    ninja = state.ninja[i]
    if reward[4] == 0.0:
        return 0.0
    if reward[5] == rewards.STRAIGHT_LINE_SHAPING:
        distance = _straight_distance(ninja, state.entities[i], world, ninja["level"])
        return reward[4] * (1.0 - distance / rewards.DIAGONAL)
    length, _node = way(i, state, world, fields)
    reach = state.running[i]["path_start"]
    return reward[4] * (reach - min(length, 2.0 * reach)) / max(reach, rewards.MIN_PATH)


@kernel
def _restart(i, level, state, world, fields, static):
    ninja, running = state.ninja[i], state.running[i]
    start(ninja, state.entities[i], state.movers[i], world, level)
    running["path_start"] = static.path_length[level]
    running["decisions"] = 0
    running["near"] = 0
    running["best"] = _straight_distance(ninja, state.entities[i], world, level)
    state.terms[i, :] = 0.0
    state.visited[i, :] = 0
    if static.reward[8] != 0.0:
        _explore(ninja, state.visited[i])
    running["potential"] = _potential(i, state, world, fields, static.reward)


@kernel
def _explore(ninja, visited):
    """Mark the cell under the ninja and its blocks; returns how many of the four are new."""
    cx, cy = clamped_cell(ninja["x"], CELLS_X), clamped_cell(ninja["y"], CELLS_Y)
    new = 0
    first = 0
    size, rows = 1, CELLS_Y
    for columns in (CELLS_X, 11, 6, 3):
        block = first + (cx // size) * rows + cy // size
        new += 1 - visited[block]
        visited[block] = 1
        first += columns * rows
        size = 4 if size == 1 else size * 2
        rows = (CELLS_Y + size - 1) // size
    return new


@inlined
def _decide(i, input_byte, frame_skip, gamma, state, world, fields, static, out, laps):
    """One decision of one environment: frames, reward terms, end of the episode."""
    since = clock.begin(laps)
    ninja, running, reward, terms = state.ninja[i], state.running[i], static.reward, state.terms[i]
    had_switch = ninja["switch_taken"]
    before = ninja["frame"]
    new_blocks = 0
    since = clock.stamp(laps, clock.ACTIONS, since)
    for _ in range(frame_skip):
        tick(ninja, state.entities[i], state.movers[i], world, input_byte, laps)
        if reward[8] != 0.0:
            new_blocks += _explore(ninja, state.visited[i])
        if ninja["state"] == DEAD or ninja["state"] == CELEBRATING:
            break
    since = clock.begin(laps)
    running["decisions"] += 1
    level = ninja["level"]
    won, died = ninja["state"] == CELEBRATING, ninja["state"] == DEAD
    terminal = won or died
    since = clock.stamp(laps, clock.EVENTS, since)
    truncated = not terminal and ninja["frame"] >= static.time_limit[level]
    since = clock.stamp(laps, clock.TRUNCATION, since)

    total = 0.0
    for term in range(len(terms)):
        value = 0.0
        if term == 0:
            value = reward[0] if won else 0.0
        elif term == 1:
            value = reward[1] if died else 0.0
        elif term == 2:
            value = reward[2] if ninja["switch_taken"] and not had_switch else 0.0
        elif term == 3:
            value = reward[3] * (ninja["frame"] - before)
        elif term == 4:
            since = clock.stamp(laps, clock.REWARDS, since)
            after = 0.0 if terminal else _potential(i, state, world, fields, reward)
            since = clock.stamp(laps, clock.PATH, since)
            value = gamma * after - running["potential"]
            running["potential"] = after
        elif term == 5 and reward[6] != 0.0:
            distance = _straight_distance(ninja, state.entities[i], world, level)
            if ninja["switch_taken"] and not had_switch:
                running["best"] = distance
            elif distance < running["best"]:
                value = reward[6] * (running["best"] - distance)
                running["best"] = distance
        elif term == 6 and reward[7] != 0.0:
            phase = 1 if ninja["switch_taken"] else 0
            if not running["near"] >> phase & 1:
                distance = _straight_distance(ninja, state.entities[i], world, level)
                if distance < rewards.PROXIMITY_REACH:
                    value = reward[7]
                    running["near"] |= 1 << phase
        elif term == 7:
            value = reward[8] * new_blocks
        terms[term] += value
        total += value
    since = clock.stamp(laps, clock.REWARDS, since)
    out.rewards[i] = total
    out.terminated[i] = terminal
    out.truncated[i] = truncated
    if terminal or truncated:
        out.level[i] = level
        out.outcome[i] = WON if won else (DIED if died else TIMEOUT)
        out.frames[i] = ninja["frame"]
        out.decisions[i] = running["decisions"]
        out.gold[i] = ninja["gold"]
        out.ret[i] = 0.0
        for term in range(len(terms)):  # added up one by one: sum() goes another way outside of compiled code
            out.terms[i, term] = terms[term]
            out.ret[i] += terms[term]
    clock.stamp(laps, clock.EVENTS, since)


@inlined
def _observe(i, row, state, world, fields, static, views, laps):
    """Write the observations of environment i that are wanted into a row of ``views``."""
    since = clock.begin(laps)
    ninja, entities = state.ninja[i], state.entities[i]
    level = ninja["level"]
    if len(views.game_state):
        vectors.game_state(ninja, views.game_state[row])
        since = clock.stamp(laps, clock.GAME_STATE, since)
    if len(views.reachability_features):
        if has_own_fields(i, state, world, fields):
            distance, hop, onward = fields.own_distance[i], fields.own_hop[i], fields.own_switch_to_exit[i]
        else:
            distance, hop, onward = fields.distance[level], fields.hop[level], world.level[level]["switch_to_exit"]
        since = clock.stamp(laps, clock.PATH, since)
        vectors.reachability_features(ninja, distance, hop, onward, views.reachability_features[row])
        since = clock.stamp(laps, clock.REACHABILITY, since)
    if len(views.entity_positions):
        vectors.entity_positions(ninja, entities, world, level, views.entity_positions[row])
        since = clock.stamp(laps, clock.ENTITY_POSITIONS, since)
    if len(views.switch_states):
        vectors.switch_states(entities, world, level, views.switch_states[row])
        since = clock.stamp(laps, clock.SWITCH_STATES, since)
    if len(views.hazards):
        vectors.hazards_and_surroundings(
            ninja,
            entities,
            state.movers[i],
            world,
            level,
            static.solid[level],
            views.gaps[row],
            views.hazards[row],
            views.surroundings[row],
        )
        since = clock.stamp(laps, clock.HAZARDS, since)
    if len(views.player_frame):
        images.player_frame(
            ninja, entities, state.movers[i], world, level, static.stage[level], views.player_frame[row]
        )
        since = clock.stamp(laps, clock.PLAYER_FRAME, since)
    if len(views.global_view):
        images.global_view(
            ninja, entities, state.movers[i], world, level, static.background[level], views.global_view[row]
        )
        clock.stamp(laps, clock.GLOBAL_VIEW, since)


@inlined
def _phases_timed(i, turn, out):
    """Number of phases of environment i to time in this call, all or none; clears its times."""
    phases = out.laps.shape[1]
    if phases == 0 or i % min(PROFILE_EVERY, len(out.laps)) != turn:
        return 0
    for phase in range(phases):
        out.laps[i, phase] = 0
    return phases


@kernel
def advance(
    begin, end, turn, actions, next_level, every_end, frame_skip, gamma, state, world, fields, static, out, views
):
    """A decision, restart and observations of environments ``begin`` to ``end``.

    actions[i] below 0: no decision, and a restart in any case; else one at the end of an episode.  next_level[i] below 0:
    no restart.  every_end: keep the last observations of deaths and wins too, not only of time-outs.
    """
    for i in range(begin, end):
        laps = out.laps[i, : _phases_timed(i, turn, out)]
        restart, final = next_level[i] >= 0, False
        if actions[i] >= 0:
            _decide(i, ACTION_INPUT[actions[i]], frame_skip, gamma, state, world, fields, static, out, laps)
            restart = restart and (out.terminated[i] or out.truncated[i])
            final = restart and (every_end or out.truncated[i])
        for row in (len(out.rewards) + i, i):
            if row == i and restart:
                since = clock.begin(laps)
                _restart(i, next_level[i], state, world, fields, static)
                clock.stamp(laps, clock.RESET, since)
            if row == i or final:
                _observe(i, row, state, world, fields, static, views, laps)


@kernel
def masks(state, out):
    for i in range(len(out)):
        vectors.action_mask(state.ninja[i], out[i])


@kernel
def prepare_static(stage, solid, background):
    for level in range(len(solid)):
        vectors.solid_map(stage[level], solid[level])
    for level in range(len(background)):
        images.background(stage[level], background[level])
