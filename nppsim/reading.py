"""Files from anywhere, found, and read within bounds: what is too large is refused before it is read, what is no JSON
by name."""

import json
import math
import os
import tomllib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from nppsim.errors import UserError

MAX_JSON_BYTES = 64 << 20  # the index of 200,000 levels; parsed, a text takes up to some twenty times its size
_PART_BYTES = 1 << 20


def files_below(
    folder: str | Path,
    error: type[UserError],
    wanted: Callable[[Path], bool] = lambda file: True,
    enter: Callable[[Path], bool] = lambda folder: True,
) -> Iterator[Path]:
    """The files in a folder and its sub-folders, in no order; hidden ones (``.name``) are left alone, links are followed.

    wanted: by its name, whether a file counts.
    enter: whether to look into a sub-folder.
    ``error`` for a folder that cannot be read, for a wanted link that leads nowhere, and for a wanted pipe or device.
    """
    return _files_below(Path(folder), error, wanted, enter, frozenset())


def _files_below(
    folder: Path,
    error: type[UserError],
    wanted: Callable[[Path], bool],
    enter: Callable[[Path], bool],
    above: frozenset[tuple[int, int]],
) -> Iterator[Path]:
    """above: devices and numbers of the folders around ``folder``, so that no link to one of them leads on for ever."""
    try:
        stat = os.stat(folder)
        names = sorted(os.listdir(folder))
    except OSError as problem:
        raise error(f"{problem.filename}: cannot be read ({problem.strerror}); check its permissions") from problem
    if (this := (stat.st_dev, stat.st_ino)) in above:
        return
    for path in (folder / name for name in names if not name.startswith(".")):
        if path.is_dir():
            if enter(path):
                yield from _files_below(path, error, wanted, enter, above | {this})
        elif wanted(path):
            if not path.is_file():
                what = "is a link that leads nowhere" if path.is_symlink() else "is no file, but a pipe or a device"
                raise error(f"{path}: {what}; mend it, or move it away")
            yield path


def read_bytes(path: str | Path, error: type[UserError], limit: int, remedy: str) -> bytes:
    """All bytes of a file of at most ``limit`` bytes; ``error``, which names file and remedy, if it cannot be had."""
    try:
        with open(path, "rb") as file:
            data = read_at_most(file, limit + 1)
    except IsADirectoryError as problem:
        raise error(f"{path}: is a folder; give a file") from problem
    except OSError as problem:
        raise error(f"{path}: cannot be read ({problem.strerror}); {remedy}") from problem
    if len(data) > limit:
        raise error(f"{path}: more than {limit:,} bytes, which is too large for such a file; {remedy}")
    return data


def read_at_most(file: BinaryIO, limit: int) -> bytes:
    """What is left in a file, of which ``limit`` bytes at most; ``file.read(limit)`` would ask for memory for all of them."""
    data = bytearray()
    while len(data) < limit and (part := file.read(min(_PART_BYTES, limit - len(data)))):
        data += part
    return bytes(data)


def read_json(path: str | Path, error: type[UserError], remedy: str, limit: int = MAX_JSON_BYTES) -> Any:
    """The value of a JSON file of at most ``limit`` bytes; ``error``, which names file and remedy, if it is none."""
    return parse_json(read_bytes(path, error, limit, remedy), path, error, remedy)


def parse_json(data: bytes, place: object, error: type[UserError], remedy: str) -> Any:
    """The value of some JSON; ``error``, which names ``place`` and remedy, if it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as problem:  # ValueError: no UTF-8 either, or a number of thousands of digits
        raise error(f"{place}: not JSON ({problem}); {remedy}") from problem


def read_toml(path: str | Path, error: type[UserError], limit: int, remedy: str) -> dict[str, Any]:
    """The tables of a TOML file of at most ``limit`` bytes; ``error``, which names file and remedy, if it is none."""
    try:
        data = tomllib.loads(read_bytes(path, error, limit, remedy).decode())
        str(data)  # no message could tell a number of thousands of digits
    except (ValueError, RecursionError) as problem:
        raise error(f"{path}: no TOML ({problem}); {remedy}") from problem
    return data


def inflate(data: bytes, limit: int) -> bytes:
    """The unpacked bytes of a zlib stream, ``limit`` at most.  ValueError for more, and for what is no such stream."""
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(data, limit)
    except zlib.error as error:
        raise ValueError(f"the zlib stream is damaged: {error}") from error
    if not stream.eof or stream.unused_data:
        raise ValueError(f"the zlib stream is cut off, or has more than {limit:,} bytes")
    return unpacked


def mismatch(value: Any, shape: Any, place: str = "") -> str:
    """Where a JSON value is not of a shape, and what is expected there; "" if it is.

    shape: str, int (no truth values), float (finite, or an int) or bool; None; a tuple of shapes, one of which must fit;
        [shape] for a list of such; a dictionary of what its keys must have (others are ignored), where the key ``...``
        stands for every key.
    """
    if isinstance(shape, tuple):
        found = [mismatch(value, one, place) for one in shape]
        return "" if "" in found else found[0]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{place or 'the whole'} should be a list"
        return next(filter(None, (mismatch(item, shape[0], f"{place}[{i}]") for i, item in enumerate(value))), "")
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{place or 'the whole'} should be an object"
        wanted = dict.fromkeys(value, shape[...]) if ... in shape else shape
        if absent := [name for name in wanted if name not in value]:
            return f"{', '.join(absent)} missing" + (f" in {place}" if place else "")
        names = ((name, f"{place}.{name}" if place else name) for name in wanted)
        return next(filter(None, (mismatch(value[name], wanted[name], full) for name, full in names)), "")
    if shape is None:
        return "" if value is None else f"{place} should be null"
    if shape is float:
        fits = (type(value) is int and abs(value) < 1 << 1023) or (type(value) is float and math.isfinite(value))
    else:
        fits = type(value) is shape
    return "" if fits else f"{place or 'the whole'} should be {_NAMES[shape]}"


_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
