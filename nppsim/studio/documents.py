"""JSON messages to the page, called documents: levels, frames and runs.

Positions are in px of the stage, which includes its border of one tile (24 px); y grows downward.  Entities are identified
by their index in the order of ``Run.entities``.

level document
    id         ``Level.fingerprint``
    name       displayed name
    category   category in its level set, or null
    par        frames of the best known run, or null
    code       ``Level.id``, the id in the game, such as "S-C-12-03", or ""
    episode    id of the level's episode, such as "S-C-12", or ""
    title      title in the file's header
    size       [1056, 600], px
    tiles      23 rows of 42 tile ids; tile (row, column) covers the 24 px from (24 column + 24, 24 row + 24)
    spawn      start position of the ninja, [x, y]
    entities   list of {"kind", "type", "x", "y", "orientation", "mode"}.  kind, type: name and number in
               ``nppsim.levels.kinds``.  x, y: start position; for a locked or trap door, position of its switch.
               orientation: 0..7.  Doors also have "door": [x1, y1, x2, y2], the line that they block.  An exit has
               "switch", the entity index of its switch; an exit switch has "exit", the entity index of its exit.
    start      frame document of the state before the first frame, with all entities
    warnings   unusual properties of the level, in sentences
    support    {"grade": ``Level.support``, "notes": ``Level.support_notes``}
    left_out   entities that are not simulated: [{"name", "x", "y"}]

frame document: the state after a frame
    f          frames since the start
    n          ninja: [x, y, vx, vy, state 0..9, floor normal x, floor normal y, airborne 0 or 1]
    i          input byte of this frame; 0 at the start
    o          outcome so far: "running", "won" or "died"
    g          number of gold pieces collected
    c          entities that changed since the previous frame document of the stream: {index: [bits, x, y]}.  Lasers,
               turrets and shooting drones append the three numbers of ``Run.aims``.  bits: as ``Run.entity_state`` (bit
               0 active, bits 1 to 3 state of mines, floor guards, thwumps and evil ninjas, bit 4 closed door)
    all        true if ``c`` contains all entities: at the start, and after a jump in time

run document: a whole run; the page can draw any of its frames without the simulator
    label      displayed name of the run
    colour     CSS colour of the run beside others, or null
    level      id of the level
    outcome    "running" (the inputs ended before the episode), "won" or "died"
    frames     number of frames, F
    inputs     base64 of uint8[F], the input byte of each frame
    start      frame document of the state before the first frame
    track      base64 of little-endian int16[F, 8]: x, y (1/16 px), vx, vy (1/256 px per frame), state + 16 if airborne,
               floor normal x, y (1/16384), gold; row k is the state after frame k + 1
    changes    [[frame, index, bits, x, y], ...], entity changes in order of time, positions rounded to 1/16 px; lasers,
               turrets and shooting drones append three numbers, as in a frame document

run part: frames added to a run in progress
    outcome, frames            outcome and length of the run so far
    inputs, track, changes     as in a run document, for the added frames only
"""

import base64
from typing import Any

import numpy as np

from nppsim.errors import UserError
from nppsim.levels import kinds
from nppsim.levels.ids import episode_of
from nppsim.levels.level import Level
from nppsim.studio.errors import StudioError

Document = dict[str, Any]

MAX_RUN_FRAMES = 100_000  # maximum number of frames in a run document, 28 minutes of play


def about_level(level: Level, name: str, category: str | None, par: int | None) -> Document:
    """Return the entries that a level document and the gallery's card of the level share."""
    return {
        "id": level.fingerprint,
        "name": name,
        "category": category,
        "par": par,
        "code": level.id,
        "episode": episode_of(level.id),
        "support": {"grade": level.support, "notes": list(level.support_notes)},
    }


def name_of(kind: int) -> str:
    """Return the displayed name of an entity type."""
    return kinds.ENTITY_NAMES[kind] if kind < len(kinds.ENTITY_NAMES) else f"unknown entity (type {kind})"


def packed_text(data: np.ndarray | bytes) -> str:
    """Return bytes, or those of an array, as base64 text."""
    return base64.b64encode(bytes(data)).decode("ascii")


def level_of(text: str) -> Level:
    """Return the level of a map file in base64.  Raises LevelError, and StudioError for other text."""
    try:
        return Level.from_bytes(base64.b64decode(text, validate=True), "the level")
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise StudioError(f"map must be base64 ({error})") from error


def input_bytes(text: Any) -> np.ndarray:
    """Decode base64 text into input bytes, uint8[frames]."""
    try:
        inputs = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
    except (TypeError, ValueError) as error:
        raise StudioError(f"inputs must be base64 ({error})") from error
    if inputs.max(initial=0) > 15:
        raise StudioError("each byte of inputs must be 0 to 15")
    return inputs
