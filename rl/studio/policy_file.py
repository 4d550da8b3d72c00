"""Policies for the page: a file with all that ``nppsim/wasm/policy.js`` and ``agent.js`` need to play a checkpoint.

    data = browser_policy(Path("agent.safetensors"))

The file has the number of bytes of a JSON text (uint32, little-endian), the text, padded with spaces to a multiple of four
bytes, and the tensors (float32, little-endian).  The text has the fields:

    format_version     2
    sha256             digest of the tensors
    facts              displayed properties, name -> text
    frame_skip         frames per decision
    action_inputs      input byte of each action
    tensors            [[name, shape], ...] in the order of the file
    observations       key of ``nppsim.observe.layout`` -> {"shape", "picture": true for images, "components"}
    clamp              largest absolute value of a normalised number
    branches           [{"inputs", "scale", "layers"}, ...]: parts of the network before the fusion.  inputs: [begin, end] in
                       the normalised numbers of all float observations in order, or the key of a byte observation, whose
                       weights are multiplied by ``scale``
    fusion, actor, critic   names of their layers.  A ReLU follows each layer except the last of actor and critic
    mirror             null, or {"width", "keys": {key: {"from", "signs", "positions"}}, "actions"}: item i of a mirror image
                       is item from[i], multiplied by signs[i]; x at positions[j] becomes width - x unless it and y are 0
    foresight          settings of look-ahead for the kernels: the fields of ``FORESIGHT_DTYPE``
    death_penalty      null, or the smallest penalty of an action that leads to death
    exploration        null, or {"patience", "burst", "max_repeat"} in decisions
    backtracking       null, or the constants of ``rl.policy.backtracking`` by name
    reward, gamma      weights of ``nppsim.reward.RewardConfig`` and discount, for displayed rewards
    terms              names of the terms of the reward

Graph networks, recurrent and hierarchical policies, image encoders, frame stacks, deep heads and modules of plug-ins have
no such form.  This module does not import torch, because that takes seconds.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from nppsim.actions import ACTION_INPUT, MIRRORED_ACTION
from nppsim.errors import ConfigError, UserError
from nppsim.io.reading import PlainError, from_plain
from nppsim.observe.foresight_settings import FORESIGHT_DTYPE
from nppsim.observe.layout import SPECS
from nppsim.reward import GAMMA, TERMS
from nppsim.studio.agents import layout_document
from rl.config.rewards import RewardSettings
from rl.policy import checkpoint_file, constants
from rl.policy.architectures import Architecture, get_architecture
from rl.policy.inference import ENCODER, HEADS, branches_of, layers_of, mirror_of, unsupported

FORMAT_VERSION = 2
READ_ERRORS = (  # of ``browser_policy``
    safetensors.SafetensorError,
    OSError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
)


class BrowserError(UserError, ValueError):
    """A policy that the page cannot run."""


def browser_policy(path: Path) -> bytes:
    """Return the file of a checkpoint for the page.

    Raises BrowserError if the page cannot run its network, and one of READ_ERRORS for a file that
    ``rl.policy.checkpoint.load`` refuses.
    """
    described, tensors = checkpoint_file.parse(path.read_bytes())
    content = described["content"]
    if described["sha256"] != checkpoint_file.digest(content, tensors):
        raise ValueError(f"{path}: damaged")
    architecture = get_architecture(content["architecture"])
    if content["layout"] != architecture.fingerprint:
        raise ValueError(f"{path}: another observation layout")
    if problem := unsupported(architecture):
        raise BrowserError(f"{path}: {architecture.name} has {problem}, which the page cannot run")
    weights = {name.removeprefix("policy."): values for name, values in tensors.items()}
    if not all(np.isfinite(values).all() for values in weights.values()):
        raise ValueError(f"{path}: the weights are not finite")
    return _packed(path, architecture, content, weights)


def settings_of(data: bytes) -> dict[str, Any]:
    """Return the fields of the text of a file."""
    settings: dict[str, Any] = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
    return settings


def rewards_of(config: Mapping[str, Any]) -> tuple[RewardSettings, float, str]:
    """Return (reward settings, discount, description of their source) of a training; defaults if ``config`` has none.

    The rewards are only displayed; an agent does not depend on them.
    """
    try:
        reward, gamma = from_plain(RewardSettings, config["reward"]), from_plain(float, config["ppo"]["gamma"])
    except (KeyError, TypeError, PlainError, ConfigError):  # config of another version, or not written by an experiment
        return RewardSettings(), GAMMA, "default (the checkpoint does not contain those of its training)"
    return reward, gamma, str(reward)


def facts(
    path: Path, architecture: Mapping[str, str], observations: tuple[str, ...], frame_skip: int, rewards: str
) -> Mapping[str, str]:
    """Return the displayed properties of an agent.  architecture: those of its network."""
    return {
        "file": str(path),
        **architecture,
        "sees": ", ".join(observations),
        "frames per decision": str(frame_skip),
        "rewards": rewards,
    }


def _packed(
    path: Path, architecture: Architecture, content: Mapping[str, Any], weights: Mapping[str, np.ndarray]
) -> bytes:
    reward, gamma, source = rewards_of(content["config"])
    layers = [name.removesuffix(".weight") for name in sorted(weights) if name.endswith(".weight")]
    names = [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    network = {"architecture": architecture.name, "parameters": f"{sum(weights[name].size for name in names):,}"}
    names += [f"{ENCODER}.normalize.{name}" for name in ("mean", "divisor")]
    observed, keys = architecture.observations, vars(constants)
    body = b"".join(weights[name].astype("<f4").tobytes() for name in names)
    text = {
        "format_version": FORMAT_VERSION,
        "sha256": hashlib.sha256(body).hexdigest(),
        "facts": facts(path, network, observed, content["frame_skip"], source),
        "frame_skip": content["frame_skip"],
        "action_inputs": ACTION_INPUT.tolist(),
        "tensors": [[name, list(weights[name].shape)] for name in names],
        "observations": layout_document(observed),
        "clamp": constants.CLAMP,
        "branches": _branches(architecture, weights),
        "fusion": layers_of(weights, f"{ENCODER}.fusion"),
        "actor": [*layers_of(weights, f"{HEADS}.policy_net"), "action_net"],
        "critic": [*layers_of(weights, f"{HEADS}.value_net"), "value_net"],
        "mirror": _mirror(observed) if architecture.mirror else None,
        "foresight": dict(zip(FORESIGHT_DTYPE.names or (), architecture.foresight.record().item(), strict=True)),
        "death_penalty": constants.DEATH_PENALTY if architecture.shielded else None,
        "exploration": {name: keys[name.upper()] for name in ("patience", "burst", "max_repeat")}
        if "reachability_features" in observed
        else None,
        "backtracking": {name.lower(): keys[name] for name in constants.BACKTRACKING}
        if "foresight" in observed
        else None,
        "reward": asdict(reward.weights),
        "gamma": gamma,
        "terms": TERMS,
    }
    head = json.dumps(text, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 4)
    return len(head).to_bytes(4, "little") + head + body


def _branches(architecture: Architecture, weights: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    begins, end = {}, 0
    for key in architecture.observations:
        if SPECS[key].dtype == "float32":
            begins[key] = end
            end += math.prod(SPECS[key].shape)
    branches: list[dict[str, Any]] = []
    for keys, layers in branches_of(architecture, weights):
        if keys[0] in begins:
            inputs: Any = [begins[keys[0]], begins[keys[-1]] + math.prod(SPECS[keys[-1]].shape)]
            branches.append({"inputs": inputs, "scale": 1, "layers": layers})
        else:
            branches.append({"inputs": keys[0], "scale": constants.PIXEL_SCALE, "layers": layers})
    return branches


def _mirror(keys: tuple[str, ...]) -> dict[str, Any]:
    images = {}
    for key in keys:
        source, signs, positions = mirror_of(key)
        images[key] = {"from": source.tolist(), "signs": signs.tolist(), "positions": positions}
    return {"width": constants.WIDTH, "keys": images, "actions": MIRRORED_ACTION.tolist()}
