"""Demonstrations made by the planner: reproducible, resumable, complete."""

import inspect
import os
import signal
from dataclasses import replace

import numpy as np
import pytest

import bc.planned_demonstrations
import nppsim
from bc.demonstrations import DemonstrationError, find_replays, load_demonstrations
from bc.planned_demonstrations import PlannerSettings, make_demonstrations
from nppsim.errors import ConfigError
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.planner import par_frames, plan
from nppsim.replays.replay_set import ReplaySet, ReplayWriter

from places import ROOT
from programs import load_script
from worlds import FLOOR, corridor

USUAL = PlannerSettings()


def sealed():
    """A level that cannot be finished: spawn and exit in two holes."""
    grid = np.ones((23, 42), np.uint8)
    grid[10, 4], grid[10, 20:23] = 0, 0
    return Level.build(grid, (22, FLOOR), exits=[((86, FLOOR), (90, FLOOR))])


@pytest.fixture
def levels(tmp_path):
    """Two categories by turns; the third level cannot be finished, the last is the first again."""
    worlds = [corridor(), corridor(20, 31), sealed(), corridor(20, 32), corridor(20, 33), corridor(20, 34), corridor()]
    categories = ["a", "b", "a", "b", "a", "a", "a"]
    made = LevelSet.write(
        tmp_path / "levels",
        [
            (world, LevelEntry(category, par_frames=par_frames(world)))
            for world, category in zip(worlds, categories, strict=True)
        ],
    )
    return made.path


def content(folder):
    """Of each file: name, seed, inputs and metadata of its replays."""
    found = {}
    for path in sorted(folder.rglob("*.h5")):
        with ReplaySet(path) as replays:
            found[path.name] = [
                (replay.name, replay.level.fingerprint, replay.inputs.tolist(), replays.entry(i).metadata)
                for i, replay in enumerate(replays)
            ]
    return found


def test_defaults_equal_planner_defaults():
    defaults = {name: parameter.default for name, parameter in inspect.signature(plan).parameters.items()}
    for name in ("frame_skip", "seed", "budget", "min_hold", "noise"):
        assert getattr(PlannerSettings(), name) == defaults[name]


def test_make_demonstrations_writes_winning_replays_per_category(levels, tmp_path):
    made = make_demonstrations(levels, tmp_path / "out", workers=1)
    assert (made.written, made.found, made.duplicates, made.failed) == (5, 0, 1, 0)
    assert made.unfinished == ("a/000001.map",)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".lock", "a.h5", "b.h5"]
    with ReplaySet(tmp_path / "out" / "a.h5") as replays:
        assert replays.names == ("a/000000.map", "a/000002.map", "a/000003.map")
        for replay in replays:
            run = nppsim.simulate(replay.level, replay.inputs)
            assert (run.outcome, run.frames, replay.success, replay.frame_skip) == ("won", replay.frames, True, 4)
        about = replays.entry(0)
    assert (about.category, about.metadata["source"], about.metadata["seed"]) == ("a", "planner", 0)
    assert about.metadata["par_frames"] == about.frames
    assert about.metadata["planner"]["budget"] == PlannerSettings().budget
    again = make_demonstrations(levels, tmp_path / "out", workers=1)
    assert (again.written, again.found, again.unfinished) == (0, 5, made.unfinished)
    loaded = load_demonstrations(find_replays(tmp_path / "out"), 4).demonstrations
    assert [(d.name, d.category) for d in loaded] == [
        ("a.h5#0", "a"), ("a.h5#1", "a"), ("a.h5#2", "a"), ("b.h5#0", "b"), ("b.h5#1", "b")
    ]  # fmt: skip


def test_make_demonstrations_output_among_levels_raises_error(levels):
    for out in (levels, levels / "a"):
        with pytest.raises(DemonstrationError, match="lies in the folder"):
            make_demonstrations(levels, out, workers=1)
    assert not list(levels.rglob("*.h5"))


def test_make_demonstrations_workers_and_interruptions_same_result(levels, tmp_path, monkeypatch):
    varied = PlannerSettings(runs=2, noise=30.0)
    make_demonstrations(levels, tmp_path / "whole", varied, workers=1)
    make_demonstrations(levels, tmp_path / "parallel", varied, workers=2)
    assert content(tmp_path / "parallel") == content(tmp_path / "whole")
    monkeypatch.setattr(bc.planned_demonstrations, "SAVE_EVERY_S", 0.0)  # flush after each level
    for calls in range(3, 13, 3):
        left = iter(range(calls))

        def interrupted(*arguments, left=left, **more):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return plan(*arguments, **more)

        with monkeypatch.context() as patch:
            patch.setattr(bc.planned_demonstrations, "plan", interrupted)
            try:
                make_demonstrations(levels, tmp_path / "parts", varied, workers=1)
            except KeyboardInterrupt:
                continue
    make_demonstrations(levels, tmp_path / "parts", varied, workers=1)
    assert content(tmp_path / "parts") == content(tmp_path / "whole")


def test_make_demonstrations_interrupted_between_runs_loses_none(levels, tmp_path, monkeypatch):
    varied = PlannerSettings(runs=2, noise=30.0)
    make_demonstrations(levels, tmp_path / "whole", varied, workers=1)
    append, left = ReplayWriter.append, iter(range(3))

    def interrupted(*arguments, **more):
        if next(left, None) is None:
            raise KeyboardInterrupt
        append(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(ReplayWriter, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make_demonstrations(levels, tmp_path / "cut", varied, workers=1)
    assert sum(map(len, content(tmp_path / "cut").values())) == 3
    made = make_demonstrations(levels, tmp_path / "cut", varied, workers=1)
    assert made.found == 3 and content(tmp_path / "cut") == content(tmp_path / "whole")
    assert make_demonstrations(levels, tmp_path / "cut", varied, workers=1).written == 0


def test_make_demonstrations_counts_duplicates_and_failures(levels, tmp_path, monkeypatch):
    def planned(level, frame_skip, *, seed, **more):
        if seed == 7:
            return None
        return plan(level, frame_skip, seed=seed // 2, **more)

    monkeypatch.setattr(bc.planned_demonstrations, "plan", planned)
    made = make_demonstrations(levels, tmp_path / "out", replace(USUAL, seed=4, runs=4), workers=1)
    seeds = [metadata["seed"] for *_, metadata in content(tmp_path / "out")["b.h5"]]
    assert set(seeds) <= {4, 6} and seeds.count(4) == 2
    assert made.failed == 5 and len(made.unfinished) == 1
    assert made.written + made.duplicates + made.failed == 6 * 4  # all levels but the sealed one, runs of each


def test_make_demonstrations_other_settings_raises_error(levels, tmp_path):
    make_demonstrations(levels, tmp_path / "out", USUAL, workers=1)
    before = content(tmp_path / "out")
    with pytest.raises(DemonstrationError, match=r"a\.h5: replay 0 was made with .*'noise': 12\.0.*another folder"):
        make_demonstrations(levels, tmp_path / "out", replace(USUAL, noise=3.0), workers=1)
    LevelSet.write(tmp_path / "other", [(corridor(20, 35), LevelEntry("a"))])
    with pytest.raises(DemonstrationError, match=r"a\.h5: replay 0 \(a/000000\.map\) is not of the expected level"):
        make_demonstrations(tmp_path / "other", tmp_path / "out", USUAL, workers=1)
    with ReplaySet(tmp_path / "out" / "a.h5") as replays, ReplayWriter(tmp_path / "human" / "a.h5") as writer:
        writer.path.parent.mkdir()
        writer.append(replays[0])
    with pytest.raises(DemonstrationError, match="replay 0 was made with other means"):
        make_demonstrations(levels, tmp_path / "human", USUAL, workers=1)
    assert content(tmp_path / "out") == before


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_make_demonstrations_crashed_worker_raises_error(levels, tmp_path, monkeypatch):
    monkeypatch.setattr(bc.planned_demonstrations, "_plan_level", die)
    with pytest.raises(DemonstrationError, match="a worker process died, .* fewer workers"):
        make_demonstrations(levels, tmp_path / "out", workers=2)


@pytest.mark.parametrize(
    "setting", [{"runs": 0}, {"min_hold": 0}, {"noise": float("nan")}, {"noise": float("inf")}, {"budget": -1}]
)
def test_make_demonstrations_invalid_settings_raise_error(setting):
    with pytest.raises(ConfigError, match="give a "):
        PlannerSettings(**setting)


def test_script_prints_counts_and_levels_without_run(levels, tmp_path, capsys, monkeypatch):
    path = ROOT / "scripts" / "make_demonstrations.py"  # a file, where a folder is wanted
    script = load_script("make_demonstrations")

    def call(*more):
        return script.main(["--levels", str(levels), "--out", str(tmp_path / "out"), "--workers", "1", *more])

    assert call() == 1
    printed = capsys.readouterr().out
    assert printed.startswith("5 demonstrations written, 0 existed already\n")
    assert printed.endswith("no run found within the budget on 1 levels:\n  a/000001.map\n")
    for more, message in [
        (["--runs", "2"], "was made with"),
        (["--runs", "0"], "--runs 0: give a whole number of at least 1"),
        (["--workers", "0"], "--workers 0: give a whole number from 1 to 1,024"),
        (["--levels", "nowhere"], "nowhere does not exist"),
        (["--workers", "0"], "--workers 0: give a whole number from 1 to 1,024"),
        (["--out", str(path)], f"--out {path}: cannot be written"),
        (["--out", str(path / "inner")], f"--out {path / 'inner'}: cannot be written"),
    ]:
        assert call(*more) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and message in error and error.count("\n") == 1

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(script, "make_demonstrations", interrupted)
    assert call() == 130
    assert "repeat the command to continue" in capsys.readouterr().err
