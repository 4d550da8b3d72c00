"""Image observations, drawn from tile templates: no level is rasterised while playing.

Grey values: empty 64, solid 255, deadly 0, gold 128, switch 160, closed exit 112, open exit 208, closed door 224,
ninja 192.  Both images are uint8; ``player_frame`` is [y, x], ``global_view`` is [x, y].
"""

import numpy as np
from numba import njit

from nppsim.geometry import CELLS_X, CELLS_Y
from nppsim.level import EXIT, EXIT_SWITCH, GOLD, LOCKED_DOOR, MINE, TOGGLE_MINE, TRAP_DOOR
from nppsim.observe.layout import GLOBAL_VIEW_SHAPE, PLAYER_FRAME_SIZE
from nppsim.physics.entities import DORMANT
from nppsim.tiles import NUM_SHAPED_TILES, solid_mask

EMPTY, SOLID, DEADLY, GOLD_GREY, SWITCH, EXIT_CLOSED, EXIT_OPEN, DOOR, NINJA = 64, 255, 0, 128, 160, 112, 208, 224, 192
FRAME_SCALE, VIEW_SCALE = 2, 6  # px of the level per pixel
_FRAME_TILE, _VIEW_TILE = 24 // FRAME_SCALE, 24 // VIEW_SCALE  # pixels per tile


def _templates(size: int) -> np.ndarray:
    """uint8[38, size, size], y first: each tile, averaged from 24 x 24 points."""
    step = 24 // size
    share = [solid_mask(t, 24).reshape(size, step, size, step).mean(axis=(1, 3)) for t in range(NUM_SHAPED_TILES)]
    return np.round(EMPTY + (SOLID - EMPTY) * np.stack(share)).astype(np.uint8)


_FRAME_TEMPLATES = _templates(_FRAME_TILE)
_VIEW_TEMPLATES = np.ascontiguousarray(_templates(_VIEW_TILE).transpose(0, 2, 1))  # x first


@njit(cache=True, nogil=True, error_model="numpy")
def background(stage, out):
    """The unchanging part of ``global_view``: uint8[176, 100]."""
    for cx in range(CELLS_X):
        for cy in range(CELLS_Y):
            tile = stage[cx, cy] if stage[cx, cy] < NUM_SHAPED_TILES else 0
            for i in range(_VIEW_TILE):
                for j in range(_VIEW_TILE):
                    out[cx * _VIEW_TILE + i, cy * _VIEW_TILE + j] = _VIEW_TEMPLATES[tile, i, j]


@njit(cache=True, nogil=True, error_model="numpy")
def _grey_and_size(entity, kind):
    """(grey value, half-size in px) of an entity as it is now; size 0: not drawn."""
    if kind == MINE or kind == TOGGLE_MINE:
        return (EXIT_CLOSED, 3.5) if entity["state"] == DORMANT else (DEADLY, 4.0)
    if kind == EXIT:
        return (EXIT_OPEN if entity["clock"] else EXIT_CLOSED), 12.0
    if entity["active"] == 0:
        return EMPTY, 0.0
    if kind == GOLD:
        return GOLD_GREY, 6.0
    if kind == EXIT_SWITCH:
        return SWITCH, 6.0
    if kind == LOCKED_DOOR or kind == TRAP_DOOR:
        return SWITCH, 5.0
    return EMPTY, 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _fill(out, a1, a2, b1, b2, grey):
    """Fill out[a1:a2, b1:b2], cut off at the border."""
    for a in range(max(a1, 0), min(a2, out.shape[0])):
        for b in range(max(b1, 0), min(b2, out.shape[1])):
            out[a, b] = grey


@njit(cache=True, nogil=True, error_model="numpy")
def global_view(ninja, entities, world, level, static, out):
    """uint8[176, 100, 1], x first.  static: the level's ``background``."""
    image = out[:, :, 0]
    image[:] = static
    base = world.level[level]["entity_first"]
    for k in range(world.level[level]["entity_end"] - base):
        kind = world.entity[base + k]["type"]
        if entities[k]["closed"]:
            door = world.entity[base + k]
            x1, y1 = int(door["x1"] / VIEW_SCALE), int(door["y1"] / VIEW_SCALE)
            _fill(image, x1, int(door["x2"] / VIEW_SCALE) + 1, y1, int(door["y2"] / VIEW_SCALE) + 1, DOOR)
        grey, half = _grey_and_size(entities[k], kind)
        if half > 0.0:
            x, y = world.entity[base + k]["x"], world.entity[base + k]["y"]
            x1, x2 = int((x - half) / VIEW_SCALE + 0.5), int((x + half) / VIEW_SCALE + 0.5)
            y1, y2 = int((y - half) / VIEW_SCALE + 0.5), int((y + half) / VIEW_SCALE + 0.5)
            _fill(image, x1, max(x2, x1 + 1), y1, max(y2, y1 + 1), grey)
    x1, y1 = int((ninja["x"] - 10.0) / VIEW_SCALE + 0.5), int((ninja["y"] - 10.0) / VIEW_SCALE + 0.5)
    _fill(image, x1, x1 + 3, y1, y1 + 3, NINJA)


@njit(cache=True, nogil=True, error_model="numpy")
def player_frame(ninja, entities, world, level, stage, out):
    """uint8[84, 84, 1], y first: 168 x 168 px around the ninja; outside the stage is solid.  stage: uint8[44, 25]."""
    image = out[:, :, 0]
    left = int(np.floor(ninja["x"] / FRAME_SCALE)) - PLAYER_FRAME_SIZE // 2
    top = int(np.floor(ninja["y"] / FRAME_SCALE)) - PLAYER_FRAME_SIZE // 2
    for r in range(PLAYER_FRAME_SIZE):
        cy, row = (top + r) // _FRAME_TILE, (top + r) % _FRAME_TILE
        c = 0
        while c < PLAYER_FRAME_SIZE:
            cx, column = (left + c) // _FRAME_TILE, (left + c) % _FRAME_TILE
            run = min(_FRAME_TILE - column, PLAYER_FRAME_SIZE - c)
            tile = 1
            if 0 <= cx < CELLS_X and 0 <= cy < CELLS_Y:
                tile = stage[cx, cy] if stage[cx, cy] < NUM_SHAPED_TILES else 0
            template = _FRAME_TEMPLATES[tile, row]
            for k in range(run):
                image[r, c + k] = template[column + k]
            c += run
    base = world.level[level]["entity_first"]
    reach = 84.0 + 12.0
    for k in range(world.level[level]["entity_end"] - base):
        kind = world.entity[base + k]["type"]
        if entities[k]["closed"]:
            door = world.entity[base + k]
            x1, x2 = int(door["x1"] / FRAME_SCALE) - left - 1, int(door["x2"] / FRAME_SCALE) - left + 1
            y1, y2 = int(door["y1"] / FRAME_SCALE) - top - 1, int(door["y2"] / FRAME_SCALE) - top + 1
            _fill(image, y1, y2, x1, x2, DOOR)
        x, y = world.entity[base + k]["x"], world.entity[base + k]["y"]
        if abs(x - ninja["x"]) > reach or abs(y - ninja["y"]) > reach:
            continue
        grey, half = _grey_and_size(entities[k], kind)
        if half > 0.0:
            x1, x2 = int((x - half) / FRAME_SCALE) - left, int((x + half) / FRAME_SCALE) - left
            y1, y2 = int((y - half) / FRAME_SCALE) - top, int((y + half) / FRAME_SCALE) - top
            _fill(image, y1, y2, x1, x2, grey)
    middle = PLAYER_FRAME_SIZE // 2
    for r in range(-5, 5):
        for c in range(-5, 5):
            if (2 * r + 1) * (2 * r + 1) + (2 * c + 1) * (2 * c + 1) <= 100:
                image[middle + r, middle + c] = NINJA


assert GLOBAL_VIEW_SHAPE == (CELLS_X * _VIEW_TILE, CELLS_Y * _VIEW_TILE)
