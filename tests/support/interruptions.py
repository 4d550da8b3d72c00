"""Tiny experiments that end in the middle, as if their process were killed."""

import pytest

from rl.config.command_line import resolve
from rl.experiment.run import run


class Killed(BaseException):
    """Simulates the end of the process; nothing in the program catches it."""


def configuration(flags, out, *more):
    """Configuration of flags, with the output folder ``out``."""
    return resolve([*map(str, flags), "--output-dir", str(out), *more])


def run_until(config, moment):
    """Run until a line contains this; return the lines so far."""
    lines = []

    def log(line):
        lines.append(line)
        if moment in line:
            raise Killed

    with pytest.raises(Killed):
        run(config, log)
    return lines
