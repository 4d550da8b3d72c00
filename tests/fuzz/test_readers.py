"""Damaged files of every format: each is read, or refused in one line, with little memory and time; part of ``make fuzz``.

FUZZ_COUNT and FUZZ_SEED in the environment set the number of damaged files per reader and their seed.  Input i of seed s is a
pure function of reader, s and i.  A failing input is saved in the temporary folder of its test.
"""

import io
import json
import multiprocessing
import os
import tempfile
from functools import reduce
from pathlib import Path

import h5py
import pytest
from tensorboard.summary.writer.record_writer import RecordWriter

from rl.events import EventsError
from rl.policy import checkpoint
from tests.fuzz.reading import READERS, attempt, damaged, read_damaged

pytestmark = pytest.mark.usefixtures("one_thread")
COUNT = int(os.environ.get("FUZZ_COUNT", "1000"))
PER_PROCESS = 500  # files; a new process does not count the caches of libraries as memory of one file
HANG_SECONDS = 300.0  # without a result
PACKAGES = {"onnx": "onnxscript", "minari": "minari", "studio_watch": "starlette"}


@pytest.fixture(scope="module")
def valid():
    made = {}

    def files_of(name):
        if name in PACKAGES:
            pytest.importorskip(PACKAGES[name])
        if name not in made:
            with tempfile.TemporaryDirectory() as folder:
                made[name] = [path.read_bytes() for path in READERS[name].valid(Path(folder))]
        return made[name]

    return files_of


@pytest.mark.parametrize("name", READERS)
def test_read_valid_file_succeeds(name, valid, tmp_path):
    for data in valid(name):
        (tmp_path / READERS[name].file).write_bytes(data)
        assert attempt(READERS[name], tmp_path / READERS[name].file) == (False, "", "")


@pytest.mark.parametrize("name", READERS)
def test_read_damaged_file_succeeds_or_raises_one_line(name, valid, tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.fuzz.reading", "torch._dynamo"])  # loaded once instead of in each process
    for first in range(0, COUNT, PER_PROCESS):
        ours, theirs = context.Pipe(duplex=False)
        end = min(first + PER_PROCESS, COUNT)
        process = context.Process(target=read_damaged, args=(theirs, name, valid(name), first, end), daemon=True)
        process.start()
        theirs.close()
        for index in range(first, end):
            try:
                wrong = ours.recv() if ours.poll(HANG_SECONDS) else "hangs"
            except EOFError:
                wrong = "the process crashed"
            if wrong:
                process.kill()
                (tmp_path / READERS[name].file).write_bytes(damaged(READERS[name], valid(name), index))
                pytest.fail(f"input {index}, in a process that began with {first}: {wrong}; saved in {tmp_path}")
        process.join()


# Inputs that once failed: a file, a function of a valid file, or values to set in a valid file
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
def test_read_known_failure_raises_one_line(name, content, valid, tmp_path):
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


def test_read_damaged_events_raises_error(valid, tmp_path):
    record = io.BytesIO()
    RecordWriter(record).write(b"\xff")
    for name in ("events", "events_cut"):
        path = tmp_path / READERS[name].file
        path.write_bytes(valid(name)[0] + record.getvalue())
        with pytest.raises(EventsError, match="no events of TensorBoard"):
            READERS[name].read(path)


def test_read_archive_with_damaged_members_raises_error(valid, tmp_path):
    data = valid("archive")[0]
    for damaged_archive in (data[:34] + b"\xff" * 8 + data[42:], data[:-6] + b"\xff\xff\xff\x0f" + data[-2:]):
        (tmp_path / "x.zip").write_bytes(damaged_archive)  # the first member; where the list of them is
        assert attempt(READERS["archive"], tmp_path / "x.zip")[:2] == (True, "")


def test_read_dataset_without_training_part_raises_error(valid, tmp_path):
    path = tmp_path / READERS["dataset"].file
    path.write_bytes(valid("dataset")[0])
    with h5py.File(path, "r+") as file:
        file["demonstrations/validation"][:] = True
    assert attempt(READERS["dataset"], path)[:2] == (True, "")


def test_read_bc_policy_without_training_settings_raises_error(valid, tmp_path):
    described, tensors = checkpoint.parse(valid("clone")[0])
    for training in (None, {**described["content"]["training"], "distillation_s": None}):
        (tmp_path / "bc_policy.safetensors").write_bytes(
            checkpoint.pack({**described["content"], "training": training}, tensors if training else {})
        )
        assert attempt(READERS["clone"], tmp_path / "bc_policy.safetensors")[:2] == (True, "")


def test_read_minari_dataset_imports_nothing_named_in_metadata(valid, tmp_path, monkeypatch):
    monkeypatch.setattr("minari.load_dataset", lambda name: pytest.fail("Minari imports what metadata name"))
    path = tmp_path / "main_data.hdf5"
    path.write_bytes(valid("minari")[0])
    with h5py.File(path, "r+") as file:
        del file["episode_0/actions"]
        file.create_dataset("episode_0/actions", (1 << 40,), "i8", chunks=(100,))
    ending = attempt(READERS["minari"], path)
    assert (ending.refused, ending.wrong) == (True, "") and ending.place.startswith("nppsim/io/hdf5.py")
