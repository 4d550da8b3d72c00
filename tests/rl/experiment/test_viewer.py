"""Studio that shows a running training."""

import json
import sys
import urllib.error
import urllib.request

import pytest

from nppsim.__main__ import main
from nppsim.errors import ConfigError
from nppsim.studio import command
from rl.config.command_line import resolve
from rl.config.resume import changes
from rl.experiment import viewer
from rl.experiment.viewer import ViewerError, studio_process

LIMIT_S = 60


def test_viewed_serves_page_during_block(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(viewer, "_NICE", 0)  # with a low priority, it would wait for all other work of a busy machine
    (tmp_path / "config.json").write_text("{}")
    said = []
    with studio_process(tmp_path, said.append):
        address = capsys.readouterr().out.split()[-1]
        assert "token" not in "".join(said), "the output is stored in a file"
        root, token = address.split("/?token=")
        request = urllib.request.Request(f"{root}/api/experiment", headers={"X-Studio-Token": token.split("#")[0]})
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            assert json.load(answer)["name"] == tmp_path.name
        assert address.endswith("#/run")
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(request, timeout=LIMIT_S)


def test_viewed_studio_fails_raises_with_reason(tmp_path, monkeypatch, capsys):
    """The studio's message is tested with its command; here a substitute process fails."""
    folder = tmp_path / "nothing"
    assert main(["studio", "--run", str(folder), "--port", "0", "--no-browser"]) == 2
    assert "no config.json" in capsys.readouterr().err
    stand_in = tmp_path / "python"
    stand_in.write_text('#!/bin/sh\necho "error: $5: no config.json"\nexit 2\n')
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    with pytest.raises(ViewerError, match=r"--visualize-training: .*nothing: no config\.json"):
        with studio_process(folder, lambda line: None):
            raise AssertionError("there is nothing to show")


def test_visualize_training_is_not_stored_in_config(tmp_path, monkeypatch):
    level = "datasets/dev/simplest/000000.map"
    own = ["--experiment-name", "a", "--architectures", "vision_free", "--single-level", level]
    own += ["--output-dir", str(tmp_path)]
    shown = resolve([*own, "--visualize-training"])
    assert shown.visualize_training and not changes(resolve(own), shown)
    monkeypatch.setattr(command, "_PACKAGES", ("a_package_that_nobody_has",))
    with pytest.raises(ImportError, match=r"nppsim\[studio\]"):
        resolve([*own, "--visualize-training"])
    with pytest.raises(ConfigError, match="has its own environment"):
        resolve([*own, "--vis-env-idx", "1"])
