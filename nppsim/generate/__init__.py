"""Procedural levels by category, seeded.

A *family* (one file each) is a pure function ``family(seed, **parameters) -> Level``.  A *category* is a list of
recipes, families with parameters; ``generate(category, seed)`` picks one of them.  A level is made again from what
the index of its level set says: ``FAMILIES[entry.generator](entry.seed, **entry.parameters)``.

Source of the categories: the kinds and sizes of the predecessor's generators, where they made sense.
"""

from collections.abc import Callable
from typing import Any

from nppsim.generate.chamber import chamber
from nppsim.generate.corridors import corridors
from nppsim.generate.hills import hills
from nppsim.generate.horizontal import horizontal
from nppsim.generate.jump import jump
from nppsim.generate.maze import maze
from nppsim.generate.minimal import minimal
from nppsim.generate.sketch import generator
from nppsim.generate.vertical import vertical
from nppsim.level import Level
from nppsim.levelset import LevelEntry

FAMILIES: dict[str, Callable[..., Level]] = {
    family.__name__: family for family in (minimal, horizontal, corridors, vertical, hills, jump, chamber, maze)
}

# Category -> recipes (family, parameters), all equally likely.  Sizes in tiles.
RECIPES: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    # No jump needed: walk, and fall where it is safe.
    "simplest": (
        ("minimal", {"width": (3, 8), "height": (1, 2)}),
        ("horizontal", {"width": (4, 10), "height": (1, 2), "bumps": (1, 2)}),
        ("corridors", {"pieces": (2, 2), "length": (3, 6), "drop": (2, 4)}),
        ("vertical", {"width": (1, 3), "height": (3, 6), "climb": False}),
    ),
    # Longer, small steps, short climbs, a door now and then.
    "simpler": (
        ("minimal", {"width": (3, 22), "height": (1, 5), "door_share": 0.7}),
        ("minimal", {"width": (5, 16), "height": (1, 1), "door_share": 1.0}),
        ("horizontal", {"width": (6, 20), "height": (2, 5), "bumps": (0, 3), "steps": (0, 2)}),
        ("corridors", {"pieces": (2, 3), "length": (3, 10), "shaft": (1, 2), "drop": (2, 5), "climb": (2, 3)}),
        ("vertical", {"width": (1, 4), "height": (4, 7), "climb": True, "niches": 0.15}),
        ("vertical", {"width": (2, 5), "height": (4, 9), "climb": False, "niches": 0.15}),
        ("chamber", {"width": (6, 15), "height": (4, 8), "kind": "flat"}),
        ("chamber", {"width": (6, 15), "height": (5, 8), "kind": "uneven"}),
    ),
    # Jumps, wall jumps, pits, and a few mines.
    "simple": (
        ("maze", {"width": (6, 10), "height": (4, 7)}),
        ("hills", {"width": (10, 20), "height": (8, 12), "hills": (1, 4), "step": (1, 3)}),
        ("vertical", {"width": (1, 4), "height": (8, 12), "climb": True, "niches": 0.1, "mines": (0, 2)}),
        ("vertical", {"width": (3, 5), "height": (8, 14), "climb": True, "platforms": True}),
        ("jump", {"width": (12, 20), "height": (8, 10), "pit": (2, 3), "mines": (0, 2)}),
        ("chamber", {"width": (8, 18), "height": (4, 8), "kind": "obstacle"}),
        ("chamber", {"width": (12, 25), "height": (4, 8), "kind": "gap"}),
        (
            "corridors",
            {"pieces": (2, 4), "length": (4, 12), "height": (1, 2), "shaft": (1, 3), "drop": (3, 6), "climb": (3, 8)},
        ),
        ("horizontal", {"width": (8, 30), "height": (3, 5), "bumps": (0, 3), "steps": (0, 3), "mines": (1, 4)}),
    ),
}
CATEGORIES = tuple(RECIPES)


def generate(category: str, seed: int) -> tuple[Level, LevelEntry]:
    """The level of a category that belongs to a seed (0 or more), and its entry for the index of a level set.

    The same arguments give the same level.  Raises ValueError for an unknown category.
    """
    if category not in RECIPES:
        raise ValueError(f"category {category!r} has no generators yet; choose from {', '.join(CATEGORIES)}")
    recipes = RECIPES[category]
    family, parameters = recipes[generator(category, seed).integers(len(recipes))]
    return FAMILIES[family](seed, **parameters), LevelEntry(category, family, parameters, seed)
