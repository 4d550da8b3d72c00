"""Server side of the editor: files in folders."""

import json

import pytest

from nppsim.levels.level import Level
from nppsim.studio import editing
from nppsim.studio.app import Studio
from nppsim.studio.documents import packed_text
from nppsim.studio.errors import StudioError
from nppsim.studio.library import Library, _without_ending
from nppsim.studio.security import Access

from worlds import corridor, straight

MAP = packed_text(corridor().to_bytes())


@pytest.fixture
def folder_page(page, tmp_path):
    """A studio with an indexed level set and a plain folder of levels, which alone takes new ones."""
    plain = tmp_path / "plain"
    plain.mkdir()
    straight().save(plain / "one.map")
    library = Library([tmp_path / "levels", plain])
    return type(page)(Studio(library, tmp_path / "demonstrations"), Access()), plain


def wish(**change):
    return json.dumps({"map": MAP, "folder": 0, "name": "two", "replace": False} | change)


def test_save_only_in_plain_folders_and_replace_on_confirmation(folder_page):
    page, plain = folder_page
    assert page.get("edit/folders").json() == {"folders": [str(plain)]}
    assert page.post("edit/save", wish()) == {"saved": "two.map"}
    assert Level.load(plain / "two.map") == corridor()
    assert corridor().fingerprint in [card["id"] for card in page.get("levels").json()["levels"]]
    assert page.post("edit/save", wish(name="one")) == {"exists": "one.map"}
    assert Level.load(plain / "one.map") == straight()
    assert page.post("edit/save", wish(name="one.map", replace=True)) == {"saved": "one.map"}
    assert Level.load(plain / "one.map") == corridor()
    assert page.post("edit/save", wish(name="three.level")) == {"saved": "three.level"}
    assert (plain / "three.level").read_text().startswith("nppsim level")
    assert page.post("edit/save", wish(name="Höhle 洞")) == {"saved": "Höhle 洞.map"}
    assert {file.name for file in plain.iterdir()} == {"one.map", "three.level", "two.map", "Höhle 洞.map"}


def test_run_names_lose_only_file_suffixes():
    names = {"my run, 2.13 s": "my run, 2.13 s", "simple/1.map": "simple/1", "a.REPLAY": "a", ".": ".", "": ""}
    assert {name: _without_ending(name) for name in names} == names


def test_replaced_level_is_not_listed(tmp_path):
    straight().save(tmp_path / "one.map")
    library = Library([tmp_path])
    library.document(straight().fingerprint)
    assert editing._write(library, json.loads(wish(name="one", replace=True))) == {"saved": "one.map"}
    assert [(card["id"], card["name"]) for card in library.levels()["levels"]] == [(corridor().fingerprint, "one")]
    with pytest.raises(StudioError, match="no such level"):
        library.document(straight().fingerprint)


@pytest.mark.parametrize("name", ["../two", "/tmp/two", ".two", "", "a/b", "a\\b", "two\0", "x" * 81, "-a", "#1"])
def test_save_name_cannot_leave_folder(folder_page, name):
    page, plain = folder_page
    assert "not a valid name" in page.post("edit/save", wish(name=name), 400)["error"]
    assert "no such folder" in page.post("edit/save", wish(folder=1), 400)["error"]
    assert [file.name for file in plain.iterdir()] == ["one.map"]
