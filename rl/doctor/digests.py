"""The digest trail of a run: after each update a line with short hashes of all that its future depends on.

    ppo.learn(..., callback=[DigestTrail(folder), monitor])   # writes <folder>/digests.jsonl
    found = first_divergence(read_trail(one), read_trail(other))
    print(found)                                              # update 137, decision 12: log_probs

Two runs of the same configuration on the same machine have the same trail; where they have not, its first line that
differs says where to look.  Fields of a line: ``docs/file_formats.md``.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nppsim.errors import UserError
from nppsim.files import append_text, write_text
from nppsim.reading import mismatch, parse_json, read_bytes
from rl.ppo.callback import PPOCallback
from rl.ppo.ppo import PPO
from rl.ppo.rollout_buffer import RolloutBuffer

TRAIL_FILE = "digests.jsonl"
MAX_TRAIL_BYTES = 1 << 30  # 64 MiB are 10,000 updates with long rollouts
# In the order in which one follows from the other.  Those of a rollout have a digest for each of its decisions, too.
ROLLOUT_PARTS = ("observations", "log_probs", "values", "actions", "rewards", "episode_ends")
UPDATE_PARTS = ("advantages", "returns", "curriculum", "environments", "parameters", "optimiser", "random")
PARTS = ROLLOUT_PARTS + UPDATE_PARTS
STEP_DIGITS = 4  # hexadecimal, of a decision's digest
_WEIGHTS = torch.from_numpy(
    np.random.default_rng(0).integers(0, 2**63, 1 << 16, dtype=np.int64) << 1 | 1
)  # odd; half a MiB stays in a core's cache


class TrailError(UserError, ValueError):
    """A digest trail that cannot be read; the message names file, line and remedy."""


Row = dict[str, Any]  # one line of a trail


class DigestTrail(PPOCallback):
    """Writes the trail of one training; give it to ``learn`` before callbacks that change the policy.

    folder: of the run.
    A run that goes on continues its trail: lines of updates that are done again are dropped first.  Raises TrailError where
    it does not go on with the state that its last line was made of.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self.path = folder / TRAIL_FILE
        self._recorded = 0  # updates in the trail

    def _on_training_start(self) -> None:
        self._recorded = self.model.updates
        kept = (
            [row for row in read_trail(self.path.parent) if row["update"] <= self._recorded] if self._recorded else []
        )
        if kept and kept[-1]["update"] == self._recorded:
            restored = state_digests(self.model)
            if lost := [part for part, digest in restored.items() if kept[-1]["digests"].get(part, digest) != digest]:
                raise TrailError(
                    f"{self.path}: {', '.join(lost)} are not restored as they were after update {self._recorded}, so the "
                    "run would be another one: go on from another checkpoint (--previous-checkpoint), or begin a new run"
                )
        write_text(self.path, "".join(map(_line, kept)))
        if not self._recorded:
            self._append(state_digests(self.model), {})

    def _on_rollout_start(self) -> None:
        self._record()

    def _on_training_end(self) -> None:
        self._record()

    def _on_step(self) -> bool:
        return True

    def _record(self) -> None:
        """Note the latest update, once."""
        ppo = self.model
        if ppo.updates > self._recorded:
            self._recorded = ppo.updates
            digests, steps = rollout_digests(ppo.rollout_buffer)
            self._append(digests | state_digests(ppo), steps)

    def _append(self, digests: Mapping[str, str], steps: Mapping[str, str]) -> None:
        ppo = self.model
        row = {"update": ppo.updates, "decisions": ppo.num_timesteps, "schedule": schedule(ppo)}
        append_text(self.path, _line(row | {"digests": digests, "steps": steps}))


def _line(row: Row) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"


def schedule(ppo: PPO) -> dict[str, float]:
    """What the latest update weighed by: it follows from the progress of training, and with a time budget from the clock."""
    return {
        "learning_rate": float(ppo.policy.optimizer.param_groups[0]["lr"]),
        "pull_towards_reference": ppo.kl_penalty_scale,
        "critic_only": float(ppo.critic_only),
        "progress": ppo.progress,
    }


def rollout_digests(buffer: RolloutBuffer) -> tuple[dict[str, str], dict[str, str]]:
    """(part -> digest of all decisions, part -> STEP_DIGITS digits for each decision in turn) of a rollout."""
    digests, steps = {}, {}
    for part in ROLLOUT_PARTS:
        fields = list(buffer.obs.values()) if part == "observations" else [getattr(buffer, part)]
        rows = [_short(row.tobytes()) for row in np.concatenate([row_sums(field) for field in fields], axis=1)]
        digests[part] = combined(*rows)
        steps[part] = "".join(row[:STEP_DIGITS] for row in rows)
    for part in ("advantages", "returns"):
        digests[part] = tensor_hash(getattr(buffer, part))
    return digests, steps


def state_digests(ppo: PPO) -> dict[str, str]:
    """Part -> digest of what the next update begins with."""
    environments = torch.from_numpy(ppo.sim.snapshot(slice(None)))
    return {
        "curriculum": combined(json.dumps(ppo.sampler.state_dict(), sort_keys=True, default=_array_hash)),
        "environments": combined(tensor_hash(environments)),
        "parameters": combined(*_of_tensors(ppo.policy.state_dict())),
        "optimiser": combined(*_of_tensors(ppo.policy.optimizer.state_dict())),
        "random": combined(
            json.dumps(ppo.rng.bit_generator.state, sort_keys=True), tensor_hash(ppo.action_rng.get_state())
        ),
    }


def _of_tensors(state: Mapping[Any, Any]) -> Iterator[str]:
    """Names and hashes of all tensors in nested dictionaries and lists, and whatever else there is, as text."""
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
    """16 hexadecimal digits that depend on every part and on their order."""
    return _short("\n".join(map(str, parts)).encode())


def _short(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def tensor_hash(tensor: torch.Tensor) -> str:
    """16 hexadecimal digits that depend on every bit of a tensor, and on its size."""
    return _short(f"{tensor.nbytes} ".encode() + row_sums(tensor.detach().reshape(1, -1)).tobytes())


def _array_hash(values: np.ndarray) -> str:
    digest = tensor_hash(torch.from_numpy(values)) if values.size else ""
    return f"{values.dtype} {values.shape} {digest}"


def row_sums(rows: torch.Tensor) -> np.ndarray:
    """int64[R, blocks]: sums that change with every bit of each of R rows of any dtype and shape, at the speed of memory.

    The 64-bit words of a row are multiplied by fixed odd weights and summed up modulo 2^64, block by block: a word that
    changes always changes its block's sum, several at once but for one case in 2^64.  Observations of an update are up
    to a hundred megabytes; cryptographic hashes of these would take a tenth of its time.
    Source: Lemire & Kaser 2014, "Strongly universal string hashing is fast" (multilinear hashing).
    """
    data = rows.contiguous().reshape(len(rows), -1).view(torch.uint8)
    if data.shape[1] % 8 or data.storage_offset() % 8:  # words begin at multiples of 8; zeros fill up the last one
        data = torch.nn.functional.pad(data, (0, -data.shape[1] % 8)).clone()
    words = data.view(torch.int64)
    weights = _WEIGHTS.to(words.device)
    sums = [_products(block, weights[: block.shape[1]]) for block in words.split(len(weights), dim=1)]
    return torch.stack(sums, dim=1).cpu().numpy()


def _products(block: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """int64[R] of int64[R, W] and int64[W]; CUDA has no product of whole-number matrices."""
    return block @ weights if block.device.type == "cpu" else (block * weights).sum(dim=1)


# ---------------------------------------------------------------------------------------------------------------------
# Reading and comparing


def read_trail(folder: Path) -> list[Row]:
    """The lines of a run's trail, by update; [] where it has none.  A last line that was cut off by a crash is left out."""
    path = folder / TRAIL_FILE
    if not path.is_file():
        return []
    remedy = "it was changed by hand, or is another file: delete it, and compare without it"
    lines = read_bytes(path, TrailError, MAX_TRAIL_BYTES, remedy).split(b"\n")
    rows = []
    for number, line in enumerate(lines[:-1], 1):  # what follows the last line break was cut off, or is nothing
        place = f"{path}, line {number}"
        row = parse_json(line, place, TrailError, remedy)
        if wrong := mismatch(row, {"update": int, "digests": {...: str}}):
            raise TrailError(f"{place}: no line of a digest trail ({wrong}); {remedy}")
        rows.append(row)
    return sorted(rows, key=lambda row: row["update"])


@dataclass(frozen=True)
class Divergence:
    """Where two trails part.

    update: the first one that differs; 0 is the state before training.
    part: of PARTS, the first in which it does.
    decision: number of the rollout's first decision that differs, from 1; None where that is unknown, or plays no role.
    others: further parts that differ in this update.
    schedule: name -> (value of the one, value of the other), of what the update weighed by, where it differs.
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
    """Where two trails differ first, over the updates and parts that both have; None where they do not."""
    theirs = {row["update"]: row for row in b}
    for row in a:
        other = theirs.get(row["update"])
        if other is not None and (parts := _different(row["digests"], other["digests"])):
            part, decision = _first_part(row, other, parts)
            others = tuple(name for name in parts if name != part)
            return Divergence(row["update"], part, decision, others, _schedule_differences(row, other))
    return None


def _different(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """Parts in both that differ, those that PARTS knows first."""
    names = [*(part for part in PARTS if part in a), *(part for part in a if part not in PARTS)]
    return [name for name in names if name in b and a[name] != b[name]]


def _first_part(a: Row, b: Row, parts: Sequence[str]) -> tuple[str, int | None]:
    """(part, decision) where two rows differ first: within a rollout, actions lead to observations as well as follow them."""
    steps = [
        (decision, parts.index(part), part)
        for part in parts
        if (decision := _first_step(a.get("steps", {}).get(part, ""), b.get("steps", {}).get(part, ""))) is not None
    ]
    if not steps:
        return parts[0], None
    decision, _, part = min(steps)
    return part, decision + 1


def _first_step(a: str, b: str) -> int | None:
    """Number of the first decision whose digits differ; None where none does, or the rollouts are of different length."""
    if len(a) != len(b):
        return None
    return next(
        (i // STEP_DIGITS for i in range(0, len(a), STEP_DIGITS) if a[i:][:STEP_DIGITS] != b[i:][:STEP_DIGITS]), None
    )


def _schedule_differences(a: Row, b: Row) -> dict[str, tuple[float, float]]:
    one, other = a.get("schedule", {}), b.get("schedule", {})
    return {name: (one[name], other[name]) for name in one if name in other and one[name] != other[name]}
