"""Submissions of the benchmark: playback, refusals, tables."""

import json
from dataclasses import replace

import numpy as np
import pytest

from nppsim.generate import generate
from nppsim.levels.level_set import LevelSet
from nppsim.measure.intervals import Estimate
from nppsim.planner import plan
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplayWriter
from rl.evaluation.benchmark_table import format_summary, interquartile_mean, stratified_bootstrap, summary
from rl.evaluation.results import ResultsError
from rl.evaluation.submission import (
    ABOUT,
    REPLAYS,
    Score,
    Submission,
    SubmissionError,
    read_score,
    score_folder,
    tasks_of,
)

ABOUT_MINE = Submission("mine", "state", "easy/dev")


@pytest.fixture(scope="module")
def levels(tmp_path_factory):
    pairs = [generate(category, 5) for category in ("simplest", "simpler")]
    return LevelSet.write(tmp_path_factory.mktemp("levels") / "set", pairs)


def submission(folder, replays, about=ABOUT_MINE):
    folder.mkdir()
    (folder / ABOUT).write_text(json.dumps(vars(about)))
    with ReplayWriter(folder / REPLAYS) as writer:
        for replay in replays:
            writer.append(replay)
    return folder


def test_score_plays_replays_back(tmp_path, levels):
    run = plan(levels[0])
    folder = submission(tmp_path / "mine", [Replay(levels[0], run.inputs, False)])  # the stated failure does not count
    score = score_folder(folder, levels)
    assert score.wins.tolist() == [True, False] and score.frames.tolist() == [run.frames, 0]
    (tmp_path / "score.json").write_text(json.dumps(score.to_dict()))
    again = read_score(tmp_path / "score.json")
    assert again.about == ABOUT_MINE and again.levels == score.levels and (again.wins == score.wins).all()


def test_score_unfinished_run_is_lost(tmp_path, levels):
    inputs = plan(levels[0]).inputs[:-8]
    folder = submission(tmp_path / "mine", [Replay(levels[0], inputs, True)])
    assert not score_folder(folder, levels).wins.any()


def test_score_refuses_other_levels_second_replays_and_inputs_within_decisions(tmp_path, levels):
    still = Replay(levels[0], np.zeros(8, np.uint8))
    other = Replay(generate("simple", 1)[0], np.zeros(8, np.uint8))
    quick = Replay(levels[0], np.array([0, 0, 1, 1, 1], np.uint8))
    for number, (replays, message) in enumerate(
        (([other], "#0: its level is not in"), ([still, still], "#1: .* two replays"), ([quick], "change within"))
    ):
        with pytest.raises(SubmissionError, match=message):
            score_folder(submission(tmp_path / str(number), replays), levels)
    folder = submission(tmp_path / "about", [still])
    (folder / ABOUT).write_text(json.dumps(vars(ABOUT_MINE) | {"track": "x"}))
    with pytest.raises(SubmissionError, match=r"submission.json: track 'x'; give pixels"):
        score_folder(folder, levels)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "submission.json: cannot be read"),
        ("[]", "submission.json: .*give a folder that `benchmark run` has written"),
        ("{", "submission.json: not JSON"),
        (json.dumps(vars(ABOUT_MINE) | {"track": "mine"}), "track 'mine'; give pixels"),
    ],
)
def test_score_damaged_statement_raises(tmp_path, levels, content, message):
    if content is not None:
        (tmp_path / ABOUT).write_text(content)
    with pytest.raises(SubmissionError, match=message):
        score_folder(tmp_path, levels)


def test_read_score_of_missing_or_other_file_raises(tmp_path):
    with pytest.raises(SubmissionError, match="cannot be read"):
        read_score(tmp_path / "score.json")
    (tmp_path / "score.json").write_text("[]")
    with pytest.raises(SubmissionError, match="not a score"):
        read_score(tmp_path / "score.json")


def test_tasks_of_one_category_are_fifths_by_par(tmp_path):
    made = [generate("simplest", seed) for seed in range(10)]
    pairs = [(level, replace(entry, par_frames=100 - i)) for i, (level, entry) in enumerate(made)]
    tasks = tasks_of(LevelSet.write(tmp_path / "set", pairs))
    assert tasks == tuple(f"par {n}/5" for n in (5, 5, 4, 4, 3, 3, 2, 2, 1, 1))
    with pytest.raises(SubmissionError, match="without par_frames"):
        tasks_of(LevelSet.write(tmp_path / "other", made))


def test_interquartile_mean_cuts_quarters():
    assert interquartile_mean(np.array([0.0, 1.0, 2.0, 3.0, 100.0, 4.0, 5.0, -9.0])) == 2.5
    assert interquartile_mean(np.array([[1.0, 2.0, 6.0]])).tolist() == [3.0]


def test_stratified_bootstrap_keeps_tasks():
    """Tasks differ, but the seeds agree: there is no uncertainty over seeds."""
    success = np.tile([0.1, 0.5, 0.9], (5, 1))
    estimate = stratified_bootstrap(success, lambda x: x.mean(axis=1))
    assert estimate.value == pytest.approx(0.5) and estimate.low == pytest.approx(0.5) == estimate.high
    assert stratified_bootstrap(success[:1], interquartile_mean) == Estimate(0.5, None, None)


def scores(name, rate, seeds, rng):
    names, tasks = tuple(map(str, range(60))), tuple("ab"[i % 2] for i in range(60))
    about = Submission(name, "state", "easy/dev", budget=1_000_000)
    wins = [rng.random(60) < rate for _ in range(seeds)]
    return [Score(replace(about, seed=i), names, tasks, w, np.ones(60, np.int64)) for i, w in enumerate(wins)]


def test_summary_orders_methods_and_finds_differences():
    rng = np.random.default_rng(0)
    every = [*scores("good", 0.9, 3, rng), *scores("bad", 0.3, 3, rng), *scores("single", 0.3, 1, rng)]
    result = json.loads(json.dumps(summary(every)))
    good, bad, single = result["methods"]
    assert good["seeds"] == 3 and good["iqm"][1] <= good["iqm"][0] <= good["iqm"][2]
    assert good["profile"]["0.75"][0] > bad["profile"]["0.75"][0] == 0
    assert single["iqm"][1] is None and {*good["tasks"]} == {"a", "b"}
    assert len(result["differences"]) == 1 and result["differences"][0].startswith("good finishes")
    assert "1,000,000" in format_summary(result)
    pixels = [replace(score, about=replace(score.about, track="pixels")) for score in scores("images", 0.3, 3, rng)]
    assert summary([*scores("good", 0.9, 3, rng), *pixels])["differences"] == []  # of different tracks
    with pytest.raises(ResultsError, match="two scores of one seed"):
        summary([*scores("good", 0.9, 1, rng), *scores("good", 0.9, 1, rng)])
