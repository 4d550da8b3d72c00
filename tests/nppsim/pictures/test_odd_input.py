"""Unusual levels, replays and arguments are drawn or refused with an error."""

import numpy as np
import pytest

import nppsim
from nppsim.actions import RIGHT
from nppsim.errors import MissingPackageError
from nppsim.levels import kinds
from nppsim.pictures.canvas import PALETTE
from nppsim.pictures.region import RenderError
from nppsim.pictures.render import FilmSettings, contact_sheet, draw_level, draw_route, draw_two_routes, frames
from nppsim.pictures.scene import level_entities

from packages import hide
from worlds import small_room

NO_INPUTS = np.zeros(0, np.uint8)
SPAWN = (kinds.NINJA, 23, 46, 0, 0)


def level_of(*records, **more):
    """An empty stage with these records after the spawn."""
    return nppsim.Level(np.zeros((23, 42), np.uint8), np.array([SPAWN, *records], np.uint8), **more)


def draw_everything(level, inputs=NO_INPUTS):
    """All kinds of pictures, small; returns the one of the route."""
    run = nppsim.simulate(level, inputs)
    draw_level(level, 0.25, crop=True)
    contact_sheet([level], ["one"])
    draw_two_routes(level, (run, run), ("a", "b"), 0.25)
    assert len(list(frames(level, inputs, FilmSettings(scale=0.25)))) >= 1
    draw_route(level, run, 0.25, crop=True)
    return np.asarray(draw_route(level, run))


@pytest.mark.parametrize("kind", [kinds.EXIT, kinds.LOCKED_DOOR, kinds.TRAP_DOOR])
def test_draw_door_without_switch_record(kind):
    level = level_of((kind, 60, 48, 0, 0))
    assert [(e.kind, e.switch) for e in level_entities(level)] == [(kind, None)]
    picture = draw_everything(level, np.full(20, RIGHT, np.uint8))
    assert (picture[: 6 * 46, : 6 * 12] == np.asarray(draw_level(level_of()))[: 6 * 46, : 6 * 12]).all()
    assert (picture[6 * 48 - 10 : 6 * 48 + 10, 6 * 60 - 4 : 6 * 60 + 4] != PALETTE.background).any()


def test_draw_exit_without_switch():
    level = level_of((kinds.EXIT, 60, 48, 0, 0))
    before = np.asarray(draw_level(level, ninja=False))
    after = np.asarray(draw_route(level, nppsim.simulate(level, np.full(20, RIGHT, np.uint8))))
    door = (slice(6 * 48 - 12, 6 * 48 + 12), slice(6 * 60 - 12, 6 * 60 + 12))
    assert (before[door] == after[door]).all()


def test_draw_switch_at_corner_as_unpaired():
    (door,) = (e for e in level_entities(level_of((kinds.TRAP_DOOR, 60, 48, 0, 0), (9, 0, 0, 0, 0))) if e.kind == 8)
    assert door.switch == (0.0, 0.0)


def test_draw_outside_and_unknown_entities_ignored():
    outside = [(kind, x, y, 3, 0) for kind in range(1, 30) for x, y in ((255, 255), (255, 0), (0, 255))]
    unknown = [(kind, 90, 50, 7, 255) for kind in (27, 29, 30, 200, 255)]
    level = level_of(*outside, *unknown, (3, 255, 255, 0, 0))
    draw_everything(level, np.full(8, RIGHT, np.uint8))
    assert (np.asarray(draw_level(level_of(*unknown))) == np.asarray(draw_level(level_of()))).all()


@pytest.mark.parametrize("seed", range(6))
def test_draw_random_levels(seed):
    rng = np.random.default_rng(seed)
    records = rng.integers(0, (40, 256, 256, 256, 256), (60, 5)).astype(np.uint8)
    records[0] = (0, *rng.integers(0, (177, 101, 256, 256)))
    level = nppsim.Level(rng.integers(0, 256, (23, 42)).astype(np.uint8), records, exit_count=int(rng.integers(256)))
    draw_everything(level, rng.integers(0, 16, 40).astype(np.uint8))


def test_draw_run_without_frames():
    level = small_room()
    picture = draw_everything(level)
    x, y = level.spawn
    assert (picture[int(y), int(x)] == PALETTE.muted).all()  # its end, of no outcome


@pytest.mark.parametrize("title", ["two\nlines", "\t ", "ninja 忍者 \U0001f977", "\x00\x1b[31m", "<script>"])
def test_draw_any_title(title):
    level = small_room()
    run = nppsim.simulate(level, NO_INPUTS)
    draw_route(level, run, title=title, outcome=title)
    draw_two_routes(level, (run, run), (title, title))
    contact_sheet([level], [title])
    assert len(list(frames(level, NO_INPUTS, FilmSettings(title=title, category=title, outcome=title)))) == 1


@pytest.mark.parametrize("scale", [0, -1.0, 8.5, float("inf"), float("nan")])
def test_draw_invalid_scale_raises_error(scale):
    level = small_room()
    run = nppsim.simulate(level, NO_INPUTS)
    for draw in (
        lambda: draw_level(level, scale),
        lambda: draw_route(level, run, scale, crop=True),
        lambda: draw_two_routes(level, (run, run), "ab", scale),
        lambda: next(frames(level, NO_INPUTS, FilmSettings(scale=scale))),
    ):
        with pytest.raises(RenderError, match=r"scale=.* is outside 0\.\.8"):
            draw()


def test_draw_without_pillow_names_extra(monkeypatch):
    level = small_room()
    run = nppsim.simulate(level, NO_INPUTS)
    hide(monkeypatch, "PIL")
    for draw in (
        lambda: draw_level(level),
        lambda: draw_route(level, run),
        lambda: draw_two_routes(level, (run, run), "ab"),
        lambda: contact_sheet([level], ["a"]),
        lambda: next(frames(level, NO_INPUTS)),
    ):
        with pytest.raises(MissingPackageError, match=r"nppsim\[video\]"):
            draw()
