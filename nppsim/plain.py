"""Conversion of plain JSON values to dataclasses, the inverse of ``dataclasses.asdict``.

    from_plain(Plan, json.loads(text))     # PlainError names the first invalid place

Missing fields, unknown fields and values of another type are errors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from nppsim.errors import UserError


class PlainError(UserError, ValueError):
    """Invalid plain values; the message names the place."""


def from_plain(kind: Any, data: object, place: str = "") -> Any:
    """Convert ``data`` to a value of type ``kind``.

    kind: a dataclass, another type, or a generic such as ``int | None``, ``tuple[str, ...]``, ``Mapping[str, float]``.
    data: dictionaries, lists or tuples, strings, numbers, booleans, None.
    place: origin of the data, with which the message of a PlainError begins.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if kind in (Any, object):
        return data
    if origin in (Union, UnionType):
        return _one_of(parts, data, place)
    if is_dataclass(kind) and isinstance(data, Mapping):
        return _record(kind, data, place)
    if origin is tuple and isinstance(data, Sequence) and not isinstance(data, str):
        kinds = [parts[0]] * len(data) if parts[1:] == (...,) else parts
        if len(kinds) == len(data):
            return tuple(from_plain(*pair, f"{place}[{i}]") for i, pair in enumerate(zip(kinds, data, strict=True)))
    if (kind is list or origin in (list, Sequence)) and isinstance(data, (list, tuple)):
        return [from_plain(parts[0] if parts else Any, item, f"{place}[{i}]") for i, item in enumerate(data)]
    if (kind is dict or origin in (dict, Mapping)) and isinstance(data, Mapping):
        return {name: from_plain(parts[1] if parts else Any, item, f"{place}.{name}") for name, item in data.items()}
    if kind is Path and isinstance(data, str) and "\0" not in data:
        return Path(data)
    if kind is float and type(data) is int and abs(data) < 1 << 1023:  # larger ones have no float
        return float(data)
    if isinstance(kind, type) and isinstance(data, kind) and (kind is bool or not isinstance(data, bool)):
        return data
    raise PlainError(f"{place or 'value'}: {data!r} is no {getattr(kind, '__name__', kind)}")


def _one_of(kinds: tuple[Any, ...], data: object, place: str) -> Any:
    if data is None and NoneType in kinds:
        return None
    errors = []
    for kind in kinds:
        if kind is not NoneType:
            try:
                return from_plain(kind, data, place)
            except PlainError as error:
                errors.append(error)
    raise errors[0]


def _record(kind: Any, data: Mapping, place: str) -> Any:
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind) if field.init]
    odd = sorted(set(known) ^ set(data))
    if odd:
        state = "is missing" if odd[0] in known else "is unknown"
        raise PlainError(f"{place or kind.__name__}: {odd[0]} {state}")
    return kind(**{name: from_plain(hints[name], data[name], f"{place}.{name}".lstrip(".")) for name in known})
