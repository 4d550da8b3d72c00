"""Evaluation on corridors that some policies finish, some die in, and some never leave."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import nppsim
from nppsim.actions import INPUT_ACTION
from nppsim.bank import GAME_TIME, LevelBank
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.observe import layout
from nppsim.observe.stacking import Stacking
from nppsim.physics.outcomes import NAMES
from rl.evaluation import suite as suite_module
from rl.evaluation.results import ALL, aggregate
from rl.evaluation.suite import EvaluationSuite, NoOpPolicy, RandomPolicy
from rl.policy import checkpoint
from rl.policy.policy import build_policy

from learners import statistics
from programs import load_script
from worlds import FLOOR, RIGHT, corridor

STATE = ("game_state",)


class Right:
    """Runs to the right."""

    def act(self, obs, *, deterministic, rng):
        return np.full(len(obs["game_state"]), RIGHT)


LEVELS = [
    (corridor(door=40, name="a"), "simplest"),
    (corridor(door=60, name="b"), "simplest"),
    (corridor(door=80, name="c"), "simplest"),
    (corridor(entities=[(kinds.MINE, 26, FLOOR)], name="d"), "mined"),
]


def play(policy, episodes=5, num_envs=3, seed=1, levels=LEVELS, progress=None, frame_skip=4):
    suite = EvaluationSuite(
        levels,
        episodes_per_category=episodes,
        seed=seed,
        frame_skip=frame_skip,
        num_envs=num_envs,
        threads=1,
    )
    return suite.run(policy, deterministic=False, progress=progress)


def test_run_episodes_per_category_spread_over_levels():
    records = play(Right(), episodes=5)
    assert [r.category for r in records] == ["simplest"] * 5 + ["mined"] * 5
    counts = np.bincount([r.level_index for r in records])
    assert sorted(counts[:3]) == [1, 2, 2]
    assert counts[3] == 5
    assert all(LEVELS[r.level_index][0] == r.level and r.level_name == r.level.name for r in records)


def test_run_without_episodes_per_category_plays_every_level():
    assert [r.level_index for r in play(Right(), episodes=None)] == [0, 1, 2, 3]
    twice = EvaluationSuite(LEVELS, episodes_per_level=2)
    assert twice.level_index.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


class Undecided:
    """Runs to the right in some environments; the others stay where they are."""

    def act(self, obs, *, deterministic, rng):
        return np.where(np.arange(len(obs["game_state"])) % 2, RIGHT, 0)


@pytest.mark.usefixtures("whole_evaluations")
def test_record_equals_playback_of_inputs():
    """Outcome, frames, gold, return and path length, from a simulator of one environment; time-outs last to the limit."""
    gold = (corridor(entities=[(kinds.GOLD, 24, FLOOR)], name="gold"), "gold")
    levels = [*LEVELS, gold]
    outcomes = set()
    for record in play(Undecided(), levels=levels, num_envs=4):
        sim = BatchSimulator(LevelBank([record.level], least_time=GAME_TIME), 1, frame_skip=4, threads=1)
        sim.reset()
        for action in INPUT_ACTION[record.inputs[::4]]:
            assert not len(sim.finished)
            sim.step(np.array([action]))
        (again,) = sim.episode
        outcomes.add(record.outcome)
        assert len(sim.finished) == 1 and record.outcome == NAMES[again["outcome"]]
        assert (record.frames, record.gold) == (again["frames"], again["gold"])
        assert (
            record.path_length == sim.bank.path_length[0] == LevelBank([levels[record.level_index][0]]).path_length[0]
        )
        assert record.ret == pytest.approx(float(again["ret"]), abs=1e-6)
        if record.outcome == "timeout":
            assert record.frames >= sim.bank.time_limit[0]
        if record.level_name == "gold" and record.outcome == "won":
            assert record.gold == 1
    assert outcomes == {"won", "died", "timeout"}


class Recorder:
    """Acts at random and records observations and actions."""

    def __init__(self):
        self.seen, self.actions, self._rng = [], [], np.random.default_rng(3)

    def act(self, obs, *, deterministic, rng):
        self.seen.append(obs["game_state"].copy())
        self.actions.append(self._rng.choice([0, RIGHT, RIGHT, RIGHT], len(obs["game_state"])))
        return self.actions[-1]


def test_run_policy_acts_on_current_observations():
    """Observations of an earlier decision would reduce success only slightly, so results alone would not show this
    mistake."""
    policy = Recorder()
    records = play(policy, episodes=2, num_envs=1)
    seen = iter(policy.seen)
    for record in records:
        sim = BatchSimulator(LevelBank([record.level], least_time=GAME_TIME), 1, observations=STATE, threads=1)
        obs = sim.reset()
        for action in INPUT_ACTION[record.inputs[::4]]:
            np.testing.assert_array_equal(next(seen), obs["game_state"])
            obs = sim.step(np.array([action]))
    assert next(seen, None) is None


def test_aggregate_means_include_lost_episodes():
    records = play(Undecided(), num_envs=4)
    assert 0 < sum(record.won for record in records) < len(records)
    counted = aggregate(records)
    for category in ("simplest", "mined", ALL):
        of = [record for record in records if category in (record.category, ALL)]
        assert counted[category]["mean_return"] == pytest.approx(np.mean([record.ret for record in of]))
        assert counted[category]["mean_gold"] == pytest.approx(np.mean([record.gold for record in of]))


def test_run_outcomes_won_died_timeout():
    outcomes = {r.category: r.outcome for r in play(Right())}
    assert outcomes == {"simplest": "won", "mined": "died"}
    assert {r.outcome for r in play(NoOpPolicy(), episodes=1)} == {"timeout"}


@pytest.mark.parametrize("frame_skip", [1, 3, 4])
@pytest.mark.parametrize("policy", [RandomPolicy(), Right()])
def test_run_inputs_play_back_exactly(policy, frame_skip):
    for record in play(policy, episodes=4, frame_skip=frame_skip):
        run = nppsim.simulate(record.level, record.inputs)
        assert run.frames == record.frames == len(record.inputs)
        assert run.outcome == {"timeout": "running"}.get(record.outcome, record.outcome)
        assert -(-record.frames // frame_skip) == record.decisions
        assert record.path_length > 0


def test_run_repeated_returns_same_records():
    suite = EvaluationSuite(LEVELS, episodes_per_category=4, threads=1)
    first = suite.run(RandomPolicy(), deterministic=False)
    suite.run(Right(), deterministic=True)
    again = suite.run(RandomPolicy(), deterministic=False)
    assert len(suite) == len(first) == 8
    for a, b in zip(first, again, strict=True):
        assert a.inputs.tobytes() == b.inputs.tobytes()
        assert (a.ret, a.outcome) == (b.ret, b.outcome)


def test_run_deterministic_policy_any_num_envs_same_records():
    few, many = play(Right(), num_envs=2), play(Right(), num_envs=64)
    assert [(r.level_index, r.frames, r.outcome) for r in few] == [(r.level_index, r.frames, r.outcome) for r in many]


def test_run_long_episodes_are_recorded():
    """A run continues after some environments have played all their episodes."""

    class OneWaits:
        def act(self, obs, *, deterministic, rng):
            return np.where(np.arange(len(obs["game_state"])) == 0, 0, RIGHT)

    records = play(OneWaits(), episodes=6, num_envs=4)
    assert len(records) == 12
    assert {"timeout", "won"} <= {r.outcome for r in records}


def test_run_passes_observations_and_seeded_generator():
    seen = []

    class Curious:
        observations = STATE

        def act(self, obs, *, deterministic, rng):
            assert deterministic is True
            seen.append((tuple(obs), rng.initial_seed()))
            assert obs["game_state"].shape[1:] == layout.SPECS["game_state"].shape
            return np.full(len(obs["game_state"]), RIGHT)

    suite = EvaluationSuite(LEVELS, episodes_per_category=1, seed=7, threads=1)
    suite.run(Curious(), deterministic=True)
    assert set(seen) == {(STATE, 7)}


def test_run_progress_counts_every_episode():
    counts = []
    play(Right(), progress=counts.append)
    assert sum(counts) == 10


def test_run_simulates_the_observations_of_each_policy(monkeypatch):
    """Policies without the attribute observe what ``NppEnv`` shows; random play needs no costly observations."""
    seen = []
    monkeypatch.setattr(
        suite_module, "BatchSimulator", lambda *a, **b: seen.append(b["observations"]) or BatchSimulator(*a, **b)
    )
    suite = EvaluationSuite(LEVELS[:1], threads=1)
    for policy in (RandomPolicy(), Right(), NoOpPolicy(), Right()):
        suite.run(policy)
    assert seen == [STATE, layout.VISION_FREE]


def test_suite_of_paths_plays_as_the_evaluation_script(untrained):
    command = [untrained / "a.safetensors", "--levels", untrained / "levels", "--output-dir", untrained / "out"]
    assert load_script("evaluate").main([*map(str, command)]) == 0
    (folder,) = (untrained / "out").iterdir()
    results = json.loads((folder / "results.json").read_text())
    policy, _ = checkpoint.load_policy(untrained / "a.safetensors")
    twice = [untrained / "levels", untrained / "levels" / "mined"]  # the second has no further levels
    for levels in (untrained / "levels", str(untrained / "levels"), twice):
        played = EvaluationSuite(levels).run(policy)
        for one, row in zip(played, results["episodes"], strict=True):
            assert (one.level_name, one.category, one.outcome) == (row["level"], row["category"], row["outcome"])
            assert one.frames == row["frames"]


def test_suite_bad_input_raises():
    with pytest.raises(ConfigError, match="no levels to evaluate on"):
        play(Right(), levels=[])
    with pytest.raises(ConfigError, match="episodes_per_category 0: give"):
        play(Right(), episodes=0)
    with pytest.raises(ConfigError, match="episodes_per_level 0: give"):
        EvaluationSuite(LEVELS, episodes_per_level=0)


def test_random_play_is_uniform_and_seeded():
    rows = {"game_state": np.zeros((6000, 1))}
    actions = RandomPolicy().act(rows, deterministic=False, rng=torch.Generator().manual_seed(0))
    assert actions.dtype == np.int64
    assert np.bincount(actions, minlength=6) == pytest.approx(np.full(6, 1000), abs=150)
    assert (actions == RandomPolicy().act(rows, deterministic=True, rng=torch.Generator().manual_seed(0))).all()


@pytest.fixture(scope="module")
def script():
    """scripts/evaluate.py as a module."""
    return load_script("evaluate")


@pytest.fixture
def untrained(tmp_path):
    """A checkpoint of a network that has not learned anything, and a folder of levels."""
    checkpoint.save(tmp_path / "a.safetensors", build_policy("vision_free", statistics()), frame_skip=4)
    LevelSet.write(tmp_path / "levels", [(level, LevelEntry(category)) for level, category in LEVELS])
    return tmp_path


def test_evaluate_script_writes_table_results_and_films(script, untrained, capsys):
    command = [untrained / "a.safetensors", "--levels", untrained / "levels", "--output-dir", untrained / "out"]
    assert script.main([*map(str, command), "--record-videos", "--max-videos-per-category", "1"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^\| simplest +\| +3 \|.*%.*\[", text, re.MULTILINE)
    assert re.search(
        r"^\| category \| episodes \| +a.safetensors \| +random play \| +doing nothing \|", text, re.MULTILINE
    )
    folder = next((untrained / "out").iterdir())
    results = json.loads((folder / "results.json").read_text())
    assert len(results["episodes"]) == 4
    assert results["suites"]["a.safetensors"]["mined"]["episodes"] == 1
    assert results["settings"]["frame_skip"] == 4
    assert len(list(folder.glob("videos/*/*.mp4"))) == 2


def test_compare_plays_a_second_agent_on_the_same_levels(script, untrained, monkeypatch, capsys):
    monkeypatch.chdir(untrained)
    command = ["a.safetensors", "--levels", "levels", "--output-dir", "out"]
    assert script.main([*command, "--compare", "a.safetensors"]) == 2
    assert "give another checkpoint" in capsys.readouterr().err
    shutil.copy("a.safetensors", "b.safetensors")
    assert script.main([*command, "--compare", "b.safetensors", "--deterministic"]) == 0
    printed = capsys.readouterr().out
    assert "No difference found between a.safetensors and b.safetensors" in printed
    (folder,) = Path("out").iterdir()
    results = json.loads((folder / "results.json").read_text())
    assert [*results["breakdown"]] == ["a.safetensors", "b.safetensors"]
    assert results["breakdown"]["a.safetensors"] == results["breakdown"]["b.safetensors"]
    assert results["comparisons"][0]["categories"]["all"]["difference"] == 0
    for episode in results["episodes"]:
        assert (episode["cause"] == "won") == (episode["outcome"] == "won")
        assert 0 <= episode["path_covered"] <= 1
        assert (episode["why"] is None) == (episode["outcome"] == "won")
    lost = [episode for episode in results["episodes"] if episode["why"]]
    for episode in lost[:10]:
        assert f"{episode['replay']} " in printed and episode["why"] in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.safetensors", "--levels", "levels"], "error: nothing.safetensors: no such checkpoint"),
        (
            ["a.safetensors", "--levels", "levels", "--compare", "b.safetensors"],
            "error: b.safetensors: no such checkpoint",
        ),
        (["a.safetensors", "--levels", "nowhere"], "error: nowhere does not exist"),
        (["levels/index.json", "--levels", "levels"], "error: levels/index.json: not a checkpoint"),
        (["a.safetensors", "--levels", "a.safetensors"], "error: a.safetensors"),
        (["levels", "--levels", "levels"], "error: levels: is a folder; give a file"),
        ([".", "--levels", "levels"], "error: .: is a folder; give a file in it: a.safetensors"),
        (
            ["a.safetensors", "--levels", "levels", "--output-dir", "a.safetensors/x"],
            "error: --output-dir a.safetensors/x: cannot be written (",
        ),
    ],
)
def test_evaluate_script_bad_input_prints_one_line(script, untrained, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(untrained)
    assert script.main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(message)
    assert printed.count("\n") == 1
    assert not (untrained / "experiments").exists()


def test_evaluate_script_unreadable_levels_listed_or_skipped(script, untrained, monkeypatch, capsys):
    monkeypatch.chdir(untrained)
    (untrained / "mixed").mkdir()
    LEVELS[0][0].save(untrained / "mixed" / "good.map")
    for name in ("cut.map", "torn.level"):
        (untrained / "mixed" / name).write_text("nppsim level 1\n")
    command = ["a.safetensors", "--levels", "mixed", "--output-dir", "out"]
    assert script.main(command) == 2
    assert re.search(r"2 levels cannot .*cut\.map: .*torn\.level: .*--skip-bad-levels", capsys.readouterr().err)
    assert script.main([*command, "--skip-bad-levels"]) == 0
    text = capsys.readouterr().out
    assert text.count("left out: mixed/") == 2
    assert re.search(r"^\| all +\| +1 \|", text, re.MULTILINE)


def test_evaluate_script_support_grades_have_rows(script, untrained, monkeypatch, capsys):
    monkeypatch.chdir(untrained)
    (untrained / "grades").mkdir()
    level = LEVELS[0][0]
    for name, kind in (("exact", kinds.GOLD), ("modelled", kinds.ROCKET_TURRET), ("unsupported", 27)):
        records = np.vstack([level.records, [kind, 8, 8, 0, 0]])
        Level(level.tiles, records, exit_count=level.exit_count).save(untrained / "grades" / f"{name}.map")
    command = ["a.safetensors", "--levels", "grades", "--output-dir", "out"]
    for flags, grades in (([], 2), (["--allow-unsupported"], 3)):
        assert script.main([*command, *flags]) == 0
        text = capsys.readouterr().out
        rows = re.findall(r"^\| support: (\w+) +\| +1 \|", text, re.MULTILINE)
        assert rows == ["exact", "modelled", "unsupported"][:grades]
        assert ("left out: 1 of 3 levels" in text) == (grades == 2)


def test_evaluate_script_rejects_invalid_numbers(script, capsys):
    assert script.main(["a.safetensors", "--levels", "levels", "--video-fps", "0"]) == 2
    assert "--video-fps 0: give a whole number from 1 to 60" in capsys.readouterr().err
    assert script.main(["a.safetensors", "--levels", "levels", "--seed", "4294967296"]) == 2
    assert "--seed 4294967296: give a whole number from 0 to 2,147,483,647" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["av", "PIL"])
def test_evaluate_script_without_film_packages_fails_early(script, untrained, monkeypatch, capsys, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(untrained)
    assert script.main(["a.safetensors", "--levels", "levels", "--record-eval-videos"]) == 2
    assert "pip install 'nppsim[video]'" in capsys.readouterr().err
    assert not (untrained / "experiments").exists()


class Stacked:
    """Runs to the right, and stores the stacks of the first environment."""

    observations = STATE

    def __init__(self, stacking):
        self.stacking, self.shown = stacking, []

    def act(self, obs, *, deterministic, rng):
        self.shown.append(obs["game_state"][0].copy())
        return np.full(len(obs["game_state"]), RIGHT)


@pytest.mark.parametrize("padding", ["zero", "repeat"])
def test_run_stacks_contain_one_episode(padding):
    stacking = Stacking(state=3, padding=padding)
    policy, plain = Stacked(stacking), Stacked(Stacking())
    suite = EvaluationSuite(LEVELS[:2], episodes_per_category=4, num_envs=2)
    records = suite.run(policy)
    assert [r.frames for r in records] == [r.frames for r in suite.run(plain)]
    frames = np.array(plain.shown)
    ends = np.cumsum([record.decisions for record in records[::2]])  # of the first environment's episodes
    begin = 0
    for t in range(ends[0] + 5):
        begin = ends[0] if t == ends[0] else begin
        for place, back in enumerate((2, 1, 0)):
            wanted = frames[max(t - back, begin)] if padding == "repeat" or t - back >= begin else np.zeros(26)
            np.testing.assert_array_equal(policy.shown[t][place], wanted)
