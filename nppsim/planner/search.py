"""Search in the exact simulator for runs that finish a level, on the decision grid.

``plan`` follows the geodesic distance to the exit, from the spawn or from any state of a simulator; ``polish`` looks for
shorter runs; ``retime`` follows the route of a 60 Hz recording so closely that it still finishes with one action per
``frame_skip`` frames.

Two searches over states share the kernel that plays all actions of many states.  The beam goes forward in time, all states
at the same frame: its first win is a fast one.  Where it gets stuck, the best-first search goes on from the best state met
so far, however old.  In both, states in one cell count as the same, and a region that was often searched counts as farther
from the exit: that is what leads out of dead ends.
"""

import heapq
from collections import namedtuple
from dataclasses import dataclass

import numpy as np

from nppsim._kernel import allocating, kernel
from nppsim.actions import ACTION_INPUT, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.decision import State, has_own_fields, make_fields, way
from nppsim.levels.level import Level
from nppsim.paths import NODES_Y, SPACING, waypoint
from nppsim.physics import tick as physics
from nppsim.physics.state import CELEBRATING, DEAD, ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE, allocate
from nppsim.physics.tick import tick
from nppsim.replays.replay import Replay
from nppsim.simulate import simulate

CHANGE_COST = 1.5  # px: an action that goes on is preferred to an equally good new one
POSITION_CELL, SPEED_CELL = 1.0, 0.05  # px, px per frame, times frame_skip: states in one cell count as the same
MOVER_REACH, MOVER_CELL = 192.0, 24.0  # px: how near a mover counts, and how finely its position
REGION, REGION_SPEED = 16.0, 1.5  # px, px per frame: what is counted as one place searched
NUM_REGIONS = 1 << 18  # counters; regions that share one do no harm
OPEN_STATES = 20_000  # states that the best-first search keeps; the better half if there are more
TIME_COST = 0.8  # px per frame: what the best-first search takes a later state to be worse
_ROUTE, _PATH = 0, 1
_LOST = 1e12
_MIX = -7046029254386353131  # odd, the golden ratio of 2^64

# What a search looks for.  width: states expanded at once.  noise: px, random part of a score.  fill: px per earlier
# visit of a region.  momentum: frames, how far ahead speed towards the exit counts.  min_hold: decisions that an action
# lasts at least.
_Taste = namedtuple("_Taste", "width noise fill momentum min_hold")
# Of each child: score (lower is better; -1 a win, _LOST dead or not allowed), cell, region, frames that the action took.
_Children = namedtuple("_Children", "scores cells regions frames")


@dataclass(frozen=True)
class PlannedRun:
    """A run that finishes its level.

    actions: int64[decisions].  inputs: uint8[frames], the same as N++ input bytes; the last decision may be cut short.
    frames: length in frames, from the state that was planned from.  simulated: frames that the search simulated.
    """

    actions: np.ndarray
    inputs: np.ndarray
    frames: int
    simulated: int


@dataclass(frozen=True)
class RetimedReplay:
    """A recording moved onto the decision grid: see ``PlannedRun``; deviation_px: mean distance from the recorded route."""

    actions: np.ndarray
    inputs: np.ndarray
    deviation_px: float


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


@allocating
def _expand(
    states, children, bytes_from, bytes_to, last_action, held, frame_skip, world, fields, mode, target, taste, random,
    visits, out
):  # fmt: skip
    """Play all six actions from each of the first ``len(last_action)`` states.

    states, children: State views; bytes_from, bytes_to: their rows of bytes.  last_action, held: int64[count], the action
    that led to a state and for how many decisions it has lasted.  target: float64[5], what ROUTE follows: x, y, vx, vy,
    switch taken.  random: float64[6 * count], 0 to 1.  visits: int32[NUM_REGIONS].
    Fills row 6 i + a of ``out`` and returns the number of frames simulated.  States without a future count as visits.
    """
    simulated = 0
    for i in range(len(last_action)):
        alive = False
        for a in range(NUM_ACTIONS):
            c = NUM_ACTIONS * i + a
            out.frames[c] = 0
            out.scores[c] = _LOST
            if a != last_action[i] and held[i] < taste.min_hold:
                continue
            bytes_to[c] = bytes_from[i]
            ninja, entities, movers = children.ninja[c], children.entities[c], children.movers[c]
            for _ in range(frame_skip):
                tick(ninja, entities, movers, world, ACTION_INPUT[a])
                out.frames[c] += 1
                if ninja["state"] == DEAD or ninja["state"] == CELEBRATING:
                    break
            simulated += out.frames[c]
            if ninja["state"] == DEAD:
                continue
            alive = True
            if ninja["state"] == CELEBRATING:
                out.scores[c] = -1.0
                continue
            out.cells[c] = _cell(ninja, entities, movers, world, frame_skip)
            if taste.min_hold > 1:
                out.cells[c] = _mix(_mix(out.cells[c], a), 0 if a != last_action[i] else min(held[i], taste.min_hold))
            out.regions[c] = _region(ninja, entities, world)
            if mode == _ROUTE:
                dx, dy = ninja["x"] - target[0], ninja["y"] - target[1]
                du, dv = ninja["vx"] - target[2], ninja["vy"] - target[3]
                out.scores[c] = np.sqrt(dx * dx + dy * dy) + 4.0 * np.sqrt(du * du + dv * dv)
                if (ninja["switch_taken"] != 0) != (target[4] != 0.0):
                    out.scores[c] += 60.0
                continue
            length, node = way(c, children, world, fields)
            if node < 0:
                continue
            out.scores[c] = max(length - taste.momentum * _speed_along(c, node, children, world, fields), 0.0)
            out.scores[c] += taste.noise * random[c] + taste.fill * visits[out.regions[c]]
            if a != last_action[i]:
                out.scores[c] += CHANGE_COST
        if not alive:
            visits[_region(states.ninja[i], states.entities[i], world)] += NUM_ACTIONS
    return simulated


@kernel
def _speed_along(c, node, children, world, fields):
    """px per frame towards the third lattice point of the way that is left to child c."""
    ninja = children.ninja[c]
    phase = 1 if ninja["switch_taken"] else 0
    if has_own_fields(c, children, world, fields):
        ahead = waypoint(fields.own_hop[c, phase], node, 3)
    else:
        ahead = waypoint(fields.hop[ninja["level"], phase], node, 3)
    dx, dy = SPACING * (ahead // NODES_Y) - ninja["x"], SPACING * (ahead % NODES_Y) - ninja["y"]
    return (dx * ninja["vx"] + dy * ninja["vy"]) / max(np.sqrt(dx * dx + dy * dy), 1.0)


@kernel
def _mix(key, value):
    """Hash of an int64 and one more number, made a whole one by rounding down."""
    key = (key ^ np.int64(np.floor(value))) * np.int64(_MIX)
    return key ^ (key >> 29 & 0x7FFFFFFFF)


@kernel
def _cell(ninja, entities, movers, world, frame_skip):
    """Cell of a state, int64: position, velocity, ninja state, whether jump is held, switches, doors and open exits, and
    where the movers near the ninja are and what they are about to do: so that waiting for one leads to a new cell."""
    position, speed = POSITION_CELL * frame_skip, SPEED_CELL * frame_skip
    key = _mix(np.int64(0), ninja["x"] / position)
    key = _mix(key, ninja["y"] / position)
    key = _mix(key, ninja["vx"] / speed)
    key = _mix(key, ninja["vy"] / speed)
    key = _mix(key, ninja["state"] * 2 + ninja["jump_held"])
    key = _mix_progress(key, ninja, entities, world)
    record = world.level[ninja["level"]]
    for m in range(record["first_moving"], record["mover_end"] - record["mover_first"]):
        dx, dy = movers[m]["x"] - ninja["x"], movers[m]["y"] - ninja["y"]
        if abs(dx) < MOVER_REACH and abs(dy) < MOVER_REACH:
            key = _mix(key, m)
            key = _mix(key, movers[m]["x"] / MOVER_CELL)
            key = _mix(key, movers[m]["y"] / MOVER_CELL)
            key = _mix(key, movers[m]["state"] * 8 + movers[m]["direction"])
    return key


@kernel
def _region(ninja, entities, world):
    """Counter, 0 to NUM_REGIONS - 1, of the coarse cell of a state: position, velocity, and what is open."""
    key = _mix(np.int64(1), ninja["x"] / REGION)
    key = _mix(key, ninja["y"] / REGION)
    key = _mix(key, ninja["vx"] / REGION_SPEED)
    key = _mix(key, ninja["vy"] / REGION_SPEED)
    return _mix_progress(key, ninja, entities, world) & (NUM_REGIONS - 1)


@kernel
def _mix_progress(key, ninja, entities, world):
    """Add the switch, the doors that are closed and the exits that are open to a hash."""
    key = _mix(key, ninja["switch_taken"])
    record = world.level[ninja["level"]]
    base = record["entity_first"]
    for k in range(record["switches_first"], record["switches_end"]):
        key = _mix(key, entities[k - base]["closed"])
    if record["exits_end"] - record["exits_first"] > 2:
        for k in range(record["exits_first"], record["exits_end"]):
            key = _mix(key, 1 if entities[k - base]["clock"] > 0 else 0)
    return key


@kernel
def _begin(state, world):
    state.ninja[0]["level"] = 0
    physics.start(state.ninja[0], state.entities[0], state.movers[0], world, 0)


@kernel
def _play_on(state, world, inputs):
    """Play inputs (uint8[frames]) from state 0 on; returns the number of frames played, fewer after a win or a death."""
    for f in range(len(inputs)):
        tick(state.ninja[0], state.entities[0], state.movers[0], world, inputs[f])
        if state.ninja[0]["state"] == DEAD or state.ninja[0]["state"] == CELEBRATING:
            return f + 1
    return len(inputs)


def _states(count: int, bank: LevelBank) -> tuple[np.ndarray, State]:
    """Rows of bytes and views for states that need no episode: ninja, entities and movers only."""
    parts = [(NINJA_DTYPE, ()), (ENTITY_DTYPE, (bank.max_entities,)), (MOVER_DTYPE, (bank.max_movers,))]
    rows, (ninja, entities, movers) = allocate(count, parts)
    nothing = rows[:, :0]
    return rows, State(ninja, ninja, nothing, entities, movers, nothing)


def _first_state(bank: LevelBank, start: PlanStart | None) -> tuple[np.ndarray, State]:
    """``_states`` of one state: the start of the level, or a moment of an episode on it."""
    rows, states = _states(1, bank)
    if start is None:
        _begin(states, bank.world)
        return rows, states
    for name in ("entities", "movers"):
        target, source = getattr(states, name)[0], getattr(start, name)
        if len(source) < len(target):
            raise ValueError(f"the moment has {len(source)} {name}, the level {len(target)}: it is from another level")
        target[:] = source[: len(target)]
    states.ninja[0] = start.ninja
    states.ninja[0]["level"] = 0
    if start.ninja["state"] in (DEAD, CELEBRATING):
        raise ValueError("the moment is the end of an episode: plan from one before it")
    return rows, states


class _Search:
    """One search: its buffers, and the tree of states kept.  A node is a number; node 0 is the first state."""

    def __init__(self, bank, frame_skip, first_row, rng, taste, mode=_PATH):
        self.bank, self.frame_skip, self.rng, self.taste, self.mode = bank, frame_skip, rng, taste, mode
        n = taste.width * NUM_ACTIONS
        self.rows, self.states = _states(taste.width, bank)
        self.child_rows, self.children = _states(n, bank)
        self.fields = make_fields(bank, n)
        integers = (np.empty(n, np.int64) for _ in range(3))
        self.out = _Children(np.empty(n), *integers)
        self.visits = np.zeros(NUM_REGIONS, np.int32)
        self.rows[0] = first_row
        self.simulated = 0
        self.parents, self.actions, self.num_nodes = [np.array([-1])], [np.array([-1])], 1

    def expand(self, last_action, held, target):
        """Expand the first ``len(last_action)`` rows: (children that live, best first and one per cell; the best win or
        None)."""
        n = len(last_action) * NUM_ACTIONS
        with np.errstate(over="ignore"):  # hashes, where nothing is compiled
            self.simulated += _expand(
                self.states, self.children, self.rows, self.child_rows, last_action, held, self.frame_skip,
                self.bank.world, self.fields, self.mode, target, self.taste, self.rng.random(n), self.visits, self.out,
            )  # fmt: skip
        scores = self.out.scores[:n]
        wins = np.flatnonzero(scores < 0.0)
        if wins.size:
            return wins[:0], wins[np.argmin(self.out.frames[wins])]
        order = np.argsort(scores, kind="stable")
        order = order[scores[order] < _LOST]
        _, first = np.unique(self.out.cells[order], return_index=True)  # the best of each cell
        return order[np.sort(first)], None

    def keep(self, parents, actions):
        """New nodes: their numbers."""
        self.parents.append(parents)
        self.actions.append(actions)
        self.num_nodes += len(parents)
        return np.arange(self.num_nodes - len(parents), self.num_nodes)

    def run_to(self, node, action, frames):
        """(actions, inputs) from the first state over ``node`` and on with an action that takes ``frames`` frames."""
        parents, taken = np.concatenate(self.parents), np.concatenate(self.actions)
        actions = [action]
        while node:
            actions.append(taken[node])
            node = parents[node]
        actions = np.array(actions[::-1], np.int64)
        lengths = np.full(len(actions), self.frame_skip)
        lengths[-1] = frames
        return actions, np.repeat(ACTION_INPUT[actions], lengths)


def _beam(search: _Search, max_decisions: int, budget: int, route: np.ndarray | None = None):
    """All states one decision on, and the best of them kept, again and again: (actions, inputs) of the first win or None."""
    nodes, last_action, held = np.zeros(1, np.int64), np.full(1, -1), np.full(1, search.taste.min_hold)
    visited: set[int] = set()
    frame_skip = search.frame_skip
    for decision in range(max_decisions):
        if search.simulated >= budget:
            break
        target = np.zeros(5) if route is None else route[min((decision + 1) * frame_skip, len(route)) - 1]
        order, win = search.expand(last_action, held, target)
        if win is not None:
            return search.run_to(nodes[win // NUM_ACTIONS], win % NUM_ACTIONS, search.out.frames[win])
        if route is None:
            fresh = [c for c, cell in zip(order, search.out.cells[order].tolist(), strict=True) if cell not in visited]
            order = np.array(fresh, np.int64) if fresh else order
        order = order[: search.taste.width]
        if order.size == 0:
            break
        visited.update(search.out.cells[order].tolist())
        np.add.at(search.visits, search.out.regions[order], 1)
        parents, actions = order // NUM_ACTIONS, order % NUM_ACTIONS
        nodes = search.keep(nodes[parents], actions)
        held = np.where(actions == last_action[parents], held[parents] + 1, 1)
        last_action = actions
        search.rows[: len(order)] = search.child_rows[order]
    return None


def _best_first(search: _Search, max_frame: int, budget: int):
    """The best states met so far one decision on, again and again: (actions, inputs) of the first win or None."""
    stored, _ = _states(OPEN_STATES, search.bank)
    free = list(range(OPEN_STATES))
    heap: list[tuple] = []  # (score, row of ``stored``, node, last action, decisions it has lasted, region)
    visited: set[int] = set()
    nodes, last_action, held = np.zeros(1, np.int64), np.full(1, -1), np.full(1, search.taste.min_hold)
    while search.simulated < budget:
        order, win = search.expand(last_action, held, np.zeros(5))
        if win is not None:
            return search.run_to(nodes[win // NUM_ACTIONS], win % NUM_ACTIONS, search.out.frames[win])
        frame = search.children.ninja["frame"]
        order = order[frame[order] + search.frame_skip <= max_frame]
        fresh = [c for c, cell in zip(order, search.out.cells[order].tolist(), strict=True) if cell not in visited]
        order = np.array(fresh, np.int64)
        visited.update(search.out.cells[order].tolist())
        if len(free) < len(order):
            heap.sort()
            free += [entry[1] for entry in heap[OPEN_STATES // 2 :]]
            del heap[OPEN_STATES // 2 :]
        order = order[: len(free)]
        slots = [free.pop() for _ in order]
        stored[slots] = search.child_rows[order]
        parents, actions = order // NUM_ACTIONS, order % NUM_ACTIONS
        children = search.keep(nodes[parents], actions)
        lasted = np.where(actions == last_action[parents], held[parents] + 1, 1)
        scores = search.out.scores[order] + TIME_COST * frame[order]
        columns = (scores, slots, children, actions, lasted, search.out.regions[order])
        for entry in zip(*(np.asarray(column).tolist() for column in columns), strict=True):
            heapq.heappush(heap, entry)
        batch = [heapq.heappop(heap) for _ in range(min(search.taste.width, len(heap)))]
        if not batch:
            break
        _, slots, *columns = zip(*batch, strict=True)
        nodes, last_action, held, regions = (np.array(column, np.int64) for column in columns)
        search.rows[: len(batch)] = stored[list(slots)]
        free += slots
        np.add.at(search.visits, regions, 1)
    return None


def plan(
    level: Level,
    frame_skip: int = 4,
    *,
    beam: int = 384,
    budget: int = 5_000_000,
    seed: int = 0,
    start: PlanStart | None = None,
    min_hold: int = 1,
    noise: float = 12.0,
) -> PlannedRun | None:
    """Find a run that finishes ``level``; None if none was found within ``budget`` simulated frames.

    A beam gets 30 % of the budget, the best-first search the rest.  beam: states that it keeps per decision; the best-first
    search expands a quarter at once.  start: the state to plan from instead of the spawn, e.g. ``PlanStart.of(sim, i)``;
    the run must then end within the level's time limit, counted from the spawn.  min_hold: decisions for which an action is
    held at least (but for the last, which may be cut short).  noise: px, random part of the score of a state: with more of
    it, the runs of different seeds differ more, and are a little longer.
    The result is a pure function of the arguments, and has been played back: it wins on its last frame.
    Raises ValueError for a start that is the end of an episode or of another level, and for numbers out of range.
    """
    _check_numbers(frame_skip=frame_skip, beam=beam, min_hold=min_hold)
    if not 0.0 <= noise < np.inf:
        raise ValueError(f"noise must be at least 0 px, and finite; got {noise}")
    bank = LevelBank([level])
    rows, first = _first_state(bank, start)
    limit = int(bank.time_limit[0])
    max_decisions = (limit - int(first.ninja[0]["frame"])) // frame_skip
    if not bank.reachable[0] or max_decisions < 1:
        return None
    rng = np.random.default_rng(seed)
    search = _Search(bank, frame_skip, rows[0], rng, _Taste(beam, float(noise), 0.5, 4.0, min_hold))
    found = _beam(search, max_decisions, int(0.3 * budget))
    simulated = search.simulated
    if found is None and simulated < budget:
        taste = _Taste(max(beam // 4, 1), min(float(noise), 2.0), 8.0, 0.0, min_hold)
        search = _Search(bank, frame_skip, rows[0], rng, taste)
        found = _best_first(search, limit, budget - simulated)
        simulated += search.simulated
    if found is None:
        return None
    _confirm(level, found[1], start)
    return PlannedRun(*found, len(found[1]), simulated)


def polish(
    level: Level,
    found: PlannedRun,
    frame_skip: int = 4,
    *,
    beam: int = 192,
    budget: int = 5_000_000,
    seed: int = 0,
    start: PlanStart | None = None,
    min_hold: int = 1,
) -> PlannedRun:
    """Look for a shorter run than ``found``; returns the shortest one, never a longer one.

    From the start, and where actions need not be held also from random decisions of the best run so far, beams of one to
    four times ``beam`` states that value speed more or less look for an end that is shorter than the present one, until
    about ``budget`` frames were simulated.  frame_skip, start and min_hold: those of ``found``.
    The result is a pure function of the arguments.  Raises ValueError if ``found`` does not finish the level from there.
    """
    _check_numbers(frame_skip=frame_skip, beam=beam, min_hold=min_hold)
    if not _wins(level, found.inputs, start):
        raise ValueError("the run to polish does not finish the level on its last frame: give its level and its start")
    bank = LevelBank([level])
    rng = np.random.default_rng(seed)
    best, simulated, from_start = found, 0, True
    while simulated < budget:
        cut = 0 if from_start or min_hold > 1 else int(rng.integers(len(best.actions)))
        from_start = not from_start
        before = best.inputs[: cut * frame_skip]
        taste = _Taste(
            beam << int(rng.integers(3)),
            float(rng.choice([2.0, 12.0])),
            float(rng.choice([0.0, 0.5])),
            float(rng.choice([0.0, 4.0, 8.0, 16.0])),
            min_hold,
        )
        rows, states = _first_state(bank, start)
        _play_on(states, bank.world, before)
        search = _Search(bank, frame_skip, rows[0], rng, taste)
        shorter = best.frames - len(before) - 1
        end = _beam(search, -(-shorter // frame_skip), budget - simulated)
        simulated += max(search.simulated, 1)  # a run of one frame leaves nothing to simulate
        if end is not None and len(end[1]) <= shorter:
            inputs = np.concatenate([before, end[1]])
            best = PlannedRun(np.concatenate([best.actions[:cut], end[0]]), inputs, len(inputs), 0)
    _confirm(level, best.inputs, start)
    return PlannedRun(best.actions, best.inputs, best.frames, found.simulated + simulated)


def _check_numbers(**numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1; got {value}")


def retime(replay: Replay, frame_skip: int = 4, *, beam: int = 96, seed: int = 0) -> RetimedReplay | None:
    """Put a recording that finishes its level onto the decision grid; None if no run along its route finishes."""
    run = simulate(replay.level, replay.inputs)
    if run.outcome != "won":
        return None
    bank = LevelBank([replay.level])
    taken = np.zeros(run.frames)
    for switch in np.flatnonzero(run.entities[:, 0] == 4):
        taken = np.maximum(taken, 1 - (run.entity_state[:, switch] & 1))
    route = np.column_stack([run.position, run.velocity, taken])
    first_rows, _ = _first_state(bank, None)
    taste = _Taste(beam, 0.0, 0.0, 0.0, 1)
    search = _Search(bank, frame_skip, first_rows[0], np.random.default_rng(seed), taste, _ROUTE)
    found = _beam(search, run.frames // frame_skip + 12, 10**12, route)
    if found is None:
        return None
    _confirm(replay.level, found[1])
    again = simulate(replay.level, found[1])
    common = min(run.frames, again.frames)
    deviation = np.hypot(*(run.position[:common] - again.position[:common]).T).mean()
    return RetimedReplay(*found, float(deviation))


def _wins(level: Level, inputs: np.ndarray, start: PlanStart | None) -> bool:
    """Whether a run, played back by itself, wins on its last frame."""
    if start is None:
        run = simulate(level, inputs)
        return run.outcome == "won" and run.frames == len(inputs)
    bank = LevelBank([level])
    _, states = _first_state(bank, start)
    return _play_on(states, bank.world, inputs) == len(inputs) and states.ninja[0]["state"] == CELEBRATING


def _confirm(level, inputs, start=None):
    assert _wins(level, inputs, start), "the planner's run does not play back as it was found"


def par_frames(level: Level) -> int | None:
    """Length in frames of the run that ``plan`` finds; None if it finds none: a ``verify`` for ``make_level_set``."""
    found = plan(level)
    return found and found.frames
