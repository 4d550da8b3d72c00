"""Reference implementation of ``foresight``: simulates every branch from the current state, frame by frame."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nppsim.actions import ACTION_INPUT, JUMP, LEFT, RIGHT
from nppsim.compile import World
from nppsim.levels import kinds
from nppsim.observe import layout
from nppsim.observe.foresight_settings import FORESIGHT, Foresight
from nppsim.observe.reach import find_near
from nppsim.physics.state import CELEBRATING, DEAD, NINJA_DTYPE
from nppsim.shadow.geometry import ReferenceState
from nppsim.shadow.reference_level import ReferenceLevel
from nppsim.shadow.state_simulator import Rows, StateSimulator

PROGRESS_LIMIT = 300.0  # px
AREA_X, AREA_Y = 64.0, 80.0  # px
ENDED = (DEAD, CELEBRATING)
ESCAPE_FRAMES, ESCAPE_TURN = 60, 20
ESCAPES = [(first, ACTION_INPUT[(k + n) % 6]) for n in range(3) for k, first in enumerate(ACTION_INPUT.tolist())]
DEAD_END = 0.0125
MASK = 2**64 - 1


def foresight(
    reference: ReferenceLevel,
    rows: Rows,
    playback: StateSimulator,
    frame_skip: int,
    settings: Foresight = FORESIGHT,
) -> np.ndarray:
    """Return float32[6, 4, 11] (action, continuation, component).

    reference: data of the level.
    rows: state of the environment; not changed.
    playback: plays the branches.
    frame_skip: frames per decision.
    """
    out = np.zeros(layout.SPECS["foresight"].shape, np.float32)
    if rows[0]["state"] in ENDED:
        return out
    now = reference.state_of(*rows[:3])
    near = _near(rows, playback.world, settings)
    simulated = layout.CONTINUATIONS[: settings.branches // len(ACTION_INPUT)]
    death = layout.slots(layout.SPECS["foresight"].components).death
    for action, keys in enumerate(ACTION_INPUT.tolist()):
        ends = []
        for number, continuation in enumerate(simulated):
            keys_after = {"hold": keys, "release": 0, "jump": keys ^ JUMP, "turn": _turned(keys)}[continuation]
            inputs = [keys] * frame_skip + [keys_after] * (settings.horizon - frame_skip)
            playback.load(rows)
            frames = playback.play(inputs)
            out[action, number] = _reported(
                reference, now, reference.state_of(*playback.rows[:3]), frames, settings.horizon
            )
            ninja, entities, movers, trail = playback.rows
            ends.append((ninja.copy(), entities.copy(), movers.copy(), trail.copy()))
        out[action, len(simulated) :] = out[action, 0]
        if settings.escapes and not _has_escape(playback, ends, near, ESCAPES[: settings.escapes]):
            out[action, :, death] = np.maximum(out[action, :, death], DEAD_END)
    return _exchanged(out, rows[0], settings.noise) if settings.noise else out


def _exchanged(out: np.ndarray, ninja: np.void, noise: float) -> np.ndarray:
    """Exchange each action's outcomes with those of another one with probability ``noise``."""
    draws = _draws(ninja)
    for action in range(len(out)):
        if (next(draws) >> 11) / 2**53 < noise:
            other = (action + 1 + next(draws) % (len(out) - 1)) % len(out)
            out[[action, other]] = out[[other, action]]
    return out


def _draws(ninja: np.void) -> Iterator[int]:
    """Yield numbers of the generator splitmix64, whose seed is the part of the state before the registrations."""
    fields: Any = NINJA_DTYPE.fields
    value = 0
    for word in np.frombuffer(ninja.tobytes()[: fields["registrations"][1]], np.uint64).tolist():
        value = _mixed(value ^ word)
    while True:
        value = _mixed(value)
        yield value


def _mixed(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def _near(rows: Rows, world: World, settings: Foresight) -> np.ndarray:
    """Return the indices of exits and lasers, and of movers that may affect the ninja within the horizon."""
    ninja, entities, movers = rows[:3]
    record = world.level[ninja["level"]]
    movers = movers[: record["mover_end"] - record["mover_first"]]  # the others belong to an earlier level
    drift_x, drift_y = settings.horizon / 2 * ninja["vx"], settings.horizon / 2 * ninja["vy"]
    area = (ninja["x"] + drift_x, ninja["y"] + drift_y, abs(drift_x) + AREA_X, abs(drift_y) + AREA_Y)
    near = np.zeros(len(movers), bool)
    later, clearances = movers.copy(), np.empty(len(movers))
    find_near(ninja["level"], entities, movers, world, area, settings.record(), later, clearances, near)
    return np.flatnonzero(near | (movers["type"] == kinds.LASER))


def _has_escape(playback: StateSimulator, ends: list[Rows], movers: np.ndarray, escapes: list[tuple[int, int]]) -> bool:
    """Return True if a branch ends alive on a surface, or if the ninja escapes from the first end alive in the air."""
    alive = [end for end in ends if end[0]["state"] != DEAD]
    if any(end[0]["state"] == CELEBRATING or not end[0]["airborne"] for end in alive):
        return True
    return bool(alive) and any(_escapes(playback, alive[0], movers, inputs) for inputs in escapes)


def _escapes(playback: StateSimulator, end: Rows, movers: np.ndarray, inputs: tuple[int, int]) -> bool:
    """Return True if the ninja survives with these inputs until it touches a surface, wins, or ESCAPE_FRAMES pass.

    The jump key counts as released at the start. movers: indices of the movers that are simulated.
    """
    playback.load(end, movers)
    playback.rows[0]["jump_held"], playback.rows[0]["jump_buffer"] = 0, -1
    for frame in range(ESCAPE_FRAMES):
        playback.play([inputs[frame >= ESCAPE_TURN]])
        ninja = playback.rows[0]
        if ninja["state"] in ENDED or not ninja["airborne"]:
            return bool(ninja["state"] != DEAD)
    return True


def _turned(keys: int) -> int:
    """Exchange left and right in an input byte."""
    return keys & JUMP | (LEFT if keys & RIGHT else RIGHT if keys & LEFT else 0)


def _reported(
    reference: ReferenceLevel, now: ReferenceState, then: ReferenceState, frames: int, horizon: int
) -> list[float]:
    fields, before, after = reference.path_fields(now), now.ninja, then.ninja
    left = [
        (fields.to_exit if ninja["switch_taken"] else fields.to_switch).path(ninja["x"], ninja["y"])[0]
        for ninja in (before, after)
    ]
    soon = 1.0 - (frames - 1) / horizon
    values = {
        "death": soon * (after["state"] == DEAD),
        "win": soon * (after["state"] == CELEBRATING),
        "dx": after["x"] - before["x"],
        "dy": after["y"] - before["y"],
        "vx": after["vx"],
        "vy": after["vy"],
        "progress": np.clip(left[0] - left[1], -PROGRESS_LIMIT, PROGRESS_LIMIT),
        "airborne": after["airborne"],
        "switch": after["switch_taken"] - before["switch_taken"],
        "gold": after["gold"] - before["gold"],
        "doors": sum(now.states[e.index].closed != then.states[e.index].closed for e in reference.doors),
    }
    return [values[name] for name in layout.SPECS["foresight"].components]
