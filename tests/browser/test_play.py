"""Play with real key events, touch and gamepad; recordings equal the pressed keys."""

import re
from pathlib import Path

import numpy as np
from PIL import Image

from nppsim import simulate
from nppsim.actions import JUMP, LEFT, RIGHT
from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.planner import plan
from nppsim.replays.replay import Replay
from nppsim.replays.score import score

from browsing import needs_agents, until

FITS = "document.documentElement.scrollWidth <= innerWidth"
LEVEL = LevelSet.open(STARTER_LEVELS)[0]  # who keeps running right finishes it


def recorded(page):
    """A function that returns the inputs that were given to the game of the page, and the game's run."""
    page.evaluate(
        """import('/studio/static/js/recording.js').then(({ Recording }) => {
            window.sent = [];
            const play = Recording.prototype.play;
            Recording.prototype.play = function (inputs) {
                window.sent.push(...inputs);
                window.run = this;
                const before = this.frames;
                play.call(this, inputs);
                if (before <= 12) window.after = this.ninjas[13];
            };
        })"""
    )
    return lambda: page.evaluate("[window.sent, { inputs: run.inputs, ninjas: run.ninjas, entities: run.entities }]")


def open_level(page, studio):
    page.goto(studio.at(f"play/{LEVEL.fingerprint}"))
    page.wait_for_selector(".verdict:has-text('Ready')")


def frame_number(page):
    return int(re.search(r"frame (\d+)", page.text_content(".numbers"))[1])


def wait_for_frame(page, frame):
    until(page, lambda: frame_number(page) >= frame, f"frame {frame}")


def finish(page):
    page.wait_for_selector(".verdict:has-text('plays again')")
    page.keyboard.up("ArrowRight")


def store(page):
    page.keyboard.press("k")
    page.wait_for_selector("dialog input")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog:has-text('Attract file')")


def seek(picture, frame):
    """A frame of an animated picture."""
    picture.seek(frame)
    return picture.copy()


def drawn(page):
    """The picture on the stage."""
    return page.evaluate("document.querySelector('.stage canvas').toDataURL()")


def test_stored_recording_equals_pressed_keys(page, studio):
    open_level(page, studio)
    game = recorded(page)
    page.keyboard.down("ArrowRight")
    for frame in (20, 50):  # presses of unknown time and duration; left wins over right
        wait_for_frame(page, frame)
        page.keyboard.press("a", delay=60)
    finish(page)
    store(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Replay file").click()
    replay = Replay.load(download.value.path())

    sent, played = game()
    run = simulate(LEVEL, replay.inputs)
    assert run.won and run.frames == replay.frames == len(played["inputs"])
    assert replay.inputs.tolist() == sent[: run.frames] == played["inputs"]
    assert set(replay.inputs.tolist()) == {RIGHT, RIGHT | LEFT}
    ninjas = np.array(played["ninjas"][1:])
    assert np.array_equal(ninjas[:, :2], run.position) and np.array_equal(ninjas[:, 2:4], run.velocity)
    assert np.array_equal(ninjas[:, 4], run.ninja_state)
    assert [bits for bits, *_ in played["entities"]] == run.entity_state[-1].tolist()


def test_finished_run_becomes_demonstration(page, studio):
    open_level(page, studio)
    page.keyboard.press(".")
    wait_for_frame(page, 1)
    store(page)
    assert page.locator("#demonstrate").count() == 0  # the run has not finished
    page.keyboard.press("Escape")
    page.keyboard.press("r")
    page.wait_for_selector(".verdict:has-text('Ready')")
    page.keyboard.down("ArrowRight")
    page.wait_for_selector(".verdict:has-text('your best')")
    finish(page)
    store(page)
    page.click("#demonstrate")
    page.wait_for_selector("dialog .good:has-text('1 of 20 recordings')")
    demonstrations = list(Path(studio.folder).rglob("*.replay"))
    assert len(demonstrations) == 1
    replay = Replay.load(demonstrations[0])
    assert replay.level == LEVEL and simulate(LEVEL, replay.inputs).won

    page.goto(studio.at("replays"))
    page.wait_for_selector("tr:has-text('0.017 s'):has-text('not finished')")
    assert page.locator("tr:has-text('0.017 s') button:has-text('Add to')").count() == 0
    assert page.locator(f"tr:has-text('{score(replay.frames, 0):.3f}')").count() == 1


@needs_agents
def test_search_longer_stores_better_run_as_par_with_its_finder(page, start_studio, tmp_path):
    LevelSet.write(tmp_path / "levels", [(LEVEL, LevelEntry("simplest", par_frames=900))])
    studio = start_studio("--levels", str(tmp_path / "levels"))
    open_level(page, studio)
    page.wait_for_selector("dd.par:has-text('15.000 s by planner, not proved')")
    page.get_by_role("button", name="Search longer").click()
    page.wait_for_selector("text=/planner: .* vision_free_foresight: \\d+ of \\d+ episodes won · best: /")
    page.get_by_role("button", name="Stop the search").click()
    page.wait_for_selector(".toast:has-text('Stored as par')")
    stored = page.text_content(".toast:has-text('Stored as par')")
    time, by = re.search(r"(\d\.\d{3} s) by (.+), not proved", stored).groups()
    assert by.startswith(("planner", "vision_free_foresight"))
    page.wait_for_selector(f"dd.par:has-text('{time} by '):has-text(', not proved')")  # another may tie with it
    page.goto(studio.at("replays"))
    page.wait_for_selector(f"tr:has-text('par: {by}'):has-text('won')")
    page.goto(studio.at("levels"))
    page.wait_for_selector(f".card .par:has-text('{time}')")
    page.goto(studio.at(f"play/{LEVEL.fingerprint}"))
    page.wait_for_selector(f"dd.par:has-text('{time} by '):has-text(', not proved')")  # another may tie with it
    name = "the planner" if by == "planner" else by
    page.wait_for_selector(f".recorded-run:has-text('{name}'):has-text('{time}')")


@needs_agents
def test_recorded_runs_shown_and_taken_over(page, studio):
    open_level(page, studio)
    page.get_by_role("button", name="Agents …").click()
    planner, agent = (page.locator(".recorded-run", has_text=name) for name in ("the planner", "vision_free_foresight"))
    for other in (planner, agent):
        other.get_by_role("checkbox").check()
        other.locator("text=/\\d s$/").wait_for()  # its time: it has been played
    assert f"{plan(LEVEL).frames / 60:.3f} s" in planner.text_content()
    page.focus(".stage canvas")
    page.keyboard.down("ArrowLeft")  # away from where they run
    wait_for_frame(page, 20)
    page.keyboard.press("p")
    page.keyboard.up("ArrowLeft")
    page.wait_for_selector(".verdict:has-text('Paused')")
    for other in (planner, agent):
        with_other = drawn(page)
        other.get_by_role("checkbox").uncheck()
        assert drawn(page) != with_other
    agent.get_by_role("button", name="practise").click()
    page.get_by_label("Frame to go on from").fill("30")
    page.get_by_role("button", name="Go on from here").click()
    until(page, lambda: frame_number(page) == 30, "frame 30 of the agent's run")
    page.wait_for_selector(".verdict:has-text('continues with your next key')")


def test_frame_advance_rewind_and_practice(page, studio):
    open_level(page, studio)
    game = recorded(page)
    page.keyboard.press(".")  # pauses, too: no pressed key starts the run
    wait_for_frame(page, 1)
    page.keyboard.down("d")
    for frame in range(2, 13):
        page.keyboard.press(".")
        wait_for_frame(page, frame)
    page.keyboard.press("m")
    page.keyboard.down("Shift")
    page.keyboard.press(".")
    wait_for_frame(page, 13)
    sent, played = game()
    assert sent == [0] + [RIGHT] * 11 + [RIGHT | JUMP]
    at_13 = played["ninjas"][13]
    page.keyboard.press("r")  # to the mark; pressed keys act from there on
    page.wait_for_selector(".verdict", state="hidden")
    page.keyboard.up("Shift")
    page.keyboard.up("d")
    page.keyboard.down("Backspace")
    until(page, lambda: frame_number(page) <= 3)
    page.keyboard.up("Backspace")
    page.wait_for_selector(".verdict:has-text('Ready')")
    restarted = page.evaluate("window.after")
    assert restarted == at_13  # the same input after the mark leads to the same state


def test_key_bindings_change_and_persist(page, studio):
    open_level(page, studio)
    page.click("summary:has-text('Show and change')")
    page.click("[aria-label='run right: add a key']")
    page.keyboard.press("l")
    page.reload()
    page.wait_for_selector(".verdict:has-text('Ready')")
    page.focus(".stage canvas")
    page.keyboard.down("l")
    wait_for_frame(page, 5)
    page.wait_for_selector(".keys kbd.pressed:has-text('→')")


def test_two_tabs_have_separate_games(new_page, studio):
    pages = [new_page(), new_page()]
    for page in pages:
        open_level(page, studio)
    pages[0].keyboard.down("ArrowRight")
    wait_for_frame(pages[0], 30)
    assert frame_number(pages[1]) == 0


def test_touch_controls_play(new_page, studio):
    page = new_page(viewport={"width": 390, "height": 780}, has_touch=True, is_mobile=True)
    open_level(page, studio)
    assert page.evaluate(FITS)
    right = page.locator(".touch button[aria-label='run right']").bounding_box()
    page.mouse.move(right["x"] + 20, right["y"] + 20)
    page.mouse.down()
    wait_for_frame(page, 20)
    page.mouse.up()
    page.wait_for_selector(".keys kbd.pressed", state="detached")


# A stand-in for the browser's gamepads, which no test can press.
PAD = """let down = false;
const button = { pressed: false };
const pad = { mapping: "standard", axes: [0, 0], get buttons() { return [{ pressed: down }, ...Array(16).fill(button)]; } };
navigator.getGamepads = () => [null, pad];
window.pad = { lean: (x) => { pad.axes[0] = x; }, jump: (on) => { down = on; } };"""


def test_gamepad_controls_play(page, studio):
    page.add_init_script(PAD)
    open_level(page, studio)
    game = recorded(page)
    page.evaluate("pad.lean(0.9)")
    wait_for_frame(page, 5)
    page.evaluate("pad.jump(true)")
    until(page, lambda: game()[0][-1] == RIGHT | JUMP)
    page.evaluate("pad.lean(0), pad.jump(false)")
    until(page, lambda: game()[0][-1] == 0)
    sent, _ = game()
    assert sent[0] == RIGHT and {RIGHT, RIGHT | JUMP, 0} == set(sent)


def test_close_view_follows_ninja_and_colours_change(page, studio):
    open_level(page, studio)
    assert page.evaluate(FITS)
    if page.query_selector("button[aria-pressed=true]:has-text('Closer')"):  # a long level begins with it
        page.keyboard.press("v")
    before = page.screenshot()
    page.keyboard.press("v")
    page.wait_for_selector("button[aria-pressed=true]:has-text('Closer')")
    assert page.screenshot() != before
    page.keyboard.press("v")
    page.wait_for_selector("button[aria-pressed=false]:has-text('Closer')")

    usual = drawn(page)
    colours = page.get_by_label("Colours of levels")
    colours.select_option("ocean")
    ocean = drawn(page)
    assert ocean != usual
    page.reload()
    page.wait_for_selector(".verdict:has-text('Ready')")
    assert colours.input_value() == "ocean"
    page.keyboard.down("ArrowRight")  # the keys still belong to the game
    wait_for_frame(page, 3)
    colours.select_option("classic")
    assert drawn(page) != ocean


def test_ready_message_on_small_screens_hides_nothing_of_level(new_page, studio):
    for options, words in (
        ({"viewport": {"width": 780, "height": 360}, "has_touch": True, "is_mobile": True}, "first tap"),
        ({"viewport": {"width": 640, "height": 360}, "device_scale_factor": 2}, "first key"),
    ):
        page = new_page(**options)
        open_level(page, studio)
        assert words in page.text_content(".verdict")
        message, level = (page.locator(part).bounding_box() for part in (".verdict", ".stage canvas"))
        assert message["y"] + message["height"] <= level["y"] and level["height"] > 150
        page.get_by_role(
            "button", name="Restart", exact=True
        ).click()  # below the screen; then the stage is in view again
        page.wait_for_selector(".verdict:has-text('Ready')")
        until(page, lambda: page.evaluate("document.activeElement.tagName") == "CANVAS")  # noqa: B023
        head, clock, level = (page.locator(part).bounding_box() for part in (".top", "#time", ".stage canvas"))
        assert head["y"] + head["height"] <= clock["y"] and level["y"] + level["height"] <= page.viewport_size["height"]


def test_play_names_of_other_runs_are_readable(page, studio):
    open_level(page, studio)
    assert page.locator(".recorded-run .name").first.evaluate("name => name.scrollWidth <= name.clientWidth")


def test_save_gif_of_run(page, studio, tmp_path):
    open_level(page, studio)
    page.keyboard.down("ArrowRight")
    finish(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save GIF").click()
    file = tmp_path / "run.gif"
    download.value.save_as(file)
    picture = Image.open(file)
    frames = simulate(LEVEL, np.full(400, RIGHT, np.uint8)).frames
    assert picture.size == (528, 300) and abs(picture.n_frames - (frames + 45) / 3) < 8
    first, last = (np.array(frame.convert("RGB")) for frame in (seek(picture, 0), seek(picture, picture.n_frames - 1)))
    assert picture.info["duration"] == 50 and len(np.unique(first.reshape(-1, 3), axis=0)) > 10
    assert (first != last).any()
