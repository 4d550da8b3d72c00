"""Faults of the machine: how an attack is judged, and some of the attacks themselves (all: scripts/attack.py)."""

import random

import pytest

from nppsim.files import write_json
from nppsim.levels.level_set import LevelSet
from rl.forensics import machine_faults as faults
from rl.forensics.machine_faults import DOORS, Door, Ended, Undisturbed, judge
from rl.forensics.wholeness import damaged, left_over

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
        (141, "error: nobody reads the output any more\n", "stopped"),
        (1, "Traceback (most recent call last):\n  ...\nOSError\n", "traceback"),
        (0, "Exception ignored in: <x>\n", "traceback"),
        (-11, "error: a\n", "crash"),
        (134, "", "crash"),
        (-9, "", "crash"),
    ],
)
def test_a_run_is_judged_by_its_status_and_its_last_words(status, stderr, outcome):
    assert judge(Door("x"), Ended(status, 1.0, stderr)) == outcome
    assert judge(Door("x"), Ended(-9, 1.0, ""), killed=True) == "killed"
    assert judge(Door("x"), Ended(0, 1.0, "", hung=True)) == "hung"


def test_files_that_are_not_whole_are_found(tmp_path):
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
    (tmp_path / ".hidden.json").write_text("{")
    (tmp_path / ".x.json.1.tmp").write_text("{")
    assert [text.split(":")[0] for text in damaged(tmp_path)] == [
        "a.map",
        "b.json",
        "c.h5",
        "d.html",
        "e.csv",
        "f.safetensors",
    ]
    assert left_over(tmp_path) == [".x.json.1.tmp"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return faults.make_world(tmp_path_factory.mktemp("world"))


@pytest.mark.parametrize(
    ("door", "fault", "outcome", "told"),
    [
        ("load", faults.closed_output, "stopped", "nobody reads the output any more"),
        ("levels", faults.file_size, "clean error", "File too large; raise the limit on the size of files"),
        ("export", faults.file_size, "clean error", "Minari cannot write there (File too large); make room"),
    ],
)
def test_an_attack_ends_as_promised(door, fault, outcome, told, world, tmp_path):
    usual = Undisturbed(first_s=1.0, seconds=2.0, bytes=100_000, largest=5_000, content=None)
    (result,) = faults.attack(door, fault, world, tmp_path / "out", usual, random.Random(0))
    assert (result.outcome, result.amiss) == (outcome, ()), result
    assert told in result.told


def test_every_door_is_attacked_and_every_fault_attacks_one_that_exists():
    assert {name for doors in faults.PLAN.values() for name in doors} == set(DOORS)
    with pytest.raises(faults.AttackError, match="no fault fire; choose from kill"):
        next(faults.campaign(None, print, faults=["fire"]))
