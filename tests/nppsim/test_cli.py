"""``python -m nppsim``: output of the commands, and one-line errors with exit status 2."""

import json
import subprocess
import sys

import h5py
import numpy as np
import pytest

import nppsim
from nppsim.__main__ import main
from nppsim.errors import BROKEN_PIPE
from nppsim.generate import generate
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.pictures import render
from nppsim.pictures.film import HOLD_S
from nppsim.planner.second_run import second_run
from nppsim.replays.notes import level_notes
from nppsim.replays.replay import Replay, ReplayError
from nppsim.replays.replay_set import ReplayWriter

from places import ROOT
from worlds import FLOOR, corridor, tiles


@pytest.fixture
def files(tmp_path):
    """A level, and a replay that goes right and jumps on it."""
    level = generate("simple", 3)[0]
    level.save(tmp_path / "level.map")
    inputs = np.array([2] * 30 + [3] * 20 + [4] * 10, np.uint8)
    nppsim.Replay(level, inputs).save(tmp_path / "play.replay")
    return tmp_path


def test_simulate_prints_simulator_results(files, capsys):
    run = nppsim.simulate(nppsim.Level.load(files / "level.map"), nppsim.Replay.load(files / "play.replay").inputs)
    assert main(["simulate", str(files / "play.replay"), "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main(["simulate", str(files / "level.map"), "--replay", str(files / "play.replay"), "--json"]) == 0
    with_level = json.loads(capsys.readouterr().out)
    assert {**alone, "level": ""} == {**with_level, "level": ""}
    assert alone["outcome"] == run.outcome and alone["frames"] == run.frames
    assert alone["position"] == run.position[-1].tolist()
    assert alone["gold"] == run.gold[-1] and alone["win_fraction"] == run.win_fraction
    assert main(["simulate", str(files / "play.replay")]) == 0
    text = capsys.readouterr().out
    assert alone["time"] == 1.0 and alone["score"] is None
    assert f"outcome       {run.outcome}\n" in text and repr(float(run.position[-1, 0])) in text


def test_simulate_replay_of_other_level_prints_note(files, capsys):
    generate("simplest", 0)[0].save(files / "other.map")
    assert main(["simulate", str(files / "other.map"), "--replay", str(files / "play.replay")]) == 0
    assert "recorded on another level" in capsys.readouterr().err


def test_generate_writes_level_or_level_set(tmp_path, capsys):
    assert main(["generate", "simplest", str(tmp_path / "one.map"), "--seed", "5"]) == 0
    assert nppsim.Level.load(tmp_path / "one.map") == generate("simplest", 5)[0]
    assert main(["generate", "simple", str(tmp_path / "hard.map"), "--seed", "5", "--difficulty", "1"]) == 0
    assert nppsim.Level.load(tmp_path / "hard.map") == generate("simple", 5, 1.0)[0]
    assert main(["generate", "simpler", str(tmp_path / "many"), "--seed", "5", "--count", "3"]) == 0
    levels = nppsim.levels.level_set.LevelSet.open(tmp_path / "many")
    assert list(levels) == [generate("simpler", seed)[0] for seed in (5, 6, 7)]
    assert main(["generate", "simplr", str(tmp_path / "none"), "--count", "3"]) == 2
    assert "simpler" in capsys.readouterr().err and not (tmp_path / "none").exists()


def test_output_escapes_control_characters(tmp_path, capsys):
    """A title or a file name must not recolour, move or forge what a terminal shows."""
    level = generate("simple", 3)[0]
    title = "\x1b[31mred\rforged\x9b2J\u202eend\n1 levels"
    nppsim.Level(level.tiles, level.records, title=title).save(tmp_path / "a\x1b[2J.map")
    assert main(["levels", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert r"\x1b[31mred\rforged\x9b2J\u202eend\n1 levels" in out and r"a\x1b[2J.map" in out
    assert main(["levels", str(tmp_path / "none\x1b[2J\x07")]) == 2
    err += capsys.readouterr().err
    assert r"none\x1b[2J\x07" in err
    assert not any(c in out + err for c in "\x1b\r\x07\x9b\u202e")


def test_extract_level_of_replay_accepted_everywhere(files, tmp_path, capsys):
    pytest.importorskip("PIL")
    play, text, back = (str(files / name) for name in ("play.replay", "out.level", "back.map"))
    assert main(["render", play, str(tmp_path / "out.png"), "--scale", "0.25"]) == 0
    assert main(["plan", play, str(tmp_path / "won.replay")]) == 0
    assert main(["extract", play, text]) == 0 and main(["extract", text, back]) == 0
    assert "records" in capsys.readouterr().out
    assert (files / "back.map").read_bytes() == (files / "level.map").read_bytes()


def test_film_records_video(files, tmp_path, capsys):
    av = pytest.importorskip("av")
    film = str(tmp_path / "out.mp4")
    flags = ["--fps", "10", "--scale", "0.25", "--colours", "ocean", "--ghost"]
    assert main(["film", str(files / "play.replay"), film, *flags]) == 0
    assert "running after 60 frames (1.000 s)" in capsys.readouterr().out
    with av.open(film) as container:
        assert container.streams.video[0].average_rate == 10


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_film_records_picture_in_real_time(files, tmp_path, suffix):
    pytest.importorskip("av")
    image = pytest.importorskip("PIL.Image")
    film = tmp_path / f"out.{suffix}"
    assert main(["film", str(files / "play.replay"), str(film), "--scale", "0.25"]) == 0
    with image.open(film) as found:
        assert found.format == suffix.upper() and found.info["loop"] == 0 and found.n_frames > 10
        milliseconds = 0
        for frame in range(found.n_frames):
            found.seek(frame)
            found.load()
            milliseconds += found.info["duration"]
    assert milliseconds == pytest.approx(1000 * (1 + HOLD_S), abs=50), "60 frames, and the last picture"


def test_film_gif_too_many_pictures_raises_error(files, tmp_path, capsys):
    pytest.importorskip("av")
    assert main(["film", str(files / "play.replay"), str(tmp_path / "out.gif"), "--fps", "60"]) == 2
    assert "at most 50 pictures per second, not 60" in capsys.readouterr().err


def test_render_draws_level_route_and_sheet(files, tmp_path, capsys):
    image = pytest.importorskip("PIL.Image")
    level, out = str(files / "level.map"), str(tmp_path / "out.png")
    assert main(["render", level, out, "--scale", "0.5"]) == 0
    assert image.open(out).size == render.draw_level(nppsim.Level.load(level), 0.5, crop=True).size
    assert main(["render", level, out, "--replay", str(files / "play.replay"), "--scale", "0.5"]) == 0
    folder = tmp_path / "set"
    main(["generate", "simplest", str(folder), "--count", "2"])
    assert main(["render", "--sheet", str(folder), out]) == 0
    assert main(["render", "--sheet", str(folder), str(tmp_path / "neon.png"), "--colours", "neon"]) == 0
    assert image.open(tmp_path / "neon.png").tobytes() != image.open(out).tobytes()
    assert main(["render", "--sheet", str(folder), out, "--replay", str(files / "play.replay")]) == 2
    assert "--replay has no effect with --sheet" in capsys.readouterr().err
    (folder / "index.json").unlink()
    assert main(["render", "--sheet", str(folder), out]) == 0, "a plain folder of map files"


def test_render_sheet_spreads_levels_over_folder(tmp_path, monkeypatch):
    folder, shown = tmp_path / "set", []
    main(["generate", "simplest", str(folder), "--count", "5"])
    pytest.importorskip("PIL.Image")
    draw = render.contact_sheet
    monkeypatch.setattr(
        render, "contact_sheet", lambda levels, labels, **more: shown.extend(labels) or draw(levels, labels, **more)
    )
    assert main(["render", "--sheet", str(folder), str(tmp_path / "out.png"), "--count", "2"]) == 0
    assert shown == ["simplest/000000.map", "simplest/000002.map"]


def test_render_sheet_shows_pars_and_outcomes(tmp_path):
    levels = [(corridor(door=30 + i), LevelEntry("a", par_frames=par)) for i, par in enumerate((90, None, 120))]
    entries = LevelSet.write(tmp_path / "set", levels).entries
    with ReplayWriter(tmp_path / "runs.h5") as writer:
        for level, frames, won in ((0, 100, True), (0, 95, True), (0, 20, False), (1, 30, False)):
            writer.append(Replay(levels[level][0], np.zeros(frames, np.uint8), won))
    shown = [level for level, _ in levels]
    assert level_notes(shown, entries, None) == (["par 1.500 s", "", "par 2.000 s"], ["", "", ""])
    notes, outcomes = level_notes(shown, entries, str(tmp_path / "runs.h5"))
    assert notes == ["par 1.500 s, finished 2 of 3, 1.583 s", "finished 0 of 1", "par 2.000 s, not played"]
    assert outcomes == ["won", "died", ""]
    sheet = ["--sheet", str(tmp_path / "set"), "--replays", str(tmp_path / "runs.h5")]
    assert main(["render", *sheet, str(tmp_path / "a.png")]) == 0


def test_second_run_planner_or_replay_of_same_level(tmp_path):
    level, other = corridor(), corridor(door=33)
    inputs, name = second_run(level, "planner")
    assert name == "planner" and nppsim.simulate(level, inputs).won
    Replay(level, np.zeros(7, np.uint8)).save(tmp_path / "mine.replay")
    inputs, name = second_run(level, str(tmp_path / "mine.replay"))
    assert len(inputs) == 7 and name == "mine.replay"
    with pytest.raises(ReplayError, match=r"mine\.replay was recorded on another level"):
        second_run(other, str(tmp_path / "mine.replay"))
    shut = nppsim.Level.build(tiles(), (60, FLOOR))
    with pytest.raises(ReplayError, match="the planner found no run"):
        second_run(shut, "planner")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "absent"], "absent: cannot be read"),
        (["simulate", "absent.map", "--replay", "{play}"], "absent.map: No such file"),
        (["simulate", "{level}"], "level.map"),
        (["render", "{level}"], "give LEVEL and OUT.png"),
        (["render", "absent.map", "out.png"], "absent.map"),
        (
            ["render", "{level}", "{folder}/out.unknown"],
            "out.unknown: give a name that ends in .png",
        ),
        (["render", "--sheet", "{folder}", "out.png", "--count", "0"], "--count 0: give a whole number of at least 1"),
        (["extract", "absent.replay", "out.level"], "absent.replay: cannot be read"),
        (["film", "{play}", "out.avi"], "OUT.mp4 out.avi: give a name that ends in .mp4 or .gif or .webp"),
        (["diff", "{play}", "{play}", "--out", "out.gif"], "--out out.gif: give a name that ends in .png"),
        (["plan", "{walled}", "out.replay", "--budget", "100"], "100 frames; no path leads via an exit switch to its"),
        (["plan", "{odd}", "out.replay", "--budget", "100"], "warnings about the level: byte"),
        (["generate", "impossible", "out.map"], "category impossible: has no generators"),
        (["plan", "{level}", "{level}"], "level.map: give a name that ends in .replay"),
        (["plan", "{play}", "{play}"], "is an input"),
        (["plan", "{level}", "{folder}/out.replay", "--budget", "0"], "--budget 0: give a whole number of at least 1"),
        (
            ["plan", "{level}", "{folder}/out.replay", "--polish", "-1"],
            "--polish -1: give a whole number of at least 0",
        ),
        (["plan", "{level}", "{folder}/out.replay", "--seed", "-1"], "--seed -1: give a whole number of at least 0"),
        (["plan", "{level}", "{folder}/out.replay", "--min-hold", "0"], "0: give a whole number from 1 to 1,000"),
        (["plan", "{level}", "{folder}/out.replay", "--noise", "-1"], "--noise -1.0: give a number of at least 0"),
        (["extract", "{level}", "{level}"], "level.map: is an input"),
        (["extract", "{play}", "{play}"], "play.replay: would be read as a replay; give another name"),
        (["generate", "simple", "out.h5"], "out.h5: would be read as a replay; give another name"),
        (["generate", "simple", "out.map", "--seed", "-1"], "--seed -1: give a whole number of at least 0"),
        (["generate", "simple", "out.map", "--difficulty", "2"], "--difficulty 2.0: give a number from 0 to 1"),
        (["generate", "simple", "{folder}", "--count", "1"], "exists already"),
    ],
)
def test_failures_print_one_line(files, capsys, arguments, message):
    names = {"level": files / "level.map", "play": files / "play.replay", "odd": files / "odd.map", "folder": files}
    names["odd"].write_bytes(names["level"].read_bytes() + b"\0")  # the beginning of a record
    names["walled"] = files / "walled.map"
    tiles = np.ones((23, 42), np.uint8)
    tiles[5:8, 5:8] = tiles[5:8, 20:23] = 0
    nppsim.Level.build(tiles, (28, 30), exits=[((88, 30), (84, 30))]).save(names["walled"])
    assert main([argument.format(**names) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1
    assert message in printed.err
    assert not (files / "out.replay").exists()


def test_plan_interrupted_polish_saves_run(files, monkeypatch, capsys):
    def interrupted(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("nppsim.planner.gold.better_runs", interrupted)
    out = files / "found.replay"
    assert main(["plan", str(files / "level.map"), str(out), "--polish", "1000"]) == 130
    assert "the shortest run so far" in capsys.readouterr().err
    replay = Replay.load(out)
    assert nppsim.simulate(replay.level, replay.inputs).won


@pytest.fixture
def bad_files(files, monkeypatch):
    """Files that are not what they should be, and a folder; beside a good level and a good replay."""
    monkeypatch.chdir(files)
    (files / "folder").mkdir()
    (files / "zero").touch()
    (files / "text.h5").write_text("no HDF5")
    (files / "cut.map").write_bytes((files / "level.map").read_bytes()[:500])
    (files / "cut.replay").write_bytes((files / "play.replay").read_bytes()[:300])
    with h5py.File("other.h5", "w") as file:
        file["numbers"] = np.arange(3)
    with h5py.File("case.h5", "w") as file:
        file["theme/case/map"] = np.arange(3)


@pytest.mark.parametrize("bad", ["absent", "folder", "zero", "text.h5", "cut.map", "cut.replay", "other.h5", "case.h5"])
def test_wrong_file_kinds_print_one_line(bad_files, bad, capsys):
    commands = [
        ["verify", bad],
        ["simulate", bad],
        ["simulate", bad, "--replay", "play.replay"],
        ["simulate", "level.map", "--replay", bad],
        ["diff", bad, "play.replay"],
        ["diff", "play.replay", "play.replay", "--out", bad],
        ["render", bad, "out.png"],
        ["render", "level.map", bad],
        ["render", "level.map", "out.png", "--replay", bad],
        ["render", "--sheet", bad, "out.png"],
        ["plan", bad, "out.replay", "--budget", "1000"],
        ["bench", "--traces", bad],
        ["bench", "--levels", bad],
    ]
    for command in commands:
        assert main(command) == 2, command
        printed = capsys.readouterr()
        assert printed.err.startswith("error: ") and printed.err.count("\n") == 1, command


@pytest.mark.parametrize(
    "command",
    [
        ["generate", "simple", "zero/x.map"],
        ["generate", "simple", "zero", "--count", "1"],
        ["plan", "level.map", "folder", "--budget", "1000"],
        ["plan", "level.map", "zero/x.replay", "--budget", "1000"],
        ["render", "level.map", "zero/x.png"],
        ["diff", "play.replay", "play.replay", "--out", "zero/x.png"],
    ],
)
def test_unwritable_output_refused_before_work(bad_files, command, capsys):
    assert main(command) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize(
    "command",
    [["render", "level.map", "out.png"], ["diff", "play.replay", "play.replay", "--out", "out.png"]],
)
def test_film_without_pillow_names_extra(bad_files, command, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert main(command) == 2
    assert "pip install 'nppsim[video]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["bench", "--seconds", "0"], "--seconds 0.0: give a number above 0"),
        (["bench", "--threads", "0"], "--threads 0: give whole numbers of at least 1"),
        (["bench", "--start", "--traces", "x"], "--start only measures starts"),
        (["render", "level.map", "out.png", "--scale", "nan"], "--scale nan: give a number above 0"),
        (["diff", "a", "b", "--sections", "0"], "--sections 0: give a whole number of at least 1"),
        (["simulate", "level.map", "--jason"], "unknown flag --jason; did you mean '--json'?"),
        (["render", "level.map", "--out", "x.png"], "unknown flag --out; usage: nppsim render "),  # others have --out
        (["simulte", "level.map"], "did you mean simulate?"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_flags_without_effect_print_one_line(command, message, capsys):
    assert main(command) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and message in printed and printed.count("\n") == 1


def test_module_lists_commands():
    done = subprocess.run([sys.executable, "-m", "nppsim", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("verify", "simulate", "bench", "render", "generate"))


def test_closed_pipe_ends_a_command_without_a_message():
    command = [sys.executable, "-m", "nppsim", "levels", str(ROOT / "datasets" / "dev")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        started.stdout.close()
        assert started.stderr.read() == b""
    assert started.returncode == BROKEN_PIPE


def test_main_script_command_runs_from_checkout(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["solve", "--help"])
    assert "--agent" in capsys.readouterr().out
