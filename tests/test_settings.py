"""Default settings, and a check that every setting has an effect."""

import ast
from dataclasses import fields, is_dataclass

from bc.dataset import DatasetConfig
from nppsim.reward import GAMMA
from rl.config import ExperimentConfig

from places import ROOT

# Settings that are only checked or passed on.
UNREAD = {
    "pbrs_gamma": "must equal gamma, which the shaping term uses",
    "debug": "scripts read it before there is a configuration",
    "use_curriculum": "it sets strategy",
    "config_files": "the command line reads them before there is a configuration",
}
# Settings that are read by getattr with a computed name.
BY_NAME = {"stage_thresholds", "stage_gamma", "stage_learning_rate", "stage_ent_coef", "stage_clip_range"}
LP = "timescale slow early success_bonus amplification temperature min_samples"  # learning_progress.Preset.of
BY_NAME |= {f"lp_{name}" for name in LP.split()}


def test_defaults_match_documented_values():
    config = ExperimentConfig(experiment_name="x", architectures=("mlp_baseline",))
    assert config.ppo.gamma == GAMMA
    assert (config.ppo.gae_lambda, config.ppo.clip_range, config.ppo.total_timesteps) == (0.95, 0.2, 10_000_000)
    assert (config.save_freq, config.evaluation.skip_final_eval, config.bc.learning_rate) == (500_000, False, 3e-4)


def owners(config):
    """The dataclasses of a configuration."""
    yield config
    for one in fields(config):
        if isinstance(one.type, type) and is_dataclass(one.type):
            yield from owners(one.type)


def read_attributes():
    """Names of attributes that the code reads outside of ``__post_init__``."""
    names = set()
    for package in ("nppsim", "bc", "hardware", "rl", "scripts"):
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            skipped = {
                id(inner)
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef) and node.name == "__post_init__"
                for inner in ast.walk(node)
            }
            names |= {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in skipped
            }
    return names


def test_all_settings_are_used():
    read = read_attributes()
    wanted = {one.name for owner in (*owners(ExperimentConfig), DatasetConfig) for one in fields(owner)}
    assert wanted - read == set(UNREAD) | BY_NAME, "a setting is accepted and ignored"
