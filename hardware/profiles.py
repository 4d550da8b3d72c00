"""The named hardware profiles.

Their predecessors collected up to two million decisions per update (1024 environments x 2048 decisions), so that a
whole run had a handful of updates.  Here a rollout is 64 decisions, environments stay many, and learning rates grow with
the root of the minibatch.
"""

from dataclasses import dataclass

from hardware.detect import GB, Gpu, Machine
from nppsim.errors import UserError, did_you_mean

BASE_LEARNING_RATE = 1e-3  # PPO's, where neither a flag nor a profile sets one
BASE_MINIBATCH = 4_096  # decisions; what that rate was measured with
AUTO = "auto"  # no fixed numbers: everything follows from the machine, the observations and the length of the run


class PlanError(UserError, ValueError):
    """No plan can be made: the message says which number does not fit, and what to change."""


@dataclass(frozen=True)
class Profile:
    """Settings for one kind of machine; num_envs and minibatch_size are totals over all GPUs."""

    name: str
    num_envs: int
    rollout_length: int  # decisions
    minibatch_size: int
    cores: int  # with memory_gb: of the host, for a plan for another machine
    memory_gb: int
    gpus: tuple[Gpu, ...] = ()
    learning_rate: float | None = None  # None: PPO's own default

    def machine(self) -> Machine:
        """The machine that this profile is made for, as a description (``present`` is False)."""
        memory = self.memory_gb * GB
        return Machine(f"profile {self.name}", self.cores, memory, memory, gpus=self.gpus, present=False)


_A100_80GB = Gpu("A100-80GB", 80 * GB, bf16=True)
_A100_40GB = Gpu("A100-40GB", 40 * GB, bf16=True)
_V100_32GB = Gpu("V100-32GB", 32 * GB, bf16=False)


def _rate(minibatch_size: int) -> float:
    """Learning rate for larger or smaller minibatches than usual: the noise of Adam's steps stays the same.

    Source: Malladi et al. 2022 (On the SDEs and scaling rules for adaptive gradient algorithms).
    """
    return BASE_LEARNING_RATE * (minibatch_size / BASE_MINIBATCH) ** 0.5


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile("8xA100-80GB", 1024, 64, 8192, cores=96, memory_gb=1000, gpus=(_A100_80GB,) * 8, learning_rate=_rate(8192)),
        Profile("8xA100-40GB", 768, 64, 6144, cores=96, memory_gb=1000, gpus=(_A100_40GB,) * 8, learning_rate=_rate(6144)),
        Profile("1xA100-80GB", 256, 64, 2048, cores=12, memory_gb=120, gpus=(_A100_80GB,), learning_rate=_rate(2048)),
        Profile("8xV100-32GB", 512, 64, 4096, cores=40, memory_gb=480, gpus=(_V100_32GB,) * 8, learning_rate=_rate(4096)),
        Profile("cpu-testing", 64, 32, 256, cores=2, memory_gb=8),
    )
}  # fmt: skip
PROFILE_NAMES = (*PROFILES, AUTO)


def find_profile(name: str) -> Profile | None:
    """The profile of this name; None for "auto".  PlanError names the nearest one for anything else."""
    if name == AUTO:
        return None
    if name not in PROFILES:
        known = ", ".join(PROFILE_NAMES)
        raise PlanError(f"unknown hardware profile {name!r}; known: {known}{did_you_mean(name, PROFILE_NAMES, 0.3)}")
    return PROFILES[name]
