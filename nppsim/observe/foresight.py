"""Foresight: what each action leads to, asked of the simulator itself.

A copy of the environment plays every action for one decision, then goes on in each of the CONTINUATIONS, for HORIZON frames
in all.  The agent thus consults an exact model of the game; ``docs/observations.md`` says what that means.  Sources of the
idea: Tesauro & Galperin 1996 (rollouts), Weber et al. 2017 (imagination-augmented agents).
"""

from collections import namedtuple

import numpy as np

from nppsim import paths
from nppsim._kernel import inlined, kernel
from nppsim.actions import ACTION_INPUT, INPUT_ACTION, JUMP, LEFT, MIRRORED_ACTION, NUM_ACTIONS, RIGHT
from nppsim.observe import layout
from nppsim.physics.state import CELEBRATING, DEAD, ENTITY_DTYPE, JUMPING, MOVER_DTYPE, NINJA_DTYPE, allocate
from nppsim.physics.tick import tick

HORIZON = 40  # frames that are played, those of the first decision included
AHEAD = layout.slots(layout.SPECS["foresight"].components)
HOLD, RELEASE, OTHER_JUMP, TURN = range(len(layout.CONTINUATIONS))
NUM_CONTINUATIONS = len(layout.CONTINUATIONS)
# Input byte of each continuation after each action, in the order of ``layout.CONTINUATIONS``.
ONWARD_INPUT = np.stack([ACTION_INPUT, 0 * ACTION_INPUT, ACTION_INPUT ^ JUMP, ACTION_INPUT[MIRRORED_ACTION]])
# The first continuation with the same input byte.
SAME_AS = np.argmax(ONWARD_INPUT[:, None] == ONWARD_INPUT, axis=1)
WITHOUT_JUMP = INPUT_ACTION[ACTION_INPUT & (LEFT | RIGHT)]  # the action with the same direction, which comes first
PROGRESS_LIMIT = 300.0  # px: so short a time covers no longer way, unless the ninja loses its way altogether

# Room to play in, two rows for each environment: its state after the first decision, and the one that goes on from there.
Room = namedtuple("Room", "ninja entities movers")


def make_room(count: int, max_entities: int, max_movers: int) -> Room:
    """Room for ``count`` environments."""
    parts = [(NINJA_DTYPE, ()), (ENTITY_DTYPE, (max_entities,)), (MOVER_DTYPE, (max_movers,))]
    return Room(*allocate(2 * count, parts)[1])


@kernel
def foresight(i, ninja, entities, movers, world, distance, frame_skip, room, out):
    """float32[6, 4, 11] (action, continuation, AHEAD); zeros once the episode is won or lost.

    i: environment, whose rows of ``room`` are played in.
    distance: uint16[2, 4539], the path fields of the level as its doors are now.
    """
    out[:] = 0.0
    if _settled(ninja):
        return
    record = world.level[ninja["level"]]
    way = paths.nearest_node(distance[1 if ninja["switch_taken"] else 0], ninja["x"], ninja["y"])[0]
    after, onward = 2 * i, 2 * i + 1
    jump_is_over = ninja["jump_held"] and ninja["state"] != JUMPING and ninja["jump_buffer"] < 0
    for action in range(NUM_ACTIONS):
        if jump_is_over and ACTION_INPUT[action] & JUMP:  # only a new press would jump
            for way_on in range(NUM_CONTINUATIONS):
                without = HOLD if way_on == OTHER_JUMP else way_on
                _repeat(out[WITHOUT_JUMP[action], without], out[action, way_on])
            continue
        _copy(record, ninja, entities, movers, room, after)
        frames = _play(room, after, world, ACTION_INPUT[action], frame_skip)
        for way_on in range(NUM_CONTINUATIONS):
            if SAME_AS[way_on, action] != way_on:
                _repeat(out[action, SAME_AS[way_on, action]], out[action, way_on])
            elif _settled(room.ninja[after]):
                _report(ninja, entities, room, after, world, distance, way, frames, out[action, way_on])
            else:
                _copy(record, room.ninja[after], room.entities[after], room.movers[after], room, onward)
                more = _play(room, onward, world, ONWARD_INPUT[way_on, action], HORIZON - frame_skip)
                _report(ninja, entities, room, onward, world, distance, way, frames + more, out[action, way_on])


@inlined
def _repeat(known, out):
    """What is known of another branch, in which the same happens."""
    for component in range(len(AHEAD)):
        out[component] = known[component]


@inlined
def _settled(ninja):
    return ninja["state"] == DEAD or ninja["state"] == CELEBRATING


@inlined
def _copy(record, ninja, entities, movers, room, row):
    """Put a state into a row of ``room``: as many entities and movers as its level has."""
    room.ninja[row] = ninja
    for k in range(record["entity_end"] - record["entity_first"]):
        room.entities[row, k] = entities[k]
    for m in range(record["mover_end"] - record["mover_first"]):
        room.movers[row, m] = movers[m]


@kernel
def _play(room, row, world, input_byte, frames):
    """Play on in a row of ``room`` until the episode ends, or all the frames are played; returns their number."""
    ninja = room.ninja[row]
    for frame in range(frames):
        tick(ninja, room.entities[row], room.movers[row], world, input_byte)
        if _settled(ninja):
            return frame + 1
    return max(frames, 0)


@inlined
def _report(ninja, entities, room, row, world, distance, way, frames, out):
    """What has become of environment ``ninja`` after so many frames in a row of ``room``.

    way: px that were left at first.
    """
    then = room.ninja[row]
    soon = 1.0 - (frames - 1.0) / HORIZON
    out[AHEAD.death] = soon if then["state"] == DEAD else 0.0
    out[AHEAD.win] = soon if then["state"] == CELEBRATING else 0.0
    out[AHEAD.dx], out[AHEAD.dy] = then["x"] - ninja["x"], then["y"] - ninja["y"]
    out[AHEAD.vx], out[AHEAD.vy] = then["vx"], then["vy"]
    left = paths.nearest_node(distance[1 if then["switch_taken"] else 0], then["x"], then["y"])[0]
    out[AHEAD.progress] = min(max(way - left, -PROGRESS_LIMIT), PROGRESS_LIMIT)
    out[AHEAD.airborne] = then["airborne"]
    out[AHEAD.switch] = then["switch_taken"] - ninja["switch_taken"]
    out[AHEAD.gold] = then["gold"] - ninja["gold"]
    record = world.level[then["level"]]
    base, doors = record["entity_first"], 0
    for k in range(record["switches_first"], record["switches_end"]):
        doors += entities[k - base]["closed"] != room.entities[row, k - base]["closed"]
    out[AHEAD.doors] = doors
