"""The compiled physics against the naive simulator, bit for bit, on random levels with every entity; also after death."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nppsim.levels import tiles
from nppsim.levels.kinds import (
    CHASER_DRONE,
    EXIT,
    LASER,
    REGULAR_DOOR,
    ROCKET_TURRET,
    SHOOTING_DRONES,
    TURRETS,
)
from nppsim.levels.level import Level
from nppsim.physics.rules import Rules

import worlds
from naive_simulator import CODE, SHAPES, Simulator
from worlds import KINDS, Walk, mixed_level

FRAMES = 150


def test_half_cell_edges_match_shapes():
    assert sorted(SHAPES) == list(range(len(tiles.EDGE_SIGNS)))
    for tile, (horizontal, vertical, *_) in SHAPES.items():
        assert tiles.HORIZONTAL_CODES[tile].tolist() == [CODE[c] for c in horizontal], tile
        assert tiles.VERTICAL_CODES[tile].tolist() == [CODE[c] for c in vertical], tile


def held_inputs(rng, frames):
    """Input bytes, each repeated for some frames; self-destruct now and then, late."""
    inputs = np.repeat(rng.integers(0, 8, frames), rng.integers(1, 16, frames))[:frames]
    inputs[frames * 3 // 4 :] |= 8 * (rng.random(frames - frames * 3 // 4) < 0.1)
    return inputs


def compare(level, inputs, rule=None):
    """Play both, and compare everything that can be seen after every frame.  rule: name of one that is not the default."""
    rules = {rule} if rule else set()
    reference = Simulator(level, completions=True, rules=rules)
    walk = Walk(level, Rules(**dict.fromkeys(rules, True)))
    placed = walk.bank.world.entity
    for frame, byte in enumerate(inputs.tolist()):
        reference.tick(byte)
        ninja, entities = walk.frame(byte)
        columns = ("x", "y", "vx", "vy", "state", "airborne", "walled", "floor_x", "floor_y", "gold")
        assert tuple(float(ninja[name]) for name in columns) == tuple(map(float, reference.frame())), (
            f"frame {frame + 1}"
        )
        assert ninja["win_fraction"] == reference.ninja.win_fraction
        for k, wanted in enumerate(reference.entities):
            what = f"frame {frame + 1}: type {wanted.type} number {wanted.number}"
            assert entities[k]["active"] == wanted.active, what
            assert entities[k]["closed"] == bool(wanted.closed), what
            mover = placed[k]["mover"]
            if mover < 0:
                assert placed[k]["type"] not in (1, 21) or entities[k]["state"] == wanted.state, what
                continue
            mover = walk.movers[0, mover]
            assert (float(mover["x"]), float(mover["y"])) == (wanted.x, wanted.y), what
            assert wanted.type != LASER or (mover["target_x"], mover["target_y"]) == wanted.beam_end(), what
            assert wanted.type in (EXIT, CHASER_DRONE, LASER) or mover["state"] == wanted.state, what


def test_wedge_collision_stays_finite():
    """Its speed falls by a factor of a million per frame, until squares of speeds are 0."""
    grid = np.ones((23, 42), np.uint8)
    grid[21:23, 19:22] = (0, 8, 0), (33, 19, 0)
    inputs = np.repeat([5, 3, 2, 5, 0], [4, 12, 4, 4, 60])
    compare(Level.build(grid, (85, 93)), inputs)


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: "-".join(map(str, kinds)))
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=6, deadline=None)
def test_play_random_levels_equals_naive_simulator(kinds, seed):
    rng = np.random.default_rng(seed)
    level = mixed_level(
        seed, density=float(rng.choice([0.05, 0.1, 0.25])), num_entities=int(rng.choice([10, 40, 80])), kinds=kinds
    )
    compare(level, held_inputs(rng, FRAMES))


@pytest.mark.parametrize(
    ("rule", "kinds"),
    [
        ("fast_lasers", (LASER,)),
        ("rockets_turn_back", (ROCKET_TURRET,)),
        ("open_doors_block", (*TURRETS, *SHOOTING_DRONES, REGULAR_DOOR)),
    ],
)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=6, deadline=None)
def test_play_rule_variants_equals_naive_simulator(rule, kinds, seed):
    compare(mixed_level(seed, kinds=kinds), held_inputs(np.random.default_rng(seed), FRAMES), rule)


@pytest.mark.parametrize("switch", [45, 46])
def test_closing_trap_door_blocks_in_same_frame(switch):
    """Though there was none when the contacts of that frame were looked for."""
    level = Level.build(worlds.tiles(), (20, 46), trap_doors=[((switch, 46), (44, 46), 0)])
    inputs = np.full(90, 2, np.uint8)
    compare(level, inputs)
    walk = Walk(level)
    frames = [(bool(entities["closed"].any()), bool(ninja["walled"])) for ninja, entities in map(walk.frame, inputs)]
    assert frames[0] == (False, False)
    assert next(walled for closed, walled in frames if closed)
