"""``nppsim replays``: outcomes of many replays, as a table and as JSON."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from bc.demonstrations import find_replays
from nppsim.__main__ import main
from nppsim.levels.kinds import LASER
from nppsim.levels.level import Level, LevelError
from nppsim.levels.level_set import LevelSet
from nppsim.replays.playback import RAN_OUT, find_files, play_back, play_files
from nppsim.replays.replay import Replay, ReplayError
from nppsim.replays.replay_set import ReplayWriter
from nppsim.replays.score import seconds

from places import SHARED
from worlds import FLOOR, corridor

LEVEL = corridor()  # to the right over the switch into the exit
MINES = corridor(entities=[(1, 24, FLOOR)])
WON = Replay(LEVEL, np.full(200, 2), success=True)
WALKED, BLOWN_UP = Replay(LEVEL, np.full(9, 4)), Replay(MINES, np.full(200, 2), success=True)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    WON.save(tmp_path / "a.replay")
    WALKED.save(tmp_path / "sub" / "b.replay", format="attract")
    BLOWN_UP.save(tmp_path / "c.replay")
    return tmp_path


def test_replays_command_prints_outcomes(folder, capsys):
    assert main(["replays", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["valid", "ending", "frame", "inputs", "gold", "time,", "s", "score", "file"]
    assert lines[1].split()[:2] == ["yes", "finished"] and lines[1].endswith("a.replay") and " 200 " in lines[1]
    assert lines[2].split()[:2] == ["no", "died"] and lines[2].endswith("c.replay")
    assert lines[3].strip() == "the file states that the level was finished"
    assert lines[4].startswith("yes   ran out") and " 9 " in lines[4] and lines[4].endswith("b.replay")
    assert lines[5] == "3 replays, 2 valid: 1 finished, 1 died, 1 ran out"


def test_replays_command_json_equals_table(folder, capsys):
    assert main(["replays", str(folder / "c.replay"), str(folder / "a.replay"), "--json"]) == 0
    died, won = json.loads(capsys.readouterr().out)
    assert (died["ending"], won["ending"]) == ("died", "finished")
    assert won["file"].endswith("a.replay") and won["inputs"] == 200 > won["frame"] > 0 == won["gold"]
    assert won["warnings"] == []
    assert won["time"] == seconds(won["frame"]) and won["score"] == pytest.approx(
        90 - (won["frame"] - 1) / 60, abs=1e-3
    )
    assert died["score"] is None


def test_play_back_selects_rules_of_recording():
    """A laser on the floor of a corridor: at 1 px per frame its beam reaches the ninja, which stands on the left."""
    level = corridor(entities=[(LASER, 40, FLOOR + 1, 2, 1)])
    played = play_back(Replay(level, np.zeros(300, np.uint8), success=False))
    assert played.ending == RAN_OUT and played.rules == {"fast_lasers": False}
    assert play_back(WON).rules == {}, "no rule matters where no such entity is"


def test_play_files_unreadable_file_reported_and_others_played(folder, capsys):
    (folder / "b.replay").write_bytes(b"short")
    assert main(["replays", str(folder)]) == 1
    text = capsys.readouterr().out
    assert "unreadable" in text and "the file ends at byte 5" in text
    assert text.endswith("4 replays, 2 valid: 1 finished, 1 unreadable, 1 died, 1 ran out\n")


def test_play_back_level_without_exit_reports_reason(folder):
    records = np.array([record for record in LEVEL.records if record[0] != 3])
    data = Level(LEVEL.tiles, records, exit_count=1).to_bytes()
    inputs = WON.inputs.tobytes()
    (folder / "a.replay").write_bytes(struct.pack("<IIIB", 1, len(data), len(inputs), 1) + data + inputs)
    (one,) = play_files([folder / "a.replay"])
    assert one.ending == "ran out"
    assert one.warnings[0] == (
        "the map has no exit door, so it cannot be finished; its record is lost, repair the file or record it again"
    )


def test_play_files_replay_set_entries(tmp_path):
    with ReplayWriter(tmp_path / "set.h5") as writer:
        writer.append(WON)
        writer.append(BLOWN_UP)
    (tmp_path / "other.h5").write_bytes(b"other")
    played = list(play_files(find_files([tmp_path])))
    assert [one.ending for one in played] == ["unreadable", "finished", "died"]
    assert played[2].file.endswith("set.h5#1")


def test_find_files_uppercase_suffixes(tmp_path):
    WON.save(tmp_path / "B.REPLAY")
    with ReplayWriter(tmp_path / "set.h5") as writer:
        writer.append(WON)
    (tmp_path / "set.h5").rename(tmp_path / "SET.H5")
    played = list(play_files(find_files([tmp_path])))
    assert [one.ending for one in played] == ["finished", "finished"]
    for name in ("B.REPLAY", "SET.H5", "SET.H5#0"):
        assert Replay.load(tmp_path / name).inputs.tobytes() == WON.inputs.tobytes()
    assert len(find_replays([tmp_path])) == 2
    assert main(["extract", str(tmp_path / "SET.H5#0"), str(tmp_path / "out.map")]) == 0
    assert Level.load(tmp_path / "out.map") == WON.level


def test_find_files_recognises_replays_by_content(tmp_path, capsys):
    """Otherwise a replay would be read as a level, with its inputs as records and shifted tiles."""
    replay = Replay(LEVEL, BLOWN_UP.inputs, success=False)
    folder = tmp_path / "my.h5.d"
    folder.mkdir()
    for name, format in (("0", "attract"), ("attract.map", "attract"), ("compact.map", "compact")):
        replay.save(folder / name, format=format)
        assert Level.load(folder / name) == LEVEL
        assert main(["extract", str(folder / name), str(tmp_path / "out.map")]) == 0
        assert Level.load(tmp_path / "out.map") == LEVEL
    LEVEL.save(folder / "level.map")
    assert main(["extract", str(folder / "level.map"), str(tmp_path / "out.map")]) == 0
    assert all(level == LEVEL for level in LevelSet.at(folder))
    (folder / "0").write_bytes((folder / "0").read_bytes()[:900])
    with pytest.raises(LevelError, match="900 bytes; an N\\+\\+ map has at least"):
        Level.load(folder / "0")


def test_replays_command_folder_of_attract_files(tmp_path, capsys):
    ended = Replay(LEVEL, np.array([0, 8, 0, 8, 8], np.uint8))
    ended.save(tmp_path / "0", format="attract")
    WALKED.save(tmp_path / "1.demo", format="attract")
    Replay(LEVEL, np.append(ended.inputs, 0)).save(tmp_path / "2", format="attract")
    LEVEL.save(tmp_path / "level.map")
    (tmp_path / "notes.txt").write_text("downloaded\n")
    assert main(["replays", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    lines = [line.split() for line in out.splitlines()]
    assert [line[:3] for line in lines[1:3]] == [["yes", "self-destruct", "5"], ["yes", "ran", "out"]]
    assert lines[3][:2] == ["no", "self-destruct"], "inputs follow the end of the run"
    assert out.endswith("3 replays, 2 valid: 2 self-destruct, 1 ran out\n")
    assert err == f"warning: {tmp_path}: skipped level.map (not a replay), notes.txt (not a replay)\n"


def test_simulate_command_reports_self_destruct(tmp_path, capsys):
    for inputs, outcome in (([0, 8, 8], "died (by the self-destruct key)"), ([0, 8, 0], "running")):
        Replay(LEVEL, np.array(inputs, np.uint8)).save(tmp_path / "0", format="attract")
        assert main(["simulate", str(tmp_path / "0")]) == 0
        assert f"outcome       {outcome}\n" in capsys.readouterr().out
        assert main(["simulate", str(tmp_path / "0"), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["self_destruct"] is outcome.startswith("died")


@pytest.mark.parametrize("name", ["runs#2/s.h5", "runs#2/run #1.replay"])
def test_load_replay_in_folder_with_number_sign(tmp_path, name):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs#2").mkdir()
    path = tmp_path / name
    if path.suffix == ".h5":
        with ReplayWriter(path) as writer:
            writer.append(WON)
            writer.append(WALKED)
        assert Replay.load(f"{path}#1").frames == WALKED.frames
        assert main(["simulate", f"{path}#1"]) == 0
        assert Level.load(f"{path}#1") == LEVEL
    else:
        WON.save(path)
        assert Replay.load(path).frames == WON.frames
    with pytest.raises(ReplayError, match=r"runs#2/absent.h5"):
        Replay.load(tmp_path / "runs#2/absent.h5#1")


def test_find_files_without_replays_raises_error(tmp_path, capsys):
    assert main(["replays", str(tmp_path)]) == 2
    assert "no *.replay or *.h5 files in it" in capsys.readouterr().err


def test_shared_recordings_play_back_as_recorded():
    folder = SHARED / "replays"
    if not folder.is_dir():
        pytest.skip("no recorded replays beside the project")
    played = list(play_files(find_files([folder])))
    assert len(played) == 61
    assert sum(one.ending == "finished" for one in played) >= 57
    lacking = [one for one in played if one.warnings and "its record is lost" in one.warnings[0]]
    assert {Path(one.file).stem[9:15] for one in lacking} >= {"153053", "153108"}
