"""Search for better runs than a known one: shorter ones, or ones with a higher score or more gold.

For gold, this is a local search over the order in which a run collects goals.

Goals are pieces of gold and, on levels with one exit, the exit switch.  Each step changes the order of the best run so
far: it adds, drops or moves goals.  A beam search then plays the new order from the first change to the exit (``sequence``).
Runs are compared by what they collect and how long they take, not by path lengths.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nppsim.actions import FRAMES_PER_SECOND
from nppsim.bank import LevelBank
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.paths import MAX_PATH
from nppsim.planner.goal_sequence import make_sequence, path_lengths, with_goals
from nppsim.planner.kernels import PATH, SearchParams
from nppsim.planner.order import Lengths, changed
from nppsim.planner.search import (
    PlannedRun,
    PlanStart,
    Search,
    WinningRun,
    beam_search,
    final_gold,
    first_state,
    verified,
)
from nppsim.planner.settings import ALL_GOLD, LOW_GOLD, OBJECTIVES, SCORE, TIME, PlannerSettings
from nppsim.replays.score import GOLD_S, START_S
from nppsim.simulate import play_on

FRAMES_PER_GOLD = GOLD_S * FRAMES_PER_SECOND
WIDTHS = (64, 128, 192)  # widths of the beams that collect gold, in states
SHORTENING_WIDTHS = (192, 384, 768)  # widths of the beams that search for a shorter run
FIRST_WIDTH = 128  # width of beams that play an order from the start
PATIENCE = 240  # frames without progress after which a beam that collects gold ends
SLACK = 16  # maximum number of decisions by which a beam begins before the first change of an order
DRAFTS, DRAFT_SHARE = 6, 0.3  # maximum number of orders played from the start; fraction of the budget for them
NEAR = 0.5  # further gold is added together with a piece if its detour costs less than this fraction of its worth
MIN_WORTH = 0.6  # a detour is tried if the gold is worth at least this fraction of its estimated frames


def rank(objective: str, frames: int, gold: int) -> tuple[int, int]:
    """Return the rank of a run under an objective; lower is better."""
    if objective in (ALL_GOLD, LOW_GOLD):
        return -gold if objective == ALL_GOLD else gold, frames
    return frames - (FRAMES_PER_GOLD * gold if objective == SCORE else 0), frames


def clock_frames(gold: int) -> int:
    """Return the frames after which the game's clock is at 0, if a run collects ``gold`` pieces."""
    return START_S * FRAMES_PER_SECOND + FRAMES_PER_GOLD * gold


def gold_in_level(level: Level) -> int:
    """Return the number of pieces of gold in a level."""
    return int(np.count_nonzero(level.records[:, 0] == kinds.GOLD))


def better_runs(
    level: Level,
    found: PlannedRun,
    objective: str,
    frame_skip: int = PlannerSettings.frame_skip,
    *,
    budget: int = PlannerSettings.budget,
    seed: int = PlannerSettings.seed,
    start: PlanStart | None = None,
    min_hold: int = PlannerSettings.min_hold,
) -> Iterator[PlannedRun]:
    """Yield the best run so far after each step of a search that begins with the run ``found``; each is verified.

    objective: "time", "score" or "all-gold"; with the last two, only ``found`` is yielded on a level without gold.
    budget: number of frames to simulate in addition to ``found.simulated``.
    frame_skip, start, min_hold: the arguments with which ``found`` was found.
    The runs are a pure function of the arguments.  Raises ValueError if ``found`` does not finish the level.
    """
    check_objective(objective)
    settings = PlannerSettings(frame_skip=frame_skip, seed=seed, min_hold=min_hold)
    bank = LevelBank([level])
    found = replace(found, inputs=np.array(found.inputs, np.uint8))  # Numba compiles again for a read-only array
    if final_gold(bank, found.inputs, start) is None:
        raise ValueError("the run does not finish the level on its last frame; pass the level and start of this run")
    search = _RunSearch(bank, found, objective, settings, start)
    yield search.verified()
    if not search.gold and objective != TIME:
        return
    search.budget = budget
    for _ in search.draft() if objective != TIME and budget > 0 else ():
        yield search.verified()
    while search.left:
        search.step()
        yield search.verified()


def check_objective(objective: str) -> None:
    """Raise ValueError for an unknown objective."""
    if objective not in OBJECTIVES:
        raise ValueError(f"unknown objective {objective!r}; give one of {', '.join(OBJECTIVES)}")


class _RunSearch:
    """Best run so far, and the search that improves it.

    goals: int64[n], entities to collect, counted from the level's first entity; none for the objective "time".  Orders
        contain indices of ``goals``.
    gold: indices of the goals that are gold.
    order: goals that the best run collects, in this order.  arrivals: decisions before each of them.
    failures: int64[n], number of beams that have failed on the way to each goal.
    """

    def __init__(
        self,
        bank: LevelBank,
        found: PlannedRun,
        objective: str,
        settings: PlannerSettings,
        start: PlanStart | None,
    ):
        self.bank, self.objective, self.start = bank, objective, start
        self.rng = np.random.default_rng(settings.seed)
        self.frame_skip, self.min_hold = settings.frame_skip, settings.min_hold
        self.found_simulated, self.simulated, self.budget = found.simulated, 0, 0
        self.from_start = False  # True if the last beam of the objective "time" began at the start
        self.sequence = make_sequence(bank)
        self._set_goals()
        self.failures = np.zeros(len(self.goals), np.int64)
        self._set_best(WinningRun(found.actions, found.inputs))

    @property
    def left(self) -> int:
        """Number of frames that may be simulated."""
        return max(self.budget - self.simulated, 0)

    def verified(self) -> PlannedRun:
        """Return the best run."""
        return verified(self.bank, self.best, self.start, self.found_simulated + self.simulated)

    def _set_goals(self) -> None:
        """Choose the goals, which have a path from the start, and compute the path lengths between them."""
        _, states = first_state(self.bank, self.start)
        ninja, entities, world = states.ninja[0], states.entities[0], self.bank.world
        self.first_frame, self.first_gold = int(ninja["frame"]), int(ninja["gold"])
        count = int(world.level[0]["entity_end"])
        types, active = world.entity["type"][:count], entities["active"][:count] != 0
        switches = np.flatnonzero((types == kinds.EXIT_SWITCH) & active)
        one_exit = np.count_nonzero(types == kinds.EXIT) == 1
        goals = np.flatnonzero((types == kinds.GOLD) & active)
        goals = np.concatenate([goals, switches[:1] if one_exit else switches[:0]]).astype(np.int64)
        goals = goals[:0] if self.objective == TIME else goals
        xy = np.column_stack([world.entity["x"][goals], world.entity["y"][goals]])
        points = np.vstack([[float(ninja["x"]), float(ninja["y"])], xy])
        sequence = with_goals(self.sequence, goals, np.zeros(len(goals)))
        between = np.empty((len(goals) + 2, len(points)))
        for leg in range(len(goals)):
            path_lengths(leg, states, world, sequence, points, between[leg])
        before = int(ninja["switch_taken"])
        for row, taken in ((len(goals), 1), (len(goals) + 1, before)):
            ninja["switch_taken"] = taken
            path_lengths(len(goals), states, world, sequence, points, between[row])
        reached = np.flatnonzero(between[: len(goals), 0] < MAX_PATH)
        between = between[np.append(reached, [len(goals), len(goals) + 1])].T[np.append(0, reached + 1)]
        self.goals = goals[reached]
        self.gold = [i for i in range(len(self.goals)) if types[self.goals[i]] == kinds.GOLD]
        others = [i for i in range(len(self.goals)) if i not in self.gold]
        self.lengths = Lengths(np.ascontiguousarray(between), others[0] if others else None, bool(before))

    def _set_best(self, run: WinningRun) -> None:
        """Set the best run, and find out when it collects which goals."""
        self.best = run
        _, states = first_state(self.bank, self.start)
        taken = np.zeros(len(self.goals), bool)
        self.order: list[int] = []
        self.arrivals: list[int] = []
        for decision in range(len(run.actions)):
            play_on(states, self.bank.world, run.inputs[decision * self.frame_skip : (decision + 1) * self.frame_skip])
            new = np.flatnonzero((states.entities[0]["active"][self.goals] == 0) & ~taken)
            taken[new] = True
            self.order += new.tolist()
            self.arrivals += [decision] * len(new)
        self.best_gold = int(states.ninja[0]["gold"])
        self.pace = len(run.inputs) / max(self.lengths.total(self.order), 1.0)  # frames per px

    def _clock(self, gold: int) -> int:
        """Return the frames from the start after which the game's clock is at 0, if a run collects ``gold`` pieces."""
        return clock_frames(gold) - self.first_frame

    def _most_frames(self, order: list[int]) -> int:
        """Return the length of the longest run that collects the goals of an order and is better than the best run."""
        if self.objective == TIME:
            return len(self.best.inputs) - 1
        gold = self.first_gold + sum(goal in self.gold for goal in order)
        most = self._clock(gold)
        if self.objective == SCORE:
            most = min(most, len(self.best.inputs) + FRAMES_PER_GOLD * (gold - self.best_gold) - 1)
        elif gold <= self.best_gold:
            most = min(most, len(self.best.inputs) - 1)
        return most

    def play(self, order: list[int], cut: int, most_frames: int, params: SearchParams) -> int | WinningRun:
        """Search for a run along an order that begins with ``cut`` decisions of the best run.

        Returns the run, which becomes the best run if it is better, or the number of goals that the search has reached.
        """
        before = self.best.inputs[: cut * self.frame_skip]
        rows, states = first_state(self.bank, self.start)
        play_on(states, self.bank.world, before)
        sequence = with_goals(self.sequence, self.goals[order], self.lengths.legs(order)[1:])
        search = Search(self.bank, self.frame_skip, rows[0], self.rng, params, PATH, sequence)
        decisions = -(-(most_frames - len(before)) // self.frame_skip)
        patience = None if self.objective == TIME else -(-PATIENCE // self.frame_skip)
        end = beam_search(search, decisions, self.left, patience=patience)
        self.simulated += max(search.simulated, 1)
        if end is None:
            return search.leg
        run = WinningRun(np.concatenate([self.best.actions[:cut], end.actions]), np.concatenate([before, end.inputs]))
        gold = final_gold(self.bank, run.inputs, self.start)
        assert gold is not None
        now = rank(self.objective, len(self.best.inputs), self.best_gold)
        in_time = self.objective == TIME or len(run.inputs) <= self._clock(gold)
        if in_time and rank(self.objective, len(run.inputs), gold) < now:
            self._set_best(run)
        return run

    def draft(self) -> Iterator[None]:
        """Play orders from the start, each without the goals that earlier beams failed to reach."""
        wanted = self.lengths.with_switch([*self.gold] if self.objective == ALL_GOLD else self._worthwhile())
        for turn in range(DRAFTS):
            order = self.lengths.shortest(wanted)
            if self.simulated > DRAFT_SHARE * self.budget or (turn and not order):
                return
            most = self._clock(self.first_gold + sum(goal in self.gold for goal in order))
            params = SearchParams(FIRST_WIDTH, noise=12.0, fill=0.5, momentum=4.0, min_hold=self.min_hold)
            reached = self.play(order, 0, most, params)
            yield
            if isinstance(reached, WinningRun) or not order:
                return
            failed = order[min(reached, len(order) - 1)]
            self.failures[failed] += 1
            wanted = [goal for goal in self.lengths.with_switch(order) if goal != failed]

    def _worthwhile(self) -> list[int]:
        """Return a short order of all goals, without gold whose estimated detour costs more than it is worth."""
        order = self.lengths.with_switch(self.lengths.shortest(self.lengths.with_switch([*self.gold])))
        while len(order) > 1:
            saved = np.where(np.isin(order, self.gold), self.lengths.savings(order), -np.inf)
            worst = int(saved.argmax())
            if saved[worst] * self.pace <= FRAMES_PER_GOLD:
                break
            del order[worst]
        return order

    def step(self) -> None:
        """Change the order of the best run and play it from the change, or play the same order from a random decision.

        For the objective "time", every second run is played from the start.
        """
        moves = [self._shorten]
        if self.objective != TIME:
            moves += [self._add, self._reorder] + ([self._drop] if self.objective == SCORE else [])
        order, added = moves[int(self.rng.integers(len(moves)))]()
        order = self.lengths.without_last_switch(order)
        self.from_start = self.objective == TIME and not self.from_start
        common = next((i for i, (a, b) in enumerate(zip(order, self.order, strict=False)) if a != b),
                      min(len(order), len(self.order)))  # fmt: skip
        if self.from_start or self.min_hold > 1:
            cut = 0
        elif order == self.lengths.without_last_switch(self.order):
            cut = int(self.rng.integers(len(self.best.actions)))
        else:
            cut = max((self.arrivals[common - 1] if common else 0) - int(self.rng.integers(SLACK)), 0)
        params = SearchParams(
            width=int(self.rng.choice(SHORTENING_WIDTHS if self.objective == TIME else WIDTHS)),
            noise=float(self.rng.choice([2.0, 12.0])),
            fill=float(self.rng.choice([0.0, 0.5])),
            momentum=float(self.rng.choice([0.0, 4.0, 8.0, 16.0])),
            min_hold=self.min_hold,
        )
        played = self.play(order, cut, self._most_frames(order), params)
        if added is not None and not isinstance(played, WinningRun):
            self.failures[added] += 1

    def _shorten(self) -> tuple[list[int], int | None]:
        return self.order, None

    def _add(self) -> tuple[list[int], int | None]:
        """Insert gold: a piece with few failures and a short detour, and at random also the pieces near it."""
        before = order = self.lengths.with_switch(self.order)
        missing = [goal for goal in self.gold if goal not in order]
        if not missing:
            return self.order, None
        added, positions = self.lengths.cheapest(order, missing)
        ranked = sorted(range(len(missing)), key=lambda i: (self.failures[missing[i]], added[i]))
        i = ranked[min(int(self.rng.geometric(0.5)) - 1, len(ranked) - 1)]
        first = missing[i]
        near = NEAR * FRAMES_PER_GOLD / self.pace if self.rng.random() < 0.5 else 0.0
        while True:
            order = [*order[: positions[i]], missing[i], *order[positions[i] :]]
            missing = [goal for goal in missing if goal not in order]
            if not missing:
                break
            added, positions = self.lengths.cheapest(order, missing)
            i = int(added.argmin())
            if added[i] >= near:
                break
        detour = self.pace * (self.lengths.total(order) - self.lengths.total(before))
        if self.objective == SCORE and MIN_WORTH * detour > FRAMES_PER_GOLD * (len(order) - len(before)):
            return self.order, None
        return order, first

    def _drop(self) -> tuple[list[int], int | None]:
        """Leave out gold with a long detour, at random several pieces in a row."""
        dropped = [i for i, goal in enumerate(self.order) if goal in self.gold]
        if not dropped:
            return self.order, None
        saved = self.lengths.savings(self.order)
        dropped.sort(key=lambda i: -saved[i])
        first = dropped[min(int(self.rng.geometric(0.5)) - 1, len(dropped) - 1)]
        end = first + int(self.rng.geometric(0.5))
        return [g for i, g in enumerate(self.order) if not first <= i < end or g not in self.gold], None

    def _reorder(self) -> tuple[list[int], int | None]:
        """Change the order at random, to the shortest of several orders."""
        order = self.lengths.with_switch(self.order)
        if len(order) < 2:
            return self.order, None
        others = [other for other in (changed(order, self.rng) for _ in range(8)) if other != order]
        return min(others, key=self.lengths.total, default=order), None
