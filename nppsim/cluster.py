"""Work on the machines of a Ray cluster, which need this project as it is here, and nothing else.

    with connected("auto", None, GenerateError) as nodes: ...      # given to ``nppsim.executor``

Addresses: "local" starts a cluster on this machine and ends it afterwards; "auto" is the one that this machine belongs to;
"HOST:PORT" names that one; "ray://HOST:PORT" is reached from a machine outside.
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

from nppsim.errors import ConfigError, UserError, needed
from nppsim.settings import check_settings, setting
from nppsim.workers import usable_cores

LOCAL, AUTO = "local", "auto"
HOW = ("workers", "cluster", "debug")  # settings of commands that do not change their results, which do not tell them
RETRIES = 3  # how often a unit of work is begun anew that died with its process or machine
_PATIENCE_S = 10.0  # for a first connection to the cluster's head
_OBJECTS = 256 << 20  # bytes that a local cluster keeps results in until they are fetched; they are small
_PACKAGES = ("nppsim", "bc", "rl", "hardware")  # of this project
_LIBRARIES = ("numpy", "numba", "torch", "onnxruntime")  # results may depend on their versions
_REMEDY = 'start one with "ray start --head" and give its address, or give local'


class ClusterError(UserError, RuntimeError):
    """A cluster that cannot be reached or used; the message names it, the machine and the remedy."""


@dataclass(frozen=True)
class Workers:
    """Who does the work.  ConfigError for an address of no known form; MissingPackageError without Ray."""

    workers: int | None = setting(
        None, "processes, also of --cluster local; default: all cores where that pays", flag="workers", low=1, high=1024
    )
    cluster: str | None = setting(
        None,
        "work on a Ray cluster: local, auto (the one of this machine), HOST:PORT or ray://HOST:PORT (docs/long_runs.md)",
        flag="cluster",
        metavar="ADDRESS",
    )

    def __post_init__(self) -> None:
        check_settings(self)
        check_cluster(self.cluster, self.workers)


def check_cluster(cluster: str | None, workers: int | None) -> None:
    """ConfigError for an address of no known form, or a number of workers beside a cluster that has its own;
    MissingPackageError without Ray."""
    if cluster is None:
        return
    host, port = _place(cluster)
    if cluster not in (LOCAL, AUTO) and not (host and port.isdecimal()):
        raise ConfigError("give local, auto, HOST:PORT or ray://HOST:PORT", "cluster", cluster)
    if cluster != LOCAL and workers is not None:
        raise ConfigError(f"leave it out: {cluster} works on all cores of the cluster", "workers", workers)
    _ray()


@contextmanager
def connected(cluster: str, workers: int | None, error: Callable[[str], Exception]) -> Iterator["Nodes"]:
    """The machines of a cluster; a program that is connected to one already gives "auto" and keeps its connection.

    workers: processes of a local cluster; None: all cores.
    error: raised where a process dies again and again.
    Raises ClusterError.
    """
    ray = _ray()
    own = not ray.is_initialized()
    if not own and cluster != AUTO:
        raise ClusterError(f"--cluster {cluster}: this program is connected to a Ray cluster already: give {AUTO}")
    # A short name: Ray's sockets lie in there, whose paths may have 107 bytes.
    folder = tempfile.mkdtemp(prefix="nppsim-") if cluster == LOCAL else None
    try:
        if own:
            _connect(ray, cluster, workers or usable_cores(), folder)
        yield Nodes(ray)
    except ray.exceptions.RayError as broken:
        raise error(
            f"--cluster {cluster}: processes or machines of the cluster died, perhaps for lack of memory, also at {RETRIES} "
            f"repetitions ({_first_line(broken)}); what was made is kept: repeat the command"
        ) from broken
    finally:
        if own:
            with _same_handler():
                ray.shutdown()
        if folder is not None:
            _remove(folder)


class Nodes:
    """The cores of all machines of a cluster, as ``nppsim.executor.Workforce`` has it."""

    def __init__(self, ray: ModuleType):
        self._ray = ray
        self.cores = int(ray.cluster_resources().get("CPU", 0))
        if self.cores < 1:
            raise ClusterError("the cluster has no cores to work on: start Ray on machines that have some")
        self._work = ray.remote(num_cpus=1, max_retries=RETRIES)(_work_there())
        self._ours = installed([name for name in _LIBRARIES if name in sys.modules])

    def prepare(self, function: bytes) -> Any:
        """Sends the function to each machine once."""
        return self._ray.put(function)

    def submit(self, function: Any, batch: bytes) -> Any:
        """A task on one core."""
        return self._work.remote(self._ours, function, batch)

    def result(self, handle: Any) -> list:
        """What became of a batch; ClusterError where the machine has something else installed."""
        try:
            refusal, results = self._ray.get(handle)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        if refusal:
            raise ClusterError(refusal)
        return results

    def cancel(self, handle: Any) -> None:
        """What has begun ends with its process: asked to end, it may not listen, and would go on for nobody."""
        self._ray.cancel(handle, force=True)


def installed(libraries: list[str]) -> dict[str, str]:
    """Versions of what results depend on: this project with a digest of its sources, Python and some libraries."""
    import nppsim  # which imports this module

    versions = {"nppsim": f"{nppsim.__version__} (sources {project_digest()})", "Python": platform.python_version()}
    for name in libraries:
        try:
            versions[name] = metadata.version(name).partition("+")[0]  # without the build, e.g. +cpu
        except metadata.PackageNotFoundError:
            versions[name] = "missing"
    return versions


def refused(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Why this machine must not work for one with these versions; "" if both are the same."""
    other = [name for name in ours if theirs.get(name) != ours[name]]
    if not other:
        return ""
    there = ", ".join(f"{name} {theirs.get(name, 'missing')}" for name in other)
    here = ", ".join(f"{name} {ours[name]}" for name in other)
    return (
        f"machine {socket.gethostname()} of the cluster has {there}, this one {here}, so results would differ: install the "
        "same on all machines, and restart Ray there"
    )


@cache
def project_digest() -> str:
    """Digest (16 hex characters) of all Python files of the project, committed or not."""
    digest = hashlib.sha256()
    root = Path(__file__).parent.parent
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _work_there() -> Callable[[dict[str, str], bytes, bytes], tuple[str, list]]:
    """The task, made in a function so that its code travels: by its name alone a machine without the project, or with
    another version, would find nothing or something else."""

    def nppsim_work(ours: dict[str, str], function: bytes, batch: bytes) -> tuple[str, list]:
        try:
            from nppsim import cluster, executor
        except ImportError as error:
            import platform

            return (
                f"machine {platform.node()} of the cluster lacks this project or a part of it ({error}), this one has nppsim "
                f"{ours['nppsim']}: install the same on all machines",
                [],
            )
        theirs = cluster.installed([name for name in ours if name not in ("nppsim", "Python")])
        if refusal := cluster.refused(ours, theirs):
            return refusal, []
        return "", executor.work(function, batch)

    return nppsim_work


def _ray() -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read at import; it would tell its makers
    return needed("ray", "cluster")


def _place(cluster: str) -> tuple[str, str]:
    host, _, port = cluster.removeprefix("ray://").rpartition(":")
    return host, port


def _connect(ray: ModuleType, cluster: str, workers: int, folder: str | None) -> None:
    options: dict[str, Any] = {"address": cluster, "logging_level": logging.ERROR}
    if cluster == LOCAL:
        options |= {
            "num_cpus": workers,
            "include_dashboard": False,
            "object_store_memory": _OBJECTS,
            "_temp_dir": folder,
        }
    try:
        if cluster not in (LOCAL, AUTO):
            host, port = _place(cluster)
            socket.create_connection((host, int(port)), _PATIENCE_S).close()  # Ray itself tries for minutes
        with _same_handler():
            ray.init(**options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ClusterError(f"--cluster {cluster}: cannot be used ({_first_line(error)}): {_REMEDY}") from error


def _remove(folder: str) -> None:
    """Ray's logs, to which processes that are ending may write for a moment."""
    deadline = time.monotonic() + _PATIENCE_S
    while os.path.exists(folder) and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


@contextmanager
def _same_handler() -> Iterator[None]:
    """SIGTERM is handled afterwards as before: Ray's own handler would end the program where it stands."""
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
