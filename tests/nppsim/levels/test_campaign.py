"""Campaign files: lines, addresses, damaged files, level sets."""

import json
import shutil
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nppsim.__main__ import main
from nppsim.errors import InputWarning
from nppsim.generate import generate
from nppsim.levels import campaign, kinds
from nppsim.levels.level import Level, LevelError
from nppsim.levels.level_set import LevelSet, LevelSetError
from nppsim.report.listing import level_facts

from places import SHARED

CAMPAIGN = SHARED / "campaign"
needs_campaign = pytest.mark.skipif(not CAMPAIGN.exists(), reason="needs the levels of the real game")

POSITIONS = st.tuples(st.integers(4, 170), st.integers(4, 90))
ORIENTATIONS = st.integers(0, 7)
DOORS = st.lists(st.tuples(POSITIONS, POSITIONS, ORIENTATIONS), max_size=4)
TYPES = [kind for kind in campaign.RECORD_BYTES if kind not in (kinds.NINJA, *kinds.PAIRED)]


@st.composite
def levels(draw):
    tiles = draw(hnp.arrays(np.uint8, (23, 42), elements=st.integers(0, 37), fill=st.just(0)))
    entities = []
    for kind in draw(st.lists(st.sampled_from(TYPES), max_size=30)):
        extra = campaign.RECORD_BYTES[kind] - 2
        entities.append((kind, *draw(POSITIONS), *(draw(st.integers(0, 3)) for _ in range(extra))))
    return Level.build(
        tiles,
        draw(POSITIONS),
        exits=draw(st.lists(st.tuples(POSITIONS, POSITIONS), max_size=3)),
        locked_doors=draw(DOORS),
        trap_doors=draw(DOORS),
        entities=entities,
        title=draw(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=128)),
    )


def line_of(category, seed):
    return campaign.to_line(generate(category, seed)[0])


@pytest.fixture
def pack(tmp_path):
    """A campaign file of three levels; the second line is cut off, the third empty."""
    lines = [line_of("simple", 1), line_of("simple", 2)[:1500], "", line_of("mine_heavy", 3)]
    lines[0] = "$first#" + lines[0].split("#")[-2] + "#"
    path = tmp_path / "PACK.txt"
    path.write_text("\r\n".join(lines) + "\r\n")
    return path


@given(levels())
@settings(max_examples=60, deadline=None)
def test_to_line_and_parse_restores_level(level):
    again = campaign.level_from_line(campaign.to_line(level).encode())
    assert again.to_bytes() == level.to_bytes()


def test_to_line_orders_records_like_map():
    door, switch = (kinds.LOCKED_DOOR, 20, 24, 2), (30, 34)
    level = Level.build(
        np.zeros((23, 42), np.uint8),
        (8, 8),
        exits=[((40, 41), (50, 51)), ((42, 43), (52, 53))],
        locked_doors=[(switch, door[1:3], door[3])],
        entities=[(kinds.GOLD, 9, 9), (kinds.ZAP_DRONE, 60, 60, 2, 1)],
    )
    records = campaign.level_from_line(campaign.to_line(level).encode()).records.tolist()
    assert [row[0] for row in records] == [0, 2, 3, 3, 4, 4, 6, 7, 14]
    assert records[2:6] == [[3, 50, 51, 0, 0], [3, 52, 53, 0, 0], [4, 40, 41, 0, 0], [4, 42, 43, 0, 0]]
    assert records[6:] == [[6, 20, 24, 2, 0], [7, 30, 34, 0, 0], [14, 60, 60, 2, 1]]


def test_to_line_unsupported_content_raises_error():
    tiles = np.zeros((23, 42), np.uint8)
    wrong_order = Level(tiles, np.array([(0, 8, 8, 0, 0), (kinds.GOLD, 9, 9, 0, 0), (kinds.MINE, 9, 9, 0, 0)]))
    no_switch = Level(tiles, np.array([(0, 8, 8, 0, 0), (kinds.LOCKED_DOOR, 9, 9, 0, 0)]))
    for level in (wrong_order, no_switch):
        with pytest.raises(LevelError):
            campaign.to_line(level)


def test_locate_by_number_or_title(pack):
    level = Level.load(f"{pack}#0")
    assert level == generate("simple", 1)[0]
    assert Level.load(f"{pack}#first") == Level.load(f"{pack}#FIRST") == level
    for wrong in ("2", "17", "second"):
        with pytest.raises(LevelError, match=f"#{wrong}"):
            Level.load(f"{pack}#{wrong}")
    with pytest.raises(LevelError, match="3 levels"):
        Level.load(pack)


def test_parse_titles_with_any_character(tmp_path):
    digits = line_of("simple", 1).split("#")[-2]
    path = tmp_path / "odd.txt"
    path.write_text(f"$24/7: #1. a#b#{digits}#\n$twin#{digits}#\n$twin#{digits}#\n")
    assert Level.load(f"{path}#24/7: #1. a#b").title == "24/7: #1. a#b"
    with pytest.raises(LevelError, match=r"odd.txt#1, odd.txt#2"):
        Level.load(f"{path}#twin")
    assert [level.title for level in LevelSet.at(f"{path}#24/7: #1. a#b")] == ["24/7: #1. a#b"]


@pytest.fixture
def game(tmp_path):
    """A folder with an intro tab of 125 levels, and a tab with missing lines."""
    digits = [line_of("simple", seed).split("#")[-2] for seed in (1, 2)]
    folder = tmp_path / "game v1.2"
    folder.mkdir()
    (folder / "SI.txt").write_text("".join(f"$intro {i}#{digits[i % 2]}#\n" for i in range(125)))
    (folder / "S.txt").write_text("".join(f"$solo {i}#{digits[i % 2]}#\n" for i in range(3)))
    (folder / "readme.txt").write_text("$5 for the #1 level\n")
    return folder


def test_level_ids_known_and_found(game):
    for place in ("SI.txt#SI-C-03-04", "SI.txt#c-03-04", "SI.txt#89", "SI.txt#intro 89", ""):
        level = Level.load(game / place if place else f"{game}#SI-C-03-04")
        assert (level.id, level.title, level.caption) == ("SI-C-03-04", "intro 89", "SI-C-03-04 intro 89")
    assert [level.id for level in LevelSet.at(f"{game}#intro 3")] == ["SI-A-00-03"]
    for wrong in (f"{game}#S-A-00-00", f"{game}#SI-X-00-00", f"{game}#7", f"{game / 'SI.txt'}#SI-F-00-00"):
        with pytest.raises(LevelError):
            Level.load(wrong)


def test_incomplete_tab_has_plain_ids(game):
    assert Level.load(f"{game}#S-002") == Level.load(game / "S.txt#2")
    assert [level.id for level in LevelSet.at(game / "S.txt")] == ["S-000", "S-001", "S-002"]


def test_locate_id_in_incomplete_file_says_why(pack, tmp_path):
    part = shutil.copy(pack, tmp_path / "S.txt")
    for address in (f"{part}#S-C-12-03", f"{part}#c-12-03", f"{tmp_path}#S-C-12-03"):
        with pytest.raises(LevelError, match=r"S.txt has \d lines instead of 600, .* ids S-000, S-001"):
            Level.load(address)
    for address in (f"{part}#SU-C-12-03", f"{part}#a title", f"{pack}#S-C-12-03"):
        with pytest.raises(LevelError, match="no such level; give"):
            Level.load(address)


def test_levels_command_shows_ids(game, capsys):
    assert main(["levels", f"{game}#SI-A-00-01", "--json"]) == 0
    (facts,) = json.loads(capsys.readouterr().out)
    assert (facts["id"], facts["title"]) == ("SI-A-00-01", "intro 1")
    assert main(["levels", str(game / "S.txt")]) == 0
    assert "S-002" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda line: line[:-1], "cut off"),
        (lambda line: line[:1000] + "#", "cut off"),
        (lambda line: line[:-2] + "#", "odd number"),
        (lambda line: line[:-9] + "#", "cut off|zero bytes"),
        (lambda line: line.replace("#0", "#g", 1), "byte 1: b'g'|b'g'"),
        (lambda line: line[1:], "TITLE"),
        (lambda line: line[:-1] + "00#", "zero bytes"),
    ],
)
def test_parse_damaged_line_raises_error_with_position(damage, found):
    with pytest.raises(LevelError, match=found):
        campaign.level_from_line(damage(line_of("simple", 1)).encode(), "PACK.txt#0")


def test_parse_one_damaged_line_keeps_others(pack):
    levels, problems = campaign.levels_from_bytes(pack.read_bytes(), str(pack))
    assert sorted(levels) == [0, 3] and sorted(problems) == [1]
    assert f"{pack}#1" in str(problems[1])


def test_level_set_at_campaign_file_lists_levels(pack, tmp_path):
    for level_set in (LevelSet.at(pack), LevelSet.at(tmp_path)):
        assert level_set.categories == ("PACK",)
        assert [entry.file for entry in level_set.entries] == ["PACK.txt#0", "PACK.txt#1", "PACK.txt#3"]
        assert level_set[0].title == "first"
        with pytest.raises(LevelSetError, match="#1"):
            level_set[1]
    (tmp_path / "readme.txt").write_text("$5 for the #1 level\n")
    assert len(LevelSet.at(tmp_path)) == 3


def test_support_follows_from_entities():
    def grade(*types):
        return Level(
            np.zeros((23, 42), np.uint8), np.array([(0, 8, 8, 0, 0), *((t, 9, 9, 0, 0) for t in types)])
        ).support

    assert grade() == grade(kinds.MINE, kinds.ZAP_DRONE) == "exact"
    assert (
        grade(kinds.MINE, kinds.LASER)
        == grade(kinds.CHASER_DRONE)
        == grade(kinds.ROCKET_TURRET)
        == grade(kinds.EVIL_NINJA)
        == "modelled"
    )
    assert grade(kinds.LASER, 27) == grade(200) == "unsupported"


def test_levels_command_lists_levels(pack, capsys):
    assert main(["levels", str(pack)]) == 2
    assert "PACK.txt#1" in capsys.readouterr().err
    assert main(["levels", str(pack), "--skip-bad-levels", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["name"], first["title"], first["support"]) == (f"{pack}#0", "first", "exact")
    assert first["path_length"] > 0 and first["entities"]["exit door"] == 1
    assert second["entities"]["mine"] > 0


def test_extract_writes_and_reads_campaign_files(pack, tmp_path, capsys):
    level = Level.load(f"{pack}#3")
    for name in ("one.map", "one.level", "one.txt"):
        assert main(["extract", f"{pack}#3", str(tmp_path / "out" / name)]) == 0
        assert Level.load(tmp_path / "out" / name) == level


def test_extract_existing_campaign_file_raises_error(pack, tmp_path, capsys):
    content = pack.read_bytes()
    other = tmp_path / "other.txt"
    other.write_text(line_of("simple", 1) + "\n")
    for source in (f"{pack}#0", str(other)):
        assert main(["extract", source, str(pack)]) == 2
        assert pack.name in capsys.readouterr().err
    assert pack.read_bytes() == content


LINES = [f"$Level #1#{line_of('simple', 1).split('#')[-2]}#", f"$Café 🥷 #2#{line_of('simple', 2).split('#')[-2]}#"]
PLAIN = "\n".join(LINES)
TITLES = ["Level #1", "Café 🥷 #2"]


def wrapped(text, width):
    return "\r\n".join(line[i : i + width] for line in text.split("\n") for i in range(0, len(line), width))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(PLAIN.encode(encoding), id=encoding)
        for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32")
    ]
    + [
        pytest.param(text.encode(), id=name)
        for name, text in {
            "carriage returns": PLAIN.replace("\n", "\r"),
            "empty lines": f"\n\n{PLAIN}\n\n",
            "spaces": "\t " + PLAIN.replace("\n", " \u00a0\n\u00a0 ") + " \x1a",
            "quotes": "\n".join(f'"{line}",' for line in LINES),
            "comments": "; made by me\n# 2 levels, #1 is easy\n// $5\n" + PLAIN,
            "quoted mail": "\n".join(f"> {line}" for line in LINES),
            "remarks": "\n".join(f"1. {line} (nice)" for line in LINES),
            "marks of joined files": "\ufeff" + PLAIN.replace("\n", "\n\ufeff"),
            "wrapped": wrapped(PLAIN, 1024),
            "upper case": "\n".join(f"{line[:14]}{line[14:].upper()}" for line in LINES),
        }.items()
    ],
)
def test_campaign_file_of_any_editor_is_read(tmp_path, data, recwarn):
    for name in ("pack.txt", "pack.csv", "pack"):
        folder = tmp_path / name.replace(".", "_")
        folder.mkdir()
        (folder / name).write_bytes(data)
        assert [level.title for level in LevelSet.at(folder / name)] == TITLES
        assert [level.title for level in LevelSet.at(folder)] == TITLES
        assert Level.load(f"{folder / name}#Level #1") == generate("simple", 1)[0]
    assert [str(one.message) for one in recwarn] == []


def test_campaign_file_in_windows_1252_keeps_titles(tmp_path):
    path = tmp_path / "old.txt"
    path.write_bytes(PLAIN.replace("🥷", "é").encode("cp1252"))
    assert [level.title for level in LevelSet.at(path)] == ["Level #1", "Café é #2"]


def test_is_campaign_long_line_is_fast():
    for line in (b"$" * 60_000, b"$#" * 30_000, b"#0000000000000000" * 3_000):
        assert not campaign.is_campaign(line)
    with pytest.raises(LevelError):
        campaign.level_from_line(b"$" + b"#00000000" * 200_000)


def test_extract_level_with_numbered_title_is_read(tmp_path):
    level = Level.load(generate_file(tmp_path / "h1.map", "Level #1"))
    assert main(["extract", str(tmp_path / "h1.map"), str(tmp_path / "h1.txt")]) == 0
    assert Level.load(tmp_path / "h1.txt") == level and Level.load(tmp_path / "h1.txt").title == "Level #1"
    assert len(LevelSet.at(tmp_path)) == 2


def generate_file(path, title):
    """Write a level with a title to a map file; return the path."""
    level, _ = generate("simple", 1)
    Level(level.tiles, level.records, title=title).save(path)
    return path


def test_levels_command_many_lines_is_fast(tmp_path, capsys):
    main(["levels", str(generate_file(tmp_path / "a.map", "compiles"))])
    (tmp_path / "many.txt").write_text("\n".join(LINES * 2000))
    begin = time.process_time()
    assert main(["levels", str(tmp_path / "many.txt")]) == 0
    assert time.process_time() - begin < 4, "0.4 ms per line"
    assert "4000 levels: 4000 exact" in capsys.readouterr().out


def test_level_facts_of_many_levels_equal_single_levels():
    levels = [generate("simple", seed)[0] for seed in range(4)] * 60
    assert list(level_facts(levels)) == [next(level_facts([level])) for level in levels]


def test_to_line_title_with_line_end_warns():
    level, _ = generate("simple", 1)
    with pytest.warns(InputWarning, match=r"cannot store the title 'a\\nb'"):
        line = campaign.to_line(Level(level.tiles, level.records, title="a\nb"))
    assert line.startswith("$a?b#")


@needs_campaign
def test_official_files_round_trip_unchanged():
    for path in sorted(CAMPAIGN.glob("S*.txt")):
        lines = path.read_bytes().splitlines()
        levels, problems = campaign.levels_from_bytes(path.read_bytes(), path.name)
        assert [path.name] * len(problems) == ["SL2.txt"] * len(problems)
        for number, level in levels.items():
            assert campaign.to_line(level).encode() == lines[number]
