"""Proof that a checkpoint holds what it was written from: it is read back, and compared bit for bit."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl.policy import checkpoint
from rl.policy.checkpoint import CheckpointError
from rl.policy.policy import NppPolicy


def write(
    path: Path, policy: NppPolicy, *, frame_skip: int, config: Mapping | None = None, training: Mapping | None = None
) -> Path:
    """``checkpoint.save``, read back: CheckpointError unless the file holds these very weights and this state."""
    checkpoint.save(path, policy, frame_skip=frame_skip, config=config, training=training)
    found = checkpoint.load(path)
    check_same(found["policy"], dict(policy.state_dict()), path, "weights.")
    check_same(found["training"], training, path, "training.")
    check_same(found["config"], config or {}, path, "config.")
    return path


def check_same(found: Any, wanted: Any, path: Path, place: str) -> None:
    """CheckpointError unless two pieces of nested data are the same, bit for bit; names what is not."""
    wrong = list(differences(found, wanted, place))
    if wrong:
        raise CheckpointError(
            f"{path}: {len(wrong)} parts are not what they were written from, e.g. {', '.join(wrong[:4])}: whoever goes on "
            "from this file would go on from somewhere else; please report this"
        )


def differences(found: Any, wanted: Any, place: str = "") -> Iterator[str]:
    """Places in nested dictionaries, lists, tensors, arrays and plain values that differ."""
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        for name in {**found, **wanted}:
            if name not in found or name not in wanted:
                yield f"{place}{name}"
            else:
                yield from differences(found[name], wanted[name], f"{place}{name}.")
    elif isinstance(found, (list, tuple)) and isinstance(wanted, (list, tuple)):
        if len(found) != len(wanted):
            yield place.rstrip(".")
        else:
            for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
                yield from differences(one, other, f"{place}{number}.")
    elif not _same(found, wanted):
        yield place.rstrip(".")


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(found, torch.Tensor) and isinstance(wanted, torch.Tensor):
        return found.dtype == wanted.dtype and bool(torch.equal(found.cpu(), wanted.cpu()))
    if isinstance(found, np.ndarray) and isinstance(wanted, np.ndarray):
        return found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()
    return bool(found == wanted) or (found != found and wanted != wanted)
