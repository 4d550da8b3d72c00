"""Loading of demonstrations: excluded replays are reported; the others win on the decision grid."""

import importlib
import json
from collections import Counter
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

import bc.demonstrations
import nppsim
from bc.__main__ import main
from bc.analysis import analyse
from bc.dataset import DatasetConfig, load_or_build, split_by_level, with_bank
from bc.demonstrations import DemonstrationError, ReplayFile, find_replays, load_demonstrations
from bc.minari import MinariMetadata, export_minari
from nppsim.levels.level import mirror
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplayWriter

from recordings import level, replay_folder, winning_inputs


def test_find_replays_category_from_index_name_or_folder(tmp_path):
    data = Replay(level(), np.ones(1, np.uint8)).to_bytes()
    for name in ("20251022_142001_train_very_simple_100001", "simple/a", "b", "deep/c", "deep/d_test_medium_7"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.replay").write_bytes(data)
    index = {"format": "nppsim demonstrations", "demonstrations": [{"file": "c.replay", "category": "hard"}]}
    (tmp_path / "deep" / "index.json").write_text(json.dumps(index))
    (tmp_path / "index.json").write_text('{"format": "nppsim level set", "levels": []}')
    assert {file.name: file.category for file in find_replays(tmp_path)} == {
        "20251022_142001_train_very_simple_100001.replay": "very_simple",
        "simple/a.replay": "simple",
        "b.replay": "uncategorised",
        "deep/c.replay": "hard",
        "deep/d_test_medium_7.replay": "medium",
    }


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", r"index\.json: not JSON"),
        ("[]", r"index\.json: TypeError"),
        ('{"format": "nppsim demonstrations"}', r"index\.json: KeyError: 'demonstrations'"),
        ('{"format": "nppsim demonstrations", "demonstrations": [{"file": "a.replay"}]}', "KeyError: 'category'"),
        (
            '{"format": "nppsim demonstrations", "demonstrations": [{"file": "x", "category": "y"}]}',
            "lists x, which is missing",
        ),
    ],
)
def test_find_replays_broken_index_raises_error(tmp_path, index, message):
    (tmp_path / "a.replay").write_bytes(b"")
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(DemonstrationError, match=message):
        find_replays(tmp_path)


def test_find_replays_empty_folder_raises_error(tmp_path):
    with pytest.raises(DemonstrationError, match=r"no \*\.replay or \*\.h5 files"):
        find_replays(tmp_path)
    for other in (tmp_path / "missing", tmp_path / "a.map"):
        with pytest.raises(DemonstrationError, match=f"{other.name}: neither a folder"):
            find_replays(other)
        (tmp_path / "a.map").write_bytes(b"")


def test_load_demonstrations_sets_and_files_are_read(tmp_path):
    won = winning_inputs(level())
    (tmp_path / "deep").mkdir()
    with ReplayWriter(tmp_path / "deep" / "more.h5") as writer:
        writer.append(Replay(level(), won, True, frame_skip=4), category="simple")
        writer.append(Replay(level(50), winning_inputs(level(50))))
        writer.append(Replay(level(), [*won[:8], 8], True))
        writer.append(Replay(level(), won[:8], False), category="simple")
    Replay(level(30), winning_inputs(level(30))).save(tmp_path / "a_train_medium_1.replay")
    files = find_replays(tmp_path)
    assert [(file.name, file.category) for file in files] == [
        ("a_train_medium_1.replay", "medium"),
        ("deep/more.h5#0", "simple"),
        ("deep/more.h5#1", "deep"),
        ("deep/more.h5#2", "deep"),
        ("deep/more.h5#3", "simple"),
    ]
    found = load_demonstrations(files, 4)
    assert [d.name for d in found.demonstrations] == [file.name for file in files[:3]]
    assert found.demonstrations[1].inputs.tolist() == won.tolist()
    assert [(item.name, item.reason) for item in found.excluded] == [
        ("deep/more.h5#2", "recorded as a failure"),  # a self-destruct
        ("deep/more.h5#3", "recorded as a failure"),
    ]
    alone = find_replays(tmp_path / "deep" / "more.h5")
    assert [file.digest for file in alone] == [file.digest for file in files[1:]]
    assert len({file.digest for file in files}) == 5
    assert [(file.name, file.category) for file in alone[:2]] == [
        ("more.h5#0", "simple"),
        ("more.h5#1", "uncategorised"),
    ]
    assert alone[1].path == str(tmp_path / "deep" / "more.h5#1")
    index = {"format": "nppsim demonstrations", "demonstrations": [{"file": "more.h5", "category": "hard"}]}
    (tmp_path / "deep" / "index.json").write_text(json.dumps(index))
    for path in (tmp_path, tmp_path / "deep" / "more.h5"):
        assert [file.category for file in find_replays(path)][-4:] == ["simple", "hard", "hard", "simple"]


def test_load_demonstrations_foreign_hdf5_raises_error(tmp_path):
    path = tmp_path / "traces.h5"
    with h5py.File(path, "w") as file:
        file["x"] = 1
    for place in (tmp_path, path):
        with pytest.raises(
            DemonstrationError, match=r"traces\.h5: format another, expected .*; or move it out"
        ) as error:
            find_replays(place)
        assert "\n" not in str(error.value)
    path.write_bytes(b"no HDF5")
    with pytest.raises(DemonstrationError, match=r"traces\.h5: cannot be opened as HDF5"):
        find_replays(tmp_path)


def test_check_command_lists_every_replay(tmp_path, capsys):
    replay_folder(tmp_path / "replays")
    for i in range(12):
        Replay(level(), np.zeros(i + 1, np.uint8)).save(tmp_path / "replays" / f"idle{i:02}.replay")
    assert main(["check", str(tmp_path / "replays"), "--mirror"]) == 0
    printed = capsys.readouterr().out
    assert "mirror images that win: 3 of 3 (100%)" in printed
    assert all(f"idle{i:02}.replay: running after {i + 1} of" in printed for i in range(12))  # all of them, by name
    assert main(["check", str(tmp_path / "missing")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_load_demonstrations_samples_before_playback(tmp_path):
    def file(name, category):
        return ReplayFile(name, name, category, Replay(level(), np.zeros(3, np.uint8)).to_bytes())

    files = [file(f"{category}{i}", category) for category in ("a", "b") for i in range(8)] + [file("c0", "c")]
    played = {}
    for seed in range(20):
        found = load_demonstrations(files, 4, max_per_category=3, seed=seed, progress=lambda drawn: played.update(
            {len(played): [one.name for one in drawn]}) or drawn)  # fmt: skip
        assert len(found.excluded) == len(files)
        assert f"excluded, not drawn: {16 - 6}\n" in found.table()
        names = played[seed]
        assert names == sorted(names) and [name[0] for name in names] == [*"aaabbbc"]
        assert {item.name for item in found.excluded if item.reason == "not drawn"} == {
            one.name for one in files if one.name not in names
        }
    assert len({name for names in played.values() for name in names}) == len(files)
    assert len(set(map(tuple, played.values()))) > 10
    again = load_demonstrations(files, 4, max_per_category=3, seed=7)
    assert {item.name for item in again.excluded if item.reason != "not drawn"} == set(played[7])
    assert not any(item.reason == "not drawn" for item in load_demonstrations(files, 4, max_per_category=8).excluded)


def test_load_demonstrations_unusable_replays_excluded_with_reason(monkeypatch):
    def file(name, inputs, success=True, of=None):
        return ReplayFile(name, name, "simple", Replay(of or level(), np.array(inputs, np.uint8), success).to_bytes())

    won = winning_inputs(level())
    off_grid = [0, *won]
    files = [
        file("good", won),
        file("longer than needed", [*won, 4, 4, 4]),
        file("idle", [0, 0, 0]),
        file("failed", won, success=False),
        file("off the grid", off_grid),
        ReplayFile("broken", "broken", "simple", b"\1"),
    ]

    monkeypatch.setattr(bc.demonstrations, "retime", lambda replay, frame_skip, **known: None)
    found = load_demonstrations(files, 4)
    assert [d.name for d in found.demonstrations] == ["good"]
    assert [(item.name, item.reason) for item in found.excluded] == [
        ("longer than needed", "duplicate"),
        ("idle", "does not finish"),
        ("failed", "recorded as a failure"),
        ("off the grid", "cannot be re-timed"),
        ("broken", "cannot be read"),
    ]
    table = found.table()
    assert "excluded, cannot be re-timed: 1" in table
    assert "idle: running after 3 of 3 frames" in table
    nothing = load_demonstrations(files[2:3], 4, folder="demos")
    with pytest.raises(DemonstrationError, match="demos: none of 1 replays can be used"):
        nothing.require_some()


def total_of(found):
    """The cells of the table's last row."""
    (row,) = (line for line in found.table().splitlines() if line.startswith("| total"))
    return row.replace("|", " ").split()


def test_load_demonstrations_mirror_adds_finishing_mirror_images(monkeypatch):
    won = winning_inputs(level())

    def file(name, inputs):
        return ReplayFile(name, name, "simple", Replay(level(), np.array(inputs, np.uint8), True).to_bytes())

    files = [file("good", won), file("again", [*won, 4, 4]), file("idle", [0, 0, 0])]
    found = load_demonstrations(files, 4, mirror=True)
    good, image = found.demonstrations
    assert (image.name, image.mirrored, good.mirrored) == ("good (mirrored)", True, False)
    assert image.level == mirror(good.level) and image.level != good.level
    assert nppsim.simulate(image.level, image.inputs).outcome == "won"
    assert np.array([0, 2, 1, 3, 5, 4])[image.actions[: len(good.actions)]].tolist() == good.actions.tolist()
    assert [(item.name, item.reason) for item in found.excluded] == [
        ("again", "duplicate"),
        ("idle", "does not finish"),
    ]
    assert total_of(found)[:6] == ["total", "3", "1", "1", "0", "2"]  # files, used, mirrored, re-timed, levels

    def finishes_unmirrored_only(bank, inputs):
        return nppsim.simulate(level(), inputs if bank.levels == [level()] else np.zeros(5, np.uint8))

    monkeypatch.setattr(bc.demonstrations, "simulate", finishes_unmirrored_only)
    found = load_demonstrations(files, 4, mirror=True)
    assert [d.name for d in found.demonstrations] == ["good"]
    assert "excluded, does not finish mirrored: 1\n  good (mirrored): running after 5 of" in found.table()
    assert total_of(found)[:4] == ["total", "3", "1", "0"]


def test_split_level_and_mirror_image_on_same_side():
    levels = [level(distance) for distance in range(20, 32)]
    both = [SimpleNamespace(level=one, category="simple") for one in [*levels, *map(mirror, levels)]]
    validation = split_by_level(both, 0.3, seed=0)
    assert validation[:12].tolist() == validation[12:].tolist() and 0 < validation.sum() < 24


def test_load_demonstrations_off_grid_recording_is_retimed(monkeypatch):
    won = winning_inputs(level())
    recording = ReplayFile("human", "human", "simple", Replay(level(), np.array([0, *won], np.uint8)).to_bytes())

    def retime_to(inputs):
        def moved(replay, frame_skip, *, bank, recorded):
            assert recorded.outcome == "won"
            played = np.array(inputs, np.uint8)
            return SimpleNamespace(inputs=played, deviation_px=2.5, run=nppsim.simulate(bank, played))

        monkeypatch.setattr(bc.demonstrations, "retime", moved)

    retime_to([*won, 0, 0, 0, 0, 0])
    found = load_demonstrations([recording], 4)
    (demonstration,) = found.demonstrations
    assert demonstration.retimed and demonstration.deviation_px == 2.5
    assert demonstration.inputs.tolist() == won.tolist()
    assert demonstration.recorded_frames == len(won) + 1
    assert demonstration.actions.tolist() == [2] * -(-len(won) // 4)
    stray = (
        "distance of re-timed runs from the recording: 2.5 px (median), 2.5 px (90th percentile), 2.5 px (worst: human)"
    )
    assert f"re-timed: 1 of 1 recordings at 60 Hz (100%)\n{stray}" in found.table()
    retime_to([0] * 8)
    failing = load_demonstrations([recording], 4)
    assert [item.reason for item in failing.excluded] == ["does not finish after re-timing"]
    assert "re-timed: 0 of 1 recordings at 60 Hz (0%)" in failing.table()
    # at one decision per frame nothing needs re-timing
    assert not load_demonstrations([recording], 1).demonstrations[0].retimed


@pytest.fixture
def counted(monkeypatch):
    """How often each level is compiled (by level), each file parsed (by name) and anything played ("plays")."""
    counts = Counter()

    def count(owner, name, key):
        original = getattr(owner, name)

        def counting(*arguments, **more):
            counts[key(*arguments)] += 1
            return original(*arguments, **more)

        monkeypatch.setattr(owner, name, counting)

    count(importlib.import_module("nppsim.bank"), "compile_level", lambda of, *_: of)
    count(importlib.import_module("nppsim.simulate"), "_run", lambda *_: "plays")
    count(Replay, "from_bytes", lambda data, name: name)
    return counts


def way_of_a_dataset(files, folder, tmp_path):
    config = DatasetConfig(observations=("state", "player_frame"), mirror=True)
    dataset = load_or_build(folder, tmp_path / "cache", config, log=lambda text: None)
    dataset.observe(np.arange(3))  # draws images


def way_of_a_report(files, folder, tmp_path):
    levels = LevelSet.write(tmp_path / "levels", [(level(20), LevelEntry("simple")), (level(50), LevelEntry("simple"))])
    analyse(files, 4, levels=[levels])


def way_of_minari(files, folder, tmp_path):
    pytest.importorskip("minari")
    found, bank, _ = with_bank(load_demonstrations(files, 4))
    about = MinariMetadata("planner", "A. Nyone", "a@example.org", "https://example.org/code")
    export_minari(found, about, bank=bank)


@pytest.mark.filterwarnings("ignore:.*eval_env.*is set to None")
@pytest.mark.parametrize(
    ("way", "levels", "plays"), [(way_of_a_dataset, 6, 5 + 4), (way_of_a_report, 3, 5), (way_of_minari, 3, 5)]
)
def test_load_demonstrations_parses_and_compiles_once(tmp_path, monkeypatch, counted, way, levels, plays):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    folder = tmp_path / "replays"
    folder.mkdir()
    worlds = [level(20), level(30), level(40)]
    won = [winning_inputs(world) for world in worlds]
    Replay(worlds[0], won[0]).save(folder / "on_the_grid.replay")
    Replay(worlds[1], np.append(0, won[1])).save(folder / "to_be_retimed.replay")
    with ReplayWriter(folder / "set.h5") as writer:
        writer.append(Replay(worlds[2], won[2]))
        writer.append(Replay(worlds[2], np.append([0] * 4, won[2])))
    counted.clear()
    way(find_replays(folder), folder, tmp_path)
    assert counted.pop("plays") == plays  # one each, one more of what was re-timed, and the mirror images
    compiled = {key: count for key, count in counted.items() if not isinstance(key, str)}
    assert len(compiled) == levels and sum(compiled.values()) == levels
    parsed = {key: count for key, count in counted.items() if isinstance(key, str)}
    assert parsed == {str(folder / "on_the_grid.replay"): 1, str(folder / "to_be_retimed.replay"): 1}
