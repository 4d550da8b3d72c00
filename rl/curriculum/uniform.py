"""Strategy "uniform": all levels are equally likely; the baseline for other strategies."""

from rl.curriculum.strategy import Outcomes, Strategy


class Uniform(Strategy):
    """Fixed uniform distribution."""

    def update(self, outcomes: Outcomes) -> None:
        """Leave the weights unchanged."""
