"""Films (H.264 mp4) and route pictures of episodes, made from (level, inputs) alone.  Needs the extra ``video``.

    record("run.mp4", level, inputs, fps=30, title="simple_004", category="simple", outcome="won")
    record_evaluation(episodes, run_folder, max_per_category=5, fps=30)

An evaluation's folder then holds ``videos/<category>/<category>_NNN_success.mp4`` (or ``_failure``), and a picture of
the same name in ``route_visualizations/<category>/``.
"""

import itertools
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import nppsim
from nppsim.errors import UserError, needed
from nppsim.files import replacing
from nppsim.levels.level import Level
from nppsim.outcomes import DIED, NAMES, TIMEOUT, UNFINISHED
from nppsim.pictures import render
from nppsim.simulate import Run
from rl.judge.results import EpisodeRecord

CRF = 20  # x264's quality: 18 is visually lossless, 28 shows artefacts; flat drawings stay small at 20
HOLD_S = 1.0  # seconds for which the last picture stays
AGAIN_S = 0.75  # seconds before a death that are shown once more
SLOWER = 5  # times as slowly


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


def record(
    path: str | os.PathLike,
    level: Level,
    inputs: np.ndarray,
    *,
    fps: int = 30,
    title: str = "",
    category: str = "",
    outcome: str | None = None,
    run: Run | None = None,
) -> Path:
    """Film one episode in real time, a death once more in slow motion; the file appears only once it is complete.

    Returns its path.

    inputs: uint8[frames], N++ input bytes.
    fps: 1..60.
    title, category: texts below the film.
    outcome: "won", "died" or "timeout" (default: what the simulator says).
    run: ``nppsim.simulate(level, inputs)`` where the caller has it already.
    Raises MissingPackageError without PyAV or Pillow, RenderError for an fps out of range.
    """
    av = needed("av", "video")
    run = run or nppsim.simulate(level, inputs)
    pictures = render.frames(level, inputs, fps, title=title, category=category, outcome=outcome, run=run)
    again = round(AGAIN_S * fps) if (outcome or run.outcome) == NAMES[DIED] else 0
    with replacing(path) as temporary:
        with av.open(str(temporary), "w", format="mp4", options={"movflags": "+faststart"}) as container:
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


def _ended(pictures: Iterator[np.ndarray], hold: int, again: int) -> Iterator[np.ndarray]:
    """The pictures, the last one ``hold`` times more, and then the last ``again`` of them slowly, and that hold once more."""
    last: deque[np.ndarray] = deque(maxlen=max(again, 1))
    for picture in pictures:
        last.append(picture)
        yield picture
    yield from itertools.repeat(picture, hold)
    if again:
        for picture in last:
            yield from itertools.repeat(picture, SLOWER)
        yield from itertools.repeat(picture, hold)


def record_evaluation(
    episodes: Sequence[EpisodeRecord], out_dir: str | os.PathLike, max_per_category: int = 5, fps: int = 30
) -> list[Film]:
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
        name = re.sub(r"^\.+|[^\w.-]+", "_", category)  # a name for a folder, and never "..": it stays in out_dir
        _remove_films(out_dir, name)
        films += [_film(e, out_dir, name, i, fps) for i, e in enumerate(_chosen(group, max_per_category))]
    return films


def _remove_films(out_dir: Path, name: str) -> None:
    """Remove what an earlier evaluation has left of a category."""
    made = re.compile(re.escape(name) + r"_\d{3,}_(success|failure)\.(mp4|png)")
    for folder in ("videos", "route_visualizations"):
        for old in (out_dir / folder / name).glob("*"):
            if made.fullmatch(old.name):
                old.unlink()


def _film(episode: EpisodeRecord, out_dir: Path, name: str, number: int, fps: int) -> Film:
    """Film and route picture of one episode; name: of its category, in paths."""
    stem = f"{name}_{number:03d}_{'success' if episode.won else 'failure'}"
    video, route = f"videos/{name}/{stem}.mp4", f"route_visualizations/{name}/{stem}.png"
    run = _played(episode)
    title, outcome = episode.level_name, episode.outcome
    picture = render.draw_route(episode.level, run, crop=True, title=title, outcome=outcome)
    with replacing(out_dir / route) as temporary:
        picture.save(temporary, format="PNG")
    record(
        out_dir / video,
        episode.level,
        episode.inputs,
        fps=fps,
        title=title,
        category=episode.category,
        outcome=outcome,
        run=run,
    )
    return Film(episode.category, title, outcome, episode.frames, video, route)


def _chosen(group: Sequence[EpisodeRecord], limit: int) -> list[EpisodeRecord]:
    """Up to ``limit`` episodes, won and lost ones in turn, the more frequent kind first."""
    won = [e for e in group if e.won]
    lost = [e for e in group if not e.won]
    first, second = (won, lost) if len(won) >= len(lost) else (lost, won)
    turns = [e for pair in itertools.zip_longest(first, second) for e in pair if e is not None]
    return turns[:limit]


def _played(episode: EpisodeRecord) -> Run:
    run = nppsim.simulate(episode.level, episode.inputs)
    expected = UNFINISHED if episode.outcome == NAMES[TIMEOUT] else episode.outcome
    if run.outcome != expected or run.frames != episode.frames:
        raise VideoError(
            f"episode on {episode.level_name!r}: its inputs play back to {run.outcome!r} after {run.frames} frames, "
            f"recorded were {episode.outcome!r} and {episode.frames}; the record does not belong to this level"
        )
    return run
