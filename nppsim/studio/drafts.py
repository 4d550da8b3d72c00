"""Drafts, the JSON form of levels in the editor: conversion from and to levels, and checks with messages for the author.

A draft may be incomplete.  Positions are in steps of 6 px from the outer corner of the border, as in level files:

    {"title": at most 128 ASCII characters,
     "tiles": 23 rows of 42 tile ids,
     "spawn": [x, y] or null,
     "entities": [{"kind": type, "x": x, "y": y, "orientation": 0..7, "mode": 0..3, "switch": [x, y]}, ...]}

Only exits, locked doors and trap doors have ``switch``, the position of their switch.  ``draft_of`` and ``level_of`` sort
the entities by kind, as the game does.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nppsim.bank import LevelBank
from nppsim.io.reading import mismatch
from nppsim.levels import kinds, tiles
from nppsim.levels.level import (
    BOTTOM_Y,
    MIRROR_X,
    MODE,
    ORIENTATION,
    POSITION_UNIT,
    STEPS_PER_TILE,
    TYPE,
    Level,
    LevelError,
    X,
    Y,
)
from nppsim.levels.stage import COLUMNS, ROWS, TILE
from nppsim.studio.documents import name_of

WITH_SWITCH = (kinds.EXIT, *kinds.SWITCH_OF_DOOR)  # kinds whose draft entity includes the switch
SWITCH_KINDS = (kinds.EXIT_SWITCH, *kinds.SWITCH_OF_DOOR.values())
FAR_TILES = 22  # distance in tiles (half the stage) from which a switch is reported as far from its door or exit
# Fields that the game ignores; a draft sets them to 0.
_IGNORED_FIELDS = {kinds.EXIT: ("orientation", "mode"), kinds.LOCKED_DOOR: ("mode",), kinds.TRAP_DOOR: ("mode",)}
_SHAPE = {
    "title": str,
    "tiles": [[int]],
    "spawn": ([int], None),
    "entities": [{"kind": int, "x": int, "y": int, "orientation": int, "mode": int}],
}


@dataclass(frozen=True)
class Diagnostic:
    """Message about a draft.

    severity: "error" (the draft is not a valid level), "warning" (a probable mistake) or "note".
    text: description and remedy.
    at: position in steps of 6 px; None if the diagnostic concerns the whole level.
    """

    severity: str
    text: str
    at: tuple[int, int] | None = None


# ---------------------------------------------------------------------------------------------------------------------
# Drafts and levels


def draft_of(level: Level) -> tuple[dict, list[str]]:
    """Return the draft of a level, and descriptions of what it does not preserve (only of unusual level files)."""
    lost = []
    records = level.records.tolist()
    entities = []
    for i, record in enumerate(records[1:], start=1):
        kind = record[TYPE]
        if kind == kinds.NINJA:
            lost.append("a second spawn, which creates nothing, is left out")
        if kind == kinds.NINJA or kind in SWITCH_KINDS:
            continue
        entity = {
            "kind": kind,
            "x": record[X],
            "y": record[Y],
            "orientation": record[ORIENTATION],
            "mode": record[MODE],
        }
        entity |= dict.fromkeys(_IGNORED_FIELDS.get(kind, ()), 0)
        if kind in WITH_SWITCH:
            partner = i + (level.exit_count if kind == kinds.EXIT else 1)
            if partner >= len(records):
                lost.append(f"the {name_of(kind)} at {_place(record[X], record[Y])} has no switch and is left out")
                continue
            entity["switch"] = [records[partner][X], records[partner][Y]]
        entities.append(entity)
    entities.sort(key=lambda entity: entity["kind"])
    draft = {
        "title": level.title,
        "tiles": level.tiles.tolist(),
        "spawn": [records[0][X], records[0][Y]],
        "entities": entities,
    }
    if not lost and level_of(draft) != level:
        lost.append("the order of records in the file is unusual; saving writes them in the game's order")
    return draft, lost


def level_of(draft: Any, name: str = "draft") -> Level:
    """Return the level of a draft.  name: for messages.  Raises LevelError for an invalid or incomplete draft."""
    check_shape(draft, name)
    if draft["spawn"] is None:
        raise LevelError(f"{name}: there is no spawn; place the ninja")
    pairs: dict[int, list] = {kind: [] for kind in WITH_SWITCH}
    entities = []
    for entity in draft["entities"]:
        kind, place = entity["kind"], (entity["x"], entity["y"])
        if kind == kinds.EXIT:
            pairs[kind].append((tuple(entity["switch"]), place))
        elif kind in WITH_SWITCH:
            pairs[kind].append((tuple(entity["switch"]), place, entity["orientation"]))
        else:
            entities.append((kind, *place, entity["orientation"], entity["mode"]))
    return Level.build(
        np.array(draft["tiles"]),
        tuple(draft["spawn"]),
        exits=pairs[kinds.EXIT],
        locked_doors=pairs[kinds.LOCKED_DOOR],
        trap_doors=pairs[kinds.TRAP_DOOR],
        entities=entities,
        title=draft["title"],
        name=name,
    )


def check_shape(draft: Any, name: str = "draft") -> None:
    """Raise LevelError if a draft does not have the structure described at the top of this file."""
    wrong = mismatch(draft, _SHAPE)
    if not wrong and [len(row) for row in draft["tiles"]] != [COLUMNS] * ROWS:
        wrong = f"tiles must be {ROWS} rows of {COLUMNS} tile ids"
    if not wrong:
        wrong = next(_wrong_places(draft), "")
    if wrong:
        raise LevelError(f"{name} is not a level draft: {wrong}")


def _wrong_places(draft: dict) -> Iterator[str]:
    if draft["spawn"] is not None and not _is_place(draft["spawn"]):
        yield f"spawn is {draft['spawn']}; it must be [x, y] or null"
    for i, entity in enumerate(draft["entities"]):
        if (entity["kind"] in WITH_SWITCH) != _is_place(entity.get("switch")):
            needed = "needs a switch [x, y]" if entity["kind"] in WITH_SWITCH else "has no switch"
            yield f"entities[{i}] is {entity}; a {name_of(entity['kind'])} {needed}"


def _is_place(value: Any) -> bool:
    return not mismatch(value, [int]) and len(value) == 2


# ---------------------------------------------------------------------------------------------------------------------
# Checks


def diagnostics(draft: dict) -> list[Diagnostic]:
    """Check a draft; return the diagnostics, the most severe first.  Raises LevelError for an invalid draft."""
    check_shape(draft)
    found = list(_missing(draft))
    if not any(diagnostic.severity == "error" for diagnostic in found):
        try:
            level = level_of(draft)
        except LevelError as error:
            found.append(Diagnostic("error", str(error)))
        else:
            found += _misplaced(draft)
            found += [Diagnostic("warning", _without_offset(warning)) for warning in level.warnings]
            unlike = [note for note in level.support_notes if note not in level.warnings]
            found += [Diagnostic("note", f"Here {note} (docs/physics.md, section 8).") for note in unlike]
            if (
                any(entity["kind"] == kinds.EXIT for entity in draft["entities"])
                and not LevelBank([level]).reachable[0]
            ):
                found.append(
                    Diagnostic(
                        "warning",
                        "No path leads from the spawn over an exit switch to its exit: tiles or doors block all paths.",
                    )
                )
            found += _notes(draft)
    return sorted(found, key=lambda diagnostic: ("error", "warning", "note").index(diagnostic.severity))


def _missing(draft: dict) -> Iterator[Diagnostic]:
    if draft["spawn"] is None:
        yield Diagnostic("error", "There is no spawn: place the ninja.")
    if not any(entity["kind"] == kinds.EXIT for entity in draft["entities"]):
        yield Diagnostic("warning", "There is no exit, so the level cannot be finished. Place an exit and its switch.")


def _misplaced(draft: dict) -> Iterator[Diagnostic]:
    """Yield diagnostics on objects outside the stage, and on objects inside solid tiles if the ninja must touch them."""
    solid = _solid_pixels(draft["tiles"])
    for what, x, y, touched in _objects(draft):
        if x > MIRROR_X or y > BOTTOM_Y:
            yield Diagnostic("warning", f"The {what} stands outside the stage, at {_place(x, y)}.", (x, y))
        elif touched and _is_inside_solid(solid, x, y):
            verb = "is" if what == "spawn" else "lies"
            yield Diagnostic("warning", f"The {what} at {_place(x, y)} {verb} inside solid tiles.", (x, y))


def _notes(draft: dict) -> Iterator[Diagnostic]:
    for (what, x, y), count in Counter(thing[:3] for thing in _objects(draft)).items():
        if count > 1:
            yield Diagnostic("note", f"{count} × {what} at the same place, {_place(x, y)}.", (x, y))
    for entity in draft["entities"]:
        if "switch" in entity:
            dx, dy = entity["switch"][0] - entity["x"], entity["switch"][1] - entity["y"]
            far = np.hypot(dx, dy) / STEPS_PER_TILE
            if far > FAR_TILES:
                yield Diagnostic(
                    "note",
                    f"The switch of the {name_of(entity['kind'])} at {_place(entity['x'], entity['y'])} is {far:.0f} tiles "
                    f"away from it, at {_place(*entity['switch'])}.",
                    tuple(entity["switch"]),
                )


def _objects(draft: dict) -> Iterator[tuple[str, int, int, bool]]:
    """Yield (description, x, y, whether the ninja must touch it) of the spawn, each entity and each switch."""
    if draft["spawn"] is not None:
        yield "spawn", *draft["spawn"], True
    for entity in draft["entities"]:
        kind = entity["kind"]
        yield name_of(kind), entity["x"], entity["y"], kind in (kinds.GOLD, kinds.EXIT)
        if "switch" in entity:
            yield f"switch of the {name_of(kind)}", *entity["switch"], True


def _solid_pixels(rows: list[list[int]]) -> np.ndarray:
    """Return bool[600, 1056], [y, x]: True for solid pixels of the stage, including its border."""
    masks = {tile: tiles.solid_mask(tile, TILE) for row in rows for tile in row}
    inner = np.block([[masks[tile] for tile in row] for row in rows])
    return np.pad(inner, TILE, constant_values=True)


def _is_inside_solid(solid: np.ndarray, x: int, y: int) -> bool:
    """Return True if all pixels within one step of a position are solid."""
    row, column = POSITION_UNIT * y, POSITION_UNIT * x
    top, left = max(row - POSITION_UNIT, 0), max(column - POSITION_UNIT, 0)
    return bool(solid[top : row + POSITION_UNIT, left : column + POSITION_UNIT].all())


def _place(x: int, y: int) -> str:
    """Format a position as in level texts: in tiles from the outer corner of the stage."""
    return f"({x / STEPS_PER_TILE:g}, {y / STEPS_PER_TILE:g})"


def _without_offset(warning: str) -> str:
    """Remove the file offset from a warning of ``Level``, since a draft has no file."""
    return warning.partition(": ")[2] if warning.startswith("byte ") else warning
