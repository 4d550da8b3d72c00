"""Level generators: deterministic, valid, varied; level sets made with them."""

import contextlib
import functools
import hashlib
import itertools
import os
import signal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nppsim.__main__ import main
from nppsim.bank import LevelBank
from nppsim.errors import ConfigError
from nppsim.generate import CATEGORIES, GENERATORS, LESS_IS_HARDER, RECIPES, generate, recipe
from nppsim.generate import make as dataset_module
from nppsim.generate.chamber import chamber
from nppsim.generate.chambers import chambers
from nppsim.generate.course import course
from nppsim.generate.make import UNFINISHED, GenerateError, count_unfinished, make_level_set
from nppsim.generate.minimal import minimal
from nppsim.generate.rooms import GROUPS
from nppsim.generate.sketch import line_with_mines
from nppsim.generate.variety import MEASURES, variety
from nppsim.levels import kinds
from nppsim.levels import level_set as levelset_module
from nppsim.levels.level import Level, mirror, symmetric_fingerprint  # fmt: skip
from nppsim.levels.level_set import LevelEntry, LevelSet, LevelSetError, check_disjoint

from programs import load_script

PLAIN_TYPES = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 21}
MACHINES = {
    kinds.LAUNCH_PAD,
    kinds.ONE_WAY,
    kinds.ZAP_DRONE,
    kinds.FLOOR_GUARD,
    kinds.BOUNCE_BLOCK,
    kinds.THWUMP,
    kinds.BOOST_PAD,
    kinds.MINI_DRONE,
}
MACHINES |= {
    kinds.SHOVE_THWUMP,
    kinds.DEATH_BALL,
    kinds.LASER,
    kinds.CHASER_DRONE,
    kinds.EVIL_NINJA,
    *kinds.TURRETS,
    *kinds.SHOOTING_DRONES,
}
FEWEST_LAYOUTS = 20  # of 40 levels; "simplest" has the fewest
SOLID = 1
made = functools.cache(generate)  # several tests look at the same levels
difficulties = st.none() | st.floats(0, 1)


def tile_at(level, x, y):
    """Tile under a position in bytes; the border is solid."""
    row, column = int(y) // 4 - 1, int(x) // 4 - 1
    inside = 0 <= row < level.tiles.shape[0] and 0 <= column < level.tiles.shape[1]
    return int(level.tiles[row, column]) if inside else SOLID


def connected(level):
    """Tiles that are not solid, and how many of them a flood fill from the spawn reaches."""
    return int((level.tiles != SOLID).sum()), len(reached_tiles(level.tiles, level.records[0].tolist()))


def reached_tiles(tiles, record):
    """Tiles (row, column) that a flood fill from the tile of a record reaches."""
    passable = tiles != SOLID
    _, x, y, *_ = record
    stack, seen = [(y // 4 - 1, x // 4 - 1)], set()
    while stack:
        row, column = stack.pop()
        if (row, column) in seen or not (0 <= row < 23 and 0 <= column < 42) or not passable[row, column]:
            continue
        seen.add((row, column))
        stack += [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
    return seen


@given(category=st.sampled_from(CATEGORIES), seed=st.integers(0, 10**12), difficulty=difficulties)
@settings(max_examples=150, deadline=None)
def test_generate_any_seed_is_valid_and_connected(category, seed, difficulty):
    level, entry = generate(category, seed, difficulty)
    assert not level.warnings
    allowed = PLAIN_TYPES | MACHINES if category in ("advanced", "campaign_like") else PLAIN_TYPES
    assert {*level.records[:, 0].tolist()} <= allowed
    assert (level.records[:, 0] == kinds.EXIT).sum() == (level.records[:, 0] == kinds.EXIT_SWITCH).sum() == 1
    for kind, x, y, *_ in level.records.tolist():
        if kind in (0, kinds.EXIT, kinds.EXIT_SWITCH):
            assert tile_at(level, x, y) != SOLID, f"type {kind} of {entry.generator} is walled in"
    passable, reached = connected(level)
    assert reached == passable, f"{entry.generator} has unconnected parts"
    positions = level.records[np.isin(level.records[:, 0], (0, kinds.EXIT, kinds.EXIT_SWITCH)), 1:3]
    assert len(np.unique(positions // 4, axis=0)) == 3, "spawn, switch and exit stand in different tiles"


@given(category=st.sampled_from(CATEGORIES), seed=st.integers(0, 10**12), difficulty=difficulties)
@settings(max_examples=100, deadline=None)
def test_generate_from_entry_reproduces_level(category, seed, difficulty):
    level, entry = generate(category, seed, difficulty)
    assert (entry.category, entry.seed) == (category, seed)
    np.random.seed(seed % 1000)  # a generator that used the global stream would differ now
    assert GENERATORS[entry.generator](entry.seed, **entry.parameters) == level
    assert generate(category, seed, difficulty)[0] == level


def spans(parameters):
    """(name, low, high) of each span among the parameters of a recipe, and what is none as (name, value)."""
    for name, value in parameters.items():
        if not isinstance(value, tuple) or isinstance(value[0], str):
            yield name, value
        else:
            yield from ((name, *span) for span in (value if isinstance(value[0], tuple) else (value,)))


@given(category=st.sampled_from(CATEGORIES), seed=st.integers(0, 1000), easy=st.floats(0, 1), hard=st.floats(0, 1))
def test_recipe_difficulty_narrows_spans_to_harder_end(category, seed, easy, hard):
    easy, hard = sorted((easy, hard))
    generators, parameters = zip(*(recipe(category, seed, d) for d in (None, easy, hard)), strict=True)
    assert len(set(generators)) == 1
    for whole, low, high in zip(*map(spans, parameters), strict=True):
        if len(whole) == 2:
            assert whole == low == high, "single values stay unchanged"
            continue
        name, first, last = whole
        assert first <= low[1] <= low[2] <= last and first <= high[1] <= high[2] <= last
        if name in LESS_IS_HARDER:
            low, high = high, low
        assert low[1] <= high[1] and low[2] <= high[2], name
        assert low[2] - low[1] <= max(1, 0.75 * (last - first))


def test_recipe_extreme_difficulties_reach_span_ends():
    assert recipe("medium", 0)[0] != recipe("medium", 1)[0], "the seeds below stand for several generators"
    for seed in range(50):
        whole, easy, hard = (list(spans(recipe("medium", seed, d)[1])) for d in (None, 0, 1))
        for (name, *span), (_, *low), (_, *high) in zip(whole, easy, hard, strict=True):
            if len(span) == 2:
                least, most = (high, low) if name in LESS_IS_HARDER else (low, high)
                assert least[0] == span[0] and most[1] == span[1], name


@pytest.mark.parametrize("category", ["simplest", "simpler", "simple", "medium", "complex", "exploration"])
def test_generate_higher_difficulty_has_longer_paths(category):
    lengths = [
        LevelBank([generate(category, seed, difficulty)[0] for seed in range(40)]).path_length.mean()
        for difficulty in (0, 0.5, 1)
    ]
    assert lengths[0] < 0.95 * lengths[1] < 0.95**2 * lengths[2], lengths


@pytest.mark.parametrize("difficulty", [-0.1, 1.1, float("nan")])
def test_generate_difficulty_out_of_range_raises_error(tmp_path, difficulty):
    with pytest.raises(ValueError, match=r"difficulty .*: give a number from 0 to 1"):
        generate("simple", 0, difficulty)
    with pytest.raises(ConfigError, match=r"difficulty .*: give a number from 0 to 1"):
        make_level_set(tmp_path / "set", ["simple"], 1, 0, difficulty=difficulty)
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("category", CATEGORIES)
def test_generate_many_seeds_are_varied(category):
    levels, entries = zip(*(made(category, seed) for seed in range(120)), strict=True)
    assert {entry.generator for entry in entries} == {generator for generator, _ in RECIPES[category]}
    assert len({symmetric_fingerprint(level) for level in levels}) > 110
    assert len({level.spawn for level in levels}) > 80


@pytest.mark.parametrize(
    ("category", "digest"),
    [("simplest", "c7e7fc0fc701fb79"), ("simpler", "2d55d54ca5dbfd95"), ("simple", "914abfa3efcaf673")],
)
def test_generate_seeds_match_shipped_levels(category, digest):
    fingerprints = "".join(made(category, seed)[0].fingerprint for seed in range(200))
    assert hashlib.sha256(fingerprints.encode()).hexdigest()[:16] == digest


def test_variety_categories_have_many_layouts():
    measured = variety((category, made(category, seed)[0]) for category in CATEGORIES for seed in range(40))
    for category, found in measured.items():
        assert found.levels == found.distinct_levels == 40, category
        assert found.distinct_layouts >= FEWEST_LAYOUTS, category
        assert len(np.unique(found.values[:, 0])) >= 20, f"{category}: lengths of the ways"


def test_generate_hazard_counts_follow_category_names():
    names = ("simplest", "simplest_few_mines", "simplest_with_mines", "mine_heavy")
    measured = variety((name, made(name, seed)[0]) for name in names for seed in range(40))
    medians = [np.median(measured[name].values[:, MEASURES.index("hazards")]) for name in names]
    assert medians[0] == 0 and medians == sorted(set(medians)), medians


def test_generate_advanced_contains_all_machines():
    types = {kind for seed in range(200) for kind in made("advanced", seed)[0].records[:, 0].tolist()}
    assert types >= MACHINES


def test_generate_mixed_contains_all_entity_groups():
    levels = [made("campaign_like", seed)[0] for seed in range(150)]
    present = np.array([[group.kind in level.records[:, 0] for group in GROUPS] for level in levels]).mean(axis=0)
    assert (present > 0).all()
    assert np.abs(present - [group.share for group in GROUPS]).max() < 0.15


@pytest.mark.parametrize(
    ("width", "height"), [((3, 9), (4, 9)), ((4, 43), (4, 9)), ((4, 9), (0, 9)), ((4, 9), (4, 24))]
)
def test_rooms_impossible_size_raises_error(width, height):
    parameters = recipe("campaign_like", 0)[1] | {"width": width, "height": height}
    with pytest.raises(ValueError, match="widths from 4 to 42, heights from 1 to 23"):
        GENERATORS["rooms"](0, **parameters)


def test_generate_mixed_locked_doors_openable_in_order():
    doors = 0
    for seed in range(60):
        level = made("campaign_like", seed)[0]
        records = level.records.tolist()
        locked = [(x // 4 - 1, y // 4 - 1) for kind, x, y, *_ in records if kind == kinds.LOCKED_DOOR]
        switches = [(y // 4 - 1, x // 4 - 1) for kind, x, y, *_ in records if kind == kinds.LOCKED_SWITCH]
        doors += len(locked)
        for number, switch in enumerate(switches):
            tiles = level.tiles.copy()
            for column, row in locked[number:]:  # each is between two tiles of a niche
                tiles[row, column - 1 : column + 1] = SOLID
            assert switch in reached_tiles(tiles, records[0])
    assert doors >= 30


def test_path_length_of_levels_is_measured():
    tiles = np.ones((23, 42), np.uint8)
    tiles[2, 0:12] = tiles[2:12, 11] = tiles[11, 11:30] = 0  # right, down, right
    level = Level.build(tiles, (6, 14), exits=[((38, 14), (122, 50))], entities=[(kinds.MINE, 60, 50)])
    found = variety([("mine", level), ("mine", mirror(level))])["mine"]
    assert (found.levels, found.distinct_levels, found.distinct_layouts) == (2, 1, 1)
    assert found.values[0, 1:].tolist() == found.values[1, 1:].tolist() == [2, 1, 1]
    assert 24 * (11 + 9 + 18) - 60 < found.values[0, 0] < 24 * (11 + 9 + 18 + 8)  # a mine makes the way longer


def test_line_with_mines_leaves_space_to_pass():
    rng = np.random.default_rng(0)
    tiles = np.zeros((3, 12), np.uint8)
    tiles[2, 6:] = 1  # two tiles high at the right, three at the left
    mines = line_with_mines(rng, tiles, 99, [(2, 10)])
    assert len(mines) >= 2
    for _, x, y in mines:
        assert max(abs(x - 2), abs(y - 10)) >= 4 * 2
        assert min(x % 4, y % 4) == 1 or max(x % 4, y % 4) == 3, "6 px from the wall"
    assert all(max(abs(a[1] - b[1]), abs(a[2] - b[2])) >= 9 for a in mines for b in mines if a is not b)
    assert line_with_mines(rng, np.zeros((1, 30), np.uint8), 99, []) == [], "no way past would be left"


def test_chambers_switch_reachable_without_its_door():
    with_door = 0
    for seed in range(40):
        level = chambers(seed, grid=((2, 3), (1, 2)), width=(5, 9), height=(4, 7), doors=(1, 1))
        tiles = level.tiles.copy()
        for _, x, y, *_ in level.records[level.records[:, 0] == kinds.LOCKED_DOOR].tolist():
            tiles[y // 4 - 1, x // 4 - 1] = SOLID  # as if the door filled a tile of its corridor
        for _, x, y, *_ in level.records[level.records[:, 0] == kinds.LOCKED_SWITCH].tolist():
            with_door += 1
            assert (y // 4 - 1, x // 4 - 1) in reached_tiles(tiles, level.records[0].tolist())
    assert with_door >= 30


def test_course_unknown_station_raises_error():
    with pytest.raises(ValueError, match=r"unknown stations lift; choose from launch, bounce"):
        course(0, kinds=("lift",), stations=(1, 1), height=(12, 14))


def test_generate_uses_every_generator():
    assert {generator for recipes in RECIPES.values() for generator, _ in recipes} == set(GENERATORS)


def test_generate_simplest_has_no_mines_or_deep_falls():
    for seed in range(200):
        level, _ = made("simplest", seed)
        assert not np.isin(level.records[:, 0], (1, 21)).any()
        rows = np.flatnonzero((level.tiles != SOLID).any(axis=1))
        assert np.ptp(rows) + 1 <= 7, "a fall of more than 7 tiles can kill"


def test_course_thwumps_hang_below_ceiling():
    for seed in range(30):
        level = course(seed, kinds=["launch", "thwump"], stations=(3, 3), height=(12, 12))
        rows = np.flatnonzero((level.tiles != SOLID).any(axis=1))
        thwumps = level.records[level.records[:, 0] == kinds.THWUMP]
        assert (thwumps[:, 2] // 4 - 1 >= rows.min()).all()


def test_generate_unknown_category_raises_error(tmp_path):
    with pytest.raises(ValueError, match="category hard: has no generators; choose from simplest, simplest_few_mines"):
        generate("hard", 0)
    with pytest.raises(ConfigError, match="choose from simplest, simplest_few_mines"):
        make_level_set(tmp_path / "set", ["hard"], 1, 0)
    with pytest.raises(GenerateError, match="workers=0; give at least 1"):
        make_level_set(tmp_path / "set", ["simple"], 1, 0, workers=0)
    with pytest.raises(ValueError, match="kind='round'; use 'flat'"):
        chamber(0, width=(6, 8), height=(4, 5), kind="round")


def test_make_level_set_has_distinct_levels_per_category(tmp_path):
    level_set = make_level_set(tmp_path / "set", ["simplest", "simple"], 60, seed=3)
    assert [len(level_set.indices(category)) for category in level_set.categories] == [60, 60]
    assert level_set.categories == ("simplest", "simple")
    assert len({symmetric_fingerprint(level) for level in level_set}) == 120
    assert all(entry.par_frames is None for entry in level_set.entries)
    entry = level_set.entries[17]  # parameters were written to JSON and read back
    assert GENERATORS[entry.generator](entry.seed, **entry.parameters) == level_set[17]


def test_make_level_set_exclude_keeps_sets_disjoint(tmp_path):
    train = make_level_set(tmp_path / "train", ["simplest"], 200, seed=0)
    test = make_level_set(tmp_path / "test", ["simplest"], 50, seed=1, exclude=[train])
    check_disjoint([train], [test])
    same = make_level_set(tmp_path / "same", ["simplest"], 50, seed=0, exclude=[train])  # the next levels of the stream
    check_disjoint([train], [same])


@pytest.mark.parametrize("turned", [False, True])
def test_make_level_set_resume_with_new_exclude_raises_error(tmp_path, turned):
    level_set = make_level_set(tmp_path / "set", ["simple"], 3, seed=0)
    shared = mirror(level_set[2]) if turned else level_set[2]
    other = LevelSet.write(tmp_path / "other", [(shared, level_set.entries[2])])
    with pytest.raises(LevelSetError, match=r"1 of 3 levels of .*set are also in .*other"):
        make_level_set(tmp_path / "set", ["simple"], 4, seed=0, exclude=[other])
    assert len(LevelSet.open(tmp_path / "set")) == 3


def test_make_level_set_resume_with_other_difficulty_raises_error(tmp_path):
    level_set = make_level_set(tmp_path / "set", ["simple"], 3, seed=0, difficulty=0.2)
    entry = level_set.entries[0]
    assert GENERATORS[entry.generator](entry.seed, **entry.parameters) == level_set[0]
    assert make_level_set(tmp_path / "set", ["simple"], 3, seed=0, difficulty=0.2).entries == level_set.entries
    for other in (None, 0.8):
        with pytest.raises(
            GenerateError, match=rf"simple/000000\.map was made by .*; difficulty {other} gives .*use the"
        ):
            make_level_set(tmp_path / "set", ["simple"], 4, seed=0, difficulty=other)


def test_make_level_set_unfinished_levels_of_other_difficulty_raise_error(tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_module, "PATIENCE", 5)
    with pytest.raises(GenerateError, match="in 5 candidates"):
        make_level_set(tmp_path / "set", ["simple"], 1, seed=0, difficulty=0.2, verify=lambda level: None)
    with pytest.raises(GenerateError, match=r"simple/000000\.map was made by .*; difficulty 0\.8 gives"):
        make_level_set(tmp_path / "set", ["simple"], 1, seed=0, difficulty=0.8, verify=lambda level: 1)


def test_make_level_set_other_origin_raises_error(tmp_path):
    make_level_set(tmp_path / "seed", ["simplest"], 2, seed=0)
    with pytest.raises(GenerateError, match=r"simplest/000000\.map was made with --seed 0, not with --seed 1"):
        make_level_set(tmp_path / "seed", ["simplest"], 2, seed=1)
    LevelSet.write(tmp_path / "foreign", [(generate("simple", 1)[0], LevelEntry("mine", seed=1))])
    with pytest.raises(GenerateError, match=r"mine/000000\.map was made by other means, not with --seed 0"):
        make_level_set(tmp_path / "foreign", ["simple"], 1, seed=0)
    main(["generate", "simple", str(tmp_path / "unverified"), "--count", "2"])
    with pytest.raises(GenerateError, match=r"simple/000000\.map has no par_frames.* \(2 such levels\)"):
        make_level_set(tmp_path / "unverified", ["simple"], 2, seed=0, verify=lambda level: 1)
    assert len(make_level_set(tmp_path / "unverified", ["simple"], 3, seed=0)) == 3


def die(level):
    os.kill(os.getpid(), signal.SIGKILL)


def test_make_level_set_crashed_worker_raises_error(tmp_path):
    with pytest.raises(GenerateError, match="a worker process died, .* fewer workers"):
        make_level_set(tmp_path / "set", ["simple"], 20, seed=5, verify=die, workers=2)


def test_make_level_set_exhausted_category_raises_error(tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "simplest", (("seven", {}),))
    monkeypatch.setitem(GENERATORS, "seven", lambda seed: minimal(seed % 7, width=(3, 8), height=(1, 2)))
    monkeypatch.setattr(dataset_module, "PATIENCE", 20)
    with pytest.raises(GenerateError, match=r"'simplest' has only 7 of 10 distinct levels: .* in 20"):
        make_level_set(tmp_path / "set", ["simplest"], 10, seed=0)
    assert len(LevelSet.open(tmp_path / "set")) == 7


def frames_of_high_levels(level):
    """A stand-in for the planner: levels that begin in the lower half cannot be finished."""
    return int(level.spawn[1]) if level.spawn[1] < 300 else None


@pytest.mark.parametrize("workers", [1, 2])
def test_make_level_set_unfinishable_levels_in_own_folder(tmp_path, workers):
    level_set = make_level_set(tmp_path / "set", ["simple"], 20, seed=5, verify=frames_of_high_levels, workers=workers)
    assert [entry.par_frames for entry in level_set.entries] == [level.spawn[1] for level in level_set]
    assert [entry.seed for entry in level_set.entries] == sorted(entry.seed for entry in level_set.entries)
    assert len(LevelSet.open(tmp_path / "set")) == 20, "the others are no part of the set"
    unfinished = LevelSet.open(tmp_path / "set" / UNFINISHED)
    assert all(frames_of_high_levels(level) is None for level in unfinished)
    assert {entry.par_frames for entry in unfinished.entries} == {None}
    assert count_unfinished(tmp_path / "set") == {"simple": len(unfinished)}
    seeds = [entry.seed for entry in (*level_set.entries, *unfinished.entries)]
    assert sorted(seeds) == list(range(5 * 10**9, max(seeds) + 1)), "no level is lost or counted twice"


@given(
    verified=st.lists(st.integers(1, 40), max_size=3),
    writes=st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=4),
    save_every=st.sampled_from([0.0, 1e9]),
)
@settings(max_examples=8, deadline=None)
@example(verified=[], writes=[(2, True), (3, True), (4, True)], save_every=1e9)
def test_make_level_set_interrupted_anywhere_leaves_no_trace(tmp_path_factory, verified, writes, save_every):
    """verified: candidates after which a try is interrupted.  writes: the same for indices written, and whether the process
    is killed, so that nothing is written any more."""
    folder = tmp_path_factory.mktemp("sets")
    write_index = levelset_module._write_index

    def make(name, verify=frames_of_high_levels, write=write_index):
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(dataset_module, "SAVE_EVERY_S", save_every)
            patch.setattr(levelset_module, "_write_index", write)
            make_level_set(folder / name, ["simplest", "simple"], 4, seed=5, verify=verify)

    def stopping(after, what, killed=False):
        calls = itertools.count(1)

        def call(*arguments):
            number = next(calls)
            if killed and number > after:
                raise KeyboardInterrupt
            result = what(*arguments)
            if number == after:
                raise KeyboardInterrupt
            return result

        return call

    def contents(name):
        sets = [LevelSet.open(folder / name), LevelSet.open(folder / name / UNFINISHED)]
        return [(level_set.entries, list(level_set)) for level_set in sets]

    for after in verified:
        make("stopped", verify=stopping(after, frames_of_high_levels))
    for after, killed in writes:
        make("stopped", write=stopping(after, write_index, killed))
    make("stopped")
    make("straight")
    assert contents("stopped") == contents("straight")


@pytest.fixture
def script(monkeypatch):
    module = load_script("generate_levels")
    monkeypatch.setattr(module, "par_frames", frames_of_high_levels)  # the planner has its own tests
    return module


def test_script_makes_level_set_and_reports_errors(script, tmp_path, capsys):
    out = str(tmp_path / "set")
    assert script.main(["--category", "simplest", "--count", "5", "--seed", "0", "--out", out]) == 0
    assert "5 levels of category simplest" in capsys.readouterr().out
    assert all(entry.par_frames for entry in LevelSet.open(out).entries)
    assert script.main(["--report", "set", "--count", "5"]) == 2
    assert "--report makes no levels" in capsys.readouterr().err
    assert script.main(["--count", "5", "--seed", "1", "--out", out]) == 2
    assert "error: " in capsys.readouterr().err
    assert script.main(["--count", "5", "--seed", "0", "--out", out, "--workers", "0"]) == 2
    assert capsys.readouterr().err.startswith("error: --workers 0: give a whole number from 1 to 1,024")
    inside = f"{out}/index.json/inner"
    assert script.main(["--count", "5", "--seed", "0", "--out", inside]) == 2
    assert capsys.readouterr().err.startswith(f"error: --out {inside}: cannot be written (")


def test_script_exclude_several_sets(script, tmp_path):
    common = ["--category", "simplest", "--count", "3"]
    for seed in ("0", "1"):
        assert script.main([*common, "--seed", seed, "--out", str(tmp_path / seed)]) == 0
    excluded = [one for seed in ("0", "1") for one in ("--exclude", str(tmp_path / seed))]
    assert script.main([*common, "--seed", "0", "--out", str(tmp_path / "new"), *excluded]) == 0
    found = [{level.fingerprint for level in LevelSet.open(tmp_path / name)} for name in ("0", "new")]
    assert not found[0] & found[1]


def test_script_counts_unfinished_levels(script, tmp_path, capsys):
    arguments = [
        "--out",
        str(tmp_path / "set"),
        *["--category", "simple", "--count", "6", "--seed", "5", "--difficulty", "0.5"],
    ]
    assert script.main(arguments) == 0
    lost = len(LevelSet.open(tmp_path / "set" / UNFINISHED))
    message = f"6 levels of category simple; the planner could not finish {lost} more ({lost / (6 + lost):.1%})"
    assert message in capsys.readouterr().out
    assert script.main(arguments) == 0
    assert message in capsys.readouterr().out, "nothing is made or counted a second time"
    assert script.main([*arguments[:-1], "0.9"]) == 2
    assert "error: " in capsys.readouterr().err


def test_script_report_prints_variety(script, tmp_path, capsys):
    make_level_set(tmp_path / "set", ["simplest", "medium"], 5, seed=0)
    assert script.main(["--report", str(tmp_path / "set")]) == 0
    header, _rule, *rows = [line.strip("|").split("|") for line in capsys.readouterr().out.splitlines()]
    assert [cell.strip() for cell in header] == ["category", "levels", "distinct", "layouts", *MEASURES]
    assert [[cell.strip() for cell in row[:3]] for row in rows] == [["simplest", "5", "5"], ["medium", "5", "5"]]
    assert script.main(["--report", str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert script.main(["--count", "5"]) == 2
    assert "--count, --seed and --out are needed" in capsys.readouterr().err
