"""The documentation site is built without warnings, has every page, and loads nothing from outside."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from places import ROOT

for package in ("mkdocs", "material"):
    pytest.importorskip(package)
SPEC = importlib.util.spec_from_file_location("mkdocs_hooks", ROOT / "mkdocs_hooks.py")
hooks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(hooks)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder of the site built by ``make docs``."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_site_contains_pages_and_examples(site):
    pages = [path.stem for path in (ROOT / "docs").glob("*.md")]
    pages += [f"examples/{path.stem}" for path in (ROOT / "examples").glob("*.py")]
    assert not [page for page in [*pages, "index", "contributing"] if not (site / f"{page}.html").is_file()]


def test_site_loads_nothing_external(site):
    loads = re.compile(
        r"<(?:script|img|iframe|source|video)\b[^>]*\bsrc=\"(?:https?:)?//|<link\b[^>]*\bhref=\"(?:https?:)?//"
    )
    for page in site.rglob("*.html"):
        assert not loads.search(page.read_text(encoding="utf-8")), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def test_first_page_has_the_game(site):
    assert '<iframe src="play/index.html"' in (site / "index.html").read_text(encoding="utf-8")
    assert (site / "play" / "wasm" / "game.wasm.gz").is_file() and (site / "play" / "data" / "levels.json").is_file()


def test_example_is_shown_unchanged(site):
    page = re.sub(r"<[^>]*>", "", (site / "examples" / "own_reward.html").read_text(encoding="utf-8"))
    assert "class GoldCounts(gymnasium.Wrapper):" in page and "--8&lt;--" not in page
    assert re.search(
        r"Define your own rewards\n.*\n+python examples/own_reward\.py\n", re.sub(r"¶|&para;", "", page), re.DOTALL
    )


def test_repository_links_become_site_links():
    turned = hooks.with_links_of_the_site(
        "[a](docs/own_network.md#the-file) [b](examples/own_reward.py) ![c](docs/images/tiles.png) `[d](x.md)` [e](https://a.b)\n",
        "index.md",
    )
    assert turned == (
        "[a](own_network.md#the-file) [b](examples/own_reward.md) ![c](images/tiles.png) `[d](x.md)` [e](https://a.b)\n"
    )
    turned = hooks.with_links_of_the_site("[a](../README.md) [b](../nppsim/bank.py) [c](#here)", "own_network.md")
    assert turned == "[a](index.md) [b](source/nppsim/bank.py.md) [c](#here)"
    with pytest.raises(hooks.PluginError, match=r"docs/own_network\.md: the link none\.md leads to no file"):
        hooks.with_links_of_the_site("[a](none.md)", "own_network.md")
