"""Where Numba keeps compiled kernels.  Imported before numba by ``nppsim/__init__.py``.

Numba's cache watches only the file of the cached function: a changed helper in another file would leave its callers
running old machine code.  Hence one folder per digest of every source that compiled code can depend on.  The folder
must be one that can be written: where it is not, Numba would turn to others, which do not know the digest, without a word.
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
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from nppsim.errors import REFUSED, UserError

_PACKAGE = Path(__file__).parent
_COMPILED = re.compile(r"^@(njit|kernel|inlined|merged|allocating)\b", re.MULTILINE)  # what makes functions compiled
COMPILED_FUNCTION = re.compile(rf"{_COMPILED.pattern}.*\n(?:@.*\n)*def (?P<name>\w+)", re.MULTILINE)
_KEPT, _KEPT_S = 4, 7 * 24 * 3600  # folders of other versions, and seconds since their last use
_IN_USE = ".in-use"  # locked by whoever uses a folder
_NOTE = "kernels-of-"  # and the digest of all sources: names the file that holds the digest of those of the kernels
_held: list[int] = []
_REMEDY = "set NUMBA_CACHE_DIR to a folder that can be written"


def compiled_sources() -> dict[Path, str]:
    """The files that compiled code, or the arrays that it works on, can depend on, and their texts."""
    sources = _sources()
    needed, pending = set(), [path for path, text in sources.items() if _COMPILED.search(text)]
    while pending:
        path = pending.pop()
        if path not in needed:
            needed.add(path)
            pending.extend(imported & sources.keys() if (imported := _imports(sources[path])) else ())
    return {path: sources[path] for path in sorted(needed)}


def source_digest() -> str:
    """Digest (16 hex characters) of the sources that recorded observations depend on."""
    return _digest(compiled_sources())


def kernel_sources() -> dict[Path, str]:
    """The files of which compiled functions use a name, at whatever remove, and their texts.

    Fewer than ``compiled_sources``: what only plain Python uses, such as an error's class, changes no machine code.
    """
    sources = _sources()
    modules: dict[Path, _Module] = {}
    pending = [(path, match["name"]) for path, text in sources.items() for match in COMPILED_FUNCTION.finditer(text)]
    reached = set()
    while pending:
        path, name = place = pending.pop()
        if path in sources and place not in reached:
            reached.add(place)
            if path not in modules:
                modules[path] = _Module(path, ast.parse(sources[path]))
            pending.extend(modules[path].uses(name))
    return {path: sources[path] for path in sorted({path for path, _ in reached})}


def kernel_digest() -> str:
    """Digest (16 hex characters) of the sources that machine code depends on."""
    return _digest(kernel_sources())


def _sources() -> dict[Path, str]:
    return {path: text for path, text in _all_sources().items() if path != Path(__file__)}


def _all_sources() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(_PACKAGE.rglob("*.py"))}


def _digest(sources: dict[Path, str]) -> str:
    digest = hashlib.sha256(sys.version.encode())
    digest.update(os.environ.get("NUMBA_BOUNDSCHECK", "").encode())  # other code, which Numba does not tell apart
    for path, text in sources.items():
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + text.encode())
    return digest.hexdigest()[:16]


@functools.cache
def _imports(text: str) -> set[Path]:
    """Files of this package that a module may import (some may not exist)."""
    return {
        path
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        for path, _ in _imported(node, alias)
    }


def _imported(node: ast.ImportFrom, alias: ast.alias) -> list[tuple[Path, str]]:
    """Where an import from this package may find a name: in a module, or it is one (some may not exist)."""
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
    """What the names at the top of a module are made of; loops and such, which can change any of them, belong to all."""

    def __init__(self, path: Path, tree: ast.Module):
        self.path = path
        self.imports: dict[str, list[tuple[Path, str]]] = {}
        self.made_of: dict[str, list[ast.stmt]] = {}
        self.common: set[str] = set()
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = _imported(node, alias)
                continue
            bound = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else _names(node, ast.Store)
            for name in bound:
                self.made_of.setdefault(name, []).append(node)
            plain = isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign | ast.Import)
            if not (bound and plain):
                self.common.update(_names(node, ast.Load))

    def uses(self, name: str) -> list[tuple[Path, str]]:
        """What a name is made of, as files and names in them; ``*`` is all of a module."""
        names = self.imports.keys() | self.made_of.keys() if name == "*" else {name}
        own = [node for name in names for node in self.made_of.get(name, ())]
        found = [place for name in names for place in self.imports.get(name, ())]
        used = self.common.union(*(_names(node, ast.Load) for node in own))
        found += [(self.path, name) for name in used if name in self.imports or name in self.made_of]
        return found


def _names(node: ast.AST, context: type[ast.expr_context]) -> list[str]:
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, context)]


class CacheFolderError(UserError, ImportError):
    """Compiled kernels cannot be kept; the message says where, why, and how to choose another place."""


def use_own_cache() -> Path:
    """Point Numba at the folder of this version of the sources and return it.  CacheFolderError if it cannot be written."""
    note = _base() / f"{_NOTE}{_digest(_all_sources())}"
    known = _noted(note)
    digest = known or kernel_digest()
    folder = note.with_name(f"numba-{digest}")
    try:
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # what Numba tries, too
        os.utime(folder)  # when it was last used
        _hold(folder)
        if not known:
            note.write_text(digest)
        if new:
            remove_old(folder.parent)
    except OSError as error:
        raise CacheFolderError(
            f"{folder}: compiled kernels cannot be kept there ({error.strerror}); {_REMEDY}"
        ) from error
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = str(folder)
    return folder


def _noted(note: Path) -> str | None:
    """The digest in a note, which saves each process a quarter of a second; None if there is no note, or not a whole one."""
    with suppress(OSError):
        if re.fullmatch("[0-9a-f]{16}", text := note.read_text(encoding="utf-8", errors="replace")):
            return text
    return None


def _hold(folder: Path) -> None:
    """Mark the folder as in use until this process ends, however it ends."""
    if sys.platform != "win32":
        import fcntl  # not on Windows

        file = os.open(folder / _IN_USE, os.O_RDWR | os.O_CREAT, 0o666)
        _held.append(file)  # open as long as the process lives
        with suppress(BlockingIOError):  # somebody is about to remove it: Numba makes it anew
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _in_use(folder: Path) -> bool:
    """Whether a process compiles into the folder, or has loaded kernels from it; Windows does not tell, so yes."""
    if sys.platform == "win32":
        return True
    import fcntl

    file = os.open(folder / _IN_USE, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def remove_old(base: Path, now: float | None = None) -> list[Path]:
    """Remove folders of former versions and return them: none of the newest few, none of this week, none in use."""
    now = time.time() if now is None else now
    links = [path for path in base.glob("numba-*") if path.is_symlink()]  # somebody's own arrangement
    kept = {link.resolve() for link in links}
    folders = [path for path in base.glob("numba-*") if path.is_dir() and not path.is_symlink() and path not in kept]
    folders.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    old = [path for path in folders[_KEPT:] if now - path.stat().st_mtime > _KEPT_S and not _in_use(path)]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)  # another process may be at it, too
    for note in base.glob(f"{_NOTE}*"):
        with suppress(FileNotFoundError):  # likewise
            if now - note.stat().st_mtime > _KEPT_S:
                note.unlink()
    return old


def _base() -> Path:
    """What holds the folders of all versions: NUMBA_CACHE_DIR, else ``nppsim`` in the user's cache folder."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        base = Path(given)
        return base.parent if base.name.startswith("numba-") else base  # set by a parent process
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "nppsim"
    try:
        return Path.home() / ".cache" / "nppsim"
    except RuntimeError as error:
        raise CacheFolderError(f"compiled kernels cannot be kept: you have no home folder; {_REMEDY}") from error


def _in_one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Python shows of an error that nobody catches: commands import this module before they could."""
    if not isinstance(error, CacheFolderError):
        sys.__excepthook__(kind, error, trace)
        return
    print(f"error: {error}", file=sys.stderr)
    raise SystemExit(REFUSED)


try:
    CACHE_FOLDER = use_own_cache()
except CacheFolderError:
    sys.excepthook = _in_one_line
    raise
