"""Replay sets: round trips, interrupted writes, and errors for damaged files."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nppsim.levels.level import Level
from nppsim.replays import replay_set as replayset
from nppsim.replays.replay import Replay, ReplayError
from nppsim.replays.replay_set import ReplaySet, ReplayWriter

LEVELS = [Level.build(np.zeros((23, 42), np.uint8), (20 + i, 20), exits=[((40, 20), (60, 20))]) for i in range(3)]

replays = st.builds(
    Replay,
    st.sampled_from(LEVELS),
    st.lists(st.integers(0, 15), min_size=1, max_size=40).map(np.array),
    st.sampled_from([None, True, False]),
    st.sampled_from(["", "a.replay", "nächste Runde"]),
)
metadata = st.dictionaries(st.sampled_from(["source", "seed"]), st.integers() | st.text() | st.none())


def replay(level=0, inputs=(0, 0, 2, 2), **more):
    return Replay(LEVELS[level], np.array(inputs), **more)


@pytest.fixture
def path(tmp_path):
    with ReplayWriter(tmp_path / "some.h5") as writer:
        writer.append(replay(0, success=True, name="a", frame_skip=2), category="simple", source="planner", seed=3)
        writer.append(replay(1, (9, 8), success=False))
        writer.append(replay(0, (1,)))
    return tmp_path / "some.h5"


@given(waves=st.lists(st.lists(st.tuples(replays, st.text("ab"), metadata), max_size=4), min_size=1, max_size=3))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_append_and_read_restore_replays(tmp_path_factory, waves):
    path = tmp_path_factory.mktemp("set") / "many.h5"
    everything = [row for wave in waves for row in wave]
    for wave in waves:
        with ReplayWriter(path) as writer:
            for one, category, more in wave:
                writer.append(one, category=category, **more)
    if not everything:
        assert not path.exists()
        return
    with ReplaySet(path) as found:
        assert len(found) == len(everything)
        assert found.categories == tuple(category for _, category, _ in everything)
        assert found.frames.tolist() == [one.frames for one, _, _ in everything]
        for i, (one, category, more) in enumerate(everything):
            again, about = found[i], found.entry(i)
            assert (again.level, again.inputs.tolist()) == (one.level, one.inputs.tolist())
            assert (again.success, again.name) == (about.success, about.name) == (one.success, one.name)
            assert (about.category, about.metadata, about.frames) == (category, more, one.frames)
            assert about.level_fingerprint == one.level.fingerprint


def test_append_stores_level_once(path):
    with h5py.File(path) as file:
        assert len(file["levels/end"]) == 2
    with ReplaySet(path) as found:
        assert found[0].level is found[2].level
        assert Level.load(f"{path}#1") == found[1].level
        assert found[-1].inputs.tolist() == [1]
        assert found[0].frame_skip == 2 and found.entry(0).metadata == {"source": "planner", "seed": 3}
        with pytest.raises(IndexError):
            found[3]


def test_load_entry_of_set_like_file(path, tmp_path):
    assert [Replay.load(f"{path}#{i}").name for i in range(3)] == ["a", "", ""]
    with ReplayWriter(tmp_path / "one.h5") as writer:
        writer.append(replay(name="alone"))
    assert Replay.load(tmp_path / "one.h5").name == "alone"
    for place in ("#x", "#1"):
        with pytest.raises(ReplayError, match=r"one\.h5.*the set has 1 replays, .*give one"):
            Replay.load(f"{tmp_path / 'one.h5'}{place}")
    for place in (path, f"{path}#3", f"{path}#-1"):
        with pytest.raises(ReplayError, match=r"some\.h5.*the set has 3 replays, .*from .*some\.h5#0"):
            Replay.load(place)


def test_reader_unaffected_by_later_appends(path):
    with ReplaySet(path) as before, ReplayWriter(path) as writer:
        writer.append(replay(2))
        writer.flush()
        assert len(writer) == 0 and len(before) == 3 and before[1].inputs.tolist() == [9, 8]
        writer.append(replay(2, (3,)))
        writer.flush()
        with ReplaySet(path) as after:
            assert len(after) == 5 and after[4].inputs.tolist() == [3]
    assert [file.name for file in path.parent.iterdir()] == ["some.h5"]


@pytest.mark.parametrize(("owner", "name"), [(replayset, "_extend"), (Path, "write_bytes")])
def test_flush_failure_leaves_file_and_can_repeat(path, monkeypatch, owner, name):
    before = path.read_bytes()
    writer = ReplayWriter(path)
    writer.append(replay(2))

    def full(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, full)
        with pytest.raises(OSError, match="disk full"):
            writer.flush()
    assert path.read_bytes() == before and len(writer) == 1
    assert [file.name for file in path.parent.iterdir()] == ["some.h5"]
    writer.flush()
    with ReplaySet(path) as found:
        assert len(found) == 4


def test_exception_in_writer_keeps_flushed_replays(tmp_path):
    def play():
        with ReplayWriter(tmp_path / "play.h5") as writer:
            writer.append(replay())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play()
    with ReplaySet(tmp_path / "play.h5") as found:
        assert len(found) == 1


def test_interruption_after_flush_writes_nothing_twice(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    writer = ReplayWriter(tmp_path / "play.h5")
    writer.append(replay())
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
    writer.flush()
    with ReplaySet(tmp_path / "play.h5") as found:
        assert len(found) == 1


@pytest.mark.parametrize(
    ("one", "more", "message"),
    [
        (replay(), {"level": LEVELS[0]}, "the metadata are not JSON values"),
        (replay(), {"score": float("nan")}, "the metadata are not JSON values"),
    ],
)
def test_append_invalid_values_raise_error(tmp_path, one, more, message):
    writer = ReplayWriter(tmp_path / "out.h5")
    with pytest.raises(ReplayError, match=message):
        writer.append(one, **more)
    assert len(writer) == 0


def test_names_with_control_characters_are_escaped(tmp_path):
    with ReplayWriter(tmp_path / "out.h5") as writer:
        writer.append(replay(name="a\0b"), category="two\nlines")
        writer.append(replay(name="\u00e9 \udcff"))
    with ReplaySet(tmp_path / "out.h5") as found:
        assert found.names == ("a\\x00b", "\u00e9 \\udcff")
        assert found.entry(0).category == "two\\nlines"


def test_names_with_unusual_spaces_are_preserved(tmp_path):
    with ReplayWriter(tmp_path / "out.h5") as writer:
        writer.append(replay(name="Shot\u202f1\u3000\u00a0.replay"), category="\u00a0")
    with ReplaySet(tmp_path / "out.h5") as found:
        assert found[0].name.endswith("Shot\u202f1\u3000\u00a0.replay") and found.entry(0).category == "\u00a0"


def break_column(name, change):
    def change_file(file):
        values = file[name][:]
        change(values)
        file[name][:] = values

    return change_file


def cut(name):
    return lambda file: file[name].resize(1, axis=0)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.attrs.modify("version", 2), "format nppsim replays, 2, expected"),
        (cut("replays/success"), "columns of /replays differ in length"),
        (cut("replays/inputs"), r"/replays/end does not increase up to .* its data, 1\); the file is damaged"),
        (break_column("replays/level", lambda rows: rows.fill(9)), "/replays/level contains an index without a level"),
        (break_column("levels/data", lambda data: data.__setitem__(300, 5)), "does not match its fingerprint"),
        (break_column("levels/data", lambda data: data.fill(255)), "this is not an N.. map"),
        (break_column("replays/inputs", lambda data: data.fill(255)), "replay 0: .*input 0 is 255, expected 0 to 15"),
        (break_column("replays/frame_skip", lambda data: data.fill(3)), "replay 0: .*frame_skip=3"),
        (lambda file: file["about/end"].resize(0, axis=0), "/about/end does not increase"),
        (lambda file: file.pop("levels"), "the tables cannot be read .*levels.*; the file is damaged: copy it again"),
    ],
)
def test_open_errors_name_file_and_remedy(path, damage, message):
    with h5py.File(path, "a") as file:
        damage(file)
    with pytest.raises(ReplayError, match=message) as error, ReplaySet(path) as found:
        found[0]
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_writer_foreign_file_raises_error_without_change(tmp_path):
    other = tmp_path / "other.h5"
    other.write_bytes(b"mine")
    writer = ReplayWriter(other)
    writer.append(replay())
    for open_it in (lambda: ReplaySet(other), writer.flush):
        with pytest.raises(ReplayError, match=r"other\.h5: cannot be opened as HDF5"):
            open_it()
    assert other.read_bytes() == b"mine"
    with h5py.File(other, "w") as file:
        file["x"] = 1
    with pytest.raises(ReplayError, match="format another, expected"):
        writer.flush()
    with pytest.raises(ReplayError, match="cannot be opened as HDF5"):
        ReplaySet(tmp_path / "missing.h5")


@pytest.mark.parametrize("seed", range(40))
def test_open_damaged_bytes_detected_or_harmless(path, tmp_path, seed):
    data = bytearray(path.read_bytes())
    rng = np.random.default_rng(seed)
    if seed % 4 == 0:
        data = data[: rng.integers(len(data))]
    else:
        for place in rng.integers(0, len(data), 4):
            data[place] ^= int(rng.integers(1, 256))
    broken = tmp_path / "broken.h5"
    broken.write_bytes(data)
    try:
        with ReplaySet(broken) as found:
            inputs = [one.inputs.tolist() for one in found]
    except ReplayError as error:
        refusal = str(error)
    else:
        assert inputs == [[0, 0, 2, 2], [9, 8], [1]]
        return
    assert str(broken) in refusal and "\n" not in refusal
