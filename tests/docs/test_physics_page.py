"""docs/physics.md: its numbers are those of the simulator, its links are valid, and kernels cite existing sections."""

import ast
import re

import numpy as np
import pytest

import nppsim
from nppsim.compile import compile_level
from nppsim.levels.tiles import solid_mask
from nppsim.physics.shapes import SHAPES

from places import ROOT

PAGE = ROOT / "docs" / "physics.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^#+ (\d+(?:\.\d+)*)\. (.+)$", TEXT, re.MULTILINE))
RULES = [
    *sorted((ROOT / "nppsim" / "physics").glob("*.py")),
    ROOT / "nppsim" / "compile.py",
    *(ROOT / "nppsim" / "levels" / name for name in ("kinds.py", "level.py", "tiles.py")),
]
RULES = [path for path in RULES if path.name not in ("__init__.py", "outcomes.py")]
SHORT = re.compile(r"[Ss]ections? ((?:\d+(?:\.\d+)*(?:(?:, | and | to )(?=\d))?)+)")


EMPTY = np.zeros((23, 42), np.uint8)
FLOOR = EMPTY.copy()
FLOOR[19] = 1  # its top is at y = 480
HIGH, ON_THE_FLOOR = (0, 80, 8, 0, 0), (0, 80, 78, 0, 0)  # records of the spawn


def level(cells, *records):
    return nppsim.Level(cells, np.array(records))


@pytest.mark.parametrize(
    ("thick", "wedge"), [(22, 20), (23, 21), (24, 18), (25, 19), (30, 28), (31, 29), (32, 26), (33, 27)]
)
def test_thick_slopes_are_complements_of_wedges(thick, wedge):  # section 3.3
    assert (solid_mask(thick, 48) ^ solid_mask(wedge, 48)).all()


def test_single_full_tile_has_eight_documented_faces():  # section 3.5
    cells = EMPTY.copy()
    cells[4, 4] = 1
    compiled = compile_level(level(cells, (0, 8, 8, 0, 0)))
    first, end = compiled.world.cell_start[0, 5 * 25 + 5 : 5 * 25 + 7]
    rows = compiled.world.segments[first:end]
    faces = [(int(x), int(y), int(x + SHAPES[s, 1]), int(y + SHAPES[s, 2])) for x, y, s, _ in rows]
    text = re.sub(r"\s+", " ", TEXT)
    assert ", ".join(f"({a}, {b})→({c}, {d})" for a, b, c, d in faces) in text


def test_free_fall_speeds_match_page():  # section 6.2
    run = nppsim.simulate(level(EMPTY, HIGH), np.zeros(60, np.uint8))
    assert [round(float(run.velocity[n - 1, 1]), 3) for n in (1, 10, 60)] == [0.067, 0.647, 3.305]


def test_deadly_fall_depth_matches_page():  # section 6.5
    def outcome(byte):  # of a fall of 470 - 6 * byte px
        return nppsim.simulate(level(FLOOR, (0, 80, byte, 0, 0)), np.zeros(200, np.uint8)).outcome

    assert (outcome(38), outcome(37)) == ("running", "died")


def test_jump_rise_and_duration_match_page():  # section 6.6
    heights, landings = [], []
    for pressed in (1, 5, 10, 20, 30, 45, 46):
        inputs = np.zeros(150, np.uint8)
        inputs[10 : 10 + pressed] = 1
        run = nppsim.simulate(level(FLOOR, ON_THE_FLOOR), inputs)
        heights.append(f"{float(run.position[9, 1] - run.position[:, 1].min()):.1f}")
        landings.append(str(int(np.flatnonzero(run.airborne)[-1]) + 2 - 10))
    assert f"| rise, px | {' | '.join(heights)} |" in TEXT
    assert f"| frames from press to landing | {' | '.join(landings)} |" in TEXT


def test_regular_door_closes_six_frames_after_last_touch():  # section 7.4
    run = nppsim.simulate(level(FLOOR, (0, 20, 78, 0, 0), (5, 70, 78, 0, 0)), np.full(250, 2, np.uint8))
    closed = run.entity_state[:, 0] >> 4 & 1
    assert [int(frame) for frame in np.flatnonzero(np.diff(closed.astype(int))) + 2] == [117, 134]


def test_compact_replay_bytes_match_page():  # section 9.2
    air = level(EMPTY, HIGH)
    data = nppsim.Replay(air, np.array([2, 2, 3], np.uint8), success=False).to_bytes()
    assert (len(air.to_bytes()), data[:13].hex(" ", 4), list(data[-3:])) == (
        1235,
        "01 000000d3 04000003 00000000",
        [2, 2, 3],
    )


def anchor(number, title):
    """The name that a heading gets on a page of the repository."""
    return re.sub(r"[^\w\- ]", "", f"{number}. {title}".lower()).replace(" ", "-")


def test_links_within_page_resolve():
    anchors = {anchor(number, title) for number, title in SECTIONS.items()}
    links = re.findall(r"\]\(#([^)]+)\)", TEXT)
    assert len(links) > 40
    assert not set(links) - anchors


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_rule_modules_cite_their_sections(path):
    """In full in its docstring; below that the number alone, which must be one of the page's, too."""
    source = path.read_text(encoding="utf-8")
    assert "docs/physics.md, section" in re.sub(r"\s*\n\s*", " ", ast.get_docstring(ast.parse(source)))
    for numbers in SHORT.findall(re.sub(r"\s*\n\s*#?\s*", " ", source)):
        assert set(re.findall(r"\d+(?:\.\d+)*", numbers)) <= set(SECTIONS), numbers


LEAVES = [number for number in SECTIONS if not any(other.startswith(f"{number}.") for other in SECTIONS)]
COLLECTIONS = ("11.1", "11.2", "11.3")  # they summarise earlier sections


@pytest.mark.parametrize("section", [number for number in LEAVES if number not in COLLECTIONS])
def test_sections_name_their_code(section):
    body = TEXT.split(f" {section}. {SECTIONS[section]}\n", 1)[1].split("\n#", 1)[0]
    assert re.search(r"`nppsim/[\w/]+\.py(::\w+)?`", body)
