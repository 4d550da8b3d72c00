"""PPO solves probe environments, which are so small that correct values and actions are known.

A mistake between rewards and weights (a sign, a discount, a missing end of an episode) shows here as a wrong number.
Source: Andy Jones, "Debugging reinforcement learning systems" (2021).
"""

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import Logger

import hardware
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.decision import EPISODE_DTYPE
from nppsim.generate import generate
from nppsim.observe import layout
from nppsim.observe.stacking import NO_STACKS
from nppsim.observe.statistics import ObservationStatistics
from nppsim.physics.outcomes import DIED, WON
from rl.config import PPOConfig
from rl.config.curriculum import CurriculumConfig
from rl.curriculum import make_sampler
from rl.policy.architectures import get_architecture
from rl.ppo.ppo import PPO
from rl.ppo.vec_env import BatchVecEnv
from rl.training.callbacks import PPOCallback

pytestmark = pytest.mark.usefixtures("one_thread")

ARCHITECTURE = "vision_free"
NUM_ENVS, ROLLOUT, MINIBATCH, EPOCHS, UPDATES = 32, 8, 128, 3, 40
RATE = 3e-3
GAMMA = 0.8  # far enough from 1 to show


class Probe(BatchSimulator):
    """An environment with the interface of the simulator: two places, a sign that is shown, an action that may count.

    length: decisions of an episode, 1 or 2; ``game_state`` shows the sign in its first component, the place in its second.
    reward: (sign int[N], place int[N], actions int[N]) -> float[N].
    gamma: the learner's.
    """

    def __init__(self, length, reward, gamma):
        self.length, self.reward, self.gamma = length, reward, gamma
        self.num_envs, self.keys = NUM_ENVS, get_architecture(ARCHITECTURE).observations
        self.stacking = NO_STACKS
        self.bank = LevelBank([generate("simplest", 0)[0]])  # drawn, never played
        self._rng = np.random.default_rng(0)
        specs = [layout.SPECS[key] for key in self.keys]
        self.obs, self.final_obs = (
            {spec.key: np.zeros((NUM_ENVS, *spec.shape), spec.dtype) for spec in specs} for _ in range(2)
        )
        self.rewards = np.zeros(NUM_ENVS, np.float32)
        self.terminated, self.truncated = np.zeros(NUM_ENVS, bool), np.zeros(NUM_ENVS, bool)
        self.episode = np.zeros(NUM_ENVS, EPISODE_DTYPE)
        self.next_level = np.zeros(NUM_ENVS, np.int32)
        self.finished = np.empty(0, np.int64)

    @property
    def level(self):
        """int32[N]: there is one."""
        return np.zeros(NUM_ENVS, np.int32)

    def reset(self, levels=None):
        """All at the first place, with a new sign."""
        self.sign, self.place = self._rng.choice([-1, 1], NUM_ENVS), np.zeros(NUM_ENVS, int)
        return self._show()

    def step(self, actions, asleep=None):
        """A decision; ended episodes are reset."""
        self.rewards[:] = self.reward(self.sign, self.place, actions)
        self.episode["ret"] = np.where(self.place == 0, 0, self.episode["ret"]) + self.rewards
        self.place += 1
        self.terminated[:] = self.place == self.length
        self.finished = np.flatnonzero(self.terminated)
        self.episode["decisions"], self.episode["outcome"] = self.length, np.where(self.rewards > 0, WON, DIED)
        self.place[self.finished] = 0
        self.sign[self.finished] = self._rng.choice([-1, 1], len(self.finished))
        return self._show()

    def _show(self):
        self.obs["game_state"][:, 0], self.obs["game_state"][:, 1] = self.sign, self.place
        return self.obs


def train(probe, anneal):
    """A learner after UPDATES updates in the probe; an annealed rate settles values, a constant one is quicker."""
    rng = np.random.default_rng(1)
    statistics = ObservationStatistics(probe.keys)
    shown = {key: np.zeros((64, *layout.SPECS[key].shape), np.float32) for key in statistics.float_keys}
    shown["game_state"][:, :2] = rng.choice([-1, 1], (64, 2))
    statistics.update(shown)
    request = hardware.PlanRequest(
        num_envs=NUM_ENVS, rollout_length=ROLLOUT, minibatch_size=MINIBATCH, precision="float32", device="cpu"
    )
    plan = hardware.plan(probe.keys, request)
    total = UPDATES * NUM_ENVS * ROLLOUT
    config = PPOConfig(
        total_timesteps=total,
        gamma=probe.gamma,
        n_epochs=EPOCHS,
        learning_rate=RATE,
        anneal_learning_rate=anneal,
        target_kl=None,
    )
    torch.manual_seed(0)
    env = BatchVecEnv(probe, make_sampler(["probe"], CurriculumConfig(), 0))
    ppo = PPO(env, ARCHITECTURE, config.settled(plan), plan, statistics=statistics)
    ppo.logger = Logger(None, [])
    ppo.learn(total, callback=PPOCallback())
    return ppo


@torch.no_grad()
def answers(ppo, sign, place):
    """Probabilities float[6] of the actions, and the value, at a place with a sign."""
    obs = {key: torch.from_numpy(values[:1].copy()) for key, values in ppo.sim.obs.items()}
    obs["game_state"][0, 0], obs["game_state"][0, 1] = sign, place
    logits, values = ppo.policy.logits_and_values(obs)
    return torch.softmax(logits[0], dim=0).numpy(), float(values[0])


def test_values_are_the_discounted_rewards():
    """The reward of the second of two decisions is the displayed sign; its value is the sign, that of the first one
    gamma times the sign."""
    ppo = train(Probe(2, lambda sign, place, actions: np.where(place == 1, sign, 0), GAMMA), anneal=True)
    for sign in (-1, 1):
        assert answers(ppo, sign, 1)[1] == pytest.approx(sign, abs=0.15)
        assert answers(ppo, sign, 0)[1] == pytest.approx(GAMMA * sign, abs=0.15)


def test_delayed_reward_is_learned():
    """The right first action depends on the sign that is shown."""

    class Late(Probe):
        def step(self, actions, asleep=None):
            self.chosen = np.where(self.place == 0, actions, getattr(self, "chosen", actions))
            return super().step(actions, asleep)

    def pay(sign, place, actions):
        return (place == 1) & (probe.chosen == np.where(sign < 0, 2, 5))

    probe = Late(2, pay, GAMMA)
    ppo = train(probe, anneal=False)
    for sign, action in ((-1, 2), (1, 5)):
        assert answers(ppo, sign, 0)[0][action] > 0.7
