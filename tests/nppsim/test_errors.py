"""Exit status and messages of command lines."""

import errno
import os
import pickle
import signal
import subprocess
import sys

import pytest

from nppsim import errors
from nppsim.errors import ConfigError, MissingPackageError, UserError

from places import ROOT


def raising(error):
    def job():
        raise error

    return job


@pytest.mark.parametrize(
    ("job", "status", "message"),
    [
        (lambda: None, 0, ""),
        (lambda: 1, 1, ""),
        (raising(UserError("mend this")), 2, "error: mend this\n"),
        (raising(UserError("two\n  lines")), 2, "error: two lines\n"),
        (raising(FileNotFoundError(2, "No such file", "a.map")), 2, "error: a.map: No such file; check the path\n"),
        (raising(OSError("the disk")), 2, "error: the disk\n"),
        (
            raising(OSError(errno.ENOSPC, "No space", "a.h5")),
            2,
            "error: a.h5: No space; make room on that disk, or choose another one\n",
        ),
        (raising(OSError(errno.EMFILE, "Too many")), 2, "error: Too many; raise the limit on open files (ulimit -n)\n"),
        (raising(MemoryError("3 GB")), 2, "error: out of memory (3 GB); choose smaller sizes, or end other programs\n"),
        (
            raising(RuntimeError("[enforce fail] . can't allocate memory: you tried\n4 bytes")),
            2,
            "error: out of memory ([enforce fail] . can't allocate memory: you tried); choose smaller sizes, or end other "
            "programs\n",
        ),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), 130, "\ninterrupted: by SIGTERM\n"),
        (lambda: os.kill(os.getpid(), signal.SIGHUP), 130, "\ninterrupted: by SIGHUP\n"),
        (raising(KeyboardInterrupt), 130, "\ninterrupted\n"),
        (raising(KeyboardInterrupt("finished parts are saved")), 130, "\ninterrupted: finished parts are saved\n"),
    ],
)
def test_run_exit_status_and_message(job, status, message, capsys):
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a caller may have ignored it
    try:
        assert errors.run(job) == status
    finally:
        signal.signal(signal.SIGHUP, before)
    assert capsys.readouterr().err == message


def test_run_restores_signal_handlers():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    errors.run(lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


COMMAND = """
import sys, types
sys.modules["nppsim"] = types.ModuleType("nppsim")
sys.modules["nppsim"].__path__ = ["nppsim"]
from nppsim import errors
sys.exit(errors.run(lambda: print(sys.argv[1] * int(sys.argv[2]))))
"""  # without the rest of the package, which takes a second to import


@pytest.mark.parametrize(
    ("shell", "status", "message"),
    [
        ("{} a 100000 | true", 141, ""),
        ("{} a 100000 2>&1 | true", 141, ""),
        ("{} a 1 >/dev/full", 2, "error: standard output: No space left on device; make room"),
        ("{} a 1 >&-", 0, ""),
        ("{} a 1 <&- >&- 2>&-", 0, ""),
        ("LC_ALL=C PYTHONUTF8=0 PYTHONIOENCODING=ascii {} → 1", 0, ""),
        ("{} $(printf 'a\\377') 1", 0, ""),
    ],
)
def test_run_broken_or_full_output_has_status(shell, status, message, monkeypatch):
    monkeypatch.setenv("COMMAND", COMMAND)
    shell = shell.format(f'{sys.executable} -c "$COMMAND"')
    command = ["bash", "-o", "pipefail", "-c", shell]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="surrogateescape")
    assert (done.returncode, done.stderr.count("\n")) == (status, bool(message)), done.stderr
    assert done.stderr.startswith(message)


def test_run_bug_shows_traceback_and_debug_shows_user_error():
    with pytest.raises(ZeroDivisionError):
        errors.run(raising(ZeroDivisionError()))
    with pytest.raises(UserError):
        errors.run(raising(UserError("x")), debug=True)
    assert errors.run(raising(UserError("x")), refused=4) == 4


def test_redact_removes_secrets(monkeypatch, capsys):
    monkeypatch.setenv("SERVICE_TOKEN", "abcdefgh12345")
    errors.run(raising(UserError("sent abcdefgh12345 to https://me:word@host")))
    assert capsys.readouterr().err == "error: sent [redacted] to https://[redacted]@host\n"


def test_config_error_is_built_from_parts():
    error = ConfigError("choose less", "cups", 12)
    assert (error.advice, error.field, error.value, str(error)) == ("choose less", "cups", 12, "cups 12: choose less")
    assert str(error.named("--cups")) == "--cups 12: choose less"
    assert str(ConfigError("choose less", "cups", (1, 2))) == "cups 1 2: choose less"
    assert str(ConfigError("--cups and --mugs contradict")) == "--cups and --mugs contradict"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_needed_missing_package_names_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingPackageError, match=r"PIL is needed .* pip install 'nppsim\[video\]'"):
        errors.import_optional("PIL", "video")
    assert errors.import_optional("json", "video").dumps(1) == "1"


def test_did_you_mean_suggests_nearest_name():
    assert errors.did_you_mean("simpel", ["simple", "medium"]) == "; did you mean 'simple'?"
    assert errors.did_you_mean("xyz", ["simple", "medium"]) == ""
