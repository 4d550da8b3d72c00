"""How a policy does on the dev levels, found the same way wherever it is played: in the training's process or beside it.

dev = DevLevels(config, data.dev, suite)
found = dev.play(policy)
found.wins.success, found.evaluation
"""

from collections.abc import Callable
from dataclasses import dataclass

from nppsim.signals import StopRequest
from rl.config import ExperimentConfig
from rl.evaluation.results import ALL, EpisodeRecord, LevelWins, aggregate
from rl.evaluation.suite import EvaluationSuite, Policy
from rl.evaluation.verify import BEGINNING, check_beginning, check_counts, check_levels, verify
from rl.experiment.data import Pairs
from rl.policy.policy import NppPolicy
from rl.ppo.candidate import Evaluation


@dataclass(frozen=True, eq=False)
class Found:
    """rows: row of a table (every category and all of them) -> success, 0 to 1.  wins: level by level."""

    rows: dict[str, float]
    wins: LevelWins

    @property
    def evaluation(self) -> Evaluation:
        """The same for whoever decides what follows from it."""
        return Evaluation(self.rows[ALL], self.rows, self.wins.success[0])


class DevLevels:
    """config: of the experiment.  levels: the dev levels.  suite: made of them, with what the policies read."""

    def __init__(self, config: ExperimentConfig, levels: Pairs, suite: EvaluationSuite):
        self.suite = suite
        self._levels = {level.fingerprint: category for level, category in levels}
        self._deterministic = config.evaluation.deterministic
        self._reward, self._gamma = config.reward.weights, config.ppo.gamma
        self._verified = False

    def play(self, policy: NppPolicy, progress: Callable[[int], None] | None = None) -> Found:
        """Play all episodes with a policy.

        progress: as of ``EvaluationSuite.run``.
        Raises ResultsError where the episodes are not of these levels, or not this policy's.
        """
        suite, deterministic = self.suite, self._deterministic
        episodes = suite.run(policy, deterministic=deterministic, progress=progress)
        check_levels(episodes, self._levels)
        check_suite(suite, episodes, policy, deterministic)
        if not self._verified:  # each would cost as much time again
            verify(
                episodes,
                policy,
                planned=len(suite),
                deterministic=deterministic,
                frame_skip=suite.simulator.frame_skip,
                observations=policy.observations,
                stacking=policy.stacking,
                reward=self._reward,
                gamma=self._gamma,
            )
            self._verified = True
        counted = aggregate(episodes)
        check_counts(episodes, counted)
        rows = {category: stats["success"] for category, stats in counted.items()}
        return Found(rows, LevelWins.count(episodes))


def check_suite(suite: EvaluationSuite, episodes: list[EpisodeRecord], policy: Policy, deterministic: bool) -> None:
    """ResultsError unless the episodes begin with the decisions of this policy."""
    actions = suite.beginning(policy, deterministic=deterministic, decisions=BEGINNING)
    check_beginning(episodes, actions, suite.simulator.frame_skip)


def stop_if(stop: StopRequest) -> None:
    """Raise KeyboardInterrupt if a signal has requested the end of the program."""
    if stop.by:
        raise KeyboardInterrupt(f"by {stop.by}")
