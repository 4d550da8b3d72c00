"""Mutations of behavioural cloning."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

import bc.train as imitation
from bc import baselines
from bc.batches import Batches, Sequences
from bc.dataset import BCDataset
from bc.train import BCResult
from tests.mutation.mutation import Patch, mutation


class _Unmoved:
    """Draws nothing."""

    def permutation(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(rows)


def _epochs(patch: Patch, change: Callable) -> None:
    """Change the batches of every epoch."""
    patch.wrap(Batches, "epoch", change)


def _curves(patch: Patch, change: Callable[[dict], dict]) -> None:
    """Change the scalars of an epoch of imitation on their way to the disk."""

    def changed(original, writer, scalars, step):
        original(writer, change(scalars) if "train_loss" in scalars else scalars, step)

    patch.wrap(imitation, "_write", changed)


@mutation("imitation does not shuffle decisions", "tests/bc/test_batches.py")
def _(patch: Patch) -> None:
    _epochs(patch, lambda original, batches, rows, size, rng: original(batches, rows, size, _Unmoved()))


@mutation("the last batch of each epoch of imitation is left out", "tests/bc/test_batches.py")
def _(patch: Patch) -> None:
    _epochs(patch, lambda original, *given: iter(list(original(*given))[:-1]))


mutation("weights of the actions are those of other actions", "tests/bc/test_bc.py").wrap(
    BCDataset, "class_weights", lambda original, dataset, power: np.roll(original(dataset, power), 1)
)


@mutation("gradients of imitation are clipped at a tenth", "tests/bc/test_bc.py").wrap(imitation, "_step")
def _(original, setup, epoch):
    config = setup.config
    setup.config = replace(config, max_grad_norm=0.1 * config.max_grad_norm)
    original(setup, epoch)
    setup.config = config


@mutation("the learning rate of imitation is a tenth", "tests/bc/test_bc.py").wrap(imitation, "_Setup")
def _(original, *arguments):
    setup = original(*arguments)
    setup.schedule.base_lrs = [0.1 * rate for rate in setup.schedule.base_lrs]
    for group in setup.optimizer.param_groups:
        group["lr"] *= 0.1
    return setup


@mutation("the schedule of imitation is ten times too long", "tests/bc/test_bc.py").wrap(imitation, "_Setup")
def _(original, *arguments):
    setup = original(*arguments)
    setup.schedule.T_max *= 10
    return setup


@mutation("imitation descends along wrong labels' gradient", "tests/bc/test_bc.py").wrap(imitation, "_differentiate")
def _(original, setup, batch):
    found = original(setup, batch)
    for parameter in setup.policy.parameters():
        if parameter.grad is not None:
            parameter.grad.neg_()
    return found


@mutation("metrics of imitation are an epoch late", "tests/bc/test_bc.py")
def _(patch: Patch) -> None:
    before: list[dict] = [{}]

    def change(scalars):
        before.append(scalars)
        return before[-2]

    _curves(patch, change)


mutation("imitation is validated on its training data", "tests/bc/test_bc.py").everywhere(
    imitation.evaluate,
    lambda original, policy, dataset, rows: original(policy, dataset, dataset.rows(validation=False)),
)


@mutation("accuracy is counted among changes only", "tests/bc/test_bc.py").everywhere(baselines.score)
def _(original, predictions, actions, previous, loss=None):
    found = original(predictions, actions, previous, loss)
    return replace(found, accuracy=found.change_accuracy or 0.0, change_accuracy=found.accuracy)


@mutation("another epoch than the best is reported as the best", "tests/bc/test_bc.py").wrap(BCResult, "__init__")
def _(original, result, **fields):
    original(result, **fields | {"best_epoch": 1})


mutation("imitation trains a recurrent network on single decisions", "tests/bc/test_batches.py").wrap(
    Sequences,
    "_observe",
    lambda original, batches, rows, follows, states: original(batches, rows, np.zeros_like(follows), None),
)
