"""Level sets: folders of level files with one JSON index.

A folder such as ``datasets/train`` contains ``index.json`` and level files in the N++ layout, by default
``<category>/<number>.map``.  The index is an object with ``format`` ("nppsim level set"), ``version`` (1) and
``levels``, a list with one object per level:

    file         path of the level file, relative to the folder, with forward slashes; ``CATEGORY#SEED`` if there is no file,
                 because the level is generated when it is read
    category     e.g. "simple"
    generator    name of the generator in ``nppsim.generate``; "" if the level was not generated
    parameters   parameters of the generator, an object
    seed         seed of the generator, or null
    fingerprint  ``Level.fingerprint``, checked whenever the level is read
    par_frames   length in frames of a known run that finishes the level, or null

A folder of level files without index is a level set too.  The category of a level is then the name of its sub-folder,
or "uncategorised".  Each line of a campaign file (``nppsim.levels.campaign``) is a level, with the file's name as its
category (``S`` for ``S.txt``).  A sub-folder with an index is a separate level set.  A sub-folder of an indexed set is
the part of that set below it.  Opening a set reads only the index; each level is read on access.  An InputWarning names
the files of a folder that are skipped, with the reasons.
"""

import importlib
import itertools
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from nppsim.errors import InputWarning, UserError
from nppsim.io.files import write_text
from nppsim.io.reading import files_below, mismatch, read_json
from nppsim.levels import campaign
from nppsim.levels.format import RECORD_SIZE, RECORDS_OFFSET
from nppsim.levels.level import Level, LevelError, container_suffix, is_level

INDEX = "index.json"
STARTER_LEVELS = Path(__file__).parents[1] / "starter"  # three levels of each category; datasets/ contains none of them
FORMAT = "nppsim level set"
VERSION = 1
UNCATEGORISED = "uncategorised"
SINGLE = "single"  # category of a single level file
# Suffixes of files that are skipped in a folder without index, unless their content is that of a level or campaign file.
_NOT_LEVELS = {".json", ".toml", ".md", ".txt", ".csv", ".tmp", ".html", ".png", ".gif", ".webp", ".mp4"}
_SHOWN_SKIPPED = 5  # maximum number of skipped files that a warning names


class LevelSetError(UserError, ValueError):
    """Unusable level set; the message contains the folder or file, the position and the remedy."""


@dataclass(frozen=True)
class LevelEntry:
    """Index entry of a level; the fields are described in the module docstring."""

    category: str
    generator: str = ""
    parameters: dict = field(default_factory=dict)
    seed: int | None = None
    par_frames: int | None = None
    file: str = ""
    fingerprint: str = ""

    @property
    def address(self) -> str:
        """``file`` of a level without a file, which is generated when it is read."""
        return f"{self.category}#{self.seed}"


# Shape of an index entry, for ``nppsim.io.reading.mismatch``.
_ENTRY: dict[str, Any] = dict.fromkeys(("category", "generator", "file", "fingerprint"), str)
_ENTRY |= {"parameters": {}, "seed": (int, None), "par_frames": (int, None)}


class LevelSet(Sequence[Level]):
    """The levels of one folder, in the order of its index.  ``level_set[i]`` reads level i.

    path: the folder.  entries: one LevelEntry per level.
    levels: levels that were read before, one per entry; None: they are read on access.
    skipped: files and folders below ``path`` that are not part of the set, relative to it -> reason.
    """

    def __init__(
        self,
        path: Path,
        entries: Iterable[LevelEntry],
        skipped: Mapping[str, str] = MappingProxyType({}),
        levels: Sequence[Level] | None = None,
    ):
        self.path = path
        self._levels = levels
        self.entries = tuple(entries)
        self.skipped = dict(skipped)

    @classmethod
    def open(cls, path: str | Path, *, may_be_empty: bool = False) -> "LevelSet":
        """Open the level set in a folder; an InputWarning names its ``skipped`` files.

        Raises LevelSetError if it is missing, its index is invalid, or it is empty although ``may_be_empty`` is False.
        """
        path = Path(path)
        if not path.is_dir():
            what = "is a file" if path.exists() else "does not exist"
            raise LevelSetError(f"{path} {what}; give a folder of level files (scripts/generate_levels.py makes one)")
        skipped: dict[str, str] = {}
        if (path / INDEX).exists():
            entries = _read_index(path)
            skipped = _not_indexed(path, entries)
        elif not (entries := _indexed_above(path)):
            entries, skipped = _levels_in(path)
        warn_of_skipped(path, skipped)
        if not entries and not may_be_empty:
            inner = sorted(folder.name for folder in path.iterdir() if (folder / INDEX).exists())
            there = f" of its own, but the level sets {', '.join(inner)}; open one of them" if inner else ""
            raise LevelSetError(
                f"{path} holds no levels{there or '; put N++ level files there, or run scripts/generate_levels.py'}"
            )
        return cls(path, entries, skipped)

    @classmethod
    def at(cls, path: str | Path) -> "LevelSet":
        """Open a folder, a campaign file, or a single level (also ``.replay`` or ``S.txt#12``) as a set of one level.

        The category of a single level is ``SINGLE``.  Raises LevelSetError.
        """
        try:
            if campaign.is_campaign_file(path):
                return cls(Path(path).parent, _campaign_entries(Path(path), Path(path).stem))
            if line := campaign.locate(path):
                file, number = line
                return cls(file.parent, [LevelEntry(SINGLE, file=f"{file.name}#{number}")])
        except LevelError as error:
            raise LevelSetError(str(error)) from error
        path = Path(path)
        if path.is_file() or container_suffix(path) == ".h5":  # SET.h5#7
            return cls(path.parent, [LevelEntry(SINGLE, file=path.name)])
        return cls.open(path)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int) -> Level:  # type: ignore[override]  # no slices: each level is a file to read
        """Read one level.  Raises LevelSetError if its file is missing, damaged, or was changed after it was indexed."""
        if self._levels is not None:
            return self._levels[index]
        entry = self.entries[index]
        file = self.path / entry.file
        try:
            level = _generated(entry, str(file)) if entry.file == entry.address else Level.load(file)
        except LevelError as error:
            raise LevelSetError(f"{error}; remove or replace this file") from error
        except OSError as error:
            raise LevelSetError(
                f"{file}: {error.strerror}; restore the file or generate the level set again"
            ) from error
        if entry.fingerprint and level.fingerprint != entry.fingerprint:
            raise LevelSetError(
                f"{file} has fingerprint {level.fingerprint[:12]}…, {self.path / INDEX} states "
                f"{entry.fingerprint[:12]}…: the file was changed after it was indexed, or its generator differs; restore it"
            )
        return level

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """Names of the categories, in order of first appearance."""
        return tuple(self._indices)

    def category(self, index: int) -> str:
        """Return the category of level ``index``."""
        return self.entries[index].category

    def indices(self, category: str) -> np.ndarray:
        """Return the ascending indices of a category's levels, int64[n].  Raises LevelSetError if there are none."""
        if category not in self._indices:
            raise LevelSetError(
                f"{self.path} has no levels of category {category!r}; it has {', '.join(self.categories)}"
            )
        return self._indices[category].copy()

    def fingerprint(self, index: int) -> str:
        """Return ``Level.fingerprint`` of level ``index``; reads the level only if the set has no index."""
        return self.entries[index].fingerprint or self[index].fingerprint

    @cached_property
    def _indices(self) -> dict[str, np.ndarray]:
        lists: dict[str, list[int]] = {}
        for i, entry in enumerate(self.entries):
            lists.setdefault(entry.category, []).append(i)
        return {category: np.array(members, dtype=np.int64) for category, members in lists.items()}

    @classmethod
    def write(cls, path: str | Path, levels: Iterable[tuple[Level, LevelEntry]]) -> "LevelSet":
        """Write a new level set.  ``file`` and ``fingerprint`` of the entries are filled in.

        Raises LevelSetError if the folder contains files that are not hidden.  If writing is interrupted, the set
        exists and is empty.
        """
        path = Path(path)
        if path.exists() and (not path.is_dir() or any(file.name[0] != "." for file in path.iterdir())):
            raise LevelSetError(f"{path} exists already; choose another folder, or append to it")
        path.mkdir(parents=True, exist_ok=True)
        _write_index(path, [])
        return cls.append(path, levels)

    @classmethod
    def append(
        cls, path: str | Path, levels: Iterable[tuple[Level, LevelEntry]], *, index_only: bool = False
    ) -> "LevelSet":
        """Add levels to a level set with an index; an interrupted call adds none of them.

        index_only: write no files of the levels, which must have been generated from a seed.
        The level files are written first, and the index is replaced atomically at the end.
        Raises LevelSetError if there is no index, or the file name of a level is in use.
        """
        path = Path(path)
        if not (path / INDEX).exists():
            raise LevelSetError(f"{path} has no {INDEX}; make a level set there with LevelSet.write")
        entries = _read_index(path)
        used = {entry.file for entry in entries}
        numbers: dict[str, int] = {}
        for level, entry in levels:
            file = entry.file or (entry.address if index_only else _free_name(entry.category, used, numbers))
            if file in used:
                raise LevelSetError(f"{path}: the file {file} exists; leave LevelEntry.file empty for a free name")
            entry = replace(entry, file=file, fingerprint=level.fingerprint)
            _check_entry(asdict(entry), f"{path}: level {len(entries)}")
            if not index_only:
                (path / file).parent.mkdir(parents=True, exist_ok=True)
                level.save(path / file)
            used.add(file)
            entries.append(entry)
        _write_index(path, entries)
        return cls(path, entries)


def _generated(entry: LevelEntry, name: str) -> Level:
    """Generate the level of an index entry.  Raises LevelSetError for an unknown generator, or other parameters."""
    generators = importlib.import_module("nppsim.generate").GENERATORS  # that module imports this one
    try:
        return replace(generators[entry.generator](entry.seed, **entry.parameters), name=name)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise LevelSetError(
            f"{name}: generator {entry.generator!r} cannot make this level ({type(error).__name__}: {error}); use the "
            "version of the project that wrote the index"
        ) from error


def check_disjoint(*splits: Sequence[LevelSet]) -> None:
    """Raise LevelSetError if two splits (train, dev, test) share a level, mirrored or not.

    splits: the level sets of each split.  Sets of the same split may share levels.
    """
    for number, split in enumerate(splits):
        for later in split:
            levels = list(later) if number else []
            for earlier in itertools.chain(*splits[:number]):
                _check_apart(earlier, later, levels)


def _check_apart(earlier: LevelSet, later: LevelSet, levels: Sequence[Level]) -> None:
    """Raise LevelSetError if two sets share a level.  levels: the levels of ``later``."""
    index = {earlier.fingerprint(i): i for i in range(len(earlier))}
    shared = []
    for i, level in enumerate(levels):
        same = index.get(level.fingerprint, index.get(level.mirrored_fingerprint))
        if same is not None:
            shared.append(f"{later.entries[i].file} = {earlier.entries[same].file}")
    if shared:
        raise LevelSetError(
            f"{len(shared)} of {len(later)} levels of {later.path} are also in {earlier.path}, identical or mirrored: "
            f"{', '.join(shared[:5])}{', …' if len(shared) > 5 else ''}; success on them would measure memorisation. "
            f"Remove them, or generate the levels of {later.path} with another seed and --exclude {earlier.path}"
        )


def _free_name(category: str, used: set[str], numbers: dict[str, int]) -> str:
    """Return the next free file name of a category; ``numbers`` caches the next number per category."""
    while (file := f"{category}/{numbers.get(category, 0):06d}.map") in used:
        numbers[category] = numbers.get(category, 0) + 1
    return file


Levels = LevelSet | Level | Sequence[Level] | Sequence[str | Path] | str | Path


def read_levels(levels: Levels) -> tuple[Sequence[Level], tuple[LevelEntry, ...]]:
    """Return levels and the entry of each; read those at one or several paths (``LevelSet.at``).

    The category of a level that is not from a level set is "".  Raises LevelSetError, and TypeError for other types.
    """
    if isinstance(levels, str | Path):
        levels = LevelSet.at(levels)
    if isinstance(levels, LevelSet):
        return levels, levels.entries
    if isinstance(levels, Level):
        return [levels], (LevelEntry(""),)
    if not isinstance(levels, Iterable):
        raise TypeError(f"levels {levels!r}: give a path, a Level, a LevelSet, or a list of these")
    parts = [read_levels(path) for path in levels]
    return list(itertools.chain(*(part for part, _ in parts))), tuple(
        itertools.chain(*(warnings for _, warnings in parts))
    )


def scan_folder(path: Path) -> tuple[list[LevelEntry], dict[str, str]]:
    """Return the levels of a folder without index, sorted by file name, without reading them, and the skipped files.

    Skips files of other formats and sub-folders with an index, and names them with the reason; hidden files are ignored.
    Raises LevelSetError for unreadable folders and broken links.
    """
    entries: list[LevelEntry] = []
    skipped: dict[str, str] = {}

    def enter(folder: Path) -> bool:
        if (folder / INDEX).exists():
            skipped[folder.relative_to(path).as_posix()] = f"has an {INDEX} of its own"
        return not (folder / INDEX).exists()

    files = files_below(
        path,
        LevelSetError,
        lambda file: file.name != INDEX and (file.is_file() or file.suffix.lower() not in _NOT_LEVELS),
        enter,
    )
    for file in sorted((file.relative_to(path) for file in files), key=lambda file: file.parts):
        name = file.as_posix()
        if campaign.is_campaign_file(path / file):
            entries += _campaign_entries(path / file, file.with_suffix("").as_posix(), name)
        elif file.suffix.lower() in _NOT_LEVELS and not _is_level_file(path / file):
            skipped[name] = f"not a level{' or campaign file' * (file.suffix.lower() == campaign.SUFFIX)}"
        else:
            category = file.parent.as_posix() if file.parent.parts else UNCATEGORISED
            entries.append(LevelEntry(category, file=name))
    return entries, skipped


def _is_level_file(path: Path) -> bool:
    """Return True if the first bytes of a file are those of a level, as a map or as text."""
    with open(path, "rb") as file:
        return is_level(file.read(RECORDS_OFFSET + RECORD_SIZE))


def _not_indexed(path: Path, entries: Sequence[LevelEntry]) -> dict[str, str]:
    """Return the files below an indexed level set that may be levels and are not in its index, with the reason."""
    indexed = {name for entry in entries for name in (entry.file, entry.file.rpartition("#")[0])}
    files = files_below(
        path,
        LevelSetError,
        wanted=lambda file: file.suffix.lower() not in (*_NOT_LEVELS, ".h5", ".replay") and file.is_file(),
        enter=lambda folder: not (folder / INDEX).exists(),
    )
    names = (file.relative_to(path).as_posix() for file in files)
    return dict.fromkeys((name for name in names if name not in indexed), f"not in {INDEX}")


def warn_of_skipped(path: str | Path, skipped: Mapping[str, str]) -> None:
    """Issue an InputWarning that names the skipped files of a folder, if there are any.  skipped: file -> reason."""
    if skipped:
        named = ", ".join(f"{name} ({reason})" for name, reason in itertools.islice(skipped.items(), _SHOWN_SKIPPED))
        more = f" and {len(skipped) - _SHOWN_SKIPPED} more" if len(skipped) > _SHOWN_SKIPPED else ""
        warnings.warn(InputWarning(f"{path}: skipped {named}{more}"), stacklevel=3)


def _campaign_entries(path: Path, category: str, file: str = "") -> list[LevelEntry]:
    """Return one entry per line of a campaign file.  Raises LevelSetError if the file is unreadable or empty.

    file: path of the campaign file as it appears in the entries, by default its name.
    """
    try:
        numbers = campaign.level_numbers(path)
    except LevelError as error:
        raise LevelSetError(str(error)) from error
    return [LevelEntry(category, file=f"{file or path.name}#{number}") for number in numbers]


def _indexed_above(path: Path) -> list[LevelEntry]:
    """Return the entries below ``path`` of the level set in the nearest parent folder with an index; [] without one."""
    path = path.resolve()
    above = next((folder for folder in path.parents if (folder / INDEX).is_file()), None)
    if above is None or f'"{FORMAT}"'.encode() not in (above / INDEX).read_bytes():  # e.g. the index of another program
        return []
    prefix = f"{path.relative_to(above).as_posix()}/"
    return [
        replace(entry, file=entry.file.removeprefix(prefix))
        for entry in _read_index(above)
        if entry.file.startswith(prefix)
    ]


def _levels_in(path: Path) -> tuple[list[LevelEntry], dict[str, str]]:
    entries, skipped = scan_folder(path)
    for entry in entries:
        if container_suffix(entry.file) == ".h5":
            raise LevelSetError(
                f"{path / entry.file} is an HDF5 file, not a level; write the level of one of its replays with "
                "nppsim extract, or move the file to another folder"
            )
    return entries, skipped


def _read_index(path: Path) -> list[LevelEntry]:
    file = path / INDEX
    index = read_json(file, LevelSetError, "restore it, or delete it to use the folder without an index")
    if not isinstance(index, dict) or index.get("format") != FORMAT or not isinstance(index.get("levels"), list):
        raise LevelSetError(
            f'{file} is not the index of a level set; expected "format": "{FORMAT}", "version": {VERSION} and '
            '"levels": [...]; restore it, or delete it to use the folder without an index'
        )
    if index.get("version") != VERSION:
        raise LevelSetError(
            f"{file} has version {index.get('version')!r}; this program reads version {VERSION}: generate the set again"
        )
    levels = index["levels"]
    for i, entry in enumerate(levels):
        _check_entry(entry, f"{file}: level {i}")
        levels[i] = LevelEntry(**entry)
    return levels


def _check_entry(entry: dict, where: str) -> None:
    """Raise LevelSetError, with ``where`` in the message, for an invalid index entry."""
    if wrong := mismatch(entry, _ENTRY):
        raise LevelSetError(f"{where}: {wrong}; generate the set again")
    if unknown := entry.keys() - _ENTRY.keys():
        raise LevelSetError(f"{where} has the unknown field {min(unknown)!r}; remove it")
    if not entry["category"]:
        raise LevelSetError(f"{where} has an empty category; give it a name, such as {UNCATEGORISED!r}")
    place_of_files = f"{entry['category']}/{entry['file']}"  # default file names begin with the category
    if not {"", ".", ".."}.isdisjoint(place_of_files.split("/")) or {"\\", "\0"} & {*place_of_files}:
        raise LevelSetError(
            f"{where}: category is {entry['category']!r}, file is {entry['file']!r}; expected relative paths that "
            "stay inside the folder"
        )


def _write_index(path: Path, entries: Sequence[LevelEntry]) -> None:
    """Replace the index atomically.  It has one line per level, so that two indexes can be compared line by line."""
    names = [f.name for f in fields(LevelEntry)]
    lines = [json.dumps({name: getattr(entry, name) for name in names}) for entry in entries]
    text = f'{{"format": "{FORMAT}", "version": {VERSION}, "levels": [\n' + ",\n".join(lines) + "\n]}\n"
    write_text(path / INDEX, text)
