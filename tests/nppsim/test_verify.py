"""Bit-exact conformance: the recorded traces, and that a wrong number would not go unnoticed.

``tests/data/conformance_excerpt.h5`` holds 30 cases of the synthetic traces, cut to 200 frames; the whole files are
beside the repository where it is developed.
"""

import shutil
from pathlib import Path

import h5py
import pytest

import nppsim
from nppsim.__main__ import main

from places import EXCERPT, SHARED

CONFORMANCE = SHARED / "conformance"


def test_verify_excerpt_is_bit_exact():
    results = nppsim.verify(EXCERPT)
    assert len(results) == 19
    for theme, result in results.items():
        assert result.passed, f"{theme}: {result.first_divergence or result.refused}"
    assert sum(result.cases for result in results.values()) == 30


@pytest.mark.parametrize("name", ["synthetic.h5", "replays.h5"])
def test_verify_all_cases_are_bit_exact(name, capsys):
    if not (CONFORMANCE / name).exists():
        pytest.skip(f"no {name} beside the repository")
    assert main(["verify", str(CONFORMANCE / name)]) == 0, capsys.readouterr().out


@pytest.fixture
def copy(tmp_path):
    return Path(shutil.copy(EXCERPT, tmp_path / "traces.h5"))


def change(path, place, index, value):
    with h5py.File(path, "r+") as file:
        file[place][index] = value


@pytest.mark.parametrize(
    ("dataset", "index", "message"),
    [
        ("frames", (7, 1), "frame 8: y is"),
        ("frames", (9, 9), "frame 10: gold is"),
        ("entity_state", (5, 0), "frame 6: entity"),
    ],
)
def test_verify_wrong_number_located(copy, dataset, index, message, capsys):
    with h5py.File(copy) as file:
        case = next(iter(file["gold_exit"]))
        value = file["gold_exit"][case][dataset][index]
    change(copy, f"gold_exit/{case}/{dataset}", index, value + 1)
    result = nppsim.verify(copy)["gold_exit"]
    assert result.exact == result.cases - 1
    assert result.first_divergence.startswith(f"{case}: {message}")
    assert main(["verify", str(copy)]) == 1
    assert "diverges" in capsys.readouterr().out


def test_verify_unreadable_level_refused(copy, capsys):
    with h5py.File(copy, "r+") as file:
        group = file["doors"][next(iter(file["doors"]))]
        data = group["map"][:1000]
        del group["map"]
        group["map"] = data
    assert main(["verify", str(copy)]) == 1
    assert "refused" in (printed := capsys.readouterr().out) and "1000 bytes" in printed


def test_verify_foreign_file_raises_error(tmp_path, copy, capsys):
    text = tmp_path / "text.h5"
    text.write_text("no HDF5")
    with h5py.File(copy, "r+") as file:
        del file["doors"][next(iter(file["doors"]))]["frames"]
    for path in (tmp_path / "absent.h5", tmp_path, text, copy):
        assert main(["verify", str(path)]) == 2
        printed = capsys.readouterr()
        assert printed.err.startswith(f"error: {path}") and printed.err.count("\n") == 1
        assert printed.out == ""
