"""Curricula: distributions over levels, adapted to the outcomes of episodes.

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
from rl.curriculum.strategy import Levels, Outcomes, Strategy
from rl.curriculum.uniform import Uniform

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
    """Register a strategy, replacing an earlier one of this name.  ConfigError for a shipped name."""
    if name in _SHIPPED:
        raise ConfigError(f"strategy {name!r} is shipped with the project; register yours under another name")
    STRATEGIES[name] = strategy
    if name not in CURRICULA:
        CURRICULA.append(name)


def make_sampler(
    categories: Sequence[str],
    config: CurriculumConfig,
    seed: int,
    *,
    difficulty: np.ndarray | None = None,
    families: Sequence[str] | None = None,
    fingerprints: Sequence[str] | None = None,
) -> CurriculumManager:
    """Make the manager with the configured strategy.

    categories: of each level.
    difficulty: float[L], any scale; None: unknown.
    families: generator family of each level; None: unknown.
    fingerprints: of each level; None: those of the simulator's levels.
    Raises ConfigError.
    """
    levels = Levels.of(categories, difficulty, config.stage_order, families)
    rng = np.random.default_rng(seed)
    return CurriculumManager(levels, STRATEGIES[config.chosen](levels, config, rng), config, rng, fingerprints)
