"""Style of the code: short functions, docstrings of public names, annotated arguments, citations of existing pages."""

import ast
import re
from functools import cache
from pathlib import Path

from places import ROOT

PACKAGES = ("nppsim", "bc", "rl", "hardware", "scripts")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
KERNELS = {
    "entry",
    "allocating_entry",
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
MOST_LINES = 60
DOCUMENTED_SHARE = 0.95


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path):
    """Yield (node, True if not nested in another function) for each function of a file."""

    def visit(node, outer):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield child, outer
                yield from visit(child, False)
            else:
                yield from visit(child, outer)

    yield from visit(parsed(path), True)


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


def test_functions_are_short():
    long = [place(path, f) for path in SOURCES for f, _ in functions(path) if lines(f) > MOST_LINES]
    assert not long


def test_arguments_outside_kernels_are_annotated():
    """Lambdas, compiled functions and nested functions need no annotations."""
    bare = []
    for path in SOURCES:
        for function, outer in functions(path):
            if not outer or is_compiled(function):
                continue
            given = function.args
            arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs]
            names = [a.arg for a in arguments if a.annotation is None and a.arg not in ("self", "cls")]
            bare += [f"{place(path, function)}({', '.join(names)})"] if names else []
    assert not bare


def public(path):
    """Yield the public classes, functions and methods of a file; methods of subclasses need no docstring."""
    for node in parsed(path).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef) and not node.bases:
                yield from (n for n in node.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_"))


def test_public_names_have_docstrings():
    nodes = [(path, node) for path in SOURCES for node in public(path)]
    missing = [place(path, node) for path, node in nodes if not ast.get_docstring(node)]
    assert len(missing) <= (1 - DOCUMENTED_SHARE) * len(nodes), missing


def test_docstrings_are_used_as_descriptions_of_commands_only():
    """``python -OO`` removes docstrings, so that they are None."""
    for path in SOURCES:
        uses = re.findall(r"^.*__doc__.*$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert all(re.search(r"description=(\w+\.)?__doc__|__doc__ or", line) for line in uses), path.relative_to(ROOT)


def test_cited_pages_exist():
    for path in SOURCES:
        for page in re.findall(r"docs/[\w/]+\.md", path.read_text(encoding="utf-8")):
            assert (ROOT / page).is_file(), f"{path.relative_to(ROOT)} cites {page}"


SOURCE = re.compile(r"\bSources?: (.+?)(?:\n\s*\n|\"\"\")", re.DOTALL)
PAPER = re.compile(r"(?:van |der )*(\w+)(?:, \w+)*(?: et al\.| (?:&|and) \w+)? ((?:19|20)\d\d)\b")


def test_cited_papers_are_in_references():
    rows = [line for line in (ROOT / "docs" / "references.md").read_text("utf-8").splitlines() if line.startswith("| ")]
    listed = {PAPER.match(row, 2).groups() for row in rows if PAPER.match(row, 2)}
    named = {
        (paper, path.name)
        for path in SOURCES
        for text in SOURCE.findall(path.read_text(encoding="utf-8"))
        for paper in PAPER.findall(" ".join(text.split()))
    }
    assert len(named) > 30
    assert not sorted(one for one in named if one[0] not in listed)


HEADING = re.compile(r"^#+ (\d+(?:\.\d+)*)[. ]", re.MULTILINE)
CITATION = re.compile(r"docs/physics\.md,? sections? ((?:\d+(?:\.\d+)*(?:, | and | to )?)+)")


def test_cited_rulebook_sections_exist():
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
