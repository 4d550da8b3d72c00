"""Levels to solve, each with its par and its recorded run, if there are any, to compare the result with."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bc.demonstrations import INDEX_FORMAT
from nppsim.errors import ConfigError
from nppsim.io.reading import files_below, read_json
from nppsim.levels import campaign
from nppsim.levels.level import Level
from nppsim.levels.level_set import FORMAT, INDEX, SINGLE, LevelSet, LevelSetError, scan_folder, warn_of_skipped
from nppsim.replays.playback import is_replay_file, read_file
from nppsim.replays.replay import Replay, ReplayError, is_replay_set
from nppsim.replays.targets import Target
from nppsim.simulate import simulate

RECORDED = "recorded"  # category of levels that are read from replays


@dataclass(frozen=True)
class SolveTask:
    """One level to solve."""

    name: str  # file name within its level set
    category: str
    level: Level
    par_frames: int | None = None  # par of the level from the index of the set, in frames, or None
    recorded: Replay | None = None  # a recorded run that finishes the level, or None
    recorded_frames: int | None = None  # length of the recorded run, or None
    recorded_gold: int | None = None  # gold that it collects, or None
    target: Target | None = None  # target of the level, or None

    @property
    def caption(self) -> str:
        """Id and title for a level of the game, else the name."""
        return self.level.caption if self.level.id else self.name


def read_tasks(path: Path, against: Path | None = None) -> list[SolveTask]:
    """Read the levels to solve.

    path: level file, campaign file, replay, attract file or replay set, or a folder of these.
    against: recording to compare with, for a single level.
    A level file in a level set gets its par from the index of the set.  The run of a winning replay is the recording
    that the result on its level is compared with.
    If several files contain the same run, such as the replay and attract file of ``solve``, only the first is used.
    Raises LevelError, LevelSetError, ReplayError, and ConfigError for a recording that cannot be compared.
    """
    tasks: list[SolveTask] = []
    runs_read: set[str] = set()
    for task in _tasks(path):
        run = task.recorded.fingerprint if task.recorded else None
        if run is None or run not in runs_read:
            tasks.append(task)
            runs_read |= {run} if run else set()
    if not tasks:
        raise ReplayError(f"{path}: contains no replays; give another file")
    if against is None:
        return tasks
    if len(tasks) > 1:
        raise ConfigError(f"is for a single level, and {path} has {len(tasks)}; give one of them", "--against", against)
    return [_with_recording(tasks[0], Replay.load(against), against)]


def _tasks(path: Path) -> Iterator[SolveTask]:
    if campaign.is_campaign_file(path):
        levels = LevelSet.at(path)
        yield from (SolveTask(e.file, e.category, levels[i]) for i, e in enumerate(levels.entries))
        return
    files: dict[Path, str] = {}  # file -> category, for a folder without an index of levels
    if path.is_dir() and (not (path / INDEX).exists() or _format_of_index(path) == INDEX_FORMAT):
        entries, skipped = scan_folder(path)
        files = {path / entry.file: entry.category for entry in entries}
        # scan_folder skips sub-folders with an index, even if it is an index of recordings, which are needed here
        recorded = list(files_below(path, ReplayError, is_replay_file))
        files |= dict.fromkeys(recorded, RECORDED)
        used = {path / name for name in skipped if any(file.is_relative_to(path / name) for file in recorded)}
        warn_of_skipped(path, {name: reason for name, reason in skipped.items() if path / name not in used})
    if path.is_dir() and not files:
        level_set = LevelSet.open(path)
        for level, entry in zip(level_set, level_set.entries, strict=True):
            yield SolveTask(entry.file, entry.category, level, entry.par_frames)
    elif path.is_dir():
        for file, category in sorted(files.items()):
            name = file.relative_to(path).as_posix()
            if _contains_replays(file):
                yield from _tasks_of_replays(file, name)
            else:
                yield SolveTask(name, category, Level.load(file))
    elif _contains_replays(path):
        yield from _tasks_of_replays(path, path.name)
    else:
        yield _task_of_level(path)


def _format_of_index(folder: Path) -> object:
    """Return the value of "format" in the index of a folder, or None."""
    index = read_json(folder / INDEX, LevelSetError, "restore it, or delete it to use the folder without an index")
    return index.get("format") if isinstance(index, dict) else None


def _contains_replays(path: Path) -> bool:
    """Return True for a replay, an attract file or a replay set."""
    return is_replay_set(path) or (path.is_file() and is_replay_file(path))


def _tasks_of_replays(file: Path, name: str) -> Iterator[SolveTask]:
    """Yield the level of a replay, or of each replay in a set."""
    replays = list(read_file(file)) if file.is_file() else [Replay.load(file)]
    for number, replay in enumerate(replays):
        run = simulate(replay.level, replay.inputs)
        recorded = (replay, run.frames, int(run.gold[-1])) if run.won else (None, None, None)
        yield SolveTask(f"{name}#{number}" if len(replays) > 1 else name, RECORDED, replay.level, None, *recorded)


def _task_of_level(path: Path) -> SolveTask:
    """Read a level file, with category and par if it is in a level set."""
    level = Level.load(path)
    for folder in path.absolute().parents:
        if (folder / INDEX).exists() and _format_of_index(folder) == FORMAT:
            name = path.absolute().relative_to(folder).as_posix()
            for entry in LevelSet.open(folder).entries:
                if entry.file == name:
                    return SolveTask(name, entry.category, level, entry.par_frames)
    return SolveTask(path.name, SINGLE, level)


def _with_recording(task: SolveTask, recorded: Replay, path: Path) -> SolveTask:
    if recorded.level != task.level:
        raise ConfigError(
            f"was recorded on another level than {task.name}; give a run of this level", "--against", path
        )
    run = simulate(recorded.level, recorded.inputs)
    if not run.won:
        raise ConfigError(f"does not finish the level ({run.outcome}); give a run that does", "--against", path)
    return replace(task, recorded=recorded, recorded_frames=run.frames, recorded_gold=int(run.gold[-1]))
