"""The doctor: sound runs pass, each check fails on what it is there for, and a check that crashes has failed."""

import copy
import dataclasses
import json

import numpy as np
import pytest
import torch

from nppsim.batch import BatchSimulator
from nppsim.env import NppEnv
from nppsim.errors import ConfigError
from nppsim.files import write_json
from nppsim.paths import MAX_PATH
from nppsim.planner.search import PlannedRun
from rl.config.command_line import resolve
from rl.config.resume import FINISHED_FILE
from rl.curriculum import make_sampler
from rl.doctor import checks_environment, checks_record, doctor
from rl.doctor.doctor import (
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
)
from rl.doctor.runs import RUN_FILE
from rl.evaluation.suite import EvaluationSuite
from rl.events import Scalars
from rl.experiment import examine as examination
from rl.experiment import rehearsal
from rl.experiment.data import load_data, load_demonstrations
from rl.policy import checkpoint
from rl.policy.policy import build_policy
from rl.ppo.vec_env import BatchVecEnv

from excerpt import excerpt
from places import ROOT
from programs import load_script

CATEGORIES = ("simplest", "simpler")


# ------------------------------------------------------------------ the framework


def info(function, *parts):
    return CheckInfo(function.__name__, "core", (BEFORE,), parts, "something", function)


def examine(function, *names, absent=None, **parts):
    return info(function, *names).examine(BEFORE, parts, absent or {})


def test_what_a_check_returns_is_what_it_has_measured():
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
def test_a_check_says_how_it_ended_and_a_crash_is_a_failure(error, status, found):
    def raising():
        raise error

    finding = examine(raising)
    assert (finding.status, finding.found) == (status, found)
    assert bool(finding.remedy) == (status in (FAILED, WARNING))


def test_a_check_whose_parts_do_not_exist_is_skipped_and_says_why():
    finding = examine(lambda clone: "", "clone", absent={"clone": "no imitation in this run"})
    assert (finding.status, finding.found) == (SKIPPED, "no imitation in this run")


def test_a_part_that_nobody_has_provided_is_a_failure():
    finding = examine(lambda clone: "", "clone")
    assert finding.status == FAILED and "clone" in finding.found
    assert "mistake in the program" in finding.remedy


def test_what_a_step_that_failed_would_have_made_is_no_further_failure(monkeypatch):
    monkeypatch.setattr(doctor, "all_checks", lambda: [info(lambda ppo: "", "ppo"), info(lambda clone: "", "clone")])
    found = Doctor(str, stops=False)
    found.miss(clone="no imitation in this run")
    found.note(BEFORE, "rehearsal", ValueError("too small"))
    found.examine(BEFORE)
    assert [one.status for one in found.findings] == [FAILED, SKIPPED, SKIPPED]
    assert [one.found for one in found.findings[1:]] == ["rehearsal failed before", "no imitation in this run"]


def fails():
    """Never in order."""
    raise CheckFailed("a link is broken", "mend it")


def draws():
    """Draws random numbers."""
    return str(float(torch.rand(())))


@pytest.fixture
def two_checks(monkeypatch):
    monkeypatch.setattr(doctor, "_CHECKS", {one.__name__: info(one) for one in (draws, fails)})
    monkeypatch.setattr(doctor, "all_checks", lambda: list(doctor._CHECKS.values()))


@pytest.mark.usefixtures("two_checks")
def test_a_failure_ends_the_run_with_what_to_do_and_all_findings_are_on_disk(tmp_path):
    lines = []
    with pytest.raises(DoctorError, match="1 of 2 checks failed. fails: a link is broken; mend it"):
        Doctor(lines.append, tmp_path / "doctor.json").examine(BEFORE)
    stored = json.loads((tmp_path / "doctor.json").read_text())
    assert not stored["whole"]
    assert [finding["status"] for finding in stored["findings"]] == [OK, FAILED]
    assert lines[-1] == "✗ fails: a link is broken; mend it"


@pytest.mark.usefixtures("two_checks")
def test_an_examination_leaves_the_runs_random_numbers_alone():
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    Doctor(lambda line: None, stops=False).examine(BEFORE)
    assert torch.equal(torch.rand(3), wanted)


@pytest.mark.usefixtures("two_checks")
def test_a_run_that_goes_on_keeps_earlier_findings(tmp_path):
    path = tmp_path / "doctor.json"
    Doctor(lambda line: None, path, only=["draws"]).examine(BEFORE)
    Doctor(lambda line: None, path, only=["draws"]).examine(IMITATION)
    assert [finding.moment for finding in doctor.read_findings(path)] == [BEFORE]


def test_a_check_that_does_not_exist_is_refused():
    with pytest.raises(DoctorError, match="did you mean 'shaping_telescopes'"):
        Doctor(lambda line: None, only=["shaping_telescope"])


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
    """A doctor after a rehearsal without probe environments, which have a test of their own."""
    rehearsal_ = pytest.MonkeyPatch()
    rehearsal_.setattr(rehearsal, "UPDATES", 4)
    before = torch.get_num_threads()
    names = [one.name for one in doctor.all_checks() if one.group != "probes"]
    found = rehearsal.rehearse(config, lambda line: None, tuple(names))
    torch.set_num_threads(before)
    rehearsal_.undo()
    return found


def test_a_sound_run_is_whole(rehearsed):
    assert not rehearsed.failed, doctor.findings_table(rehearsed.findings)
    skipped = {finding.check for finding in rehearsed.findings if finding.status == SKIPPED}
    too_few_rows = {"labels_belong_to_observations", "a_level_that_is_drawn_is_played_and_credited"}
    elsewhere = {
        "lessons_were_given",
        "start_states_move",
        "planned_runs_earn_every_reward",
        "stages_end_when_they_are_mastered",
    }
    assert skipped - too_few_rows == elsewhere


def test_a_single_level_needs_no_dataset(config, tmp_path, monkeypatch):
    """The rest of the configuration names datasets/train, which only a checkout has."""
    monkeypatch.chdir(tmp_path)
    level = next(file for file in config.train_dataset[0].rglob("*.map"))
    flags = ["--experiment-name", "x", "--architectures", "vision_free", "--single-level", str(level)]
    alone = resolve([*flags, "--output-dir", str(tmp_path / "out")])
    data = load_data(alone, str)
    sim = BatchSimulator(data.bank, 2, threads=1)
    sampler = make_sampler(data.train_categories, alone.curriculum, 0, families=data.train_families)
    parts = {"config": alone, "levels": {"train": data.train}, "env": BatchVecEnv(sim, sampler)}
    (cells,) = (one for one in doctor.all_checks() if one.name == "cells_are_of_one_family")
    finding = cells.examine(BEFORE, parts, {})
    assert (finding.status, finding.found) == (OK, "1 cells of 1 families")


@pytest.fixture(scope="module")
def dataset(config):
    return load_demonstrations(config, load_data(config, str), rehearsed_keys(config), 0, str)


def rehearsed_keys(config):
    return build_policy(config.architectures[0]).observations


# ------------------------------------------------------------------ planted faults: of parts

PLANTED = {}


def planted(function):
    """A fault: gets the parts and pytest's monkeypatch, changes some parts or the program; its name is the check's."""
    PLANTED[function.__name__] = function
    return function


@planted
def levels_are_apart(parts, patch):
    levels = parts["levels"]
    parts["levels"] = levels | {"dev": [*levels["dev"], levels["train"][0]]}


@planted
def everybody_plays_their_own_levels(parts, patch):
    parts["suites"] = {"test": parts["suites"]["dev"]}


@planted
def cells_are_of_one_family(parts, patch):
    levels = parts["env"].sampler.levels
    patch.setattr(parts["env"].sampler, "levels", dataclasses.replace(levels, family=levels.family * 0))


@planted
def levels_have_a_way(parts, patch):
    bank = copy.copy(parts["bank"])
    bank._paths = bank.paths._replace(length=np.full_like(bank.path_length, MAX_PATH))
    parts["bank"] = bank


@planted
def evaluations_can_be_repeated(parts, patch):
    run = EvaluationSuite.run

    def other_numbers(suite, policy, **named):
        suite.seed += 1
        return run(suite, policy, **named)

    for suite in parts["suites"].values():
        patch.setattr(suite, "seed", suite.seed)  # so that it is as before afterwards
    patch.setattr(EvaluationSuite, "run", other_numbers)


@planted
def planned_runs_earn_every_reward(parts, patch):
    parts["config"] = dataclasses.replace(parts["config"], pretraining=False)
    waiting = PlannedRun(np.zeros(1, np.int64), np.zeros(4, np.uint8), 4, 0)
    patch.setattr("rl.doctor.checks_data.plan", lambda *given, **named: waiting)


@planted
def rules_are_the_same_everywhere(parts, patch):
    patch.setattr(parts["suites"]["test"].simulator, "frame_skip", 5)


@planted
def rewards_are_ordered(parts, patch):
    patch.setattr(parts["env"].sim, "reward_config", dataclasses.replace(parts["env"].sim.reward_config, death=5.0))


@planted
def shaping_telescopes(parts, patch):
    parts["settings"] = dataclasses.replace(parts["settings"], gamma=0.99)


@planted
def rewards_add_up(parts, patch):
    parts["ledger"] = altered(parts["ledger"], terms=lambda terms: terms * 1.01)


@planted
def dense_rewards_fire(parts, patch):
    parts["ledger"] = altered(parts["ledger"], terms=np.zeros_like)


@planted
def decisions_last_frame_skip_frames(parts, patch):
    parts["config"] = dataclasses.replace(parts["config"], frame_skip=3)


@planted
def many_play_like_one(parts, patch):
    patch.setattr(checks_environment, "NppEnv", lambda **settings: NppEnv(**settings | {"frame_skip": 5}))


@planted
def settings_that_were_changed(parts, patch):
    patch.setattr(checks_record, "config_from_dict", lambda data: dataclasses.replace(parts["asked"], frame_skip=2))


# ------------------------------------------------------------------ planted faults: of the dataset


@planted
def the_dataset_belongs_to_this_run(parts, patch):
    parts["dataset"] = dataclasses.replace(parts["dataset"], frame_skip=1)


@planted
def demonstrations_are_not_of_judged_levels(parts, patch):
    levels = parts["levels"]
    parts["levels"] = levels | {"test": levels["train"]}


@planted
def observations_are_the_environments(parts, patch):
    parts["dataset"] = dataclasses.replace(parts["dataset"], actions=np.roll(parts["dataset"].actions, 1))


@planted
def experts_earn_every_reward(parts, patch):
    parts["dataset"] = dataclasses.replace(parts["dataset"], actions=np.zeros_like(parts["dataset"].actions))


@planted
def labels_belong_to_observations(parts, patch):
    patch.setattr("rl.doctor.checks_data.ENOUGH_ROWS", 20)
    shuffled = np.random.default_rng(0).permutation(parts["dataset"].actions)
    parts["dataset"] = dataclasses.replace(parts["dataset"], actions=shuffled)


@planted
def statistics_are_those_of_the_demonstrations(parts, patch):
    statistics = copy.deepcopy(parts["statistics"])
    statistics._mean["game_state"][2] += 1
    parts["statistics"] = statistics


# ------------------------------------------------------------------ planted faults: of the learner


@planted
def every_parameter_is_in_the_optimiser_once(parts, patch):
    policy = parts["policy"]
    patch.setattr(policy, "optimizer", torch.optim.Adam(list(policy.parameters())[1:]))


@planted
def every_gradient_arrives(parts, patch):
    patch.setattr(parts["policy"].action_net.weight, "grad", None)


@planted
def every_vector_component_is_read(parts, patch):
    with torch.no_grad():
        parts["policy"].features_extractor.vectors[0].layers[0].weight[:, 3] = 0


@planted
def every_part_of_the_images_is_read(parts, patch):
    with torch.no_grad():
        parts["policy"].features_extractor.images["surroundings"].linear.weight[:, 100] = 0


@planted
def inputs_are_scaled_once(parts, patch):
    patch.setattr("rl.policy.networks.PIXEL_SCALE", 1 / 255**2)


@planted
def no_layer_is_dead(parts, patch):
    with torch.no_grad():
        parts["policy"].mlp_extractor.policy_net[0].weight.zero_()


@planted
def different_observations_get_different_answers(parts, patch):
    with torch.no_grad():
        parts["policy"].action_net.weight.zero_()


@planted
def the_network_is_the_one_in_the_table(parts, patch):
    parts["policy"] = build_policy("vision_free", parts["statistics"])
    parts["policy"].mlp_extractor = torch.nn.Sequential()


@planted
def every_weight_was_transferred(parts, patch):
    parts["moved"] = dataclasses.replace(parts["moved"], used=parts["moved"].used // 2)


@planted
def the_clone_has_learned(parts, patch):
    parts["cloning"] = dataclasses.replace(
        parts["cloning"], training=dataclasses.replace(parts["cloning"].training, loss=3.0)
    )


@planted
def the_reference_is_the_clone(parts, patch):
    patch.setattr(parts["ppo"], "reference", build_policy("vision_free", parts["statistics"]))


@planted
def the_learner_remembers_the_clone(parts, patch):
    clone = build_policy("vision_free", parts["statistics"])
    with torch.no_grad():
        clone.action_net.weight.normal_(0, 10)
    parts["clone"] = clone


@planted
def one_normaliser_everywhere(parts, patch):
    statistics_are_those_of_the_demonstrations(parts, patch)


@planted
def the_normaliser_is_frozen(parts, patch):
    parts["policy"].features_extractor.normalize.divisor.mul_(2)


@planted
def the_rollout_looks_like_the_demonstrations(parts, patch):
    buffer = parts["ppo"].rollout_buffer
    patch.setitem(buffer.obs, "game_state", torch.full_like(buffer.obs["game_state"], 500.0))


@planted
def curves_are_on_disk(parts, patch):
    patch.setattr(checks_record, "ALWAYS", (*checks_record.ALWAYS, "train/lost"))
    patch.setattr(checks_record, "require_tags", lambda folder, tags: lost(tags))


def lost(tags):
    missing = sorted(set(tags) - set(checks_record.REQUIRED_TAGS))
    raise checks_record.EventsError(f"{missing} are not on disk")


@planted
def checkpoints_bring_the_policy_back(parts, patch):
    load = checkpoint.load_policy

    def other(path):
        policy, facts = load(path)
        with torch.no_grad():
            policy.action_net.bias += 1e-3
        return policy, facts

    patch.setattr(checkpoint, "load_policy", other)


@planted
def the_agent_can_be_loaded(parts, patch):
    with torch.no_grad():
        parts["policy"].action_net.bias[0] = torch.nan


@pytest.fixture
def parts(rehearsed, dataset):
    """What the rehearsal has left, whole again after each test."""
    parts = dict(rehearsed._parts) | {
        "dataset": dataset,
        "statistics": dataset.statistics(),
        "facts": {"frame_skip": 4},
    }
    policy, weights = parts["policy"], copy.deepcopy(parts["policy"].state_dict())
    parts["ledger"] = doctor._part("ledger", dict(parts))
    yield parts
    policy.load_state_dict(weights)


def altered(thing, **changes):
    other = copy.copy(thing)
    for name, change in changes.items():
        setattr(other, name, change(getattr(thing, name)))
    return other


ALONE = ("probes", "play")  # their faults need training; mutated by tests/mutation
NO_FAULT = ("categories_are_covered", "demonstrations_cover_what_is_trained", "the_plan_is_sensible")  # they only warn
BY_THE_SELF_TEST = (
    "ppo_goes_on_from_the_clone",
    "validation_has_levels_of_its_own",
    "the_dataset_was_made_as_asked_for",
    "levels_are_those_of_their_folders",
    "figures_are_what_they_are_defined_as",
    "slow_twins_agree_along_demonstrations",
    "slow_twins_agree",
    "what_was_asked_for_is_in_force",
    "every_demonstration_holds_together",
    "lessons_were_given",
    "levels_that_teach_are_preferred",
    "stages_end_when_they_are_mastered",
    *("levels_weigh_what_their_strategy_says", "start_states_move", "ppo_has_the_settings_that_it_was_given"),
    *("alarms_tell_what_is_wrong", "verdicts_are_the_right_way_round"),
)
TOLD_ELSEWHERE = (
    *("replays_finish", "updates_fit_the_budget", "a_runs_curves_are_whole", "a_run_did_not_slow_down"),
    "a_finished_run_has_its_agent",
)


@pytest.mark.parametrize("name", list(PLANTED))
def test_a_planted_fault_is_found(name, parts, monkeypatch):
    PLANTED[name](parts, monkeypatch)
    (check,) = (one for one in doctor.all_checks() if one.name == name)
    finding = check.examine(UPDATE, parts, {})
    assert finding.status == FAILED, finding
    assert finding.remedy


def test_without_demonstrations_the_planner_plays_the_expert(parts):
    (check,) = (one for one in doctor.all_checks() if one.name == "planned_runs_earn_every_reward")
    finding = check.examine(BEFORE, parts | {"config": dataclasses.replace(parts["config"], pretraining=False)}, {})
    assert finding.status == OK, finding
    assert finding.found.endswith("win, switch, time, shaping; 6 of 6 levels")


def test_a_long_warm_up_of_the_critic_is_no_flat_curve():
    """The actor's numbers are 0 until it learns; a curve that is stuck elsewhere is found."""
    curves = {tag: Scalars(np.arange(5), np.arange(1.0, 6)) for tag in checks_record.CHANGING}
    checks_record._require_changes(curves | {"train/approx_kl": Scalars(np.arange(5), np.zeros(5))})
    with pytest.raises(doctor.CheckFailed, match="train/approx_kl"):
        checks_record._require_changes(curves | {"train/approx_kl": Scalars(np.arange(5), np.full(5, 0.01))})


@pytest.mark.parametrize("name", ["values_are_learned", "actions_are_learned"])
def test_probe_environments_are_learned(name):
    (check,) = (one for one in doctor.all_checks() if one.name == name)
    assert check.examine(doctor.REHEARSAL, {}, {}).status == doctor.OK


def test_every_check_has_its_planted_fault():
    checks = {one.name for one in doctor.all_checks() if one.group not in ALONE}
    assert checks - {*PLANTED, *NO_FAULT, *BY_THE_SELF_TEST, *TOLD_ELSEWHERE} == set()


def test_an_agent_is_examined(parts):
    found = Doctor(str, stops=False)
    found.examine(CHECKPOINT, policy=parts["policy"], sample=parts["sample"], facts=parts["facts"])
    assert {finding.status for finding in found.findings} == {OK}, doctor.findings_table(found.findings)


@pytest.fixture
def stored(config, tmp_path, monkeypatch):
    """What an experiment has written before its first run; whoever examines it rehearses nothing."""
    monkeypatch.setattr(examination, "rehearse", lambda config, log, only: Doctor(log, only=only))
    write_json(tmp_path / "config.json", config.to_dict())
    return tmp_path


def test_a_folder_in_which_nothing_was_trained_is_refused(stored):
    with pytest.raises(ConfigError, match="--run .*: no training has begun there"):
        examination.examine_run(stored, str)


@pytest.mark.parametrize(("finished", "status"), [(True, FAILED), (False, SKIPPED)])
def test_a_run_without_its_curves_or_its_agent_is_broken(stored, finished, status):
    write_json(stored / "vision_free" / RUN_FILE, {})
    if finished:
        write_json(stored / "vision_free" / FINISHED_FILE, {})
    found = {one.check: one.status for one in examination.examine_run(stored, str).findings}
    assert found["a_runs_curves_are_whole"] == FAILED
    assert found["a_finished_run_has_its_agent"] == status


# ------------------------------------------------------------------ the command line


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--checkpoint nothere", "nothere: no such checkpoint: check the path"),
        ("--checkpoint README.md", "README.md: not a checkpoint"),
        ("--run /nowhere", "give the config.json of a run"),
        ("--run-config README.md", "README.md: not JSON"),
        ("--only nonsense", "there is no check 'nonsense'"),
    ],
)
def test_bad_input_ends_in_one_clear_line(flags, told, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert load_script("doctor").main(flags.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and told in line


def test_a_shipped_agent_is_examined(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    agent = "datasets/agents/vision_free_foresight.safetensors"
    assert load_script("doctor").main(["--checkpoint", agent, "--json", "--only", "the_agent_can_be_loaded"]) == 0
    assert json.loads(capsys.readouterr().out)["whole"]
