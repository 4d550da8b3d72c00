"""docs/own_network.md: its plugin is trained, evaluated and exported."""

import json
import re
import subprocess
import sys

import pytest

from nppsim.errors import ConfigError
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.reward import RewardConfig
from rl import curriculum, plugins
from rl.config import rewards
from rl.config.curriculum import CURRICULA
from rl.config.resume import stored_config
from rl.curriculum.strategy import Uniform
from rl.policy import architectures
from rl.policy.architectures import Architecture, ArchitectureError
from rl.policy.checkpoint import CheckpointError, load_policy

from places import ROOT
from worlds import corridor

TEXT = (ROOT / "docs" / "own_network.md").read_text(encoding="utf-8")
FILE, CALL = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
SMALL = {"total_timesteps=1e6": "total_timesteps=1e3, num_envs=16, rollout_length=32, num_eval_episodes=3, eval_freq=0"}
# Short statistics, empty charts and a short trial run: other tests cover the usual ones.
QUICK = """
from nppsim.report import charts
from rl.experiment import data
from rl.tools import doctor
charts._rendered = lambda axes: b""
data.RANDOM_PLAY_DECISIONS = 1000
doctor.UPDATES, doctor.NUM_ENVS = 2, 16
"""
SCRIPTS = """
import contextlib, runpy, sys
assert "my_network" in done.results["architectures"]

def run(name, output, *arguments):
    sys.argv = [name, *arguments, "--plugin", "mine.py"]
    with open(output, "w") as file, contextlib.redirect_stdout(file):
        try:
            runpy.run_path(f"{scripts}/{name}", run_name="__main__")
        except SystemExit as end:
            assert not end.code

run("evaluate.py", "evaluated.txt", str(done.agents[0]), "--levels", "other_levels", "--output-dir", ".")
only = ("--only", "every_parameter_gets_a_gradient")
run("doctor.py", "results.json", "--run-config", str(done.folder / "config.json"), "--json", *only)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with the plugin of the page and some levels, after its training, evaluation and examination."""
    folder = tmp_path_factory.mktemp("mine")
    LevelSet.write(folder / "my_levels", [(corridor(door=30 + i), LevelEntry("simple")) for i in range(12)])
    LevelSet.write(folder / "other_levels", [(corridor(door=50 + i), LevelEntry("simple")) for i in range(3)])
    (folder / "mine.py").write_text(FILE, encoding="utf-8")
    call = CALL
    for usual, small in SMALL.items():
        assert usual in call
        call = call.replace(usual, small)
    program = f"scripts = {str(ROOT / 'scripts')!r}\n{QUICK}\n{call}\n{SCRIPTS}"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "printed.txt").write_text(done.stdout)
    return folder


def test_examples_train_network_with_strategy_and_rewards(folder):
    (run,) = (folder / "experiments").glob("mine_*")
    config = json.loads((run / "config.json").read_text())
    assert config["architectures"] == ["my_network"]
    assert (config["curriculum"]["strategy"], config["reward"]["preset"]) == ("failures", "hasty")
    assert config["ppo"]["gae_lambda"] == 0.9
    assert config["sources"]["ppo.gae_lambda"] == "Python"
    assert json.loads((run / "my_network" / "doctor.json").read_text())["passed"]
    printed = (folder / "printed.txt").read_text()
    assert "warning: gradients" not in printed  # of the audit of its first update
    assert "% of the test levels; report:" in printed


def test_doctor_checks_gradients_of_plugin_network(folder):
    results = json.loads((folder / "results.json").read_text())["results"]
    found = [one for one in results if one["check"] == "every_parameter_gets_a_gradient"]
    assert [one["status"] for one in found] == ["ok"]


def test_evaluate_agent_with_plugin_succeeds(folder):
    (results,) = folder.glob("evaluate_*/results.json")
    assert json.loads(results.read_text())["settings"]["plugins"] == ["mine.py"]


def test_evaluate_agent_without_plugin_raises_error(folder):
    (agent,) = folder.rglob("agent.safetensors")
    with pytest.raises(CheckpointError, match=r"unknown architecture 'my_network'.*name its file with --plugin"):
        load_policy(agent)


def test_resume_imports_trusted_plugins_of_run(folder, monkeypatch):
    (run,) = (folder / "experiments").glob("mine_*")
    monkeypatch.chdir(folder)  # where the file is, as its name in config.json is relative
    for known, name in (
        (architectures.ARCHITECTURES, "my_network"),
        (curriculum.STRATEGIES, "failures"),
        (rewards.PRESETS, "hasty"),
    ):
        monkeypatch.setitem(known, name, None)  # so that nothing of it is left afterwards
    monkeypatch.setattr(plugins, "_loaded", set())
    with pytest.raises(ConfigError, match=r"names plug-ins, .*: mine\.py"):
        stored_config(run)
    try:
        config = stored_config(run, trust_plugins=True)
    finally:
        CURRICULA.remove("failures")
    assert config.architectures == ("my_network",)
    assert architectures.get_architecture("my_network").observations == (
        "game_state",
        "reachability_features",
        "surroundings",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"mine\.py: cannot be imported \(FileNotFoundError"),
        ("1 / 0", r"mine\.py: cannot be imported \(ZeroDivisionError: division by zero\)"),
        (
            "import rl.config.rewards as r, nppsim.reward as n\nr.register('default', n.RewardConfig())",
            "is part of the project",
        ),
    ],
)
def test_failing_plugin_prints_one_error(tmp_path, text, message):
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    with pytest.raises(ConfigError, match=message):
        plugins.load([str(tmp_path / "mine.py")])


def test_register_shipped_name_raises_error():
    with pytest.raises(ArchitectureError, match="is a shipped architecture"):
        architectures.register(Architecture("mlp_baseline", "", vectors=((("game_state",), (8,)),)))
    with pytest.raises(ConfigError, match="is part of the project|is shipped"):
        curriculum.register("plr", Uniform)
    with pytest.raises(ConfigError, match="is part of the project|is shipped"):
        rewards.register("default", RewardConfig())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "a/b"}, "cannot name a folder"),
        ({"reads": ()}, "both module and reads"),
        ({"vectors": ((("game_state",), (8,)),)}, "replaces"),
        ({"reads": ("surroundings",)}, "read vectors"),
        ({"reads": ("game_state", "graph_state")}, "no graph"),
    ],
)
def test_invalid_architecture_raises_error(change, message):
    fields = {"name": "x", "description": "", "module": dict, "reads": ("game_state",)} | change
    with pytest.raises(ArchitectureError, match=message):
        architectures.register(Architecture(**fields))
    assert "x" not in architectures.ARCHITECTURES
