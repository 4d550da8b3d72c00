"""Input files: one input byte per frame, without the level.

    one level    the input bytes, raw or as one zlib stream
    episode      the inputs of five levels, separated by the byte 0x26 ("&"), as one zlib stream
    saved replay of the game    a header of 215 bytes in an unknown format, then the input bytes

A zlib stream is detected by its first two bytes, which are not valid inputs.  A saved replay cannot be detected; the
caller passes ``offset=SAVED_REPLAY_OFFSET``.  Source: docs/physics.md, section 9.4.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nppsim.files import write_bytes
from nppsim.levels.level import Level
from nppsim.replays.replay import Replay, ReplayError, read_bytes

SEPARATOR = 0x26
EPISODE_LEVELS = 5
SAVED_REPLAY_OFFSET = 215
_MAX_BYTES = 1 << 24  # maximum size of unpacked inputs: 77 hours of play


def load_inputs(path: str | Path, level: Level, offset: int = 0) -> Replay:
    """Read the inputs of one level.

    offset: number of bytes before the inputs; SAVED_REPLAY_OFFSET for a saved replay of the game.
    Raises ReplayError if the file is damaged or contains an episode.
    """
    parts = parse_inputs(read_bytes(path), str(path), offset)
    if len(parts) > 1:
        raise ReplayError(f"{path}: inputs of {len(parts)} levels, expected inputs of one; read it with load_episode")
    return Replay(level, parts[0], name=str(path))


def load_episode(path: str | Path, levels: Sequence[Level]) -> tuple[Replay, ...]:
    """Read an episode: one replay for each of its five levels, in order.

    Raises ReplayError if the file is damaged, or if the file or ``levels`` does not have five levels.
    """
    if len(levels) != EPISODE_LEVELS:
        raise ReplayError(f"{path}: {len(levels)} levels given; an episode has {EPISODE_LEVELS}: pass them in order")
    parts = parse_inputs(read_bytes(path), str(path))
    if len(parts) != EPISODE_LEVELS:
        raise ReplayError(
            f"{path}: inputs of {len(parts)} levels, an episode has {EPISODE_LEVELS}; "
            + ("read it with load_inputs" if len(parts) == 1 else "the file is damaged: copy it again")
        )
    named = [f"{path}, level {number}" for number in range(1, EPISODE_LEVELS + 1)]
    return tuple(Replay(level, part, name=n) for level, part, n in zip(levels, parts, named, strict=True))


def save_inputs(path: str | Path, replays: Replay | Sequence[Replay], compress: bool = True) -> None:
    """Write the inputs of one replay, or of the five replays of an episode, atomically.

    compress: write a zlib stream, as the game's tools expect; required for an episode.
    """
    replays = [replays] if isinstance(replays, Replay) else list(replays)
    if len(replays) not in (1, EPISODE_LEVELS) or (len(replays) > 1 and not compress):
        raise ReplayError(
            f"{path}: {len(replays)} replays, compress={compress}; "
            f"pass one replay, or the {EPISODE_LEVELS} replays of an episode with compress=True"
        )
    data = bytes([SEPARATOR]).join(replay.inputs.tobytes() for replay in replays)
    write_bytes(path, zlib.compress(data, 9) if compress else data)


def parse_inputs(data: bytes, name: str = "", offset: int = 0) -> tuple[np.ndarray, ...]:
    """Split an input file into the inputs of its levels: uint8[frames] each, values 0..15, at least one frame.

    Raises ReplayError for damaged data.  Byte offsets in its message refer to the unpacked data if the file is a zlib
    stream.
    """
    label = name or "inputs"
    data = bytes(data)
    if len(data) <= offset:
        raise ReplayError(
            f"{label}: no inputs at byte {offset}, the file has {len(data)} bytes; copy or record it again"
        )
    body, unit = data[offset:], "file byte"
    if _is_zlib(body):
        body, unit, offset = _unpacked(body, label), "unpacked byte", 0
    values = np.frombuffer(body, np.uint8)
    bad = np.flatnonzero((values > 15) & (values != SEPARATOR))
    if bad.size:
        hint = "the file is damaged or no input file"
        if unit == "file byte" and bad[-1] < SAVED_REPLAY_OFFSET - offset < len(values):
            hint += f"; if it is a saved replay of the game, pass offset={SAVED_REPLAY_OFFSET}"
        raise ReplayError(f"{label}: {unit} {offset + bad[0]} is {values[bad[0]]}, expected inputs 0 to 15; {hint}")
    ends = np.flatnonzero(values == SEPARATOR)
    parts = [part[1:] if i else part for i, part in enumerate(np.split(values, ends))]
    for number, part in enumerate(parts, 1):
        if not part.size:
            raise ReplayError(
                f"{label}: no inputs for level {number} of {len(parts)}; the file is damaged: copy it again"
            )
    return tuple(parts)


def _is_zlib(data: bytes) -> bool:
    """Return True if data begin with a zlib header, whose second byte is neither an input nor a separator."""
    return len(data) >= 2 and data[0] & 15 == 8 and data[0] >> 4 <= 7 and (data[0] << 8 | data[1]) % 31 == 0


def _unpacked(data: bytes, label: str) -> bytes:
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(data, _MAX_BYTES)
    except zlib.error as error:
        raise ReplayError(f"{label}: the zlib stream is damaged ({error}); copy the file again") from error
    if stream.unconsumed_tail or len(unpacked) == _MAX_BYTES:
        raise ReplayError(f"{label}: more than {_MAX_BYTES} inputs in the zlib stream; this is no input file")
    if not stream.eof or stream.unused_data:
        what = f"{len(stream.unused_data)} bytes follow it" if stream.eof else "the file ends within it"
        raise ReplayError(f"{label}: a zlib stream of {len(unpacked)} inputs, but {what}; copy the file again")
    return unpacked
