"""Drawing of beams, shots, crosshairs and rockets."""

import numpy as np
import pytest

pytest.importorskip("PIL")

import nppsim
from nppsim.gym.env import NppEnv
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.physics.aims import BEAM, CROSSHAIR, LOCKED, NO_AIM, ROCKET, TRACE, WARNING
from nppsim.pictures.region import TILE, WHOLE_STAGE, film_pixels_per_tile, used_region, widened
from nppsim.pictures.render import FilmSettings, draw_level, draw_route, frames
from nppsim.pictures.scene import Scene

SIGNS = {
    kinds.LASER: {BEAM},
    kinds.LASER_DRONE: {WARNING, BEAM},
    kinds.CHAINGUN_DRONE: {WARNING, BEAM, TRACE},
    kinds.GAUSS_TURRET: {CROSSHAIR, LOCKED, BEAM},
    kinds.ROCKET_TURRET: {NO_AIM, ROCKET},
}  # in a hall whose ninja stands still
EVERY = 7  # frames between two that are compared; the last one always is


def hall(kind, wall=False):
    """A hall: the ninja at the left, one entity in the middle, the exit at the right; or a wall behind the ninja."""
    tiles = np.ones((23, 42), np.uint8)
    tiles[4:18, 2:38] = 0
    if wall:
        tiles[4:18, 12] = 1
    floor = 4 * 19 - 2
    return Level.build(tiles, (4 * 6, floor), exits=[((4 * 35, floor), (4 * 37, floor))], entities=[(kind, 86, 42)])


def lit(with_aims, without, scene):
    """The level points of the pixels that beams and the like change: float[n, 2]."""
    changed = np.abs(with_aims.astype(int) - without)[: scene.height, : scene.width].max(axis=2) > 40
    rows, columns = np.nonzero(changed)
    return (np.stack([columns, rows], axis=1) + 0.5) * 24 / scene.ppt + 24 * np.array(scene.region[:2])


def distance_to(points, start, end):
    """Of points from a segment, px."""
    start, along = np.array(start), np.subtract(end, start)
    share = np.clip((points - start) @ along / max(along @ along, 1e-9), 0, 1)
    return np.hypot(*(points - start - share[:, None] * along).T)


def without_aims(monkeypatch, job):
    with monkeypatch.context() as patch:
        patch.setattr(Scene, "add_aims", lambda *_: None)
        return job()


@pytest.mark.parametrize("kind", SIGNS)
def test_film_draws_aim_of_shooters(kind, monkeypatch):
    level, inputs = hall(kind), np.zeros(300, np.uint8)
    run = nppsim.simulate(level, inputs)
    assert set(run.aims[:, 0, 2]) == SIGNS[kind] and run.outcome == "died"

    def draw():
        return list(frames(level, inputs, FilmSettings(fps=60, scale=0.5), run=run))

    region = widened(used_region(level, run.position))
    scene = Scene(level, film_pixels_per_tile(region, 0.5), region)
    film, plain = draw(), without_aims(monkeypatch, draw)
    emitter = run.entity_position[:, np.isin(run.entities[:, 0], kinds.AIMING)][:, 0]
    for frame in {*range(0, run.frames, EVERY), run.frames - 1}:
        x, y, sign = run.aims[frame, 0].tolist()
        points = lit(film[frame + 1], plain[frame + 1], scene)
        assert bool(len(points)) == (sign != NO_AIM), frame
        if sign in (BEAM, TRACE):
            assert distance_to(points, emitter[frame], (x, y)).max() < 5
            assert np.ptp(points, axis=0) == pytest.approx(np.abs([x, y] - emitter[frame]), abs=6)
        elif sign != NO_AIM:
            near = (x, y) if sign in (CROSSHAIR, LOCKED) else emitter[frame]
            assert np.hypot(*(points - near).T).max() < 18
    route, bare = draw_route(level, run), without_aims(monkeypatch, lambda: draw_route(level, run))
    assert (np.asarray(route) != np.asarray(bare)).any() == (run.aims[-1, 0, 2] != NO_AIM)


@pytest.mark.parametrize("kind", [kind for kind in SIGNS if kind != kinds.LASER])
def test_aim_without_line_of_sight_is_none(kind):
    assert not nppsim.simulate(hall(kind, wall=True), np.zeros(60, np.uint8)).aims.any(where=[False, False, True])


@pytest.mark.parametrize("kind", SIGNS)
def test_live_picture_draws_aims(kind, monkeypatch):
    env = NppEnv([hall(kind)], render_mode="rgb_array", render_size=(528, 300))
    env.reset(seed=0)
    for _ in range(8):
        env.step(0)
    view = env._renderer._views[0]
    scene, (left, top) = view._scene, view._corner
    (aim,) = scene.aims_now(view._geometry, env.simulator.state.movers[0])
    picture, plain = env.render(), without_aims(monkeypatch, env.render)
    offset = np.s_[top : top + scene.height, left : left + scene.width]
    points = lit(picture[offset], plain[offset], scene)
    assert len(points) and (np.hypot(*(points - aim.to).T).min() < 12 or aim.sign == WARNING)


def test_still_picture_draws_initial_beam(monkeypatch):
    level = hall(kinds.LASER)
    still, bare = draw_level(level), without_aims(monkeypatch, lambda: draw_level(level))
    points = lit(np.asarray(still), np.asarray(bare), Scene(level, TILE, WHOLE_STAGE))
    assert np.ptp(points[:, 0]) > 300 and np.ptp(points[:, 1]) < 6


def test_rocket_leaves_turret_in_place():
    env = NppEnv([hall(kinds.ROCKET_TURRET)], render_mode="rgb_array", render_size=(528, 300))
    env.reset(seed=0)
    before = env.render()
    for _ in range(20):
        env.step(0)
    view = env._renderer._views[0]
    (rocket,) = view._scene.aims_now(view._geometry, env.simulator.state.movers[0])
    x, y = view._corner + np.round(view._scene.to_picture((516.0, 252.0))).astype(int)
    assert np.hypot(rocket.at[0] - 516, rocket.at[1] - 252) > 40
    np.testing.assert_array_equal(env.render()[y - 5 : y + 6, x - 5 : x + 6], before[y - 5 : y + 6, x - 5 : x + 6])
