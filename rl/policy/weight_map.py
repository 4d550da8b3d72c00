"""Strict transfer of weights between networks.

A policy that received only a part of the weights would train without an error, but from partly random weights.  So each
source tensor must be used, and each target tensor must be copied or listed in ``fresh``.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from nppsim.errors import UserError
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy
from rl.policy.recurrent import RECURRENT_STATE
from rl.policy.subtasks import SUBTASK, SUBTASKS

State = Mapping[str, torch.Tensor]  # state dict
TOLERANCE = 1e-5  # largest difference of features and logits, as a share of the largest absolute value
MIN_AGREEMENT = 0.95  # share of a probe batch on which both policies choose the same action


class WeightTransferError(UserError, ValueError):
    """A transfer that is incomplete or wrong; the target is unchanged.  problems: texts with the names of tensors."""

    def __init__(self, message: str, problems: Iterable[str] = ()):
        super().__init__(message)
        self.problems = tuple(problems)


@dataclass(frozen=True)
class TransferReport:
    """Result of a transfer.

    tensors, values: number of transferred tensors, and number of values in these tensors.
    fresh: names of the target tensors that keep their initial values.
    """

    tensors: int
    values: int
    fresh: tuple[str, ...]

    def __str__(self) -> str:
        filled = f"weights: {self.tensors} tensors transferred ({self.values:,} values)"
        return f"{filled}\n  fresh: {', '.join(self.fresh)}" if self.fresh else filled


def transfer(source_state: State, target_module: nn.Module, *, fresh: Iterable[str] = ()) -> TransferReport:
    """Copy all tensors of ``source_state`` to the tensors with the same names in ``target_module``.

    fresh: target tensors that keep their values, as names or as prefixes that end with a dot ("value_net.").
    Raises WeightTransferError if a source tensor is not used, a target tensor is neither copied nor in ``fresh``, or a
    tensor is of another shape or dtype, or not finite.
    """
    target_state = target_module.state_dict()
    new = tuple(sorted(name for name in target_state if any(_fits(name, pattern) for pattern in fresh)))
    if problems := _problems(source_state, target_state, new):
        raise WeightTransferError(
            "no weights were transferred:\n  " + "\n  ".join(problems) + "\nUse weights and a network of the same "
            "architecture, or list the tensors that shall keep their initial values in ``fresh``.",
            problems,
        )
    # load_state_dict instead of copy_, so that the normaliser checks its fingerprint
    target_module.load_state_dict({**target_state, **source_state})
    return TransferReport(len(source_state), sum(tensor.numel() for tensor in source_state.values()), new)


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or (pattern.endswith(".") and name.startswith(pattern))


def _problems(source: State, target: State, fresh: Collection[str]) -> list[str]:
    names_by_problem = {
        "not in the target": [name for name in source if name not in target],
        "copied, but listed in fresh": [name for name in source if name in fresh],
        "in the new network, but neither copied nor listed in fresh": [
            n for n in target if n not in source and n not in fresh
        ],
    }
    problems = [f"{problem}: {', '.join(names)}" for problem, names in names_by_problem.items() if names]
    for name in source.keys() & target.keys():
        value, parameter = source[name], target[name]
        if value.shape != parameter.shape or value.dtype != parameter.dtype:
            kinds = f"{tuple(value.shape)} {value.dtype} does not fit {tuple(parameter.shape)} {parameter.dtype}"
            problems.append(f"{name}: {kinds}")
        elif not torch.isfinite(value).all():
            problems.append(f"{name}: values are not finite")
    return problems


def check_same_policy(source: NppPolicy, target: NppPolicy, obs: Mapping[str, np.ndarray]) -> float:
    """Compare two policies in float32 on some observations; return the share of equal greedy actions.

    A target with subtasks is compared once per subtask; a recurrent target once with zero and once with random states.
    obs: raw observations {key: array [N, *shape]}, with N of a few hundred.
    Raises WeightTransferError if the architectures differ in more than subtasks, if features or logits differ by more than
    1e-5 of max(1, largest absolute value), or if fewer than 95 % of the actions are equal.
    """
    wanted_of = get_architecture(target.architecture)
    if source.architecture not in (wanted_of.name, wanted_of.imitated.name):
        raise WeightTransferError(f"architectures differ: {source.architecture} and {target.architecture}")
    return min(_agreement(source, target, probe) for probe in _probes(target, obs))


def _probes(target: NppPolicy, obs: Mapping[str, np.ndarray]) -> list[Mapping[str, np.ndarray]]:
    """Return one batch per subtask, or one with zero and one with random recurrent states, or only ``obs``."""
    rows = len(next(iter(obs.values())))
    if target.memory is not None:
        states = np.random.default_rng(0).uniform(-1, 1, (rows, target.memory.size)).astype(np.float32)
        return [obs, {**obs, RECURRENT_STATE: states}]
    if target.high_level is None:
        return [obs]
    return [{**obs, SUBTASK: np.full((rows, 2), (number, 1))} for number in range(len(SUBTASKS))]


def _agreement(source: NppPolicy, target: NppPolicy, obs: Mapping[str, np.ndarray]) -> float:
    """Return the share of equal actions; see ``check_same_policy``."""
    wanted, actual = (_in_float32(policy, obs) for policy in (source, target))
    for name, want, have in zip(("features", "logits"), wanted, actual, strict=True):
        largest = float((have - want).abs().max())
        if not largest <= TOLERANCE * max(1.0, float(want.abs().max())):  # also true for NaN
            raise WeightTransferError(
                f"{name} of the two policies differ by up to {largest:.3g} on the probe batch: the weights or the "
                f"normaliser's statistics are not the same"
            )
    agreement = float((wanted[1].argmax(1) == actual[1].argmax(1)).float().mean())
    if agreement < MIN_AGREEMENT:
        raise WeightTransferError(
            f"only {agreement:.1%} of the actions agree on the probe batch, {MIN_AGREEMENT:.0%} needed"
        )
    return agreement


@torch.no_grad()
def _in_float32(policy: NppPolicy, obs: Mapping[str, np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features and logits on the CPU."""
    before = policy.precision
    policy.precision = "float32"
    try:
        tensors = policy.to_tensors(obs)
        return policy.features(tensors).cpu(), policy.logits_and_values(tensors)[0].cpu()
    finally:
        policy.precision = before
