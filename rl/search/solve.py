"""Solve one level: policy-guided searches, then the planner's, then a search for shorter runs or for more gold.

solution = solve(level, GuidePolicy.load(path), SolveSettings())
solution.run.inputs, solution.found_by
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nppsim.levels.level import Level
from nppsim.parallel.workers import usable_cores
from nppsim.planner import PlannedRun, better_runs
from nppsim.planner.plan import BEST_FIRST
from nppsim.planner.search import BestFirst, WinningRun, first_state, verified
from nppsim.planner.settings import OBJECTIVE_HELP, OBJECTIVES, TIME, PlannerSettings
from nppsim.settings import check_settings, setting
from rl.search.guided_search import BeamSettings, FrameBudget, GuidedSearch, GuidePolicy

PLANNER = "planner"  # name of the best-first searches of the planner
EPISODES = "episodes"  # name of the search by sampled episodes of the agent
# Guided searches, made in this order until one finds a run: (name, number of states or episodes).
ATTEMPTS = (("agent", 1), ("beam of 4", 4), (EPISODES, 16), ("beam of 16", 16))
# Parameters of the best-first searches of the planner, which run in parallel if all guided searches fail.
PLANNER_PARAMS = (BEST_FIRST._replace(min_hold=2), BEST_FIRST)
FRAMES_PER_TURN = 200_000  # frames that each of them simulates before their results are compared
UNLIMITED = 10**12  # budget in frames of searches with a time limit
GUIDED_FRAMES = 200_000  # maximum frames for guided beams that search for shorter runs; the planner gets the rest
# Parameters of beams that search for shorter runs: these first, then random combinations of the values below.
FIRST_BEAMS = (BeamSettings(64), BeamSettings(64, cost_weight=0.0))
WIDTHS = (16, 32, 64, 128)
BRANCHINGS = (2, 3)
SPEED_WEIGHTS = (0.0, 4.0, 8.0)
COST_WEIGHTS = (0.0, 5.0, 10.0)
NOISES = (2.0, 12.0)


@dataclass(frozen=True)
class SolveSettings:
    """Objective and budget of the search."""

    objective: str = setting(TIME, OBJECTIVE_HELP, flag="objective", choices=OBJECTIVES)
    budget: int | None = setting(
        None,
        "largest number of simulated frames per level to find a run; what is left is used to collect gold; default: "
        f"{PlannerSettings.budget:,}, unlimited with --seconds",
        flag="budget",
        low=1,
    )
    polish: int = setting(
        200_000, "largest number of additional frames per level to shorten the run", flag="polish", low=0
    )
    seconds: float | None = setting(
        None,
        "time limit per level in seconds; makes results depend on the speed of the machine",
        flag="seconds",
        above=0,
    )
    seed: int = setting(0, "random seed of the search", flag="seed", aliases=("seeds",), low=0)

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def frames(self) -> int:
        """Largest number of simulated frames to find a run."""
        return self.budget or (PlannerSettings.budget if self.seconds is None else UNLIMITED)


@dataclass(frozen=True)
class Solution:
    """Result for a level."""

    run: PlannedRun | None  # best run, or None
    objective: str
    found_by: str  # name in ATTEMPTS, or PLANNER; "" without a run
    first_frames: int | None  # length of the first run that was found, or None
    finding: int  # number of frames simulated to find a run
    shortening: int  # number of frames simulated to shorten the run
    collecting: int  # number of frames simulated for more gold or a higher score
    evaluated: int  # number of states evaluated by the policy
    foreseen: int  # upper bound of the frames simulated for the observation ``foresight``, which are not counted above


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a run was being improved; ``solution`` has the best run so far."""

    def __init__(self, solution: Solution):
        super().__init__()
        self.solution = solution


def solve(
    level: Level, agent: GuidePolicy, settings: SolveSettings, *, bar: Any = None, threads: int | None = None
) -> Solution:
    """Find a run that finishes ``level``, then shorten it, and improve it for the objective.

    bar: progress bar (``nppsim.io.progress``), or None.
    threads: number of threads of the simulator; None: all usable cores.
    Without ``settings.seconds`` the result depends only on level, agent and settings.
    Raises Interrupted if Ctrl-C is pressed after a run was found.
    """
    until = None if settings.seconds is None else time.monotonic() + settings.seconds
    search = GuidedSearch(level, agent, np.random.default_rng(settings.seed), threads)
    finding = FrameBudget(settings.frames, until, _stage(bar, "searching", settings.frames))
    first, found_by = _find(search, level, settings, finding) if search.bank.reachable[0] else (None, "")
    if first is None:
        evaluated = search.evaluated, search.evaluated * agent.foreseen
        return Solution(None, settings.objective, "", None, finding.simulated, 0, 0, *evaluated)
    title = f"shortening {len(first.inputs)} frames"
    shortening = FrameBudget(settings.polish, until, _stage(bar, title, settings.polish))

    def solution(run: PlannedRun) -> Solution:
        simulated = finding.simulated, shortening.simulated, max(run.simulated - shortening.simulated, 0)
        evaluated = search.evaluated, search.evaluated * agent.foreseen
        return Solution(run, settings.objective, found_by, len(first.inputs), *simulated, *evaluated)

    run = verified(search.bank, first, None, 0)
    try:
        for shorter in _shorter_runs(search, first, shortening.part(GUIDED_FRAMES)):
            run = verified(search.bank, shorter, None, shortening.simulated)
        run = replace(run, simulated=shortening.simulated)
        for better in _better_runs(level, run, TIME, agent.frame_skip, settings.seed, shortening):
            run = better
        if settings.objective != TIME:
            collecting = FrameBudget(finding.left, until, _stage(bar, "collecting gold", finding.left))
            for better in _better_runs(level, run, settings.objective, agent.frame_skip, settings.seed, collecting):
                run = better
    except KeyboardInterrupt:
        raise Interrupted(solution(run)) from None
    return solution(run)


def _better_runs(
    level: Level, run: PlannedRun, objective: str, frame_skip: int, seed: int, budget: FrameBudget
) -> Iterator[PlannedRun]:
    """Yield runs that are better and better for the objective, within the budget."""
    simulated = run.simulated
    if not budget.left:
        return
    for better in better_runs(level, run, objective, frame_skip, budget=budget.left, seed=seed):
        budget.spend(better.simulated - simulated)
        simulated = better.simulated
        yield better
        if not budget.left:
            return


def _stage(bar: Any, title: str, frames: int) -> Callable[[int], object]:
    """Start a stage of a progress bar; return its update function."""
    if bar is None:
        return lambda frames: None
    bar.set_description(title)
    bar.reset()
    bar.total = frames if frames < UNLIMITED // 2 else None  # also for what is left of an unlimited budget
    return bar.update


def _find(
    search: GuidedSearch, level: Level, settings: SolveSettings, budget: FrameBudget
) -> tuple[WinningRun | None, str]:
    """Find the first run; return it and the name of the search that found it, or (None, "")."""
    for name, width in ATTEMPTS:
        if name == EPISODES:
            winning_run = search.episodes(width, settings.seed, budget)
        else:
            beam = BeamSettings(width, branching=min(width, BeamSettings._field_defaults["branching"]))
            winning_run = search.beam(beam, budget)
        if winning_run is not None:
            return winning_run, name
    planned = _planned(search, settings.seed, budget)
    return planned, PLANNER if planned else ""


def _planned(search: GuidedSearch, seed: int, budget: FrameBudget) -> WinningRun | None:
    """Return a run that one of the planner's best-first searches finds, or None.

    The searches run in parallel threads, and begin again with another seed when all have ended.
    """
    bank, frame_skip, limit = search.bank, search.agent.frame_skip, search.time_limit
    first_row = first_state(bank, None)[0][0]
    searches: list[BestFirst] = []
    with ThreadPoolExecutor(min(len(PLANNER_PARAMS), search.threads or usable_cores())) as pool:
        while budget.left:
            if all(one.is_exhausted for one in searches):
                rngs = [np.random.default_rng(seed) for _ in PLANNER_PARAMS]
                searches = [
                    BestFirst(bank, frame_skip, first_row, rng, params, limit)
                    for rng, params in zip(rngs, PLANNER_PARAMS, strict=True)
                ]
                seed += 1
            frames = min(FRAMES_PER_TURN, budget.left // len(searches) + 1)
            before = sum(one.simulated for one in searches)
            runs = [run for run in pool.map(BestFirst.advance, searches, [frames] * len(searches)) if run is not None]
            budget.spend(sum(one.simulated for one in searches) - before)
            if runs:
                return min(runs, key=lambda run: len(run.inputs))
    return None


def _shorter_runs(search: GuidedSearch, best: WinningRun, budget: FrameBudget) -> Iterator[WinningRun]:
    """Yield successively shorter runs.

    They are found by guided beams that start at the initial state or at a random decision of the shortest run so far.
    """
    states = None
    for turn in range(budget.left):  # enough turns: each beam simulates at least one frame
        if not budget.left:
            break
        if states is None:
            states = search.states_along(best.actions, budget)
        known = turn < len(FIRST_BEAMS)
        cut = 0 if known or turn % 2 == 0 else int(search.rng.integers(len(best.actions)))
        beam = FIRST_BEAMS[turn] if known else _random_beam(search.rng)
        end = search.beam(beam, budget, len(best.inputs) - 1, states[cut])
        if end is not None:
            before = best.inputs[: cut * search.agent.frame_skip]
            best = WinningRun(np.concatenate([best.actions[:cut], end.actions]), np.concatenate([before, end.inputs]))
            states = None
            yield best


def _random_beam(rng: np.random.Generator) -> BeamSettings:
    return BeamSettings(
        *(rng.choice(values).item() for values in (WIDTHS, BRANCHINGS, SPEED_WEIGHTS, COST_WEIGHTS, NOISES))
    )
