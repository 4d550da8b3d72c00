"""Interoperability with Stable-Baselines3: an encoder and a policy for its algorithms, and its archives.

    PPO("MultiInputPolicy", env, policy_kwargs={"features_extractor_class": ScaledFeatures})
    PPO(SB3Policy, env, policy_kwargs={"architecture": "vision_free", "statistics": statistics})
    save_archive(Path("final_model.zip"), policy, env, num_timesteps=10_000, n_updates=40, n_steps=128)
    convert(Path("final_model.zip"), Path("agent.safetensors"), frame_skip=4, trust_pickle=True)

An archive contains pickles, so opening it can run any code.  ``convert`` therefore needs ``trust_pickle``.
"""

import io
import math
import pickle
import struct
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from stable_baselines3.common.vec_env import VecEnv
from torch import nn
from torch.distributions import Categorical

from nppsim.errors import ConfigError, UserError
from nppsim.io.files import write_bytes
from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics
from rl.policy import checkpoint
from rl.policy.architectures import get_architecture
from rl.policy.checkpoint import CheckpointError
from rl.policy.networks import ObservationError
from rl.policy.policy import NppPolicy

CLAMP = 10.0  # largest absolute value of a scaled number, which limits the effect of outliers
# Exceptions of PPO.load for files of another format or version.
_UNREADABLE = (
    *(AssertionError, AttributeError, EOFError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError),
    *(pickle.UnpicklingError, struct.error, zipfile.BadZipFile, zlib.error),
)


class ScaledFeatures(BaseFeaturesExtractor):
    """Encoder for ``NppEnv``, ``NppVectorEnv`` or ``BatchVecEnv`` with any observations.

    It needs no statistics.  Vectors are divided by the scales in the layout, and ``surroundings`` by 255.  Images pass
    through NatureCNN, after Stable-Baselines3 has transposed them and divided them by 255.
    features_dim: number of output features.
    picture_dim: number of features of each image.
    Raises UserError for keys that are not observations of nppsim.
    """

    def __init__(self, observation_space: spaces.Dict, features_dim: int = 256, picture_dim: int = 128):
        super().__init__(observation_space, features_dim)
        if unknown := sorted(set(observation_space) - set(layout.SPECS)):
            raise UserError(f"{unknown[0]!r} is not an observation of nppsim; known: {', '.join(layout.SPECS)}")
        shapes = {key: space.shape or () for key, space in observation_space.items()}
        pictures = [key for key in shapes if key in layout.IMAGES and len(shapes[key]) == 3]  # stacked ones have 4 axes
        self.pictures = nn.ModuleDict({key: NatureCNN(observation_space[key], picture_dim) for key in pictures})
        self.keys = [key for key in shapes if key not in pictures]
        for key in self.keys:
            scale = np.resize(np.array(layout.SPECS[key].scale or (255.0,), np.float32), math.prod(shapes[key]))
            self.register_buffer(f"scale_{key}", torch.from_numpy(scale))
        width = sum(math.prod(shapes[key]) for key in self.keys) + picture_dim * len(self.pictures)
        self.fusion = nn.Sequential(nn.Linear(width, features_dim), nn.ReLU())

    def forward(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        parts = [
            (observations[key].flatten(1).float() / getattr(self, f"scale_{key}")).clamp(-CLAMP, CLAMP)
            for key in self.keys
        ]
        parts += [branch(observations[key]) for key, branch in self.pictures.items()]
        return self.fusion(torch.cat(parts, dim=1))


class SB3Policy(BasePolicy):
    """NppPolicy as the policy of Stable-Baselines3's PPO and A2C.  Its state dict is that of the NppPolicy.

    lr_schedule: function of the remaining progress (1 to 0) that returns the learning rate of Adam.
    Other arguments are those of NppPolicy.
    Raises ValueError for gSDE and recurrent architectures.
    """

    observation_space: spaces.Dict

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
        if use_sde:
            raise ValueError("use_sde=True is for continuous actions; N++ has six discrete ones: leave it out")
        if get_architecture(architecture).memory:
            raise ValueError(f"{architecture} is recurrent; train it with rl.ppo.RecurrentPPO instead")
        super().__init__(observation_space, action_space)
        self.network = NppPolicy(observation_space, architecture, statistics, precision, lr_schedule(1))

    @property
    def optimizer(self) -> torch.optim.Optimizer:  # type: ignore[override]
        """Optimiser of the policy."""
        return self.network.optimizer

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        return self.network.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        return self.network.load_state_dict(state_dict, strict, assign)

    def forward(self, obs: PyTorchObs, deterministic: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return actions int64[N], values float32[N, 1] and log-probabilities float32[N]."""
        logits, values = self.network.logits_and_values(_dictionary(obs))
        distribution = Categorical(logits=logits)
        actions = logits.argmax(dim=1) if deterministic else distribution.sample()
        return actions, values[:, None], distribution.log_prob(actions)

    def evaluate_actions(
        self, obs: PyTorchObs, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return values float32[N, 1], log-probabilities float32[N] of ``actions``, and entropies float32[N] in nats."""
        logits, values = self.network.logits_and_values(_dictionary(obs))
        distribution = Categorical(logits=logits)
        return values[:, None], distribution.log_prob(actions), distribution.entropy()

    def predict_values(self, obs: PyTorchObs) -> torch.Tensor:
        """Return values float32[N, 1]."""
        return self.network.logits_and_values(_dictionary(obs))[1][:, None]

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> torch.Tensor:
        return self.forward(observation, deterministic)[0]

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """Return actions and recurrent states, see ``NppPolicy.predict``."""
        return self.network.predict(_dictionary(observation), state, episode_start, deterministic)


def _dictionary(observations: Any) -> Any:
    """Return the observations.  Raises ObservationError if they are not a dictionary."""
    if not isinstance(observations, dict):
        raise ObservationError(f"the policy reads a dict of observations, got {type(observations).__name__}")
    return observations


def save_archive(
    path: Path, policy: NppPolicy, env: VecEnv, *, num_timesteps: int, n_updates: int, **hyperparameters: Any
) -> None:
    """Write an archive for ``stable_baselines3.PPO.load``; the loaded PPO can continue training with its own buffers.

    hyperparameters: arguments of ``stable_baselines3.PPO``.
    """
    kwargs = {"architecture": policy.architecture, "statistics": policy.statistics, "precision": policy.precision}
    model: Any = PPO(
        SB3Policy,  # type: ignore[arg-type]  # has the methods of ActorCriticPolicy that PPO calls
        env,
        policy_kwargs=kwargs,
        device=policy.device,
        _init_setup_model=False,  # creates neither a buffer nor a second network
        **hyperparameters,
    )
    model.policy, model.num_timesteps, model._n_updates = policy, num_timesteps, n_updates
    model._last_obs = None  # a loaded model starts new episodes
    archive = io.BytesIO()  # in memory, as torch's writer raises an unclear error on a full disk
    model.save(archive)
    write_bytes(path, archive.getbuffer())


def convert(archive: Path, out: Path, *, frame_skip: int, trust_pickle: bool) -> Path:
    """Write the policy of a PPO archive as a checkpoint.

    frame_skip: frames per decision during training, which archives do not contain.
    trust_pickle: True to allow code in the archive to run.
    Raises ConfigError without ``trust_pickle``, and CheckpointError for another kind of file or policy.
    """
    if not trust_pickle:
        raise ConfigError(
            "contains pickles, which can run any code when they are opened; if you trust its author, add --trust-pickle",
            "ARCHIVE",
            archive,
        )
    if not archive.is_file():
        raise CheckpointError(f"{archive}: no such archive: check the path")
    if not zipfile.is_zipfile(archive):
        raise CheckpointError(f"{archive}: not a zip, so not an archive of Stable-Baselines3: give another file")
    warnings.warn(f"opening {archive} runs the code pickled in it", stacklevel=2)
    try:
        # Archives of earlier versions name NppPolicy as their class.
        policy = PPO.load(archive, device="cpu", custom_objects={"policy_class": SB3Policy}).policy
    except _UNREADABLE as error:
        reason = (str(error).splitlines() or [""])[0]
        raise CheckpointError(
            f"{archive}: not an archive of PPO with an NppPolicy, or of other versions ({type(error).__name__}: {reason}): "
            "use the versions that wrote it"
        ) from error
    assert isinstance(policy, SB3Policy)
    return checkpoint.save(out, policy.network, frame_skip=frame_skip)
