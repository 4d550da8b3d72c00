"""Faults of learning that the doctor's probe environments must show without the audits of a run beside them."""

import torch

from rl.ppo.losses import normalised
from rl.ppo.ppo import BatchPPO
from tests.mutation.mutations import Plants, fault


@fault("decisions learn from their own reward alone", "F24", stage="probes")
def _(plant: Plants) -> None:
    def estimate(original, ppo):
        original(ppo)
        buffer = ppo.rollout_buffer
        buffer.advantages = buffer.rewards - buffer.values

    plant.wrap(BatchPPO, "_estimate", estimate)


@fault("training ends without an error, and nothing was learned", "F60", stage="probes")
def _(plant: Plants) -> None:
    plant.around(normalised, lambda original, advantages, *rest: torch.zeros_like(original(advantages, *rest)))


@fault("the critic learns what a decision brings at once", "F24", stage="probes")
def _(plant: Plants) -> None:
    def estimate(original, ppo):
        original(ppo)
        ppo.rollout_buffer.returns = ppo.rollout_buffer.rewards.clone()

    plant.wrap(BatchPPO, "_estimate", estimate)
