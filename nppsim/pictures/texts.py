"""Texts on pictures: captions, and the strips below routes and films."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nppsim.actions import JUMP, LEFT, RIGHT
from nppsim.errors import import_optional
from nppsim.physics.outcomes import DIED, NAMES, TIMEOUT, UNFINISHED, WON
from nppsim.pictures.canvas import (
    OVERSAMPLE,
    PALETTE,
    ROUTE_COLOURS,
    Canvas,
    Colour,
    Point,
    faded_route_colour,
    turned,
)
from nppsim.replays.score import score, time_text
from nppsim.simulate import Run

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

PANEL_HEIGHT = 44  # height of the strip below a picture, px
OUTCOMES = {  # outcome -> text, name of its colour
    NAMES[WON]: ("finished", "green"),
    NAMES[DIED]: ("died", "red"),
    NAMES[TIMEOUT]: ("time is up", "amber"),
    UNFINISHED: ("", "muted"),
}
TWO_COLOURS = (ROUTE_COLOURS[0], ROUTE_COLOURS[-1])  # colours of two routes in one picture
_SIZE = 15  # font size in a strip, px
_LINE = 21  # height of a line in a strip, px


def outcome_look(outcome: str) -> tuple[str, Colour]:
    """Return the text and colour of an outcome; the text is empty if the outcome is not in OUTCOMES."""
    text, colour = OUTCOMES.get(outcome, OUTCOMES[UNFINISHED])
    return text, getattr(PALETTE, colour)


def font(size: int) -> Any:
    """Return Pillow's default font at a size in px."""
    return import_optional("PIL.ImageFont", "video").load_default(size)


def pen_on(picture: "Image") -> "ImageDraw":
    """Return a pen that draws on a picture."""
    return import_optional("PIL.ImageDraw", "video").Draw(picture)


def wrapped(pen: "ImageDraw", text: str, face: Any, width: float) -> list[str]:
    """Break a text into lines of at most ``width`` px; words longer than a line are broken too."""
    lines: list[str] = []
    for word in text.split():
        if lines and pen.textlength(f"{lines[-1]} {word}", face) <= width:
            lines[-1] += f" {word}"
            continue
        lines.append("")
        for letter in word:
            if lines[-1] and pen.textlength(lines[-1] + letter, face) > width:
                lines.append("")
            lines[-1] += letter
    return lines


def with_legend(picture: "Image", run: Run, title: str, outcome: str) -> "Image":
    """Return the picture of a route with a strip below it: title, colours of the path, duration and outcome."""
    face, pen = font(_SIZE), pen_on(picture)
    word, colour = outcome_look(outcome)
    time, bar = time_text(run.frames), min(140, picture.width // 5)
    right: float = picture.width - 14
    word_right, time_right = right, right - (pen.textlength(word, face) + 16 if word else 0)
    right = round(time_right - pen.textlength(time, face) - 10)
    left = right - bar - 10
    room = left - 40
    lines = wrapped(pen, title, face, picture.width - 28)
    beside = len(lines) == 1 and pen.textlength(lines[0], face) <= room
    page, pen, middle = _with_strip(picture, [] if beside else lines)
    if word:
        pen.text((word_right, middle), word, colour, face, anchor="rm")
    pen.text((time_right, middle), time, PALETTE.text, face, anchor="rm")
    for i in range(bar):
        pen.line(((right - bar + i, middle - 3), (right - bar + i, middle + 3)), faded_route_colour(i / bar))
    pen.text((left, middle), "0", PALETTE.text, face, anchor="rm")
    if beside:
        pen.text((14, middle), lines[0], PALETTE.text, face, anchor="lm")
    return page


class TimeMark(NamedTuple):
    """A number beside a level position ``at``.  above: write the number above the position instead of below."""

    at: Point
    text: str
    colour: Colour
    above: bool


def with_time_marks(picture: "Image", marks: Sequence[TimeMark], to_picture: Callable[[Point], Point]) -> "Image":
    """Draw time marks onto a picture, except marks that would overlap others, and return the picture.

    to_picture: converts a position in level px to picture px.
    """
    pen, face = pen_on(picture), font(13)
    taken: list[Point] = []
    for mark in marks:
        x, y = to_picture(mark.at)
        y += -13 if mark.above else 13
        if all(abs(x - a) > 12 or abs(y - b) > 13 for a, b in taken):
            taken.append((x, y))
            pen.text((x, y), mark.text, mark.colour, face, anchor="mm", stroke_width=2, stroke_fill=PALETTE.pale)
    return picture


def with_two_labels(picture: "Image", runs: Sequence[Run], labels: Sequence[str], parted: int | None = None) -> "Image":
    """Return the picture of two routes with a strip below it: colours, durations, outcomes and first difference."""
    face, pen = font(_SIZE), pen_on(picture)
    room = picture.width - 14 - 44
    texts = [
        f"{time_text(run.frames)}, {outcome_look(run.outcome)[0] or 'inputs end'}: {label}"
        for run, label in zip(runs, labels, strict=True)
    ]
    rows = [(colour, wrapped(pen, text, face, room)) for colour, text in zip(TWO_COLOURS, texts, strict=True)]
    if parted is not None:
        rows.append((PALETTE.amber, [f"the paths differ after {time_text(parted)}; a dot marks each second"]))
    lines = sum(len(texts) for _, texts in rows)
    page = import_optional("PIL.Image", "video").new(
        "RGB", (picture.width, picture.height + lines * _LINE + 16), PALETTE.panel
    )
    page.paste(picture, (0, 0))
    pen, middle = pen_on(page), picture.height + 8 + _LINE // 2
    for colour, texts in rows:
        pen.line(((14, middle), (36, middle)), colour, 4)
        for text in texts:
            pen.text((44, middle), text, PALETTE.text, face, anchor="lm")
            middle += _LINE
    return page


def _with_strip(picture: "Image", lines: Sequence[str]) -> tuple["Image", "ImageDraw", int]:
    """Return the picture with lines of text and an empty strip below it, a pen, and the y of the strip's middle (px)."""
    top = picture.height + (len(lines) * _LINE + 8 if lines else 0)
    page = import_optional("PIL.Image", "video").new("RGB", (picture.width, top + PANEL_HEIGHT), PALETTE.panel)
    page.paste(picture, (0, 0))
    pen, face = pen_on(page), font(_SIZE)
    for n, line in enumerate(lines):
        pen.text((14, picture.height + 8 + n * _LINE + _LINE // 2), line, PALETTE.text, face, anchor="lm")
    return page, pen, top + PANEL_HEIGHT // 2


class FilmPanel:
    """The strip below a film: title, category, pressed keys, clock and outcome."""

    def __init__(self, width: int, scale: float, title: str, category: str):
        self._unit = unit = max(scale, 0.5)
        self._strip = 2 * round(PANEL_HEIGHT * unit / 2)
        self._large, self._small = font(round(18 * unit)), font(round(13 * unit))
        self._keys = [self._key_caps(keys) for keys in range(8)]
        self._key_left = (width - self._keys[0].width) // 2
        room, left = self._key_left - round(24 * unit), round(14 * unit)
        texts = [(text, colour) for text, colour in ((title, PALETTE.text), (category, PALETTE.muted)) if text.strip()]
        measure = pen_on(self._keys[0])
        lines = [(line, c) for text, c in texts for line in wrapped(measure, text, self._small, width - 2 * left)]
        beside = len(lines) == len(texts) and all(measure.textlength(text, self._small) <= room for text, _ in lines)
        line_height, above = 17 * unit, 0 if beside else 2 * math.ceil((len(lines) * 17 * unit + 6 * unit) / 2)
        self._height = self._strip + above
        self._middle = above + self._strip // 2
        self._base = import_optional("PIL.Image", "video").new("RGB", (width, self._height), PALETTE.panel)
        pen = pen_on(self._base)
        top = self._strip / 2 - line_height * len(lines) / 2 if beside else 6 * unit
        for i, (text, colour) in enumerate(lines):
            y = round(top + line_height * (i + 0.5))
            pen.text((left, y), text, colour, self._small, anchor="lm")

    def draw(self, frame: int, gold: int, keys: int, outcome: str | None, note: str = "") -> np.ndarray:
        """Draw the strip after ``frame`` frames: uint8[height, width, 3].

        gold: number of gold pieces collected.
        keys: input byte.
        outcome: None during the run.
        note: text between the keys and the clock.
        """
        strip = self._base.copy()
        strip.paste(self._keys[keys & 7], (self._key_left, self._middle - self._keys[0].height // 2))
        pen, right = pen_on(strip), strip.width - round(14 * self._unit)
        pen.text((right, self._middle), f"{score(frame, gold):.3f}", PALETTE.text, self._large, anchor="rm")
        left = self._key_left + self._keys[0].width + round(8 * self._unit)
        room = right - round((74 if outcome is None else 140) * self._unit) - left
        lines = wrapped(pen, note, self._small, max(room, 60 * self._unit))
        for i, line in enumerate(lines):
            y = self._middle + round(15 * self._unit * (i - (len(lines) - 1) / 2))
            pen.text((left, y), line, PALETTE.muted, self._small, anchor="lm")
        word, colour = outcome_look(outcome or "")
        if word:
            right -= round(74 * self._unit)
            length = pen.textlength(word, self._small)
            half = self._strip * 0.26
            box = (right - length - 16 * self._unit, self._middle - half, right, self._middle + half)
            pen.rounded_rectangle(box, 4 * self._unit, fill=colour)
            pen.text((right - 8 * self._unit, self._middle), word, PALETTE.pale, self._small, anchor="rm")
        return np.asarray(strip)

    def _key_caps(self, keys: int) -> "Image":
        """Draw key caps for left, jump and right; pressed keys are filled."""
        size = self._unit * 26 / 2
        width, height = round(100 * self._unit), round(30 * self._unit)
        empty = import_optional("PIL.Image", "video").new(
            "RGB", (width * OVERSAMPLE, height * OVERSAMPLE), PALETTE.panel
        )
        canvas = Canvas(empty, (0, 0), OVERSAMPLE)
        for i, (key, turn) in enumerate(((LEFT, -1), (JUMP, 0), (RIGHT, 1))):
            centre = (width / 2 + (i - 1) * 33 * self._unit, height / 2)
            pressed = bool(keys & key) and not (key == RIGHT and keys & LEFT)  # left overrides right
            fill, edge = (PALETTE.gold, PALETTE.gold) if pressed else (None, (86, 88, 100))
            canvas.box(centre, size, fill, edge, 1.4 * self._unit, corner=4 * self._unit)
            tip = size * 0.42
            arrow = ((-tip, tip * 0.6), (0, -tip * 0.75), (tip, tip * 0.6))
            canvas.polygon(turned(arrow, turn * math.pi / 2, centre), PALETTE.panel if pressed else PALETTE.muted)
        return canvas.finish()
