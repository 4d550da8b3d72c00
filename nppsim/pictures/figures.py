"""Drawings of entities and of the ninja on a ``Canvas``.

Parts that block or kill have their true size.  The figure of the ninja fits into its collision circle of radius 10.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from nppsim.levels import kinds
from nppsim.physics import aims
from nppsim.physics.bodies import BLOCK_HALF, ONE_WAY_HALF_LENGTH, SHOVE_HALF, THWUMP_HALF
from nppsim.physics.entities import ARMED, ARMING_RADIUS, DORMANT, EXIT_RADIUS
from nppsim.physics.evil_ninjas import EVIL_RADIUS, SPAWNER_RADIUS
from nppsim.physics.lasers import EMITTER_RADIUS
from nppsim.physics.movers import (
    BALL_BODY,
    BALL_RADIUS,
    BOOST_RADIUS,
    GUARD_RADIUS,
    MINI_RADIUS,
    SHOVE_CORE,
    ZAP_RADIUS,
)
from nppsim.physics.state import (
    BRAKING,
    CELEBRATING,
    DEAD,
    DISABLED,
    DYING,
    FALLING,
    FOLLOWING,
    JUMPING,
    RUNNING,
    STANDING,
    UNTOUCHED,
    WALL_SLIDING,
)
from nppsim.pictures.canvas import PALETTE, Canvas, Colour, Point, turned

REACH = 22  # level px; maximum distance of an entity's drawing from its centre, along each axis
NINJA_REACH = 14  # level px; maximum distance of the ninja's drawing from its centre
AIM_REACH = 12  # level px; maximum distance of an aim's drawing from its crosshair's centre, rocket or beam
_BEAM_WIDTH = 4.0


@dataclass(frozen=True)
class DrawnEntity:
    """One entity, as the records of a level create it.

    kind, index: entity type and index within the type, as in ``Run.entities``; the switch of exit (3, i) is (4, i).
    at: centre of the entity; for a locked or trap door, centre of the door, not of its switch.
    orientation: 0..7, in steps of 45 degrees, clockwise from right.
    switch: centre of the switch of an exit or door, if it has one.
    """

    kind: int
    index: int
    at: Point
    orientation: int = 0
    switch: Point | None = None


@dataclass(frozen=True)
class EntityAppearance:
    """Properties that determine an entity's drawing and can change during a run.

    at: current centre of a moving entity.
    active: False once the entity is collected or used up.
    state: signed state number of the entity.
    closed: True if a door or exit is closed.
    """

    at: Point
    active: bool = True
    state: int = 0
    closed: bool = False


class Aim(NamedTuple):
    """Beam, shot, crosshair or rocket of an entity.

    kind: type of the entity.
    at: centre of the entity, or of the rocket.
    to: point that belongs to the aim, such as the end of a beam or the centre of a crosshair.
    sign: kind of the aim, such as BEAM or CROSSHAIR, which determines the meaning of ``to``; see ``physics.aims``.
    """

    kind: int
    at: Point
    to: Point
    sign: int


@dataclass(frozen=True)
class NinjaPose:
    """Pose of the ninja after one frame.

    at: centre of the ninja.
    state: 0..9, as in ``Run.ninja_state``.
    facing: -1 left, 1 right.
    stride: phase of the running cycle, radians.
    tilt: rotation of the body on slopes, radians.
    """

    at: Point
    state: int = STANDING
    facing: int = 1
    stride: float = 0.0
    tilt: float = 0.0


def draw_entity(canvas: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    """Draw one entity with its current look."""
    _FIGURES[entity.kind](canvas, entity, look)


# ---------------------------------------------------------------------------------------------------------------------
# Entities


def _mine(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    """Draw an armed mine as a star, a dormant one as a small ring, an arming one as a disc."""
    if look.state == DORMANT:
        c.ring(entity.at, 4.0, 1.2, PALETTE.red)
        c.disc(entity.at, 1.2, PALETTE.red)
    elif look.state == ARMED:
        c.polygon(_star(entity.at, 16, 6.0, 3.9), PALETTE.red)
        c.disc(entity.at, 1.5, (228, 120, 116))
    else:
        c.disc(entity.at, ARMING_RADIUS, PALETTE.amber)
        c.ring(entity.at, ARMING_RADIUS, 1.3, PALETTE.red)


def _evil_ninja(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    """Draw a pale disc for a harmless evil ninja, a dark one for a deadly one, and a ring around an untouched spawner."""
    if look.state == UNTOUCHED:
        c.ring(entity.at, SPAWNER_RADIUS, 1.2, PALETTE.red)
    c.disc(look.at, EVIL_RADIUS, PALETTE.ink if look.state == FOLLOWING else PALETTE.steel)
    c.disc(look.at, 1.5, PALETTE.red)


def _star(centre: Point, points: int, outer: float, inner: float) -> list[Point]:
    (x, y), radii = centre, (outer, inner)
    angles = [math.tau * i / points for i in range(points)]
    return [(x + radii[i % 2] * math.cos(a), y + radii[i % 2] * math.sin(a)) for i, a in enumerate(angles)]


def _gold(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    if look.active:
        x, y = entity.at
        c.box(entity.at, 4.6, PALETTE.gold, PALETTE.gold_edge, 1.2)
        c.box((x - 0.6, y - 0.6), 1.6, (250, 232, 150))


def _exit(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    """Draw a doorway: barred until its switch is touched, then open and blue."""
    c.box(entity.at, EXIT_RADIUS, PALETTE.steel, PALETTE.ink, 1.5, corner=3)
    if look.closed:
        x, y = entity.at
        c.box(entity.at, 8.5, (172, 173, 184), PALETTE.ink, 1.0, corner=1.5)
        for dy in (-4.2, 0, 4.2):
            c.line(((x - 7, y + dy), (x + 7, y + dy)), PALETTE.steel, 1.2)
    else:
        c.box(entity.at, 8.5, (214, 233, 250), PALETTE.blue, 1.8, corner=1.5)
        c.box(entity.at, 3.5, PALETTE.blue, corner=1)


def _exit_switch(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    if look.active:
        c.box(entity.at, 7, PALETTE.pale, PALETTE.ink, 1.4, corner=2)
        c.box(entity.at, 3.6, PALETTE.blue, corner=1)
    else:
        c.box(entity.at, 7, None, PALETTE.muted, 1.2, corner=2)


def _bar(c: Canvas, entity: DrawnEntity, look: EntityAppearance, colour: Colour) -> Callable[[float], Point]:
    """Draw a door; return a function that maps a distance along the door from its centre to a position."""
    x, y = entity.at
    upright = entity.orientation % 4 == 0

    def along(t: float) -> Point:
        return (x, y + t) if upright else (x + t, y)

    if look.closed:
        c.line((along(-11), along(11)), colour, 3.6)
    else:
        c.line((along(-11), along(-8.5)), colour, 3.0)
        c.line((along(8.5), along(11)), colour, 3.0)
    return along


def _regular_door(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    along = _bar(c, entity, look, PALETTE.ink)
    if look.closed:
        c.line((along(-8), along(8)), PALETTE.steel, 1.2)


def _switched_door(c: Canvas, entity: DrawnEntity, look: EntityAppearance, colour: str) -> None:
    """Draw a door with a lock, and its switch in the same colour.  colour: name in ``Palette``."""
    paint = getattr(PALETTE, colour)
    _bar(c, entity, look, paint)
    if look.closed:
        c.box(entity.at, 3.4, PALETTE.pale, paint, 1.3, corner=1)
    if entity.switch is None:
        return
    if look.active:
        c.box(entity.switch, 5, PALETTE.pale, paint, 1.4, corner=1.5)
        c.disc(entity.switch, 2.0, paint)
    else:
        c.box(entity.switch, 5, None, PALETTE.muted, 1.1, corner=1.5)


def _launch_pad(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    angle = entity.orientation * math.pi / 4
    base = ((-3, -8), (0, -8), (3, -5), (3, 5), (0, 8), (-3, 8))
    c.polygon(turned(base, angle, entity.at), PALETTE.steel)
    c.polygon(turned(((1.4, -6.4), (3.2, -5), (3.2, 5), (1.4, 6.4)), angle, entity.at), PALETTE.amber)


def _one_way(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    angle = entity.orientation * math.pi / 4
    half = ONE_WAY_HALF_LENGTH
    for t in (-8, 0, 8):
        c.polygon(turned(((-5, t - 3), (-1, t), (-5, t + 3)), angle, entity.at), PALETTE.steel)
    c.polygon(turned(((-2.4, -half), (0, -half), (0, half), (-2.4, half)), angle, entity.at), PALETTE.ink)


def _drone(c: Canvas, entity: DrawnEntity, look: EntityAppearance, radius: float, eye: str) -> None:
    c.disc(look.at, radius, PALETTE.ink)
    c.disc(look.at, radius - 1.3, PALETTE.cyan)
    c.disc(look.at, radius * 0.36, getattr(PALETTE, eye))


def _floor_guard(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    """Draw a dome whose eye looks in the direction of motion: left, none or right for state -1, 0, 1."""
    (x, y), radius = look.at, GUARD_RADIUS
    angles = [math.pi * (i / 19 - 1) for i in range(20)]
    dome = [(x + radius * math.cos(a), y + radius * math.sin(a)) for a in angles]
    c.polygon([*dome, (x + radius, y + radius), (x - radius, y + radius)], PALETTE.ink)
    c.box((x + 2 * look.state, y - 0.5), 1.8, PALETTE.red if look.state else PALETTE.cyan, corner=0.5)


def _bounce_block(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    c.box(look.at, BLOCK_HALF, PALETTE.pale, PALETTE.ink, 1.4, corner=2)
    c.box(look.at, 5, None, PALETTE.muted, 1.0, corner=1.5)


def _thwump(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    """Draw a block with one lethal face in a bright colour."""
    c.box(look.at, THWUMP_HALF, PALETTE.steel, PALETTE.ink, 1.4, corner=1)
    angle = {0: 0.0, 2: math.pi / 2, 4: math.pi}.get(entity.orientation, -math.pi / 2)
    c.polygon(turned(((6, -7.5), (THWUMP_HALF, -7.5), (THWUMP_HALF, 7.5), (6, 7.5)), angle, look.at), PALETTE.cyan)
    c.box(look.at, 2.2, PALETTE.ink, corner=0.8)


def _shove_thwump(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    """Draw a block with a lethal core; while it moves (states 2 and 3), only the core touches the ninja."""
    moving = look.state >= 2
    c.box(look.at, SHOVE_HALF, None if moving else (200, 224, 233), PALETTE.cyan, 2.0, corner=1)
    c.disc(look.at, SHOVE_CORE, PALETTE.ink)
    c.disc(look.at, 6.4, PALETTE.red if moving else PALETTE.cyan)


def _boost_pad(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    x, y = entity.at
    c.ring(entity.at, BOOST_RADIUS, 1.4, PALETTE.ink)
    for t in (-2.2, 1.0):
        c.line(((x + t - 1, y - 2.4), (x + t + 1.2, y), (x + t - 1, y + 2.4)), PALETTE.green, 1.3)


def _death_ball(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    c.ring(look.at, BALL_BODY, 0.9, (21, 167, 189))
    c.disc(look.at, BALL_RADIUS, (21, 135, 160))
    c.disc(look.at, 1.8, PALETTE.pale)


def _laser(c: Canvas, entity: DrawnEntity, look: EntityAppearance) -> None:
    c.disc(look.at, EMITTER_RADIUS, PALETTE.ink)
    c.disc(look.at, 2.4, PALETTE.red)


def _shooting_drone(c: Canvas, entity: DrawnEntity, look: EntityAppearance, eye: str) -> None:
    """Draw a drone with a square body; touching it is harmless."""
    c.box(look.at, ZAP_RADIUS, PALETTE.ink, corner=2)
    c.box(look.at, ZAP_RADIUS - 1.5, PALETTE.steel, corner=1.5)
    c.disc(look.at, 2.6, getattr(PALETTE, eye))


def _turret(c: Canvas, entity: DrawnEntity, look: EntityAppearance, eye: str) -> None:
    c.disc(entity.at, 6.0, PALETTE.ink)
    c.disc(entity.at, 4.4, PALETTE.steel)
    c.disc(entity.at, 2.0, getattr(PALETTE, eye))


def draw_aim(canvas: Canvas, aim: Aim) -> None:
    """Draw a beam, shot, crosshair, warning or rocket."""
    colour = PALETTE.amber if aim.kind == kinds.CHAINGUN_DRONE else PALETTE.red
    if aim.sign == aims.BEAM:
        canvas.line((aim.at, aim.to), PALETTE.glow, _BEAM_WIDTH)
        canvas.line((aim.at, aim.to), colour, 1.4)
    elif aim.sign == aims.TRACE:
        canvas.line((aim.at, aim.to), PALETTE.glow, 1.4)
    elif aim.sign == aims.WARNING:
        canvas.line((aim.at, aim.to), PALETTE.red, 1.2)
        canvas.disc(aim.at, 3.2, PALETTE.red)
    elif aim.sign == aims.ROCKET:
        angle = math.atan2(aim.to[1] - aim.at[1], aim.to[0] - aim.at[0])
        canvas.polygon(turned(((-8, 0), (-4, -1.8), (-4, 1.8)), angle, aim.at), PALETTE.amber)
        canvas.polygon(turned(((-4, -2.6), (2, -2.6), (6, 0), (2, 2.6), (-4, 2.6)), angle, aim.at), PALETTE.red)
        canvas.disc(aim.at, 1.2, PALETTE.pale)
    else:
        _draw_crosshair(canvas, aim.to, PALETTE.red if aim.sign == aims.LOCKED else PALETTE.amber)


def _draw_crosshair(c: Canvas, at: Point, colour: Colour) -> None:
    x, y = at
    c.ring(at, 7.0, 1.4, colour)
    for dx, dy in ((1, 0), (0, 1), (-1, 0), (0, -1)):
        c.line(((x + 4 * dx, y + 4 * dy), (x + 9.5 * dx, y + 9.5 * dy)), colour, 1.4)
    c.disc(at, 1.2, colour)


_FIGURES: dict[int, Callable[[Canvas, DrawnEntity, EntityAppearance], None]] = {
    kinds.EXIT: _exit,
    kinds.ONE_WAY: _one_way,
    kinds.LAUNCH_PAD: _launch_pad,
    kinds.BOOST_PAD: _boost_pad,
    kinds.REGULAR_DOOR: _regular_door,
    kinds.LOCKED_DOOR: partial(_switched_door, colour="gold_edge"),
    kinds.TRAP_DOOR: partial(_switched_door, colour="red"),
    kinds.EXIT_SWITCH: _exit_switch,
    kinds.GOLD: _gold,
    kinds.MINE: _mine,
    kinds.TOGGLE_MINE: _mine,
    kinds.BOUNCE_BLOCK: _bounce_block,
    kinds.THWUMP: _thwump,
    kinds.SHOVE_THWUMP: _shove_thwump,
    kinds.ZAP_DRONE: partial(_drone, radius=ZAP_RADIUS, eye="ink"),
    kinds.CHASER_DRONE: partial(_drone, radius=ZAP_RADIUS, eye="red"),
    kinds.MINI_DRONE: partial(_drone, radius=MINI_RADIUS, eye="ink"),
    kinds.FLOOR_GUARD: _floor_guard,
    kinds.DEATH_BALL: _death_ball,
    kinds.LASER: _laser,
    kinds.CHAINGUN_DRONE: partial(_shooting_drone, eye="amber"),
    kinds.LASER_DRONE: partial(_shooting_drone, eye="red"),
    kinds.EVIL_NINJA: _evil_ninja,
    kinds.ROCKET_TURRET: partial(_turret, eye="red"),
    kinds.GAUSS_TURRET: partial(_turret, eye="amber"),
}
_LAYERS = (
    (kinds.EXIT, kinds.ONE_WAY, kinds.LAUNCH_PAD, kinds.BOOST_PAD),
    (*kinds.DOORS, kinds.EXIT_SWITCH),
    (kinds.GOLD,),
    (*kinds.MINES, kinds.BOUNCE_BLOCK, kinds.THWUMP, kinds.SHOVE_THWUMP),
    (*kinds.DRONES, kinds.FLOOR_GUARD, kinds.DEATH_BALL, kinds.EVIL_NINJA, kinds.LASER, *kinds.TURRETS),
)  # from back to front
LAYER = {kind: i for i, members in enumerate(_LAYERS) for kind in members}  # layer of each drawn type

# ---------------------------------------------------------------------------------------------------------------------
# The ninja

Angles = tuple[float, float]  # upper and lower part of a limb; radians from straight down, forward positive


@dataclass(frozen=True)
class _Pose:
    """Angles of the limbs and of the trunk (``lean``)."""

    front_leg: Angles
    back_leg: Angles
    front_arm: Angles
    back_arm: Angles
    lean: float


_POSES = {
    STANDING: _Pose((0.16, 0.10), (-0.16, -0.16), (0.30, 0.45), (-0.35, -0.10), 0.04),
    BRAKING: _Pose((0.95, 0.55), (0.35, -0.45), (0.9, 1.6), (-1.0, -0.7), -0.30),
    JUMPING: _Pose((1.15, -0.35), (-0.25, -0.75), (2.4, 2.9), (-0.9, -0.4), 0.10),
    FALLING: _Pose((0.75, -0.25), (-0.45, -1.0), (1.9, 2.3), (-1.9, -2.2), 0.05),
    WALL_SLIDING: _Pose((0.95, -0.75), (0.15, -0.95), (2.3, 2.6), (0.9, 1.7), 0.10),
    CELEBRATING: _Pose((0.32, 0.12), (-0.32, -0.12), (2.5, 2.85), (-2.5, -2.85), 0.0),
}
_POSES[DISABLED] = _POSES[STANDING]
# Distance of the hip below the ninja's centre, and lengths of body parts; level px.
_HIP = 1.8
_THIGH = 4.2
_SHIN = 4.3
_ARM = 3.5
_TRUNK = 5.4


def draw_ninja(canvas: Canvas, ninja: NinjaPose) -> None:
    """Draw the ninja as a figure with a headband, or as scattered pieces when it is dead."""
    if ninja.state in (DEAD, DYING):
        _draw_fallen(canvas, ninja.at)
        return
    pose = _running(ninja.stride) if ninja.state == RUNNING else _POSES[ninja.state]
    hip = (0.0, _HIP)
    neck = (hip[0] + _TRUNK * math.sin(pose.lean), hip[1] - _TRUNK * math.cos(pose.lean))
    head = (neck[0] + 3.4 * math.sin(pose.lean), neck[1] - 3.0 * math.cos(pose.lean))
    shoulder = (neck[0] * 0.85, neck[1] + 0.9)

    def place(points: Iterable[Point]) -> list[Point]:
        return turned([(a * ninja.facing, b) for a, b in points], ninja.tilt, ninja.at)

    def limb(start: Point, angles: Angles, upper: float, lower: float, width: float) -> None:
        joint = (start[0] + upper * math.sin(angles[0]), start[1] + upper * math.cos(angles[0]))
        end = (joint[0] + lower * math.sin(angles[1]), joint[1] + lower * math.cos(angles[1]))
        canvas.line(place((start, joint, end)), PALETTE.ink, width)

    limb(shoulder, pose.back_arm, _ARM, _ARM, 1.7)
    limb(hip, pose.back_leg, _THIGH, _SHIN, 2.1)
    canvas.line(place((hip, neck)), PALETTE.ink, 2.8)
    limb(hip, pose.front_leg, _THIGH, _SHIN, 2.1)
    limb(shoulder, pose.front_arm, _ARM, _ARM, 1.7)
    x, y = head
    flutter = 0.8 * math.sin(2 * ninja.stride)
    canvas.line(
        place(((x - 2.4, y - 0.3), (x - 4.6, y + 0.2 + flutter), (x - 6.4, y - 0.4 - flutter))), PALETTE.band, 1.3
    )
    canvas.disc(place((head,))[0], 2.9, PALETTE.ink)
    canvas.line(place(((x - 2.1, y - 0.5), (x + 2.3, y - 0.3))), PALETTE.band, 1.2)


def _running(stride: float) -> _Pose:
    swing, lift = math.sin(stride), math.cos(stride)
    return _Pose(
        front_leg=(0.95 * swing + 0.15, 0.95 * swing - 0.25 - 0.9 * max(lift, 0.0)),
        back_leg=(-0.95 * swing + 0.15, -0.95 * swing - 0.25 - 0.9 * max(-lift, 0.0)),
        front_arm=(-0.9 * swing, -0.9 * swing + 1.0),
        back_arm=(0.9 * swing, 0.9 * swing + 1.0),
        lean=0.26,
    )


def _draw_fallen(canvas: Canvas, at: Point) -> None:
    x, y = at
    for i in range(9):
        angle, reach = math.tau * i / 9 + 0.3, 5.0 + 4.0 * ((i * 5) % 9) / 9
        far = (x + reach * math.cos(angle), y + reach * math.sin(angle))
        near = (x + (reach - 3.4) * math.cos(angle + 0.25), y + (reach - 3.4) * math.sin(angle + 0.25))
        canvas.line((near, far), PALETTE.ink if i % 3 else PALETTE.band, 1.8)
    canvas.disc((x + 1, y + 1.5), 2.6, PALETTE.ink)
