"""Two processes do not write to one folder."""

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from nppsim.io.files import FolderError, locked

from places import ROOT

HOLD = """
import sys, time
from nppsim.io.files import locked
with locked(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has locked ``tmp_path/out``."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "out")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        yield process
        process.kill()


def test_a_second_process_is_told_who_has_the_folder_and_a_dead_one_has_it_no_more(tmp_path, holder):
    folder = tmp_path / "out"
    named = rf"{folder}: process {holder.pid} on {socket.gethostname()} since 20\S+ \S+ is writing to it; wait"
    with pytest.raises(FolderError, match=named), locked(folder):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with locked(folder):
        assert str(os.getpid()) in (folder / ".lock").read_text()
    with locked(folder):
        pass


def test_the_lock_ends_with_its_block_after_an_error_too(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    with locked(tmp_path), locked(tmp_path / "inner"):
        pass


def test_a_file_system_without_locks_is_written_to_without_one(tmp_path, monkeypatch, capsys):
    fcntl = pytest.importorskip("fcntl")

    def none_here(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none_here)
    with locked(tmp_path / "out"):
        assert "has no locks" in capsys.readouterr().err


@pytest.mark.parametrize("again", [False, True])
def test_a_folder_that_goes_away_is_told(tmp_path, again):
    folder = tmp_path / "out"

    def write():
        with locked(folder):
            shutil.rmtree(folder)
            if again:
                folder.mkdir()
                (folder / ".lock").touch()

    with pytest.raises(FolderError, match="was removed or replaced while"):
        write()
