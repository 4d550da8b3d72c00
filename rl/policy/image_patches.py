"""Distinct patches of a batch of images.

    table, index = distinct_patches(images, (12, 12))   # uint8[U, F * 144], int64[N * P]
    features = embed(table)[index]                      # float[N * P, C]

Consecutive images of an episode differ in few patches, and many patches are empty: of the patches of a minibatch, about one
in twenty is distinct.  On a CPU, the image encoders take less than half of the time if each distinct patch is embedded once.
"""

import functools
from typing import Any

import numba
import numpy as np
import torch

_compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy")
_MIXER = np.uint64(0x9E3779B97F4A7C15)  # moves a hash into the upper bits (Knuth, The Art of Computer Programming, 6.4)


def distinct_patches(images: torch.Tensor, size: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the distinct patches uint8[U, F * h * w], and the index of each patch among them, int64[N * P].

    images: uint8[N, F, H, W] on the CPU; a patch consists of the same pixels of all F frames.
    size: (h, w), size of a patch in pixels.  h must divide H, w must divide W, and 4 must divide w.
    """
    words = images.contiguous().view(torch.int32).numpy()
    n, frames, height, width = words.shape
    h, w = size[0], size[1] // 4
    index = np.empty(n * (height // h) * (width // w), np.int64)
    table = _find(words, h, w, _factors(frames, h, w, width // w), index)
    return torch.from_numpy(table.reshape(len(table), -1)).view(torch.uint8), torch.from_numpy(index)


@functools.cache
def _factors(frames: int, height: int, width: int, repeats: int) -> np.ndarray:
    """Return random factors for the words of a patch, repeated along rows, uint32[frames, height, repeats * width]."""
    factors = np.random.default_rng(0).integers(1, 2**32, (frames, height, width), np.uint32)
    return np.tile(factors, repeats)


@_compiled
def _find(words, h, w, factors, index):
    """Fill ``index`` (int64[N * P]) and return the distinct patches int32[U, F, h, w].

    words: int32[N, F, H, W].  factors: uint32[F, h, W], the factors of a multilinear hash function.
    """
    n, frames, height, width = words.shape
    bits = 1
    while 1 << bits < 2 * len(index):
        bits += 1
    slots = np.full(1 << bits, -1, np.int32)
    mask, shift = (1 << bits) - 1, np.uint64(64 - bits)
    table, count, number = np.empty((256, frames, h, w), np.int32), 0, 0
    sums = np.empty(width, np.uint64)
    for i in range(n):
        for top in range(0, height, h):
            sums[:] = 0
            for f in range(frames):
                for y in range(h):
                    for x in range(width):
                        sums[x] += np.uint64(np.uint32(words[i, f, top + y, x])) * np.uint64(factors[f, y, x])
            for left in range(0, width, w):
                key = np.uint64(0)
                for x in range(w):
                    key += sums[left + x]
                slot = np.int64((key * _MIXER) >> shift)
                patch = words[i, :, top : top + h, left : left + w]
                while slots[slot] >= 0 and not _equal(patch, table[slots[slot]]):
                    slot = (slot + 1) & mask
                if slots[slot] < 0:
                    if count == len(table):
                        larger = np.empty((2 * count, frames, h, w), np.int32)
                        larger[:count] = table
                        table = larger
                    table[count] = patch
                    slots[slot] = count
                    count += 1
                index[number] = slots[slot]
                number += 1
    return table[:count].copy()


@_compiled
def _equal(patch, other):
    difference = np.int32(0)
    for f in range(patch.shape[0]):
        for y in range(patch.shape[1]):
            for x in range(patch.shape[2]):
                difference |= patch[f, y, x] ^ other[f, y, x]
    return difference == 0
