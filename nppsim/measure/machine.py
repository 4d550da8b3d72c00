"""Conditions of a measurement: machine, library versions, build.

Results are compared only if machine and versions agree (``differences``).  The build (digest and commit of the sources)
may differ, because benchmarks compare builds.
"""

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from nppsim._numba import cache
from nppsim.errors import redact
from nppsim.parallel.workers import kernel_text, usable_cores

# Prefixes of environment variables that affect results or speed.  No prefix may match the name of a secret.
VARIABLES = (
    *("NUMBA_", "NPPSIM_", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "TORCH_", "PYTORCH_"),
    *("CUDA_", "CUBLAS_", "NVIDIA_TF32_OVERRIDE", "GLIBC_TUNABLES", "MALLOC_", "LD_PRELOAD", "PYTHONHASHSEED"),
)
COMPILING = ("numba", "numpy", "llvmlite")  # libraries that compile or run the kernels


def conditions() -> dict[str, dict]:
    """Return the conditions that are stored with a result, under the keys "machine", "versions" and "build"."""
    return {"machine": machine(), "versions": versions(), "build": build()}


def machine() -> dict[str, str | int]:
    """Return the processor model, the number of usable cores and the operating system."""
    name, _ = processor()
    return {"cpu": name, "cores": usable_cores(), "system": f"{platform.system()} {platform.machine()}"}


def environment() -> dict[str, str]:
    """Return environment variables that affect results or speed; values that look like secrets are redacted."""
    return {name: redact(value) for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)}


def processor() -> tuple[str, set[str]]:
    """Return (model name, instruction set flags) of the first CPU; the flags are empty without /proc/cpuinfo."""
    cpuinfo = kernel_text("/proc/cpuinfo") or ""
    name = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return (
        name[1].strip() if name else platform.processor() or platform.machine(),
        set(flags[1].split()) if flags else set(),
    )


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that compile or run the kernels."""
    return {"python": platform.python_version()} | {name: version(name) for name in COMPILING}


def build() -> dict[str, str]:
    """Return the digest of the kernels' sources and, in a git checkout, ``git_state``."""
    return {"source_digest": cache.KERNEL_DIGEST} | git_state()


def git_state() -> dict[str, str]:
    """Return the commit and the number of changed files of the checkout; {} outside of a git checkout."""
    commit = _git("rev-parse", "HEAD")
    return {"commit": commit, "changed_files": str(len(_git("status", "--porcelain").splitlines()))} if commit else {}


def _git(*arguments: str) -> str:
    """Return the output of a git command in this checkout; "" if it fails or git is missing."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (subprocess.CalledProcessError, FileNotFoundError, PermissionError):  # no access to a folder of PATH
        return ""


def differences(ours: Mapping[str, Mapping], theirs: Mapping[str, Mapping]) -> list[str]:
    """Describe every difference between two results, given as part ("machine", "settings", ...) -> name -> value."""
    different = []
    for part in ours:
        here, there = ours[part], theirs.get(part, {})
        for name in dict.fromkeys((*here, *there)):
            if here.get(name) != there.get(name):
                different.append(
                    f"{part}: {name} is {here.get(name, 'not given')} here and {there.get(name, 'not given')} there"
                )
    return different
