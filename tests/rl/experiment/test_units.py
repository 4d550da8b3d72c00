"""Units of an evaluation: parts that any process plays alike."""

from rl.config.shipped import Shipped
from rl.experiment import units
from rl.experiment.units import Play, play
from rl.policy.policy import build_policy

from learners import CATEGORIES, LEVELS, OBSERVATIONS, statistics


def test_units_draw_random_numbers_of_their_own(monkeypatch, one_thread):
    """One level, one episode in each unit: with the same random numbers both would be the same episode."""
    monkeypatch.setattr(units, "UNIT", 1)
    policy = build_policy("vision_free", statistics())
    how = Play(Shipped.of(policy), OBSERVATIONS, policy.stacking, 4, episodes_per_level=1, seed=0, deterministic=False)
    level = (LEVELS[0], CATEGORIES[0])
    found = play(how, [level, level], progress=lambda count: None, workers=1)
    for first, second in (found.agent, found.random):
        assert first.inputs[:40].tobytes() != second.inputs[:40].tobytes()
