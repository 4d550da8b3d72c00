"""Data of an experiment: levels, demonstrations and evaluation suites."""

import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bc import dataset as demonstrations
from nppsim import LevelBank, reward
from nppsim.actions import NUM_ACTIONS
from nppsim.compile import LevelGeometry
from nppsim.errors import ConfigError
from nppsim.generate import CATEGORIES
from nppsim.gym.benchmark import first_of_each
from nppsim.io.progress import progress_bar
from nppsim.levels.level import Level, symmetric_fingerprint, warning_lines
from nppsim.levels.level_set import LevelSet, LevelSetError, check_disjoint
from nppsim.observe.foresight_settings import FORESIGHT, Foresight
from nppsim.observe.statistics import ObservationStatistics
from rl.checks.config import margin_text, returns_text
from rl.config.experiment import DEV_LEVELS, DEV_SHARE, ExperimentConfig
from rl.evaluation.levels import Pairs, drop_unreadable, first_of, merge_level_sets, skip_or_raise
from rl.evaluation.suite import EvaluationSuite
from rl.log import Log, warn
from rl.ppo.vec_env import BatchVecEnv

RANDOM_PLAY_DECISIONS = 20_000  # decisions of random play for statistics of the normaliser, without demonstrations


@dataclass(frozen=True)
class Data:
    """Levels of an experiment.  The lists share neither levels nor mirror images of levels, except with --single-level.

    train: training levels.
    dev: levels of evaluations during training, on which policies are selected.
    test: levels of the final evaluation only.
    bank: compiled training levels.
    generators: fingerprint of a training level -> name of its generator, "" if it was not generated.
    """

    train: Pairs
    dev: Pairs
    test: Pairs
    bank: LevelBank
    generators: Mapping[str, str] = field(default_factory=dict)

    @property
    def train_categories(self) -> list[str]:
        return [category for _, category in self.train]

    @property
    def train_generators(self) -> list[str]:
        return [self.generators.get(level.fingerprint, "") for level, _ in self.train]

    @property
    def compiled(self) -> dict[Level, LevelGeometry]:
        """Geometry of the training levels."""
        return dict(zip(self.bank.levels, self.bank.compiled, strict=True))

    @property
    def fingerprints(self) -> dict[str, str]:
        """Name of a list ("train", "dev", "test") -> digest of its levels, which does not depend on their order."""
        lists = {"train": self.train, "dev": self.dev, "test": self.test}
        contents = {name: "".join(sorted(level.fingerprint for level, _ in pairs)) for name, pairs in lists.items()}
        return {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in contents.items()}


def load_data(config: ExperimentConfig, log: Log) -> Data:
    """Read the levels and compile those for training; LevelError or LevelSetError for unusable levels."""
    if config.single_level is not None:
        level = Level.load(config.single_level)
        for warning in warning_lines([level]):
            log(warning)
        pairs = [(level, "single")]
        return Data(pairs, pairs, pairs, LevelBank([level]))
    skip = config.skip_bad_levels
    paths_by_split = {"train": config.train_dataset, "dev": config.dev_dataset, "test": config.test_dataset}
    bad: list[str] = []
    sets = {name: [drop_unreadable(LevelSet.at(path), bad) for path in paths] for name, paths in paths_by_split.items()}
    if bad and not skip:  # so that the message of ``skip_or_raise`` names all bad levels
        bad += unreachable_exits(LevelBank([level for level_set in sets["train"] for level in level_set]))
    skip_or_raise(bad, skip, log)
    check_disjoint(*sets.values())
    train, dev, test = (
        merge_level_sets(split, log, allow_unsupported=config.allow_unsupported) for split in sets.values()
    )
    if not config.dev_dataset:
        train, dev = hold_out(train)
    if config.num_train_levels is not None:
        chosen = first_of_each([category for _, category in train], config.num_train_levels, "--num-train-levels")
        train = [train[i] for i in chosen]
    if config.evaluation.in_training and not dev:
        advice = "has no second level of a category to hold out for evaluations; give --dev-dataset, or --eval-freq 0"
        raise ConfigError(advice, "--train-dataset", " ".join(map(str, config.train_dataset)))
    begin = time.monotonic()
    bank = LevelBank([level for level, _ in train])
    seconds = time.monotonic() - begin
    origin = f"of {' and '.join(map(str, config.dev_dataset))}" if config.dev_dataset else "held out from training"
    log(
        f"{len(train)} training levels compiled in {seconds:.1f} s; {len(dev)} dev levels, {origin}; {len(test)} test levels"
    )
    train, bank = _drop_unreachable(train, bank, skip, log)
    if unknown := sorted({category for _, category in train} - {*CATEGORIES, *config.curriculum.stage_order}):
        advice = "as stages they come last, in this order (--curriculum-stage-order sets another)"
        log(f"categories of unknown difficulty: {', '.join(unknown)}; {advice}")
    entries = [
        (level_set.fingerprint(i), entry.generator)
        for level_set in sets["train"]
        for i, entry in enumerate(level_set.entries)
    ]
    return Data(train, dev, test, bank, dict(reversed(entries)))  # of duplicate levels, the first counts


def unreachable_exits(bank: LevelBank) -> list[str]:
    """Return a message for each level without a path from the start to the exit."""
    lost = (level for level, ok in zip(bank.levels, bank.reachable, strict=True) if not ok)
    return [f"{level.name}: no path from the start to the exit" for level in lost]


def _drop_unreachable(train: Pairs, bank: LevelBank, skip: bool, log: Log) -> tuple[Pairs, LevelBank]:
    """Return the training levels with a path from the start to the exit, and the bank of these levels."""
    lost = unreachable_exits(bank)
    if not lost:
        return train, bank
    if len(lost) == len(train):
        raise LevelSetError(f"no training level can be finished: {first_of(lost)}")
    skip_or_raise(lost, skip, log)
    pairs = [pair for pair, ok in zip(train, bank.reachable, strict=True) if ok]
    known = dict(zip(bank.levels, bank.compiled, strict=True))
    return pairs, LevelBank([level for level, _ in pairs], known=known)


def hold_out(train: Pairs) -> tuple[Pairs, Pairs]:
    """Hold out a part of the training levels; return (training levels, dev levels).

    In each category, the levels with the lowest fingerprints become dev levels: a share of DEV_SHARE (rounded up), but at
    most DEV_LEVELS levels and never all.  A level and its mirror image stay together.
    """
    contents = [symmetric_fingerprint(level) for level, _ in train]
    of_category: dict[str, set[str]] = {}
    for content, (_, category) in zip(contents, train, strict=True):
        of_category.setdefault(category, set()).add(content)
    chosen: set[str] = set()
    for members in of_category.values():
        count = min(math.ceil(DEV_SHARE * len(members)), DEV_LEVELS, len(members) - 1)
        chosen.update(sorted(members)[:count])
    parts: tuple[Pairs, Pairs] = ([], [])
    for content, pair in zip(contents, train, strict=True):
        parts[content in chosen].append(pair)
    return parts


def audit_rewards(config: ExperimentConfig, data: Data, log: Log) -> list[reward.AuditRow]:
    """Return the discounted returns of winning, time-out and dying per category; log problems with their order."""
    names = np.array(data.train_categories)
    lengths = {name: data.bank.path_length[names == name].tolist() for name in dict.fromkeys(data.train_categories)}
    rows = []
    for name, stage_lengths in lengths.items():  # each stage may have its own discount
        gamma = config.curriculum.changes_in(name).get("gamma") or config.ppo.gamma
        rows += reward.audit(config.reward.weights, gamma, config.frame_skip, {name: stage_lengths})
    problems = [problem for row in rows for problem in row.problems]
    for row in rows:
        if row.problems:
            log(f"rewards on {returns_text(row)}: {'; '.join(row.problems)}")
    if not problems:
        log(f"rewards: {margin_text(rows)}")
    elif config.reward.is_default and "rewards" not in config.silence:
        advice = "raise --gamma towards 1, train on shorter levels, or use --silence rewards"
        warn(log, f"rewards: {problems[0]}; {advice}")
    deadly = [row for row in rows if row.death_return > min(row.win_return, row.timeout_return + reward.TIE)]
    if deadly and not config.reward.force and "dying" not in config.silence:
        advice = "lower --reward-death, raise --reward-time towards 0, or accept it with --force"
        preset = f"--reward-preset {config.reward.preset}"
        text = (
            f"dying: an early death returns more than winning or staying alive, {preset}, on {returns_text(deadly[0])}"
        )
        warn(log, f"{text}; {advice}")
    return rows


class Suites:
    """Evaluation suites of an experiment.  Each is made on first use, and then reused."""

    def __init__(self, config: ExperimentConfig, data: Data):
        self.config, self.data = config, data

    @cached_property
    def final(self) -> EvaluationSuite:
        """The suite of the final evaluation on the test levels."""
        categories = len({category for _, category in self.data.test})
        return make_suite(self.config, self.data.test, self.config.evaluation.episodes_per_category(categories))

    @cached_property
    def train(self) -> EvaluationSuite:
        """The suite on the training levels, for the gap to the test levels."""
        categories = len({category for _, category in self.data.train})
        return make_suite(self.config, self.data.train, self.config.evaluation.episodes_per_category(categories))

    @cached_property
    def periodic(self) -> EvaluationSuite:
        """The suite of evaluations during training, on the dev levels."""
        return make_suite(self.config, self.data.dev, self.config.evaluation.periodic_episodes_per_category)

    def all(self) -> dict[str, EvaluationSuite]:
        """Return "dev" and "test" -> suite, for the evaluations that are enabled."""
        evaluation = self.config.evaluation
        made = {"dev": self.periodic} if evaluation.in_training else {}
        return made if evaluation.skip_final_eval else made | {"test": self.final}


def make_suite(config: ExperimentConfig, levels: Pairs, episodes: int, threads: int | None = None) -> EvaluationSuite:
    """Make a suite without backtracking.

    episodes: number of episodes per category.
    threads: number of threads of the simulator.
    """
    return EvaluationSuite(
        levels,
        episodes_per_category=episodes,
        seed=config.evaluation.seed,
        frame_skip=config.frame_skip,
        reward=config.reward.weights,
        gamma=config.ppo.gamma,
        threads=threads,
        patience=config.evaluation.exploration_patience,
        horizon=0,
    )


def load_demonstrations(
    config: ExperimentConfig,
    data: Data,
    observations: tuple[str, ...],
    seed: int,
    log: Log,
    foresight: Foresight = FORESIGHT,
) -> demonstrations.BCDataset:
    """Return the demonstrations as a dataset, from the cache in ``output_dir`` if possible.

    Demonstrations of dev levels that were held out from the training levels are skipped.  Demonstrations of levels of a
    separate dev or test set are an error, except with --single-level.
    """
    held_back, held_out = _evaluation_levels(config, data)
    dataset = demonstrations.load_or_build(
        config.replay_data_dir,
        config.output_dir / "cache",
        _dataset_config(config, observations, seed, foresight),
        held_back=held_back,
        known=data.compiled,
        log=log,
        progress=progress_bar,
    )
    dataset.check_held_out(held_out)
    return dataset


def check_demonstrations(config: ExperimentConfig, data: Data, observations: tuple[str, ...], log: Log) -> None:
    """Raise the errors of ``load_demonstrations`` without recording observations, which takes most of its time.

    observations: those of the network with the most.
    """
    held_back, held_out = _evaluation_levels(config, data)
    settings = _dataset_config(config, observations, config.seeds[0])
    demonstrations.check_demonstrations(
        config.replay_data_dir,
        settings,
        held_back=held_back,
        held_out=held_out,
        known=data.compiled,
        log=log,
        progress=progress_bar,
    )


def _dataset_config(
    config: ExperimentConfig, observations: tuple[str, ...], seed: int, foresight: Foresight = FORESIGHT
) -> demonstrations.DatasetConfig:
    return demonstrations.DatasetConfig(
        config.frame_skip,
        observations,
        foresight,
        validation_share=config.validation_share,
        seed=seed,
        mirror=config.mirror_demonstrations,
        max_per_category=config.max_demonstrations_per_category,
    )


def _evaluation_levels(config: ExperimentConfig, data: Data) -> tuple[list[Level], list[Level]]:
    """Return the levels whose demonstrations are skipped, and those whose demonstrations are an error."""
    if config.single_level is not None:
        return [], []
    held_back = [] if config.dev_dataset else [level for level, _ in data.dev]
    return held_back, [level for level, _ in data.dev + data.test]


def runs_without_imitation(config: ExperimentConfig, data: Data, log: Log) -> dict[str, np.ndarray]:
    """Return runs for --start-states from the demonstrations of a training with --no-pretraining; {} if none are given.

    Result: level fingerprint -> actions int8[n] of the level's shortest demonstration.
    """
    if config.pretraining or not config.replay_data_dir:
        return {}
    return load_demonstrations(config, data, ("game_state",), config.seeds[0], log).runs()


def statistics_of_random_play(env: BatchVecEnv, seed: int) -> ObservationStatistics:
    """Return statistics of the observations in random play on the training levels."""
    sim, rng = env.sim, np.random.default_rng(seed)
    statistics = ObservationStatistics(sim.keys)
    env.reset()
    for _ in range(-(-RANDOM_PLAY_DECISIONS // sim.num_envs)):
        sim.step(rng.integers(0, NUM_ACTIONS, sim.num_envs))
        sim.next_level[sim.finished] = env.sampler.draw(len(sim.finished))
        statistics.update({key: sim.latest[key] for key in statistics.float_keys})
    return statistics
