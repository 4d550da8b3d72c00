"""Digests of a run: a file with one line per update, which contains hashes of the rollout and of the training state.

    ppo.learn(..., callback=[DigestTrail(folder), monitor])   # writes <folder>/digests.jsonl
    print(first_divergence(read_trail(one), read_trail(other)))   # update 137, decision 12: log_probs

Runs with equal settings on one machine have equal digests.
``docs/file_formats.md`` describes the fields of a line.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nppsim.errors import UserError
from nppsim.io.files import append_text, write_text
from nppsim.io.reading import parse_json, read_bytes
from rl.policy import checkpoint
from rl.policy.checkpoint import CheckpointError
from rl.ppo.ppo import PPO
from rl.ppo.rollout_buffer import RolloutBuffer
from rl.training.callbacks import PPOCallback
from rl.training.training_state import SET_ASIDE

TRAIL_FILE = "digests.jsonl"
MAX_LINE_BYTES = 1 << 22  # limit; the line of a rollout of 1,000 steps has 24 KiB
MAX_TRAIL_BYTES = 1 << 30  # limit of a digest file; 10,000 updates with long rollouts have 64 MiB
# Parts in the order of their computation.  Parts of a rollout also have a digest for each step of all environments.
ROLLOUT_PARTS = ("observations", "log_probs", "values", "actions", "rewards", "episode_ends")
UPDATE_PARTS = ("advantages", "returns", "curriculum", "environments", "parameters", "optimiser", "random")
PARTS = ROLLOUT_PARTS + UPDATE_PARTS
STEP_DIGITS = 4  # number of hex digits in the digest of a step
_WEIGHTS = torch.from_numpy(
    np.random.default_rng(0).integers(0, 2**63, 1 << 16, dtype=np.int64) << 1 | 1
)  # odd weights of ``row_sums``; their half MiB fits into the cache of a core


class TrailError(UserError, ValueError):
    """A digest file that cannot be read, or that does not fit the resumed run."""


Row = dict[str, Any]  # fields of a line of the digest file


class DigestTrail(PPOCallback):
    """Callback that writes the digest file of a run; it must come before callbacks that change the policy.

    A resumed run removes the lines of updates after its checkpoint and appends to the file.
    Raises TrailError if the state after resuming differs from the digests in the file.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self.path = folder / TRAIL_FILE
        self._recorded = 0  # number of updates in the file

    def _on_training_start(self) -> None:
        self._recorded = self.model.updates
        earlier = read_trail(self.path.parent) if self._recorded else []
        earlier = [row for row in earlier if row["update"] <= self._recorded]
        if earlier and earlier[-1]["update"] == self._recorded:
            stored, restored = earlier[-1]["digests"], state_digests(self.model)
            if lost := [part for part, digest in restored.items() if stored.get(part, digest) != digest]:
                raise TrailError(
                    f"{self.path}: {', '.join(lost)} differ from those after update {self._recorded}, so this would be "
                    "another run: resume from another checkpoint (--previous-checkpoint), or start a new run"
                )
        write_text(self.path, "".join(map(_line, earlier)))
        if not self._recorded:
            self._append(state_digests(self.model), {})

    def _on_rollout_start(self) -> None:
        """Append a line for the latest update, unless the file already contains it."""
        ppo = self.model
        if ppo.updates > self._recorded:
            self._recorded = ppo.updates
            digests, steps = rollout_digests(ppo.rollout_buffer)
            self._append(digests | state_digests(ppo), steps)

    _on_training_end = _on_rollout_start

    def _append(self, digests: Mapping[str, str], steps: Mapping[str, str]) -> None:
        ppo = self.model
        row = {"update": ppo.updates, "decisions": ppo.num_timesteps, "schedule": schedule(ppo)}
        append_text(self.path, _line(row | {"digests": digests, "steps": steps}))


def _line(row: Row) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"


def schedule(ppo: PPO) -> dict[str, float]:
    """Return the scheduled values of the latest update by name; with a time budget, they depend on the clock."""
    return {
        "learning_rate": float(ppo.policy.optimizer.param_groups[0]["lr"]),
        "pull_towards_reference": ppo.kl_penalty_scale,
        "critic_only": float(ppo.critic_only),
        "progress": ppo.progress,
    }


def rollout_digests(buffer: RolloutBuffer) -> tuple[dict[str, str], dict[str, str]]:
    """Return the digest of each part of a rollout, and for each of ROLLOUT_PARTS the digests of all steps, concatenated."""
    digests, steps = {}, {}
    for part in ROLLOUT_PARTS:
        fields = list(buffer.obs.values()) if part == "observations" else [getattr(buffer, part)]
        rows = [_digest(row.tobytes()) for row in np.concatenate([row_sums(field) for field in fields], axis=1)]
        digests[part] = combined(*rows)
        steps[part] = "".join(row[:STEP_DIGITS] for row in rows)
    for part in ("advantages", "returns"):
        digests[part] = tensor_hash(getattr(buffer, part))
    return digests, steps


def state_digests(ppo: PPO) -> dict[str, str]:
    """Return part -> digest, for the parts of the state from which the next update starts."""
    environments = torch.from_numpy(ppo.sim.snapshot(slice(None)))
    return {
        "curriculum": combined(json.dumps(ppo.sampler.state_dict(), sort_keys=True, default=_array_hash)),
        "environments": combined(tensor_hash(environments)),
        "parameters": combined(*_of_tensors(ppo.policy.state_dict())),
        "optimiser": combined(*_of_tensors(ppo.policy.optimizer.state_dict())),
        "random": _random_digest(ppo.rng.bit_generator.state, ppo.action_rng.get_state()),
    }


def check_written(path: Path, folder: Path) -> None:
    """Read a new checkpoint back from disk, and compare it with the digests of its update.

    folder: folder of the run.  Without a digest file there, only the SHA-256 in the checkpoint is compared.
    Raises CheckpointError for a damaged file, and renames the file, so that the previous checkpoint becomes the newest.
    """
    if hasattr(os, "posix_fadvise"):  # missing on macOS and Windows, which read from the page cache instead of the disk
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        stored = checkpoint.load(path)
        training, row = stored["training"], latest_row(folder)
        expected = row["digests"] if row and row["update"] == training["updates"] else {}
        digests = {
            "environments": combined(tensor_hash(torch.from_numpy(training["environments"]["snapshots"]))),
            "parameters": combined(*_of_tensors(stored["policy"])),
            "optimiser": combined(*_of_tensors(training["optimizer"])),
            "random": _random_digest(training["shuffling"], training["sampling"]),
        }
        wrong = ", ".join(part for part, digest in digests.items() if expected.get(part, digest) != digest)
    except CheckpointError:
        wrong = "the file is damaged"
    if wrong:
        aside = path.rename(path.with_name(path.name + SET_ASIDE))
        raise CheckpointError(
            f"{path}: what was read after writing differs from the state of training ({wrong}). The disk or the memory is "
            f"faulty. The file was renamed to {aside.name}, and earlier checkpoints are unchanged: check the disk, or copy "
            "the run to another one, and resume it (--resume-from)"
        )


def _random_digest(shuffling: Mapping[str, Any], sampling: torch.Tensor) -> str:
    return combined(json.dumps(shuffling, sort_keys=True), tensor_hash(sampling))


def _of_tensors(state: Mapping[Any, Any]) -> Iterator[str]:
    """Yield names and hashes of all tensors in nested dictionaries and lists, and other values as text."""
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            yield f"{name} {value.dtype} {tuple(value.shape)} {tensor_hash(value)}"
        elif isinstance(value, Mapping):
            yield f"{name}:"
            yield from _of_tensors(value)
        elif isinstance(value, (list, tuple)):
            yield f"{name}:"
            yield from _of_tensors(dict(enumerate(value)))
        else:
            yield f"{name} {value!r}"


def combined(*parts: object) -> str:
    """Return 16 hex digits that depend on all parts and their order."""
    return _digest("\n".join(map(str, parts)).encode())


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def tensor_hash(tensor: torch.Tensor) -> str:
    """Return 16 hex digits that depend on every bit of a tensor and on its size."""
    return _digest(f"{tensor.nbytes} ".encode() + row_sums(tensor.detach().reshape(1, -1)).tobytes())


def _array_hash(values: np.ndarray) -> str:
    digest = tensor_hash(torch.from_numpy(values)) if values.size else ""
    return f"{values.dtype} {values.shape} {digest}"


def row_sums(rows: torch.Tensor) -> np.ndarray:
    """Hash each of R rows of any dtype and shape; return int64[R, blocks].

    The 64-bit words of a row are multiplied by fixed odd weights and summed modulo 2^64, block by block.  One changed word
    always changes the sum.  Several changed words leave it unchanged with probability 2^-64.  The observations of an update
    have up to a hundred megabytes; a cryptographic hash of them would take a tenth of the time of the update.
    Source: Lemire & Kaser 2014, "Strongly universal string hashing is fast" (multilinear hashing).
    """
    data = rows.contiguous().reshape(len(rows), -1).view(torch.uint8)
    if data.shape[1] % 8 or data.storage_offset() % 8:  # words need 8-byte alignment
        data = torch.nn.functional.pad(data, (0, -data.shape[1] % 8)).clone()
    words = data.view(torch.int64)
    weights = _WEIGHTS.to(words.device)
    sums = [_products(block, weights[: block.shape[1]]) for block in words.split(len(weights), dim=1)]
    return torch.stack(sums, dim=1).cpu().numpy()


def _products(block: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Multiply int64[R, W] by int64[W]; return int64[R].  CUDA has no matrix product of integers."""
    return block @ weights if block.device.type == "cpu" else (block * weights).sum(dim=1)


def latest_row(folder: Path) -> Row | None:
    """Read the last line of the digest file that this process writes; None if there is none."""
    path = folder / TRAIL_FILE
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_LINE_BYTES))
        lines = file.read().splitlines()
    return json.loads(lines[-1]) if lines else None


def read_trail(folder: Path) -> list[Row]:
    """Read a run's digest file, sorted by update; [] if it does not exist.  An incomplete last line is ignored."""
    path = folder / TRAIL_FILE
    if not path.is_file():
        return []
    remedy = "delete the file, and compare without it"
    lines = read_bytes(path, TrailError, MAX_TRAIL_BYTES, remedy).split(b"\n")
    shape = {"update": int, "digests": {...: str}}
    rows = [
        parse_json(line, f"{path}, line {number}", TrailError, remedy, shape)
        for number, line in enumerate(lines[:-1], 1)  # text after the last line break is an incomplete line
    ]
    return sorted(rows, key=lambda row: row["update"])


@dataclass(frozen=True)
class Divergence:
    """First difference between two digest files.

    update: number of the update; 0: state before training.
    part: first of PARTS that differs.
    decision: first decision of the rollout that differs, counted from 1; None if unknown.
    others: other parts that differ in this update.
    schedule: scheduled settings that differ, name -> values in both runs.
    """

    update: int
    part: str
    decision: int | None
    others: tuple[str, ...]
    schedule: dict[str, tuple[float, float]]

    def __str__(self) -> str:
        place = "before training" if self.update == 0 else f"update {self.update}"
        return f"{place}{f', decision {self.decision}' if self.decision else ''}: {self.part}"


def first_divergence(a: Sequence[Row], b: Sequence[Row]) -> Divergence | None:
    """Return the first difference in updates and parts that both files contain, or None."""
    theirs = {row["update"]: row for row in b}
    for row in a:
        other = theirs.get(row["update"], {"digests": {}})
        one, two = row["digests"], other["digests"]
        parts = [part for part in one if part in two and one[part] != two[part]]
        if parts:
            parts.sort(key=lambda part: PARTS.index(part) if part in PARTS else len(PARTS))
            steps, their_steps = row.get("steps", {}), other.get("steps", {})
            decisions = {part: _first_decision(steps.get(part, ""), their_steps.get(part, "")) for part in parts}
            first_decisions = {part: decision for part, decision in decisions.items() if decision is not None}
            part = min(first_decisions, key=lambda part: first_decisions[part]) if first_decisions else parts[0]
            values, their_values = row.get("schedule", {}), other.get("schedule", {})
            schedule = {
                name: (value, their_values[name])
                for name, value in values.items()
                if name in their_values and value != their_values[name]
            }
            others = tuple(name for name in parts if name != part)
            return Divergence(row["update"], part, decisions[part], others, schedule)
    return None


def _first_decision(a: str, b: str) -> int | None:
    """Return the first decision whose digest differs, from 1; None without a difference, and for different lengths."""
    return next((i // STEP_DIGITS + 1 for i in range(len(a)) if a[i] != b[i]), None) if len(a) == len(b) else None
