"""Folder of compiled kernels, and messages if it cannot be used."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from nppsim._numba import cache

from places import ROOT


def start(command, **variables):
    environment = {name: value for name, value in (os.environ | variables).items() if value is not None}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)


ALONE = """
import sys, types
sys.modules["nppsim"] = types.ModuleType("nppsim")
sys.modules["nppsim"].__path__ = ["nppsim"]
from nppsim._numba.cache import CACHE_FOLDER
print(CACHE_FOLDER.parent)
"""  # without the rest of the package, which takes a second to import


@pytest.mark.parametrize("command", [["-m", "nppsim"], ["scripts/evaluate.py"], ["-m", "bc"]])
def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, command):
    (tmp_path / "file").touch()
    done = start([*command, "--help"], NUMBA_CACHE_DIR=str(tmp_path / "file"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"error: {tmp_path}/file/numba-")
    assert "cannot be stored there (Not a directory); set NUMBA_CACHE_DIR" in done.stderr


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


SMALL = {
    "__init__.py": "from nppsim.kernels import run\n",
    "kernels.py": """
from nppsim import numbers
from nppsim.errors import Refused
from nppsim.tables import TABLE
from nppsim.shown import STYLE

@kernel
@other(1)
def run():
    return numbers.ONE + helper() + TABLE[0]

def helper():
    return 2

def show():
    raise Refused(STYLE)
""",
    "numbers.py": "ONE = 1\n",
    "errors.py": "class Refused(Exception):\n    pass\n",
    "shown.py": "STYLE = 3\n",
    "tables.py": "from nppsim.filled import fill\nTABLE = [0]\nfor i in range(1):\n    fill(TABLE, i)\n",
    "filled.py": "from nppsim.depths import DEPTH\ndef fill(table, i):\n    table[i] = DEPTH\n",
    "depths.py": "DEPTH = 4\n",
}


def test_kernels_depend_on_what_they_use_at_any_remove_and_on_nothing_else(tmp_path, monkeypatch):
    package = tmp_path / "nppsim"
    package.mkdir()
    for name, text in SMALL.items():
        (package / name).write_text(text)
    monkeypatch.setattr(cache, "_PACKAGE", package)
    used = {"kernels.py", "numbers.py", "tables.py", "filled.py", "depths.py"}
    assert {path.name for path in cache.kernel_sources()} == used
    before = cache.kernel_digest()
    for name, text in SMALL.items():
        (package / name).write_text(text + "changed = 1\n")
        assert (cache.kernel_digest() != before) == (name in used), name
        (package / name).write_text(f'"""Docstring."""\n\n{text}# comment\n')
        assert cache.kernel_digest() == before, name
        (package / name).write_text(text)


def test_what_kernels_depend_on_is_worked_out_once_for_each_state_of_all_sources(tmp_path, monkeypatch):
    package, worked_out = tmp_path / "nppsim", []
    package.mkdir()
    for name, text in SMALL.items():
        (package / name).write_text(text)
    digest = cache.kernel_digest
    monkeypatch.setattr(cache, "_PACKAGE", package)
    monkeypatch.setattr(cache, "kernel_digest", lambda: worked_out.append(digest()) or worked_out[-1])
    monkeypatch.setitem(sys.modules, "numba", SimpleNamespace(config=SimpleNamespace()))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "stored"))
    before = cache.use_own_cache()
    assert cache.use_own_cache() == before and len(worked_out) == 1
    for name in ("errors.py", "numbers.py"):  # the first is none of the kernels'
        (package / name).write_text(SMALL[name] + "changed = 1\n")
        changed = cache.use_own_cache()
        assert changed.name == f"numba-{digest()}" and (changed != before) == (name == "numbers.py")
    assert len(worked_out) == 3
    for note in (tmp_path / "stored").glob("kernels-of-*"):
        note.write_text("torn")
    assert cache.use_own_cache() == changed and len(worked_out) == 4


def test_every_compiled_function_of_the_package_is_known():
    kernels = {path: text for path, text in cache._sources().items() if cache._COMPILED.search(text)}
    for path, text in kernels.items():
        found = len(cache.COMPILED_FUNCTION.findall(text))
        assert found == len(cache._COMPILED.findall(text)), path
    assert kernels.keys() <= cache.kernel_sources().keys()


def test_folders_of_old_versions_go_but_for_the_newest_few(tmp_path):
    now, day = 1_000_000_000, 24 * 3600
    ages = {"a": 1, "b": 30, "c": 31, "d": 32, "e": 5, "f": 50, "1": 60, "foreign": 70}  # days
    folders = {name: tmp_path / f"numba-{name * 16 if len(name) == 1 else name}" for name in ages}
    for name, days in ages.items():
        (folders[name] / "inner").mkdir(parents=True)
        os.utime(folders[name], (now - days * day,) * 2)
    (tmp_path / "numba-link").symlink_to(folders["1"].name)
    (tmp_path / "other").mkdir()
    for name, days in {"new": 1, "old": 30}.items():
        (tmp_path / f"kernels-of-{name}").touch()
        os.utime(tmp_path / f"kernels-of-{name}", (now - days * day,) * 2)
    removed = cache.remove_old(tmp_path, now)
    assert {*removed} == {folders["d"], folders["f"]}, "four newest: a, e, b, c; linked and foreign stay"
    assert not folders["d"].exists()
    assert [path.name for path in tmp_path.glob("kernels-of-*")] == ["kernels-of-new"]
    assert (folders["foreign"] / "inner").is_dir() and (folders["1"] / "inner").is_dir()


def test_a_copy_of_the_sources_uses_the_same_compiled_kernels():
    from nppsim._numba import decorators

    path = f"{decorators._ROOT}/nppsim/physics/tick.py"
    assert decorators.RelativeCacheLocator.get_suitable_cache_subpath(path) == "nppsim_physics"
    assert decorators.RelativeCacheLocator.from_function(lambda: None, "/elsewhere/kernels.py") is None
