"""PPO on the batch simulator: the main files are ``ppo``, ``rollout_buffer`` and ``losses``."""

from typing import Any

from rl.config.ppo import PPOConfig
from rl.policy.architectures import get_architecture
from rl.ppo.ppo import PPO
from rl.ppo.variants.hierarchical import HierarchicalPPO
from rl.ppo.variants.off_policy import OffPolicy, is_off_policy
from rl.ppo.variants.recurrent import RecurrentPPO

__all__ = ["PPO", "HierarchicalPPO", "RecurrentPPO", "make_ppo"]


class OffPolicyHierarchicalPPO(OffPolicy, HierarchicalPPO):
    """HierarchicalPPO with off-policy corrections."""


class OffPolicyRecurrentPPO(OffPolicy, RecurrentPPO):
    """RecurrentPPO with off-policy corrections."""


def make_ppo(
    env: Any, architecture: str, config: PPOConfig, *arguments: Any, from_stage: str | None = None, **keywords: Any
) -> PPO:
    """Create the variant of PPO that network and settings need; other arguments are those of its constructor."""
    network, off_policy = get_architecture(architecture), is_off_policy(config)
    kind: type[PPO]
    if network.subtasks:
        kind, keywords = (
            OffPolicyHierarchicalPPO if off_policy else HierarchicalPPO,
            {**keywords, "from_stage": from_stage},
        )
    elif network.memory:
        kind = OffPolicyRecurrentPPO if off_policy else RecurrentPPO
    else:
        kind = OffPolicy if off_policy else PPO
    return kind(env, architecture, config, *arguments, **keywords)
