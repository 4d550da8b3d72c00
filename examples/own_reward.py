"""Define your own rewards: python examples/own_reward.py

A RewardConfig sets the weights of the built-in terms; a Gymnasium wrapper adds anything else.
"""

from typing import Any

import gymnasium

from nppsim import NppEnv
from nppsim.reward import PRESETS, RewardConfig


class GoldCounts(gymnasium.Wrapper):
    """Adds 0.1 to the reward for each piece of gold."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._gold = 0
        return self.env.reset(**kwargs)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        gold = int(self.unwrapped.simulator.state.ninja["gold"][0])
        reward += 0.1 * (gold - self._gold)
        self._gold = gold
        return observation, reward, terminated, truncated, info


def main() -> dict[str, float]:
    """Move right for one second under each reward; return the returns."""
    rewards = {**PRESETS, "mine": RewardConfig(win=10.0, death=-2.0, time=-0.0005)}
    envs = {name: NppEnv(reward=reward) for name, reward in rewards.items()}
    envs["gold counts"] = GoldCounts(NppEnv())
    returns = {}
    for name, env in envs.items():
        env.reset(options={"level": 0})
        returns[name] = 0.0
        for _ in range(15):
            _, reward, terminated, truncated, _ = env.step(2)
            returns[name] += float(reward)
            if terminated or truncated:
                break
        print(f"{name:<12} {returns[name]:+.4f}")
    return returns


if __name__ == "__main__":
    main()
