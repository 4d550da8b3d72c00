"""The checkpoints of one run: which of them training goes on from, and how many are kept.

    kept = Checkpoints(folder / "checkpoints", keep=3)
    kept.path(decisions)         # of the next one; ``kept.prune()`` after it is written
    kept.newest(previous=False)  # to go on from

``checkpoint_<decisions>.safetensors`` hold everything that training needs to go on, and so does ``final.safetensors``, once
training is over.  ``best.safetensors``, the best weights so far, is for people: training has them in its state.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl.policy import checkpoint
from rl.policy.checkpoint import CheckpointError

FINAL = f"final{checkpoint.SUFFIX}"
BEST = f"best{checkpoint.SUFFIX}"
SET_ASIDE = ".set_aside"  # is added to the name of a checkpoint that somebody did not want to go on from


class Checkpoints:
    """folder: of the files.  keep: so many of those made during training."""

    def __init__(self, folder: Path, keep: int):
        self.folder = folder
        self.keep = keep
        self.final = folder / FINAL
        self.best = folder / BEST

    def path(self, decisions: int) -> Path:
        """Of a checkpoint made after so many decisions."""
        return self.folder / f"checkpoint_{decisions}{checkpoint.SUFFIX}"

    def made(self) -> list[Path]:
        """Those of training that are there, by their decisions; the final one last."""
        numbered = [
            (path.stem.rpartition("_")[2], path) for path in self.folder.glob(f"checkpoint_*{checkpoint.SUFFIX}")
        ]
        during = [path for _, path in sorted((int(number), path) for number, path in numbered if number.isdecimal())]
        return [*during, *([self.final] if self.final.exists() else [])]

    def prune(self) -> None:
        """Remove all but the newest ``keep``."""
        during = [path for path in self.made() if path != self.final]
        for path in during[: -self.keep]:
            path.unlink()

    def newest(self, previous: bool, log: Callable[[str], None]) -> tuple[Path, dict[str, Any]] | None:
        """(path, content) of the checkpoint to go on from; None where there is none.

        previous: of the one before the newest, which is set aside.
        CheckpointError for one that is damaged or altered: it is named, and so is what to do.
        """
        found = self.made()
        if previous and found:
            unwanted = found.pop()
            unwanted.rename(unwanted.with_name(unwanted.name + SET_ASIDE))
            log(f"{unwanted}: set aside as {unwanted.name}{SET_ASIDE}")
        if not found:
            return None
        try:
            return found[-1], checkpoint.load(found[-1])
        except CheckpointError as error:
            other = f"from {found[-2].name}" if len(found) > 1 else "where training began, as there is no other one"
            raise CheckpointError(f"{error}; with --previous-checkpoint the run goes on {other}") from error
