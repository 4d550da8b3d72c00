"""Checkpoints: one file with everything that a policy needs to act, and optionally the state of training to resume from.

A file cannot run code when it is opened.  It has the safetensors format.  The weights are tensors named "policy.NAME".  The
tensor "training" has the bytes of ``torch.save``, which ``torch.load(weights_only=True)`` reads.  Other fields are JSON in
the header under "npp-checkpoint": ``{"format_version": 3, "sha256": ..., "content": fields}``.  The SHA-256 covers the fields
and the name, dtype, shape and bytes of each tensor.  From files of format 2, only weights and settings are read.
The fields are:

    architecture               name in rl.policy.architectures.ARCHITECTURES
    observations, layout       observation keys of the network, fingerprint of their layout and frame stacking
    frame_skip                 frames per decision during training
    precision                  "float32" or "bf16"
    policy                     state dict of the policy with its normaliser
    training                   None, or the state of training: optimiser, curriculum, random generators, counters
    config, versions           settings and versions of packages, as JSON
"""

import io
import json
import os
import pickle
import platform
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import stable_baselines3
import torch

from hardware import PRECISIONS
from nppsim.actions import FRAMES_PER_SECOND
from nppsim.errors import UserError
from nppsim.io.files import write_bytes
from nppsim.io.reading import mismatch
from nppsim.observe.statistics import StatisticsError
from rl.policy import checkpoint_file
from rl.policy.architectures import ArchitectureError, get_architecture
from rl.policy.checkpoint_file import header_bytes
from rl.policy.policy import NppPolicy, build_policy

FORMAT_VERSION = 3
READABLE = (2, 3)  # versions that ``load`` reads
SUFFIX = ".safetensors"
_FIELDS: dict = {  # shape for ``mismatch``
    **dict.fromkeys(("architecture", "layout", "precision"), str),
    **{name: {} for name in ("policy", "config", "versions")},
    "observations": [str],
    "frame_skip": int,
    "training": ({}, None),
}
_WEIGHTS_OF_TRAINING = ("optimizer", "reference")  # parts of ``training`` whose tensors must be finite
_READ_ERRORS = (
    safetensors.SafetensorError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    RuntimeError,
    OverflowError,
    EOFError,
    SyntaxError,
    pickle.UnpicklingError,
)
_MAX_BYTES = 1 << 30  # largest size of a file; usual files have up to 20 MB
_MAX_HEADER = 32 << 20
_ARRAY = "$array"  # key of an encoded numpy array
_ZIP = (b"PK\3\4", b"PK\5\6")  # first bytes of zip files


class CheckpointError(UserError, ValueError):
    """A checkpoint that cannot be written, read or used."""


def save(
    path: str | os.PathLike,
    policy: NppPolicy,
    *,
    frame_skip: int,
    config: Mapping | None = None,
    training: Mapping | None = None,
) -> Path:
    """Write a checkpoint atomically.

    frame_skip: frames per decision during training.
    config: values that JSON can store; tuples become lists.
    training: nested dicts, lists and tuples of tensors, numpy arrays, numbers, texts, bytes and None.
    Raises CheckpointError for other types, a policy without statistics, and weights that are not finite.
    """
    path = Path(path)
    if policy.statistics is None:
        raise CheckpointError(f"{path}: the policy has no observation statistics: set_statistics() before saving it")
    fields = {
        "architecture": policy.architecture,
        "observations": list(policy.observations),
        "layout": get_architecture(policy.architecture).fingerprint,
        "frame_skip": int(frame_skip),
        "precision": policy.precision,
        "policy": policy.state_dict(),
        "training": training,
        "config": config or {},
        "versions": _versions(),
    }
    if broken := _not_finite(fields):
        raise CheckpointError(f"{path}: not written, the weights are not finite: {', '.join(broken)}")
    write_bytes(path, _to_bytes(fields, path))
    return path


def _to_bytes(fields: Mapping[str, Any], path: Path) -> bytes:
    """Return the content of the file; equal fields give equal bytes."""
    names = {"policy": list(fields["policy"])}  # the order of the state dict
    content = {name: value for name, value in fields.items() if name != "training"} | names
    tensors = {f"policy.{name}": tensor.detach().cpu().contiguous() for name, tensor in fields["policy"].items()}
    try:
        json.dumps(content)
        if fields["training"] is not None:
            tensors["training"] = torch.frombuffer(to_bytes(fields["training"], "training"), dtype=torch.uint8)
    except TypeError as error:
        raise CheckpointError(f"{path}: not written: {error}") from error
    data = pack(content, tensors)
    if len(data) > _MAX_BYTES or header_bytes(data) > _MAX_HEADER:
        raise CheckpointError(
            f"{path}: not written, {len(data)} bytes with a header of {header_bytes(data)} bytes exceed the limits of "
            f"{_MAX_BYTES} and {_MAX_HEADER}: store less in config and training"
        )
    return data


def to_bytes(value: Any, name: str) -> bytearray:
    """Return nested data as bytes of ``torch.save``.  Raises TypeError for other types, with their place in ``name``."""
    file = io.BytesIO()
    torch.save(_encoded(value, name), file)
    return bytearray(file.getbuffer())


def from_bytes(data: bytes | bytearray) -> Any:
    """Restore the value that was passed to ``to_bytes``; no code can run.  Raises one of _READ_ERRORS for other bytes."""
    return _decoded(torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))


def _encoded(value: Any, place: str) -> Any:
    """Replace arrays by tensors of their bytes, as pickles of arrays are slow and larger, and numpy's scalars by numbers."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        octets = torch.from_numpy(np.array(value, order="C").reshape(-1).view(np.uint8))
        return {_ARRAY: (octets, np.lib.format.dtype_to_descr(value.dtype), value.shape)}
    if isinstance(value, Mapping):
        return {key: _encoded(item, f"{place}.{key}") for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_encoded(item, f"{place}[{i}]") for i, item in enumerate(value))
    if isinstance(value, torch.Tensor):
        return value.detach().clone()  # a view would be stored with the whole tensor
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    raise TypeError(f"{place} is a {type(value).__name__}: convert it to numbers, texts, arrays or dicts")


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        if _ARRAY not in value:
            return {key: _decoded(item) for key, item in value.items()}
        octets, description, shape = value[_ARRAY]
        dtype = np.lib.format.descr_to_dtype(description)
        if dtype.hasobject:
            raise ValueError("an array of Python objects")
        return octets.numpy().view(dtype).reshape(shape)
    return type(value)(map(_decoded, value)) if isinstance(value, list | tuple) else value


def pack(content: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return the content of a file, with its SHA-256.  content: JSON fields; tensors: tensors by name."""
    return checkpoint_file.pack(content, {name: tensor.numpy() for name, tensor in tensors.items()}, FORMAT_VERSION)


def _not_finite(fields: Mapping[str, Any]) -> list[str]:
    """Return the names of weights that are not finite."""
    weights = list(_tensors(fields["policy"], ""))
    for name in _WEIGHTS_OF_TRAINING:
        weights += _tensors((fields["training"] or {}).get(name), f".training.{name}")
    return [name[1:] for name, tensor in weights if not torch.isfinite(tensor).all()]


def _tensors(value: Any, place: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in nested dictionaries and lists, with their paths; a path begins with a dot."""
    if isinstance(value, torch.Tensor):
        yield place, value
    elif isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _tensors(item, f"{place}.{key}")


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "stable_baselines3": stable_baselines3.__version__,
    }


def load(path: str | os.PathLike) -> dict[str, Any]:
    """Read the fields of a checkpoint; tensors are on the CPU.

    Raises CheckpointError for a file that is missing, damaged, or of another format or version.  Also raises it for weights
    that are not finite, an unknown architecture, and another observation layout.
    """
    path = Path(path)
    data = _read(path)
    _check_fits(data, path)
    if broken := _not_finite(data):
        raise CheckpointError(f"{path}: the weights are not finite: {', '.join(broken[:5])}: {_another(path)}")
    return data


def _check_fits(data: Mapping[str, Any], path: Path) -> None:
    """Raise CheckpointError for missing or invalid fields, an unknown architecture or another observation layout."""
    wrong = mismatch(data, _FIELDS)
    if not wrong and not 1 <= data["frame_skip"] <= FRAMES_PER_SECOND:
        wrong = f"frame_skip is {data['frame_skip']}"
    if not wrong and data["precision"] not in PRECISIONS:
        wrong = f"precision is {data['precision']!r}"
    if wrong:
        raise CheckpointError(f"{path}: {wrong}: use another checkpoint, or train again")
    try:
        architecture = get_architecture(data["architecture"])
    except ArchitectureError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if data["layout"] != architecture.fingerprint:
        raise CheckpointError(
            f"{path}: trained on observation layout {data['layout']} ({', '.join(data['observations'])}), "
            f"{architecture.name} now reads {architecture.fingerprint} ({', '.join(architecture.observations)}): "
            f"use the version of the project that wrote it, or train again"
        )


def load_policy(path: str | os.PathLike, *, precision: str | None = None) -> tuple[NppPolicy, dict[str, Any]]:
    """Return the policy of a checkpoint, on the CPU and in evaluation mode, and the other fields of ``load``.

    precision: "float32" or "bf16"; None: the precision of the checkpoint.
    Raises CheckpointError as ``load`` does, and for weights that do not fit the architecture.
    """
    data = load(path)
    # The random initial weights are overwritten; drawing them must not change the caller's random generator.
    with torch.random.fork_rng(devices=[]):
        policy = build_policy(data["architecture"], precision=precision or data["precision"])
    try:
        policy.load_state_dict(data.pop("policy"))
    except (RuntimeError, StatisticsError) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        raise CheckpointError(
            f"{path}: weights do not fit {data['architecture']} as this version of the project builds it "
            f"({' '.join(lines[:2])}): use the version that wrote it, or train again"
        ) from error
    policy.eval()
    return policy, data


def check_frame_skip(path: Path, data: Mapping[str, Any], frame_skip: int) -> None:
    """Raise CheckpointError if the run that resumes from a checkpoint has another frame skip.  data: result of ``load``."""
    if data["frame_skip"] != frame_skip:
        raise CheckpointError(
            f"{path}: was trained with {data['frame_skip']} frames per decision, this run has {frame_skip}: the frame skip "
            "of a run cannot change; use the previous one, or start a new run"
        )


def _read(path: Path) -> dict[str, Any]:
    """Read the fields.  Raises CheckpointError if the file is missing, damaged or of another format."""
    if not path.is_file():
        if path.is_dir():
            inside = ", ".join(file.name for file in sorted(path.glob(f"*{SUFFIX}"))[:5])
            raise CheckpointError(f"{path}: is a folder; give a file{inside and f' in it: {inside}'}")
        other = path.with_suffix(SUFFIX)
        raise CheckpointError(f"{path}: no such checkpoint: {f'give {other}' if other.is_file() else 'check the path'}")
    with open(path, "rb") as file:
        size, begin = os.fstat(file.fileno()).st_size, file.read(8)
        if begin.startswith(_ZIP):
            raise _not_opened(path)
        if header_bytes(begin) > min(_MAX_HEADER, size - 8) or size > _MAX_BYTES:
            raise CheckpointError(
                f"{path}: not a checkpoint, or cut off ({size} bytes, header of {header_bytes(begin)}): {_another(path)}"
            )
        data = begin + file.read(size - len(begin))
    try:
        described, tensors = parse(data)
        if described is None:
            raise CheckpointError(
                f"{path}: a safetensors file, but not a checkpoint of this project: give another file"
            )
        if described["format_version"] not in READABLE:
            raise CheckpointError(
                f"{path}: checkpoint format {described['format_version']}, this version of the project reads "
                f"{FORMAT_VERSION}: use the version that wrote it, or train again"
            )
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        if described["sha256"] != checkpoint_file.digest(described["content"], arrays):
            raise _damaged(path, "its content does not match its SHA-256")
        return _fields(described["content"], tensors)
    except CheckpointError:
        raise
    except _READ_ERRORS as error:
        raise _damaged(path, error) from error


def _fields(content: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return the fields of a file.  The state of training in format 2 (``content["training"]``) is not read."""
    state = tensors.get("training")
    training = None if state is None else from_bytes(state.numpy().tobytes())
    policy = {name: tensors[f"policy.{name}"] for name in content["policy"]}
    return {**content, "policy": policy, "training": training}


def parse(data: bytes) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return the entry ``checkpoint_file.FORMAT`` in the header of a safetensors file (None without one), and the tensors.

    Raises one of _READ_ERRORS for damaged data.
    """
    described, arrays = checkpoint_file.parse(data)
    return described, {name: torch.from_numpy(array) for name, array in arrays.items()}


def _damaged(path: Path, reason: object) -> CheckpointError:
    first = (str(reason).splitlines() or [type(reason).__name__])[0]
    return CheckpointError(f"{path}: damaged ({first[:200]}): {_another(path)}")


def _another(path: Path) -> str:
    """Return the remedy for an unusable file: the newest other checkpoint in its folder, if there is one."""
    others = [file for file in path.parent.glob(f"*{SUFFIX}") if file.name != path.name and file.is_file()]
    if not others:
        return "copy it again, or use another checkpoint"
    return f"copy it again, or use {max(others, key=lambda file: file.stat().st_mtime)}"


def _not_opened(path: Path) -> CheckpointError:
    """Return the error for a zip file, depending on the names of its members."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        return _damaged(path, error)
    if "policy.pth" in names:
        return CheckpointError(
            f"{path}: an archive of Stable-Baselines3, which can run any code when it is opened: use agent{SUFFIX} of the "
            f"same run, or, if you trust the archive, convert it with scripts/convert_archive.py --trust-pickle"
        )
    if any(name.endswith("data.pkl") for name in names):
        return CheckpointError(
            f"{path}: a file of torch.save, not a checkpoint; checkpoints are {SUFFIX} files since format 2: "
            f"train again, or use it with the version of the project that wrote it"
        )
    return CheckpointError(f"{path}: a zip archive, but not a checkpoint: give a {SUFFIX} file")
