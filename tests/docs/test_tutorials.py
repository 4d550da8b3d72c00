"""The tutorials: their files are plug-ins, their examples run, their commands are understood with all their flags."""

import doctest
import re
import shlex

import pytest
import torch

import bc.__main__
import hardware.__main__
from nppsim.errors import ConfigError
from nppsim.reward import PRESETS
from rl import plugins
from rl.command_line import resolve
from rl.experiment.data import audit_rewards, load_data
from rl.policy import architectures
from rl.policy.networks import PIXEL_SCALE
from rl.policy.policy import build_policy

from learners import statistics
from places import ROOT
from programs import load_script
from recordings import replay_folder

STARTER = str(ROOT / "nppsim" / "starter" / "simple" / "000000.map")
TEXTS = {name: (ROOT / "docs" / f"tutorial_{name}.md").read_text() for name in ("recordings", "network", "reward")}


def blocks(name, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXTS[name], re.MULTILINE | re.DOTALL)


def command(name, program, **stands_for):
    """The words after the program of its one command on a page, with other words for some of them."""
    lines = "\n".join(blocks(name, "bash")).replace("\\\n", " ").splitlines()
    (asked,) = [line.removeprefix(f"python {program} ") for line in lines if line.startswith(f"python {program} ")]
    return [stands_for.get(word.partition(".")[0], word) for word in shlex.split(asked)]


@pytest.fixture
def idea(tmp_path, monkeypatch):
    """The network's file of the page; registered until the test ends."""
    monkeypatch.setitem(architectures.ARCHITECTURES, "idea", None)
    (tmp_path / "idea.py").write_text(blocks("network", "python")[0])
    plugins.load([str(tmp_path / "idea.py")])
    monkeypatch.chdir(ROOT)
    return str(tmp_path / "idea.py")


def test_the_network_of_the_page_computes_and_learns(idea):
    policy = build_policy("idea", statistics(architecture="vision_free"))
    rows = {key: torch.zeros(3, *policy.stacking.shape(key)) for key in policy.observations}
    rows["surroundings"] = torch.full((3, 3, 19, 19), int(1 / PIXEL_SCALE), dtype=torch.uint8)
    logits, values = policy.logits_and_values(rows)
    (logits.sum() + values.sum()).backward()
    idle = [name for name, tensor in policy.named_parameters() if tensor.grad is None]
    assert logits.shape == (3, 6) and not idle


def test_the_network_of_the_page_is_planned_for_compared_and_exported(idea, capsys):
    asked = command("network", "-m hardware")
    assert hardware.__main__.main([idea if word == "idea.py" else word for word in asked]) == 0
    assert re.search(r"^\| idea +\|", capsys.readouterr().out, re.MULTILINE)
    asked = command("network", "scripts/train_and_compare.py")
    config = resolve([idea if word == "idea.py" else word for word in asked])
    assert (config.architectures, config.seeds) == (("idea", "vision_free"), (1, 2, 3))
    asked = command("network", "scripts/export.py", AGENT="none.safetensors")
    assert load_script("export").main([idea if word == "idea.py" else word for word in asked]) == 2
    assert "none.safetensors: no such checkpoint" in capsys.readouterr().err


def test_the_arithmetic_of_rewards_is_as_the_page_says():
    example = doctest.DocTestParser().get_doctest(TEXTS["reward"], {}, "reward", "tutorial_reward.md", 0)
    told = []
    doctest.DocTestRunner(verbose=False).run(example, out=told.append)
    assert len(example.examples) > 3 and not told, "".join(told)


def test_the_price_of_a_frame_is_refused_or_not_as_the_page_says(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(PRESETS, "hurried", None)
    (file,) = [block for block in blocks("reward", "python") if not block.startswith(">>>")]
    (tmp_path / "rewards.py").write_text(file)
    asked = command("reward", "scripts/train_and_compare.py", rewards=str(tmp_path / "rewards.py"))
    config = resolve([*asked, "--single-level", STARTER])
    assert config.reward.weights.time == -0.0006
    audit_rewards(config, load_data(config, print), print)
    dear = resolve([*asked[:2], "--architectures", "vision_free", "--reward-time", "-0.003", "--single-level", STARTER])
    with pytest.raises(ConfigError, match="dying pays"):
        audit_rewards(dear, load_data(dear, print), print)
    words = command("reward", "scripts/ab_compare.py")
    common = ["--experiment-name", "x", *words[words.index("--") + 1 :]]
    for arm, price in (("--a", PRESETS["default"].time), ("--b", -0.0006)):
        flags = words[words.index(arm) + 1]
        assert resolve([*common, *flags.split()]).reward.weights.time == price


def test_recordings_are_checked_as_the_page_says(tmp_path, monkeypatch, capsys):
    replay_folder(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    assert bc.__main__.main(["check", *command("recordings", "-m bc check", RECORDINGS="mine")]) == 0
    assert "simple" in capsys.readouterr().out
