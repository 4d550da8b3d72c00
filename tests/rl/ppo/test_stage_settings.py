"""Settings of PPO for single stages of the curriculum, and the use of one discount in all places."""

import pytest

from nppsim.errors import ConfigError
from rl.config.curriculum import CurriculumConfig
from rl.curriculum import make_sampler

from learners import logged, make_ppo, roll_out

pytestmark = pytest.mark.usefixtures("one_thread")

BY_STAGE = CurriculumConfig(
    strategy="stages",
    stage_gamma=("simpler=0.95",),
    stage_learning_rate=("simpler=3e-5",),
    stage_ent_coef=("simpler=0.02",),
    stage_clip_range=("simpler=0.1",),
)


def test_stage_change_and_back_is_reproducible():
    ppo, scalars = make_ppo(curriculum=BY_STAGE)
    found = []
    for place in (1, 2, 0):  # of the stage that comes after this update
        roll_out(ppo)
        update = ppo.sampler.update

        def moving(*arguments, place=place, update=update, **named):
            update(*arguments, **named)
            ppo.sampler.strategy.place = place

        ppo.sampler.update = moving
        ppo.update()
        ppo.sampler.update = update
        row = logged(ppo, scalars)
        found.append(tuple(row[f"train/{name}"] for name in ("gamma", "learning_rate", "ent_coef", "clip_range")))
        assert ppo.gamma == ppo.sim.gamma
    assert [gamma for gamma, *_ in found] == [0.995, 0.95, 0.995]
    assert found[1][1] < 3e-5 < found[0][1] / 10
    assert found[1][2] == 0.02 > found[0][2]
    assert [clip_range for *_, clip_range in found] == [0.2, 0.1, 0.2]


def test_resumed_run_has_settings_of_its_stage():
    ppo, other = make_ppo(curriculum=BY_STAGE)[0], make_ppo(curriculum=BY_STAGE, seed=3)[0]
    ppo.sampler.strategy.place = 1
    roll_out(ppo)
    ppo.update()
    assert ppo.gamma == 0.95
    other.load_training_state(ppo.policy.state_dict(), ppo.training_state())
    assert other.gamma == other.sim.gamma == 0.95


def test_meaningless_stage_settings_are_an_error():
    for name, text in (
        ("stage_gamma", "simple=1.5"),
        ("stage_gamma", "simple"),
        ("stage_learning_rate", "simple=0"),
        ("stage_ent_coef", "simple=-1"),
        ("stage_clip_range", "simple=0"),
    ):
        with pytest.raises(ConfigError, match="give STAGE=X with X "):
            CurriculumConfig(strategy="stages", **{name: (text,)})
    with pytest.raises(ConfigError, match="no levels of medium; its categories are"):
        make_sampler(["simple"], CurriculumConfig(strategy="stages", stage_gamma=("medium=0.99",)), 0)
