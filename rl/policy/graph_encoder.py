"""From ``graph_state`` to what the graph says about where the ninja is and where it has to go.

A minibatch encodes each distinct graph once, and every decision reads the nodes of its places: the ninja's cell and the eight
around it, the cells of switch, exit and both way-points, and the mean of all nodes.  While weights stay as they are, as in a
rollout or an evaluation, ``remember`` encodes a graph when it is first met and never again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from hardware.memory import MOST_REMEMBERED
from nppsim.levels.stage import CELLS_X, CELLS_Y, TILE
from nppsim.observe import layout
from rl.policy.architectures import GraphNetwork
from rl.policy.graph_batch import GraphBatch, States, numbered, states_of
from rl.policy.graph_layers import GraphLayers
from rl.policy.precision import compute_dtype

READS = ("game_state", "reachability_features", "entity_positions", "graph_state")  # what the encoder looks at
_AROUND = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
_NUM_PLACES = len(_AROUND) + 4
_STATE = layout.slots(layout.SPECS["game_state"].components)
_WAY = layout.slots(layout.SPECS["reachability_features"].components)
_PLACE = layout.slots(layout.SPECS["entity_positions"].components)


class GraphEncoder(nn.Module):
    """Raw observations to [N, network.out]."""

    around: torch.Tensor

    def __init__(self, network: GraphNetwork):
        super().__init__()
        self.layers = GraphLayers(network)
        self.reading = nn.Linear((_NUM_PLACES + 1) * network.width + 2, network.out)
        self.register_buffer("around", torch.tensor(_AROUND, dtype=torch.float32), persistent=False)
        self._memory: Any = None  # _Memory

    def forward(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        states = states_of(observations["graph_state"])
        encoded, which = self._encoded(states)
        cells, offset = self._cells(observations)
        rows = encoded.cell_node[which[:, None], cells]
        read = F.embedding(rows, encoded.nodes).flatten(1)
        return F.relu(self.reading(torch.cat([read, encoded.means[which], offset.to(read.dtype)], dim=1)))

    def remember(self, observed: torch.Tensor) -> None:
        """Encode the graphs of ``graph_state`` int64[N, 8] that are not known yet; ``forward`` looks them up.

        Known graphs are forgotten when weights or precision change, when they are too many, and by ``forget``.
        Not for several threads at once.
        """
        if not self._knows() or len(self._memory.number) > MOST_REMEMBERED:
            self._memory = _Memory(
                [parameter.detach().clone() for parameter in self.layers.parameters()], self._precision()
            )
        new = [state for state in numbered(states_of(observed))[0] if state not in self._memory.number]
        if new:
            with torch.no_grad():
                self._memory.add(new, self._encode(new))

    def forget(self) -> None:
        """Empty the memory: what a graph is rounded to depends on the graphs that it was encoded with."""
        self._memory = None

    def _precision(self) -> torch.dtype:
        return compute_dtype(self.around.device)

    def _knows(self) -> bool:
        """Whether the memory is of these weights, compared number by number (the fused optimiser keeps no count of changes),
        and of this precision."""
        memory = self._memory
        return (
            memory is not None
            and memory.precision == self._precision()
            and all(map(torch.equal, memory.weights, self.layers.parameters()))
        )

    def _encoded(self, states: States) -> tuple["_Encoded", torch.Tensor]:
        """Encoded graphs, and the number among them of each state: from memory if no gradient is wanted and all are there."""
        device = self.around.device
        if not torch.is_grad_enabled() and self._knows():
            known = [self._memory.number.get(state, -1) for state in states]
            if min(known) >= 0:
                return self._memory.encoded, torch.tensor(known, device=device)
        distinct, which = numbered(states)
        return self._encode(distinct), torch.tensor(which, device=device)

    def _encode(self, states: States) -> "_Encoded":
        batch = GraphBatch.of(states, self.around.device)
        nodes = self.layers(batch)
        return _Encoded(nodes, batch.mean(nodes), batch.cell_node)

    def _cells(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """(int64[N, 13], numbers of the cells that are read; float32[N, 2], where in its cell the ninja is, -1 to 1)."""
        state, way, place = (observations[key] for key in READS[:3])
        ninja = state[:, [_STATE.x, _STATE.y]]
        goals = [place[:, [_PLACE.switch_x, _PLACE.switch_y]], place[:, [_PLACE.exit_x, _PLACE.exit_y]]]
        ahead = [way[:, [_WAY.waypoint1_dx, _WAY.waypoint1_dy]], way[:, [_WAY.waypoint2_dx, _WAY.waypoint2_dy]]]
        far = [*goals, *(ninja + part for part in ahead)]
        here = (ninja / TILE).floor()
        cells = torch.cat([here[:, None] + self.around, (torch.stack(far, dim=1) / TILE).floor()], dim=1)
        column, row = cells[..., 0].clamp(0, CELLS_X - 1), cells[..., 1].clamp(0, CELLS_Y - 1)
        return (column * CELLS_Y + row).long(), 2 * (ninja / TILE - here) - 1


@dataclass(frozen=True, eq=False)
class _Encoded:
    """Encoded graphs: nodes [N, W] of all, means [G, W], cell_node int64[G, 1100], rows of ``nodes``."""

    nodes: torch.Tensor
    means: torch.Tensor
    cell_node: torch.Tensor


class _Memory:
    """Graphs that were encoded with these weights in this precision; number: the place of each state among them."""

    def __init__(self, weights: list[torch.Tensor], precision: torch.dtype):
        self.weights, self.precision = weights, precision
        self.number: dict[bytes, int] = {}
        self._filled = 0  # rows of ``nodes``
        self.encoded: _Encoded

    def add(self, states: States, more: _Encoded) -> None:
        """Put graphs after those that are there; rooms that are full grow to twice their size."""
        if not self.number:
            self.encoded = _Encoded(*(tensor.new_empty(0, *tensor.shape[1:]) for tensor in vars(more).values()))
        graphs, rows = len(self.number), self._filled
        ends = {"nodes": rows + len(more.nodes), "means": graphs + len(states), "cell_node": graphs + len(states)}
        self.encoded = _Encoded(**{name: _grown(tensor, ends[name]) for name, tensor in vars(self.encoded).items()})
        self.encoded.nodes[rows : ends["nodes"]] = more.nodes
        self.encoded.means[graphs : ends["means"]] = more.means
        self.encoded.cell_node[graphs : ends["cell_node"]] = more.cell_node + rows
        self._filled = ends["nodes"]
        self.number.update(zip(states, range(graphs, graphs + len(states)), strict=True))


def _grown(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """The same with room for at least so many rows."""
    if rows <= len(tensor):
        return tensor
    larger = tensor.new_empty(max(rows, 2 * len(tensor)), *tensor.shape[1:])
    larger[: len(tensor)] = tensor
    return larger
