"""Facts about levels, for ``nppsim levels``."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from nppsim.bank import LevelBank
from nppsim.levels.format import TYPE
from nppsim.levels.kinds import ENTITY_NAMES
from nppsim.levels.level import Level


def path_lengths(levels: Sequence[Level]) -> list[float | None]:
    """Return the length of each level's path from the spawn over the switch to the exit, px; None where none is found."""
    if not levels:
        return []
    bank = LevelBank(levels)
    return [float(length) if found else None for length, found in zip(bank.path_length, bank.reachable, strict=True)]


def describe(level: Level, path_length: float | None) -> dict[str, Any]:
    """Return the facts about a level that ``nppsim levels --json`` prints."""
    counts = Counter(np.asarray(level.records[1:, TYPE]).tolist())
    names = {kind: ENTITY_NAMES[kind] if kind < len(ENTITY_NAMES) else f"type {kind}" for kind in counts}
    return {
        "name": level.name,
        "title": level.title.strip(),
        "support": level.support,
        "entities": {names[kind]: counts[kind] for kind in sorted(counts)},
        "path_length": path_length,
    }
