"""All command lines: flags have the documented names, and user errors are one line without a traceback."""

import re
import subprocess
import sys

import pytest

import bc.__main__
import nppsim.__main__
from nppsim.errors import MissingPackageError
from nppsim.io.progress import progress_bar

from packages import hide
from places import ROOT
from programs import load_script

SCRIPTS = sorted(path.name for path in (ROOT / "scripts").glob("*.py"))
MODULES = {
    "nppsim": nppsim.__main__,
    "bc": bc.__main__,
}


def main_of(command):
    """Main function of "evaluate.py" or "nppsim plan", and the arguments that select the command."""
    name, *rest = command.split()
    return (load_script(name.removesuffix(".py")) if name.endswith(".py") else MODULES[name]).main, rest


def option_lines(command, capsys):
    """Names of each flag in the help of a command."""
    main, chosen = main_of(command)
    with pytest.raises(SystemExit) as stop:
        main([*chosen, "--help"])
    assert stop.value.code == 0
    lines = [line for line in capsys.readouterr().out.split("\n") if re.match(r" +-", line)]
    return [set(re.findall(r"--[a-z0-9-]+", line.split("   ")[0])) for line in lines]


def other_names():
    """Yield (flag, its other name, command line) of each entry of the table in docs/flags.md."""
    text = (ROOT / "docs" / "flags.md").read_text().split("## Other command lines")[1]
    for flag, other, where in re.findall(r"^\| `(--[\w-]+)` \| `(--[\w-]+)` \| (.*) \|$", text, re.MULTILINE):
        for command in re.findall(r"`([\w.]+(?: \w+)?)`", where):
            yield flag, other, command


@pytest.mark.parametrize(("flag", "other", "command"), list(other_names()))
def test_both_documented_flag_names_accepted(flag, other, command, capsys):
    lines = option_lines(command, capsys)
    assert any({flag, other} <= line for line in lines), lines


@pytest.mark.parametrize("command", [*SCRIPTS, *MODULES])
def test_unknown_flag_prints_one_line(command, capsys):
    main, _ = main_of(command)
    try:
        status = main(["--no-such-flag"])
    except SystemExit as stop:
        status = stop.code
    assert status in (1, 2, 4)  # perf_benchmark.py: 4, since 2 means a mismatch there
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("train_and_compare.py", ["--experiment-name", "x", "--architectures", "vision_free"]),
        ("pretrain_bc.py", ["--architecture", "vision_free", "--replay-data-dir", "x"]),
        ("evaluate.py", ["x.safetensors", "--levels", "x"]),
        ("average_agents.py", ["x.safetensors", "--out", "y.safetensors"]),
        ("export.py", ["x.safetensors", "--onnx", "x.onnx"]),
        ("solve.py", ["x", "--agent", "x.safetensors"]),
        ("ab_compare.py", ["--b=--no-mixed-precision"]),
        ("compare_runs.py", ["a", "b"]),
        ("convert_archive.py", ["x.zip", "--out", "x.safetensors", "--trust-pickle"]),
    ],
)
def test_script_without_torch_names_extra(script, arguments, monkeypatch, capsys):
    hide(monkeypatch, "torch")
    assert load_script(script.removesuffix(".py")).main(arguments) == 2
    message = "error: torch is needed for this and is not installed; run pip install 'nppsim[train]'\n"
    assert capsys.readouterr().err == message


def test_progress_bar_without_tqdm_passes_items_or_names_extra(monkeypatch):
    code = "import sys; sys.modules['tqdm'] = None; import bc.__main__"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    hide(monkeypatch, "tqdm")
    assert load_script("make_demonstrations").searching([1, 2], 2) == [1, 2]
    with pytest.raises(MissingPackageError, match="tqdm is needed"):
        progress_bar(total=2)
