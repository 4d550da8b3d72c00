"""Numba's cache folder for compiled kernels.  ``nppsim/__init__.py`` imports this module before Numba.

Numba's cache checks only the source file of the cached function.  After a change of a helper in another file, callers of the
helper would run old machine code.  Therefore the folder's name contains a digest of all code that kernels depend on.
The folder must be writable; otherwise Numba would silently use another folder, without the digest.
"""

import ast
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from nppsim.errors import REFUSED, UserError

_PACKAGE = Path(__file__).parents[1]
_COMPILED = re.compile(
    r"^@(njit|entry|kernel|inlined|merged|allocating|allocating_entry)\b", re.MULTILINE
)  # decorators of compiled functions
COMPILED_FUNCTION = re.compile(rf"{_COMPILED.pattern}.*\n(?:@.*\n)*def (?P<name>\w+)", re.MULTILINE)
_FOLDER = re.compile("numba-[0-9a-f]{16}")  # names of cache folders, of all versions of the sources
_MAX_FOLDERS, _MAX_AGE_S = 4, 7 * 24 * 3600  # number of newest folders to keep; age above which others are removed
_NOTE = "kernels-of-"  # name prefix of files that cache ``kernel_digest``; the digest of all sources follows
_REMEDY = "set NUMBA_CACHE_DIR to a writable folder"


def kernel_sources() -> dict[Path, str]:
    """Return path and text of the files with definitions that compiled functions use, directly or indirectly."""
    sources = _sources()
    modules: dict[Path, _Module] = {}
    pending = [(path, match["name"]) for path, text in sources.items() for match in COMPILED_FUNCTION.finditer(text)]
    reached = set()
    while pending:
        path, name = item = pending.pop()
        if path in sources and item not in reached:
            reached.add(item)
            if path not in modules:
                modules[path] = _Module(path, ast.parse(sources[path]))
            pending.extend(modules[path].uses(name))
    return {path: sources[path] for path in sorted({path for path, _ in reached})}


def kernel_digest() -> str:
    """Digest (16 hex characters) of the sources on which machine code depends."""
    return _digest({path: _code(text) for path, text in kernel_sources().items()})


def _sources() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(_PACKAGE.rglob("*.py"))}


def _code(text: str) -> str:
    """Return the syntax tree of a module as text; comments, docstrings and layout do not change it."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            del node.body[0]
    return ast.dump(tree)


def _digest(sources: dict[Path, str]) -> str:
    digest = hashlib.sha256(sys.version.encode())
    digest.update(os.environ.get("NUMBA_BOUNDSCHECK", "").encode())  # changes machine code, but not Numba's cache key
    for path, text in sources.items():
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + text.encode())
    return digest.hexdigest()[:16]


def _imported(node: ast.ImportFrom, alias: ast.alias) -> list[tuple[Path, str]]:
    """List the (file, name) pairs that an imported name may mean: a name in a module, or a module with name ``*``.

    Some of these files may not exist.
    """
    if not node.module or node.module.split(".")[0] != _PACKAGE.name:
        return []
    base = _PACKAGE.joinpath(*node.module.split(".")[1:])
    places = [
        (base.with_suffix(".py"), alias.name),
        (base / "__init__.py", alias.name),
        (base / f"{alias.name}.py", "*"),
    ]
    return [place for place in places if place[0] != _PACKAGE / "__init__.py"]


class _Module:
    """Dependencies of the top-level names of a module.

    Statements that are not plain definitions, such as loops, can change any name, so every name depends on them.
    """

    def __init__(self, path: Path, tree: ast.Module):
        self.path = path
        self.imports: dict[str, list[tuple[Path, str]]] = {}
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.common: set[str] = set()
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = _imported(node, alias)
                continue
            bound = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else _names(node, ast.Store)
            for name in bound:
                self.definitions.setdefault(name, []).append(node)
            plain = isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign | ast.Import)
            if not (bound and plain):
                self.common.update(_names(node, ast.Load))

    def uses(self, name: str) -> list[tuple[Path, str]]:
        """List the dependencies (file, name) of a name; ``*`` stands for all names of a module."""
        names = self.imports.keys() | self.definitions.keys() if name == "*" else {name}
        own = [node for name in names for node in self.definitions.get(name, ())]
        found = [file for name in names for file in self.imports.get(name, ())]
        used = self.common.union(*(_names(node, ast.Load) for node in own))
        found += [(self.path, name) for name in used if name in self.imports or name in self.definitions]
        return found


def _names(node: ast.AST, context: type[ast.expr_context]) -> list[str]:
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, context)]


class CacheFolderError(UserError, ImportError):
    """The cache folder cannot be written; the message names the folder, the reason and the remedy."""


def use_own_cache() -> Path:
    """Make Numba use the cache folder of these sources; return it.  Raises CacheFolderError if it is not writable."""
    note = _base() / f"{_NOTE}{_digest(_sources())}"
    known = _noted(note)
    digest = known or kernel_digest()
    folder = note.with_name(f"numba-{digest}")
    try:
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # Numba checks a folder in the same way
        os.utime(folder)  # time of the last use, for ``remove_old``
        if not known:
            note.write_text(digest)
        if new:
            remove_old(folder.parent)
    except OSError as error:
        raise CacheFolderError(
            f"{folder}: compiled kernels cannot be stored there ({error.strerror}); {_REMEDY}"
        ) from error
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = str(folder)
    return folder


def _noted(note: Path) -> str | None:
    """Read the stored ``kernel_digest``, which saves 0.25 s per process; None if the file is missing or incomplete."""
    with suppress(OSError):
        if re.fullmatch("[0-9a-f]{16}", text := note.read_text(encoding="utf-8", errors="replace")):
            return text
    return None


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


def _base() -> Path:
    """Return the parent of the folders of all versions: NUMBA_CACHE_DIR, else ``nppsim`` in the user's cache folder."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        base = Path(given)
        return base.parent if base.name.startswith("numba-") else base  # set by ``use_own_cache`` of a parent process
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "nppsim"
    try:
        return Path.home() / ".cache" / "nppsim"
    except RuntimeError as error:
        raise CacheFolderError(f"compiled kernels cannot be stored: there is no home folder; {_REMEDY}") from error


def _in_one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Exception hook that prints a CacheFolderError in one line; this import fails before a command could catch it."""
    if not isinstance(error, CacheFolderError):
        sys.__excepthook__(kind, error, trace)
        return
    print(f"error: {error}", file=sys.stderr)
    raise SystemExit(REFUSED)


try:
    CACHE_FOLDER = use_own_cache()
    KERNEL_DIGEST = CACHE_FOLDER.name.removeprefix("numba-")  # ``kernel_digest()``, which takes a second
except CacheFolderError:
    sys.excepthook = _in_one_line
    raise
