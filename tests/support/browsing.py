"""Waiting for what happens in a browser, and fingers on its screen."""

import time

DEADLINE_S = 60  # that anything on a page may take, on a busy machine


def until(page, condition, what=""):
    """Wait until ``condition()`` holds.  Not page.wait_for_function: the page's policy forbids what that evaluates."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what or condition}"
        page.wait_for_timeout(15)


def pinch(page, x, y):
    """Two fingers part around a place, then one leaves before the other, which moves on."""
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
