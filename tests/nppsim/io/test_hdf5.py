"""Untrusted HDF5 files: a false size or an external link is refused before data are read."""

import zlib

import h5py
import numpy as np
import pytest

from nppsim.io import hdf5


def huge(file):
    file.create_dataset("x", (22 << 30,), "u1", chunks=(1 << 16,))


def bomb(file):
    bomb = file.create_dataset("x", (1 << 24,), "u1", chunks=(1 << 12,), compression="gzip")
    bomb.id.write_direct_chunk((0,), zlib.compress(bytes(1 << 24), 9))


def large_chunk(file):
    bomb = file.create_dataset("x", (1 << 29,), "u1", chunks=(1 << 29,), compression="gzip")
    bomb.id.write_direct_chunk((0,), bytes(1 << 20))


def nothing_but_zeros(file):
    zeros = file.create_dataset("x", (1 << 31,), "u1", chunks=(1 << 24,), compression="gzip")
    packed = zlib.compress(bytes(1 << 24), 9)
    for i in range(128):
        zeros.id.write_direct_chunk((i << 24,), packed)


def virtual(file):
    layout = h5py.VirtualLayout((4,), "u1")
    layout[:] = h5py.VirtualSource("/etc/hostname", "x", (4,))
    file.create_virtual_dataset("x", layout)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (huge, r"/x declares 23,622,320,128 bytes, but the file stores 0"),
        (bomb, "/x has a chunk of 16,3.. bytes, although it has 4,096 bytes when unpacked"),
        (large_chunk, "/x has chunks of 536,870,912 bytes"),
        (nothing_but_zeros, "exceeds the limit of 1,073,741,824 bytes"),
        (virtual, "/x has its data in another file"),
        (lambda file: file.create_dataset("x", (4,), "u1", external=[("/etc/hostname", 0, 4)]), "in another file"),
        (lambda file: file.__setitem__("x", h5py.SoftLink("/y")), "/x is a soft or external link"),
        (lambda file: file.__setitem__("x", h5py.ExternalLink("/etc/hostname", "x")), "/x is a soft or external link"),
        (lambda file: file.__setitem__("y/x", file["y"]), "/y/x is a hard link to an object that has another name"),
        (lambda file: file.__setitem__("x", "text"), "/x has dtype object, neither numbers nor strings of fixed size"),
        (lambda file: file.create_dataset("x", (9,), "u1", scaleoffset=3), "/x uses unknown filters .6"),
        (lambda file: file.__setitem__("x", h5py.Empty("f8")), "/x has dtype float64"),
    ],
)
def test_open_file_false_declarations_or_links_raise_unsafe_file_error(make, message, tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_group("y")
        make(file)
    with pytest.raises(hdf5.UnsafeFileError, match=message):
        hdf5.open_file(path)


def test_open_file_ordinary_file_is_read(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a/b"] = np.arange(5)
        file["empty"] = np.zeros((0, 3))
        file["text"] = np.array(["one"], "S3")
        file.create_dataset("zeros", data=np.zeros(1 << 20), compression="gzip", shuffle=True, fletcher32=True)
    file = hdf5.open_file(tmp_path / "x.h5")
    assert file["a/b"][:].tolist() == [0, 1, 2, 3, 4] and file["zeros"].shape == (1 << 20,)
    hdf5.close(file)
    with pytest.raises(hdf5.UnsafeFileError, match=r"/zeros declares float64\[1048576\]"):
        hdf5.open_file(tmp_path / "x.h5", limit_bytes=1 << 20)


@pytest.mark.parametrize("ends", [[], [0, 4], [3, 3, 4], [5], [4, 2, 4], [10, -(2**63) + 5, 4]])
def test_check_ends_invalid_raises_unsafe_file_error(ends):
    with pytest.raises(hdf5.UnsafeFileError, match="/end does not increase up to the length of its data, 4"):
        hdf5.check_ends("/end", np.array(ends, np.int64), 4)
    hdf5.check_ends("/end", np.array([1, 4]), 4)
