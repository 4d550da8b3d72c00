"""Checks of levels and demonstrations: categories, paths to the exit, wins, and rewards that are received."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from bc.dataset import BCDataset
from bc.demonstrations import Paths, find_replays, paths_text
from nppsim import reward as rewards
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.levels.level import Level
from nppsim.planner.plan import plan
from nppsim.replays.replay import ReplayError
from nppsim.simulate import simulate
from rl.checks.doctor import BEFORE, IMITATION, CheckSkipped, CheckWarned, check, require
from rl.config import ExperimentConfig
from rl.evaluation.suite import EvaluationSuite
from rl.ppo.vec_env import BatchVecEnv

Levels = Mapping[str, Sequence[tuple[Level, str]]]  # "train", "dev", "test" -> (level, category) pairs
IDLE = 1500  # length of a run without input, in decisions; the longest possible episode
REPLAYS_PLAYED = 20  # largest number of replays that are played back, evenly spaced over the folder
DEMONSTRATIONS_PLAYED = 12  # largest number of demonstrations of the dataset that are played back
PLANNED = 6  # number of levels for which runs are planned, the shortest ones; each takes about a tenth of a second
PLANNER_BUDGET = 300_000  # frames that the planner simulates per level


@check(BEFORE)
def evaluated_categories_are_trained(levels: Levels) -> str:
    """Check that every category of the dev and test levels has training levels."""
    counts = {name: Counter(category for _, category in pairs) for name, pairs in levels.items()}
    found = "; ".join(f"{name}: {_counted(count)}" for name, count in counts.items())
    untrained = sorted((counts["dev"].keys() | counts["test"].keys()) - counts["train"].keys())
    if untrained:
        raise CheckWarned(
            f"no training levels of {', '.join(untrained)} ({found})", "add training levels of these categories"
        )
    return found


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{category} {count}" for category, count in sorted(counts.items()))


@check(BEFORE)
def exits_can_be_reached(bank: LevelBank, suites: Mapping[str, EvaluationSuite]) -> str:
    """Check that in every level a path leads from the start to an exit switch and on to its exit."""
    banks = {"training": bank, **{name: suite.bank for name, suite in suites.items()}}
    lost = {name: [some.levels[i].name for i in np.flatnonzero(~some.reachable)] for name, some in banks.items()}
    require(not lost["training"], f"no path in training levels {', '.join(lost['training'][:3])}", "remove these")
    if any(lost.values()):
        found = "; ".join(f"no path in {len(one)} {name} levels, e.g. {one[0]}" for name, one in lost.items() if one)
        raise CheckWarned(found, "remove these, as no policy can win them")
    return ", ".join(f"{len(some)} {name} levels" for name, some in banks.items())


@check(BEFORE)
def replays_reach_the_exit(replays: Paths) -> str:
    """Check that at least half of the examined replays win when they are played back."""
    files, lost = [], {}
    for file in find_replays(replays):
        try:
            if file.replay.success is not False:
                files.append(file)
        except ReplayError as error:
            files.append(file)
            lost[file.name] = str(error)
    chosen = files[:: max(1, -(-len(files) // REPLAYS_PLAYED))]
    lost = {file.name: lost[file.name] for file in chosen if file.name in lost}
    for file in chosen:
        if file.name in lost:
            continue
        run = simulate(file.replay.level, file.replay.inputs)
        if not run.won:
            lost[file.name] = f"{run.outcome} after {run.frames} frames"
    require(
        2 * len(lost) <= len(chosen),
        f"{len(lost)} of {len(chosen)} do not win, e.g. {next(iter(lost.items()), '')}",
        "they were recorded with other physics or other levels: run python -m bc check FOLDER",
    )
    return f"{len(chosen) - len(lost)} of {len(chosen)} win; there are {len(files)} in {paths_text(replays)}"


@check(IMITATION)
def demonstrations_cover_the_trained_categories(dataset: BCDataset, levels: Levels) -> str:
    """Check that demonstrations are of trained categories, and have the same category as their training level."""
    named = [dataset.categories[i] for i in dataset.category]
    counts, trained = Counter(named), {category for _, category in levels["train"]}
    found = _counted(counts)
    if not trained & counts.keys():
        raise CheckWarned(
            f"no demonstration is of a trained category ({found})", "add demonstrations of training levels"
        )
    of_level = {level.fingerprint: category for level, category in levels["train"]}
    others = sum(
        name in trained and of_level.get(level, name) != name
        for name, level in zip(named, dataset.level_fingerprints, strict=True)
    )
    if others:
        raise CheckWarned(
            f"{others} of {len(named)} demonstrations have another category than their training level ({found})",
            "correct the names of their folders, or the index of the levels",
        )
    missing = sorted(trained - counts.keys())
    return found + (f"; none of {', '.join(missing)}" if missing else "")


@check(BEFORE)
def planned_runs_earn_every_reward(config: ExperimentConfig, env: BatchVecEnv) -> str:
    """Check that planned winning runs receive every reward with a non-zero weight, and a higher return than idling.

    The check is made only if there are no demonstrations, and on the shortest training levels.
    """
    if config.pretraining and config.replay_data_dir:
        raise CheckSkipped("demonstrations are checked instead")
    bank = env.sim.bank
    order = np.argsort(np.where(bank.reachable, bank.path_length, np.inf), kind="stable")[:PLANNED]
    levels = [bank.levels[i] for i in order.tolist()]
    plans = [plan(level, env.sim.frame_skip, budget=PLANNER_BUDGET) for level in levels]
    found = [(level, run) for level, run in zip(levels, plans, strict=True) if run is not None]
    if not found:
        raise CheckSkipped(f"the planner finds no run on the {len(levels)} shortest levels")
    chosen = LevelBank([level for level, _ in found], known=dict(zip(bank.levels, bank.compiled, strict=True)))
    earned = _require_rewards(env.sim, chosen, [run.actions for _, run in found])
    return f"{earned}; {len(found)} of {len(levels)} levels"


@check(IMITATION)
def demonstrations_earn_every_reward(dataset: BCDataset, replays: Paths, env: BatchVecEnv) -> str:
    """Check that demonstrations receive every reward with a non-zero weight, except for deaths, and more than idling."""
    wanted = {name: i for i, name in enumerate(dataset.names)}
    step = max(1, len(wanted) // DEMONSTRATIONS_PLAYED)
    levels: dict[int, Level] = {}
    for file in find_replays(replays):
        i = wanted.get(file.name)
        same = i is not None and file.replay.level.fingerprint == dataset.level_fingerprints[i]
        if i is not None and same and not i % step and len(levels) < DEMONSTRATIONS_PLAYED:
            levels[i] = file.replay.level
    if not levels:
        raise CheckSkipped(f"no demonstration of the dataset has the name of a replay in {paths_text(replays)}")
    actions = [dataset.actions[dataset.demonstration == i] for i in levels]
    return _require_rewards(env.sim, LevelBank(list(levels.values())), actions)


def _require_rewards(like: BatchSimulator, bank: LevelBank, actions: Sequence[np.ndarray]) -> str:
    """Play runs, one per level of the bank, and describe their rewards.

    Raises CheckFailed if a reward with a non-zero weight is never received, or if most runs do not have a higher return than
    a run without input.
    """
    sim = BatchSimulator(
        bank,
        len(actions),
        frame_skip=like.frame_skip,
        observations=("state",),
        reward=like.reward_config,
        gamma=like.gamma,
    )
    earned, terms = _discounted(sim, actions)
    idle, _ = _discounted(sim, [np.zeros(IDLE, np.int64)] * len(actions))
    wanted = [name for name in rewards.TERMS if name != "death" and getattr(like.reward_config, name)]
    silent = [name for name in wanted if not terms[rewards.TERMS.index(name)]]
    found = f"return {earned.mean():+.2f} (without input: {idle.mean():+.2f}); {', '.join(wanted)}"
    require(not silent, f"never received: {', '.join(silent)}; {found}", "set the weights of these rewards to 0")
    require(
        bool((earned > idle).mean() > 0.5),
        found,
        "winning must have the highest return: choose --reward-preset default",
    )
    return found


def _discounted(sim: BatchSimulator, actions: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Play one episode per environment.

    Returns the discounted returns float64[N], and the number of episodes int64[8] in which each reward term was received.
    """
    count = len(actions)
    sim.reset(np.arange(count))
    returns, running, terms = np.zeros(count), np.ones(count, bool), np.zeros(rewards.NUM_TERMS, np.int64)
    for t in range(max(map(len, actions))):
        playing = running & np.array([t < len(some) for some in actions])
        if not playing.any():
            break
        sim.step(np.array([some[t] if t < len(some) else 0 for some in actions]))
        returns[playing] += sim.gamma**t * sim.rewards[playing]
        ended = [i for i in sim.finished if playing[i]]
        terms += (sim.episode["terms"][ended] != 0).sum(axis=0)
        running[sim.finished] = False
    return returns, terms
