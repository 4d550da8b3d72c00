"""Runs and agents: files that a run has written, and the checklist of how fast a sound run learns.

    for item in checklist(folder):
        print(item.mark, item.criterion, item.figure)

Every figure is read from the run's scalars.  A criterion that cannot be evaluated, as its step was not reached or there
are no stages, is neither met nor missed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nppsim import reward
from nppsim.actions import ACTION_TAGS
from nppsim.files import table
from rl.audit.first_update import REQUIRED_TAGS
from rl.config.resume import FINISHED_FILE
from rl.doctor.doctor import CHECKPOINT, STORED, UPDATE, CheckSkipped, CheckWarned, check, require
from rl.events import EventsError, Scalars, read_scalars, require_tags
from rl.policy.policy import NppPolicy
from rl.ppo.logs import BOARD

ALWAYS = (
    *REQUIRED_TAGS,
    *("train/grad_norm", "train/last_kl", "train/ent_coef", "train/bc_kl_coef", "sim/episodes", "sim/update_s"),
    *(f"actions/frequency/{name}" for name in ACTION_TAGS),
    *("curriculum/episodes", "curriculum/levels_seen"),
)
MAY_BE_NAN = ("train/explained_variance",)  # where all returns of a rollout are equal
CHANGING = ("train/loss", "train/value_loss", "train/approx_kl", "train/grad_norm", "train/n_updates")
EARLY, LATE = 100_000, 500_000  # decisions
UPDATE_S = 30.0
HOURS = 2.0  # for EARLY decisions
MIN_POINTS = 8  # of a curve, to speak of a rise or fall
NOT_JUDGED = "not judged"


@check(UPDATE, STORED)
def scalars_are_complete(folder: Path) -> str:
    """Every scalar that a run promises is in its one event tree, with finite numbers that change."""
    scalars = require_tags(folder / BOARD, ALWAYS)
    if scalars["sim/episodes"].values.any():
        require_tags(folder / BOARD, [f"reward/{name}" for name in (*reward.TERMS, "return")])
    broken = [tag for tag, line in scalars.items() if not np.isfinite(line.values).all() and tag not in MAY_BE_NAN]
    require(not broken, f"not finite: {', '.join(broken[:6])}", "the run has diverged: lower --initial-lr")
    require_changes(scalars)
    backwards = [tag for tag, line in scalars.items() if (np.diff(line.steps) < 0).any()]
    require(not backwards, f"steps go back: {', '.join(backwards[:6])}", "two runs have written into one folder")
    return f"{len(scalars)} tags, {max(len(line.values) for line in scalars.values())} rows"


def require_changes(scalars: Mapping[str, Scalars]) -> None:
    """CheckFailed for a constant scalar of updates; zeros do not count: the critic learns alone at first."""
    learned = {tag: scalars[tag].values[scalars[tag].values != 0] for tag in CHANGING}
    still = [tag for tag, values in learned.items() if len(values) > 2 and np.ptp(values) == 0]
    require(not still, f"constant: {', '.join(still)}", "nothing is learned: look at --initial-lr and the rewards")


@check(STORED)
def a_finished_run_has_its_agent(folder: Path) -> str:
    """The agent of a finished run is there."""
    if not (folder / FINISHED_FILE).is_file():
        raise CheckSkipped("the run has not finished")
    agent = folder / "agent.safetensors"
    require(agent.is_file(), f"no {agent}", "restore it; final.safetensors in checkpoints has the same weights")
    return agent.name


@check(STORED)
def the_run_did_not_slow_down(folder: Path) -> str:
    """Rollouts in the last fifth of a run are at most a fifth slower than in the first, after the very first."""
    scalars = read_scalars(folder / BOARD)
    speed = scalars["sim/decisions_per_s"].values[1:] if "sim/decisions_per_s" in scalars else np.empty(0)
    if len(speed) < 20:
        raise CheckSkipped(f"{len(speed)} rollouts are too few for a trend")
    part = len(speed) // 5
    early, late = float(np.median(speed[:part])), float(np.median(speed[-part:]))
    found = f"{early:,.0f} decisions/s at first, {late:,.0f} at the end"
    if late < 0.8 * early:
        raise CheckWarned(found, "look for other programs, or growing memory: scripts/perf_benchmark.py --profile")
    return found


@check(CHECKPOINT)
def the_agent_can_be_loaded(policy: NppPolicy, facts: dict) -> str:
    """Format, checksums, architecture, layout and statistics of a checkpoint fit this version; its weights are finite."""
    broken = [name for name, tensor in policy.state_dict().items() if not torch.isfinite(tensor).all()]
    require(not broken, f"not finite: {', '.join(broken[:6])}", "use an earlier checkpoint")
    return f"{policy.architecture}, frame skip {facts['frame_skip']}, {policy.precision}"


# ---------------------------------------------------------------------------------------------------------------------
# The checklist


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
