"""Every relative link of every page leads to an existing file and heading, and every page is linked."""

import re

import pytest

from places import ROOT

PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "datasets").rglob("*.md"))
    if ".venv" not in path.parts
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def links(page):
    """Yield (path or "", anchor or "") of each relative link of a page."""
    text = re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text(encoding="utf-8")))
    for target in LINK.findall(text):
        if not re.match(r"\w+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


def anchors(page):
    """Return the anchors of a page's headings."""
    found = []
    for heading in re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return set(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_resolve(page):
    for path, anchor in links(page):
        target = (page.parent / path) if path else page
        assert target.exists(), f"{path} does not exist"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{path or page.name} has no heading #{anchor}"


def test_pages_reachable_from_readme():
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        seen.add(page)
        targets = {(page.parent / path).resolve() for path, _ in links(page) if path.endswith(".md")}
        waiting += [target for target in targets if target not in seen]
    assert {page.name for page in (ROOT / "docs").glob("*.md")} <= {page.name for page in seen}
