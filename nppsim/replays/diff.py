"""Compare two runs of one level: first differences, and frames gained along the path to the exit."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from nppsim import paths
from nppsim.bank import LevelBank
from nppsim.io.files import table
from nppsim.levels.kinds import EXIT, EXIT_SWITCH
from nppsim.paths import MAX_PATH
from nppsim.physics.outcomes import DIED, NAMES, UNFINISHED, WON
from nppsim.replays.replay import Replay, ReplayError
from nppsim.replays.score import score, time_text
from nppsim.simulate import Run, is_active, is_closed, simulate

APART_PX = 1.0  # distance of the ninjas above which the positions differ


@dataclass(frozen=True)
class Milestone:
    """A milestone on the path to the exit.

    remaining_px: path length from the milestone to the exit.
    frame_a, frame_b: frame in which each run reaches the milestone; None if it does not.
    lead: frames by which A is ahead of B (negative: behind); None if a run does not reach the milestone.
    """

    remaining_px: float
    frame_a: int | None
    frame_b: int | None
    lead: int | None


@dataclass(frozen=True)
class RunDifference:
    """Difference between runs A and B; frames count from 1.

    inputs_part: first frame whose inputs differ, None if all are equal.
    positions_part: first frame at whose end the ninjas are more than APART_PX apart, None if there is none.
    frames, outcomes, scores: (A, B), see ``Run`` and ``nppsim.replays.score``; no score for a run that does not finish.
    marks: milestones; the last one is the exit, at the frame of the win.  Empty if the exit is unreachable.
    total: frames by which A finishes before B (negative: after); None unless both finish.
    """

    inputs_part: int | None
    positions_part: int | None
    frames: tuple[int, int]
    outcomes: tuple[str, str]
    scores: tuple[float | None, float | None]
    marks: tuple[Milestone, ...]
    total: int | None


def compare_replays(a: Replay, b: Replay, sections: int = 10) -> tuple[RunDifference, Run, Run]:
    """Play two replays of the same level and compare them; return the difference and both runs.

    sections: number of milestones, at equal distances along the path.
    Raises ReplayError if the levels differ.
    """
    if a.level != b.level:
        raise ReplayError(
            f"{a.name or 'A'} and {b.name or 'B'} were recorded on different levels; compare runs of the same level"
        )
    if sections < 1:
        raise ReplayError(f"sections={sections}; expected at least 1")
    bank = LevelBank([a.level])
    run_a, run_b = (simulate(bank, replay.inputs) for replay in (a, b))
    common = min(run_a.frames, run_b.frames)
    apart = np.hypot(*(run_a.position[:common] - run_b.position[:common]).T) > APART_PX
    both_won = run_a.won and run_b.won
    difference = RunDifference(
        inputs_part=_inputs_part(a.inputs[: run_a.frames], b.inputs[: run_b.frames]),
        positions_part=int(np.argmax(apart)) + 1 if apart.any() else None,
        frames=(run_a.frames, run_b.frames),
        outcomes=(run_a.outcome, run_b.outcome),
        scores=(_score(run_a), _score(run_b)),
        marks=tuple(_marks(bank, run_a, run_b, sections)),
        total=run_b.frames - run_a.frames if both_won else None,
    )
    return difference, run_a, run_b


def _score(run: Run) -> float | None:
    return score(run.frames, int(run.gold[-1])) if run.won else None


def _inputs_part(a: np.ndarray, b: np.ndarray) -> int | None:
    common = min(len(a), len(b))
    differs = a[:common] != b[:common]
    if differs.any():
        return int(np.argmax(differs)) + 1
    return None if len(a) == len(b) else common + 1


def _marks(bank: LevelBank, run_a: Run, run_b: Run, sections: int) -> Iterator[Milestone]:
    """Yield marks at equal distances along the path; the last one is the exit."""
    length = float(bank.path_length[0])
    if length >= MAX_PATH:
        return
    all_left = [remaining_path(bank, run) for run in (run_a, run_b)]
    for run, left in zip((run_a, run_b), all_left, strict=True):
        # Path lengths come from a lattice, so they may be 0 before the win, or above 0 at the win.
        np.maximum(left, 1.0, out=left)
        if run.won:
            left[-1] = 0.0
    for k in range(1, sections + 1):
        wanted = length * (sections - k) / sections
        frame_a, frame_b = (_first(left <= wanted) for left in all_left)
        lead = None if frame_a is None or frame_b is None else frame_b - frame_a
        yield Milestone(wanted, frame_a, frame_b, lead)


def _first(reached: np.ndarray) -> int | None:
    return int(np.argmax(reached)) + 1 if reached.any() else None


def remaining_path(bank: LevelBank, run: Run) -> np.ndarray:
    """Return the remaining path in px after each frame of a run on the only level of ``bank``, float64[frames].

    The path visits the exit switch and, where closed doors block the path, the switches of these doors.  The length is
    MAX_PATH if there is no path.
    """
    record = bank.world.level[0]
    base = record["entity_first"]
    doors = is_closed(run.entity_state[:, record["switches_first"] - base : record["switches_end"] - base])
    exits = slice(record["exits_first"] - base, record["exits_end"] - base)
    kinds, active = run.entities[exits, 0], is_active(run.entity_state[:, exits])
    # An exit opens when its switch is collected.
    opened = np.zeros(active.shape, np.uint8)
    for row in np.flatnonzero(kinds == EXIT_SWITCH):
        opened[:, bank.world.entity[record["exits_first"] + row]["partner"] - exits.start] = 1 - active[:, row]
    collected = opened[:, kinds == EXIT].max(axis=1, initial=0)
    state = np.concatenate([doors, opened], axis=1)
    distance, next_step = np.empty_like(bank.paths.distance[0]), np.empty_like(bank.paths.next_step[0])
    left = np.empty(run.frames)
    for frame in range(run.frames):
        if frame == 0 or not np.array_equal(state[frame], state[frame - 1]):
            closed = doors[frame].astype(np.uint8)
            paths.compute_fields(
                bank.world, *bank.paths.lattice(0), 0, closed, opened[frame].copy(), distance, next_step
            )
        left[frame] = paths.nearest_node(distance[int(collected[frame])], *run.position[frame])[0]
    return left


def difference_text(difference: RunDifference) -> str:
    """Format the comparison as text."""
    names = {NAMES[WON]: "finished", NAMES[DIED]: "died", UNFINISHED: "ran out of inputs"}
    lines = [
        f"{label}: {names[outcome]} in frame {frames}, {time_text(frames)}"
        + ("" if result is None else f", score {result:.3f}")
        for label, outcome, frames, result in zip(
            "AB", difference.outcomes, difference.frames, difference.scores, strict=True
        )
    ]
    lines.append(f"inputs differ     {_at(difference.inputs_part)}")
    lines.append(f"positions differ  {_at(difference.positions_part)} (by more than {APART_PX:g} px)")
    if difference.marks:
        header = ("remaining, px", "frame A", "frame B", "A leads by", "gained by A")
        lines.append(table(header, list(_rows(difference.marks)), align="r" * len(header)))
    if difference.total is None:
        lines.append("total: at least one run does not finish")
    else:
        faster = "B" if difference.total < 0 else "A"
        by = f"{faster} is faster by {abs(difference.total)} frames" if difference.total else "equally fast"
        lines.append(f"total: {by}")
    return "\n".join(lines)


def _rows(marks: Iterable[Milestone]) -> Iterator[tuple[str, ...]]:
    before: int | None = 0
    for mark in marks:
        gained = None if mark.lead is None or before is None else mark.lead - before
        before = mark.lead
        frames, leads = (_cell(mark.frame_a), _cell(mark.frame_b)), (_cell(mark.lead, "+"), _cell(gained, "+"))
        yield f"{mark.remaining_px:.0f}", *frames, *leads


def _at(frame: int | None) -> str:
    return "never" if frame is None else f"from frame {frame} on"


def _cell(value: int | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}}"
