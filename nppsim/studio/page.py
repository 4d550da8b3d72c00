"""Export runs as one HTML file with the studio's player and its kernels.  The file needs neither Python nor a network.

    write_text("run.html", page(runs_of_replays(["a.replay", "b.replay"]), "Two runs"))

Reports embed the same player: ``style()``, ``kernels()`` and ``script()`` once per page, and ``player_data(runs)`` for
each player.
"""

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from nppsim.levels.level import Level
from nppsim.replays.replay import Replay
from nppsim.studio.documents import about_level, packed_text
from nppsim.studio.errors import StudioError
from nppsim.studio.modules import PACKAGE, STATIC, WASM, with_imports

MAX_PAGE = 32 << 20  # maximum bytes of a page; browsers open larger pages slowly
MAX_FRAMES = 100_000  # maximum number of frames of a run, as in static/js/recording.js
_IMPORT = re.compile(r'^import \{([^}]*)\} from "[./\w]*?(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}' 'wasm-unsafe-eval'"
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
{kernels}
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
    players = "\n".join(_section(level, i if len(levels) > 1 else None) for i, level in enumerate(levels, 1))
    several = f"{sum(len(level.runs) for level in levels)} runs of {len(levels)} levels" if len(levels) > 1 else ""
    title = title or several or levels[0].level.title.strip() or levels[0].runs[0][0]
    text = _PAGE.format(
        policy=_POLICY.format(digest=_digest(script())),
        title=html.escape(title),
        style=style() + (STATIC / "page.css").read_text(encoding="utf-8"),
        players=players,
        keys=_KEYS,
        kernels=kernels(),
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
    """Return an HTML element with a level and its runs, which ``script()`` turns into a player.

    Raises StudioError for more than MAX_FRAMES frames.
    """
    its = level.level
    for label, inputs in level.runs:
        if len(inputs) > MAX_FRAMES:
            raise StudioError(f"{label} has {len(inputs):,} frames; at most {MAX_FRAMES:,} can be shown: shorten it")
    name = its.title.strip() or Path(its.name).stem or "level"
    about = about_level(its, name, None, None) | {"map": packed_text(its.to_bytes())}
    runs = [{"label": label, "inputs": packed_text(np.asarray(inputs, np.uint8))} for label, inputs in level.runs]
    return _data("runs", {"level": about, "runs": runs})


def _data(name: str, content: dict) -> str:
    text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")  # a label may contain </script>
    return f'<script type="application/json" class="{name}">{text}</script>'


@cache
def kernels() -> str:
    """Return an HTML element with the kernels that play the runs."""
    interface = json.loads((WASM / "interface.json").read_text(encoding="utf-8"))
    binary = packed_text(gzip.compress((WASM / "game.wasm").read_bytes(), mtime=0))
    return _data(
        "kernels", {"binary": binary, "records": interface["records"], "entries": interface["modules"]["game"]}
    )


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
    body = _EXPORT.sub("", _IMPORT.sub(lambda match: f"const {{{match[1]}}} = ${match[2]};", text))
    return f"const ${Path(module).stem} = (() => {{\n{body}return {{ {exported} }};\n}})();\n"


def _digest(script: str) -> str:
    """Return the SHA-256 hash by which a Content-Security-Policy allows an inline script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
