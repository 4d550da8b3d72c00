"""Levels and runs of the page against the simulator."""

import json
import subprocess
from dataclasses import asdict

import numpy as np
import pytest

from nppsim import simulate
from nppsim.levels import kinds
from nppsim.replays.diff import compare_replays
from nppsim.replays.replay import Replay
from nppsim.studio.documents import about_level, packed_text

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


pytestmark = needs_node
each = pytest.mark.parametrize("number", range(len(LEVELS)))


@each
def test_level_document_has_entities_in_run_order(documents, number):
    level, document = LEVELS[number], documents[number]["level"]
    run = simulate(level, inputs_for(number))
    assert (document["id"], document["name"]) == (level.fingerprint, "a name")
    assert document["tiles"] == level.tiles.tolist() and document["spawn"] == [*level.spawn]
    assert [entity["type"] for entity in document["entities"]] == run.entities[:, 0].tolist()
    for i, entity in enumerate(document["entities"]):
        assert entity["kind"] == kinds.ENTITY_NAMES[entity["type"]]
        assert ("door" in entity) == (entity["type"] in kinds.DOORS)
        if entity["type"] == kinds.EXIT:
            assert document["entities"][entity["switch"]]["exit"] == i
    assert len(document["start"]["looks"]) == len(run.entities)
    assert [one["name"] for one in document["left_out"]] == ["alternative death ball"] * (number == len(LEVELS) - 2)


@each
def test_difference_of_runs_equals_that_of_python(documents, number):
    runs = [Replay(LEVELS[number], inputs) for inputs in (inputs_for(number), inputs_for(number)[DELAY:])]
    expected = json.loads(json.dumps(asdict(compare_replays(*runs)[0])))
    found = documents[number]["differs"]
    assert found == {name: expected[name] for name in ("inputs_part", "positions_part", "marks", "total")}


@each
def test_recording_equals_simulated_run(documents, number):
    run, found = simulate(LEVELS[number], inputs_for(number)), documents[number]["whole"]
    assert (found["frames"], found["outcome"]) == (run.frames, run.outcome)
    assert found["inputs"] == inputs_for(number)[: run.frames].tolist()
    assert len(found["ninjas"]) == len(found["looks"]) == run.frames + 1
    looks = documents[number]["level"]["start"]["looks"]
    changes = iter([*found["changes"], [np.inf]])
    frame, *change = next(changes)
    for k in range(run.frames):
        while frame <= k + 1:
            assert looks[change[0]] != change[1]
            looks[change[0]] = change[1]
            frame, *change = next(changes)
        expected = [*run.position[k], *run.velocity[k], run.ninja_state[k], *run.floor_normal[k], run.airborne[k]]
        assert found["ninjas"][k + 1] == [*expected, run.gold[k]]
        assert [look[0] for look in looks] == run.entity_state[k].tolist()
        assert [look[1:3] for look in looks] == run.entity_position[k].tolist()
        assert [look[3:] for look in looks if len(look) > 3] == run.aims[k].tolist()
    assert found["entities"] == looks


@each
def test_states_are_those_of_the_frames(documents, number):
    found = documents[number]
    assert [x for x, _ in found["states"]] == [ninja[0] for ninja in found["whole"]["ninjas"]]


@each
def test_seek_shows_the_entities_of_a_frame(documents, number):
    start, middle, end, again = documents[number]["worlds"]
    whole = documents[number]["whole"]
    frames = (0, documents[number]["middle"], whole["frames"])
    assert [world["ninja"] for world in (start, middle, end)] == [whole["looks"][frame] for frame in frames]
    assert again == middle
    assert [[look["x"], look["y"]] for look in end["looks"]] == [look[1:3] for look in whole["entities"]]


@each
def test_rewind_forgets_the_frames_after_it(documents, number):
    found, middle = documents[number], documents[number]["middle"]
    whole, rewound = found["whole"], found["rewound"]
    assert rewound["frames"] == middle == min(65, whole["frames"])
    assert rewound["inputs"] == whole["inputs"][:middle]
    assert rewound["ninjas"] == whole["ninjas"][: middle + 1] and rewound["looks"] == whole["looks"][: middle + 1]
    assert rewound["changes"] == [change for change in whole["changes"] if change[0] <= middle]


@each
def test_edit_with_the_same_inputs_restores_the_run(documents, number):
    assert documents[number]["edited"] == documents[number]["whole"]


@each
def test_preview_shows_the_held_input(documents, number):
    found = documents[number]
    held = np.concatenate([inputs_for(number)[: found["middle"]], np.full(60, 2, np.uint8)])
    run = simulate(LEVELS[number], held)
    assert found["preview"][1]["points"][1:] == run.position[found["middle"] :].tolist()
    assert found["preview"][1]["outcome"] == run.outcome
