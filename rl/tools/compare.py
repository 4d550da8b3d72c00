"""Comparison of two groups of trainings A and B, seed by seed: first divergence and its cause, learning, speed.

    comparison, = compare_runs(find_runs(old), find_runs(new), Tolerance())
    print(comparison.text())
    comparison.different        # True if there is a difference beyond the tolerance

Divergences are found in digest files, which have hashes of each update (``rl.training.digests``).
With ``Tolerance(exact=True)``, only these count.
Learning is measured by success on the dev levels.  Differences are paired by level and seed, and confidence intervals are
over levels and seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nppsim.io.files import table
from nppsim.measure.intervals import Estimate, mean_difference, ratio_of_means
from rl.evaluation.comparison import Comparison, compare, format_difference
from rl.evaluation.results import ALL, History, ResultsError, level_wins
from rl.events import Scalars
from rl.training.digests import Divergence, first_divergence
from rl.training.runs import StoredRun, differences, explanation

GRID = 50  # number of points at which learning curves are compared
RETURN = "rollout/ep_rew_mean"
DELIVERED = "success on dev levels, delivered policy, %"
OVER_TRAINING = "success on dev levels, mean over training, %"


@dataclass(frozen=True)
class Tolerance:
    """Accepted differences.

    success: accepted difference of success rates on the dev levels (0 to 1), even if significant.
    speed: accepted relative difference of the time per decision.
    exact: if True, only the digests count: each training must have a partner with the same ones.
    """

    success: float = 0.0
    speed: float = 0.1
    exact: bool = False


@dataclass(frozen=True)
class DigestComparison:
    """Comparison of the digest files of two trainings.

    seed: common seed; None if the seeds differ.
    updates: number of lines that both files have, including the state before training; 0 if a file is missing.
    divergence: first difference, or None.
    cause: explanation of the divergence.
    alone: number of lines that only one of the two files has.
    """

    seed: int | None
    updates: int
    divergence: Divergence | None
    cause: str
    alone: int = 0

    @property
    def same(self) -> bool:
        """True if both digest files have the same lines."""
        return self.updates > 0 and self.divergence is None and not self.alone

    def __str__(self) -> str:
        seed = "" if self.seed is None else f"seed {self.seed}: "
        if not self.updates:
            return f"{seed}no digests to compare"
        text = f"digests are equal in all {self.updates} common records"
        if self.divergence is not None:
            text = f"first divergence at {self.divergence}, {self.cause}"
        alone = f"; {self.alone} update{'s' if self.alone > 1 else ''} only in one of them" if self.alone else ""
        return f"{seed}{text}{alone}"


@dataclass(frozen=True)
class SpeedRow:
    """Seconds per million decisions in one phase of A and B, and their ratio B / A."""

    phase: str
    a: float
    b: float
    ratio: Estimate


@dataclass(frozen=True)
class RunsComparison:
    """Comparison of the trainings of one label (architecture and condition) in A and B.

    seeds: number of pairs of trainings.
    digests: comparison of the digest files of each pair.
    learning: name -> comparison of success on dev levels, B minus A.
    curves: name -> (A, B, B minus A), paired by seed only.
    speed: total, followed by the phases.
    unpaired: trainings without a partner.
    notes: omitted comparisons, with reasons.
    """

    label: str
    seeds: int
    digests: list[DigestComparison]
    learning: dict[str, Comparison]
    curves: dict[str, tuple[float, float, Estimate]]
    speed: list[SpeedRow]
    unpaired: list[str]
    notes: list[str]
    tolerance: Tolerance

    @property
    def reasons(self) -> list[str]:
        """Descriptions of the differences beyond the tolerance."""
        if self.tolerance.exact:
            return [str(digest) for digest in self.digests if not digest.same] + self.unpaired
        reasons = [self.speed_difference] if self.speed_difference else []
        if DELIVERED in self.learning:
            total = self.learning[DELIVERED].categories[ALL]
            differs = total.clear or (total.ci95 is None and total.difference)
            if differs and abs(total.difference) > self.tolerance.success:
                reasons.insert(0, f"success on the dev levels ({100 * total.difference:+.1f} points)")
        return reasons

    @property
    def speed_difference(self) -> str:
        """Description of a difference of the time per decision beyond the tolerance, or ""."""
        ratio, limit = (self.speed[0].ratio if self.speed else Estimate(1.0, None, None)), self.tolerance.speed
        if ratio.low is None or ratio.high is None or (1 - limit <= ratio.high and ratio.low <= 1 + limit):
            return ""
        return f"speed ({ratio.value:.2f} times the time per decision)"

    @property
    def decided(self) -> bool:
        """True if learning was compared, or need not be because all digests are equal."""
        return DELIVERED in self.learning or all(digest.same for digest in self.digests)

    @property
    def different(self) -> bool:
        """True if there is a difference beyond the tolerance."""
        return bool(self.reasons)

    def text(self) -> str:
        """Format the comparison as Markdown."""
        lines = [f"## {self.label}, {self.seeds} seed{'s' if self.seeds > 1 else ''}", "", *map(str, self.digests)]
        rows = []
        for name, comparison in self.learning.items():
            total = comparison.categories[ALL]
            rows.append((name, f"{100 * total.first:.1f}", f"{100 * total.second:.1f}", format_difference(total)))
        rows += [(name, f"{b:.3g}", f"{a:.3g}", str(estimate)) for name, (a, b, estimate) in self.curves.items()]
        if rows:
            lines += ["", table(("learning", "B", "A", "B - A [95 %]"), rows, "lrrr")]
            lines += [comparison.sentence for comparison in list(self.learning.values())[:1]]
        if self.speed:
            rows = [(row.phase, f"{row.a:.1f}", f"{row.b:.1f}", str(row.ratio)) for row in self.speed]
            lines += ["", table(("s per million decisions", "A", "B", "B / A [95 %]"), rows, "lrrr")]
        notes = self.unpaired + self.notes
        if self.tolerance.exact and self.speed_difference:
            notes = [*notes, f"{self.speed_difference}, which does not count with --exact"]
        lines += ["", *(f"note: {note}" for note in notes)] if notes else []
        verdict = "NOT DECIDED: learning could not be compared"
        if self.different:
            verdict = f"different: {'; '.join(self.reasons)}"
        elif self.decided:
            verdict = "digests are equal" if self.tolerance.exact else "no difference beyond the tolerance"
        return "\n".join([*lines, "", verdict])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain = {name: getattr(self, name) for name in ("label", "seeds", "unpaired", "notes", "reasons")}
        return plain | {
            "digests": [asdict(digest) | {"text": str(digest)} for digest in self.digests],
            "learning": {name: comparison.to_dict() for name, comparison in self.learning.items()},
            "curves": {name: {"a": a, "b": b, "difference": asdict(e)} for name, (a, b, e) in self.curves.items()},
            "speed": [asdict(row) for row in self.speed],
            "tolerance": asdict(self.tolerance),
            "different": self.different,
            "decided": self.decided,
        }


def compare_runs(a: Sequence[StoredRun], b: Sequence[StoredRun], tolerance: Tolerance) -> list[RunsComparison]:
    """Compare B with A, label by label.  Raises ResultsError if no trainings can be paired."""
    pairs, unpaired = _pair_up(a, b)
    comparisons = []
    for label, rows in pairs.items():
        notes: list[str] = []
        for one, other in rows:
            if one.finished != other.finished:
                unfinished = other if one.finished else one
                notes.append(f"{unfinished.folder}: this training has not finished, but its partner has")
        learning = _learning(rows, notes)
        if len(rows) == 1 and learning:
            notes.append(
                "one seed on each side: the intervals are for these two policies and ignore variation of seeds"
            )
        digests = [_digests(one, other) for one, other in rows]
        speed = _speed(rows, notes)
        comparisons.append(
            RunsComparison(label, len(rows), digests, learning, _curves(rows), speed, unpaired, notes, tolerance)
        )
    return comparisons


def _pair_up(
    a: Sequence[StoredRun], b: Sequence[StoredRun]
) -> tuple[dict[str, list[tuple[StoredRun, StoredRun]]], list[str]]:
    """Return the pairs of trainings with equal label and seed, by label, and descriptions of trainings without a partner.

    Labels may differ if each side has a single label.  Seeds may differ if each side has a single training.
    """
    single_label = len({run.label for run in a}) == len({run.label for run in b}) == 1
    pairs: dict[str, list[tuple[StoredRun, StoredRun]]] = {}
    for first in a:
        partners = [other for other in b if single_label or other.label == first.label]
        same_seed = [other for other in partners if other.seed == first.seed]
        if chosen := same_seed or (partners if len(a) == len(b) == 1 else []):
            name = first.label if first.label == chosen[0].label else f"{first.label} against {chosen[0].label}"
            pairs.setdefault(name, []).append((first, chosen[0]))
    if not pairs:
        remedy = "give trainings with the same label and seed, or one on each side"
        raise ResultsError(f"no trainings of equal label and seed: A has {_names(a)}; B has {_names(b)}; {remedy}")
    paired = {id(run) for rows in pairs.values() for pair in rows for run in pair}
    return pairs, [f"without a partner: {_names([run])}" for run in (*a, *b) if id(run) not in paired]


def _names(runs: Sequence[StoredRun]) -> str:
    return ", ".join(f"{run.label} seed {run.seed}" for run in runs)


def _digests(one: StoredRun, other: StoredRun) -> DigestComparison:
    divergence = first_divergence(one.digests, other.digests)
    cause = "" if divergence is None else explanation(divergence, differences([one.metadata, other.metadata]))
    first, second = ({row["update"] for row in run.digests} for run in (one, other))
    seed = one.seed if one.seed == other.seed else None
    return DigestComparison(seed, len(first & second), divergence, cause, alone=len(first ^ second))


# ---------------------------------------------------------------------------------------------------------------------
# Learning


def _learning(pairs: Sequence[tuple[StoredRun, StoredRun]], notes: list[str]) -> dict[str, Comparison]:
    """Compare success on dev levels, of the delivered policies and as mean over the decisions that all runs reached."""
    runs = [run for side in zip(*pairs, strict=True) for run in side]
    histories = [run.history for run in runs if run.history is not None and len(run.history.decisions)]
    if len(histories) < len(runs):
        missing = next(run for run in runs if run.history is None or not len(run.history.decisions))
        notes.append(f"learning is not compared: {missing.folder} has no success on each dev level")
        return {}
    try:
        level_wins(histories, [history.success[0] for history in histories])
    except ResultsError as error:
        notes.append(f"learning is not compared: {error}")
        return {}
    counts = [len(history.decisions) for history in histories]
    if len(set(counts)) > 1:
        notes.append(
            f"numbers of evaluations differ ({', '.join(map(str, counts))}): the best of more evaluations is biased upwards"
        )
    grid = common_grid([history.decisions for history in histories])
    shares = {
        DELIVERED: [record.delivered(_guarded(run)) for record, run in zip(histories, runs, strict=True)],
        OVER_TRAINING: [_on_grid(history, grid).mean(axis=0) for history in histories],
    }
    half = len(pairs)
    return {
        name: compare("B", "A", level_wins(histories[half:], part[half:]), level_wins(histories[:half], part[:half]))
        for name, part in shares.items()
    }


def _guarded(run: StoredRun) -> bool:
    """Return True if the weights that were best on the dev levels were delivered, False for the last weights."""
    entry = run.metadata["settings"].get("evaluation.retention_guard")
    return entry is None or entry.value == "True"


def common_grid(decisions: Sequence[np.ndarray]) -> np.ndarray:
    """Return numbers of decisions float64[GRID] in the common range of all series; one number without such a range."""
    first, last = max(float(d[0]) for d in decisions), min(float(d[-1]) for d in decisions)
    return np.linspace(first, last, GRID) if first < last else np.array([min(first, last)])


def _on_grid(history: History, grid: np.ndarray) -> np.ndarray:
    """Interpolate success linearly between evaluations.  grid: decisions [G].  Returns float64[G, L]."""
    at = np.interp(grid, history.decisions, np.arange(len(history.decisions)))
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, len(history.decisions) - 1)
    part = (at - low)[:, None]
    return (1 - part) * history.success[low] + part * history.success[high]


def _curves(pairs: Sequence[tuple[StoredRun, StoredRun]]) -> dict[str, tuple[float, float, Estimate]]:
    """Compare the mean return over training, paired by seed."""
    if any(RETURN not in run.scalars for pair in pairs for run in pair):
        return {}
    series = [[run.scalars[RETURN] for run in pair] for pair in pairs]
    grid = common_grid([scalars.steps for row in series for scalars in row])
    a, b = np.array([[np.interp(grid, s.steps, s.values).mean() for s in row] for row in series]).T
    return {"return per training episode, mean": (float(a.mean()), float(b.mean()), mean_difference(b, a))}


# ---------------------------------------------------------------------------------------------------------------------
# Speed


def _speed(pairs: Sequence[tuple[StoredRun, StoredRun]], notes: list[str]) -> list[SpeedRow]:
    """Compare the time per decision, in total and by phase; [] if the machines differ."""
    machines = {run.machine_key for pair in pairs for run in pair}
    if len(machines) > 1:
        notes.append(f"speed is not compared: {' / '.join(sorted(machines))}")
        return []
    costs = [[seconds_per_decision(run.scalars) for run in side] for side in zip(*pairs, strict=True)]
    if any(not len(cost) for side in costs for cost in side):
        notes.append("speed is not compared: a training has not logged any update")
        return []
    a, b = (np.concatenate(side) for side in costs)
    rows = [_speed_row("all", a.sum(axis=1), b.sum(axis=1))]
    rows += [_speed_row(name, a[:, i], b[:, i]) for i, name in enumerate(("rollout", "update"))]
    speeds = [[run.speed for run in pair if run.speed] for pair in pairs]
    if any(len(row) < 2 for row in speeds):
        return rows
    for phase in speeds[0][0]["share"]:  # known for finished trainings only
        if all(phase in entry["share"] for row in speeds for entry in row):
            x, y = np.array([[entry["share"][phase] / entry["decisions_per_s"] for entry in row] for row in speeds]).T
            rows += [_speed_row(f"of these: {phase}", x, y)] if (x > 0).all() and (y > 0).all() else []
    return rows


def _speed_row(phase: str, a: np.ndarray, b: np.ndarray) -> SpeedRow:
    """Compare seconds per decision of A and B."""
    return SpeedRow(phase, 1e6 * float(a.mean()), 1e6 * float(b.mean()), ratio_of_means(b, a))


def seconds_per_decision(scalars: Mapping[str, Scalars]) -> np.ndarray:
    """Return seconds per decision of each rollout and its update, float64[updates, 2], without the slow first update."""
    if not {"sim/decisions_per_s", "sim/update_s"} <= scalars.keys():
        return np.empty((0, 2))
    rates, updates = scalars["sim/decisions_per_s"], scalars["sim/update_s"]
    # an update is logged together with the next rollout, and the last update at the end of training
    count = min(len(rates.steps), len(updates.steps))
    sizes = np.diff(rates.steps, prepend=0)[:count]
    costs = np.stack([1 / rates.values[:count], updates.values[:count] / sizes], axis=1)
    return costs[1:] if count > 2 else costs
