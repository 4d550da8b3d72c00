"""The rollout buffer: torch tensors in the observations' own dtypes, so that images stay uint8 until the network."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import torch
from gymnasium import spaces

from nppsim.observe import layout
from nppsim.observe.stacking import NO_STACKS, Stacking, frames_back


class TensorRolloutBuffer:
    """T decisions of N environments.

    obs: key -> tensor [T, N, *shape] of the layout's dtype; of stacks, the newest frame.
    actions: int64[T, N].
    log_probs: float32[T, N, 6], of all actions, by the policy that played.
    values, rewards, advantages, returns: float32[T, N].
    episode_ends, wins: bool[T, N], whether the decision was its episode's last; whether it won it.
    all_gather: float32[n] of this process -> those of all processes that train together.
    ages: uint8[T, N], frames of the episode before the newest one, as far as stacks reach back.
    The arguments are those that Stable-Baselines3 gives to rollout buffers, and how many frames an observation shows.  Each
    frame is stored once; ``observations`` stacks them.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        device: torch.device | str = "cpu",
        gae_lambda: float = 1.0,
        gamma: float = 0.99,
        n_envs: int = 1,
        stacking: Stacking = NO_STACKS,
    ):
        self.device = torch.device(device)
        self.gamma = gamma
        self.gae_lambda = gae_lambda
        self.shape = (buffer_size, n_envs)
        self.all_gather: Callable[[torch.Tensor], torch.Tensor] = lambda values: values

        def zeros(dtype: torch.dtype, *more: int) -> torch.Tensor:
            return torch.zeros((*self.shape, *more), dtype=dtype, device=self.device)

        self._frames, self._pads_with_zeros = stacking.stacked(observation_space), stacking.padding == "zero"
        self._kept = {}  # key -> [frames before the rollout that a stack may show, then those of the rollout; N, *shape]
        for key in observation_space:
            spec, before = layout.SPECS[key], stacking.frames(key) - 1
            room = (buffer_size + before, n_envs, *spec.shape)
            self._kept[key] = torch.zeros(room, dtype=getattr(torch, spec.dtype), device=self.device)
        self.obs = {key: kept[stacking.frames(key) - 1 :] for key, kept in self._kept.items()}
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

    def reset(self) -> None:
        """Nothing to do: every row is overwritten by the next rollout."""

    def __len__(self) -> int:
        return self.shape[0] * self.shape[1]

    def compute_returns_and_advantages(self, last_values: torch.Tensor) -> None:
        """Generalised advantage estimation (Schulman et al. 2016); lambda 0: one-step TD, lambda 1: Monte Carlo.

        last_values: float32[N], values of the observations after the last decision.  Nothing is carried over an episode's
        end; the value of a state that was cut off by the time limit is in ``rewards`` already.
        """
        advantages, returns = estimated(
            self.rewards, self.values, self.episode_ends, last_values, self.gamma, self.gae_lambda
        )
        self.advantages.copy_(advantages)
        self.returns.copy_(returns)

    def surprises(self) -> torch.Tensor:
        """float32[T, N]: how much more a won episode brought from a decision on than the critic expected there; else 0.

        Episodes that are lost, or not over when the rollout ends, have none.  Levels that are always won need no exception:
        there the critic expects it.  Source: Oh et al. 2018 (self-imitation learning).
        """
        surprises, to_come = torch.zeros_like(self.values), torch.zeros_like(self.values[0])
        won = torch.zeros_like(self.wins[0])
        for t in reversed(range(self.shape[0])):
            ends = self.episode_ends[t]
            won = torch.where(ends, self.wins[t], won)
            to_come = self.rewards[t] + self.gamma * to_come * ~ends
            surprises[t] = (to_come - self.values[t]).clamp(min=0) * won
        return surprises

    def explained_variance(self) -> float:
        """Of the returns by the values: 1 is perfect, 0 no better than their mean; NaN where all returns are equal."""
        returns, values = (self.all_gather(self.flat(name)) for name in ("returns", "values"))
        spread = returns.var()
        return float(1 - (returns - values).var() / spread) if spread > 0 else float("nan")

    def minibatches(self, size: int, rng: np.random.Generator) -> Iterator[torch.Tensor]:
        """Indices into the flattened [T * N] samples: every sample once, in random order; a short last one is dropped.

        Where graphs are read, a minibatch is of a few environments (``grouped_order``), and decisions on one level come
        together in it: threads that share it out then have few graphs in common.
        """
        graphs = "graph_state" in self.obs
        drawn = grouped_order(*self.shape, size, rng) if graphs else rng.permutation(len(self))
        order = torch.from_numpy(drawn).to(self.device)
        for first in range(0, len(self) - size + 1, size):
            index = order[first : first + size]
            if graphs:
                index = index[self.flat_obs("graph_state")[index, 0].argsort(stable=True)]
            yield index

    def in_order(self) -> torch.Tensor:
        """int64[T * N]: the order in which a network is asked about the whole rollout."""
        return torch.arange(len(self), device=self.device)

    @property
    def segment(self) -> int:
        """Decisions in that order that stay together."""
        return 1

    def flat(self, name: str) -> torch.Tensor:
        """A field with T and N merged: [T * N, ...]."""
        return getattr(self, name).flatten(0, 1)

    def flat_obs(self, key: str) -> torch.Tensor:
        """All observations of a key: [T * N, *shape]."""
        return self.obs[key].flatten(0, 1)

    def observations(self, index: torch.Tensor, keys: Iterable[str] | None = None) -> dict[str, torch.Tensor]:
        """Observations of flattened samples ``index``; of these keys, all if None."""
        return {
            key: self.stacks(key, index) if key in self._frames else self.flat_obs(key).index_select(0, index)
            for key in (self.obs if keys is None else keys)
        }

    def stacks(self, key: str, index: torch.Tensor) -> torch.Tensor:
        """[B, frames, *shape]: a stacked observation of flattened samples ``index``, the oldest frame first."""
        frames, envs = self._frames[key], self.shape[1]
        back = torch.arange(frames - 1, -1, -1, device=self.device)
        places, padded = frames_back(back, self.ages.view(-1)[index].long()[:, None])
        # Sample t * N + n has its newest frame in row t + frames - 1 of what is kept; one frame back are N samples.
        rows = (index + (frames - 1) * envs)[:, None] - envs * places
        found = self._kept[key].flatten(0, 1)[rows]
        if self._pads_with_zeros:
            found[padded] = 0
        return found

    def begin(self, observations: Mapping[str, np.ndarray]) -> None:
        """A rollout begins where environments show ``observations``: their stacks, padded or not, come before it."""
        for key, frames in self._frames.items():
            before = torch.from_numpy(observations[key][:, :-1]).transpose(0, 1)
            self._kept[key][: frames - 1].copy_(before)
        self.ages[0] = self._longest - 1

    def note_ages(self, t: int) -> None:
        """How many frames of its episode come before that of decision t > 0; the ends of the decision before are stored."""
        self.ages[t] = (self.ages[t - 1] + 1).clamp(max=self._longest - 1) * ~self.episode_ends[t - 1]

    def observe(self, t: int, rows: slice, observations: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
        """Store what environments ``rows`` show before decision t; what a network is to be shown of it.

        observations: of all environments, key -> [N, ...], stacks where there are any.
        """
        for key, store in self.obs.items():
            seen = torch.from_numpy(observations[key][rows])
            store[t, rows].copy_(seen[:, -1] if key in self._frames else seen)
        shown = {key: store[t, rows] for key, store in self.obs.items() if key not in self._frames}
        if self._frames:
            first, last, _ = rows.indices(self.shape[1])
            index = t * self.shape[1] + torch.arange(first, last, device=self.device)
            shown |= {key: self.stacks(key, index) for key in self._frames}
        return shown


def estimated(
    rewards: torch.Tensor,
    values: torch.Tensor,
    episode_ends: torch.Tensor,
    last_values: torch.Tensor,
    gamma: float,
    gae_lambda: float,
    ratios: torch.Tensor | None = None,
    clips: tuple[float, float] = (1.0, 1.0),
) -> tuple[torch.Tensor, torch.Tensor]:
    """(advantages, returns), float32[T, N] both, of T decisions in N environments.

    rewards, values: float32[T, N].
    episode_ends: bool[T, N].
    last_values: float32[N], of what was seen after the last decision.
    ratios: float32[T, N], how much likelier each action is to the policy that is judged than to the one that played; None:
        they are the same.
    clips: largest ratio that an error counts times (rho), and that later errors count times (c).
    With ratios the returns are V-trace's targets; the advantage of a decision leaves out its own ratio, by which PPO's loss
    weighs it.  Where all ratios are 1, both are those of generalised advantage estimation.
    Source: Schulman et al. 2016 (GAE), Espeholt et al. 2018 (V-trace).
    """
    advantages, traces = torch.empty_like(values), torch.empty_like(values)
    trace, following = torch.zeros_like(last_values), last_values
    for t in reversed(range(len(values))):
        goes_on = (~episode_ends[t]).float()
        delta = rewards[t] + gamma * following * goes_on - values[t]
        advantages[t] = delta + gamma * gae_lambda * goes_on * trace
        if ratios is None:
            trace = advantages[t]
        else:
            rho, c = (ratios[t].clamp(max=clip) for clip in clips)
            trace = rho * delta + gamma * gae_lambda * c * goes_on * trace
        traces[t] = trace
        following = values[t]
    return advantages, traces + values


def grouped_order(steps: int, envs: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """int64[steps * envs]: every sample once; each two minibatches of ``size`` share a random group of environments.

    A minibatch encodes each distinct graph once, and what an environment sees is of few graphs: with a quarter of the
    environments in a minibatch, it has a quarter of the graphs.  Where sizes do not divide, the order is random throughout.
    """
    groups = max(steps * envs // size // 2, 1)
    if envs % groups or steps * (envs // groups) % size:
        return rng.permutation(steps * envs)
    chosen = rng.permutation(envs).reshape(groups, -1)
    samples = (np.arange(steps)[:, None] * envs + chosen[:, None]).reshape(groups, -1)
    return rng.permutation(rng.permuted(samples, axis=1).reshape(-1, size)).reshape(-1)
