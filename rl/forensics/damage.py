"""Ways to damage a file: by bytes, by the structure of JSON or HDF5, and under a new SHA-256 for checkpoints.

Each takes the bytes of a valid file and a random generator, and returns other bytes; the same generator gives the same.
"""

import copy
import io
import json
import zlib
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np
import torch

from rl.policy import checkpoint

Damage = Callable[[bytes, np.random.Generator], bytes]

SIZES = (0, 1, 7, 255, 65535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 22 << 30, 1 << 62, (1 << 64) - 1)
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**70, 10**400, 0.5, -1e308, float("nan"), float("inf")),
    *("", "x", "\0", "é" * 50, "../../etc", "1" * 5000, [], {}, [[]], [1] * 100, {"": {}}, {"$tensor": "x"}),
    *({"$array": ["x", "|O", [1]]}, {"$array": ["x", "V999999999", [1 << 40]]}, {"$dict": [[[], 1]]}, {"$float": "x"}),
)
_BOMB = 1 << 26  # bytes of zeros behind a chunk of a thousandth of that


def in_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """Bits turned, numbers overwritten, parts cut out, repeated or cut off; sometimes nothing but noise."""
    array = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        place = int(rng.integers(len(array) + 1) if rng.random() < 0.5 else rng.integers(min(len(array), 64) + 1))
        other = int(rng.integers(len(array) + 1))
        match rng.integers(8):
            case 0 | 1 if place < len(array):
                array[place] ^= 1 << int(rng.integers(8))
            case 2 | 3:
                width = int(rng.choice((1, 2, 4, 8)))
                size = int(rng.choice(np.array([*SIZES, len(data), len(data) + 1], object))) % (1 << 8 * width)
                array[place : place + width] = size.to_bytes(width, "little")
            case 4:
                del array[place:]
            case 5:
                del array[min(place, other) : max(place, other)]
            case 6:
                array[place:place] = array[other : other + int(rng.integers(1, 200))]
            case 7:
                array[place : place + 16] = rng.bytes(int(rng.integers(1, 17)))
    return rng.bytes(int(rng.integers(3000))) if rng.random() < 0.02 else bytes(array)


def in_zlib(data: bytes, rng: np.random.Generator) -> bytes:
    """The unpacked bytes of a zlib stream damaged; or a bomb."""
    if rng.random() < 0.01:
        return zlib.compress(bytes(_BOMB), 9)
    return zlib.compress(in_bytes(zlib.decompress(data), rng))


def in_json(data: bytes, rng: np.random.Generator) -> bytes:
    """A value replaced, left out or put elsewhere; or nesting without end."""
    if rng.random() < 0.01:
        return bytes(rng.choice([b"[", b'{"a":'])) * int(rng.choice([100, 3000, 200_000]))
    if rng.random() < 0.2:
        return in_bytes(data, rng)
    return json.dumps(change_value(json.loads(data), rng)).encode()


def change_value(value: Any, rng: np.random.Generator) -> Any:
    """A copy of a JSON value with one to three changes."""
    holder = [copy.deepcopy(value)]
    for _ in range(rng.integers(1, 4)):
        parent: Any = holder
        while True:
            key = (
                list(parent)[rng.integers(len(parent))] if isinstance(parent, dict) else int(rng.integers(len(parent)))
            )
            if not isinstance(parent[key], dict | list) or not parent[key] or rng.random() < 0.15:
                break
            parent = parent[key]
        match rng.integers(4):
            case 0 if parent is not holder:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[str(VALUES[rng.integers(13, 19)])] = parent[key]
            case _:
                parent[key] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
        if not holder[0]:
            break
    return holder[0]


def in_csv(data: bytes, rng: np.random.Generator) -> bytes:
    """A cell replaced; or a field too long, a quotation that does not end."""
    rows = [line.split(b",") for line in data.splitlines()]
    row = rows[rng.integers(len(rows))]
    cells = (b"", b"-1", b"x", b"1e9", b"9" * 30, b"9" * 5000, b'"', b"\0", b"\xff", b"a" * 200_000, b",,,")
    row[rng.integers(len(row))] = cells[rng.integers(len(cells))]
    damaged = b"\n".join(b",".join(row) for row in rows)
    return damaged if rng.random() < 0.8 else in_bytes(damaged, rng)


def in_checkpoint(data: bytes, rng: np.random.Generator) -> bytes:
    """The fields changed, or a tensor, under a SHA-256 that fits: what somebody can write who means harm."""
    described, tensors = checkpoint.parse(data)
    content = described["content"]
    if rng.random() < 0.5:
        content = change_value(content, rng)
    else:
        name = list(tensors)[rng.integers(len(tensors))]
        tensor = tensors[name]
        match rng.integers(4):
            case 0:
                del tensors[name]
            case 1:
                tensors[name] = tensor.reshape(-1)[: int(rng.integers(tensor.numel() + 1))].clone()
            case 2:
                tensors[name] = tensor.to(torch.float64).clone()
            case 3:
                tensors[name] = torch.full_like(tensor, float(rng.choice([0, 1, 200])))
    return checkpoint.sign(content, tensors) if isinstance(content, dict) else data[:-1]


def in_hdf5(data: bytes, rng: np.random.Generator) -> bytes:
    """The structure rewritten: other types and shapes, groups exchanged, links to elsewhere, sizes that nothing fills."""
    image = io.BytesIO(data)
    with h5py.File(image, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        datasets = [name for name in names if isinstance(file[name], h5py.Dataset)]
        for _ in range(rng.integers(1, 3)):
            name = datasets[rng.integers(len(datasets))]
            here = name in file and isinstance(file.get(name, getlink=True), h5py.HardLink)
            if here and isinstance(file[name], h5py.Dataset):
                _change_dataset(file, name, names[rng.integers(len(names))], rng)
    damaged = image.getvalue()
    return damaged if rng.random() < 0.8 else in_bytes(damaged, rng)


def _change_dataset(file: h5py.File, name: str, other: str, rng: np.random.Generator) -> None:
    values = file[name][()] if file[name].nbytes < _BOMB else np.zeros(3, np.uint8)
    shape = tuple(int(n) for n in rng.choice([0, 1, 3, 1 << 20, 22 << 30, 1 << 40], int(rng.integers(1, 4))))
    kind = rng.integers(12)
    if kind == 0 and values.size and values.shape == file[name].shape:  # other values, of the same type
        values.reshape(-1)[rng.integers(values.size)] = np.frombuffer(rng.bytes(values.itemsize), values.dtype)[0]
        file[name][...] = values
        return
    if kind == 1:
        file.attrs["version" if rng.random() < 0.5 else "format_version"] = VALUES[rng.integers(3, 6)]
        return
    if kind == 2 and other in file and not other.startswith(name) and not name.startswith(other):
        file.move(name, "kept")  # change places
        file.move(other, name)
        file.move("kept", other)
        return
    del file[name]
    match kind:
        case 3:
            file[name] = h5py.SoftLink("/" + other)
        case 4:
            file[name] = h5py.ExternalLink("/etc/hostname", "/x")
        case 5:  # declared and never written
            file.create_dataset(
                name,
                shape,
                values.dtype.base,
                chunks=tuple(min(n, 100) or 1 for n in shape),
                maxshape=[None] * len(shape),
            )
        case 6:
            file.create_dataset(name, (1 << 20,), "u1", external=[("/etc/hostname", 0, 1 << 20)])
        case 7:
            file.create_dataset(name, data=["text"] * 3, dtype=h5py.string_dtype())
        case 8:  # a chunk that unpacks to a thousand times its size
            bomb = file.create_dataset(name, (_BOMB * 8,), "u1", chunks=(_BOMB,), compression="gzip")
            bomb.id.write_direct_chunk((0,), zlib.compress(bytes(_BOMB), 9))
        case 9:
            file.create_group(name)
        case 10:
            file[name] = (
                values.astype(str(rng.choice(["f4", "i8", "u1", "S3", "?"]))) if values.dtype.kind in "iub" else 1
            )
        case _:
            file[name] = values.reshape(-1)[: int(rng.integers(values.size + 1))]
