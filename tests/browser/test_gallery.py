"""The gallery, dropped files, stored runs and replays, and a restart of the studio."""

import base64
import re
import signal
from dataclasses import replace

import numpy as np
import pytest

from nppsim import simulate
from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels.campaign import to_line
from nppsim.levels.kinds import LOCKED_DOOR, ROCKET_TURRET
from nppsim.levels.level import TYPE
from nppsim.levels.level_set import LevelSet
from nppsim.planner import plan
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplayWriter
from nppsim.replays.score import score

from browsing import DEADLINE_S, from_store, until
from worlds import corridor, moving_level, straight

LEVELS = LevelSet.open(STARTER_LEVELS)
DROP = """([name, text]) => {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const files = new DataTransfer();
    files.items.add(new File([bytes], name));
    for (const kind of ["dragenter", "dragover", "drop"]) {
        document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: files, bubbles: true, cancelable: true }));
    }
}"""
PAINTED = """() => [...document.querySelectorAll(".card canvas[data-drawn]")].filter((canvas) => {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(pixels.buffer)).size > 5;
}).length"""


def winning():
    run = simulate(straight(), np.full(600, 2, np.uint8))
    return Replay(straight(), np.full(run.frames, 2, np.uint8), success=True)


def drop(page, name, data):
    page.evaluate(DROP, [name, base64.b64encode(data).decode()])


def shown(page):
    """How many levels the gallery shows."""
    return int(page.text_content(".page p[role=status]").split()[0])


def test_gallery_search_and_filters_find_levels(page, studio):
    page.goto(studio.at("levels"))
    page.wait_for_selector("a.card")
    until(page, lambda: page.evaluate(PAINTED) >= 8, "pictures")
    assert shown(page) >= len(LEVELS)  # those that other tests opened are among them
    page.keyboard.press("/")
    page.keyboard.type("simple 000001")
    until(page, lambda: shown(page) < len(LEVELS) / 2)
    names = page.locator(".card h3").all_text_contents()
    assert names and all("simple" in name and "000001" in name for name in names)
    page.fill("input[type=search]", "")
    page.select_option("[aria-label=Category]", "medium")
    assert shown(page) == len(LEVELS.indices("medium"))
    locked = [LEVELS.category(i) for i, level in enumerate(LEVELS) if (level.records[:, TYPE] == LOCKED_DOOR).any()]
    page.select_option("[aria-label=Category]", locked[0])
    page.select_option("[aria-label=With]", "locked door")
    assert shown(page) == locked.count(locked[0])


def test_gallery_plays_film_until_search(new_page, studio):
    page = new_page(reduced_motion="no-preference")
    page.goto(studio.at("levels"))
    before = page.text_content(".film .clock")
    until(page, lambda: page.text_content(".film .clock") != before)
    page.fill("input[type=search]", "simple")
    page.wait_for_selector(".film", state="hidden")
    paused = page.text_content(".film .clock")
    page.fill("input[type=search]", "")
    page.wait_for_selector(".film")
    until(page, lambda: page.text_content(".film .clock") != paused)
    film = page.evaluate("document.querySelector('.film .primary').hash.split('/').pop()")
    page.click(".film .primary")
    page.wait_for_selector(".verdict:has-text('Ready')")
    assert film in page.url and film in [level.fingerprint for level in LEVELS]


def test_gallery_keyboard_opens_level_and_returns(page, studio):
    page.goto(studio.at("levels"))
    page.wait_for_selector("a.card")
    second = page.locator("a.card").nth(1).get_attribute("data-level")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector(".verdict:has-text('Ready')")
    assert second in page.url
    page.keyboard.press("Alt+1")
    page.wait_for_selector("a.card")
    tabs = page.locator("#tabs a").all_text_contents()
    page.keyboard.press(f"Alt+{tabs.index('Runs') + 1}")
    page.wait_for_selector("summary:has-text('my demonstrations')")


def test_renamed_copy_of_level_is_explained(page, studio):
    page.goto(studio.at("levels"))
    page.wait_for_selector("a.card")
    drop(page, "mine.map", replace(corridor(), title="Mine").to_bytes())
    page.wait_for_selector('.toast:has-text(\'"Mine" is "First" with\')')


def test_dropped_level_file_is_played(page, studio):
    level, other = moving_level(), straight(length=14)
    page.goto(studio.at("levels"))
    page.wait_for_selector("a.card")
    for name, data, opened in (
        ("other.map", other.to_bytes(), other),
        ("mine.level", level.to_text().encode(), level),
    ):
        drop(page, name, data)  # the second onto the game of the first
        until(page, lambda: opened.fingerprint in page.url)  # noqa: B023  # called within the loop
        page.wait_for_selector(".verdict:has-text('Ready')")
    page.goto(studio.at("levels"))
    page.select_option("[aria-label=Category]", "opened here")
    page.wait_for_selector(f"a.card[data-level='{level.fingerprint}']")


def test_dropped_replay_file_is_watched(page, studio):
    replay = winning()
    page.goto(studio.at("levels"))
    page.wait_for_selector("a.card")
    for name, form in (("second", "attract"), ("best.replay", "compact")):
        drop(page, name, Replay(replay.level, replay.inputs).to_bytes(form))
        page.wait_for_selector(f".player .run:has-text('{name.partition('.')[0]}')")
        assert f"{replay.frames / 60:.3f} s" in page.text_content(".player .run")
    page.focus(".player canvas")
    page.keyboard.press("End")
    until(page, lambda: f"won · score {score(replay.frames, 0):.3f}" in page.text_content(".player .hud"))


def test_dropped_unreadable_file_reported_with_reason(page, studio):
    page.goto(studio.at("levels"))
    page.wait_for_selector("a.card")
    for name, data, message in (
        ("holiday.jpg", b"\xff\xd8\xff no level at all", "holiday.jpg (a JPEG picture) is neither a level"),
        ("pack.zip", b"PK\3\4 ...", "a zip archive: unpack it"),
        ("cut.map", LEVELS[0].to_bytes()[:700], "cut.map: 700 bytes; an N++ map has at least 1235"),
        ("cut.replay", winning().to_bytes()[:900], "the map should end at byte"),
        ("film.map", bytes(5 << 20), "records; at most 16383 can be used"),
    ):
        drop(page, name, data)
        page.wait_for_selector(f".toast.bad:has-text('{message}')")
    assert page.locator("#lost").count() == 0 and "levels" in page.url
    drop(page, "short", Replay(LEVELS[0], [2] * 20).to_bytes("attract")[:-5])
    page.wait_for_selector(".toast.bad:has-text('20 inputs declared, 15 present')")  # opened, and its defect reported
    page.faults.clear()  # the browser notes the refusals on its console


@pytest.fixture(scope="module")
def packs(tmp_path_factory):
    """A campaign file of an episode: a level that is as in the game, a modelled one, one with things left out, two more."""
    entities = [[], [(ROCKET_TURRET, 48, 42)], [(27, 40, 44), (ROCKET_TURRET, 48, 42)], [], []]
    levels = [
        replace(corridor(switch=31 + number, entities=more), title=f"level {number}")
        for number, more in enumerate(entities)
    ]
    file = tmp_path_factory.mktemp("packs") / "pack.txt"
    file.write_text("\n".join(map(to_line, levels)))
    return file, levels


def test_level_unlike_game_shows_support_banner(page, studio, packs):
    file, levels = packs
    page.goto(studio.at("levels"))
    page.wait_for_selector("a.card")
    drop(page, "pack.txt", file.read_bytes())
    page.wait_for_selector(".toast:has-text('5 levels are open')")
    until(page, lambda: shown(page) == 5)  # the gallery shows them alone
    assert page.locator(".badge").all_text_contents() == ["modelled", "incomplete"]
    page.select_option("[aria-label=Support]", "exact")
    assert page.locator(".card h3").all_text_contents() == ["level 0", "level 3", "level 4"]
    page.select_option("[aria-label=Support]", "unsupported")
    page.click("a.card")
    page.wait_for_selector(".verdict:has-text('Ready')")
    assert page.text_content(".support") == (
        "incomplete: rocket turrets behave as in N v2.0; 1 alternative death ball is left out"
    )
    with_other = page.evaluate("document.querySelector('.stage canvas').toDataURL()")
    page.keyboard.press("n")  # the next level, which is as in the game
    page.wait_for_selector("h1:has-text('level 3')")
    page.wait_for_selector(".verdict:has-text('Ready')")
    assert page.locator(".support").count() == 0
    assert page.evaluate("document.querySelector('.stage canvas').toDataURL()") != with_other
    drop(page, "run.replay", Replay(levels[1], [0] * 9).to_bytes())
    page.wait_for_selector(".player .support.modelled:has-text('rocket turrets')")


def test_episode_plays_five_levels_with_one_clock(page, studio):
    places = [divmod(number, 5) for number in range(125)]
    levels = [replace(corridor(46 - a, 50 + b, 60), title=f"level {a} {b}") for a, b in places]
    page.goto(studio.at("levels"))
    page.wait_for_selector("a.card")
    drop(page, "SI.txt", "\n".join(map(to_line, levels)).encode())
    until(page, lambda: shown(page) > 20)
    page.select_option("[aria-label=Show]", "episodes")
    page.click(".card:has-text('SI-A-00')")
    page.get_by_label("Your name").fill("Ann")
    clock = 90.0
    for number in range(1, 6):
        page.wait_for_selector(f".hud:has-text('SI-A-00 · level {number} of 5')")
        if number == 3:
            page.reload()  # the episode goes on with this level and the same clock
            page.wait_for_selector(f".hud:has-text('SI-A-00 · level {number} of 5')")
        assert "false" not in page.text_content(".panels")
        page.wait_for_selector(".verdict:has-text('Ready')")
        assert float(page.text_content("#time")) == clock
        page.focus(".stage canvas")
        page.keyboard.down("ArrowRight")
        page.wait_for_selector(f".verdict:has-text('{'goes on' if number < 5 else 'is finished'}')")
        page.keyboard.up("ArrowRight")
        assert float(page.text_content("#time")) < clock
        clock = float(page.text_content("#time"))
        page.wait_for_timeout(400)
        if number < 5:
            page.keyboard.press("Space")
    episode_row = f".best table:first-of-type tr:has-text('Ann'):has-text('{clock:.3f}')"
    page.wait_for_selector(episode_row)
    page.get_by_label("Objective of par").select_option("score")
    page.wait_for_selector(
        "dd.par:has-text('score')"
    )  # a par that arrives late leaves the episode's best runs on the page
    assert page.locator(episode_row).count() > 0
    page.goto(studio.at("levels"))
    page.fill("input[type=search]", "SI-A-01-02")
    page.keyboard.press("Enter")
    page.wait_for_selector(".facts:has-text('SI-A-01-02')")
    for view in ("play/SI-B-00-01", "inputs/si-b-00-01"):  # ids of the game in addresses
        page.goto(studio.at(view))
        page.wait_for_selector("h1:has-text('level 1 1')")


def test_targets_beside_par(page, studio):
    level = corridor(title="First")
    page.goto(studio.at("levels"))
    page.wait_for_selector("a.card")
    frames = simulate(level, np.full(400, 2, np.uint8)).frames  # of a run to the right
    table = f"# mine\n{level.fingerprint[:12]}  {(frames + 30) / 60:.3f}\n{LEVELS[0].fingerprint} score 99.5\n"
    drop(page, "targets.txt", table.encode())
    page.wait_for_selector("p:has-text('0 of 2 at or below target')")
    page.fill("input[type=search]", "First")
    page.wait_for_selector(f".card:has-text('target {(frames + 30) / 60:.3f} s')")
    page.keyboard.press("Enter")
    page.wait_for_selector(".facts:has-text('target')")
    page.wait_for_selector("dd.par:has-text('by planner, not proved')")
    page.focus(".stage canvas")
    page.keyboard.down("ArrowRight")
    page.wait_for_selector(".verdict:has-text('plays again')")
    page.keyboard.up("ArrowRight")
    page.goto(studio.at("levels"))
    page.wait_for_selector("p:has-text('1 of 2 at or below target')")
    page.click("text=Remove the targets")
    page.wait_for_selector("p:has-text('at or below target')", state="hidden")


def test_page_shows_compilation_progress(page, studio):
    page.goto(studio.at("replays"))
    page.wait_for_selector("summary:has-text('my demonstrations')")
    busy = {"sessions": 0, "follows": False, "compiled": 17}
    page.route("**/api/state", lambda route: route.fulfill(json=busy))
    waiting = []
    page.route("**/api/levels", lambda route: waiting.append(route))
    page.keyboard.press("Alt+1")
    page.wait_for_selector(".notice:has-text('17 functions so far')")
    for route in waiting:
        route.continue_()
    page.wait_for_selector("a.card")
    assert page.locator(".notice").count() == 0


def test_planner_finds_unknown_par_and_stores_it(page, studio):
    level = corridor(title="First")
    frames = plan(level).frames
    par = f"{frames / 60:.3f} s"
    page.goto(studio.at("levels"))
    page.fill("input[type=search]", "First")
    page.wait_for_selector(f".card:has-text('First') .par:has-text('{par}')")
    page.click(".card:has-text('First')")
    page.wait_for_selector(f"dd.par:has-text('{par}')")
    page.wait_for_selector(".best tr:has-text('planner')")
    page.get_by_label("Objective of par").select_option("score")  # without gold, the fastest run has the highest score
    page.wait_for_selector(f"dd.par:has-text('{par} · 0 gold · score {score(frames, 0):.3f}')")
    page.wait_for_selector(".best tr:has-text('planner (score)')")
    page.route("**/wasm/**", lambda route: route.abort())  # no search is needed again
    page.goto(studio.at("replays"))
    page.goto(studio.at(f"play/{level.fingerprint}"))
    page.wait_for_selector(f"dd.par:has-text('{par}')")


def test_par_for_time_may_be_a_run_found_for_all_gold(page, studio):
    page.goto(studio.at("levels"))
    found = page.evaluate("""async () => {
        const { addPlan, storedPars, storedPlan } = await import("/studio/static/js/store.js");
        const add = (objective, frames, gold, by) =>
            addPlan("x", objective, by, { inputs: new Uint8Array(frames), frames, gold });
        await add("all-gold", 90, 2, "A");
        const before = await storedPlan("x", "time");
        await add("time", 100, 0, "T");
        await add("score", 90, 2, "S");
        const by = async (objective) => (await storedPlan("x", objective)).by;
        return [before, await by("time"), await by("score"), await by("all-gold"), (await storedPars()).get("x")];
    }""")
    assert found == [None, "A", "S", "A", 90]


def test_empty_studio_links_to_editor(page, studio):
    page.route("**/api/levels", lambda route: route.fulfill(json={"levels": [], "problems": []}))
    page.goto(studio.at("levels"))
    page.click(".notice a:has-text('draw a level')")
    page.wait_for_selector(".editor")


@pytest.fixture(scope="module")
def own_studio(start_studio, tmp_path_factory):
    """A studio with two replays, for this test alone."""
    folder, replay = tmp_path_factory.mktemp("replays"), winning()
    with ReplayWriter(folder / "runs.h5") as writer:
        writer.append(replay)
        writer.append(Replay(replay.level, np.concatenate([[0] * 9, replay.inputs]), name="late"))
        writer.append(Replay(LEVELS[3], [0] * 9, success=False))
        writer.append(Replay(LEVELS[4], [0] * 9))  # its ending is unknown
    return start_studio("--replays", str(folder))


def test_replays_compared_side_by_side(page, own_studio):
    page.goto(own_studio.at("replays"))
    points = f"{score(winning().frames, 0):.3f}"  # of a run that collects no gold
    page.wait_for_selector(f"tr:has-text('runs 0'):has-text('{points}'):has-text('won')")
    page.click("a:has-text('runs 0')")
    page.wait_for_selector(".player .run")
    page.keyboard.press(" ")
    until(page, lambda: "frame 0" not in page.text_content(".player .clock"))
    page.click("button:has-text('late')")
    until(page, lambda: page.locator(".player .run").count() == 2)
    page.keyboard.press("Home")  # the player still has the keys
    page.wait_for_selector(".player .clock:has-text('frame 0')")
    page.keyboard.press(" ")
    until(page, lambda: "frame 0" not in page.text_content(".player .clock"))


def test_gallery_filter_by_outcome_of_runs(page, own_studio):
    page.goto(own_studio.at("levels"))
    page.wait_for_selector("a.card")
    page.select_option("[aria-label=Success]", "never finished")
    (card,) = page.locator("a.card").all()
    assert card.get_attribute("data-level") == LEVELS[3].fingerprint and "0 of 1 finish" in card.text_content()
    page.select_option("[aria-label=Success]", "not played")
    assert shown(page) == len(LEVELS) - 1


def test_page_and_leaderboard_survive_studio_restart(page, own_studio, start_studio):
    """Play goes on while the studio is away; the page takes the new address; the browser keeps the score of a run."""
    studio = own_studio
    port = re.search(r":(\d+)/", studio.address)[1]
    page.goto(studio.at("levels"))
    page.locator(f"a[data-level='{LEVELS[6].fingerprint}']").click()  # who keeps running right finishes it
    page.wait_for_selector(".verdict:has-text('Ready')")
    assert page.text_content("#time") == "90.000"
    page.wait_for_selector(".best:has-text('No run has finished')")
    page.get_by_label("Your name").fill("Ann")
    page.focus(".stage canvas")
    page.keyboard.down("ArrowRight")
    page.wait_for_selector(".verdict:has-text('plays again')")
    page.keyboard.up("ArrowRight")
    frames = int(re.search(r"frame (\d+)", page.text_content(".numbers"))[1])
    points = f"{score(frames, 0):.3f}"
    assert page.text_content("#time") == points and points in page.text_content(".verdict")
    page.wait_for_selector(f".best tr:has-text('Ann'):has-text('{points}')")
    studio.process.send_signal(signal.SIGINT)
    studio.process.wait(DEADLINE_S)
    page.keyboard.press("r")
    page.wait_for_selector(".verdict:has-text('Ready')")
    page.keyboard.down("ArrowRight")
    page.wait_for_selector(".verdict:has-text('plays again')")
    page.keyboard.up("ArrowRight")
    page.get_by_role("link", name="Levels").click()
    page.wait_for_selector("#lost:has-text('has ended')")
    again = start_studio("--port", port)
    page.fill("#lost input", again.address)
    page.keyboard.press("Enter")
    page.wait_for_selector("#lost", state="detached")
    page.reload()  # the address has the new token, too
    page.locator(f"a[data-level='{LEVELS[6].fingerprint}']").click()
    page.wait_for_selector(".verdict:has-text('Ready')")
    page.wait_for_selector(f".best tr:has-text('Ann'):has-text('{points}')")
    page.faults.clear()  # connections that were refused meanwhile


def test_page_without_token_asks_for_address(new_page, studio):
    page, bare = new_page(), studio.address.partition("?")[0]
    page.goto(bare)
    page.fill("#lost input", f"{bare}?token=wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#lost:has-text('does not accept')")
    other = page.context.new_page()
    other.goto(studio.address)  # the first tab uses its token
    page.wait_for_selector("a.card")
    other.goto(bare)  # such as a copied link
    other.wait_for_selector("a.card")
    page.faults.clear()


def test_unknown_address_is_reported(page, studio):
    for view, message in (("nosuch", "no view “nosuch”"), ("play/%E0%A4%A", "no such level")):
        page.goto(studio.at(view))
        page.wait_for_selector(f".notice:has-text('{message}')")
    page.goto(studio.at("levels/nosuch"))
    page.wait_for_selector(".toast.bad:has-text('no category “nosuch”')")
    page.wait_for_selector("a.card")
    page.faults.clear()


def test_forget_opened_levels_asks_for_confirmation(page, studio):
    page.goto(studio.at("levels"))
    page.wait_for_selector("a.card")
    drop(page, "mine.map", straight(length=17).to_bytes())
    page.wait_for_selector(".verdict:has-text('Ready')")
    page.get_by_role("link", name="Levels").click()
    for answer, left in (("Keep it", 1), ("Forget them", 0)):
        page.get_by_role("button", name="Forget the opened level").click()
        page.get_by_role("button", name=answer).click()
        until(page, lambda: len(from_store(page, "ownLevels")) == left)  # noqa: B023


def test_gallery_fits_phone_screen(new_page, studio):
    page = new_page(viewport={"width": 360, "height": 700})
    for view in ("levels", "replays"):
        page.goto(studio.at(view))
        page.wait_for_selector("a.card, table, .notice, h2")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
