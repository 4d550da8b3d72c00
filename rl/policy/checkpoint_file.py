"""Container of checkpoints, without torch, whose import takes seconds; ``rl.policy.checkpoint`` describes the format."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy

FORMAT = "npp-checkpoint"


def pack(content: Mapping[str, Any], tensors: dict[str, np.ndarray], version: int) -> bytes:
    """Return the content of a file, with its SHA-256.  content: JSON fields; tensors: arrays by name."""
    described = {"format_version": version, "sha256": digest(content, tensors), "content": content}
    return safetensors.numpy.save(tensors, {FORMAT: json.dumps(described)})


def parse(data: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the entry FORMAT in the header of a safetensors file (None without one), and the arrays by name.

    Raises SafetensorError, ValueError or LookupError, among others, for damaged data.
    """
    tensors = safetensors.numpy.load(data)
    header = json.loads(data[8 : 8 + header_bytes(data)])
    return json.loads(header.get("__metadata__", {}).get(FORMAT, "null")), tensors


def header_bytes(data: bytes) -> int:
    """Return the size of the header, which the first eight bytes of a safetensors file contain."""
    return int.from_bytes(data[:8], "little")


def digest(content: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of fields and arrays as hex digits."""
    result = hashlib.sha256(json.dumps(content).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        result.update(f"\n{name} torch.{tensor.dtype} {list(tensor.shape)}\n".encode())
        result.update(np.ascontiguousarray(tensor).tobytes())
    return result.hexdigest()
