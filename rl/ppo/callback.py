"""Base class of callbacks of PPO."""

from stable_baselines3.common.callbacks import BaseCallback

from rl.ppo.ppo import PPO


class PPOCallback(BaseCallback):
    """A Stable-Baselines3 callback whose ``model`` is this project's PPO."""

    model: PPO  # type: ignore[assignment]  # has the attributes that callbacks read

    def _on_step(self) -> bool:
        return True
