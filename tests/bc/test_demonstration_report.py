"""The report on demonstrations: its numbers on sets made by hand, the page, the errors, and the exit status."""

import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nppsim
from bc import __main__ as command_line
from bc.analysis import (
    AFTER_WIN,
    BOTH_HELD,
    DEFECT,
    IDLE,
    NOT_IN_LEVELS,
    OTHER_CATEGORY,
    RETIMED_FAR,
    SLOWER_THAN_OTHERS,
    SLOWER_THAN_PAR,
    analyse,
)
from bc.baselines import predictors, previous_actions, score, transition_counts
from bc.demonstration_report import render_report, summary
from bc.demonstrations import find_replays
from nppsim.levels import kinds
from nppsim.levels.level import Level, mirror
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.replays.replay import Replay, mirror_replay

from packages import hide
from places import ROOT

RIGHT, LEFT, BOTH = 2, 4, 6


def level(distance=40, **more):
    """A flat room: the exit's switch and the exit to the right of the spawn, ``distance`` units of 6 px apart."""
    exits = [((30, 94), (30 + distance, 94))]
    return Level.build(np.zeros((23, 42), np.uint8), (20, 94), exits=exits, **more)


def play(of, *stretches):
    """The replay of some (input byte, frames), cut at the win."""
    inputs = np.concatenate([np.full(frames, byte, np.uint8) for byte, frames in stretches])
    run = nppsim.simulate(of, inputs)
    assert run.outcome == "won"
    return Replay(of, inputs[: run.frames], True)


def write(folder, **replays):
    """Files ``CATEGORY/NAME.replay`` from CATEGORY__NAME=replay, read back."""
    for name, replay in replays.items():
        path = folder / f"{name.replace('__', '/')}.replay"
        path.parent.mkdir(parents=True, exist_ok=True)
        replay.save(path)
    return find_replays(folder)


def level_set(path, *levels):
    """A level set of (level, category, par)."""
    return LevelSet.write(path, [(one, LevelEntry(category, par_frames=par)) for one, category, par in levels])


def run_command(*arguments):
    return command_line.main(["report", *map(str, arguments)])


# trivial predictors


def test_predictors_of_a_sequence_worked_out_by_hand():
    actions = np.array([2, 2, 2, 5, 2, 2])
    previous = previous_actions(actions)
    assert previous.tolist() == [0, 2, 2, 2, 5, 2]
    counts = transition_counts(actions, previous)
    assert counts.sum() == 6 and counts[2, 2] == 3 and counts[2, 5] == counts[5, 2] == counts[0, 2] == 1
    found = {name: score(table[previous], actions, previous) for name, table in predictors(counts).items()}
    assert {name: (m.accuracy, m.change_accuracy) for name, m in found.items()} == {
        "repeat_previous": (3 / 6, 0.0),
        "majority": (5 / 6, 2 / 3),
        "transition": (5 / 6, 2 / 3),
        "transition_on_change": (3 / 6, 1.0),
    }


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60))
def test_no_table_beats_the_transitions_where_they_were_learned(actions):
    actions = np.array(actions)
    previous = previous_actions(actions)
    tables = predictors(transition_counts(actions, previous))
    right = {name: score(table[previous], actions, previous) for name, table in tables.items()}
    assert right["transition"].accuracy == max(m.accuracy for m in right.values())
    changes = [m.change_accuracy for m in right.values() if m.change_accuracy is not None]
    if changes:
        assert right["transition_on_change"].change_accuracy == max(changes)
        assert right["repeat_previous"].change_accuracy == 0
    assert not (tables["transition_on_change"] == np.arange(6)).any()


# the numbers


def test_groups_of_a_set_made_by_hand(tmp_path):
    near, far = level(20), level(60)
    files = write(
        tmp_path,
        a__one=play(near, (RIGHT, 400)),
        a__two=play(near, (0, 8), (RIGHT, 400)),
        b__one=play(far, (RIGHT, 600)),
    )
    analysis = analyse(files, 4)
    lengths = {d.name: len(d.actions) for d in analysis.found.demonstrations}
    a, b, total = analysis.groups["a"], analysis.groups["b"], analysis.total
    assert a.lengths.tolist() == [lengths["a/one.replay"], lengths["a/two.replay"]]
    assert sorted(total.lengths) == sorted(lengths.values())
    # one: right from the start; two: no-op twice, then right
    assert a.actions.tolist() == [2, 0, sum(a.lengths) - 2, 0, 0, 0]
    assert a.transitions[0].tolist() == [2, 0, 2, 0, 0, 0] and a.transitions[2, 2] == sum(a.lengths) - 4
    assert sorted(a.holds) == sorted([2, a.lengths[0], a.lengths[1] - 2])
    assert len(total.holds) == 4  # the end of one demonstration and the start of the next are two stretches
    assert a.baselines["repeat_previous"].accuracy == pytest.approx((sum(a.lengths) - 2) / sum(a.lengths))
    assert a.baselines["transition_on_change"].change_accuracy == 1
    assert b.transitions.sum() == b.positions.sum() == b.lengths.sum()
    assert (a.positions + b.positions == total.positions).all()
    # all of it on the floor: no row of tiles but that of the spawn
    assert np.flatnonzero(total.positions.sum(axis=1)).tolist() == [94 * 6 // 24]
    components = {c.name: c for c in analysis.components}
    assert components["drag"].constant and components["pad_buffer"].low == components["pad_buffer"].high == -1
    assert not components["x"].constant and components["x"].low == 120
    assert components["vx"].high > 3 and components["vx"].spread > 0


def test_anomalies_have_names_and_numbers(tmp_path):
    of = level()
    plain = play(of, (RIGHT, 400))
    frames = plain.frames
    both = Replay(of, np.append(np.full(8, BOTH, np.uint8), play(of, (LEFT, 8), (RIGHT, 400)).inputs[8:]), True)
    write(
        tmp_path,
        simple__plain=plain,
        simple__more=Replay(level(44), np.append(play(level(44), (RIGHT, 400)).inputs, np.zeros(7, np.uint8)), True),
        simple__both=both,
        simple__idle=play(of, (0, 5 * frames), (RIGHT, 400)),
        simple__lost=Replay(of, np.zeros(20, np.uint8), True),
        simple__twin=Replay(of, np.append(plain.inputs, [0]), True),
    )
    cut = tmp_path / "simple" / "plain.replay"
    data = bytearray(cut.read_bytes())
    data[8:12] = (frames + 5).to_bytes(4, "little")  # claims five more inputs than there are
    cut.write_bytes(bytes(data))
    levels = level_set(tmp_path / "levels", (of, "medium", frames))
    analysis = analyse(find_replays(tmp_path), 4, levels=[levels])
    found = {kind: {a.name: a.value for a in items} for kind, items in analysis.anomalies.items()}
    idle, slow = "simple/idle.replay", 6.0
    assert found[IDLE][idle] == pytest.approx(5 * frames, abs=8)
    assert found[SLOWER_THAN_PAR] == {idle: pytest.approx(slow, abs=0.1)}
    assert found[SLOWER_THAN_OTHERS].keys() == {idle}
    assert found[AFTER_WIN]["simple/more.replay"] == 7
    assert found[BOTH_HELD] == {"simple/both.replay": 8}
    assert found[NOT_IN_LEVELS].keys() == {"simple/more.replay"}
    assert set(found[OTHER_CATEGORY]) == {d.name for d in analysis.found.demonstrations} - {"simple/more.replay"}
    assert found["does not finish"].keys() == {"simple/lost.replay"}
    assert found["duplicate"].keys() == {"simple/twin.replay"}
    assert "same level and actions" in analysis.anomalies["duplicate"][0].detail
    assert found[DEFECT].keys() == {"simple/plain.replay"}
    assert f"{frames + 5} inputs declared" in analysis.anomalies[DEFECT][0].detail
    texts = " ".join(f.text for f in analysis.findings)
    assert (
        f"{IDLE}: 1 of 4" in texts and "2 of 6 replays cannot be used" in texts and "without an example: jump," in texts
    )
    assert not any(f.problem for f in analysis.findings)
    assert analysis.par[[d.name for d in analysis.found.demonstrations].index(idle)] == frames


def test_a_recording_with_a_large_deviation_after_retiming_is_an_anomaly(tmp_path, monkeypatch):
    of = level()
    files = write(tmp_path, a__on=play(of, (RIGHT, 400)), a__off=play(level(44), (0, 1), (RIGHT, 400)))
    assert RETIMED_FAR not in analyse(files, 4).anomalies
    monkeypatch.setattr("bc.analysis.LARGE_DEVIATION_PX", 1e-6)
    (one,) = analyse(files, 4).anomalies[RETIMED_FAR]
    assert one.name == "a/off.replay" and one.value > 0 and "px from the recording" in one.detail


def test_several_demonstrations_and_mirror_images_are_counted(tmp_path):
    of = level()
    plain, late = play(of, (RIGHT, 400)), play(of, (0, 8), (RIGHT, 400))
    image = mirror_replay(plain)
    image = Replay(image.level, image.inputs, True)
    analysis = analyse(write(tmp_path, a__a=plain, a__b=late, a__c=image, a__d=play(level(20), (RIGHT, 400))), 4)
    assert analysis.several == (("a/a.replay", "a/b.replay"),)
    assert analysis.mirrored == (("a/a.replay", "a/c.replay", "a/b.replay"),)  # by length
    assert analysis.same_mirrored == 1


def test_levels_with_and_without_demonstration(tmp_path):
    levels = [level(d) for d in range(10, 50)]
    crowded = level(60, entities=[(kinds.MINE, 80, 50), (kinds.MINE, 90, 50), (kinds.REGULAR_DOOR, 100, 50, 0)])
    every = level_set(
        tmp_path / "levels", *((one, "short", None) for one in levels), (crowded, "short", 9), (level(80), "long", None)
    )
    files = write(tmp_path / "replays", **{f"short__{i}": play(one, (RIGHT, 400)) for i, one in enumerate(levels[:10])})
    coverage = analyse(files, 4, levels=[every]).coverage
    assert coverage["short"].sum() == 10 and len(coverage["short"]) == 41
    assert not coverage["long"].any()
    texts = [f.text for f in analyse(files, 4, levels=[every]).findings]
    assert "long: 0 of 1 levels have a demonstration (0.0%)" in texts
    assert "short: 10 of 41 levels have a demonstration (24.4%)" in texts


# the page and the command


@pytest.fixture
def folder(tmp_path):
    write(
        tmp_path / "replays",
        a__one=play(level(20), (RIGHT, 400)),
        a__two=play(level(24), (0, 8), (RIGHT, 400)),
        b__one=play(level(60), (RIGHT, 600)),
        **{"b__lost <1>": Replay(level(60), np.zeros(9, np.uint8), True)},
    )
    return tmp_path


def test_the_page_is_complete_and_the_status_0(folder, capsys):
    level_set(folder / "levels", (level(20), "a", 90), (level(28), "a", 90), (level(60), "b", 200))
    level_set(folder / "test", (level(70), "a", None))
    out = folder / "new" / "report.html"
    arguments = "--levels", folder / "levels", "--held-out", folder / "test", "--out", out
    assert run_command(folder / "replays", *arguments) == 0
    printed = capsys.readouterr()
    assert "category" in printed.out and f"report: {out}" in printed.out and "a: 1 of 2 levels" in printed.out
    assert "1 of 4 replays cannot be used" in printed.out and printed.err == ""
    page = out.read_text()
    titles = "Counts", "Lengths", "Actions", "Trivial predictors", "States", "Compared with the levels", "Duplicates"
    for title in (*titles, "Anomalies"):
        assert f"<h2>{title}</h2>" in page
    assert "b/lost &lt;1&gt;.replay" in page and "<1>" not in page and "frames / par, median" in page
    assert not re.search(r'(src|href)="(https?:)?//', page)
    assert page.count("data:image/png;base64,") == 7
    assert "never varies" in page and "50.0%" in page
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


def test_the_page_without_level_sets_and_with_one_demonstration(tmp_path):
    analysis = analyse(write(tmp_path, a__one=play(level(), (RIGHT, 400))), 4, folder="here")
    page = render_report(analysis)
    assert "not compared: no --levels given" in page and "no par" in page and "Demonstrations in here" in page
    assert "<th>all</th>" not in page and "findings:" in summary(analysis)


def test_names_of_folders_and_files_are_escaped(tmp_path):
    script = "<script>alert(1)<"
    files = write(
        tmp_path,
        **{
            f"{script}__{script}": play(level(), (RIGHT, 400)),
            f"{script}__lost": Replay(level(), np.zeros(9, np.uint8)),
        },
    )
    page = render_report(analyse(files, 4, folder=script))
    assert "<script" not in page and page.count("&lt;script&gt;alert(1)&lt;") > 5


def test_at_most_twenty_anomalies_of_each_kind_are_listed(tmp_path):
    lost = {f"a__lost{i:02d}": Replay(level(), np.zeros(4 + i, np.uint8), True) for i in range(25)}
    page = render_report(analyse(write(tmp_path, a__one=play(level(), (RIGHT, 400)), **lost), 4))
    anomalies = page[page.index("<h2>Anomalies</h2>") :]
    assert "does not finish: 25" in anomalies and anomalies.count("<th>a/lost") == 20 and "… and 5 more" in anomalies


@pytest.mark.parametrize("image", [lambda one: one, mirror], ids=["equal", "mirrored"])
def test_a_held_out_level_is_a_leak(folder, capsys, image):
    level_set(folder / "test", (image(level(60)), "b", None), (level(70), "b", None))
    out = folder / "report.html"
    assert run_command(folder / "replays", "--held-out", folder / "test", "--out", out) == 1
    assert "PROBLEM: LEAK: 1 of 3 demonstrations are of held-out levels" in capsys.readouterr().out
    page = out.read_text()
    assert "LEAK" in page and "Demonstrations of held-out levels: 1" in page and "b/one.replay" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "missing: neither a folder"),
        (["{folder}/empty"], r"no *.replay or *.h5 files"),
        (["{folder}/lost"], "none of 1 replays can be used"),
        (["{folder}/replays", "--levels", "missing"], "missing does not exist"),
        (["{folder}/replays", "--held-out", "{folder}/empty"], "holds no levels"),
        (["{folder}/replays", "--levels", "{folder}/broken"], "bad.map"),
        (["{folder}/replays", "--frame-skip", "0"], "--frame-skip 0: give a whole number from 1 to 60"),
        (["{folder}/replays", "--out", "{folder}/page.txt"], "a name that ends in .html"),
        (["{folder}/replays", "--out", "{folder}/file/page.html"], "cannot be written"),
    ],
)
def test_bad_input_is_one_clear_error(folder, capsys, arguments, message):
    (folder / "empty").mkdir()
    (folder / "broken").mkdir()
    (folder / "broken" / "bad.map").write_bytes(b"no level")
    (folder / "file").write_text("in the way")
    write(folder / "lost", a__lost=Replay(level(), np.zeros(9, np.uint8), True))
    command = [argument.format(folder=folder) for argument in arguments]
    assert run_command(*command, *([] if "--out" in command else ["--out", folder / "out.html"])) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and message in printed and printed.count("error") == 1
    assert not (folder / "out.html").exists()


def test_a_bar_is_shown_on_a_terminal_only(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert run_command(folder / "replays", "--out", folder / "out.html") == 0
    printed = capsys.readouterr().err
    assert "playback" in printed and "states" in printed


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_a_missing_extra_is_named(folder, capsys, monkeypatch, package):
    hide(monkeypatch, package)
    monkeypatch.setattr(command_line, "analyse", None)  # not called
    assert run_command(folder / "replays", "--out", folder / "out.html") == 2
    printed = capsys.readouterr().err
    assert f"{package} is needed for this and is not installed; run pip install 'nppsim[train]'" in printed


def test_the_report_needs_no_torch():
    code = "import sys, bc.demonstration_report, bc.analysis; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
