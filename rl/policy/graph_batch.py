"""The distinct graphs of a minibatch, side by side in one set of tensors.

A node hears from up to 16 others, in slots of fixed meaning, so that sums over neighbours are sums along an axis.  The way
back, from what a node heard to those it heard it from, is a sum over lists of different lengths; these lists are made with
the graph, as sorting them here would take longer than all the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from nppsim.observe.graph import CELL, NODE_TYPES, NONE, NUM_SLOTS, Graph, graph_of

States = list[bytes]  # ``graph_state`` of some decisions


def states_of(observed: torch.Tensor) -> States:
    """The rows of ``graph_state`` int64[N, 8], as keys of dictionaries."""
    rows = np.ascontiguousarray(observed.cpu().numpy())
    return rows.view(f"V{rows.shape[1] * rows.itemsize}").reshape(-1).tolist()


def numbered(states: States) -> tuple[States, list[int]]:
    """(the distinct ones in the order in which they come first, the place there of each)."""
    places: dict[bytes, int] = {}
    which = [places.setdefault(state, len(places)) for state in states]
    return list(places), which


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """G graphs of N nodes in all; a graph's nodes are neighbours.

    features: float32[N, F].
    neighbours: int64[N, 16]; the node itself where there is none.
    heard: bool[N, 16], where there is one.
    listeners: int64[E], places in ``neighbours`` flattened, by source.
    listener_start: int64[N], where each source's begin.
    typed: for each type but cells, int64[n], its nodes.
    graph: int64[N], number of each node's graph.
    sizes: float32[G, 1].
    cell_node: int64[G, 1100].
    """

    features: torch.Tensor
    neighbours: torch.Tensor
    heard: torch.Tensor
    listeners: torch.Tensor
    listener_start: torch.Tensor
    typed: tuple[torch.Tensor, ...]
    graph: torch.Tensor
    sizes: torch.Tensor
    cell_node: torch.Tensor

    @staticmethod
    def of(states: Sequence[bytes], device: torch.device) -> "GraphBatch":
        """The graphs of some states.  GraphError: a state whose level no bank of this process has."""
        return GraphBatch.join([graph_of(np.frombuffer(state, np.int64)) for state in states], device)

    @staticmethod
    def join(graphs: Sequence[Graph], device: torch.device) -> "GraphBatch":
        """Put graphs side by side."""
        sizes = np.array([len(graph) for graph in graphs])
        first = np.cumsum(sizes) - sizes
        graph_number = np.repeat(np.arange(len(graphs)), sizes)
        of_node = first[graph_number]
        neighbours = np.concatenate([graph.neighbours for graph in graphs])
        heard = neighbours != NONE
        neighbours = np.where(heard, neighbours + of_node[:, None], np.arange(len(neighbours))[:, None])
        edges = np.array([len(graph.listeners[0]) for graph in graphs])
        listeners = np.concatenate([graph.listeners[0] for graph in graphs]) + NUM_SLOTS * np.repeat(first, edges)
        counts = np.concatenate([graph.listeners[1] for graph in graphs])
        types = np.concatenate([graph.types for graph in graphs])
        arrays = (
            np.concatenate([graph.features for graph in graphs]), neighbours, heard, listeners, np.cumsum(counts) - counts,
            graph_number, sizes.astype(np.float32)[:, None],
            np.stack([graph.cell_node for graph in graphs]) + first[:, None],
        )  # fmt: skip
        features, near, is_heard, by_source, start, number, nodes, cells = (
            torch.from_numpy(array).to(device) for array in arrays
        )
        typed = tuple(
            torch.from_numpy(np.flatnonzero(types == kind)).to(device) for kind in range(CELL + 1, len(NODE_TYPES))
        )
        return GraphBatch(features, near, is_heard, by_source, start, typed, number, nodes, cells)

    def hear(self, nodes: torch.Tensor) -> torch.Tensor:
        """What each node's neighbours say: [N, W] to [N, 16, W]; where there is none, the gradient of it must be zero."""
        return _Hear.apply(nodes, self.neighbours, self.listeners, self.listener_start)

    def mean_heard(self, nodes: torch.Tensor) -> torch.Tensor:
        """The mean over each node's neighbours, itself among them: [N, W] to [N, W]."""
        weights = self.heard / self.heard.sum(dim=1, keepdim=True)
        return _MeanHeard.apply(nodes, self.neighbours, weights, self.listeners, self.listener_start)

    def mean(self, nodes: torch.Tensor) -> torch.Tensor:
        """The mean over each graph's nodes: [N, W] to [G, W]."""
        total = nodes.new_zeros(len(self.sizes), nodes.shape[1])
        return total.index_add(0, self.graph, nodes) / self.sizes.to(nodes.dtype)


class _Hear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, nodes: torch.Tensor, neighbours: torch.Tensor, listeners: torch.Tensor, start: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(listeners, start)
        return nodes.index_select(0, neighbours.flatten()).view(*neighbours.shape, nodes.shape[1])

    @staticmethod
    def backward(ctx: Any, heard: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        listeners, start = ctx.saved_tensors
        heard = heard.reshape(-1, heard.shape[-1])
        return F.embedding_bag(listeners, heard, start, mode="sum"), None, None, None


class _MeanHeard(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        nodes: torch.Tensor,
        neighbours: torch.Tensor,
        weights: torch.Tensor,
        listeners: torch.Tensor,
        start: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(weights, listeners, start)
        return F.embedding_bag(neighbours, nodes, mode="sum", per_sample_weights=weights.to(nodes.dtype))

    @staticmethod
    def backward(ctx: Any, means: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        weights, listeners, start = ctx.saved_tensors
        shares = weights.flatten()[listeners].to(means.dtype)
        back = F.embedding_bag(
            listeners // weights.shape[1], means.contiguous(), start, mode="sum", per_sample_weights=shares
        )
        return back, None, None, None, None
