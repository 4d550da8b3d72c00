"""Two searches over states of the exact simulator, on the decision grid.

``beam_search`` moves forward in time, with all states at the same frame, so its first win is fast.  Where it fails,
``best_first_search`` expands the best states found so far, of any frame.  Both count states in one cell as equal.  Both
increase the score of regions that were expanded often, which leads the search out of dead ends.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nppsim.actions import ACTION_INPUT, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.decision import State, make_fields
from nppsim.physics.state import CELEBRATING, DEAD, ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE, TRAIL_DTYPE, allocate
from nppsim.planner.kernels import LOST, NUM_REGIONS, PATH, Children, Taste, begin, expand, play_on

OPEN_STATES = 20_000  # capacity of the best-first search; if full, the worse half is dropped
TIME_COST = 0.8  # px per frame: penalty of the best-first search for later states
_NOWHERE = np.zeros(5)  # the target of a search that follows the path


@dataclass(frozen=True)
class PlannedRun:
    """A run that finishes its level.

    actions: int64[decisions].
    inputs: uint8[frames], the same as N++ input bytes; the last decision may be cut short.
    frames: length in frames, from the state that was planned from.
    simulated: frames that the search simulated.
    """

    actions: np.ndarray
    inputs: np.ndarray
    frames: int
    simulated: int


@dataclass(frozen=True, eq=False)
class PlanStart:
    """State of a running episode to plan from; it contains the index of its level, not the level.

    ninja: NINJA_DTYPE.  entities: ENTITY_DTYPE[>= those of the level].  movers: MOVER_DTYPE[>= those of the level].
    trail: TRAIL_DTYPE[>= those of the level].
    """

    ninja: np.void
    entities: np.ndarray
    movers: np.ndarray
    trail: np.ndarray

    @classmethod
    def of(cls, simulator: BatchSimulator, i: int) -> "PlanStart":
        """Copy the present state of environment ``i``."""
        state = simulator.state
        return cls(state.ninja[i].copy(), state.entities[i].copy(), state.movers[i].copy(), state.trail[i].copy())


class WinningRun(NamedTuple):
    """Actions int64[decisions] and inputs uint8[frames] that lead to a win."""

    actions: np.ndarray
    inputs: np.ndarray


class Frontier(NamedTuple):
    """States to expand, int64 each: nodes, last actions, and the number of decisions that these have lasted."""

    nodes: np.ndarray
    actions: np.ndarray
    durations: np.ndarray


def first_state(bank: LevelBank, start: PlanStart | None) -> tuple[np.ndarray, State]:
    """Return bytes and views of one state: the start of the bank's only level, or a state of an episode on it.

    Raises ValueError for a state at the end of an episode, or of another level.
    """
    rows, states = _states(1, bank)
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
        raise ValueError("the start is the end of an episode: plan from one before it")
    return rows, states


def _states(count: int, bank: LevelBank) -> tuple[np.ndarray, State]:
    """Allocate states without episode data (ninja, entities, movers and trail only); return rows of bytes and views."""
    parts = [
        (NINJA_DTYPE, ()),
        (ENTITY_DTYPE, (bank.max_entities,)),
        (MOVER_DTYPE, (bank.max_movers,)),
        (TRAIL_DTYPE, (bank.max_trail,)),
    ]
    rows, (ninja, entities, movers, trail) = allocate(count, parts)
    nothing = rows[:, :0]
    return rows, State(ninja, ninja, nothing, entities, movers, trail, nothing)


def wins(bank: LevelBank, inputs: np.ndarray, start: PlanStart | None) -> bool:
    """Return True if a run on the bank's only level wins on its last frame, by playing it back."""
    _, states = first_state(bank, start)
    return play_on(states, bank.world, inputs) == len(inputs) and states.ninja[0]["state"] == CELEBRATING


def verified(bank: LevelBank, solution: WinningRun, start: PlanStart | None, simulated: int) -> PlannedRun:
    """Return the run of a solution after verifying it by playback."""
    assert wins(bank, solution.inputs, start), "the planner's run does not win when played back"
    return PlannedRun(solution.actions, solution.inputs, len(solution.inputs), simulated)


def check_numbers(**numbers: int) -> None:
    """Raise ValueError unless all are at least 1."""
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}")


class Search:
    """Buffers and tree of one search.  A node is a number; node 0 is the first state.

    bank: contains the level alone.
    first_row: bytes of the first state (``first_state``).
    mode: kind of score, ``kernels.PATH`` or ``ROUTE``.
    simulated: frames so far.  won: the best solution found by the last ``expand``, or None.
    """

    def __init__(
        self,
        bank: LevelBank,
        frame_skip: int,
        first_row: np.ndarray,
        rng: np.random.Generator,
        taste: Taste,
        mode: int = PATH,
    ):
        self.bank, self.frame_skip, self.rng, self.taste, self.mode = bank, frame_skip, rng, taste, mode
        n = taste.width * NUM_ACTIONS
        self.rows, self.states = _states(taste.width, bank)
        self.child_rows, self.children = _states(n, bank)
        self.fields = make_fields(bank, n)
        integers = (np.empty(n, np.int64) for _ in range(3))
        self.out = Children(np.empty(n), *integers)
        self.visits = np.zeros(NUM_REGIONS, np.int32)
        self.visited: set[int] = set()  # cells
        self.rows[0] = first_row
        self.simulated = 0
        self.won: WinningRun | None = None
        self.frontier = Frontier(np.zeros(1, np.int64), np.full(1, -1), np.full(1, taste.min_hold))
        self._parents, self._actions, self._num_nodes = [np.array([-1])], [np.array([-1])], 1

    def expand(self, target: np.ndarray = _NOWHERE) -> np.ndarray:
        """Simulate all actions from the states of the frontier, which are the first rows.

        Returns the surviving children, int64, best first and one per cell; none if one of them wins (``won``).
        """
        nodes, last_action, durations = self.frontier
        n = len(nodes) * NUM_ACTIONS
        with np.errstate(over="ignore"):  # hashes, where nothing is compiled
            self.simulated += expand(
                self.states, self.children, self.rows, self.child_rows, last_action, durations, self.frame_skip,
                self.bank.world, self.fields, self.mode, target, self.taste, self.rng.random(n), self.visits, self.out,
            )  # fmt: skip
        scores = self.out.scores[:n]
        winning = np.flatnonzero(scores < 0.0)
        if winning.size:
            best = winning[np.argmin(self.out.frames[winning])]
            self.won = self._solution(nodes[best // NUM_ACTIONS], best % NUM_ACTIONS, self.out.frames[best])
            return winning[:0]
        order = np.argsort(scores, kind="stable")
        order = order[scores[order] < LOST]
        _, first = np.unique(self.out.cells[order], return_index=True)  # the best of each cell
        return order[np.sort(first)]

    def unvisited(self, children: np.ndarray) -> np.ndarray:
        """Select the children whose cell was not visited yet."""
        cells = self.out.cells[children].tolist()
        return np.array([c for c, cell in zip(children, cells, strict=True) if cell not in self.visited], np.int64)

    def visit(self, children: np.ndarray) -> None:
        """Mark the cells of these children as visited."""
        self.visited.update(self.out.cells[children].tolist())

    def add_nodes(self, children: np.ndarray) -> Frontier:
        """Add children to the tree, in this order."""
        parents, actions = children // NUM_ACTIONS, children % NUM_ACTIONS
        self._parents.append(self.frontier.nodes[parents])
        self._actions.append(actions)
        nodes = np.arange(self._num_nodes, self._num_nodes + len(children))
        self._num_nodes += len(children)
        same = actions == self.frontier.actions[parents]
        return Frontier(nodes, actions, np.where(same, self.frontier.durations[parents] + 1, 1))

    def set_frontier(self, frontier: Frontier, rows: np.ndarray, regions: np.ndarray) -> None:
        """Set the states to expand next, and count them as visits.  rows: their bytes.  regions: their regions."""
        self.frontier = frontier
        self.rows[: len(rows)] = rows
        np.add.at(self.visits, regions, 1)

    def _solution(self, node: int, action: int, frames: int) -> WinningRun:
        """Trace the actions from the first state to ``node``, and append an action of ``frames`` frames."""
        parents, actions_to = np.concatenate(self._parents), np.concatenate(self._actions)
        backwards = [action]
        while node:
            backwards.append(actions_to[node])
            node = parents[node]
        actions = np.array(backwards[::-1], np.int64)
        lengths = np.full(len(actions), self.frame_skip)
        lengths[-1] = frames
        return WinningRun(actions, np.repeat(ACTION_INPUT[actions], lengths))


def beam_search(search: Search, max_decisions: int, budget: int, route: np.ndarray | None = None) -> WinningRun | None:
    """Run a beam search until the first win; None if it fails.

    route: float64[frames, 5], the target of a search with ``kernels.ROUTE``.
    """
    for decision in range(max_decisions):
        if search.simulated >= budget:
            break
        target = _NOWHERE if route is None else route[min((decision + 1) * search.frame_skip, len(route)) - 1]
        order = search.expand(target)
        if search.won:
            return search.won
        if route is None:
            fresh = search.unvisited(order)
            order = fresh if fresh.size else order
        order = order[: search.taste.width]
        if order.size == 0:
            break
        search.visit(order)
        search.set_frontier(search.add_nodes(order), search.child_rows[order], search.out.regions[order])
    return None


def best_first_search(search: Search, max_frame: int, budget: int) -> WinningRun | None:
    """Expand the best states found so far until the first win; None if the search fails."""
    stored, _ = _states(OPEN_STATES, search.bank)
    free: list[int] = list(range(OPEN_STATES))
    heap: list[tuple] = []  # (score, row of ``stored``, node, last action, its duration in decisions, region)
    while search.simulated < budget:
        order = search.expand()
        if search.won:
            return search.won
        frame = search.children.ninja["frame"]
        order = search.unvisited(order[frame[order] + search.frame_skip <= max_frame])
        search.visit(order)
        if len(free) < len(order):
            heap.sort()
            free += [entry[1] for entry in heap[OPEN_STATES // 2 :]]
            del heap[OPEN_STATES // 2 :]
        order = order[: len(free)]
        slots = [free.pop() for _ in order]
        stored[slots] = search.child_rows[order]
        scores = search.out.scores[order] + TIME_COST * frame[order]
        _push(heap, (scores, slots, *search.add_nodes(order), search.out.regions[order]))
        batch = [heapq.heappop(heap) for _ in range(min(search.taste.width, len(heap)))]
        if not batch:
            break
        _, popped, *columns = zip(*batch, strict=True)
        nodes, actions, durations, regions = (np.array(column, np.int64) for column in columns)
        search.set_frontier(Frontier(nodes, actions, durations), stored[list(popped)], regions)
        free += popped
    return None


def _push(heap: list[tuple], columns: Sequence[Sequence | np.ndarray]) -> None:
    for entry in zip(*(np.asarray(column).tolist() for column in columns), strict=True):
        heapq.heappush(heap, entry)
