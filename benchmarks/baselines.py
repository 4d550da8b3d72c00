"""Train, play and score the baselines of docs/benchmark.md, on the levels of ``easy``.

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

from nppsim import errors
from nppsim.errors import ConfigError, did_you_mean
from nppsim.gym.benchmark import folder_of
from nppsim.io.files import check_output_folder
from nppsim.settings import Parser, check_settings, setting
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


NETWORKS = {  # track -> network
    "pixels": "pixels_only",
    "state-no-paths": "state_no_paths",
    "state": "vision_free",
    "look-ahead": "vision_free_foresight",
}
BASELINES = (
    {f"ppo-{track}": Baseline(network) for track, network in NETWORKS.items()}
    | {f"bc-{track}": Baseline(network, ppo=False, imitation=True) for track, network in NETWORKS.items()}
    | {f"bc-ppo-{track}": Baseline(network, imitation=True) for track, network in NETWORKS.items()}
    | {"ppo-gru-state": Baseline("vision_free+gru")}
    | {"ppo-learnability-state": Baseline("vision_free", flags=("--curriculum", "learnability"))}
)


@dataclass(frozen=True)
class BaselineSettings:
    """Settings of the command."""

    seeds: tuple[int, ...] = setting((1, 2, 3, 4, 5), "training seeds", flag="seeds", low=0)
    levels: str = setting("easy/test", "split to play", flag="levels", choices=("easy/dev", "easy/test"))
    decisions: int = setting(DECISIONS, "decisions of PPO", flag="decisions", low=1)
    num_levels: int | None = setting(None, "play only N levels, to try the command", flag="num-levels", low=1)
    out: Path = setting(Path("baselines"), "folder of the submissions", flag="out", metavar="DIR")

    def __post_init__(self) -> None:
        check_settings(self)


def main(argv: list[str]) -> int:
    """Run the command; return the exit status: 0 for success, 2 for bad input."""
    return errors.run(lambda: train_and_score(argv))


def train_and_score(argv: list[str]) -> None:
    """Train and score the baselines; raises ConfigError for bad input."""
    names = (*RULES, *BASELINES)
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_settings(BaselineSettings)
    parsed = parser.parse_args(argv)
    settings = parser.build(BaselineSettings, parsed)
    for name in parsed.names:
        if name not in names:
            raise ConfigError(f"is not a baseline; give {', '.join(names)}{did_you_mean(name, names)}", "NAME", name)
    check_output_folder(settings.out, "--out")
    folders = []
    with tempfile.TemporaryDirectory() as training:
        for name in parsed.names or names:
            for seed in settings.seeds:
                folders.append(settings.out / f"{name}_{seed}")
                if not folders[-1].exists():
                    make(name, seed, settings, Path(training), folders[-1])
    run(benchmark.main, "table", *folders, "--out", settings.out / "table.json")


def make(name: str, seed: int, settings: BaselineSettings, training: Path, out: Path) -> None:
    """Train one seed of a baseline in the folder ``training``; write its submission to ``out``."""
    baseline = BASELINES.get(name)
    policy = name if baseline is None else train(f"{name}_{seed}", baseline, seed, settings, training)
    budget = settings.decisions if baseline and baseline.ppo else 0
    demonstrations = NUM_DEMONSTRATIONS if baseline and baseline.imitation else 0
    about = ["--name", name, "--seed", seed, "--budget", budget, "--demonstrations", demonstrations, "--out", out]
    if settings.num_levels is not None:
        about += ["--num-levels", settings.num_levels]
    run(benchmark.main, "run", policy, "--levels", settings.levels, *about)


def train(name: str, baseline: Baseline, seed: int, settings: BaselineSettings, folder: Path) -> Path:
    """Train one seed of a baseline in a new folder of ``folder``; return the checkpoint."""
    common = ("--architectures", baseline.network, "--seed", seed, "--output-dir", folder)
    if not baseline.ppo:
        run(pretrain_bc.main, *common, *IMITATION)
        return max(folder.glob("pretrain_*/bc_best.safetensors"), key=lambda path: path.stat().st_mtime)
    data = ("--train-dataset", folder_of("easy/train"), "--dev-dataset", folder_of("easy/dev"))
    start = IMITATION if baseline.imitation else ("--no-pretraining",)
    length = (
        "--total-timesteps",
        settings.decisions,
        "--eval-freq",
        0,
        "--skip-final-eval",
        "--hardware-profile",
        "auto",
    )
    run(train_and_compare.main, "--experiment-name", name, *common, *data, *start, *length, *baseline.flags)
    return next(folder.glob(f"{name}_*/**/agent.safetensors"))


def run(program: Callable[[list[str]], int], *arguments: object) -> None:
    """Run the main function of a program; exit with its status if it fails."""
    if status := program([str(argument) for argument in arguments]):
        sys.exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
