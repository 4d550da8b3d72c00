"""The planner in JavaScript finds the same runs as ``nppsim.planner``, byte by byte.

``make test-wasm`` compares 30 levels, ``make test`` a third of them.
"""

import base64
import json
import os
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from nppsim.generate import CATEGORIES, generate
from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels import kinds
from nppsim.levels.level_set import LevelSet
from nppsim.planner import better_runs, plan
from nppsim.planner.settings import ALL_GOLD, OBJECTIVES, SCORE, TIME
from nppsim.studio.game import Game
from nppsim.wasm.build import FOLDER

import worlds
from places import ROOT, SHARED
from wasm_calls import javascript, needs_node

CAMPAIGN = SHARED / "campaign" / "SI.txt"
STEP = 1 if "NPPSIM_WASM_LEVELS" in os.environ else 3  # make test-wasm: all levels
BUDGET = 120_000  # frames: enough for the beam, the best-first search, and steps that improve a run
pytestmark = needs_node


def of_set(place, count):
    levels = LevelSet.at(place)
    return [levels[i] for i in range(0, len(levels), max(len(levels) // count, 1))][:count]


def answers(requests):
    """Answers of ``findRun`` to (level, inputs, settings)."""
    given = [
        {"level": base64.b64encode(level.to_bytes()).decode(), "inputs": inputs.tolist(), "settings": settings}
        for level, inputs, settings in requests
    ]
    command = javascript(ROOT / "tests" / "support" / "planner_calls.mjs", FOLDER)
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def differences(requests):
    """Requests to which the two planners answer differently, and the number of runs found."""
    differ, found = [], 0
    for (level, inputs, settings), answer in zip(requests, answers(requests), strict=True):
        game = Game(level)
        game.play(inputs)
        names = {"minHold": "min_hold", "frameSkip": "frame_skip"}
        run = plan(level, start=game.start, **{names.get(name, name): value for name, value in settings.items()})
        if run is None:
            same = answer["state"] == ("none" if game.bank.reachable[0] else "barred")
        else:
            found += 1
            same = (answer["state"], answer["inputs"]) == ("found", run.inputs.tolist())
            same &= (answer["gold"], answer["simulated"]) == (run.gold, run.simulated)
            game.play(run.inputs)
            same &= answer["route"][-1] == pytest.approx([game.ninja["x"], game.ninja["y"]], abs=0.051)
        if not same:
            differ.append((level.caption, settings))
    return differ, found


def requests(levels, **settings):
    return [(level, np.zeros(0, np.uint8), {"budget": BUDGET, **settings}) for level in levels]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_shipped_and_generated_levels_give_equal_runs(objective):
    levels = of_set(STARTER_LEVELS, 9 // STEP) + [generate(category, 77)[0] for category in list(CATEGORIES)[::STEP]]
    differ, found = differences(requests(levels, objective=objective))
    assert differ == [] and found > len(levels) / 2


@pytest.mark.skipif(not CAMPAIGN.exists(), reason="needs the official levels in ../shared/campaign")
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_official_levels_give_equal_runs(objective):
    differ, found = differences(requests(of_set(CAMPAIGN, 10)[::STEP], objective=objective, budget=300_000))
    assert differ == [] and found > 3 // STEP


@pytest.mark.parametrize("objective", [SCORE, ALL_GOLD])
def test_levels_with_gold_give_equal_runs(objective):
    """With 12 pieces, sums of path lengths depend on the order in which numpy adds."""
    levels = []
    for seed in range(3):
        places = np.random.default_rng(seed).choice(np.arange(12, 150), 12, replace=False).tolist()
        levels.append(worlds.corridor(80, 100, 120, entities=[(kinds.GOLD, x, worlds.FLOOR) for x in places]))
    differ, found = differences(requests(levels, objective=objective, budget=200_000))
    assert differ == [] and found == len(levels)


def test_searches_with_other_settings_and_starts_give_equal_runs():
    level = generate("simple", 3)[0]
    settings = [{"seed": 1, "noise": 30.0}, {"minHold": 3}, {"frameSkip": 6}, {"objective": SCORE, "seed": 2**33 + 1}]
    differ, found = differences([one for more in settings for one in requests([level], **more)])
    assert differ == [] and found == len(settings)
    inputs = plan(level, budget=BUDGET).inputs
    starts = [(level, inputs[:frames], {"budget": BUDGET}) for frames in (1, 40, len(inputs) - 1)]
    assert differences(starts) == ([], len(starts))


def test_shortened_known_run_is_equal():
    levels = [generate(category, 78)[0] for category in list(CATEGORIES)[:5:2]]
    known = [replace(plan(level, budget=BUDGET), simulated=0) for level in levels]
    settings = [{"known": run.inputs.tolist(), "budget": BUDGET} for run in known]
    found = answers([(level, np.zeros(0, np.uint8), one) for level, one in zip(levels, settings, strict=True)])
    for level, run, answer in zip(levels, known, found, strict=True):
        *_, shortest = better_runs(level, run, TIME, budget=BUDGET)
        assert (answer["inputs"], answer["simulated"]) == (shortest.inputs.tolist(), shortest.simulated)
