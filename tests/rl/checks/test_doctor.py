"""The doctor: sound runs pass, each check fails on the fault that it looks for, and a check that crashes has failed."""

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
from rl.checks import doctor
from rl.checks import run as checks_run
from rl.checks.doctor import (
    BEFORE,
    CHECKPOINT,
    FAILED,
    IMITATION,
    OK,
    SKIPPED,
    UPDATE,
    WARNING,
    CheckFailed,
    CheckInfo,
    CheckSkipped,
    CheckWarned,
    Doctor,
    DoctorError,
    Finding,
)
from rl.config.command_line import resolve
from rl.config.resume import RUN_FILE
from rl.events import Scalars
from rl.experiment.data import load_data, load_demonstrations
from rl.policy import checkpoint
from rl.policy.policy import build_policy
from rl.tools import doctor as examination

from excerpt import excerpt
from places import ROOT
from programs import load_script

CATEGORIES = ("simplest", "simpler")


# ------------------------------------------------------------------ the framework


def info(function, *parts):
    return CheckInfo(function.__name__, "core", (BEFORE,), parts, function)


def examine(function, *names, absent=None, **parts):
    return info(function, *names).examine(BEFORE, parts, absent or {})


def test_the_return_value_of_a_check_is_its_finding():
    finding = examine(lambda size: f"{size} px", "size", size=3)
    assert (finding.status, finding.found) == (OK, "3 px")


@pytest.mark.parametrize(
    ("error", "status", "found"),
    [
        (CheckFailed("5 is 6", "count again"), FAILED, "5 is 6"),
        (CheckWarned("5 is small", "take more"), WARNING, "5 is small"),
        (CheckSkipped("no curriculum"), SKIPPED, "no curriculum"),
        (ZeroDivisionError("by zero"), FAILED, "ZeroDivisionError: by zero"),
    ],
)
def test_exceptions_become_findings_and_a_crash_is_a_failure(error, status, found):
    def raising():
        raise error

    finding = examine(raising)
    assert (finding.status, finding.found) == (status, found)
    assert bool(finding.remedy) == (status in (FAILED, WARNING))


def test_a_check_of_an_absent_object_is_skipped_with_the_reason():
    finding = examine(lambda clone: "", "clone", absent={"clone": "no imitation in this run"})
    assert (finding.status, finding.found) == (SKIPPED, "no imitation in this run")


def test_an_object_that_was_not_provided_is_a_failure():
    finding = examine(lambda clone: "", "clone")
    assert finding.status == FAILED and "clone" in finding.found


def test_after_a_failed_step_checks_of_its_results_are_skipped(monkeypatch):
    monkeypatch.setattr(doctor, "all_checks", lambda: [info(lambda ppo: "", "ppo"), info(lambda clone: "", "clone")])
    found = Doctor(str)
    found.lack(clone="no imitation in this run")
    try:
        raise ValueError("too small")
    except ValueError as error:
        found.record_failure(BEFORE, "rehearsal", error)
    found.examine(BEFORE)
    assert [one.status for one in found.findings] == [FAILED, SKIPPED, SKIPPED]
    assert [one.found for one in found.findings[1:]] == ["rehearsal failed before", "no imitation in this run"]


def fails():
    """Always fail."""
    raise CheckFailed("the weights are wrong", "load others")


def draws():
    """Draw a random number."""
    return str(float(torch.rand(())))


@pytest.fixture
def two_checks(monkeypatch):
    monkeypatch.setattr(doctor, "_CHECKS", {one.__name__: info(one) for one in (draws, fails)})
    monkeypatch.setattr(doctor, "all_checks", lambda: list(doctor._CHECKS.values()))


@pytest.mark.usefixtures("two_checks")
def test_findings_are_logged_and_stored(tmp_path):
    lines = []
    found = Doctor(lines.append, tmp_path / "doctor.json")
    found.examine(BEFORE)
    stored = json.loads((tmp_path / "doctor.json").read_text())
    assert found.failed and not stored["passed"]
    assert [finding["status"] for finding in stored["findings"]] == [OK, FAILED]
    assert lines[-1] == "✗ fails: the weights are wrong; load others"


@pytest.mark.usefixtures("two_checks")
def test_an_examination_leaves_the_runs_random_numbers_alone():
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    Doctor(lambda line: None).examine(BEFORE)
    assert torch.equal(torch.rand(3), wanted)


@pytest.mark.usefixtures("two_checks")
def test_a_resumed_run_has_its_earlier_findings(tmp_path):
    path = tmp_path / "doctor.json"
    Doctor(lambda line: None, path, only=["draws"]).examine(BEFORE)
    Doctor(lambda line: None, path, only=["draws"]).examine(IMITATION)
    assert [finding.moment for finding in doctor.read_findings(path)] == [BEFORE]


def test_an_unknown_check_is_an_error():
    with pytest.raises(DoctorError, match="did you mean 'a_small_batch_is_fitted'"):
        Doctor(lambda line: None, only=["small_batch_is_fitted"])


def test_checks_are_chosen_by_name_or_group(monkeypatch):
    made = []
    monkeypatch.setattr(CheckInfo, "examine", lambda info, *_: made.append(info) or Finding("x", "x", BEFORE, OK, ""))
    Doctor(lambda line: None, only=["data", "the_plan_fits_the_machine"]).examine(BEFORE)
    assert {info.group for info in made if info.name != "the_plan_fits_the_machine"} == {"data"}
    assert "the_plan_fits_the_machine" in {info.name for info in made}


# ------------------------------------------------------------------ a sound run


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
def rehearsed(config):
    """A doctor after a short rehearsal."""
    rehearsal = pytest.MonkeyPatch()
    rehearsal.setattr(examination, "UPDATES", 2)
    rehearsal.setattr(examination, "NUM_ENVS", 16)
    before = torch.get_num_threads()
    found = examination.rehearse(config, lambda line: None)
    torch.set_num_threads(before)
    rehearsal.undo()
    return found


def test_a_damaged_replay_counts_as_one_that_does_not_win(folder, tmp_path):
    for source in sorted((folder / "demonstrations").iterdir()):
        shutil.copy(source, tmp_path)
    (tmp_path / "damaged.replay").write_bytes(b"no replay")
    assert " 16 of 17 win" in f" {checks_data.replays_reach_the_exit(tmp_path)}"


def test_a_sound_run_passes(rehearsed):
    assert not rehearsed.failed, doctor.findings_table(rehearsed.findings)
    skipped = {finding.check for finding in rehearsed.findings if finding.status == SKIPPED}
    assert skipped == {"planned_runs_earn_every_reward"}
    assert {finding.group for finding in rehearsed.findings} == set(doctor.GROUPS)


@pytest.fixture(scope="module")
def dataset(config):
    return load_demonstrations(config, load_data(config, str), rehearsed_keys(config), 0, str)


def rehearsed_keys(config):
    return build_policy(config.architectures[0]).observations


# ------------------------------------------------------------------ faults

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
    patch.setattr("rl.checks.data.simulate", lambda level, inputs: simulate(level, inputs[:3]))


@fault
def planned_runs_earn_every_reward(parts, patch):
    parts["config"] = dataclasses.replace(parts["config"], pretraining=False)
    waiting = PlannedRun(np.zeros(1, np.int64), np.zeros(4, np.uint8), 4, 0)
    patch.setattr("rl.checks.data.plan", lambda *given, **named: waiting)


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
def outputs_depend_on_observations(parts, patch):
    parts["policy"] = changed_weights(parts["policy"], action_net_weight=torch.Tensor.zero_)


@fault
def imitation_beats_action_frequencies(parts, patch):
    training = dataclasses.replace(parts["bc_result"].training, loss=3.0)
    parts["bc_result"] = dataclasses.replace(parts["bc_result"], training=training)


@fault
def the_first_update_stays_near_the_bc_policy(parts, patch):
    parts["bc_policy"] = changed_weights(parts["bc_policy"], action_net_weight=lambda weight: weight.normal_(0, 10))


@fault
def the_rollout_resembles_the_demonstrations(parts, patch):
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
def parts(rehearsed, dataset):
    """The objects of the rehearsal."""
    return dict(rehearsed._parts) | {"dataset": dataset}


ONLY_WARN_OR_INFORM = {
    "demonstrations_cover_the_trained_categories",
    "evaluated_categories_are_trained",
    "the_plan_fits_the_machine",
    "updates_fit_the_budget",
    "wins_are_within_the_discount_horizon",
}
OF_STORED_RUNS = {"the_run_did_not_slow_down"}


def test_every_check_has_its_fault():
    assert {one.name for one in doctor.all_checks()} == FAULTS.keys() | ONLY_WARN_OR_INFORM | OF_STORED_RUNS


def examined(name, parts):
    (check,) = (one for one in doctor.all_checks() if one.name == name)
    return check.examine(UPDATE, parts, {})


@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_is_found(name, parts, monkeypatch):
    FAULTS[name](parts, monkeypatch)
    finding = examined(name, parts)
    assert finding.status == FAILED, finding
    assert finding.remedy


@pytest.mark.parametrize(("gamma", "status"), [(0.5, WARNING), (0.9999, OK)])
def test_a_discount_too_low_for_the_levels_is_a_warning(gamma, status, parts):
    settings = dataclasses.replace(parts["settings"], gamma=gamma)
    assert examined("wins_are_within_the_discount_horizon", parts | {"settings": settings}).status == status


def test_a_category_that_is_evaluated_and_not_trained_is_a_warning(parts):
    levels = parts["levels"] | {"test": [(level, "elsewhere") for level, _ in parts["levels"]["test"]]}
    finding = examined("evaluated_categories_are_trained", parts | {"levels": levels})
    assert finding.status == WARNING and "elsewhere" in finding.found


def test_without_demonstrations_the_planners_runs_are_played(parts):
    config = dataclasses.replace(parts["config"], pretraining=False)
    finding = examined("planned_runs_earn_every_reward", parts | {"config": config})
    assert finding.status == OK, finding
    assert finding.found.endswith("win, switch, time, shaping; 6 of 6 levels")


def test_zeros_of_a_critic_warm_up_are_no_constant_scalar():
    """The actor's numbers are 0 until it learns; a scalar that is constant elsewhere is found."""
    curves = {tag: Scalars(np.arange(5), np.arange(1.0, 6)) for tag in checks_run.CHANGING}
    checks_run.require_changes(curves | {"train/approx_kl": Scalars(np.arange(5), np.zeros(5))})
    with pytest.raises(doctor.CheckFailed, match="train/approx_kl"):
        checks_run.require_changes(curves | {"train/approx_kl": Scalars(np.arange(5), np.full(5, 0.01))})


def test_an_agent_is_examined(parts):
    found = Doctor(str)
    found.examine(CHECKPOINT, policy=parts["policy"], sample=parts["sample"])
    assert {finding.status for finding in found.findings} == {OK}, doctor.findings_table(found.findings)


@pytest.fixture
def stored(config, tmp_path, monkeypatch):
    """Folder of an experiment without a run; the doctor's rehearsal is switched off."""
    monkeypatch.setattr(examination, "rehearse", lambda config, log, only: Doctor(log, only=only))
    write_json(tmp_path / "config.json", config.to_dict())
    return tmp_path


def test_a_folder_in_which_nothing_was_trained_is_refused(stored):
    with pytest.raises(ConfigError, match="--run .*: contains no training"):
        examination.examine_run(stored, str)


def test_a_run_without_its_scalars_fails(stored):
    write_json(stored / "vision_free" / RUN_FILE, {})
    found = {one.check: one.status for one in examination.examine_run(stored, str).findings}
    assert found["scalars_are_complete"] == FAILED


# ------------------------------------------------------------------ the command line


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
def test_bad_input_ends_in_one_clear_line(flags, message, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert load_script("doctor").main(flags.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and message in line


def test_a_shipped_agent_is_examined(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    agent = "datasets/agents/vision_free_foresight.safetensors"
    assert load_script("doctor").main(["--checkpoint", agent, "--json", "--only", "every_input_has_an_effect"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"]
