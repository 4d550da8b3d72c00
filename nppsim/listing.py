"""Properties of levels that ``nppsim levels`` prints."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nppsim.bank import LevelBank
from nppsim.levels.format import TYPE
from nppsim.levels.kinds import ENTITY_NAMES
from nppsim.levels.level import Level


@dataclass(frozen=True)
class LevelFacts:
    """Properties of one level.

    name: path of the level, in the form that ``Level.load`` accepts.
    id, title, support: see ``Level``.
    entities: name of an entity type -> number of its records.
    path_length: px, length of the path from the spawn via the exit switch to the exit; None if there is no path.
    """

    name: str
    id: str
    title: str
    support: str
    entities: dict[str, int]
    path_length: float | None


def level_facts(levels: Sequence[Level]) -> list[LevelFacts]:
    """Return the properties of each level."""
    if not levels:
        return []
    bank = LevelBank(levels)
    found = zip(levels, bank.path_length.tolist(), bank.reachable.tolist(), strict=True)
    return [
        LevelFacts(
            level.name, level.id, level.title.strip(), level.support, _entities(level), length if reachable else None
        )
        for level, length, reachable in found
    ]


def _entities(level: Level) -> dict[str, int]:
    counts = sorted(Counter(level.records[1:, TYPE].tolist()).items())
    return {ENTITY_NAMES[kind] if kind < len(ENTITY_NAMES) else f"type {kind}": count for kind, count in counts}
