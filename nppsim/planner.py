"""Search in the exact simulator for runs that finish a level, on the decision grid.

Two uses of one beam search over states: ``plan`` follows the geodesic distance to the exit, ``retime`` follows the route
of a 60 Hz recording so closely that it still finishes with one action per ``frame_skip`` frames.
"""

from dataclasses import dataclass

import numpy as np

from nppsim._kernel import allocating, kernel
from nppsim.bank import LevelBank
from nppsim.batch import ACTION_INPUT, NUM_ACTIONS, State, _way, make_fields
from nppsim.level import Level
from nppsim.physics.state import CELEBRATING, DEAD, ENTITY, MOVER, NINJA, allocate
from nppsim.physics.tick import start, tick
from nppsim.replay import Replay
from nppsim.simulate import simulate

CHANGE_COST = 1.5  # px: an action that goes on is preferred to an equally good new one
POSITION_CELL, SPEED_CELL = 1.0, 0.05  # px, px per frame, times frame_skip: states in one cell count as the same
_ROUTE, _PATH = 0, 1
_LOST = 1e12


@dataclass(frozen=True)
class Plan:
    """A run that finishes its level.

    actions: int64[decisions].  inputs: uint8[frames], the same as N++ input bytes; the last decision may be cut short.
    frames: length in frames.  simulated: frames that the search simulated.
    """

    actions: np.ndarray
    inputs: np.ndarray
    frames: int
    simulated: int


@dataclass(frozen=True)
class RetimedReplay:
    """A recording moved onto the decision grid: see ``Plan``; deviation_px: mean distance from the recorded route."""

    actions: np.ndarray
    inputs: np.ndarray
    deviation_px: float


@allocating
def _expand(
    children, bytes_from, bytes_to, count, last_action, frame_skip, world, fields, mode, target, noise,
    scores, keys, frames
):  # fmt: skip
    """Play all six actions from each of ``count`` states.

    bytes_from, bytes_to: byte rows of the states and of their children.  children: State views of the latter.
    last_action: int64[count].
    target: float64[5], what ROUTE follows: x, y, vx, vy, switch taken.  noise: float64[6 * count] px, added to scores.
    Fills for child 6 i + a: scores (lower is better; -1 a win, ``_LOST`` dead), keys int64 (the cell of the state).
    frames: int64[6 * count], frames that the action took.  Returns the number of frames simulated.
    """
    simulated = 0
    for i in range(count):
        for a in range(NUM_ACTIONS):
            c = NUM_ACTIONS * i + a
            bytes_to[c] = bytes_from[i]
            ninja, entities = children.ninja[c], children.entities[c]
            frames[c] = 0
            for _ in range(frame_skip):
                tick(ninja, entities, children.movers[c], world, ACTION_INPUT[a])
                frames[c] += 1
                if ninja["state"] == DEAD or ninja["state"] == CELEBRATING:
                    break
            simulated += frames[c]
            keys[c] = _cell_key(ninja, entities, world, frame_skip)
            if ninja["state"] == DEAD:
                scores[c] = _LOST
            elif ninja["state"] == CELEBRATING:
                scores[c] = -1.0
            elif mode == _ROUTE:
                dx, dy = ninja["x"] - target[0], ninja["y"] - target[1]
                du, dv = ninja["vx"] - target[2], ninja["vy"] - target[3]
                scores[c] = np.sqrt(dx * dx + dy * dy) + 4.0 * np.sqrt(du * du + dv * dv) + noise[c]
                if (ninja["switch_taken"] != 0) != (target[4] != 0.0):
                    scores[c] += 60.0
            else:
                length, node = _way(c, children, world, fields)
                scores[c] = _LOST if node < 0 else length + noise[c]
                if a != last_action[i]:
                    scores[c] += CHANGE_COST
    return simulated


@kernel
def _cell_key(ninja, entities, world, frame_skip):
    """Cell of a state: position, velocity, ninja state, whether jump is held, switches and doors."""
    position, speed = POSITION_CELL * frame_skip, SPEED_CELL * frame_skip
    key = np.int64(np.floor(ninja["x"] / position))
    key = key * 1024 + np.int64(np.floor(ninja["y"] / position))
    key = key * 512 + np.int64(np.floor(ninja["vx"] / speed)) % 512
    key = key * 512 + np.int64(np.floor(ninja["vy"] / speed)) % 512
    key = key * 16 + ninja["state"]
    key = key * 2 + ninja["jump_held"]
    key = key * 2 + ninja["switch_taken"]
    level = ninja["level"]
    base = world.level[level]["entity_first"]
    for k in range(world.level[level]["switches_first"], world.level[level]["switches_end"]):
        key = key * 3 + entities[k - base]["closed"]
    return key


@kernel
def _begin(state, world):
    state.ninja[0]["level"] = 0
    start(state.ninja[0], state.entities[0], state.movers[0], world, 0)


def _states(count: int, bank: LevelBank) -> tuple[np.ndarray, State]:
    """Rows of bytes and views for states that need no episode: ninja, entities and movers only."""
    parts = [(NINJA, ()), (ENTITY, (bank.max_entities,)), (MOVER, (bank.max_movers,))]
    rows, (ninja, entities, movers) = allocate(count, parts)
    nothing = rows[:, :0]
    return rows, State(ninja, ninja, nothing, entities, movers, nothing)


def _search(bank, frame_skip, beam, max_decisions, budget, mode, route, rng, noise_px):
    """Beam search; (actions, inputs, simulated) of the first win, or (None, None, simulated)."""
    rows, states = _states(beam, bank)
    child_rows, children = _states(beam * NUM_ACTIONS, bank)
    fields = make_fields(bank, beam * NUM_ACTIONS)
    scores, keys = np.empty(beam * NUM_ACTIONS), np.empty(beam * NUM_ACTIONS, np.int64)
    frames = np.empty(beam * NUM_ACTIONS, np.int64)
    _begin(states, bank.world)
    count, simulated = 1, 0
    last_action = np.zeros(beam, np.int64)
    history: list[np.ndarray] = []  # child number (6 * parent + action) of each state kept, per decision
    visited = np.empty(0, np.int64)
    for decision in range(max_decisions):
        if simulated >= budget:
            break
        target = route[min((decision + 1) * frame_skip, len(route)) - 1] if mode == _ROUTE else np.zeros(5)
        noise = rng.random(beam * NUM_ACTIONS) * noise_px
        simulated += _expand(
            children, rows, child_rows, count, last_action, frame_skip, bank.world, fields, mode, target, noise,
            scores, keys, frames,
        )  # fmt: skip
        n = count * NUM_ACTIONS
        wins = np.flatnonzero(scores[:n] < 0.0)
        if wins.size:
            best = wins[np.argmin(frames[wins])]
            actions = _trace(history, best)
            lengths = np.full(len(actions), frame_skip)
            lengths[-1] = frames[best]
            return actions, np.repeat(ACTION_INPUT[actions], lengths), simulated
        order = np.argsort(scores[:n], kind="stable")
        order = order[scores[order] < _LOST]
        _, first = np.unique(keys[order], return_index=True)  # the best of each cell
        order = order[np.sort(first)]
        if mode == _PATH:
            fresh = order[~np.isin(keys[order], visited)]
            order = fresh if fresh.size else order
        order = order[:beam]
        if order.size == 0:
            break
        if mode == _PATH:
            visited = np.union1d(visited, keys[order])
        history.append(order)
        count = len(order)
        rows[:count] = child_rows[order]
        last_action[:count] = order % NUM_ACTIONS
    return None, None, simulated


def _trace(history, child) -> np.ndarray:
    """Actions from the start to a child of the last beam."""
    actions = [child % NUM_ACTIONS]
    parent = child // NUM_ACTIONS
    for kept in reversed(history):
        actions.append(kept[parent] % NUM_ACTIONS)
        parent = kept[parent] // NUM_ACTIONS
    return np.array(actions[::-1], np.int64)


def plan(
    level: Level,
    frame_skip: int = 4,
    *,
    beam: int = 192,
    budget: int = 5_000_000,
    seed: int = 0,
) -> Plan | None:
    """Find a run that finishes ``level``; None if none was found within ``budget`` simulated frames.

    beam: states kept per decision; a second attempt keeps four times as many and looks less straight ahead.
    The result is a pure function of the arguments, and has been played back: it wins on its last frame.
    """
    bank = LevelBank([level])
    if not bank.reachable[0]:
        return None
    max_decisions = int(bank.time_limit[0]) // frame_skip
    rng = np.random.default_rng(seed)
    simulated = 0
    for width, noise_px in ((beam, 2.0), (4 * beam, 40.0)):  # noise: random part of a state's score
        left = budget - simulated
        actions, inputs, used = _search(bank, frame_skip, width, max_decisions, left, _PATH, None, rng, noise_px)
        simulated += used
        if actions is not None:
            _confirm(level, inputs)
            return Plan(actions, inputs, len(inputs), simulated)
    return None


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
    max_decisions = run.frames // frame_skip + 12
    rng = np.random.default_rng(seed)
    actions, inputs, _ = _search(bank, frame_skip, beam, max_decisions, 10**12, _ROUTE, route, rng, 0.0)
    if actions is None:
        return None
    again = _confirm(replay.level, inputs)
    common = min(run.frames, again.frames)
    deviation = np.hypot(*(run.position[:common] - again.position[:common]).T).mean()
    return RetimedReplay(actions, inputs, float(deviation))


def _confirm(level, inputs):
    run = simulate(level, inputs)
    assert run.outcome == "won" and run.frames == len(inputs), "the planner's run does not play back as it was found"
    return run


def par_frames(level: Level) -> int | None:
    """Length in frames of the run that ``plan`` finds; None if it finds none: a ``verify`` for ``make_level_set``."""
    found = plan(level)
    return found and found.frames
