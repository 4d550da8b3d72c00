"""Times of the studio's page in Chromium: start, key to picture, and decisions of the agent.  Needs root for a cold cache.

python -m benchmarks.page [--repeats N]
"""

import argparse
import contextlib
import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Page, sync_playwright

from nppsim.studio.agent_registry import AgentRegistry
from nppsim.studio.export import export
from nppsim.studio.library import Library

LEVEL = Library().levels()["levels"][0]["id"]
POLL_S = 0.005
# Time from the event of a key to the end of the display tick in which the first frame with this key is drawn.
LATENCY = """async () => {
    const { Recording } = await import(new URL("studio/static/js/recording.js", document.baseURI));
    const { port1, port2 } = new MessageChannel();
    window.latencies = [];
    let pressed = null;
    addEventListener("keydown", (event) => { if (!event.repeat) pressed ??= event.timeStamp; }, true);
    port1.onmessage = ({ data }) => window.latencies.push(performance.now() - data);
    const { play } = Recording.prototype;
    Recording.prototype.play = function (inputs) {
        if (pressed !== null) port2.postMessage(pressed);
        pressed = null;
        return play.call(this, inputs);
    };
}"""
# Let the agent play episodes; returns its decisions per second.  With seconds: repeat for that long.
AGENT = """async ([id, seconds]) => {
    const at = (name) => import(new URL(`studio/static/js/${name}.js`, document.baseURI));
    const [{ play }, { get }, { loadLevel }, { levelOf }] = await Promise.all(["agents", "api", "engine", "planner"].map(at));
    const { agents: [agent] } = await get("agents");
    const levels = [levelOf(await loadLevel(id))];
    let [count, first, last] = [0, null, null];
    const begin = performance.now();
    for (let seed = 0; performance.now() - begin < 1000 * seconds; seed++)
        for await (const { decisions = [] } of play(agent, { levels, episodes: 20, seed }, new AbortController().signal)) {
            if (first !== null) count += decisions.length;
            last = performance.now();
            first ??= last;
        }
    return 1000 * count / (last - first);
}"""
# Let the planner find a run and search for shorter ones, for the given number of seconds.
PLANNER = """async ([id, seconds]) => {
    const at = (name) => import(new URL(`studio/static/js/${name}.js`, document.baseURI));
    const [{ search, levelOf }, { loadLevel }] = await Promise.all(["planner", "engine"].map(at));
    const level = levelOf(await loadLevel(id));
    const { inputs: known } = await search({ level });
    await search({ level, known, budget: 1e9 }, { signal: AbortSignal.timeout(1000 * seconds) }).catch(() => {});
}"""


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:  # the browser ends while it loads files ahead
        pass


def until(page: Page, condition: Callable[[], Any]) -> None:
    """Wait until a condition holds."""
    while not condition():
        page.wait_for_timeout(1000 * POLL_S)


def moved(page: Page) -> bool:
    """Return whether the ninja moves."""
    match = re.search(r"frame (\d+)", page.text_content(".numbers") or "")
    return bool(match) and int(match[1]) > 0


@contextlib.contextmanager
def new_page() -> Iterator[Page]:
    """Start Chromium with a page, in a profile of its own."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.getuid() == 0 else [])
        yield browser.new_page()
        browser.close()


@contextlib.contextmanager
def studio(*arguments: str) -> Iterator[str]:
    """Start the studio; the value is its address."""
    command = [sys.executable, "-m", "nppsim", "studio", "--no-browser", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield next(match[0] for line in process.stdout if (match := re.search(r"http://\S+", line)))
        process.terminate()


@contextlib.contextmanager
def files(folder: str) -> Iterator[str]:
    """Serve the files of a folder; the value is its address."""
    server = _Server(("127.0.0.1", 0), functools.partial(_Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def start_playing(page: Page, address: str) -> None:
    """Open a level and press a key; returns when the ninja moves."""
    page.goto(f"{address}#/play/{LEVEL}")
    page.wait_for_selector(".verdict:has-text('Ready')")
    page.keyboard.down("ArrowRight")
    until(page, lambda: moved(page))
    page.keyboard.up("ArrowRight")


def start_of_studio(*, cold: bool) -> tuple[float, float]:
    """Return the seconds from the command to its address, and to a moving ninja."""
    with new_page() as page, tempfile.TemporaryDirectory() as folder:
        if cold:
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("3")
        begin = time.perf_counter()
        with studio("--demonstrations", folder) as address:
            shown = time.perf_counter() - begin
            start_playing(page, address)
            return shown, time.perf_counter() - begin


def start_of_site(address: str) -> float:
    """Return the seconds from opening the exported site to a moving ninja."""
    with new_page() as page:
        begin = time.perf_counter()
        start_playing(page, address)
        return time.perf_counter() - begin


def latencies(page: Page, presses: int = 90) -> list[float]:
    """Return the ms from each of some key presses to their picture."""
    page.evaluate("window.latencies.length = 0")
    for press in range(presses):
        key = ("ArrowLeft", "ArrowRight", "Shift")[press % 3]
        page.keyboard.down(key)
        page.wait_for_timeout(37 + press % 17)
        page.keyboard.up(key)
        if page.locator(".verdict:visible").count():  # the game is over
            page.keyboard.press("r")
    return page.evaluate("window.latencies")


def print_latencies(page: Page, beside: str) -> None:
    """Print quantiles of the latencies."""
    ordered = sorted(latencies(page))
    late = ordered[len(ordered) * 95 // 100]
    print(
        f"key to picture, {beside}: median {median(ordered):.1f} ms, 95 % {late:.1f} ms of {len(ordered)}", flush=True
    )


def main() -> None:
    """Print one line per figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    for cold in (True, False) if os.getuid() == 0 else (False,):
        shown, moving = zip(*(start_of_studio(cold=cold) for _ in range(repeats)), strict=True)
        name = "cold" if cold else "warm"
        print(
            f"studio, {name} file cache: address {median(shown):.2f} s, moving ninja {median(moving):.2f} s", flush=True
        )
    with tempfile.TemporaryDirectory() as folder:
        export(Path(folder) / "site", Library(), AgentRegistry())
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        with files(folder) as root:
            address = root + "site/"
            print(
                f"site: {size / 1e6:.2f} MB, moving ninja {median([start_of_site(address) for _ in range(repeats)]):.2f} s"
            )
            with new_page() as page:
                start_playing(page, address)
                page.evaluate(LATENCY)
                print_latencies(page, "nothing else")
                for name, work in (("agent", AGENT), ("planner", PLANNER)):
                    page.evaluate(f"void ({work})({[LEVEL, 15]})")
                    print_latencies(page, name)
                print(f"agent: {page.evaluate(AGENT, [LEVEL, 5]):.0f} decisions/s")


if __name__ == "__main__":
    main()
