"""Timing, workloads, perf_benchmark.py with every exit status, and profile_multi_config.py."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nppsim.batch import BatchSimulator
from nppsim.generate import generate
from nppsim.levels.kinds import ENTITY_NAMES
from nppsim.measure import throughput, timing, workload
from nppsim.measure.workload import (
    RANDOM_TYPES,
    WorkloadSettings,
    generated_levels,
    random_levels,
    random_play,
    recorded_play,
)
from nppsim.physics.outcomes import WON
from nppsim.planner import plan
from nppsim.replays.playback import find_files, read_file
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplayWriter

from places import ROOT
from programs import load_script
from results import altered

TINY = WorkloadSettings(envs=4, iterations=20, rounds=3, warmup=5)
SMALL = ["--envs", "4", "--iterations", "20", "--rounds", "3", "--warmup", "5"]


perf_benchmark, profile_multi_config = map(load_script, ("perf_benchmark", "profile_multi_config"))


class Clock:
    """Substitute for ``perf_counter``: each round takes the next of ``seconds``, in a cycle."""

    def __init__(self, *seconds):
        self.seconds, self.now, self.calls = itertools.cycle(seconds), 0.0, 0

    def __call__(self):
        self.calls += 1
        if self.calls % 2 == 0:  # a round's end
            self.now += next(self.seconds)
        return self.now


class Checks(SimpleNamespace):
    """Substitute for a Shadow with a fixed number of comparisons per step."""

    def before(self, actions):
        self.comparisons += self.each
        self.mismatches += self.wrong

    def after(self, final):
        pass

    def after_reset(self, levels):
        pass


class Switched(BatchSimulator):
    """Simulator with artificial phases (ninja 3000 ns, rewards 1000) and validation (2 comparisons per step)."""

    each, mismatches = 2, 0

    def __init__(self, *arguments, profile=False, shadow=False, **keywords):
        super().__init__(*arguments, profile=False, shadow=False, **keywords)
        self.profile = profile
        self.shadow = Checks(comparisons=0, mismatches=0, each=self.each, wrong=self.mismatches) if shadow else None

    step_timing = property(lambda self: {"ninja": 3000.0, "rewards": 1000.0, "events": 10.0} if self.profile else {})


@pytest.fixture
def steady(monkeypatch):
    """Every round takes one second, and the calibration loops have constant speed; no project baseline."""
    monkeypatch.setattr(timing, "perf_counter", Clock(1.0))
    monkeypatch.setattr(timing, "calibrate", lambda: {"python": 10.0, "numba": 500.0})
    monkeypatch.setattr(perf_benchmark, "STORED", Path("absent"))


# ---------------------------------------------------------------------------------------------------------------------
# Statistics, by hand


def test_summarise_by_hand():
    summary = timing.summarise([1.0, 2.0, 3.0, 4.0])
    assert (summary.mean, summary.min, summary.max, summary.p50) == (2.5, 1.0, 4.0, 2.5)
    assert summary.sd == pytest.approx((5 / 3) ** 0.5)
    assert (summary.p95, summary.p99) == pytest.approx((3.85, 3.97))
    with pytest.raises(timing.TimingError, match="at least two"):
        timing.summarise([1.0])


@pytest.mark.parametrize(("cv", "word"), [(0.01, "excellent"), (0.07, "good"), (0.15, "fair"), (0.25, "poor")])
def test_stability_of_two_rounds(cv, word):
    spread = cv * 2**0.5 / 2
    assert timing.summarise([1 - spread, 1 + spread]).cv == pytest.approx(cv)
    assert timing.summarise([1 - spread, 1 + spread]).stability == word


def test_amdahl_of_shares():
    assert timing.amdahl(0.3, 2) == pytest.approx(1 / 0.85)
    assert timing.amdahl(0, 10) == timing.amdahl(1, 1) == 1
    with pytest.raises(timing.TimingError):
        timing.amdahl(1.2, 2)


def test_alternate_runs_a_b_b_a(monkeypatch):
    order = []
    monkeypatch.setattr(timing, "perf_counter", Clock(1.0, 2.0, 2.0, 1.0, 1.0, 2.0))
    a, b = timing.alternate(lambda: order.append("a"), lambda: order.append("b"), 3)
    assert "".join(order) == "abbaab"
    assert (a, b) == ([1.0] * 3, [2.0] * 3)


def test_relative_speeds_on_a_slower_machine_are_equal():
    """The loops and the work are half as fast there; a loss of 30 % is noticed if all loops agree."""
    here, there = (
        {"relative": timing.relative_to_loops([100.0 * f], {"python": [10.0 * f], "numba": [500.0 * f]})}
        for f in (1, 0.5)
    )
    assert timing.relative_speeds(here, there) == {"python": 1.0, "numba": 1.0}
    slower = {"relative": {loop: 0.7 * value for loop, value in here["relative"].items()}}
    assert timing.is_slower(slower, there) and not timing.is_slower(here, there)
    assert not timing.is_slower({"relative": slower["relative"] | {"numba": here["relative"]["numba"]}}, there)


# ---------------------------------------------------------------------------------------------------------------------
# Workloads


def test_recorded_play_wins_one_recording_after_another():
    replays = ROOT / "datasets" / "demonstrations" / "simplest.h5"
    settings = replace(TINY, envs=70, iterations=30)
    work = recorded_play(replays, settings)
    player = work.player()
    wins = 0
    for _ in range(settings.rows):
        player.play(1)
        finished = player.simulator.finished
        wins += len(finished)
        assert (player.simulator.episode[finished]["outcome"] == WON).all()
    assert wins > 70


def test_recorded_play_counts_unusable_recordings(tmp_path):
    good = next(read_file(find_files([ROOT / "datasets" / "demonstrations"])[0]))
    good.save(tmp_path / "good.replay")
    Replay(good.level, good.inputs[: good.frames // 2 // 4 * 4]).save(tmp_path / "cut.replay")
    Replay(good.level, np.array([0, 1, 0, 1, 2] * 20, np.uint8)).save(tmp_path / "off_grid.replay")
    work = recorded_play(tmp_path, TINY)
    assert work.source == "1 recordings"
    assert sorted(work.notes) == [
        "left out: 1 of 3 replays do not end their episode within its time limit",
        "left out: 1 of 3 replays do not have one action per 4 frames",
    ]
    (tmp_path / "good.replay").unlink()
    with pytest.raises(timing.TimingError, match="no replay can be used"):
        recorded_play(tmp_path, TINY)


def test_recorded_play_of_a_set_equals_that_of_its_replays(tmp_path):
    levels = [generate("simplest", seed)[0] for seed in range(2)]
    replays = [Replay(level, plan(level).inputs) for level in levels]
    (tmp_path / "files").mkdir()
    with ReplayWriter(tmp_path / "sets.h5") as writer:
        for i, replay in enumerate(replays):
            replay.save(tmp_path / "files" / f"{i}.replay")
            writer.append(replay)
    one, other = recorded_play(tmp_path / "sets.h5", TINY), recorded_play(tmp_path / "files", TINY)
    assert one.source == other.source == "2 recordings"
    assert one.actions.tobytes() == other.actions.tobytes()


def test_random_levels_have_requested_densities():
    levels = random_levels(20, 0, density=0.2, entity_density=0.05)
    assert np.mean([level.tiles > 0 for level in levels]) == pytest.approx(0.2, abs=0.01)
    assert {len(level.records) - 1 - 6 for level in levels} == {round(0.05 * 23 * 42)}  # beside exit and two doors
    work = random_play(levels, TINY, "x")
    assert set(work.coverage) >= {ENTITY_NAMES[kind] for kind in RANDOM_TYPES} | {"locked door", "trap door"}


def test_key_of_equal_workloads_is_equal():
    def key(first_level=0, **changes):
        return random_play(generated_levels("simplest", 3, first_level), replace(TINY, **changes), "x").key

    assert key() == key()
    assert key()["levels"] != key(first_level=1)["levels"]
    assert key()["actions"] != key(seed=1)["actions"]


def test_amount_above_the_memory_limit_is_refused():
    with pytest.raises(timing.TimingError, match="GiB"):
        WorkloadSettings(envs=1024, iterations=20_000)


# ---------------------------------------------------------------------------------------------------------------------
# perf_benchmark.py: every exit status


@pytest.fixture
def stored(steady, tmp_path, capsys):
    """A stored result of 80 decisions/s."""
    path = tmp_path / "results" / "before.json"
    assert perf_benchmark.main([*SMALL, "--phase", "before", "--output", str(path)]) == 0
    assert "excellent" in capsys.readouterr().out
    return path


def test_main_with_output_stores_result_and_conditions(stored):
    data = throughput.load_result(stored)
    assert data["decisions_per_s"] == 80.0  # 4 environments, 20 decisions a round, 1 s
    assert (data["round_s"], data["calibration"]["numba"]) == ([1.0] * 3, [500.0] * 3)
    assert data["relative"] == {"python": 8.0, "numba": 0.16}
    assert set(data["machine"]) == {"cpu", "cores", "system"}
    assert set(data["versions"]) == {"python", "numba", "numpy", "llvmlite"}
    assert re.fullmatch("[0-9a-f]{16}", data["build"]["source_digest"])
    assert data["settings"]["envs"] == 4
    assert data["coverage"]["exit door"] == 40
    assert not list(stored.parent.glob(".*"))  # no temporary file stays


def test_main_unstable_returns_1_and_stores_nothing(steady, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(timing, "perf_counter", Clock(1.0, 2.0))
    flags = [*SMALL, "--output", str(tmp_path / "x.json")]
    assert perf_benchmark.main(flags) == 1
    assert "poor" in capsys.readouterr().out
    monkeypatch.setattr(workload, "BatchSimulator", type("Checked", (Switched,), {"mismatches": 1}))
    assert perf_benchmark.main([*flags, "--shadow"]) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("each", "mismatches", "status", "message"),
    [(2, 0, 0, "time with validation / without: 1.000"), (2, 1, 2, "failed"), (0, 0, 2, "nothing was compared")],
)
def test_main_with_shadow_returns_2_for_mismatches(steady, monkeypatch, capsys, each, mismatches, status, message):
    monkeypatch.setattr(
        workload, "BatchSimulator", type("Checked", (Switched,), {"each": each, "mismatches": mismatches})
    )
    assert perf_benchmark.main([*SMALL, "--shadow"]) == status
    printed = capsys.readouterr().out
    assert f"{each * TINY.rows} comparisons, {mismatches * TINY.rows} mismatches" in printed and message in printed


def faster(times):
    return [0.8 * t for t in times]


def test_main_slower_than_a_baseline_returns_3(stored, tmp_path, capsys):
    baseline = altered(stored, tmp_path / "fast.json", round_s=faster)
    flags = [*SMALL, "--baseline", str(stored), baseline]
    assert perf_benchmark.main(flags) == 3
    printed = capsys.readouterr().out
    assert "more than 10% slower than" in printed
    assert printed.count("fast.json") == 2 and "0.800 [0.800, 0.800]" in printed
    assert perf_benchmark.main([*flags, "--threshold", "0.3"]) == 0


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"round_s": faster, "calibration__numba": lambda c: [1.25 * x for x in c]}, 0),  # the machine was faster, too
        ({"round_s": [0.5, 0.9, 1.2]}, 0),  # the interval contains equal speed
        ({"build": {"source_digest": "0" * 16}}, 0),
    ],
)
def test_main_with_baseline_of_other_conditions(stored, tmp_path, changes, status):
    assert perf_benchmark.main([*SMALL, "--baseline", altered(stored, tmp_path / "then.json", **changes)]) == status


@pytest.mark.parametrize(("factor", "status"), [(0.9, 0), (1.5, 3)])
def test_main_compares_with_the_stored_baseline(stored, tmp_path, monkeypatch, capsys, factor, status):
    then = altered(
        stored, tmp_path / "x.json", machine__cpu="another", relative=lambda r: {k: factor * r[k] for k in r}
    )
    monkeypatch.setattr(perf_benchmark, "STORED", Path(then))
    assert perf_benchmark.main(SMALL) == status
    assert f"{1 / factor:.2f} by the numba loop" in capsys.readouterr().out
    assert perf_benchmark.main([*SMALL, "--seed", "1"]) == 0
    assert "project's baseline" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"machine__cpu": "another"}, "machine: cpu is "),
        ({"versions__numba": "0.1"}, "versions: numba is "),
        ({"settings__envs": 8}, "settings: envs is 4 here and 8 there"),
        ({"settings__levels": "0"}, "settings: levels is "),
        ({"version": 99}, "not a benchmark result of version 2"),
    ],
)
def test_main_with_baseline_of_other_settings_returns_4(stored, tmp_path, capsys, changes, message):
    other = altered(stored, tmp_path / "other.json", **changes)
    assert perf_benchmark.main([*SMALL, "--baseline", other]) == 4
    captured = capsys.readouterr()
    assert message in captured.err
    assert "decisions/s" not in captured.out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--no-such-flag"], "unknown flag --no-such-flag"),
        (["--rounds", "1"], "--rounds 1: give a whole number of at least 2"),
        (["--observations", "smell"], "unknown observation"),
        (["--levels", "no/such/folder"], "does not exist"),
        (["--baseline", "no/such/file"], "give a file written with --output"),
        (["--threshold", "0.2"], "no effect without --baseline"),
        (["--actions", "recorded", "--density", "0.1"], "no effect with --actions recorded"),
        (["--actions", "recorded", "--replays", "docs"], "no *.replay or *.h5 files"),
        (["--density", "1.5"], "density 1.5"),
        (["--report", "docs", "--phase", "x"], "no effect with --report"),
        (["--report", "docs"], "no benchmark results"),
    ],
)
def test_main_bad_input_returns_4(flags, message, capsys):
    assert perf_benchmark.main(flags) == 4
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error


def test_main_unwritable_output_is_refused_before_measuring(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "x.json")
    monkeypatch.setattr(throughput, "measure", None)
    monkeypatch.setattr(profile_multi_config, "profile", None)
    assert perf_benchmark.main([*SMALL, "--output", out]) == 4
    assert "error: --output " in capsys.readouterr().err
    assert profile_multi_config.main(["--json", out]) == 2
    assert "error: --json " in capsys.readouterr().err


def test_parse_flags_set_the_amount():
    assert profile_multi_config.parse(["--steps", "20"])[1] == WorkloadSettings(
        envs=64, rounds=10, iterations=2, warmup=5000
    )
    assert perf_benchmark.parse(SMALL)[1] == TINY


def test_main_interrupted_stores_nothing(monkeypatch, tmp_path, capsys):
    def interrupted(work, phase):
        raise KeyboardInterrupt

    monkeypatch.setattr(throughput, "measure", interrupted)
    assert perf_benchmark.main([*SMALL, "--output", str(tmp_path / "x.json")]) == 130
    assert "interrupted: nothing was stored" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_report_groups_comparable_results(stored, capsys):
    altered(stored, stored.with_name("after.json"), phase="after", date="2999-01-01 00:00:00", round_s=faster)
    altered(stored, stored.with_name("elsewhere.json"), machine__cpu="another")
    stored.with_name("notes.json").write_text("{}")
    assert perf_benchmark.main(["--report", str(stored.parent)]) == 0
    printed = capsys.readouterr().out
    assert "# 3 results, 2 kinds of measurement" in printed
    assert printed.count("\n## ") == 2
    (after,) = [line for line in printed.splitlines() if line.startswith("| after.json")]
    assert "1.250 [1.250, 1.250]" in after
    assert "skipped, 1:" in printed and "notes.json" in printed


# ---------------------------------------------------------------------------------------------------------------------
# Profiles


@pytest.mark.parametrize(("seconds", "scale"), [(0.01, 1.0), (0.004, 0.5)])
def test_phase_rows_never_exceed_the_wall_time(seconds, scale):
    """Of 1000 decisions, phases take 8 ms; a wall time of 4 ms means that the sample of environments was interrupted."""
    side = throughput.SideBySide(None, seconds, 1000, 1, {"ninja": 6e6, "path": 1.96e6, "events": 0.04e6}, None)
    rows = {name: figures for name, *figures in side.phase_rows()}
    assert rows["ninja"] == pytest.approx([6.0 * scale, 0.75, 0.006 * scale / seconds])
    assert rows["the step, all phases"] == pytest.approx([8.0 * scale, 1.0, 0.008 * scale / seconds])
    assert rows["outside of the step"][2] == pytest.approx(max(1 - 0.008 / seconds, 0))
    assert "left out: events" in side.profile_table()
    with pytest.raises(timing.TimingError, match="profile=True"):
        replace(side, phases={}).phase_rows()


def test_main_with_profile_times_extra_rounds(steady, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(workload, "BatchSimulator", Switched)
    assert perf_benchmark.main([*SMALL, "--profile", "--output", str(tmp_path / "x.json")]) == 0
    printed = capsys.readouterr().out
    assert "| ninja " in printed and "74.8%" in printed  # 3000 of 4010 ns
    assert "left out: events" in printed and "nan" not in printed
    assert json.loads((tmp_path / "x.json").read_text())["profile"]["phases"]["ninja"] == 3000 * 60


def test_profile_multi_config_profiles_each_configuration(steady, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(workload, "BatchSimulator", Switched)
    out = tmp_path / "profile.json"
    assert profile_multi_config.main(["--envs", "2", "--warmup", "2", "--steps", "10", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    for configuration in profile_multi_config.CONFIGURATIONS:
        assert f"## {configuration.name}\n" in printed
    assert printed.count("time with profiling / without: 1.000") == 4
    data = json.loads(out.read_text())
    assert set(data["configurations"]["maze without entities"]["coverage"]) <= {"gold", "exit door", "exit switch"}
    (ninja,) = [r for r in data["configurations"]["tiny corridor"]["phases"] if r["phase"] == "ninja"]
    assert ninja["us_per_decision"] == 3000 / 1e3 / 2


def test_profile_multi_config_refuses_steps_not_divisible_by_rounds(capsys):
    assert profile_multi_config.main(["--steps", "7"]) == 2
    assert "--steps 7: give a multiple of 10" in capsys.readouterr().err


def test_main_with_real_phases_and_validation(capsys, monkeypatch):
    monkeypatch.setattr(throughput, "summarise", lambda seconds: timing.summarise([1.0] * len(seconds)))
    assert perf_benchmark.main([*SMALL, "--density", "0.2", "--profile", "--shadow"]) == 0
    printed = capsys.readouterr().out
    assert "| the step, all phases " in printed  # a phase may be below 1 % if another program interrupts its sample
    assert re.search(r"validation: [1-9][\d,]* comparisons, 0 mismatches", printed)
