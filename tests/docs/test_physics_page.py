"""docs/physics.md is true: its examples run, its links lead somewhere, and kernels cite sections that name them."""

import ast
import doctest
import re

import pytest

from places import ROOT

PAGE = ROOT / "docs" / "physics.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^#+ (\d+(?:\.\d+)*)\. (.+)$", TEXT, re.MULTILINE))
RULES = [
    *sorted((ROOT / "nppsim" / "physics").glob("*.py")),
    ROOT / "nppsim" / "compile.py",
    *(ROOT / "nppsim" / "levels" / name for name in ("kinds.py", "level.py", "tiles.py")),
]
RULES = [path for path in RULES if path.name != "__init__.py"]
SHORT = re.compile(r"[Ss]ections? ((?:\d+(?:\.\d+)*(?:(?:, | and | to )(?=\d))?)+)")


def test_the_examples_of_the_page_run_as_written():
    example = doctest.DocTestParser().get_doctest(TEXT, {}, "physics", str(PAGE), 0)
    assert len(example.examples) > 20
    failures = []
    doctest.DocTestRunner(verbose=False).run(example, out=failures.append)
    assert not failures, "\n".join(failures)


def anchor(number, title):
    """The name that a heading gets on a page of the repository."""
    return re.sub(r"[^\w\- ]", "", f"{number}. {title}".lower()).replace(" ", "-")


def test_links_within_the_page_lead_to_its_sections():
    anchors = {anchor(number, title) for number, title in SECTIONS.items()}
    links = re.findall(r"\]\(#([^)]+)\)", TEXT)
    assert len(links) > 40
    assert not set(links) - anchors


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_a_module_of_rules_cites_its_sections(path):
    """In full in its docstring; below that the number alone, which must be one of the page's, too."""
    source = path.read_text(encoding="utf-8")
    assert "docs/physics.md, section" in re.sub(r"\s*\n\s*", " ", ast.get_docstring(ast.parse(source)))
    for numbers in SHORT.findall(re.sub(r"\s*\n\s*#?\s*", " ", source)):
        assert set(re.findall(r"\d+(?:\.\d+)*", numbers)) <= set(SECTIONS), numbers


LEAVES = [number for number in SECTIONS if not any(other.startswith(f"{number}.") for other in SECTIONS)]
COLLECTIONS = ("11.1", "11.2", "11.3")  # they summarise earlier sections


@pytest.mark.parametrize("section", [number for number in LEAVES if number not in COLLECTIONS])
def test_each_section_names_the_code_that_holds_it(section):
    body = TEXT.split(f" {section}. {SECTIONS[section]}\n", 1)[1].split("\n#", 1)[0]
    assert re.search(r"`nppsim/[\w/]+\.py(::\w+)?`", body)
