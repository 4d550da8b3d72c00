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
from rl.checks.check import BEFORE, IMITATION, CheckSkipped, CheckWarned, check, require
from rl.config import ExperimentConfig
from rl.evaluation.suite import EvaluationSuite
from rl.ppo.vec_env import BatchVecEnv

LevelPairs = Mapping[str, Sequence[tuple[Level, str]]]  # "train", "dev", "test" -> (level, category) pairs
IDLE = 1500  # number of decisions of a run without input, enough for the longest episode
REPLAYS_PLAYED = 20  # largest number of replays that are played back, evenly spaced over the folder
DEMONSTRATIONS_PLAYED = 12  # largest number of demonstrations of the dataset that are played back
PLANNED = 6  # number of levels for which runs are planned, the shortest ones; each takes about a tenth of a second
PLANNER_BUDGET = 300_000  # frames that the planner simulates per level


@check(BEFORE)
def evaluated_categories_are_trained(levels: LevelPairs) -> str:
    """Check that every category of the dev and test levels has training levels."""
    counts = {name: Counter(category for _, category in pairs) for name, pairs in levels.items()}
    message = "; ".join(f"{name}: {_counts_text(count)}" for name, count in counts.items())
    if untrained := sorted((counts["dev"].keys() | counts["test"].keys()) - counts["train"].keys()):
        missing = f"no training levels of {', '.join(untrained)} ({message})"
        raise CheckWarned(missing, "add training levels of these categories")
    return message


def _counts_text(counts: Counter[str]) -> str:
    return ", ".join(f"{category} {count}" for category, count in sorted(counts.items()))


@check(BEFORE)
def exits_can_be_reached(bank: LevelBank, suites: Mapping[str, EvaluationSuite]) -> str:
    """Check that in every level a path leads from the start to an exit switch and on to its exit."""
    banks = {"training": bank, **{name: suite.bank for name, suite in suites.items()}}
    lost = {
        name: [level_bank.levels[i].name for i in np.flatnonzero(~level_bank.reachable)]
        for name, level_bank in banks.items()
    }
    require(not lost["training"], f"no path in training levels {', '.join(lost['training'][:3])}", "remove these")
    if any(lost.values()):
        texts = [f"no path in {len(names)} {name} levels, e.g. {names[0]}" for name, names in lost.items() if names]
        raise CheckWarned("; ".join(texts), "remove these, as no policy can win them")
    return ", ".join(f"{len(level_bank)} {name} levels" for name, level_bank in banks.items())


@check(BEFORE)
def replays_reach_the_exit(replays: Paths) -> str:
    """Check that at least half of a sample of the replays win when they are played back, except for recorded losses."""
    files, played = find_replays(replays), 0
    lost: dict[str, str] = {}  # name of a replay that does not win -> reason
    for file in files[:: max(1, -(-len(files) // REPLAYS_PLAYED))]:
        try:
            if file.replay.success is not False:
                played += 1
                run = simulate(file.replay.level, file.replay.inputs)
                if not run.won:
                    lost[file.name] = f"{run.outcome} after {run.frames} frames"
        except ReplayError as error:
            played += 1
            lost[file.name] = str(error)
    require(
        2 * len(lost) <= played,
        f"{len(lost)} of {played} do not win, e.g. {next(iter(lost.items()), '')}",
        "they were recorded with other physics or other levels: run python -m bc check FOLDER",
    )
    return f"{played - len(lost)} of {played} win; there are {len(files)} in {paths_text(replays)}"


@check(IMITATION)
def demonstrations_cover_the_trained_categories(dataset: BCDataset, levels: LevelPairs) -> str:
    """Check that demonstrations are of trained categories, and have the same category as their training level."""
    named = [dataset.categories[i] for i in dataset.category]
    counts, trained = Counter(named), {category for _, category in levels["train"]}
    message = _counts_text(counts)
    if not trained & counts.keys():
        raise CheckWarned(
            f"no demonstration is of a trained category ({message})", "add demonstrations of training levels"
        )
    of_level = {level.fingerprint: category for level, category in levels["train"]}
    pairs = zip(named, dataset.level_fingerprints, strict=True)
    if others := sum(name in trained and of_level.get(level, name) != name for name, level in pairs):
        raise CheckWarned(
            f"{others} of {len(named)} demonstrations have another category than their training level ({message})",
            "correct the names of their folders, or the index of the levels",
        )
    missing = sorted(trained - counts.keys())
    return message + (f"; none of {', '.join(missing)}" if missing else "")


@check(BEFORE)
def planned_runs_earn_every_reward(config: ExperimentConfig, env: BatchVecEnv) -> str:
    """Check that planned winning runs receive every reward with a non-zero weight, and a higher return than idling.

    The check is made only if there are no demonstrations, and on the shortest training levels.
    """
    if config.pretraining and config.replay_data_dir:
        raise CheckSkipped("demonstrations are checked instead")
    bank = env.sim.bank
    shortest = np.argsort(np.where(bank.reachable, bank.path_length, np.inf), kind="stable")[:PLANNED]
    levels = [bank.levels[i] for i in shortest.tolist()]
    runs = [(level, plan(level, env.sim.frame_skip, budget=PLANNER_BUDGET)) for level in levels]
    planned = {level: run.actions for level, run in runs if run is not None}
    if not planned:
        raise CheckSkipped(f"the planner finds no run on the {len(levels)} shortest levels")
    chosen = LevelBank(list(planned), known=dict(zip(bank.levels, bank.compiled, strict=True)))
    return f"{_require_rewards(env.sim, chosen, list(planned.values()))}; {len(planned)} of {len(levels)} levels"


@check(IMITATION)
def demonstrations_earn_every_reward(dataset: BCDataset, replays: Paths, env: BatchVecEnv) -> str:
    """Check that demonstrations receive every reward with a non-zero weight, except for deaths, and more than idling."""
    names = list(dataset.names)[:: max(1, len(dataset.names) // DEMONSTRATIONS_PLAYED)][:DEMONSTRATIONS_PLAYED]
    chosen = {name: list(dataset.names).index(name) for name in names}
    levels = {
        i: file.replay.level
        for file in find_replays(replays)
        if (i := chosen.get(file.name)) is not None and file.replay.level.fingerprint == dataset.level_fingerprints[i]
    }
    if not levels:
        raise CheckSkipped(f"no demonstration of the dataset has the name of a replay in {paths_text(replays)}")
    actions = [dataset.actions[dataset.demonstration == i] for i in levels]
    return _require_rewards(env.sim, LevelBank(list(levels.values())), actions)


def _require_rewards(like: BatchSimulator, bank: LevelBank, actions: Sequence[np.ndarray]) -> str:
    """Play runs, one per level of the bank, and describe their rewards.

    Raises CheckFailed if a reward with a non-zero weight is never received, or if most runs do not have a higher return than
    a run without input.
    """
    weights, observations = like.reward_config, ("state",)
    sim = BatchSimulator(
        bank, len(actions), frame_skip=like.frame_skip, observations=observations, reward=weights, gamma=like.gamma
    )
    earned, terms = _discounted_returns(sim, actions)
    idle, _ = _discounted_returns(sim, [np.zeros(IDLE, np.int64)] * len(actions))
    wanted = [name for name in rewards.TERMS if name != "death" and getattr(weights, name)]
    missing = [name for name in wanted if not terms[rewards.TERMS.index(name)]]
    message = f"mean return {earned.mean():+.2f} (without input: {idle.mean():+.2f}); received: {', '.join(wanted)}"
    require(not missing, f"never received: {', '.join(missing)}", "set the weights of these rewards to 0")
    remedy = "winning must have the highest return: choose --reward-preset default"
    require(bool((earned > idle).mean() > 0.5), message, remedy)
    return message


def _discounted_returns(sim: BatchSimulator, actions: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Play one episode per environment.

    Returns the discounted returns float64[N], and the number of episodes int64[8] in which each reward term was received.
    """
    count = len(actions)
    sim.reset(np.arange(count))
    returns, running, terms = np.zeros(count), np.ones(count, bool), np.zeros(rewards.NUM_TERMS, np.int64)
    for t in range(max(map(len, actions))):
        playing = running & np.array([t < len(episode) for episode in actions])
        if not playing.any():
            break
        sim.step(np.array([episode[t] if t < len(episode) else 0 for episode in actions]))
        returns[playing] += sim.gamma**t * sim.rewards[playing]
        ended = [i for i in sim.finished if playing[i]]
        terms += (sim.episode["terms"][ended] != 0).sum(axis=0)
        running[sim.finished] = False
    return returns, terms
