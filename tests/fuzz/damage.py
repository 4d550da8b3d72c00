"""Functions that damage a file: its bytes, or the structure of its format, with checksums computed again where it has some.

Each takes the bytes of a valid file and a random generator, and returns the damaged bytes.
"""

import base64
import copy
import io
import json
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from nppsim.errors import UserError, import_optional
from rl.policy import checkpoint
from rl.policy.onnx import METADATA

Damage = Callable[[bytes, np.random.Generator], bytes]

_BOMB = 1 << 26  # bytes of zeros, which compress to a thousandth


@dataclass(frozen=True)
class Reader:
    """A reader, and how to attack it.

    name: name on the command line and in tables.
    file: name of the damaged file, in an empty folder.
    read: reads the whole file of a path.
    valid: writes valid files below a folder; returns the paths.
    damages: functions that damage the bytes of such a file.
    """

    name: str
    file: str
    read: Callable[[Path], object]
    valid: Callable[[Path], Sequence[Path]]
    damages: tuple[Damage, ...]


SIZES = (0, 1, 7, 255, 65535, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 22 << 30, 1 << 62, (1 << 64) - 1)
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**70, 10**400, 0.5, -1e308, float("nan"), float("inf")),
    *("", "x", "\0", "é" * 50, "../../etc", "1" * 5000, [], {}, [[]], [1] * 100, {"": {}}, {"$tensor": "x"}),
    base64.b64encode(zlib.compress(bytes(_BOMB), 9)).decode(),
    *({"$array": ["x", "|O", [1]]}, {"$array": ["x", "V999999999", [1 << 40]]}, {"$dict": [[[], 1]]}, {"$float": "x"}),
)


def named(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Wrap a reader whose errors do not name the file, so that they do."""

    def reading(path: Path) -> Any:
        try:
            return read(path)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    return reading


def in_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """Flip bits, overwrite numbers, delete, repeat or truncate parts; sometimes return only noise."""
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


def in_place(data: bytes, rng: np.random.Generator) -> bytes:
    """Overwrite bytes and numbers without a change of any length."""
    array = bytearray(data)
    for _ in range(rng.integers(1, 12)):
        width = int(rng.choice((1, 1, 1, 2, 4)))
        place = int(rng.integers(max(len(array) - width, 1)))
        array[place : place + width] = rng.bytes(width)
    return bytes(array[: len(data)])


def in_words(data: bytes, rng: np.random.Generator) -> bytes:
    """Replace words of a text; delete, repeat or exchange lines."""
    lines = data.decode("utf-8", "replace").split("\n")
    for _ in range(rng.integers(1, 4)):
        one, other = (int(i) for i in rng.integers(len(lines), size=2))
        words = lines[one].split(" ")
        match rng.integers(8):
            case 0 if len(lines) > 1:
                del lines[one]
            case 1:
                lines.insert(other, lines[one])
            case 2:
                lines[one], lines[other] = lines[other], lines[one]
            case 3 | 4 if lines[one]:
                at, of = int(rng.integers(len(lines[one]))), int(rng.integers(len(data)))
                lines[one] = lines[one][:at] + chr(data[of]) + lines[one][at + 1 :]
            case _:
                values = (*VALUES[:19], -7, 3, 64, 255, 256, '"', "[" * 2000, "{a=" * 500, "1_0", "-0.25", "\u0661")
                words[rng.integers(len(words))] = str(values[rng.integers(len(values))])
                lines[one] = " ".join(words)
    damaged = "\n".join(lines).encode("utf-8", "replace")
    return damaged if rng.random() < 0.8 else in_bytes(damaged, rng)


def in_toml(data: bytes, rng: np.random.Generator) -> bytes:
    """Replace, delete or move a value of a TOML file."""
    return _toml(change_value(tomllib.loads(data.decode()), rng)).encode("utf-8", "replace")


def _toml(value: Any) -> str:
    """Format a value as TOML."""
    if not isinstance(value, dict):
        return "'none'" if value is None else json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")
    tables = {name: one for name, one in value.items() if isinstance(one, dict)}
    lines = [f"{json.dumps(name)} = {_toml(one)}" for name, one in value.items() if name not in tables]
    return "\n".join(lines + [f"[{json.dumps(name)}]\n{_toml(one)}" for name, one in tables.items()])


def in_zlib(data: bytes, rng: np.random.Generator) -> bytes:
    """Damage the decompressed bytes of a zlib stream; or return a decompression bomb."""
    if rng.random() < 0.01:
        return zlib.compress(bytes(_BOMB), 9)
    return zlib.compress(in_bytes(zlib.decompress(data), rng))


def in_json(data: bytes, rng: np.random.Generator) -> bytes:
    """Replace, delete or move a value of a JSON file; or return deeply nested JSON."""
    if rng.random() < 0.01:
        return bytes(rng.choice([b"[", b'{"a":'])) * int(rng.choice([100, 3000, 200_000]))
    if rng.random() < 0.2:
        return in_bytes(data, rng)
    return json.dumps(change_value(json.loads(data), rng)).encode()


def change_value(value: Any, rng: np.random.Generator) -> Any:
    """Return a copy of a JSON value with one to three changes."""
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
        match rng.integers(6):
            case 4 | 5 if type(parent[key]) in (int, float):
                parent[key] = type(parent[key])(rng.integers(-2, rng.choice((4, 70, 300))))
            case 0 if parent is not holder:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[str(VALUES[rng.integers(13, 19)])] = parent[key]
            case _:
                parent[key] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
        if not holder[0]:
            break
    return holder[0]


def in_json_lines(data: bytes, rng: np.random.Generator) -> bytes:
    """Damage a line as JSON; delete, repeat or exchange lines."""
    lines = data.splitlines()
    at, other = (int(i) for i in rng.integers(len(lines), size=2))
    match rng.integers(6):
        case 0:
            return in_bytes(data, rng)
        case 1:
            lines[at], lines[other] = lines[other], lines[at] * int(rng.integers(3))
        case _:
            lines[at] = in_json(lines[at], rng)
    return b"\n".join(lines) + b"\n" * int(rng.integers(3))


def in_csv(data: bytes, rng: np.random.Generator) -> bytes:
    """Replace a cell, also by very long fields or open quotes."""
    rows = [line.split(b",") for line in data.splitlines()]
    row = rows[rng.integers(len(rows))]
    cells = (b"", b"-1", b"x", b"1e9", b"9" * 30, b"9" * 5000, b'"', b"\0", b"\xff", b"a" * 200_000, b",,,")
    row[rng.integers(len(row))] = cells[rng.integers(len(cells))]
    damaged = b"\n".join(b",".join(row) for row in rows)
    return damaged if rng.random() < 0.8 else in_bytes(damaged, rng)


def in_checkpoint(data: bytes, rng: np.random.Generator, part: str = "") -> bytes:
    """Change the fields or a tensor of a checkpoint and sign it again, as an attacker could.

    part: name of the field to damage; "" for any.
    """
    described, tensors = checkpoint.parse(data)
    content = described["content"]
    if rng.random() < 0.5:
        content = {**content, part: change_value(content[part], rng)} if part else change_value(content, rng)
    else:
        # sorted: safetensors gives them in another order in each process
        names = [name for name in sorted(tensors) if name.startswith(part) and tensors[name].numel()]
        name = names[rng.integers(len(names))]
        tensor = tensors[name]
        match rng.integers(6):
            case 0:
                del tensors[name]
            case 1:
                tensors[name] = tensor.reshape(-1)[: int(rng.integers(tensor.numel() + 1))].clone()
            case 2:
                tensors[name] = tensor.to(torch.float64).clone()
            case 3:
                tensors[name] = torch.full_like(tensor, float(rng.choice([0, 1, 100])))
            case _:
                changed = bytearray(in_place(tensor.numpy().tobytes(), rng))
                tensors[name] = torch.frombuffer(changed, dtype=tensor.dtype).reshape(tensor.shape)
    return checkpoint.pack(content, tensors) if isinstance(content, dict) else data[:-1]


def in_events(data: bytes, rng: np.random.Generator) -> bytes:
    """Damage, delete or repeat TensorBoard events, each with a correct checksum."""
    records, at = [], 0
    while at + 12 <= len(data):  # length in 8 bytes, its checksum in 4, the event, its checksum in 4
        length = int.from_bytes(data[at : at + 8], "little")
        records.append(data[at + 12 : at + 12 + length])
        at += 16 + length
    for _ in range(rng.integers(1, 4)):
        place = int(rng.integers(len(records)))
        records[place : place + 1] = [in_bytes(records[place], rng)] * int(rng.choice((0, 1, 1, 1, 1, 2)))
        records = records or [b""]
    out = io.BytesIO()
    writer = import_optional("tensorboard.summary.writer.record_writer", "train").RecordWriter(out)
    for record in records:
        writer.write(record)
    if rng.random() < 0.1:  # the length of one that is not there
        size = int(rng.choice(np.array(SIZES, object))).to_bytes(8, "little")
        crc = import_optional("tensorboard.compat.tensorflow_stub.pywrap_tensorflow", "train").masked_crc32c(size)
        out.write(size + int(crc).to_bytes(4, "little"))
    return out.getvalue()


def in_zip(data: bytes, rng: np.random.Generator) -> bytes:
    """Damage, delete or inflate a member of a ZIP archive, with a correct checksum."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = list(members)[rng.integers(len(members))]
    match rng.integers(8):
        case 0:
            del members[name]
        case 1:
            members[name] = bytes(_BOMB)
        case _:
            members[name] = (in_json if members[name].startswith(b"{") else in_bytes)(members[name], rng)
    return zipped(members)


def zipped(members: dict[str, bytes]) -> bytes:
    """Return a ZIP archive without dates."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def in_onnx(data: bytes, rng: np.random.Generator) -> bytes:
    """Change the metadata of a network, the shape, type or bytes of a tensor, or an attribute of an operation."""
    model = import_optional("onnx", "onnx").ModelProto.FromString(data)
    if rng.random() < 0.5:
        (entry,) = (one for one in model.metadata_props if one.key == METADATA)
        entry.value = json.dumps(change_value(json.loads(entry.value), rng))
        return bytes(model.SerializeToString())
    node, tensor = (of[rng.integers(len(of))] for of in (model.graph.node, model.graph.initializer))
    size = int(rng.choice(np.array([-1, *SIZES], object))) % (1 << 63)
    match rng.integers(6):
        case 0:
            tensor.dims[:] = [size] * int(rng.integers(4))
        case 1:
            tensor.data_type = int(rng.integers(25))
        case 2:
            tensor.raw_data = in_bytes(tensor.raw_data, rng)
        case 3 if node.attribute:
            node.attribute[rng.integers(len(node.attribute))].i = size
        case 4 if node.input:
            node.input[rng.integers(len(node.input))] = tensor.name
        case _:
            model.graph.input[rng.integers(len(model.graph.input))].type.tensor_type.shape.dim.add().dim_value = size
    return bytes(model.SerializeToString())


def in_hdf5(data: bytes, rng: np.random.Generator) -> bytes:
    """Rewrite the structure of an HDF5 file: other types and shapes, exchanged groups, external links, huge sizes."""
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
    if (
        kind == 0 and values.size and not values.dtype.hasobject and values.shape == file[name].shape
    ):  # other values, of the same type
        for at in rng.integers(values.size, size=rng.integers(1, 9)):
            values.reshape(-1)[at] = np.frombuffer(rng.bytes(values.itemsize), values.dtype)[0]
        file[name][...] = values
        return
    if kind == 1:
        file.attrs["version" if rng.random() < 0.5 else "format_version"] = VALUES[rng.integers(3, 6)]
        return
    if kind == 2 and other in file and not other.startswith(name) and not name.startswith(other):
        file.move(name, "swapped")  # change places
        file.move(other, name)
        file.move("swapped", other)
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
