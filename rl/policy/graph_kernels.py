"""Attention along the edges of graphs.

    out = attend(scores, values, neighbours, valid, relation, relations)                       # float32[N, R, W]
    out = dot_product_attention(queries, keys, values, prior, neighbours, valid, relation)     # float32[N, R, W]

With torch operations, the values of all neighbours form an array with 16 rows per node, of which about six are used.  Writing
and reading this array takes nearly all of the time.  On the CPU, compiled loops over the edges take a tenth of the time.
Other devices use torch operations.
"""

import math
from typing import Any

import numba
import numpy as np
import torch

# fastmath allows sums in any order, which vectorised loops need; infinities remain valid.
_njit: Any = numba.njit  # its annotations would hide the arguments of compiled functions from mypy
_options: Any = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz", "arcp"}}
_compiled, _inlined = _njit(cache=True, **_options), _njit(inline="always", **_options)


def dot_product_attention(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    prior: torch.Tensor,
    neighbours: torch.Tensor,
    valid: torch.Tensor,
    relation: torch.Tensor,
) -> torch.Tensor:
    """Return ``attend`` with the scores query . key / sqrt(W / heads) + prior of each head, float32[N, R, W].

    queries: float[N, R, W], one query for each of the R relations.
    keys, values: float[N, W].
    prior: float[16, heads], score that is added for each slot.
    neighbours, valid, relation: as in ``attend``.
    """
    queries, keys, values, prior = (one.float().contiguous() for one in (queries, keys, values, prior))
    if queries.device.type == "cpu":
        return _DotProductAttention.apply(queries, keys, values, prior, neighbours, valid, relation)
    heads = prior.shape[1]
    products = _Dots.apply(queries, keys, neighbours, valid, relation, heads)
    scores = products / math.sqrt(keys.shape[1] / heads) + prior
    return attend(scores, values, neighbours, valid, relation, queries.shape[1])


def attend(
    scores: torch.Tensor,
    values: torch.Tensor,
    neighbours: torch.Tensor,
    valid: torch.Tensor,
    relation: torch.Tensor,
    relations: int,
) -> torch.Tensor:
    """Sum the values of each node's neighbours by relation, float32[N, R, W].

    The weights are the softmax of the scores of each head over all valid slots of the node.
    scores: float[N, 16, heads].
    values: float[N, W].
    neighbours: int64[N, 16], the node in each slot.
    valid: bool[N, 16], False for empty slots.
    relation: int64[16], relation of each slot, 0 to R - 1.
    relations: number R of relations.
    """
    return _Attend.apply(scores.float(), values.float(), neighbours, valid, relation, relations)


def _arrays(*tensors: torch.Tensor) -> list[np.ndarray]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


class _DotProductAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        prior: torch.Tensor,
        neighbours: torch.Tensor,
        valid: torch.Tensor,
        relation: torch.Tensor,
    ) -> torch.Tensor:
        out, weights = torch.zeros_like(queries), torch.zeros(len(queries), *prior.shape)
        _dot_product(*_arrays(queries, keys, values, prior, neighbours, valid, relation), weights.numpy(), out.numpy())
        ctx.save_for_backward(queries, keys, values, weights, neighbours, valid, relation)
        return out

    @staticmethod
    def backward(ctx: Any, back: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        queries, keys, values, weights, neighbours, valid, relation = ctx.saved_tensors
        into = [torch.zeros_like(one) for one in (queries, keys, values, weights[0])]
        arguments = _arrays(queries, keys, values, weights, neighbours, valid, relation, back)
        _dot_product_back(*arguments, *(one.numpy() for one in into))
        return *into, None, None, None


class _Dots(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        keys: torch.Tensor,
        neighbours: torch.Tensor,
        valid: torch.Tensor,
        relation: torch.Tensor,
        heads: int,
    ) -> torch.Tensor:
        ctx.save_for_backward(query, keys, neighbours, valid, relation)
        products = query[:, relation] * keys[neighbours]
        return products.unflatten(2, (heads, -1)).sum(3) * valid[:, :, None]

    @staticmethod
    def backward(ctx: Any, back: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, keys, neighbours, valid, relation = ctx.saved_tensors
        into_query, into_keys = torch.zeros_like(query), torch.zeros_like(keys)
        wide = (back * valid[:, :, None]).repeat_interleave(keys.shape[1] // back.shape[2], dim=2)
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
        valid: torch.Tensor,
        relation: torch.Tensor,
        relations: int,
    ) -> torch.Tensor:
        out = values.new_zeros(len(scores), relations, values.shape[1])
        if values.device.type == "cpu":
            weights = torch.zeros_like(scores, memory_format=torch.contiguous_format)
            _attend(*_arrays(scores, values, neighbours, valid, relation), weights.numpy(), out.numpy())
        else:
            weights = scores.masked_fill(~valid[:, :, None], -math.inf).softmax(dim=1)
            wide = weights.repeat_interleave(values.shape[1] // weights.shape[2], dim=2)
            out.index_add_(1, relation, wide * values[neighbours])
        ctx.save_for_backward(weights, values, neighbours, valid, relation)
        return out

    @staticmethod
    def backward(ctx: Any, back: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        weights, values, neighbours, valid, relation = ctx.saved_tensors
        into_scores, into_values = torch.zeros_like(weights), torch.zeros_like(values)
        if values.device.type == "cpu":
            arguments = _arrays(weights, values, neighbours, valid, relation, back)
            _attend_back(*arguments, into_scores.numpy(), into_values.numpy())
        else:
            gradient, size = back[:, relation], values.shape[1] // weights.shape[2]
            into_weights = (gradient * values[neighbours]).unflatten(2, (-1, size)).sum(3)
            into_scores = weights * (into_weights - (weights * into_weights).sum(1, keepdim=True))
            wide = weights.repeat_interleave(size, dim=2)
            into_values.index_add_(0, neighbours.flatten(), (wide * gradient).flatten(0, 1))
        return into_scores, into_values, None, None, None, None


# Compiled loops

# The loops of ``attend`` run over all columns, as one head has too few columns for vector instructions.


@_compiled
def _dot_product(queries, keys, values, prior, neighbours, valid, relation, weights, out):
    heads = prior.shape[1]
    if keys.shape[1] == 8 * heads:  # with a constant size, a loop over a head becomes one vector instruction
        _dot_product_with(queries, keys, values, prior, neighbours, valid, relation, weights, out, heads, 8)
    else:
        size = keys.shape[1] // heads
        _dot_product_with(queries, keys, values, prior, neighbours, valid, relation, weights, out, heads, size)


@_inlined
def _dot_product_with(queries, keys, values, prior, neighbours, valid, relation, weights, out, heads, size):
    scale = np.float32(1 / math.sqrt(size))
    highest, total = np.empty(heads, np.float32), np.empty(heads, np.float32)
    for i in range(len(queries)):
        highest[:] = -np.inf
        total[:] = 0.0
        for k in range(len(relation)):
            if valid[i, k]:
                r, j = relation[k], neighbours[i, k]
                for h in range(heads):
                    product = np.float32(0.0)
                    for c in range(size):
                        product += queries[i, r, h * size + c] * keys[j, h * size + c]
                    weights[i, k, h] = product * scale + prior[k, h]
                    highest[h] = max(highest[h], weights[i, k, h])
        for k in range(len(relation)):
            if valid[i, k]:
                for h in range(heads):
                    weights[i, k, h] = np.exp(weights[i, k, h] - highest[h])
                    total[h] += weights[i, k, h]
        for k in range(len(relation)):
            if valid[i, k]:
                r, j = relation[k], neighbours[i, k]
                for h in range(heads):
                    weight = weights[i, k, h] / total[h]
                    weights[i, k, h] = weight
                    for c in range(size):
                        out[i, r, h * size + c] += weight * values[j, h * size + c]


@_compiled
def _dot_product_back(
    queries, keys, values, weights, neighbours, valid, relation, back, into_queries, into_keys, into_values, into_prior
):
    heads, into = into_prior.shape[1], (into_queries, into_keys, into_values, into_prior)
    if keys.shape[1] == 8 * heads:
        _dot_product_back_with(queries, keys, values, weights, neighbours, valid, relation, back, into, heads, 8)
    else:
        size = keys.shape[1] // heads
        _dot_product_back_with(queries, keys, values, weights, neighbours, valid, relation, back, into, heads, size)


@_inlined
def _dot_product_back_with(queries, keys, values, weights, neighbours, valid, relation, back, into, heads, size):
    into_queries, into_keys, into_values, into_prior = into
    scale = np.float32(1 / math.sqrt(size))
    into_weights, mean = np.empty((len(relation), heads), np.float32), np.empty(heads, np.float32)
    for i in range(len(queries)):
        mean[:] = 0.0
        for k in range(len(relation)):
            if valid[i, k]:
                r, j = relation[k], neighbours[i, k]
                for h in range(heads):
                    weight, product = weights[i, k, h], np.float32(0.0)
                    for c in range(size):
                        product += back[i, r, h * size + c] * values[j, h * size + c]
                        into_values[j, h * size + c] += weight * back[i, r, h * size + c]
                    into_weights[k, h] = product
                    mean[h] += weight * product
        for k in range(len(relation)):
            if valid[i, k]:
                r, j = relation[k], neighbours[i, k]
                for h in range(heads):
                    into_score = weights[i, k, h] * (into_weights[k, h] - mean[h])
                    into_prior[k, h] += into_score
                    scaled = into_score * scale
                    for c in range(size):
                        into_queries[i, r, h * size + c] += scaled * keys[j, h * size + c]
                        into_keys[j, h * size + c] += scaled * queries[i, r, h * size + c]


@_compiled
def _attend(scores, values, neighbours, valid, relation, weights, out):
    width, heads = values.shape[1], scores.shape[2]
    size = width // heads
    wide = np.empty(width, np.float32)
    highest, total = np.empty(heads, np.float32), np.empty(heads, np.float32)
    for i in range(len(scores)):
        highest[:] = -np.inf
        total[:] = 0.0
        for k in range(len(relation)):
            if valid[i, k]:
                for h in range(heads):
                    highest[h] = max(highest[h], scores[i, k, h])
        for k in range(len(relation)):
            if valid[i, k]:
                for h in range(heads):
                    weights[i, k, h] = np.exp(scores[i, k, h] - highest[h])
                    total[h] += weights[i, k, h]
        for k in range(len(relation)):
            if valid[i, k]:
                for h in range(heads):
                    weights[i, k, h] /= total[h]
                    wide[h * size : (h + 1) * size] = weights[i, k, h]
                value, target = values[neighbours[i, k]], out[i, relation[k]]
                for c in range(width):
                    target[c] += wide[c] * value[c]


@_compiled
def _attend_back(weights, values, neighbours, valid, relation, back, into_scores, into_values):
    width, heads = values.shape[1], weights.shape[2]
    size = width // heads
    wide, product = np.empty(width, np.float32), np.empty(width, np.float32)
    mean = np.empty(heads, np.float32)
    for i in range(len(weights)):
        mean[:] = 0.0
        for k in range(len(relation)):
            if valid[i, k]:
                j = neighbours[i, k]
                gradient, value, to_value = back[i, relation[k]], values[j], into_values[j]
                for c in range(width):
                    product[c] = gradient[c] * value[c]
                for h in range(heads):
                    total = np.float32(0.0)
                    for c in range(h * size, (h + 1) * size):
                        total += product[c]
                    into_scores[i, k, h] = total
                    mean[h] += weights[i, k, h] * total
                    wide[h * size : (h + 1) * size] = weights[i, k, h]
                for c in range(width):
                    to_value[c] += wide[c] * gradient[c]
        for k in range(len(relation)):
            if valid[i, k]:
                for h in range(heads):
                    into_scores[i, k, h] = weights[i, k, h] * (into_scores[i, k, h] - mean[h])
