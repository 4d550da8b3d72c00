"""Strategy "learnability": levels in proportion to p (1 - p), the variance of their outcome.

What is always won or always lost teaches nothing.  At some tens of episodes per level a level's own success is mostly noise,
so it is shrunk towards that of its cell (family and third of its difficulty axis), and both forget what is long past.
Source: Rutherford et al. 2024 (No Regrets), there with fresh rollouts in place of a posterior.
"""

from typing import ClassVar

import numpy as np

from rl.curriculum.strategy import Levels, Outcomes, Strategy, mixed
from rl.curriculum_config import CurriculumConfig

UNIFORM_SHARE = 0.2  # of the draws, unless the configuration says otherwise
CELL_HALF_LIFE = 300.0  # episodes of a cell, after which an outcome counts half
LEVEL_HALF_LIFE = 20.0  # episodes per level of the cell, likewise for a level's own outcomes
PRIOR_EPISODES = 20.0  # outcomes of its own that weigh as much as what is known of a level's cell


class Learnability(Strategy):
    """Beta posteriors with decaying counts.

    cell_won, cell_played: float64[cells].
    won, played: float64[L].
    """

    kept: ClassVar[tuple[str, ...]] = ("cell_won", "cell_played", "won", "played")

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
        forget = 0.5 ** (played / CELL_HALF_LIFE)
        self.cell_played = self.cell_played * forget + played
        self.cell_won = self.cell_won * forget + won
        forget = (0.5 ** (played / (LEVEL_HALF_LIFE * self._cell_sizes)))[cell]
        self.played *= forget
        self.won *= forget
        np.add.at(self.played, outcomes.levels, 1.0)
        np.add.at(self.won, outcomes.levels[outcomes.won], 1.0)
        self.weigh(mixed(self.expected_variance(), self.share))

    def success(self) -> np.ndarray:
        """float64[cells]: posterior mean of each cell's success; one half where nothing was played."""
        return (self.cell_won + 1) / (self.cell_played + 2)

    def expected_variance(self) -> np.ndarray:
        """float64[L]: p (1 - p), expected under each level's posterior."""
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
