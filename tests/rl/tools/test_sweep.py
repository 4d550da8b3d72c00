"""Sweeps: ranges of settings, and trials that are run, pruned, interrupted and ranked.

A trial is a small program in place of the training; success is highest where the learning rate is 0.001.
"""

import json
import math
import re

import numpy as np
import pytest

from nppsim.errors import ConfigError
from nppsim.io.files import write_text
from rl.config.command_line import resolve
from rl.evaluation.results import DevHistory, LevelWins, ResultsError
from rl.policy import architectures
from rl.tools import sweep as sweeps
from rl.tools.sweep import Sweep, ended_trials, read_space, report, run_trials, toml_text

from programs import load_script

pytest.importorskip("optuna")

COMMON = ("--architectures", "vision_free", "--total-timesteps", "2000", "--eval-freq", "1000")
# Every other trial after the first four does worse than all others, where it is asked to, and waits to be ended.
PROGRAM = """
import json, math, sys, time, tomllib
from pathlib import Path
flags = sys.argv[1:]
assert flags.count("--skip-final-eval") == 1, flags
with open("{log}", "a") as file:
    file.write(json.dumps(flags) + "\\n")
name = flags[flags.index("--experiment-name") + 1]
settings = tomllib.loads(Path(flags[flags.index("--config") + 1]).read_text())
rate = settings["initial-lr"]
if rate > {broken}:
    sys.exit("error: it cannot be trained")
run = Path(flags[flags.index("--output-dir") + 1]) / f"{{name}}_20260101_000000"
seeds = flags[flags.index("--seeds") + 1:flags.index("--output-dir")]
for seed in seeds:
    place = run / "vision_free" / (f"seed_{{seed}}" if len(seeds) > 1 else "")
    place.mkdir(parents=True)
    (run / "config.json").write_text("{{}}")
    wins = round(1000 * math.exp(-abs(math.log10(rate) + 3))) - 10 * int(seed)
    hopeless = {some_hopeless} and int(name[-4:]) in (5, 7)
    wins = 2 if hopeless else wins
    rows = [{{"levels": ["a"], "categories": ["x"], "episodes": [1000]}}]
    for decisions in (1000, 2000):
        rows.append({{"decisions": decisions, "wins": [wins // 2 if decisions == 1000 else wins]}})
    (place / "new").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    (place / "new").rename(place / "dev_levels.jsonl")  # atomically, as runs write it
    if hopeless:
        time.sleep(60)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write the program of a trial; calls() returns its calls."""
    monkeypatch.setattr(sweeps, "POLL_SECONDS", 0.02)

    def make(broken=1.0, some_hopeless=False):
        script = tmp_path / "train.py"
        script.write_text(PROGRAM.format(log=tmp_path / "calls", broken=broken, some_hopeless=some_hopeless))
        return script

    make.calls = lambda: [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    return make


def rates(trials, **more):
    return Sweep(read_space(["initial-lr=1e-5..1e-1:log"]), COMMON, trials=trials, **more)


def test_run_trials_writes_best_settings(program, tmp_path):
    sweep, folder = rates(6, seeds=(0, 3), pruning=False), tmp_path / "out"
    study = run_trials(sweep, folder, program(), [].append)
    stored = json.loads((folder / "results.json").read_text())
    assert len(stored["trials"]) == 6 == len(program.calls())
    assert all(len(trial["success"]) == 2 and trial["state"] == "complete" for trial in stored["trials"])
    best = max(stored["trials"], key=lambda trial: sum(trial["success"]))
    assert math.isclose(best["success"][0] - best["success"][1], 0.03)
    config = resolve(["--experiment-name", "x", *COMMON, "--config", str(folder / "best.toml")])
    assert config.ppo.learning_rate == best["settings"]["initial-lr"]
    text = report(study, sweep, folder)
    assert text.splitlines()[2].split()[1] == str(best["trial"]), "the best comes first"
    assert f"--config {folder / 'best.toml'}" in text and "test levels" in text


def test_run_trials_odd_folder_name_stores_study(program, tmp_path):
    folder = tmp_path / 'lr?a: %41 # & = é "'
    run_trials(rates(1), folder, program(), [].append)
    again = run_trials(rates(2), folder, program(), [].append)
    assert len(again.trials) == 2 and (folder / sweeps.STUDY).is_file()
    assert not (tmp_path / "lr").exists()


def test_run_trials_prunes_bad_trials(program, tmp_path):
    study = run_trials(rates(9), tmp_path / "out", program(some_hopeless=True), [].append)
    states = [trial.state.name for trial in ended_trials(study)]
    assert len(states) == 9 and (states[5], states[7]) == ("PRUNED", "PRUNED")
    assert states[:4] == ["COMPLETE"] * 4, "the first ones are never pruned"


def test_run_trials_interrupted_resumes(program, tmp_path):
    sweep, folder, begun = rates(3), tmp_path / "out", []

    def interrupt(line):
        begun.append(line)
        if line.startswith("trial_0001: initial-lr"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_trials(sweep, folder, program(), interrupt)
    assert len(program.calls()) == 1
    study = run_trials(sweep, folder, program(), [].append)
    assert len(ended_trials(study)) == 3 == len(program.calls())
    first, again = study.trials[1:3]
    assert first.params == again.params and again.user_attrs["folder"].endswith("trial_0001_20260101_000000")
    run_trials(rates(4), folder, program(), [].append)
    assert len(program.calls()) == 4, "more trials may be asked for"
    with pytest.raises(ConfigError, match="--out"):
        run_trials(rates(4, seeds=(7,)), folder, program(), [].append)


def test_run_trials_begun_run_is_resumed(program, tmp_path):
    sweep, folder = rates(1), tmp_path / "out"
    begun = folder / "runs" / "trial_0000_20260101_000000"
    begun.mkdir(parents=True)
    (begun / "config.json").write_text("{}")
    script = tmp_path / "resumed.py"
    script.write_text(f"import sys; open({str(tmp_path / 'seen')!r}, 'w').write(' '.join(sys.argv[1:]))")
    with pytest.raises(ResultsError, match="no trial has succeeded"):
        run_trials(sweep, folder, script, [].append)
    assert (tmp_path / "seen").read_text() == f"--resume-from {begun}"


@pytest.mark.parametrize(("guard", "success"), [("on", 0.9), ("off", 0.4)])
def test_trial_success_follows_retention_guard(guard, success, tmp_path):
    sweep = Sweep(read_space(["evaluation.retention_guard=on,off"]), COMMON)
    place = tmp_path / "runs" / "trial_0000_20260101_000000" / "vision_free"
    (tmp_path / "trials").mkdir()
    for decisions, wins in ((1000, 9), (2000, 4)):
        DevHistory(place).add(decisions, LevelWins(("a",), ("x",), np.array([10]), np.array([[wins]])))
    write_text(place.parent / "config.json", "{}")
    name = "evaluation.retention_guard"
    trial = sweeps._Trial(sweep, pytest.importorskip("optuna").trial.FixedTrial({name: guard}), tmp_path, print)
    assert trial.success() == [success]


def test_run_trials_only_failures_raises(program, tmp_path):
    lines = []
    with pytest.raises(ResultsError, match="the last 3 trials"):
        run_trials(rates(9), tmp_path / "out", program(broken=0.0), lines.append)
    assert any("ended with status 1: error: it cannot be trained" in line for line in lines)
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["trials"]
    assert [row["failed"] for row in rows] == ["status 1: error: it cannot be trained"] * 3
    with pytest.raises(ResultsError, match="no trial has succeeded; see .*logs"):
        run_trials(rates(2), tmp_path / "few", program(broken=0.0), lines.append)


def test_read_space_ranges_and_lists(tmp_path):
    texts = ["initial-lr=1e-4..1e-2:log", "n-epochs=1..8", "architectures=vision_free,gcn"]
    space = read_space([*texts, "minibatch-size=256,512", "--schedules=on,off", "ppo.target_kl=none,0.03"])
    assert [str(one) for one in space] == [
        "initial-lr=0.0001..0.01:log", "n-epochs=1..8", "architectures=vision_free,gcn",
        "minibatch-size=256,512", "schedules=on,off", "ppo.target_kl=none,0.03",
    ]  # fmt: skip
    values = {
        "initial-lr": 0.001, "n-epochs": 3, "architectures": "gcn", "minibatch-size": "256", "schedules": "off",
        "ppo.target_kl": "none",
    }  # fmt: skip
    settings = tmp_path / "trial.toml"
    settings.write_text(toml_text(space, values))
    config = resolve(["--experiment-name", "x", "--config", str(settings)])
    assert (config.ppo.learning_rate, config.ppo.n_epochs, config.architectures) == (0.001, 3, ("gcn",))
    assert (config.hardware.minibatch_size, config.ppo.schedules, config.ppo.target_kl) == (256, False, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("initial-lr", "--sweep initial-lr: give NAME=LOW..HIGH"),
        ("initial-rl=1..2", "--sweep initial-rl=1..2: is not a setting; did you mean 'initial-lr'"),
        ("initial-lr=2..1", "give two numbers, the lower one first"),
        ("initial-lr=0..1:log", "the lower one first, above 0"),
        ("initial-lr=a..b", "'a' is not a number"),
        ("n-epochs=1..2.5", r"'2\.5' is not a whole number"),
        ("architectures=a..b", "is not a valid range"),
        ("n-epochs=1,1", "names a value twice"),
        ("resume-from=a,b", "is not a setting"),
    ],
)
def test_read_space_invalid_text_raises(text, message):
    with pytest.raises(ConfigError, match=message):
        read_space([text])


@pytest.mark.parametrize(
    ("texts", "common", "message"),
    [
        (["gamma=0.9..2"], COMMON, "--sweep gamma 2.0: give a number"),
        (["gamma=0.9..0.99"], (*COMMON, "--gamma", "0.9"), "--gamma: is swept; leave it out"),
        (["gamma=0.9..0.99"], (*COMMON, "--seeds", "1"), "--seeds: is set for each trial"),
        (["gamma=0.9..0.99"], (*COMMON, "--out", "a"), "--out: is set for each trial"),
        (["mixed-precision=on,off"], (*COMMON, "--no-mixed-precision"), "--no-mixed-precision: is swept; leave it out"),
        (["seeds=1,2"], COMMON, "--sweep: seeds is set for each trial by the sweep; leave it out"),
        (["output-dir=a,b"], COMMON, "--sweep: output-dir is set for each trial"),
        (["skip-final-eval=on,off"], COMMON, "--sweep: skip-final-eval is set for each trial"),
        (["gamma=0.9..0.99"], (*COMMON, "--eval-freq", "0"), "scored by evaluations during training"),
        (["gamma=0.9..0.99"], (*COMMON, "--architectures", "gcn"), "2 architectures"),
        (["gamma=0.9..0.99"], (*COMMON, "--record-eval-videos"), "--record-eval-videos: is set for each trial"),
    ],
)
def test_run_trials_invalid_sweep_raises(texts, common, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        run_trials(Sweep(read_space(texts), common), tmp_path / "out", tmp_path / "none.py", [].append)


def test_sweep_script_parse():
    parse = load_script("sweep").parse
    arguments = parse(["--sweep", "a=1,2", "b=1..2", "--sweep", "c=1,2", "--seeds", "1", "2", "--", "--gamma", "0.9"])
    assert (arguments.sweep, arguments.seeds) == (["a=1,2", "b=1..2", "c=1,2"], [1, 2])
    assert (arguments.common, arguments.trials, arguments.pruning) == (["--gamma", "0.9"], 20, True)
    assert re.fullmatch(r"experiments/sweep_\d{8}_\d{6}", str(arguments.out))


def test_sweep_script_plugin_reaches_trials(program, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(architectures.ARCHITECTURES, "swept", None)  # so that nothing of it is left afterwards
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from dataclasses import replace\nfrom rl.policy import architectures as a\n"
        "a.register(replace(a.get_architecture('vision_free'), name='swept', fusion=(32,)))\n"
    )
    script = load_script("sweep")
    monkeypatch.setattr(script, "SCRIPT", program())
    own, trials = ["--plugin", str(plugin), "--trials", "1"], ["--", "--architectures", "swept", *COMMON[2:]]
    asked = ["--sweep", "initial-lr=1e-5..1e-1:log", "--out", str(tmp_path / "out"), *own, *trials]
    assert script.main(asked) == 0, capsys.readouterr().err
    (flags,) = program.calls()
    assert flags[:4] == ["--plugin", str(plugin), "--architectures", "swept"]
