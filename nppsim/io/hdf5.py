"""Safe opening of untrusted HDF5 files: declared sizes are compared with the stored data before anything is read.

HDF5 allocates any shape that a file declares, follows links and external storage to other files, and unpacks chunks of any
size.  ``open_file`` therefore checks every link and dataset.  It allows only numbers and strings of fixed size that are
stored completely in the file.  The size of the file then limits the memory needed for reading.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py
import numpy as np

from nppsim.errors import UserError

LIMIT_BYTES = 1 << 30  # default maximum of the total unpacked size of a file's datasets
_CHUNK_BYTES = 256 << 20  # maximum size of one unpacked chunk
_MAX_OBJECTS = 1_000_000
# Allowed kinds of numpy dtypes.  Values of other kinds may be pointers into a heap of the file, where damage can send
# HDF5 into an endless loop.
_KINDS = "biufS"
_FILTERS = {1: "gzip", 2: "shuffle", 3: "fletcher32", 32000: "lzf"}
_MAX_RATIO = 1100  # largest ratio of unpacked to stored bytes; deflate reaches at most 1032
# Exceptions that h5py raises for damaged files.
DAMAGE = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, OverflowError)


class UnsafeFileError(ValueError):
    """The declarations of a file do not match its contents, or are of a kind that this project does not use."""


def open_file(path: str | Path, limit_bytes: int = LIMIT_BYTES) -> h5py.File:
    """Check all declarations of a file and open it for reading.

    limit_bytes: maximum of the total unpacked size of the datasets.
    Raises UnsafeFileError for unsafe declarations, or one of the exceptions in DAMAGE for an unreadable file.
    """
    file = h5py.File(path, "r")
    try:
        _check_contents(file, limit_bytes)
    except DAMAGE:
        close(file)
        raise
    return file


@contextmanager
def reading(path: str | Path, error: Callable[[str], UserError], limit_bytes: int = LIMIT_BYTES) -> Iterator[h5py.File]:
    """Open a file (``open_file``) for the duration of the block.

    error: makes the exception to raise if the file is unreadable or unsafe, from the reason.
    """
    try:
        file = open_file(path, limit_bytes)
        try:
            yield file
        finally:
            close(file)
    except UserError:  # raised by the block; some UserErrors are ValueErrors
        raise
    except DAMAGE as problem:
        raise error(reason(problem)) from problem


def close(file: h5py.File) -> None:
    """Close a file, even if it is damaged."""
    with suppress(*DAMAGE):
        file.close()


def reason(error: Exception) -> str:
    """Return the first line of an error message of h5py."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def check_ends(name: str, ends: np.ndarray, size: int) -> None:
    """Raise UnsafeFileError unless the ends of packed rows increase strictly up to the total ``size``.

    ends: int64[n], end of each row in the packed data.
    """
    if np.any(ends[1:] <= ends[:-1]) or np.any(ends[:1] <= 0) or (ends[-1] if len(ends) else 0) != size:
        raise UnsafeFileError(f"{name} does not increase up to the length of its data, {size}")


def _check_contents(file: h5py.File, limit_bytes: int) -> None:
    # This does not use h5py's visitors, because they turn errors into SystemError.
    file_bytes = Path(file.filename).stat().st_size
    objects = declared = stored = 0
    seen, pending = set(), [file["/"]]
    while pending:
        group = pending.pop()
        for name in group:
            full_name = f"{group.name.rstrip('/')}/{name}"
            objects += 1
            if objects > _MAX_OBJECTS:
                raise UnsafeFileError(f"it contains more than {_MAX_OBJECTS:,} names")
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise UnsafeFileError(f"{full_name} is a soft or external link")
            item = group[name]
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                raise UnsafeFileError(f"{full_name} is a hard link to an object that has another name")
            seen.add(address)
            if isinstance(item, h5py.Group):
                pending.append(item)
            elif isinstance(item, h5py.Dataset):
                declared += _checked_bytes(full_name, item)
                stored += item.id.get_storage_size()
                if stored > file_bytes:
                    raise UnsafeFileError(f"{full_name} lies beyond the end of the file, {file_bytes:,} bytes")
                if declared > limit_bytes:
                    raise UnsafeFileError(
                        f"{full_name} declares {item.dtype}{list(item.shape)}, so that the file exceeds the limit of "
                        f"{limit_bytes:,} bytes"
                    )


def _checked_bytes(name: str, dataset: h5py.Dataset) -> int:
    """Return the bytes of a dataset in memory; raise UnsafeFileError unless all are stored in the file."""
    if dataset.is_virtual or dataset.external:
        raise UnsafeFileError(f"{name} has its data in another file")
    if dataset.shape is None or dataset.dtype.kind not in _KINDS:
        raise UnsafeFileError(f"{name} has dtype {dataset.dtype}, neither numbers nor strings of fixed size")
    size = math.prod(dataset.shape) * dataset.dtype.itemsize
    stored = dataset.id.get_storage_size()
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    if unknown := set(filters) - _FILTERS.keys():
        raise UnsafeFileError(f"{name} uses unknown filters ({', '.join(map(str, unknown))})")
    if size > stored * (_MAX_RATIO if filters else 1):
        raise UnsafeFileError(f"{name} declares {size:,} bytes, but the file stores {stored:,}")
    if dataset.chunks:
        _check_chunks(name, dataset, math.prod(dataset.chunks) * dataset.dtype.itemsize)
    return size


def _check_chunks(name: str, dataset: h5py.Dataset, size: int) -> None:
    """Raise UnsafeFileError if chunks are too large when unpacked, or much larger in the file than when unpacked.

    size: bytes of an unpacked chunk.
    """
    if size > _CHUNK_BYTES:
        raise UnsafeFileError(f"{name} has chunks of {size:,} bytes")

    limit = size + size // 8 + 1024
    chunk_bytes = dataset.id.chunk_iter(lambda chunk: chunk.size if chunk.size > limit else None)
    if chunk_bytes:
        raise UnsafeFileError(
            f"{name} has a chunk of {chunk_bytes:,} bytes, although it has {size:,} bytes when unpacked"
        )
