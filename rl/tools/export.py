"""Export of a checkpoint (``scripts/export.py``) to an ONNX file, or to a folder with a model card for a model hub.

    run(parse(argv))

The card's settings come from the checkpoint, and its figures from ``--results``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import torch

from nppsim.actions import NUM_ACTIONS
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.gym.env import STARTER_LEVELS
from nppsim.io.files import check_output_file, check_output_folder, write_bytes, write_json, write_text
from nppsim.io.reading import read_json
from nppsim.levels.level_set import LevelSet
from nppsim.report.pages import render_page
from nppsim.settings import Parser, check_settings, same_setting, setting
from rl import plugins
from rl.config import ExperimentConfig
from rl.evaluation.results import STATS_SHAPE, ResultsError, Stats, format_table
from rl.policy import checkpoint
from rl.policy.architectures import get_architecture
from rl.policy.onnx import SUFFIX, ExportError, OnnxPolicy, import_runtime, metadata_of, signature, to_onnx
from rl.policy.policy import NppPolicy

AGENT, NETWORK, CONFIG, CARD = "agent.safetensors", "agent.onnx", "config.json", "README.md"
MAX_DIFFERENCE = 1e-3  # maximum difference between outputs of ONNX and torch; rounding causes about 1e-5
_COMPARED_DECISIONS, _ENVS = 25, 20
_EVALUATION = {"suites": {...: {...: STATS_SHAPE}}, "settings": {}}
Tables = Mapping[str, Mapping[str, Stats] | None]  # method -> category -> statistics


@dataclass(frozen=True)
class ExportSettings:
    """Settings of ``scripts/export.py``."""

    checkpoint: Path
    onnx: Path | None = setting(None, "write the network to this file; default: none", flag="onnx", metavar="OUT.onnx")
    hub: Path | None = setting(
        None,
        f"write a folder for a model hub: {AGENT}, {NETWORK}, {CONFIG} and a model card, {CARD}",
        flag="hub",
        metavar="FOLDER",
    )
    name: str | None = setting(None, "name of the agent on the model card; default: name of the folder", flag="name")
    license: str | None = setting(None, "licence on the model card, e.g. MIT; default: none", flag="license")
    results: Path | None = setting(
        None,
        "results.json of an evaluation of the agent by evaluate.py, for the figures on the card; default: none",
        flag="results",
    )
    plugins: tuple[str, ...] = same_setting(ExperimentConfig, "plugins")
    debug: bool = same_setting(ExperimentConfig, "debug")

    def __post_init__(self) -> None:
        check_settings(self)
        if self.onnx is None and self.hub is None:
            raise ConfigError("nothing to write; give --onnx OUT.onnx, --hub FOLDER or both")
        if self.onnx is not None:
            check_output_file(self.onnx, "--onnx", SUFFIX)
        if self.hub is None:
            for flag in ("name", "license", "results"):
                if getattr(self, flag):
                    raise ConfigError("is for the model card; add --hub FOLDER", f"--{flag}", getattr(self, flag))
        elif self.hub.exists() and (not self.hub.is_dir() or any(self.hub.iterdir())):
            raise ConfigError("is not empty; give a new folder", "--hub", self.hub)
        else:
            check_output_folder(self.hub, "--hub")


def run(settings: ExportSettings) -> None:
    """Export a checkpoint, compare ONNX outputs with those of torch, write the files, and print their names."""
    import_runtime()
    plugins.load(settings.plugins)
    policy, fields = checkpoint.load_policy(settings.checkpoint, precision="float32")
    tables = methods_of(settings.results) if settings.results else None
    torch.set_num_threads(1)
    data = to_onnx(policy, frame_skip=fields["frame_skip"])
    difference = largest_difference(policy, OnnxPolicy(data), LevelSet.open(STARTER_LEVELS), fields["frame_skip"])
    if not difference <= MAX_DIFFERENCE:
        problem = f"{policy.architecture}: outputs of the exported network differ by {difference:.1e}"
        raise ExportError(f"{problem}, more than {MAX_DIFFERENCE:g}; nothing was written")
    print(f"ONNX and torch: outputs equal within {difference:.1e} on {_COMPARED_DECISIONS * _ENVS} observations")
    if settings.onnx:
        write_bytes(settings.onnx, data)
        print(f"wrote {settings.onnx} ({len(data):,} bytes)")
    if settings.hub:
        card = {
            "title": settings.name or settings.hub.name,
            "licence": settings.license,
            "figures": tables and format_table(tables),
        }
        write_hub(settings.hub, data, policy, fields, card)
        print(f"wrote {settings.hub}: {', '.join(sorted(path.name for path in settings.hub.iterdir()))}")


@torch.no_grad()
def largest_difference(policy: NppPolicy, network: OnnxPolicy, levels: LevelSet, frame_skip: int) -> float:
    """Return the largest difference between outputs of torch and ONNX in random play; infinite if outputs are not finite.

    Differences of logits are absolute; those of values are relative to max(1, |value|).

    policy: on the CPU, in float32 and evaluation mode.
    network: the exported policy.
    """
    rng = np.random.default_rng(0)
    sim = BatchSimulator(
        levels,
        _ENVS,
        frame_skip=frame_skip,
        observations=policy.observations,
        stacking=policy.stacking,
        foresight=policy.foresight,
    )
    obs = sim.reset(rng.integers(len(sim.bank.levels), size=_ENVS).astype(np.int32))
    largest = 0.0
    for _ in range(_COMPARED_DECISIONS):
        logits, values, _greedy = network.compute(obs)
        torch_logits, torch_values = (tensor.numpy() for tensor in policy.logits_and_values(policy.to_tensors(obs)))
        difference = max(
            np.abs(logits - torch_logits).max(),
            (np.abs(values - torch_values) / np.maximum(1.0, np.abs(torch_values))).max(),
        )
        largest = max(largest, float(difference) if np.isfinite(difference) else np.inf)
        obs = sim.step(rng.integers(NUM_ACTIONS, size=_ENVS))
    return largest


def parse(argv: Sequence[str]) -> ExportSettings:
    """Parse the command line."""
    parser = Parser(prog="export.py", description="Export a checkpoint as ONNX, and as a folder for a model hub.")
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="file written by training")
    parser.add_settings(ExportSettings)
    arguments = parser.parse_args(argv)
    return parser.build(ExportSettings, arguments, checkpoint=arguments.checkpoint)


def write_hub(folder: Path, data: bytes, policy: NppPolicy, fields: Mapping[str, Any], card: Mapping[str, Any]) -> None:
    """Write network, weights, settings and model card to ``folder``.

    data: content of the ONNX file.
    policy, fields: content of the checkpoint (``rl.policy.checkpoint.load_policy``).
    card: further variables of the card: "title", "licence" and "figures".
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / NETWORK, data)
    config = published(fields["config"])
    assert isinstance(config, dict) and policy.statistics is not None
    policy.precision = fields["precision"]
    checkpoint.save(folder / AGENT, policy, frame_skip=fields["frame_skip"], config=config)
    metadata = metadata_of(policy, fields["frame_skip"])
    shapes = {key: policy.stacking.shape(key) for key in policy.observations}
    about = {"library_name": "nppsim", **vars(metadata), **signature(metadata, shapes)}
    write_json(folder / CONFIG, about | {"training": config, "versions": fields["versions"]})
    ppo, demonstrations = config.get("ppo") or {}, config.get("replay_data_dir")
    training = {
        "training levels": config.get("train_dataset"),
        "demonstrations": demonstrations,
        "passes over them": demonstrations and (config.get("bc") or {}).get("epochs"),
        "decisions of PPO": ppo.get("total_timesteps"),
        "time budget of PPO in minutes": ppo.get("time_budget_minutes"),
        "rewards": config.get("reward_preset") or (config.get("reward") or {}).get("preset"),
        "seeds of the run": config.get("seeds"),
        "observations for the statistics of the normaliser": policy.statistics.count,
    }
    text = render_page(
        "model_card.md",
        policy=policy,
        metadata=metadata,
        description=get_architecture(policy.architecture).description,
        parameters=sum(parameter.numel() for parameter in policy.parameters()),
        data=training,
        **card,
    )
    write_text(folder / CARD, text + "\n")


def methods_of(path: Path) -> Tables:
    """Read the statistics of all methods in a ``results.json`` of ``scripts/evaluate.py``.

    Raises ResultsError if the file is missing or contains no such results.
    """
    remedy = "give the results.json of scripts/evaluate.py"
    return dict(read_json(path, ResultsError, remedy, shape=_EVALUATION)["suites"])


def published(config: object) -> object:
    """Return settings for publication: absolute paths become file names, and uploads and sources are omitted."""
    if isinstance(config, Mapping):
        return {name: published(value) for name, value in config.items() if name not in ("upload", "sources")}
    if isinstance(config, list | tuple):
        return [published(value) for value in config]
    if isinstance(config, str | Path):
        text = str(config)
        absolute = PurePosixPath(text).is_absolute() or PureWindowsPath(text).is_absolute()
        return PureWindowsPath(text).name if absolute else text
    return config
