"""The fuzzer of readers: no reader fails, what fails is found, and inputs are reproducible."""

import multiprocessing
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nppsim.errors import UserError
from rl.forensics import fuzzing
from rl.forensics.fuzzing import Tally, attempt, damaged, fuzz, readers, valid_files

from programs import load_script

pytestmark = pytest.mark.usefixtures("one_thread")
READERS = readers()
IN_PROCESS = sorted(READERS.keys() - {"traces", "checkpoint"})  # traces: HDF5's oldest format, without checksums


@pytest.fixture(scope="module")
def valid():
    made = {}

    def files_of(name):
        if name not in made:
            made[name] = valid_files(READERS[name])
        return made[name]

    return files_of


@pytest.mark.parametrize("name", READERS)
def test_a_valid_file_is_read(name, valid, tmp_path):
    for data in valid(name):
        (tmp_path / READERS[name].file).write_bytes(data)
        assert attempt(READERS[name], tmp_path / READERS[name].file) == (False, "")


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(IN_PROCESS), st.integers(0, 2**40))
def test_a_damaged_file_is_read_or_refused_in_one_line(valid, tmp_path_factory, name, index):
    path = tmp_path_factory.mktemp("damaged") / READERS[name].file
    path.write_bytes(damaged(READERS[name], valid(name), 1, index))
    assert attempt(READERS[name], path)[1] == ""


def test_an_input_depends_on_nothing_but_reader_seed_and_number(valid):
    for name in ("level", "replay_set", "checkpoint"):
        made = [damaged(READERS[name], valid(name), 3, i) for i in range(6)]
        assert made[:2] == [damaged(READERS[name], valid(name), 3, i) for i in range(2)]
        assert len(set(made)) == 6


def test_a_process_with_little_memory_reads_them(tmp_path):
    tally = fuzz("traces", 12, seed=5)
    assert (tally.tried, tally.failures) == (12, [])
    assert 6 < tally.refused <= 12 and tally.peak_bytes < fuzzing.MEMORY_BYTES


@pytest.mark.parametrize(
    ("read", "wrong"),
    [
        (lambda path: [][0], "IndexError: list index out of range"),
        (lambda path: np.empty(1 << 60), "MemoryError|ValueError|_ArrayMemoryError"),
        (lambda path: (_ for _ in ()).throw(UserError("no name")), "not one line that names the file"),
        (lambda path: (_ for _ in ()).throw(UserError(f"{path}:\ntwo lines")), "not one line that names the file"),
    ],
)
def test_any_other_end_is_a_failure(read, wrong):
    reader = fuzzing.Reader("planted", "x", read, lambda folder: [])
    refused, failure = attempt(reader, Path("/somewhere/x"))
    assert refused
    assert re.search(wrong, failure)


@pytest.mark.parametrize(("end", "told"), [((os._exit, (3,)), "status 3"), ((signal.raise_signal, (11,)), "SIGSEGV")])
def test_a_crash_is_a_failure(end, told):
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=end[0], args=end[1])
    process.start()
    theirs.close()
    (outcome,) = fuzzing._outcomes(ours, process)
    assert outcome.failure == f"the process ended: {told}"


def test_the_script_keeps_what_fails_and_names_unknown_readers(tmp_path, monkeypatch, capsys):
    script = load_script("fuzz_readers")
    assert script.main(["--readers", "levle"]) == 2
    assert "did you mean 'level'" in capsys.readouterr().err
    monkeypatch.setattr(fuzzing, "fuzz", lambda name, count, seed, stop: Tally(name, 3, 2, failures=[(2, "bad")]))
    assert script.main(["--readers", "level", "--count", "3", "--out", str(tmp_path)]) == 1
    (kept,) = tmp_path.iterdir()
    assert kept.name == "level_0_2.map"
    assert kept.read_bytes() == damaged(READERS["level"], valid_files(READERS["level"]), 0, 2)
    assert "input 2: bad; kept as" in capsys.readouterr().out
