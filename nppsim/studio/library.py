"""Levels and replays that a studio shows: those of the given folders, and those opened in the page.

The page identifies levels by fingerprint and replays by number.  It never sends a path, so it cannot reach other files.
Further copies of a level have ids of their own, FINGERPRINT~2, FINGERPRINT~3, ...; a copy under the same title is named
with its file.
"""

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np

from nppsim.errors import ConfigError
from nppsim.io.addresses import parse_address
from nppsim.levels import kinds
from nppsim.levels.campaign import is_campaign_file
from nppsim.levels.level import TEXT_SUFFIX, TYPE, Level
from nppsim.levels.level_set import INDEX, SINGLE, STARTER_LEVELS, LevelSet, LevelSetError
from nppsim.levels.tiles import SOLID
from nppsim.replays.playback import entries_of, find_files
from nppsim.replays.replay import REPLAY_SUFFIX, Replay, ReplayError
from nppsim.studio.documents import Document, about_level, packed_text
from nppsim.studio.errors import StudioError

MAX_LEVELS = 20_000  # maximum number of levels in a gallery
MAX_REPLAYS = 20_000
MAX_OPENED = 5_000  # maximum number of levels opened or created in the page; the oldest are dropped
FILM = Path(__file__).parent / "static" / "film.replay"  # run of the shipped agent on a level shipped with nppsim
_NOT_FOUND = 404
_ENDINGS = (".map", TEXT_SUFFIX, REPLAY_SUFFIX, ".attract")  # suffixes removed from the names of runs


@dataclass(frozen=True)
class ShownLevel:
    """A level that the page can show.

    category, par (frames): as in the level set that contains it; None if unknown.
    listed: True in the gallery; False for the level of a replay.
    """

    level: Level
    name: str
    category: str | None = None
    par: int | None = None
    listed: bool = True

    def card(self) -> Document:
        """Return the level's entry in the gallery, without tiles and positions."""
        inside = np.argwhere(self.level.tiles != SOLID)
        extent = np.ptp(inside, axis=0) + 1 if len(inside) else np.zeros(2, int)
        types = Counter(t for t in self.level.records[1:, TYPE].tolist() if t < len(kinds.ENTITY_NAMES))
        return about_level(self.level, self.name, self.category, self.par) | {
            "extent": extent[::-1].tolist(),
            "entities": {kinds.ENTITY_NAMES[kind]: count for kind, count in sorted(types.items())},
        }


class _Contents(NamedTuple):
    """Contents of the folders and files of levels.

    cards: ``card`` of each level; a file that is given twice is shown once.
    places: id of each level -> (its level set, its number there, its displayed name).
    problems: messages on unreadable files.
    """

    cards: list[Document]
    places: dict[str, tuple[LevelSet, int, str]]
    problems: list[str]


class Library:
    """Levels by fingerprint and replays by number.

    levels: folders of levels (may be empty), campaign files and level files; by default the levels shipped with nppsim.
    replays: replay files, replay sets and folders of them.
    folders: folders in which levels can be saved: those of ``levels`` without a level-set index.
    Raises LevelSetError and ReplayError for invalid files, ConfigError for missing paths and more than MAX_LEVELS levels.
    """

    def __init__(self, levels: Sequence[str | Path] = (), replays: Sequence[str | Path] = ()):
        places = levels or [STARTER_LEVELS]
        self._sets = list(map(_level_set, places))
        self.folders = [path for path in map(Path, places) if path.is_dir() and not (path / INDEX).exists()]
        if (count := sum(map(len, self._sets))) > MAX_LEVELS:
            raise ConfigError(f"{count:,} levels; at most {MAX_LEVELS:,} are shown: give a folder of fewer", "--levels")
        for path in replays:
            if not Path(path).exists():
                raise ConfigError(f"{path} does not exist; give replays, replay sets or folders of them", "--replays")
        self._replay_files = find_files(replays) if replays else []
        self._opened: OrderedDict[str, ShownLevel] = OrderedDict()
        self._lock = threading.RLock()

    # ------------------------------------------------------------------------------------------------------- levels
    def levels(self) -> Document:
        """Return {"levels": ``card`` of each level, opened levels last, "problems": messages on unreadable files}."""
        with self._lock:
            contents = self._contents
            opened = [entry.card() for id, entry in self._opened.items() if entry.listed and id not in contents.places]
            return {"levels": contents.cards + opened, "problems": contents.problems}

    @cached_property
    def _contents(self) -> _Contents:
        contents = _Contents([], {}, [])
        names: dict[str, list[str]] = {}  # of the copies of each level, by fingerprint
        files: set[str] = set()
        for levels in self._sets:
            for i, entry in enumerate(levels.entries):
                file = os.path.abspath(levels.path / entry.file)
                if file in files:
                    continue
                files.add(file)
                try:
                    shown = _shown(levels, i)
                except LevelSetError as error:
                    contents.problems.append(str(error))
                    continue
                fingerprint = shown.level.fingerprint
                same_level = names.setdefault(fingerprint, [])
                name = f"{shown.name} ({_file_name(levels, i)})" if shown.name in same_level else shown.name
                same_level.append(name)
                id = fingerprint if len(same_level) == 1 else f"{fingerprint}~{len(same_level)}"
                contents.places[id] = levels, i, name
                contents.cards.append(shown.card() | {"id": id, "name": name})
        return contents

    def level(self, id: str) -> ShownLevel:
        """Return a level by its id.  Raises StudioError if it is unknown, LevelSetError if its file is gone."""
        with self._lock:
            if id in self._opened:
                return self._opened[id]
            places = self._contents.places
            if id in places:
                levels, i, name = places[id]
                shown = replace(_shown(levels, i), name=name)
                if shown.level.fingerprint == id.partition("~")[0]:
                    return shown
                self.reread()  # another program has changed the file
        raise StudioError("there is no such level here; open its file again", _NOT_FOUND)

    def document(self, id: str) -> Document:
        """Return ``about_level`` of a level with its file, from which the page computes the level document.

        Further entries: "title"; "map": base64 of the map file; "warnings": ``Level.warnings``; "next": id of the next level
        of the gallery, or null.
        """
        with self._lock:
            shown = self.level(id)
            opened = (id for id, entry in self._opened.items() if entry.listed)
            order = list(dict.fromkeys([*self._contents.places, *opened, id]))
            following = order[order.index(id) + 1 :]
        return about_level(shown.level, shown.name, shown.category, shown.par) | {
            "id": id,
            "title": shown.level.title,
            "map": packed_text(shown.level.to_bytes()),
            "warnings": list(shown.level.warnings),
            "next": next(iter(following), None),
        }

    def add(self, level: Level, name: str = "", *, listed: bool = True) -> str:
        """Add a level that was opened or created in the page, or that belongs to a replay; return its id.

        A level that is already here keeps its entry.
        name: displayed name of a level without a title.  listed: show it in the gallery.
        """
        id = level.fingerprint
        with self._lock:
            exists = id in self._contents.places or (id in self._opened and self._opened[id].listed >= listed)
            if not exists:
                self._opened[id] = ShownLevel(level, level.title.strip() or name or "untitled", listed=listed)
                while len(self._opened) > MAX_OPENED:
                    self._opened.popitem(last=False)
        return id

    def reread(self) -> None:
        """Read the folders again after a file has been replaced."""
        with self._lock:
            self.__dict__.pop("_contents", None)

    @property
    def categories(self) -> list[str]:
        """Categories of the folders' levels, in order of first appearance."""
        return list(dict.fromkeys(category for levels in self._sets for category in levels.categories))

    # ------------------------------------------------------------------------------------------------------ replays
    def replays(self) -> Document:
        """Return {"replays": list of {"number", "label", "level", "frames", "success"}, "problems": read errors}."""
        with self._lock:
            replays, problems = self._replays
        entries = [
            {"number": number, "label": label, "level": level, "frames": frames, "success": success}
            for number, (_, label, level, frames, success) in enumerate(replays)
        ]
        return {"replays": entries, "problems": problems}

    @cached_property
    def _replays(self) -> tuple[list[tuple[str, str, str, int, bool | None]], list[str]]:
        """Return (address, label, level fingerprint, frames, success) of each replay, and messages on unreadable files."""
        replays: list[tuple[str, str, str, int, bool | None]] = []
        problems = []
        for file in self._replay_files:
            try:
                for place, entry in entries_of(file):
                    label = _without_ending(entry.name) or f"{file.stem} {place.rpartition('#')[2]}"
                    replays.append((place, label, entry.level_fingerprint, entry.frames, entry.success))
            except ReplayError as error:
                problems.append(str(error))
            if len(replays) > MAX_REPLAYS:
                raise StudioError(f"more than {MAX_REPLAYS:,} replays; start the studio with fewer")
        return replays, problems

    def replay(self, number: int) -> tuple[Replay, str]:
        """Return a replay by its number, and its label; add its level to the library."""
        with self._lock:
            replays, _ = self._replays
        if not 0 <= number < len(replays):
            raise StudioError("there is no such replay here", _NOT_FOUND)
        place, label, *_ = replays[number]
        replay = Replay.load(place)
        self.add(replay.level, label, listed=False)
        return replay, label

    def film(self) -> Document | None:
        """Return the shipped agent's run that the gallery plays, as in ``run``; None if its level is not shown."""
        film = Replay.load(FILM)
        with self._lock:
            shown = film.level.fingerprint in self._contents.places
        return self.run(film.level, film.inputs, "the shipped agent") if shown else None

    def run(self, level: Level, inputs: np.ndarray, label: str) -> Document:
        """Return {"label", "level": id, "inputs": base64 of uint8[frames]}, which the page plays."""
        return {"label": label, "level": level.fingerprint, "inputs": packed_text(inputs)}


def _level_set(place: str | Path) -> LevelSet:
    """Open the level set of a file or of a folder; the folder may be empty.  Raises LevelSetError."""
    path = Path(place)
    if path.is_dir():
        return LevelSet.open(path, may_be_empty=not any(file.name[0] != "." for file in path.iterdir()))
    if path.is_file() and not is_campaign_file(path):
        Level.load(path)  # raises an error for a file without a level
    return LevelSet.at(place)


def _shown(levels: LevelSet, i: int) -> ShownLevel:
    entry, level = levels.entries[i], levels[i]
    file, number = _address(levels, i)
    category = file.stem if number and entry.category == SINGLE else entry.category
    return ShownLevel(level, level.title.strip() or _file_name(levels, i), category, entry.par_frames)


def _file_name(levels: LevelSet, i: int) -> str:
    """Return the path of a level below the folder of its set, without suffix, and its number in a campaign file."""
    file, number = _address(levels, i)
    return " ".join(filter(None, (file.with_suffix("").as_posix(), number)))


def _address(levels: LevelSet, i: int) -> tuple[PurePath, str]:
    """Return the file of a level below the folder of its set, and its number in a campaign file, its seed, or ""."""
    entry = levels.entries[i]
    if entry.file == entry.address:
        return PurePath(entry.category), str(entry.seed)
    path, number = parse_address(levels.path / entry.file)
    return PurePath(path).relative_to(levels.path), number


def _without_ending(name: str) -> str:
    stem, dot, ending = name.rpartition(".")
    return stem if dot + ending.lower() in _ENDINGS else name
