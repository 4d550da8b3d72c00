"""What each architecture needs, measured once: for plans where nothing is measured.

``python -m hardware plan --measure`` prints the same for the machine it runs on.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hardware.memory import UpdateMemory, observation_bytes
from nppsim.observe.stacking import NO_STACKS, Stacking

# Of the speeds: 2026-11-25, two updates of each on the levels that come with the package; medians of three rounds.
MACHINE = "two cores of an AMD EPYC (Zen 4, AVX512-BF16, no AMX)"


@dataclass(frozen=True)
class Figures:
    """Of one architecture.

    update: memory of a gradient step in float32, on the CPU.
    decisions_per_s: of PPO alone, rollouts and updates, with the sizes that a plan for MACHINE has; None: not measured.
    """

    update: UpdateMemory
    decisions_per_s: float | None


def _figures(fixed_bytes: int, bytes_per_sample: int, decisions_per_s: float) -> Figures:
    return Figures(UpdateMemory(fixed_bytes, bytes_per_sample, "stored figure"), decisions_per_s)


FIGURES: dict[str, Figures] = {
    "mlp_baseline": _figures(10_070_704, 78_489, 7_700),
    "mlp_baseline_foresight": _figures(11_266_736, 81_657, 6_300),
    "vision_free": _figures(3_983_216, 6_162, 40_000),
    "vision_free_foresight": _figures(5_181_296, 9_298, 19_000),
    "full_hgt": _figures(4_582_828, 1_175_565, 1_800),
    "simplified_hgt": _figures(9_046_156, 220_710, 3_400),
    "gat": _figures(11_274_328, 217_050, 3_300),
    "gcn": _figures(12_516_408, 135_951, 4_400),
    "no_global_view": _figures(10_828_088, 101_631, 4_600),
    "vision_free_gat": _figures(4_928_856, 140_006, 14_000),
    "vision_free_gcn": _figures(6_102_840, 68_719, 17_000),
    "vision_free_simplified": _figures(4_146_060, 143_794, 13_000),
    "attention": _figures(6_194_488, 72_935, 9_900),
}

# What a part behind the + of a name adds: (fixed bytes, bytes per sample).  Measured like the rest; the same for all of the
# above, as the layers before their heads are 256 wide.
ADDED = {"gru": (1_562_624, 4_361), "subtasks": (767_584, 1_641)}
# Likewise, per sample: a pixel as it is gathered, as it is cut up and as its patch; vectors add 2.
BYTES_PER_STACKED_BYTE = 3


def on_gpu(update: UpdateMemory) -> UpdateMemory:
    """What is taken on a GPU where only a CPU's figure is known: twice as much, for what CUDA's operations need beside."""
    return UpdateMemory(2 * update.fixed_bytes, 2 * update.bytes_per_sample, f"{update.source} of a CPU, doubled")


def stored_figures(architecture: str, observations: Iterable[str], stacking: Stacking = NO_STACKS) -> Figures | None:
    """Those of an architecture; None for one that is not shipped.

    observations, stacking: what it reads.
    Memory, subtasks and stacks of frames add the bytes that they were measured to add; how fast such a network is, was not
    measured.  Deep heads (NAME+deepN) need little more than plain ones.
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
    source = f"{known.update.source} of {plain}, and of what +{'+'.join(parts)} adds"
    return Figures(UpdateMemory(fixed, per_sample, source), None)
