"""The exported site as files; tests/browser/test_site.py opens it."""

import pytest

from nppsim.errors import ConfigError
from nppsim.studio.agent_registry import AgentRegistry
from nppsim.studio.export import export
from nppsim.studio.library import Library

from worlds import straight


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


@pytest.mark.parametrize("name", ["notes.txt", "worker.js"])
def test_export_folder_with_other_files_raises_and_changes_nothing(name, levels, tmp_path):
    site = tmp_path / "site"
    (site / "data").mkdir(parents=True)
    (site / name).write_text("const data = 1;\n")
    (site / "data" / "table.csv").write_text("1,2")
    with pytest.raises(ConfigError, match="has other files"):
        export(site, Library([levels]), AgentRegistry([], None))
    assert {path.name for path in site.rglob("*")} == {"data", name, "table.csv"}
