"""The checklist at a run's end: did it learn as fast, and as quickly, as a sound run does?

    for item in checklist(folder):
        print(item.mark, item.criterion, item.figure)

Every figure is read from the run's curves.  What cannot be judged, as its step was not
reached or there are no stages, is neither met nor missed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nppsim.files import table
from rl.events import EventsError, Scalars, read_scalars

EARLY, LATE = 100_000, 500_000  # decisions
UPDATE_S = 30.0
HOURS = 2.0  # for EARLY decisions
MIN_POINTS = 8  # of a curve, to speak of a rise or fall
NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Item:
    """One criterion.

    met: None where it cannot be judged.
    figure: what was measured, in words.
    """

    criterion: str
    met: bool | None
    figure: str

    @property
    def mark(self) -> str:
        """✓, ✗, or that it cannot be judged."""
        return NOT_JUDGED if self.met is None else "✓" if self.met else "✗"

    def to_dict(self) -> dict[str, object]:
        """Plain values, for results.json and the report."""
        return {"criterion": self.criterion, "verdict": self.mark, "figure": self.figure, "met": self.met}


def checklist(folder: Path) -> list[Item]:
    """The items of the run in a folder; all are "not judged" where it has no curves."""
    try:
        curves = read_scalars(folder / "tensorboard")
    except EventsError as error:
        curves, why = {}, str(error).partition(":")[2].strip()
    else:
        why = ""
    return [
        _success_at(curves, "rollout/success_rate", "success of the latest episodes", 0.10, EARLY, why),
        _success_at(curves, "rollout/success_rate", "success of the latest episodes", 0.20, LATE, why),
        _success_until(curves, "curriculum_stages/simplest_success_rate", "success on simplest levels", 0.20, why),
        _update_time(curves, why),
        _hours(curves, why),
        _advanced(curves, why),
        _returns(curves, why),
        _trend(curves, "train/policy_gradient_loss", "the policy's loss falls", -1, why),
    ]


def checklist_table(items: list[Item]) -> str:
    """For printing."""
    return table(("criterion", "", "measured"), [(one.criterion, one.mark, one.figure) for one in items], "lll")


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _success_at(curves: Mapping[str, Scalars], tag: str, what: str, wanted: float, step: int, why: str) -> Item:
    """Success when ``step`` decisions are over."""
    criterion = f"{what} above {_percent(wanted)} after {step:,} decisions"
    line = curves.get(tag)
    if line is None or line.steps[-1] < step:
        last = f"{_percent(line.values[-1])} after {line.steps[-1]:,}" if line is not None else why or f"no {tag}"
        return Item(criterion, None, last)
    found = float(line.values[np.searchsorted(line.steps, step)])
    return Item(criterion, found > wanted, _percent(found))


def _success_until(curves: Mapping[str, Scalars], tag: str, what: str, wanted: float, why: str) -> Item:
    """The best success within LATE decisions."""
    criterion = f"{what} above {_percent(wanted)} within {LATE:,} decisions"
    line = curves.get(tag)
    if line is None or not (line.steps <= LATE).any():
        return Item(criterion, None, why or f"no {tag}: no such levels are trained on")
    values = line.values[line.steps <= LATE]
    best, met = float(values.max()), bool((values > wanted).any())
    return Item(criterion, met if met or line.steps[-1] >= LATE else None, _percent(best))


def _update_time(curves: Mapping[str, Scalars], why: str) -> Item:
    """Rollout and gradient steps together, in the middle of all updates."""
    criterion = f"an update takes less than {UPDATE_S:.0f} s"
    names = ("sim/update_s", "sim/decisions_per_s")
    if any(name not in curves for name in names):
        return Item(criterion, None, why or "no update was logged")
    learning, speed = (curves[name] for name in names)
    steps = np.diff(np.concatenate([[0], speed.steps]))
    playing = float(np.median(steps / np.maximum(speed.values, 1e-9)))
    seconds = playing + float(np.median(learning.values))
    return Item(criterion, seconds < UPDATE_S, f"{seconds:.1f} s, {playing:.1f} of them for the rollout")


def _hours(curves: Mapping[str, Scalars], why: str) -> Item:
    criterion = f"{EARLY:,} decisions take less than {HOURS:.0f} h"
    line = curves.get("time/fps")
    if line is None:
        return Item(criterion, None, why or "no time/fps")
    reached = line.steps[-1] >= EARLY
    rate = float(line.values[np.searchsorted(line.steps, EARLY) if reached else -1])
    minutes = EARLY / max(rate, 1e-9) / 60
    return Item(criterion, minutes < 60 * HOURS, f"{minutes:.1f} min{'' if reached else ' (projected)'}")


def _advanced(curves: Mapping[str, Scalars], why: str) -> Item:
    criterion = f"the curriculum leaves its first stage within {LATE:,} decisions"
    line = curves.get("curriculum/current_stage_idx")
    if line is None:
        return Item(criterion, None, why or "no stages")
    later = line.steps[line.values > line.values[0]]
    if later.size:
        return Item(criterion, bool(later[0] <= LATE), f"after {later[0]:,} decisions")
    return Item(criterion, False if line.steps[-1] >= LATE else None, f"in its first stage after {line.steps[-1]:,}")


def _returns(curves: Mapping[str, Scalars], why: str) -> Item:
    """Returns rise on the same levels; where a curriculum went on to harder ones they may fall."""
    item, stage = (
        _trend(curves, "rollout/ep_rew_mean", "returns rise", 1, why),
        curves.get("curriculum/current_stage_idx"),
    )
    if item.met is False and stage is not None and stage.values[-1] > stage.values[0]:
        return Item(item.criterion, None, f"{item.figure}, while the curriculum went on to harder levels")
    return item


def _trend(curves: Mapping[str, Scalars], tag: str, what: str, direction: int, why: str) -> Item:
    """Mean of the last quarter of a curve against that of its first."""
    line = curves.get(tag)
    count = 0 if line is None else len(line.values)
    if line is None or count < MIN_POINTS:
        return Item(what, None, why or f"{count} points of {tag}")
    part = count // 4
    first, last = float(line.values[:part].mean()), float(line.values[-part:].mean())
    return Item(what, direction * (last - first) > 0, f"{first:+.3g} → {last:+.3g} (first and last quarter)")
