"""A level prepared for drawing: its background, and the looks of the entities and the ninja at each frame."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nppsim.actions import LEFT, RIGHT
from nppsim.bank import LevelBank
from nppsim.compile import LevelGeometry
from nppsim.errors import import_optional
from nppsim.levels import kinds
from nppsim.levels.level import POSITION_UNIT, Level
from nppsim.physics.aims import CROSSHAIR, LOCKED, NO_AIM, write_aims
from nppsim.physics.state import JUMPING, RUNNING, WALL_SLIDING
from nppsim.pictures.canvas import OVERSAMPLE, PALETTE, Canvas, Point
from nppsim.pictures.figures import (
    AIM_REACH,
    LAYER,
    NINJA_REACH,
    REACH,
    Aim,
    DrawnEntity,
    EntityAppearance,
    NinjaPose,
    draw_aim,
    draw_entity,
    draw_ninja,
)
from nppsim.pictures.region import (
    TILE,
    WHOLE_STAGE,
    Box,
    film_pixels_per_tile,
    pixels_per_tile,
    solid_samples,
    used_region,
    widened,
)
from nppsim.simulate import Run, is_active, is_closed, own_state

if TYPE_CHECKING:
    from PIL.Image import Image

_STRIDE_PX = 5.2  # px that the ninja runs per radian of ``NinjaPose.stride``
_RIM_PX = 1.1  # width of the dark edge of tiles, level px
_BAND = 4  # rows of tiles that are drawn together; limits the size of the oversampled image
_TRACE_PX = 2  # level px; half the width of the drawn path of the ninja, rounded up
_BACKGROUND, _SOLID, _RIM = range(3)

Area = tuple[float, float, float, float]  # left, top, right, bottom in level px
Looks = Mapping[DrawnEntity, EntityAppearance]

_MOVING = (*kinds.MOVING, kinds.LASER)  # entity types whose drawing can move
_AIM_PX = 64  # level px; maximum size of the boxes in which a slanting beam is drawn
STATE_OF_MOVER = (
    kinds.EVIL_NINJA,
    kinds.FLOOR_GUARD,
    kinds.THWUMP,
    kinds.SHOVE_THWUMP,
)  # types whose state is in the MOVER record


class Scene:
    """A region of a level with its entities, drawn at ``ppt`` output pixels per tile.

    width, height: size of the picture, px.
    entities: all entities in drawing order.
    moving, still: entities whose drawing can move, and all others.
    looks, aims: look of each entity, and all aims (see ``figures.Aim``), at the start of a run.
    """

    def __init__(self, level: Level, ppt: int, region: Box):
        self.ppt, self.region = ppt, region
        left, top, right, bottom = region
        self.width, self.height = (right - left) * ppt, (bottom - top) * ppt
        self.entities = level_entities(level)
        self.looks = {entity: initial_look(entity) for entity in self.entities}
        self.aims: list[Aim] = []
        self.moving = [entity for entity in self.entities if entity.kind in _MOVING]
        self.still = [entity for entity in self.entities if entity.kind not in _MOVING]
        self._areas = [
            (entity, None if entity.kind in _MOVING else drawing_area(entity, self.looks[entity]))
            for entity in self.entities
        ]  # areas of entities that do not move
        self._classes = _tile_classes(level, region, ppt * OVERSAMPLE)
        if any(entity.kind == kinds.LASER for entity in self.entities):
            self._place_lasers(LevelBank([level]))

    def _place_lasers(self, bank: LevelBank) -> None:
        """Set position and beam of each laser at the start of a run."""
        geometry, movers = bank.compiled[0], bank.world.mover
        self.aims = self.aims_now(geometry, movers)
        lasers = [entity for entity in self.entities if entity.kind == kinds.LASER]
        for entity, mover in zip(lasers, geometry.entity_mover[geometry.entity_type == kinds.LASER], strict=True):
            x, y = movers[mover][["x", "y"]].item()
            self.looks[entity] = replace(self.looks[entity], at=(x, y))

    def aims_at(self, run: Run, frame: int) -> list[Aim]:
        """Return the beams, shots, crosshairs and rockets after ``frame`` frames of a run; frame 0 is its start."""
        if frame == 0:
            return self.aims
        aiming = np.isin(run.entities[:, 0], kinds.AIMING)
        return _aims(run.entities[aiming, 0], run.entity_position[frame - 1, aiming], run.aims[frame - 1])

    def aims_now(self, geometry: LevelGeometry, movers: np.ndarray) -> list[Aim]:
        """Return the beams, shots, crosshairs and rockets in an environment's current state; see ``looks_now``."""
        aiming = geometry.entity_mover[np.isin(geometry.entity_type, kinds.AIMING)]
        rows, now = np.empty((len(aiming), 3)), movers[aiming]
        write_aims(movers, aiming, rows)
        return _aims(now["type"], np.stack([now["x"], now["y"]], axis=1), rows)

    def looks_at(self, run: Run, frame: int) -> dict[DrawnEntity, EntityAppearance]:
        """Return how each entity looks after ``frame`` frames of a run; frame 0 is its start."""
        if frame == 0:
            return self.looks
        bits = run.entity_state[frame - 1]
        own = own_state(bits).astype(int)
        state = np.where(own > 3, own - 8, own)  # own: three bits of a signed number
        return self._looks(run.entities, run.entity_position[frame - 1], is_active(bits), state, is_closed(bits))

    def looks_now(
        self, geometry: LevelGeometry, entities: np.ndarray, movers: np.ndarray
    ) -> dict[DrawnEntity, EntityAppearance]:
        """Return how each entity looks in an environment's current state.

        geometry: compiled geometry of the level.
        entities, movers: ENTITY_DTYPE[E] and MOVER_DTYPE[M] of the environment.
        """
        types, mover = geometry.entity_type, geometry.entity_mover
        moving, in_mover = mover >= 0, np.isin(types, STATE_OF_MOVER)
        entities, positions = entities[: len(types)], geometry.entity_xy.copy()
        state = entities["state"].copy()
        positions[moving, 0], positions[moving, 1] = movers["x"][mover[moving]], movers["y"][mover[moving]]
        state[in_mover] = movers["state"][mover[in_mover]]
        numbered = np.stack([types, geometry.entity_number], axis=1)
        return self._looks(numbered, positions, entities["active"], state, entities["closed"])

    def _looks(self, numbered: np.ndarray, *columns: np.ndarray) -> dict[DrawnEntity, EntityAppearance]:
        """Return how each entity looks, given the state of the simulated entities as arrays.

        numbered: int[E, 2], entity type and index within the type.
        columns: positions (float[E, 2], px), then ``active``, ``state`` and ``closed`` as in ``EntityAppearance``, [E] each.
        """
        rows = dict(zip(map(tuple, numbered.tolist()), zip(*(c.tolist() for c in columns), strict=True), strict=True))
        looks = {}
        for entity, start in self.looks.items():
            if (row := rows.get((entity.kind, entity.index))) is None:
                looks[entity] = start  # not simulated
                continue
            (x, y), active, state, closed = row
            if entity.kind == kinds.EXIT:  # an exit without a switch is always closed
                closed = entity.switch is None or rows[kinds.EXIT_SWITCH, entity.index][1]
            at = (x, y) if entity.kind in _MOVING else entity.at
            looks[entity] = EntityAppearance(at, bool(active), state, bool(closed))
        return looks

    def picture(
        self, looks: Looks, ninja: NinjaPose | None, aims: Sequence[Aim] = (), *, movers: bool = True
    ) -> "Image":
        """Draw the whole region with the given looks."""
        picture = import_optional("PIL.Image", "video").new("RGB", (self.width, self.height))
        for top in range(0, self.height, _BAND * self.ppt):
            box = (0, top, self.width, min(top + _BAND * self.ppt, self.height))
            picture.paste(self.part(box, looks, (), ninja, movers=movers), box[:2])
        self.add_aims(picture, aims)
        return picture

    def add_aims(self, picture: "Image", aims: Sequence[Aim]) -> None:
        """Draw beams, shots, crosshairs and rockets onto ``picture``."""
        for aim in aims:
            for area in _aim_areas(aim):
                self._draw_over(picture, area, partial(draw_aim, aim=aim))

    def repaint(
        self, picture: "Image", area: Area, looks: Looks, trace: np.ndarray, ninja: NinjaPose | None = None
    ) -> None:
        """Redraw the part of ``picture`` around ``area``, with the path ``trace`` (float[n, 2], px).

        Without a ninja, moving entities are omitted too, as in the background of a film.
        """
        if (box := self.box_of(area)) is not None:
            picture.paste(self.part(box, looks, trace, ninja, movers=ninja is not None), box[:2])

    def box_of(self, area: Area) -> Box | None:
        """Return the box of pixels that an area touches; None if the area is outside the picture."""
        (left, top), (right, bottom) = self.to_picture(area[:2]), self.to_picture(area[2:])
        low, high = (math.floor(left), math.floor(top)), (math.ceil(right), math.ceil(bottom))
        box = (max(low[0], 0), max(low[1], 0), min(high[0], self.width), min(high[1], self.height))
        return box if box[0] < box[2] and box[1] < box[3] else None

    def add_ninja(self, picture: "Image", look: NinjaPose, opacity: float = 1.0) -> None:
        """Draw a ninja onto ``picture``."""
        self._draw_over(picture, around([look.at], NINJA_REACH), partial(draw_ninja, ninja=look), opacity)

    def _draw_over(self, picture: "Image", area: Area, draw: Callable[[Canvas], None], opacity: float = 1.0) -> None:
        """Draw onto the part of ``picture`` around ``area``."""
        if (box := self.box_of(area)) is None:
            return
        before = picture.crop(box)
        canvas = self.overlay(before, box[:2])
        draw(canvas)
        picture.paste(import_optional("PIL.Image", "video").blend(before, canvas.finish(), opacity), box[:2])

    def to_picture(self, at: Point) -> Point:
        """Convert a level position to a position in the picture (px)."""
        k = self.ppt / TILE
        return (at[0] - self.region[0] * TILE) * k, (at[1] - self.region[1] * TILE) * k

    def overlay(self, part: "Image", corner: tuple[int, int] = (0, 0)) -> Canvas:
        """Return a canvas that shows a part of the picture; ``Canvas.finish`` returns the part with the drawings.

        corner: position of the part in the picture, px.
        """
        size = (part.width * OVERSAMPLE, part.height * OVERSAMPLE)
        nearest = import_optional(
            "PIL.Image", "video"
        ).Resampling.NEAREST  # so that pixels without drawings keep their colour
        return self._canvas(part.resize(size, nearest), corner)

    def _canvas(self, image: "Image", corner: tuple[int, int]) -> Canvas:
        k = self.ppt / TILE
        origin = (self.region[0] * TILE + corner[0] / k, self.region[1] * TILE + corner[1] / k)
        return Canvas(image, origin, k * OVERSAMPLE)

    def part(
        self, box: Box, looks: Looks, trace: np.ndarray | Sequence, ninja: NinjaPose | None, *, movers: bool
    ) -> "Image":
        """Draw the part of the picture in ``box`` (output px)."""
        left, top, right, bottom = (OVERSAMPLE * v for v in box)
        canvas = self._canvas(_coloured(self._classes[top:bottom, left:right]), box[:2])
        (x, y), k = canvas.origin, self.ppt / TILE
        area = (x, y, x + (box[2] - box[0]) / k, y + (box[3] - box[1]) / k)
        for piece in _pieces_inside(trace, (area[0] - 3, area[1] - 3, area[2] + 3, area[3] + 3)):
            canvas.line(piece, PALETTE.trace, 1.6)
        for entity, at_rest in self._areas:
            if at_rest is None and not movers:
                continue
            if _overlap(at_rest or drawing_area(entity, looks[entity]), area):
                draw_entity(canvas, entity, looks[entity])
        if ninja is not None:
            draw_ninja(canvas, ninja)
        return canvas.finish()


class RunPicture:
    """Picture of a run at its current frame.  Only changed parts are redrawn.

    ground: picture of the scene at the start of the run without moving entities; RunPicture draws on it.
    """

    def __init__(self, scene: Scene, ground: "Image"):
        self.scene, self.ground, self.looks = scene, ground, scene.looks
        self._drawn = 0  # index of the last point of the path in ``ground``

    def update(self, looks: dict[DrawnEntity, EntityAppearance], path: np.ndarray) -> None:
        """Set the current looks, and the path of the ninja so far (float[n, 2], px)."""
        for entity in self.scene.still:
            if looks[entity] != self.looks[entity]:
                self.scene.repaint(self.ground, drawing_area(entity, looks[entity]), looks, path)
        if self._drawn < len(path) - 1:
            self.scene.repaint(self.ground, around(path[self._drawn :], _TRACE_PX), looks, path)
        self.looks, self._drawn = looks, len(path) - 1

    def draw(self, path: np.ndarray, ninja: NinjaPose, aims: Sequence[Aim]) -> "Image":
        """Return a new picture with the moving entities, the ninja and aims."""
        picture = self.ground.copy()
        for entity in self.scene.moving:
            self.scene.repaint(picture, drawing_area(entity, self.looks[entity]), self.looks, path, ninja)
        self.scene.repaint(picture, around([ninja.at], NINJA_REACH), self.looks, path, ninja)
        self.scene.add_aims(picture, aims)
        return picture


def _coloured(classes: np.ndarray) -> "Image":
    """Return the RGB image of classes _BACKGROUND, _SOLID and _RIM, uint8[height, width]."""
    height, width = classes.shape
    image = import_optional("PIL.Image", "video").frombuffer(
        "P", (width, height), np.ascontiguousarray(classes), "raw", "P", 0, 1
    )
    image.putpalette(bytes((*PALETTE.background, *PALETTE.tile, *PALETTE.rim)))
    return image.convert("RGB")


def still_scene(level: Level, scale: float, crop: bool, positions: np.ndarray | Sequence = ()) -> Scene:
    """Return the scene of a still picture: the whole stage, or with ``crop`` its reachable part, enlarged.

    scale: output pixels per level pixel, before the enlargement.
    positions: float[n, 2] px, additional points that the reachable part includes.
    """
    if not crop:
        return Scene(level, pixels_per_tile(scale), WHOLE_STAGE)
    region = widened(used_region(level, positions))
    return Scene(level, film_pixels_per_tile(region, scale), region)


def level_entities(level: Level) -> list[DrawnEntity]:
    """Return the entities that the records of a level create, in drawing order."""
    entities: list[DrawnEntity] = []
    counts: dict[int, int] = {}
    records = level.records.tolist()
    positions = [(float(POSITION_UNIT * x), float(POSITION_UNIT * y)) for _, x, y, _, _ in records]
    for row, (kind, _, _, orientation, _) in enumerate(records):
        if kind == kinds.EXIT_SWITCH or kind not in LAYER:  # exit switches are created with their exits
            continue
        index = counts.get(kind, 0)
        counts[kind] = index + 1
        switch_row = row + level.exit_count if kind == kinds.EXIT else row + 1
        has_switch = kind == kinds.EXIT or kind in kinds.SWITCH_OF_DOOR
        switch = positions[switch_row] if has_switch and switch_row < len(records) else None
        entities.append(DrawnEntity(kind, index, positions[row], orientation, switch))
        if kind == kinds.EXIT and switch is not None:
            entities.append(DrawnEntity(kinds.EXIT_SWITCH, index, switch))
    return sorted(entities, key=lambda e: (LAYER[e.kind], e.kind))


def initial_look(entity: DrawnEntity) -> EntityAppearance:
    """Return how an entity looks before the first frame."""
    return EntityAppearance(
        entity.at,
        active=True,
        state=int(entity.kind == kinds.TOGGLE_MINE),
        closed=entity.kind in (kinds.EXIT, *kinds.CLOSED_AT_FIRST),
    )


class Gait:
    """Parts of the ninja's pose that depend on earlier frames: facing, stride, and tilt on slopes."""

    def __init__(self) -> None:
        self.facing, self.stride, self.tilt = 1, 0.0, 0.0

    def after(self, at: Point, state: int, speed: float, normal: Point | None, keys: int, frames: int = 1) -> NinjaPose:
        """Return the pose after ``frames`` more frames.

        at: centre of the ninja.
        state: 0..9, as in ``Run.ninja_state``.
        speed: horizontal velocity, px per frame.
        normal: floor normal; None in the air.
        keys: input byte.
        """
        wanted = -1 if keys & LEFT else int(bool(keys & RIGHT))
        if state in (RUNNING, WALL_SLIDING) and wanted:
            self.facing = wanted
        elif state != WALL_SLIDING and abs(speed) > 0.01:
            self.facing = 1 if speed > 0 else -1
        self.stride += frames * abs(speed) / _STRIDE_PX
        if normal is None:
            self.tilt = 0.0 if state in (JUMPING, WALL_SLIDING) else 0.9**frames * self.tilt
        else:
            self.tilt = math.atan2(normal[1], normal[0]) + math.pi / 2
        return NinjaPose(at, state, self.facing, self.stride, self.tilt)


def ninja_looks(level: Level, run: Run, inputs: np.ndarray) -> list[NinjaPose]:
    """Return the poses of the ninja at the start and after each frame."""
    looks, gait = [NinjaPose(level.spawn)], Gait()
    for i in range(run.frames):
        (x, y), normal = run.position[i].tolist(), None if run.airborne[i] else tuple(run.floor_normal[i].tolist())
        looks.append(gait.after((x, y), int(run.ninja_state[i]), float(run.velocity[i, 0]), normal, int(inputs[i])))
    return looks


def drawing_area(entity: DrawnEntity, look: EntityAppearance) -> Area:
    """Return the area that contains the drawing of an entity."""
    if entity.kind in _MOVING:
        return around([look.at], REACH)
    return around([entity.at] if entity.switch is None else [entity.at, entity.switch], REACH)


def _aims(types: np.ndarray, positions: np.ndarray, rows: np.ndarray) -> list[Aim]:
    """Return all aims except NO_AIM.

    types, positions: type and position (px) of each laser and shooter.  rows: output of ``write_aims``, float64[A, 3].
    """
    return [
        Aim(kind, (at[0], at[1]), (x, y), int(sign))
        for kind, at, (x, y, sign) in zip(types.tolist(), positions.tolist(), rows.tolist(), strict=True)
        if sign != NO_AIM
    ]


def _aim_areas(aim: Aim) -> Iterable[Area]:
    """Return areas that together contain the drawing of an aim."""
    if aim.sign in (CROSSHAIR, LOCKED):
        return [around([aim.to], AIM_REACH)]
    at, to = np.array(aim.at), np.array(aim.to)
    count = max(math.ceil(np.abs(to - at).min() / _AIM_PX), 1)
    ends = [at + (to - at) * i / count for i in range(count + 1)]
    return [around(pair, AIM_REACH) for pair in itertools.pairwise(ends)]


def around(points: np.ndarray | Sequence[Point], reach: float) -> Area:
    """Return the smallest area that contains all points, plus ``reach`` px on each side."""
    xs, ys = zip(*points, strict=True)  # faster than NumPy for few points
    return float(min(xs) - reach), float(min(ys) - reach), float(max(xs) + reach), float(max(ys) + reach)


def _overlap(a: Area, b: Area) -> bool:
    return a[0] < b[2] and a[2] > b[0] and a[1] < b[3] and a[3] > b[1]


def _tile_classes(level: Level, region: Box, samples: int) -> np.ndarray:
    """Return _BACKGROUND, _SOLID or _RIM of each sample point: uint8[rows * samples, columns * samples]."""
    solid = solid_samples(level, samples, region, margin=1)  # the margin prevents a rim at the edge of the picture
    width = max(1, round(samples / TILE * _RIM_PX))
    core = solid.copy()
    for shift in (-width, width):
        core &= np.roll(solid, shift, axis=0)
        core &= np.roll(solid, shift, axis=1)
    classes = np.where(core, _SOLID, np.where(solid, _RIM, _BACKGROUND)).astype(np.uint8)
    return np.ascontiguousarray(classes[samples:-samples, samples:-samples])


def _pieces_inside(trace: np.ndarray | Sequence, area: Area) -> Iterable[list[Point]]:
    """Yield the parts of ``trace`` whose segments overlap ``area``."""
    if len(trace) < 2:
        return
    points = np.asarray(trace)
    low, high = np.minimum(points[:-1], points[1:]), np.maximum(points[:-1], points[1:])
    near = (low[:, 0] < area[2]) & (high[:, 0] > area[0]) & (low[:, 1] < area[3]) & (high[:, 1] > area[1])
    edges = np.flatnonzero(np.diff(np.concatenate([[0], near.astype(np.int8), [0]])))
    for start, stop in edges.reshape(-1, 2):
        yield points[start : stop + 1].tolist()
