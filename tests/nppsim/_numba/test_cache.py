"""Folder of compiled kernels: digest of the sources, place, pruning, and the message if it cannot be written."""

import importlib
import os
import re
import subprocess
import sys
import types

import pytest

from nppsim._numba import cache, decorators

from places import ROOT

LEVEL = ROOT / "datasets" / "dev" / "simplest" / "000000.map"


def start(command, **variables):
    environment = {name: value for name, value in (os.environ | variables).items() if value is not None}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True)


PLACE = """
import os, sys, types
sys.modules["nppsim"] = types.ModuleType("nppsim")
sys.modules["nppsim"].__path__ = ["nppsim"]
before = {**os.environ}
from nppsim._numba.cache import CACHE_FOLDER, prepare_folder
assert prepare_folder() == CACHE_FOLDER and CACHE_FOLDER.is_dir() and os.environ == before
print(CACHE_FOLDER.parent)
"""  # without the rest of the package, which takes a second to import


def test_command_with_unwritable_cache_folder_fails_in_one_line(tmp_path):
    (tmp_path / "file").touch()
    done = start(["-m", "nppsim", "levels", str(LEVEL)], NUMBA_CACHE_DIR=str(tmp_path / "file"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"error: {tmp_path}/file/numba-")
    assert "cannot be stored there (Not a directory); set NUMBA_CACHE_DIR" in done.stderr


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"HOME": "home"}, "home/.cache/nppsim"),
        ({"HOME": "/proc/none", "XDG_CACHE_HOME": "xdg"}, "xdg/nppsim"),
        ({"HOME": "home", "XDG_CACHE_HOME": ""}, "home/.cache/nppsim"),
        ({"HOME": "/proc/none", "NUMBA_CACHE_DIR": "given"}, "given"),
        ({"HOME": "/proc/none"}, None),
    ],
)
def test_cache_folder_follows_the_environment_and_leaves_it_unchanged(tmp_path, variables, folder):
    given = {name: str(tmp_path / value) if value else value for name, value in variables.items()}
    done = start(["-c", PLACE], **{"HOME": None, "XDG_CACHE_HOME": None, "NUMBA_CACHE_DIR": None} | given)
    if folder is None:
        assert "CacheFolderError: /proc/none/.cache/nppsim/numba-" in done.stderr
    else:
        assert done.stdout.strip() == str(tmp_path / folder), done.stderr


# Every form of import; the numbers of the helpers are compiled into ``run``.
SMALL = {
    "__init__.py": "from nppsim.kernels import run\n",
    "kernels.py": """
import nppsim.plain
import nppsim.renamed as other
from nppsim import numbers
from nppsim.tables import TABLE
from .deep.relative import FOUR
from .deep import sibling
from nppsim.stars import *

@kernel
@another(1)
def run():
    import nppsim.nested
    return nppsim.plain.ONE + other.TWO + numbers.THREE + FOUR + TABLE[0] + nppsim.nested.FIVE + SIX
""",
    "plain.py": "ONE = 1\n",
    "renamed.py": "TWO = 2\n",
    "numbers.py": "THREE = 3\n",
    "tables.py": "from nppsim.filled import fill\nTABLE = [0]\nfill(TABLE)\n",
    "filled.py": "def fill(table):\n    table[0] = 4\n",
    "deep/__init__.py": "",
    "deep/relative.py": "from ..upper import FOUR\n",
    "deep/sibling.py": "",
    "upper.py": "FOUR = 4\n",
    "nested.py": "FIVE = 5\n",
    "stars.py": "SIX = 6\n",
    "errors.py": "class Refused(Exception):\n    pass\n",
    "unused.py": "from nppsim.kernels import run\n",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name, text in SMALL.items():
        (tmp_path / "nppsim" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "nppsim" / name).write_text(text)
    monkeypatch.setattr(cache, "PACKAGE", tmp_path / "nppsim")
    return tmp_path / "nppsim"


def test_kernel_digest_changes_with_the_code_of_every_imported_file(package):
    unrelated = {"__init__.py", "errors.py", "unused.py"}
    assert {path.relative_to(package).as_posix() for path in cache.kernel_sources()} == SMALL.keys() - unrelated
    before = cache.kernel_digest()
    for name, text in SMALL.items():
        (package / name).write_text(text + "changed = 1\n")
        assert (cache.kernel_digest() != before) == (name not in unrelated), name
        (package / name).write_text(f'"""Docstring."""\n\n{text}# comment\n')
        assert cache.kernel_digest() == before, name
        (package / name).write_text(text)


def test_stored_digest_is_computed_once_per_state_of_the_sources(package, tmp_path, monkeypatch):
    computed = []
    digest = cache.kernel_digest
    monkeypatch.setattr(cache, "kernel_digest", lambda: computed.append(digest()) or computed[-1])
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert cache._stored_digest() == cache._stored_digest() == digest() and len(computed) == 1
    (package / "plain.py").write_text("ONE = 2\n")
    assert cache._stored_digest() == cache._stored_digest() == digest() and len(computed) == 2
    for note in tmp_path.glob("kernels-of-*"):
        note.write_text("damaged")
    assert cache._stored_digest() == digest() and len(computed) == 3


def test_kernel_files_import_only_classes_and_plain_functions_from_modules_outside_the_digest():
    """Kernels cannot use these, so changes of such modules do not affect machine code."""
    excluded = {f"nppsim.{name.removesuffix('.py').replace('/', '.')}" for name in cache.WITHOUT_KERNEL_DATA}
    used = 0
    for path in cache.kernel_sources():
        if path.name == "__init__.py":  # its names include modules that other files import
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        module = importlib.import_module(name)
        for value in vars(module).values():
            assert getattr(value, "__name__", "") not in excluded, name
            if getattr(value, "__module__", "") in excluded:
                assert isinstance(value, (type, types.FunctionType)), (name, value)
                used += 1
    assert used


def test_kernel_decorators_all_match_the_pattern_of_the_digest():
    names = [
        name
        for name, value in vars(decorators).items()
        if getattr(value, "__code__", None) is decorators.entry.__code__
    ]
    assert "kernel" in names
    for path, text in cache._sources().items():
        used = re.findall(rf"^@(?:{'|'.join(names)})\b", text, re.MULTILINE)
        assert len(cache.COMPILED_FUNCTION.findall(text)) == len(used), path


def test_remove_old_keeps_recent_newest_linked_and_foreign_folders(tmp_path):
    now, day = 1_000_000_000, 24 * 3600
    ages = {"a": 1, "b": 30, "c": 31, "d": 32, "e": 5, "f": 50, "1": 60, "foreign": 70}  # days
    folders = {name: tmp_path / f"numba-{name * 16 if len(name) == 1 else name}" for name in ages}
    for name, days in ages.items():
        (folders[name] / "inner").mkdir(parents=True)
        os.utime(folders[name], (now - days * day,) * 2)
    (tmp_path / "numba-link").symlink_to(folders["1"].name)
    for name, days in {"new": 1, "old": 30}.items():
        (tmp_path / f"kernels-of-{name}").touch()
        os.utime(tmp_path / f"kernels-of-{name}", (now - days * day,) * 2)
    assert {*cache.remove_old(tmp_path, now)} == {folders["d"], folders["f"]}  # newest: a, e, b, c
    assert not folders["d"].exists()
    assert [path.name for path in tmp_path.glob("kernels-of-*")] == ["kernels-of-new"]
    assert (folders["foreign"] / "inner").is_dir() and (folders["1"] / "inner").is_dir()


OTHERS = """
import os, pathlib, sys
import nppsim, numba
from nppsim._numba.cache import CACHE_FOLDER
from nppsim._numba.decorators import entry
from nppsim.physics.tick import advance_frame

@numba.njit(cache=True)
def theirs(x):
    return x + 1

@entry
def ours(x):
    return theirs(x) + 1

print(ours(1))
assert os.environ["NUMBA_CACHE_DIR"] == str(CACHE_FOLDER.parent)
assert CACHE_FOLDER not in pathlib.Path(theirs.stats.cache_path).parents
assert CACHE_FOLDER in pathlib.Path(ours.stats.cache_path).parents
"""


def test_functions_of_other_packages_are_cached_in_their_own_folder(tmp_path):
    script = tmp_path / "other.py"
    script.write_text(OTHERS)
    done = start([str(script)], NUMBA_CACHE_DIR=str(tmp_path / "given"), PYTHONPATH=str(ROOT))
    assert done.returncode == 0 and done.stdout == "3\n", done.stderr
