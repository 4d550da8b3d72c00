"""How a recorded run ends, and why it does not finish its level.

ending = ending_of(level, inputs)
ending.cause, ending.farthest, ending.deadly_from
ending.text()                        # "killed by a mine at (330, 410) after 9.800 s; ..."
"""

from dataclasses import dataclass, replace

import numpy as np

from nppsim.actions import FRAME_SKIP, FRAMES_PER_SECOND
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.decision import State, make_states
from nppsim.levels import kinds
from nppsim.levels.format import TYPE
from nppsim.levels.level import COUNTED, Level
from nppsim.observe import layout
from nppsim.paths import MAX_PATH
from nppsim.physics.outcomes import DIED, NAMES, TIMEOUT, UNFINISHED, WON
from nppsim.replays.diff import remaining_path
from nppsim.simulate import Run, is_active, play_on, simulate

LOOP_SHARE = 0.5  # a time-out without progress in this share of its frames, the last ones, is a LOOP
REACH = 60.0  # px, largest distance of an entity that may have killed the ninja; balls move up to 10 px per frame
PROGRESS = 12.0  # px, smallest progress along the path
STUCK_FRAMES = 120  # without progress at the end of a run, from which they are mentioned
SEARCHED_FRAMES = 240  # frames before a death in which every action may be deadly

# Endings of runs that do not finish.  Deaths caused by an entity have the entity's name.
LOOP = "time-out without progress in its second half"
SLOW = "time-out with progress"
IMPACT = "fall or crush"

_RANGED = (kinds.LASER, *kinds.TURRETS, *kinds.SHOOTING_DRONES)  # entities that kill at a distance
_SOLID = (kinds.THWUMP, kinds.SHOVE_THWUMP)  # entities with solid sides, which ``cause_of_death`` never removes
_DEATH = layout.SPECS["foresight"].components.index("death")


@dataclass(frozen=True)
class Ending:
    """Ending of a run of ``frames`` frames.  Positions of the ninja are (x, y) in px.

    outcome: "won", "died" or "timeout".
    cause: "won", a name of an entity (``kinds.ENTITY_NAMES``), IMPACT, LOOP or SLOW.
    last: last position.
    farthest_frame, farthest: frame from which the path to the exit got shorter by PROGRESS at most, and the position then.
    path_length, covered: length of the path to the exit, and how much shorter it was at its shortest, px.
    deadly_from: number of frames after which every action was deadly, until the death; None if it was not, or for other
        outcomes.
    switch_taken: True if an exit switch was taken.
    """

    outcome: str
    cause: str
    frames: int
    last: tuple[float, float]
    farthest_frame: int
    farthest: tuple[float, float]
    path_length: float
    covered: float
    deadly_from: int | None
    switch_taken: bool

    @property
    def place(self) -> tuple[float, float]:
        """Position that explains the ending: the farthest one for a time-out, otherwise the last one."""
        return self.farthest if self.outcome == NAMES[TIMEOUT] else self.last

    @property
    def share(self) -> float:
        """Covered share of the path, 0 to 1."""
        return self.covered / max(self.path_length, self.covered, 1.0)

    def text(self, backtracks: int = 0) -> str:
        """Say in one sentence why the run is lost; "" for a win.  backtracks: how often the player took decisions back."""
        if self.outcome == NAMES[WON]:
            return ""
        died = self.outcome == NAMES[DIED]
        end = f"killed by {_with_article(self.cause)} at {_place(self.last)} after" if died else "not finished after"
        parts = [f"{end} {_seconds(self.frames)}"]
        if self.deadly_from is not None:
            parts.append(f"every action was deadly from {_seconds(self.deadly_from)} on")
        progress = f"{self.covered:,.0f} of {self.path_length:,.0f} px of the path"
        if self.path_length >= MAX_PATH:
            parts.append("no path leads to the exit")
        elif self.frames - self.farthest_frame >= STUCK_FRAMES:
            parts.append(f"no progress after {_seconds(self.farthest_frame)} at {_place(self.farthest)}, {progress}")
        else:
            parts.append(f"{progress} covered")
        if backtracks:
            parts.append(f"went back {'once' if backtracks == 1 else f'{backtracks} times'}")
        return "; ".join(parts)


def ending_of(level: Level, inputs: np.ndarray) -> Ending:
    """Play a run, uint8[frames], and return its ending.  A run that neither wins nor dies ends with a time-out."""
    bank = LevelBank([level])
    run = simulate(bank, inputs)
    path = np.vstack([[level.spawn], run.position])
    length = float(bank.path_length[0])
    left = np.concatenate([[length], [] if run.won else remaining_path(bank, run)])
    farthest = run.frames if run.won else int((left <= left.min() + PROGRESS).argmax())
    outcome = NAMES[TIMEOUT] if run.outcome == UNFINISHED else run.outcome
    died = outcome == NAMES[DIED]
    switches = run.entity_state[:, run.entities[:, 0] == kinds.EXIT_SWITCH]
    x, y = path[-1].tolist()
    far_x, far_y = path[farthest].tolist()
    loop = LOOP if farthest < (1 - LOOP_SHARE) * run.frames else SLOW
    return Ending(
        outcome=outcome,
        cause=cause_of_death(level, inputs, run) if died else loop if outcome == NAMES[TIMEOUT] else outcome,
        frames=run.frames,
        last=(x, y),
        farthest_frame=farthest,
        farthest=(far_x, far_y),
        path_length=length,
        covered=length if run.won else float(length - left.min()),
        deadly_from=_deadly_from(bank, inputs[: run.frames]) if died else None,
        switch_taken=bool(len(switches) and (is_active(switches[-1]) == 0).any()),
    )


def cause_of_death(level: Level, inputs: np.ndarray, run: Run) -> str:
    """Return the name of the entity type without which the ninja would survive the last frame of ``run``, or IMPACT.

    For each type of hazard near the ninja, the inputs are simulated without the entities of this type.  A thwump within
    reach is the cause if no other type is.  Thwumps are never removed: without solid entities, the path would differ.
    """
    near = _near(run)
    for kind in near:
        if kind not in _SOLID:
            records = level.records[level.records[:, TYPE] != kind]
            without = replace(level, records=records, exit_count=COUNTED, ball_count=COUNTED)
            if simulate(without, inputs).outcome != NAMES[DIED]:
                return kinds.ENTITY_NAMES[kind]
    return next((kinds.ENTITY_NAMES[kind] for kind in near if kind in _SOLID), IMPACT)


def _near(run: Run) -> list[int]:
    """Return the types of the hazards that may have killed the ninja in the last frame, the nearest first."""
    distance = np.hypot(*(run.entity_position[-1] - run.position[-1]).T)
    types = run.entities[:, 0]
    reach = {kind: float(distance[types == kind].min()) for kind in set(types.tolist()) & set(kinds.HAZARDS)}
    limits = {kind: np.inf if kind in _RANGED else 24.0 if kind in _SOLID else REACH for kind in reach}
    return sorted((kind for kind in reach if reach[kind] <= limits[kind]), key=reach.__getitem__)


def _deadly_from(bank: LevelBank, inputs: np.ndarray) -> int | None:
    """Return the number of frames after which look-ahead finds each action deadly, until the death in the last frame.

    Looks at every decision of FRAME_SKIP frames.
    """
    sim = BatchSimulator(bank, 1, observations=("foresight",), threads=1)
    sim.reset()
    rows, state = make_states(1, bank)  # the kernel is compiled for this kind of state, not for that of BatchSimulator
    _copy(sim.state, state)
    first = max(len(inputs) - SEARCHED_FRAMES, 0) // FRAME_SKIP * FRAME_SKIP
    play_on(state, bank.world, inputs[:first].copy())  # a read-only array would compile the kernel again
    states = []
    for frame in range(first, len(inputs), FRAME_SKIP):
        states.append(rows.copy())
        play_on(state, bank.world, inputs[frame : frame + FRAME_SKIP].copy())
    deadly = None
    for number, row in reversed(list(enumerate(states))):
        rows[:] = row
        _copy(state, sim.state)
        death = sim.observe()["foresight"][0, ..., _DEATH]
        if not (death.min(axis=-1) > 0).all():
            break
        deadly = first + FRAME_SKIP * number
    return deadly


def _copy(source: State, target: State) -> None:
    """Copy the simulated part of the only environment."""
    for name in ("ninja", "entities", "movers", "trail"):
        getattr(target, name)[0] = getattr(source, name)[0]


def _with_article(cause: str) -> str:
    return f"{'an' if cause[0] in 'aeiou' else 'a'} {cause}"


def _place(at: tuple[float, float]) -> str:
    return f"({at[0]:.0f}, {at[1]:.0f})"


def _seconds(frames: int) -> str:
    return f"{frames / FRAMES_PER_SECOND:.2f} s"
