"""Settings of an experiment: dataclasses with defaults and limits, and their flags and TOML files.

    config = ExperimentConfig(experiment_name="first", architectures=("mlp_baseline",))
    config.ppo.gamma

``command_line`` parses flags, ``files`` reads TOML files, and ``resume`` compares settings with those of an earlier run.
"""

from rl.config.curriculum import CurriculumConfig
from rl.config.distillation import DistillationConfig
from rl.config.evaluation import EvaluationConfig, VideoConfig
from rl.config.experiment import ExperimentConfig, UploadConfig
from rl.config.machine import HardwareConfig, ProfilingConfig
from rl.config.networks import HeadsConfig, HierarchyConfig, StackingConfig
from rl.config.ppo import PPOConfig
from rl.config.rewards import RewardSettings

__all__ = [
    "CurriculumConfig",
    "DistillationConfig",
    "EvaluationConfig",
    "ExperimentConfig",
    "HardwareConfig",
    "HeadsConfig",
    "HierarchyConfig",
    "PPOConfig",
    "ProfilingConfig",
    "RewardSettings",
    "StackingConfig",
    "UploadConfig",
    "VideoConfig",
]
