"""Search for a run that is shorter than a known one."""

import numpy as np

from nppsim.bank import LevelBank
from nppsim.levels.level import Level
from nppsim.planner.kernels import SearchParams
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
from nppsim.planner.settings import PlannerSettings
from nppsim.simulate import play_on

BEAM = 192  # smallest width of a beam, in states


def polish(
    level: Level,
    found: PlannedRun,
    frame_skip: int = PlannerSettings.frame_skip,
    *,
    budget: int = PlannerSettings.budget,
    seed: int = PlannerSettings.seed,
    start: PlanStart | None = None,
    min_hold: int = PlannerSettings.min_hold,
) -> PlannedRun:
    """Search for a shorter run than ``found``; return the shortest run, never a longer one.

    Repeats beam searches until about ``budget`` frames were simulated.  If ``min_hold`` is 1, every second search begins at
    a random decision of the best run so far.  Each search has a random width (one, two or four times BEAM) and
    random weights of the parts of a state's score: noise, visits of its region, and the ninja's speed.

    found: run to shorten, e.g. the result of ``plan``.
    frame_skip, start, min_hold: the arguments with which ``plan`` found the run.
    The result is a pure function of the arguments.  Raises ValueError if ``found`` does not finish the level.
    """
    PlannerSettings(frame_skip=frame_skip, min_hold=min_hold)  # checks the numbers
    bank = LevelBank([level])
    if final_gold(bank, found.inputs, start) is None:
        raise ValueError("the run does not finish the level on its last frame; pass the level and start of this run")
    rng = np.random.default_rng(seed)
    best, simulated, from_start = WinningRun(found.actions, found.inputs), 0, True
    while simulated < budget:
        cut = 0 if from_start or min_hold > 1 else int(rng.integers(len(best.actions)))
        from_start = not from_start
        before = best.inputs[: cut * frame_skip]
        params = SearchParams(
            width=BEAM << int(rng.integers(3)),
            noise=float(rng.choice([2.0, 12.0])),
            fill=float(rng.choice([0.0, 0.5])),
            momentum=float(rng.choice([0.0, 4.0, 8.0, 16.0])),
            min_hold=min_hold,
        )
        rows, states = first_state(bank, start)
        play_on(states, bank.world, before)
        search = Search(bank, frame_skip, rows[0], rng, params)
        shorter = len(best.inputs) - len(before) - 1
        end = beam_search(search, -(-shorter // frame_skip), budget - simulated)
        simulated += max(search.simulated, 1)  # at least 1, so that the loop ends for a run of one frame
        if end is not None and len(end.inputs) <= shorter:
            best = WinningRun(np.concatenate([best.actions[:cut], end.actions]), np.concatenate([before, end.inputs]))
    return verified(bank, best, start, found.simulated + simulated)
