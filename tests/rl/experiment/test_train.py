"""Training from Python: settings are read as from a file, and invalid ones are refused before training."""

import pytest

from nppsim.errors import ConfigError
from rl.experiment import train as module
from rl.experiment.train import FinishedExperiment, train

NEEDED = {"experiment_name": "x", "architectures": ["vision_free"]}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "arguments are required: --experiment-name"),
        ({**NEEDED, "total_timestep": 1}, r"train\(\): total-timestep: .*did you mean 'total-timesteps'"),
        ({**NEEDED, "total_timesteps": "many"}, r"train\(\): total-timesteps .*: give a whole number"),
        ({**NEEDED, "ppo": {"gama": 1}}, r"train\(\): \[ppo\] gama: .*did you mean 'gamma'"),
        ({**NEEDED, "ppo": {"gamma": 2}}, r"train\(\): \[ppo\] gamma 2"),
        ({**NEEDED, "architectures": ["vision_fre"]}, r"unknown architecture 'vision_fre'"),
        ({**NEEDED, "curriculum": "esay"}, "known strategies are uniform"),
        ({**NEEDED, "train_dataset": "nowhere"}, "nowhere: does not exist"),
        ({"recipe": "foresigt"}, "is not a recipe"),
        ({"resume_from": "nowhere"}, "contains no config.json"),
        ({**NEEDED, "config": ["nowhere.toml"]}, r"nowhere\.toml"),
        ({**NEEDED, "config": "nowhere.toml"}, r"nowhere\.toml"),
    ],
)
def test_train_invalid_settings_raises(settings, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        train(**settings)


def test_train_keywords_override_files_and_recipe(tmp_path, monkeypatch):
    """Without the call of the main job, which tests/docs/test_own_network_page.py makes."""
    (tmp_path / "mine.toml").write_text("bc-epochs = 7\n[ppo]\ngamma = 0.9\n")
    seen = []

    class Stop(Exception):
        pass

    def run(config, log, on_metrics, callbacks):
        seen.append((config, on_metrics, callbacks))
        raise Stop

    monkeypatch.setattr(module, "run", run)
    for name in ("train", "dev", "test", "demonstrations"):
        (tmp_path / "datasets" / name).mkdir(parents=True)
        (tmp_path / "datasets" / name / "x.replay").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Stop):
        train(
            recipe="foresight",
            config=["mine.toml"],
            ppo={"gamma": 0.8, "target_kl": None},
            seeds=(1, 2),
            on_metrics=print,
            callbacks=[1],
        )
    ((config, on_metrics, callbacks),) = seen
    assert on_metrics is print and callbacks == [1]
    assert config.architectures == ("vision_free_foresight",)
    assert (config.bc.epochs, config.ppo.gamma, config.ppo.target_kl, config.seeds) == (7, 0.8, None, (1, 2))
    assert config.sources["ppo.gamma"] == "Python"
    assert config.sources["bc.epochs"] == "file mine.toml"


def test_finished_success_is_mean_over_seeds(tmp_path):
    seeds = {str(seed): {"suites": {"test": {"all": {"success": share}}}} for seed, share in enumerate((0.25, 0.75))}
    done = FinishedExperiment(tmp_path, {"architectures": {"mlp_baseline": {"seeds": seeds}}}, ())
    assert done.success("mlp_baseline") == 0.5
    with pytest.raises(KeyError):
        done.success("vision_free")
