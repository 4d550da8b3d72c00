"""Ray backend of ``nppsim.parallel.executor``.  All machines of the cluster need the same version of this project.

    with connect("auto", None, GenerateError) as backend: ...  # Executor(backend) runs work there

Addresses of clusters:
"local": start a temporary cluster on this machine.
"auto": use the running cluster that this machine belongs to.
"HOST:PORT": head of the cluster; use this form on a machine of the cluster.
"ray://HOST:PORT": head of the cluster; use this form on a machine outside the cluster.
"""

import hashlib
import logging
import os
import platform
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from nppsim.errors import ConfigError, UserError, import_optional
from nppsim.parallel.workers import usable_cores
from nppsim.settings import check_settings, setting

LOCAL, AUTO = "local", "auto"
EXECUTION_SETTINGS = ("workers", "cluster", "debug")  # settings without effect on results; not stored with them
RETRIES = 3  # maximum number of repetitions of a batch whose process or machine died
_TIMEOUT_S = 10.0  # timeout of the first connection to the head of the cluster
_OBJECT_STORE_BYTES = 256 << 20  # bytes of a local cluster's object store; small, because results are small
_PACKAGES = ("nppsim", "bc", "rl", "hardware")  # packages of this project, whose sources determine ``project_digest``
_LIBRARIES = ("numpy", "numba", "torch", "onnxruntime")  # results may depend on the versions of these
_REMEDY = 'start one with "ray start --head" and give its address, or give local'


class ClusterError(UserError, RuntimeError):
    """A cluster cannot be reached or used; the message names the cluster, the problem and the remedy."""


@dataclass(frozen=True)
class Workers:
    """Settings of parallel execution.

    Raises ConfigError for an invalid address, or for ``workers`` together with an address other than "local".
    Raises MissingPackageError if Ray is needed and not installed.
    """

    workers: int | None = setting(
        None,
        "worker processes, also for --cluster local; default: up to one per core",
        flag="workers",
        low=1,
        high=1024,
    )
    cluster: str | None = setting(
        None,
        "run on a Ray cluster: local, auto (the cluster of this machine), HOST:PORT or ray://HOST:PORT (docs/long_runs.md)",
        flag="cluster",
        metavar="ADDRESS",
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.cluster is None:
            return
        host, port = _split_address(self.cluster)
        if self.cluster not in (LOCAL, AUTO) and not (host and port.isdecimal()):
            raise ConfigError("give local, auto, HOST:PORT or ray://HOST:PORT", "cluster", self.cluster)
        if self.cluster != LOCAL and self.workers is not None:
            raise ConfigError(
                f"leave it out: all cores of the cluster {self.cluster} are used", "workers", self.workers
            )
        _ray()


@contextmanager
def connect(cluster: str, workers: int | None, error: Callable[[str], Exception]) -> Iterator["RayBackend"]:
    """Connect to a cluster for the duration of the block.

    cluster: address.  If this program is already connected, only "auto" is allowed, which uses that connection and
        leaves it open.
    workers: number of processes of a local cluster; None: one per core.
    error: makes the exception to raise if processes die repeatedly.
    Raises ClusterError if the cluster cannot be used.
    """
    ray = _ray()
    opened = not ray.is_initialized()
    if not opened and cluster != AUTO:
        raise ClusterError(f"--cluster {cluster}: this program is connected to a Ray cluster already: give {AUTO}")
    # Paths of Ray's sockets in this folder are limited to 107 bytes.
    folder = tempfile.mkdtemp(prefix="nppsim-") if cluster == LOCAL else None
    try:
        if opened:
            _connect(ray, cluster, workers or usable_cores(), folder)
        yield RayBackend(ray)
    except ray.exceptions.RayError as broken:
        raise error(
            f"--cluster {cluster}: processes or machines of the cluster died, perhaps for lack of memory, and {RETRIES} "
            f"repetitions failed, too ({_first_line(broken)}); finished work is saved: repeat the command"
        ) from broken
    finally:
        if opened:
            with _sigterm_preserved():
                ray.shutdown()
        if folder is not None:
            _remove(folder)


class RayBackend:
    """All machines of a cluster; implements ``nppsim.parallel.executor.Backend``."""

    def __init__(self, ray: ModuleType):
        self._ray = ray
        self.cores = int(ray.cluster_resources().get("CPU", 0))
        if self.cores < 1:
            raise ClusterError("the cluster offers no cores: start Ray on its machines with --num-cpus of at least 1")
        self._work = ray.remote(num_cpus=1, max_retries=RETRIES)(_remote_task())
        self._versions = installed_versions([name for name in _LIBRARIES if name in sys.modules])

    def prepare(self, function: bytes) -> Any:
        """Store a pickled function in the cluster, so that each machine receives it once."""
        return self._ray.put(function)

    def submit(self, function: Any, batch: bytes) -> Any:
        """Start a pickled batch on one core."""
        return self._work.remote(self._versions, function, batch)

    def result(self, handle: Any) -> list:
        """Wait for a batch; raise ClusterError if the machine has other versions installed."""
        try:
            mismatch, results = self._ray.get(handle)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        if mismatch:
            raise ClusterError(mismatch)
        return results

    def cancel(self, handle: Any) -> None:
        """Cancel a batch and kill its process, which might ignore a request to end."""
        self._ray.cancel(handle, force=True)


def installed_versions(libraries: list[str]) -> dict[str, str]:
    """Return the versions that results depend on: this project with a digest of its sources, Python, and ``libraries``."""
    versions = {"nppsim": f"{_version('nppsim')} (sources {project_digest()})", "Python": platform.python_version()}
    for name in libraries:
        versions[name] = _version(name).partition("+")[0]  # without the build, e.g. +cpu
    return versions


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def version_mismatch(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Return an error message if two machines have different versions, else "".  Runs on a machine of the cluster.

    ours, theirs: results of ``installed_versions`` on the machine that sends the work, and on the machine that does the work.
    """
    other = [name for name in ours if theirs.get(name) != ours[name]]
    if not other:
        return ""
    there = ", ".join(f"{name} {theirs.get(name, 'missing')}" for name in other)
    here = ", ".join(f"{name} {ours[name]}" for name in other)
    return (
        f"machine {socket.gethostname()} of the cluster has {there}, the program's machine {here}, so results would differ: "
        "install the same versions on all machines, and restart Ray there"
    )


@cache
def project_digest() -> str:
    """Return a digest (16 hexadecimal characters) of all Python and TOML files of the project, committed or not."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[2]
    for package in _PACKAGES:
        for path in sorted(path for path in (root / package).rglob("*") if path.suffix in (".py", ".toml")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _remote_task() -> Callable[[dict[str, str], bytes, bytes], tuple[str, list]]:
    """Return the remote task as a nested function, which Ray transfers as code.

    A top-level function would be imported by name.  On a machine with another installation the import would fail, or
    load another version.
    """

    def nppsim_work(ours: dict[str, str], function: bytes, batch: bytes) -> tuple[str, list]:
        try:
            from nppsim.parallel import cluster, workers
        except ImportError as error:
            import platform

            return (
                f"machine {platform.node()} of the cluster lacks this project or a part of it ({error}); install nppsim "
                f"{ours['nppsim']} there, as on the program's machine",
                [],
            )
        theirs = cluster.installed_versions([name for name in ours if name not in ("nppsim", "Python")])
        if mismatch := cluster.version_mismatch(ours, theirs):
            return mismatch, []
        return "", workers.run_batch(function, batch)

    return nppsim_work


def _ray() -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry; Ray reads this variable at import
    return import_optional("ray", "cluster")


def _split_address(cluster: str) -> tuple[str, str]:
    host, _, port = cluster.removeprefix("ray://").rpartition(":")
    return host, port


def _connect(ray: ModuleType, cluster: str, workers: int, folder: str | None) -> None:
    options: dict[str, Any] = {"address": cluster, "logging_level": logging.ERROR}
    if cluster == LOCAL:
        options |= {
            "num_cpus": workers,
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE_BYTES,
            "_temp_dir": folder,
        }
    try:
        if cluster not in (LOCAL, AUTO):
            host, port = _split_address(cluster)
            socket.create_connection((host, int(port)), _TIMEOUT_S).close()  # Ray itself would try for minutes
        with _sigterm_preserved():
            ray.init(**options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ClusterError(f"--cluster {cluster}: cannot be used ({_first_line(error)}): {_REMEDY}") from error


def _remove(folder: str) -> None:
    """Remove Ray's logs, retrying while ending processes still write to them."""
    deadline = time.monotonic() + _TIMEOUT_S
    while os.path.exists(folder) and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


@contextmanager
def _sigterm_preserved() -> Iterator[None]:
    """Restore the handler of SIGTERM after the block, since Ray's handler would end the program without saving."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
