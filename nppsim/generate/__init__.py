"""Seeded procedural generation of levels.

A *generator* (one file each) is a pure function ``generator(seed, **parameters) -> Level``.  Most parameters are spans
(lowest, highest) of a uniform distribution.  A *category* is a list of recipes (``recipes.toml``), each a generator with
parameters; ``generate(category, seed)`` picks one of them.  A difficulty narrows these spans.  The index entry of a level is
enough to generate it again: ``GENERATORS[entry.generator](entry.seed, **entry.parameters)``.

Kinds and sizes of the levels of each category follow the generators of the predecessor project.
"""

import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nppsim.errors import ConfigError, did_you_mean
from nppsim.generate.chamber import chamber
from nppsim.generate.chambers import chambers
from nppsim.generate.corridors import corridors
from nppsim.generate.course import course
from nppsim.generate.hills import hills
from nppsim.generate.horizontal import horizontal
from nppsim.generate.islands import islands
from nppsim.generate.jump import jump
from nppsim.generate.maze import maze
from nppsim.generate.mine_maze import mine_maze
from nppsim.generate.minimal import minimal
from nppsim.generate.platforms import platforms
from nppsim.generate.rooms import rooms
from nppsim.generate.sketch import level_rng
from nppsim.generate.vertical import vertical
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelEntry

GENERATORS: dict[str, Callable[..., Level]] = {
    generator.__name__: generator
    for generator in (minimal, horizontal, corridors, vertical, hills, jump, chamber, maze)
    + (mine_maze, islands, platforms, chambers, course, rooms)
}


def _read_recipes() -> dict[str, tuple[tuple[str, dict[str, Any]], ...]]:
    """Read ``recipes.toml``: category -> (generator, parameters) of each recipe, all equally likely."""

    def as_tuples(value: Any) -> Any:
        return tuple(map(as_tuples, value)) if isinstance(value, list) else value

    def recipe_of(entry: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return entry.pop("generator"), {name: as_tuples(value) for name, value in entry.items()}

    stored = tomllib.loads(Path(__file__).with_name("recipes.toml").read_text(encoding="utf-8"))
    return {category: tuple(map(recipe_of, entries)) for category, entries in stored.items()}


RECIPES = _read_recipes()
CATEGORIES = tuple(RECIPES)
LESS_IS_HARDER = frozenset({"spacing", "island", "cell"})  # parameters whose lower values are more difficult
WINDOW = 0.5  # width of a narrowed span relative to the whole span; less at the lowest and highest difficulty


def recipe(category: str, seed: int, difficulty: float | None = None) -> tuple[str, dict[str, Any]]:
    """Return the name of the generator and the parameters for a category and seed.

    difficulty: 0 (easiest) to 1; narrows each span to a window around this position.  None: whole spans.
    Raises ConfigError for an unknown category or a difficulty out of range.
    """
    if category not in RECIPES:
        advice = f"has no generators; choose from {', '.join(CATEGORIES)}{did_you_mean(category, CATEGORIES)}"
        raise ConfigError(advice, "category", category)
    recipes = RECIPES[category]
    generator, parameters = recipes[level_rng(category, seed).integers(len(recipes))]
    if difficulty is None:
        return generator, parameters
    if not 0 <= difficulty <= 1:
        raise ConfigError("give a number from 0 to 1", "difficulty", difficulty)
    return generator, {
        name: _narrow(value, 1 - difficulty if name in LESS_IS_HARDER else difficulty)
        for name, value in parameters.items()
    }


def generate(category: str, seed: int, difficulty: float | None = None) -> tuple[Level, LevelEntry]:
    """Return the level for a category and seed (0 or more), and its entry for the index of a level set.

    The level is a pure function of the arguments.  difficulty and errors: see ``recipe``.
    """
    generator, parameters = recipe(category, seed, difficulty)
    return GENERATORS[generator](seed, **parameters), LevelEntry(category, generator, parameters, seed)


def _narrow(value: Any, where: float) -> Any:
    """Narrow a span, or each span of a tuple, around the position ``where`` (0 to 1); return other values unchanged."""
    if not isinstance(value, tuple) or isinstance(value[0], str):
        return value
    if isinstance(value[0], tuple):
        return tuple(_narrow(span, where) for span in value)
    low, high = value
    ends = max(0.0, where - WINDOW / 2), min(1.0, where + WINDOW / 2)
    return tuple(low + math.floor(end * (high - low) + 0.5) for end in ends)
