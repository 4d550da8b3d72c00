"""Wait for conditions in a browser; read its storage; simulate touches."""

import time
from importlib.util import find_spec

import pytest

DEADLINE_S = 60  # time limit of any condition on a page
_POLL_MS = 40
# Without an import: the studio imports torch, the test need not.
needs_agents = pytest.mark.skipif(find_spec("torch") is None, reason="torch, which plays agents, is not installed")


def until(page, condition, what=""):
    """Wait until ``condition()`` holds.  (The page's security policy forbids page.wait_for_function.)"""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what or condition}"
        page.wait_for_timeout(_POLL_MS)


def from_store(page, function, *arguments):
    """Call a function of store.js; return its result, which has no typed arrays."""
    script = """async ([name, ...given]) => {
        const store = await import(new URL("studio/static/js/store.js", document.baseURI));
        return store[name](...given);
    }"""
    return page.evaluate(script, [function, *arguments])


def pinch(page, x, y):
    """Spread two fingers around a place; then lift one and move the other."""
    client = page.context.new_cdp_session(page)

    def touch(kind, **fingers):  # of touchEnd: those that leave
        points = [{"x": x + dx, "y": y + dy, "id": "ab".index(name)} for name, (dx, dy) in fingers.items()]
        client.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", a=(-30, 0))
    touch("touchStart", a=(-30, 0), b=(30, 0))
    for apart in (45, 60, 90):
        touch("touchMove", a=(-apart, 0), b=(apart, 0))
    touch("touchEnd", a=(-90, 0))
    touch("touchMove", b=(90, 40))
    touch("touchEnd", b=(90, 40))
