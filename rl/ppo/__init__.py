"""PPO on the batch simulator: the main files are ``ppo``, ``rollout_buffer`` and ``losses``."""

from typing import Any

from rl.policy.architectures import get_architecture
from rl.ppo.ppo import PPO
from rl.ppo.variants.hierarchical import HierarchicalPPO
from rl.ppo.variants.recurrent import RecurrentPPO

__all__ = ["PPO", "HierarchicalPPO", "RecurrentPPO", "make_ppo"]


def make_ppo(env: Any, architecture: str, *arguments: Any, from_stage: str | None = None, **keywords: Any) -> PPO:
    """Return a HierarchicalPPO, RecurrentPPO or PPO, as the network needs; the arguments are those of these classes."""
    network = get_architecture(architecture)
    if network.subtasks:
        return HierarchicalPPO(env, architecture, *arguments, from_stage=from_stage, **keywords)
    kind = RecurrentPPO if network.memory else PPO
    return kind(env, architecture, *arguments, **keywords)
