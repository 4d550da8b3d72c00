"""Calls of kernels, made natively and in JavaScript with the WebAssembly modules: all arrays and results must be equal.

with recording("game") as calls:  # records the arguments and results of all entries of the module
    simulate(level, inputs)
assert calls.differences() == []
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numba import from_dtype

from nppsim.wasm.build import FOLDER
from nppsim.wasm.entries import MODULES, RECORDS

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="needs Node.js (Debian, Ubuntu: apt-get install nodejs)")
ENGINE = "NPPSIM_WASM_ENGINE"  # environment variable: "node" (default) or "chromium" runs the scripts of the tests
BATCH_BYTES = 64 << 20  # size of the arrays after which calls are repeated in JavaScript
SCRIPT = Path(__file__).with_name("wasm_calls.mjs")
NAMES = {str(from_dtype(dtype)): name for name, dtype in RECORDS.items()}


def javascript(script, *arguments):
    """Command that runs a script of this folder.  Arguments: texts and absolute paths."""
    chromium = [sys.executable, str(Path(__file__).with_name("chromium.py"))]
    engine = {"node": [NODE], "chromium": chromium}[os.environ.get(ENGINE, "node")]
    return [*engine, *map(str, (script, *arguments))]


def owner(array):
    """Array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Calls:
    """Recorded calls.

    repeats: number of times to make each call.
    folder: of the WebAssembly modules.
    count: number of calls so far.
    native_ms, wasm_ms: time of each entry, the sum over its calls of the shortest of the repeats.
    """

    def __init__(self, module, repeats=1, folder=FOLDER):
        self.module, self.repeats, self.folder = module, repeats, folder
        self.count, self.native_ms, self.wasm_ms = 0, {}, {}
        self._calls, self._before, self._after, self._results, self._size = [], [], [], [], 0
        self._differences = []

    def make(self, name, kernel, names, arguments):
        """Call a kernel natively and store its arguments and results."""
        blocks, call = [], {"entry": name, "start": self._size}
        call["given"] = {n: self._described(a, blocks) for n, a in zip(names, arguments, strict=False)}
        call["sizes"] = [block.nbytes for block in blocks]
        before = [block.tobytes() for block in blocks]
        times = []
        for repeat in range(self.repeats):
            if repeat:
                for block, content in zip(blocks, before, strict=True):
                    block.reshape(-1).view(np.uint8)[:] = np.frombuffer(content, np.uint8)
            began = time.perf_counter()
            result = kernel(*arguments)
            times.append(1000 * (time.perf_counter() - began))
        self.native_ms[name] = self.native_ms.get(name, 0.0) + min(times)
        self._calls.append(call)
        self._before += before
        self._after.append([block.tobytes() for block in blocks])
        self._results.append(result.tolist() if isinstance(result, np.ndarray) else result)
        self._size += sum(call["sizes"])
        self.count += 1
        if self._size > BATCH_BYTES:
            self._repeat()
        return result

    def _described(self, value, blocks):
        if isinstance(value, tuple):
            return {name: self._described(part, blocks) for name, part in value._asdict().items()}
        if not isinstance(value, np.ndarray):
            return value.item() if isinstance(value, np.generic) else value
        memory = owner(value)
        index = next((i for i, block in enumerate(blocks) if block is memory), len(blocks))
        if index == len(blocks):
            assert memory.flags.c_contiguous
            blocks.append(memory)
        offset = value.ctypes.data - memory.ctypes.data if value.size else 0
        kind = str(from_dtype(value.dtype))
        return {
            "dtype": NAMES.get(kind, kind), "shape": value.shape, "strides": value.strides, "block": index, "offset": offset,
        }  # fmt: skip

    def _repeat(self):
        """Make the recorded calls in JavaScript, and compare."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "calls.json").write_text(json.dumps({"calls": self._calls, "repeats": self.repeats}))
            Path(folder, "in.bin").write_bytes(b"".join(self._before))
            subprocess.run(javascript(SCRIPT, self.folder, self.module, folder), check=True)
            out = Path(folder, "out.bin").read_bytes()
            answer = json.loads(Path(folder, "results.json").read_text())
        for call, milliseconds in zip(self._calls, answer["milliseconds"], strict=True):
            self.wasm_ms[call["entry"]] = self.wasm_ms.get(call["entry"], 0.0) + milliseconds
        for call, after, result, got in zip(self._calls, self._after, self._results, answer["results"], strict=True):
            if got != json.loads(json.dumps(result)):
                self._differences.append(f"{call['entry']}: result {got} instead of {result}")
            at = call["start"]
            for index, block in enumerate(after):
                if out[at : at + len(block)] != block:
                    names = [name for name, given in call["given"].items() if _uses(given, index)]
                    self._differences.append(f"{call['entry']}: other bytes in {', '.join(names)}")
                at += len(block)
        self._calls, self._before, self._after, self._results, self._size = [], [], [], [], 0

    def differences(self):
        """List the differences between the native calls and those in JavaScript."""
        if self._calls:
            self._repeat()
        return self._differences


def _uses(given, index):
    """True if an argument is in block ``index``."""
    if not isinstance(given, dict):
        return False
    return given["block"] == index if "block" in given else any(_uses(part, index) for part in given.values())


@contextmanager
def recording(module, repeats=1) -> Iterator[Calls]:
    """Record all calls of a module's entries from Python."""
    calls = Calls(module, repeats)
    with pytest.MonkeyPatch.context() as patch:
        for name, entry in MODULES[module]().items():
            kernel, names = entry.kernel, entry.kernel.py_func.__code__.co_varnames

            def call(*arguments, _name=name, _kernel=kernel, _names=names):
                return calls.make(_name, _kernel, _names, arguments)

            for place in [
                m for key, m in sys.modules.items() if key.startswith("nppsim.") and key != "nppsim.wasm.entries"
            ]:
                for attribute, value in list(vars(place).items()):
                    if value is kernel:
                        patch.setattr(place, attribute, call)
        yield calls
