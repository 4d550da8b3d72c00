"""Conditions of a measurement: machine, versions of the libraries, build.

Figures are compared only where machine and versions agree (``differences``).  The build, digest and commit of the
sources, may differ: it is what one compares.
"""

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from nppsim import _cache
from nppsim.errors import redact
from nppsim.workers import kernel_text, usable_cores

# Beginnings of the names of environment variables that change what is computed, or how fast; never of a secret.
VARIABLES = (
    *("NUMBA_", "NPPSIM_", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "TORCH_", "PYTORCH_"),
    *("CUDA_", "CUBLAS_", "NVIDIA_TF32_OVERRIDE", "GLIBC_TUNABLES", "MALLOC_", "LD_PRELOAD", "PYTHONHASHSEED"),
)
COMPILING = ("numba", "numpy", "llvmlite")  # libraries that compile or run the kernels


def conditions() -> dict[str, dict]:
    """Return the conditions that are stored with figures: "machine", "versions", "build"."""
    return {"machine": machine(), "versions": versions(), "build": build()}


def machine() -> dict[str, str | int]:
    """Model of the processor, usable cores, operating system."""
    name, _ = processor()
    return {"cpu": name, "cores": usable_cores(), "system": f"{platform.system()} {platform.machine()}"}


def environment() -> dict[str, str]:
    """Environment variables that change what is computed, or how fast; values that look like secrets are redacted."""
    return {name: redact(value) for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)}


def processor() -> tuple[str, set[str]]:
    """(model name, instruction set flags) of the first CPU; without /proc/cpuinfo no flags are known."""
    cpuinfo = kernel_text("/proc/cpuinfo") or ""
    name = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return (
        name[1].strip() if name else platform.processor() or platform.machine(),
        set(flags[1].split()) if flags else set(),
    )


def versions() -> dict[str, str]:
    """Python and the libraries that compile or run the kernels."""
    return {"python": platform.python_version()} | {name: version(name) for name in COMPILING}


def build() -> dict[str, str]:
    """The sources: digest of what is compiled and, in a git checkout, commit and number of changed files."""
    return {"source_digest": _cache.source_digest()} | git_state()


def git_state() -> dict[str, str]:
    """Commit of the sources and the number of files changed since; empty where they are no git checkout."""
    commit = _git("rev-parse", "HEAD")
    return {"commit": commit, "changed_files": str(len(_git("status", "--porcelain").splitlines()))} if commit else {}


def _git(*arguments: str) -> str:
    """Output of a git command about this checkout; "" if it fails, or there is no git."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (subprocess.CalledProcessError, FileNotFoundError):
        return ""


def differences(ours: Mapping[str, Mapping], theirs: Mapping[str, Mapping]) -> list[str]:
    """Describe every value in which two records differ; each record: part ("machine", "settings", ...) -> name -> value."""
    found = []
    for part in ours:
        here, there = ours[part], theirs.get(part, {})
        for name in dict.fromkeys((*here, *there)):
            if here.get(name) != there.get(name):
                found.append(
                    f"{part}: {name} is {here.get(name, 'not given')} here and {there.get(name, 'not given')} there"
                )
    return found
