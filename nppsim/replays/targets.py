"""Targets: times or scores to reach, one level per line of a text file.

    S-C-12-03  12.567        finish at this time or earlier, in seconds
    S-C-12-04  score 91.2    reach this score

A line has an id of the game, or at least eight digits of the beginning of a level's fingerprint; # begins a comment.
The studio's page reads the same format (nppsim/studio/static/js/targets.js).
"""

import re
from dataclasses import dataclass
from pathlib import Path

from nppsim.actions import FRAMES_PER_SECOND
from nppsim.errors import ConfigError
from nppsim.io.reading import as_utf8, read_bytes
from nppsim.levels.level import Level
from nppsim.replays.score import score, time_text

MAX_BYTES = 16 << 20
_LINE = re.compile(r"([\w?!][\w-]*)[\s,;]+(score[\s,;]+)?(\d{1,9}(?:\.\d{1,9})?)", re.IGNORECASE | re.ASCII)
_FINGERPRINT = re.compile(r"[0-9a-f]{8,}")
_FORM = "expected an id and a time in seconds or a score, such as S-C-12-03 12.567 or S-C-12-04 score 91.2"


@dataclass(frozen=True)
class Target:
    """Largest number of frames, or smallest score, of a run; the other one is None."""

    frames: int | None = None
    score: float | None = None

    def __str__(self) -> str:
        return f"score {self.score}" if self.frames is None else time_text(self.frames)

    def is_reached(self, frames: int, gold: int) -> bool:
        """Return True if a run with this number of frames and pieces of gold reaches the target."""
        if self.frames is not None:
            return frames <= self.frames
        assert self.score is not None
        return score(frames, gold) >= self.score


class Targets:
    """Targets of a file.  Raises ConfigError for a file that cannot be read, or a line of another form."""

    def __init__(self, path: Path):
        self._targets: dict[str, Target] = {}
        text = as_utf8(read_bytes(path, ConfigError, MAX_BYTES, "give a file of targets")).decode("utf-8", "replace")
        for number, line in enumerate(text.splitlines(), 1):
            content = line.partition("#")[0].strip()
            if not content:
                continue
            match = _LINE.fullmatch(content)
            if not match:
                raise ConfigError(f"{path}: line {number} is {content[:40]!r}; {_FORM}")
            value = float(match[3])
            target = Target(score=value) if match[2] else Target(frames=round(FRAMES_PER_SECOND * value))
            self._targets[match[1].lower()] = target
        self._beginnings = [id for id in self._targets if _FINGERPRINT.fullmatch(id)]

    def of(self, level: Level) -> Target | None:
        """Return the target of a level, or None."""
        if level.id and level.id.lower() in self._targets:
            return self._targets[level.id.lower()]
        return next((self._targets[id] for id in self._beginnings if level.fingerprint.startswith(id)), None)
