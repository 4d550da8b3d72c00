"""PPO in one file, as in CleanRL: python examples/cleanrl_ppo.py [--steps N]

``NppVectorEnv`` steps all environments in one call; Gymnasium's wrappers flatten and normalise what they observe.
"""

import argparse
import time

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers
from torch import nn
from torch.distributions import Categorical


class Agent(nn.Module):
    """Actor and critic, two layers each."""

    def __init__(self, inputs: int, actions: int):
        super().__init__()
        self.actor, self.critic = (
            nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))
            for outputs in (actions, 1)
        )
        nn.init.orthogonal_(self.actor[-1].weight, 0.01)  # all actions equally likely at first

    def forward(self, x: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        return Categorical(logits=self.actor(x)), self.critic(x).squeeze(-1)


def main(argv: list[str] | None = None) -> float:
    """Returns the share of episodes that were won in the last rollout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--levels", help="folder of levels; default: 30 that come with nppsim")
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--rollout", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    gamma, gae_lambda, clip, epochs, minibatches = 0.995, 0.95, 0.2, 4, 4

    envs = gymnasium.make_vec(
        "nppsim/Npp-v0", args.num_envs, levels=args.levels, gamma=gamma, autoreset_mode=AutoresetMode.NEXT_STEP
    )
    envs = wrappers.NormalizeObservation(wrappers.FlattenObservation(envs))
    agent = Agent(envs.single_observation_space.shape[0], envs.single_action_space.n)
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)

    shape = (args.rollout, args.num_envs)
    obs = torch.zeros((*shape, envs.single_observation_space.shape[0]))
    actions, log_probs, rewards, values, ends, resets = (torch.zeros(shape) for _ in range(6))
    seen, _ = envs.reset(seed=args.seed)
    resetting = np.zeros(args.num_envs, bool)  # environments whose next step begins an episode, and decides nothing
    won, begin = 0.0, time.monotonic()
    for update in range(1, max(args.steps // (args.rollout * args.num_envs), 1) + 1):
        outcomes = []
        for t in range(args.rollout):
            obs[t] = torch.as_tensor(seen).float()
            resets[t] = torch.as_tensor(resetting)
            with torch.no_grad():
                distribution, values[t] = agent(obs[t])
                actions[t] = distribution.sample()
                log_probs[t] = distribution.log_prob(actions[t])
            seen, reward, terminated, truncated, infos = envs.step(actions[t].long().numpy())
            rewards[t], ends[t] = torch.as_tensor(reward), torch.as_tensor(terminated)
            resetting = terminated | truncated
            outcomes += infos["is_success"][resetting].tolist() if resetting.any() else []
        with torch.no_grad():
            _, next_value = agent(torch.as_tensor(seen).float())
        advantages, following = torch.zeros(shape), torch.zeros(args.num_envs)
        for t in reversed(range(args.rollout)):
            # After a time-out the value of the last state counts: it is what ``values`` has at the step that resets.
            after = values[t + 1] if t + 1 < args.rollout else next_value
            begins = resets[t + 1] if t + 1 < args.rollout else torch.as_tensor(resetting).float()
            delta = rewards[t] + gamma * after * (1 - ends[t]) - values[t]
            following = delta + gamma * gae_lambda * (1 - begins) * following
            advantages[t] = following
        returns = advantages + values
        played = (resets == 0).flatten().nonzero().squeeze(1)  # a step that resets has no decision to learn from
        flat = [part.flatten(0, 1) for part in (obs, actions, log_probs, advantages, returns)]
        for _ in range(epochs):
            for rows in played[torch.randperm(len(played))].chunk(minibatches):
                o, a, old, advantage, target = (part[rows] for part in flat)
                distribution, value = agent(o)
                ratio = (distribution.log_prob(a) - old).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                actor_loss = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
                loss = actor_loss + 0.5 * (value - target).pow(2).mean() - 0.01 * distribution.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        won = float(np.mean(outcomes)) if outcomes else won
        steps = update * args.rollout * args.num_envs
        print(f"{steps:>9} steps  {steps / (time.monotonic() - begin):7.0f} per s  won {won:.2f} of {len(outcomes)}")
    envs.close()
    return won


if __name__ == "__main__":
    main()
