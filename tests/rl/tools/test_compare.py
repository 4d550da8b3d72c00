"""Comparison of stored, made-up runs: differences, first divergence and its cause, learning, speed."""

import json
import shutil

import numpy as np
import pytest

from nppsim.io.files import write_json
from rl.config.resume import FINISHED_FILE
from rl.evaluation.results import HISTORY_FILE, DevHistory, LevelWins
from rl.events import open_events
from rl.tools.reference import FORMAT, VERSION
from rl.training.digests import TRAIL_FILE
from rl.training.runs import find_runs

from programs import load_script

compare_runs = load_script("compare_runs")
LEVELS = 200
SETTINGS = {
    "ppo.gae_lambda": (0.95, "default"),
    "ppo.gamma": (0.995, "default"),
    "plan.num_envs": (512, "hardware plan"),
}
HOST = {"cpu": "some processor", "cores": 2, "system": "Linux"}


def wins(success, seed=0):
    """Wins on the dev levels, one episode each."""
    won = np.random.default_rng(seed).permutation(LEVELS) < success * LEVELS
    names = tuple(f"level {i}" for i in range(LEVELS))
    return LevelWins(names, ("simple",) * LEVELS, np.ones(LEVELS, np.int64), won[None].astype(np.int64))


def digest_lines(parts_of_update, updates=4):
    """Return the lines of a digest file; parts_of_update: update -> part -> digest that replaces the default."""
    usual = {"observations": "a", "actions": "b", "advantages": "c", "parameters": "d"}
    schedule = {"learning_rate": 1e-3}
    rows = [
        {"update": u, "decisions": 100 * u, "schedule": schedule, "digests": usual | parts_of_update.get(u, {})}
        for u in range(updates)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def stored(folder, *, seeds=(1,), success=(0.2, 0.5, 0.6), per_million=100.0, host=HOST, level_seed=0, **more):
    """Write the folder of a finished experiment with some seeds.

    more: settings, config, parts of the trail, its updates, updates logged, finished.
    """
    base = {"experiment_name": folder.name, "seeds": list(seeds), "ppo": {"gae_lambda": 0.95, "gamma": 0.995}}
    facts = {"data": {"train": "ab"}, "machine": "words", "versions": {"numpy": "2"}, "host": host, "environment": {}}
    write_json(folder / "config.json", base | facts | more.get("config", {}))
    entries = {}
    for seed in seeds:
        run = folder / "vision_free" / f"seed_{seed}" if len(seeds) > 1 else folder / "vision_free"
        own = {
            name: {"value": value, "source": source}
            for name, (value, source) in (SETTINGS | more.get("settings", {})).items()
        }
        write_json(run / "run.json", {"seed": seed, "settings": own})
        (run / TRAIL_FILE).write_text(digest_lines(more.get("parts", {}), more.get("updates", 4)))
        if more.get("finished", True):
            write_json(run / FINISHED_FILE, {})
        history = DevHistory(run)
        for i, share in enumerate(success):
            history.add(1000 * i, wins(share, level_seed + 100 * seed))
        with open_events(run / "tensorboard") as writer:
            noise = np.random.default_rng(seed)
            for i in range(1, more.get("logged", 20) + 1):
                seconds = per_million / 1e6 * 100 * (1 + 0.01 * noise.normal())
                writer.add_scalar("sim/decisions_per_s", 100 / (0.4 * seconds), 100 * i)
                writer.add_scalar("sim/update_s", 0.6 * seconds, 100 * i)
                writer.add_scalar("rollout/ep_rew_mean", i * success[-1] + 0.01 * seed, 100 * i)
                writer.add_scalar(
                    "eval/all_success", np.interp(i, [0, 20], [success[0], success[-1]]) + 0.01 * seed, 100 * i
                )
        speed = {"decisions_per_s": 1e6 / per_million, "share": {"environment": 0.3, "inference": 0.1, "update": 0.6}}
        entries[str(seed)] = {"speed": speed}
    write_json(folder / "results.json", {"architectures": {"vision_free": {"seeds": entries}}})
    return folder


def run(*arguments, capsys):
    """(status, standard output, standard error) of the script."""
    status = compare_runs.main([*map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


LESS = {"success": (0.2, 0.3, 0.35)}  # success of the last policy: 35 instead of 60 %
FELL = {"success": (0.2, 0.6, 0.1)}  # the best policy is delivered, unless the retention guard is off
UNGUARDED = {"evaluation.retention_guard": (False, "command line")}
LAMBDA = {"ppo.gae_lambda": (0.92, "command line"), "ppo.gamma": (0.99, "default")}
ADVANTAGES = {2: {"advantages": "x", "parameters": "y"}, 3: {"observations": "z"}}
OBSERVATIONS = {1: {"observations": "x"}}
ELSEWHERE = HOST | {"cpu": "another"}


@pytest.mark.parametrize(
    ("changes", "flags", "status", "texts"),
    [
        ({}, "", 0, ["No difference found between B and A (0.0 points", "no difference beyond the tolerance"]),
        (
            {},
            "--exact",
            0,
            ["are the same", "seed 1: digests are equal in all 4 common records\n", "digests are equal\n"],
        ),
        # learning
        (LESS, "", 1, ["B finishes 25.0 points LESS than A", "different: success on the dev levels (-25.0 points)"]),
        (LESS, "", 1, ["one seed on each side"]),
        (LESS, "--tolerance 30", 0, []),
        (FELL, "", 0, []),
        (FELL | {"settings": UNGUARDED}, "", 1, ["50.0 points LESS"]),
        ({"level_seed": 7}, "", 0, ["No difference found between B and A"]),  # as many wins, on other levels
        # speed
        (
            {"per_million": 130.0},
            "",
            1,
            ["different: speed (1.30 times the time per decision)", "of these: environment"],
        ),
        ({"per_million": 130.0}, "--speed-tolerance 50", 0, []),
        (
            {"per_million": 130.0},
            "--exact",
            0,
            ["note: speed (1.30 times the time per decision), which does not count"],
        ),
        ({"per_million": 130.0, "host": ELSEWHERE}, "", 0, ["speed is not compared"]),
        # digests
        (
            {"settings": LAMBDA, "parts": ADVANTAGES},
            "",
            0,
            ["at update 2: advantages, because ppo.gae_lambda 0.95 → 0.92"],
        ),
        ({"settings": LAMBDA, "parts": ADVANTAGES}, "--exact", 1, ["0.92 (command line)", "0.95 (default)"]),
        *(
            ({"parts": OBSERVATIONS, **changes}, "", 0, [text])
            for changes, text in (
                ({"config": {"versions": {"numpy": "3"}}}, "perhaps because of different versions: numpy 2 → 3"),
                ({"config": {"data": {"train": "cd"}}}, "because train ab → cd"),
                ({"host": ELSEWHERE}, "perhaps because of different machine: cpu some processor → another"),
                ({"config": {"environment": {"OMP_NUM_THREADS": "4"}}}, "no recorded entry differs"),
                ({}, "no recorded entry differs"),
            )
        ),
    ],
)
def test_new_run_is_compared_with_an_old_one(tmp_path, capsys, changes, flags, status, texts):
    old, new = stored(tmp_path / "old"), stored(tmp_path / "new", **changes)
    found, out, err = run(old, new, *flags.split(), capsys=capsys)
    assert (found, err) == (status, ""), out
    for text in texts:
        assert text in out


def test_compare_does_not_import_plugins_of_a_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    old, new = (stored(tmp_path / name, config={"plugins": ["mine.py"]}) for name in ("old", "new"))
    assert run(old, new, capsys=capsys)[0] == 0
    assert not (tmp_path / "executed").exists()


def test_exact_comparison_with_an_unfinished_training_is_different(tmp_path, capsys):
    whole, broken = stored(tmp_path / "whole", updates=100), stored(tmp_path / "broken", finished=False)
    for pair in ((whole, broken), (broken, whole)):
        status, out, _ = run(*pair, "--exact", capsys=capsys)
        assert status == 1
        assert (
            "seed 1: digests are equal in all 4 common records; 96 updates only in one of them" in out.splitlines()[-1]
        )
        assert f"note: {broken / 'vision_free'}: this training has not finished, but its partner has" in out
    for folder in (whole, broken):
        (folder / "vision_free" / HISTORY_FILE).unlink()
    status, out, _ = run(whole, broken, capsys=capsys)
    assert status == 2 and "NOT DECIDED" in out


def test_exact_comparison_requires_a_partner_for_every_training(tmp_path, capsys):
    old, more = stored(tmp_path / "old", seeds=(1, 2)), stored(tmp_path / "more", seeds=(1, 2, 3))
    assert run(old, more, capsys=capsys)[0] == 0
    for pair in ((old, more), (more, old)):
        status, out, _ = run(*pair, "--exact", capsys=capsys)
        assert status == 1 and out.splitlines()[-1] == "different: without a partner: vision_free seed 3"


def test_runs_are_paired_by_seed(tmp_path, capsys):
    old = stored(tmp_path / "old", seeds=(1, 2, 3))
    new = stored(tmp_path / "new", seeds=(1, 2, 3, 4), success=(0.2, 0.6, 0.75))
    status, out, _ = run(old, new, capsys=capsys)
    assert status == 1 and "over 200 levels and 3 seeds" in out and "without a partner: vision_free seed 4" in out


def test_three_runs_are_compared_with_the_first(tmp_path, capsys):
    old = stored(tmp_path / "old")
    broken = stored(tmp_path / "broken", success=(0.2, 0.2, 0.2), settings={"ppo.gamma": (0.5, "command line")})
    fixed = stored(tmp_path / "fixed")
    status, out, _ = run(old, broken, fixed, capsys=capsys)
    assert status == 0
    assert "| old " in out and "| broken " in out and "| fixed " in out
    (row,) = (line for line in out.splitlines() if "ppo.gamma" in line)
    assert row.split("|")[3].strip() == row.split("|")[5].strip() == "0.995 (default)"
    assert "0.5 (command line)" in row
    assert run(old, fixed, broken, capsys=capsys)[0] == 1


def test_runs_of_other_versions_compared_by_stored_values(tmp_path, capsys):
    """One run has no digests, levels, host or resolved settings; the other has unknown settings."""
    old = stored(tmp_path / "old")
    for name in (TRAIL_FILE, HISTORY_FILE, "run.json"):
        (old / "vision_free" / name).unlink()
    config = json.loads((old / "config.json").read_text())
    write_json(old / "config.json", {k: v for k, v in config.items() if k not in ("host", "environment")})
    new = stored(tmp_path / "new", config={"unknown": {"strength": 3}})
    status, out, err = run(old, new, capsys=capsys)
    assert (status, err) == (2, "")
    assert "NOT DECIDED: learning could not be compared" in out
    (row,) = (line for line in out.splitlines() if "unknown.strength" in line)
    assert [cell.strip() for cell in row.split("|")[3:5]] == ["–", "3"]
    assert "no digests to compare" in out and "learning is not compared" in out and "speed is not compared" in out


def test_success_on_different_dev_levels_is_not_compared(tmp_path, capsys):
    old, new = stored(tmp_path / "old"), stored(tmp_path / "new", success=(0.1, 0.1, 0.1))
    path = new / "vision_free" / HISTORY_FILE
    path.write_text(path.read_text().replace("level 7", "elsewhere"))
    status, out, _ = run(old, new, capsys=capsys)
    assert status == 0 and "different dev levels" in out
    (old / "vision_free" / TRAIL_FILE).unlink()
    assert run(old, new, capsys=capsys)[0] == 2


def test_json_contains_differences_and_comparisons(tmp_path, capsys):
    old = stored(tmp_path / "old")
    new = stored(tmp_path / "new", success=(0.2, 0.3, 0.35), settings={"ppo.gamma": (0.5, "command line")})
    status, out, _ = run(old, new, "--json", capsys=capsys)
    facts = json.loads(out)
    assert status == 1
    assert facts["runs"] == {"old": str(old), "new": str(new)}
    (difference,) = facts["differences"]
    assert difference["name"] == "ppo.gamma" and [v["value"] for v in difference["values"]] == ["0.995", "0.5"]
    (label,) = facts["comparisons"][0]["labels"]
    assert label["different"] and label["learning"] and label["speed"][0]["phase"] == "all"


@pytest.mark.parametrize("what", ["missing", "empty", "other labels", "damaged"])
def test_incomparable_runs_end_in_one_error(tmp_path, capsys, what):
    old, other = stored(tmp_path / "old"), tmp_path / "other"
    if what == "empty":
        other.mkdir()
    if what == "damaged":
        stored(other)
        (other / "config.json").write_text("{")
    if what == "other labels":
        stored(other, seeds=(7, 8))
        stored(tmp_path / "old", seeds=(1, 2))
    status, out, err = run(old, other, capsys=capsys)
    assert (status, out) == (2, "") and len(err.splitlines()) == 1 and err.startswith("error: ")


def test_find_runs_of_training_returns_one_run(tmp_path):
    folder = stored(tmp_path / "old", seeds=(1, 2))
    (found,) = find_runs(folder / "vision_free" / "seed_2")
    assert (found.label, found.seed) == ("vision_free", 2)
    assert len(find_runs(folder)) == 2


def test_scalars_of_a_run_exclude_those_of_seeds_in_its_folder(tmp_path):
    """An experiment that began with one seed, and was resumed with more, has such folders."""
    folder, more = stored(tmp_path / "one", seeds=(1,)), stored(tmp_path / "more", seeds=(1, 2))
    shutil.copytree(more / "vision_free" / "seed_2", folder / "vision_free" / "seed_2")
    runs = find_runs(folder)
    assert len(runs) == 2 and all(run.scalars for run in runs)


# ---------------------------------------------------------------------------------------------------------------------
# Reference bands


@pytest.fixture
def band(tmp_path, capsys):
    """A reference of five seeds."""
    path = tmp_path / "band.json"
    folder = stored(tmp_path / "reference", seeds=(1, 2, 3, 4, 5))
    assert run(folder, "--write-reference", path, capsys=capsys)[0] == 0
    return path


def test_write_reference_with_a_run_given_twice_ends_in_an_error(tmp_path, capsys):
    folder = stored(tmp_path / "reference", seeds=(1, 2, 3, 4, 5))
    again = folder / "vision_free" / ".." / "vision_free" / "seed_2"
    status, _, err = run(folder, again, "--write-reference", tmp_path / "band.json", capsys=capsys)
    assert status == 2 and "seed_2: is given twice" in err


def test_written_bands_contain_their_means(band):
    bands = json.loads(band.read_text())["metrics"]["eval/all_success"]
    assert len(bands) == 5 and all(one["low"] < one["mean"] < one["high"] for one in bands)


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        ({"seeds": (6,)}, 0, "within the reference"),
        ({"success": (0.2, 0.2, 0.2)}, 1, "worse than its reference in eval/all_success"),
        ({"per_million": 125.0}, 1, "worse than its reference in seconds per million decisions"),
        ({"logged": 10}, 2, "NOT DECIDED: 6 of 11 values were not reached"),
        ({"logged": 10, "success": (0, 0, 0)}, 1, "worse than its reference"),
        ({"success": (0.5, 0.9, 0.99), "settings": {"ppo.gamma": (0.5, "default")}}, 0, "0.995 in the reference, 0.5"),
        ({"per_million": 900.0, "host": HOST | {"cpu": "another"}}, 0, "speed is not compared"),
    ],
)
def test_run_is_compared_with_the_reference(tmp_path, band, capsys, changes, status, text):
    found, out, _ = run(stored(tmp_path / "run", **changes), "--reference", band, capsys=capsys)
    assert found == status, out
    assert text in out


def test_missing_metric_is_worse_than_the_reference(tmp_path, band, capsys):
    data = json.loads(band.read_text())
    data["metrics"]["train/lost"] = data["metrics"]["eval/all_success"]
    write_json(band, data)
    assert run(stored(tmp_path / "run"), "--reference", band, capsys=capsys)[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["RUN", "--reference", "nowhere.json"],
        ["RUN", "--reference", "RUN/config.json"],
        ["RUN", "--write-reference", "one_seed_is_not_enough.json"],
        ["RUN"],
        ["RUN", "--reference", "x.json", "--write-reference", "y.json"],
        ["RUN", "--reference", "x.json", "--exact"],
        ["RUN", "--reference", "without_label.json"],
        ["RUN", "RUN", "--write-reference", "y.json", "--json"],
    ],
)
def test_bad_references_end_in_one_error(tmp_path, capsys, arguments, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stored(tmp_path / "RUN")
    band = {"at": 1, "low": 0.0, "high": 1.0}
    write_json(tmp_path / "without_label.json", {"format": FORMAT, "version": VERSION, "metrics": {"x": [band]}})
    status, _, err = run(*arguments, capsys=capsys)
    assert status == 2 and len(err.splitlines()) == 1 and err.startswith("error: ")
