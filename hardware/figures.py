"""Stored measurements of memory and speed of each architecture, for plans without a new measurement.

``python -m hardware plan --measure`` measures the same quantities on the current machine.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hardware.memory import UpdateMemory, observation_bytes
from nppsim.observe.stacking import NO_STACKS, Stacking

# Speeds were measured on 2026-11-25: two updates on the shipped levels, median of three rounds.
MACHINE = "two cores of an AMD EPYC (Zen 4, AVX512-BF16, no AMX)"


@dataclass(frozen=True)
class Figures:
    """Memory and speed of one architecture."""

    update: UpdateMemory  # memory of a gradient step in float32 on the CPU
    decisions_per_s: float | None  # speed of PPO with the sizes of a plan for MACHINE; None: unknown


def _figures(fixed_bytes: int, bytes_per_sample: int, decisions_per_s: float) -> Figures:
    return Figures(UpdateMemory(fixed_bytes, bytes_per_sample, "stored figure"), decisions_per_s)


FIGURES: dict[str, Figures] = {
    "mlp_baseline": _figures(10_070_704, 78_489, 7_700),
    "mlp_baseline_foresight": _figures(11_266_736, 81_657, 6_300),
    "vision_free": _figures(3_983_216, 6_162, 40_000),
    "vision_free_foresight": _figures(5_181_296, 9_298, 19_000),
    "full_hgt": _figures(2_510_068, 1_188_279, 1_800),
    "simplified_hgt": _figures(8_794_164, 222_227, 3_400),
    "gat": _figures(11_025_316, 218_590, 3_300),
    "gcn": _figures(12_404_756, 136_641, 4_400),
    "no_global_view": _figures(10_716_436, 102_321, 4_600),
    "vision_free_gat": _figures(4_679_844, 141_546, 14_000),
    "vision_free_gcn": _figures(5_991_188, 69_409, 17_000),
    "vision_free_simplified": _figures(3_894_068, 145_311, 13_000),
    "attention": _figures(6_082_836, 73_625, 9_900),
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
    For suffixes (NAME+gru, NAME+subtasks, frame stacks), measured additional memory is added.  The speed of networks with
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
    source = f"{known.update.source} of {plain}, plus stored figures of +{'+'.join(parts)}"
    return Figures(UpdateMemory(fixed, per_sample, source), None)
