"""Demonstrations without a player: the planner's runs through a level set, one replay set per category.

A file holds the runs in the order of the level set, whatever the number of workers and however often the making was
interrupted: results are written in that order, and a call goes on at the last level that has a run.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from bc.demonstrations import DemonstrationError
from nppsim.executor import Executor, open_executor
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.lock import locked
from nppsim.planner import plan
from nppsim.planner.settings import PlannerSettings
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplaySet, ReplayWriter
from nppsim.simulate import simulate

SAVE_EVERY_S = 30.0  # what an interruption can cost, at most; saving copies the file


@dataclass(frozen=True)
class MadeDemonstrations:
    """What ``make_demonstrations`` did.

    written: runs written now.
    found: runs from earlier calls.
    duplicates: runs found now that another seed, or the same level under another name, had given already.
    failed: runs not found now, on levels that have others.
    unfinished: levels without any run.
    compared: runs that should be as long as ``par_frames`` in the level set's index.
    differing: those that are not, each with both lengths.
    """

    written: int
    found: int
    duplicates: int
    failed: int
    unfinished: tuple[str, ...]
    compared: int
    differing: tuple[str, ...]


def make_demonstrations(
    levels: str | Path,
    out: str | Path,
    settings: PlannerSettings | None = None,
    *,
    workers: int | None = None,
    cluster: str | None = None,
    progress: Callable[[Iterable, int], Iterable] = lambda items, total: items,
) -> MadeDemonstrations:
    """Plan runs through every level of a level set and write them to the replay sets ``out/<category>.h5``.

    workers: processes; all usable cores if None.
    cluster: address of a Ray cluster to work on instead (``nppsim.cluster``).
    progress: wraps the levels as they are done, given their number.
    The metadata of a replay are ``source`` ("planner"), its ``seed``, ``par_frames`` of its level in the index, and
    ``planner``, the settings.  Whatever ends the call, what was planned is kept, and calling again goes on.
    Raises LevelSetError for a level set that cannot be read, ReplayError for a damaged file in ``out``, and
    DemonstrationError for one that was not made from these levels with these settings, for ``out`` among the levels, and
    for workers: none, or one that dies; FolderError where another process is making them in ``out``; ClusterError.
    """
    if workers is not None and workers < 1:
        raise DemonstrationError(f"workers {workers}; give at least 1 process, or leave it out for all cores")
    level_set = LevelSet.at(levels)
    if Path(levels).is_dir() and Path(levels).resolve() in (Path(out).resolve(), *Path(out).resolve().parents):
        raise DemonstrationError(
            f"{out}: lies in the folder of the levels, {levels}, where replay sets are not expected; choose another one"
        )
    settings = settings or PlannerSettings()
    with locked(out) as check, open_executor(workers, DemonstrationError, cluster) as executor:
        return _make(level_set, settings, _Files(Path(out), settings, check), executor, progress)


def _make(
    level_set: LevelSet,
    settings: PlannerSettings,
    files: "_Files",
    executor: Executor,
    progress: Callable[[Iterable, int], Iterable],
) -> MadeDemonstrations:
    agenda = _agenda(level_set, files.folder, settings)
    frames, duplicates, failed = dict(agenda.earlier), (len(level_set) - len(agenda.entries)) * settings.runs, 0
    # All are read now: one that cannot be is told before hours of work, and machines of a cluster need no files.
    levels = [(entry, LevelSet(level_set.path, [entry])[0]) for entry in agenda.todo]
    with executor.map(partial(_plan_level, settings), levels) as results, files:
        for entry, (runs, again) in zip(agenda.todo, progress(results, len(agenda.todo)), strict=True):
            for seed, run in runs:
                if (entry.fingerprint, seed) not in frames:
                    files.append(entry, seed, run)
                    frames[entry.fingerprint, seed] = run.frames
            duplicates += again
            failed += settings.runs - len(runs) - again if runs else 0
            files.save_now_and_then()
    if _agenda(level_set, files.folder, settings).earlier != frames:
        raise DemonstrationError(f"{files.folder}: holds other runs than were found; please report this")
    finished = {fingerprint for fingerprint, _ in frames}
    unfinished = tuple(entry.file for fingerprint, entry in agenda.entries.items() if fingerprint not in finished)
    compared, differing = _compare_with_par(agenda.entries, frames, settings)
    written, found = len(frames) - len(agenda.earlier), len(agenda.earlier)
    return MadeDemonstrations(written, found, duplicates, failed, unfinished, compared, differing)


@dataclass(frozen=True)
class _Agenda:
    """What is to be planned.

    entries: the distinct levels, by fingerprint.
    earlier: frames of the runs that earlier calls wrote, by level (fingerprint) and seed.
    todo: the levels that earlier calls have not dealt with.
    """

    entries: Mapping[str, LevelEntry]
    earlier: Mapping[tuple[str, int], int]
    todo: Sequence[LevelEntry]


def _agenda(level_set: LevelSet, out: Path, settings: PlannerSettings) -> _Agenda:
    entries: dict[str, LevelEntry] = {}
    for i, entry in enumerate(level_set.entries):
        fingerprint = level_set.fingerprint(i)
        entries.setdefault(fingerprint, replace(entry, fingerprint=fingerprint))
    frames: dict[tuple[str, int], int] = {}
    behind: set[str] = set()  # levels that an earlier call has dealt with
    for category in level_set.categories:
        ours = [fingerprint for fingerprint, entry in entries.items() if entry.category == category]
        earlier = _read_earlier(out / f"{category}.h5", ours, settings)
        planned = {level for level, _ in earlier}
        done = max((i for i, level in enumerate(ours) if level in planned), default=-1) + 1
        if done and settings.runs > 1:
            done -= 1  # an interruption may have cut off some runs of the last one
        behind.update(ours[:done])
        frames |= earlier
    return _Agenda(entries, frames, [entry for fingerprint, entry in entries.items() if fingerprint not in behind])


class _Files:
    """The replay set of each category in ``folder``, made when the first run comes; all are saved at the end.

    check: raises if the folder is gone; else what is saved now would begin a file that lacks what was saved before.
    """

    def __init__(self, folder: Path, settings: PlannerSettings, check: Callable[[], None]):
        self.folder, self._settings, self._check = folder, settings, check
        self._writers: dict[str, ReplayWriter] = {}
        self._closing = ExitStack()
        self._saved = time.monotonic()

    def append(self, entry: LevelEntry, seed: int, run: Replay) -> None:
        played = simulate(run.level, run.inputs)
        if run.level.fingerprint != entry.fingerprint or not played.won or played.frames != run.frames:
            raise DemonstrationError(
                f"{entry.file}: the run that was found is {played.outcome} after {played.frames} frames when it is played "
                f"again, meant was a win after {run.frames} on this level; please report this"
            )
        if entry.category not in self._writers:
            path = self.folder / f"{entry.category}.h5"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writers[entry.category] = self._closing.enter_context(ReplayWriter(path))
        about = {"source": "planner", "seed": seed, "par_frames": entry.par_frames, "planner": asdict(self._settings)}
        self._writers[entry.category].append(run, category=entry.category, **about)

    def save_now_and_then(self) -> None:
        if time.monotonic() - self._saved > SAVE_EVERY_S:
            self._check()
            for writer in self._writers.values():
                writer.flush()
            self._saved = time.monotonic()

    def __enter__(self) -> "_Files":
        return self

    def __exit__(self, *exception: object) -> None:
        self._check()
        self._closing.close()


def _read_earlier(path: Path, levels: Sequence[str], settings: PlannerSettings) -> dict[tuple[str, int], int]:
    """Frames by level (fingerprint) and seed of the runs that an earlier call wrote; levels: of the category, in order."""
    if not path.exists():
        return {}
    place = {level: i for i, level in enumerate(levels)}
    at, frames = 0, {}
    with ReplaySet(path) as replays:
        for i in range(len(replays)):
            about = replays.entry(i)
            if about.metadata.get("planner") != asdict(settings):
                raise DemonstrationError(
                    f"{path}: replay {i} was made with {about.metadata.get('planner', 'other means')}, not with "
                    f"{asdict(settings)}; use those settings, or another folder"
                )
            if place.get(about.level_fingerprint, -1) < at:
                raise DemonstrationError(
                    f"{path}: replay {i} ({about.name}) is of another level than the level set has there; "
                    "use the level set that it was made from, or another folder"
                )
            at = place[about.level_fingerprint]
            frames[about.level_fingerprint, about.metadata["seed"]] = about.frames
    return frames


def _plan_level(
    settings: PlannerSettings, entry_and_level: tuple[LevelEntry, Level]
) -> tuple[list[tuple[int, Replay]], int]:
    """The runs that differ, with their seeds, and the number of those that do not."""
    entry, level = entry_and_level
    distinct: dict[bytes, tuple[int, Replay]] = {}
    again = 0
    for seed in range(settings.seed, settings.seed + settings.runs):
        run = plan(
            level,
            settings.frame_skip,
            budget=settings.budget,
            seed=seed,
            min_hold=settings.min_hold,
            noise=settings.noise,
        )
        if run is None:
            continue
        again += run.inputs.tobytes() in distinct
        replay = Replay(level, run.inputs, success=True, name=entry.file, frame_skip=settings.frame_skip)
        distinct.setdefault(run.inputs.tobytes(), (seed, replay))
    return list(distinct.values()), again


def _compare_with_par(
    entries: Mapping[str, LevelEntry], frames: Mapping[tuple[str, int], int], settings: PlannerSettings
) -> tuple[int, tuple[str, ...]]:
    """Number of runs found with the call that ``par_frames`` comes from, and those of another length."""
    usual = PlannerSettings()
    if replace(settings, runs=usual.runs) != usual:
        return 0, ()
    known = [entry for entry in entries.values() if entry.par_frames and (entry.fingerprint, usual.seed) in frames]
    lengths = [frames[entry.fingerprint, usual.seed] for entry in known]
    return len(known), tuple(
        f"{entry.file}: {length} frames, the index says {entry.par_frames}"
        for entry, length in zip(known, lengths, strict=True)
        if length != entry.par_frames
    )
