"""Interoperability with Stable-Baselines3: an encoder for its algorithms, and conversion of its archives.

    PPO("MultiInputPolicy", env, policy_kwargs={"features_extractor_class": ScaledFeatures})
    convert(Path("final_model.zip"), Path("agent.safetensors"), frame_skip=4, trust_pickle=True)

An archive contains pickles, so opening it can run any code.  ``convert`` therefore needs ``trust_pickle``.
"""

import math
import pickle
import struct
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN
from torch import nn

from nppsim.errors import ConfigError, UserError
from nppsim.observe import layout
from rl.policy import checkpoint
from rl.policy.checkpoint import CheckpointError
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
        policy = PPO.load(archive, device="cpu").policy
    except _UNREADABLE as error:
        reason = (str(error).splitlines() or [""])[0]
        raise CheckpointError(
            f"{archive}: Stable-Baselines3 cannot read it ({type(error).__name__}: {reason}): use the versions that wrote it"
        ) from error
    if not isinstance(policy, NppPolicy):
        raise CheckpointError(f"{archive}: its policy is a {type(policy).__name__}, expected NppPolicy: train again")
    return checkpoint.save(out, policy, frame_skip=frame_skip)
