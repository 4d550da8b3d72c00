"""The physics gives the same bits on every processor: a digest of random play, also compiled for a generic one.

``make test-generic`` runs this file with NUMBA_CPU_NAME=generic: no vector instructions beyond the oldest x86-64, no fused
multiply-add.  Its kernels take most of a minute to compile, so it is not part of ``make test``.
"""

import hashlib

import numpy as np

from nppsim import simulate

from worlds import KINDS, mixed_level

FIELDS = ("position", "velocity", "ninja_state", "airborne", "walled", "floor_normal", "gold", "entity_state", "aims")
DIGEST = "04ac8f9b013bfc7a7607e0e528404032a8a2a3ac28d514cdc7831b5c94707a02"
FRAMES = 10_682  # that the digest is over


def test_random_play_has_recorded_digest():
    digest, frames, rng = hashlib.sha256(), 0, np.random.default_rng(0)
    for seed in range(40):
        level = mixed_level(seed, kinds=KINDS[seed % len(KINDS)])
        run = simulate(level, np.repeat(rng.integers(0, 8, 200), 5).astype(np.uint8))
        frames += run.frames
        for field in (*FIELDS, "entity_position"):
            digest.update(np.ascontiguousarray(getattr(run, field)).tobytes())
    assert frames == FRAMES
    assert digest.hexdigest() == DIGEST, "the physics has changed, or depends on the processor"
