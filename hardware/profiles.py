"""The named hardware profiles.

Their predecessors collected up to two million decisions per update (1024 environments x 2048 decisions), so that a
whole run had a handful of updates.  Here a rollout is 64 decisions, environments stay many, and each learning rate is
the base 3e-4 times the root of the number of GPUs, as before.
"""

import difflib
from dataclasses import dataclass

from hardware.detect import GB, Gpu, Machine
from nppsim.errors import UserError


class PlanError(UserError, ValueError):
    """No plan can be made: the message says which number does not fit, and what to change."""


@dataclass(frozen=True)
class Profile:
    """Settings for one kind of machine.

    num_envs, rollout_length (decisions), minibatch_size: totals over all GPUs; learning_rate None: PPO's own default.
    gpus, gpu_name, gpu_memory_gb, bf16: the accelerators.  cores, memory_gb: host; used to plan for a machine one
    does not have.
    """

    name: str
    num_envs: int
    rollout_length: int
    minibatch_size: int
    learning_rate: float | None
    cores: int
    memory_gb: float
    gpus: int = 0
    gpu_name: str = ""
    gpu_memory_gb: float = 0.0
    bf16: bool = False

    def machine(self) -> Machine:
        """The machine that this profile is made for, as a description (``present`` is False)."""
        memory = int(self.memory_gb * GB)
        gpu = Gpu(self.gpu_name, int(self.gpu_memory_gb * GB), self.bf16)
        return Machine(f"profile {self.name}", self.cores, memory, memory, gpus=(gpu,) * self.gpus, present=False)


AUTO = "auto"  # no fixed numbers: everything follows from the machine, the observations and the length of the run

PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile("8xA100-80GB", 1024, 64, 8192, 8.49e-4, 96, 1000, 8, "A100-80GB", 80, True),
        Profile("8xA100-40GB", 768, 64, 6144, 8.49e-4, 96, 1000, 8, "A100-40GB", 40, True),
        Profile("1xA100-80GB", 256, 64, 2048, 3e-4, 12, 120, 1, "A100-80GB", 80, True),
        Profile("8xV100-32GB", 512, 64, 4096, 8.49e-4, 40, 480, 8, "V100-32GB", 32, False),
        Profile("cpu-testing", 64, 32, 256, None, 2, 8),
    )
}
PROFILE_NAMES = (*PROFILES, AUTO)


def find_profile(name: str | None) -> Profile | None:
    """The profile of this name; None for "auto" (or None).  PlanError names the nearest one for anything else."""
    if name is None or name == AUTO:
        return None
    if name not in PROFILES:
        near = difflib.get_close_matches(name, PROFILE_NAMES, n=1, cutoff=0.3)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise PlanError(f"unknown hardware profile {name!r}; {hint}known: {', '.join(PROFILE_NAMES)}")
    return PROFILES[name]
