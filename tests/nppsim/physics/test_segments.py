"""Segments of tiles, and geometric queries, against the naive simulator, bit for bit."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from nppsim.compile import compile_level
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.levels.stage import CELLS_X, CELLS_Y, TILE
from nppsim.physics import ninja, segments
from nppsim.physics.shapes import CONCAVE_ARC, CONVEX_ARC, DOOR_LINE, LINE, SEGMENT_DTYPE, SHAPES
from nppsim.physics.state import ENTITY_DTYPE, NEAR_ITEMS, NEAR_ONE_WAYS, NEAR_SEGMENTS

from naive_simulator import Arc, Line, Simulator
from worlds import callable_kernel, mixed_level, random_level, tiles

SEEDS = st.integers(0, 2**32 - 1)
ARCS = (CONVEX_ARC, CONCAVE_ARC)
USED = (
    *("cells_around", "clamped_cell", "closest_point", "is_beside", "nearest_segment", "nearest_surface", "searches"),
    *("surface_normal", "sweep"),
)
kernels = SimpleNamespace(**{name: callable_kernel(getattr(segments, name)) for name in USED})
length_of, unit_vector = callable_kernel(ninja.length_of), callable_kernel(ninja.unit_vector)


def in_words(segment, entity=None):
    """A segment of the reference as a tuple: ("line", ends), ("door", ends, entity) or ("arc", centre, quadrant, convex)."""
    if isinstance(segment, Arc):
        return "arc", segment.cx, segment.cy, segment.hor, segment.ver, segment.convex
    ends = segment.x1, segment.y1, segment.x2, segment.y2
    return ("line", *ends) if segment.oriented else ("door", *ends, entity)


def of_shape(shape, x, y):
    """The reference's segment of a shape at (x, y)."""
    kind, dx, dy = (int(v) for v in SHAPES[shape, :3])
    if kind in ARCS:
        return Arc(x, y, dx, dy, kind == CONVEX_ARC)
    return Line(x, y, x + dx, y + dy, oriented=kind == LINE)


def compiled_segments(level):
    """{cell: segments in words} as the kernels have them."""
    compiled = compile_level(level)
    cells, start = {}, compiled.world.cell_start[0]
    for cell in range(CELLS_X * CELLS_Y):
        rows = compiled.world.segments[start[cell] : start[cell + 1]].tolist()
        cells[divmod(cell, CELLS_Y)] = [in_words(of_shape(shape, x, y), entity) for x, y, shape, entity in rows]
    return cells


def naive_segments(level):
    """{cell: segments in words} as the reference has them."""
    simulator = Simulator(level, completions=True)
    doors = {id(e.line): k for k, e in enumerate(simulator.entities) if hasattr(e, "line")}
    return {
        (cx, cy): [in_words(segment, doors.get(id(segment))) for segment in simulator.stage.segments[cx][cy]]
        for cx in range(CELLS_X)
        for cy in range(CELLS_Y)
    }


def test_segments_single_full_tile_has_eight_faces():
    level = Level.build(tiles((5, 5, 1), floor=None), (40, 40))
    points = "132,120 120,120 120,144 132,144 144,120 132,120 132,144 144,144 "
    points += "120,120 120,132 120,132 120,144 144,132 144,120 144,144 144,132"
    numbers = [float(v) for v in points.replace(",", " ").split()]
    assert compiled_segments(level)[5, 5] == [("line", *numbers[i : i + 4]) for i in range(0, 32, 4)]


@pytest.mark.parametrize("tile", range(40))
def test_segments_tile_pairs_equal_naive(tile):
    around = [(20 + i, 20 + j, t) for i, j, t in ((1, 0, 1), (-1, 0, 4), (0, 1, 6), (0, -1, 11))]
    for grid in (tiles((9, 9, tile), floor=None), tiles((20, 20, tile), *around)):
        level = Level.build(grid, (40, 40))
        assert compiled_segments(level) == naive_segments(level)


@given(seed=SEEDS, density=st.sampled_from([0.2, 0.5, 0.9]))
@settings(max_examples=15, deadline=None)
def test_segments_random_levels_equal_naive_in_order(seed, density):
    level = random_level(seed, density, shapes=42)
    assert compiled_segments(level) == naive_segments(level)


@given(seed=SEEDS, shape=st.integers(0, len(SHAPES) - 1))
@settings(max_examples=150, deadline=None)
def test_closest_point_equals_naive_and_is_nearest(seed, shape):
    rng = np.random.default_rng(seed)
    x, y = (int(v) for v in rng.integers(2, 40, 2) * 12)
    px, py = (np.array([x, y]) + rng.uniform(-60, 60, 2)).tolist()
    reference = of_shape(shape, x, y)
    found_x, found_y, side = kernels.closest_point(px, py, np.int16(x), np.int16(y), np.uint16(shape))
    assert (side < 0.0, found_x, found_y) == reference.closest(px, py)
    segment = np.array([(x, y, shape, -1)], SEGMENT_DTYPE)[0]
    assert kernels.is_beside(px, py, segment) == reference.is_beside(px, py)
    share = np.linspace(0, 1, 2000)  # points less than 0.02 px apart
    if isinstance(reference, Arc):
        along_x, along_y = (
            x + 24 * reference.hor * np.cos(share * np.pi / 2),
            y + 24 * reference.ver * np.sin(share * np.pi / 2),
        )
    else:
        along_x, along_y = x + share * reference.dx, y + share * reference.dy
    nearest = np.hypot(along_x - px, along_y - py).min()
    assert math.dist((found_x, found_y), (px, py)) == pytest.approx(nearest, abs=0.02)


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_normal_equals_naive_and_faces_query_point(shape):
    reference = of_shape(shape, 300, 300)
    segment = np.array([(300, 300, shape, -1)], SEGMENT_DTYPE)[0]
    for px, py in (300 + np.random.default_rng(shape).uniform(-60, 60, (20, 2))).tolist():
        _, x, y = reference.closest(px, py)
        normal = np.array(kernels.surface_normal(x, y, segment, px, py))
        if int(SHAPES[shape, 0]) == DOOR_LINE:
            assert normal @ (px - x, py - y) >= 0 and tuple(abs(normal)) == tuple(abs(np.array(reference.normal(x, y))))
        else:
            assert tuple(normal) == reference.normal(x, y)


def test_closest_point_outside_arc_is_arc_end():
    shape = np.uint16([tuple(s[:3]) for s in SHAPES].index((CONVEX_ARC, 1, 1)))
    at = np.int16(100)
    assert kernels.closest_point(101.0, 95.0, at, at, shape) == (124.0, 100.0, 1.0)
    assert kernels.closest_point(95.0, 101.0, at, at, shape) == (100.0, 124.0, 1.0)
    assert kernels.closest_point(99.0, 99.0, at, at, shape) == (100.0, 124.0, 1.0)  # the vertical end wins ties
    assert kernels.closest_point(101.0, 101.0, at, at, shape)[2] < 0.0  # inside the quarter disc


class Both:
    """A level's arrays for the kernels and its reference, with doors in the same random state."""

    def __init__(self, level, rng):
        compiled = compile_level(level)
        self.stage, doors = (reference := Simulator(level, completions=True)).stage, reference.entities
        self.doors = {k: door for k, door in enumerate(doors) if hasattr(door, "line")}
        self.entities = np.zeros(max(len(compiled.world.entity), 1), ENTITY_DTYPE)
        self.tables = compiled.world.segments, compiled.world.cell_start[0], 0, self.entities
        self.set_doors(rng.integers(0, 2, len(self.entities)))

    def set_doors(self, closed):
        self.entities["closed"] = closed
        for k, door in self.doors.items():
            door.line.active = bool(self.entities["closed"][k])

    def nearest_surface(self, x, y, radius=10.0):
        return kernels.nearest_surface(x, y, radius, *self.tables)

    def nearest_segment(self, x, y, radius=10.0):
        return kernels.nearest_segment(x, y, radius, *self.tables)

    def sweep(self, x, y, wx, wy, radius=5.0):
        return kernels.sweep(x, y, wx, wy, radius, *self.tables)

    def clearance(self, x, y, around=math.inf):
        """Distance from a point to the nearest segment of the cells that are at most ``around`` px away."""
        near = self.stage.segments_in(x - around, y - around, x + around, y + around) if around < math.inf else None
        every = near if near is not None else self.stage.segments_in(0, 0, 1055, 599)
        return min((math.dist(segment.closest(x, y)[1:], (x, y)) for segment in every), default=math.inf)


def random_points(rng, count):
    """Points all over the stage, half of them on a grid of 3 px, where ties and cell borders are."""
    points = rng.uniform((0, 0), (1056, 600), (count, 2))
    points[::2] = np.round(points[::2] / 3) * 3
    return points.tolist()


@given(seed=SEEDS)
@settings(max_examples=10, deadline=None)
def test_nearest_surface_equals_naive(seed):
    rng = np.random.default_rng(seed)
    both = Both(random_level(seed, 0.4), rng)
    for x, y in random_points(rng, 60):
        result, found_x, found_y, *more, k = both.nearest_segment(x, y)
        assert both.nearest_surface(x, y) == (result, found_x, found_y, *more)
        *wanted, segment = both.stage.nearest(x, y, 10.0)
        assert [result, found_x, found_y] == wanted
        if segment is None:
            assert k == -1
        else:
            row_x, row_y, shape, entity = both.tables[0][k].tolist()
            assert in_words(of_shape(shape, row_x, row_y)) == in_words(segment)
            assert entity < 0 or both.doors[entity].line is segment


def test_clamped_cell_is_exact_floor():
    edges = 24.0 * np.arange(-3, CELLS_X + 4)
    near = [edges, np.arange(-50.0, 1200.0, 0.37), np.array([-0.0, 5e-324, -5e-324])]
    for way in (-np.inf, np.inf):
        value = edges
        for _ in range(3):
            value = np.nextafter(value, way)
            near.append(value)
    for value in np.concatenate(near).tolist():
        for limit in (CELLS_X, CELLS_Y):
            assert kernels.clamped_cell(value, limit) == min(max(math.floor(value / 24.0), 0), limit - 1), value


NEAR_EDGES = st.integers(-2, 30).flatmap(
    lambda cell: st.sampled_from([0.0, 1e-13, 4e-13, 0.1, 3.4, 10.0, 10.1, 13.9]).flatmap(
        lambda off: st.sampled_from([24.0 * cell + off, 24.0 * cell - off])
    )
)


@given(
    query=st.tuples(NEAR_EDGES, NEAR_EDGES), then=st.tuples(NEAR_EDGES, NEAR_EDGES), more=st.sampled_from([0.0, 0.1])
)
@example(query=(120.0, 110.07), then=(120.0, 110.0), more=0.0)  # onto a floor: the edge of the query is that of a cell
@example(query=(120.0, 110.07), then=(120.0, 109.99999999999999), more=0.0)
@example(query=(14.0, 14.0), then=(9.9, 14.0), more=0.0)  # off the stage
@settings(max_examples=300, deadline=None)
def test_same_cells_query_skips_only_equal_cells(query, then, more):
    def numbers(x, y, radius):
        edges = (x - radius, x + radius, y - radius, y + radius)
        return [math.floor(edge / 24.0) for edge in edges]

    now, on_stage = numbers(*then, 10.0 + more), (range(CELLS_X), range(CELLS_X), range(CELLS_Y), range(CELLS_Y))
    clamped = [
        min(max(number, 0), len(cells) - 1) for number, cells in zip(numbers(*query, 10.0), on_stage, strict=True)
    ]
    same = kernels.searches(*then, 10.0 + more, kernels.cells_around(*query, 10.0))
    assert same == (now == clamped)  # beyond the stage the numbers are other ones: not said there


@given(seed=SEEDS)
@settings(max_examples=10, deadline=None)
def test_near_flags_separate_entities_and_one_ways(seed):
    compiled = compile_level(mixed_level(seed, 0.02))
    one_ways = np.zeros(CELLS_X * CELLS_Y, bool)
    for x, y in compiled.entity_xy[compiled.entity_type == kinds.ONE_WAY]:
        one_ways[min(int(x // TILE), CELLS_X - 1) * CELLS_Y + min(int(y // TILE), CELLS_Y - 1)] = True
    holding = {
        NEAR_SEGMENTS: np.diff(compiled.world.cell_start[0]) > 0,
        NEAR_ITEMS: np.diff(compiled.world.entity_cell_start[0]) > 0,
        NEAR_ONE_WAYS: one_ways,
    }
    for bit, cells in holding.items():
        full = np.pad(cells.reshape(CELLS_X, CELLS_Y), 1)
        blocks = np.lib.stride_tricks.sliding_window_view(full, (3, 3)).any((2, 3))
        assert ((compiled.world.near[0] & bit).reshape(CELLS_X, CELLS_Y) > 0).tolist() == blocks.tolist()


@given(x=st.floats(-1e100, 1e100), y=st.floats(-1e100, 1e100), flat=st.booleans())
@settings(max_examples=300, deadline=None)
def test_unit_vectors_match_formula(x, y, flat):
    x = math.copysign(0.0, x) if flat else x
    assume(x * x + y * y > 0.0 and (not flat or y * y > 1e-300))
    length = math.sqrt(x * x + y * y)
    assert length_of(x, y) == length
    found = unit_vector(x, y, length)
    assert [value.hex() for value in found] == [(x / length).hex(), (y / length).hex()]


@given(seed=SEEDS)
@settings(max_examples=10, deadline=None)
def test_beside_query_bound_never_exceeds_distance(seed):
    rng = np.random.default_rng(seed)
    both = Both(random_level(seed, 0.3), rng)
    for x, y in random_points(rng, 40):
        beside = both.nearest_surface(x, y)[-1]
        points = [segment.closest(x, y)[1:] for segment in both.stage.segments_in(x - 10, y - 10, x + 10, y + 10)]
        level = [abs(point_x - x) for point_x, point_y in points if abs(point_y - y) < 0.9]
        assert beside <= min(level, default=math.inf) + 1e-9


@given(seed=SEEDS)
@example(seed=664823173)  # a front face at 0.44 px counts as nearer than a back face at 0.32
@settings(max_examples=10, deadline=None)
def test_near_cells_query_misses_no_surface(seed):
    rng = np.random.default_rng(seed)
    both = Both(random_level(seed, 0.3, doors=False), rng)
    for x, y in random_points(rng, 8):
        clearance = both.clearance(x, y)
        result, found_x, found_y, *_ = both.nearest_surface(x, y)
        if clearance < 9.99:
            assert result != 0
            distance = math.dist((found_x, found_y), (x, y))
            assert clearance - 0.01 <= distance
            assert distance**2 <= (clearance + 0.01) ** 2 + 0.1  # by so much, front faces count as nearer


@given(seed=SEEDS)
@settings(max_examples=12, deadline=None)
def test_sweep_stops_at_first_contact(seed):
    rng = np.random.default_rng(seed)
    both = Both(random_level(seed, 0.25, doors=False), rng)
    for x, y in random_points(rng, 6):
        length, angle = rng.uniform(0.5, 14.0), rng.uniform(0, 2 * np.pi)
        wx, wy = length * math.cos(angle), length * math.sin(angle)
        t = both.sweep(x, y, wx, wy)
        assert 0.0 <= t <= 1.0

        def gap(s, x=x, y=y, wx=wx, wy=wy):
            return both.clearance(x + s * wx, y + s * wy, around=48)

        if t == 0.0:
            assert gap(0.0) <= 5.0 + 1e-9
            continue
        assert min(gap(t * k / 20) for k in range(20)) >= 5.0 - 1e-9  # free until then ...
        if t < 1.0:
            assert gap(t) == pytest.approx(5.0, abs=1e-6)  # ... and touching then


@given(seed=SEEDS)
@settings(max_examples=10, deadline=None)
def test_sweep_equals_naive_despite_bounding_boxes(seed):
    rng = np.random.default_rng(seed)
    both = Both(random_level(seed, 0.4), rng)
    for x, y in random_points(rng, 40):
        wx, wy = rng.normal(0, 5, 2).tolist()
        assert both.sweep(x, y, wx, wy) == both.stage.sweep(x, y, wx, wy, 5.0)


def test_sweep_open_door_passes_and_closed_door_stops():
    level = Level.build(tiles(), (20, 46), entities=[(5, 44, 46, 0)])
    both = Both(level, np.random.default_rng(0))
    for closed in (1, 0):
        both.set_doors(closed)
        t = both.sweep(250.0, 276.0, 12.0, 0.0)
        assert t == pytest.approx((264.0 - 5.0 - 250.0) / 12.0 if closed else 1.0)
        result, x, *_ = both.nearest_surface(258.0, 270.0)
        assert (result, x) == ((1, 264.0) if closed else (0, 0.0))  # no other segment is in the cells around
