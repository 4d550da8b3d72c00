"""Runner of mutations: outcomes, and restoration of the code."""

import pytest

from nppsim.io import files
from tests.mutation.mutation import ROOT, Mutation, Patch, all_mutations
from tests.mutation.runner import BROKEN, MISSED, NOTICED, run_each


def test_mutations_apply_and_undo():
    import rl.ppo.losses
    from rl.ppo.ppo import PPO

    before = rl.ppo.losses.normalized, PPO.update, PPO._act
    for one in all_mutations():
        with Patch() as patch:
            one.inject(patch)
            assert patch.changed, one.name
    assert (rl.ppo.losses.normalized, PPO.update, PPO._act) == before


def test_mutations_name_existing_tests():
    for one in all_mutations():
        assert one.tests, one.name
        assert all((ROOT / test).is_file() for test in one.tests), one.name


TEST = """
from nppsim.io import files
def test_sum():
    assert "1" in files.table(("a",), [(1,)])
"""


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        (lambda original, *arguments: original(*arguments), MISSED),
        (lambda original, *arguments: "", NOTICED),
        (lambda original, one: original(one), BROKEN),  # no longer fits what it changes
    ],
)
def test_run_each_failing_test_reports_noticed(changed, status, tmp_path):
    (tmp_path / "test_it.py").write_text(TEST)
    one = Mutation("table", (str(tmp_path / "test_it.py"),), lambda patch: patch.wrap(files, "table", changed))
    (outcome,) = run_each([one], 1, print)
    assert outcome.status == status, outcome


def test_run_each_inapplicable_mutation_reports_broken(tmp_path):
    (tmp_path / "test_it.py").write_text(TEST)
    one = Mutation("gone", (str(tmp_path / "test_it.py"),), lambda patch: patch.set(files, "no_such_name", None))
    (outcome,) = run_each([one], 1, print)
    assert (outcome.status, outcome.mutation) == (BROKEN, "gone")
