"""No default changes by accident: every one, of flags and of internals, stands in a file of the repository; and none is
read by nobody."""

import ast
import json
from dataclasses import fields, is_dataclass

import pytest

from bc.dataset import DatasetConfig
from rl.config import ExperimentConfig

from golden import GOLDEN, golden, plain
from places import ROOT

HOW = "if that is on purpose: python tests/support/golden.py, and say why in CHANGELOG.md"
# Settings that are checked or passed on and need no reader of their own.
UNREAD = {
    "pbrs_gamma": "must equal gamma, which is what shapes",
    "debug": "scripts look at their arguments before there is a configuration",
    "config_files": "the command line reads them before there is a configuration",
}
# Settings that are read under names that a program puts together.
BY_NAME = {"stage_thresholds", "stage_gamma", "stage_learning_rate", "stage_ent_coef"}


def test_no_default_has_changed_unnoticed():
    expected, found = json.loads(GOLDEN.read_text()), golden()
    wrong = []
    for place in dict.fromkeys((*expected, *found)):
        before, now = expected.get(place, {}), found.get(place, {})
        for name in dict.fromkeys((*before, *now)):
            if before.get(name, "absent") != now.get(name, "absent"):
                wrong.append(f"{place}: {name} {before.get(name, 'absent')} -> {now.get(name, 'absent')}")
    assert not wrong, "\n".join([*wrong, HOW])


def test_the_file_knows_flags_and_internals():
    """A sample of what has gone wrong elsewhere: intervals, schedules, evaluation, sizes."""
    data = json.loads(GOLDEN.read_text())
    config, ppo = data["rl.config.experiment"], data["rl.config.ppo"]
    assert ppo["PPOConfig.gae_lambda"] == 0.95 and ppo["PPOConfig.total_timesteps"] == 10_000_000
    assert config["ExperimentConfig.save_freq"] == 500_000 and config["EvaluationConfig.skip_final_eval"] is False
    assert data["bc.train"]["BCConfig.learning_rate"] == 3e-4
    assert data["hardware profiles"]["cpu-testing"]["num_envs"] == 64
    assert data["reward presets"]["default"] and ppo["KL_TOLERANCE"] == 1.5


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
