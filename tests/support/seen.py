"""Random observations of the vision-free layout, for tests of networks."""

import numpy as np

from nppsim.observe import layout


def observations(size, seed=0):
    """Return a dictionary of arrays [size, ...] like that of a simulator."""
    rng = np.random.default_rng(seed)
    return {
        spec.key: rng.integers(0, 256, (size, *spec.shape), dtype=np.uint8)
        if spec.dtype == "uint8"
        else (rng.normal(size=(size, *spec.shape)) * spec.scale).astype(np.float32)
        for spec in (layout.SPECS[key] for key in layout.VISION_FREE)
    }
