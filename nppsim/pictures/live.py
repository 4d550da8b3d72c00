"""Pictures of an environment during play.  Only changed parts are redrawn.  ``render.frames`` draws films of whole runs."""

import copy
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from nppsim.compile import LevelGeometry
from nppsim.levels.level import Level
from nppsim.pictures.canvas import PALETTE
from nppsim.pictures.figures import NinjaPose
from nppsim.pictures.region import FILM_SIZE, fitting_pixels_per_tile, used_region, widened
from nppsim.pictures.scene import Gait, RunPicture, Scene

if TYPE_CHECKING:
    from PIL.Image import Image

PICTURE_SIZE = FILM_SIZE  # default width and height of the pictures, px
SMALL_PICTURE_SIZE = (352, 200)  # the same in a vector environment, whose pictures are shown side by side
PictureState = tuple[list[tuple[float, float]], Gait, NinjaPose, int]  # path in px, pose of the ninja, and frame
_CACHED_LEVELS = 16  # maximum number of cached backgrounds, up to 12 MB each at PICTURE_SIZE


@lru_cache(maxsize=_CACHED_LEVELS)
def _stage(level: Level, size: tuple[int, int]) -> tuple[Scene, "Image"]:
    """Return the reachable part of a level, and its picture at the start without moving entities."""
    region = widened(used_region(level))
    scene = Scene(level, fitting_pixels_per_tile(region, size), region)
    return scene, scene.picture(scene.looks, None, movers=False)


class LivePicture:
    """Pictures of one environment, all of one size.  They show the reachable part of a level, as large as possible.

    size: width and height, px.
    Raises RenderError if ``size`` is too small, MissingPackageError without Pillow.

        live.start(level, geometry)                       # at the start of an episode
        live.follow(ninja, keys)                          # after each decision
        picture = live.draw(entities, movers)             # uint8[height, width, 3]
    """

    def __init__(self, size: tuple[int, int] = PICTURE_SIZE):
        width, height = size
        fitting_pixels_per_tile((0, 0, 1, 1), (width, height))  # raises RenderError for a size that is too small
        self.size = (int(width), int(height))
        self._border = np.full((self.size[1], self.size[0], 3), PALETTE.tile, np.uint8)

    def start(self, level: Level, geometry: LevelGeometry) -> None:
        """Begin an episode.  geometry: compiled geometry of the level."""
        self._scene, ground = _stage(level, self.size)
        self._corner = (
            (self.size[0] - self._scene.width) // 2,
            (self.size[1] - self._scene.height) // 2,
        )  # corner of the scene in the picture, px
        self._picture, self._geometry = RunPicture(self._scene, ground.copy()), geometry
        self._gait, self._ninja, self._frame = Gait(), NinjaPose(level.spawn), 0
        self._path = [level.spawn]  # px

    def state(self) -> PictureState:
        """Return a copy of the state of the episode, for ``restore``."""
        return list(self._path), copy.copy(self._gait), self._ninja, self._frame

    def restore(self, level: Level, geometry: LevelGeometry, state: PictureState) -> None:
        """Continue an episode from a ``state``.  level, geometry: of that episode."""
        self.start(level, geometry)
        path, gait, self._ninja, self._frame = state
        self._path, self._gait = list(path), copy.copy(gait)

    def follow(self, ninja: np.void, keys: int) -> None:
        """Update the pose and the path of the ninja after a decision.

        ninja: NINJA_DTYPE, the ninja's record in the simulator's state.
        keys: input byte.
        """
        at = (float(ninja["x"]), float(ninja["y"]))
        normal = None if ninja["airborne"] else (float(ninja["floor_x"]), float(ninja["floor_y"]))
        frames, self._frame = int(ninja["frame"]) - self._frame, int(ninja["frame"])
        self._ninja = self._gait.after(at, int(ninja["state"]), float(ninja["vx"]), normal, keys, frames)
        self._path.append(at)

    def draw(self, entities: np.ndarray, movers: np.ndarray) -> np.ndarray:
        """Return a new picture, uint8[height, width, 3].

        entities, movers: ENTITY_DTYPE[E] and MOVER_DTYPE[M] of the environment.
        """
        scene, path = self._scene, np.array(self._path)
        self._picture.update(scene.looks_now(self._geometry, entities, movers), path)
        drawn = self._picture.draw(path, self._ninja, scene.aims_now(self._geometry, movers))
        picture, (left, top) = self._border.copy(), self._corner
        picture[top : top + scene.height, left : left + scene.width] = np.asarray(drawn)
        return picture
