"""PPO for recurrent networks, with one recurrent state per environment, trained on sequences of decisions.

    ppo = RecurrentPPO(env, "vision_free+gru", config, plan, statistics=statistics)

The state before a decision is part of its observation (``rl.policy.recurrent``) and is stored with it.  A rollout consists
of segments of ``memory_segment`` decisions of one environment.  A minibatch consists of whole segments.  Gradients flow
within a segment, up to the end of an episode.  A segment begins with the stored state, also for the reference policy of the
KL penalty, although its own states would differ.
Source: Kapturowski et al. 2019 (stored states).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from hardware import Plan
from nppsim.errors import ConfigError
from rl.config.ppo import MEMORY_SEGMENT, PPOConfig
from rl.policy.architectures import get_architecture
from rl.policy.recurrent import FOLLOWS, RECURRENT_STATE
from rl.ppo.ppo import PPO
from rl.ppo.rollout_buffer import RolloutBuffer

STATE = "recurrent_states"  # key in a checkpoint's training state


class RecurrentBuffer(RolloutBuffer):
    """A rollout with recurrent states, divided into segments.

    obs[RECURRENT_STATE]: float32[T, N, size], the state before each decision.
    segments: int64[S, L], indices of the decisions of each segment; ``set_segment_length`` sets it.
    ``observations`` adds FOLLOWS, True for decisions that follow another decision of the same segment and episode.
    """

    segments: torch.Tensor

    def __init__(self, *arguments: Any, state_size: int, **keywords: Any):
        super().__init__(*arguments, **keywords)
        self.obs[RECURRENT_STATE] = torch.zeros((*self.shape, state_size), device=self.device)

    def set_segment_length(self, length: int) -> None:
        """Divide the rollout into segments of ``length`` decisions, which must divide the length of the rollout."""
        steps, envs = self.shape
        self.segments = torch.arange(steps * envs, device=self.device).view(steps, envs).T.reshape(-1, length)

    @property
    def segment(self) -> int:
        return self.segments.shape[1]

    def evaluation_order(self) -> torch.Tensor:
        return self.segments.flatten()

    def minibatches(self, size: int, rng: np.random.Generator) -> Iterator[torch.Tensor]:
        """Yield minibatches of indices into the flattened samples: whole segments in random order, each once."""
        order, count = torch.from_numpy(rng.permutation(len(self.segments))).to(self.device), size // self.segment
        for first in range(0, len(order) - count + 1, count):
            yield self.segments[order[first : first + count]].flatten()

    def observations(self, index: torch.Tensor, keys: Iterable[str] | None = None) -> dict[str, torch.Tensor]:
        observations = super().observations(index, keys)
        if keys is None and bool((follows := self.follows(index)).any()):
            observations[FOLLOWS] = follows
        return observations

    def follows(self, index: torch.Tensor) -> torch.Tensor:
        """Return bool[B], True for rows that follow the previous row in the same segment and episode."""
        follows = torch.zeros_like(index, dtype=torch.bool)
        envs = self.shape[1]
        next_one = (index[1:] == index[:-1] + envs) & (index[1:] // envs % self.segment != 0)
        follows[1:] = next_one & ~self.flat("episode_ends")[index[:-1]]
        return follows


class RecurrentPPO(PPO):
    """PPO with recurrent states.  Arguments are those of PPO.

    architecture: name of a recurrent architecture.
    states: float32[N, size], recurrent state of each environment.
    Raises ConfigError if the length of segments does not divide those of rollout and minibatches.
    """

    rollout_buffer: RecurrentBuffer
    buffer_class = RecurrentBuffer

    def __init__(self, env: Any, architecture: str, config: PPOConfig, plan: Plan, **keywords: Any):
        size = get_architecture(architecture).memory
        self.buffer_settings = {"state_size": size}
        self.states = np.zeros((env.sim.num_envs, size), np.float32)
        self._after = np.zeros_like(self.states)  # states after the latest decision, before resets
        super().__init__(env, architecture, config, plan, **keywords)
        self.rollout_buffer.set_segment_length(segment_length(config, plan))

    # Rollout

    @property
    def observations(self) -> Mapping[str, np.ndarray]:
        return {**self.sim.obs, RECURRENT_STATE: self.states}

    def final_observations(self, final_obs: Mapping[str, np.ndarray], t: int) -> Mapping[str, np.ndarray]:
        """Add the recurrent state after decision t."""
        return {**final_obs, RECURRENT_STATE: self._after}

    def policy_outputs(self, t: int, rows: slice, obs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        logits, values, states = self.policy.step(obs)
        assert states is not None
        self._after[rows] = states.cpu().numpy()
        return logits, values

    def after_decision(self, t: int) -> None:
        """Update the states; reset them where an episode begins."""
        ended = self.sim.terminated | self.sim.truncated
        self.states = np.where(ended[:, None], np.float32(0), self._after)

    # Checkpoints

    def extra_state(self) -> dict[str, Any]:
        return {STATE: self.states.copy()}

    def load_extra_state(self, training: Mapping[str, Any]) -> None:
        self.states = np.array(training[STATE], np.float32)


def segment_length(config: PPOConfig, plan: Plan) -> int:
    """Return the length of segments: the setting, or the largest divisor of rollout and minibatch up to MEMORY_SEGMENT.

    Raises ConfigError for settings that are incompatible with these sizes.
    """
    rollout, minibatch, wanted = plan.rollout_length, plan.minibatch_size, config.memory_segment
    possible = [n for n in range(1, rollout + 1) if rollout % n == 0 and minibatch % n == 0]
    if wanted is not None and wanted not in possible:
        numbers = ", ".join(map(str, possible))
        advice = f"segments divide rollouts ({rollout} decisions) and minibatches ({minibatch}); give one of {numbers}"
        raise ConfigError(advice, "--memory-segment", wanted)
    return wanted or max(n for n in possible if n <= MEMORY_SEGMENT)
