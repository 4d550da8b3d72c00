"""Demonstrations without a player: the planner's runs through a level set, one replay set per category.

A file holds the runs in the order of the level set, whatever the number of workers and however often the making was
interrupted: results are written in that order, and a call goes on at the last level that has a run.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from bc.demonstrations import DemonstrationError
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.planner import plan
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplaySet, ReplayWriter
from nppsim.workers import worker_pool

SAVE_EVERY_S = 30.0  # what an interruption can cost, at most; saving copies the file


@dataclass(frozen=True)
class PlannerSettings:
    """How the runs are searched; the defaults are those of ``nppsim.planner.plan``, so those of an index's ``par_frames``.

    frame_skip: frames per decision.  seed, runs: each level is planned with the seeds seed ... seed + runs - 1.
    budget: simulated frames per run.  min_hold: decisions that an action lasts at least.  noise: px, more of it makes the
    runs of different seeds differ more.
    """

    frame_skip: int = 4
    seed: int = 0
    runs: int = 1
    budget: int = 5_000_000
    min_hold: int = 1
    noise: float = 12.0

    def __post_init__(self):
        for name, low in {"frame_skip": 1, "seed": 0, "runs": 1, "budget": 1, "min_hold": 1, "noise": 0}.items():
            if not getattr(self, name) >= low:
                raise DemonstrationError(f"{name.replace('_', '-')} {getattr(self, name)}; give at least {low}")
        if math.isinf(self.noise):
            raise DemonstrationError(f"noise {self.noise}; give at least 0, and a finite number of px")


@dataclass(frozen=True)
class MadeDemonstrations:
    """What ``make_demonstrations`` did.

    written: runs written now.  found: runs from earlier calls.  duplicates: runs found now that another seed, or the same
    level under another name, had given already.  failed: runs not found now, on levels that have others.
    unfinished: levels without any run.  compared: runs that should be as long as ``par_frames`` in the level set's index;
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
    progress: Callable[[Iterable, int], Iterable] = lambda items, total: items,
) -> MadeDemonstrations:
    """Plan runs through every level of a level set and write them to the replay sets ``out/<category>.h5``.

    workers: processes; all cores if None.  progress: wraps the levels as they are done, given their number.
    The metadata of a replay are ``source`` ("planner"), its ``seed``, ``par_frames`` of its level in the index, and
    ``planner``, the settings.  Whatever ends the call, what was planned is kept, and calling again goes on.
    Raises LevelSetError for a level set that cannot be read, ReplayError for a damaged file in ``out``, and
    DemonstrationError for one that was not made from these levels with these settings, and for workers: none, or one that
    dies.
    """
    if workers is not None and workers < 1:
        raise DemonstrationError(f"workers {workers}; give at least 1 process, or leave it out for all cores")
    settings, level_set, out = settings or PlannerSettings(), LevelSet.open(levels), Path(out)
    entries: dict[str, LevelEntry] = {}
    for i, entry in enumerate(level_set.entries):
        fingerprint = level_set.fingerprint(i)
        entries.setdefault(fingerprint, replace(entry, fingerprint=fingerprint))
    frames: dict[tuple[str, int], int] = {}  # of each run, by level and seed
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
    found, duplicates, failed = len(frames), (len(level_set) - len(entries)) * settings.runs, 0
    todo = [entry for fingerprint, entry in entries.items() if fingerprint not in behind]
    with ExitStack() as closing:
        plan_it = partial(_plan_level, level_set.path, settings)
        results = closing.enter_context(_results(plan_it, todo, workers or os.cpu_count() or 1))
        writers: dict[str, ReplayWriter] = {}
        saved = time.monotonic()
        for entry, (runs, again) in zip(todo, progress(results, len(todo)), strict=True):
            if runs and entry.category not in writers:
                path = out / f"{entry.category}.h5"
                path.parent.mkdir(parents=True, exist_ok=True)
                writers[entry.category] = closing.enter_context(ReplayWriter(path))
            for seed, run in runs:
                if (entry.fingerprint, seed) in frames:
                    continue
                about = {"source": "planner", "seed": seed, "par_frames": entry.par_frames, "planner": asdict(settings)}
                writers[entry.category].append(run, category=entry.category, **about)
                frames[entry.fingerprint, seed] = run.frames
            duplicates += again
            failed += settings.runs - len(runs) - again if runs else 0
            if time.monotonic() - saved > SAVE_EVERY_S:
                for writer in writers.values():
                    writer.flush()
                saved = time.monotonic()
    finished = {fingerprint for fingerprint, _ in frames}
    unfinished = [entry.file for fingerprint, entry in entries.items() if fingerprint not in finished]
    compared, differing = _compare_with_par(entries, frames, settings)
    return MadeDemonstrations(
        len(frames) - found, found, duplicates, failed, tuple(unfinished), compared, tuple(differing)
    )


def _read_earlier(path: Path, levels: Sequence[str], settings: PlannerSettings) -> dict[tuple[str, int], int]:
    """Frames by level (fingerprint) and seed of the runs that an earlier call wrote; levels: of the category, in order."""
    if not path.exists():
        return {}
    place, at, frames = {level: i for i, level in enumerate(levels)}, 0, {}
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


def _plan_level(path: Path, settings: PlannerSettings, entry: LevelEntry) -> tuple[list[tuple[int, Replay]], int]:
    """The runs that differ, with their seeds, and the number of those that do not."""
    level = LevelSet(path, [entry])[0]
    distinct, again = {}, 0
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


@contextmanager
def _results(plan_it: Callable, entries: Sequence[LevelEntry], workers: int) -> Iterator[Iterable]:
    """What ``plan_it`` returns for each entry, in their order."""
    if workers == 1:
        yield map(plan_it, entries)
        return
    with worker_pool(workers, DemonstrationError) as pool:
        yield pool.map(plan_it, entries)


def _compare_with_par(entries, frames, settings) -> tuple[int, list[str]]:
    """Number of runs found with the call that ``par_frames`` comes from, and those of another length."""
    usual = PlannerSettings()
    if replace(settings, runs=usual.runs) != usual:
        return 0, []
    known = [entry for entry in entries.values() if entry.par_frames and (entry.fingerprint, usual.seed) in frames]
    lengths = [frames[entry.fingerprint, usual.seed] for entry in known]
    return len(known), [
        f"{entry.file}: {length} frames, the index says {entry.par_frames}"
        for entry, length in zip(known, lengths, strict=True)
        if length != entry.par_frames
    ]
