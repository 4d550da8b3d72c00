"""Work shared out over a Ray cluster, here two processes of this machine: the same files as one process makes."""

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
from nppsim.parallel.cluster import ClusterError, Workers, connected, refused
from nppsim.parallel.executor import Executor
from rl.tools import evaluate

from chores import die_once, stay
from packages import hide
from places import ROOT
from programs import load_script

AGENT = ROOT / "datasets" / "agents" / "vision_free_foresight.safetensors"
PATIENCE_S = 900  # nothing here may hang


@pytest.fixture(autouse=True, scope="module")
def _nothing_hangs():
    """An error after a while, wherever the tests are by then."""

    def stop(number, frame):
        raise TimeoutError(f"the tests of the cluster took more than {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE_S)
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
def nodes():
    """A cluster of two processes, with which this program stays connected: commands find it as "auto"."""
    before = signal.getsignal(signal.SIGTERM)
    with connected("local", 2, AssertionError) as nodes:
        assert signal.getsignal(signal.SIGTERM) == before
        yield nodes
    assert signal.getsignal(signal.SIGTERM) == before


# ---------------------------------------------------------------------------------------------------------------------
# Before there is a cluster


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
def test_addresses_and_workers_are_checked(given, message):
    with pytest.raises(ConfigError, match=message):
        Workers(**given)


def test_without_ray_the_extra_is_named(monkeypatch):
    hide(monkeypatch, "ray")
    Workers(workers=2)
    with pytest.raises(MissingPackageError, match=r"ray is needed .* pip install 'nppsim\[cluster\]'"):
        Workers(cluster="local")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_where_nobody_listens_the_command_says_what_to_do(address, tmp_path, capsys):
    command = ["--category", "simplest", "--count", "1", "--seed", "1", "--out", str(tmp_path / "out")]
    assert load_script("generate_levels").main([*command, "--cluster", address]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --cluster {address}: cannot be used (") and "ray start --head" in error
    assert error.count("\n") == 1


def test_a_single_level_is_not_searched_on_a_cluster(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    level = next((ROOT / "datasets" / "dev" / "simplest").glob("*.map"))
    assert load_script("solve").main([str(level), "--agent", str(AGENT), "--cluster", "local"]) == 2
    assert "--cluster local: is only for several levels" in capsys.readouterr().err


def test_a_machine_without_the_project_says_so(monkeypatch):
    """The code is sent there, not its name."""
    ray = pytest.importorskip("ray")
    sent = ray.cloudpickle.dumps(cluster._remote_task())
    monkeypatch.setitem(sys.modules, "nppsim", None)
    refusal, results = ray.cloudpickle.loads(sent)({"nppsim": "9.9 (sources abc)"}, b"", b"")
    assert "lacks this project" in refusal and "install nppsim 9.9 (sources abc) there" in refusal and not results


def test_machines_with_other_versions_are_refused():
    ours = cluster.installed(["numpy", "no-such-library"])
    assert ours["no-such-library"] == "missing" and not refused(ours, dict(ours))
    versions = {"numpy": "2", "Python": "3"}, {"numpy": "1.0", "Python": "3"}
    assert "has numpy 1.0, the program's machine numpy 2" in refused(*versions)


# ---------------------------------------------------------------------------------------------------------------------
# On two processes


def files(folder: Path) -> dict[str, bytes]:
    """All files but the locks, by name; the time is left out of the name of an evaluation's folder."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {re.sub(r"evaluate_[^/]*", "", path.relative_to(folder).as_posix()): path.read_bytes() for path in paths}


@pytest.mark.usefixtures("whole_evaluations")
def test_levels_demonstrations_and_evaluations_are_those_of_one_process(nodes, tmp_path, monkeypatch):
    """Levels and demonstrations are made in two goes; the evaluation has three batches."""
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


def test_errors_are_those_of_one_process(nodes, tmp_path):
    with pytest.raises(LevelSetError) as here:
        LevelSet.open(tmp_path)
    with pytest.raises(LevelSetError) as there, Executor(nodes).map(LevelSet.open, [tmp_path]) as results:
        list(results)
    assert type(there.value) is type(here.value) and str(there.value) == str(here.value)


def test_work_that_dies_with_its_process_is_done_again(nodes, tmp_path):
    paths = [tmp_path / name for name in ("a", "b.deadly", "c", "d")]
    with Executor(nodes).map(die_once, paths) as results:
        assert list(results) == ["a", "b.deadly", "c", "d"]
    assert paths[1].exists()


def test_what_nobody_waits_for_is_cancelled(nodes, tmp_path):
    def wait_for(what, condition):
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.05)

    first, second = tmp_path / "first", tmp_path / "second.lasting"
    with Executor(nodes).map(stay, [first, second]) as results:
        next(results)
        wait_for("the second has not begun", second.exists)
    wait_for("the work goes on", lambda: not psutil.pid_exists(int(second.read_text())))


def test_workers_with_another_version_are_refused(nodes, monkeypatch):
    ours = cluster.installed([])
    monkeypatch.setattr(nodes, "_versions", ours | {"nppsim": "0.0.1 (sources 123)"})
    version = ours["nppsim"].split()[0]
    message = rf"of the cluster has nppsim {version} .*, the program's machine nppsim 0.0.1 \(sources 123\)"
    with pytest.raises(ClusterError, match=message), Executor(nodes).map(LevelSet.open, [ROOT]) as results:
        next(results)


def test_a_program_that_is_connected_is_not_connected_elsewhere(nodes):
    with pytest.raises(ClusterError, match="connected to a Ray"):
        with connected("head:6379", None, AssertionError):
            pass
