"""Slow twins of the observations and of the reward ledger; see ``naive`` for what they may and may not use.

``ninja`` and ``states`` are the simulator's records: one ninja, and its entities in type order (as ``listed``).
"""

import math

import numpy as np
from naive import HEIGHT, UNIT, WIDTH, clamped_cell, solid, stage

from nppsim.level import EXIT, EXIT_SWITCH, GOLD, LOCKED_DOOR, MINE, REGULAR_DOOR, TOGGLE_MINE, TRAP_DOOR
from nppsim.observe import layout

DORMANT = 1
WON, DEAD = 8, 6
DIAGONAL = math.hypot(1056, 600)


def closed_doors(listed, states):
    """Indices of the doors with switches that are closed."""
    return [k for k, e in enumerate(listed) if e.kind in (LOCKED_DOOR, TRAP_DOOR) and states[k]["closed"]]


# -------------------------------------------------------------------------------------------------------------- vectors
def game_state(ninja):
    """The components of ``layout`` by name."""
    names = ("standing", "running", "braking", "jumping", "falling", "wall_sliding")
    values = {f"state_{name}": float(ninja["state"] == k) for k, name in enumerate(names)}
    values |= {name: float(ninja[name]) for name in ("x", "y", "vx", "vy", "airborne", "walled", "wall_normal")}
    values |= {name: float(ninja[name]) for name in ("gravity", "drag", "jump_held")}
    values |= {f"{name}_buffer": float(ninja[f"{name}_buffer"]) for name in ("jump", "floor", "wall", "pad")}
    values |= {"jump_hold": float(ninja["hold"]), "ceiling_contact": float(ninja["ceiling_count"] > 0)}
    for axis in "xy":
        values[f"floor_normal_{axis}"] = float(ninja[f"floor_{axis}"])
        values[f"pad_direction_{axis}"] = float(ninja[f"pad_{axis}"])
    return np.array([values[name] for name in layout.SPECS["game_state"].components], np.float32)


def entity_positions(ninja, listed, states):
    """Ninja, then switch and door of an open exit, else of the first exit whose switch is left, else zeros."""
    exits = [k for k, e in enumerate(listed) if e.kind == EXIT]
    opened = [k for k in exits if states[k]["clock"]]
    left = [k for k in exits if states[k + 1]["active"]]
    out = [float(ninja["x"]), float(ninja["y"]), 0.0, 0.0, 0.0, 0.0]
    for k in (opened or left)[:1]:
        out[2:] = listed[k + 1].x, listed[k + 1].y, listed[k].x, listed[k].y
    return np.array(out, np.float32)


def switch_states(listed, states):
    """Five locked doors: switch, middle of the door, open."""
    out = np.zeros((layout.NUM_DOORS, 5), np.float32)
    locked = [k for k, e in enumerate(listed) if e.kind == LOCKED_DOOR][: layout.NUM_DOORS]
    for row, k in zip(out, locked, strict=False):
        e = listed[k]
        row[:] = e.x, e.y, (e.door[0] + e.door[2]) / 2, (e.door[1] + e.door[3]) / 2, not states[k]["closed"]
    return out.ravel()


def hazards(ninja, listed, states):
    """The nearest mines inside the window: offset, velocity, radius; ties in gather order."""
    reach = layout.SURROUNDINGS_SIZE * 6
    found = []
    for k, e in enumerate(listed):
        dx, dy = e.x - ninja["x"], e.y - ninja["y"]
        if e.kind in (MINE, TOGGLE_MINE) and max(abs(dx), abs(dy)) <= reach:
            radius = (4.0, 3.5, 4.5)[states[k]["state"]]
            found.append((dx * dx + dy * dy, clamped_cell(e.x, e.y), e.place, (dx, dy, 0.0, 0.0, radius)))
    out = np.zeros(layout.SPECS["hazards"].shape, np.float32)
    for row, item in zip(out, sorted(found), strict=False):
        row[:] = item[-1]
    return out


def raster(level, points):
    """bool[25 * points, 44 * points], y first: which of points x points samples of each tile are solid."""
    centre = (np.arange(points) + 0.5) * 24 / points
    x, y = np.meshgrid(centre, centre)
    out = np.zeros((HEIGHT * points, WIDTH * points), bool)
    for (cx, cy), tile in stage(level).items():
        out[cy * points : (cy + 1) * points, cx * points : (cx + 1) * points] = solid(tile, x, y)
    return out


def averaged(image, size):
    """Means of size x size blocks."""
    h, w = image.shape
    return image.reshape(h // size, size, w // size, size).mean(axis=(1, 3))


def surroundings(level, ninja, listed, states):
    """Share of 12 px squares that is solid, points of active mines spread over four squares, and no one-ways."""
    size, reach = layout.SURROUNDINGS_SIZE, layout.SURROUNDINGS_SIZE * 6
    left, top = ninja["x"] - reach, ninja["y"] - reach
    out = np.zeros((3, size, size), np.int64)
    halves = np.pad((averaged(raster(level, 16), 8) * 255).astype(int), 30, constant_values=255)
    column, row = math.floor(left / 12), math.floor(top / 12)
    part = halves[row + 30 : row + 31 + size, column + 30 : column + 31 + size].repeat(16, 0).repeat(16, 1)
    fx, fy = int((left / 12 - column) * 16), int((top / 12 - row) * 16)
    window = part[fy : fy + 16 * size, fx : fx + 16 * size]
    out[0] = window.reshape(size, 16, size, 16).sum(axis=(1, 3)) // 256
    for e, state in zip(listed, states, strict=False):
        if e.door and state["closed"]:
            for share in (0.0, 0.25, 0.5, 0.75, 1.0):
                x, y = e.door[0] + (e.door[2] - e.door[0]) * share, e.door[1] + (e.door[3] - e.door[1]) * share
                c, r = math.floor((x - left) / 12), math.floor((y - top) / 12)
                if 0 <= c < size and 0 <= r < size:
                    out[0, r, c] = 255
        dx, dy = e.x - ninja["x"], e.y - ninja["y"]
        if e.kind in (MINE, TOGGLE_MINE) and state["state"] != DORMANT and max(abs(dx), abs(dy)) <= reach:
            u, v = (dx + reach) / 12 - 0.5, (dy + reach) / 12 - 0.5  # in squares, between their centres
            for r in range(size):
                for c in range(size):
                    weight = max(0.0, 1.0 - abs(r - v)) * max(0.0, 1.0 - abs(c - u))
                    out[1, r, c] = min(out[1, r, c] + int(255 * weight), 255)
    return out.astype(np.uint8)


# --------------------------------------------------------------------------------------------------------------- images
GREY = {"solid": 255, "deadly": 0, "gold": 128, "switch": 160, "shut": 112, "exit": 208, "door": 224, "ninja": 192}


def _marks(listed, states):
    """(grey, half-size) of each entity that is drawn, else None."""
    for e, state in zip(listed, states, strict=False):
        if e.kind in (MINE, TOGGLE_MINE):
            yield (GREY["shut"], 3.5) if state["state"] == DORMANT else (GREY["deadly"], 4.0)
        elif e.kind == EXIT:
            yield GREY["exit" if state["clock"] else "shut"], 12.0
        elif not state["active"] or e.kind == REGULAR_DOOR:
            yield None
        else:
            yield {GOLD: (GREY["gold"], 6.0), EXIT_SWITCH: (GREY["switch"], 6.0)}.get(e.kind, (GREY["switch"], 5.0))


def _paint(image, y1, y2, x1, x2, grey):
    image[max(y1, 0) : max(y2, 0), max(x1, 0) : max(x2, 0)] = grey


def player_frame(level, ninja, listed, states):
    """The part of a picture of the whole level, at 2 px a pixel, that is around the ninja."""
    margin = layout.PLAYER_FRAME_SIZE
    image = np.pad(np.round(64 + 191 * averaged(raster(level, 24), 2)), margin, constant_values=255)
    for e, state, mark in zip(listed, states, _marks(listed, states), strict=False):
        if e.door and state["closed"]:
            x1, y1, x2, y2 = (int(v / 2) + margin for v in e.door)
            _paint(image, y1 - 1, y2 + 1, x1 - 1, x2 + 1, GREY["door"])
        if mark:
            x1, x2, y1, y2 = (int(v / 2) + margin for v in (e.x - mark[1], e.x + mark[1], e.y - mark[1], e.y + mark[1]))
            _paint(image, y1, y2, x1, x2, mark[0])
    x, y = math.floor(ninja["x"] / 2) + margin, math.floor(ninja["y"] / 2) + margin
    rows, columns = np.ogrid[: image.shape[0], : image.shape[1]]
    image[np.hypot(rows + 0.5 - y, columns + 0.5 - x) <= 5.0] = GREY["ninja"]
    half = margin // 2
    return image[y - half : y + half, x - half : x + half, None].astype(np.uint8)


def global_view(level, ninja, listed, states):
    """The whole level at 6 px a pixel, x first."""
    image = np.round(64 + 191 * averaged(raster(level, 24), 6))
    for e, state, mark in zip(listed, states, _marks(listed, states), strict=False):
        if e.door and state["closed"]:
            x1, y1, x2, y2 = (int(v / 6) for v in e.door)
            _paint(image, y1, y2 + 1, x1, x2 + 1, GREY["door"])
        if mark:
            low_x, high_x, low_y, high_y = (
                int(v / 6 + 0.5) for v in (e.x - mark[1], e.x + mark[1], e.y - mark[1], e.y + mark[1])
            )
            _paint(image, low_y, max(high_y, low_y + 1), low_x, max(high_x, low_x + 1), mark[0])
    x, y = int((ninja["x"] - 10) / 6 + 0.5), int((ninja["y"] - 10) / 6 + 0.5)
    _paint(image, y, y + 3, x, x + 3, GREY["ninja"])
    return image.T[:, :, None].astype(np.uint8)


# -------------------------------------------------------------------------------------------------------------- rewards
class Ledger:
    """The reward terms of one episode, decision by decision.

    config: a RewardConfig.  fields_of: closed doors -> (field to the switch, field to the exit, units between them).
    """

    def __init__(self, config, gamma, listed, fields_of, path_start, ninja, states):
        self.config, self.gamma, self.listed, self.fields_of = config, gamma, listed, fields_of
        self.path_start = path_start
        self.given = set()
        self.visited = set(self._blocks(ninja))
        self.taken = bool(ninja["switch_taken"])
        self.best = self._straight(ninja, states)
        self.potential = self._potential(ninja, states)
        self.frame = int(ninja["frame"])

    @staticmethod
    def _blocks(ninja):
        cx, cy = clamped_cell(ninja["x"], ninja["y"])
        return [(size, cx // size, cy // size) for size in (1, 4, 8, 16)]

    def _straight(self, ninja, states):
        if ninja["switch_taken"]:
            goals = [e for e, s in zip(self.listed, states, strict=False) if e.kind == EXIT and s["clock"]]
        else:
            goals = [e for e in self.listed if e.kind == EXIT_SWITCH]
        return min([math.hypot(e.x - ninja["x"], e.y - ninja["y"]) for e in goals] + [DIAGONAL])

    def _potential(self, ninja, states):
        c = self.config
        if not c.shaping or ninja["state"] in (WON, DEAD):
            return 0.0
        if c.potential == 1:
            return c.shaping * (1 - self._straight(ninja, states) / DIAGONAL)
        to_switch, to_exit, _ = self.fields_of(tuple(closed_doors(self.listed, states)))
        way, _ = (to_exit if ninja["switch_taken"] else to_switch).way(ninja["x"], ninja["y"])
        return c.shaping * (self.path_start - min(way, 2 * self.path_start)) / max(self.path_start, 200.0)

    def decide(self, frames):
        """The terms of one decision, in the order of ``reward.TERMS``; frames: (ninja, states) after each frame."""
        c, (ninja, states) = self.config, frames[-1]
        first_touch = bool(ninja["switch_taken"]) and not self.taken
        self.taken |= first_touch
        before, self.potential = self.potential, self._potential(ninja, states)
        straight = self._straight(ninja, states)
        gained = 0.0 if first_touch else max(self.best - straight, 0.0)
        self.best = straight if first_touch else min(self.best, straight)
        near = straight < 50.0 and self.taken not in self.given
        if near and c.proximity:
            self.given.add(self.taken)
        known = len(self.visited)
        for frame, _ in frames:
            self.visited.update(self._blocks(frame))
        elapsed, self.frame = int(ninja["frame"]) - self.frame, int(ninja["frame"])
        return [
            c.win * (ninja["state"] == WON),
            c.death * (ninja["state"] == DEAD),
            c.switch * first_touch,
            c.time * elapsed,
            self.gamma * self.potential - before,
            c.closest * gained,
            c.proximity * near,
            c.exploration * (len(self.visited) - known),
        ]


def way_point_offsets(ninja, points):
    """{(dx, dy), ...} of lattice points from the ninja, px, as float32 sees them."""
    return {(float(np.float32(12.0 * i - ninja["x"])), float(np.float32(12.0 * j - ninja["y"]))) for i, j in points}


def path_lengths(way, onward, taken):
    """(path to the objective, path to the exit) in px."""
    return max(way - (0.0 if taken else onward * UNIT), 0.0), way
