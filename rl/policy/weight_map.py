"""Strict transfer of weights between networks; incomplete transfers are errors that list the tensors.

A partly loaded policy would train without an error but lack pretraining.  So each source tensor must be used exactly once or
listed in ``skipped``.  Each target tensor must be filled or listed in ``fresh``.  Values are compared after copying.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from nppsim.errors import UserError
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy
from rl.policy.recurrent import MEMORY
from rl.policy.subtasks import COMMAND, SUBTASKS

State = Mapping[str, torch.Tensor]  # a state dict
TOLERANCE = 1e-5  # of features and logits, as a share of the largest absolute value
MIN_AGREEMENT = 0.95  # share of a probe batch on which both policies choose the same action


class WeightTransferError(UserError, ValueError):
    """Incomplete or wrong transfer; the target is unchanged.  problems: each with the names of its tensors."""

    def __init__(self, message: str, problems: Iterable[str] = ()):
        super().__init__(message)
        self.problems = tuple(problems)


@dataclass(frozen=True)
class TransferReport:
    """Result of a transfer; counts are of tensors, ``values`` of numbers."""

    source: int
    used: int
    target: int
    filled: int
    values: int
    skipped: tuple[str, ...]  # source tensors that are left out
    fresh: tuple[str, ...]  # target tensors that keep their initial values

    def __str__(self) -> str:
        lines = [
            f"weights: {self.used} of {self.source} source tensors into {self.filled} of {self.target} target tensors "
            f"({self.values:,} values, all compared)"
        ]
        for word in ("skipped", "fresh"):
            names = getattr(self, word)
            if names:
                lines.append(f"  {word}: {', '.join(names)}")
        return "\n".join(lines)


def transfer(
    source_state: State,
    target_module: nn.Module,
    *,
    mapping: Mapping[str, str] | None = None,
    fresh: Iterable[str] = (),
    skipped: Iterable[str] = (),
) -> TransferReport:
    """Copy tensors of ``source_state`` into ``target_module``.

    mapping: source name -> target name; None maps every source tensor that is not skipped to its own name.
    fresh, skipped: names, or prefixes that end with a dot ("value_net."), of target tensors that keep their values
        and of source tensors that are left out.
    WeightTransferError: anything unused, unfilled, used twice, of another shape or dtype, not finite, or a name in
        the arguments that does not exist.
    """
    target_state = target_module.state_dict()
    fresh_names, skipped_names = _expand(fresh, target_state), _expand(skipped, source_state)
    if mapping is None:
        mapping = {name: name for name in source_state if name not in skipped_names}
    problems = [
        *(f"fresh names {name!r}, which does not exist" for name in _unused(fresh, target_state)),
        *(f"skipped names {name!r}, which does not exist" for name in _unused(skipped, source_state)),
        *_name_problems(source_state, target_state, mapping, skipped_names, fresh_names),
        *_tensor_problems(source_state, target_state, mapping),
    ]
    if problems:
        raise WeightTransferError(
            "no weights were transferred:\n  " + "\n  ".join(problems) + "\nGive the network and "
            "weights of one architecture, or list intended differences in mapping, skipped or fresh.",
            problems,
        )
    _copy(source_state, target_module, mapping)
    return TransferReport(
        source=len(source_state),
        used=len(mapping),
        target=len(target_state),
        filled=len(mapping),
        values=sum(source_state[name].numel() for name in mapping),
        skipped=tuple(sorted(skipped_names)),
        fresh=tuple(sorted(fresh_names)),
    )


def _patterns(argument: str | Iterable[str]) -> tuple[str, ...]:
    return (argument,) if isinstance(argument, str) else tuple(argument)


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or (pattern.endswith(".") and name.startswith(pattern))


def _expand(patterns: str | Iterable[str], state: State) -> set[str]:
    """Names in the state dict that fit a pattern."""
    return {name for name in state for pattern in _patterns(patterns) if _fits(name, pattern)}


def _unused(patterns: str | Iterable[str], state: State) -> list[str]:
    """Patterns that fit no name."""
    return [pattern for pattern in _patterns(patterns) if not any(_fits(name, pattern) for name in state)]


def _name_problems(
    source: State, target: State, mapping: Mapping[str, str], skipped: set[str], fresh: set[str]
) -> list[str]:
    """Format source tensors not used exactly once or skipped, and target tensors not filled exactly once or fresh."""
    filled = Counter(mapping.values())
    found = {
        "mapped, but not in the source": [name for name in mapping if name not in source],
        "mapped and skipped": [name for name in mapping if name in skipped],
        "in the source, but neither mapped nor skipped": [n for n in source if n not in mapping and n not in skipped],
        "not in the target": [name for name in filled if name not in target],
        "filled twice": sorted(name for name, times in filled.items() if times > 1),
        "filled and fresh": [name for name in filled if name in fresh],
        "in the target, but neither filled nor fresh": [n for n in target if n not in filled and n not in fresh],
    }
    return [f"{problem}: {', '.join(names)}" for problem, names in found.items() if names]


def _tensor_problems(source: State, target: State, mapping: Mapping[str, str]) -> list[str]:
    """Mismatched pairs of tensors, and values that are not finite."""
    problems = []
    for name, target_name in mapping.items():
        if name in source and target_name in target:
            value, place = source[name], target[target_name]
            if value.shape != place.shape or value.dtype != place.dtype:
                kinds = f"{tuple(value.shape)} {value.dtype} does not fit {tuple(place.shape)} {place.dtype}"
                problems.append(f"{name} -> {target_name}: {kinds}")
            elif not torch.isfinite(value).all():
                problems.append(f"{name}: values are not finite")
    return problems


def _copy(source: State, target: nn.Module, mapping: Mapping[str, str]) -> None:
    """Copy tensors and compare the result."""
    # load_state_dict instead of copy_: modules may check values, as the normaliser checks its fingerprint
    target.load_state_dict(target.state_dict() | {there: source[here] for here, there in mapping.items()})
    copied = target.state_dict()
    different = [t for s, t in mapping.items() if not torch.equal(copied[t].cpu(), source[s].cpu())]
    if different:
        raise WeightTransferError(f"values differ after copying: {', '.join(different)}")


def check_same_policy(
    source: NppPolicy,
    target: NppPolicy,
    obs: Mapping[str, np.ndarray],
) -> float:
    """Compare two policies on a probe batch, both in float32; returns the share of equal greedy actions.

    obs: raw observations {key: array [N, *shape]}, N of a few hundred.
    A target with subtasks is compared under each of them; a recurrent one with zero and with random states.
    WeightTransferError: architectures differ otherwise, features or logits differ by more than 1e-5 of their largest absolute
        value (at least of 1), or fewer than 95 % of the actions agree.
    """
    wanted_of = get_architecture(target.architecture)
    if source.architecture not in (wanted_of.name, wanted_of.imitated.name):
        raise WeightTransferError(f"architectures differ: {source.architecture} and {target.architecture}")
    return min(_agreement(source, target, probe) for probe in _probes(target, obs))


def _probes(target: NppPolicy, obs: Mapping[str, np.ndarray]) -> list[Mapping[str, np.ndarray]]:
    """Observations with each subtask, or with zero and random recurrent states."""
    rows = len(next(iter(obs.values())))
    if target.memory is not None:
        states = np.random.default_rng(0).uniform(-1, 1, (rows, target.memory.size)).astype(np.float32)
        return [obs, {**obs, MEMORY: states}]
    if target.commander is None:
        return [obs]
    return [{**obs, COMMAND: np.full((rows, 2), (number, 1))} for number in range(len(SUBTASKS))]


def _agreement(source: NppPolicy, target: NppPolicy, obs: Mapping[str, np.ndarray]) -> float:
    """See ``check_same_policy``."""
    wanted, found = (_in_float32(policy, obs) for policy in (source, target))
    for name, want, have in zip(("features", "logits"), wanted, found, strict=True):
        largest = float((have - want).abs().max())
        if not largest <= TOLERANCE * max(1.0, float(want.abs().max())):  # catches NaN as well
            raise WeightTransferError(
                f"{name} of the two policies differ by up to {largest:.3g} on the probe batch: the weights or the "
                f"normaliser's statistics are not the same"
            )
    agreement = float((wanted[1].argmax(1) == found[1].argmax(1)).float().mean())
    if agreement < MIN_AGREEMENT:
        raise WeightTransferError(
            f"only {agreement:.1%} of the actions agree on the probe batch, {MIN_AGREEMENT:.0%} needed"
        )
    return agreement


@torch.no_grad()
def _in_float32(policy: NppPolicy, obs: Mapping[str, np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and logits, on the CPU."""
    before = policy.precision
    policy.precision = "float32"
    try:
        tensors = policy.to_tensors(obs)
        return policy.features(tensors).cpu(), policy.logits_and_values(tensors)[0].cpu()
    finally:
        policy.precision = before
