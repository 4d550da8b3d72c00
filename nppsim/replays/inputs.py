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

from nppsim.io.files import write_bytes
from nppsim.io.reading import inflate
from nppsim.levels.level import Level
from nppsim.replays.replay import Replay, ReplayError, read_bytes

SEPARATOR = 0x26
SAVED_REPLAY_OFFSET = 215
_MAX_BYTES = 1 << 24  # maximum size of unpacked inputs: 77 hours of play


def load_inputs(path: str | Path, level: Level, offset: int = 0) -> Replay:
    """Read the inputs of one level.

    offset: number of bytes before the inputs; SAVED_REPLAY_OFFSET for a saved replay of the game.
    Raises ReplayError if the file is damaged or contains an episode.
    """
    return _load(path, [level], offset)[0]


def load_episode(path: str | Path, levels: Sequence[Level]) -> tuple[Replay, ...]:
    """Read an episode: one replay for each of its five levels, in order.

    Raises ReplayError if the file is damaged or has inputs of another number of levels.
    """
    return _load(path, levels)


def _load(path: str | Path, levels: Sequence[Level], offset: int = 0) -> tuple[Replay, ...]:
    parts = parse_inputs(read_bytes(path), str(path), offset)
    if len(parts) != len(levels):
        raise ReplayError(
            f"{path}: inputs of {len(parts)} levels for {len(levels)} levels; give the levels that were played, in order"
        )
    names = [f"{path}, level {number}" if len(parts) > 1 else str(path) for number in range(1, len(parts) + 1)]
    return tuple(Replay(level, part, name=name) for level, part, name in zip(levels, parts, names, strict=True))


def save_inputs(path: str | Path, replays: Replay | Sequence[Replay], compress: bool = True) -> None:
    """Write the inputs of one replay, or of the five replays of an episode, atomically.

    compress: write a zlib stream, as the game's tools expect.
    """
    replays = [replays] if isinstance(replays, Replay) else replays
    data = bytes([SEPARATOR]).join(replay.inputs.tobytes() for replay in replays)
    write_bytes(path, zlib.compress(data, 9) if compress else data)


def parse_inputs(data: bytes, name: str = "inputs", offset: int = 0) -> tuple[np.ndarray, ...]:
    """Split an input file into the inputs of its levels: uint8[frames] each, values 0..15, at least one frame.

    Raises ReplayError for damaged data.  Byte offsets in its message refer to the unpacked data if the file is a zlib
    stream.
    """
    body, unit = bytes(data[offset:]), "file byte"
    if _is_zlib(body):
        try:
            body, unit, offset = inflate(body, _MAX_BYTES), "unpacked byte", 0
        except ValueError as error:
            raise ReplayError(f"{name}: {error}; copy the file again") from error
    values = np.frombuffer(body, np.uint8)
    bad = np.flatnonzero((values > 15) & (values != SEPARATOR))
    if bad.size:
        hint = "the file is damaged or no input file"
        if unit == "file byte" and bad[-1] < SAVED_REPLAY_OFFSET - offset < len(values):
            hint += f"; if it is a saved replay of the game, pass offset={SAVED_REPLAY_OFFSET}"
        raise ReplayError(f"{name}: {unit} {offset + bad[0]} is {values[bad[0]]}, expected inputs 0 to 15; {hint}")
    ends = np.flatnonzero(values == SEPARATOR)
    parts = [part[1:] if i else part for i, part in enumerate(np.split(values, ends))]
    for number, part in enumerate(parts, 1):
        if not part.size:
            raise ReplayError(
                f"{name}: no inputs for level {number} of {len(parts)}; the file is damaged: copy it again"
            )
    return tuple(parts)


def _is_zlib(data: bytes) -> bool:
    """Return True if data begin with a zlib header, whose second byte is neither an input nor a separator."""
    return len(data) >= 2 and data[0] & 15 == 8 and data[0] >> 4 <= 7 and (data[0] << 8 | data[1]) % 31 == 0
