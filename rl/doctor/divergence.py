"""First difference of two digest trails.

print(first_divergence(read_trail(one), read_trail(other)))     # update 137, decision 12: log_probs
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rl.ppo.digests import PARTS, STEP_DIGITS, Row


@dataclass(frozen=True)
class Divergence:
    """First difference of two trails.

    update: 0 is the state before training.
    part: the first of PARTS that differs.
    decision: number of the rollout's first decision that differs, from 1; None if unknown.
    others: further parts that differ in this update.
    schedule: name -> both values, of scheduled numbers that differ.
    """

    update: int
    part: str
    decision: int | None
    others: tuple[str, ...]
    schedule: dict[str, tuple[float, float]]

    def __str__(self) -> str:
        place = "before training" if self.update == 0 else f"update {self.update}"
        return f"{place}{f', decision {self.decision}' if self.decision else ''}: {self.part}"


def first_divergence(a: Sequence[Row], b: Sequence[Row]) -> Divergence | None:
    """First difference of two trails in the updates and parts that both have; None without."""
    theirs = {row["update"]: row for row in b}
    for row in a:
        other = theirs.get(row["update"])
        if other is not None and (parts := _different(row["digests"], other["digests"])):
            part, decision = _first_part(row, other, parts)
            others = tuple(name for name in parts if name != part)
            return Divergence(row["update"], part, decision, others, _schedule_differences(row, other))
    return None


def _different(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """Parts that differ, in the order of PARTS, unknown ones last."""
    names = [*(part for part in PARTS if part in a), *(part for part in a if part not in PARTS)]
    return [name for name in names if name in b and a[name] != b[name]]


def _first_part(a: Row, b: Row, parts: Sequence[str]) -> tuple[str, int | None]:
    """(part, decision) in which two rows differ first: within a rollout the decision comes before the part."""
    steps = [
        (decision, parts.index(part), part)
        for part in parts
        if (decision := _first_step(a.get("steps", {}).get(part, ""), b.get("steps", {}).get(part, ""))) is not None
    ]
    if not steps:
        return parts[0], None
    decision, _, part = min(steps)
    return part, decision + 1


def _first_step(a: str, b: str) -> int | None:
    """Number of the first decision whose digits differ; None without, or for rollouts of different lengths."""
    if len(a) != len(b):
        return None
    return next((i // STEP_DIGITS for i in range(len(a)) if a[i] != b[i]), None)


def _schedule_differences(a: Row, b: Row) -> dict[str, tuple[float, float]]:
    one, other = a.get("schedule", {}), b.get("schedule", {})
    return {name: (one[name], other[name]) for name in one if name in other and one[name] != other[name]}
