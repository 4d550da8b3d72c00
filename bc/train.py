"""Behavioural cloning: cross-entropy between a policy's action logits and demonstrated actions.

Players mostly repeat their last input, so even a trivial predictor has a high accuracy.  The metrics are therefore compared
with those of two trivial predictors: the previous action, and the most frequent action.  More informative are the accuracy
on decisions that change the action, and the success rate of the policy in the simulator (closed loop).
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from bc.baselines import Metrics, score
from bc.batches import batches_of
from bc.dataset import BCDataset
from bc.thread_pool import ThreadPool, summed_gradients
from nppsim.actions import ACTION_NAMES
from nppsim.errors import ConfigError, UserError
from nppsim.io.files import table
from nppsim.io.progress import progress_bar
from nppsim.settings import check_settings, setting

_REPLAYS = "replay_data_dir and pretraining"  # condition in rl.config
_NOT_FINITE = "lower the learning rate, or look for NaN in the observations and in the normaliser's statistics"


class TrainingError(UserError, RuntimeError):
    """Pretraining that failed, e.g. because of a loss that is not finite."""


@dataclass(frozen=True)
class BCConfig:
    """Settings of pretraining by behavioural cloning."""

    epochs: int = setting(
        50, "maximum number of passes over the demonstrations", flag="bc-epochs", needs=_REPLAYS, low=1
    )
    batch_size: int = setting(
        128, "decisions per gradient step of behavioural cloning", flag="bc-batch-size", needs=_REPLAYS, low=1
    )
    learning_rate: float = setting(
        3e-4,
        "initial learning rate of behavioural cloning; it decays to zero as a cosine",
        flag="bc-learning-rate",
        needs=_REPLAYS,
        above=0,
        high=1,
    )
    weight_decay: float = setting(1e-5, "weight decay of AdamW", flag="bc-weight-decay", needs=_REPLAYS, low=0)
    max_grad_norm: float = setting(
        1.0, "maximum gradient norm; larger gradients are clipped", flag="bc-max-grad-norm", needs=_REPLAYS, above=0
    )
    patience: int = setting(
        10, "epochs without a better validation loss before early stopping", flag="bc-patience", needs=_REPLAYS, low=1
    )
    class_weight_power: float = setting(
        0.0,
        "exponent of the class weights (1 / frequency of the action); 0 disables weighting",
        flag="bc-class-weight-power",
        needs=_REPLAYS,
        low=0,
        high=10,
    )
    seed: int = setting(0, "random seed for the order of minibatches", refusal="follows --seeds; leave it out", low=0)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.weight_decay * self.learning_rate >= 1:
            raise ConfigError(
                f"weight decay times learning rate must be below 1; give less than {1 / self.learning_rate:g}",
                "weight_decay",
                self.weight_decay,
            )


@dataclass(frozen=True)
class BCResult:
    """Result of pretraining.

    best_epoch: epoch with the best validation loss, counted from 1; the policy has the weights of this epoch.
    training, validation: metrics of these weights on the training and validation parts of the dataset.
    baselines: metrics of the trivial predictors on the validation part.
    history: scalars of each epoch, as written to TensorBoard.
    closed_loop: result of ``Hooks.closed_loop``, or None.
    """

    epochs_run: int
    best_epoch: int
    stopped_early: bool
    training: Metrics
    validation: Metrics
    baselines: dict[str, Metrics]
    training_decisions: int
    validation_decisions: int
    action_histogram: tuple[int, ...]
    history: tuple[dict[str, float], ...] = field(repr=False)
    closed_loop: dict[str, float] | None
    wall_time_s: float

    def as_dict(self) -> dict:
        """Plain values for the results file."""
        return asdict(self)

    def table(self) -> str:
        """Return a table for printing: validation metrics of the policy and of the trivial predictors."""
        header = ("validation", "loss", "accuracy", "on changes", "recall per action")
        rows = []
        for name, metrics in {"policy": self.validation, **self.baselines}.items():
            by_action = zip(ACTION_NAMES, metrics.recall, strict=True)
            recall = " ".join(f"{action} {_text(share, '.2f')}" for action, share in by_action)
            accuracy, changes = _text(metrics.accuracy, ".1%"), _text(metrics.change_accuracy, ".1%")
            rows.append((name, _text(metrics.loss, ".3f"), accuracy, changes, recall))
        closed_loop = [f"closed loop, {name}: {value:.3g}" for name, value in (self.closed_loop or {}).items()]
        return "\n".join([table(header, rows, align="lrrrl"), *closed_loop])


class TrainablePolicy(Protocol):
    """Torch module that maps raw observations to logits float[B, 6] and values float[B].

    A policy whose attribute ``memory`` is not None must also have the methods ``step`` and ``in_sequences`` of NppPolicy.
    """

    training: bool

    def logits_and_values(self, observations: dict[str, torch.Tensor], /) -> tuple[torch.Tensor, torch.Tensor]: ...
    def parameters(self) -> Iterator[torch.nn.Parameter]: ...
    def state_dict(self) -> dict[str, torch.Tensor]: ...
    def load_state_dict(self, state_dict: Mapping[str, torch.Tensor], strict: bool = True) -> object: ...
    def train(self, mode: bool = True) -> object: ...
    def eval(self) -> object: ...


class ScalarWriter(Protocol):
    """Interface of TensorBoard's ``SummaryWriter``."""

    def add_scalar(self, tag: str, value: float, step: int, /) -> object: ...
    def flush(self) -> object: ...


@dataclass(frozen=True)
class Hooks:
    """Functions that pretraining calls.

    on_improvement: called with policy and epoch at each new best validation loss, e.g. to save a checkpoint.
    on_epoch: called after each epoch with the training state, which does not contain the weights of the policy.
    closed_loop: called at the end with the policy; returns metrics for the result and for ``bc/closed_loop/...``.
    """

    on_improvement: Callable[[Any, int], None] = lambda policy, epoch: None
    on_epoch: Callable[[dict[str, Any]], None] = lambda state: None
    closed_loop: Callable[[Any], Mapping[str, float]] | None = None


def pretrain(
    policy: TrainablePolicy,
    dataset: BCDataset,
    config: BCConfig,
    writer: ScalarWriter | None = None,
    *,
    hooks: Hooks | None = None,
    state: Mapping[str, Any] | None = None,
    pool: ThreadPool | None = None,
    log: Callable[[str], None] = print,
) -> BCResult:
    """Train ``policy`` on ``dataset``; at the end, it has the weights with the best validation loss.

    The value head is not trained.
    policy: the policy on the device for training, with statistics in its normaliser.
    writer: TensorBoard writer for the tags ``bc/...``; the step is the epoch.
    state: the last state passed to ``hooks.on_epoch``, to resume; the caller restores the weights of the policy.  On a CPU,
        the result equals that of an uninterrupted run bit for bit.
    pool: threads that share each batch; None: a single thread.
    log: function that prints progress if there is no terminal for a progress bar.
    Raises TrainingError if the loss is not finite, if all gradients are zero, or if ``state`` is of other data or settings.
    """
    hooks = hooks or Hooks()
    setup = _Setup(policy, dataset, config, pool or ThreadPool(1))
    baselines = trivial_baselines(dataset, setup.validation)
    progress = _Progress(config.seed)
    if state is None:
        _write_constants(writer, dataset, baselines)
    else:
        progress.load(state, setup, dataset)
    _fit(setup, progress, writer, hooks, log)
    best, history = progress.best, progress.history
    policy.load_state_dict(best.weights, strict=True)
    closed_loop = dict(hooks.closed_loop(policy)) if hooks.closed_loop else None
    _write(writer, {f"closed_loop/{name}": value for name, value in (closed_loop or {}).items()}, best.epoch)
    return BCResult(
        epochs_run=len(history),
        best_epoch=best.epoch,
        stopped_early=len(history) < config.epochs,
        training=evaluate(policy, dataset, setup.training),
        validation=evaluate(policy, dataset, setup.validation),
        baselines=baselines,
        training_decisions=len(setup.training),
        validation_decisions=len(setup.validation),
        action_histogram=tuple(dataset.action_histogram().tolist()),
        history=tuple(history),
        closed_loop=closed_loop,
        wall_time_s=progress.seconds,
    )


class _Setup:
    """Objects that all epochs share.

    training, validation: rows of the dataset, int64.
    weights: float[6], class weights of the loss.
    """

    def __init__(self, policy: TrainablePolicy, dataset: BCDataset, config: BCConfig, pool: ThreadPool):
        self.policy, self.dataset, self.config, self.pool = policy, dataset, config, pool
        device = next(policy.parameters()).device
        self.training, self.validation = dataset.rows(validation=False), dataset.rows(validation=True)
        self.weights = torch.as_tensor(dataset.class_weights(config.class_weight_power), device=device)
        self.optimizer = torch.optim.AdamW(
            policy.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
        )
        self.batches = batches_of(policy, dataset, device)
        updates = config.epochs * self.batches.steps(self.training, config.batch_size)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, updates)


@dataclass(frozen=True, eq=False)
class _Best:
    """Best validation loss so far, with its epoch and weights."""

    epoch: int
    loss: float
    weights: dict[str, torch.Tensor]


class _Progress:
    """Best weights, history and random generator of a training, between epochs.

    history: scalars of each epoch.
    order: random generator for the order of minibatches.
    seconds: duration of training without interruptions.
    """

    def __init__(self, seed: int):
        self.best = _Best(0, math.inf, {})
        self.history: list[dict[str, float]] = []
        self.order = np.random.default_rng(seed)
        self._began, self._before = time.monotonic(), 0.0

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._began

    def state(self, setup: _Setup) -> dict[str, Any]:
        """Return the state for ``load``."""
        return {
            "dataset": setup.dataset.key,
            "config": asdict(setup.config),
            "optimizer": setup.optimizer.state_dict(),
            "schedule": setup.schedule.state_dict(),
            "order": self.order.bit_generator.state,
            "best": asdict(self.best),
            "history": self.history,
            "seconds": self.seconds,
        }

    def load(self, state: Mapping[str, Any], setup: _Setup, dataset: BCDataset) -> None:
        """Restore a ``state``.  Raises TrainingError if it is of a training with other data or settings."""
        if state["dataset"] != dataset.key:
            raise TrainingError(
                f"imitation started with other demonstrations ({state['dataset']}, now {dataset.key}); restore them, or "
                "start a new run"
            )
        new = asdict(setup.config)
        if changed := [f"{name}: {old} -> {new[name]}" for name, old in state["config"].items() if new[name] != old]:
            raise TrainingError(
                f"settings of imitation cannot change while it is unfinished ({', '.join(changed)}): undo the change, or "
                "start a new run"
            )
        setup.optimizer.load_state_dict(state["optimizer"])
        setup.schedule.load_state_dict(state["schedule"])
        self.order.bit_generator.state = state["order"]
        self.best, self.history, self._before = _Best(**state["best"]), list(state["history"]), state["seconds"]


def _fit(
    setup: _Setup, progress: _Progress, writer: ScalarWriter | None, hooks: Hooks, log: Callable[[str], None]
) -> None:
    """Train until the last epoch or early stopping."""
    epochs = setup.config.epochs
    with progress_bar(total=epochs, title="imitation", unit="epoch") as bar:
        bar.update(len(progress.history))
        while len(progress.history) < epochs and len(progress.history) - progress.best.epoch < setup.config.patience:
            epoch = len(progress.history) + 1
            scalars = _train_epoch(setup, progress.order, epoch)
            metrics = evaluate(setup.policy, setup.dataset, setup.validation)
            loss = metrics.loss
            if loss is None or not math.isfinite(loss):
                raise TrainingError(f"validation loss is {loss} after epoch {epoch}; {_NOT_FINITE}")
            scalars |= _scalars(metrics)
            progress.history.append(scalars)
            _write(writer, scalars, epoch)
            if loss < progress.best.loss:
                weights = {name: value.detach().clone() for name, value in setup.policy.state_dict().items()}
                progress.best = _Best(epoch, loss, weights)
                hooks.on_improvement(setup.policy, epoch)
            line = f"loss {scalars['train_loss']:.3f}, validation {loss:.3f}, accuracy {metrics.accuracy:.1%}"
            bar.update()
            bar.set_postfix_str(line)
            if bar.disable and (epoch == 1 or epoch % max(1, epochs // 10) == 0):
                log(f"imitation, epoch {epoch} of {epochs}: {line}")
            hooks.on_epoch(progress.state(setup))


def evaluate(policy: TrainablePolicy, dataset: BCDataset, rows: np.ndarray) -> Metrics:
    """Compute the metrics of ``policy``, in evaluation mode, on some rows of ``dataset``."""
    device, was_training = next(policy.parameters()).device, policy.training
    policy.eval()
    losses, predictions = [], []
    with torch.no_grad():
        batches = batches_of(policy, dataset, device)
        for part in batches.parts(rows):
            observations, actions = batches.observe_whole(part)
            logits = policy.logits_and_values(observations)[0].float()
            losses.append(torch.nn.functional.cross_entropy(logits, actions, reduction="sum").item())
            predictions.append(logits.argmax(dim=1).cpu().numpy())
    policy.train(was_training)
    actions, previous = dataset.actions[rows], dataset.previous_actions[rows]
    return score(np.concatenate(predictions), actions, previous, sum(losses) / len(rows))


def trivial_baselines(dataset: BCDataset, rows: np.ndarray) -> dict[str, Metrics]:
    """Compute the metrics of two trivial predictors on some rows; they are fitted to the training part."""
    majority = dataset.action_histogram(dataset.rows(validation=False)).argmax()
    actions, previous = dataset.actions[rows], dataset.previous_actions[rows]
    predictions = {"repeat_previous": previous, "majority": np.full_like(actions, majority)}
    return {name: score(predicted, actions, previous) for name, predicted in predictions.items()}


def _train_epoch(setup: _Setup, order: np.random.Generator, epoch: int) -> dict[str, float]:
    """Train one epoch; return learning rate, mean loss (with class weights) and accuracy."""
    scalars = {"learning_rate": float(setup.schedule.get_last_lr()[0])}
    setup.policy.train()
    total = np.zeros(2)
    for number, batch in enumerate(setup.batches.epoch(setup.training, setup.config.batch_size, order), start=1):
        loss, accuracy = _differentiate(setup, batch)
        if not math.isfinite(loss):
            raise TrainingError(f"imitation loss is {loss} in epoch {epoch}, batch {number}; {_NOT_FINITE}")
        _step(setup, epoch)
        total += (loss * len(batch), accuracy * len(batch))
    loss, accuracy = total / len(setup.training)
    return scalars | {"train_loss": float(loss), "train_accuracy": float(accuracy)}


def _differentiate(setup: _Setup, batch: np.ndarray) -> list[float]:
    """Compute the gradients of a batch and set them in the parameters; return loss and accuracy."""
    observations, actions = setup.batches.observe(batch)

    def loss(rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
        logits = setup.policy.logits_and_values({key: values[rows] for key, values in observations.items()})[0].float()
        # class weights average to 1 over the dataset, so a plain mean preserves the scale of the gradient
        losses = torch.nn.functional.cross_entropy(logits, actions[rows], weight=setup.weights, reduction="none")
        right = logits.argmax(dim=1) == actions[rows]
        return losses.mean(), torch.stack((losses.mean(), right.float().mean()))

    parameters = [parameter for parameter in setup.policy.parameters() if parameter.requires_grad]
    means, gradients = summed_gradients(setup.pool, len(batch), loss, parameters, setup.batches.begins(batch))
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    return means.tolist()


def _step(setup: _Setup, epoch: int) -> None:
    """Make a step of the optimiser.  Raises TrainingError if the gradient norm is 0 or not finite."""
    norm = torch.nn.utils.clip_grad_norm_(setup.policy.parameters(), setup.config.max_grad_norm)
    if not (norm > 0 and torch.isfinite(norm)):
        raise TrainingError(
            f"imitation gradient has norm {norm.item()} in epoch {epoch}; the policy's logits do not depend on its "
            "parameters, or the values overflow: check that no parameter is frozen and that the statistics fit the data"
        )
    setup.optimizer.step()
    setup.schedule.step()


def _scalars(metrics: Metrics) -> dict[str, float]:
    values = {
        "validation_loss": metrics.loss,
        "validation_accuracy": metrics.accuracy,
        "validation_change_accuracy": metrics.change_accuracy,
    }
    values |= {f"recall/{name}": value for name, value in zip(ACTION_NAMES, metrics.recall, strict=True)}
    return {name: value for name, value in values.items() if value is not None}


def _write_constants(writer: ScalarWriter | None, dataset: BCDataset, baselines: Mapping[str, Metrics]) -> None:
    shares = dataset.action_histogram() / len(dataset)
    scalars = {f"actions/{name}": float(share) for name, share in zip(ACTION_NAMES, shares, strict=True)}
    for name, metrics in baselines.items():
        scalars[f"baseline/{name}_accuracy"] = metrics.accuracy
    _write(writer, scalars, 0)


def _write(writer: ScalarWriter | None, scalars: Mapping[str, float], step: int) -> None:
    if writer is not None:
        for name, value in scalars.items():
            writer.add_scalar(f"bc/{name}", value, step)
        writer.flush()


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
