"""Average of the weights of several agents (``scripts/average_agents.py``).

    run(parse(argv))

The average of an agent and of agents fine-tuned from it often finishes more unseen levels than each of these agents.
Source: Wortsman et al. 2022 (Model soups).
"""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path

import torch

from nppsim.errors import ConfigError
from nppsim.io.files import check_output_file
from nppsim.settings import Parser, check_settings, same_setting, setting
from rl import plugins
from rl.config import ExperimentConfig
from rl.policy import checkpoint
from rl.policy.policy import build_policy
from rl.policy.weight_map import State, WeightTransferError, transfer

NORMALISER = "features_extractor.normalize."  # prefix of the tensors of the normaliser


@dataclass(frozen=True)
class AverageSettings:
    """Settings of ``scripts/average_agents.py``."""

    checkpoints: tuple[Path, ...]
    out: Path = setting(MISSING, "file for the new agent", flag="out", metavar="AGENT.safetensors")
    architecture: str | None = setting(
        None,
        "network of the new agent, with the same tensors, e.g. NAME+mirror; default: that of the first CHECKPOINT",
        flag="architecture",
        metavar="NAME",
    )
    plugins: tuple[str, ...] = same_setting(ExperimentConfig, "plugins")
    debug: bool = same_setting(ExperimentConfig, "debug")

    def __post_init__(self) -> None:
        check_settings(self)
        check_output_file(self.out, "--out", checkpoint.SUFFIX, inputs=self.checkpoints)


def parse(argv: Sequence[str]) -> AverageSettings:
    """Parse the command line.  Raises ConfigError."""
    parser = Parser(prog="average_agents.py", description="Average the weights of several agents.")
    agents = "agents of one network and one normaliser; an agent given twice counts twice"
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="CHECKPOINT", help=agents)
    parser.add_settings(AverageSettings)
    arguments = parser.parse_args(argv)
    return parser.build(AverageSettings, arguments, checkpoints=tuple(arguments.checkpoints))


def run(settings: AverageSettings) -> None:
    """Write the average of the agents, and print the name of the file."""
    plugins.load(settings.plugins)
    agents = [checkpoint.load_policy(path) for path in settings.checkpoints]
    policy, stored = agents[0]
    for path, (_, fields) in zip(settings.checkpoints, agents, strict=True):
        if fields["frame_skip"] != stored["frame_skip"]:
            problem = (
                f"acts every {fields['frame_skip']} frames, {settings.checkpoints[0]} every {stored['frame_skip']}"
            )
            raise ConfigError(f"{problem}; give agents with the same frame skip", "CHECKPOINT", path)
    average = build_policy(settings.architecture or policy.architecture)
    try:
        transfer(average_of(settings.checkpoints, [agent.state_dict() for agent, _ in agents]), average)
    except WeightTransferError as error:
        problem = f"the agents do not fit {average.architecture} ({'; '.join(error.problems)})"
        raise ConfigError(f"{problem}; give another network", "--architecture") from error
    checkpoint.save(settings.out, average, frame_skip=stored["frame_skip"], config=stored.get("config"))
    print(f"wrote {settings.out}: {average.architecture}, average of {len(agents)} agents")


def average_of(paths: Sequence[Path], weights: Sequence[State]) -> State:
    """Return the mean of each tensor.  Raises ConfigError for other tensors or another normaliser than in the first file."""
    first, own = paths[0], weights[0]
    for path, others in zip(paths, weights, strict=True):
        if others.keys() != own.keys() or any(others[name].shape != own[name].shape for name in own):
            raise ConfigError(f"is another network than {first}; give agents of one network", "CHECKPOINT", path)
        if not all(torch.equal(others[name], own[name]) for name in own if name.startswith(NORMALISER)):
            problem = f"has another normaliser than {first}; give agents trained from one agent (--init-from)"
            raise ConfigError(problem, "CHECKPOINT", path)
    return {
        name: tensor
        if name.startswith(NORMALISER)
        else torch.stack([others[name].double() for others in weights]).mean(dim=0).to(tensor.dtype)
        for name, tensor in own.items()
    }
