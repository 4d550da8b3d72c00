"""Checks of the files of a run."""

from pathlib import Path

import numpy as np

from rl.checks.check import STORED, UPDATE, CheckSkipped, CheckWarned, check, require
from rl.events import read_scalars, require_tags
from rl.ppo.logs import TENSORBOARD_FOLDER
from rl.training.alarms import REQUIRED_TAGS

MAY_BE_NAN = ("train/explained_variance",)  # NaN if all returns of a rollout are equal
CHANGING = ("train/loss", "train/value_loss", "train/approx_kl", "train/grad_norm", "train/n_updates")


@check(UPDATE, STORED)
def scalars_are_complete(folder: Path) -> str:
    """Check that the main scalars of a run are in its event files, and that their values are finite and change.

    Zeros do not count as constant, because some of these scalars are 0 while only the critic is trained.
    """
    scalars = require_tags(folder / TENSORBOARD_FOLDER, REQUIRED_TAGS)
    broken = [tag for tag, line in scalars.items() if not np.isfinite(line.values).all() and tag not in MAY_BE_NAN]
    require(not broken, f"not finite: {', '.join(broken[:6])}", "the run has diverged: lower --initial-lr")
    values = {tag: scalars[tag].values[scalars[tag].values != 0] for tag in CHANGING if tag in scalars}
    constant = [tag for tag, series in values.items() if len(series) > 2 and np.ptp(series) == 0]
    require(
        not constant, f"constant: {', '.join(constant)}", "nothing is learned: look at --initial-lr and the rewards"
    )
    return f"{len(scalars)} tags, {max(len(line.values) for line in scalars.values())} rows"


@check(STORED)
def the_run_did_not_slow_down(folder: Path) -> str:
    """Check that rollouts in the last fifth of a run are at most a fifth slower than in the first fifth."""
    scalars = read_scalars(folder / TENSORBOARD_FOLDER)
    speed = scalars["sim/decisions_per_s"].values[1:] if "sim/decisions_per_s" in scalars else np.empty(0)
    if len(speed) < 20:
        raise CheckSkipped(f"{len(speed)} rollouts are too few for a trend")
    part = len(speed) // 5
    early, late = float(np.median(speed[:part])), float(np.median(speed[-part:]))
    message = f"{early:,.0f} decisions/s at first, {late:,.0f} at the end"
    if late < 0.8 * early:
        raise CheckWarned(message, "look for other programs or growing memory; use scripts/perf_benchmark.py --profile")
    return message
