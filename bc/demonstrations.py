"""Demonstrations from replay files and replay sets: winning runs with one action per decision.

Each replay is read once and played back in the simulator.  A replay is excluded if it is unreadable, does not finish its
level, or cannot be re-timed to one action per decision.  ``DemonstrationSet.table()`` counts excluded replays by reason.
Mirror images that also win can be added.
"""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import numpy as np

from nppsim.actions import SELF_DESTRUCT
from nppsim.bank import LevelBank
from nppsim.compile import LevelGeometry
from nppsim.errors import UserError
from nppsim.io.files import table
from nppsim.io.reading import files_below, read_json
from nppsim.levels.level import Level
from nppsim.levels.level_set import UNCATEGORISED
from nppsim.planner import retime
from nppsim.replays.playback import find_files, is_replay_file
from nppsim.replays.replay import (
    Replay,
    ReplayError,
    is_replay_set,
    mirror_replay,
    on_grid,
    read_bytes,
    to_decisions,
    to_inputs,
)
from nppsim.replays.replay_set import ReplaySet
from nppsim.simulate import simulate

Paths = str | Path | Sequence[str | Path]  # one or several folders of replays, or files
INDEX_FILE = "index.json"  # {"format": ..., "demonstrations": [{"file": "a.replay", "category": "simple"}, ...]}
INDEX_FORMAT = "nppsim demonstrations"  # an index with another format, e.g. of a level set, is ignored
_RECORDER_NAME = re.compile(r"(?:^|_)(?:train|test)_(?P<category>[a-z][a-z_]*?)_\d+$")  # a_train_very_simple_1
MIRRORED = " (mirrored)"  # suffix of the name of a mirror image
_SHOWN_PER_REASON = 10
# Reasons for excluding a replay.
_UNREADABLE = "cannot be read"
_FAILURE = "recorded as a failure"
_UNFINISHED = "does not finish"
_NOT_RETIMED = "cannot be re-timed"
_LOST_BY_RETIMING = "does not finish after re-timing"
_LOST_BY_MIRRORING = "does not finish mirrored"
_DUPLICATE = "duplicate"
_NOT_DRAWN = "not drawn"
_FOR_EVALUATION = "used for evaluation"


class DemonstrationError(UserError, ValueError):
    """A folder or file of demonstrations that cannot be used."""


@dataclass(frozen=True)
class ReplayFile:
    """A replay file, or one replay of a replay set.

    path: path of the file, for messages.
    name: path relative to the folder; replay i of a set has the suffix ``#i``.  With several folders, the name begins with
        the name of the folder.
    source: content of the file, or a replay from a set.
    """

    path: str
    name: str
    category: str
    source: bytes | Replay = field(repr=False)

    @cached_property
    def replay(self) -> Replay:
        """The replay.  Raises ReplayError for a damaged file."""
        return self.source if isinstance(self.source, Replay) else Replay.from_bytes(self.source, self.path)

    @cached_property
    def digest(self) -> str:
        """Digest of the content of the file, or of the replay from a set."""
        if isinstance(self.source, bytes):
            return hashlib.sha256(self.source).hexdigest()
        return f"{self.source.fingerprint} {self.source.success}"


@dataclass(frozen=True, eq=False)
class Demonstration:
    """A level and actions that win it, verified by playback.

    actions: int64[decisions], 0..5, one per ``frame_skip`` frames.
    inputs: uint8[frames], the same actions as input bytes, up to and including the winning frame.
    recorded_frames: number of frames in the replay file, up to and including the winning frame.
    retimed: True if the inputs of a 60 Hz recording were changed to one action per decision.
    deviation_px: mean distance between a re-timed run and the recording.
    mirrored: True for the mirror image of another demonstration.
    """

    name: str
    category: str
    level: Level
    actions: np.ndarray
    inputs: np.ndarray
    recorded_frames: int
    retimed: bool = False
    deviation_px: float = 0.0
    mirrored: bool = False


@dataclass(frozen=True)
class ExcludedReplay:
    """An excluded replay, or an excluded mirror image.

    reason: one of the constants of this module.
    detail: explanation for messages.
    """

    name: str
    category: str
    reason: str
    detail: str
    mirrored: bool = False


@dataclass(frozen=True)
class DemonstrationSet:
    """Demonstrations of a folder, and the excluded replays.

    excluded: the excluded replays.
    compiled: compiled geometry of the levels, so that ``LevelBank`` does not compile them again.
    """

    folder: str
    frame_skip: int
    demonstrations: tuple[Demonstration, ...]
    excluded: tuple[ExcludedReplay, ...]
    compiled: Mapping[Level, LevelGeometry] = field(default_factory=dict, repr=False)

    def table(self, details: int = _SHOWN_PER_REASON) -> str:
        """Return a text for printing: counts per category, results of re-timing, and excluded replays by reason.

        details: maximum number of excluded replays that are listed per reason.
        """
        return "\n".join([self._counts(), *self._retiming(), *self._mirroring(), *self._reasons(details)])

    def _counts(self) -> str:
        header = ("category", "files", "used", "mirrored", "re-timed", "levels", "decisions")
        categories = {d.category for d in self.demonstrations} | {item.category for item in self.excluded}
        rows = []
        for name in [*sorted(categories), "total"]:
            chosen = [d for d in self.demonstrations if name in (d.category, "total")]
            used = [d for d in chosen if not d.mirrored]
            files = len(used) + sum(name in (item.category, "total") and not item.mirrored for item in self.excluded)
            counts = len(used), len(chosen) - len(used), sum(d.retimed for d in used)
            rows.append((name, files, *counts, len({d.level for d in chosen}), sum(len(d.actions) for d in chosen)))
        return table(header, rows)

    def _retiming(self) -> Iterator[str]:
        retimed = [d for d in self.demonstrations if d.retimed and not d.mirrored]
        off_grid = len(retimed) + sum(item.reason in (_NOT_RETIMED, _LOST_BY_RETIMING) for item in self.excluded)
        if off_grid:
            yield f"re-timed: {len(retimed)} of {off_grid} recordings at 60 Hz ({len(retimed) / off_grid:.0%})"
        if retimed:
            deviations = [d.deviation_px for d in retimed]
            worst = max(retimed, key=lambda d: d.deviation_px)
            yield (
                f"distance of re-timed runs from the recording: {np.median(deviations):.1f} px (median), "
                f"{np.percentile(deviations, 90):.1f} px (90th percentile), {worst.deviation_px:.1f} px (worst: {worst.name})"
            )

    def _mirroring(self) -> Iterator[str]:
        lost = sum(item.reason == _LOST_BY_MIRRORING for item in self.excluded)
        mirrored = sum(d.mirrored for d in self.demonstrations) + sum(item.mirrored for item in self.excluded)
        if mirrored:
            finishing = mirrored - lost
            yield f"mirror images that win: {finishing} of {mirrored} ({finishing / mirrored:.0%})"

    def _reasons(self, details: int) -> Iterator[str]:
        for reason, count in Counter(item.reason for item in self.excluded).most_common():
            yield f"excluded, {reason}: {count}"
            named = [f"  {item.name}: {item.detail}" for item in self.excluded if item.reason == reason]
            yield from named[:details]
            if count > details:
                yield f"  ... and {count - details} more"

    def require_some(self) -> "DemonstrationSet":
        """Return the set itself.  Raises DemonstrationError if it has no demonstrations."""
        if not self.demonstrations:
            raise DemonstrationError(
                f"{self.folder}: none of {len(self.excluded)} replays can be used as a demonstration; "
                f"replace them, or train without imitation\n{self.table()}"
            )
        return self


def paths_of(where: Paths) -> tuple[Path, ...]:
    """Return one or several folders of replays, or files, as paths."""
    return (Path(where),) if isinstance(where, (str, Path)) else tuple(map(Path, where))


def paths_text(where: Paths) -> str:
    """Return the text for messages that names one or several folders or files."""
    return " and ".join(map(str, paths_of(where)))


def find_replays(where: Paths) -> tuple[ReplayFile, ...]:
    """Find all replays in ``*.replay`` files and replay sets (``*.h5``) below folders, sorted by name.

    With several folders, each name begins with the name of its folder, plus a number if two folders have the same name.
    The category is the first of these that exists: the category of the replay in its set; the entry in ``index.json``;
    CATEGORY of a file name ``*_train_CATEGORY_NUMBER`` (or ``test``); the name of the sub-folder; "uncategorised".
    Raises DemonstrationError if a folder or file is missing or unreadable.
    """
    paths = paths_of(where)
    if len(paths) == 1:
        return _find_replays(paths[0])
    occurrences: Counter[str] = Counter()
    files: list[ReplayFile] = []
    for path in paths:
        name = path.resolve().stem
        occurrences[name] += 1
        prefix = name if occurrences[name] == 1 else f"{name}-{occurrences[name]}"
        files += [replace(file, name=f"{prefix}/{file.name}") for file in _find_replays(path)]
    return tuple(files)


def _find_replays(path: Path) -> tuple[ReplayFile, ...]:
    if not (path.is_dir() or (path.is_file() and is_replay_file(path))):
        raise DemonstrationError(f"{path}: neither a folder nor a *.replay or *.h5 file")
    folder = path if path.is_dir() else path.parent
    try:
        files = find_files([path])
    except ReplayError as error:
        raise DemonstrationError(str(error)) from error
    indexed: dict[Path, str] = {}
    indexes = files_below(path, DemonstrationError, lambda file: file.name == INDEX_FILE) if path.is_dir() else ()
    for index in sorted(indexes) or [folder / INDEX_FILE]:
        indexed |= _read_index(index) if index.is_file() else {}
    return tuple(replay for file in files for replay in _read(file, folder, indexed))


def load_demonstrations(
    files: Sequence[ReplayFile],
    frame_skip: int,
    *,
    folder: Paths = "",
    mirror: bool = False,
    max_per_category: int | None = None,
    seed: int = 0,
    held_back: Collection[str] = (),
    known: Mapping[Level, LevelGeometry] = MappingProxyType({}),
    progress: Callable[[Sequence[ReplayFile]], Iterable[ReplayFile]] = iter,
) -> DemonstrationSet:
    """Play back all replays; return those that win with one action per ``frame_skip`` frames.

    folder: paths of the replays, for messages.
    mirror: also add the mirror images that win.
    max_per_category: maximum number of replays per category, drawn at random with ``seed``; None: all.
    held_back: fingerprints of levels whose replays are excluded.
    known: geometry of levels that are compiled already.
    progress: function that wraps the files, e.g. tqdm.
    A damaged file is excluded, with the error as detail.
    """
    if frame_skip < 1:
        raise DemonstrationError(f"frame_skip={frame_skip}; give at least 1")
    drawn, others = _draw(files, max_per_category, seed)
    detail = f"{max_per_category} others of its category were drawn"
    excluded = [ExcludedReplay(file.name, file.category, _NOT_DRAWN, detail) for file in others]
    used: dict[tuple[Level, bytes], Demonstration] = {}
    converter = _Converter(frame_skip, held_back, dict(known))
    for file in progress(drawn):
        result = _unless_duplicate(converter.convert(file), used)
        results = [result]
        if mirror and isinstance(result, Demonstration):
            results.append(_unless_duplicate(converter.mirrored(result), used))
        excluded += [item for item in results if isinstance(item, ExcludedReplay)]
    compiled = {level: converter.compiled[level] for level, _ in used}
    return DemonstrationSet(paths_text(folder), frame_skip, tuple(used.values()), tuple(excluded), compiled)


def _unless_duplicate(
    result: Demonstration | ExcludedReplay, used: dict[tuple[Level, bytes], Demonstration]
) -> Demonstration | ExcludedReplay:
    """Add a demonstration to ``used``, or exclude it if one with the same level and actions is there already."""
    if isinstance(result, ExcludedReplay):
        return result
    first = used.setdefault((result.level, result.actions.tobytes()), result)
    if first is result:
        return result
    detail = f"same level and actions as {first.name}"
    return ExcludedReplay(result.name, result.category, _DUPLICATE, detail, result.mirrored)


class _Converter:
    """Converter of replays to demonstrations.  ``compiled`` has the geometry of all levels so far."""

    def __init__(self, frame_skip: int, held_back: Collection[str], compiled: dict[Level, LevelGeometry]):
        self.frame_skip = frame_skip
        self.held_back = held_back
        self.compiled = compiled

    def _bank(self, level: Level) -> LevelBank:
        bank = LevelBank([level], known=self.compiled)
        self.compiled[level] = bank.compiled[0]
        return bank

    def convert(self, file: ReplayFile) -> Demonstration | ExcludedReplay:
        """Convert a replay to a demonstration, or exclude it with a reason."""

        def exclude(reason: str, detail: str) -> ExcludedReplay:
            return ExcludedReplay(file.name, file.category, reason, detail)

        try:
            replay = file.replay
        except ReplayError as error:
            return exclude(_UNREADABLE, str(error))
        if replay.level.fingerprint in self.held_back:
            return exclude(_FOR_EVALUATION, "its level is used for evaluation during training")
        if replay.success is False:
            return exclude(_FAILURE, "the file states that the level was not finished")
        if np.any(replay.inputs & SELF_DESTRUCT):
            return exclude(_FAILURE, "it uses self-destruct, which is not an action")
        bank = self._bank(replay.level)
        run = simulate(bank, replay.inputs)
        if not run.won:
            return exclude(_UNFINISHED, f"{run.outcome} after {run.frames} of {replay.frames} frames")
        inputs, deviation_px = replay.inputs[: run.frames], 0.0
        retimed = not on_grid(inputs, self.frame_skip)
        if retimed:
            changed = retime(replay, self.frame_skip, bank=bank, recorded=run)
            if changed is None:
                return exclude(
                    _NOT_RETIMED, f"no sequence of actions of {self.frame_skip} frames follows this recording"
                )
            if not changed.run.won:
                return exclude(_LOST_BY_RETIMING, f"{changed.run.outcome} after {changed.run.frames} frames")
            inputs, deviation_px = changed.inputs[: changed.run.frames], changed.deviation_px
        actions = to_decisions(inputs, self.frame_skip)
        # input bytes 6 and 7 become 4 and 5, which the physics treats equally
        inputs = to_inputs(actions, self.frame_skip, len(inputs))
        return Demonstration(file.name, file.category, replay.level, actions, inputs, run.frames, retimed, deviation_px)

    def mirrored(self, original: Demonstration) -> Demonstration | ExcludedReplay:
        """Return the mirror image of a demonstration, or exclude it if it does not win."""
        replay = mirror_replay(Replay(original.level, original.inputs, name=original.name))
        run = simulate(self._bank(replay.level), replay.inputs)
        if not run.won:
            detail = f"{run.outcome} after {run.frames} of {replay.frames} frames"
            return ExcludedReplay(replay.name, original.category, _LOST_BY_MIRRORING, detail, mirrored=True)
        inputs = replay.inputs[: run.frames]
        actions = to_decisions(inputs, self.frame_skip)
        return replace(original, name=replay.name, level=replay.level, actions=actions, inputs=inputs, mirrored=True)


def _draw(
    files: Sequence[ReplayFile], max_per_category: int | None, seed: int
) -> tuple[list[ReplayFile], list[ReplayFile]]:
    """Draw at most ``max_per_category`` files per category (None: all); return the drawn files and the others, in order.

    The random order depends only on seed and names, so additional files change the draw as little as possible.
    """
    if max_per_category is None:
        return list(files), []
    counts: Counter[str] = Counter()
    drawn = set()
    for i in sorted(range(len(files)), key=lambda i: hashlib.sha256(f"{seed} {files[i].name}".encode()).digest()):
        counts[files[i].category] += 1
        if counts[files[i].category] <= max_per_category:
            drawn.add(i)
    chosen = [file for i, file in enumerate(files) if i in drawn]
    return chosen, [file for i, file in enumerate(files) if i not in drawn]


def _read(path: Path, folder: Path, indexed: Mapping[Path, str]) -> list[ReplayFile]:
    relative = path.relative_to(folder)
    match = _RECORDER_NAME.search(path.stem)
    if path in indexed:
        category = indexed[path]
    elif match:
        category = match["category"]
    else:
        category = relative.parent.name or UNCATEGORISED
    if is_replay_set(path):
        return _read_set(path, relative.as_posix(), category)
    try:
        data = read_bytes(path)
    except ReplayError as error:
        raise DemonstrationError(str(error)) from error
    return [ReplayFile(str(path), relative.as_posix(), category, data)]


def _read_set(path: Path, name: str, category: str) -> list[ReplayFile]:
    """Read the replays of a set.  category: default for replays without a category."""
    try:
        with ReplaySet(path) as replays:
            return [
                ReplayFile(f"{path}#{i}", f"{name}#{i}", replays.categories[i] or category, replay)
                for i, replay in enumerate(replays)
            ]
    except ReplayError as error:
        raise DemonstrationError(f"{error}; or move it out of the demonstrations") from error


def _read_index(path: Path) -> dict[Path, str]:
    """Read an index file: path of a replay -> category.  Raises DemonstrationError if a listed file does not exist."""
    expected = f'expected {{"format": "{INDEX_FORMAT}", "demonstrations": [{{"file": NAME, "category": NAME}}, ...]}}'
    index = read_json(path, DemonstrationError, f"{expected}, or delete the file")
    try:
        if index["format"] != INDEX_FORMAT:
            return {}
        listed = {path.parent / entry["file"]: entry["category"] for entry in index["demonstrations"]}
    except (KeyError, TypeError) as error:
        raise DemonstrationError(f"{path}: {type(error).__name__}: {error}; {expected}, or delete the file") from error
    for file, category in listed.items():
        if not isinstance(category, str) or not category:
            raise DemonstrationError(f"{path}: category of {file.name} is {category!r}; {expected}")
        if not os.path.isfile(file):  # unlike Path.is_file, no error for impossible names
            raise DemonstrationError(
                f"{path}: lists {file.name[:200]}, which is missing; restore it or correct the index"
            )
    return listed
