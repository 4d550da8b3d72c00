"""``campaign:`` in arguments stands for the game's folder."""

import json

import pytest

from nppsim.__main__ import main
from nppsim.errors import ConfigError
from nppsim.generate import generate
from nppsim.levels import campaign
from nppsim.levels.game_folder import FILE, expanded


@pytest.fixture
def game(tmp_path, monkeypatch):
    """A folder with one campaign file, remembered in the current folder."""
    folder = tmp_path / "N++"
    folder.mkdir()
    line = campaign.to_line(generate("simple", 1)[0])
    (folder / "S.txt").write_text(f"$first#{line.split('#')[-2]}#\n{line}\n")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    (here / FILE).write_text(f"folder = {json.dumps(str(folder))}\n")
    return folder


@pytest.mark.parametrize(("place", "count"), [("", 2), ("S.txt", 2), ("S.txt#0", 1), ("S-001", 1), ("first", 1)])
def test_expanded_campaign_prefix_finds_game_levels(game, capsys, place, count):
    assert main(["levels", f"campaign:{place}", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert len(facts) == count
    assert all(one["name"].startswith(str(game)) for one in facts)


def test_expanded_flag_with_equals_sign(game):
    assert expanded("--levels=campaign:S.txt") == f"--levels={game / 'S.txt'}"
    assert expanded("my-campaign:S.txt") == "my-campaign:S.txt"


def test_expanded_missing_folder_raises_error(game, tmp_path, monkeypatch):
    for content in ('folder = "/nowhere"', "folder = 1", "path = 'x'", "folder ="):
        (tmp_path / "here" / FILE).write_text(content)
        with pytest.raises(ConfigError, match=FILE):
            expanded("campaign:S.txt")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=FILE):
        expanded("campaign:S.txt")
