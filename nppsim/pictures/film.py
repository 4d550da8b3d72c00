"""Films of runs: H.264 in mp4 files.  Needs the extra ``video``.

record("run.mp4", level, inputs, FilmSettings(title="simple_004", category="simple", outcome="won"))
"""

import itertools
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nppsim.errors import import_optional
from nppsim.io.files import replacing
from nppsim.levels.level import Level
from nppsim.physics.outcomes import DIED, NAMES
from nppsim.pictures import render
from nppsim.pictures.render import DEFAULT_SETTINGS, FilmSettings
from nppsim.simulate import Run, simulate

CRF = 20  # quality of x264: 18 is visually lossless, 28 shows artefacts
HOLD_S = 1.0  # seconds for which the last picture is shown
REPEAT_S = 0.75  # seconds before a death that are repeated in slow motion
SLOW_FACTOR = 5  # slow-motion factor


def record(
    path: str | os.PathLike,
    level: Level,
    inputs: np.ndarray,
    settings: FilmSettings = DEFAULT_SETTINGS,
    *,
    run: Run | None = None,
) -> Path:
    """Film one episode in real time, repeat a death in slow motion, and return ``path``.

    The file is written atomically.

    inputs: uint8[frames], N++ input bytes.
    run: result of ``nppsim.simulate(level, inputs)``; None: this function simulates the inputs.
    Raises MissingPackageError without PyAV or Pillow, RenderError for an invalid ``settings``.
    """
    av = import_optional("av", "video")
    run = run or simulate(level, inputs)
    pictures, fps = render.frames(level, inputs, settings, run=run), settings.fps
    again = round(REPEAT_S * fps) if (settings.outcome or run.outcome) == NAMES[DIED] else 0
    with replacing(path) as temporary:
        # absolute: in a relative path, FFmpeg interprets text before ":" as a protocol
        with av.open(os.path.abspath(temporary), "w", format="mp4", options={"movflags": "+faststart"}) as container:
            stream = container.add_stream("libx264", rate=fps)
            stream.pix_fmt = "yuv420p"
            stream.options = {"crf": str(CRF), "preset": "veryfast", "tune": "animation"}
            stream.codec_context.thread_count = 1
            first = next(pictures)
            stream.height, stream.width = first.shape[:2]
            for picture in _with_ending(itertools.chain([first], pictures), round(HOLD_S * fps), again):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())
    return Path(path)


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
