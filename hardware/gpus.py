"""Known GPU models, for plans for other machines.

Compute capabilities: https://developer.nvidia.com/cuda-gpus.
"""

from hardware.detect import GB, Gpu, fast_bf16
from hardware.profiles import PlanError
from nppsim.errors import did_you_mean

# Name -> memory in GB, compute capability.
KNOWN: dict[str, tuple[int, float]] = {
    "GTX-1080-Ti": (11, 6.1),
    "P100": (16, 6.0),
    "V100-16GB": (16, 7.0),
    "V100-32GB": (32, 7.0),
    "T4": (16, 7.5),
    "RTX-2080-Ti": (11, 7.5),
    "A100-40GB": (40, 8.0),
    "A100-80GB": (80, 8.0),
    "A10": (24, 8.6),
    "A40": (48, 8.6),
    "RTX-3060": (12, 8.6),
    "RTX-3090": (24, 8.6),
    "L4": (24, 8.9),
    "L40S": (48, 8.9),
    "RTX-4070": (12, 8.9),
    "RTX-4090": (24, 8.9),
    "H100": (80, 9.0),
    "H200": (141, 9.0),
    "B200": (180, 10.0),
    "RTX-5090": (32, 12.0),
}


def known_gpu(name: str) -> Gpu:
    """Return the GPU model ``name``; raise PlanError with the nearest name if it is unknown."""
    found = {known.lower(): known for known in KNOWN}.get(name.lower())
    if found is None:
        raise PlanError(f"unknown GPU {name!r}; known: {', '.join(KNOWN)}{did_you_mean(name, KNOWN)}")
    memory_gb, capability = KNOWN[found]
    return Gpu(found, memory_gb * GB, fast_bf16(capability))
