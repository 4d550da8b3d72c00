"""The benchmark at its smallest: the promised JSON, and figures that are counted rightly."""

import json

import numpy as np
import pytest

from nppsim import simulate
from nppsim.__main__ import main
from nppsim.measure import bench
from nppsim.observe import layout

from places import EXCERPT


def test_the_json_has_the_promised_form(capsys, monkeypatch):
    for name in ("NUM_ENVS", "PHYSICS_ENVS", "NUM_DECISIONS"):
        monkeypatch.setattr(bench, name, 8)
    flags = ["--rounds", "2", "--seconds", "0.02", "--threads", "1", "--traces", str(EXCERPT)]
    assert main(["bench", "--json", *flags]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {"cpu", "cores", "python", "numba"} <= set(printed["machine"])
    workloads = printed["workloads"]
    assert set(workloads) == {
        "physics/1", "physics_mines/1", "physics_movers/1", "state_only/1", "vision_free/1", "images/1", "with_images/1",
        "reset/1", "snapshot_restore/1", "level_compile/1",
    }  # fmt: skip
    for name, result in workloads.items():
        assert result["threads"] == 1
        assert 0 < result["slowest"] <= result["per_s"] <= result["fastest"], name
        assert result["calibration"]["python"] > 0 and result["calibration"]["numba"] > 0
    assert workloads["physics/1"]["frames_per_s_per_core"] > 0
    assert workloads["physics/1"]["observations"] == []
    decisions = workloads["vision_free/1"]
    assert decisions["observations"] == list(layout.VISION_FREE)
    assert decisions["phases_ns_per_decision"]["ninja"] > 0
    assert decisions["frames_per_s_per_core"] == pytest.approx(4 * decisions["decisions_per_s_per_core"])


def test_per_core_is_the_total_shared_among_threads():
    result = bench._measured(lambda: 10, "frames", (), threads=2, rounds=1, seconds=1e-6)
    assert result["per_s_per_core"] == result["per_s"] / 2 == result["frames_per_s_per_core"]


def test_the_physics_kernel_plays_what_was_recorded():
    """After n frames every environment is where the simulator says, or has started again."""
    plays = bench.trace_plays(EXCERPT)[:3]
    bank = bench.LevelBank([play.level for play in plays])
    ninjas, entities = np.zeros(3, bench.NINJA_DTYPE), np.zeros((3, bank.max_entities), bench.ENTITY_DTYPE)
    movers = np.zeros((3, bank.max_movers), bench.MOVER_DTYPE)
    lengths = np.array([len(play.inputs) for play in plays])
    inputs = np.zeros((3, lengths.max() + 1), np.uint8)
    for row, play in zip(inputs, plays, strict=True):
        row[: len(play.inputs)] = play.inputs
    bench.start_all(ninjas, entities, movers, bank.world, np.arange(3))
    frames = int(lengths.max()) + 30
    bench.advance(0, 3, ninjas, entities, movers, bank.world, inputs, lengths, frames)
    for ninja, play in zip(ninjas, plays, strict=True):
        lasted = simulate(play.level, play.inputs).frames
        left = frames % lasted
        run = simulate(play.level, play.inputs[:left])
        expected = run.position[-1] if left else play.level.spawn
        assert (ninja["x"], ninja["y"]) == tuple(expected)


def test_settings_out_of_range_are_errors(capsys):
    for flags, told in (
        (["--rounds", "0"], "at least 1 round"),
        (["--threads", "4096"], "this machine has cores for 1.."),
    ):
        assert main(["bench", "--json", "--traces", str(EXCERPT), *flags]) == 2
        assert told in capsys.readouterr().err
    for flags, told in (
        (["--themes", "mines"], "give --traces FILE.h5 too"),
        (["--traces", str(EXCERPT), "--themes", "none"], "no theme 'none'; it has boostpad"),
        (["--start", "--levels", "datasets/test"], "--start measures the start alone"),
    ):
        assert main(["bench", *flags]) == 2
        assert told in capsys.readouterr().err
    assert main(["bench", "--levels", "no/such/folder"]) == 2
    assert "does not exist" in capsys.readouterr().err
