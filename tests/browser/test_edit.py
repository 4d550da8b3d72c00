"""Level editor, by mouse and by keyboard; saved levels equal the drafts."""

import re
from pathlib import Path

import numpy as np
import pytest

from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels import kinds
from nppsim.levels.campaign import level_from_line
from nppsim.levels.level import Level, mirror
from nppsim.levels.level_set import LevelSet
from nppsim.levels.tiles import MIRRORED
from nppsim.planner import plan

from browsing import from_store, pinch, until

CORRIDOR = [(2, 10), (14, 11)]  # tiles of a region that is opened
# The document of a level that is not in the studio.
SENT = """async (data) => {
    const { addMaps } = await import("/studio/static/js/library.js");
    const { loadLevel } = await import("/studio/static/js/engine.js");
    const [id] = await addMaps([{ map: Uint8Array.from(data), name: "" }]);
    return { ...(await loadLevel(id)), map: null, newGame: null };
}"""
# What is done to it leads to the same state and back.
UNDONE = """async (draft) => {
    const model = await import("/studio/static/js/level_model.js");
    const history = new model.History(model.stateOf(draft));
    const region = { column: 3, row: 4, width: 6, height: 5 };
    const operations = [
        (s) => model.drawLine(s, [5, 6], [5, 6], 8), (s) => model.drawLine(s, [0, 0], [20, 9], 3),
        (s) => model.flood(s, 30, 15, 2),
        (s) => model.place(s, { kind: 6, x: 30, y: 30, switch: [44, 30] }), (s) => model.place(s, { kind: 0, x: 9, y: 9 }),
        (s) => model.movePart(s, { index: 0, part: "body" }, [33, 21]), (s) => model.changeEntity(s, 0, { orientation: 2 }),
        (s) => model.paste(s, model.copy(s, region), 20, 10), (s) => model.mirrorRegion(s, region), model.mirrorLevel,
        (s) => model.clear(s, region), (s) => model.removePart(s, { index: 0, part: "body" }),
    ];
    for (const operation of operations) history.apply(operation(history.state));
    const last = model.draftOf(history.state);
    let undone = 0;
    for (; history.canUndo; undone++) history.undo();
    const first = model.draftOf(history.state);
    while (history.canRedo) history.redo();
    return { operations: operations.length, undone, first, last, again: model.draftOf(history.state) };
}"""


def draft_of(page, level):
    call = """async (data) => {
        const { draftOf } = await import("/wasm/files.js");
        const { levelFromBytes } = await import("/wasm/level.js");
        return draftOf(levelFromBytes(Uint8Array.from(data))).draft;
    }"""
    return page.evaluate(call, list(level.to_bytes()))


def level_of(page, draft):
    call = """async (draft) => {
        const { levelFromDraft, levelToBytes } = await import("/wasm/level.js");
        return [...levelToBytes(levelFromDraft(draft))];
    }"""
    return Level.from_bytes(bytes(page.evaluate(call, draft)))


@pytest.fixture
def starter():
    levels = LevelSet.open(STARTER_LEVELS)
    return [levels[i] for i in range(len(levels))]


@pytest.fixture(scope="module")
def modules(browser, studio):
    """A page whose modules are called without its views."""
    page = browser.new_page()
    page.goto(studio.at("replays"))
    yield page
    page.close()


def middle(page, column, row):
    """Where the middle of a tile is on the screen, while the whole stage is shown."""
    box = page.locator("#editor").bounding_box()
    scale = min(box["width"] / 1056, box["height"] / 600)
    x, y = 24 * (column + 1.5) - 528, 24 * (row + 1.5) - 300
    return box["x"] + box["width"] / 2 + scale * x, box["y"] + box["height"] / 2 + scale * y


def drag(page, start, end):
    page.mouse.move(*middle(page, *start))
    page.mouse.down()
    page.mouse.move(*middle(page, *end), steps=3)
    page.mouse.up()


def saved(page, press):
    """The level of the file that something leads to, and of its name."""
    with page.expect_download() as download:
        press()
    assert download.value.suggested_filename.endswith(".map")
    return Level.load(download.value.path())


def wait_for_status(page, words, timeout=30_000):
    page.wait_for_selector(f"#editor-verdict:has-text('{words}')", timeout=timeout)


def test_editor_mouse_creates_saves_and_plays_level(page, studio):
    page.goto(studio.at("edit"))
    wait_for_status(page, "Not a level yet")
    assert "no spawn" in page.text_content("#editor-diagnostics") and "no exit" in page.text_content(
        "#editor-diagnostics"
    )
    page.keyboard.press("l")  # fills the open stage with solid tiles
    page.get_by_role("button", name="Select").first.click()
    drag(page, *CORRIDOR)
    page.keyboard.press("Delete")
    for name, places in (("ninja", [(3, 11)]), ("exit door", [(12, 11), (8, 11)]), ("gold", [(6, 11), (7, 11)])):
        page.get_by_role("button", name=name, exact=True).click()
        for place in places:
            page.mouse.click(*middle(page, *place))
    wait_for_status(page, "Finishable")
    frames = int(re.search(r"\((\d+) frames\)", page.text_content("#editor-verdict"))[1])
    assert page.text_content("#editor-diagnostics") == ""

    page.get_by_label("Title").fill("Made by mouse")
    page.keyboard.press("Enter")
    level = saved(page, lambda: page.click("text=Save as file"))
    assert level.title == "Made by mouse" and not level.warnings
    assert level == Level.build(
        level.tiles, (4 * 4 + 2, 4 * 12 + 2), exits=[((4 * 9 + 2, 50), (4 * 13 + 2, 50))],
        entities=[(kinds.GOLD, 4 * 7 + 2, 50), (kinds.GOLD, 4 * 8 + 2, 50)],
    )  # fmt: skip
    assert (level.tiles[10:12, 2:15] == 0).all() and (level.tiles == 0).sum() == 26
    assert frames == plan(level).frames

    with page.expect_download() as download:
        page.get_by_role("button", name="Export to the game").click()
        page.get_by_role("dialog", name="Export to the game").get_by_role("button", name="Campaign file").click()
    assert download.value.suggested_filename.endswith(".txt")
    line = Path(download.value.path()).read_text()
    assert level_from_line(line.strip().encode()).fingerprint == level.fingerprint
    page.keyboard.press("Escape")
    page.click("text=Save as text")  # does not wait for the download, which the next page may cut short
    page.locator("#editor").focus()
    page.keyboard.press("p")
    page.wait_for_selector(".verdict:has-text('Ready')")
    page.go_back()
    assert page.get_by_label("Title").input_value() == "Made by mouse"  # the open level stays
    page.reload()
    assert page.get_by_label("Title").input_value() == "Made by mouse"


def test_save_existing_file_asks_for_confirmation(page, studio, plain_folder, starter):
    page.goto(studio.at(f"edit/{starter[0].fingerprint}"))

    def save():
        page.get_by_role("button", name="Save in a folder").click()
        dialog = page.get_by_role("dialog", name="Save in a folder")
        dialog.wait_for()
        folder = dialog.get_by_label("Folder")
        assert folder.locator("option").count() == 3 and folder.input_value() == ""  # the user must choose
        folder.select_option(str(plain_folder))
        dialog.get_by_label("Name").fill("mine")
        page.keyboard.press("Enter")

    save()
    page.wait_for_selector(".toast.good:has-text('Saved as mine')")
    page.get_by_label("Title").fill("Höhle #1")
    page.get_by_role("button", name="Save in a folder").click()
    name = page.get_by_role("dialog").get_by_label("Name")
    assert name.input_value() == "Höhle _1" and name.evaluate("field => field.validity.valid")
    name.fill("a/b")
    page.keyboard.press("Enter")
    assert name.input_value() == "a/b" and not name.evaluate("field => field.validity.valid")  # the dialog stays open
    page.keyboard.press("Escape")
    (file,) = plain_folder.glob("mine*")
    assert Level.load(file) == starter[0]
    page.keyboard.press("h")
    for answer, expected in (("Keep it", starter[0]), ("Replace", mirror(starter[0]))):
        save()
        page.get_by_role("dialog", name="Replace it?").get_by_role("button", name=answer).click()
        page.wait_for_selector("dialog", state="detached")
        until(page, lambda: Level.load(file) == expected)  # noqa: B023  # called within the loop


def test_unsaved_level_restored_after_tab_closed(new_page, studio):
    page = new_page()
    page.goto(studio.at("edit"))
    page.get_by_label("Title").fill("Not saved")
    page.keyboard.press("Enter")
    until(page, lambda: [one["draft"]["title"] for one in from_store(page, "drafts")] == ["Not saved"])
    other = page.context.new_page()
    page.close(run_before_unload=True)
    until(other, page.is_closed)
    other.goto(studio.at("edit"))
    assert other.get_by_label("Title").input_value() == "Not saved"


def test_editor_keyboard_only_creates_level(page, studio):
    page.goto(studio.at("edit"))
    wait_for_status(page, "Not a level yet")
    assert page.get_by_role("button", name="Undo").is_disabled()
    keys = page.keyboard

    def go(key, times):
        for _ in range(times):
            keys.press(key)

    keys.press("l")
    keys.press("v")
    keys.press("Enter")  # begins a region at the cursor, tile (1, 1)
    go("Shift+ArrowRight", 12)
    go("Shift+ArrowDown", 1)
    keys.press("Enter")
    keys.press("Delete")
    keys.press("k")  # the ninja
    go("Shift+ArrowLeft", 11)
    keys.press("Enter")
    keys.press("k")  # the exit, then its switch
    go("Shift+ArrowRight", 9)
    keys.press("Enter")
    go("Shift+ArrowLeft", 3)
    keys.press("Enter")
    keys.press("b")
    keys.press("]")  # tile 2, over a stroke of three
    go("ArrowUp", 1)
    keys.down(" ")
    go("ArrowLeft", 2)
    keys.up(" ")
    keys.press("Control+z")
    keys.press("Control+z")
    keys.press("Control+y")
    keys.press("Control+Shift+z")
    keys.press("n")  # the spawn
    assert "spawn" in page.text_content("#editor-here")
    keys.press("Enter")  # is taken hold of, moved by a quarter tile, and let go
    go("ArrowRight", 1)
    keys.press("Enter")
    level = saved(page, lambda: keys.press("Control+s"))
    row = 4 * 3 + 2
    assert level.records.tolist() == [[0, 4 * 3 + 3, row, 0, 0], [3, 4 * 12 + 2, row, 0, 0], [4, 4 * 9 + 2, row, 0, 0]]
    assert level.tiles[1, 6:9].tolist() == [2, 2, 2] and (level.tiles == 0).sum() == 2 * 13 - 3
    keys.press("?")
    page.wait_for_selector("dialog:has-text('quarter tiles')")
    keys.press("Escape")
    keys.press("h")
    assert saved(page, lambda: keys.press("Control+s")) == mirror(level)
    keys.press("Control+a")  # as a region, whose spawn comes along
    keys.press("h")
    assert saved(page, lambda: keys.press("Control+s")) == level


def test_copy_region_and_turn_entities(page, studio, starter):
    level = next(one for one in starter if (one.records[:, 0] == kinds.EXIT).sum() == 1)
    page.goto(studio.at(f"edit/{level.fingerprint}"))
    page.wait_for_selector("#editor")
    assert saved(page, lambda: page.keyboard.press("Control+s")) == level
    page.keyboard.press("Control+a")
    page.keyboard.press("Control+c")
    page.keyboard.press("Delete")
    wait_for_status(page, "cannot be finished")
    page.keyboard.press("Control+v")
    page.get_by_role("button", name="thwump", exact=True).click()
    page.mouse.click(*middle(page, 20, 10))
    page.keyboard.press("v")
    page.mouse.click(*middle(page, 20, 10))
    page.get_by_label("Orientation").select_option("left")
    page.get_by_label("x", exact=True).fill("7.25")
    page.get_by_label("x", exact=True).press("Enter")
    edited = saved(page, lambda: page.keyboard.press("Control+s"))
    added = [row for row in edited.records.tolist() if row not in level.records.tolist()]
    assert added == [[kinds.THWUMP, 29, 4 * 11 + 2, 4, 0]]
    assert (edited.tiles == level.tiles).all() and len(edited.records) == len(level.records) + 1


def test_change_of_level_ends_search(page, studio):
    out_of_reach = Level.build(np.zeros((23, 42), np.uint8), (20, 96), exits=[((160, 8), (80, 8))])
    page.goto(studio.at("replays"))
    id = page.evaluate(SENT, list(out_of_reach.to_bytes()))["id"]
    page.goto(studio.at(f"edit/{id}"))
    wait_for_status(page, "looking for a run")
    until(page, lambda: len(page.workers) == 1, "a search")
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    wait_for_status(page, "cannot be finished")
    until(page, lambda: not page.workers, "the end of the search")
    page.keyboard.press("Control+z")
    until(page, lambda: len(page.workers) == 1, "another search")
    page.goto(studio.at("replays"))
    until(page, lambda: not page.workers, "the end of the search")


def test_unsimulated_entities_drawn_as_rings(page, studio):
    page.goto(studio.at("edit"))
    wait_for_status(page, "Not a level yet")
    for name, place in (("ninja", (3, 11)), ("alternative death ball", (9, 11))):
        page.get_by_role("button", name=name, exact=True).click()
        page.mouse.click(*middle(page, *place))
    level = saved(page, lambda: page.keyboard.press("Control+s"))
    assert level.records.tolist() == [[0, 4 * 4 + 2, 50, 0, 0], [27, 4 * 10 + 2, 50, 0, 0]]
    assert level.support == "unsupported"


def test_undo_redo_restores_states(modules, starter):
    message = modules.evaluate(UNDONE, draft_of(modules, starter[0]))
    assert message["undone"] == message["operations"]
    assert level_of(modules, message["first"]) == starter[0] and message["again"] == message["last"] != message["first"]


def test_mirror_and_kinds_equal_simulator(modules, starter):
    call = """async (draft) => {
        const { draftOf, mirrorLevel, stateOf } = await import("/studio/static/js/level_model.js");
        return draftOf(mirrorLevel(stateOf(draft)));
    }"""
    for level in (starter[-1], everything()):
        assert level_of(modules, modules.evaluate(call, draft_of(modules, level))) == mirror(level)
    tiles = """async () => {
        const { mirroredTile } = await import("/studio/static/js/level_model.js");
        return [...Array(256).keys()].map(mirroredTile);
    }"""
    assert modules.evaluate(tiles) == MIRRORED.tolist()
    table = "async () => [...(await import('/studio/static/js/kinds.js')).KINDS]"
    known = dict(map(tuple, modules.evaluate(table)))
    assert {kind for kind, what in known.items() if not what.get("leftOut")} == {kinds.NINJA, *kinds.CREATING}
    assert {kind for kind, what in known.items() if what.get("leftOut")} == set(kinds.WITHOUT_EFFECT)
    for kind, what in known.items():
        assert what["name"] == kinds.ENTITY_NAMES[kind]
        assert ("turns" in what) == (kind in kinds.ORIENTED)
        assert ("modes" in what) == (kind in (*kinds.DRONES, kinds.LASER))
        assert what.get("switch") == {kinds.EXIT: kinds.EXIT_SWITCH, **kinds.SWITCH_OF_DOOR}.get(kind)


def test_drawn_document_equals_played_document(modules, starter):
    """The editor draws levels from its own model: their documents are those that the game has."""
    call = """async (draft) => {
        const { stateOf } = await import("/studio/static/js/level_model.js");
        return (await import("/studio/static/js/level_document.js")).documentOf(stateOf(draft));
    }"""
    for level in (*starter[::6], everything()):
        drawn = modules.evaluate(call, draft_of(modules, level))
        sent = modules.evaluate(SENT, list(level.to_bytes()))
        index = {place: i for i, place in enumerate(map(placed, sent["entities"]))}
        assert drawn["tiles"] == sent["tiles"] and drawn["spawn"] == sent["spawn"]
        assert len(drawn["entities"]) == len(sent["entities"])
        for i, entity in enumerate(drawn["entities"]):
            other = sent["entities"][index[placed(entity)]]
            assert (entity.get("door"), entity["kind"]) == (other.get("door"), other["kind"])
            assert drawn["start"]["looks"][i][0] == sent["start"]["looks"][index[placed(entity)]][0]


def everything():
    """A level of all tiles and all entities, in all orientations and modes."""
    single = [kind for kind in kinds.CREATING if kind not in kinds.PAIRED]
    places = iter((x, y) for y in range(6, 94, 4) for x in range(6, 170, 3))
    entities = [(kind, *next(places), turn, turn % 4) for kind in single for turn in range(8)]
    doors = [(next(places), next(places), turn) for turn in range(8)]
    exits = [(next(places), next(places))]
    tiles = (np.arange(23 * 42) % 38).reshape(23, 42)
    return Level.build(tiles, (9, 97), exits=exits, locked_doors=doors, trap_doors=doors, entities=entities)


def placed(entity):
    return entity["type"], entity["x"], entity["y"], tuple(entity.get("door", ()))


def test_narrow_screen_and_dark_theme_layout(new_page, studio):
    page = new_page(viewport={"width": 390, "height": 844}, color_scheme="dark", has_touch=True)
    page.goto(studio.at("edit"))
    wait_for_status(page, "Not a level yet")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="ninja", exact=True).tap()
    page.locator("#editor").scroll_into_view_if_needed()
    page.touchscreen.tap(*middle(page, 5, 5))
    page.wait_for_selector("#editor-diagnostics:not(:has-text('no spawn'))")
    assert page.get_by_role("button", name="Undo").is_enabled()

    pinch(page, *middle(page, 20, 11))
    page.touchscreen.tap(*middle(page, 5, 5))  # where another tile is now: the view is another one
    page.wait_for_selector("#editor-here:has-text('ninja placed')")
    assert "at 6.5, 6.5" not in page.text_content("#editor-here")


def test_disabled_try_button_is_readable(page, studio):
    page.goto(studio.at("edit/new"))
    button = page.get_by_role("button", name="Play the level")
    assert button.is_disabled()
    ink, ground = button.evaluate("(b) => [getComputedStyle(b).color, getComputedStyle(b).backgroundColor]")
    assert ink != ground
