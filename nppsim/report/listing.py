"""Properties of levels that ``nppsim levels`` prints."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from nppsim.levels.format import TYPE
from nppsim.levels.kinds import ENTITY_NAMES
from nppsim.levels.level import Level


def level_facts(levels: Sequence[Level]) -> list[dict[str, Any]]:
    """Return the properties of each level, as values for JSON.

    name: path of the level, in the form that ``Level.load`` accepts.
    id, title, support: see ``Level``.
    entities: name of an entity type -> number of its records.
    path_length: px, length of the path from the spawn via the exit switch to the exit; None if there is no path.
    """
    if not levels:
        return []
    from nppsim.bank import LevelBank

    bank = LevelBank(levels)
    return [
        {
            "name": level.name,
            "id": level.id,
            "title": level.title.strip(),
            "support": level.support,
            "entities": _entities(level),
            "path_length": length if reachable else None,
        }
        for level, length, reachable in zip(levels, bank.path_length.tolist(), bank.reachable.tolist(), strict=True)
    ]


def _entities(level: Level) -> dict[str, int]:
    counts = sorted(Counter(level.records[1:, TYPE].tolist()).items())
    return {ENTITY_NAMES[kind] if kind < len(ENTITY_NAMES) else f"type {kind}": count for kind, count in counts}
