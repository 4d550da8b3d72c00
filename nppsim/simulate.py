"""Play one level with given inputs and record every frame."""

from dataclasses import dataclass

import numpy as np

from nppsim._numba.decorators import entry, kernel
from nppsim.bank import LevelBank
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.physics.aims import write_aims
from nppsim.physics.groups import is_mine
from nppsim.physics.lasers import update_beams
from nppsim.physics.outcomes import DIED, NAMES, UNFINISHED, WON
from nppsim.physics.rules import DEFAULT_RULES, Rules
from nppsim.physics.state import CELEBRATING, DEAD, ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE, TRAIL_DTYPE, allocate
from nppsim.physics.tick import start, tick

# Columns of the dataset ``frames`` of a trace file: the ninja's state after each frame.  Messages use these names.
FRAME_COLUMNS = ("x", "y", "vx", "vy", "state", "airborne", "walled", "floor normal x", "floor normal y", "gold")
X, Y, VX, VY, STATE, AIRBORNE, WALLED, FLOOR_X, FLOOR_Y, GOLD = range(len(FRAME_COLUMNS))


@dataclass(frozen=True)
class Run:
    """A recorded run of F frames.  Its E entities are sorted by type, except that each exit switch follows its exit.

    frames: number of simulated frames.  A run ends with the ninja's death, a win or the last input.
    outcome: "won", "died", "running".
    position, velocity, floor_normal: float64[F, 2], values after each frame; in px, px per frame, and without unit.
    ninja_state: int8[F], 0..9, state of the ninja (``physics.state``).
    airborne, walled: bool[F], in the air; at a wall.
    gold: int32[F], pieces collected so far.
    win_fraction: fraction of the last frame that had passed when the ninja touched the exit.
    entities: int16[E, 2], (type, index within the type).
    entity_state: uint8[F, E].  Bit 0: active.  Bits 1 to 3: low three bits of the state of a mine, floor guard, thwump
        or evil ninja.  Bit 4: closed door.
    entity_position: float64[F, E, 2], px; for a door with a switch, the position of the switch.
    aims: float64[F, A, 3], x and y (px) and kind of a beam, shot, crosshair or rocket; see ``physics.aims``.  A is the
        number of entities whose type is in ``kinds.AIMING``; their order is that of ``entities``.
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
    aims: np.ndarray

    @property
    def won(self) -> bool:
        """True if the ninja reached the exit."""
        return self.outcome == NAMES[WON]


@kernel
def _play(ninja, entities, movers, trail, world, inputs, frames, entity_state, entity_xy, aiming, aims):
    """Fill ``frames`` (float64[F, 10], see FRAME_COLUMNS), ``entity_state``, ``entity_xy`` and ``aims``.

    A state of frame 0 is first set to the start of its level.  A row beyond the inputs is filled with the current state.
    Returns the number of simulated frames.
    """
    if ninja["frame"] == 0:
        start(ninja, entities, movers, world, ninja["level"])
    base = world.level[ninja["level"]]["entity_first"]
    count = world.level[ninja["level"]]["entity_end"] - base
    for f in range(len(frames)):
        if f < len(inputs):
            tick(ninja, entities, movers, trail, world, inputs[f])
        frames[f, X], frames[f, Y] = ninja["x"], ninja["y"]
        frames[f, VX], frames[f, VY] = ninja["vx"], ninja["vy"]
        frames[f, STATE] = ninja["state"]
        frames[f, AIRBORNE], frames[f, WALLED] = ninja["airborne"], ninja["walled"]
        frames[f, FLOOR_X], frames[f, FLOOR_Y] = ninja["floor_x"], ninja["floor_y"]
        frames[f, GOLD] = ninja["gold"]
        for k in range(count):
            entity_state[f, k] = _state_bits(world.entity[base + k], entities[k], movers)
            m = world.entity[base + k]["mover"]
            if m >= 0:
                entity_xy[f, k, 0], entity_xy[f, k, 1] = movers[m]["x"], movers[m]["y"]
        update_beams(entities, movers, world, ninja["level"])
        write_aims(movers, aiming, aims[f])
        if ninja["state"] == DEAD or ninja["state"] == CELEBRATING:
            return min(f + 1, len(inputs))
    return len(inputs)


@kernel
def _state_bits(placed, entity, movers):
    """Return the value of an entity in ``Run.entity_state``."""
    kind, state = placed["type"], np.int64(0)
    if is_mine(kind):
        state = np.int64(entity["state"])
    elif kind == kinds.FLOOR_GUARD or kind == kinds.THWUMP or kind == kinds.SHOVE_THWUMP or kind == kinds.EVIL_NINJA:
        state = np.int64(movers[placed["mover"]]["state"]) & 7
    return np.int64(entity["active"]) | state << 1 | np.int64(entity["closed"]) << 4


def is_active(entity_state: np.ndarray) -> np.ndarray:
    """Extract from ``Run.entity_state`` the bit of active entities: 1 until they are collected or used up."""
    return entity_state & 1


def own_state(entity_state: np.ndarray) -> np.ndarray:
    """Extract bits 1 to 3 of ``Run.entity_state``: low three bits of an entity's signed state, as a number 0..7."""
    return entity_state >> 1 & 7


def is_closed(entity_state: np.ndarray) -> np.ndarray:
    """Extract from ``Run.entity_state`` the bit of closed doors."""
    return entity_state >> 4 & 1


@entry
def _run(ninjas, entities, movers, trail, world, inputs, frames, entity_state, entity_xy, aiming, aims):
    return _play(
        ninjas[0], entities[0], movers[0], trail[0], world, inputs, frames, entity_state, entity_xy, aiming, aims
    )


@entry
def play_on(state, world, inputs):
    """Play inputs (uint8[frames]) until a win or death; return the number of frames played.  state: ``decision.State``."""
    ninja, played = state.ninja[0], 0
    while played < len(inputs) and ninja["state"] != DEAD and ninja["state"] != CELEBRATING:
        tick(ninja, state.entities[0], state.movers[0], state.trail[0], world, inputs[played])
        played += 1
    update_beams(state.entities[0], state.movers[0], world, ninja["level"])
    return played


def simulate(
    level: Level | LevelBank, inputs: np.ndarray, completions: bool = True, rules: Rules = DEFAULT_RULES
) -> Run:
    """Play ``level`` from its spawn.

    level: a Level, or a LevelBank that contains only this level.
    inputs: uint8[frames], one N++ input byte per frame: 1 jump, 2 right, 4 left (overrides right), 8 self-destruct.
    completions: also simulate the entities that the reference simulator leaves out (``kinds.COMPLETIONS``).
    rules: variants of the rules that no recording of the game has decided.
    ``completions`` and ``rules`` are ignored for a LevelBank, which was built with its own values of them.
    Raises ValueError for inputs that are not one byte per frame.
    """
    inputs = np.ascontiguousarray(inputs)
    whole = np.issubdtype(inputs.dtype, np.integer) or inputs.size == 0
    if inputs.ndim != 1 or not whole or (inputs.size and (inputs.min() < 0 or inputs.max() > 255)):
        raise ValueError(
            f"inputs must be one byte per frame, a vector of whole numbers 0..255; got {inputs.dtype}{list(inputs.shape)}"
        )
    bank = level if isinstance(level, LevelBank) else LevelBank([level], completions, rules=rules)
    compiled = bank.compiled[0]
    parts = [
        (NINJA_DTYPE, ()),
        (ENTITY_DTYPE, (bank.max_entities,)),
        (MOVER_DTYPE, (bank.max_movers,)),
        (TRAIL_DTYPE, (bank.max_trail,)),
    ]
    _, (ninjas, entities, movers, trail) = allocate(1, parts)
    count = len(bank.world.entity)
    frames, entity_state = np.zeros((len(inputs), len(FRAME_COLUMNS))), np.zeros((len(inputs), count), np.uint8)
    entity_xy = np.tile(compiled.entity_xy, (len(inputs), 1, 1))
    aiming = compiled.entity_mover[np.isin(compiled.entity_type, kinds.AIMING)]
    aims = np.zeros((len(inputs), len(aiming), 3))
    inputs = inputs.astype(np.uint8)
    n = _run(ninjas, entities, movers, trail, bank.world, inputs, frames, entity_state, entity_xy, aiming, aims)
    frames, entity_state, entity_xy = frames[:n], entity_state[:n], entity_xy[:n]
    state = frames[:, STATE].astype(np.int8)
    outcome = UNFINISHED if n == 0 else {DEAD: NAMES[DIED], CELEBRATING: NAMES[WON]}.get(int(state[-1]), UNFINISHED)
    return Run(
        frames=n,
        outcome=outcome,
        position=frames[:, X : Y + 1].copy(),
        velocity=frames[:, VX : VY + 1].copy(),
        ninja_state=state,
        airborne=frames[:, AIRBORNE] != 0,
        walled=frames[:, WALLED] != 0,
        floor_normal=frames[:, FLOOR_X : FLOOR_Y + 1].copy(),
        gold=frames[:, GOLD].astype(np.int32),
        win_fraction=float(ninjas[0]["win_fraction"]),
        entities=np.stack([compiled.entity_type, compiled.entity_number], axis=1),
        entity_state=entity_state,
        entity_position=entity_xy,
        aims=aims[:n],
    )
