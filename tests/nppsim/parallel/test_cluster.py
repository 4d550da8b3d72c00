"""Ray backend, with two processes of this machine."""

import os
import re
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from nppsim.errors import ConfigError, MissingPackageError
from nppsim.levels.level_set import LevelSet, LevelSetError
from nppsim.parallel import cluster
from nppsim.parallel.cluster import ClusterError, Workers, connect, version_mismatch
from nppsim.parallel.executor import Executor
from rl.tools import evaluate

from chores import die_once, stay
from packages import hide
from places import ROOT
from programs import load_script

AGENT = ROOT / "datasets" / "agents" / "vision_free_foresight.safetensors"
LIMIT_S = 900  # for all tests of this file


@pytest.fixture(autouse=True, scope="module")
def _time_limit():

    def stop(number, frame):
        raise TimeoutError(f"the tests of the cluster took more than {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT_S)
    with pytest.MonkeyPatch.context() as patch:  # before Ray is imported
        path = [str(ROOT / "tests" / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(path))  # for chores
        patch.setenv("RAY_worker_niceness", "0")  # else other tests keep its processes waiting
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", "0" * 64)  # else Ray writes one into the home folder
        yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def backend():
    """Cluster of two processes that this program stays connected to; commands find it as "auto"."""
    before = signal.getsignal(signal.SIGTERM)
    with connect("local", 2, AssertionError) as backend:
        assert signal.getsignal(signal.SIGTERM) == before
        yield backend
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cluster": "somewhere"}, "cluster somewhere: give local, auto, HOST:PORT or ray://HOST:PORT"),
        ({"cluster": "ray://head"}, "give local, auto"),
        (
            {"cluster": "head:6379", "workers": 3},
            "workers 3: leave it out: all cores of the cluster head:6379 are used",
        ),
        ({"workers": 0}, "workers 0: give a whole number from 1 to 1,024"),
        ({"workers": 10**12}, "workers 10+: give a whole number from 1 to 1,024"),
    ],
)
def test_workers_invalid_address_or_count_raises_config_error(given, message):
    with pytest.raises(ConfigError, match=message):
        Workers(**given)


def test_workers_without_ray_raises_missing_package_error(monkeypatch):
    hide(monkeypatch, "ray")
    Workers(workers=2)
    with pytest.raises(MissingPackageError, match=r"ray is needed .* pip install 'nppsim\[cluster\]'"):
        Workers(cluster="local")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_command_unreachable_cluster_fails_in_one_line(address, tmp_path, capsys):
    command = ["--category", "simplest", "--count", "1", "--seed", "1", "--out", str(tmp_path / "out")]
    assert load_script("generate_levels").main([*command, "--cluster", address]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --cluster {address}: cannot be used (") and "ray start --head" in error
    assert error.count("\n") == 1


def test_solve_single_level_with_cluster_is_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    level = next((ROOT / "datasets" / "dev" / "simplest").glob("*.map"))
    assert load_script("solve").main([str(level), "--agent", str(AGENT), "--cluster", "local"]) == 2
    assert "--cluster local: is only for several levels" in capsys.readouterr().err


def test_remote_task_without_the_project_returns_a_mismatch(monkeypatch):
    ray = pytest.importorskip("ray")
    sent = ray.cloudpickle.dumps(cluster._remote_task())
    monkeypatch.setitem(sys.modules, "nppsim.parallel", None)
    mismatch, results = ray.cloudpickle.loads(sent)({"nppsim": "9.9 (sources abc)"}, b"", b"")
    assert "lacks this project" in mismatch and "install nppsim 9.9 (sources abc) there" in mismatch and not results


def test_version_mismatch_names_both_versions():
    ours = cluster.installed_versions(["numpy", "no-such-library"])
    assert ours["no-such-library"] == "missing" and not version_mismatch(ours, dict(ours))
    versions = {"numpy": "2", "Python": "3"}, {"numpy": "1.0", "Python": "3"}
    assert "has numpy 1.0, the program's machine numpy 2" in version_mismatch(*versions)


def files(folder: Path) -> dict[str, bytes]:
    """All files but the locks, by name; the time is left out of the name of an evaluation's folder."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {re.sub(r"evaluate_[^/]*", "", path.relative_to(folder).as_posix()): path.read_bytes() for path in paths}


def test_cluster_writes_the_same_files_as_one_process(backend, tmp_path, monkeypatch):
    """Levels and demonstrations are made in two steps; the evaluation has three batches."""
    monkeypatch.setattr(evaluate, "BATCH_EPISODES", 4)
    made = {}
    for name, flags in (("one", ["--workers", "1"]), ("cluster", ["--cluster", "auto"])):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        for count in ("2", "3"):
            levels = ["--category", "simplest", "--count", count, "--seed", "7", "--out", "levels"]
            assert load_script("generate_levels").main([*levels, *flags]) == 0
            demonstrations = ["--levels", "levels", "--out", "demonstrations"]
            assert load_script("make_demonstrations").main([*demonstrations, *flags]) == 0
        evaluation = [str(AGENT), "--levels", "levels", "--output-dir", "evaluated", "--episodes-per-level", "2"]
        assert load_script("evaluate").main([*evaluation, *flags]) == 0
        made[name] = files(tmp_path / name)
    assert {"results.json", "replays.h5", "simplest.h5", "index.json"} <= {Path(file).name for file in made["one"]}
    assert made["cluster"].keys() == made["one"].keys()
    assert [file for file in made["one"] if made["cluster"][file] != made["one"][file]] == []


def test_map_on_cluster_raises_the_error_of_the_function(backend, tmp_path):
    with pytest.raises(LevelSetError) as here:
        LevelSet.open(tmp_path)
    with pytest.raises(LevelSetError) as there, Executor(backend).map(LevelSet.open, [tmp_path]) as results:
        list(results)
    assert type(there.value) is type(here.value) and str(there.value) == str(here.value)


def test_map_on_cluster_repeats_batches_of_dead_processes(backend, tmp_path):
    paths = [tmp_path / name for name in ("a", "b.deadly", "c", "d")]
    with Executor(backend).map(die_once, paths) as results:
        assert list(results) == ["a", "b.deadly", "c", "d"]
    assert paths[1].exists()


def test_map_on_cluster_cancels_pending_batches(backend, tmp_path):
    def wait_for(what, condition):
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.05)

    first, second = tmp_path / "first", tmp_path / "second.lasting"
    with Executor(backend).map(stay, [first, second]) as results:
        next(results)
        wait_for("the second has not begun", second.exists)
    wait_for("the work goes on", lambda: not psutil.pid_exists(int(second.read_text())))


def test_map_on_cluster_with_other_versions_raises_cluster_error(backend, monkeypatch):
    ours = cluster.installed_versions([])
    monkeypatch.setattr(backend, "_versions", ours | {"nppsim": "0.0.1 (sources 123)"})
    version = ours["nppsim"].split()[0]
    message = rf"of the cluster has nppsim {version} .*, the program's machine nppsim 0.0.1 \(sources 123\)"
    with pytest.raises(ClusterError, match=message), Executor(backend).map(LevelSet.open, [ROOT]) as results:
        next(results)


def test_connect_twice_raises_cluster_error(backend):
    with pytest.raises(ClusterError, match="connected to a Ray"):
        with connect("head:6379", None, AssertionError):
            pass
