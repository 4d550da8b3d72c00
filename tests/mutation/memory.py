"""Mutations of recurrent networks and of subtasks."""

import numpy as np
import torch

from rl.policy.player import RecurrentPlayer
from rl.policy.recurrent import RECURRENT_STATE
from rl.policy.subtasks import SUBTASK, ActiveSubtasks
from rl.ppo.variants.hierarchical import HierarchicalBuffer, HierarchicalLosses, HierarchicalPPO, add_high_level_losses
from rl.ppo.variants.recurrent import RecurrentBuffer, RecurrentPPO
from tests.mutation.mutation import Patch, mutation


@mutation("hidden states outlive their episode", tests=("tests/rl/ppo/variants/test_recurrent.py",))
def _(patch: Patch) -> None:
    def carry_on(original, ppo, t):
        original(ppo, t)
        ppo.states = ppo._after.copy()

    patch.wrap(RecurrentPPO, "after_decision", carry_on)


@mutation("updates start from other hidden states than the rollout", tests=("tests/rl/ppo/variants/test_recurrent.py",))
def _(patch: Patch) -> None:
    def others(original, buffer, index, keys=None):
        found = original(buffer, index, keys)
        return {**found, RECURRENT_STATE: found[RECURRENT_STATE].roll(1, dims=0)} if keys is None else found

    patch.wrap(RecurrentBuffer, "observations", others)


@mutation("a rollout starts from empty hidden states", tests=("tests/rl/ppo/variants/test_recurrent.py",))
def _(patch: Patch) -> None:
    def forget(original, ppo, *arguments, **named):
        ppo.states = np.zeros_like(ppo.states)
        return original(ppo, *arguments, **named)

    patch.wrap(RecurrentPPO, "collect_rollouts", forget)


@mutation("sequences of an update cross the ends of episodes", tests=("tests/rl/ppo/variants/test_recurrent.py",))
def _(patch: Patch) -> None:
    def endless(original, buffer, index):
        ends, buffer.episode_ends = buffer.episode_ends, torch.zeros_like(buffer.episode_ends)
        try:
            return original(buffer, index)
        finally:
            buffer.episode_ends = ends

    patch.wrap(RecurrentBuffer, "follows", endless)


@mutation("a recurrent network is trained on single decisions", tests=("tests/rl/ppo/variants/test_recurrent.py",))
def _(patch: Patch) -> None:
    patch.wrap(RecurrentBuffer, "follows", lambda original, buffer, index: torch.zeros_like(index, dtype=torch.bool))


@mutation("evaluations clear hidden states after every decision", tests=("tests/rl/policy/test_recurrent.py",))
def _(patch: Patch) -> None:
    def changed(original, player, *given, **named):
        actions = original(player, *given, **named)
        player.states[:] = 0
        return actions

    patch.wrap(RecurrentPlayer, "act", changed)


@mutation("evaluations carry hidden states over to the next episode", tests=("tests/rl/policy/test_recurrent.py",))
def _(patch: Patch) -> None:
    patch.set(RecurrentPlayer, "begin", lambda player, envs: None)


@mutation(
    "updates use the current subtask, not that of the rollout", tests=("tests/rl/ppo/variants/test_hierarchical.py",)
)
def _(patch: Patch) -> None:
    patch.wrap(
        HierarchicalBuffer,
        "observations",
        lambda original, buffer, index, *keys: {
            **original(buffer, index, *keys),
            SUBTASK: buffer.obs[SUBTASK][-1, :1].expand(len(index), 2),
        },
    )


@mutation("one subtask for all environments", tests=("tests/rl/ppo/variants/test_hierarchical.py",))
def _(patch: Patch) -> None:
    def give(original, commands, envs, chosen, obs):
        original(commands, envs, chosen, obs)
        commands.now[:, 0] = commands.now[0, 0]

    patch.wrap(ActiveSubtasks, "start", give)


@mutation("the high level is in no loss", tests=("tests/rl/ppo/variants/test_hierarchical.py",))
def _(patch: Patch) -> None:
    def changed(original, losses, *rest):
        return HierarchicalLosses(*losses, *[torch.zeros(())] * 4)

    patch.everywhere(add_high_level_losses, changed)


@mutation("subtask inputs start at random weights", tests=("tests/rl/ppo/variants/test_hierarchical.py",))
def _(patch: Patch) -> None:
    def made(original, ppo, *arguments, **named):
        original(ppo, *arguments, **named)
        with torch.no_grad():
            ppo.policy.high_level.condition.normal_()

    patch.wrap(HierarchicalPPO, "__init__", made)
