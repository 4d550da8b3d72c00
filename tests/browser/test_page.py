"""Pages written by ``nppsim page``: they play from a file without network access."""

import numpy as np
import pytest

from nppsim.__main__ import main
from nppsim.levels.kinds import LASER
from nppsim.levels.level import Level
from nppsim.replays.replay import Replay

from browsing import pinch, until
from places import ROOT
from results import BARE, architectures

MIDDLE = """() => {
    const canvas = document.querySelector(".player canvas");
    return canvas.getContext("2d").getImageData(canvas.width / 2, canvas.height / 2, 1, 1).data[0];
}"""  # how bright the middle of the level is
PICTURE = "document.querySelector('.player canvas').toDataURL()"
REDS = """() => {
    const canvas = document.querySelector(".player canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let i = 0; i < data.length; i += 4) count += data[i] > data[i + 1] + 60 && data[i] > data[i + 2] + 60;
    return count;
}"""  # how many pixels are red
SETS = [f"datasets/{name}/advanced.h5#2" for name in ("demonstrations", "refined")]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "run.html"
    assert (
        main(["page", *(str(ROOT / place) for place in SETS), "--out", str(path), "--title", "</script><b>Tést"]) == 0
    )
    return path


def test_player_plays_scrubs_and_marks_first_difference(page, written):
    asked = []
    page.context.set_offline(True)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(written.as_uri())
    assert page.text_content("h1") == "</script><b>Tést"
    page.wait_for_selector(".player .clock")
    page.keyboard.press("Space")
    until(page, lambda: int(page.text_content(".clock").split()[-1]) >= 10)
    page.wait_for_selector("[title='pause']")
    page.keyboard.press("End")
    page.wait_for_selector(".chip:has-text('won')")
    page.keyboard.press("ArrowLeft")
    assert page.locator(".run").count() == 2
    page.keyboard.press("2")
    assert page.locator(".run").nth(1).get_attribute("aria-pressed") == "true"
    page.keyboard.press("Home")
    page.wait_for_selector(".clock:has-text('frame 0')")
    assert asked == [written.as_uri()]


def test_page_controls_on_first_screen(new_page, written):
    page = new_page(viewport={"width": 1280, "height": 720})
    page.goto(written.as_uri())
    page.wait_for_selector(".player .clock")
    controls = page.locator(".transport").bounding_box()
    assert controls["y"] + controls["height"] <= 720


def test_page_too_large_raises_error(tmp_path, written, monkeypatch):
    from nppsim.studio import page

    assert written.stat().st_size < 250_000
    monkeypatch.setattr(page, "MAX_PAGE", 1000)
    assert main(["page", str(ROOT / SETS[0]), "--out", str(tmp_path / "run.html")]) == 2
    assert not (tmp_path / "run.html").exists()


def test_page_of_long_run_raises_error(tmp_path, monkeypatch):
    from nppsim.studio import page

    monkeypatch.setattr(page, "MAX_FRAMES", 10)
    with pytest.raises(page.StudioError, match="shorten it"):
        page.page(page.runs_of_replays([str(ROOT / SETS[0])]))


def test_page_light_and_dark_themes(new_page, written):
    """The open part of a level is light or dark, as the system wants it."""
    shades = {}
    for scheme in ("light", "dark"):
        page = new_page(color_scheme=scheme)
        page.goto(written.as_uri())
        page.wait_for_selector(".player .clock")
        shades[scheme] = page.evaluate(MIDDLE)
    assert shades["light"] > 200 > 60 > shades["dark"]


def test_pinch_zooms_without_playing(new_page, written):
    page = new_page(viewport={"width": 390, "height": 700}, has_touch=True)
    page.goto(written.as_uri())
    page.wait_for_selector(".player .clock")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    before = page.evaluate(PICTURE)
    box = page.locator(".player canvas").first.bounding_box()
    pinch(page, box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    until(page, lambda: page.evaluate(PICTURE) != before, "a larger picture")
    assert page.locator("[aria-label=play]").count() == 1
    page.locator(".player canvas").first.tap()
    page.wait_for_selector("[aria-label=pause]")


def test_report_page_contains_player(page, tmp_path):
    from rl.experiment.report import write_report

    run = tmp_path / "run"
    Replay.load(str(ROOT / SETS[0])).save(run / "videos" / "a.replay")
    film = {"category": "simple", "level_name": "l", "outcome": "won", "frames": 246}
    films = [film | {"video": "videos/a.mp4", "route": "a.png"}, film | {"video": "videos/b.mp4", "route": "b.png"}]
    runs = architectures(m=BARE | {"folder": "run", "films": films})
    experiment = dict.fromkeys(("name", "created", "machine"), "e") | {"versions": {}, "architectures": runs}
    experiment |= {"audit": [], "comparisons": []}
    page.goto(write_report(experiment, tmp_path / "report.html").as_uri())
    assert page.locator("text=play it here").count() == 1  # nothing of the other remains
    page.click("text=play it here")
    page.wait_for_selector(".player .clock:has-text('frame 0')")
    page.click("[aria-label='one frame forward']")
    page.wait_for_selector(".player .clock:has-text('frame 1')")
    assert page.locator(".player .buttons").bounding_box()["height"] > 25


def test_player_draws_beams_and_wide_levels(page, tmp_path):
    tiles = np.ones((23, 42), np.uint8)
    tiles[9:13, 1:41] = 0
    level = Level.build(tiles, (16, 54), exits=[((140, 54), (150, 54))], entities=[(LASER, 86, 46, 0, 0)])
    Replay(level, np.zeros(30, np.uint8)).save(tmp_path / "run.replay")
    assert main(["page", str(tmp_path / "run.replay"), "--out", str(tmp_path / "run.html")]) == 0
    page.goto((tmp_path / "run.html").as_uri())
    page.wait_for_selector(".player .clock")
    assert page.evaluate("(c => c.clientWidth / c.clientHeight)(document.querySelector('.player canvas'))") > 2.5
    until(page, lambda: page.evaluate(REDS) > 300, "a beam")
