"""Drafts, the JSON form of levels in the editor: conversion from and to levels.

A draft may be incomplete.  Positions are in steps of 6 px from the outer corner of the border, as in level files:

    {"title": at most 128 ASCII characters,
     "tiles": 23 rows of 42 tile ids,
     "spawn": [x, y] or null,
     "entities": [{"kind": type, "x": x, "y": y, "orientation": 0..7, "mode": 0..3, "switch": [x, y]}, ...]}

Only exits, locked doors and trap doors have ``switch``, the position of their switch.  ``draft_of`` and ``level_of`` sort
the entities by kind, as the game does.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nppsim.io.reading import mismatch
from nppsim.levels import kinds
from nppsim.levels.level import MODE, ORIENTATION, STEPS_PER_TILE, TYPE, Level, LevelError, X, Y
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.studio.documents import name_of

WITH_SWITCH = (kinds.EXIT, *kinds.SWITCH_OF_DOOR)  # kinds whose draft entity includes the switch
SWITCH_KINDS = (kinds.EXIT_SWITCH, *kinds.SWITCH_OF_DOOR.values())
# Fields that the game ignores; a draft sets them to 0.
_IGNORED_FIELDS = {kinds.EXIT: ("orientation", "mode"), kinds.LOCKED_DOOR: ("mode",), kinds.TRAP_DOOR: ("mode",)}
_SHAPE = {
    "title": str,
    "tiles": [[int]],
    "spawn": ([int], None),
    "entities": [{"kind": int, "x": int, "y": int, "orientation": int, "mode": int}],
}


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


def _place(x: int, y: int) -> str:
    """Format a position as in level texts: in tiles from the outer corner of the stage."""
    return f"({x / STEPS_PER_TILE:g}, {y / STEPS_PER_TILE:g})"
