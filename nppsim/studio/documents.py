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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nppsim.bank import LevelBank
from nppsim.compile import LevelGeometry
from nppsim.errors import UserError
from nppsim.levels import kinds
from nppsim.levels.ids import episode_of
from nppsim.levels.level import MODE, ORIENTATION, POSITION_UNIT, TYPE, Level, is_left_out
from nppsim.levels.stage import STAGE_HEIGHT, STAGE_WIDTH
from nppsim.physics.aims import write_aims
from nppsim.physics.outcomes import UNFINISHED
from nppsim.physics.state import NINJA_DTYPE
from nppsim.pictures.scene import STATE_OF_MOVER
from nppsim.studio.errors import StudioError
from nppsim.studio.game import OUTCOMES, Game

Document = dict[str, Any]

# Integer steps of the track in a run document.
POSITION_STEPS = 16  # per px
SPEED_STEPS = 256  # per px per frame
NORMAL_STEPS = 16384
AIRBORNE = 16  # added to the state of an airborne ninja
MAX_CHANGES = 1_000_000  # maximum number of entity changes in a run document, about 40 MB
MAX_RUN_FRAMES = 100_000  # maximum number of frames in a run document, 28 minutes of play
_FIELDS = list(NINJA_DTYPE.fields or ())
_FRAME, _STATE, _GOLD = map(_FIELDS.index, ("frame", "state", "gold"))
_NINJA = [_FIELDS.index(name) for name in ("x", "y", "vx", "vy", "state", "floor_x", "floor_y", "airborne")]


def level_document(bank: LevelBank, *, name: str = "", category: str | None = None, par: int | None = None) -> Document:
    """Return the level document of a bank with a single level.

    name: displayed name, by default the level's title or the stem of its file name.
    """
    level, geometry = bank.levels[0], bank.compiled[0]
    name = name or level.title.strip() or Path(level.name).stem or "level"
    return about_level(level, name, category, par) | {
        "title": level.title,
        "size": [int(STAGE_WIDTH), int(STAGE_HEIGHT)],
        "tiles": level.tiles.tolist(),
        "spawn": list(level.spawn),
        "entities": _entities(level, geometry),
        "start": FrameWriter(Game(bank)).frame(),
        "warnings": list(level.warnings),
        "left_out": [
            {"name": name_of(kind), "x": POSITION_UNIT * x, "y": POSITION_UNIT * y}
            for kind, x, y, *_ in level.records[1:].tolist()
            if is_left_out(kind)
        ],
    }


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


def _entities(level: Level, geometry: LevelGeometry) -> list[Document]:
    records: dict[int, list[list[int]]] = {}  # type -> records in file order; index: entity number
    for record in level.records.tolist():
        records.setdefault(record[TYPE], []).append(record)
    entities = []
    for i, (kind, number) in enumerate(
        zip(geometry.entity_type.tolist(), geometry.entity_number.tolist(), strict=True)
    ):
        # An exit creates its switch, even if the switch has no record of its own.
        record = records[kinds.EXIT if kind == kinds.EXIT_SWITCH else kind][number]
        x, y = geometry.entity_xy[i].tolist()
        entity: Document = {"kind": kinds.ENTITY_NAMES[kind], "type": kind, "x": x, "y": y}
        entity |= {"orientation": record[ORIENTATION], "mode": record[MODE]}
        if kind in kinds.DOORS:
            entity["door"] = [float(geometry.world.entity[i][name]) for name in ("x1", "y1", "x2", "y2")]
        if (partner := int(geometry.world.entity[i]["partner"])) >= 0:
            entity["switch" if kind == kinds.EXIT else "exit"] = partner
        entities.append(entity)
    return entities


class FrameWriter:
    """Writer for a stream of frame documents of a game, each with the changes since the previous one."""

    def __init__(self, game: Game):
        self._game, geometry = game, game.bank.compiled[0]
        kind, mover = geometry.entity_type, geometry.entity_mover
        self._count = len(kind)
        self._mines = np.flatnonzero(np.isin(kind, kinds.MINES))
        self._moving = np.flatnonzero(mover >= 0)
        self._with_mover_state = np.flatnonzero(np.isin(kind, STATE_OF_MOVER))
        self._aiming = np.flatnonzero(np.isin(kind, kinds.AIMING))
        self._mover = mover
        # for each entity, how many numbers follow ``bits`` in ``c`` of a frame document
        self._numbers = np.where(np.isin(kind, kinds.AIMING), 5, 2).tolist()
        self._places = np.concatenate([geometry.entity_xy, np.zeros((self._count, 3))], axis=1)
        self.reset()

    def reset(self) -> None:
        """Include all entities in the next frame document; to be called after a jump in time."""
        self._last_bytes = b""  # bytes of the entities and movers at the last call of ``changes``
        self._before: tuple[np.ndarray, np.ndarray] | None = None

    def frame(self, input_byte: int = 0) -> Document:
        """Return the frame document of the current state.  input_byte: input of the frame that led to this state."""
        fields = self._game.ninja.item()  # three times as fast as access by field
        document: Document = {
            "f": fields[_FRAME],
            "n": [fields[i] for i in _NINJA],
            "i": int(input_byte),
            "o": OUTCOMES.get(fields[_STATE], UNFINISHED),
            "g": fields[_GOLD],
        }
        if self._before is None:
            document["all"] = True
        document["c"] = self.changes()
        return document

    def changes(self) -> dict[int, list[float]]:
        """Return ``c`` of a frame document: the entities that changed since the last call, or all after a ``reset``."""
        entities, movers = self._game.entities, self._game.movers
        entity_bytes = entities.tobytes() + movers.tobytes()
        if entity_bytes == self._last_bytes:  # as in most frames of most levels
            return {}
        bits, places = self._bits(entities, movers), self._places.copy()
        moving = self._mover[self._moving]
        places[self._moving, 0], places[self._moving, 1] = movers["x"][moving], movers["y"][moving]
        if len(self._aiming):
            aims = np.empty((len(self._aiming), 3))
            write_aims(movers, self._mover[self._aiming], aims)
            places[self._aiming, 2:] = aims
        if self._before is None:
            changed = np.arange(self._count)
        else:
            changed = np.flatnonzero((bits != self._before[0]) | (places != self._before[1]).any(axis=1))
        self._last_bytes, self._before = entity_bytes, (bits, places)
        looks = zip(changed.tolist(), bits[changed].tolist(), places[changed].tolist(), strict=True)
        return {i: [bit, *place[: self._numbers[i]]] for i, bit, place in looks}

    def _bits(self, entities: np.ndarray, movers: np.ndarray) -> np.ndarray:
        """Return the state of each entity as in ``Run.entity_state``."""
        entities = entities[: self._count]
        bits = entities["active"] | entities["closed"] << 4
        bits[self._mines] |= entities["state"][self._mines].astype(np.uint8) << 1
        states = movers["state"][self._mover[self._with_mover_state]]
        bits[self._with_mover_state] |= (states & 7).astype(np.uint8) << 1
        return bits


class RunWriter:
    """Writer of the run parts (see above) of a run that is being played.

    bank: bank with a single level.
    game: the game being played; by default a new one.
    advance: function that plays inputs on ``game``, by default ``game.play``.
    start: frame document of the first state.
    """

    def __init__(self, bank: LevelBank, game: Game | None = None, advance: Callable[[np.ndarray], int] | None = None):
        self.game = game or Game(bank)
        self._advance = advance or self.game.play
        self._writer = FrameWriter(self.game)
        self.start = self._writer.frame()
        self._shown = _rounded(self.start["c"])  # entity index -> [bits, x, y, ...] written last, rounded

    def jumped(self) -> None:
        """Continue from the game's state after a jump in time."""
        self._writer.reset()
        self._shown = _rounded(self._writer.changes())

    def play(self, inputs: np.ndarray) -> Document:
        """Play inputs (uint8[frames]) until the inputs or the episode end; return the frames played as a run part.

        Raises StudioError for more than MAX_CHANGES entity changes.
        """
        inputs = np.ascontiguousarray(inputs, np.uint8)
        game, before = self.game, self.game.frame
        track, changes = np.zeros((len(inputs), 8)), []
        for k in range(len(inputs)):
            if not self._advance(inputs[k : k + 1]):
                break
            fields = game.ninja.item()  # three times as fast as access by field
            x, y, vx, vy, state, floor_x, floor_y, airborne = [fields[i] for i in _NINJA]
            track[k] = (
                *(x * POSITION_STEPS, y * POSITION_STEPS, vx * SPEED_STEPS, vy * SPEED_STEPS),
                *(state + AIRBORNE * airborne, floor_x * NORMAL_STEPS, floor_y * NORMAL_STEPS, fields[_GOLD]),
            )
            for i, look in _rounded(self._writer.changes()).items():
                if look != self._shown[i]:
                    self._shown[i] = look
                    changes.append([before + k + 1, i, *look])
            if len(changes) > MAX_CHANGES:
                raise StudioError(f"too many entities move in this run (up to frame {game.frame}): shorten it")
        limits, played = np.iinfo(np.int16), game.frame - before
        packed = np.clip(np.rint(track[:played]), limits.min, limits.max).astype("<i2")
        return {
            "outcome": game.outcome,
            "frames": game.frame,
            "inputs": packed_text(inputs[:played]),
            "track": packed_text(packed),
            "changes": changes,
        }


def run_document(bank: LevelBank, inputs: np.ndarray, label: str = "", colour: str | None = None) -> Document:
    """Play inputs (uint8[frames]) on a bank with a single level and return the run document.

    Raises StudioError for more than MAX_RUN_FRAMES frames or MAX_CHANGES entity changes.
    """
    if len(inputs) > MAX_RUN_FRAMES:
        raise StudioError(f"the run has {len(inputs):,} frames; at most {MAX_RUN_FRAMES:,} can be shown: shorten it")
    writer = RunWriter(bank)
    head = {"label": label, "colour": colour, "level": bank.levels[0].fingerprint, "start": writer.start}
    return head | writer.play(inputs)


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


def _rounded(looks: dict[int, list[float]]) -> dict[int, list[float]]:
    """Round the positions of entities, {index: [bits, x, y, ...]}, to the steps of a run document."""
    return {
        i: [bits, *(round(v * POSITION_STEPS) / POSITION_STEPS for v in place)] for i, (bits, *place) in looks.items()
    }
