"""Requests for a hardware plan: named hardware profiles, and single sizes and settings that the user fixes.

Profiles have many environments and short rollouts (64 decisions), so that a run has hundreds of updates.  Learning rates
grow with the square root of the minibatch size.
"""

from dataclasses import dataclass, fields

from hardware.machine import GB, Gpu, Machine, PlanError, known_gpu
from nppsim.errors import did_you_mean

PRECISIONS = ("float32", "bf16")
DEVICES = ("cpu", "cuda")
BASE_LEARNING_RATE = 1e-3  # default of PPO
BASE_MINIBATCH = 4_096  # decisions per minibatch for which BASE_LEARNING_RATE was tuned
AUTO = "auto"  # no profile: the plan chooses sizes by machine, network and length of the run


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

    @property
    def learning_rate(self) -> float | None:
        """Learning rate on GPUs; None on a CPU: the default of PPO.

        The scaling preserves the noise of Adam's steps.  Source: Malladi et al. 2022 (On the SDEs and scaling rules for
        adaptive gradient algorithms).
        """
        return BASE_LEARNING_RATE * (self.minibatch_size / BASE_MINIBATCH) ** 0.5 if self.gpus else None

    def machine(self) -> Machine:
        """Return a description of the profile's machine (``present`` is False)."""
        memory = self.memory_gb * GB
        return Machine(f"profile {self.name}", self.cores, memory, memory, gpus=self.gpus, present=False)


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile("8xA100-80GB", 1024, 64, 8192, cores=96, memory_gb=1000, gpus=(known_gpu("A100-80GB"),) * 8),
        Profile("8xA100-40GB", 768, 64, 6144, cores=96, memory_gb=1000, gpus=(known_gpu("A100-40GB"),) * 8),
        Profile("1xA100-80GB", 256, 64, 2048, cores=12, memory_gb=120, gpus=(known_gpu("A100-80GB"),)),
        Profile("8xV100-32GB", 512, 64, 4096, cores=40, memory_gb=480, gpus=(known_gpu("V100-32GB"),) * 8),
        Profile("cpu-testing", 64, 32, 256, cores=2, memory_gb=8),
    )
}
PROFILE_NAMES = (*PROFILES, AUTO)


def find_profile(name: str) -> Profile | None:
    """Return the profile ``name``, None for "auto"; raise PlanError with the nearest name if it is unknown."""
    if name != AUTO and name not in PROFILES:
        known = ", ".join(PROFILE_NAMES)
        raise PlanError(f"unknown hardware profile {name!r}; known: {known}{did_you_mean(name, PROFILE_NAMES, 0.3)}")
    return PROFILES.get(name)


@dataclass(frozen=True)
class PlanRequest:
    """Sizes and settings fixed by the user; None leaves the choice to the plan.  Raises PlanError for invalid values."""

    total_timesteps: int | None = None  # length of the run in decisions
    profile: str = AUTO  # a name of hardware.PROFILES, or "auto"
    num_envs: int | None = None  # number of environments, over all GPUs
    rollout_length: int | None = None  # decisions per environment and update
    minibatch_size: int | None = None  # decisions per gradient step, over all GPUs
    epochs: int | None = None  # passes over the decisions of an update
    torch_threads: int | None = None
    simulator_threads: int | None = None  # per process
    processes: int | None = None  # training processes, one per GPU; None: one process
    evaluator: bool | None = None  # True if an additional process evaluates during training
    precision: str | None = None  # one of PRECISIONS
    device: str | None = None  # one of DEVICES
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise PlanError(f"{field.name}={value}: give an integer of at least 1")
        for name, value, known in (("precision", self.precision, PRECISIONS), ("device", self.device, DEVICES)):
            if value not in (None, *known):
                raise PlanError(f"unknown {name} {value!r}; known: {', '.join(known)}")
        find_profile(self.profile)
