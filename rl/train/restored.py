"""Proof that a run which goes on stands where its checkpoint was written."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from rl.policy.checkpoint import CheckpointError
from rl.train.ppo import BatchPPO

MAY_DIFFER = ("spent",)  # of the state: time goes on


def check_restored(ppo: BatchPPO, policy_state: Mapping[str, Any], training: Mapping[str, Any], place: str) -> None:
    """CheckpointError unless weights and training state are those of the checkpoint, bit for bit; names what is not.

    policy_state, training: as they were read.  place: of the checkpoint, for the message.
    """
    now = ppo.training_state()
    wanted = {name: training[name] for name in now if name not in MAY_DIFFER}
    found = {name: value for name, value in now.items() if name not in MAY_DIFFER}
    wrong = [*differences(found, wanted), *differences(dict(ppo.policy.state_dict()), dict(policy_state), "weights.")]
    if wrong:
        raise CheckpointError(
            f"{place}: {len(wrong)} parts were not restored as they were written, e.g. {', '.join(wrong[:4])}: the run would "
            "go on from somewhere else; please report this"
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
