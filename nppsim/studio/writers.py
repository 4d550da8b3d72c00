"""Documents of levels and runs (``documents``) for exported pages.

The page of the studio computes the same documents by itself (static/js/documents.js).
"""

from pathlib import Path

import numpy as np

from nppsim.bank import LevelBank
from nppsim.compile import LevelGeometry
from nppsim.levels import kinds
from nppsim.levels.level import MODE, ORIENTATION, POSITION_UNIT, TYPE, Level, is_left_out
from nppsim.levels.stage import STAGE_HEIGHT, STAGE_WIDTH
from nppsim.physics.aims import write_aims
from nppsim.physics.outcomes import UNFINISHED
from nppsim.physics.state import NINJA_DTYPE
from nppsim.pictures.scene import STATE_OF_MOVER
from nppsim.studio.documents import MAX_RUN_FRAMES, Document, about_level, name_of, packed_text
from nppsim.studio.errors import StudioError
from nppsim.studio.game import OUTCOMES, Game

# Integer steps of the track in a run document.
POSITION_STEPS = 16  # per px
SPEED_STEPS = 256  # per px per frame
NORMAL_STEPS = 16384
AIRBORNE = 16  # added to the state of an airborne ninja
MAX_CHANGES = 1_000_000  # maximum number of entity changes in a run document, about 40 MB
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
        """Return ``c`` of a frame document: the entities that changed since the last call, or all at the first."""
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


def run_document(bank: LevelBank, inputs: np.ndarray, label: str = "", colour: str | None = None) -> Document:
    """Play inputs (uint8[frames]) on a bank with a single level and return the run document.

    Raises StudioError for more than MAX_RUN_FRAMES frames or MAX_CHANGES entity changes.
    """
    if len(inputs) > MAX_RUN_FRAMES:
        raise StudioError(f"the run has {len(inputs):,} frames; at most {MAX_RUN_FRAMES:,} can be shown: shorten it")
    inputs = np.ascontiguousarray(inputs, np.uint8)
    game = Game(bank)
    writer = FrameWriter(game)
    start = writer.frame()
    shown = _rounded(start["c"])  # entity index -> [bits, x, y, ...] written last
    track, changes = np.zeros((len(inputs), 8)), []
    for k in range(len(inputs)):
        if not game.play(inputs[k : k + 1]):
            break
        fields = game.ninja.item()  # three times as fast as access by field
        x, y, vx, vy, state, floor_x, floor_y, airborne = [fields[i] for i in _NINJA]
        track[k] = (
            *(x * POSITION_STEPS, y * POSITION_STEPS, vx * SPEED_STEPS, vy * SPEED_STEPS),
            *(state + AIRBORNE * airborne, floor_x * NORMAL_STEPS, floor_y * NORMAL_STEPS, fields[_GOLD]),
        )
        for i, look in _rounded(writer.changes()).items():
            if look != shown[i]:
                shown[i] = look
                changes.append([k + 1, i, *look])
        if len(changes) > MAX_CHANGES:
            raise StudioError(f"too many entities move in this run (up to frame {game.frame}): shorten it")
    limits = np.iinfo(np.int16)
    packed = np.clip(np.rint(track[: game.frame]), limits.min, limits.max).astype("<i2")
    return {
        "label": label,
        "colour": colour,
        "level": bank.levels[0].fingerprint,
        "start": start,
        "outcome": game.outcome,
        "frames": game.frame,
        "inputs": packed_text(inputs[: game.frame]),
        "track": packed_text(packed),
        "changes": changes,
    }


def _rounded(looks: dict[int, list[float]]) -> dict[int, list[float]]:
    """Round the positions of entities, {index: [bits, x, y, ...]}, to the steps of a run document."""
    return {
        i: [bits, *(round(v * POSITION_STEPS) / POSITION_STEPS for v in place)] for i, (bits, *place) in looks.items()
    }
