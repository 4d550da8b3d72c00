"""Tiles become segments as docs/physics.md says, and the fast queries answer like slow ones."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nppsim import compile as geometry
from nppsim.levels.level import Level
from nppsim.physics import segments as kernels
from nppsim.physics.state import ENTITY_DTYPE

import naive_segments as naive
from worlds import random_level, tiles

SEEDS = st.integers(0, 2**32 - 1)
SHAPE_KINDS = {
    geometry.LINE: "line",
    geometry.CONVEX_ARC: "arc",
    geometry.CONCAVE_ARC: "arc",
    geometry.DOOR_LINE: "door",
}


def compiled_segments(level):
    """The kernels' segments in the form of ``naive.segments``."""
    compiled = geometry.compile_level(level)
    cells = {}
    for cell in range(geometry.NUM_CELLS):
        rows = compiled.segments[compiled.cell_start[cell] : compiled.cell_start[cell + 1]]
        part = cells[cell // geometry.CELLS_Y, cell % geometry.CELLS_Y] = []
        for x, y, shape, entity in rows.tolist():
            kind, dx, dy = (int(v) for v in geometry.SHAPES[shape, :3])
            if SHAPE_KINDS[kind] == "arc":
                part.append(("arc", x, y, dx, dy, kind == geometry.CONVEX_ARC))
            else:
                part.append(
                    (SHAPE_KINDS[kind], x, y, x + dx, y + dy, *([entity] if kind == geometry.DOOR_LINE else []))
                )
    return cells


def test_a_lone_full_tile_has_the_eight_faces_of_the_rulebook():
    level = Level.build(tiles((5, 5, 1), floor=None), (40, 40))
    points = "132,120 120,120 120,144 132,144 144,120 132,120 132,144 144,144 "
    points += "120,120 120,132 120,132 120,144 144,132 144,120 144,144 144,132"
    numbers = [float(v) for v in points.replace(",", " ").split()]
    assert compiled_segments(level)[5, 5] == [("line", *numbers[i : i + 4]) for i in range(0, 32, 4)]


@pytest.mark.parametrize("tile", range(40))
def test_each_tile_alone_and_beside_others_gives_the_segments_of_its_outline(tile):
    around = [(20 + i, 20 + j, t) for i, j, t in ((1, 0, 1), (-1, 0, 4), (0, 1, 6), (0, -1, 11))]
    for grid in (tiles((9, 9, tile), floor=None), tiles((20, 20, tile), *around)):
        level = Level.build(grid, (40, 40))
        assert compiled_segments(level) == naive.segments(level)


@given(seed=SEEDS, density=st.sampled_from([0.2, 0.5, 0.9]))
@settings(max_examples=15, deadline=None)
def test_the_segments_of_a_level_agree_with_their_naive_twin_in_order(seed, density):
    level = random_level(seed, density, shapes=42)
    assert compiled_segments(level) == naive.segments(level)


@given(seed=SEEDS, shape=st.integers(0, len(geometry.SHAPES) - 1))
@settings(max_examples=150, deadline=None)
def test_the_closest_point_of_a_segment_agrees_with_its_naive_twin(seed, shape):
    rng = np.random.default_rng(seed)
    kind, dx, dy = (int(v) for v in geometry.SHAPES[shape, :3])
    x, y = (int(v) for v in rng.integers(2, 40, 2) * 12)
    px, py = (np.array([x, y]) + rng.uniform(-60, 60, 2)).tolist()
    name = SHAPE_KINDS[kind]
    segment = ("arc", x, y, dx, dy, kind == geometry.CONVEX_ARC) if name == "arc" else (name, x, y, x + dx, y + dy)
    found_x, found_y, side = kernels.closest_point(px, py, np.int16(x), np.int16(y), np.int16(shape))
    assert (found_x, found_y) == pytest.approx(naive.closest(segment, px, py), abs=1e-9)
    assert (side < 0.0) == naive.is_back(segment, px, py)
    # And no point of the segment, densely sampled, is closer.
    share = np.linspace(0, 1, 400)
    if name == "arc":
        along_x, along_y = x + 24 * dx * np.cos(share * np.pi / 2), y + 24 * dy * np.sin(share * np.pi / 2)
    else:
        along_x, along_y = x + share * dx, y + share * dy
    nearest = np.hypot(along_x - px, along_y - py).min()
    assert math.dist((found_x, found_y), (px, py)) == pytest.approx(nearest, abs=0.02)


def test_a_point_outside_the_quadrant_of_an_arc_sees_one_of_its_ends_and_is_never_behind_it():
    shape = np.int16([tuple(s[:3]) for s in geometry.SHAPES].index((geometry.CONVEX_ARC, 1, 1)))
    at = np.int16(100)
    assert kernels.closest_point(101.0, 95.0, at, at, shape) == (124.0, 100.0, 1.0)
    assert kernels.closest_point(95.0, 101.0, at, at, shape) == (100.0, 124.0, 1.0)
    assert kernels.closest_point(99.0, 99.0, at, at, shape) == (100.0, 124.0, 1.0)  # the vertical end wins ties
    assert kernels.closest_point(101.0, 101.0, at, at, shape)[2] < 0.0  # inside the quarter disc


class Stage:
    """A level's arrays for the kernels, its naive segments, and doors in a random state."""

    def __init__(self, level, rng):
        compiled = geometry.compile_level(level)
        self.cells = naive.segments(level)
        self.entities = np.zeros(max(len(compiled.initial), 1), ENTITY_DTYPE)
        self.entities["closed"] = rng.integers(0, 2, len(self.entities))
        self.closed = set(np.flatnonzero(self.entities["closed"]).tolist())
        self.tables = compiled.segments, compiled.cell_start, 0, self.entities

    def nearest_surface(self, x, y, radius=10.0):
        return kernels.nearest_surface(x, y, radius, *self.tables)[:3]

    def sweep(self, x, y, wx, wy, radius=5.0):
        return kernels.sweep(x, y, wx, wy, radius, *self.tables)


def random_points(rng, count):
    """Points all over the stage, half of them on a grid of 3 px, where ties and cell borders are."""
    points = rng.uniform((0, 0), (1056, 600), (count, 2))
    points[::2] = np.round(points[::2] / 3) * 3
    return points.tolist()


@given(seed=SEEDS)
@settings(max_examples=10, deadline=None)
def test_the_nearest_surface_agrees_with_brute_force(seed):
    rng = np.random.default_rng(seed)
    stage = Stage(random_level(seed, 0.4), rng)
    for x, y in random_points(rng, 60):
        result, found_x, found_y = stage.nearest_surface(x, y)
        wanted = naive.surfaces(stage.cells, x, y, 10.0, stage.closed)
        if not wanted:
            assert result == 0
            continue
        best, *others = wanted
        got = (found_x - x) ** 2 + (found_y - y) ** 2 - (0.1 if result > 0 else 0.0)
        assert got == pytest.approx(best[0], abs=1e-9)
        tied = [best] + [o for o in others if o[0] < best[0] + 1e-9]
        assert any((result, found_x, found_y) == pytest.approx(t[1:], abs=1e-9) for t in tied)


@given(seed=SEEDS)
@settings(max_examples=10, deadline=None)
def test_no_surface_within_the_radius_is_missed_by_looking_only_at_near_cells(seed):
    rng = np.random.default_rng(seed)
    stage = Stage(random_level(seed, 0.3, doors=False), rng)
    for x, y in random_points(rng, 8):
        clearance = naive.clearance(stage.cells, x, y, stage.closed)
        result, found_x, found_y = stage.nearest_surface(x, y)
        if clearance < 9.99:
            assert result != 0
            assert math.dist((found_x, found_y), (x, y)) == pytest.approx(clearance, abs=0.01)  # faces count 0.1 px^2


@given(seed=SEEDS)
@settings(max_examples=12, deadline=None)
def test_a_sweep_stops_where_the_circle_first_touches_anything(seed):
    rng = np.random.default_rng(seed)
    stage = Stage(random_level(seed, 0.25, doors=False), rng)
    for x, y in random_points(rng, 6):
        length, angle = rng.uniform(0.5, 14.0), rng.uniform(0, 2 * np.pi)
        wx, wy = length * math.cos(angle), length * math.sin(angle)
        t = stage.sweep(x, y, wx, wy)
        assert 0.0 <= t <= 1.0
        near = {"": naive.gathered(stage.cells, x - 48, y - 48, x + 48, y + 48)}

        def gap(s, x=x, y=y, wx=wx, wy=wy, near=near):
            return naive.clearance(near, x + s * wx, y + s * wy, ()) if near[""] else math.inf

        if t == 0.0:
            assert gap(0.0) <= 5.0 + 1e-9
            continue
        assert min(gap(t * k / 20) for k in range(20)) >= 5.0 - 1e-9  # free until then ...
        if t < 1.0:
            assert gap(t) == pytest.approx(5.0, abs=1e-6)  # ... and touching then


@given(seed=SEEDS)
@settings(max_examples=10, deadline=None)
def test_leaving_out_segments_by_their_bounding_box_changes_no_sweep(seed):
    rng = np.random.default_rng(seed)
    stage = Stage(random_level(seed, 0.4), rng)
    table, cell_start, _, entities = stage.tables
    for x, y in random_points(rng, 40):
        wx, wy = rng.normal(0, 5, 2)
        low, high = (min(x, x + wx) - 6, min(y, y + wy) - 6), (max(x, x + wx) + 6, max(y, y + wy) + 6)
        (a, b), (c, d) = naive.clamped_cell(*low), naive.clamped_cell(*high)
        times = [
            kernels.impact_segment(x, y, wx, wy, *table[k, :3], 5.0)
            for cx in range(a, c + 1)
            for k in range(cell_start[cx * 25 + b], cell_start[cx * 25 + d + 1])
            if table[k, 3] < 0 or entities[table[k, 3]]["closed"]
        ]
        assert stage.sweep(x, y, wx, wy) == min([1.0, *times])


def test_an_open_door_is_invisible_and_a_closed_one_stops_the_sweep():
    level = Level.build(tiles(), (20, 46), entities=[(5, 44, 46, 0)])
    stage = Stage(level, np.random.default_rng(0))
    for closed in (1, 0):
        stage.entities["closed"] = closed
        stage.closed = {0} if closed else set()
        t = stage.sweep(250.0, 276.0, 12.0, 0.0)
        assert t == pytest.approx((264.0 - 5.0 - 250.0) / 12.0 if closed else 1.0)
        result, x, _ = stage.nearest_surface(258.0, 270.0)
        assert (result, x) == ((1, 264.0) if closed else (0, 0.0))  # no other segment is in the cells around
