"""Two searches over states of the exact simulator, on the decision grid.

``beam_search`` goes forward in time, all states at the same frame: its first win is a fast one.  Where it gets stuck,
``best_first_search`` goes on from the best state met so far, however old.  In both, states in one cell count as the same,
and a region that was often searched counts as farther from the exit: that is what leads out of dead ends.
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
from nppsim.physics.state import CELEBRATING, DEAD, ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE, allocate
from nppsim.planner.kernels import LOST, NUM_REGIONS, PATH, Children, Taste, begin, expand, play_on

OPEN_STATES = 20_000  # states that the best-first search keeps; the better half if there are more
TIME_COST = 0.8  # px per frame: what the best-first search takes a later state to be worse
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
    """A state of a running episode, to plan from.  It knows its level only by number: keep the level beside it.

    ninja: NINJA_DTYPE.  entities: ENTITY_DTYPE[>= those of the level].  movers: MOVER_DTYPE[>= those of the level].
    """

    ninja: np.void
    entities: np.ndarray
    movers: np.ndarray

    @classmethod
    def of(cls, simulator: BatchSimulator, i: int) -> "PlanStart":
        """A copy of the present state of environment ``i``."""
        state = simulator.state
        return cls(state.ninja[i].copy(), state.entities[i].copy(), state.movers[i].copy())


class Way(NamedTuple):
    """A way to a win: actions int64[decisions], inputs uint8[frames]."""

    actions: np.ndarray
    inputs: np.ndarray


class Tips(NamedTuple):
    """States to go on from, int64 each: their nodes, the actions that led there, the decisions that these have lasted."""

    nodes: np.ndarray
    actions: np.ndarray
    held: np.ndarray


def first_state(bank: LevelBank, start: PlanStart | None) -> tuple[np.ndarray, State]:
    """Row of bytes and views of one state: the start of the bank's only level, or a state of an episode on it.

    Raises ValueError for a state that is the end of an episode, or evidently of another level.
    """
    rows, states = _states(1, bank)
    if start is None:
        begin(states, bank.world)
        return rows, states
    for name in ("entities", "movers"):
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
    """Rows of bytes and views for states that need no episode: ninja, entities and movers only."""
    parts = [(NINJA_DTYPE, ()), (ENTITY_DTYPE, (bank.max_entities,)), (MOVER_DTYPE, (bank.max_movers,))]
    rows, (ninja, entities, movers) = allocate(count, parts)
    nothing = rows[:, :0]
    return rows, State(ninja, ninja, nothing, entities, movers, nothing)


def wins(bank: LevelBank, inputs: np.ndarray, start: PlanStart | None) -> bool:
    """Whether a run on the bank's only level, played back by itself, wins on its last frame."""
    _, states = first_state(bank, start)
    return play_on(states, bank.world, inputs) == len(inputs) and states.ninja[0]["state"] == CELEBRATING


def confirmed(bank: LevelBank, way: Way, start: PlanStart | None, simulated: int) -> PlannedRun:
    """The run along a way that was found, once it has been played back."""
    assert wins(bank, way.inputs, start), "the planner's run does not play back as it was found"
    return PlannedRun(way.actions, way.inputs, len(way.inputs), simulated)


def check_numbers(**numbers: int) -> None:
    """Raise ValueError unless all are at least 1."""
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}")


class Search:
    """One search: its buffers, and the tree of states kept.  A node is a number; node 0 is the first state.

    bank: holds the level alone.
    first_row: bytes of the first state (``first_state``).
    mode: of a score, ``kernels.PATH`` or ``ROUTE``.
    simulated: frames so far.  won: the way to the best win of the last ``expand``, or None.
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
        self.won: Way | None = None
        self.tips = Tips(np.zeros(1, np.int64), np.full(1, -1), np.full(1, taste.min_hold))
        self._parents, self._actions, self._num_nodes = [np.array([-1])], [np.array([-1])], 1

    def expand(self, target: np.ndarray = _NOWHERE) -> np.ndarray:
        """Play all actions from the tips, whose states are the first rows.

        Returns the children that live, int64, best first and one per cell; none if one of them wins (``won``).
        """
        nodes, last_action, held = self.tips
        n = len(nodes) * NUM_ACTIONS
        with np.errstate(over="ignore"):  # hashes, where nothing is compiled
            self.simulated += expand(
                self.states, self.children, self.rows, self.child_rows, last_action, held, self.frame_skip,
                self.bank.world, self.fields, self.mode, target, self.taste, self.rng.random(n), self.visits, self.out,
            )  # fmt: skip
        scores = self.out.scores[:n]
        winning = np.flatnonzero(scores < 0.0)
        if winning.size:
            best = winning[np.argmin(self.out.frames[winning])]
            self.won = self._way(nodes[best // NUM_ACTIONS], best % NUM_ACTIONS, self.out.frames[best])
            return winning[:0]
        order = np.argsort(scores, kind="stable")
        order = order[scores[order] < LOST]
        _, first = np.unique(self.out.cells[order], return_index=True)  # the best of each cell
        return order[np.sort(first)]

    def unvisited(self, children: np.ndarray) -> np.ndarray:
        """Those of the children whose cell was not visited yet."""
        cells = self.out.cells[children].tolist()
        return np.array([c for c, cell in zip(children, cells, strict=True) if cell not in self.visited], np.int64)

    def visit(self, children: np.ndarray) -> None:
        """From now on the cells of these children are visited."""
        self.visited.update(self.out.cells[children].tolist())

    def keep(self, children: np.ndarray) -> Tips:
        """Make nodes of children, in this order."""
        parents, actions = children // NUM_ACTIONS, children % NUM_ACTIONS
        self._parents.append(self.tips.nodes[parents])
        self._actions.append(actions)
        nodes = np.arange(self._num_nodes, self._num_nodes + len(children))
        self._num_nodes += len(children)
        return Tips(nodes, actions, np.where(actions == self.tips.actions[parents], self.tips.held[parents] + 1, 1))

    def go_on(self, tips: Tips, rows: np.ndarray, regions: np.ndarray) -> None:
        """Expand these states next.  rows: their bytes.  regions: where they are, which counts as visits."""
        self.tips = tips
        self.rows[: len(rows)] = rows
        np.add.at(self.visits, regions, 1)

    def _way(self, node: int, action: int, frames: int) -> Way:
        """From the first state over ``node`` and on with an action that takes ``frames`` frames."""
        parents, taken = np.concatenate(self._parents), np.concatenate(self._actions)
        backwards = [action]
        while node:
            backwards.append(taken[node])
            node = parents[node]
        actions = np.array(backwards[::-1], np.int64)
        lengths = np.full(len(actions), self.frame_skip)
        lengths[-1] = frames
        return Way(actions, np.repeat(ACTION_INPUT[actions], lengths))


def beam_search(search: Search, max_decisions: int, budget: int, route: np.ndarray | None = None) -> Way | None:
    """All states one decision on, and the best of them kept, again and again: the way to the first win.

    route: float64[frames, 5], what a search with ``kernels.ROUTE`` follows.
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
        search.go_on(search.keep(order), search.child_rows[order], search.out.regions[order])
    return None


def best_first_search(search: Search, max_frame: int, budget: int) -> Way | None:
    """The best states met so far one decision on, again and again: the way to the first win."""
    stored, _ = _states(OPEN_STATES, search.bank)
    free: list[int] = list(range(OPEN_STATES))
    heap: list[tuple] = []  # (score, row of ``stored``, node, last action, decisions it has lasted, region)
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
        _push(heap, (scores, slots, *search.keep(order), search.out.regions[order]))
        batch = [heapq.heappop(heap) for _ in range(min(search.taste.width, len(heap)))]
        if not batch:
            break
        _, taken, *columns = zip(*batch, strict=True)
        nodes, actions, held, regions = (np.array(column, np.int64) for column in columns)
        search.go_on(Tips(nodes, actions, held), stored[list(taken)], regions)
        free += taken
    return None


def _push(heap: list[tuple], columns: Sequence[Sequence | np.ndarray]) -> None:
    for entry in zip(*(np.asarray(column).tolist() for column in columns), strict=True):
        heapq.heappush(heap, entry)
