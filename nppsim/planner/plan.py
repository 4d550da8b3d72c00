"""Search for a run that finishes a level, guided by the geodesic distance to the exit."""

import numpy as np

from nppsim.bank import LevelBank
from nppsim.levels.level import Level
from nppsim.planner.kernels import SearchParams
from nppsim.planner.search import (
    PlannedRun,
    PlanStart,
    Search,
    beam_search,
    best_first_search,
    check_numbers,
    first_state,
    verified,
)
from nppsim.planner.settings import PlannerSettings

# Penalty per earlier visit of a region in the best-first search, in px, by seed: each value finds runs that others miss.
FILLS = (8.0, 3.0, 20.0)
BEAM_SHARE = 0.3  # fraction of the budget for the beam search; the best-first search gets the rest


def plan(
    level: Level,
    frame_skip: int = PlannerSettings.frame_skip,
    *,
    beam: int = 384,
    budget: int = PlannerSettings.budget,
    seed: int = PlannerSettings.seed,
    start: PlanStart | None = None,
    min_hold: int = PlannerSettings.min_hold,
    noise: float = PlannerSettings.noise,
) -> PlannedRun | None:
    """Find a run that finishes ``level``; None if none was found within ``budget`` simulated frames.

    A beam search uses up to 30 % of the budget; if it fails, a best-first search uses the rest.

    frame_skip: frames (1/60 s) per decision.
    beam: beam width in states; the best-first search expands a quarter of this number of states together.
    start: state to plan from instead of the spawn, e.g. ``PlanStart.of(sim, i)``.  The level's time limit still counts
        from the spawn.
    min_hold: minimum number of decisions per action; the last action may be shorter.
    noise: px, random part of the score of a state.  With larger values, runs of different seeds differ more and are a
        little longer.
    The result is a pure function of the arguments.  The run is verified by playback and wins on its last frame.
    Raises ValueError for numbers out of range, and for a start that is the end of an episode or from another level.
    """
    check_numbers(frame_skip=frame_skip, beam=beam, min_hold=min_hold)
    if not 0.0 <= noise < np.inf:
        raise ValueError(f"noise must be at least 0 px, and finite; got {noise}")
    bank = LevelBank([level])
    rows, first = first_state(bank, start)
    limit = int(bank.time_limit[0])
    max_decisions = (limit - int(first.ninja[0]["frame"])) // frame_skip
    if not bank.reachable[0] or max_decisions < 1:
        return None
    rng = np.random.default_rng(seed)
    params = SearchParams(width=beam, noise=float(noise), fill=0.5, momentum=4.0, min_hold=min_hold)
    search = Search(bank, frame_skip, rows[0], rng, params)
    solution = beam_search(search, max_decisions, int(BEAM_SHARE * budget))
    simulated = search.simulated
    if solution is None and simulated < budget:
        params = SearchParams(
            width=max(beam // 4, 1),
            noise=min(float(noise), 2.0),
            fill=FILLS[seed % len(FILLS)],
            momentum=0.0,
            min_hold=min_hold,
        )
        search = Search(bank, frame_skip, rows[0], rng, params)
        solution = best_first_search(search, limit, budget - simulated)
        simulated += search.simulated
    return None if solution is None else verified(bank, solution, start, simulated)


def par_frames(level: Level) -> int | None:
    """Return the length in frames of the planner's run, or None if it finds no run.

    ``make_level_set`` accepts this function as its argument ``verify``.
    """
    found = plan(level)
    return None if found is None else found.frames
