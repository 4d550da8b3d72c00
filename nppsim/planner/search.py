"""Two searches over states of the exact simulator, with one action per decision.

``beam_search`` advances all states by one decision per step, so its first win is a fast run.  ``BestFirst`` expands the
best state of any frame and finds runs that a beam misses.  Both searches treat states in the same
cell as duplicates, and penalise regions that they expanded often, which leads them out of dead ends.  ``kernels``
defines cells and regions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nppsim.actions import ACTION_INPUT, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.decision import State, make_states
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.planner.goal_sequence import GoalSequence, make_sequence
from nppsim.planner.kernels import (
    LOST,
    NUM_REGIONS,
    PATH,
    Children,
    Queue,
    SearchParams,
    Tree,
    begin,
    best_first,
    expand,
    rehash,
    shortest_path,
)
from nppsim.simulate import play_on

# The best-first search stores this many open states or bytes at most, and drops the worse half if there are more.
OPEN_STATES, OPEN_BYTES = 20_000, 2**29
MOST_EXPANSIONS = 4096  # maximum number of states that one call of the kernel expands
MOST_NODES = 2**24  # number of nodes at which a best-first search ends; tree and hash table then take 0.6 GB
_NO_TARGET = np.zeros(5)  # target in the mode PATH, which ignores it


@dataclass(frozen=True)
class PlannedRun:
    """A run that finishes its level.

    actions: int64[decisions].
    inputs: uint8[frames], the actions as one N++ input byte per frame; the last decision may be shorter.
    frames: length in frames, from the start of the plan.
    simulated: number of frames that the search simulated.
    gold: pieces of gold collected at the end, including those before the start of the plan.
    """

    actions: np.ndarray
    inputs: np.ndarray
    frames: int
    simulated: int
    gold: int = 0


@dataclass(frozen=True, eq=False)
class PlanStart:
    """State of a running episode to plan from, without its level.

    ninja: NINJA_DTYPE.  entities: ENTITY_DTYPE[n].  movers: MOVER_DTYPE[n].
    trail: TRAIL_DTYPE[n], recent positions of the ninja, which evil ninjas follow.
    Each n is at least the number of entities, movers or trail positions that the level needs.
    """

    ninja: np.void
    entities: np.ndarray
    movers: np.ndarray
    trail: np.ndarray

    @classmethod
    def of(cls, simulator: BatchSimulator, i: int) -> "PlanStart":
        """Copy the current state of environment ``i``."""
        state = simulator.state
        return cls(state.ninja[i].copy(), state.entities[i].copy(), state.movers[i].copy(), state.trail[i].copy())

    def put(self, simulator: BatchSimulator, i: int) -> None:
        """Set the state of environment ``i``, which has just been reset on this level."""
        state, level = simulator.state, int(simulator.state.ninja[i]["level"])
        state.ninja[i] = self.ninja
        state.ninja[i]["level"] = level
        for name in ("entities", "movers", "trail"):
            target, source = getattr(state, name)[i], getattr(self, name)
            count = min(len(target), len(source))
            target[:count] = source[:count]


class WinningRun(NamedTuple):
    """Actions int64[decisions] and inputs uint8[frames] that lead to a win."""

    actions: np.ndarray
    inputs: np.ndarray


def actions_to(
    parents: Sequence[int] | np.ndarray, actions: Sequence[int] | np.ndarray, node: int, action: int
) -> np.ndarray:
    """Return the actions int64[n] from the root of a tree to ``node``, followed by ``action``.

    parents, actions: for each node of the tree, its parent and the action that leads to it; node 0 is the root.
    """
    backwards = [action]
    while node:
        backwards.append(actions[node])
        node = parents[node]
    return np.array(backwards[::-1], np.int64)


def winning_run(actions: np.ndarray, last: int, frame_skip: int) -> WinningRun:
    """Return the run of these actions; the last one is simulated for ``last`` frames."""
    lengths = np.full(len(actions), frame_skip)
    lengths[-1] = last
    return WinningRun(actions, np.repeat(ACTION_INPUT[actions], lengths))


class Frontier(NamedTuple):
    """States to expand: nodes of the tree, the last actions, and their durations in decisions; int64[n] each."""

    nodes: np.ndarray
    actions: np.ndarray
    durations: np.ndarray


def first_state(bank: LevelBank, start: PlanStart | None) -> tuple[np.ndarray, State]:
    """Return one state as a row of bytes and as views of these bytes.

    The state is ``start``, or if it is None, the ninja at the spawn of the bank's only level.
    Raises ValueError for a start that is the end of an episode or from another level.
    """
    rows, states = make_states(1, bank)
    if start is None:
        begin(states, bank.world)
        return rows, states
    for name in ("entities", "movers", "trail"):
        target, source = getattr(states, name)[0], getattr(start, name)
        if len(source) < len(target):
            raise ValueError(f"the start has {len(source)} {name}, the level {len(target)}: it is from another level")
        target[:] = source[: len(target)]
    states.ninja[0] = start.ninja
    states.ninja[0]["level"] = 0
    if start.ninja["state"] in (DEAD, CELEBRATING):
        raise ValueError("the start is the end of an episode; plan from an earlier state")
    return rows, states


def final_gold(bank: LevelBank, inputs: np.ndarray, start: PlanStart | None) -> int | None:
    """Play inputs on the bank's only level; return the collected gold if they win on their last frame, else None."""
    _, states = first_state(bank, start)
    won = play_on(states, bank.world, inputs) == len(inputs) and states.ninja[0]["state"] == CELEBRATING
    return int(states.ninja[0]["gold"]) if won else None


def verified(bank: LevelBank, solution: WinningRun, start: PlanStart | None, simulated: int) -> PlannedRun:
    """Verify a solution by playback, and return it as a PlannedRun."""
    gold = final_gold(bank, solution.inputs, start)
    assert gold is not None, "the planner's run does not win when played back"
    return PlannedRun(solution.actions, solution.inputs, len(solution.inputs), simulated, gold)


class Search:
    """Buffers and tree of one search.  Nodes of the tree are numbered; node 0 is the first state.

    bank: LevelBank that contains only the level.
    first_row: bytes of the state at which the search begins (``first_state``).
    mode: kind of score, ``kernels.PATH`` or ``ROUTE``.
    sequence: goals to collect before the exit; None: none.
    simulated: number of simulated frames so far.
    leg: furthest leg of the sequence that ``beam_search`` has reached.
    won: the run that wins, after ``expand`` has found one; None before.
    """

    def __init__(
        self,
        bank: LevelBank,
        frame_skip: int,
        first_row: np.ndarray,
        rng: np.random.Generator,
        params: SearchParams,
        mode: int = PATH,
        sequence: GoalSequence | None = None,
    ):
        self.bank, self.frame_skip, self.rng, self.params, self.mode = bank, frame_skip, rng, params, mode
        n = params.width * NUM_ACTIONS
        self.rows, self.states = make_states(params.width, bank)
        self.child_rows, self.children = make_states(n, bank)
        self.sequence = make_sequence(bank) if sequence is None else sequence
        integers = (np.empty(n, np.int64) for _ in range(4))
        self.out = Children(np.empty(n), *integers)
        self.visits = np.zeros(NUM_REGIONS, np.int32)
        self.visited: set[int] = set()  # cells of all states that were added to the frontier or stored for later
        self.rows[0] = first_row
        self.simulated = self.leg = 0
        self.won: WinningRun | None = None
        self.frontier = Frontier(np.zeros(1, np.int64), np.full(1, -1), np.full(1, params.min_hold))
        self._parents, self._actions, self._num_nodes = [np.array([-1])], [np.array([-1])], 1

    def expand(self, target: np.ndarray = _NO_TARGET) -> np.ndarray:
        """Simulate all actions from each state of the frontier.

        target: see ``kernels.expand``.
        Returns the indices of surviving children, int64[n], one per cell and best first.  If a child wins, sets ``won``
        and returns no indices.
        """
        nodes, last_action, durations = self.frontier
        n = len(nodes) * NUM_ACTIONS
        with np.errstate(over="ignore"):  # hashes overflow, which numpy reports if kernels run uncompiled
            self.simulated += expand(
                self.states, self.children, self.rows.view(np.uint64), self.child_rows.view(np.uint64), last_action,
                durations, self.frame_skip, self.bank.world, self.sequence, self.mode, target, self.params,
                self.rng.random(n), self.visits, self.out,
            )  # fmt: skip
        scores = self.out.scores[:n]
        winning = np.flatnonzero(scores < 0.0)
        if winning.size:
            best = winning[np.argmin(self.out.frames[winning])]
            self.won = self._solution(nodes[best // NUM_ACTIONS], best % NUM_ACTIONS, self.out.frames[best])
            return winning[:0]
        order = np.argsort(scores, kind="stable")
        order = order[scores[order] < LOST]
        _, first = np.unique(self.out.cells[order], return_index=True)  # the best child in each cell
        return order[np.sort(first)]

    def unvisited(self, children: np.ndarray) -> np.ndarray:
        """Return the children whose cell has not been visited."""
        cells = self.out.cells[children].tolist()
        return np.array([c for c, cell in zip(children, cells, strict=True) if cell not in self.visited], np.int64)

    def visit(self, children: np.ndarray) -> None:
        """Mark the cells of children as visited."""
        self.visited.update(self.out.cells[children].tolist())

    def add_nodes(self, children: np.ndarray) -> Frontier:
        """Add children to the tree, in the order of the argument; return them as a frontier."""
        parents, actions = children // NUM_ACTIONS, children % NUM_ACTIONS
        self._parents.append(self.frontier.nodes[parents])
        self._actions.append(actions)
        nodes = np.arange(self._num_nodes, self._num_nodes + len(children))
        self._num_nodes += len(children)
        same = actions == self.frontier.actions[parents]
        return Frontier(nodes, actions, np.where(same, self.frontier.durations[parents] + 1, 1))

    def set_frontier(self, frontier: Frontier, rows: np.ndarray, regions: np.ndarray) -> None:
        """Set the states to expand next, and count visits of their regions.

        rows: bytes of the states.  regions: int64[n], numbers of their regions.
        """
        self.frontier = frontier
        self.rows[: len(rows)] = rows
        np.add.at(self.visits, regions, 1)

    def _solution(self, node: int, action: int, frames: int) -> WinningRun:
        """Return the run from the first state to ``node``, followed by ``action`` for ``frames`` frames."""
        parents, actions = np.concatenate(self._parents), np.concatenate(self._actions)
        return winning_run(actions_to(parents, actions, node, action), frames, self.frame_skip)


def beam_search(
    search: Search, max_decisions: int, budget: int, route: np.ndarray | None = None, patience: int | None = None
) -> WinningRun | None:
    """Run a beam search until the first win; return None if there is no win within the limits.

    budget: number of simulated frames after which no decision is added.
    route: float64[frames, 5], targets in the mode ``kernels.ROUTE`` (see ``kernels.expand``).
    patience: number of decisions without a new lowest score after which the search ends; None: no limit.
    """
    lowest, since = np.inf, 0
    for decision in range(max_decisions):
        if search.simulated >= budget or (patience is not None and decision - since > patience):
            break
        target = _NO_TARGET if route is None else route[min((decision + 1) * search.frame_skip, len(route)) - 1]
        order = search.expand(target)
        if search.won:
            return search.won
        if order.size and search.out.scores[order[0]] < lowest:
            lowest, since = search.out.scores[order[0]], decision
        if route is None:
            unvisited = search.unvisited(order)
            order = unvisited if unvisited.size else order
        order = order[: search.params.width]
        if order.size == 0:
            break
        search.visit(order)
        search.leg = max(search.leg, int(search.out.legs[order].max()))
        search.set_frontier(search.add_nodes(order), search.child_rows[order], search.out.regions[order])
    return None


class BestFirst:
    """Best-first search on the only level of a bank, which can be continued with more frames.

    first_row: bytes of the state at which the search begins (``first_state``).
    max_frame: last frame of the episode.
    simulated: number of simulated frames so far.
    is_exhausted: True if no open state is left, or the tree has MOST_NODES nodes.
    """

    def __init__(
        self,
        bank: LevelBank,
        frame_skip: int,
        first_row: np.ndarray,
        rng: np.random.Generator,
        params: SearchParams,
        max_frame: int,
    ):
        self.bank, self.frame_skip, self.rng, self.params, self.max_frame = bank, frame_skip, rng, params, max_frame
        self.sequence = make_sequence(bank)
        capacity = min(OPEN_STATES, OPEN_BYTES // len(first_row))
        rows, self._open = make_states(capacity, bank)
        child_rows, self._child = make_states(2, bank)
        self._words, self._child_words = rows.view(np.uint64), child_rows.view(np.uint64)
        rows[0] = first_row
        self._queue = Queue(
            scores=np.full(capacity, np.inf),
            slots=np.arange(capacity),
            nodes=np.zeros(capacity, np.int64),
            actions=np.full(capacity, -1),
            lasted=np.full(capacity, params.min_hold),
            count=np.ones(1, np.int64),
        )
        self._tree = Tree(np.full(1, -1, np.int32), np.full(1, -1, np.int8), np.ones(1, np.int64))
        self._visited, self._visits = np.zeros(1024, np.int64), np.zeros(NUM_REGIONS, np.int32)
        self.simulated = 0

    @property
    def is_exhausted(self) -> bool:
        return bool(self._queue.count[0] == 0 or self._tree.count[0] >= MOST_NODES)

    def advance(self, budget: int) -> WinningRun | None:
        """Continue the search for about ``budget`` frames; return the run of the first win, or None."""
        end = self.simulated + budget
        while self.simulated < end and not self.is_exhausted:
            expansions = min(MOST_EXPANSIONS, (end - self.simulated) // (NUM_ACTIONS * self.frame_skip) + 1)
            self._make_room(NUM_ACTIONS * expansions)
            with np.errstate(over="ignore"):  # hashes overflow, which numpy reports if kernels run uncompiled
                simulated, action, node, frames = best_first(
                    self._open, self._child, self._words, self._child_words, self._queue, self._tree, self._visited,
                    self._visits, self.bank.world, self.sequence, self.frame_skip, self.max_frame, self.params,
                    self.rng.random((expansions, NUM_ACTIONS)),
                )  # fmt: skip
            self.simulated += simulated
            if action >= 0:
                actions = actions_to(self._tree.parents, self._tree.actions, node, action)
                return winning_run(actions, frames, self.frame_skip)
        return None

    def shortest_path(self) -> float:
        """Return the smallest remaining path of all open states, in px; a very large number if there are none."""
        slots = self._queue.slots[: self._queue.count[0]]
        with np.errstate(over="ignore"):  # see ``advance``
            return float(shortest_path(self._open, slots, self.bank.world, self.sequence, self.params))

    def _make_room(self, nodes: int) -> None:
        """Grow the tree and the hash table for this many new nodes."""
        count = int(self._tree.count[0]) + nodes
        if count > len(self._tree.parents):
            more = count  # doubles the size
            self._tree = self._tree._replace(
                parents=np.append(self._tree.parents, np.zeros(more, np.int32)),
                actions=np.append(self._tree.actions, np.zeros(more, np.int8)),
            )
        if 2 * count > len(self._visited):
            table = np.zeros(2 << count.bit_length(), np.int64)
            rehash(self._visited, table)
            self._visited = table
