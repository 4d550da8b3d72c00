"""Reading of damaged files in a process with limited memory, for ``tests.fuzz.test_readers``.

Processes import this module by name, which they cannot do with a test file.
"""

import os
import resource
import shutil
import tempfile
import time
import traceback
import warnings
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nppsim.errors import UserError, redact
from tests.fuzz.readers import readers

SEED = int(os.environ.get("FUZZ_SEED", "0"))
MEMORY_BYTES = 1 << 30  # limit of reading one file, beyond the memory of the process with its libraries
SECONDS = 10.0  # limit of processor time to read one file
READERS = readers()


class Ending(NamedTuple):
    """How reading ended: with an error or not; a failure, or ""; the line of the project that raised the error, or ""."""

    refused: bool
    wrong: str = ""
    place: str = ""


def attempt(reader, path):
    """Read a file and return how that ended."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(path)
    except UserError as error:
        text = redact(str(error))
        wrong = f"the message is not one line that names the file: {text[:300]!r}"
        return Ending(True, wrong if "\n" in text or str(path.parent) not in text else "", raised(error))
    except Exception as error:  # noqa: BLE001  # the failures that fuzzing looks for
        return Ending(True, f"{type(error).__name__}: {str(error)[:300]} ({raised(error)})", raised(error))
    return Ending(False)


def raised(error):
    """Return the line of the project that raised an error or its cause; "" if none did."""
    place, project = "", Path(__file__).parents[2]
    while error is not None:
        for frame in traceback.extract_tb(error.__traceback__):
            if (file := Path(frame.filename)).is_relative_to(project):
                place = f"{file.relative_to(project)}:{frame.lineno}"
        error = error.__cause__
    return place


def damaged(reader, valid, index):
    """Return damaged input ``index``."""
    rng = np.random.default_rng([SEED, index, zlib.crc32(reader.name.encode())])
    data = valid[rng.integers(len(valid))]
    return reader.damages[rng.integers(len(reader.damages))](data, rng)


def read_damaged(connection, name, valid, first, end):
    """Read the inputs in this process, whose memory is limited; send what was wrong with each."""
    reader = READERS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / reader.file
        for data in valid:  # compiles, and fills caches, before memory is limited
            path.write_bytes(data)
            assert not attempt(reader, path).refused
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES,) * 2)
        for index in range(first, end):
            shutil.rmtree(folder)  # removes files that readers wrote
            path.parent.mkdir()
            path.write_bytes(damaged(reader, valid, index))
            began = time.process_time()
            wrong = attempt(reader, path).wrong
            seconds = time.process_time() - began
            connection.send(wrong or (f"takes {seconds:.1f} s of processor time" if seconds > SECONDS else ""))
    os._exit(0)
