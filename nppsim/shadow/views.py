"""The observations, each from the documented meaning (``docs/observations.md``); images are painted on whole pictures."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from nppsim.level import EXIT, EXIT_SWITCH, GOLD, LOCKED_DOOR, MINE, REGULAR_DOOR, TOGGLE_MINE
from nppsim.observe import layout
from nppsim.shadow.geometry import Entity, Moment, clamped_cell, position, velocity
from nppsim.shadow.level_twin import MARGIN, LevelTwin
from nppsim.shadow.paths import COLUMNS, ROWS, UNIT, follow

DORMANT = 1  # state of a mine
REACH = layout.SURROUNDINGS_SIZE * 6  # px from the ninja to the edge of ``surroundings``


# -------------------------------------------------------------------------------------------------------------- vectors
def game_state(twin: LevelTwin, now: Moment, hop: np.ndarray) -> np.ndarray:
    """float32[26]: the components of ``layout`` by name."""
    ninja = now.ninja
    names = ("standing", "running", "braking", "jumping", "falling", "wall_sliding")
    values = {f"state_{name}": float(ninja["state"] == k) for k, name in enumerate(names)}
    values |= {name: ninja[name] for name in ("x", "y", "vx", "vy", "airborne", "walled", "wall_normal")}
    values |= {name: ninja[name] for name in ("gravity", "drag", "jump_held")}
    values |= {f"{name}_buffer": ninja[f"{name}_buffer"] for name in ("jump", "floor", "wall", "pad")}
    values |= {"jump_hold": ninja["hold"], "ceiling_contact": float(ninja["ceiling_count"] > 0)}
    for axis in "xy":
        values[f"floor_normal_{axis}"] = ninja[f"floor_{axis}"]
        values[f"pad_direction_{axis}"] = ninja[f"pad_{axis}"]
    return np.array([values[name] for name in layout.SPECS["game_state"].components], np.float32)


def reachability_features(twin: LevelTwin, now: Moment, hop: np.ndarray) -> np.ndarray:
    """float32[8].  hop: uint8[2, 4539], the simulator's: of several shortest ways it says which one was chosen."""
    taken = now.ninja["switch_taken"]
    px, point = twin.way(now)
    if point is None:
        return np.array([layout.MAX_PATH, layout.MAX_PATH, 0, 0, 0, 0, taken, 0], np.float32)
    chosen = hop[int(taken)].reshape(COLUMNS, ROWS)
    near, far = follow(chosen, point, 3), follow(chosen, point, 10)
    offsets = [12.0 * place[axis] - now.ninja["xy"[axis]] for place in (near, far) for axis in (0, 1)]
    beyond = 0.0 if taken else twin.ways(now).onward * UNIT
    return np.array([max(px - beyond, 0.0), px, *offsets, taken, 1.0], np.float32)


def entity_positions(twin: LevelTwin, now: Moment, hop: np.ndarray) -> np.ndarray:
    """float32[6]: ninja, then switch and door of an open exit, else of the first exit whose switch is left, else zeros."""
    opened = [e for e in twin.exits if now.states[e.index].clock]
    left = [e for e in twin.exits if now.states[e.partner].active]
    out = [now.ninja["x"], now.ninja["y"], 0.0, 0.0, 0.0, 0.0]
    for e in (opened or left)[:1]:
        out[2:] = *position(twin.listed[e.partner], now), *position(e, now)
    return np.array(out, np.float32)


def switch_states(twin: LevelTwin, now: Moment, hop: np.ndarray) -> np.ndarray:
    """float32[25]: five locked doors: switch, middle of the door, open."""
    out = np.zeros((layout.NUM_DOORS, 5), np.float32)
    for row, e in zip(out, (e for e in twin.listed if e.kind == LOCKED_DOOR), strict=False):
        x1, y1, x2, y2 = e.door
        row[:] = *position(e, now), (x1 + x2) / 2, (y1 + y2) / 2, not now.states[e.index].closed
    return out.ravel()


def _mines_in_reach(twin: LevelTwin, now: Moment) -> Iterator[tuple[Entity, float, float]]:
    """(mine, dx, dy) of those inside the window, px from the ninja."""
    for e in twin.listed:
        if e.kind in (MINE, TOGGLE_MINE):
            x, y = position(e, now)
            dx, dy = x - now.ninja["x"], y - now.ninja["y"]
            if max(abs(dx), abs(dy)) <= REACH:
                yield e, dx, dy


def hazards(twin: LevelTwin, now: Moment, hop: np.ndarray) -> np.ndarray:
    """float32[8, 5]: the nearest mines inside the window: offset, velocity, radius; ties in gather order."""
    found = []
    for e, dx, dy in _mines_in_reach(twin, now):
        radius = (4.0, 3.5, 4.5)[now.states[e.index].state]
        row = (dx, dy, *velocity(e, now), radius)
        found.append((dx * dx + dy * dy, clamped_cell(*position(e, now)), e.place, row))
    out = np.zeros(layout.SPECS["hazards"].shape, np.float32)
    for row, item in zip(out, sorted(found), strict=False):
        row[:] = item[-1]
    return out


def surroundings(twin: LevelTwin, now: Moment, hop: np.ndarray) -> np.ndarray:
    """uint8[3, 19, 19]: share of 12 px squares that is solid, points of active mines spread over four squares, and no
    one-ways."""
    size = layout.SURROUNDINGS_SIZE
    left, top = now.ninja["x"] - REACH, now.ninja["y"] - REACH
    out = np.zeros((3, size, size), np.int64)
    column, row = math.floor(left / 12), math.floor(top / 12)
    part = twin.halves[row + MARGIN : row + MARGIN + 1 + size, column + MARGIN : column + MARGIN + 1 + size]
    fx, fy = int((left / 12 - column) * 16), int((top / 12 - row) * 16)
    window = part.repeat(16, 0).repeat(16, 1)[fy : fy + 16 * size, fx : fx + 16 * size]
    out[0] = window.reshape(size, 16, size, 16).sum(axis=(1, 3)) // 256
    for e in twin.listed:
        if e.door and now.states[e.index].closed:
            x1, y1, x2, y2 = e.door
            for share in (0.0, 0.25, 0.5, 0.75, 1.0):
                x, y = x1 + (x2 - x1) * share, y1 + (y2 - y1) * share
                c, r = math.floor((x - left) / 12), math.floor((y - top) / 12)
                if 0 <= c < size and 0 <= r < size:
                    out[0, r, c] = 255
    for e, dx, dy in _mines_in_reach(twin, now):
        if now.states[e.index].state != DORMANT:
            for r, share_y in _shares((dy + REACH) / 12 - 0.5):
                for c, share_x in _shares((dx + REACH) / 12 - 0.5):
                    if 0 <= r < size and 0 <= c < size:
                        out[1, r, c] = min(out[1, r, c] + int(255 * (share_y * share_x)), 255)
    return out.astype(np.uint8)


def _shares(at: float) -> list[tuple[int, float]]:
    """The two squares that a point lies between, in squares from the first one's centre, with their shares of it.

    Both from the distance to the lower one, because 1 - (upper - at) may round to another share.
    """
    lower = math.floor(at)
    return [(lower, 1.0 - (at - lower)), (lower + 1, at - lower)]


# --------------------------------------------------------------------------------------------------------------- images
GREY = {"deadly": 0, "gold": 128, "switch": 160, "shut": 112, "exit": 208, "door": 224, "ninja": 192}
_NINJA_DISC = np.hypot(*np.ogrid[-5.5:6.5, -5.5:6.5]) <= 5.0  # pixels around the middle of ``player_frame``


def _mark(e: Entity, now: Moment) -> tuple[int, float] | None:
    """(grey, half-size in px) of an entity, None if it is not drawn."""
    state = now.states[e.index]
    if e.kind in (MINE, TOGGLE_MINE):
        return (GREY["shut"], 3.5) if state.state == DORMANT else (GREY["deadly"], 4.0)
    if e.kind == EXIT:
        return GREY["exit" if state.clock else "shut"], 12.0
    if not state.active or e.kind == REGULAR_DOOR:
        return None
    return {GOLD: (GREY["gold"], 6.0), EXIT_SWITCH: (GREY["switch"], 6.0)}.get(e.kind, (GREY["switch"], 5.0))


def _paint(image, x1, y1, x2, y2, grey):
    image[max(y1, 0) : max(y2, 0), max(x1, 0) : max(x2, 0)] = grey


def player_frame(twin: LevelTwin, now: Moment, hop: np.ndarray) -> np.ndarray:
    """uint8[84, 84, 1], y first: the part around the ninja of a picture of the whole level, at 2 px a pixel."""
    margin = layout.PLAYER_FRAME_SIZE
    image = twin.frame_picture.copy()
    for e in twin.listed:
        if e.door and now.states[e.index].closed:
            x1, y1, x2, y2 = (int(v / 2) + margin for v in e.door)
            _paint(image, x1 - 1, y1 - 1, x2 + 1, y2 + 1, GREY["door"])
        if mark := _mark(e, now):
            (x, y), (grey, half) = position(e, now), mark
            _paint(image, *(int(v / 2) + margin for v in (x - half, y - half, x + half, y + half)), grey)
    x, y = math.floor(now.ninja["x"] / 2) + margin, math.floor(now.ninja["y"] / 2) + margin
    image[y - 6 : y + 6, x - 6 : x + 6][_NINJA_DISC] = GREY["ninja"]
    half = margin // 2
    return image[y - half : y + half, x - half : x + half, None]


def global_view(twin: LevelTwin, now: Moment, hop: np.ndarray) -> np.ndarray:
    """uint8[176, 100, 1], x first: the whole level at 6 px a pixel."""
    image = twin.view_picture.copy()
    for e in twin.listed:
        if e.door and now.states[e.index].closed:
            x1, y1, x2, y2 = (int(v / 6) for v in e.door)
            _paint(image, x1, y1, x2 + 1, y2 + 1, GREY["door"])
        if mark := _mark(e, now):
            (x, y), (grey, half) = position(e, now), mark
            x1, y1, x2, y2 = (int(v / 6 + 0.5) for v in (x - half, y - half, x + half, y + half))
            _paint(image, x1, y1, max(x2, x1 + 1), max(y2, y1 + 1), grey)
    x, y = int((now.ninja["x"] - 10) / 6 + 0.5), int((now.ninja["y"] - 10) / 6 + 0.5)
    _paint(image, x, y, x + 3, y + 3, GREY["ninja"])
    return image.T[:, :, None]


# Key of ``layout`` -> its twin.
VIEWS: dict[str, Callable[[LevelTwin, Moment, np.ndarray], np.ndarray]] = {
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
    )
}
