"""Foresight: simulator look-ahead, the outcome of each action within the horizon.

A branch is an action for one decision, followed by one of the continuations (``layout.CONTINUATIONS``) up to the
horizon.  Each branch is simulated on a copy of the environment, see ``docs/observations.md``.
Sources: Tesauro & Galperin 1996 (rollouts), Weber et al. 2017 (imagination-augmented agents),
Fatemi et al. 2019 (dead ends).

Branches with equal results are simulated once, e.g. with and without the jump key while no jump is possible.  The branches
of the previous decision that began with the action then executed are continued instead of simulated again.

Branches omit the movers that cannot affect the ninja while it stays in an area around its present position.  If the
ninja leaves the area, the branch is simulated again with all movers.

A leap can be fatal long before the ninja dies.  If all branches of an action end in death or in the air, the first one
that ends in the air is continued with the ESCAPES; if the ninja dies in all of these, the action leads to a dead end.

``nppsim.observe.foresight_settings`` has the horizon and the numbers of branches and escapes.
"""

import math
from collections import namedtuple
from typing import Any

import numpy as np

from nppsim import paths
from nppsim._numba.decorators import inlined, kernel, merged
from nppsim.actions import ACTION_INPUT, INPUT_ACTION, JUMP, LEFT, MIRRORED_ACTION, NUM_ACTIONS, RIGHT
from nppsim.levels import kinds
from nppsim.observe import layout
from nppsim.observe.foresight_settings import Foresight
from nppsim.observe.reach import find_clearances
from nppsim.physics.lasers import update_beams
from nppsim.physics.state import (
    CELEBRATING,
    DEAD,
    ENTITY_DTYPE,
    JUMPING,
    MOVER_DTYPE,
    NINJA_DTYPE,
    allocate,
)
from nppsim.physics.tick import advance_frame

AHEAD = layout.slots(layout.SPECS["foresight"].components)
HOLD, RELEASE, OTHER_JUMP, TURN = range(len(layout.CONTINUATIONS))
NUM_CONTINUATIONS = len(layout.CONTINUATIONS)
# uint8[continuation, action]: input byte of the continuation.
CONTINUATION_INPUT = np.stack([ACTION_INPUT, 0 * ACTION_INPUT, ACTION_INPUT ^ JUMP, ACTION_INPUT[MIRRORED_ACTION]])
# int64[continuation, action]: the first continuation with the same input byte.
SAME_AS = np.argmax(CONTINUATION_INPUT[:, None] == CONTINUATION_INPUT, axis=1)
WITHOUT_JUMP = INPUT_ACTION[ACTION_INPUT & (LEFT | RIGHT)]  # action with the same direction, without jump
JUMP_BUFFER = 5  # frames in which a key press can start a jump: its own frame and those of the jump buffer
ESCAPE_FRAMES, ESCAPE_TURN = 60, 20  # frames simulated beyond the end of a branch; frame at which the inputs change
# uint8[18, 2]: input bytes before and after ESCAPE_TURN.
ESCAPES = np.stack([np.tile(ACTION_INPUT, 3), np.concatenate([np.roll(ACTION_INPUT, -n) for n in range(3)])], axis=1)
DEAD_END = 0.0125  # ``death`` of branches that survive but whose action leads to a dead end; below that of any death
PROGRESS_LIMIT = 300.0  # px: maximum of |progress|, which would be thousands of px if a branch ended without a path

# The area (x, y, half-width, half-height, px) that the ninja rarely leaves: its straight flight until the horizon at
# its velocity, plus these distances on each side.
AREA_X, AREA_Y = 64.0, 80.0
EVERYWHERE = (0.0, 0.0, math.inf, math.inf)
SLACK = 40.0  # px added on each side of the area for a new set of movers, so that later decisions can reuse the set
MAX_UNUSED = 4  # maximum number of movers in a reused set that are outside the area by more than twice SLACK

# Simulated states, ROWS per environment: the current state, the states after each action, and the last state of each
# branch.  They are reused at the next decision.  words: uint64[rows, size / 8], the bytes of each state.  frames:
# int64[rows], frames simulated since the current state; 0: the row is unused.  jump_delay: int64[rows], frames before a
# jump was first possible, see ``_play``.  count: int64[rows], number of movers in the row.  chosen: uint8[environments +
# 1, movers], 0 for the movers that branches omit, NEAR for those that may affect the ninja in the area, 1 for other
# included movers; 1 everywhere in the last row.  clearances: float64[environments, movers], see
# ``find_clearances``.  settings: FORESIGHT_DTYPE[1].
Branches = namedtuple("Branches", "words ninja entities movers frames jump_delay count chosen clearances settings")
AFTER, END = 1, 1 + NUM_ACTIONS  # first row of the states after the actions, and of the branches' last states
SCRATCH_ROW = END + NUM_ACTIONS * NUM_CONTINUATIONS  # row in which ``_last_action`` and ``_has_escape`` simulate
LASERS_ROW = SCRATCH_ROW + 1  # row of the omitted lasers at the horizon, for ``_has_escape``
ROWS = LASERS_ROW + 1
LEFT_AREA = -1  # result of ``_play`` if the ninja leaves the area
NEAR = 2  # value in ``Branches.chosen`` of a mover that may affect the ninja
NINJA_WORDS, MOVER_WORDS = NINJA_DTYPE.itemsize // 8, MOVER_DTYPE.itemsize // 8
_FIELDS: Any = NINJA_DTYPE.fields
COMPARED_WORDS = _FIELDS["registrations"][1] // 8  # words of the ninja that do not depend on whether movers are omitted


def allocate_branches(count: int, max_entities: int, max_movers: int, settings: Foresight) -> Branches:
    """Allocate the simulated states of ``count`` environments, with a record of the settings."""
    parts = [(NINJA_DTYPE, ()), (ENTITY_DTYPE, (max_entities,)), (MOVER_DTYPE, (max_movers,))]
    rows, views = allocate(ROWS * count, parts)
    chosen, clearances = np.ones((count + 1, max_movers), np.uint8), np.zeros((count, max_movers))
    counts = np.zeros((3, len(rows)), np.int64)
    return Branches._make([rows.view(np.uint64), *views, *counts, chosen, clearances, settings.record()])


# i: index of the environment, which selects the rows of ``branches``.
# trail: TRAIL_DTYPE, positions of the ninja; not written, because no branch lasts until an evil ninja would read them.
# distance: uint16[2, 4539], path fields for the current doors.
# no_timing: int64[0], disables the timing in ``advance_frame``.  Another type would compile ``advance_frame`` again.
@kernel
def foresight(i, ninja, entities, movers, trail, world, distance, frame_skip, branches, out, no_timing):
    """Write float32[6, 4, 11] (action, continuation, AHEAD) to ``out``; zeros after a win or death."""
    out[:] = 0.0
    if _settled(ninja):
        return
    record = world.level[ninja["level"]]
    length = paths.nearest_node(distance[1 if ninja["switch_taken"] else 0], ninja["x"], ninja["y"])[0]
    first = ROWS * i
    settings = branches.settings[0]
    chosen, area, continuations = (
        branches.chosen[i], _area(ninja, settings["horizon"]), np.int64(settings["continuations"]))  # fmt: skip
    last = _last_action(record, ninja, entities, movers, trail, world, frame_skip, branches, first, no_timing)
    _enter(record, ninja, entities, movers, branches, first)
    clearances = branches.clearances[i]
    later = branches.movers[first + LASERS_ROW]
    find_clearances(ninja["level"], entities, movers, world, area, settings, later, clearances)
    if last < 0 or not _suffices(record, clearances, chosen):
        last = -1
        _choose(record, clearances, chosen)
    if _includes_all(record, chosen):
        area = EVERYWHERE
    _continue_branches(record, trail, world, frame_skip, branches, first, last, area, no_timing)
    # The jump key is held without effect; only a release and a new press could start a jump.
    jump_used_up = ninja["jump_held"] and ninja["state"] != JUMPING and ninja["jump_buffer"] < 0
    ineffective = 0  # bit number ``action`` is set if ``action`` with the jump key has the same results as without
    for action in range(NUM_ACTIONS):
        if ACTION_INPUT[action] & JUMP and ineffective >> WITHOUT_JUMP[action] & 1:
            for continuation in range(NUM_CONTINUATIONS):
                without = HOLD if continuation == OTHER_JUMP else continuation
                _repeat(out[WITHOUT_JUMP[action], without], out[action, continuation])
            continue
        after = first + AFTER + action
        frames, jump_delay = _play_action(
            record, branches, first, action, chosen, area, trail, world, frame_skip, no_timing
        )
        same_without_jump = jump_used_up or (ninja["state"] != JUMPING and jump_delay >= min(frames, JUMP_BUFFER))
        press_ineffective = False
        for continuation in range(continuations):
            if SAME_AS[continuation, action] != continuation:
                _repeat(out[action, SAME_AS[continuation, action]], out[action, continuation])
                continue
            if continuation == OTHER_JUMP and press_ineffective:
                _repeat(out[action, HOLD], out[action, continuation])
                continue
            end = first + END + NUM_CONTINUATIONS * action + continuation
            if branches.frames[end] == 0:
                _play_rest(record, branches, first, action, continuation, area, trail, world, frame_skip, no_timing)
            _report(ninja, entities, branches, end, world, distance, length, out[action, continuation])
            more, jump_delay = branches.frames[end] - frames, branches.jump_delay[end]
            same_without_jump = jump_used_up or (same_without_jump and jump_delay >= min(more, JUMP_BUFFER - frames))
            if continuation == HOLD:
                press_ineffective = branches.ninja[after]["state"] != JUMPING and jump_delay >= min(more, JUMP_BUFFER)
        for continuation in range(continuations, NUM_CONTINUATIONS):
            _repeat(out[action, HOLD], out[action, continuation])
        if same_without_jump:
            ineffective |= 1 << action
    if settings["escapes"]:
        _report_dead_ends(record, trail, world, branches, first, ineffective, chosen, out, no_timing)
    if settings["noise"]:
        _exchange(branches.words[first], settings["noise"], out)


@merged
def _exchange(state, noise, out):
    """Exchange the outcomes of each action in turn with those of another one, with probability ``noise``.

    state: uint64[words], current state; its first COMPARED_WORDS words are the seed of the draws.
    """
    drawn = np.uint64(0)
    for word in range(COMPARED_WORDS):
        drawn = _mixed(drawn ^ state[word])
    for action in range(NUM_ACTIONS):
        drawn = _mixed(drawn)
        if (drawn >> np.uint64(11)) * 2.0**-53 < noise:
            drawn = _mixed(drawn)
            other = (action + 1 + np.int64(drawn % np.uint64(NUM_ACTIONS - 1))) % NUM_ACTIONS
            for continuation in range(NUM_CONTINUATIONS):
                for component in range(len(AHEAD)):
                    value = out[action, continuation, component]
                    out[action, continuation, component] = out[other, continuation, component]
                    out[other, continuation, component] = value


@inlined
def _mixed(value):
    """Return the next number of the generator splitmix64 (Steele et al. 2014) with the state ``value``, uint64."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@inlined
def _enter(record, ninja, entities, movers, branches, row):
    """Copy a state to a row of ``branches``."""
    branches.ninja[row] = ninja
    branches.count[row] = record["mover_end"] - record["mover_first"]
    for k in range(record["entity_end"] - record["entity_first"]):
        branches.entities[row, k] = entities[k]
    for m in range(branches.count[row]):
        branches.movers[row, m] = movers[m]


@inlined
def _area(ninja, horizon):
    vx, vy = horizon / 2 * ninja["vx"], horizon / 2 * ninja["vy"]
    return ninja["x"] + vx, ninja["y"] + vy, abs(vx) + AREA_X, abs(vy) + AREA_Y


@merged
def _suffices(record, clearances, chosen):
    """Mark movers that can affect a ninja in the area as NEAR; return True if all of them are chosen, and few others."""
    unused = 0
    for m in range(record["first_moving"], record["mover_end"] - record["mover_first"]):
        if clearances[m] <= 0.0:
            if not chosen[m]:
                return False
            chosen[m] = NEAR
        elif chosen[m]:
            chosen[m] = 1
            unused += clearances[m] > 2 * SLACK
    return unused <= MAX_UNUSED


@merged
def _choose(record, clearances, chosen):
    """Choose the movers that can affect a ninja in the area or close to it."""
    for m in range(record["mover_end"] - record["mover_first"]):
        if m < record["first_moving"] or clearances[m] <= 0.0:
            chosen[m] = NEAR
        else:
            chosen[m] = clearances[m] <= SLACK


@inlined
def _includes_all(record, chosen):
    count, included = record["mover_end"] - record["mover_first"], 0
    for m in range(count):
        included += chosen[m] != 0
    return included == count


@inlined
def _used(record, branches):
    """Return the two ranges (first, end) of words that a level uses: ninja and entities; movers."""
    movers = NINJA_WORDS + branches.entities.shape[1]
    return (
        (0, NINJA_WORDS + record["entity_end"] - record["entity_first"]),
        (movers, movers + MOVER_WORDS * (record["mover_end"] - record["mover_first"])),
    )


@kernel
def _copy(record, branches, source, row, chosen):
    """Copy a state for a branch, with only the chosen movers."""
    for word in range(NINJA_WORDS + record["entity_end"] - record["entity_first"]):
        branches.words[row, word] = branches.words[source, word]
    first, count = NINJA_WORDS + branches.entities.shape[1], 0
    for m in range(branches.count[source]):
        if chosen[m]:
            for word in range(first, first + MOVER_WORDS):
                branches.words[row, word + MOVER_WORDS * count] = branches.words[source, word + MOVER_WORDS * m]
            count += 1
    branches.count[row] = count


@kernel
def _copy_for_escape(record, branches, first, source, row, chosen):
    """Copy the last state of a branch, with only the movers that are NEAR, and all lasers."""
    for word in range(NINJA_WORDS + record["entity_end"] - record["entity_first"]):
        branches.words[row, word] = branches.words[source, word]
    total, read, count = record["mover_end"] - record["mover_first"], 0, 0
    for m in range(total):
        included = branches.count[source] == total or chosen[m] != 0
        if chosen[m] == NEAR or branches.movers[first, m]["type"] == kinds.LASER:
            if included:
                branches.movers[row, count] = branches.movers[source, read]
            else:
                branches.movers[row, count] = branches.movers[first + LASERS_ROW, m]
            count += 1
        read += included
    branches.count[row] = count


@kernel
def _equal(record, branches, one, other):
    """Return True if two rows contain the same state."""
    for first, end in _used(record, branches):
        for word in range(first, end):
            if branches.words[one, word] != branches.words[other, word]:
                return False
    return True


@merged
def _last_action(record, ninja, entities, movers, trail, world, frame_skip, branches, first, no_timing):
    """Return the action that led from the previous state, in row ``first``, to the current one; -1 if none did.

    Simulates the action again in that row with all movers, because the branches omit some.
    """
    now, last = first + SCRATCH_ROW, -1
    _enter(record, ninja, entities, movers, branches, now)
    for action in range(NUM_ACTIONS):
        after = first + AFTER + action
        if branches.frames[after] > 0:
            same = True
            for word in range(COMPARED_WORDS):
                same &= branches.words[now, word] == branches.words[after, word]
            last = action if same else last
        branches.frames[after] = 0
    if last >= 0:
        _play(branches, first, EVERYWHERE, trail, world, ACTION_INPUT[last], frame_skip, no_timing)
        update_beams(branches.entities[first], branches.movers[first], world, ninja["level"])
    return last if last >= 0 and _equal(record, branches, first, now) else -1


@merged
def _continue_branches(record, trail, world, frame_skip, branches, first, last, area, no_timing):
    """Continue the branches of action ``last``; they become HOLD branches of this decision.

    All other branches are marked as not simulated, and so are those in which the ninja leaves the area.
    """
    holding = 0
    for continuation in range(NUM_CONTINUATIONS - 1, -1, -1):  # HOLD is last, so that its row is not overwritten
        source = first + END + NUM_CONTINUATIONS * last + continuation
        if last < 0 or branches.frames[source] == 0:
            continue
        keys = CONTINUATION_INPUT[continuation, last]
        action = INPUT_ACTION[keys]
        end = first + END + NUM_CONTINUATIONS * action + HOLD
        played, jump_delay = branches.frames[source] - frame_skip, branches.jump_delay[source]
        _copy(record, branches, source, end, branches.chosen[-1])
        more = _play(branches, end, area, trail, world, keys, frame_skip, no_timing)[0]
        if more != LEFT_AREA:
            branches.frames[end], branches.jump_delay[end] = played + more, max(jump_delay - frame_skip, 0)
            holding |= 1 << action
    for action in range(NUM_ACTIONS):
        for continuation in range(NUM_CONTINUATIONS):
            if continuation != HOLD or not holding >> action & 1:
                branches.frames[first + END + NUM_CONTINUATIONS * action + continuation] = 0


@inlined
def _repeat(known, out):
    """Copy the result of an equal branch."""
    for component in range(len(AHEAD)):
        out[component] = known[component]


@inlined
def _settled(ninja):
    return ninja["state"] == DEAD or ninja["state"] == CELEBRATING


@kernel
def _play(branches, row, area, trail, world, input_byte, frames, no_timing):
    """Simulate ``frames`` frames in a row of ``branches``, or fewer if the episode ends.

    Returns the number of simulated frames, and how many of them passed before a jump was first possible.  If the ninja
    leaves the area, the simulation ends, and the first number is LEFT_AREA.
    """
    ninja, movers, played, jump_delay = branches.ninja[row], branches.movers[row, : branches.count[row]], 0, 0
    while played < frames and not _settled(ninja):
        advance_frame(ninja, branches.entities[row], movers, trail, world, input_byte, no_timing)
        if _is_outside(ninja, area):
            return LEFT_AREA, 0
        if jump_delay == played and not _may_jump(ninja):
            jump_delay += 1
        played += 1
    return played, jump_delay


@merged
def _report_dead_ends(record, trail, world, branches, first, ineffective, chosen, out, no_timing):
    """Set ``death`` to DEAD_END in the surviving branches of dead-end actions. ineffective: see ``foresight``."""
    tested, fatal = 0, 0  # bit ``end - first``: escapes from that branch were tried; all ended in death
    for action in range(NUM_ACTIONS):
        repeats = ACTION_INPUT[action] & JUMP and ineffective >> WITHOUT_JUMP[action] & 1
        end = _first_in_air(branches, first, WITHOUT_JUMP[action] if repeats else action, repeats)
        if end < first:
            continue
        bit = 1 << (end - first)
        if not tested & bit and not _has_escape(record, branches, first, end, chosen, trail, world, no_timing):
            fatal |= bit
        tested |= bit
        if fatal & bit:
            for continuation in range(NUM_CONTINUATIONS):
                out[action, continuation, AHEAD.death] = max(out[action, continuation, AHEAD.death], DEAD_END)


@inlined
def _first_in_air(branches, first, action, without_jump):
    """Return the row of an action's first branch that ends in the air; -1 if there is none or one ends on a surface.

    without_jump: ignore the branch OTHER_JUMP.
    """
    found = -1
    for continuation in range(NUM_CONTINUATIONS):
        end = first + END + NUM_CONTINUATIONS * action + continuation
        ninja = branches.ninja[end]
        if branches.frames[end] == 0 or ninja["state"] == DEAD or (without_jump and continuation == OTHER_JUMP):
            continue
        if ninja["state"] == CELEBRATING or not ninja["airborne"]:
            return -1
        found = end if found < 0 else found
    return found


@kernel
def _has_escape(record, branches, first, end, chosen, trail, world, no_timing):
    """Return True if an escape keeps the ninja alive until it touches a surface, wins, or ESCAPE_FRAMES have passed.

    Only movers that are NEAR and lasers are simulated, because branches can omit others.
    first: first row of the environment.  end: row of the state.
    """
    row = first + SCRATCH_ROW
    ninja = branches.ninja[row]
    for k in range(branches.settings[0]["escapes"]):
        _copy_for_escape(record, branches, first, end, row, chosen)
        near = branches.movers[row, : branches.count[row]]
        ninja["jump_held"], ninja["jump_buffer"] = 0, -1  # branches that differ only in these are simulated once
        frame = 0
        while frame < ESCAPE_FRAMES and ninja["airborne"] and not _settled(ninja):
            keys = ESCAPES[k, 0 if frame < ESCAPE_TURN else 1]
            advance_frame(ninja, branches.entities[row], near, trail, world, keys, no_timing)
            frame += 1
        if ninja["state"] != DEAD:
            return True
    return False


@inlined
def _play_action(record, branches, first, action, chosen, area, trail, world, frame_skip, no_timing):
    """Simulate the frames of an action; return ``_play``'s results."""
    after = first + AFTER + action
    _copy(record, branches, first, after, chosen)
    frames, jump_delay = _play(branches, after, area, trail, world, ACTION_INPUT[action], frame_skip, no_timing)
    if frames == LEFT_AREA:
        _copy(record, branches, first, after, branches.chosen[-1])
        frames, jump_delay = _play(
            branches, after, EVERYWHERE, trail, world, ACTION_INPUT[action], frame_skip, no_timing
        )
    branches.frames[after] = frames
    return frames, jump_delay


@merged
def _play_rest(record, branches, first, action, continuation, area, trail, world, frame_skip, no_timing):
    """Simulate a branch from the state after its action to its end."""
    after, end = first + AFTER + action, first + END + NUM_CONTINUATIONS * action + continuation
    keys, rest = CONTINUATION_INPUT[continuation, action], branches.settings[0]["horizon"] - frame_skip
    _copy(record, branches, after, end, branches.chosen[-1])
    more, jump_delay = _play(branches, end, area, trail, world, keys, rest, no_timing)
    if more == LEFT_AREA:
        _copy(record, branches, first, end, branches.chosen[-1])
        _play(branches, end, EVERYWHERE, trail, world, ACTION_INPUT[action], frame_skip, no_timing)
        more, jump_delay = _play(branches, end, EVERYWHERE, trail, world, keys, rest, no_timing)
    branches.frames[end], branches.jump_delay[end] = branches.frames[after] + more, jump_delay


@inlined
def _is_outside(ninja, area):
    """Return True if the ninja is outside of an area, or was outside before this frame's collisions were resolved."""
    x, y, width, height = area
    free_x, free_y = ninja["start_x"] + ninja["free_vx"], ninja["start_y"] + ninja["free_vy"]
    return max(abs(ninja["x"] - x), abs(free_x - x)) > width or max(abs(ninja["y"] - y), abs(free_y - y)) > height


@inlined
def _may_jump(ninja):
    """Return True if a jump began in the last frame, or could have begun with the jump key pressed."""
    return (
        not ninja["airborne"]
        or ninja["walled"]
        or ninja["state"] == JUMPING
        or ninja["floor_buffer"] >= 0
        or ninja["wall_buffer"] >= 0
        or ninja["pad_buffer"] >= 0
    )


@inlined
def _report(ninja, entities, branches, row, world, distance, length, out):
    """Write the components of one branch.  Its last state is in row ``row`` of ``branches``.

    ninja, entities: current state.  length: current path length, px.
    """
    then = branches.ninja[row]
    soon = 1.0 - (branches.frames[row] - 1.0) / branches.settings[0]["horizon"]
    out[AHEAD.death] = soon if then["state"] == DEAD else 0.0
    out[AHEAD.win] = soon if then["state"] == CELEBRATING else 0.0
    out[AHEAD.dx], out[AHEAD.dy] = then["x"] - ninja["x"], then["y"] - ninja["y"]
    out[AHEAD.vx], out[AHEAD.vy] = then["vx"], then["vy"]
    left = paths.nearest_node(distance[1 if then["switch_taken"] else 0], then["x"], then["y"])[0]
    out[AHEAD.progress] = min(max(length - left, -PROGRESS_LIMIT), PROGRESS_LIMIT)
    out[AHEAD.airborne] = then["airborne"]
    out[AHEAD.switch] = then["switch_taken"] - ninja["switch_taken"]
    out[AHEAD.gold] = then["gold"] - ninja["gold"]
    record = world.level[then["level"]]
    base, doors = record["entity_first"], 0
    for k in range(record["switches_first"], record["switches_end"]):
        doors += entities[k - base]["closed"] != branches.entities[row, k - base]["closed"]
    out[AHEAD.doors] = doors
