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


def test_locked_by_other_process_raises_folder_error_until_it_ends(tmp_path, holder):
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


def test_locked_after_an_error_is_released(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    with locked(tmp_path), locked(tmp_path / "inner"):
        pass


def test_locked_on_file_system_without_locks_prints_a_warning(tmp_path, monkeypatch, capsys):
    fcntl = pytest.importorskip("fcntl")

    def none_here(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none_here)
    with locked(tmp_path / "out"):
        assert "has no locks" in capsys.readouterr().err


@pytest.mark.parametrize("again", [False, True])
def test_locked_removed_folder_raises_folder_error(tmp_path, again):
    folder = tmp_path / "out"

    def write():
        with locked(folder):
            shutil.rmtree(folder)
            if again:
                folder.mkdir()
                (folder / ".lock").touch()

    with pytest.raises(FolderError, match="was removed or replaced while"):
        write()
