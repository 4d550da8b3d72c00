"""Stored measurements of memory and speed of each architecture, for plans without a new measurement.

``python -m hardware plan --measure`` measures the same quantities on the current machine.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hardware.data import read_data
from hardware.memory import UpdateMemory, observation_bytes
from nppsim.observe.stacking import NO_STACKS, Stacking

MACHINE = "two cores of an AMD EPYC (Zen 4, AVX512-BF16, no AMX)"


@dataclass(frozen=True)
class Figures:
    """Memory and speed of one architecture."""

    update: UpdateMemory  # memory of a gradient step in float32 on the CPU
    decisions_per_s: float | None  # speed of PPO with the sizes of a plan for MACHINE; None: unknown


FIGURES: dict[str, Figures] = {
    name: Figures(UpdateMemory(fixed_bytes, bytes_per_sample, "stored figure"), decisions_per_s)
    for name, (fixed_bytes, bytes_per_sample, decisions_per_s) in read_data("figures").items()
}

# Additional memory (fixed bytes, bytes per sample) for a suffix of a name, e.g. of mlp_baseline+gru.  It is equal for all
# architectures, because the layer before the heads always has 256 units.
ADDED = {"gru": (1_562_624, 4_361), "subtasks": (767_584, 1_641)}
# Bytes of memory per byte of stacked frames: one each for a gathered pixel, its crop and its patch.
BYTES_PER_STACKED_BYTE = 3


def on_gpu(update: UpdateMemory) -> UpdateMemory:
    """Estimate GPU memory as twice the CPU figure, to allow for CUDA's workspaces."""
    return UpdateMemory(2 * update.fixed_bytes, 2 * update.bytes_per_sample, f"{update.source} of a CPU, doubled")


def stored_figures(architecture: str, observations: Iterable[str], stacking: Stacking = NO_STACKS) -> Figures | None:
    """Return the stored memory and speed of a shipped architecture; None for other architectures.

    observations, stacking: observation keys and frame stacking of the architecture.
    For suffixes (NAME+gru, NAME+subtasks, frame stacks), measured additional memory is added; NAME+mirror doubles the
    memory per sample.  The speed of networks with
    suffixes was not measured.
    Deep heads (NAME+deepN) need little more memory than plain ones; the difference is ignored.
    """
    plain, *suffixes = architecture.split("+")
    known = FIGURES.get(plain)
    parts = [suffix for suffix in suffixes if not suffix.startswith("deep")]
    if known is None or not parts:
        return known
    frames = observation_bytes(observations, stacking) - observation_bytes(observations)
    fixed, per_sample = known.update.fixed_bytes, known.update.bytes_per_sample + BYTES_PER_STACKED_BYTE * frames
    for name, (fixed_more, more) in ADDED.items():
        if any(part.startswith(name) for part in parts):
            fixed, per_sample = fixed + fixed_more, per_sample + more
    if "mirror" in parts:
        per_sample *= 2
    source = f"{known.update.source} of {plain}, plus stored figures of +{'+'.join(parts)}"
    return Figures(UpdateMemory(fixed, per_sample, source), None)
