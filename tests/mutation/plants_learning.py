"""Faults of imitation and of lessons, as an adversary chose them: most were noticed by nothing before there were guards."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

import bc.train as imitation
from bc import dataset as demonstrations
from bc.batches import Batches
from bc.dataset import BCDataset
from rl import distillation
from rl.distillation import Distiller
from rl.experiment import distill
from rl.experiment import job as main_job
from rl.policy.policy import build_policy
from rl.ppo.losses import divergence
from tests.mutation.mutations import Plants, fault
from tests.mutation.plants_data import _labels
from tests.mutation.runner import TEACHER as SHIPPED_AGENT

WEIGHTED = ("--bc-class-weight-power", "1")
TEACHER = ("--teacher", SHIPPED_AGENT, "--teacher-decisions", "2048")


def _epochs(plant: Plants, change: Callable) -> None:
    """Change the batches of every epoch."""
    plant.wrap(Batches, "epoch", change)


class _Unmoved:
    """Draws nothing."""

    def permutation(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(rows)


@fault("every epoch of imitation has the same order", "F118")
def _(plant: Plants) -> None:
    _epochs(plant, lambda original, batches, rows, size, rng: original(batches, rows, size, np.random.default_rng(0)))


@fault("imitation does not shuffle decisions", "F118")
def _(plant: Plants) -> None:
    _epochs(plant, lambda original, batches, rows, size, rng: original(batches, rows, size, _Unmoved()))


@fault("the last batch of each epoch of imitation is left out", "F118")
def _(plant: Plants) -> None:
    _epochs(plant, lambda original, *given: iter(list(original(*given))[:-1]))


@fault("imitation learns from half of the demonstrations", "F118", "F113")
def _(plant: Plants) -> None:
    _epochs(plant, lambda original, batches, rows, size, rng: original(batches, rows[: len(rows) // 2], size, rng))


@fault("the winning decision of each demonstration is left out", "F118")
def _(plant: Plants) -> None:
    def changed(original, dataset, validation):
        rows, following = original(dataset, validation), np.append(dataset.demonstration[1:], -1)
        return rows[following[rows] == dataset.demonstration[rows]]

    plant.wrap(BCDataset, "rows", changed)


@fault("the labels of one demonstration run backwards", "H6", "F118")
def _(plant: Plants) -> None:
    def change(dataset):
        rows = np.flatnonzero(dataset.demonstration == 9)
        actions = dataset.actions.copy()
        actions[rows] = actions[rows][::-1]
        return actions

    _labels(plant, change)


@fault("the observations of one demonstration are a decision late", "H5", "H6")
def _(plant: Plants) -> None:
    def changed(original, *arguments, **named):
        dataset = original(*arguments, **named)
        rows = np.flatnonzero(dataset.demonstration == 9)
        for values in dataset.observations.values():
            values[rows[1:]] = values[rows[:-1]].copy()
        return dataset

    plant.around(demonstrations.load_or_build, changed)


@fault("the copying baseline knows the present action", "H7", "F118")
def _(plant: Plants) -> None:
    def changed(original, *arguments, **named):
        dataset = original(*arguments, **named)
        object.__setattr__(dataset, "previous_actions", dataset.actions.copy())
        return dataset

    plant.around(demonstrations.load_or_build, changed)


@fault("weights of the actions are those of other actions", "F65", flags=WEIGHTED)
def _(plant: Plants) -> None:
    plant.wrap(BCDataset, "class_weights", lambda original, dataset, power: np.roll(original(dataset, power), 1))


@fault("frequent actions get the large weights", "F65", flags=WEIGHTED)
def _(plant: Plants) -> None:
    plant.wrap(BCDataset, "class_weights", lambda original, dataset, power: original(dataset, -power))


@fault("weights of the actions are asked for and not used", "F51", "F57", flags=WEIGHTED)
def _(plant: Plants) -> None:
    plant.wrap(BCDataset, "class_weights", lambda original, dataset, power: original(dataset, 0.0))


@fault("labels are smoothed", "F65")
def _(plant: Plants) -> None:
    plain = F.cross_entropy

    def changed(original, setup, batch):
        with Plants() as inside:
            inside.set(F, "cross_entropy", partial(plain, label_smoothing=0.3))
            return original(setup, batch)

    plant.wrap(imitation, "_differentiate", changed)


@fault("half of each batch has no gradient", "F31", "F67")
def _(plant: Plants) -> None:
    plant.wrap(imitation, "_differentiate", lambda original, setup, batch: original(setup, batch[: len(batch) // 2]))


@fault("gradients of imitation are cut off at a tenth", "F65")
def _(plant: Plants) -> None:
    def changed(original, setup, epoch):
        original(replace(setup, config=replace(setup.config, max_grad_norm=0.1 * setup.config.max_grad_norm)), epoch)

    plant.wrap(imitation, "_step", changed)


@fault("the learning rate of imitation is a tenth", "F50", "F118")
def _(plant: Plants) -> None:
    def changed(original, *arguments):
        setup = original(*arguments)
        setup.schedule.base_lrs = [0.1 * rate for rate in setup.schedule.base_lrs]
        for group in setup.optimizer.param_groups:
            group["lr"] *= 0.1
        return setup

    plant.wrap(imitation, "_setup", changed)


@fault("imitation ends after its first epoch", "F118", "F34")
def _(plant: Plants) -> None:
    plant.wrap(
        imitation,
        "pretrain",
        lambda original, policy, dataset, config, *more, **named: original(
            policy, dataset, replace(config, epochs=1), *more, **named
        ),
    )


def _curves(plant: Plants, change: Callable[[dict], dict]) -> None:
    """Change the scalars of an epoch of imitation on their way to the disk."""

    def changed(original, writer, scalars, step):
        original(writer, change(scalars) if "train_loss" in scalars else scalars, step)

    plant.wrap(imitation, "_write", changed)


@fault("curves of imitation are an epoch late", "F93", "F61")
def _(plant: Plants) -> None:
    before: list[dict] = [{}]

    def change(scalars):
        before.append(scalars)
        return before[-2]

    _curves(plant, change)


@fault("the loss while learning is logged as that of validation", "F93", "H29")
def _(plant: Plants) -> None:
    _curves(plant, lambda scalars: scalars | {"validation_loss": scalars["train_loss"]})


# ---------------------------------------------------------------------------------------------------------------------
# Lessons from a teacher


@fault("the teacher is asked about the decision before", "H5", "H6", flags=TEACHER)
def _(plant: Plants) -> None:
    seen: list[dict] = []

    def changed(original, *arguments):
        now = {key: values.copy() for key, values in original(*arguments).items()}
        seen.append(now)
        same = len(seen) > 1 and all(len(values) == len(seen[-2][key]) for key, values in now.items())
        return seen[-2] if same else now

    plant.around(distillation.newest, changed)


def _answers(plant: Plants, change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    """Change what a lesson keeps of the teacher's answers, given those and the student's logits."""

    def changed(original, course, t):
        logits = original(course, t)
        course._buffer.log_probs[t] = change(course._buffer.log_probs[t].clone(), logits)
        return logits

    plant.wrap(Distiller, "_decide", changed)


@fault("the teacher's answers go to the neighbours", "F66", flags=TEACHER)
def _(plant: Plants) -> None:
    _answers(plant, lambda told, logits: told.roll(1, dims=0))


@fault("the student is told its own answers", "F120", flags=TEACHER)
def _(plant: Plants) -> None:
    _answers(plant, lambda told, logits: F.log_softmax(logits, dim=1))


@fault("the teacher's answers are sharpened", "F65", flags=TEACHER)
def _(plant: Plants) -> None:
    _answers(plant, lambda told, logits: F.log_softmax(5 * told, dim=1))


@fault("the teacher plays in its student's stead", "H6", flags=TEACHER)
def _(plant: Plants) -> None:
    def changed(original, course, t):
        original(course, t)
        return course._buffer.log_probs[t].clone()

    plant.wrap(Distiller, "_decide", changed)


@fault("lessons go down the divergence of the teacher from its student", "F65", flags=TEACHER)
def _(plant: Plants) -> None:
    plant.set(distillation, "divergence", lambda of, to: divergence(to, of))


@fault("lessons lead away from the teacher", "F65", flags=TEACHER)
def _(plant: Plants) -> None:
    plant.wrap(
        Distiller,
        "_step",
        lambda original, course, away, gradients: original(
            course, away, [None if one is None else -one for one in gradients]
        ),
    )


@fault("lessons have a learning rate of 0", "F50", flags=TEACHER)
def _(plant: Plants) -> None:
    def changed(original, course, *given):
        course._optimizer.param_groups[0]["lr"] = 0.0
        original(course, *given)

    plant.wrap(Distiller, "_step", changed)


@fault("lessons learn from every second minibatch", "F20", flags=(*TEACHER, "--teacher-minibatch-size", "128"))
def _(plant: Plants) -> None:
    def changed(original, course):
        minibatches = course._buffer.minibatches
        course._buffer.minibatches = lambda size, rng: iter(list(minibatches(size, rng))[::2])
        original(course)
        del course._buffer.minibatches

    plant.wrap(Distiller, "_learn", changed)


@fault("the teacher has never been trained", "F120", "F122", flags=TEACHER)
def _(plant: Plants) -> None:
    def changed(original, path, frame_skip):
        teacher = original(path, frame_skip)
        return build_policy(teacher.architecture, teacher.statistics).requires_grad_(False)

    plant.around(distill.load_teacher, changed)


@fault("PPO begins with the clone and not with what was taught", "F73", "F120", flags=TEACHER)
def _(plant: Plants) -> None:
    def changed(original, job, plan, clone, path):
        before = copy.deepcopy(clone.policy)
        return replace(original(job, plan, clone, path), policy=before)

    plant.around(distill.distill, changed)


@fault("a teacher is named and gives no lessons", "F122", "F57", flags=TEACHER)
def _(plant: Plants) -> None:
    plant.set(main_job, "teacher_of", lambda job: None)
