"""Faults of hierarchical PPO: those that the predecessor had, and what lies near them."""

import torch

from rl.policy.commander import COMMAND
from rl.policy.commands import Commands, done
from rl.ppo.hierarchy.losses import CommandLosses, HierarchicalLosses
from rl.ppo.hierarchy.ppo import HierarchicalBuffer, HierarchicalPPO
from tests.mutation.mutations import Plants, fault

SUBTASKS_ON = ("--use-hierarchical-ppo", "--high-level-update-freq", "10")


@fault("updates look at the subtask that is in force by then", "H15", flags=SUBTASKS_ON)
def _(plant: Plants) -> None:
    plant.wrap(
        HierarchicalBuffer,
        "observations",
        lambda original, buffer, index, *keys: {
            **original(buffer, index, *keys),
            COMMAND: buffer.obs[COMMAND][-1, :1].expand(len(index), 2),
        },
    )


@fault("one subtask for all environments", "H15", flags=SUBTASKS_ON)
def _(plant: Plants) -> None:
    def give(original, commands, envs, chosen, obs):
        original(commands, envs, chosen, obs)
        commands.now[:, 0] = commands.now[0, 0]

    plant.wrap(Commands, "give", give)


@fault("the high level is in no loss", "H16", flags=SUBTASKS_ON)
def _(plant: Plants) -> None:
    def changed(original, further, parts, *rest):
        return HierarchicalLosses(*parts, *[torch.zeros(())] * 4)

    plant.wrap(CommandLosses, "__call__", changed)


@fault("what a choice earned ends with its first decision", "F65", flags=SUBTASKS_ON)
def _(plant: Plants) -> None:
    def estimate(original, ppo):
        original(ppo)
        buffer = ppo.rollout_buffer
        buffer.command_advantages = torch.where(buffer.chooses, buffer.rewards - buffer.command_values, 0.0)

    plant.wrap(HierarchicalPPO, "_estimate", estimate)


@fault("subtasks hardly ever end", "F85", flags=(*SUBTASKS_ON[:2], "10000"))
def _(plant: Plants) -> None:
    plant.around(done, lambda original, subtask, *facts: original(subtask, *facts) & False)


@fault("subtasks begin at random weights and shut the clone out", "F84", "F86", flags=SUBTASKS_ON)
def _(plant: Plants) -> None:
    def made(original, ppo, *arguments, **named):
        original(ppo, *arguments, **named)
        with torch.no_grad():
            ppo.policy.commander.condition.normal_()

    plant.wrap(HierarchicalPPO, "__init__", made)
