"""Contents of the wheel: packages, commands and data files."""

import importlib
import re
import tomllib

import pytest
import setuptools

import nppsim
import nppsim_agents
from nppsim import __main__ as command_line
from nppsim_agents import data

from places import ROOT
from programs import load_script

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMMANDS = PROJECT["project"]["entry-points"]["nppsim.commands"]
PLUGINS = PROJECT["project"]["entry-points"]["nppsim.agents"]
PACKAGES = ("nppsim", "nppsim_agents", "bc", "rl", "hardware")
SCRIPTS = "nppsim_agents.scripts."  # the folder scripts/ in a wheel


@pytest.mark.parametrize("place", [*COMMANDS.values(), *PLUGINS.values()])
def test_entry_points_are_functions(place):
    module, _, function = place.partition(":")
    if module.startswith(SCRIPTS):
        assert callable(getattr(load_script(module.removeprefix(SCRIPTS)), function))
    else:
        assert callable(getattr(importlib.import_module(module), function))


def test_other_packages_add_commands(monkeypatch, capsys):
    class Entry:
        def load(self):
            return load_script("hardware_plan").main

    monkeypatch.setattr(command_line, "_plugin_commands", lambda: {"hardware-plan": Entry()})
    assert command_line.main(["hardware-plan", "--architecture", "none such"]) == 2
    assert "none such" in capsys.readouterr().err


def test_data_command_copies_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "datasets" / "train").mkdir(parents=True)
    monkeypatch.setattr(nppsim_agents, "DATASETS", tmp_path / "datasets")
    assert data.main([str(tmp_path / "mine")]) == 0
    assert (tmp_path / "mine" / "train").is_dir()
    assert data.main([str(tmp_path / "mine")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert data.main([]) == 2
    monkeypatch.setattr(nppsim_agents, "DATASETS", None)
    assert data.main([str(tmp_path / "more")]) == 2


def test_wheel_contains_packages_scripts_and_data(monkeypatch):
    given = {}
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(setuptools, "setup", lambda **settings: given.update(settings))
    exec((ROOT / "setup.py").read_text(), {})
    for package in PACKAGES:
        folders = {path.parent.relative_to(ROOT) for path in (ROOT / package).rglob("*.py")}
        assert {".".join(folder.parts) for folder in folders} <= set(given["packages"])
    for package, folder in given["package_dir"].items():
        assert package in given["packages"] and (ROOT / folder).is_dir()


def test_packages_contain_type_information():
    files = PROJECT["tool"]["setuptools"]["package-data"]
    for package in PACKAGES:
        assert "py.typed" in files[package] and (ROOT / package / "py.typed").is_file()


def test_docker_image_copies_wheel_sources():
    given = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert given == {
        *(*PACKAGES, "scripts", "datasets"),
        *("pyproject.toml", "setup.py", "constraints.txt"),
        *(PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]),
    }
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert set(extras.split(",")) <= set(PROJECT["project"]["optional-dependencies"])


def test_version_is_release_number():
    assert re.fullmatch(r"\d+\.\d+\.\d+", nppsim.__version__)
