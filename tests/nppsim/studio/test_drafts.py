"""Drafts of levels: conversion in both directions, and diagnostics."""

import copy
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nppsim
from nppsim.bank import LevelBank
from nppsim.generate import CATEGORIES, generate
from nppsim.levels import kinds
from nppsim.levels.level import Level, LevelError
from nppsim.levels.level_set import LevelSet
from nppsim.studio.app import STATIC
from nppsim.studio.drafts import SWITCH_KINDS, WITH_SWITCH, draft_of, level_of

from wasm_calls import NODE, needs_node
from worlds import KINDS, corridor, mixed_level

STARTER = Path(nppsim.__file__).parent / "starter"
PLACE = st.integers(0, 255)


@st.composite
def drafts(draw):
    """Any draft that is complete, in the order of kinds."""
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    single = [kind for kind in range(256) if kind != kinds.NINJA and kind not in (*SWITCH_KINDS, *WITH_SWITCH)]
    entities = []
    for kind in draw(st.lists(st.sampled_from([*WITH_SWITCH, *range(1, 3), *range(10, 30), 255]), max_size=12)):
        if kind not in WITH_SWITCH and kind not in single:
            continue
        entity = {"kind": kind, "x": draw(PLACE), "y": draw(PLACE), "orientation": 0, "mode": 0}
        if kind != kinds.EXIT:
            entity["orientation"] = draw(st.integers(0, 7))
        if kind not in WITH_SWITCH:
            entity["mode"] = draw(st.integers(0, 3))
        else:
            entity["switch"] = [draw(PLACE), draw(PLACE)]
        entities.append(entity)
    return {
        "title": draw(st.text("abc XYZ!", max_size=20)),
        "tiles": numbers.integers(0, draw(st.sampled_from([1, 38, 256])), (23, 42)).tolist(),
        "spawn": [draw(st.integers(1, 176)), draw(st.integers(0, 100))],
        "entities": sorted(entities, key=lambda entity: entity["kind"]),
    }


@given(drafts())
def test_level_of_draft_has_described_content(draft):
    level = level_of(draft)
    assert draft_of(level) == (draft, [])
    assert Level.from_bytes(level.to_bytes()) == level


def test_draft_of_level_round_trips():
    shipped = LevelSet.open(STARTER)
    levels = [shipped[i] for i in range(0, len(shipped), 3)] + [generate(name, 7)[0] for name in CATEGORIES[::4]]
    assert len(levels) > 10
    for level in levels:
        draft, lost = draft_of(level)
        assert lost == [] and level_of(draft) == level


def test_draft_of_unrepresentable_level_lists_losses():
    level = corridor()
    spawns = np.vstack([level.records, [(kinds.NINJA, 9, 9, 0, 0)]])
    assert "second spawn" in draft_of(Level(level.tiles, spawns))[1][0]
    door = np.vstack([level.records, [(kinds.LOCKED_DOOR, 40, 46, 0, 0)]])
    draft, lost = draft_of(Level(level.tiles, door))
    assert "locked door at (10, 11.5) has no switch" in lost[0]
    assert level_of(draft) == level
    unsorted = np.vstack(
        [level.records[:1], [(kinds.MINE, 25, 45, 0, 0), (kinds.GOLD, 22, 45, 0, 0)][::-1], level.records[1:]]
    )
    draft, lost = draft_of(Level(level.tiles, unsorted))
    assert "in the game's order" in lost[0]
    assert [entity["kind"] for entity in draft["entities"]] == [kinds.MINE, kinds.GOLD, kinds.EXIT]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tiles": [[0] * 42] * 22}, "must be 23 rows of 42"),
        ({"tiles": [[0] * 41 + [256]] * 23}, "expected integers 0..255"),
        ({"spawn": [3]}, "must be .x, y. or null"),
        ({"spawn": [3, 256]}, "expected integers 0..255"),
        ({"title": None}, "title"),
        ({"title": "é" * 129}, "at most 128 characters"),
        ({"spawn": None}, "place the ninja"),
        ({"entities": [{"kind": 2, "x": 1, "y": 1, "orientation": 0}]}, "mode"),
        ({"entities": [{"kind": 2, "x": -1, "y": 1, "orientation": 0, "mode": 0}]}, "0..255"),
        ({"entities": [{"kind": 0, "x": 1, "y": 1, "orientation": 0, "mode": 0}]}, "give it as spawn"),
        ({"entities": [{"kind": 3, "x": 1, "y": 1, "orientation": 0, "mode": 0}]}, "needs a switch"),
        ({"entities": [{"kind": 2, "x": 1, "y": 1, "orientation": 0, "mode": 0, "switch": [1, 1]}]}, "has no switch"),
    ],
)
def test_level_of_invalid_draft_raises_error(change, said):
    draft = draft_of(corridor())[0] | change
    with pytest.raises(LevelError, match=said):
        level_of(draft)


def findings_of(draft):
    """Severity and text of each diagnostic of the page, ``level_checks.js``."""
    reachable = (
        draft["spawn"] is None or len(draft["entities"]) > 255 or bool(LevelBank([level_of(draft)]).reachable[0])
    )
    script = f"""
        import {{ diagnostics }} from "{STATIC}/js/level_checks.js";
        import {{ stateOf }} from "{STATIC}/js/level_model.js";
        const found = diagnostics(stateOf({json.dumps(draft)}), {json.dumps(reachable)});
        console.log(JSON.stringify(found.map(({{ severity, text }}) => [severity, text])));
    """
    command = [NODE, "--input-type=module"]
    return json.loads(subprocess.run(command, input=script, capture_output=True, text=True, check=True).stdout)


@needs_node
@pytest.mark.parametrize("seed", range(3))
def test_diagnostics_shipped_and_random_levels_match_support_notes(seed):
    shipped = LevelSet.open(STARTER)
    assert findings_of(draft_of(shipped[seed])[0]) == []
    level = mixed_level(seed, kinds=KINDS[seed])
    texts = [text for severity, text in findings_of(draft_of(level)[0]) if text.startswith("Here")]
    assert sorted(texts) == sorted(f"Here {note} (docs/physics.md, section 8)." for note in level.support_notes)


@needs_node
@pytest.mark.parametrize(
    ("change", "severity", "said"),
    [
        (lambda draft: draft.update(spawn=None), "error", "no spawn"),
        (lambda draft: draft.update(entities=[]), "warning", "no exit"),
        (lambda draft: draft.update(spawn=[30, 30]), "warning", "The spawn at (7.5, 7.5) is inside solid tiles"),
        (
            lambda draft: draft["entities"][0].update(switch=[40, 60]),
            "warning",
            "switch of the exit door at (10, 15) lies inside",
        ),
        (lambda draft: draft["entities"][0].update(switch=[200, 46]), "warning", "outside the stage"),
        (lambda draft: draft["entities"][0].update(switch=[160, 46]), "note", "30 tiles away"),
        (lambda draft: [row.__setitem__(8, 1) for row in draft["tiles"]], "warning", "No path leads"),
        (lambda draft: draft["tiles"][3].__setitem__(3, 77), "warning", "ids above 37 have no geometry"),
        (lambda draft: draft["entities"].append(draft["entities"][0]), "note", "2 × exit door at the same place"),
        (lambda draft: draft.update(entities=256 * draft["entities"]), "error", "at most 255"),
        (
            lambda draft: draft["entities"].append({"kind": 23, "x": 44, "y": 44, "orientation": 0, "mode": 0}),
            "note",
            "laser turrets behave partly by guess",
        ),
    ],
)
def test_diagnostics_describe_problems(change, severity, said):
    draft = copy.deepcopy(draft_of(corridor())[0])
    change(draft)
    found = findings_of(draft)
    assert [text for kind, text in found if kind == severity and said in text], found
