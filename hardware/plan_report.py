"""Report on a plan: sizes, the largest sizes that fit, and the expected duration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hardware.detect import GB
from hardware.memory import MemoryNeeds, UpdateMemory, total
from hardware.plan import Plan
from hardware.profiles import PlanError
from hardware.sizes import Sizes
from nppsim.files import table

MILLION = 1_000_000
MAX_SEARCHED = 1 << 20  # the largest number of environments and rollout length are searched up to this limit


@dataclass(frozen=True)
class Speed:
    """Training speed of PPO; the time includes rollouts and updates."""

    decisions_per_s: float
    source: str  # description of the measurement

    def minutes(self, decisions: int) -> float:
        """Return the training time for ``decisions`` decisions, in minutes."""
        return decisions / self.decisions_per_s / 60


@dataclass(frozen=True)
class PlanReport:
    """Plan for one architecture, or the error that prevents it."""

    architecture: str
    plan: Plan | PlanError
    update: UpdateMemory  # memory of a gradient step, as used by the plan
    speed: Speed | None = None  # training speed, or None if unknown

    def __str__(self) -> str:
        """Format the plan, the largest sizes and the duration; raise the PlanError if there is no plan."""
        if isinstance(self.plan, PlanError):
            raise self.plan
        sizes = [f"{name} {value:,}" for name, value in largest(self.plan, self.update)._asdict().items()]
        lines = [
            str(self.plan),
            "",
            f"largest value of each size that fits, with the other sizes unchanged: {', '.join(sizes)}",
            self._duration(),
        ]
        return "\n".join(lines)

    def _duration(self) -> str:
        assert isinstance(self.plan, Plan)
        if self.speed is None:
            return "duration: unknown for this network on this kind of machine; run this command there with --measure"
        steps = self.plan.total_timesteps
        time = f"{_minutes(self.speed.minutes(steps or MILLION))} for {steps or MILLION:,} decisions of PPO alone"
        return f"duration: {time} ({self.speed.decisions_per_s:,.0f} decisions/s; {self.speed.source})"

    def to_dict(self) -> dict:
        """Return plain values for JSON; "error" replaces a missing plan."""
        if isinstance(self.plan, PlanError):
            return {"architecture": self.architecture, "error": str(self.plan)}
        speed = self.speed and {"decisions_per_s": self.speed.decisions_per_s, "source": self.speed.source}
        steps = self.plan.total_timesteps
        return self.plan.to_dict() | {
            "architecture": self.architecture,
            "largest": largest(self.plan, self.update)._asdict(),
            "speed": speed,
            "minutes": self.speed.minutes(steps) if self.speed and steps else None,
        }


def plan_table(reports: Sequence[PlanReport], total_timesteps: int | None) -> str:
    """Format a table with one row per architecture.  total_timesteps: decisions per run; None: one million."""
    steps = total_timesteps or MILLION
    amount = f"{steps / MILLION:g} M" if steps >= MILLION else f"{steps:,}"
    header = (
        *("architecture", "envs", "rollout", "minibatch", "precision", "host GB", "GPU GB"),
        *("most envs", "longest rollout", "largest minibatch", f"{amount} decisions"),
    )
    rows, notes = [], []
    for report in reports:
        made = report.plan
        if isinstance(made, PlanError):
            rows.append((report.architecture, *["–"] * (len(header) - 1)))
            notes.append(f"{report.architecture}: {made}")
            continue
        rows.append((
            report.architecture,
            *(made.num_envs, made.rollout_length, made.minibatch_size, made.precision),
            f"{made.host_bytes / GB:.2f}",
            f"{made.device_bytes / GB:.2f}" if made.gpus else "–",
            *(f"{size:,}" for size in largest(made, report.update)),
            _minutes(report.speed.minutes(steps)) if report.speed else "unknown",
        ))  # fmt: skip
    sources = sorted({report.speed.source for report in reports if report.speed})
    notes += [f"durations: of PPO alone; {source}" for source in sources]
    return "\n".join([table(header, rows), "", *notes])


def _minutes(minutes: float) -> str:
    return f"{minutes:.1f} min" if minutes < 60 else f"{minutes / 60:.1f} h"


def largest(plan: Plan, update: UpdateMemory) -> Sizes:
    """Return the largest value of each size that fits into memory while the other sizes are unchanged.

    update: memory of a gradient step, as used by the plan.
    The number of environments and the rollout length are doubled while they fit, so that the minibatch size still divides
    the number of decisions per update.
    """
    needs = MemoryNeeds(plan.observations, update, plan.gpus, plan.stacking, carried_bytes=plan.carried_bytes)
    planned = Sizes(plan.num_envs, plan.rollout_length, plan.minibatch_size)

    def fits(sizes: Sizes) -> bool:
        rows = needs.rows(*sizes)
        return total(rows, "host") <= plan.host_budget and (
            not plan.gpus or total(rows, "device") <= plan.device_budget
        )

    def with_minibatch(size: int) -> bool:
        return size % needs.processes == 0 and fits(planned._replace(minibatch_size=size))

    batch = planned.num_envs * planned.rollout_length
    return Sizes(
        _doubled(planned.num_envs, lambda size: fits(planned._replace(num_envs=size))),
        _doubled(planned.rollout_length, lambda size: fits(planned._replace(rollout_length=size))),
        max(size for size in range(planned.minibatch_size, batch + 1) if batch % size == 0 and with_minibatch(size)),
    )


def _doubled(size: int, fits: Callable[[int], bool]) -> int:
    """Double ``size`` while the result fits and is at most MAX_SEARCHED; return the last size."""
    while 2 * size <= MAX_SEARCHED and fits(2 * size):
        size *= 2
    return size
