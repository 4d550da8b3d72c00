"""docs/observations.md and the docstring of NppEnv list every key and component of the layout."""

import re

import pytest

from nppsim.gym.env import NppEnv
from nppsim.gym.spaces import observation_space
from nppsim.observe import images, layout, vectors
from nppsim.physics import entities, movers
from nppsim.physics.evil_ninjas import EVIL_RADIUS
from nppsim.physics.state import RADIUS

from places import ROOT

TEXT = (ROOT / "docs" / "observations.md").read_text()


def section(key):
    heading = re.search(rf"^## .*`{key}`.*$", TEXT, re.MULTILINE)
    assert heading, f"docs/observations.md has no section {key}"
    return TEXT[heading.end() :].split("\n## ")[0]


@pytest.mark.parametrize("spec", layout.SPECS.values(), ids=layout.SPECS.keys())
def test_documentation_tables_list_every_key(spec):
    shape = re.escape(str(spec.shape))
    row = rf"\| `{spec.name}` *\| `{spec.key}` *\| {shape} *\| {spec.dtype} *\|"
    assert re.search(row + rf" {spec.bytes} \|", TEXT)
    shape = re.escape(str(observation_space([spec.key])[spec.key].shape))
    assert re.search(rf"\| `{spec.name}` *\| `{spec.key}` *\| {shape} *\| {spec.dtype} *\|", NppEnv.__doc__)


@pytest.mark.parametrize("key", [key for key, spec in layout.SPECS.items() if spec.components])
def test_documentation_lists_components_at_index(key):
    found = {}
    for indices, names in re.findall(r"^\| ([\d, ]+?) \| ((?:`\w+` ?)+) \|", section(key), re.MULTILINE):
        found |= dict(zip(map(int, indices.split(",")), re.findall(r"`(\w+)`", names), strict=True))
    assert found == dict(enumerate(layout.SPECS[key].components))


def test_documentation_radii_match_constants():
    radii = {}
    for names, radius in re.findall(r"^\| ([a-z ,]+) \| .* \| ([\d.]+) \|$", section("hazards"), re.MULTILINE):
        radii |= dict.fromkeys(names.split(", "), float(radius))
    assert radii == {
        "zap drone": movers.ZAP_RADIUS, "chaser drone": movers.ZAP_RADIUS, "mini drone": movers.MINI_RADIUS,
        "floor guard": movers.GUARD_RADIUS, "death ball": movers.BALL_RADIUS, "evil ninja": EVIL_RADIUS,
        "shove thwump": movers.SHOVE_CORE,
        "thwump": entities.LETHAL_REACH - RADIUS, "laser": vectors.BEAM_RADIUS,
        "rocket turret": vectors.BEAM_RADIUS, "gauss turret": vectors.BEAM_RADIUS,
        "chaingun drone": vectors.BEAM_RADIUS, "laser drone": vectors.BEAM_RADIUS,
    }  # fmt: skip


def test_documentation_planes_and_greys_match_code():
    planes = re.findall(r"^\| \d \| `(\w+)` \|", section("surroundings"), re.MULTILINE)
    assert tuple(planes) == layout.SURROUNDINGS_PLANES
    greys = {int(number) for number in re.findall(r"\| (\d+) \| ", section("global_view"))}
    assert greys == {
        images.EMPTY, images.SOLID, images.DEADLY, images.GOLD_GREY, images.SWITCH_GREY, images.EXIT_CLOSED,
        images.EXIT_OPEN, images.DOOR_GREY, images.NINJA_GREY, images.ONE_WAY_GREY, images.PAD_GREY, images.BOOST_GREY,
        images.BLOCK_GREY, images.THWUMP_GREY,
    }  # fmt: skip
