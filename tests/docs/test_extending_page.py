"""docs/extending.md: its examples run in a changed copy of the packages."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from places import ROOT

TEXT = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
# A change: the last file that the paragraph before a block names, then the block.
BLOCK = re.compile(r"`((?:nppsim|rl)/[\w/]+\.(?:py|toml))`:\n\n```(diff|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = re.compile(r"^```python\n(>>> .*?)^```$", re.MULTILINE | re.DOTALL)
MOST_FILES = 3

# Runs the examples of all sections, in their order, in one process and with one set of names.
RUNNER = """
import doctest, json, sys
names, failures = {}, {}
for title, text in json.load(sys.stdin).items():
    example = doctest.DocTestParser().get_doctest(text, names, title, "docs/extending.md", 0)
    output = []
    doctest.DocTestRunner(verbose=False).run(example, out=output.append, clear_globs=False)
    names.update(example.globs)
    failures[title] = "\\n".join(output)
print(json.dumps(failures))
"""


def changes(title):
    """Yield (file, "diff" or "python", text) of each change of a section."""
    return BLOCK.findall(SECTIONS[title])


def apply(folder, file, kind, text):
    """Apply one change to a copy of the project."""
    path = folder / file
    if kind == "python":
        assert not path.exists(), f"{file} is said to be new"
        path.write_text(text, encoding="utf-8")
        return
    source = path.read_text(encoding="utf-8")
    for hunk in text.split("@@\n")[1:]:
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] != "+")
        after = "".join(line[1:] for line in lines if line[0] != "-")
        assert source.count(before) == 1, f"this is {source.count(before)} times in {file}:\n{before}"
        source = source.replace(before, after)
    path.write_text(source, encoding="utf-8")


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """Title -> failures of its examples, with all extensions in one copy of the packages."""
    folder = tmp_path_factory.mktemp("extended")
    for package in ("nppsim", "bc", "rl", "hardware"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for title in SECTIONS:
        for change in changes(title):
            apply(folder, *change)
    environment = os.environ | {"PYTHONPATH": str(folder), "NUMBA_DISABLE_JIT": "1", "NUMBA_CACHE_DIR": str(folder)}
    examples = {title: "\n".join(EXAMPLES.findall(body)) for title, body in SECTIONS.items()}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(examples),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("title", SECTIONS)
def test_extension_examples_run(title, failures):
    assert EXAMPLES.search(SECTIONS[title]), "a section shows that what it adds is there"
    assert not failures[title], failures[title]


@pytest.mark.parametrize("title", SECTIONS)
def test_extension_touches_few_files(title):
    files = {file for file, _, _ in changes(title)}
    assert 1 <= len(files) <= MOST_FILES
    assert SECTIONS[title].count("```diff") + SECTIONS[title].count('```python\n"""') == len(changes(title))


def test_overview_names_sections_and_files():
    for title in SECTIONS:
        row = re.search(
            rf"^\| \[{title.lower()}\]\(#{title.lower().replace(' ', '-')}\) \| (.*?) \|", TEXT, re.MULTILINE
        )
        assert row, title
        named = set(re.findall(r"`([\w/]+\.(?:py|toml))`", row[1]))
        touched = {file for file, kind, _ in changes(title) if kind == "diff"}
        assert {file.removeprefix("nppsim/") for file in touched} == named
