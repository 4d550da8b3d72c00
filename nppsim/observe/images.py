"""Image observations ``player_frame`` (uint8, [y, x]) and ``global_view`` (uint8, [x, y]).

Tiles are copied from templates and entities are drawn on top, so no outline is rasterised during a step.
"""

import numpy as np

from nppsim._numba.decorators import inlined, kernel
from nppsim.levels import kinds, tiles
from nppsim.levels.kinds import ENTITY_NAMES
from nppsim.levels.stage import CELLS_X, CELLS_Y, TILE
from nppsim.levels.tiles import NUM_TILE_SHAPES, solid_mask
from nppsim.observe.layout import GLOBAL_VIEW_SHAPE, PLAYER_FRAME_SIZE
from nppsim.physics.bodies import BLOCK_HALF, ONE_WAY_HALF_LENGTH, SHOVE_HALF, THWUMP_HALF
from nppsim.physics.entities import (
    ARMED_RADIUS,
    DOOR_SWITCH_RADIUS,
    DORMANT,
    DORMANT_RADIUS,
    EXIT_RADIUS,
    EXIT_SWITCH_RADIUS,
    GOLD_RADIUS,
    LETHAL_HALF_WIDTH,
    PAD_RADIUS,
)
from nppsim.physics.evil_ninjas import EVIL_RADIUS
from nppsim.physics.groups import is_mine
from nppsim.physics.lasers import EMITTER_RADIUS
from nppsim.physics.movers import (
    BALL_RADIUS,
    BOOST_RADIUS,
    GUARD_RADIUS,
    MINI_RADIUS,
    SHOVE_CORE,
    THWUMP_REACH,
    ZAP_RADIUS,
)
from nppsim.physics.shooters import FIRING, PREFIRE
from nppsim.physics.state import HORIZONTAL, RADIUS

# Grey values.  Pixels that a tile covers in part lie between EMPTY and SOLID.
DEADLY = 0
EMPTY = 64
PAD_GREY = 80
BOOST_GREY = 96
EXIT_CLOSED = 112  # also for dormant mines
GOLD_GREY = 128
BLOCK_GREY = 144
SWITCH_GREY = 160
THWUMP_GREY = 176
NINJA_GREY = 192
EXIT_OPEN = 208
DOOR_GREY = 224
ONE_WAY_GREY = 240
SOLID = 255

FRAME_SCALE = 2  # px of the level per pixel of ``player_frame``
VIEW_SCALE = 6  # px of the level per pixel of ``global_view``
_FRAME_TILE = TILE // FRAME_SCALE  # pixels per tile
_VIEW_TILE = TILE // VIEW_SCALE
_VIEW_ROUNDING = 0.5  # edges of squares are rounded to the nearest pixel of ``global_view``
_FRAME_ROUNDING = 0.0  # edges of squares are rounded down to a whole pixel of ``player_frame``
_TURRET_SIZE = 6.0  # px, half-side of a turret or rocket
_NINJA_PIXELS = 3  # pixels per side of the ninja in ``global_view``
# px: an entity whose centre is farther from the ninja is not visible in ``player_frame``.  The sum of half the picture,
# half the largest entity (shove thwump or exit), and one pixel for rounding.
_FRAME_REACH = PLAYER_FRAME_SIZE // 2 * FRAME_SCALE + SHOVE_HALF + FRAME_SCALE


def _templates(size: int) -> np.ndarray:
    """Return the picture of each tile, averaged from 24 x 24 points: uint8[38, size, size], y first."""
    step = TILE // size
    share = [solid_mask(t, TILE).reshape(size, step, size, step).mean(axis=(1, 3)) for t in range(NUM_TILE_SHAPES)]
    return np.round(EMPTY + (SOLID - EMPTY) * np.stack(share)).astype(np.uint8)


_FRAME_TEMPLATES = _templates(_FRAME_TILE)
_VIEW_TEMPLATES = np.ascontiguousarray(_templates(_VIEW_TILE).transpose(0, 2, 1))  # x first


_LOOKS = np.zeros((len(ENTITY_NAMES), 2))  # entity type -> grey value, half-side in px; 0 if they vary or are not drawn
for _kind, _look in {
    kinds.GOLD: (GOLD_GREY, GOLD_RADIUS),
    kinds.EXIT_SWITCH: (SWITCH_GREY, EXIT_SWITCH_RADIUS),
    kinds.LOCKED_DOOR: (SWITCH_GREY, DOOR_SWITCH_RADIUS),
    kinds.TRAP_DOOR: (SWITCH_GREY, DOOR_SWITCH_RADIUS),
    kinds.LAUNCH_PAD: (PAD_GREY, PAD_RADIUS),
    kinds.BOOST_PAD: (BOOST_GREY, BOOST_RADIUS),
    kinds.BOUNCE_BLOCK: (BLOCK_GREY, BLOCK_HALF),
    kinds.THWUMP: (THWUMP_GREY, THWUMP_HALF),
    kinds.SHOVE_THWUMP: (THWUMP_GREY, SHOVE_HALF),
    kinds.FLOOR_GUARD: (DEADLY, GUARD_RADIUS),
    kinds.DEATH_BALL: (DEADLY, BALL_RADIUS),
    kinds.MINI_DRONE: (DEADLY, MINI_RADIUS),
    kinds.ZAP_DRONE: (DEADLY, ZAP_RADIUS),
    kinds.CHASER_DRONE: (DEADLY, ZAP_RADIUS),
    kinds.CHAINGUN_DRONE: (DEADLY, ZAP_RADIUS),
    kinds.LASER_DRONE: (DEADLY, ZAP_RADIUS),
    kinds.EVIL_NINJA: (DEADLY, EVIL_RADIUS),
    kinds.ROCKET_TURRET: (DEADLY, _TURRET_SIZE),
    kinds.GAUSS_TURRET: (DEADLY, _TURRET_SIZE),
    kinds.LASER: (DEADLY, EMITTER_RADIUS),
}.items():
    _LOOKS[_kind] = _look


@kernel
def _tile_at(stage, cx, cy):
    """Return the tile of a cell; SOLID outside the stage."""
    if not (0 <= cx < CELLS_X and 0 <= cy < CELLS_Y):
        return tiles.SOLID
    return stage[cx, cy]


@kernel
def background(stage, out):
    """Draw the tiles of ``global_view`` into ``out``, uint8[176, 100]."""
    for cx in range(CELLS_X):
        for cy in range(CELLS_Y):
            tile = stage[cx, cy]
            for i in range(_VIEW_TILE):
                for j in range(_VIEW_TILE):
                    out[cx * _VIEW_TILE + i, cy * _VIEW_TILE + j] = _VIEW_TEMPLATES[tile, i, j]


@kernel
def _grey_and_size(entity, kind):
    """Return (grey value, half-side in px) of an entity in its current state; 0 px if it is not drawn."""
    if is_mine(kind):
        return (EXIT_CLOSED, DORMANT_RADIUS) if entity["state"] == DORMANT else (DEADLY, ARMED_RADIUS)
    if kind == kinds.EXIT:
        return (EXIT_OPEN if entity["clock"] else EXIT_CLOSED), EXIT_RADIUS
    if entity["active"] == 0:
        return EMPTY, 0.0
    return int(_LOOKS[kind, 0]), _LOOKS[kind, 1]


@kernel
def _fill(out, a1, a2, b1, b2, grey):
    """Fill out[a1:a2, b1:b2], clipped to the array."""
    for a in range(max(a1, 0), min(a2, out.shape[0])):
        for b in range(max(b1, 0), min(b2, out.shape[1])):
            out[a, b] = grey


@inlined
def _has_beam(kind):
    """Return True if entities of this type may have a beam, which may be visible when the entity is not."""
    return kind == kinds.LASER or kind == kinds.LASER_DRONE or kind == kinds.GAUSS_TURRET


@kernel
def _line_of(placed, movers):
    """Return (grey, x1, y1, x2, y2) in px of an entity's line: one-way, deadly face or beam; grey -1 if it has none."""
    kind = placed["type"]
    if kind == kinds.ONE_WAY:
        tx, ty = -ONE_WAY_HALF_LENGTH * placed["y1"], ONE_WAY_HALF_LENGTH * placed["x1"]
        return ONE_WAY_GREY, placed["x"] - tx, placed["y"] - ty, placed["x"] + tx, placed["y"] + ty
    if kind == kinds.THWUMP or _has_beam(kind):
        mover = movers[placed["mover"]]
        x, y = mover["x"], mover["y"]
        if kind == kinds.LASER or (kind == kinds.GAUSS_TURRET and mover["state"] == PREFIRE):
            return DEADLY, x, y, mover["target_x"], mover["target_y"]
        if kind == kinds.LASER_DRONE and mover["state"] == FIRING:
            return DEADLY, x, y, x + mover["beam"] * mover["vx"], y + mover["beam"] * mover["vy"]
        if kind == kinds.THWUMP:
            ahead = THWUMP_REACH * mover["direction"]
            if mover["mode"] == HORIZONTAL:
                return DEADLY, x + ahead, y - LETHAL_HALF_WIDTH, x + ahead, y + LETHAL_HALF_WIDTH
            return DEADLY, x - LETHAL_HALF_WIDTH, y + ahead, x + LETHAL_HALF_WIDTH, y + ahead
    return -1, 0.0, 0.0, 0.0, 0.0


@kernel
def _draw_line(image, scale, left, top, x_first, grey, x1, y1, x2, y2):
    """Set the pixels that contain points along a line; the points are at most one pixel apart.

    scale: px per pixel.
    left, top: position of the image's upper left corner in the level, in pixels of the image.
    x_first: True if the image is [x, y], False if it is [y, x].
    """
    steps = int(np.ceil(max(abs(x2 - x1), abs(y2 - y1)) / scale))
    for step in range(steps + 1):
        share = step / steps if steps else 0.0
        c = int(np.floor((x1 + (x2 - x1) * share) / scale)) - left
        r = int(np.floor((y1 + (y2 - y1) * share) / scale)) - top
        a, b = (c, r) if x_first else (r, c)
        if 0 <= a < image.shape[0] and 0 <= b < image.shape[1]:
            image[a, b] = grey


@kernel
def _draw_square(image, scale, left, top, x_first, rounding, x, y, half, grey):
    """Fill a square of at least one pixel.  rounding: added to the edges before they are rounded down to whole pixels."""
    x1, x2 = int(np.floor((x - half) / scale + rounding)) - left, int(np.floor((x + half) / scale + rounding)) - left
    y1, y2 = int(np.floor((y - half) / scale + rounding)) - top, int(np.floor((y + half) / scale + rounding)) - top
    x2, y2 = max(x2, x1 + 1), max(y2, y1 + 1)
    if x_first:
        _fill(image, x1, x2, y1, y2, grey)
    else:
        _fill(image, y1, y2, x1, x2, grey)


@inlined
def _position(placed, movers):
    """Return (x, y) of an entity, px."""
    if placed["mover"] >= 0:
        return movers[placed["mover"]]["x"], movers[placed["mover"]]["y"]
    return placed["x"], placed["y"]


@kernel
def _draw_entity(image, scale, left, top, x_first, rounding, entity, placed, movers):
    """Draw one entity in its current state, without the segment of a door."""
    x, y = _position(placed, movers)
    grey, half = _grey_and_size(entity, placed["type"])
    if half > 0.0:
        _draw_square(image, scale, left, top, x_first, rounding, x, y, half, grey)
    if placed["type"] == kinds.SHOVE_THWUMP:
        _draw_square(image, scale, left, top, x_first, rounding, x, y, SHOVE_CORE, DEADLY)
    line, x1, y1, x2, y2 = _line_of(placed, movers)
    if line >= 0:
        _draw_line(image, scale, left, top, x_first, line, x1, y1, x2, y2)


@kernel
def global_view(ninja, entities, movers, world, level, static, out):
    """Draw the whole level into ``out``, uint8[176, 100, 1], x first.  static: ``background`` of the level."""
    image = out[:, :, 0]
    for x in range(GLOBAL_VIEW_SHAPE[0]):
        for y in range(GLOBAL_VIEW_SHAPE[1]):
            image[x, y] = static[x, y]
    base = world.level[level]["entity_first"]
    for k in range(world.level[level]["entity_end"] - base):
        if entities[k]["closed"]:
            door = world.entity[base + k]
            x1, y1 = int(door["x1"] / VIEW_SCALE), int(door["y1"] / VIEW_SCALE)
            _fill(image, x1, int(door["x2"] / VIEW_SCALE) + 1, y1, int(door["y2"] / VIEW_SCALE) + 1, DOOR_GREY)
        _draw_entity(image, VIEW_SCALE, 0, 0, True, _VIEW_ROUNDING, entities[k], world.entity[base + k], movers)
    x1 = int((ninja["x"] - RADIUS) / VIEW_SCALE + _VIEW_ROUNDING)
    y1 = int((ninja["y"] - RADIUS) / VIEW_SCALE + _VIEW_ROUNDING)
    _fill(image, x1, x1 + _NINJA_PIXELS, y1, y1 + _NINJA_PIXELS, NINJA_GREY)


@kernel
def _draw_tiles(image, tile, x1, x2, y):
    """Draw a tile repeatedly into columns x1 to x2 - 1 of ``player_frame``, from row y downwards."""
    if tile == tiles.OPEN or tile == tiles.SOLID:
        _fill(image, y, y + _FRAME_TILE, x1, x2, SOLID if tile == tiles.SOLID else EMPTY)
        return
    template = _FRAME_TEMPLATES[tile]
    c1, c2 = max(x1, 0), min(x2, PLAYER_FRAME_SIZE)
    for r in range(max(y, 0), min(y + _FRAME_TILE, PLAYER_FRAME_SIZE)):
        for c in range(c1, c2):
            image[r, c] = template[r - y, c - x1]


@kernel
def player_frame(ninja, entities, movers, world, level, stage, out):
    """Draw 168 x 168 px around the ninja into ``out``, uint8[84, 84, 1], y first.

    stage: uint8[44, 25], tiles; everything outside the stage is solid.
    """
    image = out[:, :, 0]
    left = int(np.floor(ninja["x"] / FRAME_SCALE)) - PLAYER_FRAME_SIZE // 2
    top = int(np.floor(ninja["y"] / FRAME_SCALE)) - PLAYER_FRAME_SIZE // 2
    _draw_stage(image, left, top, stage)
    base = world.level[level]["entity_first"]
    for k in range(world.level[level]["entity_end"] - base):
        placed = world.entity[base + k]
        if entities[k]["closed"]:
            x1, x2 = int(placed["x1"] / FRAME_SCALE) - left - 1, int(placed["x2"] / FRAME_SCALE) - left + 1
            y1, y2 = int(placed["y1"] / FRAME_SCALE) - top - 1, int(placed["y2"] / FRAME_SCALE) - top + 1
            _fill(image, y1, y2, x1, x2, DOOR_GREY)
        x, y = _position(placed, movers)
        far = abs(x - ninja["x"]) > _FRAME_REACH or abs(y - ninja["y"]) > _FRAME_REACH
        if not far or _has_beam(placed["type"]):
            _draw_entity(image, FRAME_SCALE, left, top, False, _FRAME_ROUNDING, entities[k], placed, movers)
    _draw_ninja(image)


@inlined
def _draw_stage(image, left, top, stage):
    """Draw the tiles of ``player_frame``.  left, top: see ``_draw_line``."""
    last = (left + PLAYER_FRAME_SIZE - 1) // _FRAME_TILE
    for cy in range(top // _FRAME_TILE, (top + PLAYER_FRAME_SIZE - 1) // _FRAME_TILE + 1):
        cx = left // _FRAME_TILE
        while cx <= last:
            tile = _tile_at(stage, cx, cy)
            end = cx + 1
            if tile == tiles.OPEN or tile == tiles.SOLID:  # fill a run of equal tiles with one call
                while end <= last and _tile_at(stage, end, cy) == tile:
                    end += 1
            _draw_tiles(image, tile, cx * _FRAME_TILE - left, end * _FRAME_TILE - left, cy * _FRAME_TILE - top)
            cx = end


@inlined
def _draw_ninja(image):
    """Draw a disc in the middle of ``player_frame``.  Distances are measured in half pixels, so they are integers."""
    middle, radius = PLAYER_FRAME_SIZE // 2, int(RADIUS) // FRAME_SCALE
    for r in range(-radius, radius):
        for c in range(-radius, radius):
            if (2 * r + 1) * (2 * r + 1) + (2 * c + 1) * (2 * c + 1) <= 4 * radius * radius:
                image[middle + r, middle + c] = NINJA_GREY


assert GLOBAL_VIEW_SHAPE == (CELLS_X * _VIEW_TILE, CELLS_Y * _VIEW_TILE)
