"""Convert a 60 Hz recording to a similar run with one action per ``frame_skip`` frames that finishes the level."""

from dataclasses import dataclass

import numpy as np

from nppsim.actions import FRAME_SKIP
from nppsim.bank import LevelBank
from nppsim.levels import kinds
from nppsim.planner.kernels import ROUTE, SearchParams
from nppsim.planner.search import Search, beam_search, first_state
from nppsim.replays.replay import Replay
from nppsim.simulate import Run, is_active, simulate

BEAM = 96  # width of the beam, in states
EXTRA_DECISIONS = 12  # decisions by which the converted run may be longer than the recording


@dataclass(frozen=True)
class RetimedReplay:
    """Recording converted to one action per decision.

    actions: int64[decisions].
    inputs: uint8[frames], the actions as one N++ input byte per frame; the last decision may be shorter.
    deviation_px: mean distance of the ninja from its recorded position at the same frame.
    run: playback of the inputs.
    """

    actions: np.ndarray
    inputs: np.ndarray
    deviation_px: float
    run: Run


def retime(
    replay: Replay,
    frame_skip: int = FRAME_SKIP,
    *,
    bank: LevelBank | None = None,
    recorded: Run | None = None,
) -> RetimedReplay | None:
    """Convert a recording to one action per decision.

    Returns None if the recording does not finish the level, or if the search finds no winning run along its route.

    bank: LevelBank that contains only the replay's level; default: a new one.
    recorded: playback of the replay, if the caller has it already.
    """
    bank = bank or LevelBank([replay.level])
    recorded = recorded or simulate(bank, replay.inputs)
    if not recorded.won:
        return None
    first_row, _ = first_state(bank, None)
    params = SearchParams(width=BEAM, noise=0.0, fill=0.0, momentum=0.0, min_hold=1)
    search = Search(bank, frame_skip, first_row[0], np.random.default_rng(0), params, ROUTE)
    max_decisions = recorded.frames // frame_skip + EXTRA_DECISIONS
    solution = beam_search(search, max_decisions, budget=10**12, route=_route(recorded))
    if solution is None:
        return None
    run = simulate(bank, solution.inputs)
    common = min(recorded.frames, run.frames)
    deviation = np.hypot(*(recorded.position[:common] - run.position[:common]).T).mean()
    return RetimedReplay(solution.actions, solution.inputs, float(deviation), run)


def _route(run: Run) -> np.ndarray:
    """Return float64[frames, 5]: x, y, vx, vy and whether the exit switch is collected, after each frame."""
    collected = np.zeros(run.frames)
    for switch in np.flatnonzero(run.entities[:, 0] == kinds.EXIT_SWITCH):
        collected = np.maximum(collected, 1 - is_active(run.entity_state[:, switch]))
    return np.column_stack([run.position, run.velocity, collected])
