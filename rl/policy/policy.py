"""The policy: an actor-critic for imitation, PPO, evaluation and video.

It reads raw observations, which its first layer normalises.  ``rl.policy.sb3`` adapts it to Stable-Baselines3's algorithms.
"""

import contextlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from stable_baselines3.common.torch_layers import MlpExtractor
from torch import nn

from hardware import PRECISIONS
from nppsim.actions import NUM_ACTIONS
from nppsim.errors import UserError
from nppsim.gym.spaces import observation_space
from nppsim.observe.foresight import AHEAD
from nppsim.observe.foresight_settings import Foresight
from nppsim.observe.stacking import Stacking
from nppsim.observe.statistics import ObservationStatistics
from rl.policy.architectures import get_architecture
from rl.policy.constants import DEATH_PENALTY
from rl.policy.mirror import averaged, with_mirror_images
from rl.policy.networks import DeepHeads, Encoder, ObservationError, check_batch
from rl.policy.recurrent import FOLLOWS, RECURRENT_STATE, RecurrentLayer
from rl.policy.subtasks import SUBTASK, HighLevelPolicy

LEARNING_RATE = 3e-4  # default of the optimiser; imitation and PPO set their own
GAINS = {"features_extractor": math.sqrt(2), "mlp_extractor": math.sqrt(2), "action_net": 0.01, "value_net": 1.0}


class WeightsError(UserError, RuntimeError):
    """Weights of another dtype than the network's."""


class NppPolicy(nn.Module):
    """Actor-critic over Dict observations and six actions.

    observation_space: Dict space with at least the keys of the architecture, in the shapes and dtypes of the layout or of
        ``nppsim.gym.spaces``.
    architecture: name in ``rl.policy.architectures.ARCHITECTURES``.
    statistics: statistics for the normaliser; without them, the first forward pass raises StatisticsError.
    precision: "float32", or "bf16" for autocast of encoder and hidden layers.  The normaliser and the output layers always
        compute in float32.
    learning_rate: initial learning rate of the optimiser.
    Raises ArchitectureError, ObservationError, StatisticsError, and ValueError for an unknown precision.
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        architecture: str = "mlp_baseline",
        statistics: ObservationStatistics | None = None,
        precision: str = "float32",
        learning_rate: float = LEARNING_RATE,
    ):
        super().__init__()
        self._architecture = chosen = get_architecture(architecture)
        self.features_extractor = Encoder(observation_space, architecture)
        width = self.features_extractor.features_dim
        self.high_level = HighLevelPolicy(width, chosen.subtasks) if chosen.subtasks else None
        self.memory = RecurrentLayer(width, chosen.memory) if chosen.memory else None
        self.mlp_extractor: MlpExtractor | DeepHeads
        if chosen.deep is None:
            self.mlp_extractor = MlpExtractor(width, list(chosen.heads), nn.ReLU, device="cpu")
        else:
            self.mlp_extractor = DeepHeads(width, chosen.heads[-1], chosen.deep)
        self.action_net = nn.Linear(self.mlp_extractor.latent_dim_pi, NUM_ACTIONS)
        self.value_net = nn.Linear(self.mlp_extractor.latent_dim_vf, 1)
        for name, gain in GAINS.items():
            for module in getattr(self, name).modules():
                _init_orthogonal(module, gain)
        self._learning_rate = learning_rate
        self._optimizer: torch.optim.Optimizer | None = None
        self.precision = precision
        if statistics is not None:
            self.set_statistics(statistics)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load weights as ``torch.nn.Module`` does, without conversion.  Raises WeightsError for tensors of another dtype."""
        own = self.state_dict()
        for name, tensor in state_dict.items():
            if name in own and tensor.dtype != own[name].dtype:
                raise WeightsError(f"{name} is {tensor.dtype}, expected {own[name].dtype}")
        return super().load_state_dict(state_dict, strict, assign)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """Adam, created at the first use: creating it makes PyTorch import its compiler, which takes two seconds."""
        if self._optimizer is None:
            # fused: one kernel for all tensors, as small networks spend most time on launches
            self._optimizer = torch.optim.Adam(self.parameters(), lr=self._learning_rate, eps=1e-5, fused=True)
        return self._optimizer

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.value_net.weight.device

    @property
    def architecture(self) -> str:
        """Name of the architecture."""
        return self._architecture.name

    @property
    def observations(self) -> tuple[str, ...]:
        """Observation keys of the network in canonical order."""
        return self._architecture.observations

    @property
    def stacking(self) -> Stacking:
        """Number of frames per observation."""
        return self._architecture.stacking

    @property
    def foresight(self) -> Foresight:
        """Settings of the observation ``foresight``."""
        return self._architecture.foresight

    @property
    def shielded(self) -> bool:
        """True if the logits of deadly actions are lowered (``death_penalty``)."""
        return self._architecture.shielded

    @property
    def precision(self) -> str:
        """Precision of the forward pass, "float32" or "bf16"; may be changed at any time."""
        return self._precision

    @precision.setter
    def precision(self, value: str) -> None:
        if value not in PRECISIONS:
            raise ValueError(f"unknown precision {value!r}; known: {', '.join(PRECISIONS)}")
        self._precision = value

    @property
    def statistics(self) -> ObservationStatistics | None:
        """Statistics of the normaliser; None before they are set."""
        return self.features_extractor.normalize.statistics

    def set_statistics(self, statistics: ObservationStatistics) -> None:
        """Set the statistics of the normaliser.  Raises StatisticsError for another layout or fewer than 2 samples."""
        self.features_extractor.normalize.set_statistics(statistics)

    def logits_and_values(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits float32[N, 6] and values float32[N].

        observations: raw observations {key: tensor [N, *shape]} on the device of the policy; other keys are ignored.
        """
        logits, values, _ = self.step(observations)
        return logits, values

    @torch.no_grad()
    def compute(self, obs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return logits float32[N, 6] and values float32[N] for raw observations {key: array [N, *shape]}."""
        logits, values = self.logits_and_values(self.to_tensors(obs))
        return logits.cpu().numpy(), values.cpu().numpy()

    def step(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return logits, values, and the new recurrent states float32[N, size] (None for a feed-forward policy)."""
        states = None
        with self._autocast():
            mirror = self._architecture.mirror
            features = self.features_extractor(
                with_mirror_images(observations, self.observations) if mirror else observations
            )
            if self.high_level:
                features = self.high_level(features, observations)
            if self.memory:
                features, states = self.memory(features, observations)
            latent_actor, latent_critic = self.mlp_extractor(features)
        # Output layers in float32: logits with 8 bits would tie actions and distort PPO's probability ratio.
        logits, values = self.action_net(latent_actor.float()), self.value_net(latent_critic.float()).flatten()
        if mirror:
            logits, values = averaged(logits, values)
        if self._architecture.shielded:
            logits = logits - death_penalty(observations["foresight"])
        return logits, values, states

    def in_sequences(
        self, observations: Mapping[str, torch.Tensor], follows: torch.Tensor, states: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        """Add sequence structure to observations, for a recurrent policy.

        follows: bool[N], True for rows that continue the previous row.
        states: float32[N, size], recurrent states, read in rows that begin a sequence; None: zeros.
        """
        return {**observations, FOLLOWS: follows, **({} if states is None else {RECURRENT_STATE: states})}

    def choose_subtasks(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits float32[N, 5] of the subtasks and values float32[N] of the high level of a hierarchical policy."""
        assert self.high_level is not None
        return self.high_level.choose(self.features(observations), observations)

    def gradient_is_optional(self, name: str) -> bool:
        """Return True for the tensors of the high level, which have no gradient if no subtask is chosen."""
        return name.startswith(self._architecture.fresh)

    def features(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the features float32[N, F] of the encoder, for observations as in ``logits_and_values``."""
        with self._autocast():
            return self.features_extractor(observations).float()

    def cache_graphs(self, observations: Mapping[str, torch.Tensor]) -> None:
        """Cache the encoded graphs of these observations, for passes without gradients, until the weights change.

        Not thread-safe.  It does nothing for networks without a graph.
        """
        if self.features_extractor.graph:
            with self._autocast():
                self.features_extractor.graph.cache(observations["graph_state"])

    def clear_graph_cache(self) -> None:
        """Clear the cache of ``cache_graphs``, so that results do not depend on earlier observations.

        The rounding of a graph's encoding depends on the graphs that were encoded with it.
        """
        if self.features_extractor.graph:
            self.features_extractor.graph.clear_cache()

    def _autocast(self) -> contextlib.AbstractContextManager:
        if self.precision == "float32":
            return contextlib.nullcontext()
        # no cache of converted weights, as each is used once and threads would share the cache
        return torch.autocast(self.device.type, dtype=torch.bfloat16, cache_enabled=False)

    @torch.no_grad()
    def act(
        self, obs: Mapping[str, np.ndarray], *, deterministic: bool, rng: torch.Generator | None = None
    ) -> np.ndarray:
        """Return actions int64[N] for raw observations {key: array [N, *shape]}; other keys are ignored.

        deterministic: True for the most probable action, False to sample.
        rng: generator on the CPU for sampling, whatever the device of the policy; None: torch's global generator.
        Raises ObservationError for a recurrent policy; use ``rl.policy.player.player_of`` instead.
        """
        if self.memory:
            raise _needs_player(self.architecture)
        return self.act_with_states(obs, deterministic=deterministic, rng=rng)[0]

    @torch.no_grad()
    def act_with_states(
        self, obs: Mapping[str, np.ndarray], *, deterministic: bool, rng: torch.Generator | None = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return actions as ``act``, and the new recurrent states float32[N, size] (None for a feed-forward policy)."""
        tensors = self.to_tensors(obs)
        self.cache_graphs(tensors)
        logits, _, states = self.step(tensors)
        logits = logits.cpu()
        actions = (logits.argmax(dim=1) if deterministic else sample_actions(logits, rng)).numpy()
        return actions, None if states is None else states.cpu().numpy()

    def to_tensors(self, obs: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
        """Convert the network's observations to tensors on its device.  On the CPU, they share the arrays' memory."""
        check_batch(obs, self.observations, self.stacking)
        device = self.device
        own = [key for key, part in ((SUBTASK, self.high_level), (RECURRENT_STATE, self.memory)) if part and key in obs]
        return {key: torch.from_numpy(obs[key]).to(device) for key in (*self.observations, *own)}

    @torch.no_grad()
    def log_probs(self, obs: Mapping[str, np.ndarray], rows: slice) -> torch.Tensor:
        """Return log-probabilities float32[n, 6] for the rows of observations [N, ...], which may have other keys, too."""
        inputs = self.to_tensors({key: obs[key][rows] for key in self.observations})
        return F.log_softmax(self.logits_and_values(inputs)[0].float(), dim=1)

    @torch.no_grad()
    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """Return actions, int64[N] or int64[], and the new recurrent states, as policies of Stable-Baselines3 do.

        observation: raw observations with or without a batch axis, in the shapes of the layout or of ``nppsim.gym.spaces``.
        state: result of the previous call; None at the start of episodes, and for a feed-forward policy.
        episode_start: bool[N], True to reset the recurrent state; None: nowhere.
        """
        if not isinstance(observation, dict):
            raise ObservationError(f"the policy reads a dict of observations, got {type(observation).__name__}")
        self.eval()
        arrays = {key: np.asarray(value) for key, value in observation.items() if key in self.observations}
        batched = any(array.ndim > len(_own_axes(self.stacking.shape(key), array)) for key, array in arrays.items())
        if not batched:
            arrays = {key: array[None] for key, array in arrays.items()}
        if self.memory:
            rows = len(next(iter(arrays.values())))
            states = np.zeros((rows, self.memory.size), np.float32) if state is None else state[0]
            begins = np.zeros(rows, bool) if episode_start is None else np.asarray(episode_start, bool)
            arrays[RECURRENT_STATE] = np.where(begins[:, None], np.float32(0), states)
        actions, new = self.act_with_states(arrays, deterministic=deterministic)
        return (actions if batched else actions[0]), (None if new is None else (new,))


def _init_orthogonal(module: nn.Module, gain: float) -> None:
    """Initialise a linear or convolutional layer as Stable-Baselines3 does."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.orthogonal_(module.weight, gain=gain)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _needs_player(architecture: str) -> ObservationError:
    """Return the error for a recurrent policy that is used without its states."""
    return ObservationError(
        f"{architecture} is recurrent, and this call would lose its state; use rl.policy.player.player_of(policy, num_envs)"
    )


def _own_axes(shape: tuple[int, ...], values: np.ndarray) -> tuple[int, ...]:
    """Return the shape of one observation: that of the layout, or a vector as in ``nppsim.gym.spaces``."""
    return (math.prod(shape),) if values.shape[-1:] == (math.prod(shape),) else shape


def death_penalty(foresight: torch.Tensor) -> torch.Tensor:
    """Return penalties float32[N, 6] to subtract from logits: above 0 for actions that lead to death in all branches.

    The look-ahead also counts dead ends as death.  The penalty is finite, so that losses and gradients are finite.  The
    later the death, the smaller is the penalty.
    foresight: float32[N, 6, 4, 11] or [N, 264], raw observations.
    """
    branches = foresight.unflatten(1, (NUM_ACTIONS, -1, len(AHEAD))) if foresight.dim() == 2 else foresight
    latest = branches[..., AHEAD.death].amin(dim=2)  # 0 if a branch survives
    return DEATH_PENALTY * ((latest > 0).float() + latest)


def sample_actions(logits: torch.Tensor, rng: torch.Generator | None = None) -> torch.Tensor:
    """Sample an action for each row of logits float32[N, A] from their softmax; return int64[N].

    Exponential race: each action draws a number from Exp(1), which is divided by the probability of the action.  The
    probability that an action has the smallest quotient is then the probability of the action.
    """
    race = torch.empty_like(logits).exponential_(generator=rng)
    return (logits - race.log()).argmax(dim=1)


def build_policy(
    architecture: str,
    statistics: ObservationStatistics | None = None,
    *,
    precision: str = "float32",
    device: str | torch.device = "cpu",
) -> NppPolicy:
    """Return a new policy; torch's global generator draws the initial weights."""
    chosen = get_architecture(architecture)
    space = observation_space(chosen.observations, chosen.stacking)
    policy = NppPolicy(space, architecture, statistics, precision)
    return policy.to(device)
