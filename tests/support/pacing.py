"""Measure frame times, input latency and processor use of the studio in a real browser:

    python tests/support/pacing.py [SECONDS]

plays SECONDS (default 60) in headless Chromium, with a key that changes twice a second, and prints each figure beside its
limit.  Use an idle machine; the load is printed too.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time

import psutil
from playwright.sync_api import Page, sync_playwright

from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels.level_set import LevelSet

LEVEL = LevelSet.open(STARTER_LEVELS)[0]  # running to and fro is harmless here
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


FRAME_MS = 1000 / 60


def measure(page: Page, address: str, seconds: float, process: psutil.Process) -> dict:
    """Return the page's statistics of some seconds of play, and the share of a core that the studio used."""
    page.goto(f"{address}#/play/{LEVEL.fingerprint}")
    page.wait_for_selector(".verdict:has-text('Ready')")
    before, begun, key = sum(process.cpu_times()[:2]), time.monotonic(), 0
    while time.monotonic() < begun + seconds:
        arrow = ("ArrowLeft", "ArrowRight")[key % 2]
        key += 1
        page.keyboard.down(arrow)
        page.wait_for_timeout(500)
        page.keyboard.up(arrow)
    share = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - begun)
    page.keyboard.press("p")
    page.wait_for_selector(".verdict:has-text('Paused')")
    return json.loads(page.get_attribute("#pacing", "data-summary") or "{}") | {"studio": share}


def table(figures: dict, load: float) -> str:
    """Format the figures and their limits."""
    rows = [
        ("frames shown", f"{figures['frames']:,}", ""),
        ("frames within 20 ms of the one before", f"{figures['share']:.2%}", "99 % or more"),
        ("longest time between two", f"{figures['worst']:.1f} ms", ""),
        ("from input to state, median", f"{figures['median']:.1f} ms", f"{FRAME_MS:.1f} ms (a frame) or less"),
        ("from input to state, 99 % within", f"{figures['late']:.1f} ms", ""),
        ("share of a core, server and physics", f"{figures['studio']:.1%}", "5 % or less"),
        ("load of the machine before, 1 min", f"{load:.2f}", "below 0.5, else unreliable"),
    ]
    return "\n".join(f"{name:<40}{value:>10}    {wanted}".rstrip() for name, value, wanted in rows)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    load = os.getloadavg()[0]
    command = [sys.executable, "-m", "nppsim", "studio", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as studio, sync_playwright() as tool:
        assert studio.stdout is not None
        found = next(filter(None, (re.search(r"http://\S+", line) for line in studio.stdout)))
        path = next(filter(None, map(shutil.which, BROWSERS)))
        browser = tool.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.getuid() == 0 else [])
        page = browser.new_page(viewport={"width": 1280, "height": 760})
        figures = measure(page, found[0], seconds, psutil.Process(studio.pid))
        browser.close()
        studio.terminate()
    print(table(figures, load))


if __name__ == "__main__":
    main()
