"""Proof that what only looks at a training has changed nothing of it.

with untouched(ppo, "an evaluation"):
    ...
"""

import contextlib
import json
import zlib
from collections.abc import Iterator

import torch

from rl.curriculum.statistics import as_json
from rl.distributed.ranks import checksum
from rl.ppo.ppo import BatchPPO, DivergedError


@contextlib.contextmanager
def untouched(ppo: BatchPPO, what: str) -> Iterator[None]:
    """DivergedError if weights, random numbers, environments or curriculum are others afterwards.  what: comes between."""
    before = _sums(ppo)
    yield
    changed = [name for name, total in _sums(ppo).items() if total != before[name]]
    if changed:
        raise DivergedError(
            f"{what} has changed {', '.join(changed)} of the training that it only looks at: the run would depend on how "
            "often that is done; please report this"
        )


def _sums(ppo: BatchPPO) -> dict[str, int | bool]:
    shuffling = (json.dumps(ppo.rng.bit_generator.state) + as_json(ppo.sampler.state_dict())).encode()
    return {
        "the weights": checksum(ppo.policy.state_dict()),
        "the network's mode": ppo.policy.training,
        "the random numbers": zlib.crc32(ppo.sampling.get_state().numpy().tobytes()),
        "torch's random numbers": zlib.crc32(torch.get_rng_state().numpy().tobytes()),
        "the order of decisions or the curriculum": zlib.crc32(shuffling),
        "the environments": zlib.crc32(ppo.sim.snapshot(slice(None)).tobytes()),
    }
