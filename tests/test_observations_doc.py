"""docs/observations.md and the docstring of NppEnv tell every key and component, as the layout has them."""

import re
from pathlib import Path

import pytest

from nppsim.env import NppEnv
from nppsim.observe import images, layout

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "observations.md").read_text()


def section(key):
    heading = re.search(rf"^## .*`{key}`.*$", TEXT, re.MULTILINE)
    assert heading, f"docs/observations.md has no section {key}"
    return TEXT[heading.end() :].split("\n## ")[0]


@pytest.mark.parametrize("spec", layout.SPECS.values(), ids=layout.SPECS.keys())
def test_every_key_is_in_both_tables(spec):
    shape = re.escape(str(spec.shape))
    row = rf"\| `{spec.name}` *\| `{spec.key}` *\| {shape} *\| {spec.dtype} *\|"
    assert re.search(row + rf" {spec.bytes} \|", TEXT)
    assert re.search(row, NppEnv.__doc__)


@pytest.mark.parametrize("key", [key for key, spec in layout.SPECS.items() if spec.components])
def test_every_component_has_its_row_at_its_index(key):
    found = {}
    for indices, names in re.findall(r"^\| ([\d, ]+?) \| ((?:`\w+` ?)+) \|", section(key), re.MULTILINE):
        found |= dict(zip(map(int, indices.split(",")), re.findall(r"`(\w+)`", names), strict=True))
    assert found == dict(enumerate(layout.SPECS[key].components))


def test_planes_and_greys_are_those_of_the_program():
    planes = re.findall(r"^\| \d \| `(\w+)` \|", section("surroundings"), re.MULTILINE)
    assert tuple(planes) == layout.SURROUNDINGS_PLANES
    greys = {int(number) for number in re.findall(r"\| (\d+) \| ", section("global_view"))}
    assert greys == {
        images.EMPTY, images.SOLID, images.DEADLY, images.GOLD_GREY, images.SWITCH, images.EXIT_CLOSED,
        images.EXIT_OPEN, images.DOOR, images.NINJA,
    }  # fmt: skip
