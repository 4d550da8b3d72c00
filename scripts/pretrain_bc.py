"""Imitation only: replays -> dataset -> a pretrained policy, and optionally its success on held-out levels.

python scripts/pretrain_bc.py --architecture mlp_baseline --replay-data-dir DIR [--test-dataset datasets/test]

Writes ``<output-dir>/pretrain_<architecture>_<time>/`` with ``bc_best.pt`` (the best weights so far, at any moment),
``results.json`` and ``tensorboard/``.  The dataset is cached in ``<output-dir>/cache``.
"""

import argparse
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import torch
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

import hardware
from bc.dataset import DatasetConfig, load_or_build
from bc.train import BCConfig, pretrain
from nppsim import errors
from nppsim.errors import ConfigError
from nppsim.files import write_json
from nppsim.levels.level_set import LevelSet
from rl.config import check_output_dir
from rl.judge.evaluation import EvaluationSuite, RandomPolicy
from rl.judge.results import ALL, aggregate, format_table
from rl.policy import checkpoint
from rl.policy.architectures import get_architecture
from rl.policy.policy import build_policy


def main(argv=None) -> int:
    """Returns the exit status: 0, 2 for bad input, 130 after Ctrl-C."""
    arguments = parse(argv)
    folder = arguments.output_dir / f"pretrain_{arguments.architecture}_{datetime.now():%Y%m%d_%H%M%S}"
    best = folder / "bc_best.pt"

    def job():
        try:
            run(arguments, folder, best)
        except ConfigError as error:
            raise (error.named(f"--{error.field.replace('_', '-')}") if error.field else error) from None
        except KeyboardInterrupt:
            where = f"the best weights so far are in {best}" if best.exists() else "nothing was trained yet"
            raise KeyboardInterrupt(where) from None

    return errors.run(job, debug=arguments.debug)


def run(arguments, folder: Path, best: Path) -> None:
    check_output_dir(arguments.output_dir)
    observations = get_architecture(arguments.architecture).observations
    config = BCConfig(
        epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
        class_weight_power=arguments.class_weight_power,
        seed=arguments.seed,
    )
    settings = DatasetConfig(
        arguments.frame_skip,
        observations,
        arguments.validation_share,
        arguments.seed,
        arguments.mirror_demonstrations,
        arguments.max_demonstrations_per_category,
    )
    test = None if arguments.test_dataset is None else LevelSet.open(arguments.test_dataset)
    suite = None if test is None else make_suite(arguments, test, observations)
    dataset = load_or_build(arguments.replay_data_dir, arguments.output_dir / "cache", settings, progress=bar)
    if test is not None:
        dataset.check_held_out(test)

    plan = hardware.plan(observations, hardware.Wishes(device=arguments.device, precision=arguments.precision))
    torch.set_num_threads(plan.torch_threads)
    torch.manual_seed(arguments.seed)
    policy = build_policy(arguments.architecture, dataset.statistics(), precision=plan.precision, device=plan.device)
    facts = {"bc": asdict(config), "dataset": asdict(settings) | {"key": dataset.key}}
    folder.mkdir(parents=True)

    def save(policy, epoch):
        checkpoint.save(best, policy, frame_skip=arguments.frame_skip, config=facts | {"epoch": epoch})

    tables = {}

    def closed_loop(policy):
        for name, player in (("random play", RandomPolicy()), ("BC alone", policy)):
            tables[name] = aggregate(suite.run(player, deterministic=arguments.deterministic))
        return {category: stats["success"] for category, stats in tables["BC alone"].items() if category != ALL}

    with SummaryWriter(str(folder / "tensorboard")) as writer:
        result = pretrain(
            policy, dataset, config, writer, plan.device, closed_loop if suite else None, on_improvement=save
        )
    write_json(folder / "results.json", {"imitation": result.as_dict(), "suites": {"test": tables}, "config": facts})
    print(result.table())
    if tables:
        print(f"\nheld-out levels of {arguments.test_dataset}\n{format_table(tables)}")
    print(f"weights of epoch {result.best_epoch}: {best}")


def make_suite(arguments, test: LevelSet, observations) -> EvaluationSuite:
    return EvaluationSuite(
        test,
        episodes_per_category=arguments.num_eval_episodes,
        seed=arguments.seed,
        frame_skip=arguments.frame_skip,
        observations=observations,
    )


def bar(files):
    """A progress bar over the replays, on a terminal."""
    return tqdm(files, desc="playing back replays", unit="replay", disable=not sys.stderr.isatty())


def parse(argv) -> argparse.Namespace:
    dataset, defaults = DatasetConfig(), BCConfig()
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--architecture", required=True, help="network, e.g. mlp_baseline or vision_free")
    add("--replay-data-dir", required=True, type=Path, help="folder of *.replay and *.h5 files, or one")
    add("--mirror-demonstrations", action="store_true", help="learn from the mirror images of the replays, too")
    add(
        "--max-demonstrations-per-category",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help="replays of each category at most, drawn by lot from the seed; default: all",
    )
    add("--output-dir", type=Path, default=Path("experiments"), help="folder for results and the dataset's cache")
    add("--epochs", type=int, default=defaults.epochs, help="passes over the demonstrations, at most")
    add("--batch-size", type=int, default=defaults.batch_size, help="decisions per gradient step")
    add("--learning-rate", type=float, default=defaults.learning_rate, help="at the start")
    add("--class-weight-power", type=float, default=defaults.class_weight_power, help="1: rare actions count as much")
    add("--validation-share", type=float, default=dataset.validation_share, help="of the levels")
    add("--frame-skip", type=int, default=dataset.frame_skip, help="frames (1/60 s) per decision")
    add("--seed", type=int, default=0, help="of split, lots, weights and order")
    add("--device", choices=hardware.DEVICES, default=argparse.SUPPRESS, help="default: a GPU if there is one")
    add("--precision", choices=hardware.PRECISIONS, default=argparse.SUPPRESS, help="default: bf16 where it is fast")
    add("--test-dataset", type=Path, default=argparse.SUPPRESS, help="held-out levels for success in closed loop")
    add("--num-eval-episodes", type=int, default=100, help="per category of --test-dataset")
    add("--deterministic", action="store_true", help="take the likeliest action instead of sampling")
    add("--debug", action="store_true", help="show the traceback of an error")
    optional = {"device": None, "precision": None, "test_dataset": None, "max_demonstrations_per_category": None}
    return argparse.Namespace(**(optional | vars(parser.parse_args(argv))))


if __name__ == "__main__":
    sys.exit(main())
