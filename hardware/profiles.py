"""Named hardware profiles, and GPU models for plans for other machines.

Profiles have many environments and short rollouts (64 decisions), so that a run has hundreds of updates.  Learning rates
grow with the square root of the minibatch size.
"""

from dataclasses import dataclass

from hardware.data import read_data
from hardware.detect import GB, Gpu, Machine, fast_bf16
from nppsim.errors import UserError, did_you_mean

BASE_LEARNING_RATE = 1e-3  # default of PPO
BASE_MINIBATCH = 4_096  # decisions per minibatch for which BASE_LEARNING_RATE was tuned
AUTO = "auto"  # no profile: the plan chooses sizes by machine, observations and length of the run


class PlanError(UserError, ValueError):
    """No plan fits, or a request is invalid; the message names the value and the remedy."""


@dataclass(frozen=True)
class Profile:
    """Settings for one kind of machine; num_envs and minibatch_size are totals over all GPUs."""

    name: str
    num_envs: int
    rollout_length: int  # decisions
    minibatch_size: int
    cores: int  # cores of the host; only used in plans for another machine
    memory_gb: int  # memory of the host; only used in plans for another machine
    gpus: tuple[Gpu, ...] = ()
    learning_rate: float | None = None  # None: the default of PPO

    def machine(self) -> Machine:
        """Return a description of the profile's machine (``present`` is False)."""
        memory = self.memory_gb * GB
        return Machine(f"profile {self.name}", self.cores, memory, memory, gpus=self.gpus, present=False)


KNOWN_GPUS: dict[str, tuple[int, float]] = {
    name: (memory_gb, capability) for name, (memory_gb, capability) in read_data("gpus").items()
}
"""Name of a model -> memory in GB, compute capability."""


def known_gpu(name: str) -> Gpu:
    """Return the GPU model ``name``; raise PlanError with the nearest name if it is unknown."""
    found = {known.lower(): known for known in KNOWN_GPUS}.get(name.lower())
    if found is None:
        raise PlanError(f"unknown GPU {name!r}; known: {', '.join(KNOWN_GPUS)}{did_you_mean(name, KNOWN_GPUS)}")
    memory_gb, capability = KNOWN_GPUS[found]
    return Gpu(found, memory_gb * GB, fast_bf16(capability))


def _rate(minibatch_size: int) -> float:
    """Scale the learning rate with the square root of the minibatch size, which preserves the noise of Adam's steps.

    Source: Malladi et al. 2022 (On the SDEs and scaling rules for adaptive gradient algorithms).
    """
    return BASE_LEARNING_RATE * (minibatch_size / BASE_MINIBATCH) ** 0.5


_A100_80GB, _A100_40GB, _V100_32GB = map(known_gpu, ("A100-80GB", "A100-40GB", "V100-32GB"))
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
    """Return the profile ``name``, None for "auto"; raise PlanError with the nearest name if it is unknown."""
    if name == AUTO:
        return None
    if name not in PROFILES:
        known = ", ".join(PROFILE_NAMES)
        raise PlanError(f"unknown hardware profile {name!r}; known: {known}{did_you_mean(name, PROFILE_NAMES, 0.3)}")
    return PROFILES[name]
