"""Films and route pictures of the episodes of an evaluation.  Needs the extra ``video``.

    record_evaluation(episodes, run_folder, frame_skip=4, max_per_category=5, fps=30)

An evaluation's folder then holds ``videos/<category>/<category>_NNN_success.mp4`` (or ``_failure``), the run as a replay
beside it (``.replay``), and a picture of the same name in ``route_visualizations/<category>/``.
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
from nppsim.errors import UserError, needed
from nppsim.files import replacing
from nppsim.outcomes import NAMES, TIMEOUT, UNFINISHED, WON
from nppsim.pictures import render
from nppsim.pictures.film import length, record
from nppsim.pictures.render import FilmLook
from nppsim.planner import plan
from nppsim.replays.replay import Replay
from nppsim.simulate import Run
from nppsim.workers import usable_cores
from rl.evaluation.results import EpisodeRecord
from rl.policy.subtasks import SUBTASKS


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


def record_evaluation(
    episodes: Sequence[EpisodeRecord],
    out_dir: str | os.PathLike,
    *,
    frame_skip: int,
    max_per_category: int = 5,
    fps: int = 30,
    ghost: bool = False,
) -> list[Film]:
    """Films and route pictures of a few episodes per category, numbered from 000.

    frame_skip: frames per decision, with which they were played.
    ghost: show a run of the planner, too, pale, where it finds one.
    Chosen in the order given, successes and failures in turn, so that both are shown where both happened (the file
    names are no statistics).  Earlier films of these categories in the folder are replaced.  Raises VideoError if an
    episode's inputs do not play back to its recorded outcome.
    """
    out_dir = Path(out_dir)
    groups: dict[str, list[EpisodeRecord]] = {}
    for episode in episodes:
        groups.setdefault(episode.category, []).append(episode)
    wanted: list[tuple[EpisodeRecord, str, int]] = []  # name: of the category, in paths
    taken: set[str] = set()
    for category, group in groups.items():
        plain = re.sub(r"^\.+|[^\w.-]+", "_", category)  # a name for a folder, and never "..": it stays in out_dir
        name = next(name for name in (plain, *(f"{plain}_{i}" for i in range(2, len(groups) + 2))) if name not in taken)
        taken.add(name)
        _remove_films(out_dir, name)
        wanted += [(e, name, i) for i, e in enumerate(_chosen(group, max_per_category))]
    with ThreadPoolExecutor(usable_cores()) as pool:  # encoding, a good third of the work, needs no interpreter
        films = list(pool.map(partial(_film, out_dir, frame_skip, fps, ghost), *zip(*wanted, strict=True)))
    check_films(films, episodes, out_dir, fps)
    return films


def check_films(films: Sequence[Film], episodes: Sequence[EpisodeRecord], out_dir: Path, fps: int) -> None:
    """VideoError unless each film is as long as an episode of its name, won or not, and the replay beside it is that one."""
    av = needed("av", "video")
    for film in films:
        video = out_dir / film.video
        with av.open(str(video)) as container:
            pictures = container.streams.video[0].frames
        named = [
            episode
            for episode in episodes
            if (film.category, film.level_name, film.outcome, film.frames)
            == (episode.category, episode.level_name, episode.outcome, episode.frames)
        ]
        beside = Replay.load(video.with_suffix(".replay")) if film.frames else None
        played = [one for one in named if beside is None or _is_of(beside, one)]
        told = "success" if film.outcome == NAMES[WON] else "failure"
        if not played or not video.stem.endswith(told) or pictures != length(film.frames, film.outcome, fps):
            raise VideoError(
                f"{video}: is to show {film.level_name!r}, {film.outcome} after {film.frames} frames; it has {pictures} "
                f"pictures, and the replay beside it {'is' if played else 'is not'} of such an episode: film, replay and "
                "name are of different episodes"
            )


def _is_of(replay: Replay, episode: EpisodeRecord) -> bool:
    same = replay.level.fingerprint == episode.level.fingerprint and replay.success == episode.won
    return same and np.array_equal(replay.inputs, episode.inputs)


def _remove_films(out_dir: Path, name: str) -> None:
    """Remove what an earlier evaluation has left of a category."""
    made = re.compile(re.escape(name) + r"_\d{3,}_(success|failure)\.(mp4|png|replay)")
    for folder in ("videos", "route_visualizations"):
        for old in (out_dir / folder / name).glob("*"):
            if made.fullmatch(old.name):
                old.unlink()


def _film(
    out_dir: Path, frame_skip: int, fps: int, ghost: bool, episode: EpisodeRecord, name: str, number: int
) -> Film:
    """Film and route picture of one episode; name: of its category, in paths."""
    stem = f"{name}_{number:03d}_{'success' if episode.won else 'failure'}"
    video, route = f"videos/{name}/{stem}.mp4", f"route_visualizations/{name}/{stem}.png"
    run = _played(episode)
    title, outcome = episode.level_name, episode.outcome
    picture = render.draw_route(episode.level, run, crop=True, title=title, outcome=outcome)
    with replacing(out_dir / route) as temporary:
        picture.save(temporary, format="PNG")
    planned = plan(episode.level) if ghost else None
    look = FilmLook(
        fps=fps,
        title=title,
        category=episode.category,
        outcome=outcome,
        ghost=planned.inputs if planned else None,
        ghost_name="planner",
        notes=_subtasks(episode, frame_skip),
    )
    record(out_dir / video, episode.level, episode.inputs, look, run=run)
    if episode.frames:  # no replay is empty
        Replay(episode.level, episode.inputs, success=episode.won).save((out_dir / video).with_suffix(".replay"))
    return Film(episode.category, title, outcome, episode.frames, video, route)


def _subtasks(episode: EpisodeRecord, frame_skip: int) -> list[str]:
    """The subtask in force at each frame, in words; [] without any."""
    if episode.commands is None:
        return []
    names = np.array(SUBTASKS)[episode.commands[:, 0]]
    return [f"subtask: {name.replace('_', ' ')}" for name in names[np.arange(episode.frames) // frame_skip]]


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
