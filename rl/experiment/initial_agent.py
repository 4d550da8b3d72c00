"""Start of imitation or PPO from a trained agent (``--init-from CHECKPOINT``).

    agent = initial_agent_of(config, architecture, folder)

Imitation, or PPO in a run without imitation, uses the agent's policy, value and normaliser weights.  The optimisers are
new, PPO's critic has a warm-up, and a KL penalty refers to the agent with which PPO begins (``--bc-kl-coef``).
"""

from pathlib import Path

import torch

from nppsim.errors import ConfigError
from nppsim.io.files import write_bytes
from rl.config import ExperimentConfig
from rl.policy import checkpoint
from rl.policy.architectures import Architecture
from rl.policy.policy import NppPolicy, build_policy
from rl.policy.weight_map import WeightTransferError, transfer

OPTION = "--init-from"
COPY = f"pretrain/initial{checkpoint.SUFFIX}"  # in the run's folder, so that resuming does not need the original


def load_initial_agent(path: Path, architecture: Architecture, frame_skip: int) -> NppPolicy:
    """Load an agent to train it further in a network.

    An agent trained without subtasks fits the same architecture with subtasks; its high-level policy is then random.
    Raises CheckpointError for a missing or damaged file; ConfigError for another frame skip, or if tensors do not fit.
    """
    policy, stored = checkpoint.load_policy(path)
    if stored["frame_skip"] != frame_skip:
        advice = f"acts every {stored['frame_skip']} frames, this run every {frame_skip}; give --frame-skip "
        raise ConfigError(f"{advice}{stored['frame_skip']} or another agent", OPTION, path)
    with torch.random.fork_rng(devices=[]):  # building this network must not change the run's random numbers
        target = build_policy(architecture.name)
    try:
        transfer(policy.state_dict(), target, fresh=fresh_tensors(policy, architecture))
    except WeightTransferError as error:
        problem = f"an agent of {policy.architecture} does not fit {architecture.name} ({'; '.join(error.problems)})"
        advice = f"give --architectures {policy.architecture}, or another agent"
        raise ConfigError(f"{problem}; {advice}", OPTION, path) from error
    return policy


def fresh_tensors(policy: NppPolicy, architecture: Architecture) -> tuple[str, ...]:
    """Return name prefixes of the tensors that an architecture has and the policy lacks: those of its subtasks, if any."""
    return architecture.fresh if policy.architecture == architecture.imitated.name else ()


def first_network(config: ExperimentConfig, architecture: Architecture) -> Architecture:
    """Return the network that is trained first: by imitation, or by PPO in a run without imitation."""
    return architecture.imitated if "with_pretrain" in config.conditions else architecture


def initial_agent_of(config: ExperimentConfig, architecture: Architecture, folder: Path) -> NppPolicy | None:
    """Copy the agent of ``--init-from`` into the run's folder, and load it; None without the flag."""
    if config.init_from is None:
        return None
    copy = folder / COPY
    architecture = first_network(config, architecture)
    if not copy.is_file():
        load_initial_agent(config.init_from, architecture, config.frame_skip)
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(copy, config.init_from.read_bytes())
    return load_initial_agent(copy, architecture, config.frame_skip)
