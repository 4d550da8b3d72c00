"""Command ``studio``: output, refused arguments, start and end of the server."""

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from nppsim.__main__ import main
from nppsim.studio.command import listening

from places import ROOT
from worlds import straight

LIMIT_S = 120


@pytest.fixture
def started(levels, tmp_path):
    """A studio as users start it, and its address."""
    command = [sys.executable, "-m", "nppsim", "studio", "--no-browser", "--port", "0", "--levels", str(levels)]
    process = subprocess.Popen(
        [*command, "--demonstrations", str(tmp_path / "demonstrations")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        line = next(
            line for line in process.stdout if "the studio is at" in line
        )  # ends with the process at the latest
        yield process, re.search(r"http://\S+", line)[0]
    finally:
        process.kill()
        process.wait(LIMIT_S)
        process.stdout.close()


def test_studio_serves_until_interrupted(started):
    process, address = started
    root, token = address.split("/?token=")
    with urllib.request.urlopen(root, timeout=LIMIT_S) as answer:
        assert b"nppsim" in answer.read()
    request = urllib.request.Request(f"{root}/api/levels", headers={"X-Studio-Token": token})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        assert json.load(answer)["levels"][0]["id"] == straight().fingerprint
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{root}/api/levels", timeout=LIMIT_S)
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait(LIMIT_S) == 0, rest
    assert "Traceback" not in rest


def test_studio_port_in_use_raises_error(capsys):
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert main(["studio", "--no-browser", "--port", str(port)]) == 2
    assert f"error: --port {port}: cannot listen at 127.0.0.1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--levels", "nowhere"], "nowhere does not exist"),
        (["--replays", "nowhere"], "nowhere does not exist"),
        (["--demonstrations", __file__], "--demonstrations"),
        (["--port", "70000"], "--port 70000"),
        ([], "cannot listen at 192.0.2.1"),
    ],
)
def test_studio_invalid_arguments_raise_error_before_serving(flags, expected, capsys):
    not_ours = ["--host", "192.0.2.1"]  # an address for documents, so that nothing can be served
    assert main(["studio", "--no-browser", *not_ours, *flags]) == 2
    assert expected in capsys.readouterr().err


def test_studio_starts_without_numba():
    """The import of Numba takes two seconds, and the first kernel minutes."""
    code = "import sys, nppsim.__main__, nppsim.studio.app as app; app.Library().levels(); app.Library().film()"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print('numba' in sys.modules)"], capture_output=True, text=True
    )
    assert done.stdout == "False\n", done.stderr
