"""HDF5 files from anywhere: what one declares is held against what it holds, before any of it is read.

HDF5 believes a file.  It allocates the shape that is declared, follows links and external storage to other files of the
machine, and unpacks a chunk to whatever size that has.  ``open_file`` looks at every link and dataset once and allows what
the files of this project consist of: numbers and texts of fixed size, of which every byte is in the file, packed or not.
Reading them then takes memory in proportion to what was declared, and the file's size bounds that.
"""

import math
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np

LIMIT_BYTES = 1 << 30  # of all datasets of a file together, unpacked
_CHUNK_BYTES = 256 << 20  # of one chunk, which is unpacked as a whole
_MOST_OBJECTS = 1_000_000
_KINDS = "biufS"  # of numpy's types: no pointers into a heap, where a damaged file may send HDF5 round in circles
_FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}
_MOST_PACKED = 1100  # bytes unpacked for one in the file: deflate does 1032 at most
DAMAGE = (
    OSError,
    KeyError,
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
)  # raised by h5py for it


class UnsafeFileError(ValueError):
    """What a file declares is not what it holds, or nothing that files of this project have; says what and where."""


def open_file(path: str | Path, limit_bytes: int = LIMIT_BYTES) -> h5py.File:
    """Open a file for reading, after a look at all that it declares.

    limit_bytes: that all datasets together may have when they are read.
    Raises UnsafeFileError, or what h5py raises for damage: one of DAMAGE.
    """
    file = h5py.File(path, "r")
    try:
        _look_through(file, limit_bytes)
    except DAMAGE:
        close(file)
        raise
    return file


def close(file: h5py.File) -> None:
    """Close a file, damaged or not."""
    with suppress(*DAMAGE):
        file.close()


def reason(error: Exception) -> str:
    """The first line of what h5py says."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def check_ends(name: str, ends: np.ndarray, size: int) -> None:
    """UnsafeFileError unless the ends of packed rows, int64[n], ascend to the ``size`` of all of them."""
    if np.any(ends[1:] <= ends[:-1]) or np.any(ends[:1] <= 0) or (ends[-1] if len(ends) else 0) != size:
        raise UnsafeFileError(f"{name} does not ascend to the length of its data, {size}")


def _look_through(file: h5py.File, limit_bytes: int) -> None:
    # h5py's visitors are not used: an error inside of one comes out as a SystemError.
    file_bytes = Path(file.filename).stat().st_size
    objects = declared = stored = 0
    seen, pending = set(), [file["/"]]
    while pending:
        group = pending.pop()
        for name in group:
            place = f"{group.name.rstrip('/')}/{name}"
            objects += 1
            if objects > _MOST_OBJECTS:
                raise UnsafeFileError(f"there are more than {_MOST_OBJECTS:,} names")
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise UnsafeFileError(f"{place} is a link to another place")
            found = group[name]
            address = h5py.h5o.get_info(found.id).addr
            if address in seen:
                raise UnsafeFileError(f"{place} is another name of something else")
            seen.add(address)
            if isinstance(found, h5py.Group):
                pending.append(found)
            elif isinstance(found, h5py.Dataset):
                declared += _checked_bytes(place, found)
                stored += found.id.get_storage_size()
                if stored > file_bytes:
                    raise UnsafeFileError(f"{place} lies beyond the end of the file, {file_bytes:,} bytes")
                if declared > limit_bytes:
                    raise UnsafeFileError(
                        f"{place} declares {found.dtype}{list(found.shape)}, and with that the file more than the "
                        f"{limit_bytes:,} bytes that may be read"
                    )


def _checked_bytes(name: str, dataset: h5py.Dataset) -> int:
    """Bytes of a dataset in memory; UnsafeFileError unless they all come from the file."""
    if dataset.is_virtual or dataset.external:
        raise UnsafeFileError(f"{name} has its data in another file")
    if dataset.shape is None or dataset.dtype.kind not in _KINDS:
        raise UnsafeFileError(f"{name} holds {dataset.dtype}, neither numbers nor texts of fixed size")
    size = math.prod(dataset.shape) * dataset.dtype.itemsize
    stored = dataset.id.get_storage_size()
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    if unknown := set(filters) - _FILTERS.keys():
        raise UnsafeFileError(f"{name} is packed in an unknown way ({', '.join(map(str, unknown))})")
    if size > stored * (_MOST_PACKED if filters else 1):
        raise UnsafeFileError(f"{name} declares {size:,} bytes, of which the file has {stored:,}")
    if dataset.chunks:
        _check_chunks(name, dataset, math.prod(dataset.chunks) * dataset.dtype.itemsize)
    return size


def _check_chunks(name: str, dataset: h5py.Dataset, size: int) -> None:
    """UnsafeFileError if a chunk of ``size`` bytes, unpacked, is too large, or takes more room in the file than that."""
    if size > _CHUNK_BYTES:
        raise UnsafeFileError(f"{name} has chunks of {size:,} bytes")

    limit = size + size // 8 + 1024
    found = dataset.id.chunk_iter(lambda chunk: chunk.size if chunk.size > limit else None)
    if found:
        raise UnsafeFileError(f"{name} has a chunk of {found:,} bytes that should be of {size:,}, unpacked")
