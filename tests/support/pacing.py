"""How evenly the studio plays in a real browser, how soon an input becomes a state, and what that costs:

    python tests/support/pacing.py [SECONDS]

plays that long (default 60) in headless Chromium, with a key that changes twice a second, and prints each figure beside what
it should be.  Worth something on a machine that does nothing else; the load is printed, too.
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


FRAME_MS = 1000 / 60


def measure(page: Page, address: str, seconds: float, process: psutil.Process) -> dict:
    """The page's count of that many seconds of play, and the share of a core that the studio took meanwhile."""
    page.goto(f"{address}#/play/{LEVEL.fingerprint}")
    page.wait_for_selector(".verdict:has-text('Ready')")
    before, begun, key = sum(process.cpu_times()[:2]), time.monotonic(), 0
    while time.monotonic() < begun + seconds:
        held = ("ArrowLeft", "ArrowRight")[key % 2]
        key += 1
        page.keyboard.down(held)
        page.wait_for_timeout(500)
        page.keyboard.up(held)
    share = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - begun)
    page.keyboard.press("p")
    page.wait_for_selector(".verdict:has-text('Paused')")
    return json.loads(page.get_attribute("#pacing", "data-summary") or "{}") | {"studio": share}


def table(told: dict, load: float) -> str:
    """Figures and what they should be."""
    rows = [
        ("frames shown", f"{told['frames']:,}", ""),
        ("frames within 20 ms of the one before", f"{told['share']:.2%}", "99 % or more"),
        ("longest time between two", f"{told['worst']:.1f} ms", ""),
        ("from input to state, median", f"{told['median']:.1f} ms", f"{FRAME_MS:.1f} ms (a frame) or less"),
        ("from input to state, 99 % within", f"{told['late']:.1f} ms", ""),
        ("share of a core, server and physics", f"{told['studio']:.1%}", "5 % or less"),
        ("load of the machine before, 1 min", f"{load:.2f}", "below 0.5, or this tells little"),
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
        told = measure(page, found[0], seconds, psutil.Process(studio.pid))
        browser.close()
        studio.terminate()
    print(table(told, load))


if __name__ == "__main__":
    main()
