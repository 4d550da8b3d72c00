"""docs/quickstart.md: its commands run at small size; the training command is parsed and its paths checked."""

import re
import shlex

import pytest

import nppsim.__main__
from nppsim.gym.env import STARTER_LEVELS
from rl.config.command_line import resolve

from places import ROOT
from programs import load_script

TEXT = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
COMMANDS = [one.strip() for one in re.findall(r"^```bash\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)]
SET_UP, WATCH, EVALUATE, FILM, TRAIN = COMMANDS[:5]  # WATCH is an example, which tests/test_examples.py runs


@pytest.mark.usefixtures("one_thread")
def test_evaluation_example_is_filmed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    _, script, *arguments = shlex.split(EVALUATE)
    small = {"datasets/dev": str(STARTER_LEVELS / "simplest" / "000000.map"), "evaluated": str(tmp_path / "evaluated")}
    assert small.keys() <= set(arguments)
    assert (
        load_script(script.removeprefix("scripts/").removesuffix(".py")).main([small.get(a, a) for a in arguments]) == 0
    )
    printed = capsys.readouterr().out
    header = re.search(r"^\| category .*\|$", TEXT, re.MULTILINE)[0]
    assert re.sub(r" +", " ", header) == re.sub(r" +", " ", printed.splitlines()[0])
    assert "episodes: " in printed

    pytest.importorskip("av")
    monkeypatch.chdir(tmp_path)
    (replays,) = tmp_path.glob("evaluated/*/replays.h5")  # as the page's $(ls ...) finds it
    newest = "$(ls -t evaluated/*/replays.h5 | head -n 1)#187"
    assert newest in FILM
    _, _, module, *arguments = shlex.split(FILM.replace(newest, f"{replays}#0"))
    assert (module, nppsim.__main__.main(arguments)) == ("nppsim", 0)
    assert capsys.readouterr().out.startswith("run.mp4: won after ")
    assert (tmp_path / "run.mp4").stat().st_size > 1000


def test_training_command_is_valid(monkeypatch):
    monkeypatch.chdir(ROOT)
    program, *flags = TRAIN.replace("\\\n", " ").replace("RECORDINGS", "datasets/refined").split()[1:]
    config = resolve(flags)
    assert program == "scripts/train_and_compare.py"
    assert (config.experiment_name, config.architectures) == ("mine", ("vision_free_foresight",))
    assert (config.ppo.time_budget_minutes, config.video.record_eval_videos) == (10, True)


def test_setup_is_make_target():
    assert SET_UP.startswith("make setup &&")
    assert WATCH == "python examples/load_and_film.py"
