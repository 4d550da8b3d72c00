"""Search for files, bounded reading of untrusted JSON, TOML and zlib data, and conversion of data to dataclasses."""

import codecs
import json
import math
import os
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, BinaryIO, NoReturn, Union, get_args, get_origin, get_type_hints

from nppsim.errors import UserError

# Maximum size of a JSON file, enough for the index of 200,000 levels.  Parsed data need up to 20 times as much memory.
MAX_JSON_BYTES = 64 << 20
_PART_BYTES = 1 << 20
# Encodings of text files with a byte order mark; that of UTF-32 begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def files_below(
    folder: str | Path,
    error: type[UserError],
    wanted: Callable[[Path], bool] = lambda file: True,
    enter: Callable[[Path], bool] = lambda folder: True,
) -> Iterator[Path]:
    """Yield the files in a folder and its sub-folders.  Hidden files (``.name``) are skipped.  Links are followed, but
    each folder is searched only once.

    wanted: returns True for files to yield.
    enter: returns True for sub-folders to search.
    Raises ``error`` for an unreadable folder, and for a wanted file that is a broken link, a pipe or a device.
    """

    def unreadable(problem: OSError) -> NoReturn:
        raise error(f"{problem.filename}: cannot be read ({problem.strerror}); check its permissions") from problem

    seen = {os.path.realpath(folder)}
    for place, folders, files in os.walk(folder, onerror=unreadable, followlinks=True):
        here = Path(place)
        inner = sorted((here / name for name in folders if name[0] != "."), key=lambda path: (path.is_symlink(), path))
        folders[:] = sorted(path.name for path in inner if enter(path) and _is_new(path, seen))
        for path in (here / name for name in sorted(files) if not name.startswith(".")):
            if wanted(path):
                if not path.is_file():
                    what = "is a broken link" if path.is_symlink() else "is a pipe or a device, not a file"
                    raise error(f"{path}: {what}; repair or remove it")
                yield path


def _is_new(folder: Path, seen: set[str]) -> bool:
    """Return True if a folder, or the target of a link to it, is not in ``seen``; add it there."""
    target = os.path.realpath(folder)
    is_new = target not in seen
    seen.add(target)
    return is_new


def read_bytes(path: str | Path, error: type[UserError], limit: int, remedy: str) -> bytes:
    """Return the bytes of a file.  Raise ``error`` if the file is larger than ``limit`` bytes or cannot be read.

    remedy: last part of the error message, which begins with the path.
    """
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
    """Read at most ``limit`` bytes, in parts, because ``file.read(limit)`` would allocate ``limit`` bytes."""
    data = bytearray()
    while len(data) < limit and (part := file.read(min(_PART_BYTES, limit - len(data)))):
        data += part
    return bytes(data)


def as_utf8(data: bytes) -> bytes:
    """Convert the content of a text file to UTF-8 without byte order mark; UTF-16 and UTF-32 are recognised.

    Files in other encodings are returned unchanged.
    """
    mark = next(filter(data.startswith, _MARKS), b"")
    encoding = _MARKS.get(mark, "utf-8")
    # UTF-16 without mark, of text that is mostly ASCII
    if not mark and data.count(0, 0, 200) > min(len(data), 200) // 4:
        encoding = "utf-16-le" if data[1:200:2].count(0) > data[:200:2].count(0) else "utf-16-be"
    body = data[len(mark) :]
    return body if encoding == "utf-8" else body.decode(encoding, "replace").encode("utf-8", "replace")


def read_json(
    path: str | Path, error: type[UserError], remedy: str, limit: int = MAX_JSON_BYTES, shape: Any = Any
) -> Any:
    """Parse a JSON file.  Raise ``error`` if it is larger than ``limit`` bytes; see ``read_bytes`` and ``parse_json``."""
    return parse_json(read_bytes(path, error, limit, remedy), path, error, remedy, shape)


def read_object(
    path: str | Path, error: type[UserError], remedy: str, limit: int = MAX_JSON_BYTES, shape: Mapping = {}
) -> dict[str, Any]:
    """Parse a JSON file that contains an object; return {} if the file does not exist.  Raise ``error`` as ``read_json``."""
    return read_json(path, error, remedy, limit, shape) if Path(path).is_file() else {}


def parse_json(data: bytes, source: object, error: type[UserError], remedy: str, shape: Any = Any) -> Any:
    """Parse JSON.  Raise ``error`` for invalid JSON and for another shape.

    source, remedy: first and last part of the error message.
    shape: see ``mismatch``.
    """
    try:
        value = json.loads(data)
    # ValueError also for invalid UTF-8 and for integers of over 4,300 digits
    except (ValueError, RecursionError) as problem:
        raise error(f"{source}: not JSON ({problem}); {remedy}") from problem
    if wrong := mismatch(value, shape):
        raise error(f"{source}: {wrong}; {remedy}")
    return value


def read_toml(path: str | Path, error: type[UserError], limit: int, remedy: str) -> dict[str, Any]:
    """Parse a TOML file.  Raise ``error`` if it is invalid or larger than ``limit`` bytes; see ``read_bytes``."""
    try:
        data = tomllib.loads(as_utf8(read_bytes(path, error, limit, remedy)).decode())
        str(data)  # raises ValueError for an integer of over 4,300 digits, which could not be printed later
    except (ValueError, RecursionError) as problem:
        raise error(f"{path}: not TOML ({problem}); {remedy}") from problem
    return data


def inflate(data: bytes, limit: int) -> bytes:
    """Unpack a zlib stream.  Raise ValueError if it is damaged, or larger than ``limit`` bytes after unpacking."""
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(data, limit)
    except zlib.error as error:
        raise ValueError(f"the zlib stream is damaged: {error}") from error
    if not stream.eof or stream.unused_data:
        raise ValueError(f"the zlib stream is incomplete, or has more than {limit:,} bytes")
    return unpacked


def mismatch(value: Any, shape: Any, where: str = "") -> str:
    """Compare a JSON value with a shape.  Return the first mismatch (path and expected type), or "" if there is none.

    shape: a type or None; a tuple of alternative shapes; [shape] for a list; {key: shape} for an object, where the key
        ``...`` stands for every key.  Keys that the shape lacks are ignored.  Types are str, bool, int (excludes bool)
        and float (finite numbers, also integers); Any fits every value.
    where: path of the value within the data, for the message.
    """
    if shape is Any:
        return ""
    if isinstance(shape, tuple):
        found = [mismatch(value, one, where) for one in shape]
        return "" if "" in found else found[0]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where or 'the value'} should be a list"
        return next(filter(None, (mismatch(item, shape[0], f"{where}[{i}]") for i, item in enumerate(value))), "")
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{where or 'the value'} should be an object"
        wanted = dict.fromkeys(value, shape[...]) if ... in shape else shape
        if absent := [name for name in wanted if name not in value]:
            return f"{', '.join(absent)} missing" + (f" in {where}" if where else "")
        names = ((name, f"{where}.{name}" if where else name) for name in wanted)
        return next(filter(None, (mismatch(value[name], wanted[name], full) for name, full in names)), "")
    if shape is None:
        return "" if value is None else f"{where} should be null"
    if shape is float:
        fits = (type(value) is int and abs(value) < 1 << 1023) or (type(value) is float and math.isfinite(value))
    else:
        fits = type(value) is shape
    return "" if fits else f"{where or 'the value'} should be {_NAMES[shape]}"


_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


class PlainError(UserError, ValueError):
    """A value has the wrong type; the message contains its path in the data."""


def from_plain(kind: Any, data: object, where: str = "") -> Any:
    """Convert plain JSON values to a value of type ``kind``.  For dataclasses, this is the inverse of ``asdict``.

    kind: a dataclass, another type, or a generic such as ``int | None``, ``tuple[str, ...]``, ``Mapping[str, float]``.
    data: dictionaries, lists or tuples, strings, numbers, booleans, None.
    where: origin of the data, for the error message.
    Raises PlainError for a wrong type, and for missing and unknown fields of a dataclass.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if kind in (Any, object):
        return data
    if origin in (Union, UnionType):
        return _one_of(parts, data, where)
    if is_dataclass(kind) and isinstance(data, Mapping):
        return _record(kind, data, where)
    if origin is tuple and isinstance(data, Sequence) and not isinstance(data, str):
        kinds = [parts[0]] * len(data) if parts[1:] == (...,) else parts
        if len(kinds) == len(data):
            return tuple(from_plain(*pair, f"{where}[{i}]") for i, pair in enumerate(zip(kinds, data, strict=True)))
    if (kind is list or origin in (list, Sequence)) and isinstance(data, (list, tuple)):
        return [from_plain(parts[0] if parts else Any, item, f"{where}[{i}]") for i, item in enumerate(data)]
    if (kind is dict or origin in (dict, Mapping)) and isinstance(data, Mapping):
        return {name: from_plain(parts[1] if parts else Any, item, f"{where}.{name}") for name, item in data.items()}
    if kind is Path and isinstance(data, str) and "\0" not in data:
        return Path(data)
    if kind is float and type(data) is int and abs(data) < 1 << 1023:  # larger integers would overflow a float
        return float(data)
    if isinstance(kind, type) and isinstance(data, kind) and (kind is bool or not isinstance(data, bool)):
        return data
    raise PlainError(f"{where or 'value'}: {data!r} is not of type {getattr(kind, '__name__', kind)}")


def _one_of(kinds: tuple[Any, ...], data: object, where: str) -> Any:
    if data is None and NoneType in kinds:
        return None
    errors = []
    for kind in kinds:
        if kind is not NoneType:
            try:
                return from_plain(kind, data, where)
            except PlainError as error:
                errors.append(error)
    raise errors[0]


def _record(kind: Any, data: Mapping, where: str) -> Any:
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind) if field.init]
    unexpected = sorted(set(names) ^ set(data))
    if unexpected:
        state = "is missing" if unexpected[0] in names else "is unknown"
        raise PlainError(f"{where or kind.__name__}: {unexpected[0]} {state}")
    return kind(**{name: from_plain(hints[name], data[name], f"{where}.{name}".lstrip(".")) for name in names})
