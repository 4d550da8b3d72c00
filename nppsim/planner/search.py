"""Two searches over states of the exact simulator, with one action per decision.

``beam_search`` advances all states by one decision per step, so its first win is a fast run.  ``best_first_search``
expands the best states of any frame and finds some runs that a beam misses.  Both searches treat states in the same
cell as duplicates, and penalise regions that they expanded often, which leads them out of dead ends.  ``kernels``
defines cells and regions.
"""

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nppsim.actions import ACTION_INPUT, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.decision import State, make_states
from nppsim.physics.state import CELEBRATING, DEAD
from nppsim.planner.kernels import LOST, NUM_REGIONS, PATH, Children, SearchParams, begin, expand
from nppsim.planner.tour import Tour, make_tour
from nppsim.simulate import play_on

OPEN_STATES = 20_000  # maximum number of states that the best-first search stores; then the worse half is dropped
TIME_COST = 0.8  # px per frame, penalty of the best-first search for later states
_NOWHERE = np.zeros(5)  # target in the mode PATH, which ignores it


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
    tour: goals to collect before the exit; None: none.
    simulated: number of simulated frames so far.
    leg: furthest leg of the tour that ``beam_search`` has reached.
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
        tour: Tour | None = None,
    ):
        self.bank, self.frame_skip, self.rng, self.params, self.mode = bank, frame_skip, rng, params, mode
        n = params.width * NUM_ACTIONS
        self.rows, self.states = make_states(params.width, bank)
        self.child_rows, self.children = make_states(n, bank)
        self.tour = make_tour(bank) if tour is None else tour
        integers = (np.empty(n, np.int64) for _ in range(4))
        self.out = Children(np.empty(n), *integers)
        self.visits = np.zeros(NUM_REGIONS, np.int32)
        self.visited: set[int] = set()  # cells of all states that were added to the frontier or stored for later
        self.rows[0] = first_row
        self.simulated = self.leg = 0
        self.won: WinningRun | None = None
        self.frontier = Frontier(np.zeros(1, np.int64), np.full(1, -1), np.full(1, params.min_hold))
        self._parents, self._actions, self._num_nodes = [np.array([-1])], [np.array([-1])], 1

    def expand(self, target: np.ndarray = _NOWHERE) -> np.ndarray:
        """Simulate all actions from each state of the frontier.

        target: see ``kernels.expand``.
        Returns the indices of surviving children, int64[n], one per cell and best first.  If a child wins, sets ``won``
        and returns no indices.
        """
        nodes, last_action, durations = self.frontier
        n = len(nodes) * NUM_ACTIONS
        with np.errstate(over="ignore"):  # hashes overflow, which numpy reports if kernels run uncompiled
            self.simulated += expand(
                self.states, self.children, self.rows, self.child_rows, last_action, durations, self.frame_skip,
                self.bank.world, self.tour, self.mode, target, self.params, self.rng.random(n), self.visits, self.out,
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
        parents, actions_to = np.concatenate(self._parents), np.concatenate(self._actions)
        backwards = [action]
        while node:
            backwards.append(actions_to[node])
            node = parents[node]
        actions = np.array(backwards[::-1], np.int64)
        lengths = np.full(len(actions), self.frame_skip)
        lengths[-1] = frames
        return WinningRun(actions, np.repeat(ACTION_INPUT[actions], lengths))


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
        target = _NOWHERE if route is None else route[min((decision + 1) * search.frame_skip, len(route)) - 1]
        order = search.expand(target)
        if search.won:
            return search.won
        if order.size and search.out.scores[order[0]] < lowest:
            lowest, since = search.out.scores[order[0]], decision
        if route is None:
            fresh = search.unvisited(order)
            order = fresh if fresh.size else order
        order = order[: search.params.width]
        if order.size == 0:
            break
        search.visit(order)
        search.leg = max(search.leg, int(search.out.legs[order].max()))
        search.set_frontier(search.add_nodes(order), search.child_rows[order], search.out.regions[order])
    return None


def best_first_search(search: Search, max_frame: int, budget: int) -> WinningRun | None:
    """Expand the best states found so far until the first win; return None if there is no win within the limits.

    max_frame: last frame of the episode.  budget: limit of simulated frames.
    """
    stored, _ = make_states(OPEN_STATES, search.bank)
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
        columns = (scores, slots, *search.add_nodes(order), search.out.regions[order])
        for state in zip(*(np.asarray(column).tolist() for column in columns), strict=True):
            heapq.heappush(heap, state)
        batch = [heapq.heappop(heap) for _ in range(min(search.params.width, len(heap)))]
        if not batch:
            break
        _, popped, *others = zip(*batch, strict=True)
        nodes, actions, durations, regions = (np.array(column, np.int64) for column in others)
        search.set_frontier(Frontier(nodes, actions, durations), stored[list(popped)], regions)
        free += popped
    return None
