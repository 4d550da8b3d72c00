"""Reference implementation of the observations, written from ``docs/observations.md``.

Arguments of each function: the level, the state, and the simulator's ``next_step`` uint8[2, 4539].
"""

import hashlib
import math
from collections.abc import Callable, Iterator

import numpy as np

from nppsim.levels import kinds
from nppsim.observe import images, layout
from nppsim.physics.shooters import FIRING, PREFIRE, TARGETING
from nppsim.shadow.geometry import ReferenceEntity, ReferenceState, clamped_cell, position, velocity
from nppsim.shadow.paths import COLUMNS, MAX_PATH, ROWS, SPACING, UNIT, follow
from nppsim.shadow.reference_level import ReferenceLevel

SQUARE = 12  # px, side of a square of ``surroundings``
WINDOW_REACH = layout.SURROUNDINGS_SIZE * SQUARE // 2  # px from the ninja to the edge of ``surroundings``
FINE = 16  # the window moves in steps of 1 / FINE of a square
WAYPOINT_STEPS = (3, 10)  # lattice steps to the two way-points
NINJA_RADIUS = 10  # px
DORMANT = 1  # state of a mine
MINE_RADIUS = (4.0, 3.5, 4.5)  # px, by state: armed, dormant, arming


# -------------------------------------------------------------------------------------------------------------- vectors
def game_state(reference: ReferenceLevel, now: ReferenceState, next_step: np.ndarray) -> np.ndarray:
    """Return float32[26]."""
    ninja = now.ninja
    names = ("standing", "running", "braking", "jumping", "falling", "wall_sliding")
    values = ninja | {f"state_{name}": ninja["state"] == k for k, name in enumerate(names)}
    values |= {"jump_hold": ninja["hold"], "ceiling_contact": ninja["ceiling_count"] > 0}
    for axis in "xy":
        values[f"floor_normal_{axis}"] = ninja[f"floor_{axis}"]
        values[f"pad_direction_{axis}"] = ninja[f"pad_{axis}"]
    return np.array([values[name] for name in layout.SPECS["game_state"].components], np.float32)


def reachability_features(reference: ReferenceLevel, now: ReferenceState, next_step: np.ndarray) -> np.ndarray:
    """Return float32[9].  next_step: directions of the simulator, which decide between equally short paths."""
    taken = now.ninja["switch_taken"]
    px, point = reference.path(now)
    if point is None:
        return np.array([MAX_PATH, MAX_PATH, 0, 0, 0, 0, taken, 0, reference.path_start], np.float32)
    chosen = next_step[int(taken)].reshape(COLUMNS, ROWS)
    points = [follow(chosen, point, steps) for steps in WAYPOINT_STEPS]
    offsets = [SPACING * waypoint[axis] - now.ninja["xy"[axis]] for waypoint in points for axis in (0, 1)]
    beyond = 0.0 if taken else (reference.path_fields(now).switch_to_exit or 0) * UNIT
    return np.array([max(px - beyond, 0.0), px, *offsets, taken, 1.0, reference.path_start], np.float32)


def entity_positions(reference: ReferenceLevel, now: ReferenceState, next_step: np.ndarray) -> np.ndarray:
    """Return float32[6]: ninja; switch and door of an open exit, else of the first exit with an active switch, else zeros."""
    opened = [e for e in reference.exits if now.states[e.index].clock]
    left = [e for e in reference.exits if now.states[e.partner].active]
    out = [now.ninja["x"], now.ninja["y"], 0.0, 0.0, 0.0, 0.0]
    for e in (opened or left)[:1]:
        out[2:] = *position(reference.listed[e.partner], now), *position(e, now)
    return np.array(out, np.float32)


def switch_states(reference: ReferenceLevel, now: ReferenceState, next_step: np.ndarray) -> np.ndarray:
    """Return float32[25] for five locked doors: switch, middle of the door, open."""
    out = np.zeros((layout.NUM_DOORS, 5), np.float32)
    for i, e in enumerate([e for e in reference.listed if e.kind == kinds.LOCKED_DOOR][: layout.NUM_DOORS]):
        x1, y1, x2, y2 = e.door
        out[i] = *position(e, now), (x1 + x2) / 2, (y1 + y2) / 2, not now.states[e.index].closed
    return out.ravel()


# ------------------------------------------------------------------------------------------ hazards and their pictures
KILLERS = {  # deadly entity -> radius, px
    kinds.ZAP_DRONE: 7.5,
    kinds.CHASER_DRONE: 7.5,
    kinds.MINI_DRONE: 4.0,
    kinds.FLOOR_GUARD: 6.0,
    kinds.DEATH_BALL: 5.0,
    kinds.EVIL_NINJA: 6.0,
    kinds.SHOVE_THWUMP: 8.0,
}
_SHOOTERS = {kinds.LASER, *kinds.SHOOTING_DRONES, *kinds.TURRETS}
BODIES = {kinds.BOUNCE_BLOCK: 9.0, kinds.THWUMP: 9.0, kinds.SHOVE_THWUMP: 12.0}  # half-sides of solid squares, px
ONE_WAY_HALF = 12.0  # px, half the length of a one-way
FACE_HALF = 7.0  # px, half the width of a thwump's deadly face
FACE_AHEAD = 11.0  # px from the centre of a thwump to its face
FACE_RADIUS = 2.0  # px, radius of a face in ``hazards``
BEAM_RADIUS = 0.1  # px, radius of a beam in ``hazards``
LINE_GAP = SQUARE / 2  # px between points along a line; the squares that contain them are filled
DOOR_POINTS = 5  # number of points along a closed door; the squares that contain them are filled


def _offset(e: ReferenceEntity, now: ReferenceState) -> tuple[float, float]:
    """Return (dx, dy) of an entity, px from the ninja."""
    x, y = position(e, now)
    return x - now.ninja["x"], y - now.ninja["y"]


def _line(e: ReferenceEntity, x: float, y: float) -> tuple[float, float, float, float] | None:
    """Return (x1, y1, x2, y2) of a one-way or a thwump's deadly face; None for other entities.

    x, y: position of the entity, absolute or relative to the ninja.  Moving the line afterwards would round differently.
    """
    fx, fy = e.facing or (0, 0)
    if e.kind == kinds.ONE_WAY:
        across_x, across_y = -ONE_WAY_HALF * fy, ONE_WAY_HALF * fx
    elif e.kind == kinds.THWUMP:
        x, y = x + FACE_AHEAD * fx, y + FACE_AHEAD * fy
        across_x, across_y = FACE_HALF * abs(fy), FACE_HALF * abs(fx)
    else:
        return None
    return x - across_x, y - across_y, x + across_x, y + across_y


def _beam(e: ReferenceEntity, now: ReferenceState, x: float, y: float) -> tuple[float, float, float, float] | None:
    """Return (x1, y1, x2, y2) of the beam of a laser, turret or drone, px from (x, y); None without a beam."""
    if e.kind not in _SHOOTERS:
        return None
    shooter = now.movers[e.index]
    if e.kind == kinds.LASER or (e.kind == kinds.GAUSS_TURRET and shooter.state == PREFIRE):
        end_x, end_y = shooter.target_x, shooter.target_y
    elif e.kind == kinds.LASER_DRONE and shooter.state == FIRING:
        end_x, end_y = shooter.x + shooter.beam * shooter.vx, shooter.y + shooter.beam * shooter.vy
    else:
        return None
    return shooter.x - x, shooter.y - y, end_x - x, end_y - y


def _points(line: tuple[float, float, float, float], gap: float) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y of points along a line including its ends, at most ``gap`` apart along each axis."""
    x1, y1, x2, y2 = line
    steps = math.ceil(max(abs(x2 - x1), abs(y2 - y1)) / gap)
    share = np.arange(steps + 1) / max(steps, 1)
    return x1 + (x2 - x1) * share, y1 + (y2 - y1) * share


def _nearest_of_beam(x1: float, y1: float, x2: float, y2: float) -> tuple[float, float]:
    """Return the point of a line nearest to (0, 0).  The order of operations is that of the kernel, for equal rounding."""
    wx, wy = x2 - x1, y2 - y1
    length = wx * wx + wy * wy
    share = min(max(-(x1 * wx + y1 * wy) / length, 0.0), 1.0) if length else 0.0
    return x1 + share * wx, y1 + share * wy


def _hazard(e: ReferenceEntity, now: ReferenceState) -> tuple[float, float, float] | None:
    """Return (dx, dy, radius) of an entity in ``hazards``; None if it is not a hazard or outside the window."""
    dx, dy = _offset(e, now)
    if beam := _beam(e, now, now.ninja["x"], now.ninja["y"]):
        dx, dy = _nearest_of_beam(*beam)
    elif e.kind == kinds.GAUSS_TURRET:
        turret = now.movers[e.index]
        if turret.state != TARGETING:
            return None
        dx, dy = turret.target_x - now.ninja["x"], turret.target_y - now.ninja["y"]
    if max(abs(dx), abs(dy)) > WINDOW_REACH:
        return None
    if e.kind in kinds.MINES:
        return dx, dy, MINE_RADIUS[now.states[e.index].state]
    if e.kind == kinds.THWUMP:  # the centre must be in the window, the face may be outside
        return dx + FACE_AHEAD * e.facing[0], dy + FACE_AHEAD * e.facing[1], FACE_RADIUS
    radius = BEAM_RADIUS if e.kind in _SHOOTERS else KILLERS.get(e.kind)
    return None if radius is None else (dx, dy, radius)


def hazards(reference: ReferenceLevel, now: ReferenceState, next_step: np.ndarray) -> np.ndarray:
    """Return float32[8, 5]: offset, velocity and radius of the nearest hazards.  Ties: first mines by cell, then movers."""
    candidates = []
    for e in reference.listed:
        if hazard := _hazard(e, now):
            dx, dy, radius = hazard
            order = (0, clamped_cell(*position(e, now)), e.order) if e.kind in kinds.MINES else (1, (), e.index)
            candidates.append((dx * dx + dy * dy, order, (dx, dy, *velocity(e, now), radius)))
    out = np.zeros(layout.SPECS["hazards"].shape, np.float32)
    out[:, 1] = 2 * WINDOW_REACH  # no hazard
    for i, (_, _, values) in enumerate(sorted(candidates)[: layout.NUM_HAZARDS]):
        out[i] = values
    return out


def surroundings(reference: ReferenceLevel, now: ReferenceState, next_step: np.ndarray) -> np.ndarray:
    """Return uint8[3, 19, 19]: solid shares of 12 px squares, deadly entities, one-ways."""
    size = layout.SURROUNDINGS_SIZE
    solid, deadly, one_way = out = np.zeros((3, size, size), np.int64)
    solid[:] = _solid_shares(reference, now)
    ninja_x, ninja_y = now.ninja["x"], now.ninja["y"]
    for e in reference.listed:
        if e.door and now.states[e.index].closed:
            x1, y1, x2, y2 = e.door
            share = np.arange(DOOR_POINTS) / (DOOR_POINTS - 1)
            left, top = ninja_x - WINDOW_REACH, ninja_y - WINDOW_REACH
            _dot(solid, (x1 + (x2 - x1) * share - left) / SQUARE, (y1 + (y2 - y1) * share - top) / SQUARE, 255)
        if beam := _beam(e, now, ninja_x, ninja_y):
            _draw(deadly, beam)
        dx, dy = _offset(e, now)
        if max(abs(dx), abs(dy)) > WINDOW_REACH:
            continue
        if e.kind in BODIES and not (e.kind == kinds.SHOVE_THWUMP and now.movers[e.index].state > 1):
            np.maximum(solid, (255 * _covered(dx, dy, BODIES[e.kind])).astype(np.int64), out=solid)
        rocket = e.kind == kinds.ROCKET_TURRET and now.movers[e.index].state == FIRING
        if rocket or e.kind in KILLERS or (e.kind in kinds.MINES and now.states[e.index].state != DORMANT):
            _spread(deadly, dx, dy)
        if line := _line(e, dx, dy):
            _draw(one_way if e.kind == kinds.ONE_WAY else deadly, line)
    return np.minimum(out, 255).astype(np.uint8)


def _draw(plane: np.ndarray, line: tuple[float, float, float, float]) -> None:
    """Fill the squares that a line, px from the ninja, crosses."""
    x, y = _points(line, LINE_GAP)
    _dot(plane, (x + WINDOW_REACH) / SQUARE, (y + WINDOW_REACH) / SQUARE, 255)


def _solid_shares(reference: ReferenceLevel, now: ReferenceState) -> np.ndarray:
    """Return the solid share of each square, 0..255, int64[19, 19], from 16 x 16 samples per half-cell."""
    size = layout.SURROUNDINGS_SIZE
    left, top = (now.ninja["x"] - WINDOW_REACH) / SQUARE, (now.ninja["y"] - WINDOW_REACH) / SQUARE
    column, row = math.floor(left), math.floor(top)
    fx, fy = int((left - column) * FINE), int((top - row) * FINE)
    fine = _cut(reference.halves, column, row, size + 1).repeat(FINE, 0).repeat(FINE, 1)
    window = fine[fy : fy + FINE * size, fx : fx + FINE * size]
    return window.reshape(size, FINE, size, FINE).sum(axis=(1, 3)) // FINE**2


def _cut(image: np.ndarray, left: int, top: int, size: int) -> np.ndarray:
    """Copy a square of a picture [y, x].  The picture has a margin of 1, which is repeated outside."""
    rows, columns = (
        np.clip(np.arange(size) + n + 1, 0, end - 1) for n, end in zip((top, left), image.shape, strict=True)
    )
    return image[np.ix_(rows, columns)]


def _dot(image: np.ndarray, x: np.ndarray, y: np.ndarray, value: int) -> None:
    """Set the pixels of an image [y, x] that contain the given points.  x, y: pixels from the corner."""
    c, r = np.floor(x).astype(int), np.floor(y).astype(int)
    inside = (np.minimum(c, r) >= 0) & (c < image.shape[1]) & (r < image.shape[0])
    image[r[inside], c[inside]] = value


def _covered(dx: float, dy: float, half: float) -> np.ndarray:
    """Return the share of each square that a square around (dx, dy), px from the ninja, covers: float64[19, 19]."""
    edges = np.arange(layout.SURROUNDINGS_SIZE + 1.0)
    shares = []
    for a in (dy, dx):
        low, high = (a - half + WINDOW_REACH) / SQUARE, (a + half + WINDOW_REACH) / SQUARE
        shares.append(np.clip(np.minimum(high, edges[1:]) - np.maximum(low, edges[:-1]), 0.0, None))
    return np.outer(*shares)


def _spread(plane: np.ndarray, dx: float, dy: float) -> None:
    """Add a total of 255 to the four squares nearest to a point, px from the ninja."""
    for r, share_y in _shares((dy + WINDOW_REACH) / SQUARE - 0.5):
        for c, share_x in _shares((dx + WINDOW_REACH) / SQUARE - 0.5):
            if 0 <= r < len(plane) and 0 <= c < len(plane):
                plane[r, c] += int(255 * (share_y * share_x))


def _shares(at: float) -> list[tuple[int, float]]:
    """Return (index, weight) of the two squares nearest to ``at``, measured in squares from the centre of the first one.

    Both weights are computed from the lower square, because 1 - (upper - at) may round differently.
    """
    lower = math.floor(at)
    return [(lower, 1.0 - (at - lower)), (lower + 1, at - lower)]


# --------------------------------------------------------------------------------------------------------------- images
FRAME_SCALE = 2  # px of the level per pixel of ``player_frame``
VIEW_SCALE = 6  # px of the level per pixel of ``global_view``
EXIT_HALF = 12.0  # px, half-side of the square of an exit
MINE_HALF = {True: 3.5, False: 4.0}  # px, half-side of a dormant (True) or armed mine
# Entity type -> (grey, half-side in px) of its squares, without mines and exits.
_SQUARES = {kind: [(images.DEADLY, radius)] for kind, radius in KILLERS.items()} | {
    kinds.GOLD: [(images.GOLD_GREY, 6.0)],
    kinds.EXIT_SWITCH: [(images.SWITCH_GREY, 6.0)],
    kinds.LOCKED_DOOR: [(images.SWITCH_GREY, 5.0)],
    kinds.TRAP_DOOR: [(images.SWITCH_GREY, 5.0)],
    kinds.LAUNCH_PAD: [(images.PAD_GREY, 6.0)],
    kinds.BOOST_PAD: [(images.BOOST_GREY, 6.0)],
    kinds.BOUNCE_BLOCK: [(images.BLOCK_GREY, BODIES[kinds.BOUNCE_BLOCK])],
    kinds.THWUMP: [(images.THWUMP_GREY, BODIES[kinds.THWUMP])],
    kinds.SHOVE_THWUMP: [
        (images.THWUMP_GREY, BODIES[kinds.SHOVE_THWUMP]),
        (images.DEADLY, KILLERS[kinds.SHOVE_THWUMP]),
    ],
    kinds.LASER: [(images.DEADLY, 5.9)],
    kinds.CHAINGUN_DRONE: [(images.DEADLY, 7.5)],
    kinds.LASER_DRONE: [(images.DEADLY, 7.5)],
    kinds.ROCKET_TURRET: [(images.DEADLY, 6.0)],
    kinds.GAUSS_TURRET: [(images.DEADLY, 6.0)],
}
_NINJA_DISC = np.hypot(*np.ogrid[-5.5:6.5, -5.5:6.5]) <= 5.0  # pixels around the middle of ``player_frame``


def _squares(e: ReferenceEntity, now: ReferenceState) -> list[tuple[int, float]]:
    """Return (grey, half-side in px) of the squares of an entity."""
    state = now.states[e.index]
    if e.kind in kinds.MINES:
        dormant = state.state == DORMANT
        return [(images.EXIT_CLOSED if dormant else images.DEADLY, MINE_HALF[dormant])]
    if e.kind == kinds.EXIT:
        return [(images.EXIT_OPEN if state.clock else images.EXIT_CLOSED, EXIT_HALF)]
    return _SQUARES.get(e.kind, []) if state.active else []


def _paint(image: np.ndarray, x1: int, y1: int, x2: int, y2: int, grey: int) -> None:
    image[max(y1, 0) : max(y2, 0), max(x1, 0) : max(x2, 0)] = grey


def _paint_entities(
    image: np.ndarray,
    reference: ReferenceLevel,
    now: ReferenceState,
    scale: int,
    corner: tuple[int, int],
    margin: int,
    rounding: float,
) -> None:
    """Draw all entities into a picture [y, x].

    scale: px of the level per pixel of the picture.
    corner: (x, y) of the picture's corner, pixels.
    margin: pixels added to a door's segment on the left and at the top.
    rounding: added to the edges of squares before they are rounded down to whole pixels.
    """
    left, top = corner
    for e in reference.listed:
        if e.door and now.states[e.index].closed:
            x1, y1, x2, y2 = (int(v / scale) for v in e.door)
            _paint(image, x1 - margin - left, y1 - margin - top, x2 + 1 - left, y2 + 1 - top, images.DOOR_GREY)
        x, y = position(e, now)
        for grey, half in _squares(e, now):
            x1, y1, x2, y2 = (math.floor(v / scale + rounding) for v in (x - half, y - half, x + half, y + half))
            _paint(image, x1 - left, y1 - top, x2 - left, y2 - top, grey)
        if line := _beam(e, now, 0.0, 0.0) or _line(e, x, y):
            xs, ys = _points(line, scale)
            grey = images.ONE_WAY_GREY if e.kind == kinds.ONE_WAY else images.DEADLY
            _dot(image, np.floor(xs / scale) - left, np.floor(ys / scale) - top, grey)


def player_frame(reference: ReferenceLevel, now: ReferenceState, next_step: np.ndarray) -> np.ndarray:
    """Return uint8[84, 84, 1], y first: a part of the level's picture with all entities drawn on top."""
    size = layout.PLAYER_FRAME_SIZE
    left, top = (math.floor(now.ninja[axis] / FRAME_SCALE) - size // 2 for axis in "xy")
    image = _cut(reference.frame_picture, left, top, size)
    _paint_entities(image, reference, now, FRAME_SCALE, (left, top), 1, 0.0)
    middle = slice(size // 2 - 6, size // 2 + 6)
    image[middle, middle][_NINJA_DISC] = images.NINJA_GREY
    return image[:, :, None]


def global_view(reference: ReferenceLevel, now: ReferenceState, next_step: np.ndarray) -> np.ndarray:
    """Return uint8[176, 100, 1], x first: the picture of the level with all entities drawn on top."""
    image = reference.view_picture.copy()
    _paint_entities(image, reference, now, VIEW_SCALE, (0, 0), 0, 0.5)
    x, y = (int((now.ninja[axis] - NINJA_RADIUS) / VIEW_SCALE + 0.5) for axis in "xy")
    _paint(image, x, y, x + 3, y + 3, images.NINJA_GREY)
    return image.T[:, :, None]


def graph_state(reference: ReferenceLevel, now: ReferenceState, next_step: np.ndarray) -> np.ndarray:
    """Return int64[8]: the level's number, then one bit per exit, exit switch, door with a switch and toggle mine."""
    identity = f"{reference.level.fingerprint} {reference.completions}".encode()
    bits = 0
    for bit, is_set in enumerate(_flags(reference, now)):
        bits |= is_set << bit
    number = hashlib.sha256(identity).digest()[:8]
    words = number + (bits % (1 << 64 * (layout.GRAPH_WORDS - 1))).to_bytes(8 * (layout.GRAPH_WORDS - 1), "little")
    return np.frombuffer(words, "<i8")


def _flags(reference: ReferenceLevel, now: ReferenceState) -> Iterator[bool]:
    for e in reference.listed:
        state = now.states[e.index]
        if e.kind == kinds.EXIT:
            yield bool(state.clock)
        elif e.kind == kinds.EXIT_SWITCH:
            yield not state.active
        elif e.kind in kinds.SWITCH_OF_DOOR:
            yield bool(state.closed)
        elif e.kind == kinds.TOGGLE_MINE:
            yield state.state == 0


# Key of an observation -> its reference implementation, except ``foresight`` (shadow/foresight.py).
VIEWS: dict[str, Callable[[ReferenceLevel, ReferenceState, np.ndarray], np.ndarray]] = {
    view.__name__: view
    for view in (
        game_state,
        reachability_features,
        entity_positions,
        switch_states,
        hazards,
        surroundings,
        player_frame,
        global_view,
        graph_state,
    )
}
