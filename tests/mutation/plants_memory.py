"""Faults of networks with a memory."""

import numpy as np
import torch

from bc.batches import Sequences
from rl.policy.recurrent import MEMORY
from rl.ppo.recurrent import RecurrentBuffer, RecurrentPPO
from tests.mutation.mutations import Plants, fault

REMEMBERING = ("--architectures", "vision_free+gru")


@fault("what is remembered outlives its episode", "F46", "H15", flags=REMEMBERING)
def _(plant: Plants) -> None:
    def go_on(original, ppo, t):
        original(ppo, t)
        ppo.states = ppo._after.copy()

    plant.wrap(RecurrentPPO, "_prepare_decision", go_on)


@fault("updates begin with other memories than were played with", "H15", flags=REMEMBERING)
def _(plant: Plants) -> None:
    def others(original, buffer, index, keys=None):
        found = original(buffer, index, keys)
        return {**found, MEMORY: found[MEMORY].roll(1, dims=0)} if keys is None else found

    plant.wrap(RecurrentBuffer, "observations", others)


@fault("a rollout begins with nothing remembered", "F46", flags=REMEMBERING)
def _(plant: Plants) -> None:
    def forget(original, ppo, *arguments, **named):
        ppo.states = np.zeros_like(ppo.states)
        return original(ppo, *arguments, **named)

    plant.wrap(RecurrentPPO, "collect_rollouts", forget)


@fault("sequences of an update reach over the ends of episodes", "F46", flags=REMEMBERING)
def _(plant: Plants) -> None:
    def endless(original, buffer, index):
        ends, buffer.episode_ends = buffer.episode_ends, torch.zeros_like(buffer.episode_ends)
        try:
            return original(buffer, index)
        finally:
            buffer.episode_ends = ends

    plant.wrap(RecurrentBuffer, "follows", endless)


@fault("a network with a memory learns from single decisions", "H16", flags=REMEMBERING)
def _(plant: Plants) -> None:
    plant.wrap(RecurrentBuffer, "follows", lambda original, buffer, index: torch.zeros_like(index, dtype=torch.bool))


@fault("imitation shows a network with a memory single decisions", "H16", flags=REMEMBERING)
def _(plant: Plants) -> None:
    plant.wrap(
        Sequences,
        "_observe",
        lambda original, batches, rows, follows, states: original(batches, rows, np.zeros_like(follows), None),
    )


@fault(
    "segments begin without the burn-in that was asked for",
    "F51",
    "H15",
    flags=(*REMEMBERING, "--memory-segment", "8", "--memory-burn-in", "4"),
)
def _(plant: Plants) -> None:
    plant.wrap(RecurrentPPO, "shown", lambda original, ppo, policy, index: ppo.rollout_buffer.observations(index))
