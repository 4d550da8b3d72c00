"""Search on top of an agent: with an untrained network, so that the search alone finds the runs."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import nppsim
from bc.demonstrations import INDEX_FORMAT
from nppsim.batch import BatchSimulator
from nppsim.generate import generate
from nppsim.levels import campaign, kinds
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelEntry, LevelSet, LevelSetError
from nppsim.observe.statistics import ObservationStatistics
from nppsim.planner import PlannedRun, PlanStart, plan
from nppsim.planner.budget import FrameBudget
from nppsim.replays.replay import Replay, on_grid
from nppsim.replays.replay_set import ReplaySet
from nppsim.replays.score import score, seconds
from rl.evaluation.suite import EvaluationSuite
from rl.policy import checkpoint
from rl.policy.policy import build_policy
from rl.search import solve as stages
from rl.search.command import Solved, file_stem
from rl.search.guided_search import BeamSettings, GuidedSearch, GuidePolicy
from rl.search.levels import SolveTask, read_tasks
from rl.search.solve import Solution, SolveSettings, fenced, gold_taken, solve

from places import ODD
from programs import load_script
from worlds import FLOOR, RIGHT, corridor

pytestmark = pytest.mark.usefixtures("one_thread")

EASY = generate("simplest", 1)[0]
MINED = generate("simplest_with_mines", 3)[0]
SHORT = SolveSettings(budget=300_000, polish=100_000)


def untrained(favourite=None, architecture="vision_free"):
    """An agent of random weights; favourite: the action that it takes nearly always."""
    torch.manual_seed(3)
    policy = build_policy(architecture)
    statistics = ObservationStatistics(policy.observations)
    sim = BatchSimulator([EASY, MINED], 4, observations=policy.observations, threads=1)
    sim.reset()
    for _ in range(5):
        sim.step(np.arange(4))
        statistics.update({key: sim.obs[key] for key in statistics.float_keys})
    policy.set_statistics(statistics)
    if favourite is not None:
        policy.action_net.bias.data[favourite] = 5.0
    policy.eval()
    return GuidePolicy(policy, 4)


AGENT = untrained()


def search_on(level, agent=AGENT, seed=0):
    return GuidedSearch(level, agent, np.random.default_rng(seed), threads=1)


def check_finishes(level, run):
    played = nppsim.simulate(level, run.inputs)
    assert played.won
    assert played.frames == len(run.inputs) == run.frames
    assert on_grid(run.inputs, 4)


@pytest.mark.parametrize("level", [EASY, MINED])
def test_untrained_agent_finishes_a_level(level):
    solution = solve(level, AGENT, SHORT, threads=1)
    check_finishes(level, solution.run)
    assert solution.found_by != "agent"
    assert solution.run.frames < solution.first_frames
    assert 100_000 <= solution.shortening < 110_000
    assert solution.finding > 0
    assert solution.evaluated > 0


def test_result_depends_only_on_the_seed():
    first, again, other = (solve(MINED, AGENT, SolveSettings(polish=20_000, seed=seed), threads=threads)
                           for seed, threads in ((1, 1), (1, 2), (2, 1)))  # fmt: skip
    assert first.run.inputs.tobytes() == again.run.inputs.tobytes()
    assert (first.finding, first.shortening, first.evaluated) == (again.finding, again.shortening, again.evaluated)
    assert first.run.inputs.tobytes() != other.run.inputs.tobytes()


def test_beam_of_width_1_plays_the_deterministic_policy():
    level = corridor(door=60)
    agent = untrained(favourite=RIGHT)
    suite = EvaluationSuite([(level, "x")], seed=0, threads=1, patience=0, horizon=0)
    (alone,) = suite.run(agent.policy, deterministic=True)
    solution = solve(level, agent, SolveSettings(polish=0), threads=1)
    assert alone.won
    assert solution.found_by == "agent"
    assert solution.run.inputs.tobytes() == alone.inputs.tobytes()
    assert solution.finding == alone.frames
    assert solution.evaluated == alone.decisions


def test_beam_of_width_1_goes_on_where_the_policy_stands_still():
    search, budget = search_on(corridor(door=60), untrained(favourite=0)), FrameBudget(10_000)
    assert search.beam(BeamSettings(1, branching=1), budget) is None
    assert budget.simulated == search.time_limit


def test_searches_end_after_decisions_without_progress():
    search, budget = search_on(corridor(door=60), untrained(favourite=0)), FrameBudget(10_000)
    assert search.beam(BeamSettings(1, branching=1), budget, patience=20) is None
    assert 80 <= budget.simulated <= 100
    budget = FrameBudget(10_000)
    assert search.episodes(2, 0, budget, patience=20) is None
    assert 80 <= budget.simulated < 2 * search.time_limit


def test_find_starts_at_any_state():
    search = search_on(MINED)
    run, _ = stages.find(search, 0, FrameBudget(300_000))
    cut = len(run.actions) // 2
    search.start = search.states_along(run.actions, FrameBudget(10_000))[cut]
    end, found_by = stages.find(search, 0, FrameBudget(300_000))
    joined = np.concatenate([run.inputs[: 4 * cut], end.inputs])
    played = nppsim.simulate(MINED, joined)
    assert played.won and played.frames == len(joined)
    assert found_by != ""


def test_planner_finishes_where_the_agent_dies():
    level = corridor(switch=34, door=60, entities=[(kinds.MINE, 26, FLOOR + 1)])
    solution = solve(level, untrained(favourite=RIGHT), SHORT, threads=1)
    assert solution.found_by == stages.PLANNER
    assert solution.finding < 1_000_000
    check_finishes(level, solution.run)


def test_run_is_at_most_as_long_as_the_planners():
    solution = solve(EASY, untrained(favourite=RIGHT), SolveSettings(polish=4_000_000), threads=1)
    assert solution.run.frames <= plan(EASY).frames


def test_sampled_episodes_find_a_run():
    search, budget = search_on(EASY, untrained(favourite=RIGHT)), FrameBudget(300_000)
    winning_run = search.episodes(8, 3, budget)
    check_finishes(EASY, PlannedRun(winning_run.actions, winning_run.inputs, len(winning_run.inputs), 0))
    again = search_on(EASY, untrained(favourite=RIGHT)).episodes(8, 3, FrameBudget(300_000))
    assert again.inputs.tobytes() == winning_run.inputs.tobytes()
    assert budget.simulated == 4 * search.evaluated >= len(winning_run.inputs)


def test_sampled_episodes_end_with_their_time_limit_or_the_budget():
    search = search_on(MINED, untrained(favourite=0))
    for limit, frames in ((10**6, 2 * search.time_limit), (400, 400)):
        budget = FrameBudget(limit)
        assert search.episodes(2, 3, budget) is None
        assert budget.simulated == frames


def test_simulated_frames_are_counted_and_limited():
    progress = []
    budget = FrameBudget(3000, progress=progress.append)
    assert search_on(MINED).beam(BeamSettings(16), budget) is None
    assert 3000 <= budget.simulated == sum(progress) <= 3000 + 16 * 2 * 4
    for of_nothing in (budget.part(500), FrameBudget(100, until=0.0)):
        assert of_nothing.left == 0
    part = FrameBudget(1000).part(300)
    part.spend(200)
    assert part.left == 100


def test_beam_starts_at_any_state_within_a_frame_limit():
    search = search_on(MINED)
    winning_run = search.beam(BeamSettings(64), FrameBudget(300_000))
    states = search.states_along(winning_run.actions, FrameBudget(10_000))
    assert len(states) == len(winning_run.actions)
    assert (states[0] == search.start).all()
    half = len(winning_run.actions) // 2
    end = search.beam(BeamSettings(64), FrameBudget(300_000), most_frames=len(winning_run.inputs), start=states[half])
    joined = np.concatenate([winning_run.inputs[: 4 * half], end.inputs])
    run = nppsim.simulate(MINED, joined)
    assert run.won
    assert run.frames == len(joined) <= len(winning_run.inputs)
    assert search.beam(BeamSettings(64), FrameBudget(300_000), most_frames=20) is None


def test_no_polish_budget_returns_first_run():
    solution = solve(MINED, AGENT, SolveSettings(polish=0), threads=1)
    assert solution.run.frames == solution.first_frames
    assert solution.shortening == 0


def test_planner_shortens_after_guided_beams(monkeypatch):
    monkeypatch.setattr(stages, "GUIDED_FRAMES", 4000)
    monkeypatch.setattr(stages, "PLANNER_SHARE", 0.0)
    guided, more = (solve(EASY, AGENT, SolveSettings(polish=n), threads=1) for n in (4000, 1_000_000))
    check_finishes(EASY, more.run)
    assert more.run.frames < guided.run.frames
    assert more.evaluated == guided.evaluated
    assert 1_000_000 <= more.shortening < 1_010_000


def test_planner_searches_where_guided_searches_fail(monkeypatch):
    monkeypatch.setattr(stages, "ATTEMPTS", stages.ATTEMPTS[:1])
    solution = solve(MINED, AGENT, SolveSettings(polish=0), threads=1)
    assert solution.found_by == stages.PLANNER
    check_finishes(MINED, solution.run)


def test_time_limit_replaces_the_default_budget():
    assert SolveSettings().frames == 5_000_000
    assert SolveSettings(seconds=60.0).frames == stages.UNLIMITED
    assert SolveSettings(seconds=60.0, budget=7).frames == 7


def test_no_path_budget_or_time_returns_none():
    walled_in = np.ones((23, 42), np.uint8)
    walled_in[5:8, 5:8] = walled_in[5:8, 20:23] = 0
    closed = Level.build(walled_in, (28, 30), exits=[((88, 30), (84, 30))])
    for level, settings in (
        (closed, SolveSettings()),
        (MINED, SolveSettings(budget=10)),
        (MINED, SolveSettings(seconds=1e-9)),
    ):
        solution = solve(level, AGENT, settings, threads=1)
        assert (solution.run, solution.found_by, solution.shortening) == (None, "", 0)
        assert solution.finding <= 10 + 4


GOLDEN = corridor(80, 100, 120, entities=[(kinds.GOLD, 74, FLOOR), (kinds.GOLD, 40, FLOOR)])


@pytest.mark.parametrize(("objective", "gold"), [("time", 0), ("score", 1), ("all-gold", 2)])
def test_objectives(objective, gold):
    level = GOLDEN
    solution = solve(level, AGENT, SolveSettings(objective, budget=600_000, polish=0), threads=1)
    check_finishes(level, solution.run)
    assert (solution.objective, solution.run.gold) == (objective, gold)
    if objective == "time":
        assert (solution.collecting, solution.run.frames) == (0, solution.first_frames)
    else:
        assert 600_000 <= solution.finding + solution.collecting < 620_000


def test_objective_low_gold_jumps_over_gold_on_the_way():
    level = corridor(80, 100, 120, entities=[(kinds.GOLD, 95, FLOOR), (kinds.GOLD, 40, FLOOR)])
    agent = untrained(favourite=RIGHT)
    on_the_way = solve(level, agent, SolveSettings(polish=0), threads=1).run
    around = solve(level, agent, SolveSettings("low-gold", budget=1_000_000, polish=100_000), threads=1)
    check_finishes(level, around.run)
    assert (on_the_way.gold, around.run.gold) == (1, 0)
    assert (len(gold_taken(level, on_the_way.inputs)), gold_taken(level, around.run.inputs)) == (1, [])
    assert around.collecting > 0


def test_fenced_level_kills_where_gold_would_be_collected():
    on_the_way = np.full(200, 2, np.uint8)
    level = corridor(20, 60, 80, entities=[(kinds.GOLD, 40, FLOOR)])
    assert nppsim.simulate(level, on_the_way).gold[-1] == 1
    assert nppsim.simulate(fenced(level, []), on_the_way).outcome == "died"
    (piece,) = gold_taken(level, on_the_way)
    assert fenced(level, [piece]) == level


def test_improve_plays_back_in_any_number_of_processes():
    settings = SolveSettings("score", budget=100_000, polish=0, improve=60_000)
    alone, parallel = (solve(GOLDEN, AGENT, settings, threads=threads) for threads in (1, 2))
    played = nppsim.simulate(GOLDEN, alone.run.inputs)
    assert played.won and (played.frames, played.gold[-1]) == (alone.run.frames, alone.run.gold)
    assert alone.run.inputs.tobytes() == parallel.run.inputs.tobytes()
    assert alone.improving == parallel.improving > 0


# ---------------------------------------------------------------------------------------------------------------------
# scripts/solve.py


@pytest.fixture(scope="module")
def script():
    """scripts/solve.py as a module."""
    return load_script("solve")


def slow_run(level):
    """Inputs that wait for 120 frames before they finish the level."""
    sim = BatchSimulator([level], 1, threads=1)
    sim.reset()
    for _ in range(30):
        sim.step(np.zeros(1, np.int64))
    return np.concatenate([np.zeros(120, np.uint8), plan(level, start=PlanStart.of(sim, 0)).inputs])


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a checkpoint, a level set with par times, and a slow recording of one of its levels."""
    folder = tmp_path / ODD
    folder.mkdir()
    monkeypatch.chdir(folder)
    checkpoint.save(folder / "agent.safetensors", AGENT.policy, frame_skip=4)
    levels = [(EASY, LevelEntry("simplest", par_frames=40)), (MINED, LevelEntry("mined/odd", par_frames=100))]
    LevelSet.write(folder / "levels", levels)
    Replay(EASY, slow_run(EASY), success=True).save(folder / "slow.replay")
    return folder


QUICK = ["--agent", "agent.safetensors", "--polish", "5000", "--out", "out"]


def test_command_solves_a_level_and_writes_its_files(script, place, capsys):
    command = ["levels/simplest/000000.map", *QUICK, "--against", "slow.replay"]
    assert script.main(command) == 0
    text = capsys.readouterr().out
    facts = json.loads((place / "out/results.json").read_text())["levels"][0]
    recorded = nppsim.simulate(EASY, Replay.load("slow.replay").inputs).frames
    assert (facts["level"], facts["par_frames"], facts["recorded_frames"]) == ("simplest/000000.map", 40, recorded)
    assert re.search(rf" {facts['frames']} \| +40 \| +{facts['frames'] / 40:.2f} \| +{recorded} \|", text)
    for label, frames in (("A", recorded), ("B", facts["frames"])):
        assert f"{label}: finished in frame {frames}, {frames / 60:.3f} s, score" in text
    assert facts["time"] == seconds(facts["frames"]) and facts["score"] == score(facts["frames"], facts["gold"])
    assert re.search(rf"\| +{facts['time']:.3f} \| +{facts['score']:.3f} \|", text)
    for name in ("simplest_000000.replay", "simplest_000000.attract"):
        written = Replay.load(place / "out/replays" / name)
        played = nppsim.simulate(EASY, written.inputs)
        assert written.level == EASY
        assert played.won
        assert played.frames == written.frames == facts["frames"]
    assert (place / "out/films/simplest_000000.mp4").stat().st_size > 1000
    page = (place / "out/report.html").read_text()
    assert "films/simplest_000000.mp4" in page
    assert "simplest/000000.map" in page
    assert "solved 1 of 1" in page


def test_command_solves_a_folder_in_several_processes(script, place, capsys):
    command = ["levels", *QUICK, "--films", "0", "--workers", "2", "--demonstrations", "learn"]
    assert script.main(command) == 0
    text = capsys.readouterr().out
    assert "solved 2 of 2" in text
    assert "length / par: median" in text
    for category, level in (("simplest", EASY), ("mined/odd", MINED)):
        runs = ReplaySet(place / "learn" / f"{category}.h5")
        alone = solve(level, AGENT, SolveSettings(polish=5000), threads=1)
        assert runs[0].inputs.tobytes() == alone.run.inputs.tobytes()
        assert runs[0].level == level
        about = runs.entry(0)
        assert (about.category, about.success, about.metadata["source"]) == (category, True, "solve")
    assert not (place / "out/films").exists()


def test_command_states_objective_gold_time_and_score(script, place, capsys):
    corridor(80, 100, 120, entities=[(kinds.GOLD, 74, FLOOR), (kinds.GOLD, 150, 10)]).save(place / "golden")
    assert script.main(["golden", *QUICK, "--films", "0", "--objective", "all-gold", "--budget", "400000"]) == 0
    text = capsys.readouterr().out
    (facts,) = json.loads((place / "out/results.json").read_text())["levels"]
    assert (facts["objective"], facts["gold"], facts["gold_in_level"]) == ("all-gold", 1, 2)
    assert facts["score"] == score(facts["frames"], 1)
    assert "objective all-gold: 1 of 2 pieces of gold, all of them on 0 of 1 levels" in text
    assert re.search(rf"\| +{facts['score']:.3f} \| +1 of 2 \| +{facts['frames']} \|", text)
    numbers = f"{facts['time']:.3f}_score_{facts['score']:.3f}".replace(".", "_")
    written = Replay.load(place / f"out/replays/golden_all_gold_gold_1_time_{numbers}.replay")
    assert nppsim.simulate(written.level, written.inputs).gold[-1] == 1


def test_command_low_gold_counts_levels_without_gold(script, place, capsys):
    corridor(80, 100, 120, entities=[(kinds.GOLD, 150, 10)]).save(place / "golden")
    given = [*QUICK, "--films", "0", "--objective", "low-gold", "--budget", "400000", "--improve", "5"]
    assert script.main(["golden", *given]) == 0
    assert "objective low-gold: 0 of 1 pieces of gold, none of them on 1 of 1 levels" in capsys.readouterr().out


def with_entity(level, kind):
    """The level with one entity more, in a corner."""
    return Level(level.tiles, np.vstack([level.records, [kind, 0, 0, 0, 0]]), exit_count=level.exit_count)


def test_command_leaves_out_unsupported_levels_and_marks_modelled_ones(script, place, capsys):
    game = [campaign.to_line(with_entity(EASY, kind)) for kind in (kinds.ROCKET_TURRET, 27)]
    (place / "S.txt").write_text("\n".join(f"$level {i}#{line.split('#')[-2]}#" for i, line in enumerate(game)))
    assert script.main(["S.txt", *QUICK, "--films", "0"]) == 0
    text = capsys.readouterr().out
    assert "left out: 1 of 2 levels" in text
    assert re.search(r"^\| S-000 level 0 +\| modelled \|", text, re.MULTILINE)
    assert "1 of 1 runs are on modelled levels" in text
    assert json.loads((place / "out/results.json").read_text())["levels"][0]["id"] == "S-000"
    assert script.main(["S.txt#1", *QUICK, "--films", "0"]) == 2
    assert "--allow-unsupported" in capsys.readouterr().err
    assert script.main(["S.txt#1", *QUICK, "--films", "0", "--allow-unsupported"]) == 0
    assert "| unsupported |" in capsys.readouterr().out


def test_command_compares_with_a_folder_of_replays(script, place, capsys):
    (place / "human").mkdir()
    (place / "slow.replay").rename(place / "human/slow.replay")
    Replay(MINED, np.zeros(20, np.uint8)).save(place / "human/lost.replay")
    assert script.main(["human", *QUICK, "--workers", "1", "--films", "0"]) == 0
    text = capsys.readouterr().out
    assert "solved 2 of 2" in text
    assert "faster than the recording on 1 of 1 levels" in text


def test_tasks_of_files_and_level_sets(place):
    Replay(MINED, plan(MINED).inputs).save(place / "recorded", format="attract")
    (of_attract,) = read_tasks(place / "recorded")
    assert of_attract.level == MINED
    assert of_attract.recorded_frames == plan(MINED).frames
    MINED.save(place / "alone")
    (alone,) = read_tasks(place / "alone")
    assert (alone.name, alone.category, alone.par_frames, alone.recorded) == ("alone", "single", None, None)
    assert [task.par_frames for task in read_tasks(place / "levels")] == [40, 100]
    taken = set()
    names = ("simple/1.map", "simple_1.map", "set.h5#7", "...")
    assert [file_stem(name, taken) for name in names] == ["simple_1", "simple_1_2", "set_7", "level"]


def test_tasks_of_a_folder_with_levels_and_recordings(place):
    folder = place / "both"
    run = Replay(MINED, plan(MINED).inputs)
    run.save(folder / "sub/run.replay")
    run.save(folder / "sub/run.attract", format="attract")
    EASY.save(folder / "easy/level")
    (folder / "notes.txt").write_text("not a level")
    found = [(task.name, task.category, task.level, task.recorded_frames) for task in read_tasks(folder)]
    assert found == [
        ("easy/level", "easy", EASY, None),
        ("sub/run.attract", "recorded", MINED, plan(MINED).frames),
    ]
    (folder / "sub/index.json").write_text("{}")  # of the recordings there, perhaps
    assert [task.name for task in read_tasks(folder)] == ["easy/level", "sub/run.attract"]
    (folder / "index.json").write_text(json.dumps({"format": INDEX_FORMAT, "demonstrations": []}))
    assert [task.name for task in read_tasks(folder)] == ["easy/level", "sub/run.attract"]
    (alone,) = read_tasks(folder / "easy/level")
    assert (alone.name, alone.category, alone.par_frames) == ("level", "single", None)
    (folder / "index.json").write_text('{"pages": []}')  # of something else, which a level below it may well lie in
    assert read_tasks(folder / "easy/level") == [alone]
    with pytest.raises(LevelSetError, match="index.json"):
        read_tasks(folder)
    (folder / "index.json").write_text("{")
    with pytest.raises(LevelSetError, match="index.json"):
        read_tasks(folder)


def test_output_of_an_earlier_search_is_not_overwritten(script, place, capsys):
    command = [
        "levels/simplest/000000.map",
        "--agent",
        "agent.safetensors",
        "--polish",
        "0",
        "--films",
        "0",
        "--out",
        "out",
    ]
    (place / "out").mkdir()
    for folder in ("out", "out_2"):
        assert script.main(command) == 0
        assert f"page: {folder}/report.html" in capsys.readouterr().out
    assert sorted(file.name for file in place.glob("out*")) == ["out", "out_2"]


def test_interruption_saves_the_shortest_run(script, place, capsys, monkeypatch):
    shortest = []

    def interrupted(level, search, run, *arguments):
        shortest.append(run)
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "_better_runs", interrupted)
    assert script.main(["levels/simplest/000000.map", *QUICK, "--polish", "100000"]) == 130
    assert "1 of 1 levels were searched; runs found so far are in out" in capsys.readouterr().err
    replay = Replay.load(place / "out/replays/simplest_000000.replay")
    assert nppsim.simulate(EASY, replay.inputs).won
    assert replay.frames == len(shortest[0].inputs)


def test_command_compares_with_targets_and_names_the_best_run(script, place, capsys):
    (place / "targets.txt").write_text(f"# mine\n{EASY.fingerprint[:10]} 0.1\n{MINED.fingerprint[:8]}; score 20\n")
    assert script.main(["levels", *QUICK, "--films", "0", "--targets", "targets.txt"]) == 0
    assert "targets reached on 1 of 2 levels" in capsys.readouterr().out
    easy, mined = json.loads((place / "out/results.json").read_text())["levels"]
    assert (mined["target"], mined["target_reached"]) == ({"frames": None, "score": 20.0}, True)
    assert (easy["target"], easy["target_reached"]) == ({"frames": 6, "score": None}, False)
    by_par = easy["frames"] > 40
    assert easy["best"]["time"] == {
        "frames": min(easy["frames"], 40),
        "gold": None if by_par else 0,
        "by": "planner" if by_par else "this run",
    }
    assert easy["best"]["all-gold"] == {"frames": easy["frames"], "gold": 0, "by": "this run"}


def test_best_run_per_objective_is_never_faster_than_that_for_time():
    recorded = Replay(EASY, slow_run(EASY))
    task = SolveTask("easy", "", EASY, 50, recorded, recorded_frames=60, recorded_gold=2)
    solution = Solution(PlannedRun(np.zeros(1), np.zeros(40), 40, 0, gold=1), "time", "agent", 40, *[0] * 6)
    solved = Solved(task, solution, "easy")
    by = {objective: solved.best(objective) for objective in ("time", "score", "all-gold", "low-gold")}
    assert {objective: one["by"] for objective, one in by.items()} == {
        "time": "this run",
        "score": "recording",
        "all-gold": "recording",
        "low-gold": "this run",
    }
    assert all(by["time"]["frames"] <= one["frames"] for one in by.values())
    faster = replace(task, par_frames=30)
    assert Solved(faster, solution, "easy").best("time") == {"frames": 30, "gold": None, "by": "planner"}


def test_command_plays_live(script, place, capsys):
    command = ["levels/mined/odd/000000.map", "--agent", "agent.safetensors", "--out", "out", "--films", "0"]
    assert script.main([*command, "--live", "counted"]) == 0
    assert "1 by live play" in capsys.readouterr().out
    facts = json.loads((place / "out/results.json").read_text())["levels"][0]
    played = nppsim.simulate(MINED, Replay.load(place / "out/replays/mined_odd_000000.replay").inputs)
    assert played.won
    assert played.frames == facts["frames"]
    (begin, end, planned), *_ = facts["thoughts"]
    assert 0 == begin < end <= (planned + 1) / 15


def test_unsolved_level_gives_exit_status_1(script, place, capsys):
    assert script.main(["levels/simplest/000000.map", *QUICK, "--budget", "10"]) == 1
    text = capsys.readouterr().out
    assert "not found" in text
    assert "solved 0 of 1" in text
    (facts,) = json.loads((place / "out/results.json").read_text())["levels"]
    for loss in facts["losses"]:
        assert f"{loss['cause']} " in text
    assert "why it failed" in text
    page = (place / "out/report.html").read_text()
    pictures = list(place.glob("out/routes/*.png"))
    assert [loss["why"] in page for loss in facts["losses"][:1]] == [True] * len(pictures) == [True]
    assert not (place / "out/replays").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", *QUICK], "error: nowhere: No such file or directory"),
        (["levels", "--agent", "nothing.safetensors"], "error: nothing.safetensors: no such checkpoint"),
        (["agent.safetensors", *QUICK], "error: agent.safetensors"),
        (["levels", *QUICK, "--against", "slow.replay"], "error: --against slow.replay: is for a single level"),
        (
            ["levels/mined/odd/000000.map", *QUICK, "--against", "slow.replay"],
            "error: --against slow.replay: was recorded on another level",
        ),
        (["slow.replay", *QUICK, "--against", "lost.replay"], "error: --against lost.replay: does not finish"),
        (["levels", *QUICK, "--demonstrations", "./out"], "error: --demonstrations out: is the folder of --out"),
        (["levels", *QUICK, "--demonstrations", "levels"], "error: --demonstrations levels: is not empty"),
        (["levels", *QUICK, "--objective", "gold"], "error: argument --objective: invalid choice: 'gold'"),
        (["levels", *QUICK, "--targets", "agent.safetensors"], "error: agent.safetensors: line 1"),
        (["levels", *QUICK, "--live", "counted"], "error: --live counted: plays without --objective"),
        (["levels", *QUICK, "--budget", "0"], "error: --budget 0: give a whole number of at least 1"),
        (["levels", *QUICK, "--out", "agent.safetensors/x"], "error: --out agent.safetensors/x: cannot be written"),
        (["levels"], "error: the following arguments are required: --agent"),
    ],
)
def test_errors_are_one_line(script, place, capsys, arguments, message):
    Replay(EASY, np.zeros(20, np.uint8)).save(place / "lost.replay")
    assert script.main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(message)
    assert printed.count("\n") == 1
    assert not (place / "out").exists()


def test_search_stacks_the_frames_before_a_state():
    """Each state of a beam is asked about with the stack that a run along its winning_run has; a level is finished, too."""
    agent = untrained(architecture="vision_free+state3")
    search, rng = search_on(EASY, agent), np.random.default_rng(1)
    actions = rng.integers(0, 6, 12)
    states = search.states_along(actions, FrameBudget(10_000))
    sim = BatchSimulator([EASY], 1, observations=agent.policy.observations, stacking=agent.policy.stacking, threads=1)
    sim.reset()
    viewers = search.observing_envs(4)
    for t, action in enumerate(actions):
        viewers.restore(slice(0, 1), states[t : t + 1])
        found = agent.action_costs(viewers.observe(), 1)
        np.testing.assert_array_equal(viewers.obs["game_state"][0], sim.obs["game_state"][0])
        np.testing.assert_allclose(found, agent.action_costs(sim.obs, 1), rtol=1e-6)
        sim.step([action])
    check_finishes(EASY, solve(EASY, agent, SHORT, threads=1).run)


def test_read_tasks_campaign_file(tmp_path):
    lines = [campaign.to_line(generate("simplest", seed)[0]) for seed in (1, 2)]
    (tmp_path / "PACK.txt").write_text("\n".join(lines))
    for place, names in (
        (tmp_path / "PACK.txt", ["PACK.txt#0", "PACK.txt#1"]),
        (tmp_path, ["PACK.txt#0", "PACK.txt#1"]),
        (tmp_path / "PACK.txt#1", ["PACK.txt#1"]),
    ):
        tasks = read_tasks(place)
        assert [task.name for task in tasks] == names
        assert tasks[-1].level == generate("simplest", 2)[0]
