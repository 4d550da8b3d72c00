"""Whether an exported network does what its policy does: the same numbers on many observations, the same play on levels.

agreement = compare(policy, network, LevelSet.open(STARTER_LEVELS), frame_skip=4)
print(agreement)      # ONNX and torch: 1,000 observations, logits within 3e-06 ...
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from nppsim.actions import ACTION_NAMES, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.levels.level_set import LevelSet
from rl.evaluation.suite import EvaluationSuite
from rl.policy.onnx import ExportError, OnnxPolicy, facts_of
from rl.policy.policy import NppPolicy

OBSERVATIONS = 1000
EPISODES_PER_CATEGORY = 10
SEED = 0  # of levels, random actions and sampled ones
MOST = 1e-3  # by which logits and values may differ; rounding in another order makes about 1e-5 of it
_ENVS = 20


@dataclass
class Agreement:
    """What two networks made of the same observations.

    observations: compared, those of the episodes not counted.
    largest_logit, largest_value: by which they differ at most, anywhere.
    episodes, wins: played by the exported network, greedily.
    decisions: in these episodes.
    same_actions: of these decisions, where both found the same action likeliest; the others are ties within rounding.
    forbidden: decisions, of all, in which the network did not take the likeliest of the actions that a mask allows.
    """

    observations: int = 0
    largest_logit: float = 0.0
    largest_value: float = 0.0
    episodes: int = 0
    wins: int = 0
    decisions: int = 0
    same_actions: int = 0
    forbidden: int = 0

    def __str__(self) -> str:
        return (
            f"ONNX and torch: {self.observations:,} observations and {self.episodes} episodes ({self.wins} won); logits "
            f"within {self.largest_logit:.1e}, values within {self.largest_value:.1e}; the same action in "
            f"{self.same_actions:,} of {self.decisions:,} decisions"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for files."""
        return asdict(self)


class _Both:
    """The exported network plays, and beside it the policy computes what it would have done."""

    def __init__(self, policy: NppPolicy, network: OnnxPolicy, found: Agreement):
        self.policy, self.network, self.found, self.stacking = policy, network, found, policy.stacking
        self._rng = np.random.default_rng(SEED)

    @torch.no_grad()
    def act(self, obs: dict[str, np.ndarray], *, deterministic: bool, rng: torch.Generator | None) -> np.ndarray:
        logits, values, actions = self.network.compute(obs)
        allowed = self._rng.random(logits.shape) < 0.5
        allowed[np.arange(len(logits)), self._rng.integers(NUM_ACTIONS, size=len(logits))] = True  # one at least
        masked = self.network.compute(obs, allowed)[2]
        self.found.forbidden += int((masked != np.where(allowed, logits, -np.inf).argmax(axis=1)).sum())
        wanted, worth = (tensor.numpy() for tensor in self.policy.logits_and_values(self.policy.to_tensors(obs)))
        self.found.largest_logit = _larger(self.found.largest_logit, logits - wanted)
        self.found.largest_value = _larger(self.found.largest_value, (values - worth) / np.maximum(1.0, np.abs(worth)))
        self.found.same_actions += int((actions == wanted.argmax(axis=1)).sum())
        self.found.decisions += len(actions)
        return actions


def _larger(before: float, differences: np.ndarray) -> float:
    largest = np.abs(differences).max()
    return max(before, float(largest)) if np.isfinite(largest) else np.inf


def compare(
    policy: NppPolicy,
    network: OnnxPolicy,
    levels: LevelSet,
    *,
    frame_skip: int,
    observations: int = OBSERVATIONS,
    episodes_per_category: int = EPISODES_PER_CATEGORY,
) -> Agreement:
    """Compare on observations of random play, and in episodes that the network plays; ExportError where they differ by MOST.

    policy: on the CPU, in float32 and evaluation mode.
    """
    found = Agreement(observations=observations)
    both = _Both(policy, network, found)
    for obs in _random_play(policy, levels, frame_skip, observations):
        both.act(obs, deterministic=True, rng=None)
    found.decisions = found.same_actions = 0
    told, wanted = network.facts, facts_of(policy, frame_skip)
    if told != wanted or told.actions != ACTION_NAMES or told.frame_skip != frame_skip:
        raise ExportError(f"the exported network's metadata have {told} instead of {wanted}; nothing was written")
    suite = EvaluationSuite(
        levels,
        episodes_per_category=episodes_per_category,
        seed=SEED,
        frame_skip=frame_skip,
        observations=policy.observations,
        stacking=policy.stacking,
    )
    records = suite.run(both, deterministic=True)
    found.episodes, found.wins = len(records), sum(record.won for record in records)
    if max(found.largest_logit, found.largest_value) > MOST:
        raise ExportError(f"the exported network computes something else; not written ({found})")
    if found.forbidden:
        raise ExportError(f"the exported network ignores its action mask ({found.forbidden:,} decisions); not written")
    return found


def _random_play(policy: NppPolicy, levels: LevelSet, frame_skip: int, count: int) -> Iterator[dict[str, np.ndarray]]:
    """Observations of random actions, ``count`` of them in all."""
    rng = np.random.default_rng(SEED)
    bank = LevelBank(levels)
    sim = BatchSimulator(bank, _ENVS, frame_skip=frame_skip, observations=policy.observations, stacking=policy.stacking)
    obs = sim.reset(rng.integers(len(bank.levels), size=_ENVS).astype(np.int32))
    while count > 0:
        yield {key: values[:count] for key, values in obs.items()}
        count -= _ENVS
        obs = sim.step(rng.integers(NUM_ACTIONS, size=_ENVS))
