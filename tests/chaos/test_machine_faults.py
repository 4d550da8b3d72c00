"""Classification of attacked runs, and a few of the attacks (all of them: python -m tests.chaos)."""

import random
from collections import Counter

import pytest

from nppsim.io.files import write_json
from nppsim.levels.level_set import LevelSet
from tests.chaos import machine_faults as faults
from tests.chaos.integrity import damaged, left_over
from tests.chaos.machine_faults import Case, Ended, Undisturbed, classify
from tests.chaos.targets import TARGETS, Target, make_world, names_of

from worlds import corridor


@pytest.mark.parametrize(
    ("status", "stderr", "outcome"),
    [
        (0, "", "finished"),
        (1, "", "unclear"),
        (2, "error: a: no room; make some\n", "clean error"),
        (2, "error: one\nerror: two\n", "unclear"),
        (2, "warning\nerror: one\n", "unclear"),
        (0, "error: and goes on\n", "unclear"),
        (130, "\ninterrupted: by SIGTERM\n", "stopped"),
        (141, "error: the reader of the output has ended\n", "stopped"),
        (1, "Traceback (most recent call last):\n  ...\nOSError\n", "traceback"),
        (0, "Exception ignored in: <x>\n", "traceback"),
        (-11, "error: a\n", "crash"),
        (134, "", "crash"),
        (-9, "", "crash"),
        (130, "something else\n", "unclear"),
        (0, "HDF5-DIAG: Error detected in HDF5 (1.14)\n  #000: H5F.c\n", "traceback"),
        (2, "  Traceback (most recent call last):\nerror: a; b\n", "traceback"),
        (2, "nppsim: compiling for this machine, once\nerror: a; b\n", "clean error"),
    ],
)
def test_a_run_is_classified_by_its_status_and_messages(status, stderr, outcome):
    assert classify(Target("x"), Ended(status, 1.0, stderr)) == outcome
    assert classify(Target("x"), Ended(-9, 1.0, ""), killed=True) == "killed"
    assert classify(Target("x"), Ended(0, 1.0, "", hung=True)) == "hung"
    assert classify(Target("x"), Ended(0, 1.0, "", stdout="Exception in thread Thread-1:")) == "traceback"


def test_damaged_files_are_found(tmp_path):
    corridor(20, 24, 32).save(tmp_path / "whole.map")
    LevelSet.write(tmp_path / "set", [])
    write_json(tmp_path / "whole.json", {"a": 1})
    assert damaged(tmp_path) == []
    whole = (tmp_path / "whole.map").read_bytes()
    (tmp_path / "a.map").write_bytes(whole[:100])
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "c.h5").write_bytes(b"\x89HDF")
    (tmp_path / "d.html").write_text("<html><body>")
    (tmp_path / "e.csv").write_text("a,b\n1,2\n3")
    (tmp_path / "f.safetensors").write_bytes(b"")
    (tmp_path / "g.jsonl").write_text('{"a": 1}\n{"a"')
    (tmp_path / "h.onnx").write_bytes(b"\x08")
    (tmp_path / ".nppsim_x").mkdir()
    (tmp_path / ".hidden.json").write_text("{")
    (tmp_path / ".x.json.1.tmp").write_text("{")
    assert [text.split(":")[0] for text in damaged(tmp_path)] == [
        "a.map",
        "b.json",
        "c.h5",
        "d.html",
        "e.csv",
        "f.safetensors",
        "g.jsonl",
        "h.onnx",
    ]
    assert left_over(tmp_path) == [".nppsim_x", ".x.json.1.tmp"]


WRITES = "(out / 'a.json').write_text('{}')\n"
WAITS = "if not (out / '.again').exists():\n    (out / '.again').touch()\n    time.sleep(9)"
SAYS = "print('error:', {0}, file=sys.stderr); sys.exit(2)"


def attacked(text, fault, folder, monkeypatch):
    """Return outcome and problems of a script under a fault; without one it writes a.json to its folder ``out``."""
    (folder / "script.py").write_text(f"import pathlib, subprocess, sys, time\nout = pathlib.Path(sys.argv[1])\n{text}")
    monkeypatch.setitem(TARGETS, "script", Target(f"{folder}/script.py {{out}}"))
    usual = Undisturbed(0.0, 1.0, 10_000_000, 10_000_000, None, Counter({"a.json": 1}))
    (result,) = faults.attack("script", fault, folder, folder / "out", usual, random.Random(0))
    return result.outcome, "; ".join(result.problems)


@pytest.mark.parametrize(
    ("fault", "text", "outcome", "problems"),
    [
        (faults.locale, WRITES, "finished", ""),
        (faults.locale, "pass", "data lost", "not made: a.json"),  # an error that was not reported
        (faults.locale, SAYS.format("'no UTF-8; rename it'"), "clean error", ""),
        (faults.locale, SAYS.format("'it failed; repeat it'"), "unclear", "contains none of: UTF-8"),
        (faults.locale, SAYS.format("'no UTF-8'"), "unclear", "names no remedy"),
        (faults.cache_not_there, WRITES, "unclear", "finished, expected clean error"),
        (faults.cache_not_there, SAYS.format("'no room; make some'"), "unclear", "names none of: /proc/none"),
        (
            faults.kill,
            "(out / 'b.txt').write_text('')\n" + WAITS,
            "data lost",
            "called again: not made: a.json",
        ),
        (faults.kill, WRITES + WAITS, "killed", ""),
    ],
)
def test_a_command_that_only_seems_to_succeed_is_reported(fault, text, outcome, problems, tmp_path, monkeypatch):
    found = attacked(text, fault, tmp_path, monkeypatch)
    assert found[0] == outcome and problems in found[1], found


def test_a_removed_folder_that_is_created_again_is_reported(tmp_path, monkeypatch):
    text = "if (out / 'a.json').exists():\n    sys.exit()\n(out / 'b').touch()\n"
    text += "while out.exists():\n    time.sleep(0.01)\nout.mkdir()\n"
    text += WRITES + SAYS.format("f'{out}: is gone; repeat it'")
    outcome, problems = attacked(text, faults.vanish, tmp_path, monkeypatch)
    assert outcome == "data lost" and "made again: a.json" in problems


def test_processes_that_outlive_their_command_are_found_and_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "SURVIVAL_S", 0.3)
    sleeper = "subprocess.Popen(['sleep', '300'], stdout=-3, stderr=-3)"
    outcome, problems = attacked(f"{WRITES}{sleeper}", faults.locale, tmp_path, monkeypatch)
    assert outcome == "data lost" and "still running: process" in problems


def test_names_of_files_are_compared_without_times_and_hashes(tmp_path):
    for name in (
        "a_20261123_080902/log.txt",
        "a_20261123_080902/events.out.tfevents.1795436546.vm.4413.3",
        "cache/demonstrations-c8b6039cdaf9d7c4.h5",
        ".lock",
        ".nppsim_1/x.h5",
        "b.tmp",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = {"a_#_#/log.txt", "a_#_#/events.out.tfevents.#", "cache/demonstrations-#.h5"}
    assert names_of(tmp_path) == dict.fromkeys(names, 1)


@pytest.mark.parametrize("number", range(3))
def test_a_header_is_corrupted_in_a_copy(number, world, tmp_path):
    before = {path: path.read_bytes() for path in world.rglob("*") if path.is_file()}
    case = Case(TARGETS["report"], world, tmp_path / "out", None, random.Random(number))
    next(faults.hostile_header(case))
    after = {
        world / path.relative_to(case.world): path.read_bytes() for path in case.world.rglob("*") if path.is_file()
    }
    assert {path: path.read_bytes() for path in before} == before
    (changed,) = [path for path in before if after[path] != before[path]]
    assert str(case.world / changed.relative_to(world)) == case.named[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize(
    ("target", "fault", "outcome", "message"),
    [
        ("load", faults.closed_output, "stopped", "the reader of the output has ended"),
        ("levels", faults.file_size, "clean error", "File too large; raise the limit on the size of files"),
        ("export", faults.file_size, "clean error", "Minari cannot write there (File too large); free space"),
    ],
)
def test_an_attack_ends_as_promised(target, fault, outcome, message, world, tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "_CALLED_AGAIN", ())
    usual = Undisturbed(first_s=1.0, seconds=2.0, bytes=100_000, largest=5_000, content=None)
    (result,) = faults.attack(target, fault, world, tmp_path / "out", usual, random.Random(0))
    assert (result.outcome, result.problems) == (outcome, ()), result
    assert message in result.message


def test_every_target_is_attacked_and_every_fault_attacks_one_that_exists():
    assert {name for targets in faults.PLAN.values() for name in targets} == set(TARGETS)
    with pytest.raises(faults.AttackError, match="no fault fire; choose from kill"):
        next(faults.campaign(None, print, faults=["fire"]))
