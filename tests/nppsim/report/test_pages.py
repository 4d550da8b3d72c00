"""Report pages: tables, escaping, sections, optional packages."""

import re
import subprocess
import sys
import zipfile

import jinja2
import pytest

from nppsim.errors import MissingPackageError
from nppsim.report.pages import check_packages, environment, render_page, wide, write_page

from packages import hide
from places import ROOT

TEMPLATES = ROOT / "nppsim" / "report" / "templates"
SCRIPT = "<script>alert('&\"')</script>"


def shown(value):
    """HTML of plain data, without spaces between tags."""
    template = '{% import "parts.html" as parts %}{{ parts.value(value) }}'
    text = environment().from_string(template).render(value=value)
    return re.sub(r"\s*\n\s*", "", text) if "<pre>" not in text else text


@pytest.mark.parametrize(("value", "text"), [
    (None, "–"), (True, "yes"), (False, "no"), (3, "3"), (9_999, "9999"), (51_234, "51,234"), (0.123456, "0.1235"),
    (51_234.5, "51,234"), ("a & b", "a &amp; b"), ("", ""), ([], "–"), ({}, '<p class="missing">not run</p>'),
    ([1, None, "x"], "1, –, x"), ([0.5, [1, 2]], "0.5, 1, 2"), ("two\n  lines", "<pre>two\n  lines</pre>"),
])  # fmt: skip
def test_format_plain_values(value, text):
    assert shown(value) == text


def test_tables_from_dictionaries_and_lists():
    assert "<tbody><tr><th>a</th><td>1</td></tr><tr><th>b</th><td>2, 3</td></tr></tbody>" in shown(
        {"a": 1, "b": [2, 3]}
    )
    table = (
        "<tr><th></th><th>x</th><th>y</th></tr></thead><tbody><tr><td>one</td><td>1</td><td>–</td></tr>"
        "<tr><td>two</td><td>–</td><td>2</td></tr></tbody>"
    )
    assert table in shown({"one": {"x": 1}, "two": {"y": 2}})
    assert table in shown([{"": "one", "x": 1}, {"": "two", "y": 2}])
    assert shown({"outer": {"inner": {"x": 1}}}).count("<table>") == 2


@pytest.mark.parametrize("value", [
    SCRIPT, [SCRIPT], {SCRIPT: SCRIPT}, [{SCRIPT: SCRIPT}], {SCRIPT: {SCRIPT: [SCRIPT]}}, SCRIPT + "\n" + SCRIPT,
])  # fmt: skip
def test_render_escapes_text(value):
    assert "<script" not in shown(value) and "&lt;script&gt;" in shown(value)


def test_page_lists_sections_without_external_resources():
    page = render_page("experiment.html", title=SCRIPT, **EMPTY)
    names = re.findall(r"<h2>(.*?)</h2>", page)
    assert re.findall(r'<a href="#(.*?)">(.*?)</a>', page) == [(name.lower().replace(" ", "-"), name) for name in names]
    assert re.findall(r'<section id="(.*?)">', page) == [name.lower().replace(" ", "-") for name in names]
    assert "<script" not in page and "prefers-color-scheme: dark" in page
    assert not re.search(r"(src|href|url)\W{1,2}(https?:)?//", page) and "@import" not in page


EMPTY = {
    "agent": None,
    "summary": [], "verdicts": [], "methods": [], "results": [], "comparisons": [], "notes": [], "curves": [],
    "reward_plots": [],
    "distillation": [], "architectures": {}, "parts": {}, "players": None, "config": None, "machine": None, "versions": None,
}  # fmt: skip


def test_render_undefined_variable_raises_error():
    with pytest.raises(jinja2.UndefinedError, match="verdicts"):
        render_page("experiment.html", title="a", **{name: v for name, v in EMPTY.items() if name != "verdicts"})


def test_wide_charts_are_shown_wider():
    header = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
    assert wide(header + (736).to_bytes(4, "big")) == wide(header + (100).to_bytes(4, "big")) == 1
    assert wide(header + (1472).to_bytes(4, "big")) == 2


def test_write_page_creates_folder_atomically(tmp_path):
    path = write_page("text – ü", tmp_path / "new" / "page.html")
    assert path.read_text(encoding="utf-8") == "text – ü"
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_check_packages_missing_package_named_first(monkeypatch, package):
    check_packages()
    hide(monkeypatch, package)
    with pytest.raises(MissingPackageError, match=rf"{package} .*nppsim\[train\]"):
        check_packages()


def test_render_without_jinja2_names_extra(monkeypatch):
    hide(monkeypatch, "jinja2")
    environment.cache_clear()
    with pytest.raises(MissingPackageError, match=r"nppsim\[train\]"):
        render_page("experiment.html", title="a", **EMPTY)


def test_import_loads_no_optional_package():
    code = "import sys, nppsim, nppsim.report.pages, nppsim.report.charts, nppsim.pictures.render as r; "
    code += "sys.exit(bool({'jinja2', 'matplotlib', 'PIL'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_wheel_contains_templates(tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    code = (
        "import os, sys; from setuptools import build_meta; "
        "build_meta.build_wheel(sys.argv[1], {'--build-option': ['--quiet']})"
    )
    source = tmp_path / "source"
    for name in ("scripts", "datasets", "nppsim"):  # without what takes long to compress
        (source / name).mkdir(parents=True)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "nppsim/__init__.py", "nppsim/report"):
        (source / name).symlink_to(ROOT / name)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        packed = {name.rsplit("/", 1)[1] for name in content.namelist() if "/report/templates/" in name}
    assert packed == {path.name for path in TEMPLATES.iterdir()} >= {"page.html", "parts.html", "style.css"}
