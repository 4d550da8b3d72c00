"""Report on a plan: sizes and the expected duration."""

from collections.abc import Sequence
from dataclasses import dataclass

from hardware.detect import GB
from hardware.plan import Plan
from hardware.profiles import PlanError
from nppsim.io.files import table

MILLION = 1_000_000


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
    speed: Speed | None = None  # training speed, or None if unknown

    def __str__(self) -> str:
        """Format the plan and the duration; raise the PlanError if there is no plan."""
        if isinstance(self.plan, PlanError):
            raise self.plan
        return f"{self.plan}\n{self._duration()}"

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
            "speed": speed,
            "minutes": self.speed.minutes(steps) if self.speed and steps else None,
        }


def plan_table(reports: Sequence[PlanReport], total_timesteps: int | None) -> str:
    """Format a table with one row per architecture.  total_timesteps: decisions per run; None: one million."""
    steps = total_timesteps or MILLION
    amount = f"{steps / MILLION:g} M" if steps >= MILLION else f"{steps:,}"
    header = ("architecture", "envs", "rollout", "minibatch", "precision", "host GB", "GPU GB", f"{amount} decisions")
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
            _minutes(report.speed.minutes(steps)) if report.speed else "unknown",
        ))  # fmt: skip
    sources = sorted({report.speed.source for report in reports if report.speed})
    notes += [f"durations: of PPO alone; {source}" for source in sources]
    return "\n".join([table(header, rows), "", *notes])


def _minutes(minutes: float) -> str:
    return f"{minutes:.1f} min" if minutes < 60 else f"{minutes / 60:.1f} h"
