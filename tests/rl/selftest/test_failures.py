"""docs/lab/failures.md: complete, up to date, and honest about what was planted."""

import pytest

from rl.selftest import selftest
from rl.selftest.failures import MOMENTS, PAGE, FailuresError, read, read_results, written
from rl.selftest.faults import Fault, Plants, all_faults
from rl.selftest.selftest import NOT_NOTICED, OUTDATED, SOUND
from rl.selftest.stages import STAGES

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


def test_no_result_is_that_of_a_plant_that_does_not_fit_any_more(page):
    for name, result in read_results(page).items():
        assert not OUTDATED.search(result["message"]), (
            f"{name}: plant it again, doctor.py --self-test --only ... --write"
        )
        assert result["guard"] not in {kind.__name__ for kind in selftest.OF_THE_PLANT}, name


def test_every_stage_is_tried_without_a_fault():
    assert {one.stage for one in SOUND} == set(STAGES)
    assert all(one.plant is None for one in SOUND)


@pytest.mark.parametrize(
    "message",
    [
        "_.<locals>.changed() got an unexpected keyword argument 'resting'",
        "_.<locals>.estimate() missing 1 required positional argument: 'ppo'",
        "_labels.<locals>.<lambda>() takes 1 positional argument but 2 were given",
        "many_play_like_one: KeyError: 'a'; the check itself broke off in plants_world.py, line 7: what it looks at ...",
    ],
)
def test_a_plant_that_does_not_fit_any_more_is_known_by_its_words(message):
    assert OUTDATED.search(message)
    assert not OUTDATED.search(
        message.replace("_.<", "run.<").replace("_labels.<", "run.<").replace("plants_", "checks_")
    )


def _product(kind):
    """A stage in which the product crashes over what is planted."""

    def stage(_, plant):
        plant()
        raise kind("...")

    return stage


def _given(plant):
    def changed(original, one):
        return original(one)

    plant.wrap(Victim, "add", changed)


class Victim:
    def add(self, one, other):
        return one + other


@pytest.mark.parametrize(
    ("stage", "plant", "guard"),
    [
        (_product(IndexError), lambda plant: None, NOT_NOTICED),
        (_product(AssertionError), lambda plant: None, "AssertionError"),
        (lambda _, plant: (plant(), Victim().add(1, 2)), _given, NOT_NOTICED),
        (lambda _, plant: plant(), lambda plant: None, NOT_NOTICED),
        (_product(IndexError), None, "IndexError"),  # of a sound run: a false alarm
    ],
)
def test_what_counts_as_noticed(stage, plant, guard, tmp_path, monkeypatch):
    """A crash over what the plant itself has left inconsistent does not."""
    monkeypatch.setitem(STAGES, "job", stage)
    one = Fault("something", (), plant)
    assert selftest._planted(one, tmp_path / "world", frozenset()).guard == guard


def test_what_is_not_planted_is_answered_otherwise(page):
    """By construction or by practice; a guard that claims to see something has had to show it."""
    for row in read(page):
        if row.planted == "no" and not {"by construction", "practice", "tests"} & set(row.moments):
            assert row.number in UNPLANTED, f"{row.number}: {row.text}"


UNPLANTED = {
    "F100": "what the rewards of a category are is told, and no number of them is wrong",
    "F131": "coverage is told with every result",
    "H7": "trivial predictors stand beside every accuracy",
}


def test_a_page_without_its_marks_is_refused(page):
    with pytest.raises(FailuresError, match="put them back"):
        written(page.replace("<!-- end -->", ""), all_faults(), {})


def test_plants_are_gone_afterwards():
    """Every fault changes something, and leaves nothing changed."""
    import rl.ppo.losses
    from rl.ppo.ppo import BatchPPO

    before = rl.ppo.losses.normalised, BatchPPO.train, BatchPPO._decide
    for one in all_faults():
        with Plants() as plants:
            one.plant(plants)
    assert (rl.ppo.losses.normalised, BatchPPO.train, BatchPPO._decide) == before
