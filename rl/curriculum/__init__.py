"""Curricula: which level to play next, learned from the episodes played so far."""

from rl.curriculum.stages import StageCurriculum, UniformSampler, make_sampler

__all__ = ["StageCurriculum", "UniformSampler", "make_sampler"]
