"""Replay files: content of each format, and errors for damaged files."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nppsim.actions import ACTION_INPUT, INPUT_ACTION
from nppsim.levels.level import Level, mirror
from nppsim.replays.replay import Replay, ReplayError, mirror_replay, on_grid, to_decisions, to_inputs

from places import SHARED

LEVEL = Level.build(np.zeros((23, 42), np.uint8), (20, 20), exits=[((40, 20), (60, 20))], name="empty")
MAP = LEVEL.to_bytes()
INPUTS = bytes([0, 1, 2, 3, 4, 5, 6, 7, 2, 2])


def compact_0(inputs=INPUTS, declared=None):
    return struct.pack("<II", len(MAP), len(inputs) if declared is None else declared) + MAP + inputs


def compact_1(inputs=INPUTS, declared=None, success=1, version=1):
    declared = len(inputs) if declared is None else declared
    return struct.pack("<IIIB", version, len(MAP), declared, success) + MAP + inputs


def attract(inputs=INPUTS, declared=None):
    demo_length = 30 + (len(inputs) if declared is None else declared)
    demo = struct.pack("<BIIIIIIB4s", 0, demo_length, 1, demo_length - 30, 7, 0, 0, 1, b"\xff" * 4)
    return struct.pack("<II", len(MAP) - 8, demo_length) + MAP[8:] + demo + inputs


@pytest.mark.parametrize(("data", "success"), [(compact_0(), None), (compact_1(), True), (attract(), False)])
def test_from_bytes_each_format_gives_level_and_inputs(data, success):
    replay = Replay.from_bytes(data, "a.replay")
    assert replay.level == LEVEL
    assert replay.inputs.tobytes() == INPUTS
    assert replay.inputs.dtype == np.uint8
    assert not replay.inputs.flags.writeable
    assert replay.success is success
    assert replay.warnings == ()
    assert replay.level.name == replay.name == "a.replay"


def test_save_and_load_restore_replay(tmp_path):
    replay = Replay(LEVEL, np.frombuffer(INPUTS, np.uint8), success=False)
    replay.save(tmp_path / "saved.replay")
    again = Replay.load(tmp_path / "saved.replay")
    assert again.to_bytes() == replay.to_bytes() == compact_1(success=0)
    assert again.fingerprint == replay.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["saved.replay"]


@given(inputs=st.lists(st.integers(0, 15), min_size=1, max_size=200), success=st.sampled_from([None, False]))
def test_attract_file_restores_self_destruct(inputs, success):
    replay = Replay(LEVEL, np.array(inputs), success)
    data = replay.to_bytes("attract")
    again = Replay.from_bytes(data)
    assert (again.level, again.inputs.tolist(), again.success) == (LEVEL, inputs, False)
    assert again.to_bytes("attract") == data
    assert again.warnings == ()


def test_attract_file_written_as_documented(tmp_path):
    Replay(LEVEL, np.frombuffer(INPUTS, np.uint8)).save(tmp_path / "attract", format="attract")
    expected = bytearray(attract())
    expected[len(MAP) + 13 : len(MAP) + 17] = bytes(4)  # the level id is not known
    assert (tmp_path / "attract").read_bytes() == expected


def test_to_bytes_unsupported_content_raises_error():
    won = Replay(LEVEL, np.frombuffer(INPUTS, np.uint8), success=True, name="won")
    with pytest.raises(ReplayError, match="won: .*success=True"):
        won.to_bytes("attract")
    with pytest.raises(ReplayError, match=r"won: format 'zip' is not known; choose one of \('compact', 'attract'\)"):
        won.to_bytes("zip")


@given(inputs=st.lists(st.integers(0, 15), min_size=1, max_size=50))
def test_mirrored_exchanges_left_and_right(inputs):
    replay = Replay(LEVEL, np.array(inputs), True, "a")
    image = mirror_replay(replay)
    assert image.level == mirror(LEVEL)
    assert (image.name, image.success) == ("a (mirrored)", None)
    direction = {0: 0, 2: 1, 4: -1, 6: -1}
    for before, after in zip(inputs, image.inputs.tolist(), strict=True):
        assert after & 9 == before & 9
        assert after & 6 != 6
        assert direction[after & 6] == -direction[before & 6]
    back = mirror_replay(image)
    assert back.level == LEVEL
    assert [direction[value & 6] for value in back.inputs] == [direction[value & 6] for value in inputs]


@pytest.mark.parametrize("data", [compact_0(declared=12), compact_1(declared=12), attract(declared=12)])
def test_from_bytes_short_input_block_warns(data):
    replay = Replay.from_bytes(data)
    assert replay.inputs.tobytes() == INPUTS
    (warning,) = replay.warnings
    assert "12 inputs declared, 10 present" in warning


def test_self_destruct_only_in_attract_files():
    inputs = bytes([0, 2, 9, 8])
    replay = Replay.from_bytes(attract(inputs))
    assert replay.inputs.tobytes() == inputs
    with pytest.raises(ReplayError, match=r"input 2 is 9, expected 0 to 7"):
        replay.to_bytes()
    with pytest.raises(ReplayError, match=rf"input 2 \(file byte {13 + len(MAP) + 2}\) is 9"):
        Replay.from_bytes(compact_1(inputs))
    with pytest.raises(ReplayError, match="self-destruct is not an action"):
        replay.to_decisions(1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"first two numbers should be at bytes 0 to 8, the file ends at byte 0; .*truncated"),
        (compact_1()[:10], r"header of compact version 1 should be at bytes 4 to 13, the file ends at byte 10"),
        (compact_1(version=2), r"format version at byte 0 is 2, expected 1"),
        (MAP, r"a level, not a replay; nppsim plan LEVEL OUT\.replay searches for a run"),
        (b"nppsim level 1\n", r"a level, not a replay"),
        (compact_1(success=7), r"success flag at byte 12 is 7, expected 0 or 1"),
        (compact_0()[:500], rf"map block at byte 8 should have {len(MAP)} bytes, the file ends at byte 500"),
        (compact_0()[: 8 + len(MAP)], r"no inputs at byte \d+, 10 declared"),
        (compact_1() + b"\0", r"input block at byte \d+ should have 10 bytes, the file has 11 left"),
        (attract()[: len(MAP) + 20], r"attract file's demo header should be at bytes \d+ to \d+, the file ends"),
        (struct.pack("<II", 101, 1) + bytes(102), r"101 bytes; an N\+\+ map has at least 1235 .*file bytes 8 to 109"),
    ],
)
def test_load_errors_name_file_and_remedy(data, message):
    with pytest.raises(ReplayError, match=message) as error:
        Replay.from_bytes(data, "broken.replay")
    assert str(error.value).startswith("broken.replay: ")


def test_load_unreadable_path_raises_replay_error(tmp_path):
    with pytest.raises(ReplayError, match=r"missing\.replay: cannot be read"):
        Replay.load(tmp_path / "missing.replay")
    with pytest.raises(ReplayError, match="is a folder; give a file"):
        Replay.load(tmp_path)


@settings(max_examples=300, deadline=None)
@given(
    data=st.sampled_from([compact_0(), compact_1(), attract()]),
    end=st.none() | st.integers(0, 1400),
    changes=st.lists(st.tuples(st.integers(0, 1400) | st.integers(0, 20), st.integers(0, 255)), max_size=8),
)
def test_from_bytes_damaged_read_or_refused(data, end, changes):
    data = bytearray(data[:end])
    for place, value in changes:
        if place < len(data):
            data[place] = value
    try:
        replay = Replay.from_bytes(bytes(data), "damaged")
    except ReplayError as error:
        refusal = str(error)
    else:
        assert 0 < replay.frames <= len(data)
        assert replay.inputs.max() <= 15
        return
    assert refusal.startswith("damaged: ")


@given(st.binary(max_size=64))
def test_from_bytes_random_bytes_raise_error(data):
    with pytest.raises(ReplayError):
        Replay.from_bytes(data)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [([], "no inputs"), ([0.5], "float64"), ([16], "is 16"), ([-1], "is -1"), ([300], "is 300"), ([[0]], r"\[1, 1\]")],
)
def test_replay_invalid_inputs_raise_error(inputs, message):
    with pytest.raises(ReplayError, match=message):
        Replay(LEVEL, np.array(inputs, dtype=None if inputs else np.uint8))


def test_replay_frame_skip_must_divide_inputs():
    inputs = np.array([1, 1, 1, 1, 2, 2], np.uint8)
    assert Replay(LEVEL, inputs, frame_skip=4).frame_skip == 4
    with pytest.raises(ReplayError, match="frame_skip=3"):
        Replay(LEVEL, inputs, frame_skip=3)


def test_actions_and_input_bytes_are_inverse():
    assert INPUT_ACTION[ACTION_INPUT].tolist() == [0, 1, 2, 3, 4, 5]
    assert ACTION_INPUT.tolist() == [0, 4, 2, 1, 5, 3]
    # left and right together count as left (docs/physics.md, section 9.1)
    assert (INPUT_ACTION[6], INPUT_ACTION[7]) == (INPUT_ACTION[4], INPUT_ACTION[5])


@given(
    actions=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    frame_skip=st.integers(1, 6),
    missing=st.integers(0, 5),
)
def test_actions_to_inputs_and_back_is_identity(actions, frame_skip, missing):
    frames = len(actions) * frame_skip - min(missing, frame_skip - 1)
    inputs = to_inputs(np.array(actions), frame_skip, frames)
    assert len(inputs) == frames
    assert on_grid(inputs, frame_skip)
    assert to_decisions(inputs, frame_skip).tolist() == actions


@pytest.mark.parametrize(
    ("actions", "frames", "message"),
    [
        ([0, 6], 8, r"actions range from 0 to 6, expected 0\.\.5"),
        ([-1, 2], 8, "actions range from -1 to 2"),
        *(([1, 2], frames, f"{frames} frames do not end within the last of 2 decisions") for frames in (-1, 0, 4, 9)),
    ],
)
def test_actions_invalid_values_raise_error(actions, frames, message):
    with pytest.raises(ReplayError, match=message):
        to_inputs(np.array(actions), 4, frames)


def test_decisions_off_grid_raises_error_with_position():
    inputs = np.array([0, 0, 0, 0, 2, 2, 4, 4], np.uint8)
    assert on_grid(inputs, 2)
    assert not on_grid(inputs, 4)
    with pytest.raises(ReplayError, match="input 6 changes inside a block of frame_skip=4"):
        to_decisions(inputs, 4)


def test_shared_human_replays_read_or_refused():
    folder = SHARED / "replays"
    if not folder.is_dir():
        pytest.skip(f"no recorded replays at {folder.name}: they are not part of the project")
    paths = sorted(folder.glob("*.replay"))
    refused = []
    for path in paths:
        try:
            replay = Replay.load(path)
        except ReplayError as error:
            refused.append(str(error))
        else:
            again = Replay.from_bytes(replay.to_bytes(), "again")
            assert (again.level, again.inputs.tolist()) == (replay.level, replay.inputs.tolist())
    assert len(paths) == 61
    # one file has lost a byte inside its map, which shifts all records
    assert len(refused) <= 1 and all("20251023_095301_train_complex_100001" in message for message in refused)
