"""Strategy "learnability": draw levels in proportion to p (1 - p), where p is the success rate of a level.

Levels that are always won or always lost give no learning signal.  With a few dozen episodes per level, the measured success
rate of a level is mostly noise.  It is therefore shrunk towards the success rate of a cell: all levels of the same category,
generator and third of the difficulty range.  Old outcomes lose weight exponentially.
Source: Rutherford et al. 2024 (No Regrets), who estimate p from additional rollouts instead of a posterior.
"""

from typing import ClassVar

import numpy as np

from rl.config.curriculum import CurriculumConfig
from rl.curriculum.strategy import Levels, Outcomes, Strategy, mixed

UNIFORM_SHARE = 0.2  # default fraction of uniform draws
CELL_HALF_LIFE = 300.0  # half-life, in episodes of the cell, of an outcome's weight in the counts of a cell
LEVEL_HALF_LIFE = 20.0  # half-life, in episodes of the cell per level, of an outcome's weight in the counts of a level
PRIOR_EPISODES = 20.0  # weight of the prior, the cell's success rate, in episodes of the level


class Learnability(Strategy):
    """Beta posteriors of success rates, from decaying counts of wins and episodes.

    cell_won, cell_played: float64[cells], decaying counts of wins and of episodes in each cell.
    won, played: float64[L], the same counts of each level.
    """

    saved: ClassVar[tuple[str, ...]] = ("cell_won", "cell_played", "won", "played")

    def __init__(self, levels: Levels, config: CurriculumConfig, rng: np.random.Generator):
        super().__init__(levels, config, rng)
        self.cell_won, self.cell_played = np.zeros(levels.cells), np.zeros(levels.cells)
        self.won, self.played = np.zeros(len(levels)), np.zeros(len(levels))
        self.share = UNIFORM_SHARE if config.uniform_share is None else config.uniform_share
        self._cell_sizes = np.maximum(1, np.bincount(levels.cell, minlength=levels.cells))

    def update(self, outcomes: Outcomes) -> None:
        cell = self.levels.cell
        played = np.bincount(cell[outcomes.levels], minlength=self.levels.cells)
        won = np.bincount(cell[outcomes.levels], outcomes.won, minlength=self.levels.cells)
        decay = 0.5 ** (played / CELL_HALF_LIFE)
        self.cell_played = self.cell_played * decay + played
        self.cell_won = self.cell_won * decay + won
        decay = (0.5 ** (played / (LEVEL_HALF_LIFE * self._cell_sizes)))[cell]
        self.played *= decay
        self.won *= decay
        np.add.at(self.played, outcomes.levels, 1.0)
        np.add.at(self.won, outcomes.levels[outcomes.won], 1.0)
        self.weigh(mixed(self.expected_variance(), self.share))

    def success(self) -> np.ndarray:
        """Return the posterior mean float64[cells] of the success rate of each cell; 0.5 without episodes."""
        return (self.cell_won + 1) / (self.cell_played + 2)

    def expected_variance(self) -> np.ndarray:
        """Return the posterior expectation float64[L] of p (1 - p) of each level."""
        a = (PRIOR_EPISODES * self.success())[self.levels.cell]
        a += self.won
        both = self.played + PRIOR_EPISODES  # a + b
        a *= both - a
        both *= both + 1
        a /= both
        return a

    def details(self) -> dict[str, float]:
        variance = self.expected_variance()
        return {
            "curriculum/learnability_mean": float(variance.mean()),
            "curriculum/learnability_drawn": float(self.probabilities() @ variance),
        }
