"""Observations against reference implementations, along random play on random levels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nppsim.batch import BatchSimulator
from nppsim.levels.kinds import EXIT_SWITCH
from nppsim.levels.level import Level
from nppsim.observe import images, layout, vectors
from nppsim.observe.foresight import AHEAD
from nppsim.shadow.foresight import foresight
from nppsim.shadow.geometry import entities
from nppsim.shadow.reference_level import ReferenceLevel
from nppsim.shadow.state_simulator import StateSimulator
from nppsim.shadow.views import VIEWS

from worlds import KINDS, MIXED, NO_HAZARD, UNFINISHED, corridor, mixed_level, random_level, room

SEEDS = st.integers(0, 2**32 - 1)


def play_to(sim, rng, decisions, actions=6):
    """Random actions, each repeated for some decisions; stops before the first episode ends."""
    sim.reset()
    before = sim.snapshot(0)
    for _ in range(decisions):
        action = rng.integers(actions)
        for _ in range(rng.integers(1, 8)):
            before = sim.snapshot(0)
            sim.step(np.array([action]))
            if sim.finished.size:
                sim.restore(0, before)
                return sim.observe()
    return sim.obs


def present(sim):
    """The ReferenceState of the first environment."""
    level = sim.bank.levels[sim.level[0]]
    return ReferenceLevel(level).state_of(sim.state.ninja[0], sim.state.entities[0], sim.state.movers[0])


@given(
    seed=SEEDS, density=st.sampled_from([0.15, 0.35]), exits=st.integers(0, 3), kinds=st.sampled_from((None, *KINDS))
)
@settings(max_examples=12, deadline=None)
def test_observations_random_play_equal_reference(seed, density, exits, kinds):
    if kinds is None:
        level = random_level(seed, density, num_entities=40, exits=exits)
    else:
        level = mixed_level(seed, density / 2, kinds=kinds, exits=exits)
    reference, sim = ReferenceLevel(level), BatchSimulator([level], 1, frame_skip=3, observations=layout.ALL)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        obs, now = play_to(sim, rng, rng.integers(0, 15)), present(sim)
        next_step = (
            sim.bank.paths.next_step[0]
            if reference.door_state(now) == reference.at_start
            else sim._fields.own_next_step[0]
        )
        assert len(reference.path_fields(now).wrong_steps(next_step)) == 0
        for key, view in VIEWS.items():
            np.testing.assert_array_equal(obs[key][0], view(reference, now, next_step), key)
        rows = (sim.state.ninja[0], sim.state.entities[0], sim.state.movers[0], sim.state.trail[0])
        wanted = foresight(reference, rows, StateSimulator(sim.bank), sim.frame_skip)
        np.testing.assert_array_equal(obs["foresight"][0], wanted)


INSIDE = [(8, 8), (168, 8), (8, 92), (168, 92), (5, 50), (171, 50)]
OUTSIDE = [(0, 0), (176, 100), (182, 50), (88, 108), (200, 50), (255, 255)]


@pytest.mark.parametrize("corner", INSIDE + OUTSIDE)
def test_observations_at_stage_corners_stay_in_bounds(corner):
    """With one of each entity around the corner, some of them across the edge of the stage."""
    around = [(k % 5 * 5 - 10, k // 5 * 5 - 10) for k in range(25)]
    kinds = sorted({*MIXED, *UNFINISHED} - {25})
    entities = [
        (kind, *np.clip(np.add(corner, offset), 0, 255).tolist(), k % 8)
        for k, (kind, offset) in enumerate(zip([*kinds, 25, *kinds][: len(around)], around, strict=True))
    ]
    level = Level.build(np.zeros((23, 42), np.uint8), (40, 40), exits=[((20, 20), (60, 20))], entities=entities)
    reference, sim = ReferenceLevel(level), BatchSimulator([level], 1, observations=layout.ALL)
    sim.reset()
    sim.state.ninja["x"], sim.state.ninja["y"] = np.multiply(corner, 6.0)
    sim.observe()
    for _ in range(3):
        for key in ("hazards", "surroundings", "player_frame", "global_view"):
            np.testing.assert_array_equal(
                sim.obs[key][0], VIEWS[key](reference, present(sim), sim.bank.paths.next_step[0]), key
            )
        sim.step(np.array([3]))


def test_hazards_many_mines_keep_nearest_eight():
    mines = [(1, 88 + 2 * dx, 40 - abs(dx)) for dx in range(-8, 9) if dx]
    sim = BatchSimulator([room(entities=mines)], 1)
    nearest = sim.reset()["hazards"][0]
    gaps = np.hypot(nearest[:, 0], nearest[:, 1])
    assert (np.diff(gaps) >= 0).all()
    assert gaps.max() < 12 * np.hypot(9, 20)
    assert (nearest[:, 4] == 4.0).all()


def test_hazards_outside_window_are_ignored():
    sim = BatchSimulator([room(entities=[(1, 88 + 20, 46), (1, 88 + 18, 46)])], 1)
    nearest = sim.reset()["hazards"][0]
    assert nearest[0].tolist() == [108.0, 0.0, 0.0, 0.0, 4.0]
    assert nearest[1:].tolist() == [NO_HAZARD] * 7


def test_reachability_leads_to_switch_then_exit():
    sim = BatchSimulator([corridor(spawn=20, switch=40, door=140)], 1)
    phases, objective, total = [], [], []
    sim.reset()
    while not sim.finished.size:
        features = sim.obs["reachability_features"][0].copy()
        objective.append(features[0]), total.append(features[1]), phases.append(int(features[6]))
        sim.step(np.array([2]))
    assert sim.episode["outcome"][0] == 1
    turn = phases.index(1)
    assert phases == [0] * turn + [1] * (len(phases) - turn)
    assert objective[0] == pytest.approx(120, abs=30)
    assert objective[turn - 1] < 30 < objective[turn]
    assert np.abs(np.diff(total)).max() < 4 * 4 + 12  # no jump of the whole way at the switch
    assert total[-1] < 22 + 4 * 10 / 3 + 6  # touched from 22 px


def test_observations_unrequested_are_not_computed():
    sim = BatchSimulator([room()], 1, observations=("state", "switches"))
    assert tuple(sim.reset()) == ("game_state", "switch_states")


def test_hazards_alone_equal_hazards_with_surroundings():
    level = random_level(5, 0.3, num_entities=40)
    both = BatchSimulator([level], 1, observations=("hazards", "surroundings")).reset()
    for key in both:
        assert BatchSimulator([level], 1, observations=(key,)).reset()[key].tobytes() == both[key].tobytes()


def test_entity_positions_follow_open_exit():
    exits = [((150, 46), (160, 46)), ((92, 46), (120, 46))]
    sim = BatchSimulator([room((88, 46), exits)], 1, observations=("entities",))
    assert sim.reset()["entity_positions"][0, 2:].tolist() == [900.0, 276.0, 960.0, 276.0]
    while not sim.state.ninja["switch_taken"][0]:
        sim.step(np.array([2]))
    assert sim.obs["entity_positions"][0, 2:].tolist() == [552.0, 276.0, 720.0, 276.0]


@pytest.mark.parametrize(("seed", "frame_skip"), [(0, 1), (1, 3), (4, 3), (5, 4), (2, 7)])
def test_action_mask_excludes_only_ineffective_jumps(seed, frame_skip):
    """With and without a masked jump the whole state is the same, to the bit, except for the button itself."""
    rng = np.random.default_rng(seed)
    level = mixed_level(seed) if seed % 2 else random_level(seed, 0.3, num_entities=30)
    sim = BatchSimulator([level], 1, frame_skip=frame_skip, observations=("state",))
    sim.reset()
    masked = 0
    for _ in range(200):
        mask, before = sim.action_masks()[0], sim.snapshot(0)
        assert mask[:3].all() and (mask[3:] == mask[3]).all()
        for action in range(3) if not mask[3] else ():
            results = []
            for taken in (action, action + 3):
                sim.restore(0, before)
                sim.step(np.array([taken]))
                sim.state.ninja["jump_held"] = 0
                results.append((sim.snapshot(0).tobytes(), sim.rewards[0]))
            assert results[0] == results[1]
            masked += 1
        sim.restore(0, before)
        sim.step(rng.integers(1, 6, size=1))
    assert masked > 20


def test_action_mask_wall_excludes_nothing():
    """A wall is detected at 0.1 px distance, also behind one-sided tiles; moving towards it may be possible."""
    sim = BatchSimulator([corridor(spawn=10)], 1, observations=("state",))
    sim.reset()
    for _ in range(20):
        sim.step(np.array([1]))
    assert sim.state.ninja["walled"][0]
    assert sim.action_masks()[0].all()


SLOTS = {
    "game_state": vectors.STATE,
    "reachability_features": vectors.PATH,
    "entity_positions": vectors.PLACE,
    "switch_states": vectors.DOOR,
    "hazards": vectors.HAZARD,
    "foresight": AHEAD,
}


def test_kernels_write_components_at_layout_positions():
    assert set(SLOTS) == {spec.key for spec in layout.SPECS.values() if spec.dtype == "float32"}
    for key, slots in SLOTS.items():
        assert dict(zip(slots._fields, slots, strict=True)) == {
            name: place for place, name in enumerate(layout.SPECS[key].components)
        }
    assert vectors.PLANE._fields == layout.SURROUNDINGS_PLANES
    assert len(vectors.PLANE) == layout.SPECS["surroundings"].shape[0]
    for n in range(layout.NUM_DOORS):  # the kernel counts on from the first door
        assert getattr(vectors.DOOR, f"door{n}_open") == n * vectors.DOOR_SLOTS + vectors.DOOR.door0_open


@pytest.mark.parametrize("level", [corridor(), room(entities=[(1, 92, 46)]), random_level(3, 0.3, num_entities=40)])
def test_kernels_write_every_component(level):
    sim = BatchSimulator([level], 1, observations=SLOTS)
    sim.reset()
    for key in SLOTS:
        sim.obs[key][:] = np.nan
        assert np.isfinite(sim.observe()[key]).all()


def test_layout_components_have_names_and_scales():
    for spec in layout.SPECS.values():
        if spec.dtype == "float32":
            assert len(spec.components) == len(spec.scale) == spec.shape[-1]
            assert min(spec.scale) > 0
            assert len(set(spec.components)) == len(spec.components)


def test_fingerprint_depends_on_keys_not_order():
    assert layout.fingerprint(("state", "hazards")) == layout.fingerprint(("hazards", "game_state"))
    assert layout.fingerprint(("state",)) != layout.fingerprint(("state", "hazards"))
    with pytest.raises(ValueError, match="unknown observation 'stat'"):
        layout.observation_keys(("stat",))


def test_surroundings_dormant_mine_is_not_deadly():
    sim = BatchSimulator([room(entities=[(21, 92, 46)]), room(entities=[(1, 92, 46)])], 2, observations=layout.ALL)
    sim.reset()
    assert sim.obs["hazards"][:, 0, 4].tolist() == [3.5, 4.0]
    assert sim.obs["surroundings"][:, 1].any(axis=(1, 2)).tolist() == [False, True]
    assert (sim.obs["player_frame"] == 0).any(axis=(1, 2, 3)).tolist() == [False, True]


def test_switch_states_lists_doors_and_exits_separately():
    level = corridor(20, 60, 120, locked_doors=[((30, 46), (80, 44), 0)])
    sim = BatchSimulator([level], 1)
    sim.reset()
    assert sim.obs["switch_states"][0, :5].tolist() == [180.0, 276.0, 480.0, 264.0, 0.0]
    switch = next(e for e in entities(level) if e.kind == EXIT_SWITCH)
    assert sim.obs["entity_positions"][0, 2:4].tolist() == [switch.x, switch.y]
    while not sim.obs["switch_states"][0, 4]:
        sim.step(np.array([2]))
    assert sim.state.ninja["x"][0] == pytest.approx(180 - 15, abs=14)


# ---------------------------------------------------------------------------------------- everything that moves or pushes
SQUARE = 9  # of ``surroundings``: the ninja's
# Type, orientation -> hazard (dx, radius) 24 px to the right of the ninja; planes at the squares two to the right of its
# own and between; grey in the middle of ``player_frame``'s picture of it.
LOOKS = {
    (10, 0): (None, (), 80),
    (24, 0): (None, (), 96),
    (17, 0): (None, ("solid",), 144),
    (11, 0): (None, ("one_way",), 240),
    (20, 4): ((13, 2), ("solid", "deadly"), 176),  # facing the ninja, its face 11 px ahead
    (20, 0): ((35, 2), ("solid", "deadly"), 176),
    (28, 0): ((24, 8), ("solid", "deadly"), 0),
    (14, 0): ((24, 7.5), ("deadly",), 0),
    (15, 0): ((24, 7.5), ("deadly",), 0),
    (26, 0): ((24, 4), ("deadly",), 0),
    (16, 0): ((24, 6), ("deadly",), 0),
    (25, 0): ((24, 5), ("deadly",), 0),
    (23, 0): ((24, 0.1), ("deadly",), 0),  # shining away from the ninja
}


@pytest.mark.parametrize(("kind", "orientation"), LOOKS)
def test_entities_drawn_as_documented(kind, orientation):
    hazard, planes, grey = LOOKS[kind, orientation]
    level = room((88, 38), entities=[(kind, 92, 38, orientation)])
    obs = BatchSimulator([level], 1, observations=layout.ALL).reset()
    expected = NO_HAZARD if hazard is None else [hazard[0], 0.0, 0.0, 0.0, np.float32(hazard[1])]
    assert obs["hazards"][0, 0].tolist() == expected
    assert obs["hazards"][0, 1:].tolist() == [NO_HAZARD] * 7
    around = obs["surroundings"][0, :, SQUARE - 1 : SQUARE + 2, SQUARE + 1 : SQUARE + 4]
    assert {name for name, plane in zip(layout.SURROUNDINGS_PLANES, around, strict=True) if plane.any()} == set(planes)
    assert obs["player_frame"][0, 42, 42 + 12, 0] == grey
    assert obs["global_view"][0, 92, 38, 0] == grey


def test_hazards_moving_have_velocity():
    # The thwump faces down, over the ninja.
    kinds = [(14, 82, 34, 0, 2), (26, 94, 40, 4, 2), (25, 88, 32), (20, 78, 30, 2)]
    sim = BatchSimulator([room((80, 46), entities=kinds)], 1, frame_skip=1)
    sim.reset()
    for _ in range(5):
        sim.step(np.array([0]))
    before, ninja = {row[4]: row.tolist() for row in sim.obs["hazards"][0]}, sim.obs["game_state"][0, :2].copy()
    sim.step(np.array([0]))
    moved = sim.obs["game_state"][0, :2] - ninja
    for row in sim.obs["hazards"][0, :4]:
        np.testing.assert_allclose(row[:2] + moved - before[row[4]][:2], row[2:4], atol=1e-4)
    speeds = {radius: np.hypot(*row[2:4]) for radius, row in before.items() if radius}
    assert speeds == pytest.approx({7.5: 8 / 7, 4: 1.3, 5: 0.2, 2: 20 / 7}, abs=1e-6)  # ball: five times 0.04


def test_surroundings_shove_thwump_solid_until_moving():
    sim = BatchSimulator([room(entities=[(28, 92, 46)])], 1)
    solid = {}
    for state in range(4):
        sim.reset()
        sim.state.movers["state"][0] = state
        solid[state] = int(sim.observe()["surroundings"][0, 0, SQUARE, SQUARE + 2])
        assert sim.obs["hazards"][0, 0, 4] == 8
    assert solid == {0: 255, 1: 255, 2: 0, 3: 0}


def test_surroundings_laser_beam_visible_at_start():
    sim = BatchSimulator([room(entities=[(23, 60, 40, 0)])], 1, observations=layout.ALL)
    obs = sim.reset()
    assert obs["hazards"][0, 0].tolist() == [0.0, -36.0, 0.0, 0.0, np.float32(0.1)]
    assert (obs["surroundings"][0, 1, SQUARE - 3] == 255).all()
    assert (obs["player_frame"][0, 42 - 18, :, 0] == 0).all()
    assert (obs["global_view"][0, 60:172, 40, 0] == 0).all()


def test_player_frame_one_way_drawn_at_edge():
    sim = BatchSimulator([room(entities=[(11, 72, 44, 6)])], 1, observations=layout.ALL)
    sim.reset()
    sim.state.ninja["x"][0] = 529.9  # the frame begins at 444 px, where the one-way ends
    frame = sim.observe()["player_frame"][0, :, :, 0]
    assert np.argwhere(frame == images.ONE_WAY_GREY).tolist() == [[42 - 6, 0]]
