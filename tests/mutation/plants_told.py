"""Faults of what is drawn, told, judged and gone on with, as an adversary chose them: many were noticed by nothing before."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.logger import Logger

from nppsim.bank import LevelBank
from rl.curriculum.learning_progress import LearningProgress
from rl.curriculum.manager import CurriculumManager
from rl.curriculum.stages import Stages
from rl.evaluation import results
from rl.evaluation.suite import EvaluationSuite
from rl.experiment import job as main_job
from rl.policy import checkpoint
from rl.policy.player import RecurrentPlayer
from rl.policy.policy import NppPolicy
from rl.ppo import saving
from rl.ppo.alarms import Alarms
from rl.ppo.candidate import Candidate
from rl.ppo.guard import Retention
from rl.ppo.monitor import TrainingMonitor
from rl.ppo.passes import Passes
from rl.ppo.ppo import BatchPPO
from rl.ppo.rollout import TensorRolloutBuffer
from rl.ppo.steering import steered
from rl.ppo.vec_env import BatchVecEnv
from tests.mutation.mutations import Plants, fault
from tests.mutation.plants_unlisted import CURRICULUM, OFTEN

STAGED = (*CURRICULUM, "--curriculum", "stages")
PROGRESS = ("--curriculum", "learning_progress")

# ---------------------------------------------------------------------------------------------------------------------
# Updates, and what is told of them


@fault("all passes over a rollout have the same order", "F20")
def _(plant: Plants) -> None:
    def changed(original, passes):
        state = vars(passes).setdefault("state", copy.deepcopy(passes.rng.bit_generator.state))
        passes.rng.bit_generator.state = state
        return original(passes)

    plant.wrap(Passes, "_minibatches", changed)


@fault("decisions of a rollout are not shuffled", "F20")
def _(plant: Plants) -> None:
    plant.set(TensorRolloutBuffer, "minibatches", lambda buffer, size, rng: iter(torch.arange(len(buffer)).split(size)))


@fault("all updates have the same order", "F20")
def _(plant: Plants) -> None:
    def changed(original, ppo):
        ppo.rng = np.random.default_rng(0)
        original(ppo)

    plant.wrap(BatchPPO, "train", changed)


@fault("updates end early although no limit is set", "F51", "F57")
def _(plant: Plants) -> None:
    plant.set(BatchPPO, "_moved_too_far", lambda ppo, numbers, settings: numbers.approx_kl > 1e-4)


@fault("updates do not end where they are to", "F51", "F57", flags=("--target-kl", "0.0001"))
def _(plant: Plants) -> None:
    plant.set(BatchPPO, "_moved_too_far", lambda ppo, numbers, settings: False)


@fault("the learning rate is steered the wrong way", "F50", flags=("--desired-kl", "0.01", "--no-pretraining"))
def _(plant: Plants) -> None:
    plant.around(steered, lambda original, rate, kl, desired: original(rate, desired**2 / max(kl, 1e-9), desired))


def _steps(plant: Plants, change: Callable[[list, list], tuple[list, list]]) -> None:
    """Change losses and norms of an update's steps on their way to the log."""
    plant.wrap(BatchPPO, "_log_steps", lambda original, ppo, steps, norms: original(ppo, *change(steps, norms)))


@fault("clip fraction and divergence change places in the log", "F93", "F61")
def _(plant: Plants) -> None:
    def change(steps, norms):
        return [one._replace(approx_kl=one.clip_fraction, clip_fraction=one.approx_kl) for one in steps], norms

    _steps(plant, change)


@fault("the losses of the last minibatch are told of all", "F61")
def _(plant: Plants) -> None:
    _steps(plant, lambda steps, norms: (steps[-1:], norms))


@fault("losses are logged an update late", "F93")
def _(plant: Plants) -> None:
    before: list[tuple] = []

    def change(steps, norms):
        before.append((steps, norms))
        return before[-2] if len(before) > 1 else before[-1]

    _steps(plant, change)


@fault("the norm of gradients is told after they were cut off", "F61")
def _(plant: Plants) -> None:
    _steps(plant, lambda steps, norms: (steps, [norm.clamp(max=0.5) for norm in norms]))


@fault("decisions per second are counted twice", "F61", "F156")
def _(plant: Plants) -> None:
    plant.wrap(BatchPPO, "_log_rollout", lambda original, ppo, episodes, seconds: original(ppo, episodes, seconds / 2))


def _rotated(values: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The values with those of these names moved on by one."""
    return values | dict(zip(names, [values[name] for name in [*names[1:], *names[:1]]], strict=True))


@fault("success of a category is told of the next one", "F61", "F36")
def _(plant: Plants) -> None:
    def changed(original, sampler):
        found = original(sampler)
        return _rotated(found, [name for name in found if name.endswith("_success_rate")])

    plant.wrap(CurriculumManager, "metrics", changed)


@fault("curves are written at the number of the update", "F93", "F62")
def _(plant: Plants) -> None:
    plant.wrap(Logger, "dump", lambda original, logger, step=0: original(logger, step // 512))


# ---------------------------------------------------------------------------------------------------------------------
# Curriculum


@fault("a stage ends after a few episodes", "F49", flags=STAGED)
def _(plant: Plants) -> None:
    plant.set(Stages, "reason_to_end", lambda strategy: "threshold" if len(strategy.recent) >= 5 else "")


@fault("a stage is judged by the upper end of its interval", "F49", flags=STAGED)
def _(plant: Plants) -> None:
    plant.wrap(
        Stages, "bound", lambda original, stages, outcomes, running, sign=-1: original(stages, outcomes, running, 1)
    )


@fault("episodes that still run count as won", "F154", flags=STAGED)
def _(plant: Plants) -> None:
    def changed(original, stages, outcomes, running, sign=-1):
        return original(stages, np.concatenate([outcomes, np.ones(running, np.uint8)]), 0, sign)

    plant.wrap(Stages, "bound", changed)


@fault("levels of other stages are never drawn", "F155", flags=STAGED)
def _(plant: Plants) -> None:
    def changed(original, stages):
        return np.eye(len(original(stages)))[stages.place]

    plant.wrap(Stages, "shares", changed)


@fault("what teaches nothing is drawn most", "F49", "H49", flags=PROGRESS)
def _(plant: Plants) -> None:
    plant.wrap(
        LearningProgress,
        "weigh",
        lambda original, strategy, weights: original(strategy, weights.max() + 1e-3 - weights),
    )


@fault("levels and their arrays are in other orders", "H21", "F66")
def _(plant: Plants) -> None:
    def changed(original, bank, levels, *more, **named):
        levels = list(levels)
        original(bank, [levels[-1], *levels[:-1]], *more, **named)
        bank.levels = type(bank.levels)(levels)

    plant.wrap(LevelBank, "__init__", changed)


# ---------------------------------------------------------------------------------------------------------------------
# Evaluations and what is delivered


@fault("evaluations are greedy where they are to sample", "F94", "F28", flags=OFTEN)
def _(plant: Plants) -> None:
    def changed(original, policy, obs, *, deterministic, rng=None):
        return original(policy, obs, deterministic=not deterministic, rng=rng)

    plant.wrap(NppPolicy, "act", changed)


@fault("evaluations play the weights of the evaluation before", "F94", "H20", flags=OFTEN)
def _(plant: Plants) -> None:
    before: list[NppPolicy] = []

    def changed(original, suite, policy, **named):
        if isinstance(policy, NppPolicy):
            before.append(copy.deepcopy(policy))
            policy = before[max(0, len(before) - 2)]
        return original(suite, policy, **named)

    plant.wrap(EvaluationSuite, "run", changed)


@fault(
    "evaluations carry memories over to the next episode", "F94", "H15", flags=("--architectures", "vision_free+gru")
)
def _(plant: Plants) -> None:
    plant.set(RecurrentPlayer, "begin", lambda player, envs: None)


@fault("time-outs are no episodes where success is counted", "F94", "H22", "F61")
def _(plant: Plants) -> None:
    def changed(original, episodes, wins):
        found = original(episodes, wins)
        return found | {"success": found["wins"] / max(1, found["wins"] + found["deaths"])}

    plant.around(results._count, changed)


@fault("success on dev levels is told of the next category", "F94", "F61", flags=OFTEN)
def _(plant: Plants) -> None:
    def changed(original, *seeds):
        found = original(*seeds)
        return _rotated(found, [name for name in found if name != results.ALL])

    plant.around(results.aggregate, changed)


@fault("the best weights are kept as a reference to those that go on", "F42", flags=OFTEN)
def _(plant: Plants) -> None:
    def changed(original, monitor, *given):
        went_back = original(monitor, *given)
        monitor._best = Candidate.of(monitor.model).weights
        return went_back

    plant.wrap(TrainingMonitor, "_retain", changed)


@fault("figures of imitation and PPO change places in the report", "F94", "F61")
def _(plant: Plants) -> None:
    plant.around(main_job.judge, lambda original, *given: _rotated(original(*given), ["bc", "ppo"]))


@fault("the file that is delivered holds the clone", "F42", "H20")
def _(plant: Plants) -> None:
    def changed(original, job, ppo, *more):
        events = original(job, ppo, *more)
        checkpoint.save(job.folder / "agent.safetensors", ppo.reference, frame_skip=job.config.frame_skip)
        return events

    plant.around(main_job.fine_tune, changed)


# ---------------------------------------------------------------------------------------------------------------------
# A run that goes on


def _forgotten(plant: Plants, owner: type, name: str) -> None:
    plant.set(owner, name, lambda *given: None)


@fault("early stopping forgets the best when a run goes on", "F41", stage="resume")
def _(plant: Plants) -> None:
    def changed(original, monitor, state):
        original(monitor, state | {"overall": [7.0]})

    plant.wrap(TrainingMonitor, "load", changed)


@fault("the best policy is forgotten when a run goes on", "F41", "F42", stage="resume")
def _(plant: Plants) -> None:
    plant.set(Retention, "load", lambda retention, state: setattr(retention, "best_at", 7))


@fault("alarms forget what they have seen when a run goes on", "F41", stage="resume")
def _(plant: Plants) -> None:
    _forgotten(plant, Alarms, "load_state_dict")


@fault("the curriculum begins anew when a run goes on", "F41", "F36", stage="resume")
def _(plant: Plants) -> None:
    _forgotten(plant, CurriculumManager, "load_state_dict")


@fault("episodes begin anew when a run goes on", "F41", "F46", stage="resume")
def _(plant: Plants) -> None:
    plant.wrap(BatchVecEnv, "load", lambda original, env, state: (original(env, state), env.reset())[1])


@fault("updates are counted from 0 when a run goes on", "F41", "F50", stage="resume")
def _(plant: Plants) -> None:
    def changed(original, ppo, *given):
        original(ppo, *given)
        ppo.updates = 0

    plant.around(saving.load_training_state, changed)
