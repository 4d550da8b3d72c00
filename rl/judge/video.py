"""Films (H.264 mp4) and route pictures of episodes, made from (level, inputs) alone.  Needs the extra ``video``.

    record("run.mp4", level, inputs, fps=30, title="simple_004", category="simple", outcome="won")
    record_evaluation(episodes, run_folder, max_per_category=5, fps=30)

An evaluation's folder then holds ``videos/<category>/<category>_NNN_success.mp4`` (or ``_failure``), and a picture of
the same name in ``route_visualizations/<category>/``.
"""

import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import nppsim
from nppsim.errors import UserError
from nppsim.files import replacing
from nppsim.pictures import render
from rl.judge.results import EpisodeRecord

CRF = 20  # x264's quality: 18 is visually lossless, 28 shows artefacts; flat drawings stay small at 20
HOLD_S = 1.0  # seconds for which the last picture stays


class VideoError(UserError, RuntimeError):
    """A film that cannot be made; the message says which and why."""


@dataclass(frozen=True)
class Film:
    """One recorded episode.  video, route: paths relative to the evaluation's folder."""

    category: str
    level_name: str
    outcome: str
    frames: int
    video: str
    route: str


def record(path: str | os.PathLike, level, inputs: np.ndarray, *, fps: int = 30, title: str = "", category: str = "",
           outcome: str | None = None, run=None, scale: float = 1.0) -> Path:  # fmt: skip
    """Film one episode in real time; the file appears only once it is complete.

    inputs: uint8[frames], N++ input bytes.  fps: 1..60.  outcome: "won", "died" or "timeout" (default: what the
    simulator says).  run: ``nppsim.simulate(level, inputs)`` where the caller has it already.  Returns the path.
    Raises VideoError if PyAV is missing, ValueError for an fps out of range.
    """
    av = _pyav()
    if run is None:
        run = nppsim.simulate(level, inputs)
    pictures = render.frames(level, inputs, fps, scale, title=title, category=category, outcome=outcome, run=run)
    with replacing(path) as temporary:
        with av.open(str(temporary), "w", format="mp4", options={"movflags": "+faststart"}) as container:
            stream = container.add_stream("libx264", rate=fps)
            stream.pix_fmt = "yuv420p"
            stream.options = {"crf": str(CRF), "preset": "veryfast", "tune": "animation"}
            stream.codec_context.thread_count = 1
            first = next(pictures)
            stream.height, stream.width = first.shape[:2]
            for picture in itertools.chain([first], pictures):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            for _ in range(round(HOLD_S * fps)):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())
    return Path(path)


def record_evaluation(episodes: Sequence[EpisodeRecord], out_dir: str | os.PathLike, max_per_category: int = 5,
                      fps: int = 30) -> list[Film]:  # fmt: skip
    """Films and route pictures of a few episodes per category, numbered from 000.

    Chosen in the order given, successes and failures in turn, so that both are shown where both happened (the file
    names are no statistics).  Earlier films of these categories in the folder are replaced.  Raises VideoError if an
    episode's inputs do not play back to its recorded outcome.
    """
    out_dir = Path(out_dir)
    groups: dict[str, list[EpisodeRecord]] = {}
    for episode in episodes:
        groups.setdefault(episode.category, []).append(episode)
    films = []
    for category, group in groups.items():
        name = re.sub(r"[^\w.-]+", "_", category)
        videos, routes = out_dir / "videos" / name, out_dir / "route_visualizations" / name
        for old in itertools.chain(videos.glob("*.mp4"), routes.glob("*.png")):
            if re.fullmatch(re.escape(name) + r"_\d{3,}_(success|failure)\.(mp4|png)", old.name):
                old.unlink()
        routes.mkdir(parents=True, exist_ok=True)
        for i, episode in enumerate(_chosen(group, max_per_category)):
            stem = f"{name}_{i:03d}_{'success' if episode.outcome == 'won' else 'failure'}"
            run = _played(episode)
            about = {"outcome": episode.outcome, "title": episode.level_name}
            picture = render.draw_route(episode.level, run, crop=True, **about)
            picture.save(routes / f"{stem}.png")
            record(videos / f"{stem}.mp4", episode.level, episode.inputs, fps=fps, category=category, run=run, **about)
            video, route = ((folder / stem).relative_to(out_dir).as_posix() for folder in (videos, routes))
            films.append(
                Film(category, episode.level_name, episode.outcome, episode.frames, f"{video}.mp4", f"{route}.png")
            )
    return films


def _chosen(group, limit):
    """Up to ``limit`` episodes, won and lost ones in turn, the more frequent kind first."""
    won = [e for e in group if e.outcome == "won"]
    lost = [e for e in group if e.outcome != "won"]
    first, second = (won, lost) if len(won) >= len(lost) else (lost, won)
    turns = [e for pair in itertools.zip_longest(first, second) for e in pair if e is not None]
    return turns[:limit]


def _played(episode):
    run = nppsim.simulate(episode.level, episode.inputs)
    expected = "running" if episode.outcome == "timeout" else episode.outcome
    if run.outcome != expected or run.frames != episode.frames:
        raise VideoError(
            f"episode on {episode.level_name!r}: its inputs play back to {run.outcome!r} after {run.frames} frames, "
            f"recorded were {episode.outcome!r} and {episode.frames}; the record does not belong to this level"
        )
    return run


def _pyav():
    try:
        import av
    except ImportError as error:
        raise VideoError('films need PyAV: install the extra "video", e.g. pip install -e ".[video]"') from error
    return av
