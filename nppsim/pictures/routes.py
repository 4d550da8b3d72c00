"""Pictures of paths through a level: one, coloured by time, or two to compare."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nppsim.actions import FRAMES_PER_SECOND
from nppsim.levels.level import Level
from nppsim.physics.state import JUMPING
from nppsim.pictures.canvas import PALETTE, ROUTE_COLOURS, Canvas, Colour, faded_route_colour
from nppsim.pictures.region import WHOLE_STAGE, film_pixels_per_tile, pixels_per_tile, used_region, widened
from nppsim.pictures.scene import Scene
from nppsim.pictures.texts import TWO_COLOURS, TimeMark, outcome_look, with_legend, with_time_marks, with_two_labels
from nppsim.simulate import Run

if TYPE_CHECKING:
    from PIL.Image import Image

_WIDTH = 2.6  # of a path, level px
_CASING = 4.6  # of the pale line below it, which keeps it visible on tiles
_SAME_PX = 1.5  # two paths that are nearer than this cover each other
_DASH_PX = 9.0  # of the second path, where it covers the first


def draw_route(
    level: Level, run: Run, scale: float = 1.0, *, crop: bool = False, title: str = "", outcome: str | None = None
) -> "Image":
    """Picture of a level with the path the ninja took: a Pillow RGB image.

    The line's colour runs from blue (start) to red (end of the run) and what is long ago is faded, below what came later;
    open circles mark jumps, a ring the start, a disc in the colour of the outcome the end.  Entities are drawn in their
    state at the end of the run.  A strip below explains all this.

    run: as returned by ``nppsim.simulate``.
    crop: show only the part of the stage that can be reached, enlarged.
    title: text in the strip.
    outcome: instead of ``run.outcome``, e.g. "timeout".
    """
    region = widened(used_region(level, run.position)) if crop else WHOLE_STAGE
    scene = Scene(level, film_pixels_per_tile(region, scale) if crop else pixels_per_tile(scale), region)
    canvas = scene.overlay(scene.picture(scene.looks_at(run, run.frames), None, scene.aims_at(run, run.frames)))
    outcome = outcome or run.outcome
    _paint_route(canvas, path_of(level, run), np.asarray(run.ninja_state), outcome)
    return with_legend(canvas.finish(), run, title, outcome)


def draw_two_routes(
    level: Level,
    runs: Sequence[Run],
    labels: Sequence[str],
    scale: float = 1.0,
    *,
    crop: bool = True,
    parted: int | None = None,
) -> "Image":
    """Picture of a level with two paths through it, blue and red, in dashes where they are the same: a Pillow RGB image.

    A dot on each path marks every second of its run.  Entities are drawn in their initial state.  Discs mark the ends, in
    the colours of the outcomes; the strip below names the colours of the paths.

    runs: two results of ``nppsim.simulate``.
    labels: their names.
    crop: show only the part of the stage that can be reached, enlarged.
    parted: the frame, from 1, in which they part; a ring marks the place.
    """
    region = widened(used_region(level, np.vstack([run.position for run in runs]))) if crop else WHOLE_STAGE
    scene = Scene(level, film_pixels_per_tile(region, scale) if crop else pixels_per_tile(scale), region)
    canvas = scene.overlay(scene.picture(scene.looks, None, scene.aims))
    paths = [path_of(level, run) for run in runs]
    for path in paths:
        canvas.line(path.tolist(), PALETTE.pale, _CASING)
    canvas.line(paths[0].tolist(), TWO_COLOURS[0], _WIDTH)
    for piece in _seen_pieces(paths[1], paths[0]):
        canvas.line(piece.tolist(), TWO_COLOURS[1], _WIDTH)
    marks = []
    for path, run, colour, above in zip(paths, runs, TWO_COLOURS, (True, False), strict=True):
        marks += _time_marks(canvas, path, colour, above)
        canvas.disc(path[-1], 7.5, colour)
        canvas.disc(path[-1], 5.0, outcome_look(run.outcome)[1])
    canvas.ring(level.spawn, 6.2, 2.4, PALETTE.ink)
    if parted is not None:
        canvas.ring(runs[0].position[parted - 1], 10.0, 2.4, PALETTE.amber)
    picture = with_time_marks(canvas.finish(), marks, scene.place)
    return with_two_labels(picture, runs, labels, parted)


def path_of(level: Level, run: Run) -> np.ndarray:
    """float64[frames + 1, 2]: where the ninja was at the start and after each frame."""
    return np.vstack([[level.spawn], run.position])


def _paint_route(canvas: Canvas, path: np.ndarray, states: np.ndarray, outcome: str) -> None:
    jumping = np.concatenate([[False], states == JUMPING])
    jumps = np.flatnonzero(jumping[1:] & ~jumping[:-1]).tolist()
    for start in range(0, len(path) - 1, 4):  # each piece with its casing and jumps: later ones lie above earlier ones
        piece = path[start : start + 5].tolist()
        canvas.line(piece, PALETTE.pale, _CASING)
        canvas.line(path[max(start - 4, 0) : start + 1].tolist(), _colour_at(path, max(start - 4, 0)), _WIDTH)
        canvas.line(piece, _colour_at(path, start), _WIDTH)
        while jumps and jumps[0] <= start:
            i = jumps.pop(0)
            canvas.disc(path[i], 4.2, PALETTE.ink)
            canvas.disc(path[i], 2.7, PALETTE.pale)
    for i in jumps:
        canvas.disc(path[i], 4.2, PALETTE.ink)
        canvas.disc(path[i], 2.7, PALETTE.pale)
    canvas.disc(path[0], 7.5, PALETTE.pale)
    canvas.ring(path[0], 6.2, 2.4, ROUTE_COLOURS[0])
    canvas.disc(path[-1], 7.5, PALETTE.pale)
    canvas.disc(path[-1], 5.5, outcome_look(outcome)[1])


def _colour_at(path: np.ndarray, frame: int) -> Colour:
    return faded_route_colour(frame / max(len(path) - 1, 1))


def _seen_pieces(path: np.ndarray, other: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the pieces of a path to draw over another one: all of it where they differ, dashes where they coincide."""
    if len(path) < 2:
        return
    apart = np.array([np.hypot(*(other - point).T).min() for point in path]) > _SAME_PX
    length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
    drawn = apart | (length // _DASH_PX % 2 == 0)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], drawn[:-1].astype(np.int8), [0]])))
    for start, stop in edges.reshape(-1, 2):
        yield path[start : stop + 1]


def _time_marks(canvas: Canvas, path: np.ndarray, colour: Colour, above: bool) -> list[TimeMark]:
    """Paint a dot for each second; return where to write the numbers."""
    marks = []
    for frame in range(FRAMES_PER_SECOND, len(path) - 1, FRAMES_PER_SECOND):
        canvas.disc(path[frame], 4.4, PALETTE.pale)
        canvas.disc(path[frame], 3.2, colour)
        x, y = path[frame].tolist()
        marks.append(TimeMark((x, y), str(frame // FRAMES_PER_SECOND), colour, above))
    return marks
