"""Alarms: metrics of training whose range or trend indicates a known problem.

Each alarm is a function of the ``Audit``.  It yields the name and the text of each problem that it finds.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nppsim.actions import NUM_ACTIONS

if TYPE_CHECKING:
    from rl.audit.callback import Audit

WINDOW = 20  # number of latest updates that alarms examine
ENOUGH_EPISODES = 32  # a smaller mean number of episodes per update is reported
FALL = 0.85  # a fall to less than this share of the first values in the window is reported
TAU = 0.55  # absolute rank correlation with time above which a trend is steady
MAX_GROWTH_MIB = 256.0  # memory growth in WINDOW updates that is reported, if each of them adds memory

Problem = tuple[str, str]  # name for --silence, and text


@dataclass(frozen=True)
class Figures:
    """Metrics of one update.

    episodes, wins: number of episodes that ended in the rollout, and number of these that were won.
    rewarded: number of decisions with a reward above 0.
    kl, clip_fraction, entropy, explained_variance: as logged; NaN if the update trained the critic alone.
    top_action: share of the decisions with the most frequent action.
    """

    episodes: int
    wins: int
    rewarded: int
    kl: float
    clip_fraction: float
    entropy: float
    explained_variance: float
    top_action: float
    decisions_per_s: float
    memory_mib: float


def recent(audit: "Audit", name: str, count: int = WINDOW) -> np.ndarray:
    """Return the latest values of a metric without NaN, float64[n], n <= count."""
    values = np.array([getattr(figures, name) for figures in audit.history], float)
    return values[~np.isnan(values)][-count:]


def falling(values: np.ndarray) -> bool:
    """Return True if the values fall steadily, over the whole window and in both halves."""
    half = len(values) // 2
    parts = (values, values[:half], values[half:])
    return bool(values[-5:].mean() < FALL * values[:5].mean() and all(rank_correlation(part) < -TAU for part in parts))


def rank_correlation(values: np.ndarray) -> float:
    """Return Kendall's rank correlation of the values with time, -1 to 1."""
    n = len(values)
    signs = np.sign(values[None, :] - values[:, None])[np.triu_indices(n, 1)]
    return float(signs.mean()) if n > 1 else 0.0


def size_of_updates(audit: "Audit") -> Iterator[Problem]:
    """Check that KL divergence and clip fraction are in their usual range."""
    kl, clipped = recent(audit, "kl", 5), recent(audit, "clip_fraction", 5)
    if len(kl) == 5 and (kl > 0.2).all():
        yield "kl", f"updates have a KL divergence of {kl.min():.2g} nats or more: lower --initial-lr or --n-epochs"
    if len(kl) == 5 and (kl < 1e-7).all():
        yield "kl", f"updates hardly change the policy (KL divergence {kl.max():.1g} nats): raise --initial-lr"
    if len(clipped) == 5 and (clipped > 0.5).all():
        yield "clipping", f"{clipped.min():.0%} or more of the decisions are clipped: lower --initial-lr or --n-epochs"


def entropy(audit: "Audit") -> Iterator[Problem]:
    """Check that the entropy has neither collapsed nor stayed at its maximum."""
    values = recent(audit, "entropy")
    if len(values) >= 10 and (values[-10:] < 0.02).all():
        yield "entropy", f"the policy is deterministic (entropy {values[-1]:.3g} nats): raise --ent-coef"
    late = audit.model.progress > 0.1
    if late and len(values) == WINDOW and (values > 0.999 * math.log(NUM_ACTIONS)).all():
        yield "entropy", "the policy is still uniformly random: no rewards arrive, or --initial-lr is too low"
    top = recent(audit, "top_action", 5)
    if len(top) == 5 and (top > 0.97).all():
        yield "actions", f"one action makes up {top.min():.0%} of the decisions of 5 updates"


def critic(audit: "Audit") -> Iterator[Problem]:
    """Check that the values explain a part of the variance of the returns."""
    explained = recent(audit, "explained_variance")
    if len(explained) == WINDOW and (explained < -0.5).all():
        yield (
            "critic",
            f"the values are worse than a constant in {WINDOW} updates (explained variance {explained[-1]:.2g})",
        )


def rewards(audit: "Audit") -> Iterator[Problem]:
    """Check that there are rewards, wins and enough episodes."""
    rewarded = recent(audit, "rewarded", 5)
    if len(rewarded) == 5 and not rewarded.any():
        yield "unrewarded", "no decision of 5 updates had a positive reward: check --reward-preset and the levels"
    if len(audit.history) < WINDOW:
        return
    episodes, wins = recent(audit, "episodes"), recent(audit, "wins")
    if episodes.sum() >= 200 and not wins.any():
        yield (
            "wins",
            f"no episode of {WINDOW} updates was won: start with easier levels (--curriculum stages) or imitation",
        )
    if episodes.mean() < ENOUGH_EPISODES:
        yield (
            "episodes",
            f"{episodes.mean():.0f} episodes end in an update, fewer than {ENOUGH_EPISODES}: raise --num-envs or "
            "--rollout-length",
        )


def progress(audit: "Audit") -> Iterator[Problem]:
    """Check that success has risen.  Skipped with a curriculum, which makes the levels harder."""
    ppo = audit.model
    uniform, late = ppo.sampler.config.chosen == "uniform", ppo.progress > 0.3
    episodes, wins = recent(audit, "episodes").sum(), recent(audit, "wins").sum()
    if uniform and late and audit.updates >= 5 * WINDOW and episodes:
        now = wins / episodes
        if now < 0.5 and now <= audit.start_success + 0.01:
            yield (
                "progress",
                f"{now:.1%} of the episodes are won after {audit.updates} updates, {audit.start_success:.1%} in the first "
                f"{WINDOW}: check rewards and learning rate, or start with easier levels",
            )


def resources(audit: "Audit") -> Iterator[Problem]:
    """Check that speed does not fall and memory does not grow."""
    rate, memory = recent(audit, "decisions_per_s"), recent(audit, "memory_mib")
    if len(rate) == WINDOW and falling(rate):
        yield (
            "speed",
            f"speed fell steadily over {WINDOW} updates, from {rate[:5].mean():,.0f} to {rate[-5:].mean():,.0f} decisions/s; "
            "profile with scripts/profile_multi_config.py",
        )
    if len(memory) == WINDOW and (np.diff(memory) > 0).all() and memory[-1] - memory[0] > MAX_GROWTH_MIB:
        yield "memory", f"the process grew in each of {WINDOW} updates, by {memory[-1] - memory[0]:.0f} MiB"


ALARMS: tuple[Callable[["Audit"], Iterator[Problem]], ...] = (
    size_of_updates,
    entropy,
    critic,
    rewards,
    progress,
    resources,
)
