"""Imitation without PPO (``scripts/pretrain_bc.py``): trains a policy on replays and evaluates it.

    run(parse(argv))

Writes ``<output-dir>/pretrain_<architecture>_<time>/`` with ``bc_best.safetensors`` (the best weights so far),
``results.json`` and ``tensorboard/``.  The dataset is cached in ``<output-dir>/cache``.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass
from datetime import datetime
from pathlib import Path

import torch

import hardware
from bc.dataset import DatasetConfig, load_or_build
from bc.demonstrations import paths_text
from bc.thread_pool import ThreadPool
from bc.train import BCConfig, Hooks, pretrain
from nppsim.errors import ConfigError
from nppsim.io.files import check_output_folder, locked, new_folder, write_json
from nppsim.io.progress import progress_bar
from nppsim.observe.stacking import ADVICE
from nppsim.settings import Parser, check_settings, same_setting, setting
from rl import plugins
from rl.config.evaluation import MOST_EPISODES, EvaluationConfig
from rl.config.experiment import RUN_BYTES, ExperimentConfig, check_folders
from rl.config.machine import HardwareConfig
from rl.evaluation.results import ALL, Stats, aggregate, format_table
from rl.evaluation.suite import EvaluationSuite, Policy, RandomPolicy
from rl.events import open_events
from rl.policy import checkpoint
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy, build_policy
from rl.seeds import LARGEST_SEED


@dataclass(frozen=True)
class PretrainSettings:
    """Settings of the command.

    bc, dataset, plan_request: settings of imitation, of the dataset, and of the hardware plan.
    """

    bc: BCConfig
    dataset: DatasetConfig
    plan_request: hardware.PlanRequest
    architecture: str = setting(
        MISSING, "network to train, e.g. mlp_baseline or vision_free", flag="architecture", aliases=("architectures",)
    )
    replay_data_dir: tuple[Path, ...] = setting(
        MISSING, "folders of replays, or *.replay and *.h5 files", flag="replay-data-dir"
    )
    output_dir: Path = same_setting(ExperimentConfig, "output_dir")
    test_dataset: tuple[Path, ...] = setting(
        (), "folders of held-out levels on which success is evaluated; default: no evaluation", flag="test-dataset"
    )
    episodes_per_category: int = setting(
        100,
        "episodes per category on the levels of --test-dataset",
        flag="episodes-per-category",
        aliases=("num-eval-episodes",),
        low=1,
        high=MOST_EPISODES,
    )
    deterministic: bool = same_setting(EvaluationConfig, "deterministic")
    seed: int = setting(
        0,
        "random seed of the validation split, the choice of replays, weights and minibatch order",
        flag="seed",
        aliases=("seeds",),
        low=0,
        high=LARGEST_SEED,
    )
    plugins: tuple[str, ...] = same_setting(ExperimentConfig, "plugins")
    debug: bool = same_setting(ExperimentConfig, "debug")

    def __post_init__(self) -> None:
        check_settings(self)
        check_folders(self, needed=("replay_data_dir",), others=("test_dataset",))
        architecture = get_architecture(self.architecture)
        if architecture.subtasks:
            advice = f"demonstrations contain no subtasks; give {architecture.imitated.name}, to which PPO adds them"
            raise ConfigError(advice, "architecture", self.architecture)


def run(settings: PretrainSettings) -> None:
    """Train and evaluate a policy; a KeyboardInterrupt names the file with the best weights so far."""
    check_output_folder(settings.output_dir, "--output-dir", RUN_BYTES)
    folder = new_folder(settings.output_dir / f"pretrain_{settings.architecture}_{datetime.now():%Y%m%d_%H%M%S}")
    best = folder / "bc_best.safetensors"
    try:
        train(settings, folder, best)
    except KeyboardInterrupt:
        where = f"the best weights so far are in {best}" if best.exists() else "no weights were saved"
        raise KeyboardInterrupt(where) from None
    finally:
        with suppress(OSError):  # rmdir fails if the folder is not empty
            folder.rmdir()


def train(settings: PretrainSettings, folder: Path, best: Path) -> None:
    """Train on the demonstrations, write weights and results, and print tables."""
    network = get_architecture(settings.architecture)
    suite = held_out_suite(settings) if settings.test_dataset else None
    dataset = load_or_build(
        settings.replay_data_dir, settings.output_dir / "cache", settings.dataset, progress=progress_bar
    )
    dataset.check_held_out(suite.bank.levels if suite else [])
    dataset = dataset.stacked(network.stacking)
    if network.stacking:
        print(f"warning: {settings.architecture}: {ADVICE}")
    plan = hardware.plan(
        settings.dataset.observations, settings.plan_request, architecture=network.name, stacking=network.stacking
    )
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    policy = build_policy(settings.architecture, dataset.statistics(), precision=plan.precision, device=plan.device)
    config = {"bc": asdict(settings.bc), "dataset": asdict(settings.dataset) | {"key": dataset.key}}
    tables: dict[str, dict[str, Stats]] = {}

    def success(policy: NppPolicy) -> dict[str, float]:
        assert suite is not None
        players: dict[str, Policy] = {"random play": RandomPolicy(), "BC alone": policy}
        for name, player in players.items():
            tables[name] = aggregate(suite.run(player, deterministic=settings.deterministic))
        return {category: stats["success"] for category, stats in tables["BC alone"].items() if category != ALL}

    with locked(folder) as check, open_events(folder / "tensorboard") as writer:

        def save(policy: NppPolicy, epoch: int) -> None:
            check()
            checkpoint.save(best, policy, frame_skip=settings.dataset.frame_skip, config=config | {"epoch": epoch})

        hooks = Hooks(on_improvement=save, closed_loop=success if suite else None)
        result = pretrain(policy, dataset, settings.bc, writer, hooks=hooks, pool=ThreadPool(plan.torch_threads))
        results = {"imitation": result.as_dict(), "suites": {"test": tables}, "config": config}
        write_json(folder / "results.json", results)
    print(result.table())
    if tables:
        print(f"\nheld-out levels of {paths_text(settings.test_dataset)}\n{format_table(tables)}")
    print(f"weights of epoch {result.best_epoch}: {best}")


def held_out_suite(settings: PretrainSettings) -> EvaluationSuite:
    """Make the evaluation suite of the levels of --test-dataset."""
    return EvaluationSuite(
        settings.test_dataset,
        episodes_per_category=settings.episodes_per_category,
        seed=settings.seed,
        frame_skip=settings.dataset.frame_skip,
        horizon=0,
    )


def parse(argv: Sequence[str]) -> PretrainSettings:
    """Parse the command line."""
    parser = Parser(prog="pretrain_bc.py", description="Train a policy on replays by imitation, without PPO.")
    parser.add_settings(PretrainSettings)
    for name in ("epochs", "batch_size", "learning_rate", "class_weight_power"):
        parser.add_setting(BCConfig, name, aliases=(name.replace("_", "-"),))
    parser.add_setting(BCConfig, "seed")
    parser.add_settings(DatasetConfig)
    for name in ("validation_share", "seed"):
        parser.add_setting(DatasetConfig, name)
    for name in ("device", "mixed_precision"):
        parser.add_setting(HardwareConfig, name)
    arguments = parser.parse_args(argv)
    plugins.load(getattr(arguments, "plugin", ()))
    network = get_architecture(arguments.architecture)
    return parser.build(
        PretrainSettings,
        arguments,
        bc=parser.build(BCConfig, arguments),
        dataset=parser.build(DatasetConfig, arguments, observations=network.observations, foresight=network.foresight),
        plan_request=parser.build(HardwareConfig, arguments).plan_request(None),
    )
