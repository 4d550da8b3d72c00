"""Mines, gold, exits and doors: thinking and touching (physics specification, sections 7.1 to 7.4).

``entities``: ENTITY[E], the changing part; ``world``: the level bank's arrays; ``base``: where the level's entities begin.
"""

import math

from numba import njit

from nppsim.geometry import CELLS_X, CELLS_Y
from nppsim.level import EXIT, EXIT_SWITCH, GOLD, LOCKED_DOOR, MINE, REGULAR_DOOR, TOGGLE_MINE, TRAP_DOOR
from nppsim.physics import state as s
from nppsim.physics.ninja import is_valid_target, kill, win
from nppsim.physics.segments import clamped_cell, impact_point

ARMED, DORMANT, ARMING = 0, 1, 2
GOLD_RADIUS, EXIT_RADIUS, EXIT_SWITCH_RADIUS = 6.0, 12.0, 6.0
REGULAR_DOOR_RADIUS, DOOR_SWITCH_RADIUS = 10.0, 5.0
REGULAR_DOOR_OPEN_FRAMES = 5
ARMED_RADIUS, DORMANT_RADIUS, ARMING_RADIUS = 4.0, 3.5, 4.5  # of mines


@njit(cache=True, nogil=True, error_model="numpy")
def _touches(ninja, x, y, radius):
    dx, dy = ninja["x"] - x, ninja["y"] - y
    return math.sqrt(dx * dx + dy * dy) < radius + s.RADIUS


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def think(ninja, entities, world, level):
    """Doors that close by themselves and mines that arm: the think pass."""
    base = world.level[level]["entity_first"]
    for k in range(world.level[level]["doors_first"], world.level[level]["doors_end"]):  # regular doors
        door = entities[k - base]
        if door["closed"] == 0:
            door["clock"] += 1
            if door["clock"] > REGULAR_DOOR_OPEN_FRAMES:
                door["closed"] = 1
    if world.level[level]["toggle_mines"] == 0 and ninja["arming"] == 0:
        return
    # A dormant mine wakes only when touched, so that only those around the ninja can; one that is arming was touched
    # in the last frame and may be anywhere near.
    target = is_valid_target(ninja)
    if ninja["arming"]:
        still_arming = 0
        for k in range(base, world.level[level]["entity_end"]):
            kind = world.entity[k]["type"]
            if (kind == MINE or kind == TOGGLE_MINE) and entities[k - base]["state"] == ARMING:
                if target and _touches(ninja, world.entity[k]["x"], world.entity[k]["y"], ARMING_RADIUS):
                    still_arming = 1
                else:
                    dead = ninja["state"] == s.DEAD or ninja["state"] == s.DISABLED
                    entities[k - base]["state"] = DORMANT if dead else ARMED
        ninja["arming"] = still_arming
    if not target:
        return
    cell_x, cell_y = clamped_cell(ninja["x"], CELLS_X), clamped_cell(ninja["y"], CELLS_Y)
    cell_start, items = world.entity_cell_start[level], world.level[level]["items_first"]
    cy1, cy2 = max(cell_y - 1, 0), min(cell_y + 1, CELLS_Y - 1)
    for cx in range(max(cell_x - 1, 0), min(cell_x + 2, CELLS_X)):
        for i in range(items + cell_start[cx * CELLS_Y + cy1], items + cell_start[cx * CELLS_Y + cy2 + 1]):
            k = world.entity_items[i]
            kind = world.entity[base + k]["type"]
            if (
                (kind == MINE or kind == TOGGLE_MINE)
                and entities[k]["state"] == DORMANT
                and _touches(ninja, world.entity[base + k]["x"], world.entity[base + k]["y"], DORMANT_RADIUS)
            ):
                entities[k]["state"] = ARMING
                ninja["arming"] = 1


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def interact(ninja, entities, world, level):
    """Touch the entities around the ninja, in gather order: x-major cells, in each in order of registration.

    Exit doors are registered when their switch is hit, behind all others of their cell; one registered in this very
    pass is met from the next frame on.
    """
    x, y = ninja["x"], ninja["y"]
    cell_x, cell_y = clamped_cell(x, CELLS_X), clamped_cell(y, CELLS_Y)
    base, items = world.level[level]["entity_first"], world.level[level]["items_first"]
    cell_start = world.entity_cell_start[level]
    open_exits = ninja["exits_open"]
    cy1, cy2 = max(cell_y - 1, 0), min(cell_y + 1, CELLS_Y - 1)
    for cx in range(max(cell_x - 1, 0), min(cell_x + 2, CELLS_X)):
        if open_exits == 0:
            for i in range(items + cell_start[cx * CELLS_Y + cy1], items + cell_start[cx * CELLS_Y + cy2 + 1]):
                _touch(ninja, entities, world, base, world.entity_items[i])
            continue
        for cy in range(cy1, cy2 + 1):
            cell = cx * CELLS_Y + cy
            for i in range(items + cell_start[cell], items + cell_start[cell + 1]):
                _touch(ninja, entities, world, base, world.entity_items[i])
            for place in range(1, open_exits + 1):
                for k in range(world.level[level]["exits_first"] - base, world.level[level]["exits_end"] - base):
                    if (
                        world.entity[base + k]["type"] == EXIT
                        and entities[k]["clock"] == place
                        and world.entity[base + k]["cell"] == cell
                    ):
                        _touch(ninja, entities, world, base, k)


@njit(cache=True, nogil=True, error_model="numpy")
def _touch(ninja, entities, world, base, k):
    """The logical interaction of one entity with the ninja."""
    entity = entities[k]
    if entity["active"] == 0:
        return
    kind = world.entity[base + k]["type"]
    x, y = world.entity[base + k]["x"], world.entity[base + k]["y"]
    if kind == MINE or kind == TOGGLE_MINE:
        if entity["state"] == ARMED and is_valid_target(ninja) and _touches(ninja, x, y, ARMED_RADIUS):
            entity["state"] = DORMANT
            kill(ninja)
    elif kind == GOLD:
        if ninja["state"] != s.CELEBRATING and _touches(ninja, x, y, GOLD_RADIUS):
            ninja["gold"] += 1
            entity["active"] = 0
    elif kind == EXIT:
        if _touches(ninja, x, y, EXIT_RADIUS):
            win(ninja)
            px, py = ninja["start_x"], ninja["start_y"]
            wx, wy = ninja["x"] - px, ninja["y"] - py
            ninja["win_fraction"] = impact_point(px, py, wx, wy, x, y, EXIT_RADIUS + s.RADIUS)
    elif kind == EXIT_SWITCH:
        if _touches(ninja, x, y, EXIT_SWITCH_RADIUS):
            entity["active"] = 0
            ninja["exits_open"] += 1
            ninja["switch_taken"] = 1
            entities[world.entity[base + k]["partner"]]["clock"] = ninja["exits_open"]
    elif kind == REGULAR_DOOR:
        if _touches(ninja, x, y, REGULAR_DOOR_RADIUS):
            entity["closed"] = 0
            entity["clock"] = 0
    elif (kind == LOCKED_DOOR or kind == TRAP_DOOR) and _touches(ninja, x, y, DOOR_SWITCH_RADIUS):
        entity["closed"] = 1 if kind == TRAP_DOOR else 0
        entity["active"] = 0
