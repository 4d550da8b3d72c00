"""Conformance: replay every case of a trace file and compare every number, bit for bit."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from nppsim.errors import UserError
from nppsim.levels.level import Level, LevelError
from nppsim.simulate import FRAME_COLUMNS, Run, simulate

_DATASETS = {"map", "inputs", "frames", "entities"}  # of every case; more where there are entities and movers


class TraceError(UserError, ValueError):
    """A file that holds no recorded traces; the message names it and what is wrong."""


@dataclass
class ThemeResult:
    """Outcome of one theme: cases, how many are bit-exact, the first divergence, and cases that were refused."""

    cases: int = 0
    exact: int = 0
    frames: int = 0
    first_divergence: str = ""
    refused: list[str] = field(default_factory=list)  # "case: reason"

    @property
    def passed(self) -> bool:
        """Every case was simulated, and exactly."""
        return self.exact == self.cases


def cases(path: str | Path) -> Iterator[tuple[str, str, dict[str, np.ndarray]]]:
    """(theme, case, datasets) of a trace file.  Raises TraceError if it is no trace file."""
    if not Path(path).is_file():
        raise TraceError(f"{path}: no such file; give a trace file")
    try:
        with h5py.File(path) as file:
            for theme in file:
                for case in file[theme]:
                    yield theme, case, {name: data[()] for name, data in file[theme][case].items()}
    except (OSError, AttributeError, KeyError) as error:
        raise TraceError(
            f"{path}: not a trace file (HDF5 with /theme/case/map, inputs, frames, ...): {error}"
        ) from error


def difference(run: Run, trace: dict[str, np.ndarray]) -> str:
    """First difference of a run from a recorded trace, in words; empty if there is none."""
    got = np.column_stack(
        [run.position, run.velocity, run.ninja_state, run.airborne, run.walled, run.floor_normal, run.gold]
    )
    wanted = trace["frames"]
    common = min(len(got), len(wanted))
    differs = got[:common] != wanted[:common]
    if differs.any():
        frame, column = np.argwhere(differs)[0]
        return (
            f"frame {frame + 1}: {FRAME_COLUMNS[column]} is {got[frame, column]!r}, should be {wanted[frame, column]!r} "
            f"(off by {got[frame, column] - wanted[frame, column]:.3g})"
        )
    if len(got) != len(wanted):
        return f"{len(got)} frames, should be {len(wanted)}"
    if not np.array_equal(run.entities, trace["entities"]):
        return "the list of entities differs"
    if len(run.entities) == 0:
        return ""  # such traces have no entity_state
    if not np.array_equal(run.entity_state, trace["entity_state"]):
        frame, k = np.argwhere(run.entity_state != trace["entity_state"])[0]
        kind, number = run.entities[k]
        return (
            f"frame {frame + 1}: entity type {kind} #{number} is {run.entity_state[frame, k]:05b}, "
            f"should be {trace['entity_state'][frame, k]:05b}"
        )
    movers = [tuple(m) for m in trace.get("movers", np.empty((0, 2))).reshape(-1, 2)]
    if movers:
        columns = [[tuple(e) for e in run.entities].index(m) for m in movers]
        positions = run.entity_position[:, columns].reshape(len(got), -1)
        if not np.array_equal(positions, trace["mover_pos"]):
            frame, column = np.argwhere(positions != trace["mover_pos"])[0]
            return f"frame {frame + 1}: mover {movers[column // 2]} is elsewhere"
    return ""


def verify(traces_path: str | Path) -> dict[str, ThemeResult]:
    """Replay every case of a trace file; the result of each theme.  Raises TraceError if it is no trace file."""
    results: dict[str, ThemeResult] = {}
    for theme, case, trace in cases(traces_path):
        _check(trace, f"{traces_path}: {theme}/{case}")
        result = results.setdefault(theme, ThemeResult())
        result.cases += 1
        result.frames += len(trace["frames"])
        try:
            level = Level.from_bytes(trace["map"].tobytes(), f"{theme}/{case}")
            run = simulate(level, trace["inputs"], completions=False)  # the traces were recorded without
        except LevelError as error:
            result.refused.append(f"{case}: {error}")
            continue
        divergence = difference(run, trace)
        if divergence:
            result.first_divergence = result.first_divergence or f"{case}: {divergence}"
        else:
            result.exact += 1
    return results


def _check(trace: dict[str, np.ndarray], place: str) -> None:
    needed = _DATASETS | {
        more for given, more in (("entities", "entity_state"), ("movers", "mover_pos")) if len(trace.get(given, ()))
    }
    if missing := needed - trace.keys():
        raise TraceError(f"{place} lacks {', '.join(sorted(missing))}: this is no trace file")
    frames = trace["frames"]
    if frames.ndim != 2 or frames.shape[1] != len(FRAME_COLUMNS):
        raise TraceError(f"{place}: frames are {list(frames.shape)}, should be [frames, {len(FRAME_COLUMNS)}]")
