"""Graph networks: encoders from the observation ``graph_state`` to features.

    encoder = GraphEncoder(GraphNetwork("gcn", layers=2, width=64, heads=0, out=128))
    encoder(observations)                                             # float[N, 128]

The layers encode each distinct graph of a minibatch once (``GraphBatch``, ``GraphLayers``).  The features of a decision
then come from the nodes at 13 cells and from the mean of all nodes.  The cells are the ninja's cell, the eight around it, and
those of switch, exit and both waypoints.  While the weights do not change, as in a rollout, ``cache`` caches graphs.

Without batch norm and dropout, the encoding of a graph does not depend on other graphs, except for rounding.
Sources: Kipf & Welling 2017 (GCN, here with the mean), Veličković et al. 2018 (GAT), Hu et al. 2020 (HGT).
``docs/lab/decisions.md`` explains why the project has its own implementations.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from hardware.memory import MAX_CACHED_GRAPHS
from nppsim.levels.stage import CELLS_X, CELLS_Y, TILE
from nppsim.observe import layout
from nppsim.observe.graph import CELL, EDGE_TYPES, FEATURES, NODE_TYPES, NONE, NUM_SLOTS, SLOTS, Graph, graph_of
from rl.policy.architectures import GraphNetwork
from rl.policy.graph_kernels import attend, dot_product_attention

_NUM_TYPES, _NUM_RELATIONS = len(NODE_TYPES), len(EDGE_TYPES)
_RELATION = [EDGE_TYPES.index(name) for name in SLOTS]  # edge type of each slot
_NEGATIVE_SLOPE = 0.2  # slope of GAT's leaky ReLU for negative inputs
_AROUND = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
_NUM_PLACES = len(_AROUND) + 4
_STATE = layout.slots(layout.SPECS["game_state"].components)
_PATH = layout.slots(layout.SPECS["reachability_features"].components)
_ENTITY = layout.slots(layout.SPECS["entity_positions"].components)

States = list[bytes]  # rows of ``graph_state``, as bytes


def compute_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype of autocast on this device if it is enabled, else float32."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else torch.float32


def states_of(observed: torch.Tensor) -> States:
    """Convert ``graph_state``, int64[N, 8], to N bytes objects, which can be dictionary keys."""
    rows = np.ascontiguousarray(observed.cpu().numpy())
    return rows.view(f"V{rows.shape[1] * rows.itemsize}").reshape(-1).tolist()


def distinct(states: States) -> tuple[States, list[int]]:
    """Return the distinct states in the order of their first occurrence, and the index of each state among them."""
    index: dict[bytes, int] = {}
    which = [index.setdefault(state, len(index)) for state in states]
    return list(index), which


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """G graphs with N nodes in total; the nodes of a graph are contiguous.

    A node has up to 16 neighbours, which send messages to it.  Each of its 16 slots has a fixed meaning, so a sum over
    neighbours is a sum along an axis.

    features: float32[N, F], features of the nodes.
    neighbours: int64[N, 16], the node in each slot; an empty slot has the node itself.
    valid: bool[N, 16], False for empty slots.
    receivers: int64[E], indices into the flattened ``neighbours``, grouped by neighbour; the backward pass needs them.
    receiver_start: int64[N], index of the first receiver of each node.
    typed: for each node type except cells, indices int64[n] of the nodes of this type.
    graph: int64[N], index of the graph of each node.
    sizes: float32[G, 1], number of nodes of each graph.
    cell_node: int64[G, 1100], node of each cell of the stage.
    """

    features: torch.Tensor
    neighbours: torch.Tensor
    valid: torch.Tensor
    receivers: torch.Tensor
    receiver_start: torch.Tensor
    typed: tuple[torch.Tensor, ...]
    graph: torch.Tensor
    sizes: torch.Tensor
    cell_node: torch.Tensor

    @staticmethod
    def of(states: Sequence[bytes], device: torch.device) -> "GraphBatch":
        """Return the graphs of some states.  Raises GraphError if no bank of this process has the level of a state."""
        return GraphBatch.join([graph_of(np.frombuffer(state, np.int64)) for state in states], device)

    @staticmethod
    def join(graphs: Sequence[Graph], device: torch.device) -> "GraphBatch":
        """Concatenate graphs."""
        sizes = np.array([len(graph) for graph in graphs])
        first = np.cumsum(sizes) - sizes
        graph_index = np.repeat(np.arange(len(graphs)), sizes)
        neighbours = np.concatenate([graph.neighbours for graph in graphs])
        valid = neighbours != NONE
        neighbours = np.where(valid, neighbours + first[graph_index][:, None], np.arange(len(neighbours))[:, None])
        edges = np.array([len(graph.edges_by_source[0]) for graph in graphs])
        receivers = np.concatenate([graph.edges_by_source[0] for graph in graphs]) + NUM_SLOTS * np.repeat(first, edges)
        counts = np.concatenate([graph.edges_by_source[1] for graph in graphs])
        types = np.concatenate([graph.types for graph in graphs])

        def tensor(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array).to(device)

        return GraphBatch(
            features=tensor(np.concatenate([graph.features for graph in graphs])),
            neighbours=tensor(neighbours),
            valid=tensor(valid),
            receivers=tensor(receivers),
            receiver_start=tensor(np.cumsum(counts) - counts),
            typed=tuple(tensor(np.flatnonzero(types == kind)) for kind in range(CELL + 1, len(NODE_TYPES))),
            graph=tensor(graph_index),
            sizes=tensor(sizes.astype(np.float32)[:, None]),
            cell_node=tensor(np.stack([graph.cell_node for graph in graphs]) + first[:, None]),
        )

    def gather(self, nodes: torch.Tensor) -> torch.Tensor:
        """Return the values of the neighbours, [N, W] to [N, 16, W].  The gradient of empty slots must be zero."""
        return _Gather.apply(nodes, self.neighbours, self.receivers, self.receiver_start)

    def neighbour_mean(self, nodes: torch.Tensor) -> torch.Tensor:
        """Return the mean over the neighbours of each node, which include the node itself: [N, W] to [N, W]."""
        weights = self.valid / self.valid.sum(dim=1, keepdim=True)
        return _NeighbourMean.apply(nodes, self.neighbours, weights, self.receivers, self.receiver_start)

    def mean(self, nodes: torch.Tensor) -> torch.Tensor:
        """Return the mean over the nodes of each graph: [N, W] to [G, W]."""
        total = torch.zeros(
            len(self.sizes), nodes.shape[1], device=nodes.device
        )  # float32: bf16 has 8 significant bits
        return (total.index_add(0, self.graph, nodes.float()) / self.sizes).to(nodes.dtype)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, nodes: torch.Tensor, neighbours: torch.Tensor, receivers: torch.Tensor, start: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(receivers, start)
        return nodes.index_select(0, neighbours.flatten()).view(*neighbours.shape, nodes.shape[1])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        receivers, start = ctx.saved_tensors
        gradient = gradient.reshape(-1, gradient.shape[-1])
        return F.embedding_bag(receivers, gradient, start, mode="sum"), None, None, None


class _NeighbourMean(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        nodes: torch.Tensor,
        neighbours: torch.Tensor,
        weights: torch.Tensor,
        receivers: torch.Tensor,
        start: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(weights, receivers, start)
        return F.embedding_bag(neighbours, nodes, mode="sum", per_sample_weights=weights.to(nodes.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        weights, receivers, start = ctx.saved_tensors
        shares = weights.flatten()[receivers].to(gradient.dtype)
        rows = receivers // weights.shape[1]
        back = F.embedding_bag(rows, gradient.contiguous(), start, mode="sum", per_sample_weights=shares)
        return back, None, None, None, None


class MeanLayer(nn.Module):
    """Graph convolution: a linear layer on the mean over the neighbours."""

    def __init__(self, inputs: int, network: GraphNetwork):
        super().__init__()
        self.linear = nn.Linear(inputs, network.width)

    def forward(self, nodes: torch.Tensor, batch: GraphBatch) -> torch.Tensor:
        return F.relu(self.linear(batch.neighbour_mean(nodes)))


class AttentionLayer(nn.Module):
    """Graph attention: the weight of a neighbour depends on both nodes and on the slot."""

    all_alike: torch.Tensor

    def __init__(self, inputs: int, network: GraphNetwork):
        super().__init__()
        self.heads = network.heads
        self.value = nn.Linear(inputs, network.width)
        self.scores = nn.Linear(inputs, 2 * network.heads, bias=False)  # two scores of a node: as source and as target
        self.slot = nn.Parameter(torch.zeros(NUM_SLOTS, network.heads))
        # relation of each slot for ``attend``: one for all, so that the messages of all slots are summed
        self.register_buffer("all_alike", torch.zeros(NUM_SLOTS, dtype=torch.int64), persistent=False)

    def forward(self, nodes: torch.Tensor, batch: GraphBatch) -> torch.Tensor:
        source, target = self.scores(nodes).chunk(2, dim=1)
        scores = F.leaky_relu(batch.gather(source) + target[:, None] + self.slot, _NEGATIVE_SLOPE)
        return F.relu(attend(scores, self.value(nodes), batch.neighbours, batch.valid, self.all_alike, 1)[:, 0])


class TransformerLayer(nn.Module):
    """Layer of a heterogeneous graph transformer.

    Queries, keys and values depend on the node type, attention and messages on the edge type.
    simple: True for edge types without matrices; they only add a score for each head.
    relation: int64[16], edge type of each slot.
    matrix: int64[16], for each slot, index of its query and of its sum of messages: its edge type, or 0 if ``simple``.
    """

    relation: torch.Tensor
    matrix: torch.Tensor

    def __init__(self, network: GraphNetwork, simple: bool):
        super().__init__()
        self.heads, self.simple, width = network.heads, simple, network.width
        size = width // self.heads
        self.inputs = TypedLinear(width, 3 * width)
        self.output = TypedLinear(width, width)
        self.prior = nn.Parameter(torch.zeros(_NUM_RELATIONS, self.heads))
        if not simple:
            same = torch.eye(size).expand(self.heads, _NUM_RELATIONS, size, size)
            self.attention = nn.Parameter((same + torch.randn_like(same) / size).transpose(1, 2).contiguous())
            self.message = nn.Parameter(same + torch.randn_like(same) / size)
        relation = torch.tensor(_RELATION)
        self.register_buffer("relation", relation, persistent=False)
        self.register_buffer("matrix", relation * (not simple), persistent=False)

    def forward(self, nodes: torch.Tensor, batch: GraphBatch) -> torch.Tensor:
        query, keys, values = self.inputs(nodes, batch).chunk(3, dim=1)
        queries = query[:, None] if self.simple else self._queries(query)
        prior = self.prior[self.relation]
        messages = dot_product_attention(queries, keys, values, prior, batch.neighbours, batch.valid, self.matrix)
        total = messages[:, 0] if self.simple else self._sum(messages)
        return nodes + self.output(F.gelu(total), batch)

    def _queries(self, query: torch.Tensor) -> torch.Tensor:
        """Return the query for each relation, [N, W] to [N, R, W]."""
        matrices = _block_diagonal(self.attention.permute(2, 0, 3, 1))
        return F.linear(query, matrices.flatten(0, 1)).unflatten(1, (_NUM_RELATIONS, -1))

    def _sum(self, messages: torch.Tensor) -> torch.Tensor:
        """Transform the messages of each relation and sum them, [N, R, W] to [N, W]."""
        matrices = _block_diagonal(self.message.permute(1, 0, 3, 2))
        return F.linear(messages.flatten(1), matrices.transpose(0, 1).flatten(1))


def _block_diagonal(blocks: torch.Tensor) -> torch.Tensor:
    """Put the blocks of all heads on a diagonal, [R, heads, a, b] to [R, heads * a, heads * b].

    One matrix product that includes the zeros is faster than a product per head, whose results would have to be
    reordered in memory.
    """
    apart = torch.eye(blocks.shape[1], device=blocks.device)[:, None, :, None]
    return (blocks[:, :, :, None] * apart).flatten(3).flatten(1, 2)


class TypedLinear(nn.Module):
    """Linear layer with separate weights for each node type, [N, inputs] to [N, outputs].

    One tensor contains the weights of all types.  In levels without doors, the weights for doors have no gradient; as a
    separate tensor, they would look like a disconnected part of the network.
    """

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        bound = 1 / math.sqrt(inputs)  # as in nn.Linear
        self.weight = nn.Parameter(torch.empty(_NUM_TYPES, outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(_NUM_TYPES, outputs).uniform_(-bound, bound))

    def forward(self, nodes: torch.Tensor, batch: GraphBatch) -> torch.Tensor:
        """Apply the weights for cells to all nodes, as most nodes are cells; then replace the results of other nodes."""
        of_cells, *others = (F.linear(*arguments) for arguments in self._by_type(nodes, batch))
        return of_cells.index_copy(0, torch.cat(batch.typed), torch.cat(others))

    def _by_type(
        self, nodes: torch.Tensor, batch: GraphBatch
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        yield nodes, self.weight[CELL], self.bias[CELL]
        parts = nodes.index_select(0, torch.cat(batch.typed)).split([len(index) for index in batch.typed])
        yield from zip(parts, self.weight[CELL + 1 :], self.bias[CELL + 1 :], strict=True)


class GraphLayers(nn.Module):
    """Layers of a graph network, from a batch of graphs to node features [N, width]."""

    def __init__(self, network: GraphNetwork):
        super().__init__()
        typed = network.kind in ("hgt", "simplified_hgt")
        self.entry = TypedLinear(len(FEATURES), network.width) if typed else None
        layers: list[nn.Module] = []
        for inputs, _ in pairwise((len(FEATURES), *(network.width for _ in range(network.layers)))):
            if typed:
                layers.append(TransformerLayer(network, network.kind == "simplified_hgt"))
            else:
                layers.append((MeanLayer if network.kind == "gcn" else AttentionLayer)(inputs, network))
        self.layers = nn.ModuleList(layers)

    def forward(self, batch: GraphBatch) -> torch.Tensor:
        nodes = batch.features if self.entry is None else F.relu(self.entry(batch.features, batch))
        for layer in self.layers:
            nodes = layer(nodes, batch)
        return nodes


@dataclass(frozen=True, eq=False)
class _Encoded:
    """Node features of G encoded graphs.

    nodes: float[N, W], features of the nodes of all graphs.
    means: float[G, W], mean over the nodes of each graph.
    cell_node: int64[G, 1100], row of ``nodes`` for each cell of the stage.
    """

    nodes: torch.Tensor
    means: torch.Tensor
    cell_node: torch.Tensor


class _Cache:
    """Graphs that were encoded with the same weights and precision.  index: ``graph_state`` -> index of its graph."""

    def __init__(self, weights: list[torch.Tensor], precision: torch.dtype):
        self.weights, self.precision = weights, precision
        self.index: dict[bytes, int] = {}
        self._filled = 0  # number of rows of ``nodes`` in use
        self.encoded: _Encoded

    def add(self, states: States, more: _Encoded) -> None:
        """Append graphs.  Full tensors are replaced by tensors of at least twice the size."""
        if not self.index:
            self.encoded = _Encoded(*(tensor.new_empty(0, *tensor.shape[1:]) for tensor in vars(more).values()))
        graphs, rows = len(self.index), self._filled
        ends = {"nodes": rows + len(more.nodes), "means": graphs + len(states), "cell_node": graphs + len(states)}
        self.encoded = _Encoded(**{name: _grown(tensor, ends[name]) for name, tensor in vars(self.encoded).items()})
        self.encoded.nodes[rows : ends["nodes"]] = more.nodes
        self.encoded.means[graphs : ends["means"]] = more.means
        self.encoded.cell_node[graphs : ends["cell_node"]] = more.cell_node + rows
        self._filled = ends["nodes"]
        self.index.update(zip(states, range(graphs, graphs + len(states)), strict=True))


def _grown(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """Return a tensor with at least ``rows`` rows: the given one, or a larger copy."""
    if rows <= len(tensor):
        return tensor
    larger = tensor.new_empty(max(rows, 2 * len(tensor)), *tensor.shape[1:])
    larger[: len(tensor)] = tensor
    return larger


class GraphEncoder(nn.Module):
    """Encoder from raw observations to features [N, network.out]."""

    around: torch.Tensor

    def __init__(self, network: GraphNetwork):
        super().__init__()
        self.layers = GraphLayers(network)
        self.reading = nn.Linear((_NUM_PLACES + 1) * network.width + 2, network.out)
        self.register_buffer("around", torch.tensor(_AROUND, dtype=torch.float32), persistent=False)
        self._cache: _Cache | None = None

    def forward(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        states = states_of(observations["graph_state"])
        encoded, which = self._encoded(states)
        cells, offset = self._cells(observations)
        rows = encoded.cell_node[which[:, None], cells]
        read = F.embedding(rows, encoded.nodes).flatten(1)
        return F.relu(self.reading(torch.cat([read, encoded.means[which], offset.to(read.dtype)], dim=1)))

    def cache(self, observed: torch.Tensor) -> None:
        """Encode the graphs of ``graph_state``, int64[N, 8], and cache them.  Not thread-safe.

        The cache is cleared when weights or precision change, when it is full, and by ``clear_cache``.
        """
        cache = self._valid_cache()
        if cache is None or len(cache.index) > MAX_CACHED_GRAPHS:
            weights = [parameter.detach().clone() for parameter in self.layers.parameters()]
            cache = self._cache = _Cache(weights, compute_dtype(self.around.device))
        new = [state for state in distinct(states_of(observed))[0] if state not in cache.index]
        if new:
            with torch.no_grad():
                cache.add(new, self._encode(new))

    def clear_cache(self) -> None:
        """Clear the cache.  The rounding of a cached graph depends on the graphs that were encoded with it."""
        self._cache = None

    def _valid_cache(self) -> _Cache | None:
        """Return the cache if precision and weights are unchanged.

        Weights are compared by value, as the fused optimiser does not change their version counters.
        """
        cache = self._cache
        if cache is None or cache.precision != compute_dtype(self.around.device):
            return None
        return cache if all(map(torch.equal, cache.weights, self.layers.parameters())) else None

    def _encoded(self, states: States) -> tuple[_Encoded, torch.Tensor]:
        """Return encoded graphs and the index of each state among them.

        The graphs come from the cache if no gradient is needed and the cache contains all states.
        """
        device = self.around.device
        cache = None if torch.is_grad_enabled() else self._valid_cache()
        if cache is not None:
            rows = [cache.index.get(state, -1) for state in states]
            if min(rows) >= 0:
                return cache.encoded, torch.tensor(rows, device=device)
        graphs, which = distinct(states)
        return self._encode(graphs), torch.tensor(which, device=device)

    def _encode(self, states: States) -> _Encoded:
        batch = GraphBatch.of(states, self.around.device)
        nodes = self.layers(batch)
        return _Encoded(nodes, batch.mean(nodes), batch.cell_node)

    def _cells(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the cells to read, int64[N, 13], and the ninja's position in its cell, float32[N, 2], -1 to 1."""
        state, path, entities = (
            observations[key] for key in ("game_state", "reachability_features", "entity_positions")
        )
        ninja = state[:, [_STATE.x, _STATE.y]]
        goals = [
            entities[:, [_ENTITY.switch_x, _ENTITY.switch_y]],
            entities[:, [_ENTITY.exit_x, _ENTITY.exit_y]],
            ninja + path[:, [_PATH.waypoint1_dx, _PATH.waypoint1_dy]],
            ninja + path[:, [_PATH.waypoint2_dx, _PATH.waypoint2_dy]],
        ]
        here = (ninja / TILE).floor()
        cells = torch.cat([here[:, None] + self.around, (torch.stack(goals, dim=1) / TILE).floor()], dim=1)
        column, row = cells[..., 0].clamp(0, CELLS_X - 1), cells[..., 1].clamp(0, CELLS_Y - 1)
        return (column * CELLS_Y + row).long(), 2 * (ninja / TILE - here) - 1
