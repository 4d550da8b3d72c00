"""Look for a shorter run than one that is known."""

import numpy as np

from nppsim.bank import LevelBank
from nppsim.levels.level import Level
from nppsim.planner.kernels import Taste, play_on
from nppsim.planner.search import (
    PlannedRun,
    PlanStart,
    Search,
    Way,
    beam_search,
    check_numbers,
    confirmed,
    first_state,
    wins,
)
from nppsim.planner.settings import PlannerSettings


def polish(
    level: Level,
    found: PlannedRun,
    frame_skip: int = PlannerSettings.frame_skip,
    *,
    beam: int = 192,
    budget: int = PlannerSettings.budget,
    seed: int = PlannerSettings.seed,
    start: PlanStart | None = None,
    min_hold: int = PlannerSettings.min_hold,
) -> PlannedRun:
    """Look for a shorter run than ``found``; returns the shortest one, never a longer one.

    From the start, and where actions need not be held also from random decisions of the best run so far, beams of one to
    four times ``beam`` states that value speed more or less look for an end that is shorter than the present one, until
    about ``budget`` frames were simulated.
    frame_skip, start, min_hold: those of ``found``.
    The result is a pure function of the arguments.  Raises ValueError if ``found`` does not finish the level from there.
    """
    check_numbers(frame_skip=frame_skip, beam=beam, min_hold=min_hold)
    bank = LevelBank([level])
    if not wins(bank, found.inputs, start):
        raise ValueError("the run to polish does not finish the level on its last frame: give its level and its start")
    rng = np.random.default_rng(seed)
    best, simulated, from_start = Way(found.actions, found.inputs), 0, True
    while simulated < budget:
        cut = 0 if from_start or min_hold > 1 else int(rng.integers(len(best.actions)))
        from_start = not from_start
        before = best.inputs[: cut * frame_skip]
        taste = Taste(
            width=beam << int(rng.integers(3)),
            noise=float(rng.choice([2.0, 12.0])),
            fill=float(rng.choice([0.0, 0.5])),
            momentum=float(rng.choice([0.0, 4.0, 8.0, 16.0])),
            min_hold=min_hold,
        )
        rows, states = first_state(bank, start)
        play_on(states, bank.world, before)
        search = Search(bank, frame_skip, rows[0], rng, taste)
        shorter = len(best.inputs) - len(before) - 1
        end = beam_search(search, -(-shorter // frame_skip), budget - simulated)
        simulated += max(search.simulated, 1)  # a run of one frame leaves nothing to simulate
        if end is not None and len(end.inputs) <= shorter:
            best = Way(np.concatenate([best.actions[:cut], end.actions]), np.concatenate([before, end.inputs]))
    return confirmed(bank, best, start, found.simulated + simulated)
