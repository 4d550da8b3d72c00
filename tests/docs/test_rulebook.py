"""Figures of docs/physics.md: equal to a new drawing, consistent with the tables."""

import math

import numpy as np
import pytest
import rulebook

from nppsim.levels import tiles

from places import ROOT

Image = pytest.importorskip("PIL.Image")
IMAGES = ROOT / "docs" / "images"


@pytest.mark.parametrize("name", rulebook.FIGURES)
def test_figure_equals_drawing_of_current_code(name):
    """If a rule has changed, draw them again: python tests/support/rulebook.py."""
    drawn = np.asarray(rulebook.FIGURES[name](), np.int16)
    with Image.open(IMAGES / f"{name}.png") as image:
        stored = np.asarray(image.convert("RGB"), np.int16)
    assert drawn.shape == stored.shape
    different = (np.abs(drawn - stored).max(axis=2) > 48).mean()
    assert different < 0.004, "letters may differ a little between versions of the font library, lines may not"


def test_figures_are_in_rulebook_with_alternative_text():
    page = (ROOT / "docs" / "physics.md").read_text(encoding="utf-8")
    for name in rulebook.FIGURES:
        assert page.count(f"](images/{name}.png)") == 1, name
    assert page.count("![") == len(rulebook.FIGURES)


@pytest.mark.parametrize("tile", range(38))
def test_open_side_of_surfaces_is_open(tile):
    mask = tiles.solid_mask(tile, 240)

    def solid(x, y):
        inside = 0 <= x < 24 and 0 <= y < 24
        return inside and bool(mask[int(y * 10), int(x * 10)])

    found = rulebook.surfaces(tile)
    assert bool(found) == (tile != 0)
    for points, (x, y), (nx, ny) in found:
        assert math.hypot(nx, ny) == pytest.approx(1)
        assert not solid(x + 0.5 * nx, y + 0.5 * ny)
        assert solid(x - 0.5 * nx, y - 0.5 * ny), "one-sided tiles count as full in the mask"
        assert all(-1e-9 <= value <= 24 + 1e-9 for point in points for value in point)


def test_pushed_out_ninja_is_at_radius_from_corner():
    before, free, after = rulebook.landing(83, (21, 19, 1))
    assert free[1] > before[1]
    assert math.dist(after, (504, 456)) == pytest.approx(10, abs=1e-6)
