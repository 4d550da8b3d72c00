"""Messages to the page: levels, frames and runs as JSON ("documents").

All positions are px of the stage, y grows downward, the border of one tile (24 px) included.  Entities are identified
by their index in the order of ``Run.entities``.

level document
    id         ``Level.fingerprint``
    name       shown on the page
    category   of its level set, or null
    par        frames of the best known run, or null
    code       ``Level.id``: of the game, such as "S-C-12-03", or ""
    title      of the file's header
    size       [1056, 600], px
    tiles      23 rows of 42 tile ids; tile (row, column) covers the 24 px from (24 column + 24, 24 row + 24)
    spawn      [x, y]
    entities   in order of index, each {"kind", "type", "x", "y", "orientation", "mode"}: the name and number of
               ``nppsim.levels.kinds``, the place at the start (of a locked or trap door: that of its switch), orientation
               0..7 and mode of the record.  Doors have "door": [x1, y1, x2, y2], the line that they close.  An exit has
               "switch" and its switch "exit": the index of the other.
    start      the frame document of the start, with all entities
    warnings   unusual properties of the level, in sentences
    support    {"grade": ``Level.support``, "notes": ``Level.support_notes``}
    left_out   entities that are not simulated: [{"name", "x", "y"}]

frame document: the state after a frame
    f          frames since the start
    n          the ninja: [x, y, vx, vy, state 0..9, floor normal x, floor normal y, airborne 0 or 1]
    i          the input byte that led here; 0 at the start
    o          "running", "won" or "died"
    g          gold taken
    c          entities that changed since the previous frame document of its stream: {index: [bits, x, y]}; laser turrets
               have two more numbers, the end of the beam.  bits: as ``Run.entity_state`` (bit 0 active, bits 1 to 3 state
               of mines, floor guards, thwumps and evil ninjas, bit 4 closed door)
    all        true where ``c`` has all entities: at the start, and after a jump in time

run document: a whole run, enough to draw any of its frames without the simulator
    label      who plays
    colour     of its ghost, as CSS, or null
    level      id
    outcome    "running" (the inputs ended before the level did), "won" or "died"
    frames     F
    inputs     base64 of uint8[F], the input byte of each frame
    start      the frame document of the start
    track      base64 of little-endian int16[F, 8]: x, y (1/16 px), vx, vy (1/256 px per frame), state + 16 if airborne,
               floor normal x, y (1/16384), gold; row k is the state after frame k + 1
    changes    [[frame, index, bits, x, y], ...] in order of time, positions rounded to 1/16 px; laser turrets as above

run part: what was added to a run in progress since the last part
    outcome, frames            of the run until then
    inputs, track, changes     of the frames since the last part, as in a run document
"""

import base64
from pathlib import Path
from typing import Any

import numpy as np

from nppsim.bank import LevelBank
from nppsim.compile import LevelGeometry
from nppsim.levels import kinds
from nppsim.levels.level import MODE, ORIENTATION, POSITION_UNIT, TYPE, Level, is_left_out
from nppsim.levels.stage import STAGE_HEIGHT, STAGE_WIDTH
from nppsim.outcomes import DIED, NAMES, UNFINISHED, WON
from nppsim.physics.state import CELEBRATING, DEAD, NINJA_DTYPE
from nppsim.studio.errors import StudioError
from nppsim.studio.game import Game

Document = dict[str, Any]

POSITION_STEPS = 16  # of a run document, per px
SPEED_STEPS = 256  # per px per frame
NORMAL_STEPS = 16384
AIRBORNE = 16  # added to the state
MAX_CHANGES = 1_000_000  # of entities in a run document: some 40 MB
MAX_RUN_FRAMES = 100_000  # of a run document: 28 minutes of play
_STATE_OF_MOVER = (
    kinds.EVIL_NINJA,
    kinds.FLOOR_GUARD,
    kinds.THWUMP,
    kinds.SHOVE_THWUMP,
)  # state: the mover's
_FIELDS = list(NINJA_DTYPE.fields or ())
_FRAME, _STATE, _GOLD = map(_FIELDS.index, ("frame", "state", "gold"))
_NINJA = [_FIELDS.index(name) for name in ("x", "y", "vx", "vy", "state", "floor_x", "floor_y", "airborne")]
_OUTCOMES = {DEAD: NAMES[DIED], CELEBRATING: NAMES[WON]}


def level_document(bank: LevelBank, *, name: str = "", category: str | None = None, par: int | None = None) -> Document:
    """The document of a bank's only level.  name: default is its title, or the stem of its file's name."""
    level, geometry = bank.levels[0], bank.compiled[0]
    game = Game(bank)
    return {
        "id": level.fingerprint,
        "name": name or level.title.strip() or Path(level.name).stem or "level",
        "category": category,
        "par": par,
        "title": level.title,
        "code": level.id,
        "size": [int(STAGE_WIDTH), int(STAGE_HEIGHT)],
        "tiles": level.tiles.tolist(),
        "spawn": list(level.spawn),
        "entities": _entities(level, geometry),
        "start": FrameWriter(geometry).frame(game.ninja, game.entities, game.movers),
        "warnings": list(level.warnings),
        "support": support_document(level),
        "left_out": [
            {"name": name_of(kind), "x": POSITION_UNIT * x, "y": POSITION_UNIT * y}
            for kind, x, y, *_ in level.records[1:].tolist()
            if is_left_out(kind)
        ],
    }


def support_document(level: Level) -> Document:
    """Support grade of a level, and why it is not the best one."""
    return {"grade": level.support, "notes": list(level.support_notes)}


def name_of(kind: int) -> str:
    """Name of an entity type for people."""
    return kinds.ENTITY_NAMES[kind] if kind < len(kinds.ENTITY_NAMES) else f"unknown entity (type {kind})"


def _entities(level: Level, geometry: LevelGeometry) -> list[Document]:
    """The entities of a level document."""
    records: dict[int, list[list[int]]] = {}  # of each type, in file order, which is the order of their numbers
    for record in level.records.tolist():
        records.setdefault(record[TYPE], []).append(record)
    entities = []
    for i, (kind, number) in enumerate(
        zip(geometry.entity_type.tolist(), geometry.entity_number.tolist(), strict=True)
    ):
        # a switch is created by its exit, whether or not there is a record of it
        record = records[kinds.EXIT if kind == kinds.EXIT_SWITCH else kind][number]
        x, y = geometry.entity_xy[i].tolist()
        entity: Document = {"kind": kinds.ENTITY_NAMES[kind], "type": kind, "x": x, "y": y}
        entity |= {"orientation": record[ORIENTATION], "mode": record[MODE]}
        if kind in kinds.DOORS:
            entity["door"] = geometry.entity_shape[i].tolist()
        if (partner := int(geometry.entity_partner[i])) >= 0:
            entity["switch" if kind == kinds.EXIT else "exit"] = partner
        entities.append(entity)
    return entities


class FrameWriter:
    """Writes the frame documents of one stream, each with the changes since the previous one.

    geometry: compiled geometry of the level.
    """

    def __init__(self, geometry: LevelGeometry):
        kind, mover = geometry.entity_type, geometry.entity_mover
        self._count = len(kind)
        self._mines = np.flatnonzero(np.isin(kind, kinds.MINES))
        self._moving = np.flatnonzero(mover >= 0)
        self._with_mover_state = np.flatnonzero(np.isin(kind, _STATE_OF_MOVER))
        self._lasers = np.flatnonzero(kind == kinds.LASER)
        self._mover = mover
        self._numbers = np.where(kind == kinds.LASER, 4, 2).tolist()  # of an entity's place
        self._places = np.concatenate([geometry.entity_xy, np.zeros((self._count, 2))], axis=1)
        self.forget()

    def forget(self) -> None:
        """After a jump in time: the next frame document has all entities."""
        self._memory = b""  # of the entities and movers, as they were last
        self._before: tuple[np.ndarray, np.ndarray] | None = None

    def frame(self, ninja: np.void, entities: np.ndarray, movers: np.ndarray, input_byte: int = 0) -> Document:
        """The frame document of a state: an environment's row of a simulator's state (or views of a ``Game``).

        input_byte: what led there.
        """
        fields = ninja.item()  # one field at a time takes three times as long
        document: Document = {
            "f": fields[_FRAME],
            "n": [fields[i] for i in _NINJA],
            "i": int(input_byte),
            "o": _OUTCOMES.get(fields[_STATE], UNFINISHED),
            "g": fields[_GOLD],
        }
        if self._before is None:
            document["all"] = True
        document["c"] = self.changes(entities, movers)
        return document

    def changes(self, entities: np.ndarray, movers: np.ndarray) -> dict[int, list[float]]:
        """Return the part ``c`` of a frame document: entities changed since the last call; all of them at first."""
        memory = entities.tobytes() + movers.tobytes()
        if memory == self._memory:  # in most frames of most levels
            return {}
        bits, places = self._bits(entities, movers), self._places.copy()
        moving = self._mover[self._moving]
        places[self._moving, 0], places[self._moving, 1] = movers["x"][moving], movers["y"][moving]
        if len(self._lasers):
            beams = self._mover[self._lasers]
            places[self._lasers, 2], places[self._lasers, 3] = movers["target_x"][beams], movers["target_y"][beams]
        if self._before is None:
            changed = np.arange(self._count)
        else:
            changed = np.flatnonzero((bits != self._before[0]) | (places != self._before[1]).any(axis=1))
        self._memory, self._before = memory, (bits, places)
        looks = zip(changed.tolist(), bits[changed].tolist(), places[changed].tolist(), strict=True)
        return {i: [bit, *place[: self._numbers[i]]] for i, bit, place in looks}

    def _bits(self, entities: np.ndarray, movers: np.ndarray) -> np.ndarray:
        """``Run.entity_state`` of a state."""
        entities = entities[: self._count]
        bits = entities["active"] | entities["closed"] << 4
        bits[self._mines] |= entities["state"][self._mines].astype(np.uint8) << 1
        states = movers["state"][self._mover[self._with_mover_state]]
        bits[self._with_mover_state] |= (states & 7).astype(np.uint8) << 1
        return bits


class RunWriter:
    """Writes a run while it is played: the start of its document, then parts to append.

    bank: of one level.  game: its current state.  start: the frame document of the start.
    """

    def __init__(self, bank: LevelBank):
        self.game = Game(bank)
        self._writer = FrameWriter(bank.compiled[0])
        self.start = self._writer.frame(self.game.ninja, self.game.entities, self.game.movers)
        self._shown = _rounded(self.start["c"])  # entity -> how it looked last, rounded

    def play(self, inputs: np.ndarray) -> Document:
        """Play on (uint8[frames], until the run ends): inputs, track and changes of these frames, the outcome so far.

        Raises StudioError where more moves than can be shown.
        """
        inputs = np.ascontiguousarray(inputs, np.uint8)
        game, before = self.game, self.game.frame
        track, changes = np.zeros((len(inputs), 8)), []
        for k in range(len(inputs)):
            if not game.play(inputs[k : k + 1]):
                break
            ninja = game.ninja
            track[k] = (
                *(ninja["x"] * POSITION_STEPS, ninja["y"] * POSITION_STEPS),
                *(ninja["vx"] * SPEED_STEPS, ninja["vy"] * SPEED_STEPS),
                int(ninja["state"]) + AIRBORNE * int(ninja["airborne"]),
                *(ninja["floor_x"] * NORMAL_STEPS, ninja["floor_y"] * NORMAL_STEPS),
                ninja["gold"],
            )
            for i, look in _rounded(self._writer.changes(game.entities, game.movers)).items():
                if look != self._shown[i]:
                    self._shown[i] = look
                    changes.append([before + k + 1, i, *look])
            if len(changes) > MAX_CHANGES:
                raise StudioError(f"more moves in this run than can be shown (frame {game.frame}): cut it")
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
    """The document of the run that inputs (uint8[frames]) lead to on a bank's only level, until it ends.

    Raises StudioError for a run too long to be shown, or with too much in it.
    """
    if len(inputs) > MAX_RUN_FRAMES:
        raise StudioError(f"the run has {len(inputs):,} frames; at most {MAX_RUN_FRAMES:,} can be shown: cut it")
    writer = RunWriter(bank)
    head = {"label": label, "colour": colour, "level": bank.levels[0].fingerprint, "start": writer.start}
    return head | writer.play(inputs)


def packed_text(array: np.ndarray) -> str:
    """The array's bytes as base64."""
    return base64.b64encode(array.tobytes()).decode("ascii")


def _rounded(looks: dict[int, list[float]]) -> dict[int, list[float]]:
    """[bits, x, y, ...] of entities, positions rounded to steps of a run document."""
    return {
        i: [bits, *(round(v * POSITION_STEPS) / POSITION_STEPS for v in place)] for i, (bits, *place) in looks.items()
    }
