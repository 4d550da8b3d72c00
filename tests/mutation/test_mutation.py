"""The runner of mutations: what counts as noticed, and that a mutation is undone."""

import pytest

from tests.mutation import runner
from tests.mutation.mutations import Fault, Plants, all_faults
from tests.mutation.runner import NOT_NOTICED, OUTDATED, SOUND
from tests.mutation.stages import STAGES


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
        (lambda _, plant: (plant(), Victim().add(1, 2)), _given, NOT_NOTICED),
        (lambda _, plant: plant(), lambda plant: None, NOT_NOTICED),
        (_product(IndexError), None, "IndexError"),  # of a sound run: a false alarm
    ],
)
def test_what_counts_as_noticed(stage, plant, guard, tmp_path, monkeypatch):
    """A crash over what the plant itself has left inconsistent does not."""
    monkeypatch.setitem(STAGES, "job", stage)
    one = Fault("something", (), plant)
    assert runner._planted(one, tmp_path / "world", frozenset()).guard == guard


def test_plants_are_gone_afterwards():
    """Every fault changes something, and leaves nothing changed."""
    import rl.ppo.losses
    from rl.ppo.ppo import BatchPPO

    before = rl.ppo.losses.normalised, BatchPPO.train, BatchPPO._decide
    for one in all_faults():
        with Plants() as plants:
            one.plant(plants)
    assert (rl.ppo.losses.normalised, BatchPPO.train, BatchPPO._decide) == before
