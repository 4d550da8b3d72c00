"""Checks of the files of runs and agents, and a checklist that compares the learning of a run with that of good runs.

    for item in checklist(folder):
        print(item.mark, item.criterion, item.figure)

Criteria are evaluated on the scalars of the run.  A criterion is undecided if, for example, its step was not reached.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from nppsim.io.files import table
from rl.checks.doctor import STORED, UPDATE, CheckSkipped, CheckWarned, check, require
from rl.events import EventsError, Scalars, read_scalars, require_tags
from rl.ppo.logs import BOARD
from rl.training.alarms import REQUIRED_TAGS

MAY_BE_NAN = ("train/explained_variance",)  # NaN if all returns of a rollout are equal
CHANGING = ("train/loss", "train/value_loss", "train/approx_kl", "train/grad_norm", "train/n_updates")
EARLY, LATE = 100_000, 500_000  # decisions at which criteria are evaluated
UPDATE_S = 30.0  # largest duration of an update in seconds
HOURS = 2.0  # largest duration of the first EARLY decisions, in hours
MIN_POINTS = 8  # number of values needed for a trend
UNDECIDED = "undecided"


@check(UPDATE, STORED)
def scalars_are_complete(folder: Path) -> str:
    """Check that the main scalars of a run are in its event files, and that their values are finite and change."""
    scalars = require_tags(folder / BOARD, REQUIRED_TAGS)
    broken = [tag for tag, line in scalars.items() if not np.isfinite(line.values).all() and tag not in MAY_BE_NAN]
    require(not broken, f"not finite: {', '.join(broken[:6])}", "the run has diverged: lower --initial-lr")
    require_changes(scalars)
    return f"{len(scalars)} tags, {max(len(line.values) for line in scalars.values())} rows"


def require_changes(scalars: Mapping[str, Scalars]) -> None:
    """Raise CheckFailed for a scalar that is constant over the updates.

    Zeros are ignored, because some of these scalars are 0 while only the critic is trained.
    """
    learned = {tag: scalars[tag].values[scalars[tag].values != 0] for tag in CHANGING}
    still = [tag for tag, values in learned.items() if len(values) > 2 and np.ptp(values) == 0]
    require(not still, f"constant: {', '.join(still)}", "nothing is learned: look at --initial-lr and the rewards")


@check(STORED)
def the_run_did_not_slow_down(folder: Path) -> str:
    """Check that rollouts in the last fifth of a run are at most a fifth slower than in the first fifth."""
    scalars = read_scalars(folder / BOARD)
    speed = scalars["sim/decisions_per_s"].values[1:] if "sim/decisions_per_s" in scalars else np.empty(0)
    if len(speed) < 20:
        raise CheckSkipped(f"{len(speed)} rollouts are too few for a trend")
    part = len(speed) // 5
    early, late = float(np.median(speed[:part])), float(np.median(speed[-part:]))
    found = f"{early:,.0f} decisions/s at first, {late:,.0f} at the end"
    if late < 0.8 * early:
        raise CheckWarned(found, "look for other programs or growing memory; use scripts/perf_benchmark.py --profile")
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The checklist


@dataclass(frozen=True)
class Item:
    """Result of one criterion."""

    criterion: str
    met: bool | None  # None if undecided
    figure: str  # text with the measured value

    @property
    def mark(self) -> str:
        """The result as ✓, ✗ or UNDECIDED."""
        return UNDECIDED if self.met is None else "✓" if self.met else "✗"

    def to_dict(self) -> dict[str, object]:
        """Return plain values for results.json and the report."""
        return {"criterion": self.criterion, "verdict": self.mark, "figure": self.figure, "met": self.met}


Curves = Mapping[str, Scalars]
Outcome = tuple[bool | None, str]  # ``met`` and ``figure`` of an Item


def checklist(folder: Path) -> list[Item]:
    """Evaluate CRITERIA on the run in a folder.  Without scalars, all criteria are undecided."""
    try:
        curves = read_scalars(folder / BOARD)
    except EventsError as error:
        reason = str(error).partition(":")[2].strip()
        return [Item(criterion, None, reason) for criterion in CRITERIA]
    items = []
    for criterion, evaluate in CRITERIA.items():
        try:
            items.append(Item(criterion, *evaluate(curves)))
        except KeyError as missing:
            items.append(Item(criterion, None, f"this run has no curve {missing.args[0]}"))
    return items


def checklist_table(items: list[Item]) -> str:
    """Format the items as a table."""
    return table(("criterion", "", "measured"), [(one.criterion, one.mark, one.figure) for one in items], "lll")


def _success_at(wanted: float, step: int, curves: Curves) -> Outcome:
    line = curves["rollout/success_rate"]
    if line.steps[-1] < step:
        return None, f"{line.values[-1]:.0%} after {line.steps[-1]:,}"
    found = float(line.values[np.searchsorted(line.steps, step)])
    return found > wanted, f"{found:.0%}"


def _success_on_simplest(wanted: float, curves: Curves) -> Outcome:
    line = curves["curriculum_stages/simplest_success_rate"]
    values = line.values[line.steps <= LATE]
    if not values.size:
        return None, f"first update after {LATE:,} decisions"
    best = float(values.max())
    return (True if best > wanted else False if line.steps[-1] >= LATE else None), f"{best:.0%}"


def _update_time(curves: Curves) -> Outcome:
    """Compare the median time of a rollout and its update with the limit."""
    speed = curves["sim/decisions_per_s"]
    rollout = float(np.median(np.diff(speed.steps, prepend=0) / np.maximum(speed.values, 1e-9)))
    seconds = rollout + float(np.median(curves["sim/update_s"].values))
    return seconds < UPDATE_S, f"{seconds:.1f} s, including {rollout:.1f} s for the rollout"


def _early_time(curves: Curves) -> Outcome:
    line = curves["time/fps"]
    reached = line.steps[-1] >= EARLY
    rate = float(line.values[np.searchsorted(line.steps, EARLY) if reached else -1])
    minutes = EARLY / max(rate, 1e-9) / 60
    return minutes < 60 * HOURS, f"{minutes:.1f} min{'' if reached else ' (projected)'}"


def _first_stage(curves: Curves) -> Outcome:
    line = curves["curriculum/current_stage_idx"]
    later = line.steps[line.values > line.values[0]]
    if later.size:
        return bool(later[0] <= LATE), f"after {later[0]:,} decisions"
    return (False if line.steps[-1] >= LATE else None), f"in its first stage after {line.steps[-1]:,}"


def _trend(tag: str, direction: int, curves: Curves) -> Outcome:
    """Compare the means of the last and the first quarter of a curve.  direction: 1 for a rise, -1 for a fall."""
    values = curves[tag].values
    if len(values) < MIN_POINTS:
        return None, f"{len(values)} points of {tag}"
    part = len(values) // 4
    first, last = float(values[:part].mean()), float(values[-part:].mean())
    return direction * (last - first) > 0, f"{first:+.3g} → {last:+.3g} (first and last quarter)"


def _returns(curves: Curves) -> Outcome:
    """Check that returns rise.  Undecided if they fall after a change of stage, which makes levels harder."""
    met, figure = _trend("rollout/ep_rew_mean", 1, curves)
    stage = curves.get("curriculum/current_stage_idx")
    if met is False and stage is not None and stage.values[-1] > stage.values[0]:
        return None, f"{figure}, while the curriculum advanced to harder levels"
    return met, figure


CRITERIA: dict[str, Callable[[Curves], Outcome]] = {
    f"success of the latest episodes above 10 % after {EARLY:,} decisions": partial(_success_at, 0.10, EARLY),
    f"success of the latest episodes above 20 % after {LATE:,} decisions": partial(_success_at, 0.20, LATE),
    f"success on simplest levels above 20 % within {LATE:,} decisions": partial(_success_on_simplest, 0.20),
    f"an update takes less than {UPDATE_S:.0f} s": _update_time,
    f"{EARLY:,} decisions take less than {HOURS:.0f} h": _early_time,
    f"the curriculum leaves its first stage within {LATE:,} decisions": _first_stage,
    "returns rise": _returns,
    "the policy's loss falls": partial(_trend, "train/policy_gradient_loss", -1),
}
