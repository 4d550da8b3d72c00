"""Levels and demonstrations: what is learned from is sound, and apart from what is judged on."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from bc.baselines import predictors, transition_counts
from bc.dataset import BCDataset
from bc.demonstrations import Places, find_replays, places_text
from nppsim import reward as rewards
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.levels.level import Level, mirror
from nppsim.levels.level_set import INDEX, LevelSet, LevelSetError
from nppsim.observe import layout
from nppsim.observe.statistics import MIN_SCALE_SHARE, ObservationStatistics
from nppsim.outcomes import NAMES, WON
from nppsim.planner.plan import plan
from nppsim.simulate import simulate
from rl.config.experiment import DEV_LEVELS, DEV_SHARE, ExperimentConfig
from rl.doctor.doctor import BEFORE, IMITATION, CheckSkipped, CheckWarned, check, derived, require
from rl.doctor.samples import bytes_differ
from rl.evaluation.results import EpisodeRecord
from rl.evaluation.suite import EvaluationSuite, RandomPolicy
from rl.policy.architectures import Architecture
from rl.ppo.vec_env import BatchVecEnv

Levels = Mapping[str, Sequence[tuple[Level, str]]]  # "train", "dev", "test" -> (level, category) pairs
Demonstrated = tuple[list[int], LevelBank]  # numbers of some demonstrations, and a bank with the level of each
IDLE = 1500  # decisions of doing nothing: as long as an episode can last
REPLAYS_PLAYED = 20  # at most, spread over the folder
PLANNED = 6  # levels, the shortest; a tenth of a second each
PLANNER_BUDGET = 300_000  # frames that the planner simulates for one of them
PLAYED_BACK = 12  # demonstrations of the dataset, at most
PROBE_ROWS = 4000  # decisions that the probe of the labels learns from
ENOUGH_ROWS = 200  # held-out decisions; with fewer, chance decides
_PROGRAM = "this is a mistake in the program, not in your settings"
_REBUILD = "delete the cached dataset, it will be rebuilt"


@check(BEFORE)
def levels_are_apart(config: ExperimentConfig, levels: Levels) -> str:
    """No level, mirrored or not, is in two of training, dev and test levels."""
    if config.single_level is not None:
        raise CheckSkipped("one level is trained and judged on, as was asked for")
    prints = {name: {level.fingerprint for level, _ in pairs} for name, pairs in levels.items()}
    for name in ("dev", "test"):
        both = {shape.fingerprint: level for level, _ in levels[name] for shape in (level, mirror(level))}
        for other in ("train", "dev") if name == "test" else ("train",):
            shared = sorted(both.keys() & prints[other])
            require(
                not shared,
                f"{len(shared)} {name} levels are {other} levels too, e.g. {both[shared[0]].name if shared else ''}",
                f"give other {name} levels, or take these out of the {other} levels",
            )
    return ", ".join(f"{len(pairs)} {name}" for name, pairs in levels.items())


@check(BEFORE)
def levels_are_those_of_their_folders(config: ExperimentConfig, levels: Levels) -> str:
    """Levels that are trained or judged on are those of the folder given for it: of its categories, and as many times."""
    if config.single_level is not None:
        raise CheckSkipped("one level is trained and judged on, as was asked for")
    given = {
        "train": config.train_dataset,
        "dev": config.dev_dataset or config.train_dataset,
        "test": config.test_dataset,
    }
    listed = {name: _listed(places) for name, places in given.items()}
    used = {name: [(level.fingerprint, category) for level, category in levels[name]] for name in given}
    for name, pairs in used.items():
        known = set(listed[name])
        strange = [number for number, pair in enumerate(pairs) if pair not in known]
        told = f"e.g. {levels[name][strange[0]][0].name} as {pairs[strange[0]][1]!r}" if strange else ""
        places = " and ".join(map(str, given[name]))
        require(not strange, f"{len(strange)} {name} levels are not so in {places}, {told}", _PROGRAM)
        often = Counter(one for one, _ in pairs) - Counter(one for one, _ in listed[name])
        require(not often, f"{len(often)} {name} levels are there more often than in {places}", _PROGRAM)
    if not config.dev_dataset:
        used["train"] += used.pop("dev")
        _check_held_back(levels)
    for name, pairs in used.items():
        lost = {one for one, _ in listed[name]} - {one for one, _ in pairs}
        require(not lost or config.skip_bad_levels, f"{len(lost)} levels given for {name} are not there", _PROGRAM)
    return ", ".join(f"{len(levels[name])} of {len(listed[name])} {name} levels" for name in given)


def _listed(places: Iterable[Path]) -> list[tuple[str, str]]:
    """(fingerprint, category) of each level of some folders or files, as their indexes say; of several, the first counts."""
    found: dict[str, list[tuple[str, str]]] = {}
    for place in places:
        index, own = place / INDEX, []
        entries = json.loads(index.read_bytes())["levels"] if index.is_file() else []
        if entries and all(entry["fingerprint"] for entry in entries):
            own = [(entry["fingerprint"], entry["category"]) for entry in entries]
        else:
            levels = LevelSet.at(place)
            for i, entry in enumerate(levels.entries):
                with suppress(LevelSetError):  # one that cannot be read, and is left out
                    own.append((levels.fingerprint(i), entry.category))
        mine: dict[str, list[tuple[str, str]]] = {}
        for pair in own:
            mine.setdefault(pair[0], []).append(pair)
        found = mine | found
    return [pair for pairs in found.values() for pair in pairs]


def _check_held_back(levels: Levels) -> None:
    """CheckFailed unless few training levels of each category are kept for dev evaluations."""
    train, dev = (Counter(category for _, category in levels[name]) for name in ("train", "dev"))
    for category, count in dev.items():
        most = max(1, math.ceil(DEV_SHARE * (count + train[category])))
        require(
            count <= 2 * min(most, DEV_LEVELS),  # with their mirror images
            f"{count} of {count + train[category]} {category} levels are held back as dev levels, meant were {most}",
            _PROGRAM,
        )


@check(BEFORE)
def everybody_plays_their_own_levels(
    levels: Levels, bank: LevelBank, env: BatchVecEnv, suites: Mapping[str, EvaluationSuite]
) -> str:
    """Training plays the training levels in their categories, evaluations the dev and the test levels, and no others."""
    train = [level.fingerprint for level, _ in levels["train"]]
    remedy = "this is a mistake in the program: levels must not change places after they are read"
    for owner, found in (("the bank", bank), ("the training environments", env.sim.bank)):
        require(
            [level.fingerprint for level in found.levels] == train, f"{owner} plays other levels than train", remedy
        )
    stages = [env.sampler.stages[stage] for stage in env.sampler.stage_of]
    require(stages == [category for _, category in levels["train"]], "the curriculum has other categories", remedy)
    for name, suite in suites.items():
        allowed = {level.fingerprint: category for level, category in levels[name]}
        wrong = [level for level, category in suite.schedule if allowed.get(level) != category]
        require(
            not wrong,
            f"{len(wrong)} episodes of the {name} evaluation are on levels that are no {name} levels, or count for another "
            f"category, e.g. {wrong[0][:16] if wrong else ''}…",
            remedy,
        )
        episodes, different = (Counter(one[1] for one in some) for some in (suite.schedule, set(suite.schedule)))
        there = Counter(allowed.values())
        few = [one for one in episodes if different[one] != min(episodes[one], there[one])]
        require(not few, f"the {name} evaluation plays few of its levels again and again: {', '.join(few)}", remedy)
    played = ", ".join(f"{len(suite)} episodes on {len(suite.bank)} {name} levels" for name, suite in suites.items())
    return f"{len(train)} training levels; {played or 'no evaluation'}"


@check(BEFORE)
def categories_are_covered(levels: Levels) -> str:
    """Every category that is judged is trained, too."""
    counts = {name: Counter(category for _, category in pairs) for name, pairs in levels.items()}
    told = "; ".join(
        f"{name}: {', '.join(f'{category} {count}' for category, count in sorted(found.items()))}"
        for name, found in counts.items()
    )
    untrained = sorted((counts["dev"].keys() | counts["test"].keys()) - counts["train"].keys())
    if untrained:
        raise CheckWarned(f"judged, but never trained: {', '.join(untrained)} ({told})", "add training levels of these")
    return told


@check(BEFORE)
def levels_have_a_way(bank: LevelBank, suites: Mapping[str, EvaluationSuite]) -> str:
    """A way leads from the start over a switch to its exit, in every level that is trained or judged on."""
    banks = {"training": bank, **{name: suite.bank for name, suite in suites.items()}}
    lost = {name: [some.levels[i].name for i in np.flatnonzero(~some.reachable)] for name, some in banks.items()}
    require(not lost["training"], f"none in training levels {lost['training'][:3]}", "remove these")
    named = {name: names for name, names in lost.items() if names}
    if named:
        told = "; ".join(f"none in {len(names)} {name} levels, e.g. {names[0]}" for name, names in named.items())
        raise CheckWarned(told, "nobody finishes these: remove them, or count with it in what is reported")
    return ", ".join(f"{len(some)} {name} levels" for name, some in banks.items())


@check(BEFORE)
def evaluations_can_be_repeated(suites: Mapping[str, EvaluationSuite]) -> str:
    """The same policy is judged the same twice: levels, episodes and random numbers are those of the schedule."""
    judged = {name: suite for name, suite in suites.items() if name != "test"}  # which is opened once, at the end
    if not judged:
        raise CheckSkipped("no evaluation on dev levels in this run")
    name, suite = min(judged.items(), key=lambda item: len(item[1]))
    one, other = (
        [(episode.level_name, episode.outcome, episode.inputs.tobytes()) for episode in _random_play(suite)]
        for _ in range(2)
    )
    different = sum(a != b for a, b in zip(one, other, strict=True))
    require(
        not different,
        f"{different} of {len(one)} episodes of random play end otherwise the second time",
        "evaluations cannot be compared so: this is a mistake in the program",
    )
    return f"{len(one)} {name} episodes twice"


def _random_play(suite: EvaluationSuite) -> list[EpisodeRecord]:
    return suite.run(RandomPolicy(), deterministic=False)


@check(BEFORE)
def replays_finish(replays: Places) -> str:
    """Recorded replays, played back frame by frame, reach their exits."""
    files = [file for file in find_replays(replays) if file.replay.success is not False]
    chosen = files[:: max(1, len(files) // REPLAYS_PLAYED)][:REPLAYS_PLAYED]
    lost = {}
    for file in chosen:
        run = simulate(file.replay.level, file.replay.inputs)
        if not run.won:
            lost[file.name] = f"{run.outcome} after {run.frames} frames"
    require(
        2 * len(lost) <= len(chosen),
        f"{len(lost)} of {len(chosen)} do not finish, e.g. {next(iter(lost.items()), '')}",
        "they were recorded with other physics or other levels: run python -m bc check FOLDER",
    )
    return f"{len(chosen) - len(lost)} of {len(chosen)} played back win, of {len(files)} in {places_text(replays)}"


# ---------------------------------------------------------------------------------------------------------------------
# The dataset


@check(IMITATION)
def the_dataset_belongs_to_this_run(
    dataset: BCDataset, config: ExperimentConfig, architecture: Architecture, env: BatchVecEnv
) -> str:
    """Frame skip and observation layout of the dataset are those of training and of the network."""
    keys = {*dataset.observations, *(dataset.images.keys if dataset.images else ())}
    require(
        dataset.frame_skip == config.frame_skip == env.sim.frame_skip,
        f"frame skip: dataset {dataset.frame_skip}, configuration {config.frame_skip}, training {env.sim.frame_skip}",
        _REBUILD,
    )
    prints = {layout.fingerprint(some) for some in (keys, architecture.observations, env.sim.keys)}
    require(
        len(prints) == 1,
        f"dataset has {', '.join(sorted(keys))}; the network reads {', '.join(architecture.observations)}; training "
        f"computes {', '.join(env.sim.keys)}",
        _REBUILD,
    )
    return f"frame skip {dataset.frame_skip}, layout {prints.pop()}"


@check(IMITATION)
def demonstrations_are_not_of_judged_levels(dataset: BCDataset, levels: Levels, config: ExperimentConfig) -> str:
    """No demonstration is of a dev or test level, mirrored or not."""
    if config.single_level is not None:
        raise CheckSkipped("one level is trained and judged on, as was asked for")
    judged = {s.fingerprint for name in ("dev", "test") for level, _ in levels[name] for s in (level, mirror(level))}
    leaked = [name for name, level in zip(dataset.names, dataset.level_fingerprints, strict=True) if level in judged]
    require(not leaked, f"{len(leaked)} demonstrations are, e.g. {leaked[:1]}", "take them out of the folder")
    return f"{len(dataset.names)} demonstrations"


@check(IMITATION)
def demonstrations_cover_what_is_trained(dataset: BCDataset, levels: Levels) -> str:
    """Demonstrations are of the categories that are trained, and count for the category that their level is trained in."""
    counts = Counter(dataset.categories[i] for i in dataset.category)
    trained = {category for _, category in levels["train"]}
    told = ", ".join(f"{category} {count}" for category, count in sorted(counts.items()))
    share = sum(count for category, count in counts.items() if category in trained) / counts.total()
    if share == 0:
        raise CheckWarned(
            f"none is of a trained category ({told})", "put demonstrations of such levels into the folder"
        )
    of_level = {level.fingerprint: category for level, category in levels["train"]}
    named = [dataset.categories[i] for i in dataset.category]
    others = sum(
        name in trained and of_level.get(level, name) != name
        for name, level in zip(named, dataset.level_fingerprints, strict=True)
    )
    if others:
        raise CheckWarned(
            f"{others} of {len(named)} demonstrations count for another category than their level is trained in ({told})",
            "mend the names of their folders, or the index of the levels",
        )
    missing = sorted(trained - counts.keys())
    return told + (f"; none of {', '.join(missing)}" if missing else "")


@derived
def demonstrated(dataset: BCDataset, replays: Places) -> Demonstrated:
    """Some demonstrations of the dataset, with their levels."""
    return _some_demonstrations(dataset, replays)


@check(BEFORE)
def planned_runs_earn_every_reward(config: ExperimentConfig, env: BatchVecEnv) -> str:
    """Without demonstrations: runs that the planner finds on the shortest training levels earn every reward that has a
    weight, too, and more than doing nothing does."""
    if config.pretraining and config.replay_data_dir:
        raise CheckSkipped("demonstrations are played for it")
    bank = env.sim.bank
    order = np.argsort(np.where(bank.reachable, bank.path_length, np.inf), kind="stable")[:PLANNED]
    levels = [bank.levels[i] for i in order.tolist()]
    plans = [plan(level, env.sim.frame_skip, budget=PLANNER_BUDGET) for level in levels]
    found = [(level, run) for level, run in zip(levels, plans, strict=True) if run is not None]
    if not found:
        raise CheckSkipped(f"the planner finds no run on the {len(levels)} shortest levels")
    chosen = LevelBank([level for level, _ in found], known=dict(zip(bank.levels, bank.compiled, strict=True)))
    told = _require_rewards(env.sim, chosen, [run.actions for _, run in found])
    return f"{told}; {len(found)} of {len(levels)} levels"


@check(IMITATION)
def experts_earn_every_reward(dataset: BCDataset, demonstrated: Demonstrated, env: BatchVecEnv) -> str:
    """Demonstrations earn every reward that has a weight, penalties for dying aside, and more than doing nothing does."""
    chosen, bank = demonstrated
    return _require_rewards(env.sim, bank, [dataset.actions[dataset.demonstration == i] for i in chosen])


def _require_rewards(like: BatchSimulator, bank: LevelBank, actions: Sequence[np.ndarray]) -> str:
    """What ``actions`` earn, each on its level of the bank; CheckFailed if a reward never fires, or if idling pays more."""
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
    config = like.reward_config
    wanted = [name for name in rewards.TERMS if name != "death" and getattr(config, name)]
    silent = [name for name in wanted if not terms[rewards.TERMS.index(name)]]
    told = f"return {earned.mean():+.2f} (nothing done: {idle.mean():+.2f}); {', '.join(wanted)}"
    require(not silent, f"never earned: {', '.join(silent)}; {told}", "this reward does not fire: see nppsim/reward.py")
    require(bool((earned > idle).mean() > 0.5), told, "winning must pay: choose --reward-preset default")
    return told


def _discounted(sim: BatchSimulator, actions: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(discounted return float64[N] of each environment's first episode, how often each term was earned int64[8])."""
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


@check(IMITATION)
def observations_are_the_environments(dataset: BCDataset, demonstrated: Demonstrated, env: BatchVecEnv) -> str:
    """The dataset's actions, played in the training environments, show its observations byte for byte, and win."""
    chosen, bank = demonstrated
    sim = BatchSimulator(
        bank,
        len(chosen),
        frame_skip=env.sim.frame_skip,
        observations=env.sim.keys,
        reward=env.sim.reward_config,
        stacking=env.sim.stacking,
    )
    dataset = dataset.stacked(env.sim.stacking)
    sim.reset(np.arange(len(chosen)))
    rows = [np.flatnonzero(dataset.demonstration == i) for i in chosen]
    playing = np.ones(len(chosen), bool)
    compared = 0
    for t in range(max(map(len, rows))):
        active = np.flatnonzero(playing)
        here = np.array([rows[i][t] for i in active])
        different = bytes_differ({key: sim.obs[key][active] for key in sim.keys}, dataset.observe(here))
        require(
            not different,
            f"decision {t} of {dataset.names[chosen[active[0]]]} or of another one shows other {', '.join(different[:6])}",
            f"observations and actions do not belong together, or the simulator has changed; {_REBUILD}",
        )
        compared += len(active)
        actions = np.zeros(len(chosen), np.int64)
        actions[active] = dataset.actions[here]
        sim.step(actions)
        for i in active:
            playing[i] = _goes_on(dataset.names[chosen[i]], sim, int(i), t + 1, len(rows[i]))
        if not playing.any():
            break
    return f"{compared} decisions of {len(chosen)} demonstrations, {len(sim.keys)} keys"


def _goes_on(name: str, sim: BatchSimulator, i: int, decisions: int, recorded: int) -> bool:
    """Whether a demonstration goes on; CheckFailed unless it wins with its last decision, and not before."""
    ended, last = i in sim.finished, decisions == recorded
    outcome = NAMES[sim.episode["outcome"][i]] if ended else "still running"
    require(
        ended == last and (not ended or sim.episode["outcome"][i] == WON),
        f"{name} is {outcome} after decision {decisions} of {recorded}",
        f"actions are shifted, or the simulator has changed; {_REBUILD}",
    )
    return not ended


def _some_demonstrations(dataset: BCDataset, replays: Places) -> Demonstrated:
    """Numbers of some demonstrations of a dataset, and a bank with the level of each."""
    wanted = {name: i for i, name in enumerate(dataset.names)}
    step = max(1, len(wanted) // PLAYED_BACK)
    levels: dict[int, Level] = {}
    for file in find_replays(replays):
        for name in (file.name, f"{file.name} (mirrored)"):
            i = wanted.get(name)
            if i is None or i % step or len(levels) == PLAYED_BACK:
                continue
            level = file.replay.level
            if level.fingerprint != dataset.level_fingerprints[i]:
                level = mirror(level)
            require(
                level.fingerprint == dataset.level_fingerprints[i],
                f"{name} is of another level than the dataset says",
                _REBUILD,
            )
            levels[i] = level
    if not levels:
        raise CheckSkipped(f"no demonstration of the dataset has the name of a replay in {places_text(replays)}")
    return list(levels), LevelBank(list(levels.values()))


@check(IMITATION)
def labels_belong_to_observations(dataset: BCDataset) -> str:
    """A linear probe finds the actions in the observations; it finds shuffled actions no better than by always saying one."""
    rng = np.random.default_rng(0)
    train, held_out = dataset.rows(validation=False), dataset.rows(validation=True)
    if len(held_out) < ENOUGH_ROWS:
        raise CheckSkipped(f"{len(held_out)} held-out decisions are too few to tell from chance")
    train = rng.choice(train, min(len(train), PROBE_ROWS), replace=False)
    held_out = rng.choice(held_out, min(len(held_out), PROBE_ROWS), replace=False)
    inputs, tests = (_features(dataset, rows) for rows in (train, held_out))
    actions, wanted = dataset.actions[train].astype(int), dataset.actions[held_out]
    found = float((_probe(inputs, actions, tests) == wanted).mean())
    shuffled = max(float((_probe(inputs, rng.permutation(actions), tests) == wanted).mean()) for _ in range(3))
    margin = 3 * np.sqrt(shuffled * (1 - shuffled) / len(wanted) * 4)  # decisions in a row are alike: a quarter counts
    table = predictors(transition_counts(actions, dataset.previous_actions[train]))["repeat_previous"]
    repeated = float((table[dataset.previous_actions[held_out]] == wanted).mean())
    told = f"{found:.0%} right, with shuffled actions {shuffled:.0%}; repeating the last action {repeated:.0%}"
    require(found > shuffled + margin, told, "actions do not belong to the observations beside them: are rows shifted?")
    return told


def _features(dataset: BCDataset, rows: np.ndarray) -> np.ndarray:
    """float64[rows, D + 1]: the vectors side by side, and a one."""
    floats = [key for key in dataset.observations if layout.SPECS[key].dtype == "float32"]
    parts = [dataset.observations[key][rows].reshape(len(rows), -1).astype(np.float64) for key in floats]
    return np.concatenate([*parts, np.ones((len(rows), 1))], axis=1)


def _probe(inputs: np.ndarray, actions: np.ndarray, tests: np.ndarray) -> np.ndarray:
    """int64[tests]: actions that ridge regression onto their indicators finds the likeliest."""
    scale = np.abs(inputs).max(axis=0)
    scale[scale == 0] = 1
    x = inputs / scale
    targets = np.eye(6)[actions]
    weights = np.linalg.solve(x.T @ x + 1e-3 * len(x) / x.shape[1] * np.eye(x.shape[1]), x.T @ targets)
    return ((tests / scale) @ weights).argmax(axis=1)


@check(IMITATION)
def statistics_are_those_of_the_demonstrations(dataset: BCDataset, statistics: ObservationStatistics) -> str:
    """Mean and spread of every component, computed anew, are what the normaliser gets; so it whitens what it is shown."""
    rows = dataset.rows(validation=False)
    require(
        statistics.count == len(rows),
        f"statistics of {statistics.count} decisions, there are {len(rows)} to learn from",
        "compute them from the training part of this very dataset",
    )
    worst = 0.0
    for key in statistics.float_keys:
        values = dataset.observations[key][rows].astype(np.float64)
        divisor = np.maximum(values.std(axis=0), MIN_SCALE_SHARE * np.asarray(layout.SPECS[key].scale))
        off = np.abs(values.mean(axis=0) - statistics.mean[key]) / divisor
        off = np.maximum(off, np.abs(values.std(axis=0) - statistics.std[key]) / divisor)
        worst = max(worst, float(off.max()))
        require(
            bool((off < 1e-4).all()),
            f"mean or spread of {key} is off by {off.max():.3g} spreads",
            "compute the statistics from the training part of this very dataset",
        )
        require(
            np.allclose(statistics.divisor[key], divisor, rtol=1e-3), f"{key} is divided by something else", _PROGRAM
        )
    size = sum(statistics.mean[key].size for key in statistics.float_keys)
    return f"{size} components of {len(rows)} decisions, off by {worst:.0e}"
