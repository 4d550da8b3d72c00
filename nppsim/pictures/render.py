"""Pictures and film frames, drawn with Pillow (extra ``video``).

    draw_level(level).save("level.png")                       # 1056 x 600
    draw_route(level, nppsim.simulate(level, inputs))         # path of a run, coloured by time, jumps marked
    draw_two_routes(level, (run_a, run_b), ("A", "B"))        # two paths, blue and red, with time marks
    contact_sheet(levels, labels, columns=4)                  # many levels on one page, at one scale
    for picture in frames(level, inputs): ...                 # uint8[H, W, 3], the pictures of a film

``scale`` is rounded to a whole number of output pixels per tile.  All functions raise ``MissingPackageError`` without
Pillow, and ``RenderError`` for invalid arguments.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nppsim.actions import FRAMES_PER_SECOND
from nppsim.levels.level import Level
from nppsim.pictures.figures import NinjaPose
from nppsim.pictures.region import (
    RenderError,
    film_pixels_per_tile,
    used_region,
    widened,
)
from nppsim.pictures.routes import draw_route, draw_two_routes, path_of
from nppsim.pictures.scene import RunPicture, Scene, ninja_looks, still_scene
from nppsim.pictures.sheet import contact_sheet
from nppsim.pictures.texts import FilmPanel
from nppsim.replays.score import time_text
from nppsim.simulate import Run, simulate

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "FilmSettings",
    "RenderError",
    "contact_sheet",
    "draw_level",
    "draw_route",
    "draw_two_routes",
    "film_steps",
    "frames",
    "used_region",
]

SECOND_OPACITY = 0.4


@dataclass(frozen=True, eq=False)
class FilmSettings:
    """Appearance of a film.

    fps: pictures per second, 1..60.
    scale: size of the picture; at scale 1 the picture fits into 1056 x 600 px.
    title, category: texts below the picture.
    outcome: "won", "died" or "timeout", shown at the end; None: the outcome of the simulation.
    second: uint8[frames], inputs of a second run of the level, shown as a pale ninja; None: no second run.
    second_name: name of the second run in the text below the picture.
    notes: one text per frame of the run, shown beside the pressed keys; empty for no texts.
    """

    fps: int = 30
    scale: float = 1.0
    title: str = ""
    category: str = ""
    outcome: str | None = None
    second: np.ndarray | None = None
    second_name: str = "second run"
    notes: Sequence[str] = ()


DEFAULT_SETTINGS = FilmSettings()


def draw_level(level: Level, scale: float = 1.0, *, crop: bool = False, ninja: bool = True) -> "Image":
    """Draw a level at its start: a Pillow RGB image of 1056 x 600 px times ``scale``.

    crop: show only the reachable part of the stage, enlarged at most by the factor 2 to fit into the size above.
    ninja: draw the ninja at the spawn.
    """
    scene = still_scene(level, scale, crop)
    return scene.picture(scene.looks, NinjaPose(level.spawn) if ninja else None, scene.aims)


def film_steps(num_frames: int, fps: int) -> list[int]:
    """Return the physics frames that a film shows: 0 (the spawn), every 60 / fps frames, and the last.

    fps: pictures per second.  Raises RenderError unless it is in 1..60.
    """
    if not 1 <= fps <= FRAMES_PER_SECOND:
        raise RenderError(f"fps={fps} is outside 1..{FRAMES_PER_SECOND}, the frames per second of the physics")
    count = math.ceil(num_frames * fps / FRAMES_PER_SECOND)
    return [min(round(i * FRAMES_PER_SECOND / fps), num_frames) for i in range(count + 1)]


def frames(
    level: Level, inputs: np.ndarray, look: FilmSettings = DEFAULT_SETTINGS, *, run: Run | None = None
) -> Iterator[np.ndarray]:
    """Yield the pictures of a film: uint8[H, W, 3], H and W even, one for each of ``film_steps``.

    The pictures show the reachable part of the stage.  The background is drawn once; each picture adds the ninja and
    moving entities.

    inputs: uint8[frames], N++ input bytes.
    run: result of ``nppsim.simulate(level, inputs)``; None: this function simulates the inputs.
    """
    if run is None:
        run = simulate(level, inputs)
    if look.notes and len(look.notes) != run.frames:
        raise RenderError(f"{len(look.notes)} notes for a run of {run.frames} frames; give one per frame, or none")
    region = widened(used_region(level, run.position))
    scene = Scene(level, film_pixels_per_tile(region, look.scale), region)
    second, below = None, look.category
    if look.second is not None:
        other = simulate(level, look.second)
        second = ninja_looks(level, other, look.second)
        below = ", ".join(
            text for text in (below, f"second run: {look.second_name}, {time_text(other.frames)}") if text
        )
    panel = FilmPanel(scene.width, look.scale, look.title, below)
    ninja, path = ninja_looks(level, run, inputs), path_of(level, run)
    shown = RunPicture(scene, scene.picture(scene.looks, None, movers=False))
    for step in film_steps(run.frames, look.fps):
        shown.update(scene.looks_at(run, step), path[: step + 1])
        picture = shown.draw(path[: step + 1], ninja[step], scene.aims_at(run, step))
        if second is not None:
            scene.add_ninja(picture, second[min(step, len(second) - 1)], SECOND_OPACITY)
            scene.add_ninja(picture, ninja[step])  # in front of the second run
        keys, gold = (int(inputs[step - 1]), int(run.gold[step - 1])) if step else (0, 0)
        note = look.notes[max(step - 1, 0)] if look.notes else ""
        strip = panel.draw(step, gold, keys, (look.outcome or run.outcome) if step == run.frames else None, note)
        yield np.concatenate([np.asarray(picture), strip])
