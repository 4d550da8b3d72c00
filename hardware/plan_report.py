"""What a person asks of a plan: which sizes, how large they may get, and how long a run takes."""

from collections.abc import Sequence
from dataclasses import dataclass

from hardware.detect import GB
from hardware.limits import largest
from hardware.memory import UpdateMemory
from hardware.plan import Plan
from hardware.profiles import PlanError
from nppsim.files import table

MILLION = 1_000_000


@dataclass(frozen=True)
class Speed:
    """Decisions per second of PPO alone, rollouts and updates.  source: where the figure comes from, in words."""

    decisions_per_s: float
    source: str

    def minutes(self, decisions: int) -> float:
        """Of so many decisions."""
        return decisions / self.decisions_per_s / 60


@dataclass(frozen=True)
class PlanReport:
    """A plan for one architecture, or why there is none.

    update: memory of a gradient step that it was made with.
    speed: None where nothing is known.
    """

    architecture: str
    plan: Plan | PlanError
    update: UpdateMemory
    speed: Speed | None = None

    def __str__(self) -> str:
        """The whole plan, and below it what is largest and how long it takes; PlanError where there is none."""
        if isinstance(self.plan, PlanError):
            raise self.plan
        sizes = [f"{name} {value:,}" for name, value in largest(self.plan, self.update)._asdict().items()]
        lines = [
            str(self.plan),
            "",
            f"largest that fits, each with the rest as it is: {', '.join(sizes)}",
            self._duration(),
        ]
        return "\n".join(lines)

    def _duration(self) -> str:
        assert isinstance(self.plan, Plan)
        if self.speed is None:
            return "duration: nothing is known of this network on this kind of machine; add --measure there"
        steps = self.plan.total_timesteps
        told = f"{_minutes(self.speed.minutes(steps or MILLION))} for {steps or MILLION:,} decisions of PPO alone"
        return f"duration: {told} ({self.speed.decisions_per_s:,.0f} decisions/s; {self.speed.source})"

    def to_dict(self) -> dict:
        """Plain values for JSON; "error" where there is no plan."""
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
    """A table with a row for each architecture; total_timesteps: of the durations, None for a million decisions."""
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
