"""Films: written files are decoded and compared with the requested content."""

from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

import nppsim
from nppsim.actions import RIGHT
from nppsim.errors import MissingPackageError
from nppsim.pictures.film import HOLD_S, REPEAT_S, SLOW_FACTOR, record
from nppsim.pictures.render import FilmSettings, RenderError, film_steps, frames
from nppsim.pictures.schemes import SCHEMES
from nppsim.replays.ending import ending_of
from nppsim.replays.replay import Replay
from rl.config import VideoConfig
from rl.evaluation.results import EpisodeRecord
from rl.evaluation.video import _subtasks, record_evaluation

from packages import hide
from worlds import small_room as corridor

VIDEO = VideoConfig(record_eval_videos=True)


def decoded(path):
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        return stream.codec_context.name, stream.codec_context.pix_fmt, float(stream.average_rate), pictures


def episode(outcome, category="simplest", frames_played=None, name="corridor"):
    level = corridor()
    if outcome == "won":
        inputs = np.full(600, RIGHT, np.uint8)[: nppsim.simulate(level, np.full(600, RIGHT, np.uint8)).frames]
    else:
        inputs = np.zeros(frames_played or 12, np.uint8)
    return EpisodeRecord(0, name, category, level, inputs, outcome, len(inputs), len(inputs) // 4, 1.0, 0, 200.0)


@pytest.mark.parametrize("fps", [30, 60])
def test_films_are_h264_of_the_requested_rate_and_size(tmp_path, fps):
    level, inputs = corridor(), np.full(20, RIGHT, np.uint8)
    path = record(tmp_path / "films" / "a.mp4", level, inputs, FilmSettings(fps=fps, title="corridor"))
    codec, pixels, rate, pictures = decoded(path)
    assert codec == "h264" and pixels == "yuv420p" and rate == fps
    assert len(pictures) == len(film_steps(20, fps)) + round(HOLD_S * fps)
    first = next(frames(level, inputs, FilmSettings(fps=fps)))
    assert pictures[0].shape == first.shape
    assert [p.name for p in path.parent.iterdir()] == ["a.mp4"]  # nothing half-written left
    content = path.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")  # starts to play before it is loaded


def test_record_relative_path_with_colon_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record("tr:out/a?%41 é.mp4", corridor(), np.full(4, RIGHT, np.uint8))
    assert decoded(tmp_path / "tr:out" / "a?%41 é.mp4")


def test_decoded_frames_equal_the_drawn_ones(tmp_path):
    level, inputs = corridor(), np.full(20, RIGHT, np.uint8)
    *_, pictures = decoded(record(tmp_path / "a.mp4", level, inputs))
    films = list(frames(level, inputs))
    for drawn, seen in zip(films, pictures[: len(films)], strict=True):
        assert np.abs(drawn.astype(int) - seen).mean() < 4


def test_films_of_an_evaluation_have_the_chosen_colours(tmp_path):
    (film,) = record_evaluation([episode("won")], tmp_path, replace(VIDEO, video_colours="neon"), frame_skip=4)
    *_, pictures = decoded(tmp_path / film.video)
    assert np.abs(pictures[0][2, 2].astype(int) - SCHEMES["neon"]["tile"]).max() < 12
    assert SCHEMES["neon"]["tile"] in {colour for _, colour in Image.open(tmp_path / film.route).getcolors(1 << 20)}


def test_films_name_the_active_subtask():
    won = episode("won")
    subtasks = np.array([[i % 2, 0] for i in range(won.decisions + 1)])
    conditioned = replace(won, decisions=won.decisions + 1, subtasks=subtasks)
    notes = _subtasks(conditioned, 4)
    assert len(notes) == won.frames
    assert notes[:5] == ["subtask: exit switch"] * 4 + ["subtask: locked door"]
    short = replace(conditioned, inputs=conditioned.inputs[:9], frames=9, decisions=3)
    assert _subtasks(short, 4) == notes[:9]
    assert _subtasks(won, 4) == []
    plain = list(frames(won.level, won.inputs))
    named = list(frames(won.level, won.inputs, FilmSettings(notes=notes)))
    for one, other in zip(plain, named, strict=True):
        rows = np.flatnonzero((one != other).any(axis=(1, 2)))
        assert len(rows) and rows.min() > 0.5 * len(one)  # below the picture
    assert (named[1] != named[3]).any()
    with pytest.raises(RenderError, match="1 notes for a run"):
        next(frames(won.level, won.inputs, FilmSettings(notes=["one"])))


def test_deaths_are_repeated_in_slow_motion(tmp_path):
    level, inputs = corridor(), np.full(40, RIGHT, np.uint8)
    *_, lived = decoded(record(tmp_path / "a.mp4", level, inputs, FilmSettings(outcome="timeout")))
    *_, died = decoded(record(tmp_path / "b.mp4", level, inputs, FilmSettings(outcome="died")))
    shown = min(round(REPEAT_S * 30), len(film_steps(40, 30)))
    assert len(died) - len(lived) == SLOW_FACTOR * shown + round(HOLD_S * 30)
    again = died[len(lived) :: SLOW_FACTOR][:shown]
    played = lived[: -round(HOLD_S * 30)][-shown:]
    assert all(np.abs(a.astype(int) - b).mean() < 4 for a, b in zip(again, played, strict=True))


def test_errors_leave_no_file(tmp_path):
    with pytest.raises(ValueError, match="fps=90"):
        record(tmp_path / "a.mp4", corridor(), np.zeros(4, np.uint8), FilmSettings(fps=90))
    assert not list(tmp_path.iterdir())


def test_only_files_of_an_earlier_evaluation_are_deleted(tmp_path):
    mine = tmp_path / "videos" / "simplest" / "simplest_000_failure.replay"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"not written by an evaluation")
    for played in ([episode("won")], []):
        mine.write_bytes(b"not written by an evaluation")
        record_evaluation(played, tmp_path, VIDEO, frame_skip=4)
        assert mine.exists()
    assert [path.name for path in tmp_path.rglob("*success*")] == []


def test_films_and_replays_of_both_outcomes(tmp_path):
    episodes = [episode("won")] * 3 + [episode("timeout"), episode("timeout", "odd/name")]
    for _ in range(2):  # a second evaluation replaces the films of the first
        films = record_evaluation(episodes, tmp_path, replace(VIDEO, max_videos_per_category=2), frame_skip=4)
    assert [film.video for film in films] == [
        "videos/simplest/simplest_000_success.mp4",
        "videos/simplest/simplest_001_failure.mp4",
        "videos/odd_name/odd_name_000_failure.mp4",
    ]
    assert films[1].outcome == "timeout" and films[1].level_name == "corridor"
    assert films[0].why == ""
    assert films[1].why == ending_of(episodes[3].level, episodes[3].inputs).text()
    for film in films:
        assert len(decoded(tmp_path / film.video)[-1]) == len(film_steps(film.frames, 30)) + round(HOLD_S * 30)
        replay = Replay.load((tmp_path / film.video).with_suffix(".replay"))
        assert any(np.array_equal(replay.inputs, one.inputs) and replay.success == one.won for one in episodes)
        assert replay.success == film.video.endswith("success.mp4")
        with Image.open(tmp_path / film.route) as picture:
            assert picture.width >= 576
    assert len(list(tmp_path.rglob("*.mp4"))) == len(list(tmp_path.rglob("*.png"))) == 3


def test_category_names_cannot_leave_the_folder(tmp_path):
    (film,) = record_evaluation([episode("timeout", "../..")], tmp_path / "out", VIDEO, frame_skip=4)
    assert film.category == "../.." and film.video.startswith("videos/_")
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and (tmp_path / "out" / film.video).is_file()


def test_similar_categories_have_separate_folders(tmp_path):
    films = record_evaluation(
        [episode("timeout", "very simple"), episode("timeout", "very_simple")], tmp_path, VIDEO, frame_skip=4
    )
    assert len({Path(film.video).parent for film in films}) == 2
    assert all((tmp_path / film.video).is_file() for film in films)


def test_film_of_an_episode_without_inputs(tmp_path):
    level = corridor()
    empty = EpisodeRecord(0, "none", "c", level, np.zeros(0, np.uint8), "timeout", 0, 0, 0.0, 0, 0.0)
    (film,) = record_evaluation([empty], tmp_path, VIDEO, frame_skip=4)
    assert len(decoded(tmp_path / film.video)[-1]) == 1 + round(HOLD_S * 30)


@pytest.mark.parametrize("package", ["av", "PIL"])
def test_missing_package_is_an_error(tmp_path, monkeypatch, package):
    hide(monkeypatch, package)
    with pytest.raises(MissingPackageError, match=rf"{package} .*nppsim\[video\]"):
        record(tmp_path / "a.mp4", corridor(), np.zeros(4, np.uint8))
    assert not list(tmp_path.iterdir())
