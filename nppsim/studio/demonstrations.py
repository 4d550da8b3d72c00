"""Demonstrations for training: a folder of replays to which the page adds runs."""

import re
import threading
from collections import Counter
from pathlib import Path

import numpy as np

from nppsim.actions import FRAME_SKIP, SELF_DESTRUCT
from nppsim.io.reading import files_below
from nppsim.levels.level import Level
from nppsim.levels.level_set import UNCATEGORISED
from nppsim.replays.playback import entries_of, is_named_like_replays
from nppsim.replays.replay import Replay, ReplayError, on_grid
from nppsim.studio.documents import Document
from nppsim.studio.errors import StudioError

RECOMMENDED_COUNT = 20  # number of demonstrations recommended for training
_NO_DEMONSTRATION = 409


class Demonstrations:
    """Folder of replays for ``--replay-data-dir`` of the training.

    folder: created with the first demonstration.
    categories: categories of the levels in the studio.
    """

    def __init__(self, folder: str | Path, categories: list[str]):
        self.folder = Path(folder)
        self._categories = categories
        self._lock = threading.Lock()

    def add(self, inputs: np.ndarray, level: Level, category: str | None) -> Document:
        """Check a run as the training does and write it to the folder.

        inputs: uint8[frames].  category: that of the level.
        Returns {"added": {"file", "frames", "retimed", "deviation_px"}, "demonstrations": ``summary``}; see
        ``check_demonstration``.
        Raises StudioError for a run that the training would leave out.
        """
        inputs, retimed, deviation_px = check_demonstration(inputs, level)
        replay = Replay(level, inputs, success=True)
        file = self.folder / _folder_name(category) / f"{replay.fingerprint}.replay"
        with self._lock:
            if file.exists():
                raise StudioError(f"this run is among the demonstrations already: {file}", _NO_DEMONSTRATION)
            replay.save(file)
        added = {"file": str(file), "frames": len(inputs), "retimed": retimed, "deviation_px": round(deviation_px, 2)}
        return {"added": added, "demonstrations": self.summary()}

    def summary(self) -> Document:
        """Count the demonstrations and their levels and categories, and list what a data set still lacks."""
        recordings, problems = self._found()
        categories = Counter(category for category, _ in recordings)
        return {
            "folder": str(self.folder),
            "recordings": len(recordings),
            "levels": len({level for _, level in recordings}),
            "categories": dict(sorted(categories.items())),
            "wanted": RECOMMENDED_COUNT,
            "missing": max(0, RECOMMENDED_COUNT - len(recordings)),
            "problems": problems,
            "missing_categories": [name for name in self._categories if _folder_name(name) not in categories],
        }

    def _found(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Return (category, level fingerprint) of each replay in the folder, and messages on unreadable files."""
        recordings, problems, files = [], [], []
        try:
            if self.folder.exists():
                files = sorted(files_below(self.folder, ReplayError, is_named_like_replays))
        except ReplayError as error:
            problems.append(str(error))
        for file in files:
            category = file.parent.name if file.parent != self.folder else UNCATEGORISED
            try:
                recordings += [(entry.category or category, entry.level_fingerprint) for _, entry in entries_of(file)]
            except ReplayError as error:
                problems.append(str(error))
        return recordings, problems


def check_demonstration(inputs: np.ndarray, level: Level) -> tuple[np.ndarray, bool, float]:
    """Check a run; return (inputs up to the exit, retimed, mean deviation in px).

    retimed: True if training will re-time the inputs to one action per FRAME_SKIP frames; they are returned as played.
    mean deviation: mean distance between the positions of the ninja in the run and in the re-timed run.
    Raises StudioError if the run does not win or cannot be re-timed.
    """
    if np.any(inputs & SELF_DESTRUCT):
        raise StudioError("the run contains a self-destruct, which is not an action of agents", _NO_DEMONSTRATION)
    from nppsim.bank import LevelBank
    from nppsim.planner.retime import retime
    from nppsim.simulate import simulate

    bank = LevelBank([level])
    run = simulate(bank, inputs)
    if not run.won:
        how = "the ninja dies" if run.outcome == "died" else "it stops before the exit"
        raise StudioError(f"the run does not finish its level: {how} at frame {run.frames}", _NO_DEMONSTRATION)
    inputs = inputs[: run.frames]
    if on_grid(inputs, FRAME_SKIP):
        return inputs, False, 0.0
    retimed = retime(Replay(level, inputs), FRAME_SKIP, bank=bank, recorded=run)
    if retimed is None or not retimed.run.won:
        raise StudioError(
            f"the run cannot be re-timed: no sequence of actions of {FRAME_SKIP} frames each follows it to the exit; "
            "play with longer key presses, or download it",
            _NO_DEMONSTRATION,
        )
    return inputs, True, retimed.deviation_px


def _folder_name(category: str | None) -> str:
    """Return a folder name for a category: lower case, other characters than a-z, 0-9, _ and - replaced."""
    return re.sub(r"[^a-z0-9_-]+", "_", (category or UNCATEGORISED).lower()).strip("_") or UNCATEGORISED
