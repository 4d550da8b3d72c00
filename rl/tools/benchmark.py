"""The benchmark of docs/benchmark.md (``scripts/benchmark.py``): run a policy, score submissions, print tables.

run(parse(argv))
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nppsim.actions import FRAME_SKIP, NUM_ACTIONS
from nppsim.errors import ConfigError, did_you_mean
from nppsim.gym.benchmark import (
    HARD_SEEDS,
    HIDDEN,
    NAMES,
    TRACKS,
    first_levels,
    folder_of,
    generate_hard,
    level_set,
    track_of,
)
from nppsim.io.files import check_output_folder, write_json
from nppsim.io.progress import progress_bar
from nppsim.levels.level_set import LevelSet
from nppsim.parallel.cluster import Workers
from nppsim.settings import Parser, Setting, check_settings, same_setting, setting
from rl import plugins
from rl.config import EvaluationConfig, ExperimentConfig
from rl.evaluation.benchmark_table import format_summary, summary
from rl.evaluation.submission import PROTOCOLS, SCORE, Submission, read_about, read_score, score_folder, write
from rl.evaluation.suite import CHEAPEST, NoOpPolicy, RandomPolicy
from rl.policy.constants import HORIZON, PATIENCE
from rl.policy.player import PickledPolicy
from rl.tools.evaluate import AGENT, PlaySettings, play, policy_of

# (patience, backtracking horizon) of the protocols that ``run`` can play
_PLAYED = {PROTOCOLS[0]: (0, 0), PROTOCOLS[1]: (PATIENCE, 0), PROTOCOLS[2]: (PATIENCE, HORIZON)}


class RepeatingPolicy:
    """Baseline that repeats its previous action, and draws a new one with probability 1 / 15 per decision."""

    observations = CHEAPEST

    def __init__(self) -> None:
        self._actions = np.zeros(0, np.int64)

    def act(self, obs: dict[str, np.ndarray], *, deterministic: bool, rng: torch.Generator | None) -> np.ndarray:
        """See ``rl.evaluation.suite.Policy``."""
        count = len(next(iter(obs.values())))
        drawn = torch.randint(NUM_ACTIONS, (count,), generator=rng).numpy()
        if len(self._actions) != count:  # an evaluation begins, or fewer environments are active
            self._actions = drawn
        new = torch.rand(count, generator=rng).numpy() < 1 / 15
        self._actions = np.where(new, drawn, self._actions)
        return self._actions.copy()


BASELINES: dict[str, Callable[[], Any]] = {
    "random": RandomPolicy,
    "no-op": NoOpPolicy,
    "repeat-previous": RepeatingPolicy,
}


@dataclass(frozen=True)
class RunSettings:
    """Settings of ``benchmark run``."""

    policy: str
    levels: str = setting("hard/dev", "split of levels", flag="levels", choices=NAMES)
    hidden: Path | None = setting(None, "play the hidden levels in this folder instead", flag="hidden", metavar="DIR")
    out: Path = setting(Path("submission"), "new folder for the submission", flag="out")
    name: str = setting("", "name of the method; default: that of the policy", flag="name")
    track: str | None = setting(
        None, "track; default: the first that allows the policy's observations", flag="track", choices=tuple(TRACKS)
    )
    protocol: str = setting(
        PROTOCOLS[0], "what the policy may do besides acting", flag="protocol", choices=tuple(_PLAYED)
    )
    budget: int | None = setting(
        None, "decisions in environments that the training took (a statement)", flag="budget", low=0
    )
    demonstrations: int = setting(0, "demonstrations of the training (a statement)", flag="demonstrations", low=0)
    seed: int = setting(0, "seed of the training (a statement), and of sampled actions", flag="seed", low=0)
    deterministic: bool = same_setting(EvaluationConfig, "deterministic")
    num_levels: int | None = setting(
        None, "play only this number of levels, to try the command", flag="num-levels", low=1
    )
    workers: int | None = same_setting(Workers, "workers")
    plugins: tuple[str, ...] = same_setting(ExperimentConfig, "plugins")

    def __post_init__(self) -> None:
        check_settings(self)


def run_policy(settings: RunSettings) -> None:
    """Play a split with a policy, write the submission and its score."""
    if settings.out.exists():
        raise ConfigError("exists; give a new folder", "--out", settings.out)
    check_output_folder(settings.out.parent, "--out")
    plugins.load(settings.plugins)
    policy, frame_skip = (
        (BASELINES[settings.policy](), FRAME_SKIP)
        if settings.policy in BASELINES
        else policy_of(Path(settings.policy), "cpu")
    )
    used = () if settings.policy in BASELINES else policy.observations
    track = settings.track or track_of(used)
    if more := sorted({*used} - {*TRACKS[track]}):
        raise ConfigError(f"does not allow {', '.join(more)}; give {track_of(used)}", "--track", track)
    split = HIDDEN if settings.hidden else settings.levels
    levels = first_levels(split_of(split, settings.hidden), settings.num_levels, "--num-levels")
    patience, horizon = _PLAYED[settings.protocol]
    pickled = PickledPolicy.of(policy, settings.plugins)
    playing = PlaySettings(
        pickled, frame_skip, 1, settings.seed, settings.deterministic, patience, horizon, baselines=False
    )
    pairs = [(level, levels.category(i)) for i, level in enumerate(progress_bar(levels, "levels", unit="level"))]
    with progress_bar(title=split, total=len(pairs), unit="level") as bar:
        episodes = play(playing, pairs, bar.update, workers=settings.workers)[AGENT]
    about = Submission(
        settings.name or Path(settings.policy).stem,
        track,
        split,
        settings.protocol,
        settings.budget,
        settings.demonstrations,
        settings.seed,
        settings.deterministic,
        frame_skip,
    )
    write(settings.out, about, episodes)
    score([settings.out], None, levels)


def split_of(name: str, hidden: Path | None) -> LevelSet:
    """Return the levels of a split.

    hidden: folder of the hidden levels (``nppsim.gym.benchmark.generate_hard``), needed for their split.
    """
    if name != HIDDEN:
        return level_set(name)
    if hidden is None:
        raise ConfigError(f"is needed for {HIDDEN}; give the folder of the hidden levels", "--hidden")
    return LevelSet.open(hidden)


def score(folders: Sequence[Path], hidden: Path | None, levels: LevelSet | None = None) -> None:
    """Play submissions back; print and store their scores.

    hidden: see ``split_of``.
    levels: a part of the split.
    """
    for folder in folders:
        about = read_about(folder)
        chosen = levels or split_of(about.levels, hidden)
        with progress_bar(title="playback", total=len(chosen), unit="replay") as bar:
            result = score_folder(folder, chosen, bar.update)
        write_json(folder / SCORE, result.to_dict())
        wins = int(result.wins.sum())
        share = f"{wins} of {len(result.wins)} levels of {result.about.levels} ({result.wins.mean():.1%})"
        print(f"{folder}: {about.name} wins {share}")


def print_table(folders: Sequence[Path], out: Path | None) -> None:
    """Print the table of each split; write it as JSON to ``out``."""
    scores = [read_score(folder / SCORE if folder.is_dir() else folder) for folder in folders]
    splits = dict.fromkeys(result.about.levels for result in scores)
    results = [summary([result for result in scores if result.about.levels == split]) for split in splits]
    print("\n\n".join(map(format_summary, results)))
    if out is not None:
        write_json(out, results)


def generate(given: argparse.Namespace, workers: Workers) -> None:
    """Generate levels of a hard split.  Raises ConfigError for a split that is neither a name nor a file."""
    split = given.split if given.split in HARD_SEEDS else Path(given.split)
    if isinstance(split, Path) and not split.is_file():
        advice = f"is neither {', '.join(HARD_SEEDS)} nor a file{did_you_mean(given.split, HARD_SEEDS)}"
        raise ConfigError(advice, "split", given.split)
    with progress_bar(title=given.split, total=given.count, unit="level") as bar:
        levels = generate_hard(split, given.out, given.count, workers.workers, workers.cluster, partial(_advance, bar))
    print(f"{given.out}: {len(levels)} levels")


def _advance(bar: Any, _category: str, made: int) -> None:
    bar.update(made - bar.n)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    text = "Benchmark of docs/benchmark.md: play, score and compare."
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="benchmark", description=text, formatter_class=raw)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    text = "play a split with a policy, and write a submission with its score"
    one = commands.add_parser("run", help=text, description=text)
    one.add_argument("policy", metavar="POLICY", help=f"checkpoint, exported network, or {', '.join(BASELINES)}")
    one.add_settings(RunSettings)
    one.set_defaults(job=lambda given: run_policy(one.build(RunSettings, given, policy=given.policy)))
    text = "play submissions back, bit for bit, and print their success"
    two = commands.add_parser("score", help=text, description=text)
    two.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="submissions")
    two.add_argument("--hidden", type=Path, metavar="DIR", help="folder of the hidden levels")
    two.set_defaults(job=lambda given: score(given.folders, given.hidden))
    text = "print success, interquartile mean, performance profile and paired differences of scores"
    three = commands.add_parser("table", help=text, description=text)
    three.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="scored submissions, or score files")
    three.add_argument("--out", type=Path, metavar="FILE.json", help="also write the table as JSON")
    three.set_defaults(job=lambda given: print_table(given.folders, given.out))
    text = "print the folder of a split"
    four = commands.add_parser("levels", help=text, description=text)
    four.add_argument("levels", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    four.set_defaults(job=lambda given: print(folder_of(given.levels)))
    text = "generate the first levels of a hard split, or continue"
    five = commands.add_parser("generate", help=text, description=text)
    five.add_argument(
        "split",
        metavar="SPLIT",
        help=f"{', '.join(HARD_SEEDS)}; for the hidden levels the file whose SHA-256 docs/benchmark.md states",
    )
    five.add_flag(Setting("number of levels", flag="count", kind=int, default=1000, low=1))
    five.add_settings(Workers)
    five.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for the levels; repeat to continue"
    )
    five.set_defaults(job=lambda given: generate(given, five.build(Workers, given)))
    for command in (one, two, three, four, five):
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.epilog = "\n".join(command.format_usage() for command in (one, two, three, four, five))
    return parser.parse_args(argv)
