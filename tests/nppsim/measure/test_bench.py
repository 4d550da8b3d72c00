"""python -m nppsim bench at its smallest sizes: JSON, table, comparison with a stored baseline, refusals."""

import json

import pytest

from nppsim.__main__ import main
from nppsim.levels.campaign import to_line
from nppsim.measure import bench
from nppsim.measure.workload import campaign_levels
from nppsim.observe import layout

from places import EXCERPT
from worlds import corridor


def test_bench_json_has_the_documented_keys(capsys, monkeypatch, tmp_path):
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


def test_campaign_levels_leaves_out_damaged_and_unsupported_levels(tmp_path):
    readable, unsupported = corridor(), corridor(entities=[(27, 60, 46)])
    (tmp_path / "S.txt").write_text(f"{to_line(readable)}\n{to_line(unsupported)}\n$damaged#00#\n")
    levels, left_out = campaign_levels(tmp_path / "S.txt")
    assert [level.fingerprint for level in levels] == [readable.fingerprint] and left_out == 2


def test_bench_prints_a_table_and_compares_with_a_baseline(monkeypatch, capsys, tmp_path):
    result = bench.measure_work(bench.TimedWork("levels", lambda: 10), threads=2, rounds=1, seconds=1e-6)
    assert result["per_s_per_core"] == result["per_s"] / 2
    monkeypatch.setattr(bench, "benchmark", lambda plays, **settings: iter([("level_compile/1", result)]))
    stored = tmp_path / "bench.json"
    for factor, status in ((1.1, 0), (2.0, 1)):
        relative = {loop: factor * value for loop, value in result["relative"].items()}
        stored.write_text(json.dumps({"workloads": {"level_compile/1": {"relative": relative}}}))
        assert main(["bench", "--traces", str(EXCERPT), "--baseline", str(stored)]) == status
        printed = capsys.readouterr()
        last = printed.out.splitlines()[-1]
        assert last.startswith(f"| level_compile/1 | levels | {result['per_s']:,.0f} |")
        assert last.endswith(f"| {1 / factor:.2f} to {1 / factor:.2f} |")
        assert ("more than 20% slower than" in printed.err) == bool(status)
    stored.write_text("[]")
    assert main(["bench", "--traces", str(EXCERPT), "--baseline", str(stored)]) == 2
    assert "give the output of python -m nppsim bench --json" in capsys.readouterr().err


def test_bench_invalid_settings_are_errors(capsys):
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
