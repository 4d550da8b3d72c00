"""The exported site as files; tests/browser/test_site.py opens it."""

import json
import re

import numpy as np
import pytest

from nppsim.errors import ConfigError, InputWarning
from nppsim.levels.level_set import LevelSet
from nppsim.replays.replay import Replay
from nppsim.studio.agent_registry import AgentRegistry
from nppsim.studio.export import export
from nppsim.studio.library import Library

from worlds import corridor, straight


def test_export_again_replaces_its_files_and_keeps_others(levels, tmp_path):
    site, registry = tmp_path / "site", AgentRegistry([], None)
    export(site, Library([levels]), registry)
    before = {path for path in site.rglob("*") if path.is_file()}
    (site / "data" / "mine.txt").write_text("mine")
    straight().save(tmp_path / "one.map")
    export(site, Library([tmp_path / "one.map"]), registry)
    after = {path for path in site.rglob("*") if path.is_file()}
    assert (site / "data" / "mine.txt").read_text() == "mine"
    assert len(before - after) == 1  # the other level
    assert after - before == {site / "data" / "mine.txt"}


def test_export_writes_level_of_replay_that_gallery_lacks(levels, tmp_path):
    Replay(corridor(), np.full(20, 2, np.uint8), success=False).save(tmp_path / "run.replay")
    library = Library([levels], [tmp_path / "run.replay"])
    listed = {card["id"] for card in library.levels()["levels"]}
    export(tmp_path / "site", library, AgentRegistry([], None))
    data = tmp_path / "site" / "data"
    run = json.loads((data / "replays-0-run.json").read_text())
    assert run["level"] == corridor().fingerprint not in listed
    assert json.loads((data / f"levels-{run['level']}.json").read_text())["id"] == run["level"]


def test_export_warns_of_unreadable_level_without_publishing_its_path(levels, tmp_path):
    file = levels / LevelSet.open(levels).entries[1].file
    file.write_bytes(b"broken")
    with pytest.warns(InputWarning, match=re.escape(str(file))):
        export(tmp_path / "site", Library([levels]), AgentRegistry([], None))
    shown = json.loads((tmp_path / "site" / "data" / "levels.json").read_text())
    assert len(shown["levels"]) == 1 and not shown["problems"]


@pytest.mark.parametrize("name", ["notes.txt", "worker.js"])
def test_export_folder_with_other_files_raises_and_changes_nothing(name, levels, tmp_path):
    site = tmp_path / "site"
    (site / "data").mkdir(parents=True)
    (site / name).write_text("const data = 1;\n")
    (site / "data" / "table.csv").write_text("1,2")
    with pytest.raises(ConfigError, match="has other files"):
        export(site, Library([levels]), AgentRegistry([], None))
    assert {path.name for path in site.rglob("*")} == {"data", name, "table.csv"}
