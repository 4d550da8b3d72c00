"""Folder of compiled kernels: one per version of the sources that machine code depends on.

Numba's cache checks only the source file of the cached function.  After a change of a helper in another file, callers of
the helper would run old machine code.  Therefore the folder's name contains a digest of all files that kernels import.
"""

import ast
import functools
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nppsim.errors import UserError

PACKAGE = Path(__file__).parents[1]
COMPILED_FUNCTION = re.compile(
    r"^@(?:entry|kernel|inlined|merged|allocating|allocating_entry)\b.*\n(?:@.*\n)*def \w+", re.MULTILINE
)
# Modules of which kernel files import only classes and plain functions, which kernels cannot use; changes there need no
# compilation.
WITHOUT_KERNEL_DATA = ("errors.py", "levels/level.py", "levels/level_set.py", "observe/foresight_settings.py")
_FOLDER = re.compile("numba-[0-9a-f]{16}")  # names of cache folders, of all versions of the sources
_MAX_FOLDERS, _MAX_AGE_S = 4, 7 * 24 * 3600  # number of newest folders to keep; age above which others are removed
_NOTE = "kernels-of-"  # name prefix of files that cache ``kernel_digest``; the digest of all sources follows
_REMEDY = "set NUMBA_CACHE_DIR to a writable folder"


class CacheFolderError(UserError):
    """The cache folder cannot be written; the message names the folder, the reason and the remedy."""


def kernel_sources() -> dict[Path, str]:
    """Return path and text of the files with kernels, and of those that they import, directly or indirectly."""
    sources = _sources()
    pending = [path for path, text in sources.items() if COMPILED_FUNCTION.search(text)]
    found: set[Path] = set()
    while pending:
        path = pending.pop()
        if path not in found and path.relative_to(PACKAGE).as_posix() not in WITHOUT_KERNEL_DATA:
            found.add(path)
            pending.extend(imported for imported in _imports(path, sources[path]) if imported in sources)
    return {path: sources[path] for path in sorted(found)}


def kernel_digest() -> str:
    """Digest (16 hex characters) of the sources on which machine code depends."""
    return _digest({path: _code(text) for path, text in kernel_sources().items()})


def _sources() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def _imports(path: Path, text: str) -> Iterator[Path]:
    """Yield the files that a module may import, by any form of import; some of them may not exist.

    The files ``__init__.py`` of the parents of an imported module are left out.
    """
    package = path.relative_to(PACKAGE.parent).parts[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*parents, *([node.module] if node.module else [])])
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            place = PACKAGE.parent.joinpath(*name.split("."))
            yield place.with_suffix(".py")
            if place != PACKAGE:
                yield place / "__init__.py"


def _code(text: str) -> str:
    """Return the syntax tree of a module as text; comments, docstrings and layout do not change it."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            del node.body[0]
    return ast.dump(tree)


def _digest(sources: dict[Path, str]) -> str:
    digest = hashlib.sha256((sys.implementation.cache_tag or "").encode())
    digest.update(os.environ.get("NUMBA_BOUNDSCHECK", "").encode())  # changes machine code, but not Numba's cache key
    for path, text in sources.items():
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + text.encode())
    return digest.hexdigest()[:16]


def _base() -> Path:
    """Return the parent of the folders of all versions: NUMBA_CACHE_DIR, else ``nppsim`` in the user's cache folder."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given).absolute()
    given = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(given, "nppsim")


def _stored_digest() -> str:
    """Return ``kernel_digest``, from a file if possible, which saves 0.4 s per process."""
    note = _base() / f"{_NOTE}{_digest(_sources())}"
    with suppress(OSError):
        if re.fullmatch("[0-9a-f]{16}", text := note.read_text(encoding="utf-8", errors="replace")):
            return text
    digest = kernel_digest()
    with suppress(OSError):  # reported by ``prepare_folder``, if the folder is needed
        if _base().is_dir():
            note.write_text(digest)
    return digest


KERNEL_DIGEST = _stored_digest()
CACHE_FOLDER = _base() / f"numba-{KERNEL_DIGEST}"


@functools.cache
def prepare_folder() -> Path:
    """Create CACHE_FOLDER if it is missing, and return it.  Raises CacheFolderError if it cannot be written."""
    if not CACHE_FOLDER.is_absolute():
        raise CacheFolderError(f"compiled kernels cannot be stored: there is no home folder; {_REMEDY}")
    try:
        new = not CACHE_FOLDER.exists()
        CACHE_FOLDER.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=CACHE_FOLDER).close()
        os.utime(CACHE_FOLDER)  # time of the last use, for ``remove_old``
        if new:
            remove_old(CACHE_FOLDER.parent)
    except OSError as error:
        raise CacheFolderError(
            f"{CACHE_FOLDER}: compiled kernels cannot be stored there ({error.strerror}); {_REMEDY}"
        ) from error
    return CACHE_FOLDER


def remove_old(base: Path, now: float | None = None) -> list[Path]:
    """Remove folders that no process has opened this week and that are not among the newest; return their paths.

    If a process still uses such a folder, Numba creates it again.
    """
    now = time.time() if now is None else now
    links = [path for path in base.glob("numba-*") if path.is_symlink()]  # never created by this project
    exempt = {*links, *(link.resolve() for link in links)}
    folders = [path for path in base.glob("numba-*") if _FOLDER.fullmatch(path.name) and path not in exempt]
    folders.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    old = [path for path in folders[_MAX_FOLDERS:] if now - path.stat().st_mtime > _MAX_AGE_S]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)  # another process may be removing it too
    for note in base.glob(f"{_NOTE}*"):
        with suppress(FileNotFoundError):  # another process has removed the note
            if now - note.stat().st_mtime > _MAX_AGE_S:
                note.unlink()
    return old
