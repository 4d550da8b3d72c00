"""Contrast of texts and backgrounds in all colour schemes (WCAG 2 AA: 4.5 to 1)."""

import re

import pytest

from nppsim.pictures.canvas import PALETTE, Palette
from nppsim.pictures.schemes import CLASSIC, SCHEMES, colour_scheme, stylesheet
from nppsim.studio.modules import STATIC

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
def test_text_contrast_is_sufficient(scheme):
    found = COLOUR.findall((STATIC / "scene.css").read_text(encoding="utf-8"))
    colours = {name: light if scheme == "light" else dark for name, light, dark in found}
    for text, ground in [*PAIRS, ("on-accent", "accent")]:
        assert contrast(colours[text], colours[ground]) >= ENOUGH, (text, ground)


def test_contrast_black_on_white_is_21():
    assert contrast("000000", "ffffff") == pytest.approx(21)


def test_page_and_pictures_have_same_schemes():
    with colour_scheme(CLASSIC):
        assert Palette() == PALETTE
    sheet = stylesheet()
    for scheme, colours in SCHEMES.items():
        rule = re.search(rf'"{scheme}"\] {{(.*)}}', sheet)[1]
        with colour_scheme(scheme):
            assert {name: getattr(PALETTE, name) for name in colours} == colours
            for name, colour in (("open", PALETTE.background), ("gold-edge", PALETTE.gold_edge)):
                assert scheme == CLASSIC or f"--scene-{name}: #{bytes(colour).hex()};" in rule
    assert Palette() == PALETTE


@pytest.mark.parametrize("scheme", SCHEMES)
def test_ninja_and_hazards_contrast_with_ground(scheme):
    with colour_scheme(scheme):
        ground = bytes(PALETTE.background).hex()
        assert contrast(bytes(PALETTE.ink).hex(), ground) > 7 and contrast(bytes(PALETTE.red).hex(), ground) > 3
