"""Snippets of pages without a test of their own: Python compiles and imports existing names, TOML parses."""

import ast
import importlib
import re
import tomllib

import numpy as np
import pytest

import nppsim
import nppsim.shadow
from rl.config.command_line import resolve

from places import ROOT
from worlds import corridor

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_python_snippets_compile_and_import(page):
    for block in blocks(page, "python"):
        if block.startswith(">>>"):
            continue  # the page's own test runs these
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in ("nppsim", "bc", "rl", "hardware"):
                module = importlib.import_module(node.module)
                for name in node.names:
                    assert hasattr(module, name.name) or importlib.import_module(f"{node.module}.{name.name}")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_toml_snippets_parse(page):
    for block in blocks(page, "toml"):
        assert tomllib.loads(block)


def test_configuration_page_example_runs(tmp_path, monkeypatch):
    page = ROOT / "docs" / "configuration.md"
    (block,) = blocks(page, "toml")
    command = re.search(
        r"^python scripts/train_and_compare\.py (.*--config mine\.toml.*)$", page.read_text(), re.MULTILINE
    )[1]
    (tmp_path / "mine.toml").write_text(block, encoding="utf-8")
    monkeypatch.chdir(ROOT)
    config = resolve(command.replace("mine.toml", str(tmp_path / "mine.toml")).split())
    assert (config.experiment_name, config.reward.win, config.seeds) == ("mine", 5.0, (1, 2, 3))


@pytest.mark.usefixtures("one_thread")
def test_development_page_example_counts_comparisons():
    (block,) = blocks(ROOT / "docs" / "development.md", "python")
    names = {"nppsim": nppsim, "levels": [corridor()], "actions": np.full(16, 2)}
    exec(block, names)
    assert names["sim"].shadow.comparisons == 32  # a reset and a step of 16 environments
    assert names["sim"].shadow.mismatches == 0
