"""Inputs as text, to be written by hand and compared by git: lines of a number of frames and the keys held in them.

      # up the wall             a comment
      12                        12 frames without keys
      30,R                      keys: L left, R right, J jump, S self-destruct
       4,R,J
    ***                         a breakpoint, at which the studio's page begins to play

Empty lines have no effect.  The studio's page reads and writes the same format (nppsim/studio/static/js/input_text.js).
"""

import re

import numpy as np

from nppsim.actions import JUMP, LEFT, RIGHT, SELF_DESTRUCT
from nppsim.replays.replay import ReplayError

KEYS = {"L": LEFT, "R": RIGHT, "J": JUMP, "S": SELF_DESTRUCT}  # letter -> bit of an input byte
BREAKPOINT = "***"
MAX_FRAMES = 1 << 22  # maximum number of frames of a text: 19 hours of play
_LINE = re.compile(r"(\d{1,9})((?:[\s,]+[LRJS])*)", re.IGNORECASE)
_FORM = "expected a number of frames and keys, such as 12,R,J (L left, R right, J jump, S self-destruct), # or ***"


def to_text(inputs: np.ndarray, comment: str = "") -> str:
    """Return inputs as text.

    inputs: uint8[frames], values 0..15.  comment: text of the first line; "" for none.
    """
    starts = np.flatnonzero(np.diff(inputs, prepend=16))  # no input is 16
    counts = np.diff(starts, append=len(inputs))
    lines = [f"# {' '.join(comment.split())}"] if comment else []
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        keys = [letter for letter, bit in KEYS.items() if inputs[start] & bit]
        lines.append(",".join([f"{count:4}", *keys]))
    return "\n".join(lines) + "\n"


def from_text(text: str, name: str = "inputs") -> np.ndarray:
    """Return the inputs of a text: uint8[frames], at least one frame.

    name: where the text comes from, for error messages.
    Raises ReplayError for another format, and for more than MAX_FRAMES frames.
    """
    counts, held, frames = [], [], 0
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if content in ("", BREAKPOINT):
            continue
        match = _LINE.fullmatch(content)
        if not match:
            raise ReplayError(f"{name}: line {number} is {content[:40]!r}; {_FORM}")
        counts.append(int(match[1]))
        held.append(sum(bit for letter, bit in KEYS.items() if letter in match[2].upper()))
        frames += counts[-1]
        if frames > MAX_FRAMES:
            raise ReplayError(f"{name}: line {number}: more than {MAX_FRAMES:,} frames")
    if not frames:
        raise ReplayError(f"{name}: no frames; {_FORM}")
    return np.repeat(np.array(held, np.uint8), counts)
