"""Every example runs at small size, and so does the snippet of the README."""

import importlib.util
import re

import numpy as np
import pytest

from nppsim import Replay, reward, simulate
from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels.level_set import LevelSet
from rl.config.curriculum import CURRICULA, CurriculumConfig
from rl.curriculum import STRATEGIES, make_sampler
from rl.ppo import PPO

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


def test_pufferlib_example():
    pytest.importorskip("pufferlib", reason="PufferLib is not a dependency: pip install pufferlib")
    assert np.isfinite(example("pufferlib_vectorization").main(SIMPLEST, decisions=5))


@pytest.fixture(scope="module")
def ablations():
    """examples/ablations.py, with its presets and strategy registered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ABLATION", raising=False)
        yield example("ablations")
        for name in ("legacy_october", "legacy_recommended"):
            del reward.PRESETS[name]
        del STRATEGIES["original_learning_progress"]
        CURRICULA.remove("original_learning_progress")


def play(sampler, outcomes):
    """Report episodes and update the sampler.  outcomes: level -> wins, in order."""
    sampler.record(
        [level for level, won in outcomes.items() for _ in won], [w for won in outcomes.values() for w in won]
    )
    sampler.learn()


def original_sampler(levels, **settings):
    config = CurriculumConfig(strategy="original_learning_progress", uniform_share=0.0, **settings)
    return make_sampler(["simplest"] * levels, config, 0)


def test_ablation_legacy_rewards_pay_for_dying(ablations):
    paths = {"simplest": [120.0, 200.0, 300.0], "simple": [400.0, 700.0, 900.0]}
    for name in ("legacy_october", "legacy_recommended"):
        for row in reward.audit(reward.PRESETS[name], 0.99, 4, paths):
            assert any("an immediate death returns" in problem for problem in row.problems)


def test_ablation_original_averages_begin_with_the_first_value(ablations):
    sampler = original_sampler(2, lp_timescale=0.5, lp_slow=0.25)
    play(sampler, {0: [False, True]})
    assert (sampler.strategy.fast[0], sampler.strategy.slow[0]) == pytest.approx((0.0, -0.75))
    assert sampler.strategy.scores()[0] == pytest.approx(0.75)
    play(sampler, {0: [True] * 100})
    assert sampler.strategy.scores()[0] == 0.1, "the lower limit"


def test_ablation_original_weights_have_the_published_defects(ablations):
    crowd = original_sampler(100)
    play(crowd, {level: [True] * 10 + [False] * 5 for level in range(90)})
    assert crowd.probabilities()[90:].sum() > 0.3, "levels without a score crowd out the others"
    constant = original_sampler(4, basic_progress=True)
    play(constant, {0: [True] * 10, 1: [True] * 10, 2: [True, False] * 5, 3: [True, False] * 10})
    assert (constant.probabilities()[:2] == 0).all(), "levels without progress are never drawn"
    pole = original_sampler(1, preset="first").strategy
    pole.played[:], highest = 1000, 0.0
    for success in np.linspace(0.4, 0.6, 201):
        pole.fast[:], pole.slow[:] = 2 * success - 1, 2 * success - 1.02
        highest = max(highest, pole.scores()[0])
    assert highest > 1, "the reweighting has a pole"


def test_ablation_zeroed_gradients_use_the_last_minibatch(ablations, monkeypatch):
    received = []
    monkeypatch.setattr(PPO, "_backward", lambda self, samples, minibatches, weights: received.append(minibatches))
    ablations.zero_gradients_before_each_minibatch()
    PPO._backward(None, None, [1, 2, 3], None)
    assert received == [[3]]


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
