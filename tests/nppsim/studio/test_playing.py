"""Agents that play on from a frame of a run."""

import base64
import json

import pytest

from nppsim.studio import documents, playing

from worlds import straight


def post(page, message, status=400):
    return page.post("continue", json.dumps(message).encode(), status)["error"]


def request(**change):
    return {"level": straight().fingerprint, "inputs": text([2] * 5), "agent": "77"} | change


def text(inputs):
    return base64.b64encode(bytes(inputs)).decode()


@pytest.mark.parametrize(
    ("change", "expected", "status"),
    [
        ({}, "no agent", 404),
        ({"level": "nothing"}, "no such level", 404),
        ({"inputs": "!"}, "base64", 400),
        ({"inputs": 5}, "should be a text", 400),
        ({"inputs": text([16])}, "0 to 15", 400),
        ({"agent": 1}, "docs/lab/studio.md", 400),
    ],
)
def test_continue_invalid_request_refused(page, change, expected, status):
    assert expected in post(page, request(**change), status)


def test_continue_after_the_end_refused(page, winning):
    assert "ended there" in post(page, request(inputs=text(winning.inputs)))


def test_continue_after_too_many_inputs_refused(page, monkeypatch):
    monkeypatch.setattr(playing, "MAX_RUN_FRAMES", 2)
    assert documents.MAX_RUN_FRAMES > 2
    assert "at most 2 are allowed" in post(page, request())
