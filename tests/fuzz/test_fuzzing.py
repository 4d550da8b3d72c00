"""Fuzzing of file readers: no reader fails, failures are detected, and inputs are reproducible."""

import io
import json
import multiprocessing
import os
import re
import signal
from functools import reduce
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboard.summary.writer.record_writer import RecordWriter

from nppsim.errors import UserError
from rl.events import EventsError
from rl.policy import checkpoint
from tests.fuzz import fuzzing
from tests.fuzz.__main__ import main
from tests.fuzz.fuzzing import Failure, Tally, attempt, damaged, fuzz, readers, valid_files

pytestmark = pytest.mark.usefixtures("one_thread")
READERS = readers()
# not in this process: those that read HDF5 without checksums, or run much code of others
IN_PROCESS = sorted(READERS.keys() - {"traces", "minari", "checkpoint", "clone", "archive", "onnx"})
PACKAGES = {"onnx": "onnxscript", "minari": "minari", "studio_watch": "starlette"}


@pytest.fixture(scope="module")
def valid():
    made = {}

    def files_of(name):
        if name in PACKAGES:
            pytest.importorskip(PACKAGES[name])
        if name not in made:
            made[name] = valid_files(READERS[name])
        return made[name]

    return files_of


@pytest.mark.parametrize("name", READERS)
def test_a_valid_file_is_read(name, valid, tmp_path):
    for data in valid(name):
        (tmp_path / READERS[name].file).write_bytes(data)
        assert attempt(READERS[name], tmp_path / READERS[name].file) == (False, "", "")


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(IN_PROCESS), st.integers(0, 2**40))
def test_a_damaged_file_is_read_or_refused_in_one_line(valid, tmp_path_factory, name, index):
    path = tmp_path_factory.mktemp("damaged") / READERS[name].file
    path.write_bytes(damaged(READERS[name], valid(name), 1, index))
    assert attempt(READERS[name], path).wrong == ""


# inputs that once failed: a file, a function of a valid file, or values to set in a valid file
FOUND = [
    ("level_text", lambda text: text.replace(b"\nninja ", b"\n" + b"1" * 5000 + b" ")),
    ("level_text", lambda text: text.replace(b"\nrecords:", b"\ntile 1 1 " + b"1" * 5000 + b"\nrecords:")),
    ("level_text", lambda text: text.replace(b"\ntiles:", b"\nexits: " + b"1" * 5000 + b"\ntiles:")),
    ("settings", b"initial-lr = 1" + b"0" * 400),  # no float is so large
    ("settings", b"seeds = " + b"9" * 5000),  # nor can Python parse or print such a number
    ("settings", b"total-timesteps = 0x" + b"f" * 5000),
    ("configuration", {"plugins": ["1"]}),
    ("configuration_alone", {"train_dataset": ["\0"]}),
    ("configuration_alone", {"output_dir": "1" * 5000}),
    ("settings", b'output-dir = "\\u0000"'),
    ("demonstration_index", {"demonstrations.0.file": "1" * 5000}),
    ("level_index", {"levels.0.file": "1" * 5000}),
    ("level_index", {"levels.0.file": "\0"}),
    ("comparison_plan", {"machine": "x"}),
    ("comparison_plan", {"plan": 3}),
    ("plan", b"3"),
    ("plan", {"request": 0.5}),
    ("plan", {"plan": None}),
    ("finished", b"[[]]"),
    ("finished", {"played": 3}),
    ("finished", {"played.ppo.0.ret": {}}),
    ("finished", {"played.ppo.0.category": "another"}),
    ("finished", {"played.ppo.0.level_index": -1}),
    ("finished", {"played.ppo.0.gold": 10**400}),
    ("finished", {"played.another": []}),
    ("run_table", b"\xff\n"),
    ("run_table", b"a" * 200_000 + b"\n"),
    ("studio_experiment", b"time/total_timesteps\nx\n"),
    ("studio_experiment", b"\xff\n"),
    ("evaluation", {"suites.test": None}),
    ("compared_results.json", {"architectures..seeds.1.speed.share": 1}),
    ("compared_results.json", {"architectures..seeds.1.speed.decisions_per_s": 0}),
    ("findings", {"findings.0.seconds": "x"}),
    ("findings", {"findings.0.status": "x"}),
]


@pytest.mark.parametrize(("name", "content"), FOUND)
def test_inputs_that_once_failed_are_refused_in_one_line(name, content, valid, tmp_path):
    if isinstance(content, dict):
        data = json.loads(valid(name)[-1])
        for place, value in content.items():
            *parents, last = place.split(".")
            reduce(lambda found, part: found[int(part) if isinstance(found, list) else part], parents, data)[last] = (
                value
            )
        content = json.dumps(data).encode()
    elif callable(content):
        content = content(valid(name)[0])
    (tmp_path / READERS[name].file).write_bytes(content)
    ending = attempt(READERS[name], tmp_path / READERS[name].file)
    assert (ending.refused, ending.wrong) == (True, "")
    assert ending.place


def test_damaged_events_are_refused(valid, tmp_path):
    record = io.BytesIO()
    RecordWriter(record).write(b"\xff")
    for name in ("events", "events_cut"):
        path = tmp_path / READERS[name].file
        path.write_bytes(valid(name)[0] + record.getvalue())
        with pytest.raises(EventsError, match="no events of TensorBoard"):
            READERS[name].read(path)


def test_an_archive_whose_members_are_damaged_is_refused(valid, tmp_path):
    data = valid("archive")[0]
    for damaged_archive in (data[:34] + b"\xff" * 8 + data[42:], data[:-6] + b"\xff\xff\xff\x0f" + data[-2:]):
        (tmp_path / "x.zip").write_bytes(damaged_archive)  # the first member; where the list of them is
        assert attempt(READERS["archive"], tmp_path / "x.zip")[:2] == (True, "")


def test_a_dataset_without_anything_to_train_on_is_refused(valid, tmp_path):
    path = tmp_path / READERS["dataset"].file
    path.write_bytes(valid("dataset")[0])
    with h5py.File(path, "r+") as file:
        file["demonstrations/validation"][:] = True
    assert attempt(READERS["dataset"], path)[:2] == (True, "")


def test_a_bc_policy_without_its_training_settings_is_refused(valid, tmp_path):
    described, tensors = checkpoint.parse(valid("clone")[0])
    for training in (None, {**described["content"]["training"], "distillation_s": None}):
        (tmp_path / "bc_policy.safetensors").write_bytes(
            checkpoint.sign({**described["content"], "training": training}, tensors if training else {})
        )
        assert attempt(READERS["clone"], tmp_path / "bc_policy.safetensors")[:2] == (True, "")


def test_reading_a_minari_dataset_imports_nothing_that_its_metadata_names(valid, tmp_path, monkeypatch):
    monkeypatch.setattr("minari.load_dataset", lambda name: pytest.fail("Minari imports what metadata name"))
    path = tmp_path / "main_data.hdf5"
    path.write_bytes(valid("minari")[0])
    with h5py.File(path, "r+") as file:
        del file["episode_0/actions"]
        file.create_dataset("episode_0/actions", (1 << 40,), "i8", chunks=(100,))
    ending = attempt(READERS["minari"], path)
    assert (ending.refused, ending.wrong) == (True, "") and ending.place.startswith("nppsim/io/hdf5.py")


def test_an_input_depends_only_on_reader_seed_and_number(valid, monkeypatch):
    for name in ("level", "replay_set", "checkpoint"):
        made = [damaged(READERS[name], valid(name), 3, i) for i in range(6)]
        assert made[:2] == [damaged(READERS[name], valid(name), 3, i) for i in range(2)]
        assert len(set(made)) == 6
    parse = checkpoint.parse
    monkeypatch.setattr(checkpoint, "parse", lambda data: (parse(data)[0], dict(reversed(parse(data)[1].items()))))
    assert made == [damaged(READERS["checkpoint"], valid("checkpoint"), 3, i) for i in range(6)]


def test_processes_with_little_memory_read_them(monkeypatch):
    monkeypatch.setattr(fuzzing, "PER_PROCESS", 7)
    tally = fuzz("traces", 12, seed=5)
    assert (tally.tried, tally.failures) == (12, [])
    assert 6 < tally.refused <= 12 and tally.peak_bytes < fuzzing.MEMORY_BYTES
    assert tally.places.total() == tally.refused and all(place.endswith(tuple("0123456789")) for place in tally.places)


@pytest.mark.parametrize(
    ("read", "wrong"),
    [
        (lambda path: [][0], "IndexError: list index out of range"),
        (lambda path: np.empty(1 << 60), "MemoryError|ValueError|_ArrayMemoryError"),
        (lambda path: (_ for _ in ()).throw(UserError("no name")), "not one line that names the file"),
        (lambda path: (_ for _ in ()).throw(UserError(f"{path}:\ntwo lines")), "not one line that names the file"),
    ],
)
def test_any_other_error_is_a_failure(read, wrong):
    reader = fuzzing.Reader("failing", "x", read, lambda folder: [], ())
    refused, failure, _ = attempt(reader, Path("/somewhere/x"))
    assert refused
    assert re.search(wrong, failure)


@pytest.mark.parametrize(
    ("end", "message"), [((os._exit, (3,)), "status 3"), ((signal.raise_signal, (11,)), "SIGSEGV")]
)
def test_a_crash_is_a_failure(end, message):
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=end[0], args=end[1])
    process.start()
    theirs.close()
    (outcome,) = fuzzing._outcomes(ours, process)
    assert outcome.failure == f"the process ended: {message}"


def test_the_script_saves_failing_inputs_and_rejects_unknown_readers(tmp_path, monkeypatch, capsys):
    assert main(["--readers", "levle"]) == 2
    assert "did you mean 'level'" in capsys.readouterr().err
    bad = Failure(2, "bad", b"the file")
    monkeypatch.setattr(fuzzing, "fuzz", lambda name, count, seed, first, stop: Tally(name, 3, 2, failures=[bad]))
    assert main(["--readers", "level", "--count", "3", "--out", str(tmp_path)]) == 1
    (saved,) = tmp_path.iterdir()
    assert saved.name == "level_0_2.map"
    assert saved.read_bytes() == b"the file"
    assert "input 2: bad; saved as" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert main([]) == 2
    message = "error: datasets/train is not in this folder; go to a checkout of the project first\n"
    assert capsys.readouterr().err == message
