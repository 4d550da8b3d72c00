"""Validation of environment states from untrusted files.

    if error := impossible(sim.state, sim.bank, sim.num_envs): ...

Compiled code does not check the indices of levels, types and cells in a state; an index out of range would crash the
interpreter.  Values within the bounds of this module may be wrong, but are safe.
"""

from collections.abc import Iterator

import numpy as np

from nppsim.bank import MAX_TIME_LIMIT, LevelBank
from nppsim.decision import State
from nppsim.levels import kinds
from nppsim.levels.stage import CELLS_X, CELLS_Y, STAGE_HEIGHT, STAGE_WIDTH, TILE
from nppsim.physics.state import UNREGISTERED

MAX_SPEED = 1000.0  # px per frame, maximum velocity; far above those of the game
MAX_VALUE = 1e6  # maximum absolute value of all other numbers
_SPEED = {"vx": (-MAX_SPEED, MAX_SPEED), "vy": (-MAX_SPEED, MAX_SPEED)}
_FLAG = (0, 1)
_NINJA = {  # positions have no bounds: the ninja can leave a stage whose border has gaps
    **_SPEED,
    "frame": (0, 2 * MAX_TIME_LIMIT),
    "state": (0, 9),
    **dict.fromkeys(("gold", "hold", "floor_count", "ceiling_count", "registrations"), (0, int(MAX_VALUE))),
    **dict.fromkeys(("airborne", "airborne_before", "walled", "jump_held", "switch_taken", "arming"), _FLAG),
    **dict.fromkeys(("suicide_held", "crushable"), _FLAG),
}
_MOVER = {**_SPEED, "order": (0, int(MAX_VALUE)), "direction": (-1, 3), "flag": _FLAG}
_ENTITY = {"active": _FLAG, "closed": _FLAG, "blocking": (-int(MAX_VALUE), int(MAX_VALUE))}
_STAGE = (("x", STAGE_WIDTH), ("y", STAGE_HEIGHT))
_FREE = (kinds.BOUNCE_BLOCK, kinds.DEATH_BALL, kinds.EVIL_NINJA)  # movers that can leave the stage
_PROGRESS = {"decisions": (0, 2 * MAX_TIME_LIMIT), "near": (0, 3)}


def impossible(state: State, bank: LevelBank, count: int) -> str:
    """Describe the first invalid value among the first ``count`` states; "" if all are valid."""
    level = state.ninja["level"][:count]
    outside = np.flatnonzero((level < 0) | (level >= len(bank)))
    if len(outside):
        return f"environment {outside[0]} plays level {level[outside[0]]}, but the levels are 0 to {len(bank) - 1}"
    return next(_problems(state, bank, count), "")


def _problems(state: State, bank: LevelBank, count: int) -> Iterator[str]:
    records = bank.world.level[state.ninja["level"][:count]]
    moving = np.arange(state.movers.shape[1])
    numbers = records["mover_first"][:, None] + moving
    there = numbers < records["mover_end"][:, None]
    placed = np.arange(state.entities.shape[1]) < (records["entity_end"] - records["entity_first"])[:, None]
    yield from _outside("ninja", state.ninja[:count], _NINJA)
    yield from _outside("progress", state.progress[:count], _PROGRESS)
    yield from _outside("terms", state.terms[:count], {})
    yield from _outside("visited", state.visited[:count], {"": _FLAG})
    yield from _outside("entities", state.entities[:count], _ENTITY, placed)
    yield from _outside("trail", state.trail[:count], {})
    movers = state.movers[:count]
    yield from _outside("movers", movers, _MOVER, there)
    if there.any():
        first = bank.world.mover[np.minimum(numbers, len(bank.world.mover) - 1)]
        stays = there & ~np.isin(movers["type"], _FREE)
        for name, size in _STAGE:  # movers that start in the border, or beyond, may leave the stage
            stays &= (first[name] >= TILE) & (first[name] <= size - TILE)
        for name, size in _STAGE:
            yield from _where(f"movers.{name}", movers[name], ((movers[name] < 0) | (movers[name] > size)) & stays)
        for name in ("entity", "type", "mode"):  # fields of a mover that never change
            yield from _where(f"movers.{name}", movers[name], (movers[name] != first[name]) & there)
    for name, cells in (("cell_x", CELLS_X), ("cell_y", CELLS_Y)):
        values = movers[name]
        yield from _where(f"movers.{name}", values, (values >= cells) & (values != UNREGISTERED) & there)


def _outside(
    prefix: str, values: np.ndarray, bounds: dict[str, tuple], there: np.ndarray | bool = True
) -> Iterator[str]:
    """Yield a description of each field with a value out of bounds (default: ±MAX_VALUE) where ``there`` is True."""
    for name in values.dtype.names or ("",):
        column = values[name] if name else values
        low, high = bounds.get(name, (-MAX_VALUE, MAX_VALUE))
        yield from _where(f"{prefix}.{name}".rstrip("."), column, ~((column >= low) & (column <= high)) & there)


def _where(name: str, values: np.ndarray, wrong: np.ndarray) -> Iterator[str]:
    if wrong.any():
        index = tuple(np.argwhere(wrong)[0].tolist())
        yield f"{name} of environment {index[0]} is {values[index]}"
