"""Attention along the edges of graphs, without an array of what every node hears.

    scores = dots(query, keys, batch, relation)         # float32[N, 16, heads]
    heard = attend(scores, values, batch, relation)     # float32[N, R, W]: softmax over slots, sums by relation

Such an array has 16 rows for each node, of which six are used; making and reading it, there and back, is all of the time.
On a CPU loops over the edges take a tenth of it.  On other devices the same is written in torch's own operations, which
also are what the tests compare the loops with.
"""

import math
from typing import Any

import numba
import numpy as np
import torch

from nppsim.observe.graph import NUM_SLOTS
from rl.policy.graph_batch import GraphBatch

# Sums in any order, so that they are vectorised; infinities stay what they are.
_njit: Any = numba.njit  # its own annotations hide the arguments of what it compiles
_compiled = _njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "arcp"})


def dots(
    query: torch.Tensor, keys: torch.Tensor, batch: GraphBatch, relation: torch.Tensor, heads: int
) -> torch.Tensor:
    """Products of each node's query with the keys of its neighbours, head by head: float32[N, 16, heads].

    query: [N, R, W], of each relation.  keys: [N, W].  relation: int64[16], of each slot.  0 where there is no neighbour.
    """
    return _Dots.apply(query.float(), keys.float(), batch.neighbours, batch.heard, relation, heads)


def attend(scores: torch.Tensor, values: torch.Tensor, batch: GraphBatch, relation: torch.Tensor) -> torch.Tensor:
    """The neighbours' values, weighed by the softmax of each head's scores over all slots: float32[N, R, W], by relation.

    scores: [N, 16, heads].  values: [N, W].  relation: int64[16], of each slot; 0 to R - 1.
    """
    return _Attend.apply(scores.float(), values.float(), batch.neighbours, batch.heard, relation)


def _arrays(*tensors: torch.Tensor) -> list[np.ndarray]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


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
        if query.device.type == "cpu":
            scores = torch.zeros(len(query), NUM_SLOTS, heads)
            _dots(*_arrays(query, keys, neighbours, heard, relation), scores.numpy())
            return scores
        products = query[:, relation] * keys[neighbours]
        return products.unflatten(2, (heads, -1)).sum(3) * heard[:, :, None]

    @staticmethod
    def backward(ctx: Any, back: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, keys, neighbours, heard, relation = ctx.saved_tensors
        into_query, into_keys = torch.zeros_like(query), torch.zeros_like(keys)
        if query.device.type == "cpu":
            arguments = _arrays(query, keys, neighbours, heard, relation, back)
            _dots_back(*arguments, into_query.numpy(), into_keys.numpy())
        else:
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
    ) -> torch.Tensor:
        relations = int(relation.max()) + 1
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
        return into_scores, into_values, None, None, None


# ------------------------------------------------------------------------------------------------------------------ loops
# Inner loops run over all columns, as those of one head are too few to be vectorised.


@_compiled
def _dots(query, keys, neighbours, heard, relation, scores):
    width, heads = keys.shape[1], scores.shape[2]
    size = width // heads
    product = np.empty(width, np.float32)
    for i in range(len(query)):
        for k in range(len(relation)):
            if heard[i, k]:
                asked, key = query[i, relation[k]], keys[neighbours[i, k]]
                for c in range(width):
                    product[c] = asked[c] * key[c]
                for h in range(heads):
                    total = np.float32(0.0)
                    for c in range(h * size, (h + 1) * size):
                        total += product[c]
                    scores[i, k, h] = total


@_compiled
def _dots_back(query, keys, neighbours, heard, relation, back, into_query, into_keys):
    width, heads = keys.shape[1], back.shape[2]
    size = width // heads
    wide = np.empty(width, np.float32)
    for i in range(len(query)):
        for k in range(len(relation)):
            if heard[i, k]:
                r, j = relation[k], neighbours[i, k]
                for h in range(heads):
                    wide[h * size : (h + 1) * size] = back[i, k, h]
                asked, key, to_query, to_key = query[i, r], keys[j], into_query[i, r], into_keys[j]
                for c in range(width):
                    to_query[c] += wide[c] * key[c]
                for c in range(width):
                    to_key[c] += wide[c] * asked[c]


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
