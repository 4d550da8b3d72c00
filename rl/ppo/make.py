"""PPO for a network, whatever it is made of.

ppo = make_ppo(env, architecture, config, plan, from_stage=None, statistics=statistics)
"""

from typing import Any

from rl.policy.architectures import get_architecture
from rl.ppo.hierarchy.ppo import HierarchicalPPO
from rl.ppo.ppo import BatchPPO
from rl.ppo.recurrent import RecurrentPPO


def make_ppo(env: Any, architecture: str, *arguments: Any, from_stage: str | None = None, **keywords: Any) -> BatchPPO:
    """With subtasks or a memory where the network has them.  Arguments: as of BatchPPO; from_stage: of HierarchicalPPO."""
    network = get_architecture(architecture)
    if network.subtasks:
        return HierarchicalPPO(env, architecture, *arguments, from_stage=from_stage, **keywords)
    kind = RecurrentPPO if network.memory else BatchPPO
    return kind(env, architecture, *arguments, **keywords)
