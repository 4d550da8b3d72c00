"""The exported site: no server but one for files."""

import functools
import http.server
import json
import re
import threading

import pytest

from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels.level import Level
from nppsim.replays.replay import Replay
from nppsim.studio.agent_registry import AgentRegistry
from nppsim.studio.export import export
from nppsim.studio.library import Library

from browsing import from_store, until
from worlds import corridor

FILES = [STARTER_LEVELS / "simplest" / f"00000{i}.map" for i in range(2)]
LEVEL = Level.load(FILES[0])
MAX_BYTES = 2 << 20
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class _Files:
    """A server of the files of a folder.  address: of its root; stop(): it answers no more."""

    def __init__(self, folder):
        handler = functools.partial(_Handler, directory=str(folder))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The folder of a host, with the site in its folder ``sub/game``.

    It has few levels: the page draws each of them and searches for its par.
    """
    root = tmp_path_factory.mktemp("host")
    export(root / "sub" / "game", Library(FILES), AgentRegistry())
    return root


@pytest.fixture
def host(exported):
    files = _Files(exported)
    yield files
    files.stop()


@pytest.fixture
def site(host):
    """Address of the site."""
    return host.address + "sub/game/"


def frame_of(page):
    return int(re.search(r"frame (\d+)", page.inner_text(".numbers"))[1])


def play(page, frames=20):
    """Run to the right for some frames."""
    page.wait_for_selector(".verdict:not([hidden])")
    page.keyboard.down("ArrowRight")
    until(page, lambda: frame_of(page) >= frames)
    page.keyboard.up("ArrowRight")


def open_level(page, site, level=None):
    page.goto(f"{site}#/play/{level or LEVEL.fingerprint}")
    page.wait_for_selector(".numbers")


def store_run(page, name):
    page.get_by_role("button", name="Store run …").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.keyboard.press("Enter")


def wait_for_runs(page, site, *labels):
    """Open the list of runs and wait until it has these labels and no others."""
    page.goto(f"{site}#/replays")
    if not labels:
        page.get_by_text("No runs yet").wait_for()
    until(page, lambda: page.locator("table.runs tbody th").all_inner_texts() == list(labels))


def dropped(page, name, data):
    """Drop a file on the page."""
    page.evaluate(
        """([name, data]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([Uint8Array.from(data)], name));
            document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true }));
        }""",
        [name, list(data)],
    )


def test_export_of_shipped_levels_has_film_and_at_most_two_megabytes(tmp_path):
    export(tmp_path / "site", Library(), AgentRegistry())
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < MAX_BYTES
    assert json.loads((tmp_path / "site" / "data" / "film.json").read_text())["run"]


def test_page_in_a_sub_path_plays_a_level(page, site):
    page.goto(site)
    page.locator(".card").first.click()
    play(page)


def test_page_reloads_and_plays_without_a_network_after_the_first_visit(page, host, site):
    page.goto(site)
    page.wait_for_selector(".card")
    page.evaluate("async () => { await navigator.serviceWorker.ready; }")
    host.stop()
    page.reload()
    page.wait_for_selector(".card")
    assert page.locator(".card").count() == len(FILES)
    open_level(page, site)
    play(page)


def test_page_shows_nothing_that_needs_a_server(page, site):
    open_level(page, site)
    play(page)
    store_run(page, "mine")
    page.get_by_role("dialog").get_by_text("Stored in this browser").wait_for()
    assert page.get_by_text("demonstrations").count() == 0
    page.goto(f"{site}#/edit")
    page.get_by_role("button", name="Copy link").wait_for()
    assert page.get_by_text("Save in a folder").count() == 0
    page.goto(f"{site}#/replays")
    page.locator("table.runs").wait_for()
    assert page.get_by_text("demonstrations").count() == 0


def test_shipped_agent_plays_in_the_page(page, site):
    page.goto(f"{site}#/watch/{LEVEL.fingerprint}")
    page.get_by_text("vision_free_foresight").first.wait_for()
    page.locator(".player .clock").wait_for()
    until(page, lambda: "won" in page.inner_text(".watching"))


def test_link_to_a_level_and_a_run_opens_both_in_another_browser(new_page, site):
    page = new_page(permissions=["clipboard-read", "clipboard-write"])
    page.goto(site)
    page.wait_for_selector(".card")
    level, inputs = corridor(title="From a link"), bytes([2] * 70)
    dropped(page, "a.replay", Replay(level, list(inputs)).to_bytes())
    page.get_by_role("button", name="Copy link").click()
    page.get_by_text("is copied").wait_for()
    link = page.evaluate("() => navigator.clipboard.readText()")
    assert link.startswith(f"{site}#level=")
    assert len(link) < 1000
    other = new_page()
    other.goto(link)
    other.get_by_role("heading", name="Run of a link").wait_for()
    other.get_by_role("link", name="Play this level").click()
    other.get_by_role("heading", name="From a link").wait_for()
    play(other)


@pytest.mark.parametrize(
    "change", [lambda link: link[:-40], lambda link: link.replace("level=", "level=AAAA"), lambda link: link + "&run=!"]
)
def test_damaged_link_says_so_and_the_page_goes_on(new_page, site, change):
    page = new_page(permissions=["clipboard-read", "clipboard-write"])
    open_level(page, site)
    page.get_by_role("button", name="Copy link").click()
    page.get_by_text("is copied").wait_for()
    link = change(page.evaluate("() => navigator.clipboard.readText()"))
    page.goto("about:blank")
    page.goto(link)
    page.get_by_text("This link is damaged or cut off").first.wait_for()
    page.faults.clear()
    page.get_by_role("link", name="Levels").click()
    page.wait_for_selector(".card")


def test_dropped_files_open_and_a_damaged_one_says_what_is_wrong(page, site):
    page.goto(site)
    page.wait_for_selector(".card")
    dropped(page, "text.level", corridor(title="As text").to_text().encode())
    page.get_by_role("heading", name="As text").wait_for()
    dropped(page, "broken.map", corridor().to_bytes()[:700])
    page.locator(".toast.bad").wait_for()
    assert "broken.map" in page.inner_text(".toast.bad")
    page.reload()
    page.get_by_role("heading", name="As text").wait_for()
    page.faults.clear()


def test_full_storage_is_reported_and_the_run_can_be_saved(page, site):
    open_level(page, site)
    play(page)
    client = page.context.new_cdp_session(page)
    client.send("Storage.overrideQuotaForOrigin", {"origin": site.split("/sub")[0], "quotaSize": 1})
    store_run(page, "does not fit")
    page.get_by_text("storage is full").wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save the run as a replay file").click()
    assert download.value.suggested_filename.endswith(".replay")
    client.send("Storage.overrideQuotaForOrigin", {"origin": site.split("/sub")[0]})
    page.get_by_role("button", name="Store", exact=True).click()
    page.get_by_text("Stored in this browser").wait_for()


def test_two_tabs_store_runs_and_both_list_them(new_page, site):
    page = new_page()
    other = page.context.new_page()
    other.set_default_timeout(60_000)
    wait_for_runs(other, site)
    page.bring_to_front()  # a hidden tab draws no frames
    for name in ("first", "second"):
        open_level(page, site)
        play(page)
        store_run(page, name)
        page.get_by_text("Stored in this browser").wait_for()
        page.keyboard.press("Escape")
    other.bring_to_front()
    open_level(other, site)
    play(other)
    store_run(other, "third")
    other.get_by_text("Stored in this browser").wait_for()
    wait_for_runs(page, site, "third", "second", "first")
    other.goto(f"{site}#/replays")
    for answer in ("Keep it", "Remove"):
        other.get_by_role("button", name="Remove: second").click()
        other.locator("dialog").get_by_role("button", name=answer).click()
    until(page, lambda: page.locator("table.runs tbody th").all_inner_texts() == ["third", "first"])


def test_two_tabs_edit_two_drafts(new_page, site):
    page = new_page()
    for title in ("one", "two"):
        tab = page if title == "one" else page.context.new_page()
        tab.goto(f"{site}#/edit")
        tab.get_by_label("Title").fill(title)
        tab.get_by_label("Title").press("Enter")
        until(tab, lambda: title in [one["draft"]["title"] for one in from_store(tab, "drafts")])  # noqa: B023
    page.reload()
    until(page, lambda: page.get_by_label("Title").input_value() == "one")
    tab.reload()
    until(tab, lambda: tab.get_by_label("Title").input_value() == "two")


def test_exported_data_are_added_in_another_browser(new_page, site, tmp_path):
    page = new_page()
    open_level(page, site)
    play(page)
    store_run(page, "carried")
    page.get_by_text("Stored in this browser").wait_for()
    page.goto(f"{site}#/replays")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save everything as a file").click()
    download.value.save_as(tmp_path / "all.json")
    data = (tmp_path / "all.json").read_bytes()
    assert len(json.loads(data)["runs"]) == 1
    assert {"plans", "branches"} <= json.loads(data).keys()
    other = new_page()
    other.goto(site)
    other.wait_for_selector(".card")
    for count in (1, 0):  # the second time adds nothing
        dropped(other, "all.json", data)
        other.get_by_text(f"{count} runs were added").wait_for()
    wait_for_runs(other, site, "carried")
    dropped(other, "all.json", json.dumps(json.loads(data) | {"best": [{}]}, separators=(",", ":")).encode())
    other.locator(".toast.bad").get_by_text('"best" cannot be read').wait_for()


def test_phone_plays_by_touch_without_horizontal_scrolling(new_page, site):
    page = new_page(**PHONE)
    page.goto(site)
    page.locator(".card").first.tap()
    page.wait_for_selector(".touch")
    box = page.get_by_role("button", name="run right").bounding_box()
    client = page.context.new_cdp_session(page)
    point = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    client.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [point]})
    until(page, lambda: frame_of(page) > 10)
    client.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_level_file_of_the_page_equals_the_level(page, site, tmp_path):
    page.goto(f"{site}#/edit/{LEVEL.fingerprint}")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as file").click()
    download.value.save_as(tmp_path / "saved.map")
    assert Level.load(tmp_path / "saved.map").fingerprint == LEVEL.fingerprint
