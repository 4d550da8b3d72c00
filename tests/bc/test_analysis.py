"""Report on demonstrations: statistics of known sets, errors and exit status."""

import subprocess
import sys

import numpy as np
import pytest

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
from bc.baselines import previous_actions, score
from bc.demonstrations import find_replays
from nppsim.levels import kinds
from nppsim.levels.level import Level, mirror
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.replays.replay import Replay, mirror_replay

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


def test_scores_known_sequence_match_hand_computation():
    actions = np.array([2, 2, 2, 5, 2, 2])
    previous = previous_actions(actions)
    assert previous.tolist() == [0, 2, 2, 2, 5, 2]
    repeated, same = score(previous, actions, previous), score(np.full(6, 2), actions, previous)
    assert (repeated.accuracy, repeated.change_accuracy) == (3 / 6, 0.0)
    assert (same.accuracy, same.change_accuracy) == (5 / 6, 2 / 3)


# the numbers


def test_analyse_known_set_counts_actions_and_values(tmp_path):
    near, far = level(20), level(60)
    files = write(
        tmp_path,
        a__one=play(near, (RIGHT, 400)),
        a__two=play(near, (0, 8), (RIGHT, 400)),
        b__one=play(far, (RIGHT, 600)),
    )
    analysis = analyse(files, 4)
    decisions = sum(len(d.actions) for d in analysis.found.demonstrations)
    # right from the start in two of them; no-op twice, then right, in the other
    assert analysis.actions.tolist() == [2, 0, decisions - 2, 0, 0, 0]
    assert analysis.repeated == pytest.approx((decisions - 3) / decisions)
    assert {"drag", "pad_buffer"} <= set(analysis.constant)
    assert not {"x", "vx"} & {*analysis.constant, *analysis.nearly_constant}


def test_analyse_unusual_replays_lists_anomalies(tmp_path):
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
    texts = " ".join(f.text for f in analysis.remarks)
    assert (
        f"{IDLE}: 1 of 4" in texts and "2 of 6 replays cannot be used" in texts and "without an example: jump," in texts
    )
    assert not any(f.problem for f in analysis.remarks)
    assert analysis.par[[d.name for d in analysis.found.demonstrations].index(idle)] == frames


def test_analyse_large_retiming_deviation_is_anomaly(tmp_path, monkeypatch):
    of = level()
    files = write(tmp_path, a__on=play(of, (RIGHT, 400)), a__off=play(level(44), (0, 1), (RIGHT, 400)))
    assert RETIMED_FAR not in analyse(files, 4).anomalies
    monkeypatch.setattr("bc.analysis.LARGE_DEVIATION_PX", 1e-6)
    (one,) = analyse(files, 4).anomalies[RETIMED_FAR]
    assert one.name == "a/off.replay" and one.value > 0 and "px from the recording" in one.detail


def test_analyse_mirrored_levels_counted_as_pairs(tmp_path):
    of = level()
    plain, late = play(of, (RIGHT, 400)), play(of, (0, 8), (RIGHT, 400))
    image = mirror_replay(plain)
    image = Replay(image.level, image.inputs, True)
    analysis = analyse(write(tmp_path, a__a=plain, a__b=late, a__c=image, a__d=play(level(20), (RIGHT, 400))), 4)
    assert analysis.several == (("a/a.replay", "a/b.replay"),)
    assert analysis.mirrored == (("a/a.replay", "a/c.replay", "a/b.replay"),)  # by length
    assert analysis.same_mirrored == 1


def test_analyse_level_coverage_with_and_without_demonstration(tmp_path):
    levels = [level(d) for d in range(10, 50)]
    crowded = level(60, entities=[(kinds.MINE, 80, 50), (kinds.MINE, 90, 50), (kinds.REGULAR_DOOR, 100, 50, 0)])
    every = level_set(
        tmp_path / "levels", *((one, "short", None) for one in levels), (crowded, "short", 9), (level(80), "long", None)
    )
    files = write(tmp_path / "replays", **{f"short__{i}": play(one, (RIGHT, 400)) for i, one in enumerate(levels[:10])})
    coverage = analyse(files, 4, levels=[every]).coverage
    assert coverage["short"].sum() == 10 and len(coverage["short"]) == 41
    assert not coverage["long"].any()
    texts = [f.text for f in analyse(files, 4, levels=[every]).remarks]
    assert "long: 0 of 1 levels have a demonstration (0.0%)" in texts
    assert "short: 10 of 41 levels have a demonstration (24.4%)" in texts


# the command


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


def test_report_command_complete_returns_0(folder, capsys):
    level_set(folder / "levels", (level(20), "a", 90), (level(28), "a", 90), (level(60), "b", 200))
    level_set(folder / "test", (level(70), "a", None))
    assert run_command(folder / "replays", "--levels", folder / "levels", "--held-out", folder / "test") == 0
    printed = capsys.readouterr()
    assert "category" in printed.out and "a: 1 of 2 levels" in printed.out and "frames / par" in printed.out
    assert "1 of 4 replays cannot be used" in printed.out and printed.err == ""
    assert "b/lost <1>.replay" in printed.out and "never vary" in printed.out


def test_text_many_anomalies_lists_ten_of_each_kind(tmp_path):
    late = {f"a__late{i:02d}": play(level(), (0, 100 + i), (RIGHT, 400)) for i in range(0, 60, 4)}
    text = analyse(write(tmp_path, a__one=play(level(), (RIGHT, 400)), **late), 4).text()
    listed = text[text.index(f"\n{IDLE}: 15\n") :]
    assert listed.count("consecutive frames without moving") == 10


@pytest.mark.parametrize("image", [lambda one: one, mirror], ids=["equal", "mirrored"])
def test_analyse_held_out_level_is_leak(folder, capsys, image):
    level_set(folder / "test", (image(level(60)), "b", None), (level(70), "b", None))
    assert run_command(folder / "replays", "--held-out", folder / "test") == 1
    assert "PROBLEM: LEAK: 1 of 3 demonstrations are of held-out levels" in capsys.readouterr().out


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
    ],
)
def test_report_command_bad_input_prints_one_error(folder, capsys, arguments, message):
    (folder / "empty").mkdir()
    (folder / "broken").mkdir()
    (folder / "broken" / "bad.map").write_bytes(b"no level")
    write(folder / "lost", a__lost=Replay(level(), np.zeros(9, np.uint8), True))
    assert run_command(*[argument.format(folder=folder) for argument in arguments]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and message in printed and printed.count("error") == 1


def test_progress_bar_terminal_only(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert run_command(folder / "replays") == 0
    printed = capsys.readouterr().err
    assert "playback" in printed and "states" in printed


def test_report_command_runs_without_torch():
    code = "import sys, bc.analysis; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
