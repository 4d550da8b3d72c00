"""First difference between two digest files, which have hashes of each update of a run (``rl.ppo.digests``).

print(first_divergence(read_trail(one), read_trail(other)))     # update 137, decision 12: log_probs
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rl.ppo.digests import PARTS, STEP_DIGITS, Row


@dataclass(frozen=True)
class Divergence:
    """First difference between two digest files."""

    update: int  # number of the update; 0: state before training
    part: str  # first of PARTS that differs
    decision: int | None  # number of the first decision of the rollout that differs, from 1; None if unknown
    others: tuple[str, ...]  # other parts that differ in this update
    schedule: dict[str, tuple[float, float]]  # name -> values in both runs, of scheduled settings that differ

    def __str__(self) -> str:
        moment = "before training" if self.update == 0 else f"update {self.update}"
        return f"{moment}{f', decision {self.decision}' if self.decision else ''}: {self.part}"


def first_divergence(a: Sequence[Row], b: Sequence[Row]) -> Divergence | None:
    """Return the first difference in the updates and parts that both files have, or None."""
    theirs = {row["update"]: row for row in b}
    for row in a:
        other = theirs.get(row["update"])
        if other is not None and (parts := _different(row["digests"], other["digests"])):
            part, decision = _first_part(row, other, parts)
            others = tuple(name for name in parts if name != part)
            return Divergence(row["update"], part, decision, others, _schedule_differences(row, other))
    return None


def _different(a: Mapping[str, str], b: Mapping[str, str]) -> list[str]:
    """Return the parts that differ, in the order of PARTS, with unknown parts last."""
    names = [*(part for part in PARTS if part in a), *(part for part in a if part not in PARTS)]
    return [name for name in names if name in b and a[name] != b[name]]


def _first_part(a: Row, b: Row, parts: Sequence[str]) -> tuple[str, int | None]:
    """Return (part, decision) of the first difference between two rows: earliest decision first, then order of parts."""
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
    """Return the index of the first decision whose digest differs.

    Returns None if no decision differs, or if the numbers of decisions differ.
    """
    if len(a) != len(b):
        return None
    return next((i // STEP_DIGITS for i in range(len(a)) if a[i] != b[i]), None)


def _schedule_differences(a: Row, b: Row) -> dict[str, tuple[float, float]]:
    one, other = a.get("schedule", {}), b.get("schedule", {})
    return {name: (one[name], other[name]) for name in one if name in other and one[name] != other[name]}
