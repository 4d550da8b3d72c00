"""Decorators of kernels, the functions that Numba compiles once per version of the sources (see ``_cache``).

kernel: the default.  Numba's reference counts are off, because Numba would count every array of every tuple at each call
    that it does not inline.  Without reference counts, the physics is two to six times as fast.
allocating: for functions that create or return arrays.  Numba compiles these only with reference counts.
inlined: LLVM inlines the function.  Numba compiles it alone first, with all functions that it calls, then within its caller.
merged: Numba copies the function's source into its caller and compiles it only there.  This suits large functions with
    one caller: compiling them separately took a third of all compilation time.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numba.extending
from numba.core.caching import CacheImpl, UserProvidedCacheLocator

_ROOT = Path(__file__).parents[1]  # the checkout, or site-packages


class RelativeCacheLocator(UserProvidedCacheLocator):
    """Locate compiled kernels by source paths relative to the root, so that copies of one version share them.

    Numba's own locator hashes the absolute path, so a second checkout of the same sources would compile everything again.
    It also checks text and line numbers, so even a changed comment would cause this.
    """

    def get_source_stamp(self) -> Any:
        return "" if self._in_package() else super().get_source_stamp()

    def get_disambiguator(self) -> str:
        return "" if self._in_package() else super().get_disambiguator()

    def _in_package(self) -> bool:
        """Return True if the digest in the cache folder's name covers the file, so that Numba need not check it."""
        return Path(self._py_file).absolute().is_relative_to(Path(__file__).parent)

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        return "_".join(Path(py_file).absolute().parent.relative_to(_ROOT).parts)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "RelativeCacheLocator | None":
        return super().from_function(py_func, py_file) if Path(py_file).absolute().is_relative_to(_ROOT) else None


CacheImpl._locator_classes.insert(0, RelativeCacheLocator)

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(**options: bool | str) -> Callable[[Function], Function]:
    """Return a decorator that compiles functions; for type checkers it does not change their type."""
    njit: Callable[..., Callable[[Function], Function]] = numba.njit  # Numba's annotations lack ``_nrt``
    return njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True, **options)


kernel = _compiled(_nrt=False)
inlined = _compiled(_nrt=False, forceinline=True)
merged = _compiled(_nrt=False, inline="always")
allocating = _compiled(_nrt=True)  # explicit, because a callee inherits the setting of its caller

# These types replace Numba's annotations, which are wrong: callers of an intrinsic do not pass its typing context, and the
# attributes of ``numba.config`` are not declared.
intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.extending.intrinsic
numba_config: Any = numba.config
