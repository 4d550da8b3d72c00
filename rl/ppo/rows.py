"""Whether what training writes between rollout and update is on disk, as it is in memory: in the table, and as events.

expected = Row.of(ppo)         # after the rollout, before the row is written
expected.faults(folder)        # after it
expected.check_events(folder)  # reads all of them: now and then
"""

import csv
import io
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rl.events import EventsError, read_scalars, require_values
from rl.ppo.audit import Fault
from rl.ppo.logs import BOARD, TABLE
from rl.ppo.ppo import BatchPPO

AT = "time/total_timesteps"  # which the events have as their step
TABLE_ONLY = (AT, "time/iterations", "time/time_elapsed")
SLACK_S = 2.0  # of training's clock, before its speed is looked at
CLOSE_SPEED = 0.15  # taken a moment later


@dataclass(frozen=True)
class Row:
    """values: tag -> value.  step: in decisions.  spent: seconds of training so far."""

    values: dict[str, float]
    step: int
    spent: float

    @classmethod
    def of(cls, ppo: BatchPPO) -> "Row":
        """Of the rollout that has just ended; episodes and time are what Stable-Baselines3 adds."""
        assert ppo.ep_info_buffer is not None and ppo.ep_success_buffer is not None
        values = {
            tag: float(value)
            for tag, value in ppo.logger.name_to_value.items()
            if not ppo.logger.name_to_excluded.get(tag)
        }
        values[AT] = float(ppo.num_timesteps)
        if infos := list(ppo.ep_info_buffer):
            values["rollout/ep_rew_mean"] = math.fsum(info["r"] for info in infos) / len(infos)
            values["rollout/ep_len_mean"] = math.fsum(info["l"] for info in infos) / len(infos)
        if wins := list(ppo.ep_success_buffer):
            values["rollout/success_rate"] = sum(map(bool, wins)) / len(wins)
        return cls(values, ppo.num_timesteps, ppo.spent)

    def faults(self, folder: Path) -> Iterator[Fault]:
        """Where the table's last row says something else."""
        path = folder / TABLE
        if not path.is_file():
            yield Fault("curves", f"{path} is gone: bring it back, or begin a new run")
            return
        found = last_row(path)
        for tag, value in self.values.items():
            have = found.get(tag, "")
            told = float(have) if have else math.nan
            if not have or not _same(told, value):
                yield Fault(
                    "curves",
                    f"{tag} is {have or 'missing'} in the last row of {path.name}, it was to be {value:.6g}: columns or rows "
                    "are shifted, or the means are of other numbers",
                )
                return
        told, speed = float(found.get("time/fps") or math.nan), self.step / max(self.spent, SLACK_S)
        if self.spent > SLACK_S and not abs(told - speed) < max(1.0, CLOSE_SPEED * speed):  # it is cut to an integer
            yield Fault(
                "time/fps",
                f"is {told:.0f} after {self.step:,} decisions in {self.spent:.0f} s, which is {speed:,.0f} per second: the "
                "machine slept, its clock was set, or the figure is wrong",
                stop=False,
            )

    def check_events(self, folder: Path) -> None:
        """EventsError unless the same is in the events, and all rows of the table so far say what the events do."""
        drawn = {tag: value for tag, value in self.values.items() if tag != AT}
        require_values(folder / BOARD, {tag: {self.step: float(np.float32(value))} for tag, value in drawn.items()})
        check_table(folder)


def check_table(folder: Path) -> None:
    """EventsError unless the events have every value of the table, at the step of its row.

    An evaluation that was made elsewhere stands in a later row than that of its step; some rows have no step of their own.
    """
    curves: dict[str, dict[int, list[float]]] = {}
    for tag, line in read_scalars(folder / BOARD).items():  # an evaluation that came late may be the second at its step
        for step, value in zip(line.steps.tolist(), line.values.tolist(), strict=True):
            curves.setdefault(tag, {}).setdefault(step, []).append(value)
    with open(folder / TABLE, encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 1):
            at = row.get(AT)
            for tag, text in row.items():
                curve = curves.get(tag, {})
                if at and not tag.startswith("eval/"):
                    told = curve.get(int(float(at)), [])
                else:
                    told = [value for some in curve.values() for value in some]
                if text and tag not in TABLE_ONLY and not any(_same(float(text), value) for value in told):
                    raise EventsError(
                        f"{folder / TABLE}: row {number} has {text} as {tag}, which its curve has not: columns or rows are "
                        "shifted; please report this"
                    )


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-12) or (one != one and other != other)


def last_row(path: Path) -> dict[str, str]:
    """Column -> text of a table's last row; EventsError if it is not whole."""
    with open(path, "rb") as file:
        header = file.readline()
        size = file.seek(0, os.SEEK_END)
        tail = b""
        while tail.count(b"\n") < 2 and len(tail) < size:  # the last row is whole after the newline before it
            length = min(size, max(1 << 14, 2 * len(tail)))
            file.seek(size - length)
            tail = file.read(length)
    names, row = (
        next(csv.reader(io.StringIO(line.decode()))) for line in (header, tail.rstrip(b"\n").rsplit(b"\n", 1)[-1])
    )
    if len(names) != len(row):
        raise EventsError(f"{path}: its last row has {len(row)} of {len(names)} columns: it was cut off or changed")
    return dict(zip(names, row, strict=True))
