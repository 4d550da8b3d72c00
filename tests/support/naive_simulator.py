"""The whole physics of N++ in plain Python: the reference that the compiled kernels are tested against.

Written from the rules alone (section numbers below are those of docs/physics.md), one object per tile surface and per
entity; formulas are evaluated in the order in which the rules give them, because the reference must agree bit for
bit.  Nothing comes from the package but ``Level``, the file format.

    simulator = Simulator(level)
    simulator.tick(3)                                # right and jump
    simulator.ninja.x, simulator.frame(), simulator.entity_bits()

Units: px (1/24 of a tile) and frames; x to the right, y downward.
"""

import math
from math import floor, sqrt

from nppsim.levels.level import Level
from nppsim.physics import trigonometry

from worlds import callable_kernel

WIDTH, HEIGHT = 44, 25  # cells of the stage

# ------------------------------------------------------------------------------------------------ tiles (section 3)
# Shape, its six horizontal half-edges (row by row), its six vertical ones (column by column), then its diagonal or arc.
# Half-edges: - open side up or left, + open side down or right, ~ no surface but blocks the half-cell grid, . nothing.
# Diagonals: x1,y1,x2,y2.  Arcs of radius 24: centre x,y and the direction of the quarter circle from there.
SHAPES = """
     0 ...... ......
     1 --..++ --..++
     2 --++.. -...+.
     3 .-...+ ..--++
     4 ..--++ .-...+
     5 -...+. --++..
     6 --.~~. --.~~. line 0,24,24,0
     7 --~..~ ~..~++ line 0,0,24,24
     8 .~~.++ .~~.++ line 24,0,0,24
     9 ~..~++ --~..~ line 24,24,0,0
    10 --..~~ --..~~ convex 0,0,1,1
    11 --..~~ ~~..++ convex 24,0,-1,1
    12 ~~..++ ~~..++ convex 24,24,-1,-1
    13 ~~..++ --..~~ convex 0,24,1,-1
    14 --.~~. --.~~. concave 24,24,-1,-1
    15 --~..~ ~..~++ concave 0,24,1,-1
    16 .~~.++ .~~.++ concave 0,0,1,1
    17 ~..~++ --~..~ concave 24,0,-1,1
    18 --~~.. -...~. line 0,12,24,0
    19 --~~.. ~...+. line 0,0,24,12
    20 ..~~++ .~...+ line 24,12,0,24
    21 ..~~++ .-...~ line 24,24,0,12
    22 --..~~ --..+~ line 0,24,24,12
    23 --..~~ -~..++ line 0,12,24,24
    24 ~~..++ ~-..++ line 24,0,0,12
    25 ~~..++ --..~+ line 24,12,0,0
    26 -...~. --~~.. line 0,24,12,0
    27 .-...~ ..~~++ line 12,0,24,24
    28 .~...+ ..~~++ line 24,0,12,24
    29 ~...+. --~~.. line 12,24,0,0
    30 --..+~ --..~~ line 12,24,24,0
    31 --..~+ ~~..++ line 0,0,12,24
    32 ~-..++ ~~..++ line 12,0,0,24
    33 -~..++ --..~~ line 24,24,12,0
    34 --.... ......
    35 ...... ....++
    36 ....++ ......
    37 ...... --....
"""
SHAPES = {int(row.split()[0]): row.split()[1:] for row in SHAPES.strip().splitlines()}
SIGN = {"-": -1, "+": 1, "~": 0, ".": 0}
CODE = {"-": 2, "+": 2, "~": 1, ".": 0}


def clamp(value, last):
    return 0 if value < 0 else last if value > last else value


def cell_of(x, y):
    return clamp(floor(x / 24), WIDTH - 1), clamp(floor(y / 24), HEIGHT - 1)


def distance(x1, y1, x2, y2):
    dx, dy = x1 - x2, y1 - y2
    return sqrt(dx * dx + dy * dy)


def point_impact(ex, ey, wx, wy, vv, r):
    """Fraction of the way w until a point at e (relative to a circle of radius r) touches the circle (4.5)."""
    k = ex * ex + ey * ey - r * r
    if k <= 0:
        return 0.0
    if vv > 0.0001:
        b = ex * wx + ey * wy
        if b < 0:
            root = b * b - vv * k
            if root >= 0:
                return (-b - sqrt(root)) / vv
    return 1.0


class Line:
    """A straight surface from (x1, y1) to (x2, y2); doors are not oriented, and switched on and off."""

    def __init__(self, x1, y1, x2, y2, oriented=True):
        self.x1, self.y1, self.x2, self.y2 = float(x1), float(y1), float(x2), float(y2)
        self.dx, self.dy = self.x2 - self.x1, self.y2 - self.y1
        self.dd = self.dx * self.dx + self.dy * self.dy
        self.length = sqrt(self.dd)
        self.nx, self.ny = self.dx / self.length, self.dy / self.length
        self.oriented = oriented
        self.active = True

    def along(self, x, y):
        """Where the foot of (x, y) lies: 0 at the first end, 1 at the second."""
        return ((x - self.x1) * self.dx + (y - self.y1) * self.dy) / self.dd

    def closest(self, x, y):
        """(back-facing, x, y of the closest point) (4.3)."""
        dx, dy = self.dx, self.dy
        ex, ey = x - self.x1, y - self.y1
        u = (ex * dx + ey * dy) / self.dd
        u = 0.0 if u < 0 else 1.0 if u > 1 else u
        return self.oriented and ey * dx - ex * dy < 0, self.x1 + u * dx, self.y1 + u * dy

    def impact(self, x, y, wx, wy, vv, r):
        """Fraction of the way w after which a circle at (x, y) touches the surface or its ends; 1 or more: never."""
        ex, ey = x - self.x1, y - self.y1
        t = min(
            point_impact(ex, ey, wx, wy, vv, r),
            point_impact(x - self.x2, y - self.y2, wx, wy, vv, r),
        )
        nx, ny = self.nx, self.ny
        q = ex * ny - ey * nx
        s = ex * nx + ey * ny
        if abs(q) >= r:
            m = wx * ny - wy * nx
            if m * q < 0:
                hit = min((abs(q) - r) / abs(m), 1.0)
                if 0 <= s + hit * (wx * nx + wy * ny) <= self.length:
                    return min(t, hit)
        elif 0 <= s <= self.length:
            return 0.0
        return t

    def normal(self, x, y):
        """Unit vector out of the surface at its point (x, y)."""
        return -self.ny, self.nx

    def is_beside(self, x, y):
        """Return True if the closest point is inside the surface, not past one of its ends."""
        return 0 <= self.along(x, y) <= 1


class Arc:
    """A quarter circle of radius 24 around (cx, cy) in the direction (hor, ver); a convex one is a solid disc."""

    active = True

    def __init__(self, cx, cy, hor, ver, convex):
        self.cx, self.cy, self.hor, self.ver, self.convex = float(cx), float(cy), hor, ver, convex
        self.ends = ((self.cx + 24 * hor, self.cy), (self.cx, self.cy + 24 * ver))

    def closest(self, x, y):
        ex, ey = x - self.cx, y - self.cy
        if ex * self.hor > 0 and ey * self.ver > 0:
            rho = sqrt(ex * ex + ey * ey)
            back = rho < 24 if self.convex else rho > 24
            return back, self.cx + (24 * ex) / rho, self.cy + (24 * ey) / rho
        return False, *self.ends[0 if ex * self.hor > ey * self.ver else 1]

    def impact(self, x, y, wx, wy, vv, r):
        t_ends = min(point_impact(x - ax, y - ay, wx, wy, vv, r) for ax, ay in self.ends)
        ex, ey = x - self.cx, y - self.cy
        ee = ex * ex + ey * ey
        b = ex * wx + ey * wy
        outer, inner = 24 + r, 24 - r
        t = 1.0
        if ee > outer * outer:
            root = b * b - vv * (ee - outer * outer)
            if vv > 0.0001 and b < 0 and root >= 0:
                t = (-b - sqrt(root)) / vv
        elif ee < inner * inner:
            if vv > 0.0001:
                t = min((-b + sqrt(b * b - vv * (ee - inner * inner))) / vv, 1.0)
        else:
            t = 0.0
        if (ex + t * wx) * self.hor > 0 and (ey + t * wy) * self.ver > 0:
            return min(t, t_ends)
        return t_ends

    def normal(self, x, y):
        out = 24.0 if self.convex else -24.0
        return (x - self.cx) / out, (y - self.cy) / out

    def is_beside(self, x, y):
        return (x - self.cx) * self.hor > 0 and (y - self.cy) * self.ver > 0


class Stage:
    """Surfaces by cell, and the half-cell grid.

    segments[cx][cy]: list of Line and Arc, in the order of 3.5.
    tile_h, tile_v, door_h, door_v: [89][51] half-cell edges (3.6), H(i, j) and V(i, j) at [i][j].  Column 88 of H and
        row 50 of V do not exist; tiles are solid there, which is the remedy of 4.8.
    """

    def __init__(self, tiles):
        self.segments = [[[] for _ in range(HEIGHT)] for _ in range(WIDTH)]
        faces_h, faces_v, self.tile_h, self.tile_v, self.door_h, self.door_v = (
            [[0] * 51 for _ in range(89)] for _ in range(6)
        )
        for i in range(88):
            faces_h[i][0], faces_h[i][50] = 1, -1
            self.tile_h[i][0] = self.tile_h[i][50] = 1
        for j in range(50):
            faces_v[0][j], faces_v[88][j] = 1, -1
            self.tile_v[0][j] = self.tile_v[88][j] = 1
        for cx in range(WIDTH):
            for cy in range(HEIGHT):
                inside = 0 < cx < WIDTH - 1 and 0 < cy < HEIGHT - 1
                self._add_tile(cx, cy, tiles[cy - 1][cx - 1] if inside else 1, faces_h, faces_v)
        for i in range(88):
            for j in range(51):
                s = faces_h[i][j]
                if s:
                    left, right, y = 12 * i, 12 * i + 12, 12 * j
                    line = Line(left, y, right, y) if s > 0 else Line(right, y, left, y)
                    self.segments[i // 2][floor((j - 0.1 * s) / 2)].append(line)
        for i in range(89):
            for j in range(50):
                s = faces_v[i][j]
                if s:
                    x, top, bottom = 12 * i, 12 * j, 12 * j + 12
                    line = Line(x, bottom, x, top) if s > 0 else Line(x, top, x, bottom)
                    self.segments[floor((i - 0.1 * s) / 2)][j // 2].append(line)
        for j in range(51):
            self.tile_h[88][j] = 2
        for i in range(89):
            self.tile_v[i][50] = 2

    def _add_tile(self, cx, cy, tile, faces_h, faces_v):
        if tile not in SHAPES:
            return
        horizontal, vertical, *surface = SHAPES[tile]
        for k in range(6):
            i, j = 2 * cx + k % 2, 2 * cy + k // 2
            faces_h[i][j] += SIGN[horizontal[k]]
            self._merge(self.tile_h[i], j, CODE[horizontal[k]])
            i, j = 2 * cx + k // 2, 2 * cy + k % 2
            faces_v[i][j] += SIGN[vertical[k]]
            self._merge(self.tile_v[i], j, CODE[vertical[k]])
        if surface:
            kind, numbers = surface
            a, b, c, d = (int(number) for number in numbers.split(","))
            x, y = 24 * cx, 24 * cy
            if kind == "line":
                self.segments[cx][cy].append(Line(x + a, y + b, x + c, y + d))
            else:
                self.segments[cx][cy].append(Arc(x + a, y + b, c, d, kind == "convex"))

    @staticmethod
    def _merge(column, j, code):
        """Rule P: an edge stays if exactly one of its two tiles has it."""
        column[j] = 0 if column[j] and code else column[j] or code

    def segments_in(self, x1, y1, x2, y2):
        """Active surfaces of the cells that a rectangle touches (4.1)."""
        cx1, cy1 = cell_of(x1, y1)
        cx2, cy2 = cell_of(x2, y2)
        return [
            segment
            for column in self.segments[cx1 : cx2 + 1]
            for cell in column[cy1 : cy2 + 1]
            for segment in cell
            if segment.active
        ]

    def nearest(self, x, y, r):
        """(result, x, y of the point, surface): nearest point of all surfaces (4.4).

        result: 1 seen from its open side, -1 from behind, 0 if there is no surface near.
        """
        best, result, point = 9999999, 0, (0.0, 0.0, None)
        for segment in self.segments_in(x - r, y - r, x + r, y + r):
            back, px, py = segment.closest(x, y)
            d = (x - px) * (x - px) + (y - py) * (y - py)
            if not back:
                d -= 0.1
            if d < best:
                best, result, point = d, -1 if back else 1, (px, py, segment)
        return (result, *point)

    def sweep(self, x, y, wx, wy, r):
        """Fraction of the way w that a circle of radius r can go from (x, y) (4.6)."""
        m = r + 1
        x2, y2 = x + wx, y + wy
        vv = wx * wx + wy * wy
        t = 1.0
        for segment in self.segments_in(min(x, x2) - m, min(y, y2) - m, max(x, x2) + m, max(y, y2) + m):
            t = min(t, segment.impact(x, y, wx, wy, vv, r))
        return t

    def passable(self, horizontal, k, first, last, d):
        """Return True if rows (columns) first..last of half-column (half-row) k can be left in direction d (4.8)."""
        if d not in (-1, 1):
            return False
        k = k + 1 if d == 1 else k
        for m in range(first, last + 1):
            if horizontal:
                i, j = clamp(k, 88), clamp(m, 50)
                if self.tile_v[i][j] or self.door_v[i][j]:
                    return False
            else:
                i, j = clamp(m, 88), clamp(k, 50)
                if self.tile_h[i][j] or self.door_h[i][j]:
                    return False
        return True


# ------------------------------------------------------------------------------------------------ ninja (section 6)
GRAVITY_FALL, GRAVITY_JUMP = 0.06666666666666665, 0.01111111111111111
GROUND_ACCELERATION, AIR_ACCELERATION = 0.06666666666666665, 0.04444444444444444
DRAG, DRAG_SLOW = 0.9933221725495059, 0.8617738760127536
FRICTION, FRICTION_SLOW, FRICTION_WALL = 0.9459290248857720, 0.8617738760127536, 0.9113380468927672
# The same bits as in the product, which tests/nppsim/physics/test_trigonometry.py compares with exact values.
sin_cos, atan2 = callable_kernel(trigonometry.sin_cos), callable_kernel(trigonometry.atan2)

MAX_SPEED = 3.333333333333333
MAX_HOLD = 45

STANDING, RUNNING, BRAKING, JUMPING, AIRBORNE, SLIDING, DEAD, DYING, CELEBRATING, DISABLED = range(10)


def advanced(value, last):
    """A buffer one frame later: 0..last count up, everything else becomes inactive."""
    return value + 1 if 0 <= value <= last else -1


class Ninja:
    """The player: position, velocity, state machine, and the collisions that it feels."""

    def __init__(self, simulator, x, y):
        self.simulator, self.stage = simulator, simulator.stage
        self.x, self.y = x, y
        self.x0, self.y0 = x, y  # at the start of the frame
        self.vx = self.vy = 0.0
        self.vx0 = self.vy0 = 0.0  # before the collisions of the frame
        self.gravity, self.drag = GRAVITY_FALL, DRAG
        self.state = STANDING
        self.airborne = self.airborne_before = self.walled = False
        self.wall_normal = 0
        self.h = self.jump = self.previous_jump = 0
        self.hold = 0
        self.jump_buffer = self.floor_buffer = self.wall_buffer = self.pad_buffer = -1
        self.floor_x, self.floor_y = 0.0, -1.0
        self.ceiling_x, self.ceiling_y = 0.0, 1.0
        self.pad_x = self.pad_y = 0.0
        self.win_fraction = 0.0
        self.gold = 0

    @property
    def is_target(self):
        return self.state not in (DEAD, CELEBRATING, DISABLED)

    def _end(self, state):
        if self.state < DEAD:
            if self.state == JUMPING:
                self.gravity = GRAVITY_FALL
            self.state = state

    def kill(self):
        self._end(DYING)

    def win(self):
        self._end(CELEBRATING)

    def integrate(self):
        self.vx *= self.drag
        self.vy *= self.drag
        self.vy += self.gravity
        self.x0, self.y0 = self.x, self.y
        self.x += self.vx
        self.y += self.vy

    def reset_contacts(self):
        self.vx0, self.vy0 = self.vx, self.vy
        self.floors = self.ceilings = 0
        self.floor_sum_x = self.floor_sum_y = self.ceiling_sum_x = self.ceiling_sum_y = 0.0
        self.crushable = False
        self.crush_x = self.crush_y = self.crush_length = 0.0

    def _count_contact(self, steepness, nx, ny):
        """steepness: the y of the normal, possibly not of unit length; walls count as ceilings."""
        if steepness >= -0.0001:
            self.ceilings += 1
            self.ceiling_sum_x += nx
            self.ceiling_sum_y += ny
        else:
            self.floors += 1
            self.floor_sum_x += nx
            self.floor_sum_y += ny

    def collide_with_entities(self):
        """Contacts with one-ways, bounce blocks, thwumps and shove thwumps (6.4.1)."""
        for entity in self.simulator.entities_near(self.x, self.y):
            if not entity.physical:
                continue
            contact = entity.contact()
            if contact is None:
                continue
            nx, ny, depth = contact
            self.x += depth * nx
            self.y += depth * ny
            if not isinstance(entity, BounceBlock):
                self.crush_x += depth * nx
                self.crush_y += depth * ny
                self.crush_length += depth
            if isinstance(entity, Thwump):
                self.crushable = True
            if isinstance(entity, OneWay):
                c = self.vx * ny - self.vy * nx
                self.vx, self.vy = c * ny, c * (-nx)
            else:
                self.vx += depth * nx
                self.vy += depth * ny
            self._count_contact(ny, nx, ny)

    def collide_with_tiles(self):
        """Stop at the first surface on the way, then push out of all of them; closed doors too (6.4.2)."""
        wx, wy = self.x - self.x0, self.y - self.y0
        t = self.stage.sweep(self.x0, self.y0, wx, wy, 5)
        self.x, self.y = self.x0 + t * wx, self.y0 + t * wy
        for _ in range(32):
            result, px, py, _ = self.stage.nearest(self.x, self.y, 10)
            if result == 0:
                return
            dx, dy = self.x - px, self.y - py
            if abs(dx) <= 1e-7:
                dx = 0.0
            dist = sqrt(dx * dx + dy * dy)
            depth = 10 - dist * result
            if dist == 0 or depth < 1e-7:
                return
            push_x, push_y = (dx / dist) * depth, (dy / dist) * depth
            self.x += push_x
            self.y += push_y
            self.crush_x += push_x
            self.crush_y += push_y
            self.crush_length += depth
            if self.vx * dx + self.vy * dy < 0:
                c = (self.vx * dy - self.vy * dx) / (dist * dist)
                self.vx, self.vy = c * dy, c * (-dx)
            self._count_contact(dy, dx / dist, dy / dist)

    def after_collisions(self):
        """Touch entities, find walls, floor and ceiling, and die of an impact or of being crushed (6.5)."""
        wall = 0
        for entity in self.simulator.entities_near(self.x, self.y):
            if not entity.logical:
                continue
            answer = entity.touch()
            if not answer:
                continue
            if isinstance(entity, LaunchPad):
                self._launch(*answer)
            elif not wall:
                wall = answer
        wall = wall or self._wall_of_tiles()
        self.airborne_before, self.airborne, self.walled = self.airborne, True, False
        if wall:
            self.walled, self.wall_normal = True, wall
        if self.floors:
            self.airborne = False
            self.floor_x, self.floor_y = self._mean(self.floor_sum_x, self.floor_sum_y, -1.0)
            if self.state != CELEBRATING and self.airborne_before:
                self._impact(self.floor_x, self.floor_y)
        if self.ceilings:
            self.ceiling_x, self.ceiling_y = self._mean(self.ceiling_sum_x, self.ceiling_sum_y, 1.0)
            if self.state != CELEBRATING:
                self._impact(self.ceiling_x, self.ceiling_y)
        if self.crushable and self.crush_length > 0:
            crush = sqrt(self.crush_x * self.crush_x + self.crush_y * self.crush_y)
            if crush / self.crush_length < 0.05:
                self.kill()

    def _launch(self, cx, cy):
        bx, by = (cx * 2) / 3, (cy * 2) / 3
        self.x += bx
        self.y += by
        self.vx, self.vy = bx, by
        self.floors = 0
        self.floor_buffer = -1
        length = sqrt(bx * bx + by * by)
        self.pad_x, self.pad_y = bx / length, by / length
        self.pad_buffer = 0
        if self.state == JUMPING:
            self.gravity = GRAVITY_FALL
        self.state = AIRBORNE

    def _wall_of_tiles(self):
        x, y = self.x, self.y
        for segment in self.stage.segments_in(x - 10.1, y - 10.1, x + 10.1, y + 10.1):
            _, px, py = segment.closest(x, y)
            dy = y - py
            if abs(dy) < 1e-5:
                dx = x - px
                dist = sqrt(dx * dx + dy * dy)
                if 0 < dist <= 10.1 and dx:
                    return dx / dist
        return 0

    @staticmethod
    def _mean(sum_x, sum_y, vertical):
        length = sqrt(sum_x * sum_x + sum_y * sum_y)
        return (sum_x / length, sum_y / length) if length else (0.0, vertical)

    def _impact(self, nx, ny):
        if -(nx * self.vx0 + ny * self.vy0) > 6 - (4 / 3) * abs(ny):
            self.vx, self.vy = self.vx0, self.vy0
            self.kill()

    def control(self):
        """Let the inputs act: buffers, jumps, friction and the change of states (6.6)."""
        press = self.jump == 1 and self.previous_jump == 0
        self.previous_jump = self.jump
        self.pad_buffer = advanced(self.pad_buffer, 2)
        self.jump_buffer = advanced(self.jump_buffer, 4)
        self.wall_buffer = advanced(self.wall_buffer, 4)
        self.floor_buffer = advanced(self.floor_buffer, 4)
        pad_usable = 0 <= self.pad_buffer < 4
        jump_usable = 0 <= self.jump_buffer < 5
        wall_usable = 0 <= self.wall_buffer < 5
        floor_usable = 0 <= self.floor_buffer < 5
        if press and self.airborne:
            self.jump_buffer = 0
        if self.walled:
            self.wall_buffer = 0
        if not self.airborne:
            self.floor_buffer = 0
        if self.state in (DEAD, DISABLED):
            return
        if self.state == DYING:
            self.state = DEAD
        elif self.state == CELEBRATING:
            self.drag = DRAG if self.airborne else DRAG_SLOW
        elif not self.airborne:
            self._on_floor(jump_usable or press)
        else:
            self._in_air(press, jump_usable, wall_usable, floor_usable, pad_usable)

    def _on_floor(self, wants_jump):
        h = self.h
        u = self.vx + GROUND_ACCELERATION * h
        if abs(u) < MAX_SPEED:
            self.vx = u
        if self.state >= JUMPING:
            if self.state == JUMPING:
                self.gravity = GRAVITY_FALL
            self.state = BRAKING if self.vx * h <= 0 else RUNNING
        if wants_jump:
            self._floor_jump()
            return
        fx, fy = self.floor_x, self.floor_y
        tangential = abs(self.vy * fx - self.vx * fy)
        along = (h * tangential) * self.vx > 0
        if self.state == BRAKING:
            if along:
                self.state = RUNNING
            elif tangential < 0.1 and fx == 0:
                self.state = STANDING
            elif self.vy < 0 and fx != 0:
                speed = sqrt(self.vx * self.vx + self.vy * self.vy)
                friction = abs(self.vx * (1 - FRICTION) * fy)
                slower = speed - friction * (fy * fy)
                if speed > 0:
                    self.vx = (self.vx / speed) * slower
                    self.vy = (self.vy / speed) * slower
            else:
                self.vx *= FRICTION
        elif self.state == RUNNING:
            if not along:
                self.state = BRAKING
            elif h * fx < 0 and abs(u) < MAX_SPEED:
                q = (GROUND_ACCELERATION / 2) * h
                self.vx += q * fy * fy
                self.vy += q * fy * (-fx)
        elif h != 0:
            self.state = RUNNING
        elif tangential < 0.1:
            self.vx *= FRICTION_SLOW
        else:
            self.state = BRAKING

    def _in_air(self, press, jump_usable, wall_usable, floor_usable, pad_usable):
        u = self.vx + AIR_ACCELERATION * self.h
        if abs(u) < MAX_SPEED:
            self.vx = u
        if self.state <= BRAKING:
            self.state = AIRBORNE
            return
        if self.state == JUMPING:
            self.hold += 1
            if self.jump == 0 or self.hold > MAX_HOLD:
                self.gravity = GRAVITY_FALL
                self.state = AIRBORNE
                return
        if jump_usable or press:
            if self.walled or wall_usable:
                self._wall_jump()
                return
            if floor_usable:
                self._floor_jump()
                return
            if pad_usable and press:
                self._pad_jump()
                return
        into_wall = self.h * self.wall_normal
        if not self.walled:
            if self.state == SLIDING:
                self.state = AIRBORNE
        elif self.state == SLIDING:
            if into_wall <= 0:
                self.vy *= FRICTION_WALL
            else:
                self.state = AIRBORNE
        elif self.vy > 0 and into_wall < 0:
            if self.state == JUMPING:
                self.gravity = GRAVITY_FALL
            self.state = SLIDING

    def _floor_jump(self):
        self.jump_buffer = self.floor_buffer = self.pad_buffer = -1
        self.state = JUMPING
        self.gravity = GRAVITY_JUMP
        fx, fy = self.floor_x, self.floor_y
        if fx == 0:
            jx, jy = 0.0, -2.0
        elif self.vx * fx >= 0:
            if self.vx * self.h >= 0:
                jx, jy = (2 / 3) * fx, 2 * fy
            else:
                jx, jy = 0.0, -1.4
        elif self.vx * self.h > 0:
            jx, jy = 0.0, -1.4
        else:
            self.vx = 0.0
            jx, jy = (2 / 3) * fx, 2 * fy
        if self.vy > 0:
            self.vy = 0.0
        self.vx += jx
        self.vy += jy
        self.x += jx
        self.y += jy
        self.hold = 0

    def _wall_jump(self):
        w = self.wall_normal
        jx, jy = (2 / 3, -1.0) if self.h * w < 0 and self.state == SLIDING else (1.0, -1.4)
        self.state = JUMPING
        self.gravity = GRAVITY_JUMP
        if self.vx * w < 0:
            self.vx = 0.0
        if self.vy > 0:
            self.vy = 0.0
        self.vx += jx * w
        self.vy += jy
        self.x += jx * w
        self.y += jy
        self.jump_buffer = self.wall_buffer = self.pad_buffer = -1
        self.hold = 0

    def _pad_jump(self):
        self.jump_buffer = self.floor_buffer = self.wall_buffer = self.pad_buffer = -1
        k = 2 * abs(self.pad_x) + 2
        if k == 2:
            k = 1.7
        self.vx += ((self.pad_x * k) * 2) / 3
        self.vy += ((self.pad_y * k) * 2) / 3


# ---------------------------------------------------------------------------------------------- entities (section 7)
Q = 0.7071067811865476
VECTORS = ((1.0, 0.0), (Q, Q), (0.0, 1.0), (-Q, Q), (-1.0, 0.0), (-Q, -Q), (0.0, -1.0), (Q, -Q))
DIRECTIONS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # of drones


def square_overlap(cx, cy, half, x, y):
    """(nx, ny, depth, other depth) of the point (x, y) in a square, None outside (4.7)."""
    depth_x, depth_y = half - abs(x - cx), half - abs(y - cy)
    if not (depth_x > 0 and depth_y > 0):
        return None
    if depth_y <= depth_x:
        return 0, -1 if y - cy < 0 else 1, depth_y, depth_x
    return -1 if x - cx < 0 else 1, 0, depth_x, depth_y


class Entity:
    """Base class of entities (7.1).

    type, number: as in the level file, and the count of earlier entities of this type.
    x, y: px.  active: False once used up.  state: the entity's own state machine, 0 if it has none.
    closed: True for a door that is shut.
    """

    logical = physical = False  # whether the ninja calls touch() once, contact() four times a frame
    radius = 0.0
    closed = False

    def __init__(self, simulator, kind, x, y):
        self.simulator, self.stage = simulator, simulator.stage
        self.type, self.x, self.y = kind, x, y
        self.number = simulator.counts.get(kind, 0)
        simulator.counts[kind] = self.number + 1
        self.active, self.state = True, 0

    @property
    def ninja(self):
        return self.simulator.ninja

    def register(self):
        self.cell = cell_of(self.x, self.y)
        self.simulator.grid[self.cell[0]][self.cell[1]].append(self)

    def update_cell(self):
        if cell_of(self.x, self.y) != self.cell:
            self.simulator.grid[self.cell[0]][self.cell[1]].remove(self)
            self.register()

    def touches_ninja(self):
        return distance(self.x, self.y, self.ninja.x, self.ninja.y) < self.radius + 10

    def hits_target(self):
        return self.ninja.is_target and self.touches_ninja()


class Mine(Entity):
    """Kills once, and arms itself again (7.2); states: 0 armed, 1 dormant, 2 arming."""

    logical = True

    def __init__(self, simulator, kind, x, y):
        super().__init__(simulator, kind, x, y)
        self.state = 1 if kind == 21 else 0

    @property
    def radius(self):
        return (4, 3.5, 4.5)[self.state]

    def touch(self):
        if self.state == 0 and self.hits_target():
            self.state = 1
            self.ninja.kill()

    def think(self):
        if self.state == 1 and self.hits_target():
            self.state = 2
        elif self.state == 2 and not self.hits_target():
            self.state = 1 if self.ninja.state in (DEAD, DISABLED) else 0


class Gold(Entity):
    logical, radius = True, 6

    def touch(self):
        if self.ninja.state != CELEBRATING and self.touches_ninja():
            self.ninja.gold += 1
            self.active = False


class ExitDoor(Entity):
    logical, radius = True, 12

    def touch(self):
        ninja = self.ninja
        if self.touches_ninja():
            ninja.win()
            wx, wy = ninja.x - ninja.x0, ninja.y - ninja.y0
            ninja.win_fraction = point_impact(ninja.x0 - self.x, ninja.y0 - self.y, wx, wy, wx * wx + wy * wy, 22)


class ExitSwitch(Entity):
    logical, radius = True, 6

    def __init__(self, simulator, kind, x, y, door):
        super().__init__(simulator, kind, x, y)
        self.door = door

    def touch(self):
        if self.touches_ninja():
            self.active = False
            self.door.register()


class Door(Entity):
    """A surface and two half-cell edges; the entity stands where it is triggered (7.4)."""

    logical, radius = True, 5

    def __init__(self, simulator, kind, x, y, orientation, trigger_x, trigger_y):
        super().__init__(simulator, kind, trigger_x, trigger_y)
        a, b = VECTORS[orientation]
        cx, cy = cell_of(x - 12 * a, y - 12 * b)
        if orientation in (0, 4):
            self.line = Line(x, y - 12, x, y + 12, oriented=False)
            self.table, self.edges = self.stage.door_v, ((2 * cx + 2, 2 * cy), (2 * cx + 2, 2 * cy + 1))
        else:
            self.line = Line(x - 12, y, x + 12, y, oriented=False)
            self.table, self.edges = self.stage.door_h, ((2 * cx, 2 * cy + 2), (2 * cx + 1, 2 * cy + 2))
        self.stage.segments[cx][cy].append(self.line)
        self.set_closed(True)

    def set_closed(self, closed):
        """The edge counters change even if the door is in this state already; section 11.2."""
        self.closed = self.line.active = closed
        for i, j in self.edges:
            self.table[i][j] += 1 if closed else -1


class RegularDoor(Door):
    radius = 10

    def __init__(self, simulator, kind, x, y, orientation):
        super().__init__(simulator, kind, x, y, orientation, x, y)
        self.timer = 0

    def touch(self):
        if self.touches_ninja():
            self.set_closed(False)
            self.timer = 0

    def think(self):
        if not self.closed:
            self.timer += 1
            if self.timer > 5:
                self.set_closed(True)


class LockedDoor(Door):
    def touch(self):
        if self.touches_ninja():
            self.set_closed(False)
            self.active = False


class TrapDoor(Door):
    def __init__(self, *args):
        super().__init__(*args)
        self.set_closed(False)

    def touch(self):
        if self.touches_ninja():
            self.set_closed(True)
            self.active = False


class Oriented(Entity):
    def __init__(self, simulator, kind, x, y, orientation):
        super().__init__(simulator, kind, x, y)
        self.nx, self.ny = VECTORS[orientation]


class LaunchPad(Oriented):
    logical, radius = True, 6

    def touch(self):
        if not self.hits_target():
            return None
        nx, ny, ninja = self.nx, self.ny, self.ninja
        if (self.x - (ninja.x - 10 * nx)) * nx + (self.y - (ninja.y - 10 * ny)) * ny < -0.1:
            return None
        boost = 36 / 7
        return nx * boost, (ny * boost) * (1 - ny if ny < 0 else 1)


class OneWay(Oriented):
    logical = physical = True

    def contact(self):
        nx, ny, ninja = self.nx, self.ny, self.ninja
        ex, ey = ninja.x - self.x, ninja.y - self.y
        lateral = ey * nx - ex * ny
        drift = (ninja.vy * nx - ninja.vx * ny) * lateral
        if not abs(lateral) < (0.90 if drift < 0 else 0.51) * 10 + 12:
            return None
        normal = ex * nx + ey * ny
        if not 0 < normal <= 10 or not ninja.vx * nx + ninja.vy * ny <= 0:
            return None
        normal_before = (ninja.x0 - self.x) * nx + (ninja.y0 - self.y) * ny
        if not 10 - normal_before <= 1.1:
            return None
        return nx, ny, 10 - normal

    def touch(self):
        return self.nx if self.contact() and abs(self.nx) == 1 else None


class Drone(Entity):
    """Flies from one grid point to the next, and chooses its way there (7.7)."""

    logical = True
    TURNS = ((1, 0, 3, 2), (3, 0, 1, 2), (0, 1, 3, 2), (0, 3, 1, 2))  # by mode

    def __init__(self, simulator, kind, x, y, orientation, mode):
        super().__init__(simulator, kind, x, y)
        self.turns = self.TURNS[mode]
        self.direction = orientation // 2
        self.target_x, self.target_y = x, y

    def move(self):
        a, b = DIRECTIONS[self.direction]
        dx, dy = self.target_x - self.x, self.target_y - self.y
        dist = sqrt(dx * dx + dy * dy)
        sx, sy = self.speed * a, self.speed * b
        past = dx * (self.target_x - (self.x + sx)) + dy * (self.target_y - (self.y + sy)) < 0
        if dist < 1e-6 or past:
            rest = self.speed - dist
            self.x, self.y = self.target_x, self.target_y
            if self.choose():
                a, b = DIRECTIONS[self.direction]
                self.x += rest * a
                self.y += rest * b
        else:
            self.x += sx
            self.y += sy
            self.update_cell()

    def choose(self):
        """Turn to the first direction that is free; False if there is none."""
        return any(self.turn((self.direction + turn) % 4) for turn in self.turns)

    def turn(self, direction):
        """Turn if the way to the next grid point is free."""
        a, b = DIRECTIONS[direction]
        x, y = self.x + self.step * a, self.y + self.step * b
        if not self.is_free(direction, x, y):
            return False
        self.direction, self.target_x, self.target_y = direction, x, y
        return True

    def is_free(self, direction, x, y):
        """Return True if the drone can fly in a direction until its front is in the half-cell of its front at (x, y)."""
        a, b = DIRECTIONS[direction]
        if a:
            k, end, across = self.x + a * self.radius, x + a * self.radius, self.y
        else:
            k, end, across = self.y + b * self.radius, y + b * self.radius, self.x
        k, end = floor(k / 12), floor(end / 12)
        first, last = floor((across - self.radius) / 12), floor((across + self.radius) / 12)
        while k != end:
            if not self.stage.passable(a != 0, k, first, last, a + b):
                return False
            k += a + b
        return True

    def touch(self):
        if self.hits_target():
            self.ninja.kill()


class ZapDrone(Drone):
    radius, step, speed = 7.5, 24, 8 / 7


class MiniDrone(Drone):
    radius, step, speed = 4, 12, 1.3


class FloorGuard(Entity):
    """Runs along its floor when the ninja is level with it (7.8); states: 0 idle, -1 and 1 chasing to the left or right."""

    logical, radius = True, 6
    SPEED = 3.428571428571428

    def move(self):
        s = self.state
        if s == 0:
            return
        x = self.x + s * self.SPEED
        before, after = floor((self.x + 6 * s) / 12), floor((x + 6 * s) / 12)
        if before != after:
            row = floor(self.y / 12)
            has_floor = self.stage.tile_h[clamp(after, 88)][clamp(row + 1, 50)] == 2
            if not has_floor or not self.stage.passable(True, before, row, row, s):
                x = 12 * (before + 1 if s == 1 else before) - (6 + 0.01) * s
                self.state = 0
        self.x = x
        self.update_cell()

    def think(self):
        ninja = self.ninja
        if self.state != 0 or not ninja.is_target or not self.y + 6 - 24 <= ninja.y <= self.y + 6:
            return
        d = (ninja.x > self.x) - (ninja.x < self.x)
        k, end, row = floor(self.x / 12), floor(ninja.x / 12), floor(self.y / 12)
        while k != end:
            if not self.stage.passable(True, k, row, row, d):
                return
            k += d
        self.state = d

    def touch(self):
        if self.hits_target():
            self.ninja.kill()


class BounceBlock(Entity):
    """A block on a spring (7.9)."""

    logical = physical = True

    def __init__(self, simulator, kind, x, y):
        super().__init__(simulator, kind, x, y)
        self.x0, self.y0 = x, y
        self.vx = self.vy = 0.0

    def move(self):
        self.vx *= 0.98
        self.vy *= 0.98
        self.x += self.vx
        self.y += self.vy
        fx, fy = 0.02222222222222222 * (self.x0 - self.x), 0.02222222222222222 * (self.y0 - self.y)
        self.x += fx
        self.y += fy
        self.vx += fx
        self.vy += fy
        self.update_cell()

    def contact(self):
        overlap = square_overlap(self.x, self.y, 19, self.ninja.x, self.ninja.y)
        if overlap is None:
            return None
        nx, ny, depth, _ = overlap
        self.x -= nx * depth * (1 - 0.2)
        self.y -= ny * depth * (1 - 0.2)
        self.vx -= nx * depth * (1 - 0.2)
        self.vy -= ny * depth * (1 - 0.2)
        return nx, ny, depth * 0.2

    def touch(self):
        overlap = square_overlap(self.x, self.y, 19.1, self.ninja.x, self.ninja.y)
        return overlap and overlap[0]


class Thwump(Entity):
    """Charges when the ninja comes before it, and goes back slowly (7.10); states: 0 waiting, 1 charging, -1 retreating."""

    logical = physical = True

    def __init__(self, simulator, kind, x, y, orientation):
        super().__init__(simulator, kind, x, y)
        self.horizontal = orientation in (0, 4)
        self.facing = 1 if orientation in (0, 2) else -1
        self.origin = x if self.horizontal else y

    def _across(self, offset=11):
        """First and last half-cell beside the way."""
        across = self.y if self.horizontal else self.x
        return floor((across - offset) / 12), floor((across + offset) / 12)

    def move(self):
        if self.state == 0:
            return
        position = self.x if self.horizontal else self.y
        e = self.facing * self.state
        moved = position + (20 / 7 if self.state == 1 else 8 / 7) * e
        if self.state == -1 and (moved - self.origin) * (position - self.origin) < 0:
            self._set_position(self.origin)
            self.state = 0
            return
        k = floor((position + 11 * e) / 12)
        if k != floor((moved + 11 * e) / 12) and not self.stage.passable(self.horizontal, k, *self._across(), e):
            self.state = -1
            return
        self._set_position(moved)
        self.update_cell()

    def _set_position(self, position):
        if self.horizontal:
            self.x = position
        else:
            self.y = position

    def think(self):
        ninja, d = self.ninja, self.facing
        if self.state != 0 or not ninja.is_target:
            return
        if self.horizontal:
            near, position, goal = abs(self.y - ninja.y) < 38, self.x, ninja.x
        else:
            near, position, goal = abs(self.x - ninja.x) < 38, self.y, ninja.y
        if not near:
            return
        goal, start = floor(goal / 12), floor((position - 11 * d) / 12)
        k, m = start, goal - start
        if m * d < 0:
            return
        for _ in range(100):
            if not self.stage.passable(self.horizontal, k, *self._across(), d):
                m = goal - k
                break
            k += d
        if k != start and m * d <= 0:
            self.state = 1

    def contact(self):
        overlap = square_overlap(self.x, self.y, 19, self.ninja.x, self.ninja.y)
        return overlap and overlap[:3]

    def touch(self):
        ninja = self.ninja
        overlap = ninja.is_target and square_overlap(self.x, self.y, 19.1, ninja.x, ninja.y)
        if not overlap:
            return None
        if self.horizontal:
            x = self.x + 11 * self.facing
            face = Line(x, self.y - 7, x, self.y + 7)
        else:
            y = self.y + 11 * self.facing
            face = Line(self.x - 7, y, self.x + 7, y)
        _, px, py = face.closest(ninja.x, ninja.y)
        if (ninja.x - px) * (ninja.x - px) + (ninja.y - py) * (ninja.y - py) < 12 * 12:
            ninja.kill()
        return overlap[0]


class BoostPad(Entity):
    """Adds speed once per touch, in the move pass (7.11)."""

    radius = 6

    def __init__(self, simulator, kind, x, y):
        super().__init__(simulator, kind, x, y)
        self.touching = False

    def move(self):
        ninja = self.ninja
        touching = self.hits_target()
        if touching and not self.touching:
            speed = sqrt(ninja.vx * ninja.vx + ninja.vy * ninja.vy)
            if speed > 0:
                ninja.vx, ninja.vy = ninja.vx + (2 * ninja.vx) / speed, ninja.vy + (2 * ninja.vy) / speed
        self.touching = touching


class DeathBall(Entity):
    """Flies after the ninja, and bounces off surfaces and off other balls (7.12)."""

    logical, radius = True, 5

    def __init__(self, simulator, kind, x, y):
        super().__init__(simulator, kind, x, y)
        self.vx = self.vy = 0.0

    def think(self):
        self._accelerate()
        t = self.stage.sweep(self.x, self.y, self.vx, self.vy, 4)
        self.x, self.y = self.x + t * self.vx, self.y + t * self.vy
        sum_x = sum_y = 0.0
        for _ in range(16):
            result, px, py, _ = self.stage.nearest(self.x, self.y, 8)
            if result == 0:
                break
            dx, dy = self.x - px, self.y - py
            dist = sqrt(dx * dx + dy * dy)
            depth = 8 - dist * result
            if depth < 1e-7:
                break
            if dist == 0:
                return
            nx, ny = dx / dist, dy / dist
            self.x += nx * depth
            self.y += ny * depth
            sum_x += nx
            sum_y += ny
        length = sqrt(sum_x * sum_x + sum_y * sum_y)
        if length > 0:
            nx, ny = sum_x / length, sum_y / length
            b = self.vx * nx + self.vy * ny
            if b < 0:
                factor = 1 if sqrt(self.vx * self.vx + self.vy * self.vy) <= 1.35 else 2
                self.vx -= nx * b * factor
                self.vy -= ny * b * factor
        self._push_later_balls()
        self.update_cell()

    def _accelerate(self):
        if not self.ninja.is_target:
            self.vx *= 0.95
            self.vy *= 0.95
            return
        dx, dy = self.ninja.x - self.x, self.ninja.y - self.y
        dist = sqrt(dx * dx + dy * dy)
        if dist > 0:
            dx, dy = dx / dist, dy / dist
        self.vx += dx * 0.04
        self.vy += dy * 0.04
        speed = sqrt(self.vx * self.vx + self.vy * self.vy)
        if speed > 0.85:
            new = (speed - 0.85) * 0.9
            if new <= 0.01:
                new = 0
            new += 0.85
            self.vx = (self.vx / speed) * new
            self.vy = (self.vy / speed) * new

    def _push_later_balls(self):
        if not self.number + 1 < self.simulator.ball_count:
            return
        for other in self.simulator.by_type[25][self.number + 1 :]:
            dx, dy = self.x - other.x, self.y - other.y
            dist = sqrt(dx * dx + dy * dy)
            if 0 < dist < 16:  # at 0 the original divides by zero; no impulse is the remedy
                ix, iy = (dx / dist) * 4, (dy / dist) * 4
                self.vx += ix
                self.vy += iy
                other.vx -= ix
                other.vy -= iy

    def touch(self):
        if self.hits_target():
            dx, dy = self.x - self.ninja.x, self.y - self.ninja.y
            dist = sqrt(dx * dx + dy * dy)
            if dist > 0:
                self.vx += (dx / dist) * 10
                self.vy += (dy / dist) * 10
            self.ninja.kill()


class ShoveThwump(Entity):
    """Flies away from a push, and comes back slowly (7.13); states: 0 idle, 1 triggered, 2 launching, 3 returning."""

    logical = physical = True
    radius = 8  # of the deadly core

    def __init__(self, simulator, kind, x, y):
        super().__init__(simulator, kind, x, y)
        self.x0, self.y0 = x, y
        self.push_x = self.push_y = 0
        self.activated = False

    def think(self):
        if self.state == 1:
            if self.activated:
                self.activated = False
                return
            self.state = 2
        if self.state == 3:
            if abs(self.x - self.x0) + abs(self.y - self.y0) >= 1:
                self._travel(self.push_x, self.push_y, 1)
            else:
                self.x, self.y = self.x0, self.y0
                self.state = 0
        elif self.state == 2:
            self._travel(-self.push_x, -self.push_y, 4)

    def _travel(self, c, d, speed):
        horizontal = self.push_y == 0
        position, across, direction = (self.x, self.y, c) if horizontal else (self.y, self.x, d)
        moved = position + direction * speed
        k = floor(position / 12)
        if k != floor(moved / 12):
            first, last = floor((across - 8) / 12), floor((across + 8) / 12)
            if not self.stage.passable(horizontal, k, first, last, direction):
                self.state = 3
                moved = position
        if horizontal:
            self.x = moved
        else:
            self.y = moved
        self.update_cell()

    def contact(self):
        if self.state > 1:
            return None
        overlap = square_overlap(self.x, self.y, 22, self.ninja.x, self.ninja.y)
        if overlap is None or (self.state == 1 and not self._is_pushed_side(overlap)):
            return None
        return overlap[:3]

    def _is_pushed_side(self, overlap):
        return self.push_x * overlap[0] + self.push_y * overlap[1] >= 0.01

    def touch(self):
        overlap = square_overlap(self.x, self.y, 22.1, self.ninja.x, self.ninja.y)
        if overlap and self.state == 0:
            self.activated = True
            if overlap[3] > 0.2:
                self.push_x, self.push_y = overlap[:2]
                self.state = 1
            return overlap[0]
        if overlap and self.state == 1:
            if self._is_pushed_side(overlap):
                self.activated = True
                return overlap[0]
            return None
        if self.touches_ninja():
            self.ninja.kill()
        return None


# ------------------------------------------------------------------------------------------- completions (section 8)
# These entities are unfinished in the original.  What the text leaves open, and what is done here:
#
# Chaser drone
#  1. The distance left over at a centre comes from the speed that the frame began with.
#  2. A chase goes on whatever becomes of the ninja.
#
# Laser turret
#  3. A spinner asks for a ninja that is visible, and then for the angle or for the distance to the beam; a surface
#     laser asks for visible and distance.  Without any hit a ray has length 0, for beam and visibility alike.
#  4. The angle comparison is the one of the original, without the wrap at 2 pi.
#  5. A ray starts in the cell floor(x/24), floor(y/24) of the emitter; outside of the grid it hits nothing.  The next
#     crossings are computed from cell numbers, not added up; an axis with direction exactly 0 is never crossed.
#  6. The beam of a frame comes before the turn or advance of the same frame, for both kinds.
#  7. The outward normal of a surface is its own (perpendicular, or radial); of a door the side where the emitter is,
#     or the perpendicular when the emitter is exactly on it.
#  8. A surface laser at work, each frame: on a surface it advances by 0.1, at a vertex it turns.  Then the nearest
#     surface (half-size 12) decides: if the emitter is beside it (not past an end), its normal is taken, and the emitter
#     is put 5.9 above the closest point: this covers joints, concave corners, and the end of a turn.  Else the
#     closest point is a vertex: the normal stays, the emitter is put 5.9 away from the vertex along it, and it turns
#     from the next frame on.  Without any surface near, it goes on with the same normal.
CHASE_SPEED = 16 / 7
SPIN, CORNER_SPEED, SURFACE_SPEED = 0.010471975, 0.005524805665672641, 0.1
EMITTER = 5.9


class ChaserDrone(ZapDrone):
    """A zap drone that goes faster towards a ninja in sight (8.1)."""

    chasing = False

    def choose(self):
        if self.chasing:
            if self.turn(self.direction):
                return True
            self.chasing, self.speed = False, ZapDrone.speed
        for turn in (-1, 0, 1):
            direction = (self.direction + turn) % 4
            if self._sees_along(direction) and self.turn(direction):
                self.chasing, self.speed = True, CHASE_SPEED
                return True
        return super().choose()

    def _sees_along(self, direction):
        ninja, (a, b) = self.ninja, DIRECTIONS[direction]
        dx, dy = ninja.x - self.x, ninja.y - self.y
        if not ninja.is_target or dx * a + dy * b <= 0 or abs(dx * b - dy * a) > 12:
            return False
        column, row = floor(self.x / 12), floor(self.y / 12)
        while (column, row)[a == 0] != floor((ninja.x, ninja.y)[a == 0] / 12):
            k, across = (column, row) if a else (row, column)
            if not self.stage.passable(a != 0, k, across, across, a + b):
                return False
            column, row = column + a, row + b
        return True


class Laser(Entity):
    """A beam from an emitter (8.2): at ``angle`` from a spinner, along ``nx, ny`` from a laser that creeps on surfaces."""

    def __init__(self, simulator, kind, x, y, orientation, mode):
        super().__init__(simulator, kind, x, y)
        self.turn = -1 if mode == 1 else 1
        result, px, py, surface = self.stage.nearest(x, y, 12)
        self.spins = result == 0 or (result == 1 and distance(x, y, px, py) >= 7)
        self.vertex = None
        if self.spins:
            self.angle = atan2(VECTORS[orientation][1], VECTORS[orientation][0])
        else:
            self._stand_on(px, py, surface)

    def direction(self):
        if not self.spins:
            return self.nx, self.ny
        sine, cosine = sin_cos(self.angle)
        return cosine, sine

    def beam_end(self):
        """Return (x, y) where the beam ends; the emitter if it hits nothing."""
        nx, ny = self.direction()
        length = self._ray(nx, ny)
        return self.x + length * nx, self.y + length * ny

    def think(self):
        nx, ny = self.direction()
        if self.ninja.is_target and self._beam_hits(nx, ny) and self._sees_ninja():
            self.ninja.kill()
        if self.spins:
            self.angle = (self.angle + self.turn * SPIN) % (2 * math.pi)
        else:
            self._creep()

    def _beam_hits(self, nx, ny):
        """Return True if the beam in direction (nx, ny) reaches the ninja (or nearly, by its angle)."""
        ninja = self.ninja
        ex, ey = ninja.x - self.x, ninja.y - self.y
        along = min(max(ex * nx + ey * ny, 0.0), self._ray(nx, ny))
        if distance(ninja.x, ninja.y, self.x + along * nx, self.y + along * ny) < 10:
            return True
        return self.spins and abs(self.angle - atan2(ey, ex)) % (2 * math.pi) <= 0.0052359875

    def _sees_ninja(self):
        dx, dy = self.ninja.x - self.x, self.ninja.y - self.y
        dist = sqrt(dx * dx + dy * dy)
        return dist < 10 or self._ray(dx / dist, dy / dist) > dist - 10

    def _ray(self, nx, ny):
        """Length of a ray to the first cell with a hit; surfaces count from both sides, and open doors too."""
        wx, wy = 2000 * nx, 2000 * ny
        vv = wx * wx + wy * wy
        cx, cy = floor(self.x / 24), floor(self.y / 24)
        while 0 <= cx < WIDTH and 0 <= cy < HEIGHT:
            t = min((s.impact(self.x, self.y, wx, wy, vv, 0) for s in self.stage.segments[cx][cy]), default=1.0)
            if t < 1:
                return 2000 * t
            to_x = ((24 * (cx + 1 if nx > 0 else cx)) - self.x) / nx if nx else math.inf
            to_y = ((24 * (cy + 1 if ny > 0 else cy)) - self.y) / ny if ny else math.inf
            if to_x < to_y:
                cx += 1 if nx > 0 else -1
            else:
                cy += 1 if ny > 0 else -1
        return 0.0

    def _stand_on(self, px, py, surface):
        """Put the emitter above a point of a surface."""
        self.nx, self.ny = surface.normal(px, py)
        is_door = isinstance(surface, Line) and not surface.oriented
        if is_door and (self.x - px) * self.nx + (self.y - py) * self.ny < 0:
            self.nx, self.ny = -self.nx, -self.ny
        self.x, self.y = px + EMITTER * self.nx, py + EMITTER * self.ny
        self.vertex = None

    def _creep(self):
        if self.vertex is None:
            speed = 1.0 if "fast_lasers" in self.simulator.rules else SURFACE_SPEED
            self.x += speed * (self.turn * -self.ny)
            self.y += speed * (self.turn * self.nx)
        else:
            s, c = sin_cos(self.turn * CORNER_SPEED)
            self.nx, self.ny = self.nx * c - self.ny * s, self.nx * s + self.ny * c
            self.x, self.y = self.vertex[0] + EMITTER * self.nx, self.vertex[1] + EMITTER * self.ny
        result, px, py, surface = self.stage.nearest(self.x, self.y, 12)
        if result == 0:
            return
        if surface.is_beside(self.x, self.y):
            self._stand_on(px, py, surface)
        else:
            self.vertex = px, py
            self.x, self.y = px + EMITTER * self.nx, py + EMITTER * self.ny


# -------------------------------------------------------------------------------------------------- shooters (section 8.4)
def unit(dx, dy):
    length = sqrt(dx * dx + dy * dy)
    return (dx / length, dy / length) if length > 0 else (1.0, 0.0)


class Shooting:
    """Sight, shots, and the frames that a shooter has spent in its state."""

    WATCH, AIM, PREFIRE, FIRE, POSTFIRE = range(5)
    frames = 0

    def enter(self, state):
        self.state, self.frames = state, 0

    def ray(self, x, y, ux, uy, open_doors=False):
        """Distance to the first wall or closed door.  open_doors: they count, too."""
        wx, wy = 2000 * ux, 2000 * uy
        vv = wx * wx + wy * wy
        cx, cy = floor(x / 24), floor(y / 24)
        while 0 <= cx < WIDTH and 0 <= cy < HEIGHT:
            segments = [segment for segment in self.stage.segments[cx][cy] if segment.active or open_doors]
            t = min((segment.impact(x, y, wx, wy, vv, 0) for segment in segments), default=1.0)
            if t < 1:
                return 2000 * t
            to_x = (24 * (cx + (ux > 0)) - x) / ux if ux else math.inf
            to_y = (24 * (cy + (uy > 0)) - y) / uy if uy else math.inf
            if to_x < to_y:
                cx += 1 if ux > 0 else -1
            else:
                cy += 1 if uy > 0 else -1
        return 2000.0

    def sees(self):
        ninja = self.ninja
        dist = distance(self.x, self.y, ninja.x, ninja.y)
        if not ninja.is_target or dist < 10:
            return ninja.is_target
        blocked = "open_doors_block" in self.simulator.rules
        return self.ray(self.x, self.y, (ninja.x - self.x) / dist, (ninja.y - self.y) / dist, blocked) > dist - 10

    def shoot(self, ux, uy):
        ex, ey = self.ninja.x - self.x, self.ninja.y - self.y
        length = self.ray(self.x, self.y, ux, uy, "open_doors_block" in self.simulator.rules)
        along = min(max(ex * ux + ey * uy, 0.0), length)
        dx, dy = ex - along * ux, ey - along * uy
        if self.ninja.is_target and sqrt(dx * dx + dy * dy) < 10:
            self.ninja.kill()


class RocketTurret(Shooting, Entity):
    logical = True

    def __init__(self, simulator, kind, x, y):
        super().__init__(simulator, kind, x, y)
        self.home = x, y
        self.direction = 0.0, 0.0
        self.cell = None  # of the rocket

    def register(self):
        """A turret is in no cell; its rocket is."""
        if self.state == self.FIRE:
            super().register()

    def think(self):
        self.frames += 1
        if self.state == self.FIRE:
            self._fly()
        elif self.state == self.PREFIRE:
            if not self.ninja.is_target:
                self.enter(self.WATCH)
            elif self.frames == 15:
                self.enter(self.FIRE)
                self.direction = unit(self.ninja.x - self.x, self.ninja.y - self.y)
                self.speed, self.acceleration = 0.0, 0.1 * (2 / 3) ** 2
                self.register()
        elif self.sees():
            self.enter(self.PREFIRE)

    def _fly(self):
        if self.speed < 16 / 7:
            self.acceleration *= 1.1 ** (2 / 3)
            self.speed += self.acceleration
        else:
            self.speed = 16 / 7
        ux, uy = self.direction
        if self.ray(self.x, self.y, ux, uy) < self.speed:
            self.explode()
            return
        self.x += self.speed * ux
        self.y += self.speed * uy
        self.update_cell()
        ninja = self.ninja
        if not ninja.is_target:
            return
        ahead = (self.x + 1.5 * self.speed * ux, self.y + 1.5 * self.speed * uy)
        tx, ty = unit(ninja.x + 1.5 * ninja.vx - ahead[0], ninja.y + 1.5 * ninja.vy - ahead[1])
        if (
            ux * tx + uy * ty > 0 or "rockets_turn_back" in self.simulator.rules
        ):  # else it faces away and flies straight on
            turn = 1 / 15 * (ux * ty - uy * tx)
            self.direction = unit(ux - turn * uy, uy + turn * ux)

    def explode(self):
        self.simulator.grid[self.cell[0]][self.cell[1]].remove(self)
        self.cell = None
        self.x, self.y = self.home
        self.enter(self.WATCH)

    def touch(self):
        if self.ninja.is_target and distance(self.x, self.y, self.ninja.x, self.ninja.y) < 10:
            self.ninja.kill()
            self.explode()


class GaussTurret(Shooting, Entity):
    ZONES = ((96, 0, 0.03 * 2 / 3), (42, 0.5, 0.035 * 2 / 3), (24, 1.5, 0.05 * 2 / 3), (-1, 3.5, 0.05 * 2 / 3))
    good = 0.0  # frames of good aim

    def register(self):
        """In no cell: nothing touches it."""

    def think(self):
        self.frames += 1
        if self.state == self.WATCH:
            if self.sees():
                self.enter(self.AIM)
                self.good, self.cross_x, self.cross_y = 0.0, self.x, self.y
        elif self.state == self.AIM:
            self._aim()
        elif self.state == self.PREFIRE and self.frames == 15:
            self.enter(self.POSTFIRE)
            self.shoot(*unit(self.cross_x - self.x, self.cross_y - self.y))
        elif self.state == self.POSTFIRE and self.frames == 15:
            self.enter(self.AIM if self.sees() else self.WATCH)
            self.good = 0.0

    def _aim(self):
        if not self.sees():
            self.enter(self.WATCH)
            return
        dx = self.ninja.x + 1.5 * self.ninja.vx - self.cross_x
        dy = self.ninja.y + 1.5 * self.ninja.vy - self.cross_y
        dist = sqrt(dx * dx + dy * dy)
        _, credit, gain = next(zone for zone in self.ZONES if dist > zone[0])
        self.good += credit
        self.cross_x += gain * dx
        self.cross_y += gain * dy
        if self.good > 90:
            self.enter(self.PREFIRE)


class ShootingDrone(Shooting, Drone):
    """Flies while it watches, and does not move while it shoots; in no cell."""

    radius, step = 7.5, 24

    def register(self):
        """Nothing touches it."""

    def update_cell(self):
        """Likewise."""

    def move(self):
        if self.state == self.WATCH:
            super().move()

    def aim(self):
        self.ux, self.uy = unit(self.ninja.x - self.x, self.ninja.y - self.y)


class ChaingunDrone(ShootingDrone):
    speed = 3 / 7

    def think(self):
        self.frames += 1
        if self.state == self.WATCH or (self.state == self.POSTFIRE and self.frames == 90):
            self.enter(self.PREFIRE if self.sees() else self.WATCH)
        elif self.state == self.PREFIRE and self.frames == 52:
            self.enter(self.FIRE)
            self.aim()
            self.side = 1.0 if self.ninja.vx * -self.uy + self.ninja.vy * self.ux >= 0 else -1.0
        elif self.state == self.FIRE:
            n = self.frames // 9
            if self.frames == 9 * n and n <= 7:
                sweep = 0.3 * (n / 6 - 0.5) * self.side
                self.shoot(*unit(self.ux + sweep * -self.uy, self.uy + sweep * self.ux))
            if self.frames == 72:
                self.enter(self.POSTFIRE)


class LaserDrone(ShootingDrone):
    speed = 2 / 7

    def think(self):
        self.frames += 1
        if self.state == self.WATCH or (self.state == self.POSTFIRE and self.frames == 60):
            self.enter(self.PREFIRE if self.sees() else self.WATCH)
            self.aim()
        elif self.state == self.PREFIRE and self.frames == 45:
            self.enter(self.FIRE)
        elif self.state == self.FIRE:
            self.shoot(self.ux, self.uy)
            if self.frames == 80:
                self.enter(self.POSTFIRE)


class EvilNinja(Entity):
    """Repeats the way of the ninja, 120 frames late for each that was touched (section 8.6)."""

    logical = True
    WAIT, COME, FOLLOW = range(3)

    def __init__(self, simulator, kind, x, y):
        super().__init__(simulator, kind, x, y)
        self.home = x, y
        self.state = self.WAIT

    def think(self):
        way, frame = self.simulator.way, len(self.simulator.way)  # of the ninja, from the start of frame 1 on
        if self.state == self.WAIT:
            return
        if frame >= self.deadly_from:
            self.x, self.y = way[frame - (120 * self.number_touched - 1)]
            if self.state == self.FOLLOW:
                self.update_cell()
            else:
                self.state = self.FOLLOW
                self.register()
        elif frame > self.deadly_from - 119:
            share, (x, y) = (frame - (self.deadly_from - 120)) / 120, way[self.touched_in + 1]
            self.x, self.y = self.home[0] + share * (x - self.home[0]), self.home[1] + share * (y - self.home[1])

    def touch(self):
        ninja = self.ninja
        gap = distance(self.x, self.y, ninja.x, ninja.y)
        if not ninja.is_target:
            return
        if self.state == self.FOLLOW:
            if gap < 16:
                ninja.kill()
        elif gap < 20:
            self.touched_in = len(self.simulator.way)
            self.number_touched = 1 + sum(e.state != self.WAIT for e in self.simulator.by_type[22])
            self.deadly_from = self.touched_in + 120 * self.number_touched
            self.state = self.COME
            self.simulator.grid[self.cell[0]][self.cell[1]].remove(self)
            self.cell = None


# ------------------------------------------------------------------------------------------- simulator (section 5)
PLAIN = {1: Mine, 2: Gold, 16: FloorGuard, 17: BounceBlock, 21: Mine, 24: BoostPad, 25: DeathBall, 28: ShoveThwump}
ORIENTED = {5: RegularDoor, 10: LaunchPad, 11: OneWay, 20: Thwump}
SWITCHED = {6: LockedDoor, 8: TrapDoor}
DRONES = {14: ZapDrone, 26: MiniDrone}
COMPLETED_DRONES = {12: ChaingunDrone, 13: LaserDrone, 15: ChaserDrone}
STILL = {18: RocketTurret, 19: GaussTurret, 22: EvilNinja}
MOVERS = (14, 16, 17, 20, 25, 26, 28)  # types whose positions the conformance traces hold


class Simulator:
    """One level, played frame by frame, also after death and win.

    level: the level.  completions: whether the entities of section 8 exist, which the original leaves unfinished.
    rules: names of rules that are not as by default (section 8.5).
    ninja, entities: to look at; entities are in type order, an exit's switch (4) directly after its exit (3).
    """

    def __init__(self, level: Level, completions: bool = False, rules: frozenset = frozenset()):
        self.rules = rules
        self.stage = Stage(level.tiles.tolist())
        self.grid = [[[] for _ in range(HEIGHT)] for _ in range(WIDTH)]
        self.counts = {}
        self.by_type = {}
        self.ball_count = level.ball_count
        records = level.records.tolist()
        self.ninja = Ninja(self, 6.0 * records[0][1], 6.0 * records[0][2])
        self.way = [(self.ninja.x, self.ninja.y)]  # at the end of each frame
        self.previous_input = 0
        for i, record in enumerate(records):
            self._create(records, i, record, level.exit_count, completions)
        self.entities = [entity for kind in sorted(self.by_type) for entity in self.by_type[kind]]

    def _create(self, records, i, record, exit_count, completions):
        kind, x, y, orientation, mode = record
        x, y, orientation = 6.0 * x, 6.0 * y, orientation % 8
        created = self.by_type.setdefault(kind, [])
        if kind == 3:
            door = ExitDoor(self, 3, x, y)  # in no cell until its switch is hit
            switch_x, switch_y, exists = self._position(records, i + exit_count)
            switch = ExitSwitch(self, 4, switch_x, switch_y, door)
            switch.active = exists
            switch.register()
            created += [door, switch]
            return
        if kind in PLAIN:
            entity = PLAIN[kind](self, kind, x, y)
        elif kind in ORIENTED:
            entity = ORIENTED[kind](self, kind, x, y, orientation)
        elif kind in SWITCHED:
            switch_x, switch_y, exists = self._position(records, i + 1)
            entity = SWITCHED[kind](self, kind, x, y, orientation, switch_x, switch_y)
            entity.active = exists
        elif kind in DRONES:
            entity = DRONES[kind](self, kind, x, y, orientation, mode % 4)
        elif completions and kind in COMPLETED_DRONES:
            entity = COMPLETED_DRONES[kind](self, kind, x, y, orientation, mode % 4)
        elif completions and kind in STILL:
            entity = STILL[kind](self, kind, x, y)
        elif completions and kind == 23:
            entity = Laser(self, kind, x, y, orientation, mode)
        else:
            return
        entity.register()
        created.append(entity)

    @staticmethod
    def _position(records, i):
        """x, y of a switch record, and whether there is one; a missing switch is at (0, 0) and inactive."""
        return (6.0 * records[i][1], 6.0 * records[i][2], True) if i < len(records) else (0.0, 0.0, False)

    def entities_near(self, x, y):
        """Active entities in the nine cells around a point (4.2), as of now."""
        cx, cy = cell_of(x, y)
        return [
            entity
            for column in self.grid[max(cx - 1, 0) : cx + 2]
            for cell in column[max(cy - 1, 0) : cy + 2]
            for entity in cell
            if entity.active
        ]

    def tick(self, input_byte):
        """One frame.  input_byte: 1 jump, 2 right, 4 left (left wins), 8 self-destruct, added up."""
        ninja = self.ninja
        ninja.jump = input_byte & 1
        ninja.h = -1 if input_byte & 4 else 1 if input_byte & 2 else 0
        for entity in self.entities:
            if entity.active and hasattr(entity, "move"):
                entity.move()
        for entity in self.entities:
            if entity.active and hasattr(entity, "think"):
                entity.think()
        if input_byte & self.previous_input & 8:
            ninja.kill()
        self.previous_input = input_byte
        if ninja.state != DEAD:
            ninja.integrate()
            ninja.reset_contacts()
            for _ in range(4):
                ninja.collide_with_entities()
                ninja.collide_with_tiles()
            ninja.after_collisions()
        ninja.control()
        self.way.append((ninja.x, ninja.y))

    def frame(self):
        """A row of ``frames`` of the conformance traces: floats and small integers."""
        n = self.ninja
        return (n.x, n.y, n.vx, n.vy, n.state, int(n.airborne), int(n.walled), n.floor_x, n.floor_y, n.gold)

    def entity_bits(self):
        """A row of ``entity_state``: bit 0 active, bits 1-3 state, bit 4 a closed door."""
        return [e.active | (e.state & 7) << 1 | e.closed << 4 for e in self.entities]

    def mover_positions(self):
        """A row of ``mover_pos``: x, y of each entity of MOVERS, in type order."""
        return [value for entity in self.entities if entity.type in MOVERS for value in (entity.x, entity.y)]
