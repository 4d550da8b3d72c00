"""docs/own_reward.md: its examples and commands run."""

import doctest
import re
import shlex

from nppsim.reward import PRESETS
from rl.config.command_line import resolve
from rl.experiment.data import audit_rewards, load_data

from places import ROOT

STARTER = str(ROOT / "nppsim" / "starter" / "simple" / "000000.map")
TEXT = (ROOT / "docs" / "own_reward.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def command(program, **stands_for):
    """Return the arguments of a command on the page, with some of them replaced."""
    lines = "\n".join(blocks("bash")).replace("\\\n", " ").splitlines()
    (asked,) = [line.removeprefix(f"python {program} ") for line in lines if line.startswith(f"python {program} ")]
    return [stands_for.get(word.partition(".")[0], word) for word in shlex.split(asked)]


def test_examples_run():
    example = doctest.DocTestParser().get_doctest(TEXT, {}, "reward", "own_reward.md", 0)
    output = []
    doctest.DocTestRunner(verbose=False).run(example, out=output.append)
    assert len(example.examples) > 3 and not output, "".join(output)


def test_ten_times_time_price_prints_warning(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setitem(PRESETS, "hurried", None)
    (file,) = [block for block in blocks("python") if not block.startswith(">>>")]
    (tmp_path / "rewards.py").write_text(file)
    asked = command("scripts/train_and_compare.py", rewards=str(tmp_path / "rewards.py"))
    config = resolve([*asked, "--single-level", STARTER])
    assert config.reward.weights.time == -0.0006
    audit_rewards(config, load_data(config, print), print)
    dear = resolve([*asked[:2], "--architectures", "vision_free", "--reward-time", "-0.003", "--single-level", STARTER])
    messages = []
    audit_rewards(dear, load_data(dear, print), messages.append)
    assert any("warning: dying" in line for line in messages)
    words = command("scripts/ab_compare.py")
    common = ["--experiment-name", "x", *words[words.index("--") + 1 :]]
    for arm, price in (("--a", PRESETS["default"].time), ("--b", -0.0006)):
        flags = words[words.index(arm) + 1]
        assert resolve([*common, *flags.split()]).reward.weights.time == price
