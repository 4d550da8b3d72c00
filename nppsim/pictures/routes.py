"""Pictures of one or two paths through a level."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nppsim.actions import FRAMES_PER_SECOND
from nppsim.levels.level import Level
from nppsim.physics.state import JUMPING
from nppsim.pictures.canvas import PALETTE, ROUTE_COLOURS, Canvas, Colour, faded_route_colour
from nppsim.pictures.scene import still_scene
from nppsim.pictures.texts import TWO_COLOURS, TimeMark, outcome_look, with_legend, with_time_marks, with_two_labels
from nppsim.simulate import Run

if TYPE_CHECKING:
    from PIL.Image import Image

_WIDTH = 2.6  # width of a path, level px
_CASING = 4.6  # width of the pale line below a path, level px; it makes the path visible on tiles
_SAME_PX = 1.5  # level px; maximum distance at which two paths count as coinciding
_DASH_PX = 9.0  # length of the dashes of the second path where it coincides with the first, level px


def draw_route(
    level: Level,
    run: Run,
    scale: float = 1.0,
    *,
    crop: bool = False,
    title: str = "",
    outcome: str | None = None,
    marked: int | None = None,
) -> "Image":
    """Draw a level and the path of a run: a Pillow RGB image.

    The colour of the path changes from a faded blue (start) to red (end).  Open circles mark jumps, a ring marks the start,
    and a disc in the colour of the outcome marks the end.  Entities have their state at the end of the run.

    run: result of ``nppsim.simulate``.
    scale: size of the picture; at scale 1 the whole stage has 1056 x 600 px.
    crop: show only the reachable part of the stage, enlarged at most by the factor 2.
    title: text in the strip below the picture.
    outcome: replaces ``run.outcome``, for example by "timeout".
    marked: number of frames after which a ring marks the position, such as ``Ending.farthest_frame``.
    """
    scene = still_scene(level, scale, crop, run.position)
    canvas = scene.overlay(scene.picture(scene.looks_at(run, run.frames), None, scene.aims_at(run, run.frames)))
    outcome = outcome or run.outcome
    path = path_of(level, run)
    _paint_route(canvas, path, np.asarray(run.ninja_state), outcome)
    if marked is not None:
        canvas.ring(path[marked], 10.0, 2.4, PALETTE.amber)
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
    """Draw a level and the paths of two runs, blue and red, dashed where they coincide: a Pillow RGB image.

    A dot on each path marks every second.  A disc in the colour of the outcome marks each end.  Entities have their initial
    state.

    runs: two results of ``nppsim.simulate``.
    labels: names of the two runs, for the strip below the picture.
    scale, crop: as for ``draw_route``.
    parted: first frame, counted from 1, after which the positions differ; a ring marks the position there.
    """
    scene = still_scene(level, scale, crop, np.vstack([run.position for run in runs]))
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
    picture = with_time_marks(canvas.finish(), marks, scene.to_picture)
    return with_two_labels(picture, runs, labels, parted)


def path_of(level: Level, run: Run) -> np.ndarray:
    """Return the positions of the ninja at the start and after each frame: float64[frames + 1, 2], px."""
    return np.vstack([[level.spawn], run.position])


def _paint_route(canvas: Canvas, path: np.ndarray, states: np.ndarray, outcome: str) -> None:
    jumping = np.concatenate([[False], states == JUMPING])
    jumps = np.flatnonzero(jumping[1:] & ~jumping[:-1]).tolist()
    for start in range(0, len(path) - 1, 4):  # in pieces, so that later parts of the path cover earlier ones
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
    """Yield the pieces of a path that are drawn over another path: whole where the paths differ, dashes elsewhere."""
    if len(path) < 2:
        return
    apart = np.array([np.hypot(*(other - point).T).min() for point in path]) > _SAME_PX
    length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
    drawn = apart | (length // _DASH_PX % 2 == 0)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], drawn[:-1].astype(np.int8), [0]])))
    for start, stop in edges.reshape(-1, 2):
        yield path[start : stop + 1]


def _time_marks(canvas: Canvas, path: np.ndarray, colour: Colour, above: bool) -> list[TimeMark]:
    """Draw a dot for each second and return the marks with their numbers."""
    marks = []
    for frame in range(FRAMES_PER_SECOND, len(path) - 1, FRAMES_PER_SECOND):
        canvas.disc(path[frame], 4.4, PALETTE.pale)
        canvas.disc(path[frame], 3.2, colour)
        x, y = path[frame].tolist()
        marks.append(TimeMark((x, y), str(frame // FRAMES_PER_SECOND), colour, above))
    return marks
