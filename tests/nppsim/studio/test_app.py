"""The studio over HTTP: gallery, opened files, replays, recordings and demonstrations."""

import base64
from urllib.parse import quote

import numpy as np
import pytest

import nppsim
from nppsim.errors import ConfigError
from nppsim.levels.kinds import MINE, ROCKET_TURRET
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelSet
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplayWriter
from nppsim.studio import library, recordings
from nppsim.studio.errors import StudioError
from nppsim.studio.library import Library

from worlds import corridor, moving_level, room, straight


def test_levels_endpoint_lists_folder_levels(page):
    cards = page.get("levels").json()["levels"]
    assert [(card["id"], card["category"], card["par"]) for card in cards] == [
        (straight().fingerprint, "simple", 70),
        (moving_level().fingerprint, "odd", None),
    ]
    assert cards[0]["name"] == "simple/000000" and cards[0]["extent"] == [12, 2]
    assert cards[0]["entities"] == {"exit door": 1, "exit switch": 1}
    document = page.get(f"levels/{cards[0]['id']}").json()
    assert document["par"] == 70 and base64.b64decode(document["map"]) == straight().to_bytes()
    assert "no such level" in page.get("levels/0123", 404).json()["error"]


def test_film_is_win_on_shipped_level(page):
    film = Library().film()
    run = nppsim.simulate(
        Library().level(film["level"]).level, np.frombuffer(base64.b64decode(film["inputs"]), np.uint8)
    )
    assert run.won
    assert page.get("film").json() == {"run": None}  # the gallery has other levels


def test_library_opens_campaigns_files_and_empty_folders(pack, tmp_path):
    (tmp_path / "own").mkdir()
    moving_level().save(tmp_path / "lone.level")
    library = Library([pack, f"{pack}#1", tmp_path / "lone.level", tmp_path / "own"])
    shown = library.levels()
    assert [(card["name"], card["category"]) for card in shown["levels"]] == [
        *((f"level {number}", "pack") for number in range(6)),
        ("lone", "single"),
    ]
    assert not shown["problems"] and library.folders == [tmp_path / "own"]


@pytest.mark.parametrize(
    ("data", "recognised"),
    [(b"PK\3\4", "zip archive"), (b"\x89PNG", "PNG"), (b"$cut#000000", "campaign file"), (b"\x89HDF", "--replays")],
)
def test_library_foreign_file_raises_error_with_format(tmp_path, data, recognised):
    (tmp_path / "file").write_bytes(data + bytes(9))
    with pytest.raises(StudioError) as refused:
        Library([tmp_path / "file"])
    assert recognised in str(refused.value)


def test_levels_listed_in_order(pack):
    library = Library([pack])
    ids = [card["id"] for card in library.levels()["levels"]]
    documents = list(map(library.document, ids))
    assert [one["next"] for one in documents] == [*ids[1:], None]


def test_open_campaign_file_adds_levels(page, pack):
    data = pack.read_bytes() + b"$cut off#0000000"
    opened = page.post("open", data, **{"X-File-Name": "mine.txt"})
    assert (opened["levels"], opened["category"]) == (6, "mine") and "mine.txt#6" in opened["warnings"][0]
    cards = [card for card in page.get("levels").json()["levels"] if card["category"] == "mine"]
    assert [card["name"] for card in cards] == [f"level {number}" for number in range(6)]
    page.studio.library.add(straight(length=13), "opened again")  # e.g. the level of a replay
    assert page.studio.library.level(straight(length=13).fingerprint).category == "mine"


def test_card_shows_support_and_omissions(page):
    level = room(entities=[(ROCKET_TURRET, 50, 20), (27, 60, 30)])
    opened = page.post("open", level.to_bytes())
    assert not opened["warnings"]  # the stage shows it
    document = page.get(f"levels/{opened['level']}").json()
    assert document["support"] == {"grade": "unsupported", "notes": list(level.support_notes)}
    assert page.get("levels").json()["levels"][-1]["support"] == document["support"]


def test_library_default_levels_are_shipped():
    shown = Library().levels()
    assert len(shown["levels"]) == 30 and not shown["problems"]


def test_unreadable_levels_listed_as_problems(levels):
    file = levels / LevelSet.open(levels).entries[1].file
    file.write_bytes(b"broken")
    shown = Library([levels]).levels()
    assert len(shown["levels"]) == 1 and str(file) in shown["problems"][0]


def test_library_too_many_levels_raises_error(levels, monkeypatch):
    monkeypatch.setattr(library, "MAX_LEVELS", 1)
    with pytest.raises(ConfigError, match="--levels: 2 levels; at most 1"):
        Library([levels])


@pytest.mark.parametrize("format", ["map", "text"])
def test_level_download_reopens_as_same_level(page, format):
    answer = page.get(f"levels/{moving_level().fingerprint}/file?format={format}")
    assert answer.headers["content-disposition"].startswith("attachment; filename=")
    expected = moving_level().to_bytes() if format == "map" else moving_level().to_text().encode()
    assert answer.content == expected
    assert page.post("open", answer.content)["level"] == moving_level().fingerprint
    assert "give one of" in page.get(f"levels/{moving_level().fingerprint}/file?format=exe", 400).json()["error"]


def test_open_level_file_adds_level(page):
    level = corridor(title="Along")
    opened = page.post("open", level.to_bytes(), **{"X-File-Name": quote("../../etc/Gänge.map")})
    assert opened == {"level": level.fingerprint, "levels": 1, "category": None, "run": None, "warnings": []}
    assert page.get("levels").json()["levels"][-1]["name"] == "Along"
    unnamed = page.post("open", corridor(40).to_bytes(), **{"X-File-Name": quote("../../etc/Gänge.map")})["level"]
    assert page.get(f"levels/{unnamed}").json()["name"] == "Gänge"


@pytest.mark.parametrize("format", ["compact", "attract"])
def test_open_replay_file_adds_level_and_run(page, winning, format):
    replay = Replay(corridor(), winning.inputs)
    opened = page.post("open", replay.to_bytes(format), **{"X-File-Name": "mine"})
    assert opened["level"] == opened["run"]["level"] == corridor().fingerprint and opened["run"]["label"] == "mine"
    assert base64.b64decode(opened["run"]["inputs"]) == winning.inputs.tobytes()
    assert page.get(f"levels/{corridor().fingerprint}").status_code == 200


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (b"", "a.map", "a.map: 0 bytes; an N++ map has at least 1235"),
        (b"\0" * 100, "a", "or it is damaged (as a level: 100 bytes;"),
        (b"\xff\xd8\xff\xe0 a picture", "a.jpg", "a.jpg (a JPEG picture) is neither a level"),
        (b"\xff" * 5000, "a", "neither a level"),
        (straight().to_bytes(), "a.replay", "a.replay"),
        (b"nppsim level 1\nnonsense", "a.level", "a.level"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 3000, "a.h5", "--replays"),
    ],
)
def test_open_unknown_file_raises_error_with_reason(page, data, name, message):
    assert message in page.post("open", data, 400, **{"X-File-Name": name})["error"]


def test_open_defective_file_returns_warnings(page, winning):
    cut = Replay(winning.level, winning.inputs).to_bytes("attract")[:-5]
    (warning,) = page.post("open", cut)["warnings"]
    assert f"{winning.frames} inputs declared, {winning.frames - 5} present" in warning


@pytest.mark.parametrize("seed", range(40))
def test_open_damaged_file_never_fails_unexpectedly(page, winning, seed):
    rng = np.random.default_rng(seed)
    whole = [moving_level().to_bytes(), winning.to_bytes(), Replay(winning.level, winning.inputs).to_bytes("attract")]
    data = bytearray(whole[seed % 3])
    for _ in range(rng.integers(1, 8)):
        data[rng.integers(len(data))] = rng.integers(256)
    if seed % 2:
        del data[rng.integers(len(data)) :]
    answer = page.client.post("/api/open", content=bytes(data), headers=page.headers)
    assert answer.status_code in (200, 400), answer.text


def test_opened_levels_bounded_oldest_dropped(page, monkeypatch):
    monkeypatch.setattr(library, "MAX_OPENED", 2)
    ids = [page.post("open", corridor(spawn).to_bytes())["level"] for spawn in (20, 24, 28)]
    page.get(f"levels/{ids[0]}", 404)
    page.get(f"levels/{ids[1]}"), page.get(f"levels/{ids[2]}")


def test_replays_listed_and_shown(page, winning, tmp_path):
    (known,) = page.get("replays").json()["replays"]
    assert known == {
        "number": 0,
        "label": "won",
        "level": winning.level.fingerprint,
        "frames": winning.frames,
        "success": True,
    }
    run = page.get("replays/0/run").json()
    assert run["level"] == winning.level.fingerprint and base64.b64decode(run["inputs"]) == winning.inputs.tobytes()
    page.get("replays/1/run", 404)
    with ReplayWriter(tmp_path / "set.h5") as writer:
        writer.append(Replay(corridor(), winning.inputs, name="first.map"))
        writer.append(winning)
    of_set = Library(replays=[tmp_path / "set.h5"])
    assert [one["label"] for one in of_set.replays()["replays"]] == ["first", "set 1"]
    replay, _ = of_set.replay(0)
    assert replay.level == corridor() and of_set.document(corridor().fingerprint)["id"] == corridor().fingerprint


def test_unreadable_replays_listed_as_problems(winning, tmp_path):
    winning.save(tmp_path / "good.replay")
    (tmp_path / "bad.replay").write_bytes(b"bad")
    (tmp_path / "bad.h5").write_bytes(b"bad")
    found = Library(replays=[tmp_path]).replays()
    assert [one["label"] for one in found["replays"]] == ["good"]
    assert sorted(problem.split(":")[0] for problem in found["problems"]) == sorted(map(str, tmp_path.glob("bad.*")))


# ---------------------------------------------------------------------------------------------------------------------
# Recordings


def store(page, level, inputs, outcome="won"):
    category = page.studio.library.level(level.fingerprint).category
    return page.studio.recordings.store(level, np.array(inputs, np.uint8), outcome, "mine", category, 0).number


def test_recording_downloads_in_both_formats(page, winning):
    number = store(page, winning.level, winning.inputs)
    for format in ("compact", "attract"):
        answer = page.get(f"recordings/{number}/file?format={format}")
        replay = Replay.from_bytes(answer.content)
        assert replay.level == winning.level and replay.inputs.tolist() == winning.inputs.tolist()
        assert replay.success is (format == "compact")
    assert base64.b64decode(page.get(f"recordings/{number}/run").json()["inputs"]) == winning.inputs.tobytes()
    (card,) = page.get("recordings").json()["recordings"]
    assert (card["number"], card["outcome"], card["category"]) == (number, "won", "simple")


def test_removed_recording_is_not_found(page, winning):
    number = store(page, winning.level, winning.inputs)
    answer = page.client.delete(f"/api/recordings/{number}", headers=page.headers)
    assert answer.status_code == 200
    page.get(f"recordings/{number}/file", 404)


def test_recordings_unsaved_until_downloaded_or_demonstrated(page, winning, tmp_path):
    numbers = [
        store(page, winning.level, inputs) for inputs in (winning.inputs, [0, *winning.inputs], winning.inputs[:9])
    ]

    def unsaved():
        cards = page.get("recordings").json()["recordings"]
        left = {card["number"] for card in cards if not card["saved"]}
        assert len(left) == page.studio.recordings.unsaved
        return [number in left for number in numbers]

    assert unsaved() == [True, True, True]
    page.post(f"recordings/{numbers[0]}/demonstration")
    page.post(f"recordings/{numbers[2]}/demonstration", status=409)
    assert unsaved() == [False, True, True]
    page.get(f"recordings/{numbers[1]}/file?format=attract")
    assert unsaved() == [False, False, True]
    (tmp_path / "stored.h5").write_bytes(page.get("recordings/file").content)
    assert unsaved() == [False, False, False]
    again = Library(replays=[tmp_path / "stored.h5"]).replays()["replays"]
    assert [(one["label"], one["frames"]) for one in again] == [
        ("mine", winning.frames + n) for n in (0, 1, 9 - winning.frames)
    ]
    for number in numbers:
        page.client.delete(f"/api/recordings/{number}", headers=page.headers)
    assert "nothing to save" in page.get("recordings/file", 404).json()["error"]


def test_recordings_count_is_bounded(page, winning, monkeypatch):
    monkeypatch.setattr(recordings, "MAX_RUNS", 1)
    store(page, winning.level, winning.inputs)
    with pytest.raises(ValueError, match="remove some"):
        store(page, winning.level, winning.inputs)


def test_won_recording_becomes_training_demonstration(page, winning):
    from bc.demonstrations import find_replays, load_demonstrations

    # not on the grid of decisions, and with something after the exit that belongs to it no more
    inputs = np.concatenate([[0], winning.inputs, [0, 0, 0]])
    number = store(page, winning.level, inputs)
    answer = page.post(f"recordings/{number}/demonstration")
    added, summary = answer["added"], answer["demonstrations"]
    assert added["retimed"] and added["frames"] == nppsim.simulate(winning.level, inputs).frames
    assert (summary["recordings"], summary["levels"], summary["missing"]) == (1, 1, 19)
    assert summary["categories"] == {"simple": 1} and summary["missing_categories"] == ["odd"]
    found = load_demonstrations(find_replays(page.studio.demonstrations.folder), 4)
    (one,) = found.demonstrations
    assert not found.excluded and one.category == "simple" and one.retimed and one.level == winning.level
    (page.studio.demonstrations.folder / "bad.replay").write_bytes(b"bad")
    after = page.get("recordings").json()["demonstrations"]
    assert after["recordings"] == 1 and "bad.replay" in after["problems"][0]
    assert "already" in page.post(f"recordings/{number}/demonstration", status=409)["error"]


def gap():
    """A corridor with a mine on the floor and some below the ceiling: only a jump of a few frames leads through."""
    grid = np.ones((23, 42), np.uint8)
    grid[10:12, 2:18] = 0
    mines = [(MINE, 27, 50), *((MINE, x, 44) for x in (25, 27, 29))]
    return Level.build(grid, (14, 50), exits=[((48, 50), (64, 50))], entities=mines)


THROUGH_THE_GAP = [2] * 23 + [3] * 5 + [2] * 95


@pytest.mark.parametrize(
    ("level", "inputs", "outcome", "message"),
    [
        (straight(), [0] * 30, "running", "at frame 30"),
        (gap(), [2] * 100, "died", "the ninja dies"),
        (straight(), [2] * 20 + [8, 8], "died", "self-destruct"),
        (gap(), THROUGH_THE_GAP, "won", "cannot be re-timed"),
    ],
)
def test_invalid_demonstration_refused_and_nothing_written(page, level, inputs, outcome, message):
    page.studio.library.add(level)
    assert nppsim.simulate(level, np.array(inputs, np.uint8)).outcome == outcome
    number = store(page, level, inputs, outcome)
    error = page.post(f"recordings/{number}/demonstration", status=409)["error"]
    assert message in error
    assert not page.studio.demonstrations.folder.exists()


def test_category_cannot_leave_folder(page):
    for category in ("../../up", "..", "/etc", "a\\b", "", None, "Ünsinn ü"):
        name = recordings._folder_name(category)
        assert name and "/" not in name and "\\" not in name and name not in (".", "..")


def test_read_requests_write_nothing(page, winning, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    number = store(page, winning.level, winning.inputs)
    for path in ("state", "levels", "replays", "replays/0/run", "recordings", f"recordings/{number}/file"):
        page.get(path)
    page.post("open", straight().to_bytes())
    assert sorted(tmp_path.rglob("*")) == before


def test_disk_errors_are_reported(page, winning):
    page.studio.demonstrations.folder.write_text("a file where the folder should be")
    number = store(page, winning.level, winning.inputs)
    answer = page.post(f"recordings/{number}/demonstration", status=500)
    assert str(page.studio.demonstrations.folder) in answer["error"]


def test_page_and_static_files_are_served(page):
    text = page.client.get("/").text
    assert "<script" in text and "onclick" not in text and "style=" not in text
    for path in ("/static/js/app.js", "/static/js/api.js", "/static/style.css"):
        assert page.client.get(path).status_code == 200
