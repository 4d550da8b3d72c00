"""Input editor (piano roll), by mouse and by keys."""

import re

import numpy as np
import pytest

from nppsim import simulate
from nppsim.actions import JUMP, LEFT, RIGHT
from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels.level_set import LevelSet
from nppsim.replays.replay import Replay

from browsing import needs_agents, until

LEVEL = LevelSet.open(STARTER_LEVELS)[0]  # who keeps running right finishes it
LABELS, RULER, LANE, FRAME = 46, 20, 24, 12  # px, as in roll_canvas.js
LANES = {"left": 0, "jump": 1, "right": 2}


def at(page, frame, lane=None):
    """Where a frame is on the screen: in a lane, or in the ruler."""
    box = page.locator(".input-lanes canvas").bounding_box()
    y = RULER / 2 if lane is None else RULER + LANE * (LANES[lane] + 0.5)
    return box["x"] + LABELS + FRAME * (frame + 0.5), box["y"] + y


def drag(page, start, end):
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=3)
    page.mouse.up()


def stored(page):
    """The inputs of each branch."""
    script = """async ([store, level]) => {
        const { storedBranches } = await import(new URL(store, document.baseURI));
        return (await storedBranches(level)).map(({ inputs }) => [...inputs]);
    }"""
    found = page.evaluate(script, ["studio/static/js/store.js", LEVEL.fingerprint])
    return [np.array(inputs, np.uint8) for inputs in found]


def wait_for_status(page, words):
    page.wait_for_selector(f"#inputs-status:has-text('{words}')")


def drawn(page):
    return page.evaluate("document.querySelector('.stage canvas').toDataURL()")


@pytest.fixture
def editor(page, studio):
    page.goto(studio.at(f"inputs/{LEVEL.fingerprint}"))
    wait_for_status(page, "not finished after 60")
    assert "not finished 1.000 s" in page.text_content(".player .run")
    return page


def test_input_editor_paint_move_insert_delete_undo(editor):
    page = editor
    drag(page, at(page, 2, "right"), at(page, 21, "right"))
    page.mouse.click(*at(page, 5, "jump"))
    page.mouse.click(*at(page, 3, "left"))
    page.mouse.click(*at(page, 3, "left"))  # and up again
    expected = np.zeros(60, np.uint8)
    expected[2:22] |= RIGHT
    expected[5] |= JUMP
    until(page, lambda: np.array_equal(stored(page)[0], expected))
    run = simulate(LEVEL, expected)
    page.mouse.click(*at(page, 40))
    wait_for_status(page, "frame 40 of 60")
    assert f"{np.hypot(*run.velocity[39]):.2f} px/frame" in page.text_content(".player .hud")
    drag(page, at(page, 2), at(page, 6))  # a selection, moved by ten frames
    drag(page, at(page, 4), at(page, 14))
    moved = np.concatenate([expected[:2], expected[7:17], expected[2:7], expected[17:]])
    until(page, lambda: np.array_equal(stored(page)[0], moved))
    page.keyboard.press("Control+c")
    page.keyboard.press("Delete")
    page.keyboard.press("Control+v")
    until(page, lambda: np.array_equal(stored(page)[0], moved))
    page.keyboard.press("Insert")
    page.keyboard.press("1")
    until(page, lambda: len(stored(page)[0]) == 61 and stored(page)[0][12] == LEFT)
    for _ in range(5):
        page.keyboard.press("Control+z")
    until(page, lambda: np.array_equal(stored(page)[0], expected))
    page.keyboard.press("Control+y")
    until(page, lambda: np.array_equal(stored(page)[0], moved))


def test_input_editor_planner_continues_branch_and_exports(editor):
    page = editor
    drag(page, at(page, 0, "right"), at(page, 19, "right"))
    page.mouse.click(*at(page, 20))
    before = drawn(page)
    page.get_by_role("button", name="Try all six actions").click()
    until(page, lambda: drawn(page) != before, "the action preview")
    page.get_by_role("button", name="Let the planner continue").click()
    page.wait_for_selector("#inputs-status:has-text('won after')")
    first, second = stored(page)
    assert (first[:20] == RIGHT).all() and np.array_equal(first[:20], second[:20])
    run = simulate(LEVEL, second)
    wait_for_status(page, f"won after {run.frames}")
    assert run.won and run.frames == len(second)
    page.get_by_label("Compare with branch 1").check()
    until(page, lambda: page.locator(".player .run").count() == 2)
    page.get_by_role("button", name="Store run").click()
    page.get_by_label("Name", exact=True).press("Enter")
    with page.expect_download() as download:
        page.click("text=Attract file")
    assert np.array_equal(Replay.load(download.value.path()).inputs, second)
    page.keyboard.press("Escape")
    page.reload()
    wait_for_status(page, f"won after {run.frames}")  # branches survive


@needs_agents
def test_input_editor_agent_continues(editor):
    page = editor
    page.mouse.click(*at(page, 10))
    page.get_by_role("button", name="Agents …").click()
    page.get_by_role("button", name=re.compile("vision_free")).click()
    until(page, lambda: len(stored(page)) == 2)
    wait_for_status(page, "won after")
