"""Facts about levels, for ``nppsim levels``."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nppsim.bank import LevelBank
from nppsim.levels.format import TYPE
from nppsim.levels.kinds import ENTITY_NAMES
from nppsim.levels.level import Level


@dataclass(frozen=True)
class LevelFacts:
    """One level as ``nppsim levels`` prints it.

    name: where it is, as ``Level.load`` takes it.
    id: see ``Level.id``.
    support: see ``Level.support``.
    entities: number of records by name of their type.
    path_length: px, from the spawn over the switch to the exit; None if no path is found.
    """

    name: str
    id: str
    title: str
    support: str
    entities: dict[str, int]
    path_length: float | None


def level_facts(levels: Sequence[Level]) -> list[LevelFacts]:
    """Describe levels."""
    if not levels:
        return []
    bank = LevelBank(levels)
    found = zip(levels, bank.path_length.tolist(), bank.reachable.tolist(), strict=True)
    return [
        LevelFacts(
            level.name,
            level.id,
            level.title.strip(),
            level.support,
            _entities(level),
            length if reachable else None,
        )
        for level, length, reachable in found
    ]


def _entities(level: Level) -> dict[str, int]:
    counts = sorted(Counter(level.records[1:, TYPE].tolist()).items())
    return {ENTITY_NAMES[kind] if kind < len(ENTITY_NAMES) else f"type {kind}": count for kind, count in counts}
