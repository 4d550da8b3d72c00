"""How each thing looks: entities and the ninja, drawn onto a ``Canvas`` in level pixels.

The look is flat and light, after the game's.  What matters for play is drawn at its true size: tile shapes, doors, the
squares and discs that block or kill.  The ninja's figure fits its collision circle of radius 10.
"""

import math
from dataclasses import dataclass

import numpy as np

from nppsim.errors import UserError

Colour = tuple[int, int, int]
Point = tuple[float, float]


class RenderError(UserError, RuntimeError):
    """A picture that cannot be drawn, or a missing package; the message says which and what to do."""


@dataclass(frozen=True)
class Palette:
    """Colours of levels and films, sRGB 0..255."""

    background: Colour = (222, 223, 229)
    tile: Colour = (118, 120, 137)
    rim: Colour = (95, 97, 114)  # edge of the tiles
    ink: Colour = (30, 31, 38)  # outlines, the ninja
    steel: Colour = (131, 132, 144)  # exit, thwump, mechanisms
    pale: Colour = (245, 245, 248)
    blue: Colour = (62, 124, 188)  # switches and what they open
    gold: Colour = (236, 200, 62)
    gold_edge: Colour = (163, 127, 22)
    red: Colour = (176, 38, 46)  # what kills
    amber: Colour = (230, 126, 34)
    cyan: Colour = (87, 181, 207)  # drones
    green: Colour = (56, 150, 98)
    band: Colour = (206, 58, 52)  # the ninja's headband
    trace: Colour = (150, 170, 204)  # path so far, in films
    panel: Colour = (31, 32, 39)  # strip below a film
    text: Colour = (240, 240, 244)
    muted: Colour = (147, 149, 163)


PALETTE = Palette()

# ---------------------------------------------------------------------------------------------------------------------
# Canvas


class Canvas:
    """A rectangle of the stage, drawn ``oversample`` times larger than it will be shown and in level coordinates.

    image: a Pillow image whose top-left pixel lies at ``origin`` (level pixels).  factor: image pixels per level pixel.
    """

    def __init__(self, image, origin: Point, factor: float):
        from PIL import ImageDraw

        self.image, self.origin, self.factor = image, origin, factor
        self._draw = ImageDraw.Draw(image)

    def _at(self, points):
        (left, top), k = self.origin, self.factor
        return [
            ((x - left) * k - 0.5, (y - top) * k - 0.5) for x, y in points
        ]  # -0.5: Pillow's pixel centres are whole

    def _square(self, x, y, half):
        half = max(half - 0.5 / self.factor, 0.0)  # Pillow's boxes include their right and bottom pixels
        return self._at(((x - half, y - half), (x + half, y + half)))

    def polygon(self, points, fill: Colour):
        self._draw.polygon(self._at(points), fill=fill)

    def disc(self, x: float, y: float, radius: float, fill: Colour):
        self._draw.ellipse(self._square(x, y, radius), fill=fill)

    def ring(self, x: float, y: float, radius: float, width: float, colour: Colour):
        """A circle line whose outer edge has the given radius."""
        self._draw.ellipse(self._square(x, y, radius), outline=colour, width=max(1, round(width * self.factor)))

    def line(self, points, colour: Colour, width: float):
        """A polyline with round ends and joints."""
        points = list(points)
        self._draw.line(self._at(points), fill=colour, width=max(1, round(width * self.factor)), joint="curve")
        for x, y in (points[0], points[-1]):
            self.disc(x, y, width / 2, colour)

    def box(self, x: float, y: float, half: float, fill: Colour | None, edge: Colour | None = None, width: float = 1.5,
            corner: float = 0.0):  # fmt: skip
        """A square with centre (x, y) and half side ``half``, its corners rounded by ``corner``."""
        stroke = max(1, round(width * self.factor)) if edge else 0
        self._draw.rounded_rectangle(self._square(x, y, half), corner * self.factor, fill, edge, stroke)

    def finish(self, oversample: int):
        """The antialiased picture."""
        return self.image.reduce(oversample)


def turned(points, angle: float, x: float, y: float) -> list[Point]:
    """Points around the origin, turned by ``angle`` (radians, clockwise on screen) and moved to (x, y)."""
    c, s = math.cos(angle), math.sin(angle)
    return [(x + c * a - s * b, y + s * a + c * b) for a, b in points]


# ---------------------------------------------------------------------------------------------------------------------
# Entities


@dataclass(frozen=True)
class DrawnEntity:
    """One thing to draw, as created from a level's records.

    kind, index: as in ``run.entities``; the switch of exit (3, i) is (4, i).  x, y: centre in level pixels (of a locked
    or trap door: the door; its switch is at switch_x, switch_y).
    """

    kind: int
    index: int
    x: float
    y: float
    orientation: int = 0
    switch_x: float = 0.0
    switch_y: float = 0.0


@dataclass(frozen=True)
class EntityLook:
    """What of an entity may change during a run.  state: its own state number (signed).  closed: doors only."""

    active: bool = True
    state: int = 0
    closed: bool = False
    x: float = 0.0
    y: float = 0.0


MOVERS = frozenset((14, 15, 16, 17, 20, 25, 26, 28))
_INVISIBLE = frozenset((0, 4, 7, 9, 12, 13, 18, 19, 22, 27))  # read through other records, or nothing in the game


def level_entities(level) -> list[DrawnEntity]:
    """The things to draw, in drawing order, from a level's records."""
    records, entities, counts = level.records, [], {}
    for row, (kind, bx, by, orientation, _mode) in enumerate(records.tolist()):
        if kind in _INVISIBLE or kind not in _DRAWN:
            continue
        index = counts.get(kind, 0)
        counts[kind] = index + 1
        x, y = 6.0 * bx, 6.0 * by
        switch = {3: row + level.exit_count, 6: row + 1, 8: row + 1}.get(kind)
        if switch is None:
            entities.append(DrawnEntity(kind, index, x, y, orientation))
            continue
        if switch >= len(records):
            raise RenderError(
                f"record {row} (type {kind}) has no switch record {switch}; the level has {len(records)} records"
            )
        sx, sy = 6.0 * records[switch, 1], 6.0 * records[switch, 2]
        entities.append(DrawnEntity(kind, index, x, y, orientation, sx, sy))
        if kind == 3:
            entities.append(DrawnEntity(4, index, sx, sy))
    return sorted(entities, key=lambda e: (_DRAWN[e.kind][0], e.kind))


def initial_look(entity: DrawnEntity) -> EntityLook:
    """The look of an entity before the first frame."""
    return EntityLook(True, int(entity.kind == 21), entity.kind in (3, 5, 6), entity.x, entity.y)


def draw_entity(canvas: Canvas, entity: DrawnEntity, look: EntityLook) -> None:
    """Draw one entity as it looks now."""
    _DRAWN[entity.kind][1](canvas, entity, look)


def _mine(c, e, look):
    x, y = e.x, e.y
    if look.state == 1:
        c.ring(x, y, 4.0, 1.2, PALETTE.red)
        c.disc(x, y, 1.2, PALETTE.red)
    elif look.state == 0:
        c.polygon(_star(x, y, 16, 6.0, 3.9), PALETTE.red)
        c.disc(x, y, 1.5, (228, 120, 116))
    else:
        c.disc(x, y, 4.5, PALETTE.amber)
        c.ring(x, y, 4.5, 1.3, PALETTE.red)


def _star(x, y, points, outer, inner):
    radii = (outer, inner)
    angles = [math.tau * i / points for i in range(points)]
    return [(x + radii[i % 2] * math.cos(a), y + radii[i % 2] * math.sin(a)) for i, a in enumerate(angles)]


def _gold(c, e, look):
    if look.active:
        c.box(e.x, e.y, 4.6, PALETTE.gold, PALETTE.gold_edge, 1.2)
        c.box(e.x - 0.6, e.y - 0.6, 1.6, (250, 232, 150))


def _exit(c, e, look):
    """A doorway: barred until its switch is taken (``closed``), then open and lit."""
    x, y = e.x, e.y
    c.box(x, y, 12, PALETTE.steel, PALETTE.ink, 1.5, corner=3)
    if look.closed:
        c.box(x, y, 8.5, (172, 173, 184), PALETTE.ink, 1.0, corner=1.5)
        for dy in (-4.2, 0, 4.2):
            c.line(((x - 7, y + dy), (x + 7, y + dy)), PALETTE.steel, 1.2)
    else:
        c.box(x, y, 8.5, (214, 233, 250), PALETTE.blue, 1.8, corner=1.5)
        c.box(x, y, 3.5, PALETTE.blue, corner=1)


def _exit_switch(c, e, look):
    if look.active:
        c.box(e.x, e.y, 7, PALETTE.pale, PALETTE.ink, 1.4, corner=2)
        c.box(e.x, e.y, 3.6, PALETTE.blue, corner=1)
    else:
        c.box(e.x, e.y, 7, None, PALETTE.muted, 1.2, corner=2)


_DOOR_COLOUR = {5: PALETTE.ink, 6: PALETTE.gold_edge, 8: PALETTE.red}


def _door(c, e, look):
    """A bar across its tile border; open doors leave two short posts.  The switch shows the door's colour."""
    colour = _DOOR_COLOUR[e.kind]
    along = (0, 1) if e.orientation in (0, 4) else (1, 0)

    def at(t):
        return (e.x + along[0] * t, e.y + along[1] * t)

    if look.closed:
        c.line((at(-11), at(11)), colour, 3.6)
        if e.kind != 5:
            c.box(e.x, e.y, 3.4, PALETTE.pale, colour, 1.3, corner=1)
        else:
            c.line((at(-8), at(8)), PALETTE.steel, 1.2)
    else:
        c.line((at(-11), at(-8.5)), colour, 3.0)
        c.line((at(8.5), at(11)), colour, 3.0)
    if e.kind != 5:
        x, y = e.switch_x, e.switch_y
        if look.active:
            c.box(x, y, 5, PALETTE.pale, colour, 1.4, corner=1.5)
            c.disc(x, y, 2.0, colour)
        else:
            c.box(x, y, 5, None, PALETTE.muted, 1.1, corner=1.5)


def _launch_pad(c, e, look):
    angle = e.orientation * math.pi / 4
    c.polygon(turned(((-3, -8), (0, -8), (3, -5), (3, 5), (0, 8), (-3, 8)), angle, e.x, e.y), PALETTE.steel)
    c.polygon(turned(((1.4, -6.4), (3.2, -5), (3.2, 5), (1.4, 6.4)), angle, e.x, e.y), PALETTE.amber)


def _one_way(c, e, look):
    angle = e.orientation * math.pi / 4
    for t in (-8, 0, 8):
        c.polygon(turned(((-5, t - 3), (-1, t), (-5, t + 3)), angle, e.x, e.y), PALETTE.steel)
    c.polygon(turned(((-2.4, -12), (0, -12), (0, 12), (-2.4, 12)), angle, e.x, e.y), PALETTE.ink)


def _drone(c, e, look):
    """Zap drones (14), their chasing kin (15) and mini drones (26)."""
    radius = 4.0 if e.kind == 26 else 7.5
    c.disc(look.x, look.y, radius, PALETTE.ink)
    c.disc(look.x, look.y, radius - 1.3, PALETTE.cyan)
    c.disc(look.x, look.y, radius * 0.36, PALETTE.red if e.kind == 15 else PALETTE.ink)


def _floor_guard(c, e, look):
    dome = [(look.x + 6 * math.cos(a), look.y + 6 * math.sin(a)) for a in np.linspace(-math.pi, 0, 20)]
    c.polygon([*dome, (look.x + 6, look.y + 6), (look.x - 6, look.y + 6)], PALETTE.ink)
    c.box(look.x + 2 * look.state, look.y - 0.5, 1.8, PALETTE.red if look.state else PALETTE.cyan, corner=0.5)


def _bounce_block(c, e, look):
    c.box(look.x, look.y, 9, PALETTE.pale, PALETTE.ink, 1.4, corner=2)
    c.box(look.x, look.y, 5, None, PALETTE.muted, 1.0, corner=1.5)


def _thwump(c, e, look):
    """A block with one lethal face, drawn in the colour of danger."""
    c.box(look.x, look.y, 9, PALETTE.steel, PALETTE.ink, 1.4, corner=1)
    angle = {0: 0.0, 2: math.pi / 2, 4: math.pi}.get(e.orientation, -math.pi / 2)
    c.polygon(turned(((6, -7.5), (9, -7.5), (9, 7.5), (6, 7.5)), angle, look.x, look.y), PALETTE.cyan)
    c.box(look.x, look.y, 2.2, PALETTE.ink, corner=0.8)


def _shove_thwump(c, e, look):
    c.box(look.x, look.y, 12, (200, 224, 233) if look.state < 2 else None, PALETTE.cyan, 2.0, corner=1)
    c.disc(look.x, look.y, 8, PALETTE.ink)
    c.disc(look.x, look.y, 6.4, PALETTE.red if look.state >= 2 else PALETTE.cyan)


def _boost_pad(c, e, look):
    c.ring(e.x, e.y, 6, 1.4, PALETTE.ink)
    for t in (-2.2, 1.0):
        c.line(((e.x + t - 1, e.y - 2.4), (e.x + t + 1.2, e.y), (e.x + t - 1, e.y + 2.4)), PALETTE.green, 1.3)


def _death_ball(c, e, look):
    c.ring(look.x, look.y, 8, 0.9, (21, 167, 189))
    c.disc(look.x, look.y, 5, (21, 135, 160))
    c.disc(look.x, look.y, 1.8, PALETTE.pale)


def _laser(c, e, look):
    c.disc(e.x, e.y, 5.9, PALETTE.ink)
    c.disc(e.x, e.y, 2.4, PALETTE.red)


# kind -> (layer, function); lower layers are drawn first
_DRAWN = {
    3: (0, _exit), 11: (0, _one_way), 10: (0, _launch_pad), 24: (0, _boost_pad),
    5: (1, _door), 6: (1, _door), 8: (1, _door), 4: (1, _exit_switch),
    2: (2, _gold), 1: (3, _mine), 21: (3, _mine), 17: (3, _bounce_block), 20: (3, _thwump), 28: (3, _shove_thwump),
    14: (4, _drone), 15: (4, _drone), 26: (4, _drone), 16: (4, _floor_guard), 25: (4, _death_ball), 23: (4, _laser),
}  # fmt: skip

# ---------------------------------------------------------------------------------------------------------------------
# The ninja


@dataclass(frozen=True)
class NinjaLook:
    """Pose of the ninja after one frame: position (px), state 0..9, facing -1 or 1, stride and tilt (radians)."""

    x: float
    y: float
    state: int = 0
    facing: int = 1
    stride: float = 0.0
    tilt: float = 0.0


# (angle of the upper part, angle of the lower part) of front leg, back leg, front arm, back arm, and lean of the trunk;
# radians from straight down, forward positive.
_POSES = {
    "stand": ((0.16, 0.10), (-0.16, -0.16), (0.30, 0.45), (-0.35, -0.10), 0.04),
    "brake": ((0.95, 0.55), (0.35, -0.45), (0.9, 1.6), (-1.0, -0.7), -0.30),
    "rise": ((1.15, -0.35), (-0.25, -0.75), (2.4, 2.9), (-0.9, -0.4), 0.10),
    "fall": ((0.75, -0.25), (-0.45, -1.0), (1.9, 2.3), (-1.9, -2.2), 0.05),
    "slide": ((0.95, -0.75), (0.15, -0.95), (2.3, 2.6), (0.9, 1.7), 0.10),
    "cheer": ((0.32, 0.12), (-0.32, -0.12), (2.5, 2.85), (-2.5, -2.85), 0.0),
}
_STATE_POSE = {0: "stand", 2: "brake", 3: "rise", 4: "fall", 5: "slide", 8: "cheer", 9: "stand"}
_HIP, _THIGH, _SHIN, _ARM, _TRUNK = 1.8, 4.2, 4.3, 3.5, 5.4


def draw_ninja(canvas: Canvas, ninja: NinjaLook) -> None:
    """Draw the ninja as a small running figure with a headband, or as scattered pieces when dead."""
    if ninja.state in (6, 7):
        _draw_fallen(canvas, ninja)
        return
    if ninja.state == 1:
        swing, lift = math.sin(ninja.stride), math.cos(ninja.stride)
        front = (0.95 * swing + 0.15, 0.95 * swing - 0.25 - 0.9 * max(lift, 0.0))
        back = (-0.95 * swing + 0.15, -0.95 * swing - 0.25 - 0.9 * max(-lift, 0.0))
        pose = (front, back, (-0.9 * swing, -0.9 * swing + 1.0), (0.9 * swing, 0.9 * swing + 1.0), 0.26)
    else:
        pose = _POSES[_STATE_POSE[ninja.state]]
    lean = pose[4]
    hip = (0.0, _HIP)
    neck = (hip[0] + _TRUNK * math.sin(lean), hip[1] - _TRUNK * math.cos(lean))
    head = (neck[0] + 3.4 * math.sin(lean), neck[1] - 3.0 * math.cos(lean))
    shoulder = (neck[0] * 0.85, neck[1] + 0.9)

    def place(points):
        return turned([(a * ninja.facing, b) for a, b in points], ninja.tilt, ninja.x, ninja.y)

    def limb(start, angles, upper, lower, width):
        joint = (start[0] + upper * math.sin(angles[0]), start[1] + upper * math.cos(angles[0]))
        end = (joint[0] + lower * math.sin(angles[1]), joint[1] + lower * math.cos(angles[1]))
        canvas.line(place((start, joint, end)), PALETTE.ink, width)

    limb(shoulder, pose[3], _ARM, _ARM, 1.7)
    limb(hip, pose[1], _THIGH, _SHIN, 2.1)
    canvas.line(place((hip, neck)), PALETTE.ink, 2.8)
    limb(hip, pose[0], _THIGH, _SHIN, 2.1)
    limb(shoulder, pose[2], _ARM, _ARM, 1.7)
    flutter = 0.8 * math.sin(2 * ninja.stride)
    tail = (
        (head[0] - 2.4, head[1] - 0.3),
        (head[0] - 4.6, head[1] + 0.2 + flutter),
        (head[0] - 6.4, head[1] - 0.4 - flutter),
    )
    canvas.line(place(tail), PALETTE.band, 1.3)
    canvas.disc(*place((head,))[0], 2.9, PALETTE.ink)
    canvas.line(place(((head[0] - 2.1, head[1] - 0.5), (head[0] + 2.3, head[1] - 0.3))), PALETTE.band, 1.2)


def _draw_fallen(canvas, ninja):
    for i in range(9):
        angle, reach = math.tau * i / 9 + 0.3, 5.0 + 4.0 * ((i * 5) % 9) / 9
        far = (ninja.x + reach * math.cos(angle), ninja.y + reach * math.sin(angle))
        near = (ninja.x + (reach - 3.4) * math.cos(angle + 0.25), ninja.y + (reach - 3.4) * math.sin(angle + 0.25))
        canvas.line((near, far), PALETTE.ink if i % 3 else PALETTE.band, 1.8)
    canvas.disc(ninja.x + 1, ninja.y + 1.5, 2.6, PALETTE.ink)
