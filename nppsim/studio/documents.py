"""What messages to the page and from it have in common."""

import base64
from typing import Any

import numpy as np

from nppsim.errors import UserError
from nppsim.levels.ids import episode_of
from nppsim.levels.level import Level
from nppsim.studio.errors import StudioError

Document = dict[str, Any]


def about_level(level: Level, name: str, category: str | None, par: int | None) -> Document:
    """Return the entries of a level for the gallery and the views of one level.

    category, par (frames): as in its level set, or None.
    """
    return {
        "id": level.fingerprint,
        "name": name,
        "category": category,
        "par": par,
        "code": level.id,
        "episode": episode_of(level.id),
        "support": {"grade": level.support, "notes": list(level.support_notes)},
    }


def packed_text(data: np.ndarray | bytes) -> str:
    """Return bytes, or those of an array, as base64 text."""
    return base64.b64encode(bytes(data)).decode("ascii")


def level_of(text: str) -> Level:
    """Return the level of a map file in base64.  Raises LevelError, and StudioError for other text."""
    try:
        return Level.from_bytes(base64.b64decode(text, validate=True), "the level")
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise StudioError(f"map must be base64 ({error})") from error


def input_bytes(text: Any) -> np.ndarray:
    """Decode base64 text into input bytes, uint8[frames]."""
    try:
        inputs = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
    except (TypeError, ValueError) as error:
        raise StudioError(f"inputs must be base64 ({error})") from error
    if inputs.max(initial=0) > 15:
        raise StudioError("each byte of inputs must be 0 to 15")
    return inputs
