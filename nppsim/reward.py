"""Rewards: named terms, presets, and an arithmetic check of the weights before training.

The reward of a decision is the sum of its terms.  The simulator records the sum of each term over an episode; these sums
add up to the undiscounted return.  Shaping is potential-based: F = gamma * phi(s') - phi(s), with PPO's gamma and
phi = 0 at terminal states.  Such shaping may speed up learning and does not change the optimal policy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from nppsim.actions import FRAMES_PER_SECOND
from nppsim.bank import MAX_TIME_LIMIT, TIME_LIMIT_BASE, TIME_LIMIT_PER_PX
from nppsim.levels.stage import STAGE_HEIGHT, STAGE_WIDTH

GAMMA = 0.995  # discount per decision; effective horizon 200 decisions
PATH_SHAPING, STRAIGHT_LINE_SHAPING = range(2)  # values of ``RewardConfig.potential``
MIN_PATH = 200.0  # px, minimum divisor of the path potential; longer paths are divided by their length
STAGE_DIAGONAL = float(np.hypot(STAGE_WIDTH, STAGE_HEIGHT))  # px
PROXIMITY_REACH = 50.0  # px, straight-line distance to the objective below which ``proximity`` is paid


@dataclass(frozen=True)
class RewardConfig:
    """Weights of the reward terms, and the kind of potential.

    The objective is the exit switch until it is taken, then the exit.
    win, death, switch: reward for reaching the exit, for dying, and for taking the first exit switch.
    time: reward per frame.
    shaping: weight of the potential.
    potential: PATH_SHAPING: px of path covered / max(path length of the level, MIN_PATH), negative if the remaining path is
        longer than at the start.  STRAIGHT_LINE_SHAPING: 1 - straight-line distance to the objective / stage diagonal.
    closest: reward per px by which the smallest straight-line distance to the objective decreases.
    proximity: reward for coming within PROXIMITY_REACH of an objective, once per objective.
    exploration: reward for the first visit of each cell (24 px) and of each block of 4 x 4, 8 x 8 and 16 x 16 cells.
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
        """Return the weights as WEIGHTS_DTYPE[1], for kernels."""
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
    """Reward of one decision by term.  RewardConfig has a weight of the same name for each term."""

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

PRESETS = {"default": RewardConfig()}  # name -> weights


def reward_config(reward: str | RewardConfig | Mapping[str, Any]) -> RewardConfig:
    """Return a preset by name, or make a RewardConfig of its fields; a RewardConfig is returned unchanged."""
    if isinstance(reward, RewardConfig):
        return reward
    if isinstance(reward, Mapping):
        return RewardConfig(**reward)
    if reward not in PRESETS:
        raise ValueError(f"unknown reward preset {reward!r}; known: {', '.join(PRESETS)}")
    return PRESETS[reward]


@dataclass(frozen=True)
class AuditRow:
    """Discounted returns of simple behaviours on one category of levels, and problems with their order."""

    category: str
    path_px: float  # 90th percentile of path lengths
    win_frames: int  # frames of a win at a third of top speed over that path
    win_return: float
    timeout_return: float
    death_return: float
    approach: float  # reward of a decision at top speed towards the goal, minimum over all positions on the path
    problems: tuple[str, ...]


_TOP_SPEED = 10.0 / 3.0  # px per frame
_EARLY_DEATH = 15  # decisions before an "immediate" death
TIE = 0.05  # tolerance: a death that returns at most this much more than a time-out is no problem


def audit(
    reward: RewardConfig, gamma: float, frame_skip: int, path_lengths: dict[str, Sequence[float]]
) -> list[AuditRow]:
    """Check for each category that a win returns more than a time-out, a time-out more than death, and that moving
    towards the goal is rewarded.

    The check is arithmetic; nothing is simulated.  Shaping adds nothing to the returns: it telescopes to -phi(start) = 0,
    and an episode that times out is assumed to end where it started.
    path_lengths: category -> path lengths of its levels, px.
    """
    return [
        _audited(category, float(np.percentile(lengths, 90)), reward, gamma, frame_skip)
        for category, lengths in path_lengths.items()
    ]


def _audited(category: str, path: float, reward: RewardConfig, gamma: float, frame_skip: int) -> AuditRow:
    """Return the row of a category.  path: px, 90th percentile of its path lengths.

    ``closest`` is counted as if paths were straight, an upper limit.
    """
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
        f"a win after {frames} frames returns {win:.2f}, waiting for the time-out returns {timeout:.2f}": not win
        > timeout,
        f"a win after {frames} frames returns {win:.2f}, an immediate death returns {death:.2f}": not win > death,
        f"an immediate death returns {death:.2f}, more than staying alive ({timeout:.2f})": death > timeout + TIE,
        f"running at the goal at top speed can cost {-approach:.4f} per decision": not approach > 0,
        f"the time of a plain win costs {-reward.time * frames:.2f} of the win's {reward.win:.2f}": (
            reward.win > 0 and reward.time * frames < -0.2 * reward.win
        ),
    }
    problems = tuple(text for text, present in faults.items() if present)
    return AuditRow(category, path, frames, win, timeout, death, approach, problems)
