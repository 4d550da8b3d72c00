"""Whether states of environments can be true: before they are restored from a file that somebody else may have made.

    if told := impossible(sim.state, sim.bank, sim.num_envs): ...

Compiled code takes numbers of levels, kinds and cells from a state as they are; one beyond its array would crash the
interpreter.  What is within these bounds can be wrong, but does no harm.
"""

from collections.abc import Iterator

import numpy as np

from nppsim.bank import MAX_TIME_LIMIT, LevelBank
from nppsim.decision import State
from nppsim.levels import kinds
from nppsim.levels.stage import CELLS_X, CELLS_Y, STAGE_HEIGHT, STAGE_WIDTH, TILE
from nppsim.physics.state import UNREGISTERED

FASTEST = 1000.0  # px per frame; nothing in the game is nearly as fast
FAR = 1e6  # no other number is larger
_SPEED = {"vx": (-FASTEST, FASTEST), "vy": (-FASTEST, FASTEST)}
_FLAG = (0, 1)
_NINJA = {  # which can fall out of the stage where its border is broken
    **_SPEED,
    "frame": (0, 2 * MAX_TIME_LIMIT),
    "state": (0, 9),
    **dict.fromkeys(("gold", "hold", "floor_count", "ceiling_count", "registrations"), (0, int(FAR))),
    **dict.fromkeys(("airborne", "airborne_before", "walled", "jump_held", "switch_taken", "arming"), _FLAG),
    **dict.fromkeys(("suicide_held", "crushable"), _FLAG),
}
_MOVER = {**_SPEED, "order": (0, int(FAR)), "direction": (-1, 3), "wish": (-1, 3), "flag": _FLAG}
_ENTITY = {"active": _FLAG, "closed": _FLAG, "blocking": (-int(FAR), int(FAR))}
_STAGE = (("x", STAGE_WIDTH), ("y", STAGE_HEIGHT))
_FREE = (kinds.BOUNCE_BLOCK, kinds.DEATH_BALL)  # movers that go where they are pushed; all others keep to the stage
_PROGRESS = {"decisions": (0, 2 * MAX_TIME_LIMIT), "near": (0, 3)}


def impossible(state: State, bank: LevelBank, count: int) -> str:
    """What is wrong with the first of the first ``count`` states that cannot be true; "" if none is found."""
    level = state.ninja["level"][:count]
    outside = np.flatnonzero((level < 0) | (level >= len(bank)))
    if len(outside):
        return f"environment {outside[0]} plays level {level[outside[0]]} of {len(bank)}"
    return next(_problems(state, bank, count), "")


def _problems(state: State, bank: LevelBank, count: int) -> Iterator[str]:
    records = bank.world.level[state.ninja["level"][:count]]
    moving = np.arange(state.movers.shape[1])
    numbers = records["mover_first"][:, None] + moving
    there = numbers < records["mover_end"][:, None]
    placed = np.arange(state.entities.shape[1]) < (records["entity_end"] - records["entity_first"])[:, None]
    always = np.ones(count, bool)
    yield from _outside("ninja", state.ninja[:count], _NINJA, always)
    yield from _outside("progress", state.progress[:count], _PROGRESS, always)
    yield from _outside("terms", state.terms[:count], {}, np.ones(state.terms[:count].shape, bool))
    yield from _outside("visited", state.visited[:count], {"": _FLAG}, np.ones(state.visited[:count].shape, bool))
    yield from _outside("entities", state.entities[:count], _ENTITY, placed)
    movers = state.movers[:count]
    yield from _outside("movers", movers, _MOVER, there)
    if there.any():
        first = bank.world.mover[np.minimum(numbers, len(bank.world.mover) - 1)]
        stays = there & ~np.isin(movers["type"], _FREE)
        for name, size in _STAGE:  # what begins in the border of tiles, or beyond, may leave the stage
            stays &= (first[name] >= TILE) & (first[name] <= size - TILE)
        for name, size in _STAGE:
            yield from _where(f"movers.{name}", movers[name], ((movers[name] < 0) | (movers[name] > size)) & stays)
        for name in ("entity", "type", "mode"):  # which never change
            yield from _where(f"movers.{name}", movers[name], (movers[name] != first[name]) & there)
    for name, cells in (("cell_x", CELLS_X), ("cell_y", CELLS_Y)):
        values = movers[name]
        yield from _where(f"movers.{name}", values, (values >= cells) & (values != UNREGISTERED) & there)


def _outside(place: str, values: np.ndarray, bounds: dict[str, tuple], there: np.ndarray) -> Iterator[str]:
    """Fields, or the values themselves, that are beyond their bounds; numbers without any must be finite, and not huge."""
    for name in values.dtype.names or ("",):
        column = values[name] if name else values
        low, high = bounds.get(name, (-FAR, FAR))
        yield from _where(f"{place}.{name}".rstrip("."), column, ~((column >= low) & (column <= high)) & there)


def _where(name: str, values: np.ndarray, wrong: np.ndarray) -> Iterator[str]:
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        yield f"{name} of environment {place[0]} is {values[place]}"
