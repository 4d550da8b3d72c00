"""PPO in one file, in the style of CleanRL: python examples/cleanrl_ppo.py [--steps N]

``NppVectorEnv`` steps all environments in one call; Gymnasium's wrappers flatten and normalise the observations.
"""

import argparse
import time

import numpy as np
import torch
from gymnasium.wrappers import vector as wrappers
from torch import nn
from torch.distributions import Categorical

from nppsim import NppVectorEnv

GAMMA, GAE_LAMBDA, CLIP_RANGE, EPOCHS, MINIBATCHES = 0.995, 0.95, 0.2, 4, 4
Rollout = dict[str, torch.Tensor]  # name -> [T, N, ...]


class Agent(nn.Module):
    """Actor and critic with two hidden layers each."""

    def __init__(self, inputs: int, actions: int):
        super().__init__()
        self.actor, self.critic = (
            nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))
            for outputs in (actions, 1)
        )
        nn.init.orthogonal_(self.actor[-1].weight, 0.01)  # all actions equally likely at first

    def forward(self, x: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        return Categorical(logits=self.actor(x)), self.critic(x).squeeze(-1)


class Collector:
    """Environments and the observations from which the next rollout continues."""

    def __init__(self, levels: str | None, num_envs: int, seed: int):
        envs = NppVectorEnv(levels, num_envs, gamma=GAMMA)
        self.envs = wrappers.NormalizeObservation(wrappers.FlattenObservation(envs))
        self.obs, _ = self.envs.reset(seed=seed)
        # In NEXT_STEP mode the step after the end of an episode ignores the action and returns the next episode's start.
        self.resetting = np.zeros(num_envs, bool)

    def collect(self, agent: Agent, length: int) -> tuple[Rollout, list[bool]]:
        """Return a rollout of ``length`` decisions and, for each finished episode, whether it was won."""
        shape, outcomes = (length, len(self.resetting)), []
        obs = torch.zeros((*shape, self.obs.shape[1]))
        actions, log_probs, rewards, values, terminated, resets = (torch.zeros(shape) for _ in range(6))
        for t in range(length):
            obs[t] = torch.as_tensor(self.obs).float()
            resets[t] = torch.as_tensor(self.resetting)
            with torch.no_grad():
                distribution, values[t] = agent(obs[t])
                actions[t] = distribution.sample()
                log_probs[t] = distribution.log_prob(actions[t])
            self.obs, reward, ended, truncated, infos = self.envs.step(actions[t].long().numpy())
            rewards[t], terminated[t] = torch.as_tensor(reward), torch.as_tensor(ended)
            self.resetting = ended | truncated
            outcomes += infos["is_success"][self.resetting].tolist() if self.resetting.any() else []
        with torch.no_grad():
            _, last_value = agent(torch.as_tensor(self.obs).float())
        values = torch.cat([values, last_value[None]])
        resets = torch.cat([resets, torch.as_tensor(self.resetting)[None].float()])
        advantages = compute_gae(rewards, values, terminated, resets)
        rollout = {"obs": obs, "actions": actions, "log_probs": log_probs, "advantages": advantages}
        return rollout | {"returns": advantages + values[:-1], "resets": resets[:-1]}, outcomes


def compute_gae(
    rewards: torch.Tensor, values: torch.Tensor, terminated: torch.Tensor, resets: torch.Tensor
) -> torch.Tensor:
    """Generalized advantage estimates [T, N]; ``values`` and ``resets`` have one row more.

    After a time-out the value of the last state is bootstrapped: the step that resets observes that state.
    """
    advantages, following = torch.zeros_like(rewards), torch.zeros(rewards.shape[1])
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + GAMMA * values[t + 1] * (1 - terminated[t]) - values[t]
        following = delta + GAMMA * GAE_LAMBDA * (1 - resets[t + 1]) * following
        advantages[t] = following
    return advantages


def update(agent: Agent, optimizer: torch.optim.Optimizer, rollout: Rollout) -> None:
    """Optimise the clipped surrogate objective for some epochs over the rollout."""
    flat = {name: values.flatten(0, 1) for name, values in rollout.items()}
    decisions = (flat["resets"] == 0).nonzero().squeeze(1)  # steps that reset have no decision
    for _ in range(EPOCHS):
        for rows in decisions[torch.randperm(len(decisions))].chunk(MINIBATCHES):
            batch = {name: values[rows] for name, values in flat.items()}
            distribution, value = agent(batch["obs"])
            ratio = (distribution.log_prob(batch["actions"]) - batch["log_probs"]).exp()
            advantage = batch["advantages"]
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy_loss = -torch.min(ratio * advantage, ratio.clamp(1 - CLIP_RANGE, 1 + CLIP_RANGE) * advantage).mean()
            value_loss = (value - batch["returns"]).pow(2).mean()
            loss = policy_loss + 0.5 * value_loss - 0.01 * distribution.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def main(argv: list[str] | None = None) -> float:
    """Train and return the success rate of the last rollout with finished episodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--levels", help="folder of levels (default: the 30 levels shipped with nppsim)")
    parser.add_argument("--steps", type=int, default=500_000, help="decisions of all environments together")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--rollout", type=int, default=128, help="decisions per environment and update")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)

    collector = Collector(args.levels, args.num_envs, args.seed)
    agent = Agent(collector.obs.shape[1], collector.envs.single_action_space.n)
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
    success, begin, steps_per_update = 0.0, time.monotonic(), args.rollout * args.num_envs
    for i in range(1, max(args.steps // steps_per_update, 1) + 1):
        rollout, outcomes = collector.collect(agent, args.rollout)
        update(agent, optimizer, rollout)
        success = float(np.mean(outcomes)) if outcomes else success
        steps = i * steps_per_update
        speed = steps / (time.monotonic() - begin)
        print(f"{steps:>9} steps  {speed:7.0f} per s  success {success:.2f} of {len(outcomes)} episodes")
    collector.envs.close()
    return success


if __name__ == "__main__":
    main()
