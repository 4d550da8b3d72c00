"""Imitation dataset: pairing of actions and observations, cache, and damaged files."""

import json
from collections import deque
from dataclasses import replace

import h5py
import numpy as np
import pytest

import bc.dataset
import nppsim
from bc.dataset import (
    BCDataset,
    DatasetConfig,
    DatasetError,
    check_memory,
    content_key,
    load_or_build,
    sample_columns,
    split_by_level,
)
from bc.demonstrations import Demonstration, ReplayFile
from bc.images import StoredImages
from nppsim.errors import ConfigError
from nppsim.generate import generate
from nppsim.observe import layout
from nppsim.observe.stacking import Stacking
from nppsim.replays.replay import Replay

from recordings import STATE, level, replay_folder, winning_inputs


class CountingSimulator:
    """Level k is won on decision lengths[k]; observations contain the level and the decisions since the start."""

    def __init__(self, lengths, num_envs, *, frame_skip, observations, foresight):
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

    def step(self, actions, asleep):
        decisions = self.obs["game_state"][:, 0]
        decisions += ~asleep
        self.obs["game_state"][:, 2] = actions  # what an observation taken too late would give away
        self.finished = np.flatnonzero(decisions == self.lengths[self.level])
        self.episode["outcome"][self.finished] = 1
        self.obs["game_state"][self.finished, 0] = 0


def demonstrations_of(lengths):
    return [
        Demonstration(f"demo{i}", "simple", level(40 + i), np.arange(n) % 5 + 1, np.zeros(4 * n, np.uint8), 4 * n)
        for i, n in enumerate(lengths)
    ]


def test_record_pairs_decisions_with_previous_observation(monkeypatch):
    lengths = (2, 5, 3)
    wave = demonstrations_of(lengths)
    config = DatasetConfig(observations=STATE)
    monkeypatch.setattr(bc.dataset, "BatchSimulator", CountingSimulator)
    state = bc.dataset.record(lengths, range(3), wave, config)["game_state"]
    assert state[:, 0].tolist() == [0, 1, 0, 1, 2, 3, 4, 0, 1, 2]
    assert state[:, 1].tolist() == [0, 0, 1, 1, 1, 1, 1, 2, 2, 2]
    assert state[:, 2].tolist() == [0, 1, 0, 1, 2, 3, 4, 0, 1, 2]  # the previous action, never the label


def test_record_batch_equals_single_playback(tmp_path):
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


def test_stored_images_equal_observed_images():
    levels = [generate("advanced", seed)[0] for seed in range(6)] + [generate("complex", seed)[0] for seed in range(2)]
    simulator = nppsim.BatchSimulator(nppsim.LevelBank(levels), 8, observations=layout.IMAGES)
    simulator.reset(np.arange(8))
    rng, states, seen = np.random.default_rng(0), [], []
    for _ in range(80):
        states.append(simulator.snapshot(slice(None)))
        seen.append({key: values.copy() for key, values in simulator.obs.items()})
        simulator.step(rng.integers(0, 6, 8))
    images, rows = StoredImages(nppsim.LevelBank(levels), np.concatenate(states), layout.IMAGES), rng.permutation(640)
    for key, drawn in images.draw(rows).items():
        np.testing.assert_array_equal(drawn, np.concatenate([one[key] for one in seen])[rows])
    with pytest.raises(ValueError, match="those of these levels have"):
        StoredImages(simulator.bank, np.zeros((3, 10), np.uint8), layout.IMAGES)


def test_load_or_build_cache_used_only_for_same_content(tmp_path, monkeypatch):
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


def test_load_or_build_unwritable_cache_raises_error(tmp_path, largest_file):
    """HDF5 writes to memory: on a disk, a failed write has crashed the interpreter, immediately or at its end."""
    folder = replay_folder(tmp_path / "replays")
    config, log = DatasetConfig(observations=STATE), []
    load_or_build(folder, tmp_path / "whole", config, log=log.append)
    whole = next((tmp_path / "whole").iterdir()).stat().st_size
    for share in np.linspace(0.0, 0.95, 10):
        with largest_file(int(share * whole)), pytest.raises(OSError, match="File too large") as error:
            load_or_build(folder, tmp_path / "cache", config, log=log.append)
        assert error.value.filename.endswith(".h5")
    assert not list((tmp_path / "cache").iterdir())


def test_cache_key_depends_on_all_content(monkeypatch, tmp_path):
    files = [ReplayFile("x/a", "a", "simple", b"1"), ReplayFile("x/b", "b", "simple", b"2")]
    config = DatasetConfig(observations=STATE)
    key = content_key(files, config)
    assert key == content_key([replace(file, path="elsewhere") for file in reversed(files)], config)
    variants = [
        content_key([files[0], replace(files[1], source=b"3")], config),
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
    monkeypatch.setattr(bc.dataset, "KERNEL_DIGEST", "other sources")
    variants.append(content_key(files, config))
    assert len({key, *variants}) == 1 + len(variants)


def test_split_separates_levels_not_samples():
    demonstrations = [
        Demonstration(
            f"{i}", ("easy", "hard")[i % 2], level(10 + i // 2), np.zeros(1, np.int64), np.zeros(4, np.uint8), 4
        )
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


def test_build_demonstration_beyond_time_limit_excluded(tmp_path, monkeypatch):
    class Impatient(nppsim.LevelBank):
        @property
        def time_limit(self):
            return np.array([60, 5000, 5000], np.int32)

        @time_limit.setter
        def time_limit(self, value):
            pass

    monkeypatch.setattr(bc.dataset, "LevelBank", Impatient)
    folder = replay_folder(tmp_path / "replays")
    dataset = load_or_build(folder, tmp_path, DatasetConfig(observations=STATE), log=lambda text: None)
    assert len(dataset.names) == 2
    assert "excluded, longer than the time limit: 1" in dataset.report


def test_build_too_large_raises_error_with_size():
    columns = sample_columns(("game_state", "player_frame", "global_view"), state_bytes=1000)
    assert {name: column.itemsize for name, column in columns.items()} == {"game_state": 26 * 4, "states": 1000}
    assert check_memory("x.h5", 1000, 1104, available_bytes=10**9) == 1000 * 1104
    with pytest.raises(DatasetError, match="--max-demonstrations-per-category"):
        check_memory("x.h5", 10**6, 1104, available_bytes=10**9)


def say(path, name, value):
    """Change an entry of a stored dataset's metadata."""
    with h5py.File(path, "a") as file:
        about = json.loads(file["about"][:].tobytes()) | {name: value}
        del file["about"]
        file["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)


def test_open_damaged_or_foreign_file_raises_error(tmp_path):
    dataset = load_or_build(replay_folder(tmp_path / "replays"), tmp_path, DatasetConfig(observations=STATE), log=list)
    path = tmp_path / dataset.path
    data = path.read_bytes()
    with h5py.File(path) as file:
        block = file["observations/game_state"].id.get_chunk_info(0).byte_offset
    for damaged in (b"", data[:100], data[: len(data) // 2], data[:-1], data[:block] + b"damage" + data[block + 6 :]):
        path.write_bytes(damaged)
        with pytest.raises(DatasetError, match=f"{path.name}: no readable dataset .*delete it"):
            BCDataset.open(path)
    with h5py.File(path, "a") as file:
        file.attrs["format_version"] = 99
    with pytest.raises(DatasetError, match="format version 99"):
        BCDataset.open(path)
    for name, value, message in [
        ("layout_fingerprint", "0", "observation layout 0 of game_state"),
        ("observation_keys", ["graph"], "of graph is not this version's"),
        ("frame_skip", 0, "an impossible frame skip"),
        ("names", [1], r"names\[0\] should be a text"),
    ]:
        path.write_bytes(data)
        say(path, name, value)
        with pytest.raises(DatasetError, match=message):
            BCDataset.open(path)
    for table, place, message in [
        ("actions", 6, "numbers outside 0 to 5"),
        ("demonstration", 3, "numbers outside 0 to 2"),
        ("demonstrations/category", -1, "numbers outside 0 to"),
    ]:
        path.write_bytes(data)
        with h5py.File(path, "a") as file:
            file[table][0] = place
        with pytest.raises(DatasetError, match=f"no readable dataset .{message}"):
            BCDataset.open(path)
    path.write_bytes(data)
    say(path, "key", "0")
    with pytest.raises(DatasetError, match="has key 0"):
        load_or_build(tmp_path / "replays", tmp_path, DatasetConfig(observations=STATE))
    with pytest.raises(DatasetError, match="no such file"):
        BCDataset.open(tmp_path / "missing.h5")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"frame_skip": 0}, "frame_skip 0: give"),
        ({"validation_share": 1.0}, "validation_share 1.0: give a number above 0 and below 1"),
        ({"max_per_category": 0}, "max_per_category 0: give"),
        ({"observations": ("graph",)}, "unknown observation 'graph'"),
    ],
)
def test_dataset_config_invalid_value_raises_error(setting, message):
    with pytest.raises(ConfigError, match=message):
        DatasetConfig(**setting)


@pytest.mark.parametrize("stacking", [Stacking(visual=2, state=4), Stacking(visual=3, state=2, padding="repeat")])
def test_stacked_dataset_equals_queue_per_demonstration(tmp_path, stacking):
    folder = replay_folder(tmp_path / "replays")
    config = DatasetConfig(observations=("state", "reachability", "player_frame"), mirror=True)
    plain = load_or_build(folder, tmp_path, config, log=lambda text: None)
    stacked = plain.stacked(stacking)
    single = plain.observe(np.arange(len(plain)))
    order = np.random.default_rng(0).permutation(len(plain))
    found = stacked.observe(order)
    assert stacked.key == plain.key and found["reachability_features"].shape == (len(plain), 9)
    for key in ("game_state", "player_frame"):
        frames = stacking.frames(key)
        for place, row in enumerate(order.tolist()):
            first = np.flatnonzero(plain.demonstration == plain.demonstration[row])[0]
            pad = single[key][first] if stacking.padding == "repeat" else np.zeros_like(single[key][first])
            queue = deque([pad] * frames, maxlen=frames)
            for earlier in range(first, row + 1):
                queue.append(single[key][earlier])
            np.testing.assert_array_equal(found[key][place], np.stack(queue))
    assert plain.observe(order)["game_state"].shape == (len(plain), 26), "the original dataset is unchanged"
