"""Checks on a trial run: none fails on correct data, and each fails on the fault that it detects."""

import copy
import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch

from nppsim.errors import ConfigError
from nppsim.io.files import write_json
from nppsim.paths import MAX_PATH
from nppsim.planner.search import PlannedRun
from nppsim.simulate import simulate
from rl.checks import data as checks_data
from rl.checks import run as checks_run
from rl.checks.check import CHECKPOINT, FAILED, OK, SKIPPED, UPDATE, WARNING, results_table
from rl.checks.doctor import CHECKS, GROUPS, Doctor
from rl.config.command_line import resolve
from rl.events import open_events
from rl.experiment.data import load_data, load_demonstrations
from rl.policy import checkpoint
from rl.policy.policy import build_policy
from rl.tools import doctor
from rl.training.runs import RUN_FILE

from excerpt import excerpt
from places import ROOT
from programs import load_script

CATEGORIES = ("simplest", "simpler")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A few shipped levels, with demonstrations."""
    return excerpt(tmp_path_factory.mktemp("doctor"), *CATEGORIES, train=8, dev=2, test=2, demonstrations=8)


@pytest.fixture(scope="module")
def config(folder):
    datasets = [word for name in ("train", "dev", "test") for word in (f"--{name}-dataset", str(folder / name))]
    flags = ["--experiment-name", "x", "--architectures", "vision_free", "--use-curriculum", *datasets]
    return resolve([*flags, "--replay-data-dir", str(folder / "demonstrations"), "--output-dir", str(folder / "out")])


@pytest.fixture(scope="module")
def trial(config):
    """A doctor after a short trial run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "UPDATES", 2)
        patch.setattr(doctor, "NUM_ENVS", 16)
        threads = torch.get_num_threads()
        done = doctor.trial_run(config, str)
        torch.set_num_threads(threads)
    return done


def test_trial_run_of_sound_data_passes(trial):
    assert not trial.failed, results_table(trial.results)
    skipped = {result.check for result in trial.results if result.status == SKIPPED}
    assert skipped == {"planned_runs_earn_every_reward"}
    assert {result.group for result in trial.results} == set(GROUPS)


@pytest.fixture(scope="module")
def dataset(config):
    keys = build_policy(config.architectures[0]).observations
    return load_demonstrations(config, load_data(config, str), keys, 0, str)


FAULTS = {}


def fault(function):
    """Register a fault: a function that changes some parts or the program; its name is that of the check."""
    FAULTS[function.__name__] = function
    return function


def changed_weights(policy, **changes):
    """A copy of a policy; changes: path of a tensor with _ for . -> function of it."""
    policy = copy.deepcopy(policy)
    with torch.no_grad():
        for name, tensor in policy.state_dict().items():
            if (change := changes.get(name.replace(".", "_"))) is not None:
                change(tensor)
    return policy


@fault
def exits_can_be_reached(parts, patch):
    bank = copy.copy(parts["bank"])
    bank._paths = bank.paths._replace(length=np.full_like(bank.path_length, MAX_PATH))
    parts["bank"] = bank


@fault
def replays_reach_the_exit(parts, patch):
    patch.setattr(checks_data, "simulate", lambda level, inputs: simulate(level, inputs[:3]))


@fault
def planned_runs_earn_every_reward(parts, patch):
    parts["config"] = dataclasses.replace(parts["config"], pretraining=False)
    waiting = PlannedRun(np.zeros(1, np.int64), np.zeros(4, np.uint8), 4, 0)
    patch.setattr(checks_data, "plan", lambda *given, **named: waiting)


@fault
def demonstrations_earn_every_reward(parts, patch):
    parts["dataset"] = dataclasses.replace(parts["dataset"], actions=np.zeros_like(parts["dataset"].actions))


@fault
def rewards_are_ordered(parts, patch):
    patch.setattr(parts["env"].sim, "reward_config", dataclasses.replace(parts["env"].sim.reward_config, death=5.0))


@fault
def every_parameter_gets_a_gradient(parts, patch):
    patch.setattr(parts["policy"].action_net.weight, "grad", None)


@fault
def every_input_has_an_effect(parts, patch):
    def cut(weight):
        weight[:, 3] = 0

    parts["policy"] = changed_weights(parts["policy"], features_extractor_vectors_0_layers_0_weight=cut)


@fault
def imitation_beats_action_frequencies(parts, patch):
    training = dataclasses.replace(parts["bc_result"].training, loss=3.0)
    parts["bc_result"] = dataclasses.replace(parts["bc_result"], training=training)


@fault
def the_first_update_stays_near_the_bc_policy(parts, patch):
    parts["bc_policy"] = changed_weights(parts["bc_policy"], action_net_weight=lambda weight: weight.normal_(0, 10))


@fault
def the_rollout_resembles_the_statistics(parts, patch):
    buffer = parts["ppo"].rollout_buffer
    patch.setitem(buffer.obs, "game_state", torch.full_like(buffer.obs["game_state"], 500.0))


@fault
def a_saved_policy_is_loaded_unchanged(parts, patch):
    load = checkpoint.load_policy

    def other(path):
        policy, facts = load(path)
        return changed_weights(policy, action_net_bias=lambda bias: bias.add_(1e-3)), facts

    patch.setattr(checkpoint, "load_policy", other)


@fault
def a_small_batch_is_fitted(parts, patch):
    patch.setattr("torch.optim.Adam.step", lambda optimiser: None)


@fault
def scalars_are_complete(parts, patch):
    patch.setattr(checks_run, "REQUIRED_TAGS", ("train/lost",))


@pytest.fixture
def parts(trial, dataset):
    """The objects of the trial run."""
    return dict(trial._objects) | {"dataset": dataset}


BY_NAME = {one.name: one for one in CHECKS}
ONLY_WARN_OR_INFORM = {
    "demonstrations_cover_the_trained_categories",
    "evaluated_categories_are_trained",
    "the_plan_fits_the_machine",
    "the_run_did_not_slow_down",
    "updates_fit_the_budget",
    "wins_are_within_the_discount_horizon",
}


def test_all_failing_checks_have_faults():
    assert BY_NAME.keys() == FAULTS.keys() | ONLY_WARN_OR_INFORM


@pytest.mark.parametrize("name", list(FAULTS))
def test_check_of_a_fault_fails(name, parts, monkeypatch):
    FAULTS[name](parts, monkeypatch)
    result = BY_NAME[name].run(UPDATE, parts, {})
    assert result.status == FAILED, result
    assert result.remedy


def test_input_effect_check_fails_for_constant_policy(parts):
    policy = changed_weights(parts["policy"], action_net_weight=torch.Tensor.zero_)
    result = BY_NAME["every_input_has_an_effect"].run(UPDATE, parts | {"policy": policy}, {})
    assert result.status == FAILED and "logits differ between decisions by 0" in result.message


def test_rollout_check_names_inputs_that_are_often_clamped_or_were_constant(parts, monkeypatch):
    doors = parts["ppo"].rollout_buffer.obs["switch_states"]
    doors = doors.clone()
    doors[::20, ..., -1] = 1000.0  # state of the last door, which no level of the demonstrations has
    monkeypatch.setitem(parts["ppo"].rollout_buffer.obs, "switch_states", doors)
    result = BY_NAME["the_rollout_resembles_the_statistics"].run(UPDATE, parts, {})
    assert result.status == WARNING, result
    assert "1 inputs are clamped in more than 1% of decisions: switch_states.door4_open (" in result.message
    assert "switch_states.door4_open" in result.message.split("constant in the statistics: ")[1]


@pytest.mark.parametrize(("gamma", "status"), [(0.5, WARNING), (0.9999, OK)])
def test_wins_are_within_the_discount_horizon_depends_on_gamma(gamma, status, parts):
    settings = dataclasses.replace(parts["settings"], gamma=gamma)
    assert (
        BY_NAME["wins_are_within_the_discount_horizon"].run(UPDATE, parts | {"settings": settings}, {}).status == status
    )


def test_evaluated_categories_are_trained_warns_of_other_categories(parts):
    levels = parts["levels"] | {"test": [(level, "elsewhere") for level, _ in parts["levels"]["test"]]}
    result = BY_NAME["evaluated_categories_are_trained"].run(UPDATE, parts | {"levels": levels}, {})
    assert result.status == WARNING and "elsewhere" in result.message


def test_planned_runs_are_played_without_demonstrations(parts):
    config = dataclasses.replace(parts["config"], pretraining=False)
    result = BY_NAME["planned_runs_earn_every_reward"].run(UPDATE, parts | {"config": config}, {})
    assert result.status == OK, result
    assert result.message.endswith("win, switch, time, shaping; 6 of 6 levels")


def test_replays_reach_the_exit_counts_a_damaged_replay_as_lost(folder, tmp_path):
    for source in sorted((folder / "demonstrations").iterdir()):
        shutil.copy(source, tmp_path)
    (tmp_path / "damaged.replay").write_bytes(b"no replay")
    message = BY_NAME["replays_reach_the_exit"].function(tmp_path)
    assert message.startswith("16 of 17 win")


@pytest.mark.parametrize(("kl", "status"), [(0.0, OK), (0.01, FAILED)])
def test_scalars_are_complete_ignores_zeros_of_the_critic_warm_up(tmp_path, kl, status):
    with open_events(tmp_path / "tensorboard") as writer:
        for step in range(5):
            for tag in {*checks_run.REQUIRED_TAGS, *checks_run.CHANGING}:
                writer.add_scalar(tag, kl if tag == "train/approx_kl" else 1.0 + step, step)
    result = BY_NAME["scalars_are_complete"].run(UPDATE, {"folder": tmp_path}, {})
    assert result.status == status, result


@pytest.mark.parametrize(("late", "status"), [(900.0, OK), (500.0, WARNING)])
def test_slowdown_check_warns_of_slower_end(tmp_path, late, status):
    with open_events(tmp_path / "tensorboard") as writer:
        for step in range(40):
            writer.add_scalar("sim/decisions_per_s", 1000.0 if step < 20 else late, step)
    assert BY_NAME["the_run_did_not_slow_down"].run(UPDATE, {"folder": tmp_path}, {}).status == status


def test_checks_of_an_agent_pass(parts):
    done = Doctor(str)
    done.run(CHECKPOINT, policy=parts["policy"], sample=parts["sample"])
    assert {result.status for result in done.results} == {OK}, results_table(done.results)


@pytest.fixture
def stored(config, tmp_path, monkeypatch):
    """Folder of an experiment without a run; trial runs are disabled."""
    monkeypatch.setattr(doctor, "trial_run", lambda config, log, only: Doctor(log, only=only))
    write_json(tmp_path / "config.json", config.to_dict())
    return tmp_path


def test_check_run_without_a_training_raises_an_error(stored):
    with pytest.raises(ConfigError, match="--run .*: contains no training"):
        doctor.check_run(stored, str)


def test_check_run_without_scalars_fails(stored):
    write_json(stored / "vision_free" / RUN_FILE, {})
    statuses = {one.check: one.status for one in doctor.check_run(stored, str).results}
    assert statuses["scalars_are_complete"] == FAILED


def test_read_config_imports_only_trusted_plugins(stored, monkeypatch):
    """Reading the settings of another person must not execute the code that they name."""
    monkeypatch.chdir(stored)
    (stored / "mine.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    path = stored / "config.json"
    write_json(path, json.loads(path.read_text()) | {"plugins": ["mine.py"]})
    with pytest.raises(ConfigError, match=r"config.json: names plug-ins, .*: mine\.py; .*--trust-plugins"):
        doctor.read_config(path)
    assert not (stored / "executed").exists()
    assert doctor.read_config(path, trust_plugins=True).plugins == ("mine.py",)
    assert (stored / "executed").exists()
    assert doctor.read_config(path).plugins == ("mine.py",), "the user has imported the same file"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--checkpoint nothere", "nothere: no such checkpoint: check the path"),
        ("--checkpoint README.md", "README.md: not a checkpoint"),
        ("--run /nowhere", "give the config.json of a run"),
        ("--run-config README.md", "README.md: not JSON"),
        ("--only nonsense", "there is no check 'nonsense'"),
    ],
)
def test_main_with_bad_input_prints_one_error(flags, message, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert load_script("doctor").main(flags.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and message in line
