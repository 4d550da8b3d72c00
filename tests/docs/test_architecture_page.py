"""docs/architecture.md: the files and rooms that it names exist, and no room is left out."""

import re

import pytest

from places import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FILES = set(re.findall(r"`([\w/]+\.py)`", TEXT))
ROOMS = set(re.findall(r"^\| `((?:nppsim|rl)/\w+/)` \|", TEXT, re.MULTILINE))


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_is_named_exists(name):
    """By its path, or by as much of it as tells it from others: ``tick.py`` after its room was named."""
    assert (ROOT / name).is_file() or any((ROOT / "nppsim").rglob(name))


def test_every_room_is_in_the_table():
    present = {
        f"{path.parent.relative_to(ROOT)}/"
        for package in ("nppsim", "rl")
        for path in (ROOT / package).glob("*/__init__.py")
    }
    assert present == ROOMS


def test_links_lead_to_pages():
    for page in re.findall(r"\]\(([\w/.]+\.md)\)", TEXT):
        assert (ROOT / "docs" / page).is_file(), page
