"""Search for a run that finishes a level, guided by the geodesic distance to the exit, and for gold."""

import numpy as np

from nppsim.actions import FRAME_SKIP
from nppsim.bank import GAME_TIME, LevelBank
from nppsim.levels.level import Level
from nppsim.planner.gold import better_runs, check_objective
from nppsim.planner.kernels import SearchParams
from nppsim.planner.search import (
    BestFirst,
    PlannedRun,
    PlanStart,
    Search,
    beam_search,
    first_state,
    verified,
)
from nppsim.planner.settings import TIME, PlannerSettings

# Penalty per earlier visit of a region in the best-first search, in px, by seed: each value finds runs that others miss.
FILLS = (8.0, 3.0, 20.0)
BEAM = 384  # width of the beam, in states
BEAM_SHARE = 0.3  # fraction of the budget for the beam search; the best-first search gets the rest
STEP = 50_000  # frames between two measurements of progress in ``first_run``
PROGRESS = 1.0  # px, smallest progress
# Parameters of the best-first search.
BEST_FIRST = SearchParams(width=1, noise=2.0, fill=FILLS[0], momentum=0.0, min_hold=1, time_cost=0.8)


def plan(
    level: Level,
    frame_skip: int = PlannerSettings.frame_skip,
    *,
    objective: str = TIME,
    budget: int = PlannerSettings.budget,
    seed: int = PlannerSettings.seed,
    start: PlanStart | None = None,
    min_hold: int = PlannerSettings.min_hold,
    noise: float = PlannerSettings.noise,
) -> PlannedRun | None:
    """Find a run that finishes ``level``; None if none was found within ``budget`` simulated frames.

    A beam search uses up to 30 % of the budget; if it fails, a best-first search uses the rest.  With the objectives
    "score" and "all-gold", ``gold.better_runs`` uses what is left of the budget to improve the run.

    frame_skip: frames (1/60 s) per decision.
    objective: "time": a fast run.  "score": a run with a high score, 90 s + 2 s per piece of gold - time.
        "all-gold": a run with as much gold as the search can collect.
    start: state to plan from instead of the spawn, e.g. ``PlanStart.of(sim, i)``.  The time limit (that of an episode, at
        least 90 s) and the score still count from the spawn.
    min_hold: minimum number of decisions per action; the last action may be shorter.
    noise: px, random part of the score of a state.  With larger values, runs of different seeds differ more and are a
        little longer.
    The result is a pure function of the arguments.  The run is verified by playback and wins on its last frame.
    Raises ValueError for an unknown objective, numbers out of range, and a start that is the end of an episode or from
    another level.
    """
    check_objective(objective)
    settings = PlannerSettings(frame_skip=frame_skip, seed=seed, min_hold=min_hold, noise=noise)
    run = _fast_run(level, settings, budget, start)
    if run is None or objective == TIME:
        return run
    left = budget - run.simulated
    *_, best = better_runs(level, run, objective, frame_skip, budget=left, seed=seed, start=start, min_hold=min_hold)
    return best


def _fast_run(level: Level, settings: PlannerSettings, budget: int, start: PlanStart | None) -> PlannedRun | None:
    """Find a run for the objective "time" (see ``plan``)."""
    frame_skip, min_hold = settings.frame_skip, settings.min_hold
    bank = LevelBank([level], least_time=GAME_TIME)
    rows, first = first_state(bank, start)
    limit = int(bank.time_limit[0])
    max_decisions = (limit - int(first.ninja[0]["frame"])) // frame_skip
    if not bank.reachable[0] or max_decisions < 1:
        return None
    rng = np.random.default_rng(settings.seed)
    params = SearchParams(width=BEAM, noise=float(settings.noise), fill=0.5, momentum=4.0, min_hold=min_hold)
    search = Search(bank, frame_skip, rows[0], rng, params)
    solution = beam_search(search, max_decisions, int(BEAM_SHARE * budget))
    simulated = search.simulated
    if solution is None and simulated < budget:
        params = BEST_FIRST._replace(
            noise=min(float(settings.noise), BEST_FIRST.noise),
            fill=FILLS[settings.seed % len(FILLS)],
            min_hold=min_hold,
        )
        best_first = BestFirst(bank, frame_skip, rows[0], rng, params, limit)
        solution = best_first.advance(budget - simulated)
        simulated += best_first.simulated
    return None if solution is None else verified(bank, solution, start, simulated)


def first_run(level: Level, budget: int, patience: int) -> PlannedRun | None:
    """Find some run that finishes ``level`` from the spawn, by best-first search alone; None if none was found.

    On long levels it finds as many runs as ``plan`` with fewer simulated frames.

    budget: maximum number of simulated frames.
    patience: number of simulated frames without a shorter remaining path (``PROGRESS``) after which the search ends.
    """
    bank = LevelBank([level], least_time=GAME_TIME)
    rows, _ = first_state(bank, None)
    if not bank.reachable[0]:
        return None
    limit = int(bank.time_limit[0])
    search = BestFirst(bank, FRAME_SKIP, rows[0], np.random.default_rng(0), BEST_FIRST, limit)
    shortest, since = np.inf, 0
    while search.simulated < budget and search.simulated - since < patience and not search.is_exhausted:
        solution = search.advance(min(STEP, budget - search.simulated))
        if solution is not None:
            return verified(bank, solution, None, search.simulated)
        if (path := search.shortest_path()) < shortest - PROGRESS:
            shortest, since = path, search.simulated
    return None


def par_frames(level: Level, budget: int = PlannerSettings.budget) -> int | None:
    """Return the length in frames of the planner's run, or None if it finds no run within ``budget`` simulated frames.

    ``make_level_set`` accepts this function as its argument ``verify``.
    """
    run = plan(level, budget=budget)
    return None if run is None else run.frames
