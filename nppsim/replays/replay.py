"""Replays: a level and one input byte per frame; file formats, and conversion between inputs and actions.

    compact 0   uint32 map length M | uint32 inputs n | M map bytes | n input bytes      (read only)
    compact 1   uint32 1 | uint32 M | uint32 n | uint8 success | M map bytes | n input bytes
    attract     uint32 L | uint32 D | L map bytes | D demo bytes (30-byte header, then the inputs)

Attract files are the demos of the game.  Numbers are little-endian.  The first number of a file is the version if it is
at most 100, otherwise the map length.  An attract file differs from compact 0 by its demo header, which repeats D.
Bits of an input byte: 0 jump, 1 right, 2 left (overrides right), 3 self-destruct (not in compact files).  The byte at
index k is the input of frame k + 1.

See ``nppsim.replays.inputs`` for files without level, ``nppsim.replays.replay_set`` for many replays in one file.
Source: docs/physics.md, sections 9.1 to 9.3.
"""

import hashlib
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from nppsim.actions import ACTION_INPUT, INPUT_ACTION, JUMP, LEFT, NUM_ACTIONS, RIGHT, SELF_DESTRUCT
from nppsim.errors import UserError
from nppsim.io import reading
from nppsim.io.addresses import parse_address
from nppsim.io.files import write_bytes
from nppsim.levels.format import RECORDS_OFFSET
from nppsim.levels.level import Level, LevelError, container_readers, container_suffix, is_level, mirror

FORMATS = ("compact", "attract")  # formats that ``Replay.to_bytes`` writes
REPLAY_SUFFIX, REPLAY_SET_SUFFIX = ".replay", ".h5"
# Suffix -> reader of one replay of a set, ``SET.h5#7``; replay_set.py, which imports this module, registers it.
set_readers: dict[str, Callable[[str], "Replay"]] = {}

_MAX_VERSION = 100  # a larger first number is the map length of compact 0
MAX_BYTES = 1 << 25  # maximum size of a file: 150 hours of play
_MAX_PLAY = 1 << 27  # maximum of frames times records of the level; ``simulate`` then needs 2.3 GB
_ATTRACT_HEADER = 30  # bytes before the inputs of an attract file's demo block


class ReplayError(UserError, ValueError):
    """Replay that cannot be read, written or converted; the message contains file, position and remedy."""


@dataclass(frozen=True, eq=False)
class Replay:
    """A level and the inputs played on it.  Immutable.

    inputs: uint8[frames], read-only, at least one frame; raw bytes 0..15.
    success: True if the file states that the run wins; None for compact 0, which does not store it; False for attract
        files, which end with the ninja's death.
    name: used in messages, e.g. the file path.
    frame_skip: frames per decision of the agent or planner that made the replay.  Replay files do not store it, so it
        is None after loading one; ``on_grid`` tests whether the inputs fit a given ``frame_skip``.
    warnings: tolerated defects of the file, one sentence each.
    Raises ReplayError for invalid inputs, and for inputs that change within a decision of ``frame_skip`` frames.
    """

    level: Level
    inputs: np.ndarray
    success: bool | None = None
    name: str = ""
    frame_skip: int | None = None
    warnings: tuple[str, ...] = ()

    def __post_init__(self):
        inputs = np.array(self.inputs)
        if inputs.ndim != 1 or inputs.dtype.kind not in "ui":
            _fail(self.name, f"inputs are {inputs.dtype}{list(inputs.shape)}, expected uint8[frames]")
        if not inputs.size:
            _fail(self.name, "no inputs; a replay needs at least one frame")
        if inputs.size * len(self.level.records) > _MAX_PLAY:
            _fail(
                self.name,
                f"{inputs.size} frames with {len(self.level.records)} entities need too much memory; cut the inputs",
            )
        _check_inputs(self.name, inputs, highest=15)
        inputs = inputs.astype(np.uint8)
        inputs.flags.writeable = False
        object.__setattr__(self, "inputs", inputs)
        if self.frame_skip is not None and not on_grid(self.inputs, self.frame_skip):
            _fail(
                self.name, f"inputs change inside blocks of frame_skip={self.frame_skip} frames; pass frame_skip=None"
            )

    @property
    def frames(self) -> int:
        """Number of input frames."""
        return len(self.inputs)

    @property
    def fingerprint(self) -> str:
        """Hexadecimal digest (16 characters) of level and inputs."""
        return hashlib.sha256(self.level.fingerprint.encode() + self.inputs.tobytes()).hexdigest()[:16]

    def to_decisions(self, frame_skip: int) -> np.ndarray:
        """Convert the inputs to actions int64[decisions], one per ``frame_skip`` frames.

        Raises ReplayError if the inputs change within a decision, or contain the self-destruct bit.
        """
        try:
            return to_decisions(self.inputs, frame_skip)
        except ReplayError as error:
            raise ReplayError(f"{self.name or 'replay'}: {error}") from error

    @classmethod
    def load(cls, path: str | Path) -> "Replay":
        """Read a replay file of any format.  Raises ReplayError with file, byte offset and remedy.

        ``SET.h5#7`` is replay 7 of a replay set (HDF5).  The number may be omitted for a set of one replay.
        """
        if reader := set_readers.get(container_suffix(path)):
            return reader(str(path))
        return cls.from_bytes(read_bytes(path), str(path))

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "") -> "Replay":
        """Decode a replay file; ``name`` is used in messages.

        A block of inputs that is shorter than stated is tolerated with an entry in ``warnings``.
        Raises ReplayError for other truncated or inconsistent data.
        """
        data = bytes(data)
        if is_level(data):
            _fail(name, "a level, not a replay; nppsim plan LEVEL OUT.replay searches for a run that finishes it")
        first, second = _unpack(name, data, 0, "<II", "the first two numbers")
        if first > _MAX_VERSION:
            map_start, map_length, num_inputs, success = 8, first, second, None
        else:
            map_start, map_length, num_inputs, success = _read_compact_header(name, data, version=first)
        map_end = map_start + map_length
        if map_end > len(data):
            _fail(
                name,
                f"the map block at byte {map_start} should have {map_length} bytes, the file ends at byte {len(data)}; "
                "it is truncated: copy or record it again (inputs without a level: nppsim.replays.inputs)",
            )
        start, highest, map_bytes = map_end, 7, data[map_start:map_end]
        if first > _MAX_VERSION and _is_attract(data, map_end, demo_length=second):
            num_inputs = _read_attract_header(name, data, map_end, demo_length=second)
            # attract files store two lengths instead of the first eight bytes of the map, which are zeros here
            start, highest, map_bytes = map_end + _ATTRACT_HEADER, 15, bytes(8) + data[8:map_end]
            success = False  # attract files end with the ninja's death
        inputs, warnings = _read_inputs(name, data, start, num_inputs, highest)
        try:
            level = Level.from_bytes(map_bytes, name)
        except LevelError as error:
            raise ReplayError(
                f"{error} [in the map block of the replay, file bytes {map_start} to {map_end}]"
            ) from error
        return cls(level, inputs, success, name, None, warnings + tuple(f"map block: {w}" for w in level.warnings))

    def to_bytes(self, format: str = "compact") -> bytes:
        """Encode the replay as "compact" version 1 or as an "attract" file.

        compact: ``success=None`` is written as True, as readers of version 0 assume a win.  attract: not stored.
        Raises ReplayError for data that the format cannot store: the self-destruct bit in a compact file, or
        ``success=True`` in an attract file.
        """
        if format not in FORMATS:
            raise ReplayError(f"{self.name or 'replay'}: format {format!r} is not known; choose one of {FORMATS}")
        map_bytes = self.level.to_bytes()
        if format == "compact":
            _check_inputs(self.name, self.inputs, highest=7)
            header = struct.pack("<IIIB", 1, len(map_bytes), self.frames, self.success is not False)
            return header + map_bytes + self.inputs.tobytes()
        if self.success:
            _fail(self.name, "an attract file cannot store success=True; save it as compact, or set success=None")
        demo_length = _ATTRACT_HEADER + self.frames
        # fields: 0, demo length, 1, number of frames, level id, game mode, 0, player mask, end of the header
        demo = struct.pack("<BIIIIIIB4s", 0, demo_length, 1, self.frames, 0, 0, 0, 1, b"\xff" * 4)
        # the two lengths replace the first eight bytes of the map
        return struct.pack("<II", len(map_bytes) - 8, demo_length) + map_bytes[8:] + demo + self.inputs.tobytes()

    def save(self, path: str | Path, format: str = "compact") -> None:
        """Write the replay atomically (see ``to_bytes``)."""
        write_bytes(path, self.to_bytes(format))


def has_replay_lengths(path: str | Path) -> bool:
    """Return True if the lengths in the header of a replay file, of any format, fit the size of the file.

    Raises OSError if the file is unreadable.
    """
    with open(path, "rb") as file:
        head, size = file.read(12), os.fstat(file.fileno()).st_size
    if len(head) < 12:
        return False
    begin, numbers = 8, struct.unpack("<III", head)
    if numbers[0] == 1:
        begin, numbers = 13, numbers[1:]
    map_end = begin + numbers[0]
    return numbers[0] > RECORDS_OFFSET - 8 and map_end < size <= map_end + numbers[1]  # an attract map lacks 8 bytes


def is_replay_set(path: str | Path) -> bool:
    """Return True if a path names a replay set or one of its replays (``SET.h5#7``)."""
    return container_suffix(path) == REPLAY_SET_SUFFIX


def load_level(path: str | Path) -> Level:
    """Read the level of a replay file, or of one replay of a set (``SET.h5#7``).  Raises LevelError."""
    if is_replay_set(path) and not parse_address(path).entry:
        raise LevelError(
            f"{path} is a set of replays, not a level; nppsim extract {path}#0 OUT writes the level of one"
        )
    try:
        return Replay.load(path).level
    except ReplayError as error:
        raise LevelError(str(error)) from error


container_readers.update({REPLAY_SUFFIX: load_level, REPLAY_SET_SUFFIX: load_level})


def mirror_replay(replay: Replay) -> Replay:
    """Mirror level and inputs horizontally; mirroring twice restores the replay.

    Left and right pressed together count as left, so they become only right.  A few rules of the physics are asymmetric
    (docs/file_formats.md), so the outcome may differ and ``success`` is None.
    """
    inputs = np.where(replay.inputs & LEFT, replay.inputs & ~np.uint8(RIGHT), replay.inputs)
    left, right = inputs & LEFT, inputs & RIGHT
    inputs = (inputs & (JUMP | SELF_DESTRUCT)) | left >> 1 | right << 1
    name = f"{replay.name} (mirrored)"
    return Replay(mirror(replay.level), inputs, name=name, frame_skip=replay.frame_skip, warnings=replay.warnings)


def on_grid(inputs: np.ndarray, frame_skip: int) -> bool:
    """Return True if inputs uint8[frames] are constant within each block of ``frame_skip`` frames."""
    _check_frame_skip(frame_skip)
    inputs = np.asarray(inputs)
    changes = np.flatnonzero(inputs[1:] != inputs[:-1]) + 1
    return not np.any(changes % frame_skip)


def to_decisions(inputs: np.ndarray, frame_skip: int) -> np.ndarray:
    """Convert inputs to actions int64[ceil(frames / frame_skip)].

    Bytes 6 and 7 (left and right together) count as 4 and 5 (left).
    Raises ReplayError if the inputs change within a decision, or contain the self-destruct bit, which is not an action.
    """
    inputs = np.asarray(inputs)
    if not on_grid(inputs, frame_skip):
        first = next(k for k in range(1, len(inputs)) if inputs[k] != inputs[k - 1] and k % frame_skip)
        raise ReplayError(
            f"input {first} changes inside a block of frame_skip={frame_skip} frames; "
            "re-time the replay or use frame_skip=1"
        )
    decisions = inputs[::frame_skip]
    if np.any(decisions > 7):
        frame = int(np.argmax(decisions > 7)) * frame_skip
        raise ReplayError(f"input {frame} is {inputs[frame]}: self-destruct is not an action; cut the inputs before it")
    return INPUT_ACTION[decisions]


def to_inputs(actions: np.ndarray, frame_skip: int, frames: int | None = None) -> np.ndarray:
    """Convert actions int[decisions], 0..5, to inputs uint8[frames], with ``frame_skip`` frames per action.

    frames: total number of frames, if the last decision is shorter than ``frame_skip``.
    Raises ReplayError for actions outside 0..5, and if ``frames`` frames do not end within the last decision.
    """
    _check_frame_skip(frame_skip)
    actions = np.asarray(actions)
    if actions.min(initial=0) < 0 or actions.max(initial=0) >= NUM_ACTIONS:
        raise ReplayError(f"actions range from {actions.min()} to {actions.max()}, expected 0..{NUM_ACTIONS - 1}")
    inputs = np.repeat(ACTION_INPUT[actions], frame_skip)
    if frames is not None and not len(inputs) - frame_skip < frames <= len(inputs):
        raise ReplayError(
            f"{frames} frames do not end within the last of {len(actions)} decisions of {frame_skip} frames"
        )
    return inputs[:frames]


def read_bytes(path: str | Path) -> bytes:
    """Read a file.  Raises ReplayError if it cannot be read or is too large for a replay."""
    return reading.read_bytes(path, ReplayError, MAX_BYTES, "check the path and its permissions")


def _read_compact_header(name: str, data: bytes, version: int) -> tuple[int, int, int, bool]:
    """Read the header of compact version 1; return start and length of the map, number of inputs, success."""
    if version != 1:
        _fail(
            name,
            f"format version at byte 0 is {version}, expected 1, or a map length above {_MAX_VERSION} (version 0); "
            "is this a replay file? convert it to compact version 1",
        )
    map_length, num_inputs, flag = _unpack(name, data, 4, "<IIB", "the header of compact version 1")
    if flag > 1:
        _fail(name, f"success flag at byte 12 is {flag}, expected 0 or 1; the header is damaged: record it again")
    return 13, map_length, num_inputs, bool(flag)


def _is_attract(data: bytes, start: int, demo_length: int) -> bool:
    """Return True if a demo header is at ``start``: 0, demo length, ..., four bytes 0xFF (not valid as compact inputs)."""
    header = data[start : start + _ATTRACT_HEADER]
    starts_like_one = len(header) >= 5 and struct.unpack_from("<BI", header) == (0, demo_length)
    return starts_like_one and (len(header) < _ATTRACT_HEADER or header.endswith(b"\xff" * 4))


def _read_attract_header(name: str, data: bytes, start: int, demo_length: int) -> int:
    """Return the number of inputs that the demo header states."""
    (num_inputs,) = _unpack(name, data, start + 9, "<I", "the frame count of the attract file's demo header")
    _unpack(name, data, start, f"{_ATTRACT_HEADER}s", "the attract file's demo header")
    if num_inputs != demo_length - _ATTRACT_HEADER:
        _fail(
            name,
            f"frame count at byte {start + 9} is {num_inputs}, expected {demo_length - _ATTRACT_HEADER} "
            f"(demo length {demo_length} minus {_ATTRACT_HEADER}); the demo header is damaged: copy the file again",
        )
    return num_inputs


def _read_inputs(
    name: str, data: bytes, start: int, num_inputs: int, highest: int
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the inputs uint8[<= num_inputs] from byte ``start`` on, and a warning if there are fewer than stated.

    highest: largest valid input byte.
    """
    inputs = np.frombuffer(data, np.uint8, offset=start) if start < len(data) else np.zeros(0, np.uint8)
    if len(inputs) > num_inputs:
        _fail(
            name,
            f"the input block at byte {start} should have {num_inputs} bytes, the file has {len(inputs)} left; "
            "the lengths in the header do not fit the file: it is damaged or of another format",
        )
    if not len(inputs):
        _fail(name, f"no inputs at byte {start}, {num_inputs} declared; the file is truncated: copy or record it again")
    _check_inputs(name, inputs, highest, start)
    if len(inputs) == num_inputs:
        return inputs, ()
    return inputs, (f"byte {start}: {num_inputs} inputs declared, {len(inputs)} present; these are used",)


def _check_inputs(name: str, inputs: np.ndarray, highest: int, start: int | None = None) -> None:
    bad = (inputs < 0) | (inputs > highest)
    if bad.any():
        index = int(np.argmax(bad))
        position = "" if start is None else f" (file byte {start + index})"
        bits = "1 jump, 2 right, 4 left, 8 self-destruct" + (" (not in compact files)" if highest == 7 else "")
        _fail(name, f"input {index}{position} is {inputs[index]}, expected 0 to {highest}; the bits are {bits}")


def _check_frame_skip(frame_skip: int) -> None:
    if frame_skip < 1:
        raise ReplayError(f"frame_skip={frame_skip}, expected at least 1")


def _unpack(name: str, data: bytes, offset: int, layout: str, what: str) -> tuple:
    size = struct.calcsize(layout)
    if offset + size > len(data):
        _fail(
            name,
            f"{what} should be at bytes {offset} to {offset + size}, the file ends at byte {len(data)}; "
            "it is empty or truncated: copy or record it again",
        )
    return struct.unpack_from(layout, data, offset)


def _fail(name: str, message: str) -> NoReturn:
    raise ReplayError(f"{name or 'replay'}: {message}")
