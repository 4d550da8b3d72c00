"""How evenly the studio plays in a real browser, and how soon an input becomes a state:

    python tests/support/pacing.py [SECONDS]

plays that long (default 60) in headless Chromium, with a key that changes twice a second, and prints what the page has
counted, ms, and what the studio's process took.  Worth something on a machine that does nothing else.
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

from nppsim.env import STARTER_LEVELS
from nppsim.levels.level_set import LevelSet

LEVEL = LevelSet.open(STARTER_LEVELS)[0]  # one in which running to and fro is harmless
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def measure(page: Page, address: str, seconds: float) -> dict:
    """The page's count of that many seconds of play."""
    page.goto(f"{address}#/play/{LEVEL.fingerprint}")
    page.wait_for_selector(".verdict:has-text('Ready')")
    deadline, key = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        held = ("ArrowLeft", "ArrowRight")[key % 2]
        key += 1
        page.keyboard.down(held)
        page.wait_for_timeout(500)
        page.keyboard.up(held)
    page.keyboard.press("p")
    page.wait_for_selector(".verdict:has-text('Paused')")
    return json.loads(page.get_attribute("#pacing", "data-summary") or "{}")


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    command = [sys.executable, "-m", "nppsim", "studio", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as studio, sync_playwright() as tool:
        assert studio.stdout is not None
        found = next(filter(None, (re.search(r"http://\S+", line) for line in studio.stdout)))
        path = next(filter(None, map(shutil.which, BROWSERS)))
        browser = tool.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.getuid() == 0 else [])
        process = psutil.Process(studio.pid)
        before = sum(process.cpu_times()[:2])
        told = measure(browser.new_page(viewport={"width": 1280, "height": 760}), found[0], seconds)
        told["studio, share of a core"] = (sum(process.cpu_times()[:2]) - before) / seconds
        told["load"] = os.getloadavg()[0]
        browser.close()
        studio.terminate()
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
