"""How a policy does on the dev levels, found the same way wherever it is played: in the training's process or beside it.

dev = DevLevels(config, data.dev, suite)
found = dev.play(policy)
found.wins.success, found.evaluation
"""

from collections.abc import Callable
from dataclasses import dataclass

from nppsim.signals import StopRequest
from rl.config import ExperimentConfig
from rl.evaluation.results import ALL, LevelWins, aggregate
from rl.evaluation.suite import EvaluationSuite
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
        self._deterministic = config.evaluation.deterministic

    def play(self, policy: NppPolicy, progress: Callable[[int], None] | None = None) -> Found:
        """Play all episodes with a policy.

        progress: as of ``EvaluationSuite.run``.
        """
        suite, deterministic = self.suite, self._deterministic
        episodes = suite.run(policy, deterministic=deterministic, progress=progress)
        counted = aggregate(episodes)
        rows = {category: stats["success"] for category, stats in counted.items()}
        return Found(rows, LevelWins.count(episodes))


def stop_if(stop: StopRequest) -> None:
    """Raise KeyboardInterrupt if a signal has requested the end of the program."""
    if stop.by:
        raise KeyboardInterrupt(f"by {stop.by}")
