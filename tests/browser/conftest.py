"""A real browser and a real studio; these tests are skipped without Chromium or Playwright."""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from queue import Empty, Queue

import pytest

from nppsim.gym.env import STARTER_LEVELS

from browsing import DEADLINE_S
from places import ROOT
from worlds import corridor

START_S = 240  # that a studio may take to start: it may have to compile
# With reduced motion, the film of the gallery stands still and takes no processor time.
_PAGE = {"viewport": {"width": 1000, "height": 640}, "reduced_motion": "reduce"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Each window would render two hidden pages for suggestions of the address bar, which take a second of processor time.
_NO_SUGGESTIONS = "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup"


@dataclass
class Studio:
    """A studio in a process of its own.  address: with its token.  folder: of its demonstrations."""

    process: subprocess.Popen
    address: str
    folder: str

    def at(self, view):
        """The address of a view, such as ``play/ID``."""
        return f"{self.address}#/{view}"


@pytest.fixture(scope="session")
def start_studio(tmp_path_factory):
    """A function that starts a studio with further arguments and returns it; all are ended after the tests."""
    started = []

    def start(*arguments):
        folder = str(tmp_path_factory.mktemp("studio") / "demonstrations")
        command = [sys.executable, "-m", "nppsim", "studio", "--no-browser", "--port", "0", "--demonstrations", folder]
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return Studio(process, _address(process), folder)

    yield start
    for process in started:
        process.kill()  # how a studio ends well is tested elsewhere; with agents loaded that takes seconds
    for process in started:
        process.wait()


def _address(process):
    """Read the address that the studio prints; read its later output too, so that it never blocks."""
    lines = Queue()
    threading.Thread(target=lambda: [lines.put(line) for line in process.stdout], daemon=True).start()
    said, deadline = "", time.monotonic() + START_S
    while time.monotonic() < deadline and (process.poll() is None or not lines.empty()):
        try:
            said += lines.get(timeout=0.2)
        except Empty:
            continue
        if found := re.search(r"http://\S+", said):
            return found[0]
    pytest.fail(f"the studio did not start within {START_S} s: {said}")


@pytest.fixture(scope="session")
def plain_folder(tmp_path_factory):
    """A folder of level files without an index, which takes new levels."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "first.map").write_bytes(corridor(title="First").to_bytes())
    return folder


@pytest.fixture(scope="session")
def studio(start_studio, plain_folder, tmp_path_factory):
    """A studio with nppsim's own levels, an empty folder, and that folder."""
    return start_studio("--levels", str(STARTER_LEVELS), str(tmp_path_factory.mktemp("empty")), str(plain_folder))


@pytest.fixture(scope="module")
def browser():
    """Chromium, headless.  Ended with the tests of a file: its event loop would stand in the way of other tests' own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra: dev)")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium here (Debian: apt-get install chromium)")
    arguments = ["--no-sandbox"] if os.getuid() == 0 else []
    with playwright.sync_playwright() as tool:
        running = tool.chromium.launch(executable_path=path, args=[_NO_SUGGESTIONS, "--disable-gpu", *arguments])
        yield running
        running.close()


@pytest.fixture
def new_page(browser):
    """A function that opens a page, in a browser of its own as far as cookies and storage go; keywords: as of new_context.

    After the test no page may have had an error: neither an exception nor a message on its console.  ``page.faults`` has
    them; a test that provokes one clears it.
    """
    contexts, pages = [], []

    def open_one(**options):
        context = browser.new_context(**_PAGE | options)
        context.set_default_timeout(1000 * DEADLINE_S)
        contexts.append(context)
        page = context.new_page()
        page.faults = []
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("console", lambda said: page.faults.append(said.text) if said.type == "error" else None)
        pages.append(page)
        return page

    yield open_one
    faults = [fault for page in pages for fault in page.faults]
    for context in contexts:
        context.close()
    assert not faults, faults


@pytest.fixture
def page(new_page):
    """One page."""
    return new_page()
