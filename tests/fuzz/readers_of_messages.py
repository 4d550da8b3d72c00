"""Readers of input to the studio: messages of the page."""

import base64
from pathlib import Path

from nppsim.errors import import_optional
from nppsim.generate import generate
from nppsim.io.files import write_json
from nppsim.io.reading import mismatch, parse_json
from nppsim.studio.errors import StudioError
from tests.fuzz import damage
from tests.fuzz.damage import Reader, named


def readers_of_messages() -> list[Reader]:
    """Return these readers.  A file is one message, or a list of several."""
    return [Reader("studio_watch", "x.json", named(_parsed), _watch, (damage.in_json,))]


def _watch(folder: Path) -> list[Path]:
    maps = [base64.b64encode(generate(category, 1)[0].to_bytes()).decode() for category in ("simple", "advanced")]
    settings = {"episodes": 3, "seed": 1, "deterministic": False, "inputs": "AAEC"}
    write_json(folder / "1.json", {"maps": maps, "endings_only": True} | settings)
    write_json(folder / "2.json", {"maps": maps[:1], "endings_only": False} | settings)
    return sorted(folder.iterdir())


def _parsed(path: Path) -> object:
    import_optional("starlette", "studio")
    from nppsim.studio.agent_routes import PLAY
    from nppsim.studio.episodes import messages

    request = parse_json(path.read_bytes(), "the message", StudioError, "send JSON")
    if wrong := mismatch(request, PLAY):
        raise StudioError(wrong)
    return messages(None, request)
