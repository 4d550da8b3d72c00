"""Untrusted files: sizes are bounded; invalid JSON and unexpected shapes are refused in one sentence."""

import json
import os
import tracemalloc
import zlib

import pytest

from nppsim.errors import UserError
from nppsim.io.reading import files_below, inflate, mismatch, read_bytes, read_json


class Refused(UserError):
    pass


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 200_000, b"1" * 5000, b"{1: 2}"])
def test_read_json_damaged_file_raises_error_with_its_name(content, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(Refused, match=r"x\.json: not JSON \(.*\); mend it$"):
        read_json(path, Refused, "mend it")


def test_read_bytes_small_file_needs_little_memory_for_any_limit(tmp_path):
    (tmp_path / "a").write_bytes(b"123")
    tracemalloc.start()
    assert read_bytes(tmp_path / "a", Refused, 1 << 30, "") == b"123"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_read_bytes_above_the_limit_raises_error(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    assert read_bytes(path, Refused, 3, "") == b"abc"
    with open(path, "r+b") as file:
        file.truncate(1 << 40)  # a hole
    with pytest.raises(Refused, match="x: more than 3 bytes"):
        read_bytes(path, Refused, 3, "cut it")
    with pytest.raises(Refused, match="nowhere: cannot"):
        read_bytes(tmp_path / "nowhere", Refused, 3, "look")


SHAPE = {"name": str, "sizes": [int], "rate": (None, float), "by": {...: {"on": bool}}}


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({"name": "a", "sizes": [1], "rate": 1, "by": {"x": {"on": True}}, "more": 1}, ""),
        ({"name": "a", "sizes": [], "rate": None, "by": {}}, ""),
        ([], "the value should be an object"),
        ({"name": "a"}, "sizes, rate, by missing"),
        ({"name": 1, "sizes": [], "rate": None, "by": {}}, "name should be a text"),
        ({"name": "a", "sizes": [True], "rate": None, "by": {}}, "sizes[0] should be a whole number"),
        ({"name": "a", "sizes": {}, "rate": None, "by": {}}, "sizes should be a list"),
        ({"name": "a", "sizes": [], "rate": json.loads("NaN"), "by": {}}, "rate should be null"),
        ({"name": "a", "sizes": [], "rate": 0.5, "by": {"x": {}}}, "on missing in by.x"),
        ({"name": "a", "sizes": [], "rate": 0.5, "by": {"x": {"on": 1}}}, "by.x.on should be true or false"),
    ],
)
def test_mismatch_names_the_place(value, wrong):
    assert mismatch(value, SHAPE) == wrong


def test_files_below_descends_folders_and_links(tmp_path):
    for name in ("a.map", "deep/er/b.map", "deep/c.txt", ".hidden/d.map", ".e.map", "own/f.map"):
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/g.map").touch()
    (tmp_path / "folder/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/round").symlink_to(tmp_path / "folder")  # a circle
    (tmp_path / "folder/linked.map").symlink_to(tmp_path / "elsewhere/g.map")

    def found(**how):
        files = files_below(tmp_path / "folder", Refused, **how)
        return sorted(file.relative_to(tmp_path / "folder").as_posix() for file in files)

    maps = ["a.map", "deep/er/b.map", "linked.map", "linked/g.map", "own/f.map"]
    assert found() == sorted([*maps, "deep/c.txt"])
    assert found(wanted=lambda file: file.suffix == ".map", enter=lambda folder: folder.name != "own") == maps[:-1]


def test_files_below_other_than_files_raises_error(tmp_path):
    def found():
        return list(files_below(tmp_path, Refused, lambda file: file.suffix == ".map"))

    (tmp_path / "lost.txt").symlink_to("nowhere")
    assert found() == []
    (tmp_path / "lost.map").symlink_to("nowhere")
    with pytest.raises(Refused, match=r"lost\.map: is a broken link"):
        found()
    (tmp_path / "lost.map").unlink()
    os.mkfifo(tmp_path / "pipe.map")
    with pytest.raises(Refused, match=r"pipe\.map: is a pipe or a device"):
        found()
    with pytest.raises(Refused, match="absent: cannot be read"):
        list(files_below(tmp_path / "absent", Refused))


def test_inflate_above_the_limit_raises_error():
    packed = zlib.compress(bytes(1000))
    assert inflate(packed, 1000) == bytes(1000)
    for data, limit in ((packed, 999), (packed[:-1], 1000), (packed + b"x", 1000), (b"no", 9)):
        with pytest.raises(ValueError, match="the zlib stream"):
            inflate(data, limit)
