"""Conformance test: replay every case of a trace file, and compare every number with the recorded one, bit for bit.

A trace file (docs/file_formats.md) contains recorded runs, called cases, in groups that are called themes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nppsim.errors import UserError
from nppsim.io import hdf5
from nppsim.levels.level import Level, LevelError
from nppsim.simulate import FRAME_COLUMNS, Run, simulate

_MAX_CASE_BYTES = 1 << 28
_MORE_INPUTS = 1000  # maximum number of inputs after the last frame of a trace; each input takes memory
_DATASETS = {"map", "inputs", "frames", "entities"}  # required of every case; some cases need more, see ``_check``


class TraceError(UserError, ValueError):
    """File that is not a valid trace file; the message names the file and the defect."""


@dataclass
class ThemeResult:
    """Result of one theme of a trace file.

    cases, exact: number of all cases, and number of cases that the simulator reproduces bit for bit.
    frames: number of recorded frames of all cases.
    first_divergence: description of the first difference, "" if there is none.
    refused: a text "case: reason" for each case whose level cannot be read.
    """

    cases: int = 0
    exact: int = 0
    frames: int = 0
    first_divergence: str = ""
    refused: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """True if every case is bit-exact."""
        return self.exact == self.cases


def cases(path: str | Path) -> Iterator[tuple[str, str, dict[str, np.ndarray]]]:
    """Yield (theme, case, datasets by name) for each case.  Raises TraceError if the file is not a trace file."""
    if not Path(path).is_file():
        raise TraceError(f"{path}: {'is a folder' if Path(path).is_dir() else 'no such file'}; give a trace file")
    form = "HDF5 with /theme/case/map, inputs, frames, ..."
    with hdf5.reading(path, lambda reason: TraceError(f"{path}: not a trace file ({form}): {reason}")) as file:
        for theme in file:
            for case in file[theme]:
                datasets = dict(file[theme][case].items())
                if sum(data.nbytes for data in datasets.values()) > _MAX_CASE_BYTES:
                    raise TraceError(
                        f"{path}: {theme}/{case} has more than {_MAX_CASE_BYTES:,} bytes; this is not a trace"
                    )
                yield theme, case, {name: np.asarray(data[()]) for name, data in datasets.items()}


def difference(run: Run, trace: dict[str, np.ndarray]) -> str:
    """Describe the first difference between a run and a recorded trace; empty if there is none."""
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
        return ""  # traces without entities have no entity_state
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
            return f"frame {frame + 1}: the position of mover {movers[column // 2]} differs"
    return ""


def verify(traces_path: str | Path) -> dict[str, ThemeResult]:
    """Replay every case of a trace file; return the result per theme.  Raises TraceError if it is not a trace file."""
    results: dict[str, ThemeResult] = {}
    for theme, case, trace in cases(traces_path):
        _check(trace, f"{traces_path}: {theme}/{case}")
        result = results.setdefault(theme, ThemeResult())
        result.cases += 1
        result.frames += len(trace["frames"])
        try:
            level = Level.from_bytes(trace["map"].tobytes(), f"{theme}/{case}")
            run = simulate(level, trace["inputs"], completions=False)  # as in the reference simulator
        except LevelError as error:
            result.refused.append(f"{case}: {error}")
            continue
        divergence = difference(run, trace)
        if divergence:
            result.first_divergence = result.first_divergence or f"{case}: {divergence}"
        else:
            result.exact += 1
    return results


def _check(trace: dict[str, np.ndarray], case: str) -> None:
    rows = {name: values.shape[0] if values.ndim else 0 for name, values in trace.items()}
    more = (("entities", "entity_state"), ("movers", "mover_pos"))
    needed = _DATASETS | {named for given, named in more if rows.get(given)}
    if missing := needed - trace.keys():
        raise TraceError(f"{case} does not contain {', '.join(sorted(missing))}: this is not a trace file")
    shapes: dict[str, tuple[str, tuple[int | None, ...]]] = {  # dataset -> (dtype kinds, shape); None: any length
        "map": ("u", (None,)),
        "inputs": ("u", (None,)),
        "frames": ("f", (None, len(FRAME_COLUMNS))),
        "entities": ("iu", (None, 2)),
        "movers": ("iu", (None, 2)),
        "entity_state": ("u", (rows["frames"], rows["entities"])),
        "mover_pos": ("f", (rows["frames"], 2 * rows.get("movers", 0))),
    }
    for name, (kinds, expected) in shapes.items():
        array = trace.get(name)
        if array is None or (name not in needed and not array.size):
            continue
        fits = array.ndim == len(expected) and all(n in (None, m) for n, m in zip(expected, array.shape, strict=True))
        if not fits or array.dtype.kind not in kinds:
            form = ", ".join("any" if n is None else str(n) for n in expected)
            raise TraceError(f"{case}: {name} is {array.dtype}{list(array.shape)}, should be numbers [{form}]")
    if rows["inputs"] > rows["frames"] + _MORE_INPUTS:
        raise TraceError(f"{case}: {rows['inputs']} inputs for {rows['frames']} frames")
    if rows.get("movers") and not {*map(tuple, trace["movers"].tolist())} <= {*map(tuple, trace["entities"].tolist())}:
        raise TraceError(f"{case}: the dataset 'movers' contains entities that 'entities' does not contain")
