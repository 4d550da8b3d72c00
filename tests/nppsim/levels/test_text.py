"""Levels as text: reading, writing, and messages about mistakes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nppsim
from nppsim.levels import kinds
from nppsim.levels.level import MAX_RECORDS, MAX_TEXT, Level, LevelError
from nppsim.levels.text import TILE_CHARACTERS
from nppsim.levels.tiles import NUM_TILE_SHAPES

from places import ROOT
from worlds import mixed_level, random_level

FULL = "#" * 42
HALL = "##" + "." * 12 + "#" * 28
TYPED = (
    "nppsim level 1\ntitle: Under a low ceiling\n#! a remark\ntiles:\n"
    + "\n".join([FULL] * 10 + [HALL] * 2 + [FULL] * 11)
    + "\nrecords:\nninja 3.5 12.5\nexit-door 11 12.5\nexit-switch 8 12.5\ngold 5.25 12\n"
)


def test_from_text_typed_level_plays(tmp_path):
    (tmp_path / "typed.level").write_text(TYPED)
    level = Level.load(tmp_path / "typed.level")
    assert (level.title, level.warnings, level.spawn) == ("Under a low ceiling", (), (84.0, 300.0))
    assert level.records.tolist()[1:] == [
        [kinds.EXIT, 44, 50, 0, 0],
        [kinds.EXIT_SWITCH, 32, 50, 0, 0],
        [kinds.GOLD, 21, 48, 0, 0],
    ]
    assert nppsim.simulate(level, np.full(200, 2, np.uint8)).won


def test_tile_characters_cover_all_tiles():
    assert len(set(TILE_CHARACTERS)) == NUM_TILE_SHAPES


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    title=st.text(st.characters(max_codepoint=127, exclude_characters="\0"), max_size=20),
    odd=st.booleans(),
)
def test_to_text_and_from_text_restore_level(seed, title, odd):
    level = mixed_level(seed) if seed % 2 else random_level(seed)
    tiles, records = level.tiles.copy(), level.records.copy()
    if odd:
        tiles[seed % 23, seed % 42] = 38 + seed % 200
        records[-1, 0] = 30 + seed % 200
    level = Level(tiles, records, title=title, exit_count=seed % 4 if odd else level.exit_count)
    again = Level.from_text(level.to_text())
    assert again == level and again.title == title
    assert again.to_bytes() == level.to_bytes()


@pytest.mark.parametrize("kind", [kinds.EXIT, kinds.DEATH_BALL])
def test_to_text_saturated_count_byte_round_trips(kind):
    records = np.array([[0, 40, 40, 0, 0]] + 300 * [[kind, 40, 40, 0, 0]])
    counts = {"exit_count": 255} if kind == kinds.EXIT else {"ball_count": 255}
    level = Level(np.zeros((23, 42), np.uint8), records, **counts)
    assert Level.from_text(level.to_text()).to_bytes() == level.to_bytes()


def test_from_text_largest_level_read_and_longer_raises_error(tmp_path):
    """Text takes several times the bytes of the binary format."""
    records = np.full((MAX_RECORDS, 5), (kinds.LOCKED_DOOR, 141, 83, 7, 3))
    records[0] = (0, 40, 40, 0, 0)
    level = Level(np.zeros((23, 42), np.uint8), records)
    file = tmp_path / "large.level"
    level.save(file)
    assert len(file.read_bytes()) < MAX_TEXT
    assert Level.load(file).to_bytes() == level.to_bytes()
    file.write_bytes(file.read_bytes() + b"#! more\n" * (MAX_TEXT // 8))
    with pytest.raises(LevelError, match=r"large\.level: more than 1,048,576 bytes of text"):
        Level.load(file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("nppsim level 1", "nppsim level 2"), "line 1 is 'nppsim level 2': expected 'nppsim level 1'"),
        (("title:", "name:"), "line 2 .* expected 'title: ...' or 'tiles:'"),
        ((FULL, FULL[:-1]), "line 5 .* a row of tiles has 42 characters, this one 41"),
        ((HALL, HALL.replace(".", "*")), "line 15 .*'\\*' is not a tile"),
        (("records:", "tile 30 1 200\nrecords:"), "expected a row below 23"),
        (("records:", "entities:"), "expected 'tile ROW COLUMN ID' or 'records:'"),
        (("gold 5.25", "golden 5.25"), "'golden' is not a type; types are ninja, mine"),
        (("gold 5.25", "gold 5.3"), "5.3 is not a coordinate"),
        (("gold 5.25 12", "gold 5.25"), "expected TYPE X Y"),
        (("gold 5.25 12", "gold 5.25 12 300"), "orientation and mode are whole numbers below 256"),
        (("title: Under a low ceiling", 'title: "Under'), "is not a JSON string"),
        ((TYPED[TYPED.index("tiles") :], ""), "the text ends after"),
        ((TYPED[TYPED.index("ninja") :], ""), "there are no records; the first must be the ninja's"),
    ],
)
def test_from_text_mistakes_raise_error_with_line(change, message):
    with pytest.raises(LevelError, match=f"mine.level: .*{message}"):
        Level.from_text(TYPED.replace(*change, 1), "mine.level")


def test_from_text_byte_order_mark_ignored(tmp_path):
    file = tmp_path / "typed.level"
    file.write_text(TYPED, encoding="utf-8-sig")
    assert Level.load(file) == Level.from_text(TYPED)
    file.rename(tmp_path / "typed.map")
    assert Level.load(tmp_path / "typed.map") == Level.from_text(TYPED)
    file.write_text(TYPED, encoding="utf-16")
    assert Level.load(file) == Level.from_text(TYPED)
    for text in ("#! a remark\n" + TYPED, ""):
        file.write_text(text)
        with pytest.raises(
            LevelError, match="does not begin with 'nppsim level', as a level in text form does; write that"
        ):
            Level.load(file)


def test_documentation_example_is_level():
    page = (ROOT / "docs" / "file_formats.md").read_text()
    example = page.partition("```text\nnppsim level 1")[2].partition("```")[0]
    assert Level.from_text("nppsim level 1" + example).warnings == ()
