"""Imitation: nothing vanishes silently, labels fit observations, the cache notices changes, training learns."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch

import bc.dataset
import nppsim
from bc.__main__ import main
from bc.dataset import (
    BCDataset,
    DatasetConfig,
    DatasetError,
    check_memory,
    content_key,
    load_or_build,
    sample_dtype,
    split_by_level,
)
from bc.demonstrations import Demonstration, DemonstrationError, ReplayFile, find_replays, load_demonstrations
from bc.images import StoredImages
from bc.train import BCConfig, ConfigError, TrainingError, evaluate, pretrain
from nppsim.generate import generate
from nppsim.level import Level, mirror
from nppsim.observe import layout
from nppsim.replay import Replay
from nppsim.replayset import ReplayWriter

RIGHT = 2
STATE = ("game_state",)


def level(distance=40, name=""):
    """A flat room: the exit's switch and the exit to the right of the spawn, ``distance`` units of 6 px apart."""
    exits = [((30, 94), (30 + distance, 94))]
    return Level.build(np.zeros((23, 42), np.uint8), (20, 94), exits=exits, name=name)


def winning_inputs(of):
    run = nppsim.simulate(of, np.full(600, RIGHT, np.uint8))
    assert run.outcome == "won"
    return np.full(run.frames, RIGHT, np.uint8)


def replay_folder(folder, distances=(20, 40, 60), frame_skip=4):
    folder.mkdir(parents=True, exist_ok=True)
    for i, distance in enumerate(distances):
        Replay(level(distance), winning_inputs(level(distance))).save(folder / f"2025_train_simple_{i}.replay")
    return folder


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- demonstrations -------------------------------------------------------------------------------------------------


def test_categories_come_from_the_index_the_name_or_the_folder(tmp_path):
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
        ("{", r"index\.json: JSONDecodeError"),
        ("[]", r"index\.json: TypeError"),
        ('{"format": "nppsim demonstrations"}', r"index\.json: KeyError: 'demonstrations'"),
        ('{"format": "nppsim demonstrations", "demonstrations": [{"file": "a.replay"}]}', "KeyError: 'category'"),
        (
            '{"format": "nppsim demonstrations", "demonstrations": [{"file": "x", "category": "y"}]}',
            "lists x, which is missing",
        ),
    ],
)
def test_a_broken_index_is_one_clear_error(tmp_path, index, message):
    (tmp_path / "a.replay").write_bytes(b"")
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(DemonstrationError, match=message):
        find_replays(tmp_path)


def test_a_folder_without_replays_is_an_error(tmp_path):
    with pytest.raises(DemonstrationError, match=r"no \*\.replay or \*\.h5 files"):
        find_replays(tmp_path)
    for other in (tmp_path / "missing", tmp_path / "a.map"):
        with pytest.raises(DemonstrationError, match=f"{other.name}: not a folder, nor"):
            find_replays(other)
        (tmp_path / "a.map").write_bytes(b"")


def test_replay_sets_are_read_beside_files(tmp_path):
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
    assert [(item.name, item.reason) for item in found.left_out] == [
        ("deep/more.h5#2", "recorded as a failure"),  # a self-destruct
        ("deep/more.h5#3", "recorded as a failure"),
    ]
    alone = find_replays(tmp_path / "deep" / "more.h5")
    assert [file.data for file in alone] == [file.data for file in files[1:]]
    assert [(file.name, file.category) for file in alone[:2]] == [
        ("more.h5#0", "simple"),
        ("more.h5#1", "uncategorised"),
    ]
    assert alone[1].path == str(tmp_path / "deep" / "more.h5#1")
    index = {"format": "nppsim demonstrations", "demonstrations": [{"file": "more.h5", "category": "hard"}]}
    (tmp_path / "deep" / "index.json").write_text(json.dumps(index))
    for path in (tmp_path, tmp_path / "deep" / "more.h5"):
        assert [file.category for file in find_replays(path)][-4:] == ["simple", "hard", "hard", "simple"]


def test_an_hdf5_file_that_is_no_replay_set_is_one_clear_error(tmp_path):
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


def test_the_command_tells_what_becomes_of_every_replay(tmp_path, capsys):
    replay_folder(tmp_path / "replays")
    for i in range(12):
        Replay(level(), np.zeros(i + 1, np.uint8)).save(tmp_path / "replays" / f"idle{i:02}.replay")
    assert main(["check", str(tmp_path / "replays"), "--mirror"]) == 0
    printed = capsys.readouterr().out
    assert "mirror images that finish: 3 of 3 (100%)" in printed
    assert all(f"idle{i:02}.replay: running after {i + 1} of" in printed for i in range(12))  # all of them, by name
    assert main(["check", str(tmp_path / "missing")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_too_many_replays_are_drawn_by_lot_before_they_are_played(tmp_path):
    def file(name, category):
        return ReplayFile(name, name, category, Replay(level(), np.zeros(3, np.uint8)).to_bytes())

    files = [file(f"{category}{i}", category) for category in ("a", "b") for i in range(8)] + [file("c0", "c")]
    played = {}
    for seed in range(20):
        found = load_demonstrations(files, 4, max_per_category=3, seed=seed, progress=lambda drawn: played.update(
            {len(played): [one.name for one in drawn]}) or drawn)  # fmt: skip
        assert len(found.left_out) == len(files)
        assert f"left out, not drawn: {16 - 6}\n" in found.table()
        names = played[seed]
        assert names == sorted(names) and [name[0] for name in names] == [*"aaabbbc"]
        assert {item.name for item in found.left_out if item.reason == "not drawn"} == {
            one.name for one in files if one.name not in names
        }
    assert len({name for names in played.values() for name in names}) == len(files)
    assert len(set(map(tuple, played.values()))) > 10
    again = load_demonstrations(files, 4, max_per_category=3, seed=7)
    assert {item.name for item in again.left_out if item.reason != "not drawn"} == set(played[7])
    assert not any(item.reason == "not drawn" for item in load_demonstrations(files, 4, max_per_category=8).left_out)


def test_what_is_no_demonstration_is_left_out_and_counted():
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

    found = load_demonstrations(files, 4, retime=lambda replay, frame_skip: None)
    assert [d.name for d in found.demonstrations] == ["good"]
    assert [(item.name, item.reason) for item in found.left_out] == [
        ("longer than needed", "duplicate"),
        ("idle", "does not finish"),
        ("failed", "recorded as a failure"),
        ("off the grid", "cannot be re-timed"),
        ("broken", "cannot be read"),
    ]
    table = found.table()
    assert "left out, cannot be re-timed: 1" in table
    assert "idle: running after 3 of 3 frames" in table
    nothing = load_demonstrations(files[2:3], 4, folder="demos")
    with pytest.raises(DemonstrationError, match="demos: none of 1 replays can be used"):
        nothing.require_some()


def test_mirror_images_that_finish_are_added_and_the_others_counted():
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
    assert [(item.name, item.reason) for item in found.left_out] == [
        ("again", "duplicate"),
        ("idle", "does not finish"),
    ]
    total = found.table().splitlines()[2].split()
    assert total[:6] == ["total", "3", "1", "1", "0", "2"]  # files, kept, mirrored, re-timed, levels

    def finishes_unmirrored_only(played, inputs):
        return nppsim.simulate(level(), inputs if played == level() else np.zeros(5, np.uint8))

    found = load_demonstrations(files, 4, mirror=True, simulate=finishes_unmirrored_only)
    assert [d.name for d in found.demonstrations] == ["good"]
    assert "left out, does not finish mirrored: 1\n  good (mirrored): running after 5 of" in found.table()
    assert found.table().splitlines()[2].split()[:4] == ["total", "3", "1", "0"]


def test_a_level_and_its_mirror_image_are_on_the_same_side_of_the_split():
    levels = [level(distance) for distance in range(20, 32)]
    both = [SimpleNamespace(level=one, category="simple") for one in [*levels, *map(mirror, levels)]]
    validation = split_by_level(both, 0.3, seed=0)
    assert validation[:12].tolist() == validation[12:].tolist() and 0 < validation.sum() < 24


def test_a_recording_off_the_grid_is_retimed_and_checked_again():
    won = winning_inputs(level())
    recording = ReplayFile("human", "human", "simple", Replay(level(), np.array([0, *won], np.uint8)).to_bytes())

    def retime_to(inputs):
        return lambda replay, frame_skip: SimpleNamespace(inputs=np.array(inputs, np.uint8), deviation_px=2.5)

    found = load_demonstrations([recording], 4, retime=retime_to([*won, 0, 0, 0, 0, 0]))
    (demonstration,) = found.demonstrations
    assert demonstration.retimed and demonstration.deviation_px == 2.5
    assert demonstration.inputs.tolist() == won.tolist()
    assert demonstration.actions.tolist() == [2] * -(-len(won) // 4)
    stray = "re-timed runs stray from the recording by 2.5 px (median), 2.5 px (90th percentile), 2.5 px (worst: human)"
    assert f"re-timed: 1 of 1 recordings off the grid (100%)\n{stray}" in found.table()
    failing = load_demonstrations([recording], 4, retime=retime_to([0] * 8))
    assert [item.reason for item in failing.left_out] == ["does not finish after re-timing"]
    assert "re-timed: 0 of 1 recordings off the grid (0%)" in failing.table()
    # at one decision per frame nothing needs re-timing
    assert not load_demonstrations([recording], 1).demonstrations[0].retimed


# --- dataset --------------------------------------------------------------------------------------------------------


class CountingSimulator:
    """Level k is won on decision lengths[k]; the observation tells the level and the decisions since the start."""

    def __init__(self, lengths, num_envs, *, frame_skip, observations):
        assert observations == STATE
        self.lengths = np.array(lengths)
        self.obs = {"game_state": np.zeros((num_envs, 26), np.float32)}
        self.episode = np.zeros(num_envs, [("outcome", "i1")])
        self.finished = np.empty(0, np.int64)

    def reset(self, levels):
        self.level = np.array(levels)
        self.obs["game_state"][:, 1] = levels

    def snapshot(self, i):
        return np.zeros(1, np.uint8)

    def step(self, actions):
        decisions = self.obs["game_state"][:, 0]
        decisions += 1
        self.obs["game_state"][:, 2] = actions  # what an observation taken too late would give away
        self.finished = np.flatnonzero(decisions == self.lengths[self.level])
        self.episode["outcome"][self.finished] = 1
        self.obs["game_state"][self.finished, 0] = 0


def demonstrations_of(lengths):
    return [
        Demonstration(f"demo{i}", "simple", level(40 + i), np.arange(n) % 5 + 1, np.zeros(4 * n, np.uint8))
        for i, n in enumerate(lengths)
    ]


def test_each_decision_is_paired_with_the_observation_before_it():
    lengths = (2, 5, 3)
    wave = demonstrations_of(lengths)
    config = DatasetConfig(observations=STATE)
    state = bc.dataset.record(CountingSimulator, lengths, np.arange(3), wave, config)["game_state"]
    assert state[:, 0].tolist() == [0, 1, 0, 1, 2, 3, 4, 0, 1, 2]
    assert state[:, 1].tolist() == [0, 0, 1, 1, 1, 1, 1, 2, 2, 2]
    assert state[:, 2].tolist() == [0, 1, 0, 1, 2, 3, 4, 0, 1, 2]  # the previous action, never the label


@pytest.mark.parametrize(("true_length", "message"), [(4, "won after decision 4 of 5"), (6, "is still running after")])
def test_a_demonstration_that_ends_elsewhere_in_the_batch_simulator_is_an_error(true_length, message):
    wave = demonstrations_of((2, 5))
    with pytest.raises(DatasetError, match=f"demo1: {message}"):
        bc.dataset.record(CountingSimulator, (2, true_length), np.arange(2), wave, DatasetConfig(observations=STATE))


def test_the_dataset_agrees_with_playing_back_alone(tmp_path):
    folder = replay_folder(tmp_path / "replays")
    dataset = load_or_build(
        folder, tmp_path, DatasetConfig(observations=("state", "player_frame")), log=lambda text: None
    )
    assert len(dataset.names) == 3
    assert list(dataset.observations) == ["game_state"] and dataset.images.keys == ("player_frame",)
    for i, name in enumerate(dataset.names):
        replay = Replay.load(folder / name)
        rows = np.flatnonzero(dataset.demonstration == i)
        actions = replay.to_decisions(4)
        assert dataset.actions[rows].tolist() == actions.tolist()
        assert dataset.previous_actions[rows].tolist() == [0, *actions[:-1]]
        position = np.vstack([replay.level.spawn, nppsim.simulate(replay.level, replay.inputs).position])
        observed = dataset.observe(rows)
        np.testing.assert_array_equal(observed["game_state"][:, :2], position[:-1:4].astype(np.float32))
        simulator = nppsim.BatchSimulator(nppsim.LevelBank([replay.level]), 1, observations=("player_frame",))
        simulator.reset()
        for image, action in zip(observed["player_frame"], actions, strict=True):
            np.testing.assert_array_equal(image, simulator.obs["player_frame"][0])
            simulator.step([action])


def test_images_are_drawn_as_they_were_seen_with_everything_that_moves():
    levels = [generate("advanced", seed)[0] for seed in range(6)] + [generate("complex", seed)[0] for seed in range(2)]
    simulator = nppsim.BatchSimulator(nppsim.LevelBank(levels), 8, observations=layout.IMAGES)
    simulator.reset(np.arange(8))
    rng, states, seen = np.random.default_rng(0), [], []
    for _ in range(80):
        states.append(simulator.snapshot(slice(None)))
        seen.append({key: values.copy() for key, values in simulator.obs.items()})
        simulator.step(rng.integers(0, 6, 8))
    images, rows = StoredImages(levels, np.concatenate(states), layout.IMAGES), rng.permutation(640)
    for key, drawn in images.draw(rows).items():
        np.testing.assert_array_equal(drawn, np.concatenate([one[key] for one in seen])[rows])
    with pytest.raises(ValueError, match="those of these levels have"):
        StoredImages(levels, np.zeros((3, 10), np.uint8), layout.IMAGES)


def test_the_cache_is_used_only_for_the_same_content(tmp_path, monkeypatch):
    folder = replay_folder(tmp_path / "replays")
    config = DatasetConfig(observations=STATE)
    log = []
    first = load_or_build(folder, tmp_path / "cache", config, log=log.append)
    with monkeypatch.context() as patch:
        patch.setattr(bc.dataset, "record", lambda *_: pytest.fail("recorded again"))
        again = load_or_build(folder, tmp_path / "cache", config, log=log.append)
    assert again.key == first.key
    assert again.observations["game_state"].tobytes() == first.observations["game_state"].tobytes()
    assert again.report == first.report == log[0] == log[-1]
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [f"demonstrations-{first.key}.h5"]
    Replay(level(50), winning_inputs(level(50))).save(folder / "2025_train_simple_1.replay")
    assert load_or_build(folder, tmp_path / "cache", config, log=log.append).key != first.key


def test_the_key_follows_everything_the_content_depends_on(monkeypatch, tmp_path):
    files = [ReplayFile("x/a", "a", "simple", b"1"), ReplayFile("x/b", "b", "simple", b"2")]
    config = DatasetConfig(observations=STATE)
    key = content_key(files, config)
    assert key == content_key([replace(file, path="elsewhere") for file in reversed(files)], config)
    variants = [
        content_key([files[0], replace(files[1], data=b"3")], config),
        content_key([files[0], replace(files[1], category="hard")], config),
        content_key(files[:1], config),
        content_key(files, replace(config, frame_skip=2)),
        content_key(files, replace(config, observations=("state", "reachability"))),
        content_key(files, replace(config, seed=1)),
        content_key(files, replace(config, validation_share=0.2)),
        content_key(files, replace(config, mirror=True)),
        content_key(files, replace(config, max_per_category=1)),
    ]
    with monkeypatch.context() as changed:
        (tmp_path / "dataset.py").write_text("another program")
        changed.setattr(bc.dataset, "_CODE", (tmp_path / "dataset.py", *bc.dataset._CODE[1:]))
        variants.append(content_key(files, config))
    monkeypatch.setattr(bc.dataset.layout, "VERSION", bc.dataset.layout.VERSION + 1)
    variants.append(content_key(files, config))
    monkeypatch.undo()
    monkeypatch.setattr(bc.dataset, "source_digest", lambda: "other sources")
    variants.append(content_key(files, config))
    assert len({key, *variants}) == 1 + len(variants)


def test_levels_are_split_never_samples():
    demonstrations = [
        Demonstration(f"{i}", ("easy", "hard")[i % 2], level(10 + i // 2), np.zeros(1, np.int64), np.zeros(4, np.uint8))
        for i in range(60)
    ]
    validation = split_by_level(demonstrations, 0.2, seed=0)
    sides = {}
    for demonstration, side in zip(demonstrations, validation, strict=True):
        sides.setdefault(demonstration.level.fingerprint, set()).add(bool(side))
    assert all(len(side) == 1 for side in sides.values())
    assert sum(True in side for side in sides.values()) == 6
    assert validation.tolist() == split_by_level(demonstrations, 0.2, seed=0).tolist()
    assert validation.tolist() != split_by_level(demonstrations, 0.2, seed=1).tolist()
    assert split_by_level(demonstrations[:4], 0.01, seed=0).sum() == 2
    with pytest.raises(DatasetError, match="2 demonstrations of 1 level cannot be split"):
        split_by_level(demonstrations[:2], 0.2, seed=0)


def test_a_demonstration_beyond_the_time_limit_is_left_out_and_counted(tmp_path, monkeypatch):
    class Impatient(nppsim.LevelBank):
        @property
        def time_limit(self):
            return np.array([60, 5000, 5000], np.int32)

        @time_limit.setter
        def time_limit(self, value):
            pass

    monkeypatch.setattr(nppsim, "LevelBank", Impatient)
    folder = replay_folder(tmp_path / "replays")
    dataset = load_or_build(folder, tmp_path, DatasetConfig(observations=STATE), log=lambda text: None)
    assert len(dataset.names) == 2
    assert "left out, longer than the time limit: 1" in dataset.report


def test_too_large_a_dataset_is_refused_with_its_size():
    sample = sample_dtype(("game_state", "player_frame", "global_view"), state_bytes=1000)
    assert sample.names == ("game_state", "states") and sample.itemsize == 26 * 4 + 1000
    assert check_memory("x.h5", 1000, sample.itemsize, available_bytes=10**9) == 1000 * sample.itemsize
    with pytest.raises(DatasetError, match=r"need 1\.10 GB.*--max-demonstrations-per-category"):
        check_memory("x.h5", 10**6, sample.itemsize, available_bytes=10**9)


def test_damaged_and_foreign_files_are_refused(tmp_path):
    dataset = load_or_build(replay_folder(tmp_path / "replays"), tmp_path, DatasetConfig(observations=STATE), log=list)
    path = tmp_path / dataset.path
    data = path.read_bytes()
    with h5py.File(path) as file:
        block = file["observations/game_state"].id.get_chunk_info(0).byte_offset
    for damaged in (b"", data[:100], data[: len(data) // 2], data[:-1], data[:block] + b"damage" + data[block + 6 :]):
        path.write_bytes(damaged)
        with pytest.raises(DatasetError, match=f"{path.name}: no readable dataset .*delete it"):
            BCDataset.open(path)
    for name, value, message in [
        ("format_version", 99, "format version 99"),
        ("layout_fingerprint", "0", "observation layout 0 of game_state"),
        ("observation_keys", '["graph"]', "of graph is not this version's"),
    ]:
        path.write_bytes(data)
        with h5py.File(path, "a") as file:
            file.attrs[name] = value
        with pytest.raises(DatasetError, match=message):
            BCDataset.open(path)
    path.write_bytes(data)
    with h5py.File(path, "a") as file:
        file.attrs["key"] = "0"
    with pytest.raises(DatasetError, match="holds key 0, not the one in its name"):
        load_or_build(tmp_path / "replays", tmp_path, DatasetConfig(observations=STATE))
    with pytest.raises(DatasetError, match="no such file"):
        BCDataset.open(tmp_path / "missing.h5")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"frame_skip": 0}, "frame_skip=0"),
        ({"validation_share": 1.0}, "validation_share=1.0"),
        ({"max_per_category": 0}, "--max-demonstrations-per-category"),
        ({"observations": ("graph",)}, "unknown observation 'graph'"),
    ],
)
def test_dataset_settings_are_checked(setting, message):
    with pytest.raises(DatasetError, match=message):
        DatasetConfig(**setting)


# --- training -------------------------------------------------------------------------------------------------------


def toy_dataset(samples=2400, demonstrations=40, separable=True):
    """The action is the largest of six inputs (or noise); it is often, not always, the one before."""
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 6, samples)
    for i in range(1, samples):
        if rng.random() < 0.8:
            actions[i] = actions[i - 1]
    state = rng.normal(size=(samples, 26)).astype(np.float32)
    if separable:
        state[np.arange(samples), actions] += 5
    each = samples // demonstrations
    previous = np.concatenate([[0], actions[:-1]])
    previous[::each] = 0
    return BCDataset(
        path="toy",
        key="toy",
        frame_skip=4,
        layout_fingerprint="toy",
        observations={"game_state": state},
        actions=actions.astype(np.int8),
        previous_actions=previous.astype(np.int8),
        demonstration=np.repeat(np.arange(demonstrations, dtype=np.int32), each),
        categories=("toy",),
        names=tuple(f"{i}" for i in range(demonstrations)),
        level_fingerprints=tuple(f"{i}" for i in range(demonstrations)),
        category=np.zeros(demonstrations, np.int16),
        validation=np.arange(demonstrations) % 5 == 0,
        retimed=np.zeros(demonstrations, bool),
        kept_and_left_out="toy",
    )


class ToyPolicy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(torch.nn.Linear(26, 32), torch.nn.ReLU())
        self.actor, self.critic = torch.nn.Linear(32, 6), torch.nn.Linear(32, 1)

    def logits_and_values(self, observations):
        features = self.body(observations["game_state"])
        return self.actor(features), self.critic(features).flatten()


class Writer:
    def __init__(self):
        self.tags = {}

    def add_scalar(self, tag, value, step):
        assert np.isfinite(value)
        self.tags.setdefault(tag, []).append((step, value))


def test_training_learns_and_beats_the_trivial_predictors():
    dataset, policy, writer, improved = toy_dataset(), ToyPolicy(), Writer(), []
    critic = policy.critic.weight.detach().clone()
    result = pretrain(
        policy,
        dataset,
        BCConfig(epochs=15, learning_rate=3e-3),
        writer,
        simulate_closed_loop=lambda trained: {"success": float(trained is policy)},
        on_improvement=lambda trained, epoch: improved.append(epoch),
        log=lambda line: None,
    )
    assert result.validation.accuracy > 0.97
    assert result.validation.change_accuracy > 0.95
    assert result.baselines["repeat_previous"].accuracy == pytest.approx(0.83, abs=0.05)
    assert result.baselines["repeat_previous"].change_accuracy == 0
    assert result.baselines["majority"].accuracy < 0.4
    assert all(recall > 0.9 for recall in result.validation.recall)
    assert result.closed_loop == {"success": 1.0}
    assert improved[-1] == result.best_epoch
    assert torch.equal(critic, policy.critic.weight)  # imitation teaches nothing about values
    assert [step for step, _ in writer.tags["bc/validation_loss"]] == list(range(1, result.epochs_run + 1))
    assert {"bc/train_loss", "bc/train_accuracy", "bc/validation_change_accuracy", "bc/recall/jump"} < set(writer.tags)
    assert writer.tags["bc/closed_loop/success"] == [(result.best_epoch, 1.0)]
    assert "repeat_previous" in result.table()
    json.dumps(result.as_dict(), allow_nan=False)


def test_the_best_weights_are_kept_and_patience_ends_training():
    dataset, policy = toy_dataset(separable=False), ToyPolicy()
    config = BCConfig(epochs=60, patience=3, learning_rate=1e-2)
    result = pretrain(policy, dataset, config, log=lambda line: None)
    losses = [scalars["validation_loss"] for scalars in result.history]
    assert result.stopped_early
    assert result.epochs_run == result.best_epoch + 3 < 60
    assert losses[result.best_epoch - 1] == min(losses) == result.validation.loss
    assert evaluate(policy, dataset, dataset.rows(validation=True)).loss == result.validation.loss


def test_the_same_seed_gives_the_same_weights():
    def weights(seed):
        policy = ToyPolicy()
        pretrain(policy, toy_dataset(), BCConfig(epochs=2, seed=seed), log=lambda line: None)
        return policy.actor.weight.detach().numpy().tobytes()

    assert weights(0) == weights(0) != weights(1)


def test_class_weights_balance_the_training_part():
    dataset = toy_dataset()
    rows = dataset.rows(validation=False)
    histogram = dataset.action_histogram(rows)
    assert histogram.sum() == len(rows) < len(dataset)
    assert dataset.class_weights(0).tolist() == [1] * 6
    weighted = dataset.class_weights(1) * histogram
    np.testing.assert_allclose(weighted, weighted.mean(), rtol=1e-5)
    assert weighted.sum() == pytest.approx(len(rows), rel=1e-5)


def test_statistics_are_those_of_the_training_part():
    dataset = toy_dataset()
    statistics = dataset.statistics(batch=100)
    part = dataset.observations["game_state"][dataset.rows(validation=False)].astype(float)
    assert statistics.count == len(part)
    np.testing.assert_allclose(statistics.mean["game_state"], part.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(statistics.std["game_state"], part.std(axis=0), rtol=1e-6)


def test_nan_and_frozen_policies_are_stopped():
    dataset = toy_dataset()
    dataset.observations["game_state"][7] = np.nan
    with pytest.raises(TrainingError, match=r"loss is nan (in|after) epoch 1.*learning rate"):
        pretrain(ToyPolicy(), dataset, BCConfig(epochs=2), log=lambda line: None)

    class Constant(ToyPolicy):
        def logits_and_values(self, observations):
            logits, values = super().logits_and_values(observations)
            return 0 * logits, values

    with pytest.raises(TrainingError, match="gradient has norm 0"):
        pretrain(Constant(), toy_dataset(), BCConfig(epochs=2), log=lambda line: None)


@pytest.mark.parametrize(
    "setting",
    [{"epochs": 0}, {"batch_size": 0}, {"patience": 2.5}, {"learning_rate": 0.0}, {"weight_decay": float("nan")}],
)
def test_training_settings_are_checked(setting):
    (name,) = setting
    with pytest.raises(ConfigError, match=rf"BCConfig\.{name}="):
        BCConfig(**setting)


# --- the script -----------------------------------------------------------------------------------------------------


def load_script():
    path = Path(__file__).parents[1] / "scripts" / "pretrain_bc.py"
    specification = importlib.util.spec_from_file_location("pretrain_bc", path)
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    return script


def test_the_script_goes_from_replays_to_a_checkpoint_and_closed_loop_success(tmp_path, capsys):
    folder, levels = replay_folder(tmp_path / "replays"), tmp_path / "levels" / "simple"
    levels.mkdir(parents=True)
    level(50).save(levels / "a.map")
    command = ["--architecture", "vision_free", "--replay-data-dir", str(folder), "--output-dir", str(tmp_path)]
    command += ["--mirror-demonstrations", "--max-demonstrations-per-category", "2"]
    command += ["--epochs", "2", "--test-dataset", str(levels.parent), "--num-eval-episodes", "2"]
    assert load_script().main(command) == 0
    (made,) = tmp_path.glob("pretrain_vision_free_*")
    assert (made / "bc_best.pt").is_file()
    results = json.loads((made / "results.json").read_text())
    assert results["suites"]["test"]["BC alone"]["simple"]["episodes"] == 2
    assert set(results["imitation"]["closed_loop"]) == {"simple"}
    assert list((made / "tensorboard").glob("events.*"))
    settings = results["config"]["dataset"]
    assert (settings["mirror"], settings["max_per_category"]) == (True, 2)
    printed = capsys.readouterr().out
    assert "left out, not drawn: 1\n" in printed and "mirror images that finish: 2 of 2" in printed
    assert "repeat_previous" in printed and "random play" in printed and "bc_best.pt" in printed


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--batch-size", "0"], "--batch-size 0; choose a whole number"),
        (["--frame-skip", "0"], "frame_skip=0"),
        (["--max-demonstrations-per-category", "0"], "--max-demonstrations-per-category"),
        (["--architecture", "nope"], "unknown architecture 'nope'"),
        (["--replay-data-dir", "missing"], "missing: not a folder"),
        (["--test-dataset", "missing"], "missing does not exist"),
        (["--output-dir", f"{__file__}/out"], f"out cannot be made: {__file__} is a file"),
    ],
)
def test_the_script_answers_bad_input_with_one_line(tmp_path, capsys, extra, message):
    folder = replay_folder(tmp_path / "replays")
    command = ["--architecture", "vision_free", "--replay-data-dir", str(folder), "--output-dir", str(tmp_path / "out")]
    assert load_script().main([*command, *extra]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and message in printed and printed.count("\n") == 1
    assert not list(tmp_path.glob("out/pretrain_*"))


@pytest.mark.parametrize("mirrored", [False, True])
def test_demonstrations_of_the_test_levels_are_refused(tmp_path, capsys, mirrored):
    folder, levels = replay_folder(tmp_path / "replays"), tmp_path / "levels"
    levels.mkdir()
    (mirror(level(40)) if mirrored else level(40)).save(levels / "a.map")
    command = ["--architecture", "vision_free", "--replay-data-dir", str(folder), "--test-dataset", str(levels)]
    assert load_script().main([*command, "--output-dir", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert "error: 1 of 3 demonstrations are of test levels" in printed and "2025_train_simple_1.replay of " in printed
    assert not list(tmp_path.glob("out/pretrain_*"))


def test_an_interruption_leaves_the_best_weights_and_says_where(tmp_path, capsys, monkeypatch):
    script = load_script()
    save = script.checkpoint.save

    def save_then_interrupt(path, policy, **fields):
        save(path, policy, **fields)
        raise KeyboardInterrupt

    monkeypatch.setattr(script.checkpoint, "save", save_then_interrupt)
    folder = replay_folder(tmp_path / "replays")
    command = ["--architecture", "vision_free", "--replay-data-dir", str(folder), "--output-dir", str(tmp_path)]
    assert script.main(command) == 130
    (best,) = tmp_path.glob("pretrain_*/bc_best.pt")
    assert str(best) in capsys.readouterr().err
    policy, _ = script.checkpoint.load_policy(best)
    assert policy.statistics.count > 0
