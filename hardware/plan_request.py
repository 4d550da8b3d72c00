"""Sizes and settings that a user fixes for the hardware plan."""

from dataclasses import dataclass, fields

from hardware.profiles import AUTO, PlanError, find_profile

PRECISIONS = ("float32", "bf16")
DEVICES = ("cpu", "cuda")


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
