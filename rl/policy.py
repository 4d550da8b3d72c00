"""The policy: one Stable-Baselines3 actor-critic for imitation, PPO, evaluation and video.

It takes raw observations.  Stable-Baselines3's own preprocessing (which turns uint8 into float, and may divide by
255) is never called; normalising is the first layer of the network.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import nn

from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics
from rl.architectures import Encoder, ObservationError, check_batch, get_architecture

NUM_ACTIONS = 6
PRECISIONS = ("float32", "bf16")
ADAM = {"eps": 1e-5, "fused": True}  # one kernel for all tensors: an update of small networks is mostly call overhead


class NppPolicy(ActorCriticPolicy):
    """Actor-critic over Dict observations and six actions.

    observation_space: Dict with at least the keys of the architecture, shapes and dtypes of the layout.
    lr_schedule: progress remaining (1 to 0) -> learning rate of Adam.
    architecture: name in ``rl.architectures.ARCHITECTURES``.
    statistics: for the normaliser; without them the first forward pass raises StatisticsError.
    precision: "float32", or "bf16" for autocast of encoder and hidden layers.  Normalising, the output layers, and
        with them logits and values, stay float32 either way.
    Errors: ArchitectureError, ObservationError, StatisticsError, ValueError (precision, gSDE).
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        architecture: str = "mlp_baseline",
        statistics: ObservationStatistics | None = None,
        precision: str = "float32",
        use_sde: bool = False,
    ):
        self._architecture = get_architecture(architecture)
        if use_sde:
            raise ValueError("use_sde=True is for continuous actions; N++ has six discrete ones: leave it out")
        if not isinstance(action_space, spaces.Discrete):
            raise ValueError(f"the policy needs a Discrete action space, got {action_space}")
        heads = list(self._architecture.heads)
        super().__init__(
            observation_space,
            action_space,
            lr_schedule,
            net_arch={"pi": heads, "vf": heads},
            activation_fn=nn.ReLU,
            features_extractor_class=Encoder,
            features_extractor_kwargs={"architecture": architecture},
            normalize_images=False,
            optimizer_class=torch.optim.Adam,
            optimizer_kwargs=dict(ADAM),
        )
        # Stable-Baselines3 registers the one encoder under three names; the state dict shall hold each tensor once.
        del self._modules["pi_features_extractor"], self._modules["vf_features_extractor"]
        self.precision = precision
        if statistics is not None:
            self.set_statistics(statistics)

    @property
    def pi_features_extractor(self) -> Encoder:
        return self.features_extractor

    @property
    def vf_features_extractor(self) -> Encoder:
        return self.features_extractor

    @property
    def architecture(self) -> str:
        """Name of the architecture."""
        return self._architecture.name

    @property
    def observations(self) -> tuple[str, ...]:
        """Observation keys that the network reads, in canonical order."""
        return self._architecture.observations

    @property
    def precision(self) -> str:
        """"float32" or "bf16"; may be changed at any time."""
        return self._precision

    @precision.setter
    def precision(self, value: str) -> None:
        if value not in PRECISIONS:
            raise ValueError(f"unknown precision {value!r}; known: {', '.join(PRECISIONS)}")
        self._precision = value

    @property
    def statistics(self) -> ObservationStatistics | None:
        """What the normaliser holds; None before it is filled."""
        return self.features_extractor.normalize.statistics

    def set_statistics(self, statistics: ObservationStatistics) -> None:
        """Fill the frozen normaliser.  StatisticsError: other layout or fewer than 2 samples."""
        self.features_extractor.normalize.set_statistics(statistics)

    def logits_and_values(self, observations: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """One pass through the network: logits float32[N, 6] and values float32[N].

        observations: {key: tensor [N, *shape]}, raw, on the policy's device; further keys are ignored.
        """
        latent_actor, latent_critic = self.mlp_extractor(self.features(observations))
        # Output layers in float32: logits rounded to 8 bits would tie actions and make the PPO ratio jump.
        logits = self.action_net(latent_actor.float())
        values = self.value_net(latent_critic.float())
        return logits, values.flatten()

    def features(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Output of the encoder [N, F]."""
        return self.features_extractor(observations)

    @torch.no_grad()
    def act(
        self, obs: Mapping[str, np.ndarray], *, deterministic: bool, rng: torch.Generator | None = None
    ) -> np.ndarray:
        """Actions int64[N] for raw observations {key: array [N, *shape]}; further keys are ignored.

        deterministic: the most likely action instead of a sample.
        rng: a CPU generator, whatever the policy's device, so that a seed means the same on every machine; None
            draws from torch's global one.
        """
        logits, _ = self.logits_and_values(self.to_tensors(obs))
        logits = logits.cpu()
        return (logits.argmax(dim=1) if deterministic else sample_actions(logits, rng)).numpy()

    def to_tensors(self, obs: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
        """The observations that the network reads, as tensors on its device; on the CPU they share memory."""
        check_batch(obs, self.observations)
        device = self.device
        return {key: torch.from_numpy(obs[key]).to(device) for key in self.observations}
