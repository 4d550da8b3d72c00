"""Checklist that compares the learning of a run with that of successful runs.

    for item in checklist(folder):
        print(item.mark, item.criterion, item.figure)

A criterion is undecided if its step was not reached, its data were not stored, or the measured change is within noise.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from nppsim.io.files import table
from nppsim.measure.intervals import mean_over_levels
from rl.evaluation.results import ResultsError, read_history
from rl.events import EventsError, Scalars, read_scalars
from rl.ppo.logs import TENSORBOARD_FOLDER

EARLY, LATE = 100_000, 500_000  # decisions at which criteria are evaluated
UPDATE_S = 30.0  # largest duration of an update in seconds
HOURS = 2.0  # largest duration of the first EARLY decisions, in hours
MIN_UPDATES = 8  # number of updates of the actor needed for a trend
MIN_KL = 1e-7  # nats; an update with a smaller KL divergence trained the critic alone
NOISE_STDS = 2.0  # a change below this number of standard deviations within a quarter of a curve is noise
DEV_SUCCESS = "success on the dev levels exceeds that of the BC policy"
UNDECIDED = "undecided"


@dataclass(frozen=True)
class ChecklistItem:
    """Result of one criterion.  met: None if undecided; figure: the measured value, or the reason."""

    criterion: str
    met: bool | None
    figure: str

    @property
    def mark(self) -> str:
        """The result as ✓, ✗ or UNDECIDED."""
        return UNDECIDED if self.met is None else "✓" if self.met else "✗"

    def to_dict(self) -> dict[str, object]:
        """Return plain values for results.json and the report."""
        return {"criterion": self.criterion, "verdict": self.mark, "figure": self.figure, "met": self.met}


Curves = Mapping[str, Scalars]
Outcome = tuple[bool | None, str]  # ``met`` and ``figure`` of a ChecklistItem


def checklist(folder: Path) -> list[ChecklistItem]:
    """Evaluate the criteria on the run in a folder.  Without scalars, criteria on curves are undecided."""
    items = [ChecklistItem(DEV_SUCCESS, *_dev_success(folder))]
    curves: Curves | None = None
    try:
        curves = read_scalars(folder / TENSORBOARD_FOLDER)
    except EventsError as error:
        reason = str(error).partition(":")[2].strip()
    for criterion, evaluate in CRITERIA.items():
        try:
            items.append(ChecklistItem(criterion, *((None, reason) if curves is None else evaluate(curves))))
        except KeyError as missing:
            items.append(ChecklistItem(criterion, None, f"this run has no curve {missing.args[0]}"))
    return items


def checklist_table(items: list[ChecklistItem]) -> str:
    """Format the items as a table."""
    return table(("criterion", "", "measured"), [(item.criterion, item.mark, item.figure) for item in items], "lll")


def _dev_success(folder: Path) -> Outcome:
    """Compare the second half of the evaluations after updates with that of the BC policy, paired by level."""
    try:
        history = read_history(folder)
    except ResultsError as error:
        return None, str(error)
    if history is None or len(history.decisions) < 2 or history.decisions[0] != 0:
        return None, "no evaluations of the BC policy and of a later policy"
    first, latest = history.success[0], history.success[1 + (len(history.decisions) - 1) // 2 :]
    change = mean_over_levels(latest.mean(axis=0) - first, history.episodes)
    before, after = (
        100 * float(np.average(success, weights=history.episodes)) for success in (first, latest.mean(axis=0))
    )
    over = f"mean of the last {len(latest)} evaluations" if len(latest) > 1 else "last evaluation"
    figure = f"{before:.1f} % → {after:.1f} % ({over})"
    if change.low is None or change.high is None:  # the change is the same on all levels
        return (change.value > 0 if change.value else None), figure
    interval = f"{100 * change.value:+.1f} [{100 * change.low:.1f}, {100 * change.high:.1f}] points"
    return (change.value > 0 if change.low > 0 or change.high < 0 else None), f"{figure}, {interval}"


def _success_at(wanted: float, step: int, curves: Curves) -> Outcome:
    line = curves["rollout/success_rate"]
    if line.steps[-1] < step:
        return None, f"{line.values[-1]:.0%} after {line.steps[-1]:,}"
    success = float(line.values[np.searchsorted(line.steps, step)])
    return success > wanted, f"{success:.0%}"


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
    """Compare the means of the last and the first quarter of a curve, over updates of the actor.

    direction: 1 for a rise, -1 for a fall.
    """
    line, kl = curves[tag], curves["train/approx_kl"]
    values = line.values[np.isin(line.steps, kl.steps[kl.values > MIN_KL])]
    if len(values) < MIN_UPDATES:
        return None, f"{len(values)} updates of the actor are too few for a trend"
    quarters = values[: len(values) // 4], values[-(len(values) // 4) :]
    first, last = (float(quarter.mean()) for quarter in quarters)
    noise = NOISE_STDS * float(np.sqrt(np.mean([quarter.var() for quarter in quarters])))
    figure = f"{first:+.3g} → {last:+.3g} (first and last quarter of {len(values)} updates of the actor; "
    figure += f"noise ±{noise:.2g})"
    return (None if abs(last - first) <= noise else direction * (last - first) > 0), figure


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
