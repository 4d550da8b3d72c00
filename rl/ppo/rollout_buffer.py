"""Rollout buffer of torch tensors; observations have the dtypes of the layout, so images stay uint8."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import torch
from gymnasium import spaces

from nppsim.observe import layout
from nppsim.observe.stacking import NO_STACKS, Stacking, frames_back


class RolloutBuffer:
    """T decisions of N environments.

    obs: key -> tensor [T, N, *shape] in the layout's dtype; for stacked observations, the newest frame.
    actions: int64[T, N].
    log_probs: float32[T, N, 6], log-probabilities of all actions under the rollout policy.
    values, rewards, advantages, returns: float32[T, N].
    episode_ends, wins: bool[T, N], True for the last decision of an episode, and for a decision that wins it.
    ages: uint8[T, N], number of earlier frames of the episode, up to the length of the stacks minus 1.
    all_gather: function that maps float32[n] of this process to the concatenated values of all processes.
    Each frame is stored once, and ``observations`` builds the stacks.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        device: torch.device | str = "cpu",
        n_envs: int = 1,
        stacking: Stacking = NO_STACKS,
    ):
        self.device = torch.device(device)
        self.shape = (buffer_size, n_envs)
        self.all_gather: Callable[[torch.Tensor], torch.Tensor] = lambda values: values

        def zeros(dtype: torch.dtype, *more: int) -> torch.Tensor:
            return torch.zeros((*self.shape, *more), dtype=dtype, device=self.device)

        self._frames, self._pads_with_zeros = stacking.stacked(observation_space), stacking.padding == "zero"
        self._stored = {}  # key -> [k + T, N, *shape]: k frames before the rollout, for stacks
        for key in observation_space:
            spec, before = layout.SPECS[key], stacking.frames(key) - 1
            size = (buffer_size + before, n_envs, *spec.shape)
            self._stored[key] = torch.zeros(size, dtype=getattr(torch, spec.dtype), device=self.device)
        self.obs = {key: stored[stacking.frames(key) - 1 :] for key, stored in self._stored.items()}
        self._longest = max(self._frames.values(), default=1)
        self.ages = zeros(torch.uint8)
        self.actions = zeros(torch.int64)
        self.log_probs = zeros(torch.float32, int(action_space.n))
        self.values = zeros(torch.float32)
        self.rewards = zeros(torch.float32)
        self.advantages = zeros(torch.float32)
        self.returns = zeros(torch.float32)
        self.episode_ends = zeros(torch.bool)
        self.wins = zeros(torch.bool)

    def __len__(self) -> int:
        return self.shape[0] * self.shape[1]

    def explained_variance(self) -> float:
        """Return the share of the returns' variance that the values explain; NaN if all returns are equal."""
        returns, values = (self.all_gather(self.flat(name)) for name in ("returns", "values"))
        variance = returns.var()
        return float(1 - (returns - values).var() / variance) if variance > 0 else float("nan")

    def minibatches(self, size: int, rng: np.random.Generator) -> Iterator[torch.Tensor]:
        """Yield minibatches of indices int64[size] into the flattened samples, in random order, each sample at most once.

        With graph observations, a minibatch comes from a few environments (``grouped_order``).  It is sorted by level, so the
        threads that share it have few graphs in common.
        """
        graphs = "graph_state" in self.obs
        drawn = grouped_order(*self.shape, size, rng) if graphs else rng.permutation(len(self))
        order = torch.from_numpy(drawn).to(self.device)
        for first in range(0, len(self) - size + 1, size):
            index = order[first : first + size]
            if graphs:
                index = index[self.flat_obs("graph_state")[index, 0].argsort(stable=True)]
            yield index

    def evaluation_order(self) -> torch.Tensor:
        """Return the order int64[T * N] in which a network evaluates a whole rollout."""
        return torch.arange(len(self), device=self.device)

    @property
    def segment(self) -> int:
        """Number of consecutive decisions of ``evaluation_order`` that must stay together."""
        return 1

    def flat(self, name: str) -> torch.Tensor:
        """Return a field with T and N merged, [T * N, ...]."""
        return getattr(self, name).flatten(0, 1)

    def flat_obs(self, key: str) -> torch.Tensor:
        """Return all observations of a key, [T * N, *shape]."""
        return self.obs[key].flatten(0, 1)

    def observations(self, index: torch.Tensor, keys: Iterable[str] | None = None) -> dict[str, torch.Tensor]:
        """Return the observations of the flattened samples ``index``, int64[B].  keys: None for all keys."""
        return {
            key: self.stacks(key, index) if key in self._frames else self.flat_obs(key).index_select(0, index)
            for key in (self.obs if keys is None else keys)
        }

    def stacks(self, key: str, index: torch.Tensor) -> torch.Tensor:
        """Return stacks [B, frames, *shape] of the flattened samples ``index``, int64[B], the oldest frame first."""
        frames, envs = self._frames[key], self.shape[1]
        back = torch.arange(frames - 1, -1, -1, device=self.device)
        offsets, padded = frames_back(back, self.ages.view(-1)[index].long()[:, None])
        # The newest frame of sample t * N + n is in row (t + frames - 1) * N + n; the previous frame is N rows before.
        rows = (index + (frames - 1) * envs)[:, None] - envs * offsets
        stacks = self._stored[key].flatten(0, 1)[rows]
        if self._pads_with_zeros:
            stacks[padded] = 0
        return stacks

    def begin(self, observations: Mapping[str, np.ndarray]) -> None:
        """Start a rollout: store the earlier frames in the stacks of ``observations``, with their padding."""
        for key, frames in self._frames.items():
            before = torch.from_numpy(observations[key][:, :-1]).transpose(0, 1)
            self._stored[key][: frames - 1].copy_(before)
        self.ages[0] = self._longest - 1

    def store_ages(self, t: int) -> None:
        """Store the ages at decision t > 0; the episode ends of decision t - 1 must be stored."""
        self.ages[t] = (self.ages[t - 1] + 1).clamp(max=self._longest - 1) * ~self.episode_ends[t - 1]

    def store_observations(
        self, t: int, rows: slice, observations: Mapping[str, np.ndarray]
    ) -> dict[str, torch.Tensor]:
        """Store the observations of the environments ``rows`` before decision t; return the inputs of the network.

        observations: key -> [N, ...], observations of all environments, with stacks.
        """
        for key, store in self.obs.items():
            current = torch.from_numpy(observations[key][rows])
            store[t, rows].copy_(current[:, -1] if key in self._frames else current)
        shown = {key: store[t, rows] for key, store in self.obs.items() if key not in self._frames}
        if self._frames:
            first, last, _ = rows.indices(self.shape[1])
            index = t * self.shape[1] + torch.arange(first, last, device=self.device)
            shown |= {key: self.stacks(key, index) for key in self._frames}
        return shown


def grouped_order(steps: int, envs: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return a random order of all samples, int64[steps * envs], for minibatches that need few different graphs.

    The environments are divided into random groups.  The samples of one group fill two minibatches.  A minibatch encodes
    each distinct graph once, so with four groups it encodes about a quarter of the graphs.
    If the sizes do not divide evenly, the order is random without groups.
    """
    groups = max(steps * envs // size // 2, 1)
    if envs % groups or steps * (envs // groups) % size:
        return rng.permutation(steps * envs)
    chosen = rng.permutation(envs).reshape(groups, -1)
    samples = (np.arange(steps)[:, None] * envs + chosen[:, None]).reshape(groups, -1)
    return rng.permutation(rng.permuted(samples, axis=1).reshape(-1, size)).reshape(-1)
