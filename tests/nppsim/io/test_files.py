"""Files appear whole or not at all; unwritable outputs are reported before the work."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nppsim.errors import ConfigError
from nppsim.io import files
from nppsim.io.files import (
    append_text,
    check_output_file,
    check_output_folder,
    naming,
    replacing,
    table,
    write_bytes,
    write_json,
    write_text,
)

from places import ROOT


def test_replacing_failed_block_keeps_the_old_file(tmp_path):
    path = tmp_path / "new" / "folder" / "a.txt"
    write_bytes(path, b"old")

    def interrupted():
        with replacing(path) as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["a.txt"]


def test_replacing_removes_temporary_files_of_killed_processes(tmp_path):
    program = (
        "import os, signal, sys; from nppsim.io.files import replacing\n"
        "with replacing(sys.argv[1]) as path: path.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program, str(tmp_path / "written.txt")], cwd=ROOT)
        (left,) = tmp_path.iterdir()
        assert left.name.startswith(".written.txt.") and left.name.endswith(".tmp")
        os.utime(left, (0, 0))
    (tmp_path / left.name.replace("written", "recent")).touch()
    (tmp_path / ".other.elsewhere.1.tmp").touch()  # of another machine
    (tmp_path / f".running.{files._HOST}.{os.getpid()}.tmp").touch()
    for other in tmp_path.glob(".[or]*.tmp"):
        if "recent" not in other.name:
            os.utime(other, (0, 0))
    write_text(tmp_path / "another.txt", "whole")
    names = {path.name for path in tmp_path.iterdir()}
    kept = {
        ".other.elsewhere.1.tmp",
        f".running.{files._HOST}.{os.getpid()}.tmp",
        left.name.replace("written", "recent"),
    }
    assert names == kept | {"another.txt"}


def test_write_errors_name_the_file(tmp_path):
    def write(folder, *error):
        with replacing(folder / "a.txt") as temporary:
            temporary.touch()
            raise OSError(*error, *([str(temporary)] if len(error) == 2 and error[0] == errno.EFBIG else []))

    for number in (errno.ENOSPC, errno.EFBIG):  # without the name of a file, and with that of the temporary one
        with pytest.raises(OSError, match="message") as caught:
            write(tmp_path, number, "message")
        assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / "a.txt"))
    with pytest.raises(PermissionError) as caught:
        write(tmp_path, errno.EACCES, "message", "other")
    assert caught.value.filename == "other"
    with pytest.raises(OSError, match="^damaged$"), naming("x"):
        raise OSError("damaged")
    assert os.listdir(tmp_path) == []


def test_replacing_follows_links_and_refuses_devices(tmp_path):
    (tmp_path / "link").symlink_to("target")
    for content in (b"old", b"new"):
        write_bytes(tmp_path / "link", content)
        assert (tmp_path / "target").read_bytes() == content
        assert (tmp_path / "link").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is a pipe or a device"):
        write_bytes(tmp_path / "pipe", b"x")
    with pytest.raises(ConfigError, match="is a pipe or a device"):
        check_output_file(tmp_path / "pipe", "--out")
    assert (tmp_path / "pipe").is_fifo()


def test_check_output_file_input_raises_config_error(tmp_path):
    (tmp_path / "given").touch()
    (tmp_path / "link").symlink_to("given")
    for out in ("given", "link"):
        with pytest.raises(ConfigError, match="is an input"):
            check_output_file(tmp_path / out, "OUT", inputs=[tmp_path / "given"])
    check_output_file(tmp_path / "given", "OUT", inputs=[tmp_path / "other"])


def test_append_text_on_full_disk_leaves_the_file_unchanged(tmp_path, largest_file):
    path = tmp_path / "log.txt"
    append_text(path, "one\n")
    with largest_file(10):
        with pytest.raises(OSError, match="File too large") as caught:
            append_text(path, "two, which is too long\n")
        assert caught.value.filename == str(path)
        append_text(path, "three\n")
    assert path.read_text() == "one\nthree\n"


def test_write_json_undecodable_file_name_is_restored(tmp_path):
    name = os.fsdecode(b"a\xff \xc3\xa9")
    write_json(tmp_path / "a.json", {name: Path(name)})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {name: name}


def test_write_json_numpy_path_and_nan_are_converted(tmp_path):
    write_json(tmp_path / "a.json", {"array": np.arange(2), "number": np.float32(0.5), "nan": np.nan, "path": tmp_path})
    assert json.loads((tmp_path / "a.json").read_text()) == {
        "array": [0, 1],
        "number": 0.5,
        "nan": None,
        "path": str(tmp_path),
    }
    with pytest.raises(TypeError, match="cannot be stored as JSON"):
        write_json(tmp_path / "b.json", {"set": {1}})
    assert not (tmp_path / "b.json").exists()


def test_check_output_folder_new_or_existing_is_accepted(tmp_path):
    check_output_folder(tmp_path, "--out")
    check_output_folder(tmp_path / "new" / "deep", "--out")
    assert not (tmp_path / "new").exists()


def test_check_output_folder_unusable_raises_config_error_with_flag(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigError, match=rf"--out {file}/x: cannot be written \({file} is a file\); choose another"):
        check_output_folder(file / "x", "--out")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("nppsim.io.files.shutil.disk_usage", lambda path: usage._replace(free=10**9))
    check_output_folder(tmp_path, "--out", 10**9)
    with pytest.raises(ConfigError, match=r"too full: 2\.5 GB may be needed, 1\.0 GB are free; make room"):
        check_output_folder(tmp_path, "--out", 2_500_000_000)
    monkeypatch.setattr("nppsim.io.files.os.access", lambda path, mode: False)
    with pytest.raises(ConfigError, match="--out"):
        check_output_folder(tmp_path, "--out")


@pytest.mark.parametrize(
    ("name", "message"),
    [("a.gif", "give a name that ends in .png"), ("", "is a folder; give"), ("file.png/b.png", "is a file")],
)
def test_check_output_file_unusable_raises_config_error_with_flag(tmp_path, name, message):
    (tmp_path / "file.png").touch()
    check_output_file(tmp_path / "new" / "A.PNG", "--out", ".png")
    check_output_file(tmp_path / "file.png", "--out", ".png")
    with pytest.raises(ConfigError, match=f"--out {tmp_path}.*: .*{message}"):
        check_output_file(tmp_path / name, "--out", ".png" if name else "")


def test_table_is_aligned_markdown():
    assert table(["name", "n"], [["a", 1], ["bc", 10]]).split("\n") == [
        "| name |  n |",
        "|------|---:|",
        "| a    |  1 |",
        "| bc   | 10 |",
    ]
