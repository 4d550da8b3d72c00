"""Colours, and a canvas that draws antialiased shapes in level coordinates."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nppsim.errors import import_optional

if TYPE_CHECKING:
    from PIL.Image import Image

OVERSAMPLE = 4  # drawings are larger than the finished picture by this factor; averaging removes jagged edges

Colour = tuple[int, int, int]
Point = tuple[float, float]


@dataclass
class Palette:
    """Colours of levels and films as sRGB values, 0..255.  The defaults are the scheme "classic" of ``schemes``."""

    background: Colour = (222, 223, 229)
    tile: Colour = (118, 120, 137)
    rim: Colour = (95, 97, 114)  # edges of tiles
    ink: Colour = (30, 31, 38)  # outlines, the ninja
    steel: Colour = (131, 132, 144)  # exits, thwumps, mechanisms
    pale: Colour = (245, 245, 248)
    blue: Colour = (62, 124, 188)  # exit switches and open exits
    gold: Colour = (236, 200, 62)
    gold_edge: Colour = (163, 127, 22)
    red: Colour = (176, 38, 46)  # deadly parts
    glow: Colour = (226, 158, 160)  # around a beam
    amber: Colour = (230, 126, 34)
    cyan: Colour = (87, 181, 207)  # drones
    green: Colour = (56, 150, 98)
    band: Colour = (206, 58, 52)  # the ninja's headband
    trace: Colour = (150, 170, 204)  # path of the ninja in films
    panel: Colour = (31, 32, 39)  # strip of text below a picture
    text: Colour = (240, 240, 244)
    muted: Colour = (147, 149, 163)


PALETTE = Palette()
ROUTE_COLOURS: tuple[Colour, ...] = ((58, 76, 192), (23, 143, 178), (44, 160, 96), (226, 160, 32), (214, 62, 50))
"""Colours of a route from its start to its end; colours in between are interpolated."""
FADED = 0.55  # weight of the background colour at the start of a route


def faded_route_colour(t: float) -> Colour:
    """Return the colour of a route at time ``t`` (0: start, 1: end), mixed with the background, most at the start."""
    t = min(max(t, 0.0), 1.0)
    i = min(int(t * (len(ROUTE_COLOURS) - 1)), len(ROUTE_COLOURS) - 2)
    colour = mixed(ROUTE_COLOURS[i], ROUTE_COLOURS[i + 1], t * (len(ROUTE_COLOURS) - 1) - i)
    return mixed(colour, PALETTE.background, FADED * (1 - t))


def mixed(a: Colour, b: Colour, share: float) -> Colour:
    """Return colour ``a`` with a share (0..1) of colour ``b``."""
    red, green, blue = (round(x + (y - x) * share) for x, y in zip(a, b, strict=True))
    return red, green, blue


class Canvas:
    """Draws shapes in level coordinates onto an image that is OVERSAMPLE times larger than the finished picture.

    image: Pillow image of a rectangle of the stage.
    origin: level position of its top-left corner, px.
    factor: image pixels per level pixel.
    """

    def __init__(self, image: "Image", origin: Point, factor: float):
        self.image, self.origin, self.factor = image, origin, factor
        self._draw = import_optional("PIL.ImageDraw", "video").Draw(image)

    def polygon(self, points: Iterable[Point], fill: Colour) -> None:
        """Draw a filled polygon."""
        self._draw.polygon(self._on_image(points), fill=fill)

    def disc(self, centre: Point, radius: float, fill: Colour) -> None:
        """Draw a filled circle."""
        self._draw.ellipse(self._square(centre, radius), fill=fill)

    def ring(self, centre: Point, radius: float, width: float, colour: Colour) -> None:
        """Draw a circular line; ``radius`` is the radius of its outer edge."""
        self._draw.ellipse(self._square(centre, radius), outline=colour, width=self._stroke(width))

    def line(self, points: Iterable[Point], colour: Colour, width: float) -> None:
        """Draw a polyline with round ends and joints."""
        points = list(points)
        self._draw.line(self._on_image(points), fill=colour, width=self._stroke(width), joint="curve")
        for end in (points[0], points[-1]):
            self.disc(end, width / 2, colour)

    def box(
        self,
        centre: Point,
        half: float,
        fill: Colour | None,
        edge: Colour | None = None,
        width: float = 1.5,
        corner: float = 0.0,
    ) -> None:
        """Draw a square.

        half: half the side length.
        fill, edge: colours of the interior and of the edge; None omits the part.
        width: width of the edge line.
        corner: radius of the rounded corners.
        """
        stroke = self._stroke(width) if edge else 0
        self._draw.rounded_rectangle(self._square(centre, half), corner * self.factor, fill, edge, stroke)

    def finish(self) -> "Image":
        """Return the antialiased picture."""
        return self.image.reduce(OVERSAMPLE)

    def _on_image(self, points: Iterable[Point]) -> list[Point]:
        left, top = self.origin
        # Pillow places the centres of pixels at whole numbers
        return [((x - left) * self.factor - 0.5, (y - top) * self.factor - 0.5) for x, y in points]

    def _square(self, centre: Point, half: float) -> list[Point]:
        half = max(half - 0.5 / self.factor, 0.0)  # Pillow's boxes include their right and bottom pixels
        x, y = centre
        return self._on_image(((x - half, y - half), (x + half, y + half)))

    def _stroke(self, width: float) -> int:
        return max(1, round(width * self.factor))


def turned(points: Iterable[Point], angle: float, centre: Point) -> list[Point]:
    """Return points rotated about the origin by ``angle`` (radians, clockwise on screen), then moved to ``centre``."""
    c, s = math.cos(angle), math.sin(angle)
    x, y = centre
    return [(x + c * a - s * b, y + s * a + c * b) for a, b in points]
