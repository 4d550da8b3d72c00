"""A few of the shipped levels and demonstrations, for trainings of seconds."""

from functools import cache

import numpy as np

from nppsim.bank import LevelBank
from nppsim.levels.level_set import LevelSet
from nppsim.replays.replay_set import ReplaySet, ReplayWriter

from places import ROOT


def excerpt(folder, *categories, train, dev, test, demonstrations=0):
    """Write some levels of each category to FOLDER/train, dev and test, and demonstrations to FOLDER/demonstrations.

    The levels are those with the least time: an agent that has learned nothing plays most episodes to their end.

    train, dev, test, demonstrations: how many of each category.
    """
    for name, count in (("train", train), ("dev", dev), ("test", test)):
        levels = LevelSet.open(ROOT / "datasets" / name)
        chosen = [i for category in categories for i in _shortest(name, category)[:count]]
        LevelSet.write(folder / name, [(levels[i], levels.entries[i]) for i in chosen])
    if demonstrations:
        (folder / "demonstrations").mkdir()
        for category in categories:
            source, copy = (place / "demonstrations" / f"{category}.h5" for place in (ROOT / "datasets", folder))
            with ReplaySet(source) as replays, ReplayWriter(copy) as writer:
                for i in range(demonstrations):
                    writer.append(replays[i], category=category)
    return folder


@cache
def _shortest(name, category):
    """Indices of a category's levels, those with little time first."""
    levels = LevelSet.open(ROOT / "datasets" / name)
    indices = levels.indices(category)
    limits = LevelBank([levels[i] for i in indices]).time_limit
    return [indices[i] for i in np.argsort(limits, kind="stable")]
