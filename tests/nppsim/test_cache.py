"""Where compiled kernels are kept, and what is told where they cannot be."""

import os
import subprocess
import sys

import pytest

from places import ROOT


def start(command, **variables):
    environment = {name: value for name, value in (os.environ | variables).items() if value is not None}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)


ALONE = """
import sys, types
sys.modules["nppsim"] = types.ModuleType("nppsim")
sys.modules["nppsim"].__path__ = ["nppsim"]
from nppsim._cache import CACHE_FOLDER
print(CACHE_FOLDER.parent)
"""  # without the rest of the package, which takes a second to import


@pytest.mark.parametrize("command", [["-m", "nppsim"], ["scripts/evaluate.py"], ["-m", "bc"]])
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, command):
    (tmp_path / "file").touch()
    done = start([*command, "--help"], NUMBA_CACHE_DIR=str(tmp_path / "file"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"error: {tmp_path}/file/numba-")
    assert "cannot be kept there (Not a directory); set NUMBA_CACHE_DIR to a folder that can be written" in done.stderr


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"HOME": "home"}, "home/.cache/nppsim"),
        ({"HOME": "/proc/none", "XDG_CACHE_HOME": "xdg"}, "xdg/nppsim"),
        ({"HOME": "home", "XDG_CACHE_HOME": ""}, "home/.cache/nppsim"),
        ({"HOME": "/proc/none", "NUMBA_CACHE_DIR": "own/numba-0123"}, "own"),
        ({"HOME": "/proc/none"}, None),
    ],
)
def test_the_folder_follows_the_environment(tmp_path, variables, folder):
    given = {name: str(tmp_path / value) if value else value for name, value in variables.items()}
    environment = {"HOME": None, "XDG_CACHE_HOME": None, "NUMBA_CACHE_DIR": None} | given
    done = start(["-c", ALONE], **environment)
    if folder is None:
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    else:
        assert done.stdout.strip() == str(tmp_path / folder), done.stderr
