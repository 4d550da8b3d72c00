"""Films and route pictures of evaluation episodes.  Needs the extra ``video``.

    record_evaluation(episodes, run_folder, VideoConfig(record_eval_videos=True), frame_skip=4)

The folder then contains ``videos/<category>/<category>_NNN_success.mp4`` (or ``_failure``).  Beside each film is the
replay of the episode (``.replay``).  ``route_visualizations/<category>/`` contains a picture of the same name.
"""

import itertools
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

import nppsim
from nppsim.io.files import replacing, write_text
from nppsim.parallel.workers import usable_cores
from nppsim.pictures import render
from nppsim.pictures.film import record
from nppsim.pictures.render import FilmSettings
from nppsim.pictures.schemes import colour_scheme
from nppsim.planner import plan
from nppsim.replays.ending import ending_of
from nppsim.replays.replay import Replay
from rl.config import VideoConfig
from rl.evaluation.results import EpisodeRecord
from rl.policy.subtasks import SUBTASKS


@dataclass(frozen=True)
class Film:
    """One recorded episode.

    video, route: paths relative to the evaluation's folder.
    why: why the episode is lost, see ``Ending.text``; "" for a won one.
    """

    category: str
    level_name: str
    outcome: str
    frames: int
    video: str
    route: str
    why: str = ""


def record_evaluation(
    episodes: Sequence[EpisodeRecord], out_dir: str | os.PathLike, video: VideoConfig, *, frame_skip: int
) -> list[Film]:
    """Write films and route pictures of a few episodes per category, numbered from 000, if ``video`` enables them.

    frame_skip: frames per decision in these episodes.
    Successes and failures alternate, so the file names are not representative.  Files that an earlier call wrote there
    (``videos/written.txt``) are deleted.
    """
    if not video.record_eval_videos:
        return []
    out_dir = Path(out_dir)
    groups: dict[str, list[EpisodeRecord]] = {}
    for episode in episodes:
        groups.setdefault(episode.category, []).append(episode)
    wanted: list[tuple[EpisodeRecord, str, int]] = []  # episode, folder of its category, number
    used: set[str] = set()
    for category, group in groups.items():
        plain = re.sub(r"^\.+|[^\w.-]+", "_", category)  # a valid folder name, never ".."
        name = next(name for name in (plain, *(f"{plain}_{i}" for i in range(2, len(groups) + 2))) if name not in used)
        used.add(name)
        wanted += [(e, name, i) for i, e in enumerate(_chosen(group, video.max_videos_per_category))]
    _replace_films(out_dir, [file for episode, name, number in wanted for file in _files(episode, name, number)])
    # Encoding, a third of the time, releases the GIL.
    with colour_scheme(video.video_colours), ThreadPoolExecutor(usable_cores()) as pool:
        return list(pool.map(partial(_film, out_dir, frame_skip, video), *zip(*wanted, strict=True)))


def _files(episode: EpisodeRecord, name: str, number: int) -> tuple[str, str, str]:
    """Return the relative paths of film, replay and route picture of an episode."""
    stem = f"{name}/{name}_{number:03d}_{'success' if episode.won else 'failure'}"
    return f"videos/{stem}.mp4", f"videos/{stem}.replay", f"route_visualizations/{stem}.png"


def _replace_films(out_dir: Path, files: list[str]) -> None:
    """Delete the files of an earlier evaluation, and record the files of this one."""
    written = out_dir / "videos" / "written.txt"
    if written.exists():
        for name in written.read_text(encoding="utf-8").splitlines():
            if (out_dir / name).resolve().is_relative_to(out_dir.resolve()):
                (out_dir / name).unlink(missing_ok=True)
    write_text(written, "".join(f"{name}\n" for name in files))


def _film(
    out_dir: Path, frame_skip: int, config: VideoConfig, episode: EpisodeRecord, folder: str, number: int
) -> Film:
    """Write film and route picture of one episode.  folder: that of its category."""
    video, replay, route = _files(episode, folder, number)
    run = nppsim.simulate(episode.level, episode.inputs)
    title, outcome = episode.level.caption, episode.outcome
    ending = None if episode.won else ending_of(episode.level, episode.inputs)
    why, marked = ("", None) if ending is None else (ending.text(episode.backtracks), ending.farthest_frame)
    name = f"{title}: {why}" if why else title
    picture = render.draw_route(episode.level, run, crop=True, title=name, outcome=outcome, marked=marked)
    with replacing(out_dir / route) as temporary:
        picture.save(temporary, format="PNG")
    planned = plan(episode.level) if config.ghost else None
    look = FilmSettings(
        fps=config.video_fps,
        title=title,
        category=episode.category,
        outcome=outcome,
        second=planned.inputs if planned else None,
        second_name="planner",
        notes=_subtasks(episode, frame_skip),
    )
    record(out_dir / video, episode.level, episode.inputs, look, run=run)
    if episode.frames:  # a replay file must have at least one frame
        Replay(episode.level, episode.inputs, success=episode.won).save(out_dir / replay)
    return Film(episode.category, title, outcome, episode.frames, video, route, why)


def _subtasks(episode: EpisodeRecord, frame_skip: int) -> list[str]:
    """Return the name of the active subtask at each frame; [] without subtasks."""
    if episode.subtasks is None:
        return []
    names = np.array(SUBTASKS)[episode.subtasks[:, 0]]
    return [f"subtask: {name.replace('_', ' ')}" for name in names[np.arange(episode.frames) // frame_skip]]


def _chosen(group: Sequence[EpisodeRecord], limit: int) -> list[EpisodeRecord]:
    """Choose up to ``limit`` episodes, wins and losses in turn, the more frequent kind first."""
    won = [e for e in group if e.won]
    lost = [e for e in group if not e.won]
    first, second = (won, lost) if len(won) >= len(lost) else (lost, won)
    turns = [e for pair in itertools.zip_longest(first, second) for e in pair if e is not None]
    return turns[:limit]
