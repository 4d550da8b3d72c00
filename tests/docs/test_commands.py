"""Programs, sub-commands, flags and test files on the pages exist."""

import functools
import io
import re
import tomllib
from contextlib import redirect_stdout

import pytest

import bc.__main__
import benchmarks.curriculum
import nppsim.__main__
import tests.mutation.__main__

from places import ROOT
from programs import load_script

MODULES = {
    "bc": bc.__main__,
    "benchmarks.curriculum": benchmarks.curriculum,
    "nppsim": nppsim.__main__,
    "tests.mutation": tests.mutation.__main__,
}
PAGES = [
    *(path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"),  # it names removed flags
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / ".github" / "workflows" / "ci.yml",
]
TORCHRUN = ("master-addr", "master-port", "max-restarts", "nnodes", "node-rank", "nproc-per-node", "standalone")
TORCHRUN += ("rdzv-backend", "rdzv-endpoint", "rdzv-id")
DOCKER = {"--build-arg", "--rm", "--shm-size", "--user"}
# "train" -> "scripts/train_and_compare.py": what the console command calls
CONSOLE = {
    name.replace("-", "_"): "/".join(place.split(":")[0].removeprefix("nppsim_agents.").split(".")) + ".py"
    for name, place in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][
        "nppsim.commands"
    ].items()
    if name != "data"
}
RAY = {"--address", "--generate", "--head", "--include-dashboard", "--num-cpus"}
FOREIGN = {*DOCKER, *RAY, *(f"--{name}" for name in TORCHRUN)}  # flags of other programs
FOREIGN |= {"--directory", "--extra-index-url", "--logdir", "--no-deps", "--wheel-dir"}


@functools.cache
def program_help(program, chosen=""):
    """Return the help of a program or sub-command; None if there is no such program."""
    if program in MODULES:
        main = MODULES[program].main
    elif (ROOT / program).is_file():
        main = load_script(program.removeprefix("scripts/").removesuffix(".py")).main
    else:
        return None
    text = printed(main, [*([chosen] if chosen else []), "--help"])
    return printed(main, ["--help-all"]) if "--help-all" in text and not chosen else text


def printed(main, arguments):
    with redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    return out.getvalue()


@functools.cache
def every_help():
    """Return the help of all programs and sub-commands as one text."""
    scripts = [f"scripts/{path.name}" for path in (ROOT / "scripts").glob("*.py")]
    commands = [(name, chosen) for name in MODULES for chosen in subcommands(name)]
    return "\n".join(program_help(*one) for one in (*((name, "") for name in (*scripts, *MODULES)), *commands))


def subcommands(module):
    return re.findall(r"^    ([a-z-]+)  ", program_help(module), re.MULTILINE)


def commands(page):
    """Yield (program, sub-command or "", its flags) of each command of a page."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for name, rest in re.findall(r"python (scripts/\w+\.py|-m [\w.]+)([^\n`|#]*)", text):
        program = name.removeprefix("-m ")
        if program not in MODULES and not program.startswith("scripts/"):
            continue
        own = re.sub(r'"[^"]*"|--b="[^"]*"', "", rest.split(" -- ")[0])  # flags in quotes are for other programs
        words = own.split()
        chosen = words[0] if program in MODULES and words and re.fullmatch(r"[a-z][a-z-]*", words[0]) else ""
        yield program, chosen, tuple(re.findall(r"--[a-z][\w-]*", own))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_documented_commands_and_flags_exist(page):
    for program, chosen, flags in set(commands(page)):
        text = program_help(program, chosen)
        assert text, f"{page.name} names {program}, which does not exist"
        missing = [flag for flag in flags if not re.search(rf"{flag}\b(?!-)", text)]
        assert not missing, f"{page.name}: {program} {chosen} has no {', '.join(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_documented_console_commands_and_flags_exist(page):
    typed = re.findall(r"^```bash\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    text = "\n".join(typed).replace("\\\n", " ")
    for command, rest in re.findall(
        r"^(?:docker run .* )?nppsim(?::cuda)? ([a-z][a-z-]*)([^\n#]*)", text, re.MULTILINE
    ):
        if command == "data" or command in subcommands("nppsim"):
            continue
        help_text = program_help(CONSOLE[command.replace("-", "_")])
        missing = [flag for flag in re.findall(r"--[a-z][\w-]*", rest) if not re.search(rf"{flag}\b(?!-)", help_text)]
        assert not missing, f"{page.name}: nppsim {command} has no {', '.join(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_named_flags_exist(page):
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]", page.read_text(encoding="utf-8")))
    missing = [flag for flag in sorted(named - FOREIGN) if not re.search(rf"{flag}\b(?!-)", every_help())]
    assert not missing, f"no program has {', '.join(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_named_test_files_exist(page):
    for file in re.findall(r"\btests/[\w/]+\.(?:py|json|h5|toml)", page.read_text(encoding="utf-8")):
        assert (ROOT / file).is_file(), f"{page.name} names {file}"
