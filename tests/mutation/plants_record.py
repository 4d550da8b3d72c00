"""Faults of what is logged, stored, resumed, asked for and measured."""

import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import torch
from stable_baselines3.common.logger import Logger

import hardware
from bc.train import BCConfig
from hardware.memory import MemoryNeeds
from nppsim.measure import timing
from nppsim.observe import layout
from rl import config as settings
from rl.config import EvaluationConfig, ExperimentConfig, PPOConfig, UploadConfig
from rl.curriculum_config import CurriculumConfig
from rl.events import EventWriter
from rl.policy import checkpoint
from rl.ppo import saving
from rl.ppo.monitor import TrainingMonitor
from rl.ppo.ppo import BatchPPO
from tests.mutation.mutations import Plants, fault

# ---------------------------------------------------------------------------------------------------------------------
# Logs


def _log(plant: Plants, change: Callable[[str, float, int], float | None]) -> None:
    """Change what is recorded: (tag, value, how often this tag was recorded before) -> value; None: nothing."""
    counts: dict[str, int] = {}

    def changed(original, logger, key, value, exclude=None):
        counts[key] = counts.get(key, -1) + 1
        value = change(key, value, counts[key])
        if value is not None:
            original(logger, key, value, exclude)

    plant.wrap(Logger, "record", changed)


@fault("scalars are not written", "F91", "F93")
def _(plant: Plants) -> None:
    plant.set(EventWriter, "add_scalar", lambda writer, tag, value, step: None)


@fault("scalars are written to another folder", "F92")
def _(plant: Plants) -> None:
    def changed(original, writer, folder):
        original(writer, f"{folder}_of_another_run" if "tensorboard" in str(folder) else folder)

    plant.wrap(EventWriter, "__init__", changed)


@fault("a second tree of events", "H46", "F92")
def _(plant: Plants) -> None:
    def changed(original, writer, folder):
        original(writer, folder)
        if not str(folder).endswith("more"):
            EventWriter(f"{folder}/more").close()

    plant.wrap(EventWriter, "__init__", changed)


@fault("a required metric is lost", "F35", "H23")
def _(plant: Plants) -> None:
    _log(plant, lambda tag, value, n: None if tag == "train/approx_kl" else value)


@fault("a metric is lost after some updates", "F93", "F62")
def _(plant: Plants) -> None:
    _log(plant, lambda tag, value, n: None if tag == "train/value_loss" and n > 3 else value)


@fault("statistics of the curriculum are lost", "F36")
def _(plant: Plants) -> None:
    _log(plant, lambda tag, value, n: None if tag.startswith("curriculum_stages/") else value)


@fault("a derived metric is missing, as its input is", "F37")
def _(plant: Plants) -> None:
    _log(plant, lambda tag, value, n: None if tag == "reward/return" else value)


@fault("a metric comes in every third update only", "F62")
def _(plant: Plants) -> None:
    _log(plant, lambda tag, value, n: None if tag == "sim/episodes" and n % 3 else value)


@fault("sums are logged as means", "F61")
def _(plant: Plants) -> None:
    _log(plant, lambda tag, value, n: value * 7 if tag == "reward/return" else value)


@fault("a metric is frozen", "F1", "F62")
def _(plant: Plants) -> None:
    held: dict[str, float] = {}
    _log(
        plant,
        lambda tag, value, n: held.setdefault(tag, value) if tag.startswith("train/") and "loss" in tag else value,
    )


@fault("explained variance is that of other numbers", "F61")
def _(plant: Plants) -> None:
    _log(plant, lambda tag, value, n: 0.97 if tag == "train/explained_variance" else value)


@fault("time of the phases is not taken", "F117")
def _(plant: Plants) -> None:
    def changed(original, ppo, *arguments):
        found = original(ppo, *arguments)
        ppo.speed = dict.fromkeys(ppo.speed, 0.0)
        return found

    plant.wrap(BatchPPO, "_begin_next_episodes", changed)


@fault("the callback is not attached", "F92", "F119")
def _(plant: Plants) -> None:
    for name in ("_on_rollout_start", "_on_rollout_end", "_on_training_end"):
        plant.set(TrainingMonitor, name, lambda monitor: None)


@fault("an update takes many minutes", "F80", "F124")
def _(plant: Plants) -> None:
    def changed(original, ppo):
        original(ppo)
        ppo.seconds += 900.0

    plant.wrap(BatchPPO, "train", changed)


# ---------------------------------------------------------------------------------------------------------------------
# What was asked for


@fault("an unknown flag", "F53", flags=("--num-agents", "4"))
def _(plant: Plants) -> None:
    pass


@fault(
    "hierarchical control waits for a stage that no curriculum comes to",
    "F83",
    flags=("--use-hierarchical-ppo", "--hierarchical-from-stage", "medium"),
)
def _(plant: Plants) -> None:
    pass


@fault("frames are to be stacked that the network does not read", "F88", flags=("--enable-visual-frame-stacking",))
def _(plant: Plants) -> None:
    pass


@fault("an architecture that is not there", "F40", flags=("--architectures", "mlp_basline"))
def _(plant: Plants) -> None:
    pass


@fault("two discounts", "F33", flags=("--pbrs-gamma", "0.9"))
def _(plant: Plants) -> None:
    pass


@fault("an option without effect", "F51", "F137", flags=("--curriculum-threshold", "0.5"))
def _(plant: Plants) -> None:
    pass


@fault("the plan ignores what was asked for", "F78", "H18", "H17")
def _(plant: Plants) -> None:
    def changed(original, observations, plan_request=None, **named):
        return original(observations, replace(plan_request, num_envs=8, rollout_length=64, minibatch_size=64), **named)

    plant.wrap(hardware, "plan", changed)


@fault("the learning rate that was asked for is not used", "F57", "H17", flags=("--initial-lr", "0.0001"))
def _(plant: Plants) -> None:
    plant.wrap(
        PPOConfig, "settled", lambda original, config, plan: replace(original(config, plan), learning_rate=0.003)
    )


@fault("the entropy bonus that was configured is not used", "F51", "H48")
def _(plant: Plants) -> None:
    plant.wrap(PPOConfig, "settled", lambda original, config, plan: replace(original(config, plan), ent_coef_start=0.0))


@fault("memory of an environment is taken for 6 GB", "F76", "F77")
def _(plant: Plants) -> None:
    original = MemoryNeeds.rows

    def changed(needs, num_envs, *arguments):
        rows = original(needs, num_envs, *arguments)
        return [replace(row, bytes=row.bytes + 6_000_000_000 * num_envs) for row in rows]

    plant.set(MemoryNeeds, "rows", changed)


LARGE = ("--num-envs", "1024", "--rollout-length", "256", "--minibatch-size", "8192", "--total-timesteps", "1000000")
ONLY_FEW = ("--num-envs", "8", "--rollout-length", "256", "--total-timesteps", "10000000")


@fault("few environments", "F79", stage="plan", flags=ONLY_FEW)
def _(plant: Plants) -> None:
    pass


@fault("few updates in the whole run", "F81", stage="plan", flags=LARGE)
def _(plant: Plants) -> None:
    pass


def _default(plant: Plants, owner: type, name: str, value: object) -> None:
    """Another default of a setting: of the constructor, and of the field that documents it."""
    field = next(one for one in fields(owner) if one.name == name)
    plant.set(field, "default", value)
    defaults = list(owner.__init__.__defaults__ or ())  # type: ignore[misc]
    names = [one.name for one in fields(owner)][-len(defaults) :]
    defaults[names.index(name)] = value
    plant.set(owner.__init__, "__defaults__", tuple(defaults))  # type: ignore[misc]
    plant.set(owner, name, value)


DEFAULTS = (
    ("checkpoints ten times as often by default", ExperimentConfig, "save_freq", 50_000, ("F12", "F59")),
    ("uploads ten times as often by default", UploadConfig, "sync_freq", 50_000, ("F13", "F59")),
    ("no final evaluation by default", EvaluationConfig, "skip_final_eval", True, ("F14", "F59")),
    ("evaluations ten times as often by default", EvaluationConfig, "eval_freq", 10_000, ("F15", "F59")),
    ("films ten times as many by default", settings.VideoConfig, "max_videos_per_category", 100, ("F16", "F59")),
    ("five times the steps by default", PPOConfig, "total_timesteps", 50_000_000, ("F34", "F59")),
    ("a window of 10,000 episodes by default", CurriculumConfig, "window", 10_000, ("F47", "F59")),
    ("lambda 0.99 by default", PPOConfig, "gae_lambda", 0.99, ("F111", "F59")),
    ("imitation stops late by default", BCConfig, "patience", 100, ("F59",)),
)
for _words, _owner, _name, _value, _numbers in DEFAULTS:

    @fault(_words, *_numbers, stage="defaults")
    def _(plant: Plants, owner: type = _owner, name: str = _name, value: object = _value) -> None:
        _default(plant, owner, name, value)


@fault("a package is missing that films need", "F52", "F140", flags=("--record-eval-videos",))
def _(plant: Plants) -> None:
    plant.set(sys.modules, "av", None)


@fault("a secret in the configuration that is stored", "F121", stage="secrets")
def _(plant: Plants) -> None:
    plant.around(settings.redact, lambda original, text: text)


# ---------------------------------------------------------------------------------------------------------------------
# Checkpoints and resuming


@fault("checkpoints hold rounded weights", "F42", stage="resume")
def _(plant: Plants) -> None:
    def changed(original, path, policy, **named):
        with torch.no_grad():
            weights = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
            for parameter in policy.parameters():
                parameter.copy_(parameter.bfloat16().float())
            found = original(path, policy, **named)
            policy.load_state_dict(weights)
        return found

    plant.around(checkpoint.save, changed)


@fault("the optimiser's state is not restored", "F41", stage="resume")
def _(plant: Plants) -> None:
    def changed(original, ppo, policy_state, *_):
        ppo.policy.load_state_dict(policy_state)

    plant.wrap(BatchPPO, "restore", changed)


@fault("random numbers begin anew after a resume", "F41", stage="resume")
def _(plant: Plants) -> None:
    def changed(original, ppo, policy_state, training):
        state = ppo.sampling.get_state()
        original(ppo, policy_state, training)
        ppo.sampling.set_state(state)

    plant.wrap(saving, "load_training_state", changed)


@fault("a checkpoint of another observation layout", "F45", "F39", stage="resume")
def _(plant: Plants) -> None:
    plant.set(layout, "VERSION", layout.VERSION + 1)


@fault("a checkpoint of another format", "F39", stage="resume")
def _(plant: Plants) -> None:
    plant.set(checkpoint, "FORMAT_VERSION", checkpoint.FORMAT_VERSION + 1)


@fault("the training state lacks a part", "F39", stage="resume")
def _(plant: Plants) -> None:
    def changed(original, ppo):
        state = original(ppo)
        return state | {"something_new": 1}

    plant.wrap(saving, "training_state", changed)


# ---------------------------------------------------------------------------------------------------------------------
# Measuring


@fault("rounds of a benchmark vary by half", "F126", stage="benchmark")
def _(plant: Plants) -> None:
    counted = {"calls": 0}

    def changed(original, work):
        counted["calls"] += 1
        return original(work) * (1 + counted["calls"] % 2)

    plant.around(timing.seconds_of, changed)


@fault("the simulator has become a third slower", "F2", "F6", stage="benchmark_baseline")
def _(plant: Plants) -> None:
    from nppsim.measure.player import DecisionPlayer

    def changed(original, player, decisions):
        begin = time.perf_counter()
        original(player, decisions)
        taken = time.perf_counter() - begin
        while time.perf_counter() - begin < 2 * taken:
            pass

    plant.wrap(DecisionPlayer, "play", changed)


@fault("a baseline of another machine", "F134", stage="benchmark_baseline")
def _(plant: Plants) -> None:
    from nppsim.measure import throughput

    def changed(original, *arguments, **named):
        found = original(*arguments, **named)
        return found | {"machine": found["machine"] | {"cpu": "another one"}}

    plant.around(throughput.conditions, changed)


@fault("validation that compares nothing", "F136", stage="benchmark_validation")
def _(plant: Plants) -> None:
    from nppsim.shadow import Shadow

    plant.set(Shadow, "after", lambda shadow, final: None)
    plant.set(Shadow, "after_reset", lambda shadow, levels: None)


@fault("recorded play goes astray", "F130", stage="benchmark_recorded")
def _(plant: Plants) -> None:
    from nppsim.measure.player import DecisionPlayer

    def changed(original, player, decisions):
        if player.next_level is not None:  # what is measured, not what the recordings were looked through with
            player.actions = np.roll(player.actions, 1, axis=1)
        return original(player, decisions)

    plant.wrap(DecisionPlayer, "play", changed)
