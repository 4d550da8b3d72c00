"""What each architecture needs, measured once: for plans where nothing is measured.

``python -m hardware plan --measure`` prints the same for the machine it runs on.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hardware.memory import UpdateMemory, observation_bytes
from nppsim.observe.stacking import NO_STACKS, Stacking

# Of the speeds: 2026-11-22, one update of each after one that warmed up, on the levels that come with the package; for those
# measured twice the faster one.
MACHINE = "two cores of an AMD EPYC (Zen 5, AVX512-BF16, no AMX) that others used, too"


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
    "mlp_baseline": _figures(15_046_256, 158_803, 3_500),
    "mlp_baseline_foresight": _figures(16_244_336, 161_939, 3_100),
    "vision_free": _figures(3_983_216, 9_411, 30_000),
    "vision_free_foresight": _figures(5_181_296, 12_547, 14_000),
    "full_hgt": _figures(9_151_916, 1_179_694, 1_300),
    "simplified_hgt": _figures(11_246_732, 304_967, 1_900),  # by processor time beside gat's: the clock was disturbed
    "gat": _figures(15_186_520, 301_691, 2_000),
    "gcn": _figures(17_165_880, 221_360, 2_200),
    "no_global_view": _figures(13_304_888, 129_760, 2_800),
    "vision_free_gat": _figures(4_928_856, 143_255, 11_000),
    "vision_free_gcn": _figures(6_102_840, 71_968, 16_000),
    "vision_free_simplified": _figures(4_146_060, 147_043, 11_000),
    "attention": _figures(6_194_488, 76_184, 7_000),
}

# What a part behind the + of a name adds: (fixed bytes, bytes per sample).  Measured like the rest; the same for all of the
# above, as the layers before their heads are 256 wide.
ADDED = {"gru": (1_562_624, 4_361), "subtasks": (767_584, 1_641)}
BYTES_PER_STACKED_BYTE = 5  # likewise, per sample: a pixel, and the float32 that is made of it; vectors add 2


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
