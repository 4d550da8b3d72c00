"""Properties of levels that ``nppsim levels`` prints."""

import itertools
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from nppsim.bank import LevelBank
from nppsim.levels.format import TYPE
from nppsim.levels.kinds import ENTITY_NAMES
from nppsim.levels.level import Level

_CHUNK = 200  # levels whose paths are searched together; their path fields need 7 MB


def level_facts(levels: Iterable[Level]) -> Iterator[dict[str, Any]]:
    """Yield the properties of each level, as values for JSON.

    name: path of the level, in the form that ``Level.load`` accepts.
    id, title, support: see ``Level``.
    entities: name of an entity type -> number of its records.
    path_length: px, length of the path from the spawn via the exit switch to the exit; None if there is no path.
    """
    remaining = iter(levels)
    known: dict[str, float | None] = {}  # fingerprint -> path length
    with ThreadPoolExecutor(1) as thread:  # searches the paths of some levels while the next ones are compiled
        pending: deque[tuple[list[Level], list[Level], Future | None]] = deque()
        while chunk := list(itertools.islice(remaining, _CHUNK)):
            new = list({level: None for level in chunk if level.fingerprint not in known})
            pending.append((chunk, new, thread.submit(_path_lengths, LevelBank(new)) if new else None))
            if len(pending) > 1:
                yield from _facts(*pending.popleft(), known)
        while pending:
            yield from _facts(*pending.popleft(), known)


def _path_lengths(bank: LevelBank) -> list[float | None]:
    pairs = zip(bank.path_length.tolist(), bank.reachable.tolist(), strict=True)
    return [length if reachable else None for length, reachable in pairs]


def _facts(
    levels: list[Level], new: list[Level], lengths: Future | None, known: dict[str, float | None]
) -> Iterator[dict[str, Any]]:
    """Yield the properties of ``levels``.  lengths: path lengths of the levels ``new``, which are added to ``known``."""
    known.update(zip((level.fingerprint for level in new), lengths.result() if lengths else (), strict=True))
    for level in levels:
        yield {
            "name": level.name,
            "id": level.id,
            "title": level.title.strip(),
            "support": level.support,
            "entities": _entities(level),
            "path_length": known[level.fingerprint],
        }


def _entities(level: Level) -> dict[str, int]:
    counts = sorted(Counter(level.records[1:, TYPE].tolist()).items())
    return {ENTITY_NAMES[kind] if kind < len(ENTITY_NAMES) else f"type {kind}": count for kind, count in counts}
