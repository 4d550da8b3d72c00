"""Defaults of settings, and a check that every setting is read by some code."""

import ast
import json
from dataclasses import fields, is_dataclass

import pytest

from bc.dataset import DatasetConfig
from nppsim.reward import GAMMA
from rl.config import ExperimentConfig

from golden import plain
from places import ROOT

# Settings that are checked or passed on and need no reader of their own.
UNREAD = {
    "pbrs_gamma": "must equal gamma, which is what shapes",
    "debug": "scripts look at their arguments before there is a configuration",
    "config_files": "the command line reads them before there is a configuration",
}
# Settings that are read under names that a program puts together.
BY_NAME = {"stage_thresholds", "stage_gamma", "stage_learning_rate", "stage_ent_coef"}


def test_defaults_that_users_rely_on():
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
    """Names of attributes that some code reads, but for checks in ``__post_init__`` and what writes everything down."""
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


def test_every_setting_is_read_by_somebody():
    read = read_attributes()
    wanted = {one.name for owner in (*owners(ExperimentConfig), DatasetConfig) for one in fields(owner)}
    assert wanted - read == set(UNREAD) | BY_NAME, "a setting that nobody reads is accepted and ignored"


@pytest.mark.parametrize("value", [(1, 2.5, "x", None), {"a": (1,)}, [True]])
def test_plain_values_are_those_that_json_gives_back(value):
    assert json.loads(json.dumps(plain(value))) == plain(value)
