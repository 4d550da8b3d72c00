"""Settings of an experiment: dataclasses with defaults and limits, and their flags and TOML files.

    config = ExperimentConfig(experiment_name="first", architectures=("mlp_baseline",))
    config.ppo.gamma

``command_line`` parses flags, ``files`` reads TOML files, and ``resume`` compares settings with those of an earlier run.
"""

from typing import TYPE_CHECKING

from nppsim._numba.lazy_imports import import_lazily

if TYPE_CHECKING:
    from rl.config.curriculum import CurriculumConfig
    from rl.config.distillation import DistillationConfig
    from rl.config.evaluation import EvaluationConfig, VideoConfig
    from rl.config.experiment import ExperimentConfig, UploadConfig
    from rl.config.machine import HardwareConfig, ProfilingConfig
    from rl.config.networks import ForesightConfig, HeadsConfig, HierarchyConfig, StackingConfig
    from rl.config.ppo import PPOConfig
    from rl.config.rewards import RewardSettings

_MODULES = {
    "CurriculumConfig": "rl.config.curriculum",
    "DistillationConfig": "rl.config.distillation",
    "EvaluationConfig": "rl.config.evaluation",
    "ExperimentConfig": "rl.config.experiment",
    "ForesightConfig": "rl.config.networks",
    "HardwareConfig": "rl.config.machine",
    "HeadsConfig": "rl.config.networks",
    "HierarchyConfig": "rl.config.networks",
    "PPOConfig": "rl.config.ppo",
    "ProfilingConfig": "rl.config.machine",
    "RewardSettings": "rl.config.rewards",
    "StackingConfig": "rl.config.networks",
    "UploadConfig": "rl.config.experiment",
    "VideoConfig": "rl.config.evaluation",
}
__all__ = [*_MODULES]
import_lazily(__name__, _MODULES)  # so that the settings of rewards can be imported without torch
