"""The studio over HTTP: levels, replays and demonstrations."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest

import nppsim
from nppsim.errors import ConfigError
from nppsim.levels.campaign import to_line
from nppsim.levels.kinds import MINE
from nppsim.levels.level import Level, LevelError
from nppsim.levels.level_set import LevelSet
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplayWriter
from nppsim.studio import library
from nppsim.studio.demonstrations import _folder_name
from nppsim.studio.documents import packed_text
from nppsim.studio.library import Library

from worlds import corridor, moving_level, straight


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


def test_copy_under_another_title_is_shown_with_it(tmp_path):
    official = replace(straight(), title="official", name="")
    (tmp_path / "a pack.txt").write_text(to_line(official))
    replace(official, title="my copy").save(tmp_path / "b.map")
    official.save(tmp_path / "same.map")
    replace(official, title="").save(tmp_path / "renamed.map")
    library = Library([tmp_path])
    cards = {card["name"]: card["id"] for card in library.levels()["levels"]}
    assert set(cards) == {"official", "my copy", "renamed", "official (same)"}
    assert len(set(cards.values())) == 4
    for name, id in cards.items():
        document = library.document(id)
        assert (document["id"], document["name"]) == (id, name)
        assert document["title"].strip() in (name.removesuffix(" (same)"), "")
    ids = list(cards.values())
    assert [library.document(id)["next"] for id in ids] == [*ids[1:], None]


def test_file_given_twice_is_shown_once(tmp_path):
    straight().save(tmp_path / "a.map")
    (tmp_path / "pack.txt").write_text(2 * f"{to_line(replace(straight(), title='twice'))}\n")
    places = [tmp_path, tmp_path / "a.map", f"{tmp_path}/../{tmp_path.name}/pack.txt"]
    cards = Library(places).levels()["levels"]
    assert [card["name"] for card in cards] == ["a", "twice", "twice (pack 1)"]


def test_file_name_with_number_sign_is_shown_in_full(tmp_path):
    straight().save(tmp_path / "étoile #2.v1.map")
    assert [card["name"] for card in Library([tmp_path]).levels()["levels"]] == ["étoile #2.v1"]


@pytest.mark.parametrize("data", [b"PK\3\4", b"\x89PNG", b"$cut#000000", b"\x89HDF"])
def test_library_foreign_file_raises_error(tmp_path, data):
    (tmp_path / "file").write_bytes(data + bytes(9))
    with pytest.raises(LevelError, match="file: "):
        Library([tmp_path / "file"])


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


def test_opened_levels_bounded_oldest_dropped(page, monkeypatch):
    monkeypatch.setattr(library, "MAX_OPENED", 2)
    ids = [page.studio.library.add(corridor(spawn)) for spawn in (20, 24, 28)]
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
    listed = of_set.levels()
    replay, _ = of_set.replay(0)
    assert of_set.levels() == listed  # the gallery shows the same levels after a replay was watched
    assert replay.level == corridor() and of_set.document(corridor().fingerprint)["id"] == corridor().fingerprint


def test_unreadable_replays_listed_as_problems(winning, tmp_path):
    winning.save(tmp_path / "good.replay")
    (tmp_path / "bad.replay").write_bytes(b"bad")
    (tmp_path / "bad.h5").write_bytes(b"bad")
    found = Library(replays=[tmp_path]).replays()
    assert [one["label"] for one in found["replays"]] == ["good"]
    assert sorted(problem.split(":")[0] for problem in found["problems"]) == sorted(map(str, tmp_path.glob("bad.*")))


# ---------------------------------------------------------------------------------------------------------------------
# Demonstrations


def demonstrate(page, level, inputs, status=200, **change):
    message = {
        "map": packed_text(level.to_bytes()),
        "inputs": packed_text(np.array(inputs, np.uint8)),
        "category": "simple",
    }
    return page.post("demonstrations", json.dumps(message | change), status)


def test_won_run_becomes_training_demonstration(page, winning):
    from bc.demonstrations import find_replays, load_demonstrations

    # not on the grid of decisions, and with something after the exit that belongs to it no more
    inputs = np.concatenate([[0], winning.inputs, [0, 0, 0]])
    answer = demonstrate(page, winning.level, inputs)
    added, summary = answer["added"], answer["demonstrations"]
    assert added["retimed"] and added["frames"] == nppsim.simulate(winning.level, inputs).frames
    assert (summary["recordings"], summary["levels"], summary["missing"]) == (1, 1, 19)
    assert summary["categories"] == {"simple": 1} and summary["missing_categories"] == ["odd"]
    found = load_demonstrations(find_replays(page.studio.demonstrations.folder), 4)
    (one,) = found.demonstrations
    assert not found.excluded and one.category == "simple" and one.retimed and one.level == winning.level
    (page.studio.demonstrations.folder / "bad.replay").write_bytes(b"bad")
    after = page.get("demonstrations").json()
    assert after["recordings"] == 1 and "bad.replay" in after["problems"][0]
    assert "already" in demonstrate(page, winning.level, inputs, 409)["error"]


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
    assert nppsim.simulate(level, np.array(inputs, np.uint8)).outcome == outcome
    assert message in demonstrate(page, level, inputs, 409)["error"]
    assert not page.studio.demonstrations.folder.exists()


def test_category_cannot_leave_folder(page):
    for category in ("../../up", "..", "/etc", "a\\b", "", None, "Ünsinn ü"):
        name = _folder_name(category)
        assert name and "/" not in name and "\\" not in name and name not in (".", "..")


def test_read_requests_write_nothing(page, winning, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    for path in ("state", "levels", "replays", "replays/0/run", "demonstrations", "edit/folders"):
        page.get(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_disk_errors_are_reported(page, winning):
    page.studio.demonstrations.folder.write_text("a file where the folder should be")
    answer = demonstrate(page, winning.level, winning.inputs, 500)
    assert str(page.studio.demonstrations.folder) in answer["error"]


def test_page_and_static_files_are_served(page):
    text = page.client.get("/").text
    assert "<script" in text and "onclick" not in text and "style=" not in text
    for path in (
        "/studio/static/js/app.js",
        "/studio/static/js/api.js",
        "/studio/static/style.css",
        "/wasm/kernels.js",
    ):
        assert page.client.get(path).status_code == 200


@pytest.mark.parametrize("number", ["7", "9" * 5000, "-1", "one"])
def test_endpoints_unknown_number_is_not_found(page, number):
    assert "no such replay" in page.get(f"replays/{number}/run", 404).json()["error"]
    assert "there is no agent" in page.get(f"agents/{number}/policy", 404).json()["error"]
