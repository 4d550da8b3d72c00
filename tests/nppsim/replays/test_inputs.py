"""Input files: plain, packed, of an episode, and in the game's saved replays."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nppsim.levels.level import Level
from nppsim.replays.inputs import SAVED_REPLAY_OFFSET, load_episode, load_inputs, parse_inputs, save_inputs
from nppsim.replays.replay import Replay, ReplayError

LEVELS = [Level.build(np.zeros((23, 42), np.uint8), (20 + i, 20), exits=[((40, 20), (60, 20))]) for i in range(5)]
INPUTS = bytes([0, 1, 2, 3, 4, 5, 9, 8])
EPISODE = zlib.compress(b"&".join([INPUTS] * 5))
some_inputs = st.binary(min_size=1, max_size=60).map(lambda data: bytes(value & 15 for value in data))


@given(inputs=some_inputs, offset=st.sampled_from([0, SAVED_REPLAY_OFFSET]), packed=st.booleans())
def test_load_inputs_plain_packed_and_with_header(inputs, offset, packed):
    data = b"\xaa" * offset + (zlib.compress(inputs) if packed else inputs)
    (part,) = parse_inputs(data, offset=offset)
    assert part.tobytes() == inputs and part.dtype == np.uint8


@given(parts=st.lists(some_inputs, min_size=5, max_size=5))
def test_load_episode_has_five_parts(parts):
    assert [part.tobytes() for part in parse_inputs(zlib.compress(b"&".join(parts)))] == parts


@pytest.mark.parametrize("compress", [True, False])
def test_save_and_load_inputs_restore_replay(tmp_path, compress):
    replay = Replay(LEVELS[0], np.frombuffer(INPUTS, np.uint8))
    save_inputs(tmp_path / "inputs", replay, compress)
    again = load_inputs(tmp_path / "inputs", LEVELS[0])
    assert again.fingerprint == replay.fingerprint
    assert again.success is None
    assert [path.name for path in tmp_path.iterdir()] == ["inputs"]


def test_save_and_load_episode_restore_replays(tmp_path):
    replays = [Replay(level, np.arange(1, 3 + i)) for i, level in enumerate(LEVELS)]
    save_inputs(tmp_path / "episode", replays)
    again = load_episode(tmp_path / "episode", LEVELS)
    assert [replay.fingerprint for replay in again] == [replay.fingerprint for replay in replays]
    assert again[1].name.endswith("episode, level 2")


@pytest.mark.parametrize(
    ("data", "offset", "message"),
    [
        (b"", 0, r"no inputs for level 1 of 1; the file is damaged: copy it again"),
        (bytes(215), 215, r"no inputs for level 1 of 1"),
        (b"\2\3\xff\1", 0, r"file byte 2 is 255, expected inputs 0 to 15; the file is damaged"),
        (b"\xab" * 215 + INPUTS, 0, r"file byte 0 is 171.*saved replay of the game, pass offset=215"),
        (b"\xab" * 215 + b"\1\20", 215, r"file byte 216 is 16"),
        (zlib.compress(b"\1\20"), 0, r"unpacked byte 1 is 16"),
        (zlib.compress(INPUTS)[:-2], 0, r"the zlib stream is incomplete, or .*; copy the file again"),
        (zlib.compress(INPUTS) + b"\0\0", 0, r"the zlib stream is incomplete, or"),
        (zlib.compress(INPUTS)[:-1] + b"\0", 0, r"the zlib stream is damaged: .*; copy the file again"),
        (zlib.compress(bytes(1 + (1 << 24))), 0, r"has more than 16,777,216 bytes"),
        (b"\1&&\2", 0, r"no inputs for level 2 of 3; the file is damaged"),
    ],
)
def test_load_inputs_errors_name_file_and_remedy(data, offset, message):
    with pytest.raises(ReplayError, match=message) as error:
        parse_inputs(data, "broken.inputs", offset)
    assert str(error.value).startswith("broken.inputs: ") and "\n" not in str(error.value)


@given(st.binary(max_size=60), st.sampled_from([0, 5]))
def test_load_inputs_random_bytes_read_or_refused(data, offset):
    try:
        parts = parse_inputs(data, "random", offset)
    except ReplayError as error:
        refusal = str(error)
    else:
        assert all(part.size and part.max() <= 15 for part in parts)
        return
    assert refusal.startswith("random: ")


@given(st.binary(min_size=1, max_size=4), st.integers(0, 60))
def test_load_inputs_damaged_stream_raises_error(change, place):
    data = EPISODE[:place] + change + EPISODE[place + len(change) :]
    try:
        parts = parse_inputs(data, "damaged")
    except ReplayError:
        return
    assert [part.tobytes() for part in parts] == [INPUTS] * 5


def test_load_episode_wrong_number_of_levels_raises_error(tmp_path):
    one, episode, two = (tmp_path / name for name in ("one", "episode", "two"))
    one.write_bytes(INPUTS)
    episode.write_bytes(EPISODE)
    two.write_bytes(b"\1&\2")
    with pytest.raises(ReplayError, match="inputs of 5 levels for 1 levels"):
        load_inputs(episode, LEVELS[0])
    with pytest.raises(ReplayError, match="inputs of 1 levels for 5 levels"):
        load_episode(one, LEVELS)
    with pytest.raises(ReplayError, match="inputs of 2 levels for 5 levels"):
        load_episode(two, LEVELS)
    with pytest.raises(ReplayError, match="inputs of 5 levels for 4 levels"):
        load_episode(episode, LEVELS[:4])
    with pytest.raises(ReplayError, match="missing: cannot be read"):
        load_inputs(tmp_path / "missing", LEVELS[0])
