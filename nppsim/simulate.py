"""Play one level with given inputs and record every frame."""

from dataclasses import dataclass

import numpy as np

from nppsim._kernel import kernel
from nppsim.bank import LevelBank
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.physics.groups import is_mine
from nppsim.physics.state import CELEBRATING, DEAD, ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE, allocate
from nppsim.physics.tick import start, tick


@dataclass(frozen=True)
class Run:
    """A recorded run; F frames, E entities in type order (an exit's switch directly after its exit).

    frames: int, frames simulated (the run stops on death, win, or with the inputs).  outcome: "won", "died", "running".
    position, velocity, floor_normal: float64[F, 2], px and px per frame, after each frame.  ninja_state: int8[F], 0..9.
    airborne, walled: bool[F].  gold: int32[F], taken so far.  win_fraction: part of the last frame elapsed at the exit.
    entities: int16[E, 2], (type, index within the type).  entity_position: float64[F, E, 2] px (doors with a switch: the
    switch).  entity_state: uint8[F, E], bit 0 active, bits 1 to 3 state of mines, floor guards and thwumps (its low three
    bits), bit 4 closed door.
    """

    frames: int
    outcome: str
    position: np.ndarray
    velocity: np.ndarray
    ninja_state: np.ndarray
    airborne: np.ndarray
    walled: np.ndarray
    floor_normal: np.ndarray
    gold: np.ndarray
    win_fraction: float
    entities: np.ndarray
    entity_state: np.ndarray
    entity_position: np.ndarray


@kernel
def _play(ninja, entities, movers, world, inputs, frames, entity_state, entity_xy):
    """Fill ``frames`` (float64[F, 10], the columns of the conformance traces), ``entity_state`` and ``entity_xy``; returns
    the number of frames simulated."""
    start(ninja, entities, movers, world, ninja["level"])
    base = world.level[ninja["level"]]["entity_first"]
    count = world.level[ninja["level"]]["entity_end"] - base
    for f in range(len(inputs)):
        tick(ninja, entities, movers, world, inputs[f])
        frames[f, 0], frames[f, 1] = ninja["x"], ninja["y"]
        frames[f, 2], frames[f, 3] = ninja["vx"], ninja["vy"]
        frames[f, 4] = ninja["state"]
        frames[f, 5], frames[f, 6] = ninja["airborne"], ninja["walled"]
        frames[f, 7], frames[f, 8] = ninja["floor_x"], ninja["floor_y"]
        frames[f, 9] = ninja["gold"]
        for k in range(count):
            kind = world.entity[base + k]["type"]
            bits = np.int64(entities[k]["active"]) | np.int64(entities[k]["closed"]) << 4
            if is_mine(kind):
                bits |= np.int64(entities[k]["state"]) << 1
            m = world.entity[base + k]["mover"]
            if m >= 0:
                if kind == kinds.FLOOR_GUARD or kind == kinds.THWUMP or kind == kinds.SHOVE_THWUMP:
                    bits |= (np.int64(movers[m]["state"]) & 7) << 1
                entity_xy[f, k, 0], entity_xy[f, k, 1] = movers[m]["x"], movers[m]["y"]
            entity_state[f, k] = bits
        if ninja["state"] == DEAD or ninja["state"] == CELEBRATING:
            return f + 1
    return len(inputs)


@kernel
def _run(ninjas, entities, movers, world, inputs, frames, entity_state, entity_xy):
    return _play(ninjas[0], entities[0], movers[0], world, inputs, frames, entity_state, entity_xy)


def simulate(level: Level | LevelBank, inputs: np.ndarray, completions: bool = True) -> Run:
    """Play ``level`` from its spawn.

    level: or a LevelBank of it alone, if it is compiled already.
    inputs: uint8[frames], N++ input bytes (1 jump, 2 right, 4 left; left wins over right; 8 self-destruct), one a frame.
    completions: with chaser drones and lasers, which the reference simulator leaves out.
    Raises ValueError for inputs that are not one byte a frame.
    """
    inputs = np.ascontiguousarray(inputs)
    whole = np.issubdtype(inputs.dtype, np.integer) or inputs.size == 0
    if inputs.ndim != 1 or not whole or (inputs.size and (inputs.min() < 0 or inputs.max() > 255)):
        raise ValueError(
            f"inputs must be one byte per frame, a vector of whole numbers 0..255; got {inputs.dtype}{list(inputs.shape)}"
        )
    bank = level if isinstance(level, LevelBank) else LevelBank([level], completions)
    compiled = bank.compiled[0]
    parts = [(NINJA_DTYPE, ()), (ENTITY_DTYPE, (bank.max_entities,)), (MOVER_DTYPE, (bank.max_movers,))]
    _, (ninjas, entities, movers) = allocate(1, parts)
    count = len(bank.world.entity)
    frames, entity_state = np.zeros((len(inputs), 10)), np.zeros((len(inputs), count), np.uint8)
    entity_xy = np.tile(compiled.entity_xy, (len(inputs), 1, 1))
    n = _run(ninjas, entities, movers, bank.world, inputs.astype(np.uint8), frames, entity_state, entity_xy)
    frames, entity_state, entity_xy = frames[:n], entity_state[:n], entity_xy[:n]
    state = frames[:, 4].astype(np.int8)
    outcome = "running" if n == 0 else {DEAD: "died", CELEBRATING: "won"}.get(int(state[-1]), "running")
    return Run(
        frames=n,
        outcome=outcome,
        position=frames[:, 0:2].copy(),
        velocity=frames[:, 2:4].copy(),
        ninja_state=state,
        airborne=frames[:, 5] != 0,
        walled=frames[:, 6] != 0,
        floor_normal=frames[:, 7:9].copy(),
        gold=frames[:, 9].astype(np.int32),
        win_fraction=float(ninjas[0]["win_fraction"]),
        entities=np.stack([compiled.entity_type, compiled.entity_number], axis=1),
        entity_state=entity_state,
        entity_position=entity_xy,
    )
