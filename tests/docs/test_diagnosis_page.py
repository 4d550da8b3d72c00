"""The guides to comparing and to diagnosis: every command that they give exists, with every flag."""

import re

import pytest

import bc.__main__
import hardware.__main__
import nppsim.__main__

from places import ROOT
from programs import load_script

PAGES = ("compare.md", "diagnosis.md")
MODULES = {"bc": bc.__main__, "hardware": hardware.__main__, "nppsim": nppsim.__main__}


def commands():
    """(page, program, sub-command or "", flags of its own) of each command in the pages."""
    for page in PAGES:
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        for name, rest in re.findall(r"python (scripts/\w+\.py|-m \w+)([^\n`|#]*)", text):
            own = re.sub(r'"[^"]*"|--b="[^"]*"', "", rest.split(" -- ")[0])  # flags in quotes are for other programs
            words = own.split()
            chosen = words[0] if name.startswith("-m") and words and words[0].isalpha() else ""
            yield page, name, chosen, tuple(re.findall(r"--[a-z][\w-]*", own))


@pytest.mark.parametrize(("page", "name", "chosen", "flags"), sorted(set(commands())))
def test_every_command_and_flag_exists(page, name, chosen, flags, capsys):
    if name.startswith("-m"):
        main = MODULES[name.split()[1]].main
    else:
        assert (ROOT / name).is_file()
        main = load_script(name.removeprefix("scripts/").removesuffix(".py")).main
    with pytest.raises(SystemExit) as stop:
        main([*([chosen] if chosen else []), "--help"])
    told = capsys.readouterr().out
    assert stop.value.code == 0
    assert not [flag for flag in flags if flag not in told]


def test_pages_that_are_named_exist():
    for page in PAGES:
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([\w./]+\.md)", text):
            assert (ROOT / "docs" / link).is_file(), link
        for file in re.findall(r"pytest ([\w/. ]+)", text):
            assert all((ROOT / one).is_file() for one in file.split()), file
