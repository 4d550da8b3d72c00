"""The benchmark at its smallest: the promised JSON, and figures that are counted rightly."""

import json

import pytest

from nppsim.__main__ import main
from nppsim.levels.campaign import to_line
from nppsim.measure import bench
from nppsim.measure.workload import campaign_levels
from nppsim.observe import layout

from places import EXCERPT
from worlds import corridor


def test_the_json_has_the_promised_form(capsys, monkeypatch, tmp_path):
    (tmp_path / "S.txt").write_text(f"{to_line(corridor())}\n")
    for name in ("NUM_ENVS", "PHYSICS_ENVS", "NUM_DECISIONS"):
        monkeypatch.setattr(bench, name, 8)
    flags = ["--rounds", "1", "--seconds", "0.02", "--threads", "1", "--traces", str(EXCERPT)]
    assert main(["bench", "--json", *flags, "--campaign", str(tmp_path / "S.txt")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {"cpu", "cores", "python", "numba"} <= set(printed["machine"])
    workloads = printed["workloads"]
    assert set(workloads) == {
        "physics/1", "physics_mines/1", "physics_movers/1", "state_only/1", "vision_free/1",
        "foresight/1", "images/1", "with_images/1",
        "campaign/1", "campaign_foresight/1", "reset/1", "snapshot_restore/1", "level_compile/1",
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


def test_damaged_and_unsupported_levels_of_the_game_are_left_out(tmp_path):
    readable, unsupported = corridor(), corridor(entities=[(27, 60, 46)])
    (tmp_path / "S.txt").write_text(f"{to_line(readable)}\n{to_line(unsupported)}\n$damaged#00#\n")
    levels, left_out = campaign_levels(tmp_path / "S.txt")
    assert [level.fingerprint for level in levels] == [readable.fingerprint] and left_out == 2


def test_per_core_is_the_total_shared_among_threads():
    result = bench._measured(bench.Work("frames", lambda: 10), threads=2, rounds=1, seconds=1e-6)
    assert result["per_s_per_core"] == result["per_s"] / 2 == result["frames_per_s_per_core"]


def test_results_are_a_table_of_figures(monkeypatch, capsys):
    result = bench._measured(bench.Work("levels", lambda: 10), threads=1, rounds=1, seconds=1e-6)
    monkeypatch.setattr(bench, "benchmark", lambda plays, **settings: iter([("level_compile/1", result)]))
    assert main(["bench", "--traces", str(EXCERPT)]) == 0
    printed = capsys.readouterr()
    assert "--campaign" in printed.err
    last = printed.out.splitlines()[-1]
    assert last.startswith(f"| level_compile/1 | levels | {result['per_s']:,.0f} |")


def test_settings_out_of_range_are_errors(capsys):
    for flags, message in (
        (["--rounds", "0"], "--rounds 0: give a whole number of at least 1"),
        (["--threads", "4096"], "the number of usable cores"),
    ):
        assert main(["bench", "--json", "--traces", str(EXCERPT), *flags]) == 2
        assert message in capsys.readouterr().err
    for flags, message in (
        (["--start", "--threads", "1"], "--start only measures starts"),
        (["--traces", "no/such/file"], "no such file"),
    ):
        assert main(["bench", *flags]) == 2
        assert message in capsys.readouterr().err
