"""Files that the page reads and writes by itself: JavaScript against Python."""

import hashlib
import json
import os
import re
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels import kinds
from nppsim.levels.campaign import is_campaign, levels_from_bytes, to_line
from nppsim.levels.format import TYPE
from nppsim.levels.level import Level, LevelError, is_level
from nppsim.replays.playback import entries_of
from nppsim.replays.replay import FORMATS, Replay
from nppsim.studio.library import ShownLevel

from places import ROOT
from wasm_calls import javascript, needs_node
from worlds import corridor

pytestmark = needs_node

MANY = "NPPSIM_WASM_LEVELS" in os.environ  # make test-wasm: packs of other authors, too
SCRIPT = ROOT / "tests" / "support" / "wasm_files.mjs"
CAMPAIGN = ROOT.parent / "shared" / "campaign"
REPLAYS = ROOT.parent / "shared" / "replays"


def read(*files):
    """What JavaScript reads from files."""
    command = javascript(SCRIPT, *files)
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for one in found:
        if "warnings" in one:
            one["warnings"] = len(one["warnings"])  # Python describes the places of damages in more detail
    return found


def digest(data):
    return hashlib.sha256(data).hexdigest()


def expected(file):
    """What Python reads from a file, in the form of ``read``."""
    data, category, replay, warnings = file.read_bytes(), None, None, 0
    if is_campaign(data):
        category = file.stem
        found, problems = levels_from_bytes(data, file.name)
        levels = [(level, level.title.strip() or f"{category} {number}") for number, level in found.items()]
        warnings = len(problems)
    else:
        if not is_level(data):
            replay = Replay.load(file)
            warnings = sum(not text.startswith("map block") for text in replay.warnings)
        level = replay.level if replay else Level.load(file)
        levels = [(level, level.title.strip() or file.stem)]
    return {
        "levels": [_level(level, name, category) for level, name in levels],
        "category": category,
        "warnings": warnings,
        "inputs": replay and digest(replay.inputs.tobytes()),
        "replays": replay and [digest(Replay(level, replay.inputs, False).to_bytes(f)) for f in ("compact", "attract")],
    }


def _level(level, name, category):
    extra = np.append(False, level.records[1:, TYPE] == kinds.NINJA)  # spawns that the editor leaves out
    return {
        "card": ShownLevel(level, name, category).card(),
        "map": digest(level.to_bytes()),
        "text": digest(level.to_text().encode()),
        "line": _line(level),
        "lost": ["a second spawn, which creates nothing, is left out"] * int(extra.sum()),
        "draft": digest(replace(level, records=level.records[~extra]).to_bytes()),  # a draft of the editor
    }


def _line(level):
    try:
        return digest(to_line(level).encode())
    except LevelError:
        return {"error": "a campaign file cannot store this level unchanged; save it as a map file"}


def test_read_shipped_levels_equals_python(tmp_path):
    files = sorted(Path(STARTER_LEVELS).rglob("*.map"))
    for i in range(0, len(files), 5):
        Level.load(files[i]).save(tmp_path / f"{i}.level")
    files += sorted(tmp_path.iterdir())
    assert read(*files) == [expected(file) for file in files]


def test_title_of_any_characters_equals_python(tmp_path):
    files = []
    for i, title in enumerate(("Höhle #1 🎉", 60 * "é🎉", "$dollar#")):
        level = replace(corridor(), title=title)
        texts = {".map": level.to_bytes(), ".level": level.to_text().encode(), ".txt": to_line(level).encode()}
        for suffix, data in texts.items():
            files.append(tmp_path / f"{i}{suffix}")
            files[-1].write_bytes(data)
    data = bytearray(corridor().to_bytes())
    data[38:42] = b"\x93\xe9\x81\x94"  # Windows-1252, with an undefined byte
    files.append(tmp_path / "old.map")
    files[-1].write_bytes(data)
    for encoding in ("utf-8-sig", "utf-16", "cp1252"):
        files.append(tmp_path / f"{encoding}.txt")
        files[-1].write_bytes(f"{to_line(replace(corridor(), title='é “#”'))}\r\n".encode(encoding))
    assert read(*files) == [expected(file) for file in files]


def test_read_replays_of_each_format_equals_python(tmp_path):
    files = []
    for (place, _), format in zip(
        entries_of(ROOT / "datasets" / "demonstrations" / "advanced.h5"), FORMATS, strict=False
    ):
        replay = replace(Replay.load(place), success=None)
        files.append(tmp_path / f"a.{format}")
        replay.save(files[-1], format)
        (tmp_path / "cut").write_bytes(files[-1].read_bytes()[:-9])
        map_bytes = replay.level.to_bytes()
        lengths = struct.pack("<II", len(map_bytes), replay.frames)
        (tmp_path / "compact0").write_bytes(lengths + map_bytes + replay.inputs.tobytes())
    files += [tmp_path / "cut", tmp_path / "compact0"]
    assert read(*files) == [expected(file) for file in files]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes"),
        (b"\x89PNG....................", "neither a level"),
        (b"\x89HDF....................", "holds many replays"),
        (corridor().to_bytes()[:-2], "cut off|last record"),
        (corridor().to_text().encode()[:400], "row of tiles"),
        (Replay(corridor(), np.zeros(9, np.uint8)).to_bytes()[:300], "map should end"),
    ],
)
def test_read_damaged_file_names_file_and_problem(tmp_path, data, message):
    (tmp_path / "odd.map").write_bytes(data)
    (answer,) = read(tmp_path / "odd.map")
    assert "odd.map" in answer["error"]
    assert re.search(message, answer["error"])


@pytest.mark.skipif(not CAMPAIGN.exists(), reason="needs ../shared/campaign, the levels of the game")
def test_read_campaign_files_equals_python():
    # Otherwise every second file of the game, among them SL2.txt with its damaged line.
    for file in sorted(CAMPAIGN.glob("*.txt")) if MANY else sorted(CAMPAIGN.glob("S*.txt"))[::2]:
        assert read(file) == [expected(file)]


@pytest.mark.skipif(not REPLAYS.exists(), reason="needs ../shared/replays, recordings of the game")
def test_read_recordings_of_the_game_equals_python():
    files = [file for file in sorted(REPLAYS.rglob("*")) if file.suffix in (".replay", ".attract", "")][:40]
    files = [file for file in files if file.is_file()]
    found = read(*files)
    for level in (one for file in found for one in file["levels"] if one["lost"]):
        level.update(lost=[], draft=level["map"])  # records in an unusual order
    assert found == [expected(file) for file in files]
