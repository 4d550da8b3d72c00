"""From replay files and replay sets to demonstrations: levels that are finished by actions on the decision grid.

Every replay is played back in the simulator.  What does not finish its level, cannot be read, or cannot be put on the
grid of decisions is left out, and counted with its reason in ``DemonstrationSet.table()``: nothing vanishes silently.
On request each demonstration comes a second time as its mirror image, if that finishes too.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

import nppsim
from nppsim import planner
from nppsim.actions import SELF_DESTRUCT
from nppsim.errors import UserError
from nppsim.levels.level import Level
from nppsim.replays.playback import REPLAY_SET, SUFFIXES, find_files
from nppsim.replays.replay import Replay, ReplayError, mirror_replay, on_grid, to_decisions, to_inputs
from nppsim.replays.replay_set import ReplaySet

INDEX_FILE = "index.json"  # {"format": ..., "demonstrations": [{"file": "a.replay", "category": "simple"}, ...]}
INDEX_FORMAT = "nppsim demonstrations"  # an index of another format (of levels, say) is not ours and passed over
UNCATEGORISED = "uncategorised"
_RECORDER_NAME = re.compile(r"(?:^|_)(?:train|test)_(?P<category>[a-z][a-z_]*?)_\d+$")  # ..._train_very_simple_100001
_SHOWN_PER_REASON = 10
_NOT_RETIMED, _LOST_BY_RETIMING = "cannot be re-timed", "does not finish after re-timing"
_LOST_BY_MIRRORING = "does not finish mirrored"


class DemonstrationError(UserError, ValueError):
    """A folder of demonstrations that cannot be used; the message names folder or file, place and remedy."""


@dataclass(frozen=True)
class ReplayFile:
    """A replay file as found: path for messages, name relative to the folder, category, and its bytes.

    Replay i of a replay set counts as a file ``<set>#i`` and holds the bytes of a replay file.
    """

    path: str
    name: str
    category: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, eq=False)
class Demonstration:
    """A level and the actions that finish it, verified by playing them back.

    actions: int64[decisions], 0..5, one per ``frame_skip`` frames.  inputs: uint8[frames], the same as bytes, up to
    and including the winning frame.  retimed: whether a 60 Hz recording was moved onto the grid, and then deviation_px
    is how far it strays from the recording, on average over its frames.  mirrored: it is the mirror image of another one.
    """

    name: str
    category: str
    level: Level
    actions: np.ndarray
    inputs: np.ndarray
    retimed: bool = False
    deviation_px: float = 0.0
    mirrored: bool = False


@dataclass(frozen=True)
class LeftOut:
    """A replay file, or the mirror image of one, that is no demonstration; reason: a short class of reasons, detail: a
    sentence."""

    name: str
    category: str
    reason: str
    detail: str
    mirrored: bool = False


@dataclass(frozen=True)
class DemonstrationSet:
    """The demonstrations of a folder, and what was left out of it."""

    folder: str
    frame_skip: int
    demonstrations: tuple[Demonstration, ...]
    left_out: tuple[LeftOut, ...]

    def table(self, details: int = _SHOWN_PER_REASON) -> str:
        """Counts per category, re-timing, then every reason for leaving something out, for printing.

        details: how many of those that were left out for one reason are named.
        """
        rows = [("category", "files", "kept", "mirrored", "re-timed", "levels", "decisions")]
        categories = sorted({item.category for item in (*self.demonstrations, *self.left_out)})
        for name in [*categories, "total"]:
            found = [d for d in self.demonstrations if name in (d.category, "total")]
            kept = [d for d in found if not d.mirrored]
            files = len(kept) + sum(name in (item.category, "total") and not item.mirrored for item in self.left_out)
            levels = len({d.level.fingerprint for d in found})
            decisions = sum(len(d.actions) for d in found)
            counts = len(kept), len(found) - len(kept), sum(d.retimed for d in kept)
            rows.append((name, files, *counts, levels, decisions))
        width = max(len(row[0]) for row in rows)
        lines = [f"{row[0]:<{width}}" + "".join(f"{value:>11}" for value in row[1:]) for row in rows]
        reasons = Counter(item.reason for item in self.left_out)
        retimed = [d for d in self.demonstrations if d.retimed and not d.mirrored]
        off_grid = len(retimed) + reasons[_NOT_RETIMED] + reasons[_LOST_BY_RETIMING]
        if off_grid:
            lines.append(
                f"re-timed: {len(retimed)} of {off_grid} recordings off the grid ({len(retimed) / off_grid:.0%})"
            )
        if retimed:
            deviations = [d.deviation_px for d in retimed]
            worst = max(retimed, key=lambda d: d.deviation_px)
            lines.append(
                f"re-timed runs stray from the recording by {np.median(deviations):.1f} px (median), "
                f"{np.percentile(deviations, 90):.1f} px (90th percentile), {worst.deviation_px:.1f} px (worst: {worst.name})"
            )
        mirrored = [item for item in (*self.demonstrations, *self.left_out) if item.mirrored]
        if mirrored:
            finishing = len(mirrored) - reasons[_LOST_BY_MIRRORING]
            lines.append(f"mirror images that finish: {finishing} of {len(mirrored)} ({finishing / len(mirrored):.0%})")
        for reason, count in reasons.most_common():
            lines.append(f"left out, {reason}: {count}")
            named = [f"  {item.name}: {item.detail}" for item in self.left_out if item.reason == reason]
            lines += named[:details]
            if len(named) > details:
                lines.append(f"  ... and {len(named) - details} more")
        return "\n".join(lines)

    def require_some(self) -> "DemonstrationSet":
        """The set itself; DemonstrationError if nothing is left to imitate."""
        if not self.demonstrations:
            raise DemonstrationError(
                f"{self.folder}: none of {len(self.left_out)} replays can be used as a demonstration; "
                f"mend or replace them, or train without imitation\n{self.table()}"
            )
        return self


def find_replays(path) -> tuple[ReplayFile, ...]:
    """All replays of the ``*.replay`` files and replay sets (``*.h5``) below a folder, or of one such file, sorted by name.

    The category is that of the replay's entry in its set.  If there is none, it comes from ``index.json`` beside the
    file, else from a name of the form ``*_train_CATEGORY_NUMBER`` (or ``test``), else from the sub-folder, else it is
    "uncategorised".  Raises DemonstrationError.
    """
    path = Path(path)
    if not (path.is_dir() or (path.is_file() and path.suffix in SUFFIXES)):
        raise DemonstrationError(f"{path}: not a folder, nor a *.replay or *.h5 file; give what holds the replays")
    folder = path if path.is_dir() else path.parent
    try:
        files = find_files([path])
    except ReplayError as error:
        raise DemonstrationError(str(error)) from error
    indexed: dict[Path, str] = {}
    for index in sorted(path.rglob(INDEX_FILE)) if path.is_dir() else [folder / INDEX_FILE]:
        indexed |= _read_index(index) if index.is_file() else {}
    return tuple(replay for file in files for replay in _read(file, folder, indexed))


def load_demonstrations(
    files: Sequence[ReplayFile],
    frame_skip: int,
    *,
    folder: str = "",
    mirror: bool = False,
    max_per_category: int | None = None,
    seed: int = 0,
    simulate: Callable | None = None,
    retime: Callable | None = None,
    progress: Callable[[Iterable], Iterable] = iter,
) -> DemonstrationSet:
    """Play back every replay and keep those that finish their level with one action per ``frame_skip`` frames.

    mirror: add each demonstration's mirror image, where it finishes too; where it does not, that is counted.
    max_per_category: play at most so many replays of each category, drawn by lot from ``seed``; the others are counted.
    simulate: ``(level, inputs) -> run``, by default ``nppsim.simulate``.  retime: ``(replay, frame_skip) -> object with
    inputs and deviation_px, or None``, by default ``nppsim.planner.retime``; called only for replays off the grid.
    progress: wraps the files, e.g. tqdm.  A broken file is left out like any other, with the error as its detail.
    """
    if frame_skip < 1:
        raise DemonstrationError(f"frame_skip={frame_skip}; one decision lasts at least one frame")
    simulate = simulate or nppsim.simulate
    retime = retime or planner.retime
    kept: dict[str, Demonstration] = {}
    left_out = []

    def is_kept(result: Demonstration | LeftOut) -> bool:
        if isinstance(result, Demonstration):
            content = result.level.fingerprint + result.actions.tobytes().hex()
            if content not in kept:
                kept[content] = result
                return True
            detail = f"same level and actions as {kept[content].name}"
            result = LeftOut(result.name, result.category, "duplicate", detail, result.mirrored)
        left_out.append(result)
        return False

    drawn, others = _draw(files, max_per_category, seed)
    detail = f"the lot fell on {max_per_category} others of its category"
    left_out += [LeftOut(file.name, file.category, "not drawn", detail) for file in others]
    for file in progress(drawn):
        result = _examine(file, frame_skip, simulate, retime)
        if is_kept(result) and mirror:
            is_kept(_mirrored(result, frame_skip, simulate))
    return DemonstrationSet(str(folder), frame_skip, tuple(kept.values()), tuple(left_out))


def _draw(files, max_per_category, seed) -> tuple[list[ReplayFile], list[ReplayFile]]:
    """At most ``max_per_category`` files of each category (None: all), and the others; both in the order of ``files``.

    A file's lot depends on seed and name alone, so that more files change as little as possible.
    """
    if max_per_category is None:
        return list(files), []
    taken, drawn = Counter(), set()
    for i in sorted(range(len(files)), key=lambda i: hashlib.sha256(f"{seed} {files[i].name}".encode()).digest()):
        taken[files[i].category] += 1
        if taken[files[i].category] <= max_per_category:
            drawn.add(i)
    chosen = [file for i, file in enumerate(files) if i in drawn]
    return chosen, [file for i, file in enumerate(files) if i not in drawn]


def _examine(file, frame_skip, simulate, retime) -> Demonstration | LeftOut:
    def leave_out(reason, detail):
        return LeftOut(file.name, file.category, reason, detail.removeprefix(f"{file.path}: "))

    try:
        replay = Replay.from_bytes(file.data, file.path)
    except ReplayError as error:
        return leave_out("cannot be read", str(error))
    if replay.success is False:
        return leave_out("recorded as a failure", "the file says that the level was not finished")
    run = simulate(replay.level, replay.inputs)
    if run.outcome != "won":
        return leave_out("does not finish", f"{run.outcome} after {run.frames} of {replay.frames} frames")
    inputs, deviation_px, retimed = replay.inputs[: run.frames], 0.0, False
    if not on_grid(inputs, frame_skip):
        found = retime(Replay(replay.level, inputs, True, replay.name), frame_skip)
        if found is None:
            return leave_out(_NOT_RETIMED, f"no actions held for {frame_skip} frames follow this recording")
        inputs, deviation_px, retimed = np.asarray(found.inputs, np.uint8), float(found.deviation_px), True
        run = simulate(replay.level, inputs)
        if run.outcome != "won":
            return leave_out(_LOST_BY_RETIMING, f"{run.outcome} after {run.frames} frames")
        inputs = inputs[: run.frames]
    actions = to_decisions(inputs, frame_skip)
    # bytes 6 and 7 have become 4 and 5, which the physics treats alike
    inputs = to_inputs(actions, frame_skip, run.frames)
    return Demonstration(file.name, file.category, replay.level, actions, inputs, retimed, deviation_px)


def _mirrored(original: Demonstration, frame_skip, simulate) -> Demonstration | LeftOut:
    replay = mirror_replay(Replay(original.level, original.inputs, name=original.name))
    run = simulate(replay.level, replay.inputs)
    if run.outcome != "won":
        detail = f"{run.outcome} after {run.frames} of {replay.frames} frames"
        return LeftOut(replay.name, original.category, _LOST_BY_MIRRORING, detail, mirrored=True)
    inputs = replay.inputs[: run.frames]
    actions = to_decisions(inputs, frame_skip)
    return replace(original, name=replay.name, level=replay.level, actions=actions, inputs=inputs, mirrored=True)


def _read(path, folder, indexed) -> list[ReplayFile]:
    relative = path.relative_to(folder)
    match = _RECORDER_NAME.search(path.stem)
    if path in indexed:
        category = indexed[path]
    elif match:
        category = match["category"]
    else:
        category = relative.parent.name or UNCATEGORISED
    if path.suffix == REPLAY_SET:
        return _read_set(path, relative.as_posix(), category)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DemonstrationError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    return [ReplayFile(str(path), relative.as_posix(), category, data)]


def _read_set(path, name, category) -> list[ReplayFile]:
    """The replays of a set; category: of those without one."""
    try:
        with ReplaySet(path) as replays:
            return [
                ReplayFile(f"{path}#{i}", f"{name}#{i}", replays.categories[i] or category, _to_bytes(replay))
                for i, replay in enumerate(replays)
            ]
    except ReplayError as error:
        raise DemonstrationError(f"{error}; or move it out of the demonstrations") from error


def _to_bytes(replay: Replay) -> bytes:
    """As a compact file.  With a self-destruct, for which that has no place, as an attract file: recorded as a failure."""
    if np.any(replay.inputs & SELF_DESTRUCT):
        return replace(replay, success=None).to_bytes("attract")
    return replay.to_bytes()


def _read_index(path) -> dict[Path, str]:
    """Category of each replay that an index file lists; the files must exist."""
    expected = f'expected {{"format": "{INDEX_FORMAT}", "demonstrations": [{{"file": NAME, "category": NAME}}, ...]}}'
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        if index["format"] != INDEX_FORMAT:
            return {}
        listed = {path.parent / entry["file"]: entry["category"] for entry in index["demonstrations"]}
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise DemonstrationError(f"{path}: {type(error).__name__}: {error}; {expected}, or delete the file") from error
    for file, category in listed.items():
        if not isinstance(category, str) or not category:
            raise DemonstrationError(f"{path}: category of {file.name} is {category!r}; {expected}")
        if not file.is_file():
            raise DemonstrationError(f"{path}: lists {file.name}, which is missing; restore it or mend the index")
    return listed
