"""Dataclasses from plain values."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from nppsim.io.reading import PlainError, from_plain


@dataclass(frozen=True)
class Part:
    size: float
    note: str = ""


@dataclass(frozen=True)
class Whole:
    count: int
    parts: tuple[Part, ...]
    pair: tuple[int, str]
    by_name: Mapping[str, Part]
    choice: int | float | str | None
    place: Path | None
    anything: Any
    rows: tuple[dict[str, float], ...]


def test_from_plain_restores_asdict():
    whole = Whole(3, (Part(1.5), Part(2.0, "x")), (1, "a"), {"p": Part(0.1)}, 0.25, None, [1], ({"loss": 1.0},))
    assert from_plain(Whole, asdict(whole)) == whole
    assert from_plain(Whole, json.loads(json.dumps(asdict(whole)))) == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 1.5}, "count: 1.5 is not of type int"),
        ({"count": True}, "count: True is not of type int"),
        ({"parts": [{"size": 1.0}]}, r"parts\[0\]: note is missing"),
        ({"more": 1}, "Whole: more is unknown"),
        ({"pair": [1]}, r"pair: \[1\] is no"),
        ({"by_name": {"p": 3}}, "by_name.p: 3 is not of type Part"),
        ({"place": 3}, "place: 3 is not of type Path"),
    ],
)
def test_from_plain_invalid_data_raises_error(change, message):
    whole = Whole(3, (), (1, "a"), {}, None, Path("x"), None, ())
    with pytest.raises(PlainError, match=message):
        from_plain(Whole, {**asdict(whole), "place": "x", **change})
