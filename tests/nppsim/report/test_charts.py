"""Charts as PNG images."""

import io

import numpy as np
import pytest
from PIL import Image

from nppsim.errors import MissingPackageError
from nppsim.report import charts

from packages import hide

STEPS = np.arange(5)
EVERY = {
    "lines": lambda: charts.lines_chart("t", "u", {"a": (STEPS, STEPS**2), "one point": ([3], [4.0])}, "x"),
    "no lines": lambda: charts.lines_chart("t", "", {}, "x"),
}


@pytest.mark.parametrize("name", EVERY)
def test_lines_chart_is_transparent_png(name):
    with Image.open(io.BytesIO(EVERY[name]())) as picture:
        assert picture.width == round(charts.WIDTH * charts.UNIT_PIXELS)
        assert picture.convert("RGBA").getpixel((1, 1))[3] == 0


def test_colours_repeat_when_exhausted():
    found = [colour for colour, _, _ in charts.coloured(dict.fromkeys(range(8), 0))]
    assert found[:6] == list(charts.COLOURS) and found[6:] == list(charts.COLOURS[:2])


def test_charts_without_matplotlib_name_extra(monkeypatch):
    hide(monkeypatch, "matplotlib")
    for draw in EVERY.values():
        with pytest.raises(MissingPackageError, match=r"matplotlib .*nppsim\[train\]"):
            draw()
