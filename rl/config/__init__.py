"""Settings of an experiment: dataclasses with defaults and limits, and their flags and TOML files.

    config = ExperimentConfig(experiment_name="first", architectures=("mlp_baseline",))
    config.ppo.gamma

``command_line`` parses flags, ``files`` reads TOML files, and ``resume`` compares settings with those of an earlier run.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
_MODULES = ("curriculum", "distillation", "evaluation", "experiment", "machine", "networks", "ppo", "rewards")


def __getattr__(name: str) -> object:
    """Import a class at first use, so that the settings of rewards can be imported without torch."""
    if name in __all__:
        for module in _MODULES:
            if hasattr(found := import_module(f"{__name__}.{module}"), name):
                return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
