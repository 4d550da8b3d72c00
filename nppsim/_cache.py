"""Where Numba keeps compiled kernels.  Imported before numba by ``nppsim/__init__.py``.

Numba's cache watches only the file of the cached function: a changed helper in another file would leave its callers
running old machine code.  Hence one folder per digest of all sources of this package.
"""

import hashlib
import os
import sys
from pathlib import Path


def source_digest() -> str:
    """Digest (16 hex characters) of every source file of the package."""
    package = Path(__file__).parent
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def use_own_cache() -> Path:
    """Point Numba at the folder of this version of the sources and return it."""
    base = os.environ.get("NUMBA_CACHE_DIR") or Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "nppsim"
    folder = Path(base) / f"numba-{source_digest()}"
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = str(folder)
    return folder


CACHE_FOLDER = use_own_cache()
