"""A few of the shipped levels and demonstrations, for trainings of seconds."""

import numpy as np

from bc.demonstrations import find_replays
from nppsim.bank import LevelBank
from nppsim.levels.level_set import LevelSet
from nppsim.replays.replay_set import ReplayWriter

from places import ROOT


def excerpt(folder, *categories, train, dev, test, demonstrations=0):
    """Write some levels of each category to FOLDER/train, dev and test, and demonstrations to FOLDER/demonstrations.

    The levels are those with the least time: an agent that has learned nothing plays most episodes to their end.

    train, dev, test, demonstrations: how many of each category.
    """
    for name, count in (("train", train), ("dev", dev), ("test", test)):
        levels = LevelSet.open(ROOT / "datasets" / name)
        chosen = [i for category in categories for i in _shortest(levels, levels.indices(category))[:count]]
        LevelSet.write(folder / name, [(levels[i], levels.entries[i]) for i in chosen])
    if demonstrations:
        (folder / "demonstrations").mkdir()
        for category in categories:
            with ReplayWriter(folder / "demonstrations" / f"{category}.h5") as writer:
                for file in find_replays(ROOT / "datasets" / "demonstrations" / f"{category}.h5")[:demonstrations]:
                    writer.append(file.replay, category=category)
    return folder


def _shortest(levels, indices):
    """The indices, those of levels with little time first."""
    limits = LevelBank([levels[i] for i in indices]).time_limit
    return [indices[i] for i in np.argsort(limits, kind="stable")]
