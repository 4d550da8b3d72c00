"""Kernels of ``rl.policy.inference``: dense layers in float32, without BLAS and fused operations."""

import math
from typing import Any

import numba
import numpy as np

from nppsim.actions import MIRRORED_ACTION, NUM_ACTIONS
from nppsim.observe.foresight import AHEAD
from nppsim.observe.layout import SPECS
from rl.policy.constants import CLAMP, DEATH_PENALTY, WIDTH

_compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy")
_inlined: Any = numba.njit(nogil=True, error_model="numpy", inline="always")
_LOOK_AHEAD = math.prod(SPECS["foresight"].shape[1:])  # numbers of the look-ahead per action


@_compiled
def forward(raw, mean, divisor, source, signs, positions, foresight, steps, weights, places, outputs):
    """Compute logits and value of each observation, float32[N, 7].

    raw: float32[N, D], flat observations; the first ``len(mean)`` numbers are normalised.
    source, signs, positions: see ``mirror_of``; empty without mirror images.
    steps: int64[L, 6], the layers: begin and number of inputs, begin and number of outputs, begin of the weights, ReLU.
    weights: float32[W], for each layer the weights [inputs, outputs], then the biases.
    foresight: begin of the look-ahead in an observation; -1 without a death penalty.
    places: int64[7], where the outputs are in the work space, which begins with the observation.
    """
    size = raw.shape[1]
    used, work = np.empty(size, np.int64), np.empty(steps[-1, 2] + steps[-1, 3], np.float32)
    for row in range(len(raw)):
        for image in range(2 if len(source) > 0 else 1):
            if image == 0:
                work[:size] = raw[row]
            else:
                for i in range(size):
                    work[i] = raw[row, source[i]] * signs[i]
                for i in positions:
                    if work[i] != 0 or work[i + 1] != 0:
                        work[i] = np.float32(WIDTH) - work[i]
            for i in range(len(mean)):
                work[i] = min(max((work[i] - mean[i]) / divisor[i], np.float32(-CLAMP)), np.float32(CLAMP))
            for k in range(len(steps)):
                begin, inputs, out, count, first, relu = steps[k]
                _dense(work[begin : begin + inputs], weights[first:], used, work[out : out + count], relu)
            for j in range(NUM_ACTIONS + 1):
                if image == 0:
                    outputs[row, j] = work[places[j]]
                else:
                    other = work[places[MIRRORED_ACTION[j] if j < NUM_ACTIONS else j]]
                    outputs[row, j] = (outputs[row, j] + other) * np.float32(0.5)
        for action in range(NUM_ACTIONS if foresight >= 0 else 0):
            outputs[row, action] -= _penalty(raw[row, foresight + action * _LOOK_AHEAD :])


@_inlined
def _penalty(branches):
    """Return the death penalty of an action, see ``rl.policy.policy.death_penalty``."""
    latest = np.float32(np.inf)
    for begin in range(0, _LOOK_AHEAD, len(AHEAD)):
        latest = min(latest, branches[begin + AHEAD.death])
    return np.float32(DEATH_PENALTY) * ((np.float32(1.0) if latest > 0 else np.float32(0.0)) + latest)


@_inlined
def _dense(values, weights, used, sums, relu):
    """Apply a layer; inputs of 0 are skipped, the others are added four at a time."""
    width, count = len(sums), 0
    for j in range(width):
        sums[j] = weights[len(values) * width + j]
    for i in range(len(values)):
        if values[i] != 0:
            used[count] = i
            count += 1
    k = 0
    while k + 4 <= count:
        i0, i1, i2, i3 = used[k], used[k + 1], used[k + 2], used[k + 3]
        v0, v1, v2, v3 = values[i0], values[i1], values[i2], values[i3]
        w0, w1 = weights[i0 * width : (i0 + 1) * width], weights[i1 * width : (i1 + 1) * width]
        w2, w3 = weights[i2 * width : (i2 + 1) * width], weights[i3 * width : (i3 + 1) * width]
        for j in range(width):
            sums[j] += v0 * w0[j] + v1 * w1[j] + v2 * w2[j] + v3 * w3[j]
        k += 4
    while k < count:
        v0, w0 = values[used[k]], weights[used[k] * width : (used[k] + 1) * width]
        for j in range(width):
            sums[j] += v0 * w0[j]
        k += 1
    if relu:
        for j in range(width):
            sums[j] = max(sums[j], np.float32(0.0))
