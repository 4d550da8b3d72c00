"""Rewards: named terms, presets, and the arithmetic that checks them before training.

The reward of a decision is the sum of its terms; the simulator records the sum of each term in each episode;
these sums add up to the return.  Shaping is potential-based, F = gamma * phi(s') - phi(s), with
the gamma of PPO and phi = 0 at every terminal state, so that it telescopes: it can speed up learning, but does not change
the optimal policy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from nppsim.actions import FRAMES_PER_SECOND
from nppsim.bank import MAX_TIME_LIMIT, TIME_LIMIT_BASE, TIME_LIMIT_PER_PX
from nppsim.levels.stage import STAGE_HEIGHT, STAGE_WIDTH

GAMMA = 0.995  # discount per decision; looks about 200 decisions ahead
PATH_SHAPING, STRAIGHT_LINE_SHAPING = range(2)  # values of ``RewardConfig.potential``
MIN_PATH = 200.0  # px: shorter levels are shaped as if they were this long
STAGE_DIAGONAL = float(np.hypot(STAGE_WIDTH, STAGE_HEIGHT))  # px, of the stage
PROXIMITY_REACH = 50.0  # px, straight distance to an objective that counts as near


@dataclass(frozen=True)
class RewardConfig:
    """Weights of the terms, each under its term's name, and the kind of potential.

    win, death, switch: when the exit is reached, at death, when the exit switch is taken (once).
    time: per frame.
    shaping: size of the potential; of that along the path, which grows from 0 at the start, the value at the exit
        of a path of MIN_PATH or more; along a shorter one it grows at the same rate.
    potential: PATH_SHAPING: share of the path covered, negative behind the start; STRAIGHT_LINE_SHAPING: 1 - straight
        distance to the current objective / stage diagonal, as in October 2025.
    closest: per px by which the smallest straight distance to the current objective shrinks.
    proximity: once per objective, within 50 px of it.
    exploration: for the first visit of a 24 px cell, and of its blocks of 4, 8 and 16 cells.
    """

    win: float = 4.0
    death: float = -1.0
    switch: float = 0.5
    time: float = -0.0003
    shaping: float = 2.0
    potential: int = PATH_SHAPING
    closest: float = 0.0
    proximity: float = 0.0
    exploration: float = 0.0

    def record(self) -> np.ndarray:
        """WEIGHTS_DTYPE[1], as the kernels take it."""
        return np.array([astuple(self)], WEIGHTS_DTYPE)

    def __post_init__(self):
        if not all(np.isfinite(getattr(self, f.name)) for f in fields(self)):
            raise ValueError(f"reward weights must be finite numbers; got {self}")
        if self.potential not in (PATH_SHAPING, STRAIGHT_LINE_SHAPING):
            raise ValueError(
                f"potential must be {PATH_SHAPING} (path) or {STRAIGHT_LINE_SHAPING} (straight line); got {self.potential}"
            )


WEIGHTS_DTYPE = np.dtype([(field.name, type(field.default)) for field in fields(RewardConfig)])


class Terms(NamedTuple):
    """The reward of one decision, term by term; each has its weight in a field of the same name of RewardConfig."""

    win: float
    death: float
    switch: float
    time: float
    shaping: float
    closest: float
    proximity: float
    exploration: float


TERMS = Terms._fields
NUM_TERMS = len(TERMS)

# "legacy_october": the constants of the run analysed in October 2025, without its second, double-counting shaping system.
# "legacy_recommended": what its analysis proposed.
PRESETS = {
    "default": RewardConfig(),
    "legacy_october": RewardConfig(
        1.0, -0.5, 0.1, -0.01, 0.05, STRAIGHT_LINE_SHAPING, closest=0.0001, exploration=0.001
    ),
    "legacy_recommended": RewardConfig(
        1.0, -0.2, 0.3, -0.01, 0.05, STRAIGHT_LINE_SHAPING, closest=0.001, proximity=0.05, exploration=0.001
    ),
}


def reward_config(reward: str | RewardConfig | Mapping[str, Any]) -> RewardConfig:
    """A preset by name, or the configuration itself, or its fields, as in the JSON of an ``EnvSpec``."""
    if isinstance(reward, RewardConfig):
        return reward
    if isinstance(reward, Mapping):
        return RewardConfig(**reward)
    if reward not in PRESETS:
        raise ValueError(f"unknown reward preset {reward!r}; known: {', '.join(PRESETS)}")
    return PRESETS[reward]


@dataclass(frozen=True)
class AuditRow:
    """One category's arithmetic: discounted returns of what an agent could do, and what is wrong with their order."""

    category: str
    path_px: float  # 90th percentile of path lengths
    win_frames: int  # frames of a win at a third of top speed over that path
    win_return: float
    timeout_return: float
    death_return: float
    approach: float  # shaping plus time of one decision at top speed towards the goal, where it pays least
    problems: tuple[str, ...]


_TOP_SPEED = 10.0 / 3.0  # px per frame
_EARLY_DEATH = 15  # decisions until "an immediate death"
TIE = 0.05  # return by which dying may be worth more than staying alive


def audit(
    reward: RewardConfig, gamma: float, frame_skip: int, path_lengths: dict[str, Sequence[float]]
) -> list[AuditRow]:
    """Check the order win > time-out > death and the sign of approaching, per category, by arithmetic alone.

    path_lengths: px, of the levels of each category.  Shaping telescopes, so that only -phi(start) = 0 is left of it in a
    finished episode; a time-out stays where it started.
    """
    return [
        _audited(category, float(np.percentile(lengths, 90)), reward, gamma, frame_skip)
        for category, lengths in path_lengths.items()
    ]


def _audited(category: str, path: float, reward: RewardConfig, gamma: float, frame_skip: int) -> AuditRow:
    """One row.  path: px, a long path of the category."""
    frames = max(int(path / (_TOP_SPEED / 3)), FRAMES_PER_SECOND)
    decisions = -(-frames // frame_skip)
    discounts = gamma ** np.arange(decisions)
    time = reward.time * frame_skip * float(discounts.sum())
    closest = reward.closest * path * float(discounts.mean())
    win = float(time + closest + reward.win * discounts[-1] + reward.switch * discounts[decisions // 2])
    limit = min(TIME_LIMIT_BASE + TIME_LIMIT_PER_PX * path, MAX_TIME_LIMIT)
    timeout = reward.time * frame_skip * float((gamma ** np.arange(int(limit / frame_skip))).sum())
    dying = reward.time * frame_skip * float((gamma ** np.arange(_EARLY_DEATH)).sum())
    death = float(dying + reward.death * gamma**_EARLY_DEATH)
    reach = max(path, MIN_PATH) if reward.potential == PATH_SHAPING else STAGE_DIAGONAL
    step = _TOP_SPEED * frame_skip
    at = np.linspace(0.0, 1.0, 21)  # share of the potential already gained
    gain = reward.shaping * (gamma * np.minimum(at + step / reach, 1.0) - at)
    approach = float(gain[at + step / reach <= 1.0].min()) + reward.time * frame_skip + reward.closest * step
    faults = {
        f"a win after {frames} frames returns {win:.2f}, waiting for the time-out {timeout:.2f}": not win > timeout,
        f"a win after {frames} frames returns {win:.2f}, an immediate death {death:.2f}": not win > death,
        f"an immediate death returns {death:.2f}, more than staying alive ({timeout:.2f})": death > timeout + TIE,
        f"running at the goal at top speed can cost {-approach:.4f} per decision": not approach > 0,
        f"the time of a plain win costs {-reward.time * frames:.2f} of the win's {reward.win:.2f}": (
            reward.win > 0 and reward.time * frames < -0.2 * reward.win
        ),
    }
    problems = tuple(text for text, present in faults.items() if present)
    return AuditRow(category, path, frames, win, timeout, death, approach, problems)
