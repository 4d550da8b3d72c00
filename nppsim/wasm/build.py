"""Build of the WebAssembly modules, and of ``interface.json``, which describes them for ``kernels.js``."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numba import from_dtype, types

from nppsim.errors import UserError
from nppsim.wasm import target
from nppsim.wasm.entries import MODULES, RECORDS, Entry
from nppsim.wasm.sources import source_digest

FOLDER = Path(__file__).parent
INTERFACE = "interface.json"
STACK_BYTES = 1 << 20
_EXPORTED = ("allocate", "release", "fmod")  # functions of ``runtime.ll``; fmod for a test
_ADDED_BY_LLVM = (
    "fmod",
    "log10",
)  # functions to which LLVM adds calls when it translates optimised code, so they must be there


def build(folder: Path, entries_of: Mapping[str, Callable[[], dict[str, Entry]]] = MODULES) -> Iterator[Path]:
    """Write modules, by default those of the package, and their interface to a folder; yield the path of each file.

    Raises UserError without the linker, and CalledProcessError if a module needs a function that ``runtime.ll`` lacks.
    """
    linker = shutil.which("wasm-ld")
    if linker is None:
        raise UserError("wasm-ld was not found; install LLVM's linker (Debian, Ubuntu: apt-get install lld)")
    target.use_wasm32()
    modules = {}
    for name, entries in entries_of.items():
        path = folder / f"{name}.wasm"
        modules[name] = _build_module(entries(), path, linker)
        yield path
    records = {name: _record(dtype) for name, dtype in RECORDS.items()}
    interface = {"sources": source_digest(), "tools": tools(linker), "records": records, "modules": modules}
    path = folder / INTERFACE
    path.write_text(json.dumps(interface, separators=(",", ":")) + "\n", encoding="utf-8")
    yield path


def tools(linker: str) -> dict[str, str]:
    """Versions of the programs on which the bytes of a build depend."""
    version = subprocess.run([linker, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return {"lld": version, **{name: metadata.version(name) for name in ("llvmlite", "numba")}}


def _build_module(entries: dict[str, Entry], path: Path, linker: str) -> dict[str, Any]:
    """Compile and link a module; return the description of its entries."""
    module = llvm.parse_assembly((FOLDER / "runtime.ll").read_text(encoding="utf-8"))
    described = {}
    for name, entry in entries.items():
        code, result = target.compile_entry(entry.kernel, entry.arguments, name)
        for part in code:
            module.link_in(llvm.parse_assembly(part))
        names = entry.kernel.py_func.__code__.co_varnames
        described[name] = {
            "arguments": [[n, _described(kind)] for n, kind in zip(names, entry.arguments, strict=False)],
            "result": _described(result),
        }
    target.optimise(module, {*entries, *_EXPORTED, *_ADDED_BY_LLVM})
    object_file = path.with_suffix(".o")
    object_file.write_bytes(target.target_machine().emit_object(module))
    exports = [f"--export={name}" for name in (*entries, *_EXPORTED)]
    options = ["--no-entry", "--gc-sections", "--strip-all", "--stack-first", "-z", f"stack-size={STACK_BYTES}"]
    try:
        subprocess.run([linker, *options, *exports, str(object_file), "-o", str(path)], check=True)
    finally:
        object_file.unlink()
    path.chmod(0o644)
    return described


def _described(kind: Any) -> Any:
    """Describe a type: a number's name, {"dtype", "dimensions"}, [item, ...], or {"tuple": [[name, item], ...]}."""
    if isinstance(kind, types.Array):
        names = [name for name, dtype in RECORDS.items() if from_dtype(dtype) == kind.dtype]
        return {"dtype": names[0] if names else str(kind.dtype), "dimensions": kind.ndim}
    items: Any = kind  # Numba's declarations lack the attributes of tuple types
    if isinstance(kind, types.BaseNamedTuple):
        return {"tuple": [[name, _described(item)] for name, item in zip(items.fields, items.types, strict=True)]}
    if isinstance(kind, types.BaseTuple):
        return [_described(item) for item in items.types]
    return str(kind)


def _record(dtype: np.dtype) -> dict[str, Any]:
    """Describe a record: size in bytes, and [dtype, offset] of each field."""
    fields = {name: [field.str, offset] for name, (field, offset, *_) in (dtype.fields or {}).items()}
    return {"size": dtype.itemsize, "fields": fields}
