"""The page computes the same documents of levels, frames and runs as Python."""

import base64
import json
import subprocess
from dataclasses import asdict

import numpy as np
import pytest

from nppsim import simulate
from nppsim.bank import LevelBank
from nppsim.replays.diff import compare_replays
from nppsim.replays.replay import Replay
from nppsim.studio.documents import about_level, packed_text
from nppsim.studio.game import Game
from nppsim.studio.writers import FrameWriter, level_document, run_document

from places import ROOT
from wasm_calls import javascript, needs_node
from worlds import KINDS, mixed_level, room, straight

SCRIPT = ROOT / "tests" / "support" / "page_documents.mjs"
LEVELS = [
    *(mixed_level(seed, kinds=KINDS[seed % len(KINDS)]) for seed in range(2 * len(KINDS))),
    room(entities=[(27, 60, 30), (18, 50, 20)]),
    straight(),
]


DELAY = 5  # frames that the second run leaves out


def inputs_for(number):
    """Random inputs; those that finish the last level."""
    if number == len(LEVELS) - 1:
        return np.full(200, 2, np.uint8)
    return np.repeat(np.random.default_rng(number).integers(0, 8, 40), 6).astype(np.uint8)


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """What the page computes, for each of LEVELS."""
    cases = [
        {
            "map": packed_text(level.to_bytes()),
            "about": about_level(level, "a name", None, None) | {"warnings": list(level.warnings)},
            "inputs": packed_text(inputs_for(number)),
            "delay": DELAY,
        }
        for number, level in enumerate(LEVELS)
    ]
    file = tmp_path_factory.mktemp("documents") / "cases.json"
    file.write_text(json.dumps(cases))
    done = subprocess.run(javascript(SCRIPT, file), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def through_json(document):
    return json.loads(json.dumps(document))


pytestmark = needs_node
each = pytest.mark.parametrize("number", range(len(LEVELS)))


@each
def test_level_document_equals_that_of_python(documents, number):
    expected = through_json(level_document(LevelBank([LEVELS[number]]), name="a name"))
    assert documents[number]["level"] == expected


@each
def test_difference_of_runs_equals_that_of_python(documents, number):
    runs = [Replay(LEVELS[number], inputs) for inputs in (inputs_for(number), inputs_for(number)[DELAY:])]
    expected = through_json(asdict(compare_replays(*runs)[0]))
    found = documents[number]["differs"]
    assert found == {name: expected[name] for name in ("inputs_part", "positions_part", "marks", "total")}


@each
def test_run_document_equals_that_of_python(documents, number):
    expected = through_json(run_document(LevelBank([LEVELS[number]]), inputs_for(number), "a run"))
    assert documents[number]["run"] == expected


@each
def test_frames_equal_those_of_python(documents, number):
    game, inputs = Game(LEVELS[number]), inputs_for(number)
    writer = FrameWriter(game)
    writer.frame()
    expected = []
    for byte in inputs:
        if not game.play(np.array([byte], np.uint8)):
            break
        expected.append(through_json(writer.frame(int(byte))))
    assert documents[number]["frames"] == expected


@each
def test_rewind_returns_to_the_frame_and_continues_equally(documents, number):
    found, frames = documents[number], documents[number]["frames"]
    middle = found["frame"]["f"]
    assert middle == min(65, len(frames)) and found["frame"]["all"]
    assert found["frame"]["n"] == frames[middle - 1]["n"] and found["frame"]["i"] == frames[middle - 1]["i"]
    assert [frame["n"] for frame in found["again"]] == [frame["n"] for frame in frames[middle:]]


@each
def test_edit_equals_the_end_of_the_run_document(documents, number):
    run, edited = documents[number]["run"], documents[number]["edited"]
    first = run["frames"] - len(base64.b64decode(edited["inputs"]))
    assert (edited["frames"], edited["outcome"]) == (run["frames"], run["outcome"])
    assert base64.b64decode(edited["track"]) == base64.b64decode(run["track"])[16 * first :]
    assert edited["changes"] == [change for change in run["changes"] if change[0] > first]


@each
def test_preview_shows_the_held_input(documents, number):
    found = documents[number]
    middle = found["frame"]["f"]
    held = np.concatenate([inputs_for(number)[:middle], np.full(60, 2, np.uint8)])
    run = simulate(LEVELS[number], held)
    assert found["preview"][1]["points"][1:] == run.position[middle:].tolist()
    assert found["preview"][1]["outcome"] == run.outcome
