"""Play replays and report their outcomes (``python -m nppsim replays``)."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nppsim.actions import SELF_DESTRUCT as SELF_DESTRUCT_KEY
from nppsim.errors import escaped
from nppsim.io.reading import files_below
from nppsim.levels import kinds
from nppsim.levels.format import TYPE
from nppsim.levels.level_set import INDEX, warn_of_skipped
from nppsim.physics.outcomes import DIED, NAMES, UNFINISHED, WON
from nppsim.physics.rules import Rules, variants
from nppsim.replays.replay import (
    REPLAY_SET_SUFFIX,
    REPLAY_SUFFIX,
    Replay,
    ReplayError,
    has_replay_lengths,
    is_replay_set,
)
from nppsim.replays.replay_set import ReplayEntry, ReplaySet
from nppsim.replays.score import score, seconds

if TYPE_CHECKING:
    from nppsim.simulate import Run

# Endings of a replay, in addition to "died" (``nppsim.physics.outcomes``).
FINISHED = "finished"
SELF_DESTRUCT = "self-destruct"
RAN_OUT = "ran out"
UNREADABLE = "unreadable"
_ENDING = {NAMES[WON]: FINISHED, NAMES[DIED]: NAMES[DIED], UNFINISHED: RAN_OUT}


@dataclass(frozen=True)
class PlaybackResult:
    """Outcome of playing one replay.

    file: path; for a replay of a set, followed by "#" and its index.
    valid: True if the run ends as the file states (``ends_as_stated``); False also for an unreadable file.
    ending: FINISHED, "died", SELF_DESTRUCT (died by this key), RAN_OUT (of inputs) or UNREADABLE.
    frame: number of the last frame played, 0 if unreadable.
    inputs: number of input frames in the file.
    gold: pieces collected.
    time: seconds until the last frame.
    score: see ``nppsim.replays.score``; None unless FINISHED.
    warnings: problems of the file, its level or its ending; for an unreadable file, the error.
    rules: name of each rule variant (``physics.rules``) that affects this level -> True if the replay ends as its file
        states when played with this variant (``agrees``).
    """

    file: str
    valid: bool
    ending: str
    frame: int
    inputs: int
    gold: int
    time: float
    score: float | None
    warnings: tuple[str, ...]
    rules: dict[str, bool] = field(default_factory=dict)


def play_back(replay: Replay, file: str = "") -> PlaybackResult:
    """Play one replay.  file: value of ``PlaybackResult.file``; "" to use the name of the replay."""
    from nppsim.simulate import simulate

    run = simulate(replay.level, replay.inputs)
    ending = SELF_DESTRUCT if self_destructed(run, replay.inputs) else _ENDING[run.outcome]
    warnings = list(replay.warnings or replay.level.warnings)
    if not (replay.level.records[:, TYPE] == kinds.EXIT).any():
        lost = "; its record is lost, repair the file or record it again" if replay.level.exit_count else ""
        warnings.insert(0, f"the map has no exit door, so it cannot be finished{lost}")
    if replay.success is not None and replay.success != (ending == FINISHED):
        warnings.append(f"the file states that the level was {'' if replay.success else 'not '}finished")
    rules = {name: agrees(replay, rules) for name, rules in variants(replay.level.records[:, TYPE].tolist()).items()}
    gold = int(run.gold[-1])
    return PlaybackResult(
        file or replay.name,
        ends_as_stated(replay, run),
        ending,
        run.frames,
        replay.frames,
        gold,
        seconds(run.frames),
        score(run.frames, gold) if run.won else None,
        tuple(warnings),
        rules,
    )


def self_destructed(run: "Run", inputs: np.ndarray) -> bool:
    """Return True if the self-destruct key, pressed in the last two frames of a run, ended it.  inputs: uint8[frames]."""
    pressed = inputs[max(0, run.frames - 2) : run.frames] & SELF_DESTRUCT_KEY
    return run.outcome == NAMES[DIED] and len(pressed) == 2 and bool(pressed.all())


def agrees(replay: Replay, rules: Rules) -> bool:
    """Return True if a replay ends as its file states when played with these rules."""
    from nppsim.simulate import simulate

    return ends_as_stated(replay, simulate(replay.level, replay.inputs, rules=rules))


def ends_as_stated(replay: Replay, run: "Run") -> bool:
    """Return True if the run of a replay ends as its file states.

    A replay whose ``success`` is True must win.  In other replays the run must not end before the last input, except by a
    win if ``success`` is None.
    """
    return run.won if replay.success else run.frames == replay.frames or (replay.success is None and run.won)


def is_named_like_replays(file: Path) -> bool:
    """Return True if a file has the suffix of replay files or replay sets; case is ignored."""
    return file.suffix.lower() in (REPLAY_SUFFIX, REPLAY_SET_SUFFIX)


def is_replay_file(file: Path) -> bool:
    """Return True if a file is named like replays, or has the content of a replay.  Raises OSError if it is unreadable."""
    return is_named_like_replays(file) or has_replay_lengths(file)


def find_files(paths: Iterable[str | Path]) -> list[Path]:
    """Return the files in ``paths``, and all replay files and replay sets below the folders in ``paths``, sorted.

    An InputWarning names the other files of the folders, except index files.  Raises ReplayError for a folder without any.
    """
    files = []
    for path in map(Path, paths):
        matches = [path]
        if path.is_dir():
            below = sorted(files_below(path, ReplayError, lambda file: is_named_like_replays(file) or file.is_file()))
            matches = list(filter(is_replay_file, below))
            others = [file for file in below if file not in {*matches} and file.name != INDEX]
            if matches:
                warn_of_skipped(path, {file.relative_to(path).as_posix(): "not a replay" for file in others})
        if not matches:
            raise ReplayError(
                f"{path}: no *.replay or *.h5 files in it or its sub-folders, and no attract files; check the path"
            )
        files += matches
    return files


def entries_of(file: Path) -> list[tuple[str, ReplayEntry]]:
    """Return address and properties of the replay of a replay file, or of all replays of a set.  Raises ReplayError."""
    if is_replay_set(file):
        with ReplaySet(file) as replays:
            return [(f"{file}#{i}", replays.entry(i)) for i in range(len(replays))]
    replay = Replay.load(file)
    return [(str(file), ReplayEntry(file.stem, "", replay.frames, replay.level.fingerprint, replay.success, None, {}))]


def read_file(file: Path) -> Iterator[Replay]:
    """Yield the replay of a replay file, or all replays of a replay set (``*.h5``).  Raises ReplayError."""
    if is_replay_set(file):
        with ReplaySet(file) as replays:
            yield from replays
    else:
        yield Replay.load(file)


def play_files(files: Iterable[Path]) -> Iterator[PlaybackResult]:
    """Play replay files, and all replays of replay sets (``*.h5``).  Unreadable files have the ending UNREADABLE."""
    for file in files:
        try:
            if is_replay_set(file):
                with ReplaySet(file) as replays:
                    for index in range(len(replays)):
                        yield _play(partial(replays.__getitem__, index), f"{file}#{index}")
            else:
                yield _play(partial(Replay.load, file), str(file))
        except ReplayError as error:  # the whole set is unreadable
            yield _unreadable(str(file), error)


def _play(load: Callable[[], Replay], file: str) -> PlaybackResult:
    try:
        replay = load()
    except ReplayError as error:
        return _unreadable(file, error)
    return play_back(replay, file)


def _unreadable(file: str, error: ReplayError) -> PlaybackResult:
    return PlaybackResult(file, False, UNREADABLE, 0, 0, 0, 0.0, None, (str(error),))


def lines(playbacks: Iterable[PlaybackResult]) -> Iterator[str]:
    """Yield one line per playback, lines with its warnings and rule variants, and finally the counts of endings.

    Column widths are fixed, so that each line is printed as soon as its replay was played.
    """
    endings: Counter[str] = Counter()
    valid = 0
    yield f"{'valid':<5} {'ending':<13} {'frame':>6} {'inputs':>6} {'gold':>5} {'time, s':>8} {'score':>8}  file"
    for run in playbacks:
        endings[run.ending] += 1
        valid += run.valid
        result = "-" if run.score is None else f"{run.score:.3f}"
        begin = f"{'yes' if run.valid else 'no':<5} {run.ending:<13} {run.frame:>6} {run.inputs:>6} {run.gold:>5}"
        yield f"{begin} {run.time:>8.3f} {result:>8}  {escaped(run.file)}"
        yield from (f"{'':<58}{' '.join(warning.split())}" for warning in run.warnings)
        for name, agreed in run.rules.items():
            yield f"{'':<58}rule {name}: {'agrees' if agreed else 'does not agree'}"
    counts = ", ".join(f"{count} {ending}" for ending, count in endings.most_common())
    yield f"{endings.total()} replay{'s'[: endings.total() != 1]}, {valid} valid: {counts}"
