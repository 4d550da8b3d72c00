"""Checkpoints: one file with everything that a policy needs to act, and optionally what training needs to go on.

Fields of the file (``torch.save`` of plain data; read with ``weights_only=True``, so a file cannot run code):

    format, format_version     "npp-checkpoint", 1
    architecture               name in rl.policy.architectures.ARCHITECTURES
    observations, layout       keys that the network reads, fingerprint of their layout
    frame_skip                 frames per decision that the policy was trained with
    precision                  "float32" or "bf16"
    policy                     state dict, normaliser included
    statistics                 ObservationStatistics.to_dict()
    training                   None, or the trainer's state: optimiser, curriculum, random generators, counters
    config, versions           for people and for comparing runs
"""

import os
import pickle
import platform
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import stable_baselines3
import torch

from nppsim.errors import UserError
from nppsim.files import replacing
from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics, StatisticsError
from rl.policy.architectures import ArchitectureError, get_architecture
from rl.policy.policy import NppPolicy, build_policy

FORMAT = "npp-checkpoint"
FORMAT_VERSION = 1
_FIELDS = (
    "architecture",
    "observations",
    "layout",
    "frame_skip",
    "precision",
    "policy",
    "statistics",
    "training",
    "config",
    "versions",
)
_NDARRAY = "__ndarray__"  # marks an encoded numpy array


class CheckpointError(UserError, ValueError):
    """A checkpoint that cannot be written, read or used; the message names the file, what is wrong and the remedy."""


def save(
    path: str | os.PathLike,
    policy: NppPolicy,
    *,
    frame_skip: int,
    config: Mapping | None = None,
    training: Mapping | None = None,
) -> Path:
    """Write a checkpoint; at every moment the file is either the old one or the new one, complete.

    config, training: nested dicts, lists and tuples of tensors, numpy arrays, numbers, texts, bytes and None.
    CheckpointError: another type in there (named), a policy without statistics, or weights that are not finite.
    """
    path = Path(path)
    statistics = policy.statistics
    if statistics is None:
        raise CheckpointError(f"{path}: the policy has no observation statistics: set_statistics() before saving it")
    weights = policy.state_dict()
    broken = [name for name, tensor in weights.items() if not torch.isfinite(tensor).all()]
    if broken:
        raise CheckpointError(f"{path}: not written, the weights are not finite: {', '.join(broken)}")
    data = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "architecture": policy.architecture,
        "observations": list(policy.observations),
        "layout": layout.fingerprint(policy.observations),
        "frame_skip": int(frame_skip),
        "precision": policy.precision,
        "policy": dict(weights),
        "statistics": _encode(statistics.to_dict(), path, "statistics"),
        "training": _encode(training, path, "training"),
        "config": _encode(config or {}, path, "config"),
        "versions": _versions(),
    }
    with replacing(path) as temporary, open(temporary, "wb") as file:
        torch.save(data, file)
    return path


def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "stable_baselines3": stable_baselines3.__version__,
    }


def load(path: str | os.PathLike) -> dict[str, Any]:
    """Read and check a checkpoint: a dict with the fields of the module's docstring, tensors on the CPU, numpy arrays
    as they were saved, ``statistics`` an ObservationStatistics.

    CheckpointError: file missing, truncated or of another kind, another format version, unknown architecture, or an
    observation layout other than the present one.
    """
    path = Path(path)
    data = _read(path)
    _check_fits(data, path)
    try:
        data["statistics"] = ObservationStatistics.from_dict(_decode(data["statistics"]))
    except StatisticsError as error:
        raise CheckpointError(f"{path}: {error}") from error
    data["training"] = _decode(data["training"])
    data["config"] = _decode(data["config"])
    return data


def _check_fits(data: Mapping[str, Any], path: Path) -> None:
    """CheckpointError unless this version of the project can use a checkpoint: format, fields, architecture, layout."""
    version = data.get("format_version")
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: checkpoint format {version}, this version of the project reads {FORMAT_VERSION}: use the version "
            f"that wrote it, or train again"
        )
    absent = [field for field in _FIELDS if field not in data]
    if absent:
        raise CheckpointError(f"{path}: lacks {', '.join(absent)}: use another checkpoint, or train again")
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
    """The policy of a checkpoint, on the CPU in evaluation mode, and the other fields of ``load``.

    precision: None keeps the checkpoint's.
    CheckpointError: as in ``load``, and weights that do not fit the architecture or its statistics.
    """
    data = load(path)
    # initial weights are overwritten at once; drawing them must not disturb the caller's random generator
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
    stored, inside = data["statistics"], policy.statistics
    if inside is None or any(not np.array_equal(stored.mean[key], inside.mean[key]) for key in stored.float_keys):
        raise CheckpointError(
            f"{path}: the normaliser inside the weights disagrees with the statistics beside them: the file was "
            f"changed by hand; use another checkpoint"
        )
    policy.set_training_mode(False)
    return policy, data


def _read(path: Path) -> dict[str, Any]:
    """A file of this project; CheckpointError if it is missing, damaged or something else."""
    if not path.is_file():
        raise CheckpointError(f"{path}: no such checkpoint: check the path")
    if not zipfile.is_zipfile(path):
        raise CheckpointError(
            f"{path}: not a checkpoint, or cut off while it was copied: copy it again, or use another"
        )
    with zipfile.ZipFile(path) as archive:
        if "policy.pth" in archive.namelist():
            raise CheckpointError(
                f"{path}: this is a Stable-Baselines3 archive: load it with stable_baselines3.PPO.load, or give the "
                f".pt checkpoint of the same run"
            )
        # torch.load does not look at checksums, and a flipped bit in a weight would go unnoticed
        damaged = archive.testzip()
    if damaged:
        raise CheckpointError(f"{path}: damaged (checksum of {damaged}): copy it again, or use another checkpoint")
    try:
        data = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{path}: cannot be read ({reason}): use another checkpoint") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CheckpointError(f"{path}: a PyTorch file, but not a checkpoint of this project: give another file")
    return data


def _encode(value: Any, path: Path, place: str) -> Any:
    """Plain data for torch.load(weights_only=True): numpy arrays become tensors of bytes."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise CheckpointError(f"{path}: {place} is an array of Python objects: save numbers")
        content = torch.from_numpy(np.frombuffer(value.tobytes(), np.uint8).copy())
        return {_NDARRAY: content, "dtype": np.lib.format.dtype_to_descr(value.dtype), "shape": list(value.shape)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _encode(item, path, f"{place}.{key}") for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_encode(item, path, f"{place}[{i}]") for i, item in enumerate(value))
    if value is None or isinstance(value, torch.Tensor) or type(value) in (bool, int, float, str, bytes):
        return value
    raise CheckpointError(f"{path}: {place} is a {type(value).__name__}: convert it to numbers, texts, arrays or dicts")


def _decode(value: Any) -> Any:
    """What ``_encode`` was given."""
    if isinstance(value, dict):
        if _NDARRAY in value:
            dtype = np.lib.format.descr_to_dtype(value["dtype"])
            return np.frombuffer(value[_NDARRAY].numpy().tobytes(), dtype).reshape(value["shape"]).copy()
        return {key: _decode(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_decode(item) for item in value)
    return value
