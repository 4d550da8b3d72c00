"""Films of runs: H.264 in mp4 files, GIF and animated WebP.  Needs the extra ``video``.

record("run.mp4", level, inputs, FilmSettings(title="simple_004", category="simple", outcome="won"))
"""

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nppsim.errors import import_optional
from nppsim.io.files import replacing
from nppsim.levels.level import Level
from nppsim.physics.outcomes import DIED, NAMES
from nppsim.pictures import render
from nppsim.pictures.render import DEFAULT_SETTINGS, FilmSettings, RenderError
from nppsim.simulate import Run, simulate

FORMATS = (".mp4", ".gif", ".webp")
MAX_GIF_FPS = 50  # GIF counts hundredths of a second, and browsers slow down pictures that are shown for only one
CRF = 20  # quality of x264: 18 is visually lossless, 28 shows artefacts
HOLD_S = 1.0  # seconds for which the last picture is shown
REPEAT_S = 0.75  # seconds before a death that are repeated in slow motion
SLOW_FACTOR = 5  # slow-motion factor
_ENCODERS = {".mp4": "libx264", ".gif": "gif", ".webp": "libwebp_anim"}
_COLOURS = 256


def record(
    path: str | os.PathLike,
    level: Level,
    inputs: np.ndarray,
    settings: FilmSettings = DEFAULT_SETTINGS,
    *,
    run: Run | None = None,
) -> Path:
    """Film one episode in real time, repeat a death in slow motion, and return ``path``.

    The file is written atomically.  The suffix of its name selects the format.

    inputs: uint8[frames], N++ input bytes.
    run: result of ``nppsim.simulate(level, inputs)``; None: this function simulates the inputs.
    Raises MissingPackageError without PyAV or Pillow, RenderError for an invalid ``settings`` or suffix.
    """
    av = import_optional("av", "video")
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise RenderError(f"{path}: films are {', '.join(FORMATS)}; give a name with one of these suffixes")
    if suffix == ".gif" and settings.fps > MAX_GIF_FPS:
        raise RenderError(f"{path}: GIF shows at most {MAX_GIF_FPS} pictures per second, not {settings.fps}")
    run = run or simulate(level, inputs)
    pictures, fps = render.frames(level, inputs, settings, run=run), settings.fps
    again = round(REPEAT_S * fps) if (settings.outcome or run.outcome) == NAMES[DIED] else 0
    first = next(pictures)
    with replacing(path) as temporary:
        # absolute: in a relative path, FFmpeg interprets text before ":" as a protocol
        options = {".mp4": {"movflags": "+faststart"}}.get(suffix, {"loop": "0"})
        with av.open(os.path.abspath(temporary), "w", format=suffix[1:], options=options) as container:
            stream = container.add_stream(_ENCODERS[suffix], rate=fps)
            stream.pix_fmt = "pal8" if suffix == ".gif" else "yuv420p"
            if suffix == ".mp4":
                stream.options = {"crf": str(CRF), "preset": "veryfast", "tune": "animation"}
            stream.codec_context.thread_count = 1
            stream.height, stream.width = first.shape[:2]
            encoded = _with_palette(first) if suffix == ".gif" else partial(av.VideoFrame.from_ndarray, format="rgb24")
            for picture in _with_ending(itertools.chain([first], pictures), round(HOLD_S * fps), again):
                container.mux(stream.encode(encoded(picture)))
            container.mux(stream.encode())
    return Path(path)


def _with_palette(first: np.ndarray) -> Callable[[np.ndarray], Any]:
    """Return a function that makes a video frame of a picture, uint8[H, W, 3], with the 256 colours of the first one."""
    av, image = import_optional("av", "video"), import_optional("PIL.Image", "video")
    palette = image.fromarray(first).quantize(_COLOURS)
    colours = np.zeros((_COLOURS, 4), np.uint8)
    rgb = np.array(palette.getpalette(), np.uint8).reshape(-1, 3)
    colours[: len(rgb)] = np.insert(rgb, 0, 255, axis=1)  # alpha, red, green, blue

    def encoded(picture: np.ndarray) -> Any:
        indices = image.fromarray(picture).quantize(palette=palette, dither=image.Dither.NONE)
        return av.VideoFrame.from_ndarray((np.asarray(indices), colours), format="pal8")

    return encoded


def _with_ending(pictures: Iterator[np.ndarray], hold: int, again: int) -> Iterator[np.ndarray]:
    """Yield the pictures and hold the last one; then repeat the last ``again`` pictures slowly and hold again."""
    last: deque[np.ndarray] = deque(maxlen=max(again, 1))
    for picture in pictures:
        last.append(picture)
        yield picture
    yield from itertools.repeat(picture, hold)
    if again:
        for picture in last:
            yield from itertools.repeat(picture, SLOW_FACTOR)
        yield from itertools.repeat(picture, hold)
