"""TorchRL's wrappers of Gymnasium environments."""

import gymnasium
import pytest

from nppsim.gym import ENV_ID

from worlds import straight

pytest.importorskip("torchrl", reason="TorchRL is not a dependency: pip install torchrl")
from torchrl.envs.libs.gym import GymEnv, GymWrapper
from torchrl.envs.utils import check_env_specs

LEVELS = [straight(name="short"), straight(mine=True, name="mined")]


def test_gym_env_rolls_out_with_valid_specs():
    env = GymEnv(ENV_ID, levels=LEVELS, observations=("state", "reachability"))
    check_env_specs(env)
    assert env.rollout(20)["next", "game_state"].shape == (20, 26)


def test_vector_env_with_disabled_autoreset_continues_with_new_episodes():
    """TorchRL resets finished environments itself; it refuses the mode NEXT_STEP."""
    envs = gymnasium.make_vec(ENV_ID, num_envs=4, levels=LEVELS, observations=("state",), autoreset_mode="DISABLED")
    wrapped = GymWrapper(envs)
    wrapped.set_seed(0)
    check_env_specs(wrapped)
    played = wrapped.rollout(400, break_when_any_done=False)
    done = played["next", "done"].squeeze(-1)
    continues = (played["game_state"][:, 1:] == played["next", "game_state"][:, :-1]).all(-1)
    assert done.sum() > 4
    assert (continues == ~done[:, :-1]).all()
    with pytest.raises(RuntimeError, match="SAME_STEP or DISABLED"):
        GymWrapper(gymnasium.make_vec(ENV_ID, num_envs=2, levels=LEVELS))
