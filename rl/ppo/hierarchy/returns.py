"""Advantages and returns of choices that last: generalised advantage estimation over a semi-Markov decision process.

Source: Sutton, Precup & Singh 1999 (options; section 3 for their returns); Schulman et al. 2016 (GAE).
"""

import torch


def semi_markov(
    rewards: torch.Tensor,
    values: torch.Tensor,
    chooses: torch.Tensor,
    episode_ends: torch.Tensor,
    last_values: torch.Tensor,
    gamma: float,
    gae_lambda: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(advantages, returns), float32[T, N] both, of the choices made before some of T decisions; 0 elsewhere.

    rewards: float32[T, N], of the decisions.
    values: float32[T, N], of the states in which was chosen; whatever elsewhere.
    chooses: bool[T, N], whether a choice was made before the decision.
    episode_ends: bool[T, N], whether the decision was its episode's last; a choice was made before the first of each.
    last_values: float32[N], of what follows the last decision: of the choice that is due there, or of the one still in force.

    A choice that lasts d decisions earns R = sum over i < d of gamma^i r_i, and what follows it counts times gamma^d (nothing
    after the episode's end): delta = R + gamma^d V' - V, and A = delta + gamma^d lambda A'.  Lambda counts choices, no
    decisions.
    """
    advantages, returns = torch.zeros_like(rewards), torch.zeros_like(rewards)
    earned, discount = torch.zeros_like(last_values), torch.ones_like(last_values)  # until the next choice
    following, trace = last_values, torch.zeros_like(last_values)  # its value, and its advantage
    for t in reversed(range(len(rewards))):
        goes_on = (~episode_ends[t]).float()
        earned = rewards[t] + gamma * goes_on * earned
        discount = gamma * goes_on * discount
        advantage = earned + discount * following - values[t] + gae_lambda * discount * trace
        chosen = chooses[t]
        advantages[t] = torch.where(chosen, advantage, 0.0)
        returns[t] = torch.where(chosen, advantage + values[t], 0.0)
        following, trace = torch.where(chosen, values[t], following), torch.where(chosen, advantage, trace)
        earned, discount = torch.where(chosen, 0.0, earned), torch.where(chosen, 1.0, discount)
    return advantages, returns
