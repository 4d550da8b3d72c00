"""Attention along the edges of graphs, without an array of what every node hears.

    told = attend(scores, values, batch, relation, relations)       # float32[N, R, W]: softmax over slots, sums by relation
    told = listen(asked, keys, values, prior, batch, relation)      # the same with scores by queries and keys

Such an array has 16 rows for each node, of which six are used; making and reading it, there and back, is all of the time.
On a CPU loops over the edges take a tenth of it.  On other devices the same is written in torch's own operations, which
also are what the tests compare the loops with.
"""

import math
from typing import Any

import numba
import numpy as np
import torch

from rl.policy.graph_batch import GraphBatch

# Sums in any order, so that they are vectorised; infinities stay what they are.
_njit: Any = numba.njit  # its own annotations hide the arguments of what it compiles
_options: Any = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz", "arcp"}}
_compiled, _inlined = _njit(cache=True, **_options), _njit(inline="always", **_options)


def listen(
    asked: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    prior: torch.Tensor,
    batch: GraphBatch,
    relation: torch.Tensor,
) -> torch.Tensor:
    """``attend`` with the scores asked . key / sqrt(W / heads) + prior of each head: float32[N, R, W].

    asked: [N, R, W], queries of each relation.
    keys, values: [N, W].
    prior: [16, heads], of each slot.
    relation: int64[16], of each slot; 0 to R - 1.
    """
    asked, keys, values, prior = (one.float().contiguous() for one in (asked, keys, values, prior))
    if asked.device.type == "cpu":
        return _Listen.apply(asked, keys, values, prior, batch.neighbours, batch.heard, relation)
    heads = prior.shape[1]
    products = _Dots.apply(asked, keys, batch.neighbours, batch.heard, relation, heads)
    return attend(products / math.sqrt(keys.shape[1] / heads) + prior, values, batch, relation, asked.shape[1])


def attend(
    scores: torch.Tensor, values: torch.Tensor, batch: GraphBatch, relation: torch.Tensor, relations: int
) -> torch.Tensor:
    """The neighbours' values, weighed by the softmax of each head's scores over all slots: float32[N, R, W], by relation.

    scores: [N, 16, heads].
    values: [N, W].
    relation: int64[16], of each slot; 0 to R - 1.
    relations: R.
    """
    return _Attend.apply(scores.float(), values.float(), batch.neighbours, batch.heard, relation, relations)


def _arrays(*tensors: torch.Tensor) -> list[np.ndarray]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


class _Listen(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        asked: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        prior: torch.Tensor,
        neighbours: torch.Tensor,
        heard: torch.Tensor,
        relation: torch.Tensor,
    ) -> torch.Tensor:
        told, weights = torch.zeros_like(asked), torch.zeros(len(asked), *prior.shape)
        _listen(*_arrays(asked, keys, values, prior, neighbours, heard, relation), weights.numpy(), told.numpy())
        ctx.save_for_backward(asked, keys, values, weights, neighbours, heard, relation)
        return told

    @staticmethod
    def backward(ctx: Any, back: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        asked, keys, values, weights, neighbours, heard, relation = ctx.saved_tensors
        into = [torch.zeros_like(one) for one in (asked, keys, values, weights[0])]
        arguments = _arrays(asked, keys, values, weights, neighbours, heard, relation, back)
        _listen_back(*arguments, *(one.numpy() for one in into))
        return *into, None, None, None


class _Dots(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        keys: torch.Tensor,
        neighbours: torch.Tensor,
        heard: torch.Tensor,
        relation: torch.Tensor,
        heads: int,
    ) -> torch.Tensor:
        ctx.save_for_backward(query, keys, neighbours, heard, relation)
        products = query[:, relation] * keys[neighbours]
        return products.unflatten(2, (heads, -1)).sum(3) * heard[:, :, None]

    @staticmethod
    def backward(ctx: Any, back: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, keys, neighbours, heard, relation = ctx.saved_tensors
        into_query, into_keys = torch.zeros_like(query), torch.zeros_like(keys)
        wide = (back * heard[:, :, None]).repeat_interleave(keys.shape[1] // back.shape[2], dim=2)
        into_query.index_add_(1, relation, wide * keys[neighbours])
        into_keys.index_add_(0, neighbours.flatten(), (wide * query[:, relation]).flatten(0, 1))
        return into_query, into_keys, None, None, None, None


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        scores: torch.Tensor,
        values: torch.Tensor,
        neighbours: torch.Tensor,
        heard: torch.Tensor,
        relation: torch.Tensor,
        relations: int,
    ) -> torch.Tensor:
        out = values.new_zeros(len(scores), relations, values.shape[1])
        if values.device.type == "cpu":
            weights = torch.zeros_like(scores, memory_format=torch.contiguous_format)
            _attend(*_arrays(scores, values, neighbours, heard, relation), weights.numpy(), out.numpy())
        else:
            weights = scores.masked_fill(~heard[:, :, None], -math.inf).softmax(dim=1)
            wide = weights.repeat_interleave(values.shape[1] // weights.shape[2], dim=2)
            out.index_add_(1, relation, wide * values[neighbours])
        ctx.save_for_backward(weights, values, neighbours, heard, relation)
        return out

    @staticmethod
    def backward(ctx: Any, back: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        weights, values, neighbours, heard, relation = ctx.saved_tensors
        into_scores, into_values = torch.zeros_like(weights), torch.zeros_like(values)
        if values.device.type == "cpu":
            arguments = _arrays(weights, values, neighbours, heard, relation, back)
            _attend_back(*arguments, into_scores.numpy(), into_values.numpy())
        else:
            told, size = back[:, relation], values.shape[1] // weights.shape[2]
            into_weights = (told * values[neighbours]).unflatten(2, (-1, size)).sum(3)
            into_scores = weights * (into_weights - (weights * into_weights).sum(1, keepdim=True))
            wide = weights.repeat_interleave(size, dim=2)
            into_values.index_add_(0, neighbours.flatten(), (wide * told).flatten(0, 1))
        return into_scores, into_values, None, None, None, None


# ------------------------------------------------------------------------------------------------------------------ loops
# Those of ``attend`` run over all columns, as the columns of one head are too few to be vectorised.


@_compiled
def _listen(asked, keys, values, prior, neighbours, heard, relation, weights, told):
    heads = prior.shape[1]
    if keys.shape[1] == 8 * heads:  # a constant, by which loops over a head become single instructions
        _listen_with(asked, keys, values, prior, neighbours, heard, relation, weights, told, heads, 8)
    else:
        size = keys.shape[1] // heads
        _listen_with(asked, keys, values, prior, neighbours, heard, relation, weights, told, heads, size)


@_inlined
def _listen_with(asked, keys, values, prior, neighbours, heard, relation, weights, told, heads, size):
    scale = np.float32(1 / math.sqrt(size))
    highest, total = np.empty(heads, np.float32), np.empty(heads, np.float32)
    for i in range(len(asked)):
        highest[:] = -np.inf
        total[:] = 0.0
        for k in range(len(relation)):
            if heard[i, k]:
                r, j = relation[k], neighbours[i, k]
                for h in range(heads):
                    product = np.float32(0.0)
                    for c in range(size):
                        product += asked[i, r, h * size + c] * keys[j, h * size + c]
                    weights[i, k, h] = product * scale + prior[k, h]
                    highest[h] = max(highest[h], weights[i, k, h])
        for k in range(len(relation)):
            if heard[i, k]:
                for h in range(heads):
                    weights[i, k, h] = np.exp(weights[i, k, h] - highest[h])
                    total[h] += weights[i, k, h]
        for k in range(len(relation)):
            if heard[i, k]:
                r, j = relation[k], neighbours[i, k]
                for h in range(heads):
                    weight = weights[i, k, h] / total[h]
                    weights[i, k, h] = weight
                    for c in range(size):
                        told[i, r, h * size + c] += weight * values[j, h * size + c]


@_compiled
def _listen_back(
    asked, keys, values, weights, neighbours, heard, relation, back, into_asked, into_keys, into_values, into_prior
):
    heads, into = into_prior.shape[1], (into_asked, into_keys, into_values, into_prior)
    if keys.shape[1] == 8 * heads:
        _listen_back_with(asked, keys, values, weights, neighbours, heard, relation, back, into, heads, 8)
    else:
        size = keys.shape[1] // heads
        _listen_back_with(asked, keys, values, weights, neighbours, heard, relation, back, into, heads, size)


@_inlined
def _listen_back_with(asked, keys, values, weights, neighbours, heard, relation, back, into, heads, size):
    into_asked, into_keys, into_values, into_prior = into
    scale = np.float32(1 / math.sqrt(size))
    into_weights, mean = np.empty((len(relation), heads), np.float32), np.empty(heads, np.float32)
    for i in range(len(asked)):
        mean[:] = 0.0
        for k in range(len(relation)):
            if heard[i, k]:
                r, j = relation[k], neighbours[i, k]
                for h in range(heads):
                    weight, product = weights[i, k, h], np.float32(0.0)
                    for c in range(size):
                        product += back[i, r, h * size + c] * values[j, h * size + c]
                        into_values[j, h * size + c] += weight * back[i, r, h * size + c]
                    into_weights[k, h] = product
                    mean[h] += weight * product
        for k in range(len(relation)):
            if heard[i, k]:
                r, j = relation[k], neighbours[i, k]
                for h in range(heads):
                    into_score = weights[i, k, h] * (into_weights[k, h] - mean[h])
                    into_prior[k, h] += into_score
                    scaled = into_score * scale
                    for c in range(size):
                        into_asked[i, r, h * size + c] += scaled * keys[j, h * size + c]
                        into_keys[j, h * size + c] += scaled * asked[i, r, h * size + c]


@_compiled
def _attend(scores, values, neighbours, heard, relation, weights, out):
    width, heads = values.shape[1], scores.shape[2]
    size = width // heads
    wide = np.empty(width, np.float32)
    highest, total = np.empty(heads, np.float32), np.empty(heads, np.float32)
    for i in range(len(scores)):
        highest[:] = -np.inf
        total[:] = 0.0
        for k in range(len(relation)):
            if heard[i, k]:
                for h in range(heads):
                    highest[h] = max(highest[h], scores[i, k, h])
        for k in range(len(relation)):
            if heard[i, k]:
                for h in range(heads):
                    weights[i, k, h] = np.exp(scores[i, k, h] - highest[h])
                    total[h] += weights[i, k, h]
        for k in range(len(relation)):
            if heard[i, k]:
                for h in range(heads):
                    weights[i, k, h] /= total[h]
                    wide[h * size : (h + 1) * size] = weights[i, k, h]
                value, told = values[neighbours[i, k]], out[i, relation[k]]
                for c in range(width):
                    told[c] += wide[c] * value[c]


@_compiled
def _attend_back(weights, values, neighbours, heard, relation, back, into_scores, into_values):
    width, heads = values.shape[1], weights.shape[2]
    size = width // heads
    wide, product = np.empty(width, np.float32), np.empty(width, np.float32)
    mean = np.empty(heads, np.float32)
    for i in range(len(weights)):
        mean[:] = 0.0
        for k in range(len(relation)):
            if heard[i, k]:
                j = neighbours[i, k]
                told, value, to_value = back[i, relation[k]], values[j], into_values[j]
                for c in range(width):
                    product[c] = told[c] * value[c]
                for h in range(heads):
                    total = np.float32(0.0)
                    for c in range(h * size, (h + 1) * size):
                        total += product[c]
                    into_scores[i, k, h] = total
                    mean[h] += weights[i, k, h] * total
                    wide[h * size : (h + 1) * size] = weights[i, k, h]
                for c in range(width):
                    to_value[c] += wide[c] * told[c]
        for k in range(len(relation)):
            if heard[i, k]:
                for h in range(heads):
                    into_scores[i, k, h] = weights[i, k, h] * (into_scores[i, k, h] - mean[h])
