"""Train, play and score the baselines of docs/benchmark.md.

python -m benchmarks.baselines ppo-state --seeds 1 2 3 --out baselines       # without names: all baselines

For each baseline and seed, it trains with the project's programs, plays the split with the policy alone, and writes the
submission ``OUT/NAME_SEED``; existing ones are kept.  Then it prints the table.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nppsim.gym.benchmark import NAMES, folder_of
from scripts import benchmark, pretrain_bc, train_and_compare

DEMONSTRATIONS = Path(__file__).parents[1] / "datasets" / "refined"
NUM_DEMONSTRATIONS = 2999  # of the refined runs
IMITATION = ("--replay-data-dir", DEMONSTRATIONS, "--bc-epochs", 3, "--bc-batch-size", 512)
DECISIONS = 1_000_000  # of PPO
RULES = ("no-op", "random", "repeat-previous")  # of ``nppsim benchmark run``


@dataclass(frozen=True)
class Baseline:
    """A training.

    network: name of the architecture.
    ppo: True to train with PPO, for DECISIONS.
    imitation: True to begin with imitation of DEMONSTRATIONS.
    flags: further flags of train_and_compare.py.
    """

    network: str
    ppo: bool = True
    imitation: bool = False
    flags: tuple[str, ...] = ()


TRACKS = {"pixels": "pixels_only", "state-no-paths": "state_no_paths", "state": "vision_free"} | {
    "look-ahead": "vision_free_foresight"
}
BASELINES = (
    {f"ppo-{track}": Baseline(network) for track, network in TRACKS.items()}
    | {f"bc-{track}": Baseline(network, ppo=False, imitation=True) for track, network in TRACKS.items()}
    | {f"bc-ppo-{track}": Baseline(network, imitation=True) for track, network in TRACKS.items()}
    | {"ppo-gru-state": Baseline("vision_free+gru")}
    | {"ppo-learnability-state": Baseline("vision_free", flags=("--curriculum", "learnability"))}
)


def main(argv: list[str]) -> None:
    """Run the command."""
    names = (*RULES, *BASELINES)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--levels", choices=[name for name in NAMES if not name.endswith("train")], default="easy/test")
    parser.add_argument("--decisions", type=int, default=DECISIONS, help="decisions of PPO (default: %(default)s)")
    parser.add_argument("--num-levels", type=int, metavar="N", help="play only N levels, to try the command")
    parser.add_argument("--out", type=Path, default=Path("baselines"), metavar="DIR")
    given = parser.parse_args(argv)
    if unknown := {*given.names} - {*names}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(names)}")
    folders = []
    with tempfile.TemporaryDirectory() as training:
        for name in given.names or names:
            for seed in given.seeds:
                folders.append(given.out / f"{name}_{seed}")
                if not folders[-1].exists():
                    make(name, seed, given, Path(training), folders[-1])
    run(benchmark.main, "table", *folders, "--out", given.out / "table.json")


def make(name: str, seed: int, given: argparse.Namespace, training: Path, out: Path) -> None:
    """Train one seed of a baseline in the folder ``training``; write its submission to ``out``."""
    baseline = BASELINES.get(name)
    policy = name if baseline is None else train(f"{name}_{seed}", baseline, seed, given, training)
    budget = given.decisions if baseline and baseline.ppo else 0
    demonstrations = NUM_DEMONSTRATIONS if baseline and baseline.imitation else 0
    about = ["--name", name, "--seed", seed, "--budget", budget, "--demonstrations", demonstrations, "--out", out]
    if given.num_levels:
        about += ["--num-levels", given.num_levels]
    run(benchmark.main, "run", policy, "--levels", given.levels, *about)


def train(name: str, baseline: Baseline, seed: int, given: argparse.Namespace, folder: Path) -> Path:
    """Train one seed of a baseline in a new folder of ``folder``; return the checkpoint."""
    common = ("--architectures", baseline.network, "--seed", seed, "--output-dir", folder)
    if not baseline.ppo:
        run(pretrain_bc.main, *common, *IMITATION)
        return max(folder.glob("pretrain_*/bc_best.safetensors"), key=lambda path: path.stat().st_mtime)
    levels = given.levels.split("/")[0]
    data = ("--train-dataset", folder_of(f"{levels}/train"), "--dev-dataset", folder_of(f"{levels}/dev"))
    start = IMITATION if baseline.imitation else ("--no-pretraining",)
    length = ("--total-timesteps", given.decisions, "--eval-freq", 0, "--skip-final-eval", "--hardware-profile", "auto")
    run(train_and_compare.main, "--experiment-name", name, *common, *data, *start, *length, *baseline.flags)
    return next(folder.glob(f"{name}_*/**/agent.safetensors"))


def run(program: Callable[[list[str]], int], *arguments: object) -> None:
    """Run the main function of a program; exit with its status if it fails."""
    if status := program([str(argument) for argument in arguments]):
        sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
