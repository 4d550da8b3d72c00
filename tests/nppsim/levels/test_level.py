"""Level: reading, writing, warnings, errors, and the mirror image."""

import copy
import pickle
from contextlib import nullcontext

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nppsim.errors import InputWarning
from nppsim.levels import kinds
from nppsim.levels.level import (
    COUNTED,
    COUNTS_OFFSET,
    RECORDS_OFFSET,
    TILES_OFFSET,
    Level,
    LevelError,
    mirror,
    symmetric_fingerprint,
)

from places import SHARED

CONFORMANCE = SHARED / "conformance"
SPAWN = (0, 40, 50, 0, 0)


def open_tiles():
    return np.zeros((23, 42), dtype=np.uint8)


def level_of(*records, **settings):
    return Level(open_tiles(), np.array([SPAWN, *records]), **settings)


@st.composite
def levels(draw):
    tiles = draw(hnp.arrays(np.uint8, (23, 42), elements=st.integers(0, 37), fill=st.just(0)))
    others = draw(hnp.arrays(np.uint8, st.tuples(st.integers(0, 12), st.just(5))))
    others[:, 0] %= 30
    counts = draw(st.integers(COUNTED, 255)), draw(st.integers(COUNTED, 255))
    title = draw(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=128))
    return Level(tiles, np.vstack([[SPAWN], others]), exit_count=counts[0], ball_count=counts[1], title=title)


@given(levels())
@settings(max_examples=60, deadline=None)
def test_to_bytes_and_from_bytes_restore_level(level):
    again = Level.from_bytes(level.to_bytes())
    assert again == level and hash(again) == hash(level)
    assert (again.tiles == level.tiles).all() and (again.records == level.records).all()
    assert (again.exit_count, again.ball_count, again.title) == (level.exit_count, level.ball_count, level.title)
    assert again.to_bytes() == level.to_bytes()


@given(levels())
@settings(max_examples=60, deadline=None)
def test_mirror_twice_is_identity(level):
    image = mirror(level)
    assert mirror(image) == level and level.mirrored_fingerprint == image.fingerprint
    assert symmetric_fingerprint(image) == symmetric_fingerprint(level)
    assert image.spawn == (1056 - level.spawn[0], level.spawn[1])


@pytest.mark.parametrize("file", ["synthetic.h5", "replays.h5"])
def test_conformance_levels_round_trip(file):
    if not (CONFORMANCE / file).exists():
        pytest.skip(f"needs the conformance traces, {file}, beside the repository")
    with h5py.File(CONFORMANCE / file) as traces:
        for theme, cases in traces.items():
            for case, trace in cases.items():
                data = trace["map"][:].tobytes()
                level = Level.from_bytes(data, f"{theme}/{case}")
                assert Level.from_bytes(level.to_bytes()) == level, level.name
                assert level.to_bytes()[TILES_OFFSET:COUNTS_OFFSET] == data[TILES_OFFSET:COUNTS_OFFSET], level.name
                assert level.to_bytes()[RECORDS_OFFSET:] == data[RECORDS_OFFSET : RECORDS_OFFSET + level.records.size]
                assert level.to_bytes()[COUNTS_OFFSET + 2 * kinds.EXIT] == data[COUNTS_OFFSET + 2 * kinds.EXIT], (
                    level.name
                )
                if file == "synthetic.h5":  # well-formed; the recorded levels have some damaged ones
                    assert not level.warnings, level.name


def test_load_and_save_use_path_as_name(tmp_path):
    level_of(title="two words").save(tmp_path / "a.map")
    level = Level.load(tmp_path / "a.map")
    assert level.name == str(tmp_path / "a.map") and level.title == "two words"
    assert level.spawn == (240.0, 300.0)


def test_build_orders_and_pairs_records():
    level = Level.build(
        open_tiles(),
        (40, 50),
        exits=[((1, 2), (3, 4)), ((5, 6), (7, 8))],
        locked_doors=[((9, 10), (11, 12), 2)],
        trap_doors=[((13, 14), (15, 16), 0)],
        entities=[(21, 17, 18), (1, 19, 20), (5, 21, 22, 6)],
    )
    assert level.records.tolist() == [
        [0, 40, 50, 0, 0],
        [1, 19, 20, 0, 0],
        [3, 3, 4, 0, 0],
        [3, 7, 8, 0, 0],
        [4, 1, 2, 0, 0],
        [4, 5, 6, 0, 0],
        [5, 21, 22, 6, 0],
        [6, 11, 12, 2, 0],
        [7, 9, 10, 0, 0],
        [8, 15, 16, 0, 0],
        [9, 13, 14, 0, 0],
        [21, 17, 18, 0, 0],
    ]
    assert level.exit_count == 2 and not level.warnings


def test_build_invalid_door_raises_error():
    with pytest.raises(LevelError, match="is a locked door; give it as .*locked_doors"):
        Level.build(open_tiles(), (40, 50), entities=[(6, 1, 2, 0)])
    with pytest.raises(LevelError, match=r"trap door \(\(1, 2\), \(3, 4\)\); expected \(switch, door, orientation"):
        Level.build(open_tiles(), (40, 50), trap_doors=[((1, 2), (3, 4))])


def test_level_attributes_are_immutable():
    tiles = open_tiles()
    level = Level(tiles, np.array([SPAWN]))
    tiles[0, 0] = 1  # the level has its own copy
    assert level.tiles[0, 0] == 0
    for same in (level, pickle.loads(pickle.dumps(level)), copy.deepcopy(level)):
        assert same == level
        for array in (same.tiles, same.records):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
        with pytest.raises(AttributeError):
            same.tiles = tiles


def test_equality_depends_on_content_not_name():
    assert level_of(name="a", title="b") == level_of(name="c")
    assert level_of() != level_of((1, 5, 5, 0, 0))
    assert level_of() != level_of(exit_count=1)
    assert len({level_of(), level_of(name="a"), level_of((2, 5, 5, 0, 0))}) == 2


@pytest.mark.parametrize("length", [0, 183, 1234])
def test_from_bytes_truncated_raises_error_with_lengths(length):
    with pytest.raises(LevelError, match=rf"short\.map: {length} bytes; .*at least 1235"):
        Level.from_bytes(bytes(length), "short.map")


def test_from_bytes_foreign_data_raises_error():
    with pytest.raises(LevelError, match=r"notes\.txt: .*not an N\+\+ map"):
        Level.from_bytes(b"notes " * 500, "notes.txt")


@pytest.mark.parametrize(
    ("tiles", "records", "message"),
    [
        (np.zeros((42, 23), int), [SPAWN], r"shape \(42, 23\).*expected \(23, 42\)"),
        (np.full((23, 42), 256), [SPAWN], r"tiles of dtype int64 contain 256\.\.256; expected integers 0\.\.255"),
        (np.full((23, 42), 0.5), [SPAWN], "tiles of dtype float64"),
        (open_tiles(), np.zeros((0, 5), int), r"records have shape \(0, 5\)"),
        (open_tiles(), [SPAWN, (1, 2, -3, 0, 0)], r"records of dtype int64 contain -3\.\.50"),
    ],
)
def test_level_invalid_arrays_raise_error(tiles, records, message):
    with pytest.raises(LevelError, match=f"^mine: .*{message}"):
        Level(tiles, np.array(records), name="mine")


def test_level_long_title_raises_error():
    with pytest.raises(LevelError, match="at most 128 char"):
        level_of(title="x" * 129)


@pytest.mark.parametrize("title", ["Café", "🥷 ninja é", "日本", "👨‍👩‍👧"])
def test_title_in_unicode_is_kept_in_every_format(tmp_path, title):
    level = level_of((1, 1, 2, 0, 0), title=title)
    for name in ("a.map", "a.level"):
        with pytest.warns(InputWarning, match="is not ASCII") if name == "a.map" else nullcontext():
            level.save(tmp_path / name)
        assert Level.load(tmp_path / name).title == title
    assert Level.from_bytes(level.to_bytes()).title == title


def test_save_title_longer_than_header_warns_and_cuts_at_character(tmp_path):
    level = level_of(title="é" * 100)
    with pytest.warns(InputWarning, match=r"only '(é{64})' fits the header"):
        level.save(tmp_path / "a.map")
    assert Level.load(tmp_path / "a.map").title == "é" * 64


def test_from_bytes_title_in_windows_1252():
    data = bytearray(level_of().to_bytes())
    data[38:42] = "Café".encode("cp1252")
    assert Level.from_bytes(bytes(data)).title == "Café"


def test_title_with_lone_surrogate_raises_error():
    with pytest.raises(LevelError, match=r"title 'a\\ud800' cannot be stored"):
        level_of(title="a\ud800")


def warning_of(level):
    assert len(level.warnings) == 1, level.warnings
    return level.warnings[0]


def test_level_invalid_orientation_or_mode_masked_with_warning():
    level = level_of((10, 1, 2, 11, 0))
    assert level.records[1, 3] == 3 and warning_of(level).startswith("byte 1238: orientation 11 of a launch pad")
    level = level_of((14, 9, 9, 1, 6))
    assert level.records[1, 4] == 2 and warning_of(level).startswith("byte 1239: mode 6 of a zap drone")
    level = level_of((1, 1, 2, 200, 200))  # mines have neither
    assert level.records[1].tolist() == [1, 1, 2, 200, 200] and not level.warnings


def test_level_incomplete_last_record_ignored_with_warning():
    data = level_of((1, 2, 3, 0, 0)).to_bytes()
    level = Level.from_bytes(data + b"\1\2")
    assert len(level.records) == 2 and warning_of(level) == "byte 1240: the last record has 2 of 5 bytes; it is ignored"


@pytest.mark.parametrize(
    ("records", "place"),
    [
        ([(kinds.EXIT, 5, 5, 0, 0)], "byte 1235: the exit door has its switch record at byte 1240, beyond the end"),
        ([(6, 5, 5, 0, 0)], "byte 1235: the locked door has its switch record at byte 1240, beyond the end"),
        ([(8, 5, 5, 0, 0)], "byte 1235: the trap door has its switch record at byte 1240, beyond the end"),
        ([(kinds.EXIT, 5, 5, 0, 0), (2, 5, 5, 0, 0)], "byte 1235: the exit door .* which has type 2 instead of 4"),
    ],
)
def test_level_door_without_switch_warns(records, place):
    import re

    assert re.match(place, warning_of(level_of(*records)))


def test_level_exit_count_mismatch_warns():
    data = bytearray(level_of((kinds.EXIT, 5, 5, 0, 0), (kinds.EXIT_SWITCH, 6, 6, 0, 0)).to_bytes())
    data[1156] = 2
    level = Level.from_bytes(data)
    assert level.exit_count == 2 and level.to_bytes()[1156] == 2
    assert level.warnings[0].startswith("byte 1156: the stated number of exit door records (type 3) is 2")
    assert "beyond the end" in level.warnings[1]


def test_level_unsimulated_entities_warn():
    assert warning_of(level_of((99, 0, 0, 0, 0), (200, 0, 0, 0, 0))) == "2 unknown entities are left out"
    assert warning_of(level_of((27, 0, 0, 0, 0))) == "1 alternative death ball is left out"


def test_support_notes_describe_differences():
    turrets = level_of((kinds.GAUSS_TURRET, 9, 9, 0, 0), (kinds.ROCKET_TURRET, 9, 9, 0, 0), (27, 9, 9, 0, 0))
    assert turrets.support_notes == (
        "rocket turrets and gauss turrets behave as in N v2.0",
        "1 alternative death ball is left out",
    )
    for kind in kinds.COMPLETIONS:
        assert len(level_of((kind, 9, 9, 0, 0)).support_notes) == 1
    assert level_of((kinds.MINE, 9, 9, 0, 0)).support_notes == ()


def test_level_unknown_tile_warns():
    tiles = open_tiles()
    tiles[2, 3] = tiles[5, 5] = 40
    assert warning_of(Level(tiles, np.array([SPAWN]))).startswith(
        f"byte {184 + 2 * 42 + 3}: tile id 40 at column 3, row 2 (the first of 2)"
    )


def test_level_border_movers_warn():
    expected = warning_of(level_of((20, 100, 97, 0, 0), (20, 1, 1, 0, 0)))
    assert expected.startswith(
        "byte 1235: a thwump (type 20; the first of 2 such records) stands in the border, at (600, 582) px"
    )
    assert not level_of((26, 4, 96, 0, 0), (17, 0, 0, 0, 0)).warnings


def test_level_too_many_records_raises_error():
    with pytest.raises(LevelError, match="16384 records; at most 16383 can be used"):
        level_of(*[(1, 9, 9, 0, 0)] * 16383)


def test_level_second_spawn_has_no_warning():
    assert not level_of((0, 9, 9, 0, 0)).warnings


def test_level_first_record_not_spawn_warns():
    level = Level(open_tiles(), np.array([(46, 82, 1, 0, 3)]))
    assert level.spawn == (492.0, 6.0) and "type 46 instead of 0" in level.warnings[0]


def test_mirror_exchanges_left_and_right():
    tiles = open_tiles()
    tiles[3, 0], tiles[4, 1] = 8, 3
    image = mirror(Level(tiles, np.array([SPAWN, (10, 8, 9, 1, 0), (14, 8, 9, 0, 2), (1, 8, 9, 1, 1)])))
    assert image.tiles[3, 41] == 9 and image.tiles[4, 40] == 5
    assert image.records.tolist() == [[0, 136, 50, 0, 0], [10, 168, 9, 3, 0], [14, 168, 9, 4, 3], [1, 168, 9, 1, 1]]


MAP = Level.build(open_tiles(), (20, 20), exits=[((30, 30), (40, 40))], entities=[(21, 92, 46)]).to_bytes()


@pytest.mark.parametrize("shift", [1, 4, 8, 13])
def test_from_bytes_shifted_tiles_raises_error(shift):
    """The game's level query returns maps without the first eight bytes."""
    with pytest.raises(LevelError, match=f"put {shift} zero bytes before it"):
        Level.from_bytes(MAP[shift:])
    with pytest.raises(LevelError, match=f"remove the first {shift} bytes"):
        Level.from_bytes(b"x" * shift + MAP)
    assert Level.from_bytes(bytes(shift) + MAP[shift:]) == Level.from_bytes(MAP)


def test_from_bytes_wrong_stated_size_raises_error():
    sized = bytes(4) + len(MAP).to_bytes(4, "little") + MAP[8:]
    assert Level.from_bytes(sized) == Level.from_bytes(MAP)
    for damaged in (sized[:-1], sized + bytes(5)):
        with pytest.raises(LevelError, match=f"a map of {len(MAP)} bytes is stated, there are {len(damaged)}"):
            Level.from_bytes(damaged)


def test_from_bytes_impossible_counts_raise_error():
    with pytest.raises(LevelError, match="byte 1152: 65535 records of type 1 are stated"):
        Level.from_bytes(MAP[:1152] + b"\xff\xff" + MAP[1154:])


@pytest.mark.parametrize("begin", [b"PK\3\4", b"\x89PNG", b"\0\0\0\1"])
def test_from_bytes_other_file_formats_raise_error(begin):
    with pytest.raises(LevelError, match="byte 0: begins with .* not an N\\+\\+ map"):
        Level.from_bytes(begin + MAP[4:])
    with pytest.raises(LevelError, match="the spawn, is empty"):
        Level.from_bytes(bytes(len(MAP)))  # disks and downloads leave such files after a crash


@pytest.mark.parametrize("complete", [1, 2, 7, 8, 9, 10, 12])
def test_from_bytes_cut_between_or_within_records_raises_error(complete):
    """Files that do not state their size show it by the numbers of records that they state."""
    doors = [((8, 8), (9, 9), 0), ((10, 8), (11, 9), 0)]
    gold = [(kinds.GOLD, x, 30) for x in range(40, 46)]
    whole = Level.build(open_tiles(), (20, 20), exits=[((30, 30), (40, 40))], locked_doors=doors, entities=gold)
    data = whole.to_bytes()
    missing = len(whole.records) - complete
    for end in (len(data) - 5 * missing, len(data) - 5 * missing + 3):
        with pytest.raises(LevelError, match=f"{missing} of the stated records are missing"):
            Level.from_bytes(data[:end])
    assert Level.from_bytes(data) == whole


@pytest.mark.parametrize(("x", "y"), [(177, 50), (50, 101)])
def test_level_spawn_outside_stage_raises_error(x, y):
    with pytest.raises(LevelError, match="outside the stage of 1056 x 600 px"):
        Level(open_tiles(), np.array([(0, x, y, 0, 0)]))
    with pytest.raises(LevelError, match="outside the stage"):
        Level.from_bytes(MAP[:1231] + bytes([x, y]) + MAP[1233:])
