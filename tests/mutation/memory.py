"""Mutations of recurrent networks and of subtasks."""

import numpy as np
import torch

from rl.policy.player import RecurrentPlayer
from rl.policy.recurrent import RECURRENT_STATE
from rl.policy.subtasks import SUBTASK, ActiveSubtasks
from rl.ppo.variants.hierarchical import HierarchicalBuffer, HierarchicalLosses, HierarchicalPPO, add_high_level_losses
from rl.ppo.variants.recurrent import RecurrentBuffer, RecurrentPPO
from tests.mutation.mutation import mutation


@mutation("hidden states outlive their episode", "tests/rl/ppo/variants/test_recurrent.py").wrap(
    RecurrentPPO, "after_decision"
)
def _(original, ppo, t):
    original(ppo, t)
    ppo.states = ppo._after.copy()


@mutation("updates start from other hidden states than the rollout", "tests/rl/ppo/variants/test_recurrent.py").wrap(
    RecurrentBuffer, "observations"
)
def _(original, buffer, index, keys=None):
    found = original(buffer, index, keys)
    return {**found, RECURRENT_STATE: found[RECURRENT_STATE].roll(1, dims=0)} if keys is None else found


@mutation("a rollout starts from empty hidden states", "tests/rl/ppo/variants/test_recurrent.py").wrap(
    RecurrentPPO, "collect_rollouts"
)
def _(original, ppo, *arguments, **named):
    ppo.states = np.zeros_like(ppo.states)
    return original(ppo, *arguments, **named)


@mutation("sequences of an update cross the ends of episodes", "tests/rl/ppo/variants/test_recurrent.py").wrap(
    RecurrentBuffer, "follows"
)
def _(original, buffer, index):
    ends, buffer.episode_ends = buffer.episode_ends, torch.zeros_like(buffer.episode_ends)
    try:
        return original(buffer, index)
    finally:
        buffer.episode_ends = ends


mutation("a recurrent network is trained on single decisions", "tests/rl/ppo/variants/test_recurrent.py").wrap(
    RecurrentBuffer, "follows", lambda original, buffer, index: torch.zeros_like(index, dtype=torch.bool)
)


@mutation("evaluations clear hidden states after every decision", "tests/rl/policy/test_recurrent.py").wrap(
    RecurrentPlayer, "act"
)
def _(original, player, *given, **named):
    actions = original(player, *given, **named)
    player.states[:] = 0
    return actions


mutation("evaluations carry hidden states over to the next episode", "tests/rl/policy/test_recurrent.py").set(
    RecurrentPlayer, "begin", lambda player, envs: None
)


mutation("updates use the current subtask, not that of the rollout", "tests/rl/ppo/variants/test_hierarchical.py").wrap(
    HierarchicalBuffer,
    "observations",
    lambda original, buffer, index, *keys: {
        **original(buffer, index, *keys),
        SUBTASK: buffer.obs[SUBTASK][-1, :1].expand(len(index), 2),
    },
)


@mutation("one subtask for all environments", "tests/rl/ppo/variants/test_hierarchical.py").wrap(
    ActiveSubtasks, "start"
)
def _(original, commands, envs, chosen, obs):
    original(commands, envs, chosen, obs)
    commands.now[:, 0] = commands.now[0, 0]


@mutation("the high level is in no loss", "tests/rl/ppo/variants/test_hierarchical.py").everywhere(
    add_high_level_losses
)
def _(original, losses, *rest):
    return HierarchicalLosses(*losses, *[torch.zeros(())] * 4)


@mutation("subtask inputs start at random weights", "tests/rl/ppo/variants/test_hierarchical.py").wrap(
    HierarchicalPPO, "__init__"
)
def _(original, ppo, *arguments, **named):
    original(ppo, *arguments, **named)
    with torch.no_grad():
        ppo.policy.high_level.condition.normal_()
