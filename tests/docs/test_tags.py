"""TensorBoard tags on the pages are tags that the code writes."""

import ast
import re
from functools import cache
from itertools import product

import pytest

from nppsim import reward
from rl.ppo.variants.hierarchical import HierarchicalLosses

from places import ROOT

PAGES = ("bad_run", "curriculum", "distillation", "tensorboard")
WRITERS = [*(ROOT / "rl" / "ppo").rglob("*.py"), *(ROOT / "rl" / "curriculum").glob("*.py"), ROOT / "bc" / "train.py"]
OPEN = {"train/{}", "reward/{}", "bc/{}", "curriculum/{}", "gradients/{}"}  # what is filled in is listed below
LISTED = {
    *(f"train/{name}" for name in (*HierarchicalLosses._fields, "last_kl")),
    *(f"reward/{name}" for name in reward.TERMS),
    *("gradients/mean/{}", "gradients/variance/{}", "gradients/norm/{}"),
    "env_curriculum_stats/per_label_evictions/{}",
    *(f"bc/teacher/{name}" for name in ("divergence", "agreement", "decisions_per_s", "success")),
}


def texts(path):
    """Yield every string in a source file; {} replaces expressions of f-strings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)


@cache
def written():
    """Return a pattern for each tag that the code writes."""
    found = set(LISTED)
    for path in WRITERS:
        inside = "bc/" if path.parent.name == "bc" else ""
        found |= {inside + text for text in texts(path) if re.fullmatch(r"[\w{}/]+", text)}
    return [re.compile(re.escape(text).replace(r"\{\}", r"[\w.+-]+")) for text in found - OPEN if "/" in text]


def named(page):
    """Return the tags of a page, with {a,b} expanded and <category> replaced by a word."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    groups = {one.pattern.split("/")[0] for one in written() if re.match(r"\w+/", one.pattern)} | {"actions"}
    for one in re.findall(r"`([\w{},<>/]+)`", text):
        if one.split("/")[0] in groups and "/" in one and not one.endswith("/"):
            parts = re.split(r"\{([\w,]+)\}", re.sub(r"<\w+>", "word", one))
            for chosen in product(*(part.split(",") if i % 2 else [part] for i, part in enumerate(parts))):
                yield "".join(chosen)


@pytest.mark.parametrize("page", PAGES)
def test_named_tags_are_written(page):
    tags = [tag for tag in named(page) if not (ROOT / tag).exists()]
    unknown = [tag for tag in tags if not any(pattern.fullmatch(tag) for pattern in written())]
    assert not unknown
