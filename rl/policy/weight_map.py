"""Strict transfer of weights from one network to another: all of it, or an error that lists the tensors.

A policy that is loaded by half trains without complaint and learns nothing of what it was taught.  So every source
tensor must be used exactly once or be listed in ``skipped``, every target tensor must be filled or be listed in
``fresh``, and the values are compared after copying.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from nppsim.errors import UserError
from rl.policy.policy import NppPolicy

MIN_AGREEMENT = 0.95  # share of a probe batch on which both policies choose the same action


class WeightTransferError(UserError, ValueError):
    """A transfer that would be incomplete or wrong; lists the tensors.  The target is left as it was."""


@dataclass(frozen=True)
class TransferReport:
    """What a transfer did; counts are of tensors, ``values`` of numbers."""

    source: int
    used: int
    target: int
    filled: int
    values: int
    skipped: tuple[str, ...]  # names of source tensors left out on purpose
    fresh: tuple[str, ...]  # names of target tensors that keep their initial values on purpose

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
    source_state: Mapping[str, torch.Tensor],
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
    problems: list[str] = []
    fresh_names = _expand("fresh", fresh, target_state, problems)
    skipped_names = _expand("skipped", skipped, source_state, problems)
    if mapping is None:
        mapping = {name: name for name in source_state if name not in skipped_names}

    _list(problems, "mapped, but not in the source", [name for name in mapping if name not in source_state])
    _list(problems, "mapped and skipped", [name for name in mapping if name in skipped_names])
    unused = [name for name in source_state if name not in mapping and name not in skipped_names]
    _list(problems, "in the source, but neither mapped nor skipped", unused)

    targets = list(mapping.values())
    _list(problems, "not in the target", [name for name in targets if name not in target_state])
    _list(problems, "filled twice", sorted({name for name in targets if targets.count(name) > 1}))
    _list(problems, "filled and fresh", [name for name in targets if name in fresh_names])
    unfilled = [name for name in target_state if name not in set(targets) | fresh_names]
    _list(problems, "in the target, but neither filled nor fresh", unfilled)

    for source, target in mapping.items():
        if source in source_state and target in target_state:
            have, want = source_state[source], target_state[target]
            if have.shape != want.shape or have.dtype != want.dtype:
                problems.append(
                    f"{source} -> {target}: {tuple(have.shape)} {have.dtype} does not fit "
                    f"{tuple(want.shape)} {want.dtype}"
                )
            elif not torch.isfinite(have).all():
                problems.append(f"{source}: values are not finite")
    if problems:
        raise WeightTransferError(
            "weights not transferred, the target is unchanged:\n  " + "\n  ".join(problems) + "\nGive the network and "
            "weights of one architecture, or name what is meant to differ in mapping, skipped or fresh."
        )

    # load_state_dict and not copy_: modules may check what they load, as the normaliser does with its fingerprint
    target_module.load_state_dict(target_state | {target: source_state[source] for source, target in mapping.items()})
    copied = target_module.state_dict()
    different = [t for s, t in mapping.items() if not torch.equal(copied[t].cpu(), source_state[s].cpu())]
    if different:
        raise WeightTransferError(f"values differ after copying: {', '.join(different)}")
    return TransferReport(
        source=len(source_state),
        used=len(mapping),
        target=len(target_state),
        filled=len(targets),
        values=sum(source_state[name].numel() for name in mapping),
        skipped=tuple(sorted(skipped_names)),
        fresh=tuple(sorted(fresh_names)),
    )


def check_same_policy(
    source: NppPolicy,
    target: NppPolicy,
    obs: Mapping[str, np.ndarray],
    *,
    heads: bool = True,
    tolerance: float = 1e-5,
) -> float:
    """Compare two policies on a probe batch, both in float32; returns the share of equal greedy actions.

    obs: raw observations {key: array [N, *shape]}, N of a few hundred.
    heads: also compare logits and actions; False where the target's actor was left fresh.
    WeightTransferError: architectures differ, features or logits differ by more than ``tolerance`` of their largest
        absolute value (at least of 1), or fewer than 95 % of the actions agree.
    """
    if source.architecture != target.architecture:
        raise WeightTransferError(f"architectures differ: {source.architecture} and {target.architecture}")
    outputs = []
    for policy in (source, target):
        before = policy.precision
        policy.precision = "float32"
        try:
            with torch.no_grad():
                tensors = policy.to_tensors(obs)
                outputs.append((policy.features(tensors).cpu(), policy.logits_and_values(tensors)[0].cpu()))
        finally:
            policy.precision = before
    for name, have, want in zip(("features", "logits"), outputs[1], outputs[0], strict=True):
        if name == "logits" and not heads:
            continue
        largest = float((have - want).abs().max())
        if not largest <= tolerance * max(1.0, float(want.abs().max())):  # catches NaN as well
            raise WeightTransferError(
                f"{name} of the two policies differ by up to {largest:.3g} on the probe batch: the weights or the "
                f"normaliser's statistics are not the same"
            )
    agreement = float((outputs[0][1].argmax(1) == outputs[1][1].argmax(1)).float().mean())
    if heads and agreement < MIN_AGREEMENT:
        raise WeightTransferError(
            f"only {agreement:.1%} of the actions agree on the probe batch, {MIN_AGREEMENT:.0%} needed"
        )
    return agreement


def _expand(argument, patterns, state, problems):
    names = set()
    for pattern in (patterns,) if isinstance(patterns, str) else patterns:
        found = {name for name in state if name == pattern or (pattern.endswith(".") and name.startswith(pattern))}
        if not found:
            problems.append(f"{argument} names {pattern!r}, which does not exist")
        names |= found
    return names


def _list(problems, what, names):
    if names:
        problems.append(f"{what}: {', '.join(names)}")
