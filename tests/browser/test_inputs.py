"""Input editor (piano roll), by mouse and by keys."""

import re

import numpy as np
import pytest

from nppsim import simulate
from nppsim.actions import JUMP, LEFT, RIGHT
from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels.level_set import LevelSet
from nppsim.replays.input_text import from_text
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
    until(page, lambda: len(stored(page)) == 2)
    first, second = stored(page)
    assert (first[:20] == RIGHT).all() and np.array_equal(first[:20], second[:20])
    run = simulate(LEVEL, second)
    wait_for_status(page, f"won after {run.frames}")
    assert run.won and run.frames == len(second)
    assert page.get_by_label("Compare with planner from 20").is_disabled()  # with itself
    page.get_by_label("Compare with branch 1").check()
    until(page, lambda: page.locator(".player .run").count() == 2)
    page.get_by_role("button", name="Store run").click()
    page.get_by_label("Name", exact=True).press("Enter")
    with page.expect_download() as download:
        page.get_by_role("button", name="Attract file").click()
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


def test_inputs_without_level_shows_gallery(page, studio):
    page.goto(studio.at("inputs"))
    page.wait_for_selector("a.card")


TEXT = "# start\n  10\n  30,R\n***\n   5,R,J\n# back\n  20,L\n"


def roll(page):
    return page.locator(".input-lanes canvas")


def test_input_text_table_markers_and_history_survive_reload(editor):
    page = editor
    text = page.get_by_label("Inputs as text")
    text.fill("30,R\n12,X")
    page.wait_for_selector(".panel .bad:has-text('Line 2 is “12,X”')")
    text.fill(TEXT)
    expected = from_text(TEXT)
    until(page, lambda: np.array_equal(stored(page)[0], expected))
    roll(page).focus()
    until(page, lambda: text.input_value() == TEXT)
    page.keyboard.press("Home")
    page.keyboard.press("]")  # to the breakpoint
    wait_for_status(page, "frame 40 of 65")
    run = simulate(LEVEL, expected)
    cells = page.locator(".state-table tr[aria-current] td").all_text_contents()
    numbers = [*run.position[39], *run.velocity[39]]
    assert cells[:2] == ["40", "·J→"] and cells[2:6] == [f"{value:.3f}" for value in numbers]
    assert cells[6:8] == ["running", "floor"] and cells[-1] == "***"
    page.locator(".state-table tr[data-frame='43']").click()
    wait_for_status(page, "frame 43 of 65")
    page.keyboard.press("m")
    page.keyboard.type("top")
    page.keyboard.press("Enter")
    until(page, lambda: "# top" in text.input_value())
    page.reload()
    wait_for_status(page, "not finished after 65")
    until(page, lambda: "# top" in text.input_value())
    roll(page).focus()
    page.keyboard.press("Control+z")  # the marker
    until(page, lambda: text.input_value() == TEXT)
    page.keyboard.press("Control+z")  # the text
    until(page, lambda: len(stored(page)[0]) == 60 and not stored(page)[0].any())
    page.keyboard.press("Control+y")
    until(page, lambda: np.array_equal(stored(page)[0], expected))
    page.keyboard.press("Home")
    page.get_by_role("button", name="play", exact=True).click()  # up to the breakpoint
    page.wait_for_selector(".player .clock:has-text('frame 40')")
    page.wait_for_selector("button[aria-label=play]")


def test_input_search_finds_earlier_exit(editor):
    page = editor
    page.get_by_label("Inputs as text").fill("20\n400,R")
    wait_for_status(page, "won after")
    fastest = simulate(LEVEL, np.full(400, RIGHT, np.uint8)).frames
    until(page, lambda: fastest < simulate(LEVEL, stored(page)[0]).frames)
    drag(page, at(page, 0), at(page, 29))
    page.get_by_role("button", name="Search", exact=True).click()
    until(page, lambda: page.locator(".panel ol li").count() > 0 and len(stored(page)) == 2, "a gain")
    until(page, lambda: simulate(LEVEL, stored(page)[1]).frames <= fastest, "a run without the idle frames")
    page.get_by_role("button", name="Stop", exact=True).click()
    assert simulate(LEVEL, stored(page)[1]).won
    assert re.fullmatch(r"exit in \d+ frames", page.get_by_label("Name of branch 2").input_value())
    page.get_by_label("Goal").select_option("point")
    page.locator(".player .stage canvas").click(position={"x": 300, "y": 100})
    page.get_by_role("button", name="Search", exact=True).click()
    until(page, lambda: "px away" in page.text_content(".panel ol"), "a gain")


def test_input_recorder_overwrites_from_cursor(editor):
    page = editor
    page.get_by_label("Inputs as text").fill("100,L")
    page.mouse.click(*at(page, 30))
    wait_for_status(page, "frame 30 of 100")
    page.get_by_role("button", name="Record while playing").click()
    page.wait_for_selector("#inputs-status:has-text('first key')")
    page.keyboard.down("d")
    until(page, lambda: int(re.search(r"frame (\d+)", page.text_content(".player .clock"))[1]) >= 50, "20 frames")
    page.keyboard.up("d")
    page.keyboard.press("Escape")
    until(page, lambda: (stored(page)[0] == RIGHT).sum() >= 19, "the recorded frames")
    (inputs,) = stored(page)
    assert (inputs[:30] == LEFT).all() and inputs[30] == RIGHT and set(inputs.tolist()) <= {0, LEFT, RIGHT}
    page.keyboard.press("Control+z")
    until(page, lambda: (stored(page)[0] == LEFT).all())
