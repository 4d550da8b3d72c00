"""Layers over graphs: from what the nodes are to what they are among their neighbours.

Each takes a ``GraphBatch`` and float[N, W].  None normalises over a batch or drops anything: what becomes of a graph does
not depend on the graphs beside it.  Sources: Kipf & Welling 2017 (GCN, here with the mean), Veličković et al. 2018 (GAT),
Hu et al. 2020 (HGT).  Why they are our own: ``docs/lab/decisions.md``.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from nppsim.observe.graph import CELL, EDGE_TYPES, FEATURES, NODE_TYPES, NUM_SLOTS, SLOTS
from rl.policy.architectures import GraphNetwork
from rl.policy.graph_batch import GraphBatch
from rl.policy.graph_kernels import attend, listen

_NUM_TYPES, _NUM_RELATIONS = len(NODE_TYPES), len(EDGE_TYPES)
_RELATION = [EDGE_TYPES.index(name) for name in SLOTS]  # of each slot
_STEEPNESS = 0.2  # of GAT's leaky ReLU below zero


class MeanLayer(nn.Module):
    """Graph convolution: a linear layer over the mean of the neighbours and the node itself."""

    def __init__(self, inputs: int, network: GraphNetwork):
        super().__init__()
        self.linear = nn.Linear(inputs, network.width)

    def forward(self, nodes: torch.Tensor, batch: GraphBatch) -> torch.Tensor:
        return F.relu(self.linear(batch.mean_heard(nodes)))


class AttentionLayer(nn.Module):
    """Graph attention: each head weighs the neighbours by what both ends are, and by the slot that joins them."""

    all_alike: torch.Tensor

    def __init__(self, inputs: int, network: GraphNetwork):
        super().__init__()
        self.heads = network.heads
        self.value = nn.Linear(inputs, network.width)
        self.scores = nn.Linear(inputs, 2 * network.heads, bias=False)  # of a node as source and as target
        self.slot = nn.Parameter(torch.zeros(NUM_SLOTS, network.heads))
        self.register_buffer("all_alike", torch.zeros(NUM_SLOTS, dtype=torch.int64), persistent=False)

    def forward(self, nodes: torch.Tensor, batch: GraphBatch) -> torch.Tensor:
        source, target = self.scores(nodes).chunk(2, dim=1)
        scores = F.leaky_relu(batch.hear(source) + target[:, None] + self.slot, _STEEPNESS)
        return F.relu(attend(scores, self.value(nodes), batch, self.all_alike, 1)[:, 0])


class TransformerLayer(nn.Module):
    """Heterogeneous graph transformer: queries, keys and values by the node's type, attention and messages by the edge's.

    simple: edges' types add a score to each head, and have no matrices of their own.
    relation, matrix: int64[16], type of each slot's edge, and the matrices that it has.
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
        asked = query[:, None] if self.simple else self._by_relation(query)
        told = listen(asked, keys, values, self.prior[self.relation], batch, self.matrix)
        heard = told[:, 0] if self.simple else self._of_relations(told)
        return nodes + self.output(F.gelu(heard), batch)

    def _by_relation(self, query: torch.Tensor) -> torch.Tensor:
        """[N, W] to [N, R, W]: the query that each relation makes of it."""
        matrices = _block_diagonal(self.attention.permute(2, 0, 3, 1))
        return F.linear(query, matrices.flatten(0, 1)).unflatten(1, (_NUM_RELATIONS, -1))

    def _of_relations(self, told: torch.Tensor) -> torch.Tensor:
        """[N, R, W] to [N, W]: the sum of what each relation makes of its part."""
        matrices = _block_diagonal(self.message.permute(1, 0, 3, 2))
        return F.linear(told.flatten(1), matrices.transpose(0, 1).flatten(1))


def _block_diagonal(blocks: torch.Tensor) -> torch.Tensor:
    """[R, heads, a, b] to [R, heads * a, heads * b], the blocks along the diagonal and zeros elsewhere.

    One product with all these zeros takes less time than one for each head, whose results lie in another order.
    """
    apart = torch.eye(blocks.shape[1], device=blocks.device)[:, None, :, None]
    return (blocks[:, :, :, None] * apart).flatten(3).flatten(1, 2)


class TypedLinear(nn.Module):
    """A linear layer for each type of node: [N, inputs] to [N, outputs].

    One tensor holds the weights of all types: levels without doors teach nothing about doors, and a tensor of its own that
    never moves would look like a part of the network that is cut off.
    """

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        reach = 1 / math.sqrt(inputs)  # as in nn.Linear
        self.weight = nn.Parameter(torch.empty(_NUM_TYPES, outputs, inputs).uniform_(-reach, reach))
        self.bias = nn.Parameter(torch.empty(_NUM_TYPES, outputs).uniform_(-reach, reach))

    def forward(self, nodes: torch.Tensor, batch: GraphBatch) -> torch.Tensor:
        """Most nodes are cells: all go through that type's layer, and the others are put in their places after it."""
        of_cells, *others = (F.linear(*arguments) for arguments in self._by_type(nodes, batch))
        return of_cells.index_copy(0, torch.cat(batch.typed), torch.cat(others))

    def _by_type(
        self, nodes: torch.Tensor, batch: GraphBatch
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        yield nodes, self.weight[CELL], self.bias[CELL]
        parts = nodes.index_select(0, torch.cat(batch.typed)).split([len(index) for index in batch.typed])
        yield from zip(parts, self.weight[CELL + 1 :], self.bias[CELL + 1 :], strict=True)


class GraphLayers(nn.Module):
    """The layers of a network: the features of a batch's nodes to [N, width]."""

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
