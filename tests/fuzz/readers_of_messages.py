"""Readers of input to the studio: opened files and messages of the page."""

import base64
import json
from pathlib import Path

import numpy as np

from nppsim.errors import import_optional
from nppsim.generate import generate
from nppsim.io.files import write_json
from nppsim.io.reading import mismatch, parse_json
from nppsim.levels.campaign import to_line
from nppsim.replays.replay import Replay
from nppsim.studio.drafts import diagnostics, draft_of, level_of
from nppsim.studio.errors import StudioError
from nppsim.studio.leaderboard import AGENT, Leaderboard
from nppsim.studio.library import Library
from nppsim.studio.recordings import Recordings
from tests.fuzz import damage
from tests.fuzz.damage import Reader, named


def readers_of_messages() -> list[Reader]:
    """Return these readers.  A file is one message, or a list of several."""
    by_json = (damage.in_json,)
    in_files = (damage.in_bytes, damage.in_place, damage.in_words)
    return [
        Reader(
            "studio_file", "x.map", named(lambda path: Library().open(path.read_bytes(), path.name)), _files, in_files
        ),
        Reader("studio_run", "x.json", named(_store), _stored_run, by_json),
        Reader("studio_watch", "x.json", named(_parsed), _watch, by_json),
        Reader("studio_leaderboard", "x.sqlite3", _read_leaderboard, _leaderboard, (damage.in_bytes, damage.in_place)),
        Reader("studio_draft", "x.json", named(_draft), _drafts, by_json),
    ]


def _files(folder: Path) -> list[Path]:
    level = generate("advanced", 1)[0]
    level.save(folder / "x.map")
    level.save(folder / "x.level")
    (folder / "x.txt").write_text(f"{to_line(level)}\n")
    Replay(level, np.full(60, 2, np.uint8), True).save(folder / "x.replay")
    Replay(level, np.full(60, 2, np.uint8)).save(folder / "x.attract", "attract")
    return sorted(folder.iterdir())


def _stored_run(folder: Path) -> list[Path]:
    level = min(card["id"] for card in Library().levels()["levels"])
    inputs = base64.b64encode(bytes(120)).decode()
    write_json(folder / "x.json", {"level": level, "inputs": inputs, "outcome": "running", "gold": 2, "label": "a run"})
    return [folder / "x.json"]


def _store(path: Path) -> None:
    import_optional("starlette", "studio")
    from nppsim.studio.playing import store

    message = parse_json(path.read_bytes(), "the message", StudioError, "send JSON")
    json.dumps(store(Library(), Recordings(), message))


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


def _leaderboard(folder: Path) -> list[Path]:
    board = Leaderboard(folder / "x.sqlite3")
    for frames in range(100, 400):
        board.add("a level", AGENT, "an agent", frames, 2)
    return [folder / "x.sqlite3"]


def _read_leaderboard(path: Path) -> object:
    board = Leaderboard(path)
    board.add("a level", AGENT, "another agent", 90, 2)
    return board.best("a level"), board.times(AGENT, "an agent")


def _drafts(folder: Path) -> list[Path]:
    for category in ("simplest", "advanced"):
        write_json(folder / f"{category}.json", draft_of(generate(category, 1)[0])[0])
    return sorted(folder.iterdir())


def _draft(path: Path) -> None:
    draft = parse_json(path.read_bytes(), "the message", StudioError, "send JSON")
    diagnostics(draft)
    level_of(draft)
