"""Every example runs at small size, and so does the snippet of the README."""

import importlib.util
import re

import pytest

from nppsim import Replay, simulate
from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels.level_set import LevelSet

from places import ROOT

pytestmark = pytest.mark.usefixtures("one_thread")
SIMPLEST = str(STARTER_LEVELS / "simplest")


def example(name):
    """Import ``examples/NAME.py``."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_stable_baselines3_example(tmp_path):
    sizes = ("--steps", "128", "--rollout", "16", "--num-envs", "4", "--episodes", "1")
    example("sb3_ppo").main(["--levels", SIMPLEST, *sizes, "--out", str(tmp_path / "model.zip")])
    assert (tmp_path / "model.zip").is_file()


def test_cleanrl_example(capsys):
    sizes = ("--steps", "400", "--num-envs", "4", "--rollout", "100")
    example("cleanrl_ppo").main(["--levels", SIMPLEST, *sizes])
    assert "400 steps" in capsys.readouterr().out


def test_own_rewards_example():
    returns = example("own_reward").main()
    assert {"mine", "gold counts", "default"} <= set(returns)
    assert returns["mine"] != returns["default"]


def test_own_network_example():
    model = example("own_network").main(["--steps", "64", "--rollout", "64"])
    assert model.num_timesteps == 64


def test_own_levels_example(tmp_path):
    par = example("own_levels").main(str(tmp_path / "mine"))
    run = simulate(LevelSet.open(tmp_path / "mine")[0], Replay.load(tmp_path / "mine.replay").inputs)
    assert run.won and run.frames == par


def test_agent_example_loaded_and_filmed(tmp_path):
    pytest.importorskip("av")
    module = example("load_and_film")
    assert (
        module.main(module.SHIPPED, str(STARTER_LEVELS / "simplest" / "000000.map"), str(tmp_path / "a.mp4")) == "won"
    )
    assert (tmp_path / "a.mp4").stat().st_size > 1000


@pytest.mark.filterwarnings("ignore:.*eval_env.*is set to None")
def test_minari_example(tmp_path, monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    module = example("minari_dataset")
    assert module.main(module.SHIPPED, most=3) == [3]


def test_examples_are_tested_and_named_in_readme():
    readme, tests = (ROOT / "README.md").read_text(), (ROOT / "tests" / "test_examples.py").read_text()
    for path in (ROOT / "examples").glob("*.py"):
        assert f'example("{path.stem}")' in tests
        assert f"examples/{path.name}" in readme


def test_readme_snippet_runs_unchanged(tmp_path, monkeypatch):
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(ROOT)
    names = {}
    exec(snippet, names)
    assert names["run"].frames == len(names["run"].position)
    assert names["sim"].num_envs == 1024
