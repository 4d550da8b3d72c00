"""Seeded procedural generation of levels.

A *generator* (one file each) is a pure function ``generator(seed, **parameters) -> Level``.  Most parameters are spans
(lowest, highest) of a uniform distribution.  A *category* is a list of recipes, each a generator with parameters;
``generate(category, seed)`` picks one of them.  A difficulty narrows these spans.  The index entry of a level is enough to
generate it again: ``GENERATORS[entry.generator](entry.seed, **entry.parameters)``.

Kinds and sizes of the levels of each category follow the generators of the predecessor project.
"""

import math
from collections.abc import Callable
from typing import Any

from nppsim.errors import ConfigError, did_you_mean
from nppsim.generate.chamber import chamber
from nppsim.generate.chambers import chambers
from nppsim.generate.corridors import corridors
from nppsim.generate.course import STATIONS, course
from nppsim.generate.hills import hills
from nppsim.generate.horizontal import horizontal
from nppsim.generate.islands import islands
from nppsim.generate.jump import jump
from nppsim.generate.maze import maze
from nppsim.generate.mine_maze import mine_maze
from nppsim.generate.minimal import minimal
from nppsim.generate.platforms import platforms
from nppsim.generate.sketch import level_rng
from nppsim.generate.vertical import vertical
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelEntry

GENERATORS: dict[str, Callable[..., Level]] = {
    generator.__name__: generator
    for generator in (minimal, horizontal, corridors, vertical, hills, jump, chamber, maze)
    + (mine_maze, islands, platforms, chambers, course)
}


def _recipe(generator: str, **parameters: Any) -> tuple[str, dict[str, Any]]:
    return generator, parameters


# Category -> recipes, all equally likely.  Sizes in tiles.
RECIPES: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    # No jump needed: the ninja walks, and falls from safe heights.
    "simplest": (
        _recipe("minimal", width=(3, 8), height=(1, 2)),
        _recipe("horizontal", width=(4, 10), height=(1, 2), bumps=(1, 2)),
        _recipe("corridors", pieces=(2, 2), length=(3, 6), drop=(2, 4)),
        _recipe("vertical", width=(1, 3), height=(3, 6), climb=False),
    ),
    # Mines on walls and ceilings, beside the path.
    "simplest_few_mines": (
        _recipe("horizontal", width=(4, 10), height=(2, 3), bumps=(0, 1), hanging=(1, 2)),
        _recipe(
            "corridors",
            pieces=(2, 2),
            length=(4, 8),
            height=(2, 2),
            shaft=(1, 2),
            drop=(2, 4),
            mines=(1, 3),
            sides=("ceiling", "left", "right"),
        ),
        _recipe("vertical", width=(2, 4), height=(4, 8), climb=False, lined=(1, 3)),
    ),
    # More mines, some on the ground.
    "simplest_with_mines": (
        _recipe("horizontal", width=(6, 14), height=(3, 4), bumps=(0, 1), mines=(1, 1), hanging=(1, 4)),
        _recipe("corridors", pieces=(2, 3), length=(4, 10), height=(2, 3), shaft=(2, 2), drop=(2, 5), mines=(3, 7)),
        _recipe("vertical", width=(2, 4), height=(4, 10), climb=False, lined=(2, 6)),
    ),
    # Longer levels with small steps, short climbs and some doors.
    "simpler": (
        _recipe("minimal", width=(3, 22), height=(1, 5), door_share=0.7),
        _recipe("minimal", width=(5, 16), height=(1, 1), door_share=1.0),
        _recipe("horizontal", width=(6, 20), height=(2, 5), bumps=(0, 3), steps=(0, 2)),
        _recipe("corridors", pieces=(2, 3), length=(3, 10), shaft=(1, 2), drop=(2, 5), climb=(2, 3)),
        _recipe("vertical", width=(1, 4), height=(4, 7), climb=True, niches=0.15),
        _recipe("vertical", width=(2, 5), height=(4, 9), climb=False, niches=0.15),
        _recipe("chamber", width=(6, 15), height=(4, 8), kind="flat"),
        _recipe("chamber", width=(6, 15), height=(5, 8), kind="uneven"),
    ),
    # Jumps, wall jumps, pits, and a few mines.
    "simple": (
        _recipe("maze", width=(6, 10), height=(4, 7)),
        _recipe("hills", width=(10, 20), height=(8, 12), hills=(1, 4), step=(1, 3)),
        _recipe("vertical", width=(1, 4), height=(8, 12), climb=True, niches=0.1, mines=(0, 2)),
        _recipe("vertical", width=(3, 5), height=(8, 14), climb=True, platforms=True),
        _recipe("jump", width=(12, 20), height=(8, 10), pit=(2, 3), mines=(0, 2)),
        _recipe("chamber", width=(8, 18), height=(4, 8), kind="obstacle"),
        _recipe("chamber", width=(12, 25), height=(4, 8), kind="gap"),
        _recipe("corridors", pieces=(2, 4), length=(4, 12), height=(1, 2), shaft=(1, 3), drop=(3, 6), climb=(3, 8)),
        _recipe("horizontal", width=(8, 30), height=(3, 5), bumps=(0, 3), steps=(0, 3), mines=(1, 4)),
    ),
    # Up to the whole width or height of the stage, with several obstacles in a row.
    "medium": (
        _recipe("maze", width=(14, 30), height=(8, 16), cell=(1, 3), mines=(0, 4)),
        _recipe("chambers", grid=((2, 2), (1, 1)), width=(5, 10), height=(4, 7), doors=(0, 1)),
        _recipe("jump", width=(16, 30), height=(8, 14), pit=(3, 5), mines=(0, 2)),
        _recipe("mine_maze", width=(12, 25), height=(4, 7), spacing=(3, 6), mines=(1, 3)),
        _recipe("hills", width=(20, 35), height=(10, 18), hills=(4, 8), step=(1, 3), mines=(0, 3)),
        _recipe("vertical", width=(2, 6), height=(14, 22), climb=True, niches=0.05, lined=(0, 3)),
        _recipe("islands", width=(20, 38), height=(12, 19), gap=(2, 4)),
        _recipe("platforms", width=(20, 38), height=(14, 23), count=(5, 9), rise=(0, 2), deadly=0.3),
        _recipe(
            "corridors",
            pieces=(3, 5),
            length=(6, 14),
            height=(1, 3),
            shaft=(2, 4),
            drop=(4, 6),
            climb=(4, 8),
            mines=(0, 5),
        ),
        _recipe("horizontal", width=(20, 42), height=(4, 6), bumps=(1, 4), steps=(1, 4), mines=(2, 5)),
    ),
    "complex": (
        _recipe("maze", width=(16, 36), height=(10, 20), cell=(2, 4), mines=(2, 8)),
        _recipe("chambers", grid=((2, 3), (1, 2)), width=(5, 11), height=(4, 8), doors=(1, 2), mines=(0, 4)),
        _recipe("jump", width=(25, 42), height=(12, 18), pit=(5, 7), mines=(1, 4)),
        _recipe("mine_maze", width=(20, 40), height=(6, 10), spacing=(3, 4), mines=(3, 8)),
        _recipe("hills", width=(30, 42), height=(16, 22), hills=(6, 12), step=(2, 3), mines=(2, 6)),
        _recipe("vertical", width=(3, 8), height=(20, 22), climb=True, niches=0.05, lined=(2, 6)),
        _recipe("islands", width=(36, 42), height=(16, 22), island=(1, 4), gap=(3, 6), mines=0.3),
        _recipe("platforms", width=(30, 42), height=(20, 23), count=(9, 16), rise=(0, 2), under=0.3, deadly=0.7),
        _recipe(
            "corridors",
            pieces=(4, 5),
            length=(8, 12),
            height=(1, 3),
            shaft=(2, 5),
            drop=(3, 6),
            climb=(4, 7),
            mines=(3, 9),
        ),
    ),
    # Many rooms and dead ends.
    "exploration": (
        _recipe("maze", width=(15, 40), height=(10, 20), cell=(1, 4)),
        _recipe("maze", width=(24, 42), height=(14, 23), cell=(2, 3)),
        _recipe("chambers", grid=((2, 3), (1, 1)), width=(4, 9), height=(5, 9), doors=(0, 2)),
        _recipe("chambers", grid=((3, 4), (2, 2)), width=(4, 9), height=(4, 8), doors=(0, 3)),
        _recipe("chambers", grid=((3, 5), (3, 3)), width=(4, 8), height=(4, 5), doors=(0, 2)),
    ),
    "mine_heavy": (
        _recipe("mine_maze", width=(15, 35), height=(5, 10), spacing=(3, 5), mines=(3, 8)),
        _recipe("jump", width=(20, 40), height=(10, 16), pit=(4, 6), mines=(2, 5), deadly=1.0),
        _recipe("maze", width=(16, 36), height=(10, 20), cell=(2, 4), mines=(8, 24)),
        _recipe("islands", width=(24, 42), height=(10, 18), island=(2, 6), gap=(2, 5), mines=0.7),
        _recipe("platforms", width=(28, 42), height=(18, 23), count=(6, 12), rise=(0, 2), under=0.8, deadly=1.0),
        _recipe(
            "corridors",
            pieces=(3, 4),
            length=(8, 16),
            height=(2, 4),
            shaft=(2, 4),
            drop=(3, 8),
            climb=(4, 8),
            mines=(8, 20),
        ),
    ),
    # Other entities than mines (launch pads, bounce blocks, one-ways, thwumps, drones, guards, boost pads, death balls,
    # turrets, lasers) and curved tiles.
    "advanced": (
        _recipe("course", kinds=("launch",), stations=(1, 2), height=(14, 20)),
        _recipe("course", kinds=("bounce",), stations=(1, 2), height=(10, 14)),
        _recipe("course", kinds=("one_way_bridge", "one_way_ladder", "one_way_gate"), stations=(1, 3), height=(14, 20)),
        _recipe("course", kinds=("thwump",), stations=(1, 2), height=(10, 14)),
        _recipe("course", kinds=("drone",), stations=(1, 3), height=(10, 14)),
        _recipe("course", kinds=("guard",), stations=(1, 2), height=(8, 14)),
        _recipe("course", kinds=("boost",), stations=(1, 2), height=(10, 14)),
        _recipe("course", kinds=("shove",), stations=(1, 2), height=(10, 14)),
        _recipe("course", kinds=("ball",), stations=(1, 2), height=(10, 14)),
        _recipe("course", kinds=("turret",), stations=(1, 2), height=(12, 16)),
        _recipe("course", kinds=("gunner",), stations=(1, 2), height=(12, 16)),
        _recipe("course", kinds=("laser",), stations=(1, 2), height=(10, 14)),
        _recipe("course", kinds=("chaser",), stations=(1, 2), height=(10, 14)),
        _recipe("course", kinds=("curves", "guard", "drone", "thwump"), stations=(2, 3), height=(10, 14)),
        _recipe("course", kinds=tuple(STATIONS), stations=(2, 4), height=(14, 22)),
        _recipe("chambers", grid=((2, 3), (1, 1)), width=(6, 10), height=(5, 8), drones=(1, 2)),
        _recipe("chambers", grid=((2, 3), (2, 2)), width=(6, 10), height=(5, 7), doors=(0, 1), drones=(1, 3)),
    ),
}
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
