"""What a wheel would hold: names that collide with nobody, commands that exist."""

import ast
import importlib
import re
import tomllib

import pytest

import nppsim
from nppsim import __main__ as command_line
from nppsim_agents import commands

from places import ROOT

BUILD = (ROOT / "setup.py").read_text()
MOVED = ("rl", "bc", "hardware")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMMANDS = PROJECT["project"]["entry-points"]["nppsim.commands"]


@pytest.fixture(scope="module")
def rewritten():
    """The function of setup.py, without its call of setup()."""
    names = {}
    exec(BUILD.rpartition("setup(")[0], names)
    return names["rewritten"]


def top_names(text):
    """Top-level packages that a module imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.split(".")[0]


def test_no_module_of_the_wheel_imports_a_top_level_package_of_the_checkout(rewritten):
    for folder in (*MOVED, "scripts"):
        for path in (ROOT / folder).rglob("*.py"):
            text = rewritten(path.read_text())
            assert not {*MOVED} & set(top_names(text)), path
            assert not re.search(r'import_module\(f?"(rl|bc|hardware)\.', text), path


def test_rewritten_imports_bind_the_same_names(rewritten):
    for before, after in {
        "import hardware\n": "from nppsim_agents import hardware\n",
        "    from rl.policy import x\n": "    from nppsim_agents.rl.policy import x\n",
        "import bc.train as imitation\n": "import nppsim_agents.bc.train as imitation\n",
        "import rl.doctor\n": "import nppsim_agents.rl.doctor\nfrom nppsim_agents import rl\n",
        "from rlx import y\n": "from rlx import y\n",
    }.items():
        assert rewritten(before) == after


def test_every_command_is_a_function(monkeypatch, capsys):
    for name, place in COMMANDS.items():
        module, _, function = place.partition(":")
        assert callable(getattr(importlib.import_module(module), function)), name

    class Entry:
        def load(self):
            return commands.hardware

    monkeypatch.setattr(command_line, "_others", lambda: {"hardware": Entry()})
    assert command_line.main(["hardware", "plan", "--architecture", "none such"]) == 2
    assert "none such" in capsys.readouterr().err


def test_data_are_copied_to_a_new_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "datasets" / "train").mkdir(parents=True)
    monkeypatch.setattr(commands, "_PLACE", tmp_path)
    assert commands.data([str(tmp_path / "mine")]) == 0
    assert (tmp_path / "mine" / "train").is_dir()
    assert commands.data([str(tmp_path / "mine")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert commands.data([]) == 2


def test_type_information_is_in_every_package():
    data = PROJECT["tool"]["setuptools"]["package-data"]
    for package in ("nppsim", "nppsim_agents", *MOVED):
        assert "py.typed" in data[package] and (ROOT / package / "py.typed").read_bytes() == b""


def test_the_image_is_given_all_that_the_wheel_is_made_of():
    given = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert given == {
        *("nppsim", "nppsim_agents", *MOVED, "scripts", "datasets"),
        *("pyproject.toml", "setup.py", "constraints.txt"),
        *(PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]),
    }
    image = (ROOT / "Dockerfile").read_text()
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", image, re.MULTILINE)
    assert set(extras.split(",")) <= set(PROJECT["project"]["optional-dependencies"])
    assert "USER player" in image and 'ENTRYPOINT ["nppsim"]' in image


def test_the_version_is_known():
    assert re.fullmatch(r"\d+\.\d+\.\d+", nppsim.__version__)


def test_the_studios_plugin_is_a_function():
    for place in PROJECT["project"]["entry-points"]["nppsim.agents"].values():
        module, _, function = place.partition(":")
        assert callable(getattr(importlib.import_module(module), function))
