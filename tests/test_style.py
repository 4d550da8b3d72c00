"""Promises about how the code reads: short functions, documented names, annotated arguments, sources that exist."""

import ast
import re
import statistics
from pathlib import Path

import pytest

from places import ROOT

PACKAGES = ("nppsim", "bc", "rl", "hardware", "scripts")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
ROOMS = sorted({path.parent.relative_to(ROOT).as_posix() for path in SOURCES})
KERNELS = {
    "kernel",
    "inlined",
    "merged",
    "allocating",
    "njit",
    "_compiled",
    "_inlined",
    "intrinsic",
    "overload",
}  # of compiled functions
MOST_LINES = 80
DOCUMENTED_SHARE = 0.95


def functions(path):
    """(node, whether it stands in a class or a module, not in another function) of each function of a file."""

    def visit(node, outer):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield child, outer
                yield from visit(child, False)
            else:
                yield from visit(child, outer)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), True)


def files_of(room):
    return [path for path in SOURCES if path.parent == ROOT / room]


def place(path, node):
    return f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def is_compiled(function):
    return any(
        isinstance(name, ast.Name) and name.id in KERNELS
        for decorator in function.decorator_list
        for name in ast.walk(decorator)
    )


def lines(function):
    return function.end_lineno - function.lineno + 1


@pytest.mark.parametrize("room", ROOMS)
def test_no_function_is_longer_than_a_screen_and_a_half(room):
    long = [place(path, f) for path in files_of(room) for f, _ in functions(path) if lines(f) > MOST_LINES]
    assert not long


def test_half_of_all_functions_have_at_most_eight_lines():
    assert statistics.median(lines(f) for path in SOURCES for f, _ in functions(path)) <= 8


@pytest.mark.parametrize("room", ROOMS)
def test_arguments_outside_kernels_are_annotated(room):
    """Lambdas, compiled functions and functions within functions are left alone."""
    bare = []
    for path in files_of(room):
        for function, outer in functions(path):
            if not outer or is_compiled(function):
                continue
            given = function.args
            arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs]
            names = [a.arg for a in arguments if a.annotation is None and a.arg not in ("self", "cls")]
            bare += [f"{place(path, function)}({', '.join(names)})"] if names else []
    assert not bare


def public(path):
    """The public classes, functions and methods of a file; ``__init__`` and what a class inherits need no docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef) and not node.bases:
                yield from (n for n in node.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_"))


@pytest.mark.parametrize("room", ROOMS)
def test_public_names_have_docstrings(room):
    nodes = [(path, node) for path in files_of(room) for node in public(path)]
    missing = [place(path, node) for path, node in nodes if not ast.get_docstring(node)]
    assert len(missing) <= (1 - DOCUMENTED_SHARE) * len(nodes), missing


PARAMETER = re.compile(r"(?:^|[.;:)]\s+)(\w+(?:, \w+)*): ")


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_of_many_parameters_have_one_per_line(room):
    """From four documented parameters on, each (or a group, ``x, y:``) begins a line of its own."""
    crowded = []
    for path in files_of(room):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                continue
            text = ast.get_docstring(node) or ""
            if isinstance(node, ast.ClassDef):
                names = {
                    n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
                }
                init = [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
                names |= {a.arg for f in init for a in (*f.args.args, *f.args.kwonlyargs)}
            else:
                names = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
            told, sharing = set(), 0
            for line in text.split("\n"):
                found = [m for m in PARAMETER.findall(line) if set(m.split(", ")) <= names]
                told.update(name for group in found for name in group.split(", "))
                sharing += max(0, len(found) - 1)
            if len(told) >= 4 and sharing:
                crowded.append(place(path, node))
    assert not crowded


# The store S3, numpy's "S64" and the linter's "noqa: F401" are no codes.
FOREIGN = re.compile(
    r"physics specification|specification,? (section )?\d|(?<!noqa: )\b(?!S3\b)[FSH]\d{1,3}\b(?!\"| ?[,)]? ?:)"
)


@pytest.mark.parametrize("room", ROOMS)
def test_sources_that_are_cited_are_in_the_project(room):
    """No document from elsewhere, no code of a list that is not here (F113), and every docs/ page exists."""
    wrong = []
    for path in files_of(room):
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
            where = f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
            if FOREIGN.search(line):
                wrong.append(where)
            wrong += [where for page in re.findall(r"docs/[\w/]+\.md", line) if not (ROOT / page).is_file()]
    assert not wrong


HEADING = re.compile(r"^#+ (\d+(?:\.\d+)*)[. ]", re.MULTILINE)
CITATION = re.compile(r"docs/physics\.md,? sections? ((?:\d+(?:\.\d+)*(?:, | and | to )?)+)")


def test_every_cited_section_of_the_rulebook_exists_and_names_functions_that_do():
    book = (ROOT / "docs" / "physics.md").read_text(encoding="utf-8")
    sections = set(HEADING.findall(book))
    for path in SOURCES:
        text = re.sub(r"\s*\n\s*#?\s*", " ", path.read_text(encoding="utf-8"))
        for citation in CITATION.findall(text):
            for number in re.findall(r"\d+(?:\.\d+)*", citation):
                assert number in sections, f"{path.relative_to(ROOT)} cites section {number} of docs/physics.md"
    for file, name in re.findall(r"`(nppsim/[\w/]+\.py)::(\w+)`", book):
        source = Path(ROOT / file)
        assert source.is_file(), file
        assert re.search(rf"^(?:def {name}\b|class {name}\b|{name}\b.*=)", source.read_text(), re.MULTILINE), (
            file,
            name,
        )
