"""Lossless conversion between nested data and JSON with tensors, for checkpoints.

    plain, tensors = pack({"moments": torch.zeros(3), "seed": 2**100}, "training")
    unpack(plain, tensors)

JSON values are stored in ``plain`` unchanged.  Everything else becomes a dictionary with one key:

    {"$tensor": NAME}                                    the tensor tensors[NAME]
    {"$array": NAME}                                     the numpy array with the values of tensors[NAME]
    {"$array": [NAME, dtype, shape]}                     a numpy array whose dtype torch lacks; tensors[NAME] has its bytes
    {"$tuple": [...]}  {"$bytes": hexadecimal}  {"$float": "nan", "inf" or "-inf"}
    {"$dict": [[key, value], ...]}                       a dictionary with keys that are not texts or begin with "$"
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

_TENSOR_KINDS = "biuf"  # kinds of numpy dtypes that torch also has, in native byte order and up to 8 bytes


class PackingError(ValueError):
    """Data of an unsupported type, or invalid packed data."""


def pack(value: Any, prefix: str) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return JSON data and tensors by name; the tensors are copies on the CPU.

    value: nested dicts, lists and tuples of tensors, numpy arrays, numbers, texts, bytes and None; numpy scalars become
        Python numbers.
    prefix: name of the value, with which the names of its tensors begin.
    Raises PackingError for other types.
    """
    tensors: dict[str, torch.Tensor] = {}
    return _pack(value, prefix, tensors), tensors


def _pack(value: Any, prefix: str, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_quantized:
            raise PackingError(f"{prefix} is a sparse or quantised tensor: save a dense one")
        return {"$tensor": _add(value.detach().cpu().clone(memory_format=torch.contiguous_format), prefix, tensors)}
    if isinstance(value, np.ndarray):
        return {"$array": _pack_array(value, prefix, tensors)}
    if isinstance(value, Mapping):
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: _pack(item, f"{prefix}.{key}", tensors) for key, item in value.items()}
        pairs = [[_pack(key, f"a key of {prefix}", tensors), value[key]] for key in value]
        return {"$dict": [[key, _pack(item, f"{prefix}.{key}", tensors)] for key, item in pairs]}
    if type(value) in (list, tuple):
        items = [_pack(item, f"{prefix}[{i}]", tensors) for i, item in enumerate(value)]
        return items if type(value) is list else {"$tuple": items}
    if type(value) is bytes:
        return {"$bytes": value.hex()}
    if type(value) is float and not math.isfinite(value):
        return {"$float": str(value)}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise PackingError(f"{prefix} is a {type(value).__name__}: convert it to numbers, texts, arrays or dicts")


def _pack_array(array: np.ndarray, prefix: str, tensors: dict[str, torch.Tensor]) -> Any:
    dtype = array.dtype
    if dtype.hasobject:
        raise PackingError(f"{prefix} is an array of Python objects: save numbers")
    if dtype.kind in _TENSOR_KINDS and dtype.isnative and dtype.itemsize <= 8:
        return _add(torch.from_numpy(np.array(array, order="C")), prefix, tensors)
    name = _add(torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy()), prefix, tensors)
    return [name, _pack(np.lib.format.dtype_to_descr(dtype), prefix, tensors), list(array.shape)]


def _add(tensor: torch.Tensor, prefix: str, tensors: dict[str, torch.Tensor]) -> str:
    """Add a tensor under a unique name that begins with ``prefix``; return the name."""
    name = prefix
    while name in tensors:
        name += "'"
    tensors[name] = tensor
    return name


def unpack(plain: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Restore the value that was passed to ``pack``.  Raises PackingError unless ``plain`` names each tensor once."""
    left = dict(tensors)
    try:
        value = _unpack(plain, left)
    except PackingError:
        raise
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError, SyntaxError) as error:
        raise PackingError(f"{type(error).__name__}: {error}") from error  # RuntimeError includes RecursionError
    if left:
        raise PackingError(f"nothing refers to the tensor {min(left)}")
    return value


def _unpack(plain: Any, left: dict[str, torch.Tensor]) -> Any:
    if isinstance(plain, list):
        return [_unpack(item, left) for item in plain]
    if not isinstance(plain, dict):
        return plain
    kind = next(iter(plain), "")
    if not kind.startswith("$"):
        return {key: _unpack(item, left) for key, item in plain.items()}
    ((kind, content),) = plain.items()
    match kind:
        case "$tensor":
            return left.pop(content)
        case "$array":
            return left.pop(content).numpy() if isinstance(content, str) else _unpack_array(content, left)
        case "$tuple":
            return tuple(_unpack(item, left) for item in content)
        case "$dict":
            return {_unpack(key, left): _unpack(item, left) for key, item in content}
        case "$bytes":
            return bytes.fromhex(content)
        case "$float":
            return float(content)
    raise PackingError(f"unknown kind of packed data: {kind}")


def _unpack_array(content: list, left: dict[str, torch.Tensor]) -> np.ndarray:
    name, description, shape = content
    dtype = np.lib.format.descr_to_dtype(_unpack(description, left))
    if dtype.hasobject:
        raise PackingError(f"{name} would be an array of Python objects")
    return np.frombuffer(left.pop(name).numpy().tobytes(), dtype).reshape(shape).copy()
