"""docs/failures.md: complete, up to date, and honest about what was planted."""

import pytest

from rl.selftest.failures import MOMENTS, PAGE, FailuresError, read, read_results, written
from rl.selftest.faults import Plants, all_faults

from places import ROOT


@pytest.fixture(scope="module")
def page():
    return (ROOT / PAGE).read_text(encoding="utf-8")


def test_every_failure_has_a_row_with_guard_and_moment(page):
    rows = read(page)
    assert [row.number for row in rows] == [*(f"F{n}" for n in range(1, 162)), *(f"H{n}" for n in range(1, 50))]
    for row in rows:
        assert row.text and row.guard, row.number
        assert set(row.moments) <= set(MOMENTS), f"{row.number}: {row.moments}"


def test_the_page_is_up_to_date(page):
    assert written(page, all_faults(), {}) == page, "python scripts/doctor.py --self-test --write"


def test_a_hundred_failures_and_more_are_planted(page):
    planted = {number for one in all_faults() for number in one.numbers}
    assert planted <= {row.number for row in read(page)}
    assert len([number for number in planted if number.startswith("F")]) >= 100


OPEN: list[str] = []  # noticed by nobody yet, and said so on the page


def test_no_other_planted_fault_went_unnoticed(page):
    results = read_results(page)
    assert set(results) <= {one.name for one in all_faults()}
    assert [name for name, result in results.items() if result["guard"] == "not noticed"] == OPEN


def test_what_is_not_planted_is_answered_otherwise(page):
    """By construction or by practice; a guard that claims to see something has had to show it."""
    for row in read(page):
        if row.planted == "no" and not {"by construction", "practice", "tests"} & set(row.moments):
            assert row.number in UNPLANTED, f"{row.number}: {row.text}"


UNPLANTED = {
    "F100": "what the rewards of a category are is told, and no number of them is wrong",
    "F125": "the checklist is printed with every run",
    "F131": "coverage is told with every result",
    "H7": "trivial predictors stand beside every accuracy",
}


def test_a_page_without_its_marks_is_refused(page):
    with pytest.raises(FailuresError, match="put them back"):
        written(page.replace("<!-- end -->", ""), all_faults(), {})


def test_plants_are_gone_afterwards():
    """Every fault changes something, and leaves nothing changed."""
    import rl.train.losses
    from rl.train.ppo import BatchPPO

    before = rl.train.losses.normalised, BatchPPO.train, BatchPPO._decide
    for one in all_faults():
        with Plants() as plants:
            one.plant(plants)
    assert (rl.train.losses.normalised, BatchPPO.train, BatchPPO._decide) == before
