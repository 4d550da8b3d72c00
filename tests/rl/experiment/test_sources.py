"""Settings and provenance in the folder of a run: every value with its source, and no secret."""

import json

import pytest

import hardware
from rl.config import ExperimentConfig, HardwareConfig, PPOConfig
from rl.config.curriculum import CurriculumConfig
from rl.experiment.record import provenance, settings_with_sources


def sources(ppo=None, **plan_request):
    config = ExperimentConfig(
        experiment_name="x",
        architectures=("vision_free",),
        ppo=ppo or PPOConfig(gamma=0.99),
        curriculum=CurriculumConfig(use_curriculum=True),
        hardware=HardwareConfig(device="cpu", **plan_request),
    )
    plan = hardware.plan(("game_state",), config.hardware.plan_request(100_000))
    return settings_with_sources(config, config.ppo.settled(plan), plan)


def test_settings_with_sources_values_and_sources():
    found = sources(num_envs=64)
    assert found["ppo.gamma"] == {"value": 0.99, "source": "command line"}
    assert found["ppo.gae_lambda"] == {"value": 0.95, "source": "default"}
    assert found["curriculum.use_curriculum"]["source"] == found["hardware.num_envs"]["source"] == "command line"
    assert found["plan.num_envs"] == {"value": 64, "source": "command line"}
    assert found["plan.rollout_length"]["source"] == "hardware plan"
    assert found["ppo.n_epochs"] == {"value": 3, "source": "hardware plan"}
    assert found["ppo.learning_rate"] == {"value": 1e-3, "source": "default"}
    assert json.loads(json.dumps(found)) == found, "plain values"


def test_settings_with_sources_flag_overrides_profile():
    found = sources(hardware_profile="cpu-testing", num_envs=32)
    assert found["plan.rollout_length"] == {"value": 32, "source": "profile cpu-testing"}
    assert found["plan.num_envs"] == {"value": 32, "source": "command line"}
    settled = sources(PPOConfig(learning_rate=2e-3, n_epochs=7))
    assert settled["ppo.learning_rate"] == {"value": 2e-3, "source": "command line"}
    assert settled["ppo.n_epochs"]["value"] == 7


def test_settings_with_sources_contains_all_settings():
    names = set(sources())
    for section in ("ppo", "bc", "curriculum", "evaluation", "video", "upload", "hardware"):
        assert any(name.startswith(f"{section}.") for name in names)
    assert len(names) > 90


@pytest.mark.parametrize("secret", ["verysecretvalue", "AKIAABCDEFGHIJKLMNOP"])
def test_provenance_is_redacted(secret, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "verysecretvalue")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("NUMBA_NOTE", f"a {secret} inside")
    monkeypatch.setenv("HOME_ADDRESS", "private")
    monkeypatch.setattr("sys.argv", ["train_and_compare.py", f"--s3-bucket={secret}"])
    found = provenance()
    assert secret not in json.dumps(found) and "private" not in json.dumps(found)
    assert found["environment"]["OMP_NUM_THREADS"] == "3"
    assert found["environment"]["NUMBA_NOTE"] == "a [redacted] inside"
    assert found["command"][0] == "train_and_compare.py"
    assert set(found["host"]) == {"cpu", "cores", "system"}
