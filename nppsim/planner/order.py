"""Order in which a run collects its goals: short paths through all of them by cheapest insertion, moves and reversals.

An order is a list of goals, numbered from 0.  ``Lengths`` has the path lengths between them.
"""

from dataclasses import dataclass

import numpy as np

_GAIN = 1e-6  # px, smallest gain that counts


@dataclass(frozen=True, eq=False)
class Lengths:
    """Path lengths in px between the start, n goals and the exit.

    between: float64[n + 1, n + 2].  Row 0: from the start; row i + 1: from goal i.
        Column j: to goal j; column n: to the exit after the exit switch; column n + 1: to the exit via the exit switch.
    switch: goal that is the exit switch; None if the switch is collected or if there are several.
    switch_taken: True if the exit switch is collected at the start.
    """

    between: np.ndarray
    switch: int | None
    switch_taken: bool

    def ends(self, order: list[int]) -> tuple[list[int], list[int]]:
        """Return the rows and columns of ``between`` for the legs of an order, including the last one to the exit."""
        after_switch = self.switch_taken or self.switch in order
        last = self.between.shape[1] - (2 if after_switch else 1)
        return [0, *(goal + 1 for goal in order)], [*order, last]

    def legs(self, order: list[int]) -> np.ndarray:
        """Return float64[len(order) + 1], the length of each leg."""
        return self.between[self.ends(order)]

    def total(self, order: list[int]) -> float:
        """Return the length of the path through goals in this order."""
        return float(self.legs(order).sum())

    def cheapest(self, order: list[int], goals: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Return for each of ``goals``: the smallest length that its insertion adds, and the position in the order."""
        rows, columns = self.ends(order)
        added = self.between[rows][:, goals] + self.between[np.add(goals, 1)][:, columns].T
        added -= self.between[rows, columns][:, None]
        return added.min(axis=0), added.argmin(axis=0)

    def savings(self, order: list[int]) -> np.ndarray:
        """Return float64[len(order)]: the length saved without each goal of the order."""
        rows, columns = self.ends(order)
        legs = self.between[rows, columns]
        return legs[:-1] + legs[1:] - self.between[rows[:-1], columns[1:]]

    def shortest(self, goals: list[int]) -> list[int]:
        """Return a short order of ``goals``, which neither moving one goal nor reversing a part shortens."""
        order: list[int] = []
        for goal in sorted(goals, key=lambda goal: self.between[0, goal]):
            order.insert(int(self.cheapest(order, [goal])[1][0]), goal)
        length = np.inf
        while self.total(order) < length - _GAIN:
            length = self.total(order)
            for goal in goals:
                others = [other for other in order if other != goal]
                position = int(self.cheapest(others, [goal])[1][0])
                order = min(order, [*others[:position], goal, *others[position:]], key=self.total)
            for i in range(len(order) - 1):
                reversals = (order[:i] + order[i:j][::-1] + order[j:] for j in range(i + 2, len(order) + 1))
                order = min(order, *reversals, key=self.total)
        return self.without_last_switch(order)

    def with_switch(self, order: list[int]) -> list[int]:
        """Return the order with the exit switch, at the end if it is missing."""
        return order if self.switch is None or self.switch in order else [*order, self.switch]

    def without_last_switch(self, order: list[int]) -> list[int]:
        """Return the order without the exit switch if it is last, because the path to the exit leads via the switch."""
        return order[:-1] if order and order[-1] == self.switch else order


def changed(order: list[int], rng: np.random.Generator) -> list[int]:
    """Return a random neighbour of an order with at least two goals."""
    i, j = sorted(int(k) for k in rng.choice(len(order) + 1, 2, replace=False))
    if rng.random() < 0.5:
        return order[:i] + order[i:j][::-1] + order[j:]
    moved = order.copy()
    goal = moved.pop(int(rng.integers(len(moved))))
    moved.insert(int(rng.integers(len(moved) + 1)), goal)
    return moved
