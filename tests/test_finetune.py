"""``finetune.py``: the main job from the shipped agent, on other levels."""

import json

import pytest

from nppsim.report import charts

from programs import load_script
from worlds import straight


def test_finetune_trains_shipped_agent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(charts, "_rendered", lambda axes: b"")  # plotted, but not rendered
    for length in (10, 11, 12):
        straight(length=length).save(tmp_path / f"{length}.map")
    script = load_script("finetune")
    tiny = "--total-timesteps 512 --num-envs 8 --rollout-length 32 --minibatch-size 128 --skip-final-eval"
    assert script.main([".", *tiny.split(), "--output-dir", "out"]) == 0
    (folder,) = (tmp_path / "out").glob("finetuned_*")
    config = json.loads((folder / "config.json").read_text())
    assert config["init_from"] == str(script.SHIPPED)
    assert config["ppo"]["gamma"] == 0.998
    assert len(list(folder.rglob("agent.safetensors"))) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "error: --train-dataset nowhere: does not exist"),
        ([".", "--init-from", "nothing.safetensors"], "error: --init-from nothing.safetensors: is no file"),
        ([".", "--init-from", "10.map"], "error: 10.map: damaged"),
        ([".", "--architectures", "mlp_baseline"], "error: --init-from "),
        ([".", "--no-such-flag"], "error: unknown flag --no-such-flag"),
    ],
)
def test_finetune_bad_input_prints_one_error_and_leaves_nothing(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    for length in (10, 11):
        straight(length=length).save(tmp_path / f"{length}.map")
    assert load_script("finetune").main([*arguments, "--output-dir", "out"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(message)
    assert printed.count("\n") == 1
    assert not [*tmp_path.glob("out/*")]


def test_finetune_several_test_sets_stay_together():
    flags = load_script("finetune").main_job_flags(["levels", "--dev-dataset", "d", "--test-dataset", "a", "b"])
    where = flags.index("--test-dataset")
    assert flags[where : where + 5] == ["--test-dataset", "a", "b", "--dev-dataset", "d"]


def test_finetune_without_levels_raises_error(capsys):
    with pytest.raises(SystemExit):
        load_script("finetune").main([])
    assert "LEVELS" in capsys.readouterr().err
