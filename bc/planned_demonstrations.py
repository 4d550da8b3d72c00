"""Demonstrations that the planner makes for a level set, one replay set per category.

The runs are stored in the order of the level set, whatever the number of workers.  After an interruption, another call
resumes at the last level that has a run.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from bc.demonstrations import DemonstrationError
from nppsim.io.files import locked
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.parallel.executor import Executor, open_executor
from nppsim.planner import plan
from nppsim.planner.settings import PlannerSettings
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplaySet, ReplayWriter

SAVE_EVERY_S = 30.0  # seconds between saves; each save copies the files


@dataclass(frozen=True)
class PlannedDemonstrations:
    """Result of ``make_demonstrations``.

    written: number of runs that this call wrote.
    found: number of runs from earlier calls.
    duplicates: number of runs that equal a run with another seed, or whose level occurs earlier under another name.
    failed: number of planner searches without a win, counting only levels for which another search found a run.
    unfinished: files of the levels without any run.
    """

    written: int
    found: int
    duplicates: int
    failed: int
    unfinished: tuple[str, ...]


def make_demonstrations(
    levels: str | Path,
    out: str | Path,
    settings: PlannerSettings | None = None,
    *,
    workers: int | None = None,
    cluster: str | None = None,
    progress: Callable[[Iterable, int], Iterable] = lambda items, total: items,
) -> PlannedDemonstrations:
    """Plan runs through every level of a level set and write them to the replay sets ``out/<category>.h5``.

    workers: number of processes; None: all usable cores.
    cluster: address of a Ray cluster to use instead of local processes (``nppsim.parallel.cluster``).
    progress: function that wraps the finished levels; the second argument is the number of levels.
    The metadata of each replay are ``source`` ("planner"), ``seed``, ``par_frames`` and ``planner`` (the settings).
    An interrupted call saves its runs, and the next call resumes.
    Raises LevelSetError, ReplayError for a damaged file in ``out``, FolderError if another process writes to ``out``, and
    ClusterError.  Raises DemonstrationError for files made with other levels or settings, and for failed workers.
    """
    if workers is not None and workers < 1:
        raise DemonstrationError(f"{workers} workers: give at least 1, or leave the option out to use all cores")
    level_set = LevelSet.at(levels)
    if Path(levels).is_dir() and Path(levels).resolve() in (Path(out).resolve(), *Path(out).resolve().parents):
        raise DemonstrationError(
            f"{out}: lies in the folder of the levels, {levels}, which must not contain replay sets; choose another folder"
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
) -> PlannedDemonstrations:
    entries: dict[str, LevelEntry] = {}  # the distinct levels by fingerprint
    for i, entry in enumerate(level_set.entries):
        fingerprint = level_set.fingerprint(i)
        entries.setdefault(fingerprint, replace(entry, fingerprint=fingerprint))
    frames, todo = _earlier_runs(entries, files.folder, settings)
    found, duplicates, failed = len(frames), (len(level_set) - len(entries)) * settings.runs, 0
    # Read all levels first: a damaged level fails before hours of work, and machines of a cluster need no level files.
    levels = [(entry, LevelSet(level_set.path, [entry])[0]) for entry in todo]
    with executor.map(partial(_plan_level, settings), levels) as results, files:
        for entry, (runs, repeated) in zip(todo, progress(results, len(todo)), strict=True):
            for seed, run in runs:
                if (entry.fingerprint, seed) not in frames:
                    files.append(entry, seed, run)
                    frames[entry.fingerprint, seed] = run.frames
            duplicates += repeated
            failed += settings.runs - len(runs) - repeated if runs else 0
            files.save_periodically()
    finished = {fingerprint for fingerprint, _ in frames}
    unfinished = tuple(entry.file for fingerprint, entry in entries.items() if fingerprint not in finished)
    return PlannedDemonstrations(len(frames) - found, found, duplicates, failed, unfinished)


def _earlier_runs(
    entries: Mapping[str, LevelEntry], out: Path, settings: PlannerSettings
) -> tuple[dict[tuple[str, int], int], list[LevelEntry]]:
    """Return the frames of earlier runs by (level fingerprint, seed), and the levels that no earlier call has finished."""
    frames: dict[tuple[str, int], int] = {}
    finished: set[str] = set()  # fingerprints of the levels that earlier calls have finished
    for category in sorted({entry.category for entry in entries.values()}):
        ours = [fingerprint for fingerprint, entry in entries.items() if entry.category == category]
        earlier = _read_earlier(out / f"{category}.h5", ours, settings)
        planned = {level for level, _ in earlier}
        done = max((i for i, level in enumerate(ours) if level in planned), default=-1) + 1
        if done and settings.runs > 1:
            done -= 1  # some runs of the last level may be missing
        finished.update(ours[:done])
        frames |= earlier
    return frames, [entry for fingerprint, entry in entries.items() if fingerprint not in finished]


class _Files:
    """One replay set per category in ``folder``, created with its first run and saved at the end.

    check: function that raises an error if the folder was deleted, because a new file would lack the earlier runs.
    """

    def __init__(self, folder: Path, settings: PlannerSettings, check: Callable[[], None]):
        self.folder, self._settings, self._check = folder, settings, check
        self._writers: dict[str, ReplayWriter] = {}
        self._open_files = ExitStack()
        self._saved = time.monotonic()

    def append(self, entry: LevelEntry, seed: int, run: Replay) -> None:
        if entry.category not in self._writers:
            path = self.folder / f"{entry.category}.h5"
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writers[entry.category] = self._open_files.enter_context(ReplayWriter(path))
        about = {"source": "planner", "seed": seed, "par_frames": entry.par_frames, "planner": asdict(self._settings)}
        self._writers[entry.category].append(run, category=entry.category, **about)

    def save_periodically(self) -> None:
        if time.monotonic() - self._saved > SAVE_EVERY_S:
            self._check()
            for writer in self._writers.values():
                writer.flush()
            self._saved = time.monotonic()

    def __enter__(self) -> "_Files":
        return self

    def __exit__(self, *exception: object) -> None:
        self._check()
        self._open_files.close()


def _read_earlier(path: Path, levels: Sequence[str], settings: PlannerSettings) -> dict[tuple[str, int], int]:
    """Read the runs of earlier calls: (level fingerprint, seed) -> frames.

    levels: fingerprints of the levels of the category, in order.
    """
    if not path.exists():
        return {}
    number = {level: i for i, level in enumerate(levels)}
    position, frames = 0, {}
    with ReplaySet(path) as replays:
        for i in range(len(replays)):
            about = replays.entry(i)
            if about.metadata.get("planner") != asdict(settings):
                raise DemonstrationError(
                    f"{path}: replay {i} was made with {about.metadata.get('planner', 'other means')}, not with "
                    f"{asdict(settings)}; use the replay's settings, or another folder"
                )
            if number.get(about.level_fingerprint, -1) < position:
                raise DemonstrationError(
                    f"{path}: replay {i} ({about.name}) is not of the expected level; "
                    "use the level set that it was made from, or another folder"
                )
            position = number[about.level_fingerprint]
            frames[about.level_fingerprint, about.metadata["seed"]] = about.frames
    return frames


def _plan_level(
    settings: PlannerSettings, entry_and_level: tuple[LevelEntry, Level]
) -> tuple[list[tuple[int, Replay]], int]:
    """Plan runs through one level; return the distinct runs with their seeds, and the number of duplicates."""
    entry, level = entry_and_level
    distinct: dict[bytes, tuple[int, Replay]] = {}
    repeated = 0
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
        repeated += run.inputs.tobytes() in distinct
        replay = Replay(level, run.inputs, success=True, name=entry.file, frame_skip=settings.frame_skip)
        distinct.setdefault(run.inputs.tobytes(), (seed, replay))
    return list(distinct.values()), repeated
