"""Export runs as one HTML file with the studio's player.  The file needs neither Python nor a network.

    write_text("run.html", page(runs_of_replays(["a.replay", "b.replay"]), "Two runs"))

Reports embed the same player: ``style()`` and ``script()`` once per page, and ``player_data(runs)`` for each player.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from nppsim.bank import LevelBank
from nppsim.levels.level import Level
from nppsim.replays.replay import Replay
from nppsim.studio.errors import StudioError
from nppsim.studio.modules import PACKAGE, STATIC, with_imports
from nppsim.studio.writers import level_document, run_document

MAX_PAGE = 32 << 20  # maximum bytes of a page; browsers open larger pages slowly
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
_KEYS = "Space plays, arrows step (with shift ten frames), + and − zoom, 1 to 9 follow a run."
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{players}
<footer>{keys} Made with nppsim, on the exact physics of N++.</footer>
</main>
<script type="module">{script}</script>
</body>
</html>
"""


@dataclass(frozen=True)
class LevelRuns:
    """Runs of one level.  runs: (label, inputs) of each run; inputs are uint8[frames]."""

    level: Level
    runs: Sequence[tuple[str, np.ndarray]]


def runs_of_replays(places: Sequence[str]) -> list[LevelRuns]:
    """Load replays and group them by level, in order of first appearance.

    places: replay files, or replays within a set (``SET.h5#7``).  Raises ReplayError.
    """
    levels: dict[str, tuple[Level, list[tuple[str, np.ndarray]]]] = {}
    names = [Path(place).name for place in places]
    for place, name in zip(places, names, strict=True):
        replay = Replay.load(place)
        label = name if names.count(name) == 1 else place
        levels.setdefault(replay.level.fingerprint, (replay.level, []))[1].append((label, replay.inputs))
    return [LevelRuns(level, runs) for level, runs in levels.values()]


def page(levels: Sequence[LevelRuns], title: str = "") -> str:
    """Return the HTML of a page with one player per level.  Raises StudioError if it would exceed MAX_PAGE bytes."""
    players = "\n".join(_section(one, i if len(levels) > 1 else None) for i, one in enumerate(levels, 1))
    title = title or levels[0].level.title.strip() or levels[0].runs[0][0]
    text = _PAGE.format(
        policy=_POLICY.format(digest=_digest(script())),
        title=html.escape(title),
        style=style() + (STATIC / "page.css").read_text(encoding="utf-8"),
        players=players,
        keys=_KEYS,
        script=script(),
    )
    if (size := len(text.encode("utf-8", "backslashreplace"))) > MAX_PAGE:
        raise StudioError(f"the page would have {size:,} bytes, more than {MAX_PAGE:,}: give fewer or shorter runs")
    return text


def _section(level: LevelRuns, number: int | None) -> str:
    """Return the HTML of one player, with a heading if the page has several players (``number`` is then not None)."""
    name = level.level.title.strip() or f"Level {number}"
    return (f"<h2>{html.escape(name)}</h2>\n" if number else "") + player_data(level)


def player_data(level: LevelRuns) -> str:
    """Return an HTML element with the documents of a level and its runs, which ``script()`` turns into a player."""
    bank = LevelBank([level.level])
    documents = {
        "level": level_document(bank),
        "runs": [run_document(bank, inputs, label) for label, inputs in level.runs],
    }
    data = json.dumps(documents, separators=(",", ":")).replace("<", "\\u003c")  # a label may contain </script>
    return f'<script type="application/json" class="runs">{data}</script>'


@cache
def style() -> str:
    """Return the player's stylesheet."""
    return (STATIC / "scene.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    """Return the player's modules as one script."""
    return "".join(map(_as_function, with_imports("studio/static/js/page.js"))).replace("</", "<\\/")


def _as_function(module: str) -> str:
    """Return a module of the page as a function that returns its exports."""
    text = (PACKAGE / module).read_text(encoding="utf-8")
    exported = ", ".join(match[1] for match in _EXPORT.finditer(text))
    body = _EXPORT.sub("", _IMPORT.sub(lambda found: f"const {{{found[1]}}} = ${found[2]};", text))
    return f"const ${Path(module).stem} = (() => {{\n{body}return {{ {exported} }};\n}})();\n"


def _digest(script: str) -> str:
    """Return the SHA-256 hash by which a Content-Security-Policy allows an inline script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
