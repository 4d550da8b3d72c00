"""Reading and writing of the HDF5 file of an imitation dataset; ``docs/file_formats.md`` describes its layout."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from bc.baselines import previous_actions
from bc.demonstrations import Demonstration, DemonstrationSet
from nppsim.actions import FRAMES_PER_SECOND
from nppsim.errors import UserError
from nppsim.io import hdf5
from nppsim.io.reading import parse_json
from nppsim.levels.level import Level
from nppsim.observe import layout
from nppsim.observe.foresight_settings import Foresight

FORMAT_VERSION = 4
REBUILD = "delete it, it will be rebuilt"
_CHUNK_ROWS = 512
_STORAGE = {"compression": "lzf", "shuffle": True, "fletcher32": True}  # compressed, with checksums of all blocks
LIBRARY = ("v110", "v110")  # format of HDF5 1.10, which has checksums for all metadata
# Columns with one value per decision, and columns with one value per demonstration.  Strings are in the JSON of /about.
DECISIONS = {"actions": "i1", "previous_actions": "i1", "demonstration": "i4"}
DEMONSTRATIONS = {"category": "i2", "length": "i4", "validation": "?", "retimed": "?", "deviation_px": "f4"}
_ABOUT = {
    "key": str,
    "frame_skip": int,
    "layout_fingerprint": str,
    "observation_keys": [str],
    "foresight": str,
    "settings": {},
    "report": str,
    "categories": [str],
    "names": [str],
    "level_fingerprints": [str],
}
_MAX_LEVELS_BYTES = 1 << 28


class DatasetError(UserError, ValueError):
    """A dataset that cannot be built, read or loaded into memory."""


def write_tables(
    file: h5py.File,
    demonstrations: Sequence[Demonstration],
    validation: np.ndarray,
    found: DemonstrationSet,
    settings: Mapping[str, Any],
    key: str,
) -> None:
    """Write everything except the observations.  settings: fields of the DatasetConfig."""
    lengths = [len(d.actions) for d in demonstrations]
    categories = sorted({d.category for d in demonstrations})
    foresight = Foresight(**settings["foresight"]).name
    about = {
        "key": key,
        "frame_skip": settings["frame_skip"],
        "layout_fingerprint": layout.fingerprint(settings["observations"], foresight),
        "observation_keys": settings["observations"],
        "foresight": foresight,
        "settings": settings,
        "report": found.table(),
        "categories": categories,
        "names": [d.name for d in demonstrations],
        "level_fingerprints": [d.level.fingerprint for d in demonstrations],
    }
    columns = {
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
        "actions": np.concatenate([d.actions for d in demonstrations]),
        "previous_actions": np.concatenate([previous_actions(d.actions) for d in demonstrations]),
        "demonstration": np.repeat(np.arange(len(lengths)), lengths),
        "demonstrations/category": [categories.index(d.category) for d in demonstrations],
        "demonstrations/length": lengths,
        "demonstrations/validation": validation,
        "demonstrations/retimed": [d.retimed for d in demonstrations],
        "demonstrations/deviation_px": [d.deviation_px for d in demonstrations],
    }
    types = {"about": "u1", **DECISIONS, **{f"demonstrations/{name}": dtype for name, dtype in DEMONSTRATIONS.items()}}
    file.attrs["format_version"] = FORMAT_VERSION
    for name, values in columns.items():
        file.create_dataset(name, data=np.array(values).astype(types[name]), **_STORAGE)


def read_about(path: Path, file: h5py.File) -> dict:
    """Read the metadata.  Raises DatasetError for another format version or observation layout."""
    version = file.attrs["format_version"] if "format_version" in file.attrs else None  # noqa: SIM401  # h5py's get() reads all attributes
    if version != FORMAT_VERSION:
        raise DatasetError(f"{path}: format version {version}, this program reads {FORMAT_VERSION}; {REBUILD}")
    about = parse_json(file["about"][:].tobytes(), f"{path}: /about", DatasetError, REBUILD, _ABOUT)
    keys = about["observation_keys"]
    keys_exist = set(keys) <= set(layout.SPECS)
    if not keys_exist or about["layout_fingerprint"] != layout.fingerprint(keys, about["foresight"]):
        raise DatasetError(
            f"{path}: observation layout {about['layout_fingerprint']} of {', '.join(keys)} is not this version's "
            f"layout; {REBUILD}"
        )
    if not 1 <= about["frame_skip"] <= FRAMES_PER_SECOND or len(about["names"]) != len(about["level_fingerprints"]):
        raise DatasetError(f"{path}: /about: an impossible frame skip, or names without levels; {REBUILD}")
    return about


def read_column(group: h5py.Group, name: str, rows: int, dtype: npt.DTypeLike) -> np.ndarray:
    """Read a column.  Raises ValueError if its length is not ``rows``, or if its dtype differs from ``dtype``."""
    expected, column = np.dtype(dtype), group[name]
    if column.shape != (rows, *expected.shape) or column.dtype != expected.base:
        raise ValueError(
            f"{column.name} is {column.dtype}{list(column.shape)}, expected {expected.base}{[rows, *expected.shape]}"
        )
    return column[:]


def make_samples(file: h5py.File, columns: dict[str, np.dtype], rows: int) -> None:
    """Create empty HDF5 datasets for the observations.  columns: name -> dtype of one row."""
    group = file.create_group("observations")
    for name, column in columns.items():
        chunks = (min(_CHUNK_ROWS, rows), *column.shape)
        group.create_dataset(name, (rows, *column.shape), column.base, chunks=chunks, **_STORAGE)


def write_levels(file: h5py.File, levels: Sequence[Level]) -> None:
    """Write the files of the levels, concatenated, and the position of the end of each."""
    files = [np.frombuffer(level.to_bytes(), np.uint8) for level in levels]
    file.create_dataset("levels", data=np.concatenate(files), **_STORAGE)
    file.create_dataset("level_ends", data=np.cumsum([len(data) for data in files]), **_STORAGE)


def read_levels(file: h5py.File) -> list[Level]:
    """Read the levels.  Raises ValueError or LevelError for damaged data."""
    size = len(file["levels"])
    if size > _MAX_LEVELS_BYTES:
        raise ValueError(f"/levels has {size:,} bytes")
    ends = read_column(file, "level_ends", len(file["level_ends"]), np.int64)
    hdf5.check_ends("/level_ends", ends, size)
    return [Level.from_bytes(data.tobytes()) for data in np.split(read_column(file, "levels", size, "u1"), ends[:-1])]
