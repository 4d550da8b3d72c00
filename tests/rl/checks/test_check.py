"""Execution of checks: status of results, skipped checks, stored results."""

import json

import pytest
import torch

from rl.checks import doctor
from rl.checks.check import (
    BEFORE,
    FAILED,
    IMITATION,
    OK,
    SKIPPED,
    WARNING,
    CheckFailed,
    CheckSkipped,
    CheckWarned,
    DoctorError,
    check,
    read_results,
)
from rl.checks.doctor import CHECKS, GROUPS, Doctor


def raising(error):
    @check(BEFORE)
    def raises():
        raise error

    return raises


@check(BEFORE)
def describes_size(size):
    return f"{size} px"


@check(BEFORE)
def draws():
    return str(float(torch.rand(())))


fails = raising(CheckFailed("the weights are wrong", "load others"))


@pytest.mark.parametrize(
    ("one", "objects", "absent", "status", "message"),
    [
        (describes_size, {"size": 3}, {}, OK, "3 px"),
        (describes_size, {}, {"size": "no images"}, SKIPPED, "no images"),
        (describes_size, {}, {}, FAILED, "KeyError: 'size'"),
        (raising(CheckFailed("5 is 6", "count again")), {}, {}, FAILED, "5 is 6"),
        (raising(CheckWarned("5 is small", "take more")), {}, {}, WARNING, "5 is small"),
        (raising(CheckSkipped("no curriculum")), {}, {}, SKIPPED, "no curriculum"),
        (raising(ZeroDivisionError("by zero")), {}, {}, FAILED, "ZeroDivisionError: by zero"),
    ],
)
def test_run_of_a_check_returns_its_status(one, objects, absent, status, message):
    result = one.run(BEFORE, objects, absent)
    assert (result.status, result.message) == (status, message)
    assert bool(result.remedy) == (status in (FAILED, WARNING))


@pytest.fixture
def two_checks(monkeypatch):
    monkeypatch.setattr(doctor, "CHECKS", [draws, fails])
    monkeypatch.setattr(doctor, "GROUPS", {draws.group: ""})


@pytest.mark.usefixtures("two_checks")
def test_run_of_a_doctor_logs_and_stores_results(tmp_path):
    lines = []
    done = Doctor(lines.append, tmp_path / "doctor.json")
    done.run(BEFORE)
    stored = json.loads((tmp_path / "doctor.json").read_text())
    assert done.failed and not stored["passed"]
    assert [result["status"] for result in stored["results"]] == [OK, FAILED]
    assert lines[-1] == "✗ raises: the weights are wrong; load others"


@pytest.mark.usefixtures("two_checks")
def test_run_of_a_doctor_leaves_the_random_generator_unchanged():
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    Doctor(str).run(BEFORE)
    assert torch.equal(torch.rand(3), wanted)


@pytest.mark.usefixtures("two_checks")
def test_run_of_another_event_preserves_stored_results(tmp_path):
    path = tmp_path / "doctor.json"
    Doctor(str, path, only=["draws"]).run(BEFORE)
    Doctor(str, path, only=["draws"]).run(IMITATION)
    assert [result.event for result in read_results(path)] == [BEFORE]


def test_record_failure_skips_checks_of_missing_objects(monkeypatch):
    monkeypatch.setattr(doctor, "CHECKS", [describes_size])
    done = Doctor(str)
    try:
        raise ValueError("too small")
    except ValueError as error:
        done.record_failure(BEFORE, "trial run", error)
    done.run(BEFORE)
    assert [(one.status, one.message) for one in done.results] == [
        (FAILED, "ValueError: too small"),
        (SKIPPED, "trial run failed before"),
    ]


def test_doctor_with_an_unknown_check_raises_an_error_with_a_suggestion():
    with pytest.raises(DoctorError, match="did you mean 'a_small_batch_is_fitted'"):
        Doctor(str, only=["small_batch_is_fitted"])


def test_doctor_runs_checks_chosen_by_name_or_group():
    done = Doctor(str, only=["data", "the_plan_fits_the_machine"])
    done.skip(**dict.fromkeys({name for one in CHECKS for name in one.objects}, "no objects"))
    done.run(BEFORE)
    assert {one.group for one in done.results} == {"data", "config"}
    assert [one.check for one in done.results if one.group == "config"] == ["the_plan_fits_the_machine"]


def test_all_checks_belong_to_groups():
    assert {one.group for one in CHECKS} == set(GROUPS)


@pytest.mark.parametrize("text", ["{", "{}", '{"results": [{"check": 1}]}', '{"results": 3}'])
def test_read_results_of_a_damaged_file_raises_an_error(tmp_path, text):
    (tmp_path / "doctor.json").write_text(text)
    with pytest.raises(DoctorError, match=r"doctor\.json"):
        read_results(tmp_path / "doctor.json")
