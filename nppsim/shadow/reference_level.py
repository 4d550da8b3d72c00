"""Data of one level: entities, pictures, and paths for each state of its doors.  Results are cached."""

import functools
from typing import Any

import numpy as np

from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.physics.state import NINJA_DTYPE
from nppsim.shadow import paths
from nppsim.shadow.geometry import EntityState, MoverState, ReferenceEntity, ReferenceState, averaged, entities, raster
from nppsim.shadow.paths import Lattice, ReferenceFields

CACHED_FIELDS = 32  # maximum number of cached states of the doors per level


class ReferenceLevel:
    """Data of one level.  completions: include the entities that the reference simulator leaves out.

    listed: entities in type order.  exits, doors: those that are exits, and those that are doors with a switch.
    fields_for: function of two tuples of indices, (closed doors, open exits), that returns ReferenceFields.
    """

    def __init__(self, level: Level, completions: bool = True):
        self.level, self.completions = level, completions
        self.listed: list[ReferenceEntity] = entities(level, completions)
        self.exits = [e for e in self.listed if e.kind == kinds.EXIT]
        self.doors = [e for e in self.listed if e.kind in kinds.SWITCH_OF_DOOR]
        self._num_movers = sum(e.kind in kinds.MOVERS for e in self.listed)
        self.fields_for = functools.lru_cache(CACHED_FIELDS)(self._fields_for)
        self.at_start: tuple[tuple[int, ...], tuple[int, ...]] = (tuple(e.index for e in self.doors if e.closed), ())

    @functools.cached_property
    def _lattice(self) -> Lattice:
        """Lattice with all doors open, with the smallest leniency (``paths.lattice``) for which the spawn has a path."""
        for leniency in range(3):
            lattice = paths.lattice(self.level, self.listed, leniency)
            fields = paths.path_fields(lattice, self.listed, *self.at_start)
            if fields.to_switch.path(*self.level.spawn)[1] is not None:
                break
        return lattice

    def _fields_for(self, closed: tuple[int, ...], opened: tuple[int, ...]) -> ReferenceFields:
        return paths.path_fields(self._lattice, self.listed, closed, opened)

    def state_of(self, ninja: np.void, entities: np.ndarray, movers: np.ndarray) -> ReferenceState:
        """Convert the state of an environment.  Arguments: its ninja, and its rows of entities and movers."""
        values = dict(zip(NINJA_DTYPE.fields or (), ninja.item(), strict=True))
        states = [EntityState(*state) for state in entities[: len(self.listed)].tolist()]
        moving: list[Any] = [MoverState(*state) for state in movers[: self._num_movers].tolist()]
        return ReferenceState(values, states, {m.entity: m for m in moving})

    def door_state(self, now: ReferenceState) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the arguments of ``fields_for`` for a state.  The second one is () for a level with one exit."""
        opened = (e.index for e in self.exits if now.states[e.index].clock) if len(self.exits) > 1 else ()
        return tuple(e.index for e in self.doors if now.states[e.index].closed), tuple(opened)

    def path_fields(self, now: ReferenceState) -> ReferenceFields:
        """Return the path fields for the current doors and exits."""
        return self.fields_for(*self.door_state(now))

    def path(self, now: ReferenceState) -> tuple[float, tuple[int, int] | None]:
        """Return (px, first lattice point) of the path from the ninja to the exit, via a switch if none was taken yet."""
        fields = self.path_fields(now)
        field = fields.to_exit if now.ninja["switch_taken"] else fields.to_switch
        return field.path(now.ninja["x"], now.ninja["y"])

    @functools.cached_property
    def path_start(self) -> float:
        """Path length from the spawn via a switch to the exit, px, rounded to float32 as in a LevelBank."""
        return float(np.float32(self.fields_for(*self.at_start).to_switch.path(*self.level.spawn)[0]))

    @functools.cached_property
    def halves(self) -> np.ndarray:
        """Solid share of each half-cell, 0..255, with a margin of one: uint8[52, 90], y first."""
        return np.pad((averaged(raster(self.level, 16), 8) * 255).astype(np.uint8), 1, constant_values=255)

    @functools.cached_property
    def frame_picture(self) -> np.ndarray:
        """Picture of the tiles, one pixel per 2 x 2 px, with a solid margin of one pixel: uint8[302, 530], y first."""
        grey = np.round(64 + 191 * averaged(raster(self.level, 24), 2)).astype(np.uint8)
        return np.pad(grey, 1, constant_values=255)

    @functools.cached_property
    def view_picture(self) -> np.ndarray:
        """Picture of the tiles, one pixel per 6 x 6 px: uint8[100, 176], y first."""
        return np.round(64 + 191 * averaged(raster(self.level, 24), 6)).astype(np.uint8)
