"""Texts on pictures: captions, the strip below a route, and the panel below a film."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nppsim.actions import FRAMES_PER_SECOND, JUMP, LEFT, RIGHT
from nppsim.errors import needed
from nppsim.outcomes import DIED, NAMES, TIMEOUT, UNFINISHED, WON
from nppsim.pictures.canvas import (
    OVERSAMPLE,
    PALETTE,
    ROUTE_COLOURS,
    Canvas,
    Colour,
    route_colour,
    turned,
)
from nppsim.simulate import Run

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

PANEL_HEIGHT = 44  # px of the strip below a picture
OUTCOMES: dict[str, tuple[str, Colour]] = {
    NAMES[WON]: ("finished", PALETTE.green),
    NAMES[DIED]: ("died", PALETTE.red),
    NAMES[TIMEOUT]: ("time is up", PALETTE.amber),
    UNFINISHED: ("", PALETTE.muted),
}
TWO_COLOURS = (ROUTE_COLOURS[0], ROUTE_COLOURS[-1])  # of two routes in one picture
_SIZE = 15  # px of the letters in a strip


def outcome_look(outcome: str) -> tuple[str, Colour]:
    """Words and colour for an outcome; no words for one that is not in OUTCOMES."""
    return OUTCOMES.get(outcome, OUTCOMES[UNFINISHED])


def font(size: int) -> Any:
    """Pillow's own font at a size in px."""
    return needed("PIL.ImageFont", "video").load_default(size)


def pen_on(picture: "Image") -> "ImageDraw":
    """What writes onto a picture."""
    return needed("PIL.ImageDraw", "video").Draw(picture)


def fitted(pen: "ImageDraw", text: str, face: Any, width: float) -> str:
    """The text on one line, shortened with an ellipsis to a width (px)."""
    text = " ".join(text.split())
    if pen.textlength(text, face) <= width:
        return text
    while text and pen.textlength(text + "…", face) > width:
        text = text[:-1]
    return text + "…" if text else ""


def seconds(frames: int) -> str:
    """A number of frames as time, e.g. ``12.35 s``."""
    return f"{frames / FRAMES_PER_SECOND:.2f} s"


def with_legend(picture: "Image", run: Run, title: str, outcome: str) -> "Image":
    """The picture of a route with a strip below: title, the colours of the way from 0 to its end, outcome."""
    page, pen, middle = _with_strip(picture)
    face = font(_SIZE)
    word, colour = outcome_look(outcome)
    bar = min(140, page.width // 5)
    right: float = page.width - 14
    if word:
        pen.text((right, middle), word, colour, face, anchor="rm")
        right -= pen.textlength(word, face) + 16
    time = seconds(run.frames)
    pen.text((right, middle), time, PALETTE.text, face, anchor="rm")
    right = round(right - pen.textlength(time, face) - 10)
    for i in range(bar):
        pen.line(((right - bar + i, middle - 3), (right - bar + i, middle + 3)), route_colour(i / bar))
    left = right - bar - 10
    pen.text((left, middle), "0", PALETTE.text, face, anchor="rm")
    pen.text((14, middle), fitted(pen, title, face, left - 40), PALETTE.text, face, anchor="lm")
    return page


def with_two_labels(picture: "Image", runs: Sequence[Run], labels: Sequence[str]) -> "Image":
    """The picture of two routes with a strip below that names their colours, times and outcomes."""
    page, pen, middle = _with_strip(picture)
    face = font(_SIZE)
    for i, (run, label, colour) in enumerate(zip(runs, labels, TWO_COLOURS, strict=True)):
        left, room = 14 + i * page.width // 2, page.width // 2 - 60
        pen.line(((left, middle), (left + 22, middle)), colour, 4)
        text = f"{seconds(run.frames)}, {outcome_look(run.outcome)[0] or 'inputs end'}: {label}"
        pen.text((left + 30, middle), fitted(pen, text, face, room), PALETTE.text, face, anchor="lm")
    return page


def _with_strip(picture: "Image") -> tuple["Image", "ImageDraw", int]:
    """(the picture with an empty strip below it, a pen, the height of the strip's middle)."""
    size = (picture.width, picture.height + PANEL_HEIGHT)
    page = needed("PIL.Image", "video").new("RGB", size, PALETTE.panel)
    page.paste(picture, (0, 0))
    return page, pen_on(page), picture.height + PANEL_HEIGHT // 2


class FilmPanel:
    """The strip below a film: title and category, the three keys, time, and at the end the outcome."""

    def __init__(self, width: int, scale: float, title: str, category: str):
        self._unit = unit = max(scale, 0.5)
        self._height = 2 * round(PANEL_HEIGHT * unit / 2)
        self._large, self._small = font(round(18 * unit)), font(round(13 * unit))
        self._keys = [self._key_caps(held) for held in range(8)]
        self._key_left = (width - self._keys[0].width) // 2
        self._base = needed("PIL.Image", "video").new("RGB", (width, self._height), PALETTE.panel)
        pen = pen_on(self._base)
        room, left = self._key_left - round(24 * unit), round(14 * unit)
        lines = [(title, PALETTE.text), (category, PALETTE.muted)]
        lines = [(text, colour) for text, colour in lines if text]
        for i, (text, colour) in enumerate(lines):
            y = self._height // 2 + round(8.5 * unit * (2 * i - len(lines) + 1))
            pen.text((left, y), fitted(pen, text, self._small, room), colour, self._small, anchor="lm")

    def draw(self, frame: int, held: int, outcome: str | None) -> np.ndarray:
        """uint8[height, width, 3] at a physics frame, with the input byte held; outcome: None while running."""
        strip = self._base.copy()
        strip.paste(self._keys[held & 7], (self._key_left, (self._height - self._keys[0].height) // 2))
        pen, right = pen_on(strip), strip.width - round(14 * self._unit)
        pen.text((right, self._height // 2), seconds(frame), PALETTE.text, self._large, anchor="rm")
        word, colour = outcome_look(outcome or "")
        if word:
            right -= round(74 * self._unit)
            length = pen.textlength(word, self._small)
            box = (right - length - 16 * self._unit, self._height * 0.24, right, self._height * 0.76)
            pen.rounded_rectangle(box, 4 * self._unit, fill=colour)
            pen.text((right - 8 * self._unit, self._height // 2), word, PALETTE.pale, self._small, anchor="rm")
        return np.asarray(strip)

    def _key_caps(self, held: int) -> "Image":
        """Three key caps, left, jump, right; those held are filled."""
        size = self._unit * 26 / 2
        width, height = round(100 * self._unit), round(30 * self._unit)
        empty = needed("PIL.Image", "video").new("RGB", (width * OVERSAMPLE, height * OVERSAMPLE), PALETTE.panel)
        canvas = Canvas(empty, (0, 0), OVERSAMPLE)
        for i, (key, turn) in enumerate(((LEFT, -1), (JUMP, 0), (RIGHT, 1))):
            centre = (width / 2 + (i - 1) * 33 * self._unit, height / 2)
            pressed = bool(held & key) and not (key == RIGHT and held & LEFT)  # left wins over right
            fill, edge = (PALETTE.gold, PALETTE.gold) if pressed else (None, (86, 88, 100))
            canvas.box(centre, size, fill, edge, 1.4 * self._unit, corner=4 * self._unit)
            tip = size * 0.42
            arrow = ((-tip, tip * 0.6), (0, -tip * 0.75), (tip, tip * 0.6))
            canvas.polygon(turned(arrow, turn * math.pi / 2, centre), PALETTE.panel if pressed else PALETTE.muted)
        return canvas.finish()
