"""The figures of docs/physics.md, drawn from what the simulator itself uses: tables, constants, recorded frames.

``python tests/support/rulebook.py`` draws them into docs/images.  ``tests/docs/test_rulebook.py`` redraws and compares
them, so that figures agree with the code.
"""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from nppsim.actions import JUMP, RIGHT
from nppsim.compile import compile_level
from nppsim.errors import import_optional
from nppsim.levels import kinds, tiles
from nppsim.levels.level import Level
from nppsim.levels.stage import COLUMNS, ROWS, TILE
from nppsim.physics import bodies, entities, movers
from nppsim.physics.grid import SOLID_EDGE
from nppsim.physics.shapes import CONCAVE_ARC, CONVEX_ARC, DX, DY, KIND, SHAPES
from nppsim.physics.state import DRAG, GRAVITY_FALL, RADIUS
from nppsim.pictures.canvas import OVERSAMPLE, PALETTE, Canvas, Colour, Point
from nppsim.pictures.figures import draw_entity
from nppsim.pictures.scene import initial_look, level_entities
from nppsim.simulate import simulate

from places import ROOT

if TYPE_CHECKING:
    from PIL.Image import Image

PAPER: Colour = (255, 255, 255)
GRID: Colour = (226, 227, 233)
SOLID: Colour = (190, 193, 205)
FAINT_SOLID: Colour = (236, 237, 242)  # one-sided tiles: nothing in them is solid
TILE_ROWS = (
    (tiles.OPEN, tiles.SOLID, *tiles.HALVES),
    (*tiles.SLOPES, *tiles.ONE_SIDED),
    (*tiles.CONVEX, *tiles.CONCAVE),
    tiles.GENTLE_SLOPES,
    tiles.STEEP_SLOPES,
)
CELL = (10, 10)  # where a tile is put to look at its surfaces
FLOOR_ROW = 20  # row of cells, from 0 at the top of the stage


class Figure:
    """A picture in the making: shapes in units of the level, texts on top of them.

    width, height: of the picture, in units.  scale: pixels per unit.
    """

    def __init__(self, width: float, height: float, scale: float):
        size = (OVERSAMPLE * round(width * scale), OVERSAMPLE * round(height * scale))
        image = import_optional("PIL.Image", "video").new("RGB", size, PAPER)
        self.scale = scale
        self.canvas = Canvas(image, (0.0, 0.0), scale * OVERSAMPLE)
        self._texts: list[tuple[float, float, str, int, Colour]] = []

    def text(self, x: float, y: float, text: str, size: int = 14, colour: Colour = PALETTE.ink) -> None:
        """Write one line, centred on (x, y)."""
        self._texts.append((x, y, text, size, colour))

    def dashed(self, points: Iterable[Point], colour: Colour, width: float = 0.35) -> None:
        """Draw every other piece of a fine polyline."""
        for place, piece in enumerate(itertools.pairwise(points)):
            if place % 2 == 0:
                self.canvas.line(piece, colour, width)

    def arrow(self, start: Point, end: Point, colour: Colour, width: float = 0.7) -> None:
        """Draw an arrow whose head ends at ``end``."""
        angle = math.atan2(end[1] - start[1], end[0] - start[0])
        head = 4.0 * width
        sides = [(end[0] - head * math.cos(angle + a), end[1] - head * math.sin(angle + a)) for a in (0.45, -0.45)]
        stem = ((sides[0][0] + sides[1][0]) / 2, (sides[0][1] + sides[1][1]) / 2)
        self.canvas.line((start, stem), colour, width)
        self.canvas.polygon((end, *sides), colour)

    def finish(self) -> "Image":
        """The antialiased picture, a Pillow image."""
        picture = self.canvas.finish()
        pen = import_optional("PIL.ImageDraw", "video").Draw(picture)
        font = import_optional("PIL.ImageFont", "video").load_default
        for x, y, text, size, colour in self._texts:
            pen.text((x * self.scale, y * self.scale), text, colour, font(size), anchor="mm")
        return picture


def _circle(x: float, y: float, radius: float, count: int = 72) -> list[Point]:
    return [(x + radius * math.cos(a), y + radius * math.sin(a)) for a in np.linspace(0, math.tau, count + 1)]


# ---------------------------------------------------------------------------------------------------------------------
# Tiles


def surfaces(tile: int) -> list[tuple[list[Point], Point, Point]]:
    """The surfaces of a tile that stands alone, as the level compiler makes them, relative to its top-left corner.

    Returns (points along the surface, its middle, unit vector to its open side) of each.
    """
    cells = np.zeros((ROWS, COLUMNS), np.uint8)
    cells[CELL[1] - 1, CELL[0] - 1] = tile
    compiled = compile_level(Level(cells, np.array([[kinds.NINJA, 8, 8, 0, 0]])))
    number = CELL[0] * compiled.stage.shape[1] + CELL[1]
    found = []
    first, end = compiled.world.cell_start[0, number : number + 2]
    for x, y, shape, _door in compiled.world.segments[first:end].tolist():
        x, y = x - TILE * CELL[0], y - TILE * CELL[1]
        kind, dx, dy = SHAPES[shape, [KIND, DX, DY]].tolist()
        if kind in (CONVEX_ARC, CONCAVE_ARC):
            angles = np.linspace(0, math.pi / 2, 33)
            points = [(x + TILE * dx * math.cos(a), y + TILE * dy * math.sin(a)) for a in angles]
            sign = math.sqrt(0.5) if kind == CONVEX_ARC else -math.sqrt(0.5)
            found.append((points, points[16], (sign * dx, sign * dy)))
        else:
            length = math.hypot(dx, dy)
            found.append(([(x, y), (x + dx, y + dy)], (x + dx / 2, y + dy / 2), (-dy / length, dx / length)))
    return found


def _tile_sheet(draw_one: Callable[[Figure, int, float, float], None], legend: str) -> "Image":
    """All 38 tiles, eight in a row; ``draw_one(figure, tile, left, top)`` adds what the sheet is about."""
    pitch, left, top = 38.0, 11.0, 11.0
    figure = Figure(2 * left + 8 * pitch - 14, top + len(TILE_ROWS) * (pitch + 4) + 4, 3)
    for row, ids in enumerate(TILE_ROWS):
        for column, tile in enumerate(ids):
            x, y = left + column * pitch, top + row * (pitch + 4)
            _fill_tile(figure, tile, x, y)
            draw_one(figure, tile, x, y)
            figure.text(x + 12, y + 30.5, str(tile))
    figure.text(
        figure.canvas.image.width / figure.canvas.factor / 2, top + len(TILE_ROWS) * (pitch + 4) - 3, legend, 13
    )
    return figure.finish()


def _fill_tile(figure: Figure, tile: int, x: float, y: float) -> None:
    """Paint a tile's solid part, and its half-cells, with its top-left corner at (x, y) of the level."""
    canvas = figure.canvas
    solid = tiles.solid_mask(tile, round(TILE * canvas.factor))
    colour = FAINT_SOLID if tile in tiles.ONE_SIDED else SOLID
    image = import_optional("PIL.Image", "video")
    left, top = canvas.origin
    corner = (round((x - left) * canvas.factor), round((y - top) * canvas.factor))
    canvas.image.paste(colour, corner, image.fromarray(solid))
    for k in (0, 12, 24):
        canvas.line(((x + k, y), (x + k, y + 24)), GRID, 0.25)
        canvas.line(((x, y + k), (x + 24, y + k)), GRID, 0.25)


def draw_tiles() -> "Image":
    """The 38 tile shapes: their solid part, their surfaces, and a tick on the open side of each."""

    def draw_surfaces(figure: Figure, tile: int, x: float, y: float) -> None:
        for points, (mx, my), (nx, ny) in surfaces(tile):
            figure.canvas.line([(x + a, y + b) for a, b in points], PALETTE.ink, 0.9)
            figure.canvas.line(((x + mx, y + my), (x + mx + 2.8 * nx, y + my + 2.8 * ny)), PALETTE.amber, 0.8)

    return _tile_sheet(draw_surfaces, "grey: solid    dark: surface    orange: its open side")


def draw_half_cells() -> "Image":
    """The codes that each tile gives to its twelve half-edges of the grid that drones, guards and thwumps move on."""

    def draw_codes(figure: Figure, tile: int, x: float, y: float) -> None:
        for k in range(6):
            a, b = x + 12 * (k % 2), y + 12 * (k // 2)
            _draw_code(figure, int(tiles.HORIZONTAL_CODES[tile, k]), (a + 1, b), (a + 11, b))
            a, b = x + 12 * (k // 2), y + 12 * (k % 2)
            _draw_code(figure, int(tiles.VERTICAL_CODES[tile, k]), (a, b + 1), (a, b + 11))

    return _tile_sheet(draw_codes, "dark: code 2, a surface    orange: code 1, the bounding side of a slope or curve")


def _draw_code(figure: Figure, code: int, start: Point, end: Point) -> None:
    if code:
        figure.canvas.line((start, end), PALETTE.ink if code == SOLID_EDGE else PALETTE.amber, 1.6)


# ---------------------------------------------------------------------------------------------------------------------
# Orientation and reach of entities


def draw_orientations() -> "Image":
    """The eight orientations: their vectors, and what they mean to launch pads, one-ways, doors and thwumps."""
    shown = (
        (kinds.LAUNCH_PAD, "launch pad"),
        (kinds.ONE_WAY, "one-way"),
        (kinds.REGULAR_DOOR, "door"),
        (kinds.THWUMP, "thwump"),
    )
    pitch, left = 36.0, 44.0
    figure = Figure(left + 8 * pitch, 54 + 36 * len(shown), 3)
    for orientation in range(8):
        x = left + pitch * (orientation + 0.5)
        figure.text(x, 8, str(orientation), 16)
        records = [[kinds.NINJA, 8, 8, 0, 0], [kinds.ONE_WAY, 0, 0, orientation, 0]]
        pad = compile_level(Level(np.zeros((ROWS, COLUMNS), np.uint8), np.array(records))).world.entity[0]
        nx, ny = pad["x1"], pad["y1"]
        figure.arrow((x - 10 * nx, 30 - 10 * ny), (x + 10 * nx, 30 + 10 * ny), PALETTE.blue, 1.2)
        for row, (kind, _name) in enumerate(shown):
            _draw_alone(figure, kind, x, 66 + 36 * row, orientation)
    for y, name in ((30, "vector"), *((66 + 36 * row, name) for row, (_kind, name) in enumerate(shown))):
        figure.text(left / 2, y, name)
    return figure.finish()


def _draw_alone(figure: Figure, kind: int, x: float, y: float, orientation: int = 0) -> None:
    """One entity as it looks at the start, with its centre at (x, y) of the figure."""
    switch = [[kinds.SWITCH_OF_DOOR[kind], 0, 0, 0, 0]] if kind in kinds.SWITCH_OF_DOOR else []
    if kind in (kinds.EXIT, kinds.EXIT_SWITCH):
        switch = [[kinds.EXIT_SWITCH, 50, 50, 0, 0]]
    first = kinds.EXIT if kind == kinds.EXIT_SWITCH else kind
    records = np.array([[kinds.NINJA, 8, 8, 0, 0], [first, 50, 50, orientation, 0], *switch])
    entity = next(e for e in level_entities(Level(np.zeros((ROWS, COLUMNS), np.uint8), records)) if e.kind == kind)
    canvas, origin = figure.canvas, figure.canvas.origin
    canvas.origin = (entity.at[0] - x, entity.at[1] - y)
    draw_entity(canvas, entity, initial_look(entity))
    canvas.origin = origin


_CIRCLES = (  # what touches the ninja with a circle: (type, radius)
    (kinds.MINE, entities.ARMED_RADIUS),
    (kinds.GOLD, entities.GOLD_RADIUS),
    (kinds.EXIT_SWITCH, entities.EXIT_SWITCH_RADIUS),
    (kinds.EXIT, entities.EXIT_RADIUS),
    (kinds.REGULAR_DOOR, entities.REGULAR_DOOR_RADIUS),
    (kinds.LAUNCH_PAD, entities.PAD_RADIUS),
    (kinds.BOOST_PAD, movers.BOOST_RADIUS),
    (kinds.ZAP_DRONE, movers.ZAP_RADIUS),
    (kinds.MINI_DRONE, movers.MINI_RADIUS),
    (kinds.FLOOR_GUARD, movers.GUARD_RADIUS),
    (kinds.DEATH_BALL, movers.BALL_RADIUS),
)
_SQUARES = (  # what touches it with a square: (type, half side)
    (kinds.BOUNCE_BLOCK, bodies.BLOCK_HALF),
    (kinds.THWUMP, bodies.THWUMP_HALF),
    (kinds.SHOVE_THWUMP, bodies.SHOVE_HALF),
)


def draw_reach() -> "Image":
    """Circles and squares of the entities, and (dashed) how near the ninja's centre must come to touch them."""
    columns, pitch = 7, 52.0
    shapes = [*((kind, size, False) for kind, size in _CIRCLES), *((kind, size, True) for kind, size in _SQUARES)]
    rows = math.ceil(len(shapes) / columns)
    figure = Figure(columns * pitch + 4, rows * (pitch + 12) + 2, 2.6)
    for i, (kind, size, square) in enumerate(shapes):
        x, y = 2 + pitch * (i % columns + 0.5), 2 + (pitch + 12) * (i // columns) + pitch / 2
        _draw_alone(figure, kind, x, y)
        if square:
            outline, reach = _square(x, y, size), _square(x, y, size + RADIUS)
        else:
            outline, reach = _circle(x, y, size), _circle(x, y, size + RADIUS)
        figure.canvas.line(outline, PALETTE.red, 0.6)
        figure.dashed(reach, PALETTE.red, 0.5)
        figure.text(x, y + pitch / 2 + 3, f"{kinds.ENTITY_NAMES[kind]} {size:g} + {RADIUS:g}", 12)
    return figure.finish()


def _square(x: float, y: float, half: float) -> list[Point]:
    """The outline of a square as a fine polyline, its corners included."""
    t = [*np.linspace(-half, half, 19)[:-1]]
    sides = [(a, -half) for a in t], [(half, a) for a in t], [(-a, half) for a in t], [(-half, -a) for a in t]
    return [(x + a, y + b) for side in sides for a, b in side] + [(x - half, y - half)]


# ---------------------------------------------------------------------------------------------------------------------
# The ninja in motion


def floor_level(spawn: tuple[int, int], *more: tuple[int, int, int]) -> Level:
    """An empty stage with a floor whose top is at y = 480, and more tiles (cell x, cell y, id)."""
    cells = np.zeros((ROWS, COLUMNS), np.uint8)
    cells[FLOOR_ROW - 1] = tiles.SOLID
    for cx, cy, tile in more:
        cells[cy - 1, cx - 1] = tile
    return Level(cells, np.array([[kinds.NINJA, *spawn, 0, 0]]))


def jump(pressed: int) -> np.ndarray:
    """float64[F, 2]: positions from the press of the jump key to the landing; it is down for ``pressed`` frames of a run."""
    run_up, flight = 120, 120
    inputs = np.full(run_up + flight, RIGHT, np.uint8)
    inputs[run_up : run_up + pressed] |= JUMP
    run = simulate(floor_level((8, 78)), inputs)
    landed = run_up + 2 + int(np.flatnonzero(~run.airborne[run_up + 2 :])[0])
    return run.position[run_up - 1 : landed + 1]


def draw_jumps() -> "Image":
    """Three jumps of different length out of a full run; a dot per frame, a ring where the key is released."""
    paths = [(pressed, jump(pressed)) for pressed in (1, 15, 46)]
    left, floor = paths[0][1][0, 0] - 20, TILE * FLOOR_ROW
    width = max(path[-1, 0] for _held, path in paths) - left + 40
    figure = Figure(width, 136, 2.2)
    figure.canvas.origin = (left, floor - 112)
    for cx in range(int(left // TILE), int((left + width) // TILE) + 1):
        _fill_tile(figure, tiles.SOLID, TILE * cx, floor)
    for (pressed, path), colour in zip(paths, (PALETTE.blue, PALETTE.green, PALETTE.red), strict=True):
        for place in path:
            figure.canvas.disc(place, 0.9, colour)
        figure.canvas.ring(path[min(pressed, len(path) - 1)], 2.6, 0.8, colour)
        up, along = path[0, 1] - path[:, 1].min(), path[-1, 0] - path[0, 0]
        lines = (f"key for {pressed}", f"{up:.1f} up, {along:.0f} along", f"{len(path) - 1} frames")
        for line, text in enumerate(lines):
            figure.text(path[-1, 0] - left - 6, 117 + 7.5 * line, text, 12, colour)
    start_x, start_y = paths[0][1][0]
    figure.dashed(_circle(start_x, start_y, RADIUS), PALETTE.ink, 0.6)
    return figure.finish()


def landing(spawn_x: int, *more: tuple[int, int, int]) -> tuple[Point, Point, Point]:
    """One frame in which a falling ninja meets a surface: its centre before, moved freely, and after the contacts."""
    run = simulate(floor_level((spawn_x, 44), *more), np.zeros(120, np.uint8))
    n = int(np.flatnonzero(~run.airborne[2:])[0]) + 2
    before = run.position[n - 1]
    free = before + (run.velocity[n - 1] * DRAG + (0.0, GRAVITY_FALL))
    return tuple(before), tuple(free), tuple(run.position[n])


def draw_push_out() -> "Image":
    """One real frame of landing on a floor, on a slope, on a corner: where the ninja was, would be, and is."""
    ramp = tuple((20 - k, 19 + k, tiles.SLOPES[2]) for k in range(-2, 1))
    ramp += tuple((20 - k, 20 + k, tiles.SOLID) for k in range(-2, 0))
    scenes = (("on a floor", 81, ()), ("on a slope", 83, ramp), ("on a corner", 83, ((21, 19, tiles.SOLID),)))
    size = 48.0
    panels = []
    for caption, spawn_x, more in scenes:
        before, free, after = landing(spawn_x, *more)
        figure = Figure(size, size, 6)
        figure.canvas.origin = (after[0] - size / 2, after[1] - size / 2)
        for cx, cy, tile in (*((c, FLOOR_ROW, tiles.SOLID) for c in range(16, 28)), *more):
            _fill_tile(figure, tile, TILE * cx, TILE * cy)
        figure.dashed(_circle(*before, RADIUS), PALETTE.muted, 0.3)
        figure.canvas.line(_circle(*free, RADIUS), PALETTE.red, 0.3)
        figure.canvas.line(_circle(*after, RADIUS), PALETTE.ink, 0.5)
        figure.arrow(before, free, PALETTE.red, 0.3)
        figure.arrow(free, after, PALETTE.blue, 0.3)
        figure.text(size / 2, 3, caption)
        panels.append(figure.finish())
    page = import_optional("PIL.Image", "video").new(
        "RGB", (len(panels) * (panels[0].width + 8) - 8, panels[0].height), PAPER
    )
    for i, panel in enumerate(panels):
        page.paste(panel, (i * (panel.width + 8), 0))
    return page


FIGURES: dict[str, "Callable[[], Image]"] = {
    "tiles": draw_tiles,
    "half_cells": draw_half_cells,
    "orientations": draw_orientations,
    "reach": draw_reach,
    "jumps": draw_jumps,
    "push_out": draw_push_out,
}


if __name__ == "__main__":
    for name, draw in FIGURES.items():
        draw().save(ROOT / "docs" / "images" / f"{name}.png")
