"""Level sets: index, plain folders, errors, and disjointness of train and test."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nppsim.bank import LevelBank
from nppsim.errors import InputWarning
from nppsim.generate import generate
from nppsim.levels import campaign
from nppsim.levels.level import Level, mirror
from nppsim.levels.level_set import INDEX, LevelEntry, LevelSet, LevelSetError, check_disjoint, read_levels
from nppsim.replays.replay import Replay

from worlds import straight


def level_with_spawn(x):
    return Level(np.zeros((23, 42), dtype=np.uint8), np.array([(0, x, 50, 0, 0)]))


@pytest.fixture
def path(tmp_path):
    """A set of three levels in two categories."""
    LevelSet.write(
        tmp_path / "set",
        [
            (level_with_spawn(10), LevelEntry("simple", "hills", {"width": [3, 5]}, 7, par_frames=99)),
            (level_with_spawn(20), LevelEntry("easy")),
            (level_with_spawn(30), LevelEntry("simple")),
        ],
    )
    return tmp_path / "set"


def edit_index(path, change):
    index = json.loads((path / INDEX).read_text())
    change(index)
    (path / INDEX).write_text(json.dumps(index))


def test_write_and_open_restore_levels(path):
    level_set = LevelSet.open(path)
    assert len(level_set) == 3
    assert level_set.categories == ("simple", "easy")
    assert [level_set.category(i) for i in range(3)] == ["simple", "easy", "simple"]
    assert level_set.indices("simple").tolist() == [0, 2] and level_set.indices("simple").dtype == np.int64
    assert list(level_set) == [level_with_spawn(x) for x in (10, 20, 30)]
    assert level_set[-1] == level_with_spawn(30)
    assert level_set.entries[0] == LevelEntry(
        "simple", "hills", {"width": [3, 5]}, 7, 99, "simple/000000.map", level_with_spawn(10).fingerprint
    )
    assert level_set[0].name == str(path / "simple" / "000000.map")


def test_append_adds_levels_under_free_names(path):
    level_set = LevelSet.append(path, [(level_with_spawn(40), LevelEntry("simple"))])
    assert level_set.entries[3].file == "simple/000002.map"
    assert LevelSet.open(path).entries == level_set.entries


def test_append_interrupted_changes_nothing(path):
    def levels():
        yield level_with_spawn(40), LevelEntry("simple")
        raise KeyboardInterrupt

    before = (path / INDEX).read_bytes()
    with pytest.raises(KeyboardInterrupt):
        LevelSet.append(path, levels())
    assert (path / INDEX).read_bytes() == before
    assert LevelSet.append(path, [(level_with_spawn(50), LevelEntry("simple"))])[3] == level_with_spawn(50)


def test_write_and_append_existing_raise_error(path):
    with pytest.raises(LevelSetError, match="exists already; choose another folder"):
        LevelSet.write(path, [])
    with pytest.raises(LevelSetError, match=r"simple/000000\.map exists"):
        LevelSet.append(path, [(level_with_spawn(1), LevelEntry("simple", file="simple/000000.map"))])
    with pytest.raises(LevelSetError, match=r"has no index\.json"):
        LevelSet.append(path / "simple", [])


def test_open_reads_level_on_access_only(path):
    (path / "easy" / "000000.map").unlink()
    level_set = LevelSet.open(path)
    assert level_set[0] == level_with_spawn(10)
    with pytest.raises(LevelSetError, match=r"easy/000000\.map: No such file.*; restore"):
        level_set[1]


def test_getitem_changed_or_damaged_level_raises_error(path):
    level_with_spawn(11).save(path / "simple" / "000000.map")
    (path / "easy" / "000000.map").write_bytes(b"short")
    level_set = LevelSet.open(path)
    with pytest.raises(LevelSetError, match=r"simple/000000\.map has fingerprint .* was changed after it was indexed"):
        level_set[0]
    with pytest.raises(LevelSetError, match=r"easy/000000\.map: 5 bytes; .*; remove or replace this file"):
        level_set[1]


def test_open_plain_folder_is_level_set(tmp_path):
    for folder, name, x in (("caves", "b", 20), ("caves", "a.map", 10), ("", "first level", 30)):
        (tmp_path / folder).mkdir(exist_ok=True)
        level_with_spawn(x).save(tmp_path / folder / name)
    (tmp_path / "README.md").write_text("three levels")
    (tmp_path / ".hidden").write_text("")
    level_set = LevelSet.open(tmp_path)
    assert [entry.file for entry in level_set.entries] == ["caves/a.map", "caves/b", "first level"]
    assert level_set.categories == ("caves", "uncategorised")
    assert list(level_set) == [level_with_spawn(x) for x in (10, 20, 30)]
    assert level_set.fingerprint(1) == level_with_spawn(20).fingerprint


def test_open_sub_folder_of_indexed_set_keeps_categories(path):
    level_set = LevelSet.open(path / "simple")
    assert level_set.categories == ("simple",)
    assert [entry.file for entry in level_set.entries] == ["000000.map", "000001.map"]
    assert level_set.entries[0].generator == "hills"
    assert list(level_set) == [level_with_spawn(10), level_with_spawn(30)]


def test_open_folder_below_foreign_index_ignores_it(tmp_path):
    (tmp_path / INDEX).write_text('{"name": "another program"}')
    (tmp_path / "caves").mkdir()
    level_with_spawn(40).save(tmp_path / "caves" / "a.map")
    assert LevelSet.open(tmp_path / "caves").categories == ("uncategorised",)


def test_open_nested_level_set_is_excluded(path):
    with pytest.raises(LevelSetError, match="holds no levels of its own, but the level sets set; open one of them"):
        LevelSet.open(path.parent)
    (path.parent / "caves").mkdir()
    level_with_spawn(40).save(path.parent / "caves" / "a.map")
    assert [entry.file for entry in LevelSet.open(path.parent).entries] == ["caves/a.map"]


def test_open_names_skipped_files_with_reason(path):
    (path / "forgotten.map").write_bytes(level_with_spawn(40).to_bytes())
    (path / "notes.md").write_text("about this set")
    with pytest.warns(InputWarning, match=r"set: skipped forgotten\.map \(not in index\.json\)$"):
        assert len(LevelSet.open(path)) == 3
    folder = path.parent / "plain"
    folder.mkdir()
    (folder / "text.txt").write_text(level_with_spawn(40).to_text())
    (folder / "readme.txt").write_text("$5 for the #1 level\n")
    for number in range(7):
        (folder / f"{number}.png").touch()
    with pytest.warns(InputWarning, match=r"skipped 0\.png \(not a level\), .* and 3 more$"):
        levels = LevelSet.at(folder)
    assert list(levels) == [level_with_spawn(40)]
    assert levels.skipped["readme.txt"] == "not a level or campaign file" and len(levels.skipped) == 8


@pytest.mark.parametrize("shared", [True, False])
def test_open_linked_folders_are_searched_once(tmp_path, shared):
    folders = [tmp_path / f"f{i}" for i in range(6)]
    for folder in folders:
        folder.mkdir()
        level_with_spawn(10).save(folder / "a.map")
    for folder in folders:
        for other in folders:
            (folder / f"to_{other.name}").symlink_to(other)
    begin = time.monotonic()
    assert len(LevelSet.open(tmp_path if shared else folders[0])) == 6
    assert time.monotonic() - begin < 2


def test_level_bank_of_paths(tmp_path):
    (tmp_path / "a.map").write_bytes(straight().to_bytes())
    assert LevelBank([str(tmp_path / "a.map"), straight(mine=True)]).levels == [straight(), straight(mine=True)]


def test_level_load_address_in_fresh_process(tmp_path):
    (tmp_path / "S.txt").write_text(campaign.to_line(straight()))
    code = f"import nppsim; print(nppsim.Level.load({str(tmp_path / 'S.txt#0')!r}).fingerprint)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == straight().fingerprint


def test_read_levels_of_paths_and_levels(path):
    files = [path / "simple" / "000000.map", str(path / "easy" / "000000.map")]
    levels, entries = read_levels([files[0], level_with_spawn(7), files[1], path])
    assert [level.spawn[0] for level in levels] == [60, 42, 120, 60, 120, 180]
    assert tuple(entry.category for entry in entries) == ("single", "", "single", "simple", "easy", "simple")
    assert [entry.category for entry in read_levels(path)[1]] == ["simple", "easy", "simple"]
    assert read_levels(level_with_spawn(7))[0] == [level_with_spawn(7)]
    with pytest.raises(TypeError, match="levels 5: give a path"):
        read_levels(5)
    with pytest.raises(LevelSetError, match="absent"):
        read_levels(["absent"])


def test_open_missing_empty_or_file_raises_error(tmp_path):
    with pytest.raises(LevelSetError, match="nowhere does not exist; give a folder"):
        LevelSet.open(tmp_path / "nowhere")
    with pytest.raises(LevelSetError, match="holds no levels"):
        LevelSet.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(LevelSetError, match="is a file; give a folder"):
        LevelSet.open(tmp_path / "file")


def test_open_replay_sets_are_ignored(tmp_path):
    level_with_spawn(10).save(tmp_path / "a.map")
    (tmp_path / "simple.h5").write_bytes(bytes(2000))
    with pytest.raises(LevelSetError, match="simple.h5 is an HDF5 file"):
        LevelSet.open(tmp_path)


def test_open_replays_and_texts_are_levels(tmp_path):
    levels = [level_with_spawn(x) for x in (10, 20, 30)]
    levels[0].save(tmp_path / "a.map")
    Replay(levels[1], np.ones(4, np.uint8)).save(tmp_path / "b.replay")
    levels[2].save(tmp_path / "c.level")
    assert list(LevelSet.open(tmp_path)) == levels
    (tmp_path / "d.replay").write_bytes(bytes(2000))
    with pytest.raises(LevelSetError, match=r"d\.replay: .*remove or replace this file"):
        list(LevelSet.open(tmp_path))


def test_indices_unknown_category_raises_error(path):
    with pytest.raises(LevelSetError, match="no levels of category 'hard'; it has simple, easy"):
        LevelSet.open(path).indices("hard")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: index.update(format="x"), "is not the index of a level set"),
        (lambda index: index.update(version=2), r"has version 2; this program reads version 1"),
        (lambda index: index["levels"].insert(1, 3), "level 1: the value should be an object"),
        (lambda index: index["levels"][1].pop("seed"), "level 1: seed missing"),
        (lambda index: index["levels"][1].update(extra=1), "level 1 has the unknown field 'extra'"),
        (lambda index: index["levels"][2].update(par_frames="9"), "level 2: par_frames should be a whole number"),
        (
            lambda index: index["levels"][0].update(file="../x"),
            r"level 0: .*file is '\.\./x'; .*stay inside the folder",
        ),
        (lambda index: index["levels"][0].update(file="/x"), "stay inside the folder"),
        (lambda index: index["levels"][0].update(category="a/../../b"), r"category is 'a/\.\./\.\./b', .*stay inside"),
        (lambda index: index["levels"][0].update(category=""), "level 0 has an empty category"),
    ],
)
def test_open_invalid_index_raises_error_with_position(path, change, message):
    edit_index(path, change)
    with pytest.raises(LevelSetError, match=rf"index\.json.*{message}"):
        LevelSet.open(path)


def test_open_index_without_json_raises_error(path):
    (path / INDEX).write_text((path / INDEX).read_text()[:100])
    with pytest.raises(LevelSetError, match=r"index\.json: not JSON \(.*; restore it, or delete it"):
        LevelSet.open(path)


def test_open_unreadable_index_raises_error(path):
    (path / INDEX).unlink()
    (path / INDEX).mkdir()
    with pytest.raises(LevelSetError, match=r"index\.json: is a folder; give a file"):
        LevelSet.open(path)


def test_open_unreadable_subfolder_raises_error(tmp_path, monkeypatch):
    (tmp_path / "closed").mkdir()
    listed = os.scandir

    def refuse(folder):
        if Path(folder).name == "closed":
            raise PermissionError(13, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(LevelSetError, match=r"closed: cannot be read \(Permission denied\); check its permissions"):
        LevelSet.open(tmp_path)


def test_check_disjoint_shared_or_mirrored_levels_raise_error(path, tmp_path):
    train = LevelSet.open(path)
    fresh = LevelSet.write(tmp_path / "fresh", [(level_with_spawn(41), LevelEntry("simple"))])
    check_disjoint([train], [fresh])
    for same in (level_with_spawn(20), mirror(level_with_spawn(20)), replace(level_with_spawn(20), title="disguised")):
        test = LevelSet.write(tmp_path / f"test{hash(same)}{same.title}", [(same, LevelEntry("simple"))])
        with pytest.raises(LevelSetError, match=r"1 of 1 levels .* simple/000000\.map = easy/000000\.map"):
            check_disjoint([train], [test])


def test_check_disjoint_compares_every_pair_of_sets(path, tmp_path):
    sets = [LevelSet.open(path)]
    for name, x in (("dev", 41), ("test", 42), ("late", 41)):
        sets.append(LevelSet.write(tmp_path / name, [(level_with_spawn(x), LevelEntry("simple"))]))
    first, dev, test, late = sets
    check_disjoint([first], [dev], [test])
    for splits in ([first], [dev], [test], [late]), ([first, dev], [test, late]):
        with pytest.raises(LevelSetError, match=r"1 of 1 levels of .*late are also in .*dev, .* --exclude .*dev"):
            check_disjoint(*splits)
    check_disjoint([first, dev, late], [test])


def test_open_large_index_reads_no_level(path):
    def enlarge(index):
        index["levels"] = [dict(index["levels"][0], file=f"simple/{i}.map") for i in range(20_000)]

    edit_index(path, enlarge)
    assert len(LevelSet.open(path)) == 20_000


def test_append_index_only_generates_levels_when_read(tmp_path):
    made = [generate("campaign_like", seed) for seed in range(3)]
    LevelSet.write(tmp_path / "set", [])
    LevelSet.append(tmp_path / "set", made, index_only=True)
    levels = LevelSet.open(tmp_path / "set")
    assert [*levels] == [level for level, _ in made]
    assert levels[1].name.endswith("campaign_like#1") and [*(tmp_path / "set").iterdir()] == [tmp_path / "set" / INDEX]
    text = (tmp_path / "set" / INDEX).read_text()
    (tmp_path / "set" / INDEX).write_text(text.replace("symmetric", "symetric"))
    with pytest.raises(LevelSetError, match="campaign_like#0: generator 'rooms' cannot make this level"):
        LevelSet.open(tmp_path / "set")[0]
    (tmp_path / "set" / INDEX).write_text(text.replace(made[0][0].fingerprint, made[1][0].fingerprint))
    with pytest.raises(LevelSetError, match="generator differs"):
        LevelSet.open(tmp_path / "set")[0]
