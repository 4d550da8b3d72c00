"""Imitation: it is judged on levels that it did not learn from, and PPO goes on from it."""

from bc.dataset import BCDataset
from bc.demonstrations import Places, told_places
from nppsim.levels.level import mirror, symmetric_fingerprint
from rl.forensics.checks_data import Levels
from rl.forensics.doctor import IMITATION, UPDATE, check, require
from rl.train.ppo import BatchPPO

_PROGRAM = "this is a mistake in the program, not in your settings: please report it"


@check(IMITATION)
def validation_has_levels_of_its_own(dataset: BCDataset, levels: Levels) -> str:
    """No level, as it is or mirrored, is in both the training and the validation part; both have some."""
    same = {
        shape.fingerprint: symmetric_fingerprint(level)
        for level, _ in levels["train"]
        for shape in (level, mirror(level))
    }
    content = [same.get(fingerprint, fingerprint) for fingerprint in dataset.level_fingerprints]
    sides = [
        {content[number] for number in dataset.demonstration[dataset.rows(validation=validation)].tolist()}
        for validation in (False, True)
    ]
    require(all(sides), "one of the two parts is empty", "add demonstrations of other levels")
    shared = sides[0] & sides[1]
    require(not shared, f"{len(shared)} levels are in training and in validation", _PROGRAM)
    return f"{len(sides[0])} levels to learn from, {len(sides[1])} to validate on"


@check(UPDATE)
def ppo_goes_on_from_the_clone(ppo: BatchPPO, replays: Places) -> str:
    """Where there are demonstrations, PPO began as the clone and is tied to it."""
    require(
        ppo.reference is not None, f"nothing of what was learned from {told_places(replays)} has reached PPO", _PROGRAM
    )
    return "the actor began as the clone"
