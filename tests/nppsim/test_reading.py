"""Files from anywhere: sizes are bounded, and what is no JSON, or not of the expected shape, is told in one sentence."""

import json
import tracemalloc
import zlib

import pytest

from nppsim.errors import UserError
from nppsim.reading import inflate, mismatch, read_bytes, read_json


class Refused(UserError):
    pass


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 200_000, b"1" * 5000, b"{1: 2}"])
def test_what_is_no_json_is_refused_by_name(content, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(Refused, match=r"x\.json: not JSON \(.*\); mend it$"):
        read_json(path, Refused, "mend it")


def test_a_small_file_takes_little_memory_whatever_the_limit(tmp_path):
    (tmp_path / "a").write_bytes(b"123")
    tracemalloc.start()
    assert read_bytes(tmp_path / "a", Refused, 1 << 30, "") == b"123"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_file_is_read_to_its_limit_and_no_further(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    assert read_bytes(path, Refused, 3, "") == b"abc"
    with open(path, "r+b") as file:
        file.truncate(1 << 40)  # a hole
    with pytest.raises(Refused, match="x: more than 3 bytes, which is too large for such a file; cut it"):
        read_bytes(path, Refused, 3, "cut it")
    with pytest.raises(Refused, match="nowhere: cannot be read .No such file or directory.; look"):
        read_bytes(tmp_path / "nowhere", Refused, 3, "look")


SHAPE = {"name": str, "sizes": [int], "rate": (None, float), "by": {...: {"on": bool}}}


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({"name": "a", "sizes": [1], "rate": 1, "by": {"x": {"on": True}}, "more": 1}, ""),
        ({"name": "a", "sizes": [], "rate": None, "by": {}}, ""),
        ([], "the whole should be an object"),
        ({"name": "a"}, "sizes, rate, by missing"),
        ({"name": 1, "sizes": [], "rate": None, "by": {}}, "name should be a text"),
        ({"name": "a", "sizes": [True], "rate": None, "by": {}}, "sizes[0] should be a whole number"),
        ({"name": "a", "sizes": {}, "rate": None, "by": {}}, "sizes should be a list"),
        ({"name": "a", "sizes": [], "rate": json.loads("NaN"), "by": {}}, "rate should be null"),
        ({"name": "a", "sizes": [], "rate": 0.5, "by": {"x": {}}}, "on missing in by.x"),
        ({"name": "a", "sizes": [], "rate": 0.5, "by": {"x": {"on": 1}}}, "by.x.on should be true or false"),
    ],
)
def test_where_a_value_departs_from_its_shape_is_told(value, wrong):
    assert mismatch(value, SHAPE) == wrong


def test_a_zlib_stream_is_unpacked_to_its_limit():
    packed = zlib.compress(bytes(1000))
    assert inflate(packed, 1000) == bytes(1000)
    for data, limit in ((packed, 999), (packed[:-1], 1000), (packed + b"x", 1000), (b"no", 9)):
        with pytest.raises(ValueError, match="the zlib stream"):
            inflate(data, limit)
