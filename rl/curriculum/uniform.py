"""Strategy "uniform": every level is equally likely, always.  The control that every other strategy has to beat."""

from rl.curriculum.strategy import Outcomes, Strategy


class Uniform(Strategy):
    """Learns nothing."""

    def update(self, outcomes: Outcomes) -> None:
        """The weights stay as they are."""
