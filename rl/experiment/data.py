"""What an experiment trains and tests on: levels, their check before training, demonstrations, and the evaluations."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bc import dataset as demonstrations
from nppsim import LevelBank, reward
from nppsim.errors import ConfigError
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelSet, check_disjoint
from nppsim.progress import progress_bar
from rl.config import ExperimentConfig
from rl.judge.evaluation import EvaluationSuite

Log = Callable[[str], None]  # receives lines for people
Pairs = list[tuple[Level, str]]  # levels with their categories


@dataclass(frozen=True)
class Data:
    """What an experiment trains and tests on: (level, category) pairs; bank: the training levels, compiled."""

    train: Pairs
    test: Pairs
    bank: LevelBank

    @property
    def train_categories(self) -> list[str]:
        return [category for _, category in self.train]

    @property
    def fingerprints(self) -> dict[str, str]:
        """One digest for the levels of each dataset, whatever their order."""
        return {"train": _digest(self.train), "test": _digest(self.test)}


def _digest(pairs: Pairs) -> str:
    return hashlib.sha256("".join(sorted(level.fingerprint for level, _ in pairs)).encode()).hexdigest()[:16]


def load_data(config: ExperimentConfig, log: Log) -> Data:
    """Read and compile the levels; LevelError or LevelSetError names what cannot be used."""
    if config.single_level is not None:
        level = Level.load(config.single_level)
        return Data([(level, "single")], [(level, "single")], LevelBank([level]))
    train, test = LevelSet.open(config.train_dataset), LevelSet.open(config.test_dataset)
    check_disjoint(train, test)
    train_pairs, test_pairs = _pairs(train), _pairs(test)
    begin = time.monotonic()
    bank = LevelBank([level for level, _ in train_pairs])
    log(f"{len(train)} training levels compiled in {time.monotonic() - begin:.1f} s; {len(test)} held-out levels")
    lost = [level.name for level, ok in zip(bank.levels, bank.reachable, strict=True) if not ok]
    if lost:
        raise ConfigError(
            f"no way from the start to the exit in {len(lost)} levels, e.g. {lost[0]}; remove them "
            "(scripts/generate_levels.py writes only levels that a run has finished)",
            "--train-dataset",
            config.train_dataset,
        )
    return Data(train_pairs, test_pairs, bank)


def _pairs(levels: LevelSet) -> Pairs:
    return [(levels[i], levels.category(i)) for i in range(len(levels))]


def audit_rewards(config: ExperimentConfig, data: Data, log: Log) -> list[reward.AuditRow]:
    """The arithmetic of the rewards, per category, before training; the default preset must pass."""
    names = np.array(data.train_categories)
    lengths = {name: data.bank.path_length[names == name].tolist() for name in dict.fromkeys(data.train_categories)}
    rows = reward.audit(reward.PRESETS[config.reward_preset], config.ppo.gamma, config.frame_skip, lengths)
    for row in rows:
        verdict = "; ".join(row.problems) or "in order"
        log(
            f"rewards on {row.category} (way {row.path_px:.0f} px): win {row.win_return:+.2f}, "
            f"time-out {row.timeout_return:+.2f}, death {row.death_return:+.2f}: {verdict}"
        )
    problems = [problem for row in rows for problem in row.problems]
    if problems and config.reward_preset == "default":
        raise ConfigError(
            f"the rewards do not add up on these levels: {problems[0]}; raise --gamma towards 1, or train on shorter levels"
        )
    return rows


class Suites:
    """The evaluations of an experiment, compiled when first needed: one per kind and set of observations."""

    def __init__(self, config: ExperimentConfig, test: Pairs):
        self.config, self.test = config, test
        self._made: dict[tuple, EvaluationSuite] = {}

    def final(self, observations: tuple[str, ...]) -> EvaluationSuite:
        """The evaluation at the end of training, for networks that read these observations."""
        categories = len({category for _, category in self.test})
        return self._get(observations, self.config.evaluation.episodes_per_category(categories))

    def periodic(self, observations: tuple[str, ...]) -> EvaluationSuite:
        """The smaller one between updates."""
        return self._get(observations, self.config.evaluation.periodic_episodes_per_category)

    def _get(self, observations: tuple[str, ...], episodes: int) -> EvaluationSuite:
        key = (observations, episodes)
        if key not in self._made:
            self._made[key] = EvaluationSuite(
                self.test,
                episodes_per_category=episodes,
                seed=self.config.evaluation.seed,
                frame_skip=self.config.frame_skip,
                observations=observations,
                reward=self.config.reward_preset,
            )
        return self._made[key]


def load_demonstrations(
    config: ExperimentConfig, held_out: Pairs, observations: tuple[str, ...], seed: int, log: Log
) -> demonstrations.BCDataset:
    """The demonstrations as a dataset, from the cache beside the experiments if they are the same.

    held_out: levels that must not occur in them; not checked where one level is both trained and tested on.
    """
    settings = demonstrations.DatasetConfig(
        config.frame_skip,
        observations,
        seed=seed,
        mirror=config.mirror_demonstrations,
        max_per_category=config.max_demonstrations_per_category,
    )
    assert config.replay_data_dir is not None  # the configuration has checked it
    dataset = demonstrations.load_or_build(
        config.replay_data_dir, config.output_dir / "cache", settings, log=log, progress=progress_bar
    )
    if config.single_level is None:
        dataset.check_held_out(level for level, _ in held_out)
    return dataset
