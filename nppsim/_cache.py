"""Where Numba keeps compiled kernels.  Imported before numba by ``nppsim/__init__.py``.

Numba's cache watches only the file of the cached function: a changed helper in another file would leave its callers
running old machine code.  Hence one folder per digest of every source that compiled code can depend on: the files with
kernels and all that they import from this package.  The folder must be one that can be written: where it is not, Numba would
turn to others, which do not know the digest, without a word.
"""

import ast
import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from nppsim.errors import REFUSED, UserError

_PACKAGE = Path(__file__).parent
_COMPILED = re.compile(r"^@(njit|kernel|inlined|allocating)\b", re.MULTILINE)  # the decorators of compiled functions
_REMEDY = "set NUMBA_CACHE_DIR to a folder that can be written"


def compiled_sources() -> dict[Path, str]:
    """The files that compiled code can depend on, and their texts."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(_PACKAGE.rglob("*.py"))}
    needed, pending = (
        set(),
        [path for path, text in sources.items() if _COMPILED.search(text) and path != Path(__file__)],
    )
    while pending:
        path = pending.pop()
        if path not in needed:
            needed.add(path)
            pending.extend(imported & sources.keys() if (imported := _imports(sources[path])) else ())
    return {path: sources[path] for path in sorted(needed)}


def source_digest() -> str:
    """Digest (16 hex characters) of the sources that kernels are compiled from."""
    digest = hashlib.sha256(sys.version.encode())
    digest.update(os.environ.get("NUMBA_BOUNDSCHECK", "").encode())  # other code, which Numba does not tell apart
    for path, text in compiled_sources().items():
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + text.encode())
    return digest.hexdigest()[:16]


def _imports(text: str) -> set[Path]:
    """Files of this package that a module may import (some may not exist)."""
    files = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == _PACKAGE.name:
            base = _PACKAGE.joinpath(*node.module.split(".")[1:])
            files.update({base.with_suffix(".py"), base / "__init__.py"} - {_PACKAGE / "__init__.py"})
            files.update(base / f"{alias.name}.py" for alias in node.names)
    return files


class CacheFolderError(UserError, ImportError):
    """Compiled kernels cannot be kept; the message says where, why, and how to choose another place."""


def use_own_cache() -> Path:
    """Point Numba at the folder of this version of the sources and return it.  CacheFolderError if it cannot be written."""
    folder = _base() / f"numba-{source_digest()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # what Numba tries, too
    except OSError as error:
        raise CacheFolderError(
            f"{folder}: compiled kernels cannot be kept there ({error.strerror}); {_REMEDY}"
        ) from error
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = str(folder)
    return folder


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
