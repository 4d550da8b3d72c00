"""Texts are legible: contrast of texts and their backgrounds, light and dark, as WCAG 2 has it (AA: 4.5 to 1)."""

import re

import pytest

from nppsim.studio.app import STATIC

COLOUR = re.compile(r"--([\w-]+): light-dark\(#(\w{6}), #(\w{6})\)")
ENOUGH = 4.5
PAIRS = [
    (text, ground)
    for text in ("ink", "muted", "accent", "good", "bad", "warn")
    for ground in ("ground", "card", "raised")
]


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_their_grounds(scheme):
    found = COLOUR.findall((STATIC / "scene.css").read_text(encoding="utf-8"))
    colours = {name: light if scheme == "light" else dark for name, light, dark in found}
    for text, ground in [*PAIRS, ("on-accent", "accent")]:
        assert contrast(colours[text], colours[ground]) >= ENOUGH, (text, ground)


def test_black_on_white_is_twenty_one_to_one():
    assert contrast("000000", "ffffff") == pytest.approx(21)
