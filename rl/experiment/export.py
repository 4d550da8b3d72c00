"""Export of a checkpoint, as ``scripts/export.py`` does it: an ONNX file that is checked, and a folder for a hub.

    run(parse(argv))

Nothing is written before the network has been compared with its policy (``rl.evaluation.agreement``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from nppsim.env import STARTER_LEVELS
from nppsim.errors import ConfigError, needed
from nppsim.files import check_output_file, check_output_folder, write_bytes, write_json, write_text
from nppsim.levels.level_set import LevelSet
from nppsim.settings import Parser, check_settings, same_setting, setting
from rl.config import ExperimentConfig, plugins
from rl.evaluation.agreement import Agreement, compare
from rl.experiment.card import AGENT, NETWORK, Card, Tables, card_text, methods_of, published
from rl.policy import checkpoint
from rl.policy.onnx import SUFFIX, OnnxPolicy, facts_of, signature, to_onnx
from rl.policy.policy import NppPolicy

CONFIG, CARD = "config.json", "README.md"


@dataclass(frozen=True)
class Job:
    """What is asked for."""

    checkpoint: Path
    onnx: Path | None = setting(None, "write the network to this file", flag="onnx", metavar="OUT.onnx")
    hub: Path | None = setting(
        None,
        f"write a folder for a hub: {AGENT}, {NETWORK}, {CONFIG} and a model card, {CARD}",
        flag="hub",
        metavar="FOLDER",
    )
    name: str | None = setting(None, "of the agent, for the card; default: that of the folder", flag="name")
    license: str | None = setting(
        None, "for the card, an SPDX identifier such as MIT; default: the card says that there is none", flag="license"
    )
    results: Path | None = setting(
        None, "results.json of its experiment, or of evaluate.py, for the figures of the card", flag="results"
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
                    raise ConfigError("stands in the model card; add --hub FOLDER", f"--{flag}", getattr(self, flag))
        elif self.hub.exists() and (not self.hub.is_dir() or any(self.hub.iterdir())):
            raise ConfigError("is there already, and not empty; give a new folder", "--hub", self.hub)
        else:
            check_output_folder(self.hub, "--hub")


def run(job: Job) -> None:
    """Export, compare, write, and print what came of it."""
    needed("onnxruntime", "onnx")
    plugins.load(job.plugins)
    policy, fields = checkpoint.load_policy(job.checkpoint, precision="float32")
    tables = methods_of(job.results, policy.architecture) if job.results else None
    torch.set_num_threads(1)
    data = to_onnx(policy, frame_skip=fields["frame_skip"])
    levels = LevelSet.open(STARTER_LEVELS)
    agreement = compare(policy, OnnxPolicy(data), levels, frame_skip=fields["frame_skip"])
    print(agreement)
    if job.onnx:
        write_bytes(job.onnx, data)
        print(f"wrote {job.onnx} ({len(data):,} bytes)")
    if job.hub:
        write_hub(job, job.hub, data, policy, fields, agreement, tables)
        print(f"wrote {job.hub}: {', '.join(sorted(path.name for path in job.hub.iterdir()))}")


def write_hub(
    job: Job,
    folder: Path,
    data: bytes,
    policy: NppPolicy,
    fields: dict,
    agreement: Agreement,
    tables: Tables | None,
) -> None:
    """The folder: network, weights without the state of training, settings and card."""
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / NETWORK, data)
    config = published(fields["config"])
    assert isinstance(config, dict)
    policy.precision = fields["precision"]
    checkpoint.save(folder / AGENT, policy, frame_skip=fields["frame_skip"], config=config)
    facts = facts_of(policy, fields["frame_skip"])
    shapes = {key: policy.stacking.shape(key) for key in policy.observations}
    write_json(
        folder / CONFIG,
        {
            "library_name": "nppsim",
            **vars(facts),
            **signature(facts, shapes),
            "agreement": agreement.to_dict(),
            "training": config,
            "versions": fields["versions"],
        },
    )
    card = Card(job.name or folder.name, policy, fields, agreement, tables, job.license)
    write_text(folder / CARD, card_text(card))


def parse(argv: Sequence[str]) -> Job:
    """What the command line asks for."""
    parser = Parser(prog="export.py", description="Export a checkpoint as ONNX, and as a folder for a hub.")
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="file written by training")
    parser.add_settings(Job)
    arguments = parser.parse_args(argv)
    return parser.build(Job, arguments, checkpoint=arguments.checkpoint)
