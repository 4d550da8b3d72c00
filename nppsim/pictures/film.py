"""Films (H.264 mp4) of a run, made from (level, inputs) alone.  Needs the extra ``video``.

record("run.mp4", level, inputs, FilmLook(title="simple_004", category="simple", outcome="won"))
"""

import itertools
import math
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nppsim.actions import FRAMES_PER_SECOND
from nppsim.errors import needed
from nppsim.files import replacing
from nppsim.levels.level import Level
from nppsim.outcomes import DIED, NAMES
from nppsim.pictures import render
from nppsim.pictures.render import USUAL, FilmLook
from nppsim.simulate import Run, simulate

CRF = 20  # x264's quality: 18 is visually lossless, 28 shows artefacts; flat drawings stay small at 20
HOLD_S = 1.0  # seconds for which the last picture stays
AGAIN_S = 0.75  # seconds before a death that are repeated
SLOWER = 5  # times as slowly


def record(
    path: str | os.PathLike, level: Level, inputs: np.ndarray, look: FilmLook = USUAL, *, run: Run | None = None
) -> Path:
    """Film one episode in real time, a death repeated in slow motion; the file appears only once it is complete.

    Returns its path.

    inputs: uint8[frames], N++ input bytes.
    run: ``nppsim.simulate(level, inputs)`` where the caller has it already.
    Raises MissingPackageError without PyAV or Pillow, RenderError for a ``look`` that cannot be drawn.
    """
    av = needed("av", "video")
    run = run or simulate(level, inputs)
    pictures, fps = render.frames(level, inputs, look, run=run), look.fps
    again = round(AGAIN_S * fps) if (look.outcome or run.outcome) == NAMES[DIED] else 0
    with replacing(path) as temporary:
        # absolute: FFmpeg takes what precedes ":" in a relative path for a protocol
        with av.open(os.path.abspath(temporary), "w", format="mp4", options={"movflags": "+faststart"}) as container:
            stream = container.add_stream("libx264", rate=fps)
            stream.pix_fmt = "yuv420p"
            stream.options = {"crf": str(CRF), "preset": "veryfast", "tune": "animation"}
            stream.codec_context.thread_count = 1
            first = next(pictures)
            stream.height, stream.width = first.shape[:2]
            for picture in _ended(itertools.chain([first], pictures), round(HOLD_S * fps), again):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())
    return Path(path)


def length(frames: int, outcome: str, fps: int) -> int:
    """Pictures of the film of an episode of so many frames."""
    shown, hold = math.ceil(frames * fps / FRAMES_PER_SECOND) + 1, round(HOLD_S * fps)
    again = min(shown, round(AGAIN_S * fps)) if outcome == NAMES[DIED] else 0
    return shown + hold + (SLOWER * again + hold if again else 0)


def _ended(pictures: Iterator[np.ndarray], hold: int, again: int) -> Iterator[np.ndarray]:
    """Yield the pictures, the last one ``hold`` more times, then the last ``again`` slowly, and the last one as before."""
    last: deque[np.ndarray] = deque(maxlen=max(again, 1))
    for picture in pictures:
        last.append(picture)
        yield picture
    yield from itertools.repeat(picture, hold)
    if again:
        for picture in last:
            yield from itertools.repeat(picture, SLOWER)
        yield from itertools.repeat(picture, hold)
