"""Watching agents: policy outputs, comparison of runs, deaths, and an experiment in training."""

import re
import shutil

import pytest

from nppsim.gym.env import STARTER_LEVELS
from nppsim.io.files import write_json
from nppsim.levels import kinds
from nppsim.levels.level_set import LevelSet

from browsing import needs_agents, until
from places import ROOT
from worlds import corridor

LEVEL = LevelSet.open(STARTER_LEVELS)[0]
pytestmark = needs_agents


def watch(page, studio, level=LEVEL):
    page.goto(studio.at(f"watch/{level.fingerprint}"))
    page.wait_for_selector(".player .run")  # the first agent takes seconds to be loaded
    until(page, lambda: "won" in page.text_content(".player .run"), "the end of the run")


def seek(page, frame):
    page.locator(".transport input[type=range]").evaluate(
        "(slider, frame) => { slider.value = frame; slider.dispatchEvent(new Event('input')); }", frame
    )


def thought(page):
    """(shares of the six actions in %, place of the one that was taken, value)."""
    shares = [int(re.match(r"\d+", text)[0]) for text in page.locator(".action .share").all_text_contents()]
    taken = [("chosen" in row) for row in page.locator(".action").evaluate_all("rows => rows.map((r) => r.className)")]
    return shares, taken.index(True), float(page.text_content(".research dd"))


def test_watch_agent_shows_policy_outputs(page, studio):
    watch(page, studio)
    assert not page.locator(".terms").is_visible() and "entropy" not in page.inner_text("#view")
    page.click("summary:has-text('For researchers')")
    seek(page, 40)
    shares, taken, value = thought(page)
    assert sum(shares) == pytest.approx(100, abs=4) and shares[taken] > 0 and value > 0
    seek(page, 0)
    assert thought(page) != (shares, taken, value)
    assert "shaping" in page.text_content(".terms")
    for box in page.locator(".overlays input").all():  # each overlay can be drawn
        box.check()
    page.get_by_text("Numbers").click()
    until(page, lambda: "waypoint1 dx" in page.text_content(".numbers"), "the numbers")


def test_watch_live_shows_thinking_and_plan(page, studio):
    page.goto(studio.at(f"watch/{LEVEL.fingerprint}/counted"))
    page.wait_for_selector(".player .run")
    until(page, lambda: "won" in page.text_content(".player .run"), "the end of the run")
    assert page.get_by_label("How it chooses").locator("option:checked").text_content() == "live"
    page.get_by_role("button", name="to the start").click()
    assert re.search(r"thinking; \d+ decisions? planned", page.inner_text(".policy"))
    page.get_by_label("How it chooses").select_option("varies from try to try")
    until(page, lambda: " planned" not in page.inner_text(".panels"), "a run without a clock")


def test_watch_two_runs_reports_first_difference(page, studio):
    watch(page, studio)
    for label in ("vision_free_foresight", "the planner (score)"):
        page.get_by_label("Who else").select_option(label=label)
        page.get_by_role("button", name="Add").click()
    page.get_by_label("How it chooses").nth(1).select_option("the same on every try")
    until(page, lambda: page.locator(".player .run .good").count() == 3, "three runs")
    until(page, lambda: page.locator("section:has-text('Where they diverge') h3").count() == 2, "two differences")
    assert "planner (score)" in page.text_content(".player .runs")


def test_deaths_counted_and_drawn(page, studio):
    watch(page, studio)
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_selector(".deaths [aria-live]:has-text('of 64')")
    until(page, lambda: "64 of 64 won (100 %)" in page.text_content(".deaths"), "64 episodes")
    page.get_by_label("Where").select_option("category")
    page.get_by_role("button", name="Start", exact=True).click()
    until(page, lambda: page.locator(".deaths tbody tr").count() == 3, "the levels of the category")
    page.wait_for_selector(".deaths button:has-text('Start')")
    assert page.locator(".deaths tbody tr").first.locator("td").all_text_contents()[2:4] == ["0", "0"]


def walled(tmp_path):
    """A corridor whose exit is behind a wall of mines, in a folder."""
    mines = [(kinds.MINE, 48, y) for y in range(40, 50, 2)]
    level = corridor(switch=100, door=120, entities=mines)
    level.save(tmp_path / "walled.map")
    return level


def test_lost_episode_says_why_and_marks_the_place(page, start_studio, tmp_path):
    level = walled(tmp_path)
    page.goto(start_studio("--levels", str(tmp_path)).at(f"watch/{level.fingerprint}"))
    page.wait_for_selector(".watching [role=status]:has-text('of the path')")
    text = page.text_content(".watching [role=status]")
    assert re.search(r"(killed by a mine at|not finished after)", text)
    page.get_by_label("How it chooses").select_option("live")  # played by the server
    until(page, lambda: not page.text_content(".watching [role=status]"), "the next run")
    page.wait_for_selector(".watching [role=status]:has-text('of the path')")


def test_deaths_have_progress_and_places(page, start_studio, tmp_path):
    level = walled(tmp_path)
    page.goto(start_studio("--levels", str(tmp_path)).at(f"watch/{level.fingerprint}"))
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_selector(".deaths [aria-live]:has-text('of the path on average')")


def test_editor_agent_evaluated_on_level(page, studio):
    page.goto(studio.at(f"edit/{LEVEL.fingerprint}"))
    page.get_by_role("button", name="64 episodes of an agent").click()
    page.wait_for_selector("#editor-episodes:has-text('64 of 64 finished (100 %)')")


def training(experiment):
    """The folder of a training in an experiment's, as far as it has come: two rows of its table."""
    from rl.config.resume import RUN_FILE
    from rl.ppo.logs import CSV_FILE, CSVOutput

    folder = experiment / "seed_1"
    write_json(experiment / "config.json", {"experiment_name": "tiny"})
    total = {"value": 4096, "source": "default"}
    write_json(folder / RUN_FILE, {"seed": 1, "settings": {"ppo.total_timesteps": total}})
    table = CSVOutput(folder / CSV_FILE)
    tags = ("rollout/ep_len_mean", "train/entropy_loss", "train/approx_kl", "train/value_loss", "time/fps")
    for steps in (1024, 2048):
        values = dict.fromkeys(tags, 1000 / steps)
        table.write(
            {"time/total_timesteps": steps, **values}, dict.fromkeys(("time/total_timesteps", *tags), ""), steps
        )
    return folder


def test_training_view_follows_experiment_and_plays_weights(new_page, start_studio, tmp_path):
    folder = training(tmp_path)
    agent = ROOT / "datasets" / "agents" / "vision_free_foresight.safetensors"
    (folder / "checkpoints").mkdir()
    shutil.copy(agent, folder / "checkpoints" / "checkpoint_2048.safetensors")
    page = new_page(viewport={"width": 390, "height": 800})  # a phone's
    page.goto(start_studio("--run", str(tmp_path)).address)
    page.wait_for_selector(".live .player .run")
    assert "checkpoint_2048" in page.text_content(".live")
    until(page, lambda: page.locator(".curves canvas").count() > 3, "learning curves")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shutil.copy(agent, folder / "checkpoints" / "checkpoint_4096.safetensors")
    until(page, lambda: "checkpoint_4096" in page.text_content(".trainings"), "the newer weights")
