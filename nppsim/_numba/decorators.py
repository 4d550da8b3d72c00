"""Decorators of kernels, the functions that Numba compiles once per version of the sources (see ``cache``).

entry: for functions that Python calls.
kernel, inlined, allocating: for functions that only compiled functions call.  LLVM optimises them only as parts of each
    ``entry`` that uses them.  The first step of a simulator takes 93 instead of 144 s of processor time.
inlined: LLVM always inlines these.  As plain kernels, physics has 0.37 of the speed, decisions 0.6 to 0.7, foresight 0.5.
merged: Numba copies the source of the function into its caller and compiles it only there.  As plain kernels, physics has
    0.7 of the speed, decisions 0.5 to 0.6, foresight 0.95 to 0.98; compilation takes as long.
allocating, allocating_entry: for functions that create or return arrays; Numba compiles these only with reference counts.
    In all others, reference counts are off.  With reference counts in all functions, physics has 0.17 of the speed,
    decisions 0.26 to 0.31, foresight 0.29.

Medians of ratios of processor time, one thread, alternately in one run, with equal results: AMD EPYC (Zen 4), 2026-11-29.
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
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from nppsim._numba.cache import PACKAGE, prepare_folder

fcntl: Any = importlib.import_module("fcntl") if sys.platform != "win32" else None


class KernelCacheLocator(UserProvidedCacheLocator):
    """Locate compiled kernels in CACHE_FOLDER.

    For files of this package, the digest in the folder's name stands for the contents, and paths are relative.  Copies of
    one version of the sources thus share compiled kernels, and a changed comment compiles nothing.
    For kernels in other files, Numba compares the contents of the file.
    """

    def __init__(self, py_func: Callable[..., Any], py_file: str):
        self._py_file, self._lineno = py_file, py_func.__code__.co_firstlineno
        folder = Path(py_file).absolute().parent
        self._in_package = folder.is_relative_to(PACKAGE)
        if self._in_package:
            name = "_".join(folder.relative_to(PACKAGE.parent).parts)
        else:
            name = self.get_suitable_cache_subpath(py_file)
        self._cache_path = str(prepare_folder() / name)

    def get_source_stamp(self) -> Any:
        return "" if self._in_package else super().get_source_stamp()

    def get_disambiguator(self) -> str:
        return "" if self._in_package else super().get_disambiguator()

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "KernelCacheLocator":
        return cls(py_func, py_file)


class _KernelCacheImpl(CompileResultCacheImpl):
    def __init__(self, py_func: Callable[..., Any]):
        self._locator_classes = [KernelCacheLocator]  # not in the base class, which other packages use
        super().__init__(py_func)


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

    _impl_class = _KernelCacheImpl
    _lock: IO | None = None  # file that is locked while this process compiles the function

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        overload = super().load_overload(sig, target_context)
        if overload is None and self._lock is None and fcntl is not None:
            self._impl.locator.ensure_cache_path()
            self._lock = open(Path(self.cache_path, f"{self._impl.filename_base}.lock"), "w")  # noqa: SIM115
            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            overload = super().load_overload(sig, target_context)
        return overload

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
        compile_or_load = dispatcher.compile

        def compile_alone(signature: Any) -> Any:
            if not isinstance(
                dispatcher._cache, SharedCache
            ):  # not before the first call: imports need no cache folder
                dispatcher._cache = SharedCache(function)
            try:
                return compile_or_load(signature)
            finally:
                dispatcher._cache.release()

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

importlib.import_module("nppsim._numba.progress").print_progress()  # by name: kernels do not depend on it

# These types replace Numba's annotations, which are wrong: callers of an intrinsic do not pass its typing context, and the
# attributes of ``numba.config`` are not declared.
intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.extending.intrinsic
numba_config: Any = numba.config
