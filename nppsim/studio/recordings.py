"""Runs that the person at the page stores: in memory, as downloads, and as demonstrations for training.

Stored runs are lost when the studio ends, unless they are downloaded or added to the demonstrations.
"""

import re
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nppsim.actions import FRAME_SKIP, FRAMES_PER_SECOND, SELF_DESTRUCT
from nppsim.io.reading import files_below
from nppsim.levels.level import Level
from nppsim.levels.level_set import UNCATEGORISED
from nppsim.replays.playback import entries_of, is_named_like_replays
from nppsim.replays.replay import Replay, ReplayError, on_grid
from nppsim.replays.replay_set import ReplayWriter
from nppsim.replays.score import score
from nppsim.studio.documents import Document
from nppsim.studio.errors import StudioError

if TYPE_CHECKING:
    from nppsim.bank import LevelBank

MAX_RUNS = 500
FILE_OF_ALL = "runs.h5"
RECOMMENDED_COUNT = 20  # number of demonstrations recommended for training
_NOT_FOUND = 404
_NO_DEMONSTRATION = 409
_INVALID_IN_NAMES = re.compile(r"^\.|[^A-Za-z0-9 _.-]")


@dataclass(frozen=True)
class Recording:
    """A stored run of a level.

    number: id of the run.
    inputs: uint8[frames].
    outcome: "running", "won" or "died".
    category: category of the level, or None.
    gold: pieces collected.
    """

    number: int
    label: str
    level: Level
    inputs: np.ndarray
    outcome: str
    category: str | None
    gold: int

    @property
    def won(self) -> bool:
        """True if the run wins."""
        return self.outcome == "won"

    def card(self, saved: bool = False) -> Document:
        """Return the run's entry for the page.  saved: True if the run has been written to a file."""
        return {
            "number": self.number,
            "saved": saved,
            "label": self.label,
            "level": self.level.fingerprint,
            "category": self.category,
            "frames": len(self.inputs),
            "seconds": round(len(self.inputs) / FRAMES_PER_SECOND, 2),
            "outcome": self.outcome,
            "gold": self.gold,
            "score": score(len(self.inputs), self.gold) if self.won else None,
        }

    def file(self, format: str) -> tuple[str, bytes]:
        """Return (name, bytes) of a replay file.

        format: "compact" or "attract".  Raises ReplayError if the format cannot represent the run.
        """
        success = self.won if format == "compact" else None
        replay = Replay(self.level, self.inputs, success=success, name=self.label)
        name = f"{file_name(self.level)}_{self.number:03d}"
        return name + (".replay" if format == "compact" else ".attract"), replay.to_bytes(format)


class Recordings:
    """Stored runs of a studio, by number.  Thread-safe."""

    def __init__(self) -> None:
        self._stored: dict[int, Recording] = {}
        self._saved: set[int] = set()
        self._lock = threading.Lock()
        self._next = 1

    def store(
        self, level: Level, inputs: np.ndarray, outcome: str, label: str, category: str | None, gold: int
    ) -> Recording:
        """Store a run.  Raises StudioError for a run without frames, or if MAX_RUNS runs are stored."""
        with self._lock:
            if not len(inputs):
                raise StudioError("nothing has been played yet, so there is nothing to store")
            if len(self._stored) >= MAX_RUNS:
                raise StudioError(f"{MAX_RUNS} runs are stored; download the ones you need and remove some")
            recording = Recording(self._next, label, level, inputs.copy(), outcome, category, gold)
            self._stored[recording.number] = recording
            self._next += 1
            return recording

    def cards(self) -> list[Document]:
        """Return the entries (``Recording.card``) of all runs, oldest first."""
        with self._lock:
            return [one.card(number in self._saved) for number, one in self._stored.items()]

    @property
    def unsaved(self) -> int:
        """Number of runs that have not been written to a file."""
        with self._lock:
            return len(self._stored.keys() - self._saved)

    def mark_saved(self, *numbers: int) -> None:
        """Mark runs as saved, after they were downloaded or added to the demonstrations."""
        with self._lock:
            self._saved.update(numbers)

    def file_of_all(self) -> tuple[bytes, list[int]]:
        """Return (bytes of a replay set of all runs, their numbers).  Raises StudioError if there are no runs."""
        with self._lock:
            runs = list(self._stored.values())
        if not runs:
            raise StudioError("no run has been stored, so there is nothing to save", _NOT_FOUND)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / FILE_OF_ALL
            with ReplayWriter(file) as writer:
                for one in runs:
                    replay = Replay(one.level, one.inputs, success=one.won, name=one.label)
                    writer.append(replay, category=one.category or "", source="studio")
            return file.read_bytes(), [one.number for one in runs]

    def recording(self, number: int) -> Recording:
        """Return a run.  Raises StudioError for an unknown number."""
        with self._lock:
            if number not in self._stored:
                raise StudioError(
                    f"there is no recording {number}; it was removed, or the studio was restarted", _NOT_FOUND
                )
            return self._stored[number]

    def remove(self, number: int) -> None:
        """Remove a run, but not a demonstration that was saved from it."""
        self.recording(number)
        with self._lock:
            self._stored.pop(number, None)


class Demonstrations:
    """Folder of replays for ``--replay-data-dir`` of the training.

    folder: created with the first demonstration.
    categories: categories of the levels in the studio.
    """

    def __init__(self, folder: str | Path, categories: list[str]):
        self.folder = Path(folder)
        self._categories = categories
        self._lock = threading.Lock()

    def add(self, recording: Recording, bank: "LevelBank") -> Document:
        """Check a run as the training does and write it to the folder.

        bank: bank with only the level of the run.
        Returns {"added": {"file", "frames", "retimed", "deviation_px"}, "demonstrations": ``summary``}; see
        ``check_demonstration``.
        Raises StudioError for a run that the training would leave out.
        """
        inputs, retimed, deviation_px = check_demonstration(recording.inputs, bank)
        replay = Replay(bank.levels[0], inputs, success=True)
        file = self.folder / _folder_name(recording.category) / f"{replay.fingerprint}.replay"
        with self._lock:
            if file.exists():
                raise StudioError(f"this run is among the demonstrations already: {file}", _NO_DEMONSTRATION)
            replay.save(file)
        added = {"file": str(file), "frames": len(inputs), "retimed": retimed, "deviation_px": round(deviation_px, 2)}
        return {"added": added, "demonstrations": self.summary()}

    def summary(self) -> Document:
        """Count the demonstrations and their levels and categories, and list what a data set still lacks."""
        found, problems = self._found()
        categories = Counter(category for category, _ in found)
        return {
            "folder": str(self.folder),
            "recordings": len(found),
            "levels": len({level for _, level in found}),
            "categories": dict(sorted(categories.items())),
            "wanted": RECOMMENDED_COUNT,
            "missing": max(0, RECOMMENDED_COUNT - len(found)),
            "problems": problems,
            "missing_categories": [name for name in self._categories if _folder_name(name) not in categories],
        }

    def _found(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Return (category, level fingerprint) of each replay in the folder, and messages on unreadable files."""
        found, problems, files = [], [], []
        try:
            if self.folder.exists():
                files = sorted(files_below(self.folder, ReplayError, is_named_like_replays))
        except ReplayError as error:
            problems.append(str(error))
        for file in files:
            category = file.parent.name if file.parent != self.folder else UNCATEGORISED
            try:
                found += [(one.category or category, one.level_fingerprint) for _, one in entries_of(file)]
            except ReplayError as error:
                problems.append(str(error))
        return found, problems


def check_demonstration(inputs: np.ndarray, bank: "LevelBank") -> tuple[np.ndarray, bool, float]:
    """Check a run on a bank with a single level; return (inputs up to the exit, retimed, mean deviation in px).

    retimed: True if training will re-time the inputs to one action per FRAME_SKIP frames; they are returned as played.
    mean deviation: mean distance between the positions of the ninja in the run and in the re-timed run.
    Raises StudioError if the run does not win or cannot be re-timed.
    """
    if np.any(inputs & SELF_DESTRUCT):
        raise StudioError("the run contains a self-destruct, which is not an action of agents", _NO_DEMONSTRATION)
    from nppsim.planner.retime import retime
    from nppsim.simulate import simulate

    run = simulate(bank, inputs)
    if not run.won:
        how = "the ninja dies" if run.outcome == "died" else "it stops before the exit"
        raise StudioError(f"the run does not finish its level: {how} at frame {run.frames}", _NO_DEMONSTRATION)
    inputs = inputs[: run.frames]
    if on_grid(inputs, FRAME_SKIP):
        return inputs, False, 0.0
    retimed = retime(Replay(bank.levels[0], inputs), FRAME_SKIP, bank=bank, recorded=run)
    if retimed is None or not retimed.run.won:
        raise StudioError(
            f"the run cannot be re-timed: no sequence of actions of {FRAME_SKIP} frames each follows it to the exit; "
            "play with longer key presses, or download it",
            _NO_DEMONSTRATION,
        )
    return inputs, True, retimed.deviation_px


def file_name(level: Level) -> str:
    """Return a file name for a level, without a suffix: its title with other characters replaced, else its fingerprint."""
    return _INVALID_IN_NAMES.sub("_", level.title.strip()) or level.fingerprint[:8]


def _folder_name(category: str | None) -> str:
    """Return a folder name for a category: lower case, other characters than a-z, 0-9, _ and - replaced."""
    return re.sub(r"[^a-z0-9_-]+", "_", (category or UNCATEGORISED).lower()).strip("_") or UNCATEGORISED
