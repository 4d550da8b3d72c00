"""Curricula: which level to play next, learned from the episodes played so far.

sampler = make_sampler(categories, config, seed)    # categories[i]: category of level i
"""

from collections.abc import Sequence

from rl.config import CurriculumConfig
from rl.curriculum.sampler import Sampler, UniformSampler
from rl.curriculum.stages import StageCurriculum

__all__ = ["Sampler", "StageCurriculum", "UniformSampler", "make_sampler"]


def make_sampler(categories: Sequence[str], config: CurriculumConfig, seed: int) -> Sampler:
    """The sampler that the configuration asks for.  categories: category of each level.  Raises ConfigError."""
    if config.use_curriculum:
        return StageCurriculum(categories, config, seed)
    return UniformSampler(categories, config.window, seed)
