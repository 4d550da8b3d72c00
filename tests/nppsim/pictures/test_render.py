"""Pictures: tile shapes against a naive reference, placement, cropping and film frames."""

import numpy as np
import pytest

import nppsim
from nppsim.actions import JUMP, RIGHT
from nppsim.pictures.canvas import PALETTE, ROUTE_COLOURS, mixed
from nppsim.pictures.region import STAGE, film_pixels_per_tile, tile_masks, used_region, widened
from nppsim.pictures.render import (
    FilmSettings,
    contact_sheet,
    draw_level,
    draw_route,
    draw_two_routes,
    film_steps,
    frames,
)
from nppsim.pictures.scene import Scene, level_entities, ninja_looks
from nppsim.pictures.texts import PANEL_HEIGHT, TWO_COLOURS, FilmPanel, font, pen_on, wrapped

import worlds
from worlds import small_room as corridor


def open_side(shape, x, y):
    """Is (x, y) in the open part of a tile?  The naive reference: one inequality per shape, as read off a drawing."""
    d = {10: (x, y), 11: (24 - x, y), 12: (24 - x, 24 - y), 13: (x, 24 - y)}
    if shape in d:
        return np.hypot(*d[shape]) > 24
    if shape in range(14, 18):
        return np.hypot(*d[{14: 12, 15: 13, 16: 10, 17: 11}[shape]]) < 24
    return {
        0: True, 1: False, 2: y > 12, 3: x < 12, 4: y < 12, 5: x > 12,
        6: x + y > 24, 7: y > x, 8: x + y < 24, 9: y < x,
        18: y > 12 - x / 2, 19: y > x / 2, 20: y < 24 - x / 2, 21: y < 12 + x / 2,
        22: y > 24 - x / 2, 23: y > 12 + x / 2, 24: y < 12 - x / 2, 25: y < x / 2,
        26: x > 12 - y / 2, 27: x < 12 + y / 2, 28: x < 24 - y / 2, 29: x > y / 2,
        30: x > 24 - y / 2, 31: x < y / 2, 32: x < 12 - y / 2, 33: x > 12 + y / 2,
    }.get(shape, False)  # fmt: skip


@pytest.mark.parametrize("shape", range(38))
def test_tile_shapes_drawn_solid_where_solid(shape):
    tiles = np.ones((23, 42), np.uint8)
    tiles[10, 10] = shape
    level = nppsim.Level(tiles, np.array([[0, 8, 8, 0, 0]], np.uint8))
    picture = np.asarray(draw_level(level, ninja=False))
    left, top = 11 * 24, 11 * 24
    probes = 0
    for y in range(1, 23):
        for x in range(1, 23):
            near = {bool(open_side(shape, x + 0.5 + dx, y + 0.5 + dy)) for dx in (-2, 0, 2) for dy in (-2, 0, 2)}
            if len(near) == 1:  # away from the outline
                expected = PALETTE.background if near.pop() else PALETTE.tile
                colour = tuple(picture[top + y, left + x])
                if expected == PALETTE.background:
                    assert colour == expected, (x, y)
                else:
                    assert colour in (PALETTE.tile, PALETTE.rim), (x, y)
                probes += 1
    assert probes > 200


def test_solid_masks_cover_geometric_area():
    share = tile_masks(96).mean(axis=(1, 2))
    assert share[4] == 0.5 and share[8] == pytest.approx(0.5, abs=0.01)
    assert share[18] == pytest.approx(0.25, abs=0.01) and share[25] == pytest.approx(0.75, abs=0.01)
    assert share[12] == pytest.approx(np.pi / 4, abs=0.01) and share[14] == pytest.approx(1 - np.pi / 4, abs=0.01)
    assert not share[38:].any()


def test_draw_level_scale_sets_size():
    level = corridor()
    assert draw_level(level).size == (1056, 600)
    assert draw_level(level, scale=0.5).size == (528, 300)
    assert draw_level(level, crop=True).size == (12 * 48, 6 * 48)
    assert draw_level(corridor(width=30), crop=True).size == (32 * 32, 6 * 32)
    with pytest.raises(ValueError, match="scale=0"):
        draw_level(level, scale=0)


def test_used_region_is_room_with_walls():
    level = corridor(width=10, height=4)
    assert used_region(level) == (4, 7, 16, 13)
    assert used_region(level, [(24.0 * 30, 24.0 * 3)])[1:3] == (1, 32)
    assert widened((4, 7, 7, 9)) == (0, 6, 12, 11)
    left, top, right, bottom = widened((41, 22, 44, 25))
    assert (right, bottom) == STAGE and right - left == 12 and bottom - top == 5


def test_used_region_ignores_gaps_smaller_than_ninja():
    level = corridor(width=10, height=4)
    tiles = level.tiles.copy()
    tiles[9, 14] = 5  # a 12 px wide slit, left half solid, and a large hall behind it
    tiles[0:22, 15:41] = 0
    assert used_region(nppsim.Level(tiles, level.records, "slit"))[2] <= 17


def test_entities_drawn_at_record_positions():
    extra = [(1, 50, 40, 0, 0), (2, 44, 40, 0, 0)]
    picture = np.asarray(draw_level(corridor(extra=extra)))
    plain = np.asarray(draw_level(corridor()))
    changed = np.argwhere((picture != plain).any(axis=2))
    for y, x in changed:
        assert min(np.hypot(x - 6 * ex, y - 6 * ey) for _, ex, ey, _, _ in extra) < 10
    reds = picture[6 * 40 - 3 : 6 * 40 + 4, 6 * 50 - 3 : 6 * 50 + 4].reshape(-1, 3)
    assert (reds == PALETTE.red).all(axis=1).sum() > 15
    golds = picture[6 * 40 - 4 : 6 * 40 + 5, 6 * 44 - 4 : 6 * 44 + 5].reshape(-1, 3)
    assert (golds == PALETTE.gold).all(axis=1).sum() > 15


def test_switches_paired_with_doors():
    records = np.array(
        [(0, 8, 8, 0, 0), (3, 20, 20, 0, 0), (3, 30, 30, 0, 0), (4, 21, 21, 0, 0), (4, 31, 31, 0, 0),
         (6, 40, 40, 0, 0), (7, 41, 41, 0, 0)], np.uint8)  # fmt: skip
    found = {(e.kind, e.index): e for e in level_entities(nppsim.Level(np.zeros((23, 42), np.uint8), records))}
    assert set(found) == {(3, 0), (3, 1), (4, 0), (4, 1), (6, 0)}
    assert found[3, 1].switch == found[4, 1].at == (186.0, 186.0)
    assert (found[6, 0].at, found[6, 0].switch) == ((240.0, 240.0), (246.0, 246.0))


def test_exit_drawn_open_after_switch():
    level = corridor()
    run = nppsim.simulate(level, np.full(600, RIGHT, np.uint8))
    assert run.outcome == "won"
    x, y = (6 * level.records[1, 1:3].astype(int)).tolist()
    before, after = np.asarray(draw_level(level)), np.asarray(draw_route(level, run))
    assert np.abs(before[y, x + 2].astype(int) - PALETTE.blue).max() > 80
    assert np.abs(after[y, x + 2].astype(int) - PALETTE.blue).max() < 20


def test_draw_two_routes_in_two_colours():
    level = corridor(width=14)
    run = nppsim.simulate(level, np.full(600, RIGHT, np.uint8))
    still = nppsim.simulate(level, np.full(9, 0, np.uint8))
    picture = np.asarray(draw_two_routes(level, (run, run), ("a", "b" * 200), crop=False, parted=20)).astype(int)
    way = picture[round(run.position[30, 1]), round(run.position[30, 0]) : round(run.position[70, 0])]
    assert all((np.abs(way - colour).max(axis=1) < 60).sum() > 10 for colour in TWO_COLOURS), "in dashes"
    x, y = (round(v) for v in run.position[-1])
    assert np.abs(picture[y, x] - PALETTE.green).max() < 60
    other = np.asarray(draw_two_routes(level, (run, still), ("a", "b"), crop=False)).astype(int)
    way = other[round(run.position[30, 1]), round(run.position[30, 0]) : round(run.position[70, 0])]
    assert (np.abs(way - TWO_COLOURS[0]).max(axis=1) < 60).sum() > 20
    assert not (np.abs(way - TWO_COLOURS[1]).max(axis=1) < 60).any(), "only one of the two came here"


def test_draw_two_routes_cropped_with_second_marks():
    level = corridor(width=14)
    run = nppsim.simulate(level, np.full(600, RIGHT, np.uint8))
    still = nppsim.simulate(level, np.full(100, 0, np.uint8))
    region = widened(used_region(level, run.position))
    ppt = film_pixels_per_tile(region, 1.0)
    picture = np.asarray(draw_two_routes(level, (run, still), ("a", "b"))).astype(int)
    assert picture.shape[1] == (region[2] - region[0]) * ppt and picture.shape[1] > 14 * 24
    scene = Scene(level, ppt, region)
    reach = [np.abs(picture[y - 12 : y + 13, x - 1 : x + 2] - TWO_COLOURS[0]).max(axis=2) < 60
             for x, y in (map(round, scene.to_picture(run.position[frame])) for frame in (40, 59))]  # fmt: skip
    assert reach[1].sum() > 1.5 * reach[0].sum(), "the way is thicker where a second ends"


def test_route_fades_with_age():
    level = corridor(width=14)
    run = nppsim.simulate(level, np.full(600, RIGHT, np.uint8))
    picture = np.asarray(draw_route(level, run)).astype(int)
    distance = []
    for share, unfaded in (
        (0.2, mixed(ROUTE_COLOURS[0], ROUTE_COLOURS[1], 0.8)),
        (0.8, mixed(ROUTE_COLOURS[3], ROUTE_COLOURS[4], 0.2)),
    ):
        x, y = (round(v) for v in run.position[int(share * run.frames)])
        seen = picture[y - 1 : y + 2, x]
        distance.append(np.abs(seen - np.array(unfaded)).max(axis=1).min())
    assert distance[0] > 60 > 40 > distance[1], "far from its colour first, near it at the end"


def test_long_captions_are_wrapped():
    from PIL import Image

    pen, face = pen_on(Image.new("RGB", (1, 1))), font(15)
    text = "some words, and " + "a_name_without_any_end_" * 9
    lines = wrapped(pen, text, face, 200)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(pen.textlength(line, face) <= 200 for line in lines) and len(lines) > 5
    level, inputs = corridor(), np.full(4, RIGHT, np.uint8)
    short, long = (next(frames(level, inputs, FilmSettings(title=title, category="c"))) for title in ("a", text * 2))
    assert short.shape[1] == long.shape[1] and long.shape[0] > short.shape[0] and long.shape[0] % 2 == 0
    region = widened(used_region(level, np.empty((0, 2))))
    stage = (region[3] - region[1]) * film_pixels_per_tile(region, 1.0)
    assert (short[:stage] == long[:stage]).all()


def test_frames_second_run_drawn_pale_beside():
    level = corridor(width=14)
    still, running = np.zeros(60, np.uint8), np.full(60, RIGHT, np.uint8)
    alone = list(frames(level, still))
    both = list(frames(level, still, FilmSettings(second=running, second_name="another")))
    stage = alone[0].shape[0] - PANEL_HEIGHT
    changed = [
        np.flatnonzero((a[:stage] != b[:stage]).any(axis=2).any(axis=0)) for a, b in zip(alone, both, strict=True)
    ]
    assert changed[-1].mean() > changed[10].mean() + 20, "it moves"
    second = both[-1][(alone[-1] != both[-1]).any(axis=2)]
    assert not (second == PALETTE.ink).all(axis=1).any(), "only the first ninja is black"


def test_draw_route_shows_start_end_and_jumps():
    level = corridor(width=14)
    inputs = np.full(600, RIGHT, np.uint8)
    inputs[5:25] |= JUMP
    run = nppsim.simulate(level, inputs)
    picture = np.asarray(draw_route(level, run, title="a title that is far too long for its place " * 9))
    assert picture.shape[1:] == (1056, 3) and picture.shape[0] > 600 + PANEL_HEIGHT, "lines of its own for the title"
    jump = run.position[int(np.argmax(run.ninja_state == 3)) - 1]
    points = {
        "start": (level.spawn, PALETTE.pale),
        "end": (run.position[-1], PALETTE.green),
        "jump": (jump, PALETTE.pale),
    }
    for name, ((x, y), colour) in points.items():
        assert np.abs(picture[round(y), round(x)].astype(int) - colour).max() < 60, name


def test_draw_route_marks_a_frame_with_a_ring():
    level = corridor(width=14)
    run = nppsim.simulate(level, np.full(60, RIGHT, np.uint8))
    x, y = (round(value) for value in run.position[29])
    plain, marked = (np.asarray(draw_route(level, run, marked=frame)).astype(int) for frame in (None, 30))
    changed = np.argwhere(np.abs(marked - plain).max(axis=-1) > 60)
    assert np.abs(marked[y - 9, x] - PALETTE.amber).max() < 60
    assert np.abs(changed - (y, x)).max() <= 11


@pytest.mark.parametrize(("count", "fps", "steps"), [
    (5, 30, [0, 2, 4, 5]), (4, 30, [0, 2, 4]), (3, 60, [0, 1, 2, 3]), (0, 30, [0]), (7, 24, [0, 2, 5, 7]),
])  # fmt: skip
def test_film_steps_run_in_real_time(count, fps, steps):
    assert film_steps(count, fps) == steps


@pytest.mark.parametrize("fps", [0, 61])
def test_film_steps_rate_beyond_physics_raises_error(fps):
    with pytest.raises(ValueError, match=f"fps={fps} is outside"):
        film_steps(10, fps)


def test_frames_show_ninja_and_keys_only():
    level = corridor(switch=9)
    inputs = np.full(40, RIGHT, np.uint8)
    film = list(frames(level, inputs, FilmSettings(title="t", category="c")))
    assert len(film) == len(film_steps(40, 30)) == 21
    height, width, _ = film[0].shape
    assert film[0].dtype == np.uint8 and height % 2 == 0 and width % 2 == 0
    stage = height - PANEL_HEIGHT
    ppt = width // 12
    columns = [np.flatnonzero((picture[:stage] == PALETTE.ink).all(axis=2).any(axis=0)).min() for picture in film]
    assert columns[-1] > columns[0] + ppt  # the figure, the leftmost black thing, has run right
    above = slice(0, stage // 3)
    assert (film[0][above] == film[-1][above]).all()
    gold = [int((picture[stage:] == PALETTE.gold).all(axis=2).sum()) for picture in film]
    assert gold[0] == 0 and gold[5] > 100  # the key held


def test_last_film_frame_equals_full_redraw():
    """Redrawing boxes gives the same as drawing the whole last picture, except at joints of the thin trace."""
    level = corridor(width=14, extra=[(1, 60, 39, 0, 0), (21, 35, 44, 0, 0), (2, 40, 46, 0, 0)])
    inputs = np.full(90, RIGHT, np.uint8)
    inputs[30:50] |= JUMP
    run = nppsim.simulate(level, inputs)
    *_, last = frames(level, inputs, run=run)
    region = widened(used_region(level, run.position))
    scene = Scene(level, film_pixels_per_tile(region, 1.0), region)
    ninja = ninja_looks(level, run, inputs)[-1]
    whole = scene.picture(scene.looks, None)
    scene.repaint(
        whole, (0, 0, 1056, 600), scene.looks_at(run, run.frames), np.vstack([[level.spawn], run.position]), ninja
    )
    difference = np.abs(np.asarray(whole).astype(int) - last[: scene.height]).max(axis=2)
    assert (difference > 0).mean() < 1e-3 and difference.max() < 40


def test_contact_sheet_places_one_picture_per_level():
    levels = [corridor(width=w) for w in (6, 8, 10)]
    page = contact_sheet(levels, ["a", "b", "c" * 200], columns=2, notes=["par 1 s", "", ""], outcomes=["won", "", ""])
    ppt = 352 // 12  # the widest level, of ten tiles with its walls, fits its cell: one scale for all
    picture = np.asarray(page)
    assert page.width == 2 * 364 + 12
    open_ = (picture == PALETTE.background).all(axis=2)
    widths = [open_[:, left : left + 352].any(axis=0).sum() for left in (12, 376)]
    assert widths == [max(6, 10) * ppt, 8 * ppt], "the same pixels per tile"
    assert (np.abs(picture.astype(int) - PALETTE.green).max(axis=2) < 40).any(), "the note in the outcome's colour"
    with pytest.raises(ValueError, match="3 levels but 1 notes"):
        contact_sheet(levels, "abc", notes=["x"])
    with pytest.raises(ValueError, match="3 levels but 1 labels"):
        contact_sheet(levels, ["a"])
    with pytest.raises(ValueError, match="columns=0"):
        contact_sheet(levels, "abc", columns=0)


def test_film_clock_counts_down_and_gold_adds(monkeypatch):
    shown = []
    draw = FilmPanel.draw
    monkeypatch.setattr(FilmPanel, "draw", lambda self, *given: shown.append(given[:2]) or draw(self, *given))
    level = worlds.corridor(entities=[(2, 22, worlds.FLOOR)])
    run = nppsim.simulate(level, np.full(200, 2, np.uint8))
    assert run.won and run.gold[-1] == 1
    list(frames(level, np.full(200, 2, np.uint8), FilmSettings(fps=60), run=run))
    assert shown == [(0, 0), *((i + 1, gold) for i, gold in enumerate(run.gold))]
