"""Submissions to the benchmark (docs/benchmark.md): a folder with the replays of one policy on one split.

    write(folder, Submission(name="mine", track="state", levels="hard/dev"), episodes)
    score = score_folder(folder, level_set("hard/dev"))       # plays the replays back

The folder contains ``submission.json``, the fields of ``Submission``, and ``replays.h5``, one replay per level.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nppsim.actions import FRAME_SKIP
from nppsim.bank import GAME_TIME, LevelBank
from nppsim.errors import UserError
from nppsim.gym.benchmark import TRACKS
from nppsim.io.files import write_json
from nppsim.io.reading import PlainError, from_plain, read_json
from nppsim.levels.level_set import LevelSet
from nppsim.replays.replay import Replay, on_grid
from nppsim.replays.replay_set import ReplaySet, ReplayWriter
from nppsim.simulate import simulate
from rl.evaluation.results import EpisodeRecord, LevelWins

ABOUT, REPLAYS, SCORE = "submission.json", "replays.h5", "score.json"
FORMAT_VERSION = 1
PROTOCOLS = ("policy alone", "exploration", "backtracking", "search")


class SubmissionError(UserError, ValueError):
    """A submission that cannot be scored; the message names the file, the place and the remedy."""


@dataclass(frozen=True)
class Submission:
    """Statements of the submitter.  Scoring verifies the replays, not these statements.

    name: name of the method; submissions with the same name are training seeds of one method.
    track: key of ``nppsim.gym.benchmark.TRACKS``.
    levels: name of the split, such as "hard/dev".
    protocol: one of PROTOCOLS.
    budget: decisions in environments for training; 0: none; None: not stated.
    demonstrations: number of demonstrations for training.
    seed: training seed.
    deterministic: True for greedy actions.
    frame_skip: frames per decision.
    """

    name: str
    track: str
    levels: str
    protocol: str = PROTOCOLS[0]
    budget: int | None = None
    demonstrations: int = 0
    seed: int = 0
    deterministic: bool = False
    frame_skip: int = FRAME_SKIP
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        if self.format_version != FORMAT_VERSION:
            raise SubmissionError(f"format version {self.format_version}; this program reads {FORMAT_VERSION}")
        for field, choices in (("track", TRACKS), ("protocol", PROTOCOLS)):
            if getattr(self, field) not in choices:
                raise SubmissionError(f"{field} {getattr(self, field)!r}; give {', '.join(choices)}")


@dataclass(frozen=True, eq=False)
class Score:
    """A submission whose replays have been played back.

    wins: bool[levels], in the order of the split; False for levels without a replay.
    frames: int64[levels], frames of the run; 0 without a replay.
    """

    about: Submission
    levels: tuple[str, ...]
    tasks: tuple[str, ...]
    wins: np.ndarray
    frames: np.ndarray

    @property
    def level_wins(self) -> LevelWins:
        """Wins as for one training seed with an episode on each level."""
        return LevelWins(self.levels, self.tasks, np.ones(len(self.wins), np.int64), self.wins[None].astype(np.int64))

    def to_dict(self) -> dict[str, Any]:
        """Return values for score.json."""
        rows = zip(self.levels, self.tasks, self.wins.tolist(), self.frames.tolist(), strict=True)
        names = ("level", "task", "won", "frames")
        levels = [dict(zip(names, row, strict=True)) for row in rows]
        return {"submission": asdict(self.about), "success": float(self.wins.mean()), "levels": levels}


def tasks_of(levels: LevelSet) -> tuple[str, ...]:
    """Return the task of each level, over which tables average: its category, or its fifth by par frames if there is one.

    Raises SubmissionError for a single category without par frames.
    """
    if len(levels.categories) > 1:
        return tuple(entry.category for entry in levels.entries)
    par = [entry.par_frames or 0 for entry in levels.entries]
    if not all(par):
        raise SubmissionError(f"{levels.path}: levels of one category without par_frames; generate the set again")
    rank = np.argsort(np.argsort(par, kind="stable"))
    return tuple(f"par {1 + fifth}/5" for fifth in (5 * rank // len(par)).tolist())


def write(folder: Path, about: Submission, episodes: Sequence[EpisodeRecord]) -> None:
    """Write a submission to a new folder."""
    folder.mkdir(parents=True)
    with ReplayWriter(folder / REPLAYS) as writer:
        for episode in episodes:
            replay = Replay(episode.level, episode.inputs, episode.won, episode.level_name, about.frame_skip)
            writer.append(replay, category=episode.category, outcome=episode.outcome)
    write_json(folder / ABOUT, asdict(about))


def read_about(folder: Path) -> Submission:
    """Read ``submission.json``.  Raises SubmissionError."""
    remedy = "give a folder that `benchmark run` has written"
    data = read_json(folder / ABOUT, SubmissionError, remedy)
    try:
        about: Submission = from_plain(Submission, data)
    except (PlainError, SubmissionError) as error:
        raise SubmissionError(f"{folder / ABOUT}: {error}; {remedy}") from error
    return about


def score_folder(folder: Path, levels: LevelSet, progress: Callable[[int], object] = lambda count: None) -> Score:
    """Play the replays of a submission back and return its score.

    A run wins if it reaches the exit within the level's time limit.  Levels without a replay are lost.
    Raises SubmissionError for a replay of another level, a second one of a level, and inputs that change within a
    decision; ReplayError for a damaged file.
    """
    about = read_about(folder)
    place = {levels.fingerprint(i): i for i in range(len(levels))}
    wins, frames = np.zeros(len(levels), bool), np.zeros(len(levels), np.int64)
    with ReplaySet(folder / REPLAYS) as replays:
        for number, replay in enumerate(replays):
            where = f"{folder / REPLAYS}#{number}"
            i = place.pop(replay.level.fingerprint, None)
            if i is None:
                raise SubmissionError(f"{where}: its level is not in {levels.path}, or has two replays; give one each")
            if not on_grid(replay.inputs, about.frame_skip):
                raise SubmissionError(f"{where}: inputs change within a decision of {about.frame_skip} frames")
            bank = LevelBank([replay.level], least_time=GAME_TIME)
            run = simulate(bank, replay.inputs)
            wins[i], frames[i] = run.won and run.frames <= bank.time_limit[0], run.frames
            progress(1)
    return Score(about, tuple(levels.fingerprint(i) for i in range(len(levels))), tasks_of(levels), wins, frames)


def read_score(path: Path) -> Score:
    """Read a ``score.json``.  Raises SubmissionError."""
    data = read_json(path, SubmissionError, "score the submission again")
    try:
        about: Submission = from_plain(Submission, data["submission"])
        rows = data["levels"]
        columns = [[row[name] for row in rows] for name in ("level", "task", "won", "frames")]
        wins, frames = np.array(columns[2], bool), np.array(columns[3], np.int64)
        return Score(about, tuple(map(str, columns[0])), tuple(map(str, columns[1])), wins, frames)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise SubmissionError(
            f"{path}: not a score ({type(error).__name__}: {error}); score the submission again"
        ) from error
