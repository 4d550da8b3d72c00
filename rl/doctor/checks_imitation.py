"""Imitation: it is judged on levels that it did not learn from, and PPO goes on from it."""

from collections import Counter
from pathlib import Path

import numpy as np
import torch

from bc.dataset import BCDataset
from bc.demonstrations import MIRRORED, Places, places_text
from nppsim.actions import ACTION_INPUT
from nppsim.levels.level import mirror, symmetric_fingerprint
from nppsim.observe import layout
from rl.config import ExperimentConfig
from rl.doctor.checks_data import Levels
from rl.doctor.doctor import IMITATION, UPDATE, CheckSkipped, CheckWarned, check, require
from rl.policy import checkpoint
from rl.policy.policy import NppPolicy
from rl.ppo.ppo import PPO

JUMPS = (ACTION_INPUT & 1).astype(bool)  # whether an action presses jump
JUMP_HELD = layout.SPECS["game_state"].components.index("jump_held")
DISTILLED = f"pretrain/taught{checkpoint.SUFFIX}"  # what lessons leave in the folder of a run
_PROGRAM = "this is a mistake in the program, not in your settings"


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


@check(IMITATION)
def the_dataset_was_made_as_asked_for(dataset: BCDataset, levels: Levels, config: ExperimentConfig) -> str:
    """As many levels of each category are for validation as were asked for; there are mirror images, and limits of a category
    hold, where that was asked for."""
    original = [number for number, name in enumerate(dataset.names) if not name.endswith(MIRRORED)]
    same = {level.fingerprint: symmetric_fingerprint(level) for level, _ in levels["train"]}
    content = {i: same.get(dataset.level_fingerprints[i], dataset.level_fingerprints[i]) for i in original}
    category = {content[i]: dataset.categories[dataset.category[i]] for i in reversed(original)}
    kept, count = {content[i] for i in original if dataset.validation[i]}, len(category)
    wanted = min(max(1, round(config.validation_share * count)), count - 1)
    sure = set(same.values()) >= category.keys()
    sure = sure and all(category[content[i]] == dataset.categories[dataset.category[i]] for i in original)
    for name, there in Counter(category.values()).items():
        found, share = sum(category[one] == name for one in kept), there * wanted / count
        require(
            abs(found - share) < (1 if sure else 2 + 0.2 * share),  # others may have been recorded mirrored, too
            f"{found} of {there} {name} levels are for validation, meant were {share:.1f}",
            _PROGRAM,
        )
    mirrored = len(dataset.names) - len(original)
    require(bool(mirrored) <= config.mirror_demonstrations, f"{mirrored} mirror images that nobody asked for", _PROGRAM)
    most, largest = config.max_demonstrations_per_category, max(Counter(dataset.category[original].tolist()).values())
    require(most is None or largest <= most, f"{largest} demonstrations of a category, asked for were {most}", _PROGRAM)
    told = f"{len(original)} demonstrations and {mirrored} mirror images; {len(kept)} of {count} levels for validation"
    if config.mirror_demonstrations and mirrored < len(original) / 2:
        raise CheckWarned(f"{told}: few mirror images finish", "see what python -m bc report says of them")
    return told


@check(IMITATION)
def every_demonstration_holds_together(dataset: BCDataset) -> str:
    """Every decision is either learned from or validated on; in each demonstration, what was pressed before is the decision
    before, and where a decision presses jump, what is seen next shows it held, and nowhere else."""
    parts = np.concatenate([dataset.rows(validation=validation) for validation in (False, True)])
    require(
        np.array_equal(np.sort(parts), np.arange(len(dataset))),
        f"{len(parts)} decisions are learned from or validated on, there are {len(dataset)}",
        _PROGRAM,
    )
    goes_on = dataset.demonstration[1:] == dataset.demonstration[:-1]
    before = np.where(np.append(False, goes_on), np.roll(dataset.actions, 1), 0)
    wrong = {"another previous action": dataset.previous_actions != before}
    if "game_state" in dataset.observations:
        held = dataset.observations["game_state"][:, JUMP_HELD] > 0
        wrong["jump held as the decision before does not say"] = held != JUMPS[before]
    for what, where in wrong.items():
        of = dataset.names[dataset.demonstration[int(where.argmax())]]
        require(
            not where.any(),
            f"{int(where.sum())} of {len(dataset)} decisions, e.g. of {of}, have {what}",
            "actions and observations do not belong together; delete the cached dataset, it will be rebuilt",
        )
    return f"{len(dataset)} decisions of {len(dataset.names)} demonstrations"


@check(UPDATE)
def lessons_were_given(ppo: PPO, clone: NppPolicy, config: ExperimentConfig, folder: Path) -> str:
    """Where there is a teacher for this network, PPO began with what it has taught."""
    if config.teacher.name in (None, ppo.policy.architecture):
        raise CheckSkipped("nobody teaches this network")
    path = folder / DISTILLED
    require(path.is_file(), f"{config.teacher.name} was to teach, and there is no {path}", _PROGRAM)
    taught = checkpoint.load(path)["policy"]
    other = [name for name, tensor in clone.state_dict().items() if not torch.equal(tensor.cpu(), taught[name].cpu())]
    require(not other, f"PPO began with other weights than were taught, e.g. {', '.join(other[:3])}", _PROGRAM)
    return f"{len(taught)} tensors"


@check(UPDATE)
def ppo_goes_on_from_the_clone(ppo: PPO, replays: Places) -> str:
    """Where there are demonstrations, PPO began as the clone and is tied to it."""
    require(
        ppo.reference is not None, f"nothing of what was learned from {places_text(replays)} has reached PPO", _PROGRAM
    )
    return "the actor began as the clone"
