"""Curricula: probability distributions over levels that adapt to the outcomes of episodes.

manager = make_sampler(categories, config, seed)    # categories[i]: category of level i
"""

from collections.abc import Sequence

import numpy as np

from nppsim.errors import ConfigError
from rl.config.curriculum import CURRICULA, CurriculumConfig
from rl.curriculum.learnability import Learnability
from rl.curriculum.learning_progress import LearningProgress
from rl.curriculum.manager import CurriculumManager, LevelMismatchError
from rl.curriculum.prioritized_level_replay import PrioritizedLevelReplay
from rl.curriculum.stages import Stages
from rl.curriculum.strategy import Levels, Outcomes, Strategy, Uniform

__all__ = [
    *("STRATEGIES", "CurriculumManager", "LevelMismatchError", "Levels", "Outcomes", "Strategy"),
    *("make_sampler", "register"),
]

STRATEGIES: dict[str, type[Strategy]] = {
    "uniform": Uniform,
    "stages": Stages,
    "learnability": Learnability,
    "plr": PrioritizedLevelReplay,
    "learning_progress": LearningProgress,
}
_SHIPPED = frozenset(STRATEGIES)


def register(name: str, strategy: type[Strategy]) -> None:
    """Register a strategy, replacing an earlier one of this name.  Raises ConfigError for the name of a shipped strategy."""
    if name in _SHIPPED:
        raise ConfigError(f"strategy {name!r} is part of the project; register your own under another name")
    STRATEGIES[name] = strategy
    if name not in CURRICULA:
        CURRICULA.append(name)


def make_sampler(
    categories: Sequence[str],
    config: CurriculumConfig,
    seed: int,
    *,
    difficulty: np.ndarray | None = None,
    generators: Sequence[str] | None = None,
) -> CurriculumManager:
    """Create the curriculum manager with the configured strategy.

    categories: category of each of the L levels.
    difficulty: float[L] on any scale; None: unknown.
    generators: name of each level's generator; None: unknown.
    Raises ConfigError for invalid settings.
    """
    levels = Levels.of(categories, difficulty, config.stage_order, generators)
    rng = np.random.default_rng(seed)
    return CurriculumManager(levels, STRATEGIES[config.chosen](levels, config, rng), config, rng)
