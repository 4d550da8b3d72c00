"""The text log of an experiment outlives the terminal that it is shown on."""

import errno

import pytest

from rl.experiment.log_file import LOG_FILE, LogFile


def failing(number):
    def log(line):
        raise OSError(number, line)

    return log


def test_a_terminal_that_has_closed_does_not_end_the_run(tmp_path):
    with LogFile(failing(errno.EIO)) as log:
        log.open(tmp_path)
        log("a line")
    assert "a line\n" in (tmp_path / LOG_FILE).read_text()


def test_a_pipe_that_nobody_reads_does(tmp_path):
    with pytest.raises(BrokenPipeError), LogFile(failing(errno.EPIPE)) as log:
        log("a line")
