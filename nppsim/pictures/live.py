"""Pictures of an environment during play.  Only changed parts are redrawn, so a picture takes a few milliseconds.

Static parts are drawn once per level.  Sprites of moving entities are cached per ``EntityLook`` and subpixel position.
The ninja, beams, crosshairs and rockets are drawn each time.  ``render.frames`` draws films of whole runs.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from nppsim.compile import LevelGeometry
from nppsim.errors import needed
from nppsim.levels.level import Level
from nppsim.pictures.canvas import OVERSAMPLE, PALETTE, Canvas
from nppsim.pictures.figures import NINJA_REACH, REACH, DrawnEntity, EntityLook, NinjaLook, draw_entity
from nppsim.pictures.region import FILM_SIZE, TILE, Box, fitting_pixels_per_tile, used_region, widened
from nppsim.pictures.scene import Area, Gait, Scene, around, touched

PICTURE_SIZE = FILM_SIZE  # default width and height of the pictures, px
_CACHED_LEVELS = 16  # maximum number of cached backgrounds, up to 12 MB each at PICTURE_SIZE
_CACHED_SPRITES = 512  # maximum number of cached sprites per environment, a few kB each
_TRACE_PX = 2  # level px; half the width of the drawn path of the ninja, rounded up


@dataclass(frozen=True)
class _Stage:
    """Static parts of the pictures of a level.

    picture: uint8[H, W, 3].
    left, top: position of the scene in the picture, px.
    """

    scene: Scene
    picture: np.ndarray
    left: int
    top: int

    def inside(self, picture: np.ndarray) -> np.ndarray:
        """Return the part of a picture that shows the scene, as a NumPy view."""
        return picture[self.top : self.top + self.scene.height, self.left : self.left + self.scene.width]


@lru_cache(maxsize=_CACHED_LEVELS)
def _stage(level: Level, size: tuple[int, int]) -> _Stage:
    region = widened(used_region(level))
    scene = Scene(level, fitting_pixels_per_tile(region, size), region)
    picture = np.full((size[1], size[0], 3), PALETTE.tile, np.uint8)
    stage = _Stage(scene, picture, (size[0] - scene.width) // 2, (size[1] - scene.height) // 2)
    stage.inside(picture)[:] = np.asarray(scene.picture(scene.looks, None, movers=False))
    return stage


@dataclass(frozen=True)
class _Sprite:
    """A drawing that is combined with a background as ``colour + background * rest / 255``.

    colour, rest: uint8[h, w, 3] and uint16[h, w, 3].
    left, top: offset of the sprite's top-left corner from the pixel that contains the entity's centre, px.
    """

    colour: np.ndarray
    rest: np.ndarray
    left: int
    top: int


class LivePicture:
    """Pictures of one environment, all of one size.  They show the reachable part of a level, as large as possible.

    size: width and height, px.
    Raises RenderError if ``size`` is too small, MissingPackageError without Pillow.

        live.start(level, geometry)                       # at the start of an episode
        live.follow(ninja, keys, frames)                  # after each decision
        picture = live.draw(entities, movers)             # uint8[height, width, 3]
    """

    def __init__(self, size: tuple[int, int] = PICTURE_SIZE):
        width, height = size
        fitting_pixels_per_tile((0, 0, 1, 1), (width, height))  # raises for a size that is too small
        self.size = (int(width), int(height))
        self._sprites: OrderedDict[tuple, _Sprite] = OrderedDict()
        self._scale = 0

    def start(self, level: Level, geometry: LevelGeometry) -> None:
        """Begin an episode.  geometry: compiled geometry of the level."""
        self._stage, self._geometry = _stage(level, self.size), geometry
        scene = self._stage.scene
        if scene.ppt != self._scale:
            self._sprites.clear()
            self._scale = scene.ppt
        self._ground = self._stage.picture.copy()
        self._looks = dict(scene.looks)
        self._gait, self._ninja = Gait(), NinjaLook(level.spawn)
        self._path, self._drawn = [level.spawn], 0  # px; index of the last point drawn into self._ground

    def follow(self, ninja: np.void, keys: int, frames: int) -> None:
        """Update the pose and the path of the ninja after a decision.

        ninja: NINJA_DTYPE, the ninja's record in the simulator's state.
        keys: input byte.
        frames: duration of the decision in frames.
        """
        at = (float(ninja["x"]), float(ninja["y"]))
        normal = None if ninja["airborne"] else (float(ninja["floor_x"]), float(ninja["floor_y"]))
        self._ninja = self._gait.after(at, int(ninja["state"]), float(ninja["vx"]), normal, keys, frames)
        self._path.append(at)

    def draw(self, entities: np.ndarray, movers: np.ndarray) -> np.ndarray:
        """Return a new picture, uint8[height, width, 3].

        entities, movers: ENTITY_DTYPE[E] and MOVER_DTYPE[M] of the environment.
        """
        scene = self._stage.scene
        now = scene.looks_now(self._geometry, entities, movers)
        path = np.array(self._path)
        for entity in scene.still:
            if now[entity] != self._looks[entity]:
                self._paint(self._ground, touched(entity, now[entity]), now, path, None)
        if self._drawn < len(path) - 1:
            self._paint(self._ground, around(path[self._drawn :], _TRACE_PX), now, path, None)
            self._drawn = len(path) - 1
        self._looks = now
        picture = self._ground.copy()
        for entity in scene.moving:
            self._lay(picture, entity, now[entity])
        self._paint(picture, around([self._ninja.at], NINJA_REACH), now, path, self._ninja)
        if found := scene.aims_now(self._geometry, movers):
            inside = self._stage.inside(picture)
            image = needed("PIL.Image", "video").fromarray(inside)
            scene.add_aims(image, found)
            inside[:] = np.asarray(image)
        return picture

    def _paint(
        self,
        picture: np.ndarray,
        area: Area,
        looks: dict[DrawnEntity, EntityLook],
        path: np.ndarray,
        ninja: NinjaLook | None,
    ) -> None:
        """Redraw an area of the picture.  Moving entities are drawn only if ``ninja`` is not None."""
        scene = self._stage.scene
        if (box := scene.box_of(area)) is not None:
            left, top, right, bottom = box
            part = scene.part(box, looks, path, ninja, movers=ninja is not None)
            self._stage.inside(picture)[top:bottom, left:right] = np.asarray(part)

    def _lay(self, picture: np.ndarray, entity: DrawnEntity, look: EntityLook) -> None:
        """Draw the sprite of a moving entity onto a picture."""
        scene = self._stage.scene
        (column, dx), (row, dy) = (divmod(round(v * OVERSAMPLE), OVERSAMPLE) for v in scene.to_picture(look.at))
        sprite = self._sprite(entity, look, dx, dy)
        x, y = column + sprite.left, row + sprite.top
        height, width = sprite.rest.shape[:2]
        cut: Box = (max(-x, 0), max(-y, 0), min(scene.width - x, width), min(scene.height - y, height))
        if cut[0] >= cut[2] or cut[1] >= cut[3]:
            return
        part = np.s_[cut[1] : cut[3], cut[0] : cut[2]]
        target = self._stage.inside(picture)[y + cut[1] : y + cut[3], x + cut[0] : x + cut[2]]
        target[:] = sprite.colour[part] + (target * sprite.rest[part] // 255).astype(np.uint8)

    def _sprite(self, entity: DrawnEntity, look: EntityLook, dx: int, dy: int) -> _Sprite:
        """Return a cached or new sprite.  dx, dy: subpixel position of its centre, in 1 / OVERSAMPLE px."""
        key = (entity.kind, entity.orientation, replace(look, at=(0.0, 0.0)), dx, dy)
        if key in self._sprites:
            self._sprites.move_to_end(key)
            return self._sprites[key]
        if len(self._sprites) >= _CACHED_SPRITES:
            self._sprites.popitem(last=False)
        k = self._scale / TILE
        reach = math.ceil(REACH * k)
        side, at = (2 * reach + 1) * OVERSAMPLE, (dx / OVERSAMPLE / k, dy / OVERSAMPLE / k)
        drawn = []
        for shade in ("black", "white"):  # pixels that differ on black and white are transparent
            image = needed("PIL.Image", "video").new("RGB", (side, side), shade)
            canvas = Canvas(image, (-reach / k, -reach / k), k * OVERSAMPLE)
            draw_entity(canvas, replace(entity, at=at), replace(look, at=at))
            drawn.append(np.asarray(canvas.finish()).astype(np.uint16))
        black, white = drawn
        rest = white - np.minimum(black, white)
        rows, columns = np.flatnonzero((rest < 255).any(axis=(1, 2))), np.flatnonzero((rest < 255).any(axis=(0, 2)))
        if not len(rows):
            rows = columns = np.zeros(1, int)
        part = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        sprite = _Sprite(
            black[part].astype(np.uint8), np.ascontiguousarray(rest[part]), columns[0] - reach, rows[0] - reach
        )
        self._sprites[key] = sprite
        return sprite
