"""Hierarchical PPO: BatchPPO whose every environment follows a subtask that a high level has chosen for it.

    ppo = HierarchicalPPO(env, "vision_free+subtasks50", config, plan, statistics=statistics)

Right after each decision it is seen which subtasks are over, and new ones are drawn: what the environments show and the
subtask in force are one observation, stored and learned from as such.  The high level learns from each choice, with the
discounted rewards while it lasted; what an unfinished subtask is still worth at the end of a rollout, the low level's critic
says, who knows the subtask and the time in it.  Both levels have the same rewards and discount.

With ``from_stage`` it is plain PPO, without subtasks, until the curriculum has come to that stage; what the subtasks change
in the network is zero then, so that the policy does not jump.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from nppsim.errors import ConfigError
from rl.policy.architectures import get_architecture
from rl.policy.commander import COMMAND, EXIT, SUBTASKS
from rl.policy.commands import Commands, with_command
from rl.policy.policy import sample_actions
from rl.ppo.hierarchy.losses import CommandLosses, HierarchicalSamples, normalised_choices
from rl.ppo.hierarchy.returns import semi_markov
from rl.ppo.losses import LossSettings
from rl.ppo.passes import Passes
from rl.ppo.ppo import BatchPPO
from rl.ppo.rollout import TensorRolloutBuffer

STATE = "hierarchy"  # key in what a checkpoint keeps of training


class HierarchicalBuffer(TensorRolloutBuffer):
    """A rollout with the subtasks in force, and the choices among them.

    obs[COMMAND]: int64[T, N, 2], subtask and decisions since it was given, as the decision was made.
    chooses: bool[T, N], whether the subtask was chosen right before the decision.
    command_log_probs: float32[T, N, 5], of all subtasks, and command_values: float32[T, N], when it was; else 0.
    command_advantages, command_returns: float32[T, N], likewise.
    completed: bool[T, N], whether the decision completed its subtask.
    """

    def __init__(self, *arguments: Any, **keywords: Any):
        super().__init__(*arguments, **keywords)
        self.obs[COMMAND] = torch.zeros((*self.shape, 2), dtype=torch.int64, device=self.device)
        self.chooses, self.completed = torch.zeros((2, *self.shape), dtype=torch.bool, device=self.device)
        self.command_log_probs = torch.zeros((*self.shape, len(SUBTASKS)), device=self.device)
        self.command_values, self.command_advantages, self.command_returns = torch.zeros(
            (3, *self.shape), device=self.device
        )


class HierarchicalPPO(BatchPPO):
    """BatchPPO with subtasks; see there for the arguments.

    architecture: one with subtasks.
    from_stage: of the curriculum, before which there are none; None: from the start.  ConfigError for one that the training
        levels do not have.
    commanding: whether there are subtasks now; it stays so.
    commands: the subtasks in force.
    """

    rollout_buffer: HierarchicalBuffer
    buffer_class = HierarchicalBuffer
    further = CommandLosses()

    def __init__(self, env: Any, architecture: str, *arguments: Any, from_stage: str | None = None, **keywords: Any):
        longest = get_architecture(architecture).subtasks
        if not longest:
            raise ValueError(f"{architecture} has no subtasks; its name would end with +subtasksK")
        if "ranks" in keywords and keywords["ranks"].size > 1:
            advice = "is trained by one process so far; leave out --num-gpus and torchrun, or the subtasks"
            raise ConfigError(advice, "architectures", architecture)
        if from_stage is not None and from_stage not in env.sampler.stages:
            there = ", ".join(env.sampler.stages)
            raise ConfigError(
                f"the training dataset has no such levels, only {there}", "--hierarchical-from-stage", from_stage
            )
        super().__init__(env, architecture, *arguments, **keywords)
        self.from_stage = from_stage
        self.commanding = False
        count = self.sim.num_envs
        self.commands = Commands(count, longest)
        self._chosen = np.zeros(count, bool)  # whether the subtask in force was chosen for the decision that comes
        self._log_probs = torch.zeros(count, len(SUBTASKS))  # of all subtasks then
        self._command_values = torch.zeros(count)

    # -----------------------------------------------------------------------------------------------------------------
    # Rollout

    @property
    def seen(self) -> Mapping[str, np.ndarray]:
        return with_command(self.sim.obs, self.commands.now)

    def last_seen(self, final_obs: Mapping[str, np.ndarray], t: int) -> Mapping[str, np.ndarray]:
        """With the subtask that decision t was made under, one decision older: the episode would have gone on under it."""
        command = self.rollout_buffer.obs[COMMAND][t].cpu().numpy().copy()
        command[:, 1] += command[:, 0] >= 0
        return with_command(final_obs, command)

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        if not self.commanding and self._stage_is_reached():
            self.commanding = True
            self._choose(np.arange(self.sim.num_envs))
        return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)

    def _stage_is_reached(self) -> bool:
        stages = self.sampler.stages
        return self.from_stage is None or stages.index(self.sampler.stage) >= stages.index(self.from_stage)

    @torch.no_grad()
    def _choose(self, envs: np.ndarray) -> None:
        """New subtasks for some environments, drawn by the high level; int64[k]."""
        self._chosen[envs] = True
        if not len(envs):
            return
        obs = {key: values[envs] for key, values in self.sim.obs.items()}
        logits, values = self.policy.choose_subtasks(self.policy.to_tensors(obs))
        logits, rows = logits.cpu(), torch.from_numpy(envs)
        self._log_probs[rows], self._command_values[rows] = F.log_softmax(logits, dim=1), values.cpu()
        self.commands.give(envs, sample_actions(logits, self.sampling).numpy(), obs)

    def _decide(self, t: int) -> np.ndarray:
        buffer, chosen = self.rollout_buffer, torch.from_numpy(self._chosen)
        buffer.chooses[t] = chosen.to(self.device)
        buffer.command_log_probs[t] = (self._log_probs * chosen[:, None]).to(self.device)
        buffer.command_values[t] = (self._command_values * chosen).to(self.device)
        return super()._decide(t)

    def _prepare_decision(self, t: int) -> None:
        """See which subtasks are over after decision t, and choose anew there."""
        if not self.commanding:
            return
        ended = self.sim.terminated | self.sim.truncated
        won = self.rollout_buffer.wins[t].cpu().numpy() & (self.commands.now[:, 0] == EXIT)
        over, completed = self.commands.follow(self.sim.obs, ended)
        self.rollout_buffer.completed[t] = torch.from_numpy(completed | won).to(self.device)
        self._chosen[:] = False
        self._choose(np.flatnonzero(over))

    def _estimate(self) -> None:
        super()._estimate()
        buffer = self.rollout_buffer
        chosen = torch.from_numpy(self._chosen)
        last = torch.where(chosen.to(self.device), self._command_values.to(self.device), self._values(self.seen))
        buffer.command_advantages, buffer.command_returns = semi_markov(
            buffer.rewards,
            buffer.command_values,
            buffer.chooses,
            buffer.episode_ends,
            last,
            self.gamma,
            self.gae_lambda,
        )

    def _log_rollout(self, episodes: np.ndarray, seconds: float) -> None:
        super()._log_rollout(episodes, seconds)
        for tag, value in figures(self.rollout_buffer, self._chosen).items():
            self.logger.record(tag, value)

    # -----------------------------------------------------------------------------------------------------------------
    # Update

    def _passes(self, settings: LossSettings) -> Passes:
        passes, buffer = super()._passes(settings), self.rollout_buffer
        chooses = buffer.flat("chooses")
        passes.samples = HierarchicalSamples(
            **vars(passes.samples),
            chooses=chooses,
            command_log_probs=buffer.flat("command_log_probs"),
            command_advantages=normalised_choices(buffer.flat("command_advantages"), chooses),
            command_returns=buffer.flat("command_returns"),
        )
        return passes

    # -----------------------------------------------------------------------------------------------------------------
    # Kept

    def own_state(self) -> dict[str, Any]:
        return {
            STATE: {
                "commanding": self.commanding,
                "commands": self.commands.state(),
                "chosen": self._chosen.copy(),
                "log_probs": self._log_probs.clone(),
                "values": self._command_values.clone(),
            }
        }

    def load_own_state(self, training: Mapping[str, Any]) -> None:
        state = training[STATE]
        self.commanding = bool(state["commanding"])
        self.commands.load(state["commands"])
        self._chosen[:] = state["chosen"]
        self._log_probs.copy_(state["log_probs"])
        self._command_values.copy_(state["values"])

    def _excluded_save_params(self) -> list[str]:
        mine = ["commands", "commanding", "from_stage", "_chosen", "_log_probs", "_command_values"]
        return [*super()._excluded_save_params(), *mine]


def figures(buffer: HierarchicalBuffer, chosen: np.ndarray) -> dict[str, float]:
    """What the high level did in a rollout: tag -> value; nothing where there were no subtasks.

    chosen: bool[N], whether a subtask was chosen after the last decision.
    share/SUBTASK: of the decisions, under it.
    decisions/SUBTASK: how long those lasted that ended in the rollout, on average.
    completed/SUBTASK: share of these that were completed.
    choices_per_episode: subtasks per episode that ended; below 3 the high level has hardly anything to say.
    """
    command, ends = buffer.obs[COMMAND].cpu().numpy(), buffer.episode_ends.cpu().numpy()
    subtask, age = command[..., 0], command[..., 1]
    if (subtask < 0).any():
        return {}
    over = np.vstack([buffer.chooses.cpu().numpy()[1:], chosen[None]])
    completed = buffer.completed.cpu().numpy()
    told: dict[str, float] = {}
    for number, name in enumerate(SUBTASKS):
        mine = subtask == number
        told[f"hierarchy/share/{name}"] = float(mine.mean())
        if (mine & over).any():
            told[f"hierarchy/decisions/{name}"] = float(age[mine & over].mean()) + 1
            told[f"hierarchy/completed/{name}"] = float(completed[mine & over].mean())
    if ends.any():
        told["hierarchy/choices_per_episode"] = float(over.sum() / ends.sum())
    return told
