"""The text log of an experiment is complete after its terminal is closed."""

import errno
import re
import shutil
import warnings

import pytest

from nppsim.errors import InputWarning
from nppsim.io.files import FolderError, locked
from rl.log import LOG_FILE, ExperimentLog, warn


def failing(number):
    def log(line):
        raise OSError(number, line)

    return log


def test_log_closed_terminal_is_ignored(tmp_path):
    with ExperimentLog(failing(errno.EIO)) as log:
        log.open(tmp_path)
        log("a line")
    assert "a line\n" in (tmp_path / LOG_FILE).read_text()


def test_log_lines_have_time_and_level(tmp_path):
    def fails():
        with ExperimentLog(print) as log:
            log("before the folder is known")
            log.open(tmp_path)
            log("two\nlines")
            warn(log, "speed")
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            fails()
    lines = (tmp_path / LOG_FILE).read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (INFO|WARNING|ERROR) ", line) for line in lines)
    texts = [line[20:] for line in lines]
    assert texts[:3] == ["INFO before the folder is known", "INFO two", "INFO lines"]
    assert texts[3] == "WARNING speed" and texts[-1] == "ERROR ZeroDivisionError"
    assert texts.count("INFO resumed") == 1


def test_log_closed_pipe_raises(tmp_path):
    with pytest.raises(BrokenPipeError), ExperimentLog(failing(errno.EPIPE)) as log:
        log("a line")


def test_log_removed_folder_raises(tmp_path):
    folder = tmp_path / "experiment"

    def logs_after_removal():
        with ExperimentLog(print) as log, locked(folder) as check:
            log.open(folder, check)
            shutil.rmtree(folder)
            folder.mkdir()
            log("a line")
            raise AssertionError("nothing was noticed")

    with pytest.raises(FolderError, match="removed or replaced"):
        logs_after_removal()
    assert not (folder / LOG_FILE).exists()


def test_log_input_warnings_are_logged(tmp_path):
    printed = []
    before = warnings.showwarning
    with warnings.catch_warnings(), ExperimentLog(printed.append) as log:
        warnings.simplefilter("always")
        warnings.warn(InputWarning("levels: skipped a.zip (not a level)"), stacklevel=1)
        log.open(tmp_path)
    assert printed == ["warning: levels: skipped a.zip (not a level)"]
    assert "WARNING levels: skipped a.zip (not a level)" in (tmp_path / LOG_FILE).read_text()
    assert warnings.showwarning is before
