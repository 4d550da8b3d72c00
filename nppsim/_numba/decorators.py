"""Decorators of kernels, the functions that Numba compiles once per version of the sources (see ``cache``).

entry: for functions that Python calls.
kernel, inlined, allocating: for functions that only compiled functions call.  LLVM optimises them only as parts of each
    ``entry`` that uses them, which halves the time of compilation.  It always inlines ``inlined`` functions.
merged: Numba copies the function's source into its caller and compiles it only there.  This suits large functions with
    one caller: compiling them separately took a third of all compilation time.
allocating, allocating_entry: for functions that create or return arrays; Numba compiles these only with reference counts.
    In all others, reference counts are off, because Numba would count every array of every tuple at each call that it does
    not inline.  Without reference counts, the physics is two to six times as fast.
"""

import importlib
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import llvmlite.binding as llvm
import numba
import numba.extending
from numba.core.caching import CacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

fcntl: Any = importlib.import_module("fcntl") if sys.platform != "win32" else None
_ROOT = Path(__file__).parents[2]  # the checkout, or site-packages


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
        return Path(self._py_file).absolute().is_relative_to(Path(__file__).parents[1])

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        return "_".join(Path(py_file).absolute().parent.relative_to(_ROOT).parts)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "RelativeCacheLocator | None":
        return super().from_function(py_func, py_file) if Path(py_file).absolute().is_relative_to(_ROOT) else None


CacheImpl._locator_classes.insert(0, RelativeCacheLocator)

Function = TypeVar("Function", bound=Callable[..., Any])


class _Part(JITCodeLibrary):
    """Code of a function that only kernels call; each entry that uses it includes, optimises and translates it."""

    def _optimize_final_module(self) -> None:
        self._shared_module = module = self._final_module
        for function in module.functions:
            if not function.is_declaration and function.linkage == llvm.Linkage.external:
                function.linkage = "linkonce_odr"
        kept = [str(value) for value in module.global_variables if value.name.startswith("_ZN08NumbaEnv")]
        self._final_module = llvm.parse_assembly(str(self._codegen._create_empty_module(self.name)) + "\n".join(kept))


class _PartCompiler(Compiler):
    def compile_extra(self, func: Callable[..., Any]) -> Any:
        self.state.library = _Part(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)


class SharedCache(FunctionCache):
    """Cache of a function; while another process compiles the function, this one waits instead of compiling it, too."""

    _lock: IO | None = None  # file that is locked while this process compiles the function

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        if found is None and self._lock is None and fcntl is not None:
            self._impl.locator.ensure_cache_path()
            self._lock = open(Path(self.cache_path, f"{self._impl.filename_base}.lock"), "w")  # noqa: SIM115
            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            found = super().load_overload(sig, target_context)
        return found

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _compiled(**options: Any) -> Callable[[Function], Function]:
    """Return a decorator that compiles functions; for type checkers it does not change their type."""
    njit: Callable[..., Callable[[Function], Function]] = numba.njit  # Numba's annotations lack ``_nrt``
    decorate = njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, **options)

    def compiled(function: Function) -> Function:
        dispatcher: Any = decorate(function)
        if numba_config.DISABLE_JIT:
            return dispatcher
        if options.get("no_cpython_wrapper"):
            _refuse_python(dispatcher)
        cache = dispatcher._cache = SharedCache(function)
        compile_or_load = dispatcher.compile

        def compile_alone(signature: Any) -> Any:
            try:
                return compile_or_load(signature)
            finally:
                cache.release()

        dispatcher.compile = compile_alone
        return dispatcher

    return compiled


def _refuse_python(dispatcher: Any) -> None:
    """Make calls from Python raise TypeError; without a wrapper, the first such call would end the process."""

    def refuse(*_arguments: Any, **_named: Any) -> None:
        raise TypeError(f"only kernels can call {dispatcher.__name__}; decorate it with @entry to call it from Python")

    def add_overload(result: Any) -> None:  # unlike Numba's, without entry for calls from Python
        dispatcher.overloads[tuple(result.signature.args)] = result

    dispatcher.add_overload, dispatcher._compile_for_args = add_overload, refuse


_PART = {"pipeline_class": _PartCompiler, "no_cpython_wrapper": True}
entry = _compiled(_nrt=False)
kernel = _compiled(_nrt=False, **_PART)
inlined = _compiled(_nrt=False, forceinline=True, **_PART)
merged = _compiled(_nrt=False, inline="always")
allocating = _compiled(_nrt=True, **_PART)  # explicit, because a callee inherits the setting of its caller
allocating_entry = _compiled(_nrt=True)

# These types replace Numba's annotations, which are wrong: callers of an intrinsic do not pass its typing context, and the
# attributes of ``numba.config`` are not declared.
intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.extending.intrinsic
numba_config: Any = numba.config
