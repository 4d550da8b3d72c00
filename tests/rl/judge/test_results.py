"""Counting episodes: Wilson intervals worked out by hand, aggregation, the table, results.json."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nppsim.files import write_json
from rl.judge.results import (
    EpisodeRecord,
    ResultsError,
    aggregate,
    format_cell,
    format_table,
    load_results,
    success_by_level,
    wilson,
)


def episode(category="simple", outcome="won", frames=10, ret=1.0, level_index=0):
    level = SimpleNamespace(name="l")
    return EpisodeRecord(
        level_index, "l", category, level, np.zeros(frames, np.uint8), outcome, frames, frames // 4, ret, 2, 100.0
    )


def results(stats):
    entry = {"suites": {"test": stats}, "baselines": {}, "speed": {}, "wall_time_s": 1.0}
    return {"architectures": {"mlp": {"seeds": {"0": entry}}}, "config": {}, "machine": {}, "versions": {}}


def test_aggregation_counts_per_category_and_over_all():
    stats = aggregate(
        [episode(frames=10), episode(frames=30), episode(outcome="died", frames=500), episode("simpler", "timeout")]
    )
    assert list(stats) == ["simple", "simpler", "all"]
    simple = stats["simple"]
    assert (simple["episodes"], simple["wins"], simple["deaths"], simple["timeouts"]) == (3, 2, 1, 0)
    assert simple["success"] == pytest.approx(2 / 3) and simple["median_frames"] == 20
    assert simple["ci95"] == pytest.approx(wilson(2, 3))
    assert stats["simpler"]["median_frames"] is None and stats["simpler"]["timeouts"] == 1
    assert stats["all"]["episodes"] == 4 and stats["all"]["success"] == 0.5


def test_success_by_level_is_in_the_order_of_the_level_set():
    episodes = [episode(level_index=7), episode(level_index=2), episode(outcome="died", level_index=2)]
    assert success_by_level(episodes).tolist() == [0.5, 1.0]


def test_records_that_contradict_themselves_are_refused():
    with pytest.raises(ResultsError, match="outcome 'lost' is none of timeout, won, died"):
        episode(outcome="lost")
    with pytest.raises(ResultsError, match="0 inputs for 7 frames"):
        EpisodeRecord(0, "l", "c", None, np.zeros(0, np.uint8), "won", 7, 2, 0.0, 0, 0.0)
    with pytest.raises(ResultsError, match="cannot be called"):
        aggregate([episode(category="all")])


def test_the_table_lines_up_and_says_what_was_not_run():
    random, ppo = aggregate([episode(outcome="died")] * 10), aggregate([episode()] * 9 + [episode("simpler")] * 3)
    text = format_table({"random": random, "BC": None, "PPO": ppo})
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[:-1]]
    assert rows[0] == ["category", "episodes", "random", "BC", "PPO"]
    assert rows[2] == ["simple", "9/10", "0.0 % [0.0, 27.8]", "-", "100.0 % [70.1, 100.0]"]
    assert [row[0] for row in rows[2:]] == ["simple", "simpler", "all"]
    assert len({len(line) for line in text.splitlines()[:-1]}) == 1
    assert format_cell(None) == "-"


def test_json_is_written_whole_and_read_back(tmp_path):
    path = tmp_path / "run" / "results.json"
    write_json(path, results(aggregate([episode(), episode(outcome="died")])))
    assert load_results(path)["architectures"]["mlp"]["seeds"]["0"]["suites"]["test"]["all"]["wins"] == 1
    assert [p.name for p in path.parent.iterdir()] == ["results.json"]


def test_numpy_paths_and_infinite_numbers_become_json(tmp_path):
    data = {
        "a": np.float32(0.5),
        "b": np.arange(2),
        "c": Path("x"),
        "d": float("nan"),
        "e": np.bool_(True),
        3: (1, None),
    }
    write_json(tmp_path / "x.json", data)
    plain = {"a": 0.5, "b": [0, 1], "c": "x", "d": None, "e": True, "3": [1, None]}
    assert json.loads((tmp_path / "x.json").read_text()) == plain


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"old": 1})
    with pytest.raises(TypeError, match="has no place in a JSON file"):
        write_json(path, {"new": object()})
    assert json.loads(path.read_text()) == {"old": 1}
    assert len(list(tmp_path.iterdir())) == 1


def test_broken_results_say_what_is_wrong(tmp_path):
    path = tmp_path / "results.json"
    with pytest.raises(ResultsError, match=r"results\.json: no such file"):
        load_results(path)
    path.write_text('{"architectures": ')
    with pytest.raises(ResultsError, match="not a JSON file"):
        load_results(path)
    path.write_text('{"architectures": {}, "config": {}}')
    with pytest.raises(ResultsError, match="machine, versions missing at the top"):
        load_results(path)
    stats = aggregate([episode()])
    del stats["simple"]["ci95"]
    write_json(path, results(stats))
    with pytest.raises(ResultsError, match="mlp, seed 0, test, simple: ci95 missing"):
        load_results(path)
    stats = aggregate([episode()])
    stats["simple"]["wins"] = 0
    write_json(path, results(stats))
    with pytest.raises(ResultsError, match="do not sum to 1 episodes"):
        load_results(path)
    data = results({})
    data["architectures"]["mlp"] = {}
    write_json(path, data)
    with pytest.raises(ResultsError, match="KeyError: 'seeds'"):
        load_results(path)
