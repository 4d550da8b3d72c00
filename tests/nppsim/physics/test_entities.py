"""Single entities: their observations, and rules that no recorded trace or scenario covers."""

import numpy as np
import pytest

from nppsim.batch import BatchSimulator
from nppsim.observe import layout
from nppsim.physics import state as s

from worlds import FLOOR, NO_HAZARD, Walk, room

DX, DY = 36, -24  # px from the ninja to the entity
CELL = (int((DY + 114) // 12), int((DX + 114) // 12))  # of ``surroundings``, [y, x]
SOLID, DEADLY, ONE_WAY = range(3)

# type and orientation: its hazard (dx, dy and radius beside the place; None: harmless), planes that show it, grey value
LOOKS = {
    "launch pad": ((10, 6), None, (), 80),
    "one-way": ((11, 6), None, (ONE_WAY,), 240),
    "zap drone": ((14, 0), (0, 0, 7.5), (DEADLY,), 0),
    "chaser drone": ((15, 0), (0, 0, 7.5), (DEADLY,), 0),
    "floor guard": ((16, 0), (0, 0, 6.0), (DEADLY,), 0),
    "bounce block": ((17, 0), None, (SOLID,), 144),
    "thwump facing right": ((20, 0), (11, 0, 2.0), (SOLID,), 176),
    "thwump facing up": ((20, 6), (0, -11, 2.0), (SOLID,), 176),
    "boost pad": ((24, 0), None, (), 96),
    "death ball": ((25, 0), (0, 0, 5.0), (DEADLY,), 0),
    "mini drone": ((26, 0), (0, 0, 4.0), (DEADLY,), 0),
    "shove thwump": ((28, 0), (0, 0, 8.0), (SOLID, DEADLY), 0),
}


def seen(kind, orientation):
    """(simulator, observations) of a ninja on a floor with one entity at (DX, DY)."""
    x, y = 88 + DX // 6, FLOOR + DY // 6
    sim = BatchSimulator([room(entities=[(kind, x, y, orientation)])], 1, observations=layout.ALL)
    return sim, {key: values[0] for key, values in sim.reset().items()}


@pytest.mark.parametrize("name", LOOKS)
def test_entity_visible_at_its_position(name):
    (kind, orientation), hazard, planes, grey = LOOKS[name]
    _, observations = seen(kind, orientation)
    wanted = NO_HAZARD if hazard is None else np.array([DX + hazard[0], DY + hazard[1], 0, 0, hazard[2]])
    np.testing.assert_array_equal(observations["hazards"][0], wanted)
    assert observations["hazards"][1:].tolist() == [NO_HAZARD] * 7
    lit = [plane for plane in range(3) if observations["surroundings"][plane][CELL] > 0]
    assert lit == sorted(planes)
    assert observations["player_frame"][42 + DY // 2, 42 + DX // 2, 0] == grey
    assert observations["global_view"][(528 + DX) // 6, (276 + DY) // 6, 0] == grey


@pytest.mark.parametrize(
    ("orientation", "face"), [(0, (DX + 11, DY)), (2, (DX, DY + 11)), (4, (DX - 11, DY)), (6, (DX, DY - 11))]
)
def test_thwump_face_drawn_as_deadly(orientation, face):
    _, observations = seen(20, orientation)
    dx, dy = face
    assert observations["player_frame"][42 + dy // 2, 42 + dx // 2, 0] == 0
    assert observations["surroundings"][DEADLY, int((dy + 114) // 12), int((dx + 114) // 12)] > 0
    assert observations["player_frame"][42 + (2 * DY - dy) // 2, 42 + (2 * DX - dx) // 2, 0] != 0  # the other side


def test_laser_beam_hazard_at_nearest_point():
    sim, _ = seen(23, 0)
    observations = {key: values[0] for key, values in sim.step(np.array([0])).items()}
    laser, ninja = sim.state.movers[0, 0], sim.state.ninja[0]
    dx, dy, vx, vy, radius = observations["hazards"][0].tolist()
    assert (vx, vy, radius) == (0, 0, np.float32(0.1))
    ends = np.array([[laser["x"], laser["y"]], [laser["target_x"], laser["target_y"]]]) - [ninja["x"], ninja["y"]]
    points = ends[0] + np.linspace(0, 1, 100_001)[:, None] * (ends[1] - ends[0])
    assert np.hypot(dx, dy) == pytest.approx(np.hypot(*points.T).min(), abs=0.01)
    column, row = np.floor((points + 114) / 12).astype(int).T
    inside = (column >= 0) & (column < 19) & (row >= 0) & (row < 19)
    lit = observations["surroundings"][DEADLY][row[inside], column[inside]]
    assert (lit == 255).mean() > 0.9


def test_distant_movers_are_no_hazards():
    level = room(entities=[(kind, 20, 20, 0) for kind in (14, 17, 20, 23, 25, 28)])
    sim = BatchSimulator([level], 1, observations=("hazards", "surroundings"))
    assert sim.reset()["hazards"][0].tolist() == [NO_HAZARD] * 8


def test_launch_pad_ends_low_gravity_of_jump():
    walk = Walk(room((88, FLOOR), entities=[(10, 88, 42, 6)]))
    for _ in range(6):
        walk.frame(0)
    states = [walk.frame(1)[0] for _ in range(12)]
    before = next(k for k, ninja in enumerate(states) if ninja["vy"] < -6) - 1
    assert states[before]["state"] == s.JUMPING and states[before]["gravity"] == s.GRAVITY_JUMP
    assert states[before + 1]["state"] == s.FALLING and states[before + 1]["gravity"] == s.GRAVITY_FALL


def test_floor_guard_ignores_ninja_directly_above():
    walk = Walk(room((60, 46), entities=[(16, 60, 47)]))
    assert walk.movers[0, 0]["state"] == 0
    ninja, _ = walk.frame(0)
    assert walk.movers[0, 0]["x"] == 360.0
    assert ninja["state"] == s.DEAD
