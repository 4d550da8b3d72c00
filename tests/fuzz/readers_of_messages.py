"""Readers of input to the studio: messages of its sockets."""

from pathlib import Path

from nppsim.errors import import_optional
from nppsim.io.files import write_json
from nppsim.io.reading import parse_json
from nppsim.studio.errors import StudioError
from tests.fuzz import damage
from tests.fuzz.damage import Reader, named


def readers_of_messages() -> list[Reader]:
    """Return these readers.  A file is one message, or a list of several."""
    return [Reader("studio_watch", "x.json", named(_parsed), _watch, (damage.in_json,))]


def _watch(folder: Path) -> list[Path]:
    runs = [{"agent": "a", "seed": 1, "deterministic": True}, {"label": "a", "inputs": "AAAA"}, {"replay": 1}]
    messages = [
        {"watch": {"number": 1, "level": "x", "runs": runs}},
        {"deaths": {"number": 1, "agent": "a", "level": None, "category": "simple", "episodes": 100}},
        {"stop": "watch"},
    ]
    for number, message in enumerate(messages):
        write_json(folder / f"{number}.json", message)
    return sorted(folder.iterdir())


def _parsed(path: Path) -> object:
    import_optional("starlette", "studio")
    from nppsim.studio.watching import _parse

    return _parse(parse_json(path.read_bytes(), "the message", StudioError, "send JSON"))
