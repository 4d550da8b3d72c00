"""Pictures and film frames for people, drawn with Pillow (extra ``video``).

    draw_level(level).save("level.png")                       # 1056 x 600
    draw_route(level, nppsim.simulate(level, inputs))         # the way taken, coloured by time, jumps marked
    draw_two_routes(level, (run_a, run_b), ("A", "B"))        # two ways, broad blue and narrow red, and where they part
    contact_sheet(levels, labels, columns=4)                  # many levels on one page
    for picture in frames(level, inputs, fps=30): ...         # uint8[H, W, 3], for a film

A film draws its background once; per frame only the boxes around what changed (the ninja, movers, a switch just taken)
are drawn again.  ``scale`` is rounded to whole output pixels per tile, so that tile borders fall on pixel borders.
All raise ``MissingPackageError`` where Pillow is missing, and ``RenderError`` for what cannot be drawn as asked.
"""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nppsim.actions import FRAMES_PER_SECOND
from nppsim.errors import needed
from nppsim.levels.level import Level
from nppsim.physics.state import JUMPING
from nppsim.pictures.canvas import PALETTE, ROUTE_COLOURS, Canvas, route_colour
from nppsim.pictures.figures import NINJA_REACH, NinjaLook
from nppsim.pictures.region import (
    TILE,
    WHOLE_STAGE,
    RenderError,
    film_pixels_per_tile,
    pixels_per_tile,
    used_region,
    widened,
)
from nppsim.pictures.scene import Scene, around, ninja_looks, touched
from nppsim.pictures.texts import (
    TWO_COLOURS,
    FilmPanel,
    fitted,
    font,
    outcome_look,
    pen_on,
    with_legend,
    with_two_labels,
)
from nppsim.simulate import Run, simulate

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "RenderError",
    "contact_sheet",
    "draw_level",
    "draw_route",
    "draw_two_routes",
    "film_steps",
    "frames",
    "used_region",
]

_CELL = (352, 200)  # width and height (px) of each picture of a contact sheet
_GAP = 12  # px between the pictures of a contact sheet
_CAPTION = 22  # px below each of them, for its label


def draw_level(level: Level, scale: float = 1.0, *, crop: bool = False, ninja: bool = True) -> "Image":
    """Picture of a level at its start: a Pillow RGB image of 1056 x 600 px times ``scale`` (smaller with ``crop``).

    crop: show only the part of the stage that can be reached.  ninja: draw it at the spawn.
    """
    scene = Scene(level, pixels_per_tile(scale), used_region(level) if crop else WHOLE_STAGE)
    return scene.picture(scene.looks, NinjaLook(level.spawn) if ninja else None)


def draw_route(
    level: Level, run: Run, scale: float = 1.0, *, crop: bool = False, title: str = "", outcome: str | None = None
) -> "Image":
    """Picture of a level with the way the ninja took: a Pillow RGB image.

    The line's colour runs from blue (start) to red (end of the run); open circles mark jumps, a ring the start, a disc
    in the colour of the outcome the end.  Entities are drawn as they are at the end of the run.  A strip below
    explains all this.

    run: as returned by ``nppsim.simulate``.
    crop: show only the part of the stage that can be reached, enlarged.
    title: text in the strip.
    outcome: instead of ``run.outcome``, e.g. "timeout".
    """
    region = widened(used_region(level, run.position)) if crop else WHOLE_STAGE
    scene = Scene(level, film_pixels_per_tile(region, scale) if crop else pixels_per_tile(scale), region)
    canvas = scene.overlay(scene.picture(scene.looks_at(run, run.frames), None))
    outcome = outcome or run.outcome
    _paint_route(canvas, _way(level, run), np.asarray(run.ninja_state), outcome)
    return with_legend(canvas.finish(), run, title, outcome)


def draw_two_routes(
    level: Level, runs: Sequence[Run], labels: Sequence[str], scale: float = 1.0, *, parted: int | None = None
) -> "Image":
    """Picture of a level with two ways through it, broad blue and narrow red: a Pillow RGB image.

    Entities are drawn as they are at the start.  Discs mark the ends, in the colours of the outcomes; the strip below
    names the colours of the ways.

    runs: two results of ``nppsim.simulate``.
    labels: their names.
    parted: the frame, from 1, in which they part; a ring marks the place.
    """
    scene = Scene(level, pixels_per_tile(scale), WHOLE_STAGE)
    canvas = scene.overlay(scene.picture(scene.looks, None))
    for run, colour, width in zip(runs, TWO_COLOURS, (5.0, 1.8), strict=True):  # both show where they are the same
        way = _way(level, run)
        canvas.line(way.tolist(), colour, width)
        canvas.disc(way[-1], 7.5, colour)
        canvas.disc(way[-1], 5.0, outcome_look(run.outcome)[1])
    canvas.ring(level.spawn, 6.2, 2.4, PALETTE.ink)
    if parted is not None:
        canvas.ring(runs[0].position[parted - 1], 10.0, 2.4, PALETTE.amber)
    return with_two_labels(canvas.finish(), runs, labels)


def contact_sheet(levels: Sequence[Level], labels: Sequence[str], columns: int = 4) -> "Image":
    """Many levels on one page, each cropped to its used region: a Pillow RGB image.

    labels: one short text per level.  Raises RenderError if the counts of levels and labels differ or ``columns`` is
    below 1.
    """
    if len(levels) != len(labels):
        raise RenderError(f"contact_sheet got {len(levels)} levels but {len(labels)} labels; give one label per level")
    if columns < 1:
        raise RenderError(f"contact_sheet needs at least 1 column, got columns={columns}")
    width, height = _CELL
    columns = min(columns, max(len(levels), 1))
    rows = max(math.ceil(len(levels) / columns), 1)
    size = (columns * (width + _GAP) + _GAP, rows * (height + _CAPTION + _GAP) + _GAP)
    page = needed("PIL.Image", "video").new("RGB", size, PALETTE.panel)
    pen, face = pen_on(page), font(14)
    for i, (level, label) in enumerate(zip(levels, labels, strict=True)):
        row, column = divmod(i, columns)
        left, top = _GAP + column * (width + _GAP), _GAP + row * (height + _CAPTION + _GAP)
        region = used_region(level)
        ppt = max(min(width // (region[2] - region[0]), height // (region[3] - region[1]), 2 * TILE), 1)
        scene = Scene(level, ppt, region)
        picture = scene.picture(scene.looks, NinjaLook(level.spawn))
        page.paste(PALETTE.tile, (left, top, left + width, top + height))
        page.paste(picture, (left + (width - picture.width) // 2, top + (height - picture.height) // 2))
        pen.text((left + 2, top + height + 3), fitted(pen, label, face, width), PALETTE.text, face)
    return page


def film_steps(num_frames: int, fps: int) -> list[int]:
    """Physics frames shown by a film: 0 (the spawn), then every 60 / fps frames, and always the last.

    fps: 1..60; others raise RenderError.  At 30 every second frame is shown, so that playback is in real time.
    """
    if not 1 <= fps <= FRAMES_PER_SECOND:
        raise RenderError(f"fps={fps} is outside 1..{FRAMES_PER_SECOND}, the frames per second of the physics")
    count = math.ceil(num_frames * fps / FRAMES_PER_SECOND)
    return [min(round(i * FRAMES_PER_SECOND / fps), num_frames) for i in range(count + 1)]


def frames(
    level: Level,
    inputs: np.ndarray,
    fps: int = 30,
    scale: float = 1.0,
    *,
    title: str = "",
    category: str = "",
    outcome: str | None = None,
    run: Run | None = None,
) -> Iterator[np.ndarray]:
    """The pictures of a film, one by one: uint8[H, W, 3], H and W even; ``film_steps`` says which frames they show.

    The camera shows the reachable part of the stage.

    inputs: uint8[frames], N++ input bytes.
    title, category: texts below it, beside the time and the keys held.
    outcome: "won", "died" or "timeout", shown on the last picture (default: the run's own).
    run: the result of ``nppsim.simulate(level, inputs)`` where the caller has it already.
    """
    if run is None:
        run = simulate(level, inputs)
    region = widened(used_region(level, run.position))
    scene = Scene(level, film_pixels_per_tile(region, scale), region)
    panel = FilmPanel(scene.width, scale, title, category)
    ninja, way = ninja_looks(level, run, inputs), _way(level, run)
    background = scene.picture(scene.looks, None, movers=False)
    looks, shown = scene.looks, 0
    for step in film_steps(run.frames, fps):
        if step:
            now = scene.looks_at(run, step)
            for entity in scene.still:
                if now[entity] != looks[entity]:
                    scene.repaint(background, touched(entity, now[entity]), now, way[: step + 1])
            scene.repaint(background, around(way[shown : step + 1], 2), now, way[: step + 1])
            looks, shown = now, step
        picture = background.copy()
        for area in [
            *(touched(entity, looks[entity]) for entity in scene.moving),
            around(way[step : step + 1], NINJA_REACH),
        ]:
            scene.repaint(picture, area, looks, way[: step + 1], ninja[step])
        held = int(inputs[step - 1]) if step else 0
        strip = panel.draw(step, held, (outcome or run.outcome) if step == run.frames else None)
        yield np.concatenate([np.asarray(picture), strip])


def _way(level: Level, run: Run) -> np.ndarray:
    """float64[frames + 1, 2]: where the ninja was at the start and after each frame."""
    return np.vstack([[level.spawn], run.position])


def _paint_route(canvas: Canvas, way: np.ndarray, states: np.ndarray, outcome: str) -> None:
    canvas.line(way.tolist(), PALETTE.pale, 4.6)  # a light casing keeps the line visible on tiles
    for start in range(0, len(way) - 1, 4):
        canvas.line(way[start : start + 5].tolist(), route_colour(start / (len(way) - 1)), 2.6)
    jumping = np.concatenate([[False], states == JUMPING])
    for i in np.flatnonzero(jumping[1:] & ~jumping[:-1]):
        canvas.disc(way[i], 4.2, PALETTE.ink)
        canvas.disc(way[i], 2.7, PALETTE.pale)
    canvas.disc(way[0], 7.5, PALETTE.pale)
    canvas.ring(way[0], 6.2, 2.4, ROUTE_COLOURS[0])
    canvas.disc(way[-1], 7.5, PALETTE.pale)
    canvas.disc(way[-1], 5.5, outcome_look(outcome)[1])
