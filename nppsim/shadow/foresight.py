"""Twin of ``foresight``: simulates every branch from the current state, frame by frame."""

import numpy as np

from nppsim.actions import ACTION_INPUT, JUMP, LEFT, RIGHT
from nppsim.observe import layout
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.shadow.geometry import StateTwin
from nppsim.shadow.level_twin import LevelTwin
from nppsim.shadow.playback import Playback, Rows

HORIZON = 40  # frames
PROGRESS_LIMIT = 300.0  # px
ENDED = (DEAD, CELEBRATING)


def foresight(
    twin: LevelTwin,
    rows: Rows,
    playback: Playback,
    frame_skip: int,
) -> np.ndarray:
    """Return float32[6, 4, 11] (action, continuation, component).

    twin: the level.
    rows: state of the environment; not changed.
    playback: plays the branches.
    frame_skip: frames per decision.
    """
    out = np.zeros(layout.SPECS["foresight"].shape, np.float32)
    if rows[0]["state"] in ENDED:
        return out
    now = twin.state_twin(*rows[:3])
    for action, keys in enumerate(ACTION_INPUT.tolist()):
        for number, continuation in enumerate(layout.CONTINUATIONS):
            keys_after = {"hold": keys, "release": 0, "jump": keys ^ JUMP, "turn": _turned(keys)}[continuation]
            inputs = [keys] * frame_skip + [keys_after] * (HORIZON - frame_skip)
            playback.load(rows)
            frames = playback.play(inputs)
            out[action, number] = _reported(twin, now, twin.state_twin(*playback.rows[:3]), frames)
    return out


def _turned(keys: int) -> int:
    """Exchange left and right in an input byte."""
    return keys & JUMP | (LEFT if keys & RIGHT else RIGHT if keys & LEFT else 0)


def _reported(twin: LevelTwin, now: StateTwin, then: StateTwin, frames: int) -> list[float]:
    fields, before, after = twin.path_fields(now), now.ninja, then.ninja
    left = [
        (fields.to_exit if ninja["switch_taken"] else fields.to_switch).path(ninja["x"], ninja["y"])[0]
        for ninja in (before, after)
    ]
    soon = 1.0 - (frames - 1) / HORIZON
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
        "doors": sum(now.states[e.index].closed != then.states[e.index].closed for e in twin.doors),
    }
    return [values[name] for name in layout.SPECS["foresight"].components]
