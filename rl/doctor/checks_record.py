"""What a run leaves behind: settings, curves, checkpoints, and whether it fits its budget."""

import os
import tempfile
from dataclasses import Field, asdict, fields
from pathlib import Path

import numpy as np
import torch

from hardware import Plan
from nppsim import reward
from nppsim.actions import ACTION_TAGS
from rl.audit.first_update import REQUIRED_TAGS
from rl.config import ExperimentConfig
from rl.config.resume import FINISHED_FILE, config_from_dict
from rl.doctor.doctor import BEFORE, CHECKPOINT, STORED, UPDATE, CheckSkipped, CheckWarned, check, require
from rl.doctor.samples import Observed
from rl.events import Scalars, read_scalars, require_tags
from rl.policy import checkpoint
from rl.policy.policy import NppPolicy
from rl.ppo.ppo import PPO

SLOW_UPDATE_S = 120.0
FEW_UPDATES = 200
LONG_RUN_HOURS = 48.0
_PROGRAM = "this is a mistake in the program, not in your settings"
ALWAYS = (
    *REQUIRED_TAGS,
    *("train/grad_norm", "train/last_kl", "train/ent_coef", "train/bc_kl_coef", "sim/episodes", "sim/update_s"),
    *(f"actions/frequency/{name}" for name in ACTION_TAGS),
    *("curriculum/episodes", "curriculum/levels_seen"),
)
MAY_BE_NAN = ("train/explained_variance",)  # where all returns of a rollout are equal
CHANGING = ("train/loss", "train/value_loss", "train/approx_kl", "train/grad_norm", "train/n_updates")


@check(BEFORE)
def settings_that_were_changed(asked: ExperimentConfig) -> str:
    """The configuration is what its record says, and these settings are not at their defaults."""
    kept = config_from_dict(asked.to_dict())
    different = sorted(_differences(asdict(asked), asdict(kept)))
    require(not different, f"config.json would not bring back {', '.join(different)}", _PROGRAM)
    changed = [
        f"{name} {value}"
        for section in fields(ExperimentConfig)
        for name, value in _changed(section.name, getattr(asked, section.name), section)
    ]
    return ", ".join(changed) or "none"


def _changed(name: str, value: object, field: Field) -> list[tuple[str, object]]:
    """(name, value) of what is not at its default, of a field or of the fields of a section."""
    if hasattr(value, "__dataclass_fields__"):
        return [pair for one in fields(value) for pair in _changed(f"{name}.{one.name}", getattr(value, one.name), one)]  # type: ignore[arg-type]
    return [] if value == field.default else [(name, value)]


def _differences(first: dict, second: dict, place: str = "") -> list[str]:
    found = []
    for name in {*first, *second}:
        a, b = first.get(name), second.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            found += _differences(a, b, f"{place}{name}.")
        elif a != b:
            found.append(f"{place}{name}")
    return found


@check(BEFORE)
def the_plan_is_sensible(asked_plan: Plan) -> str:
    """Enough updates, environments and memory, and minibatches that divide the rollout."""
    plan = asked_plan
    require(
        plan.minibatch_size <= plan.batch_size, "the minibatch is larger than the rollout", "lower --minibatch-size"
    )
    told = (
        f"{plan.updates} updates of {plan.num_envs} × {plan.rollout_length} decisions in minibatches of "
        f"{plan.minibatch_size}, {plan.host_bytes / 1e9:.1f} of {plan.host_budget / 1e9:.1f} GB"
    )
    if plan.warnings:
        raise CheckWarned(told, "; ".join(plan.warnings))
    return told


@check(UPDATE)
def curves_are_on_disk(ppo: PPO, folder: Path) -> str:
    """Every curve that a run promises is in its one event tree, with finite numbers that change."""
    scalars = require_tags(folder / "tensorboard", ALWAYS)
    episodes = float(scalars["sim/episodes"].values.sum())
    if episodes:
        require_tags(folder / "tensorboard", [f"reward/{name}" for name in (*reward.TERMS, "return")])
    broken = [tag for tag, line in scalars.items() if not np.isfinite(line.values).all() and tag not in MAY_BE_NAN]
    require(not broken, f"not finite: {', '.join(broken[:6])}", "look at what the curve is computed from")
    _require_changes(scalars)
    backwards = [tag for tag, line in scalars.items() if (np.diff(line.steps) < 0).any()]
    require(not backwards, f"steps go back: {', '.join(backwards[:6])}", "two runs have written into one folder")
    return f"{len(scalars)} tags, {sum(len(line.values) for line in scalars.values())} values"


@check(UPDATE)
def updates_fit_the_budget(ppo: PPO, asked: ExperimentConfig, asked_plan: Plan) -> str:
    """Time of an update, number of updates, duration and memory of the whole run, projected from what was measured."""
    rate = ppo.decisions_played / max(ppo.seconds, 1e-9)
    each = asked_plan.batch_size / rate
    hours = asked.ppo.total_timesteps / rate / 3600
    if asked.ppo.time_budget_minutes:
        hours = min(hours, asked.ppo.time_budget_minutes / 60)
    updates = hours * 3600 / each
    memory = _resident_bytes()
    told = f"{each:.1f} s per update, about {updates:,.0f} updates in {hours * 60:,.0f} min, {memory / 1e9:.1f} GB used"
    advice = []
    if each > SLOW_UPDATE_S:
        advice.append(f"updates take more than {SLOW_UPDATE_S:.0f} s: lower --num-envs or --rollout-length")
    if updates < FEW_UPDATES:
        advice.append(f"fewer than {FEW_UPDATES} updates: raise --total-timesteps or lower --num-envs")
    if hours > LONG_RUN_HOURS:
        advice.append("days: lower --total-timesteps, or give --time-budget-minutes")
    if memory > asked_plan.host_budget:
        advice.append("more memory than the plan allows: lower --num-envs")
    if advice:
        raise CheckWarned(told, "; ".join(advice))
    return told


def _resident_bytes() -> int:
    """Memory of this process; 0 where the system does not say."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if status.is_file() else 0


@check(UPDATE)
def checkpoints_bring_the_policy_back(ppo: PPO, config: ExperimentConfig, sample: Observed) -> str:
    """A policy that is saved and loaded gives the same logits and values, bit for bit, and knows its rules."""
    with tempfile.TemporaryDirectory(prefix="doctor_") as folder:
        path = checkpoint.save(Path(folder) / "policy.safetensors", ppo.policy, frame_skip=config.frame_skip)
        loaded, facts = checkpoint.load_policy(path)
    loaded = loaded.to(ppo.device)
    require(facts["frame_skip"] == ppo.sim.frame_skip, f"frame skip became {facts['frame_skip']}", _PROGRAM)
    require(loaded.precision == ppo.policy.precision, f"precision became {loaded.precision}", _PROGRAM)
    _same_answers(ppo.policy, loaded, sample)
    ours, theirs = ppo.policy.state_dict(), loaded.state_dict()
    require(ours.keys() == theirs.keys(), "tensors were lost or added", _PROGRAM)
    return f"{len(ours)} tensors, {len(next(iter(sample.values())))} decisions"


@torch.no_grad()
def _same_answers(first: NppPolicy, second: NppPolicy, sample: Observed) -> None:
    for name, a, b in zip(
        ("logits", "values"), first.logits_and_values(sample), second.logits_and_values(sample), strict=True
    ):
        gap = float((a - b).abs().max())
        require(torch.equal(a, b), f"{name} differ by up to {gap:.3g} after loading", _PROGRAM)


# ---------------------------------------------------------------------------------------------------------------------
# What a run has written, and agents


@check(STORED)
def a_runs_curves_are_whole(run_folder: Path) -> str:
    """The event tree can be read, has what every run writes, numbers that are finite, and change."""
    scalars = require_tags(run_folder / "tensorboard", ALWAYS)
    broken = [tag for tag, line in scalars.items() if not np.isfinite(line.values).all() and tag not in MAY_BE_NAN]
    require(not broken, f"not finite: {', '.join(broken[:6])}", "the run has diverged: lower --initial-lr")
    _require_changes(scalars)
    return f"{len(scalars)} tags, {max(len(line.values) for line in scalars.values())} rows"


def _require_changes(scalars: dict[str, Scalars]) -> None:
    """No curve of an update's numbers is flat; zeros do not count, as the actor's are 0 while the critic learns alone."""
    learned = {tag: scalars[tag].values[scalars[tag].values != 0] for tag in CHANGING}
    still = [tag for tag, values in learned.items() if len(values) > 2 and np.ptp(values) == 0]
    require(not still, f"always the same: {', '.join(still)}", "the number is not computed anew in each update")


@check(STORED)
def a_finished_run_has_its_agent(run_folder: Path) -> str:
    """Where a run is over, the agent that it delivers is there."""
    if not (run_folder / FINISHED_FILE).is_file():
        raise CheckSkipped("the run is not over")
    agent = run_folder / "agent.safetensors"
    require(agent.is_file(), f"no {agent}", "bring it back; final.safetensors in checkpoints has the same weights")
    return agent.name


@check(STORED)
def a_run_did_not_slow_down(run_folder: Path) -> str:
    """Rollouts in the last fifth of a run are no more than a fifth slower than in the first, after the very first."""
    scalars = read_scalars(run_folder / "tensorboard")
    speed = scalars["sim/decisions_per_s"].values[1:] if "sim/decisions_per_s" in scalars else np.empty(0)
    if len(speed) < 20:
        raise CheckSkipped(f"{len(speed)} rollouts are too few to see a trend")
    part = len(speed) // 5
    early, late = float(np.median(speed[:part])), float(np.median(speed[-part:]))
    told = f"{early:,.0f} decisions/s at first, {late:,.0f} at the end"
    if late < 0.8 * early:
        raise CheckWarned(told, "other programs, or something that grows: scripts/perf_benchmark.py --profile")
    return told


@check(CHECKPOINT)
def the_agent_can_be_loaded(policy: NppPolicy, facts: dict) -> str:
    """Format, checksums, architecture, layout and statistics of a checkpoint fit this version; its weights are finite."""
    broken = [name for name, tensor in policy.state_dict().items() if not torch.isfinite(tensor).all()]
    require(not broken, f"not finite: {', '.join(broken[:6])}", "use an earlier checkpoint")
    return f"{policy.architecture}, frame skip {facts['frame_skip']}, {policy.precision}"
