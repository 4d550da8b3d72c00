"""Checkpoint files of a run, and zip files for Stable-Baselines3.

    checkpoints = CheckpointFolder(folder / "checkpoints", keep=3)
    checkpoints.add(decisions)                     # path of the next checkpoint
    checkpoints.prune()                            # after writing it: delete old checkpoints
    checkpoints.newest(previous=False, log=print)  # checkpoint to resume from

``checkpoint_<decisions>.safetensors`` and ``final.safetensors`` contain everything that training needs to resume.
``best.safetensors`` has the best weights so far for users; the checkpoints also contain these weights.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nppsim.io.files import append_text, write_text
from rl.policy import checkpoint
from rl.policy.checkpoint import CheckpointError
from rl.policy.sb3 import save_archive
from rl.ppo.ppo import PPO


def save_sb3_zip(ppo: PPO, path: Path) -> None:
    """Write an archive of the current policy for ``stable_baselines3.PPO.load``."""
    config = ppo.config
    save_archive(
        path,
        ppo.policy,
        ppo.env,
        num_timesteps=ppo.num_timesteps,
        n_updates=ppo.n_passes,
        learning_rate=float(config.learning_rate or 0),
        n_steps=ppo.n_steps,
        batch_size=ppo.batch_size,
        n_epochs=ppo.n_epochs,
        gamma=ppo.gamma,
        gae_lambda=ppo.gae_lambda,
        clip_range=config.clip_range,
        clip_range_vf=config.clip_range_vf,
        ent_coef=config.ent_coef_at(0.0),
        vf_coef=config.vf_coef,
        max_grad_norm=config.max_grad_norm,
        target_kl=config.target_kl,
    )


FINAL = f"final{checkpoint.SUFFIX}"
BEST = f"best{checkpoint.SUFFIX}"
WRITTEN = "written.txt"  # list of the checkpoints that the run has written
SET_ASIDE = ".set_aside"  # suffix of a checkpoint that is damaged, or was skipped by --previous-checkpoint


class CheckpointFolder:
    """Checkpoint files of one run, whose names are in the file WRITTEN.

    Other files are neither used nor deleted, whatever their names.  Without WRITTEN, all files with names of checkpoints
    are those of the run.
    keep: number of newest checkpoints that ``prune`` leaves, in addition to the final one.
    """

    def __init__(self, folder: Path, keep: int):
        self.folder = folder
        self.keep = keep
        self.final = folder / FINAL
        self.best = folder / BEST
        self._record = folder / WRITTEN

    def add(self, decisions: int) -> Path:
        """Return the path for the checkpoint after this number of decisions; record its name."""
        if not self._record.is_file():
            write_text(self._record, "".join(f"{path.name}\n" for path in self.existing()))
        append_text(self._record, f"{self.path(decisions).name}\n")
        return self.path(decisions)

    def path(self, decisions: int) -> Path:
        """Return the path of the checkpoint after this number of decisions."""
        return self.folder / f"checkpoint_{decisions}{checkpoint.SUFFIX}"

    def existing(self) -> list[Path]:
        """Return the existing checkpoints by number of decisions, the final one last."""
        numbered = re.compile(rf"checkpoint_(\d+){re.escape(checkpoint.SUFFIX)}", re.ASCII)  # not checkpoint_copy_8192
        if self._record.is_file():
            names = self._record.read_text(encoding="utf-8", errors="replace").splitlines()
        else:
            names = [path.name for path in self.folder.glob("*")]
        decisions = {int(match[1]) for name in names if (match := numbered.fullmatch(name))}
        during = [path for path in map(self.path, sorted(decisions)) if path.exists()]
        return [*during, *([self.final] if self.final.exists() else [])]

    def prune(self) -> None:
        """Delete all checkpoints except the newest ``keep`` and the final one."""
        during = [path for path in self.existing() if path != self.final]
        for path in during[: -self.keep]:
            path.unlink()

    def newest(self, previous: bool, log: Callable[[str], None]) -> tuple[Path, dict[str, Any]] | None:
        """Return path and content of the checkpoint to resume from; None without a checkpoint.

        previous: True to rename the newest checkpoint and use the one before it.
        Raises CheckpointError for a damaged file.
        """
        checkpoints = self.existing()
        if previous and checkpoints:
            unwanted = checkpoints.pop()
            unwanted.rename(unwanted.with_name(unwanted.name + SET_ASIDE))
            log(f"{unwanted}: renamed to {unwanted.name}{SET_ASIDE}")
        if not checkpoints:
            return None
        try:
            return checkpoints[-1], checkpoint.load(checkpoints[-1])
        except CheckpointError as error:
            other = (
                f"resumes from {checkpoints[-2].name}"
                if len(checkpoints) > 1
                else "starts again, as there is no other checkpoint"
            )
            raise CheckpointError(f"{error}; with --previous-checkpoint the run {other}") from error
