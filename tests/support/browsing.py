"""Waiting for what happens in a browser."""

import time

DEADLINE_S = 60  # that anything on a page may take, on a busy machine


def until(page, condition, what=""):
    """Wait until ``condition()`` holds.  Not page.wait_for_function: the page's policy forbids what that evaluates."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what or condition}"
        page.wait_for_timeout(15)
