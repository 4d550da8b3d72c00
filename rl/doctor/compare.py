"""Two trainings, or several seeds of each, held against each other: what differs, where they part, and whether it hurt.

    comparison = compare_runs(find_runs(old), find_runs(new), Tolerance())
    print(comparison.text())
    comparison.different        # beyond the tolerance

Claims are about the dev levels: they are what choices are made on.  Differences are paired by level and seed where both
sides have played the same levels; the interval counts levels and seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nppsim.files import table
from nppsim.measure.intervals import Estimate, mean_difference, ratio_of_means
from rl.doctor.causes import Difference, differences, explained
from rl.doctor.digests import Divergence, first_divergence
from rl.doctor.runs import Run
from rl.evaluation.comparison import Comparison, compare, format_difference
from rl.evaluation.history import History, level_wins
from rl.evaluation.results import ALL, ResultsError
from rl.events import Scalars

GRID = 50  # decisions at which learning curves are compared
RETURN = "rollout/ep_rew_mean"


@dataclass(frozen=True)
class Tolerance:
    """What still counts as no difference.

    success: of the dev levels, 0 to 1, where the interval excludes 0.
    speed: share by which one may be slower or faster than the other.
    exact: nothing does: all trainings must have a partner, and the same digest trail as it.
    """

    success: float = 0.0
    speed: float = 0.1
    exact: bool = False


@dataclass(frozen=True)
class SeedTrail:
    """How the digest trails of two trainings from one seed compare.

    updates: that both have, the state before training included; 0: one of them has no trail.
    divergence: the first difference; None without.
    because: what explains it, in words.
    alone: updates that only one of them has.
    """

    seed: int | None
    updates: int
    divergence: Divergence | None
    because: str
    alone: int = 0

    @property
    def same(self) -> bool:
        """Whether both have done the same updates, to the same end."""
        return self.updates > 0 and self.divergence is None and not self.alone

    def __str__(self) -> str:
        seed = "" if self.seed is None else f"seed {self.seed}: "
        if not self.updates:
            return f"{seed}no digests to compare"
        told = f"the same in all {self.updates} records of both"
        if self.divergence is not None:
            told = f"first divergence at {self.divergence}, {self.because}"
        alone = f"; {self.alone} update{'s' if self.alone > 1 else ''} only one of them has" if self.alone else ""
        return f"{seed}{told}{alone}"


@dataclass(frozen=True)
class SpeedRow:
    """Seconds per million decisions in one phase, and how the second relates to the first."""

    phase: str
    a: float
    b: float
    ratio: Estimate


@dataclass(frozen=True)
class RunsComparison:
    """Two sides of one label.

    label: of the first side's runs, and of the second's where it is another one.
    seeds: pairs of trainings.
    trails: one for each pair.
    learning: quantity -> success on dev levels, the second against the first; empty where there are none to compare.
    curves: quantity -> (first, second, difference) of what is compared over seeds alone.
    speed: phases; empty where there is nothing to compare.
    unpaired: trainings of one side alone.
    notes: what could not be compared, and why.
    tolerance: what ``different`` holds the figures against.
    """

    label: str
    seeds: int
    trails: list[SeedTrail]
    learning: dict[str, Comparison]
    curves: dict[str, tuple[float, float, Estimate]]
    speed: list[SpeedRow]
    unpaired: list[str]
    notes: list[str]
    tolerance: Tolerance

    @property
    def reasons(self) -> list[str]:
        """What is different beyond the tolerance, in words."""
        found = []
        delivered = self.learning.get(DELIVERED)
        if delivered is not None:
            total = delivered.categories[ALL]
            if (total.clear or (total.ci95 is None and total.difference)) and abs(
                total.difference
            ) > self.tolerance.success:
                found.append(f"success on the dev levels ({100 * total.difference:+.1f} points)")
        for row in self.speed[:1]:
            low, high, limit = row.ratio.low, row.ratio.high, self.tolerance.speed
            if low is not None and high is not None and (low > 1 + limit or high < 1 - limit):
                found.append(f"speed ({row.ratio.value:.2f} times the time)")
        if self.tolerance.exact:
            found += [str(trail) for trail in self.trails if not trail.same] + self.unpaired
        return found

    @property
    def decided(self) -> bool:
        """Whether learning was compared, or need not be: where all digests are the same, it is."""
        return DELIVERED in self.learning or all(trail.same for trail in self.trails)

    @property
    def different(self) -> bool:
        """Whether anything is, beyond the tolerance."""
        return bool(self.reasons)

    def text(self) -> str:
        """For people."""
        lines = [f"## {self.label}, {self.seeds} seed{'s' if self.seeds > 1 else ''}", ""]
        lines += [str(trail) for trail in self.trails]
        if self.learning or self.curves:
            rows = [
                (name, f"{100 * total.first:.1f}", f"{100 * total.second:.1f}", format_difference(total))
                for name, comparison in self.learning.items()
                for total in (comparison.categories[ALL],)
            ]
            rows += [(name, f"{b:.3g}", f"{a:.3g}", str(estimate)) for name, (a, b, estimate) in self.curves.items()]
            lines += ["", table(("learning", "B", "A", "B - A [95 %]"), rows, "lrrr")]
            lines += [comparison.sentence for comparison in list(self.learning.values())[:1]]
        if self.speed:
            rows = [(row.phase, f"{row.a:.1f}", f"{row.b:.1f}", str(row.ratio)) for row in self.speed]
            lines += ["", table(("s per million decisions", "A", "B", "B / A [95 %]"), rows, "lrrr")]
        notes = self.unpaired + self.notes
        lines += ["", *(f"note: {note}" for note in notes)] if notes else []
        verdict = (
            "no difference beyond the tolerance" if self.decided else "NOT DECIDED: learning could not be compared"
        )
        verdict = f"different: {'; '.join(self.reasons)}" if self.different else verdict
        return "\n".join([*lines, "", verdict])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "label": self.label,
            "seeds": self.seeds,
            "trails": [asdict(trail) | {"text": str(trail)} for trail in self.trails],
            "learning": {name: comparison.to_dict() for name, comparison in self.learning.items()},
            "curves": {name: {"a": a, "b": b, "difference": asdict(e)} for name, (a, b, e) in self.curves.items()},
            "speed": [asdict(row) for row in self.speed],
            "unpaired": self.unpaired,
            "notes": self.notes,
            "tolerance": asdict(self.tolerance),
            "reasons": self.reasons,
            "different": self.different,
            "decided": self.decided,
        }


DELIVERED = "success on dev levels, delivered policy, %"
OVER_TRAINING = "success on dev levels, mean over training, %"


def pair_up(a: Sequence[Run], b: Sequence[Run]) -> tuple[dict[str, list[tuple[Run, Run]]], list[str]]:
    """(label -> pairs of trainings of equal seed, those without a partner in words).

    Where each side has one label, or one training, they are pairs whatever their names.  Raises ResultsError where none is.
    """
    labels_a, labels_b = ({run.label for run in runs} for runs in (a, b))
    alone = len(labels_a) == len(labels_b) == 1
    pairs: dict[str, list[tuple[Run, Run]]] = {}
    for one in a:
        partners = [other for other in b if alone or other.label == one.label]
        same_seed = [other for other in partners if other.seed == one.seed]
        chosen = same_seed or (partners if len(a) == len(b) == 1 else [])
        if chosen:
            name = one.label if one.label == chosen[0].label else f"{one.label} against {chosen[0].label}"
            pairs.setdefault(name, []).append((one, chosen[0]))
    if not pairs:
        raise ResultsError(
            f"nothing to compare: {_told(a)} on one side, {_told(b)} on the other; give trainings of the same label and "
            "seed, or one on each side"
        )
    paired = {id(run) for rows in pairs.values() for pair in rows for run in pair}
    return pairs, [f"without a partner: {_told([run])}" for run in (*a, *b) if id(run) not in paired]


def _told(runs: Sequence[Run]) -> str:
    return ", ".join(f"{run.label} seed {run.seed}" for run in runs)


def compare_runs(a: Sequence[Run], b: Sequence[Run], tolerance: Tolerance) -> list[RunsComparison]:
    """The second side against the first, label by label.  Raises ResultsError where nothing can be compared."""
    pairs, unpaired = pair_up(a, b)
    return [_compare(label, rows, tolerance, unpaired) for label, rows in pairs.items()]


def _compare(
    label: str, pairs: Sequence[tuple[Run, Run]], tolerance: Tolerance, unpaired: Sequence[str]
) -> RunsComparison:
    notes = [note for one, other in pairs for note in _unfinished(one, other)]
    found = [_trail(one, other, differences([one.facts, other.facts])) for one, other in pairs]
    learning = _learning(pairs, notes)
    if len(pairs) == 1 and learning:
        notes.append("one seed on each side: the intervals tell of these two policies, not of other seeds")
    return RunsComparison(
        label, len(pairs), found, learning, _curves(pairs), _speed(pairs, notes), list(unpaired), notes, tolerance
    )


def _unfinished(one: Run, other: Run) -> list[str]:
    """A note where one of two trainings is over, and the other is not."""
    if one.finished == other.finished:
        return []
    return [f"{(other if one.finished else one).folder}: this training is not over, and its partner is"]


def _trail(one: Run, other: Run, different: Sequence[Difference]) -> SeedTrail:
    divergence = first_divergence(one.trail, other.trail)
    ours, theirs = ({row["update"] for row in run.trail} for run in (one, other))
    because = "" if divergence is None else explained(divergence, different)
    seed = one.seed if one.seed == other.seed else None
    return SeedTrail(seed, len(ours & theirs), divergence, because, alone=len(ours ^ theirs))


# ---------------------------------------------------------------------------------------------------------------------
# Learning


def _learning(pairs: Sequence[tuple[Run, Run]], notes: list[str]) -> dict[str, Comparison]:
    """Success on dev levels: of what was delivered, and over training on decisions that all have reached."""
    sides: list[list[History]] = [[], []]
    for pair in pairs:
        for side, run in zip(sides, pair, strict=True):
            if run.history is None or not len(run.history.decisions):
                notes.append(f"{run.folder}: no success on dev levels, level by level: learning is not compared")
                return {}
            side.append(run.history)
    everything = sides[0] + sides[1]
    grid = _common_grid([history.decisions for history in everything])
    guards = [[_guarded(run) for run in side] for side in zip(*pairs, strict=True)]
    try:
        level_wins(everything, [history.success[0] for history in everything])
    except ResultsError as error:
        notes.append(f"success is not compared: {error}")
        return {}
    counts = [len(history.decisions) for history in everything]
    if len(set(counts)) > 1:
        notes.append(f"evaluations: {', '.join(map(str, counts))}; the best of more of them is flattered more")
    delivered, over = (
        [level_wins(side, shares) for side, shares in zip(sides, of_sides, strict=True)]
        for of_sides in (
            [[h.delivered(g) for h, g in zip(side, of, strict=True)] for side, of in zip(sides, guards, strict=True)],
            [[_on_grid(history, grid).mean(axis=0) for history in side] for side in sides],
        )
    )
    return {
        DELIVERED: compare("B", "A", delivered[1], delivered[0]),
        OVER_TRAINING: compare("B", "A", over[1], over[0]),
    }


def _guarded(run: Run) -> bool:
    """Whether the best weights on the dev levels were delivered, and not the last ones."""
    fact = run.facts["settings"].get("evaluation.retention_guard")
    return fact is None or fact.value == "True"


def _common_grid(decisions: Sequence[np.ndarray]) -> np.ndarray:
    """float64[GRID]: from the latest first evaluation to the earliest last one; a single number where they do not overlap."""
    first, last = max(float(d[0]) for d in decisions), min(float(d[-1]) for d in decisions)
    return np.linspace(first, last, GRID) if first < last else np.array([min(first, last)])


def _on_grid(history: History, grid: np.ndarray) -> np.ndarray:
    """float64[G, L]: success at these decisions, linear between evaluations."""
    at = np.interp(grid, history.decisions, np.arange(len(history.decisions)))
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, len(history.decisions) - 1)
    part = (at - low)[:, None]
    return (1 - part) * history.success[low] + part * history.success[high]


def _curves(pairs: Sequence[tuple[Run, Run]]) -> dict[str, tuple[float, float, Estimate]]:
    """Means over training of what is no success on levels, paired by seed."""
    series = [[run.scalars.get(RETURN) for run in pair] for pair in pairs]
    known = [[scalars for scalars in row if scalars is not None] for row in series]
    if any(len(row) < 2 for row in known):
        return {}
    grid = _common_grid([scalars.steps for row in known for scalars in row])
    means = np.array([[np.interp(grid, s.steps, s.values).mean() for s in row] for row in known])
    a, b = means.T
    return {"return per training episode, mean": (float(a.mean()), float(b.mean()), mean_difference(b, a))}


# ---------------------------------------------------------------------------------------------------------------------
# Speed


def _speed(pairs: Sequence[tuple[Run, Run]], notes: list[str]) -> list[SpeedRow]:
    """All phases of updates, first their sum; nothing where the machines differ."""
    machines = {run.machine_key for pair in pairs for run in pair}
    if len(machines) > 1:
        notes.append(f"speed is not compared: {' / '.join(sorted(machines))}")
        return []
    costs = [[seconds_per_decision(run.scalars) for run in side] for side in zip(*pairs, strict=True)]
    if any(not len(cost) for side in costs for cost in side):
        notes.append("speed is not compared: a training has logged no update")
        return []
    a, b = (np.concatenate(side) for side in costs)
    phases = {"all": a.sum(axis=1), "rollout": a[:, 0], "update": a[:, 1]}
    others = {"all": b.sum(axis=1), "rollout": b[:, 0], "update": b[:, 1]}
    rows = [_speed_row(name, phases[name], others[name]) for name in phases]
    return rows + _shares(pairs)


def _speed_row(phase: str, a: np.ndarray, b: np.ndarray) -> SpeedRow:
    """a, b: seconds per decision."""
    return SpeedRow(phase, 1e6 * float(a.mean()), 1e6 * float(b.mean()), ratio_of_means(b, a))


def seconds_per_decision(scalars: Mapping[str, Scalars]) -> np.ndarray:
    """float64[updates, 2]: seconds per decision that each rollout and its update took; without the first, which warms up."""
    if not {"sim/decisions_per_s", "sim/update_s"} <= scalars.keys():
        return np.empty((0, 2))
    rates, updates = scalars["sim/decisions_per_s"], scalars["sim/update_s"]
    # an update is logged with the rollout that follows it, the last one at the end of training
    count = min(len(rates.steps), len(updates.steps))
    sizes = np.diff(rates.steps, prepend=0)[:count]
    costs = np.stack([1 / rates.values[:count], updates.values[:count] / sizes], axis=1)
    return costs[1:] if count > 2 else costs


def _shares(pairs: Sequence[tuple[Run, Run]]) -> list[SpeedRow]:
    """Phases inside those, as finished trainings have summed them up; pairs of seeds."""
    entries = [[run.speed for run in pair] for pair in pairs]
    known = [[entry for entry in row if entry] for row in entries]
    if any(len(row) < 2 for row in known):
        return []
    phases = [name for name in known[0][0]["share"] if all(name in entry["share"] for row in known for entry in row)]
    rows = []
    for phase in phases:
        seconds = np.array([[entry["share"][phase] / entry["decisions_per_s"] for entry in row] for row in known])
        a, b = seconds.T
        if (a > 0).all() and (b > 0).all():
            rows.append(_speed_row(f"of these: {phase}", a, b))
    return rows
