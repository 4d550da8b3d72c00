"""Whether levels are drawn as often as the curriculum says: a test that may be made after every update of any run.

    draws = Draws(sampler)
    draws.take(sampler, drawn)      # the levels that wait to be played: as many draws as there are environments
    draws.fault(sampler)            # None, or in words

A gambler bets on every draw, at fair odds by the stated chances, that what was drawn often before will be drawn again.  If
the chances are true, nobody wins at fair odds: that a stake is ever multiplied by X has a chance of 1 / X at most (Ville's
inequality), however often one looks.  A gambler who is nearly ruined begins anew; so in n updates a false alarm has
a chance of 2 n / 10^12 at most.  Source: Shafer & Vovk 2019, "Game-theoretic foundations for probability and finance".
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rl.curriculum import CurriculumManager

LIMIT = 12 * math.log(10)  # a gain that nobody has by chance
RUIN = -10.0  # below which betting begins anew


class Bet:
    """On draws among K things.

    counts: int64[K], draws since betting began.
    gains: float64[2], logarithms of what became of two stakes of 1; the first bets early, the second is for many things.
    """

    def __init__(self, things: int):
        self.counts = np.zeros(things, np.int64)
        self.gains = np.zeros(2)

    def take(self, drawn: np.ndarray, chances: np.ndarray) -> None:
        """drawn: int[n], in any order.  chances: float64[K] of each thing to be drawn, the same for all n."""
        if self.gains.max() < RUIN:
            self.counts[:], self.gains[:] = 0, 0
        chance = chances[drawn]
        if not (chance > 0).all():
            self.gains[:] = math.inf
            return
        order = np.argsort(drawn, kind="stable")
        first = np.searchsorted(drawn[order], drawn[order])
        rank = np.empty(len(drawn), np.int64)
        rank[order] = np.arange(len(drawn)) - first  # earlier draws of the same thing among these
        before, total = self.counts[drawn] + rank, self.counts.sum() + np.arange(len(drawn))
        for number, weight in enumerate((4.0, float(len(self.counts)))):
            self.gains[number] += np.log((before / chance + weight) / (total + weight)).sum()
        np.add.at(self.counts, drawn, 1)

    @property
    def won(self) -> bool:
        """Whether the chances are not true."""
        return bool(np.logaddexp(*self.gains) - math.log(2) > LIMIT)


def not_drawn_anew(sampler: CurriculumManager, before: np.ndarray, now: np.ndarray) -> str:
    """What is wrong if all levels that wait are those of before an update, as chance hardly ever does (LIMIT); else ""."""
    chance = float(np.log(np.maximum(sampler.probabilities()[before], 1e-300)).sum())
    if not np.array_equal(before, now) or chance > -LIMIT:
        return ""
    return f"all {len(now)} levels that wait are those of before the update: they were not drawn anew, by its shares"


class Draws:
    """Bets on levels and on their categories."""

    def __init__(self, sampler: CurriculumManager):
        self.levels, self.categories = Bet(len(sampler.stage_of)), Bet(len(sampler.stages))

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> "Draws":
        """Those that go on where ``state_dict`` was taken."""
        draws = cls.__new__(cls)
        for name, one in state.items():
            bet = Bet(len(one["counts"]))
            bet.counts, bet.gains = np.array(one["counts"], np.int64), np.array(one["gains"], np.float64)
            setattr(draws, name, bet)
        return draws

    def take(self, sampler: CurriculumManager, drawn: np.ndarray) -> None:
        """drawn: int[n], levels drawn since the last update, with the chances that the sampler has now."""
        self.levels.take(drawn, sampler.probabilities())
        self.categories.take(sampler.stage_of[drawn], sampler.shares())

    def fault(self, sampler: CurriculumManager) -> str | None:
        """What is wrong, in words."""
        for bet, name_of, chances in (
            (self.categories, sampler.stages.__getitem__, sampler.shares()),
            (self.levels, "level {}".format, sampler.probabilities()),
        ):
            if bet.won:
                total = max(1, int(bet.counts.sum()))
                most = int((bet.counts / total - chances).argmax())
                return (
                    f"{bet.counts[most]} of {total} draws are {name_of(most)}, whose chance is {chances[most]:.1%} now: "
                    "levels do not come from the curriculum"
                )
        return None

    def state_dict(self) -> dict[str, Any]:
        """As plain values and arrays."""
        return {name: {"counts": bet.counts.copy(), "gains": bet.gains.tolist()} for name, bet in vars(self).items()}
