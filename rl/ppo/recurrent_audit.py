"""What must hold of rollouts and updates with a memory, worked out decision by decision, and the cell by its formulas.

The functions ask nothing of how sequences are made (``RecurrentBuffer``, ``rl.policy.recurrent.packed``).
"""

from collections.abc import Iterator

import numpy as np
import torch

from bc.agreement import closeness
from rl.policy.policy import NppPolicy
from rl.policy.recurrent import FOLLOWS, MEMORY, Memory
from rl.ppo.audit import Fault, Start, numbers
from rl.ppo.ppo import BatchPPO
from rl.ppo.recurrent import RecurrentPPO

ENVS = 16  # whose memory is followed through the rollout
SEGMENTS = 64  # whose beginnings are worked out anew


@torch.no_grad()
def faults_of_memory(ppo: BatchPPO, start: Start | None) -> Iterator[Fault]:
    """What is wrong with what was remembered in the rollout that has just ended; nothing of PPO without a memory.

    start: how things stood before it; None: not known.
    """
    if not isinstance(ppo, RecurrentPPO):
        return
    memory, buffer = ppo.policy.memory, ppo.rollout_buffer
    assert memory is not None
    steps, count = buffer.shape
    if start is not None:
        first, blank = start.so_far[0] == 0, ~buffer.obs[MEMORY][0].any(dim=1).cpu().numpy()
        if (first & ~blank).any() or (~first & blank).any():
            yield Fault(
                "memory",
                f"before the rollout {(first & ~blank).sum()} environments remember something at the start of an "
                f"episode, and {(~first & blank).sum()} nothing in the middle of one",
            )
    chosen = min(ENVS, count)  # others in each update
    envs = ((torch.arange(chosen) * (count // chosen) + ppo.updates) % count).sort().values.to(ppo.device)
    mine = envs.cpu().numpy()
    ends, stored = numbers(ppo, "episode_ends")[:, mine], buffer.obs[MEMORY][:, envs].double().cpu().numpy()
    now, limit = ppo.states[mine].astype(np.float64), closeness(ppo.policy)
    for t in range(steps):
        features = ppo.policy.features(_alone(ppo, t * count + envs))
        wanted = np.where(ends[t][:, None], 0.0, by_formula(memory, features.double(), stored[t]))
        found = stored[t + 1] if t + 1 < steps else now
        off = np.abs(found - wanted).max(axis=1)
        if not (off <= limit).all():
            worst = int(off.argmax())
            env, after = int(mine[worst]), "the end of its episode" if ends[t][worst] else "it"
            yield Fault(
                "memory",
                f"what environment {env} remembers after decision {t} and {after} is {off[worst]:.2g} away from what the "
                "cell makes of it, or from nothing where an episode begins: states are mixed up, kept too long or lost",
            )
            return


def by_formula(memory: Memory, features: torch.Tensor, states: np.ndarray) -> np.ndarray:
    """float64[N, size]: the states after features float64[N, F] and states before them, float64[N, size].

    Source: Cho et al. 2014, with the reset gate as torch has it: on what the state contributes, its bias included.
    """
    weights = [weight.double() for weight in memory.cell.parameters()]
    of_input, of_state, input_bias, state_bias = weights
    before = torch.from_numpy(states).to(features.device)
    seen, kept = features @ of_input.T + input_bias, before @ of_state.T + state_bias
    (seen_r, seen_z, seen_n), (kept_r, kept_z, kept_n) = (part.chunk(3, dim=1) for part in (seen, kept))
    reset, update = torch.sigmoid(seen_r + kept_r), torch.sigmoid(seen_z + kept_z)
    after = (1 - update) * torch.tanh(seen_n + reset * kept_n) + update * before
    return after.cpu().numpy()


@torch.no_grad()
def faults_of_burn_in(ppo: BatchPPO) -> Iterator[Fault]:
    """What is wrong with the memories that segments begin with, now that the weights are others than those that played."""
    if not isinstance(ppo, RecurrentPPO) or not ppo.config.memory_burn_in:
        return
    steps, envs = ppo.rollout_buffer.shape
    begins = (torch.arange(0, steps, ppo.rollout_buffer.segment)[:, None] * envs + torch.arange(envs)).flatten()
    begins = begins[:: max(1, len(begins) // SEGMENTS)].to(ppo.device)
    wanted = _begun_with(ppo, ppo.policy, begins, ppo.config.memory_burn_in)
    off = float((ppo.shown(ppo.policy, begins)[MEMORY] - wanted).abs().max())
    if not off <= closeness(ppo.policy):
        yield Fault(
            "memory",
            f"after the update a segment begins with a memory {off:.2g} away from what the present weights come to in the "
            f"{ppo.config.memory_burn_in} decisions before it: burn-in is left out, or has other decisions",
        )


def asked_in_steps(
    ppo: BatchPPO, policy: NppPolicy, rows: torch.Tensor, burn_in: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(logits, values) of a policy for decisions of the rollout, whole segments in any order, one step after the other.

    burn_in: decisions before a segment with which its state is worked out.
    Decisions that are no whole segments are looked at each by itself.
    """
    if not isinstance(ppo, RecurrentPPO):
        return policy.logits_and_values(ppo.rollout_buffer.observations(rows))
    buffer, envs = ppo.rollout_buffer, ppo.sim.num_envs
    length = buffer.segment
    steps, of = rows // envs, rows % envs
    order = torch.argsort(of * buffer.shape[0] + steps)  # by environment, then by decision
    if len(rows) % length or not bool((steps[order].view(-1, length) % length == torch.arange(length).to(rows)).all()):
        return policy.logits_and_values(_alone(ppo, rows))
    segments = rows[order].view(-1, length)
    state, ends = _begun_with(ppo, policy, segments[:, 0], burn_in), buffer.flat("episode_ends")
    logits, values = [], []
    for step in range(length):
        index = segments[:, step]
        some_logits, some_values, after = policy.step({**_alone(ppo, index), MEMORY: state})
        assert after is not None
        state = after * ~ends[index][:, None]
        logits.append(some_logits)
        values.append(some_values)
    places = torch.argsort(order)
    return torch.stack(logits, dim=1).flatten(0, 1)[places], torch.stack(values, dim=1).flatten()[places]


@torch.no_grad()
def _begun_with(ppo: RecurrentPPO, policy: NppPolicy, begins: torch.Tensor, burn_in: int) -> torch.Tensor:
    """float32[S, size]: what is remembered before the first decisions of segments, by this policy with this burn-in."""
    buffer, envs = ppo.rollout_buffer, ppo.sim.num_envs
    ends, stored = buffer.flat("episode_ends"), buffer.flat_obs(MEMORY)
    carried = stored[(begins - burn_in * envs).clamp(min=0)]
    for back in range(burn_in, 0, -1):
        index = (begins - back * envs).clamp(min=0)
        after = policy.step({**_alone(ppo, index), MEMORY: carried})[2]
        assert after is not None
        carried = after * ~ends[index][:, None]
    return torch.where((begins // envs < burn_in)[:, None], stored[begins], carried)


def _alone(ppo: RecurrentPPO, index: torch.Tensor) -> dict[str, torch.Tensor]:
    """Observations of decisions, each by itself."""
    return {key: values for key, values in ppo.rollout_buffer.observations(index).items() if key != FOLLOWS}
