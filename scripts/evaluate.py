"""Evaluate a checkpoint: success with confidence intervals per category, and films.

python scripts/evaluate.py CHECKPOINT --levels DIR [--record-videos]

Writes ``results.json`` (per category and per episode), and with --record-videos ``videos/`` and
``route_visualizations/``, into ``<output-dir>/evaluate_<time>/``.
"""

import argparse
import sys
from datetime import datetime
from pathlib import Path

import torch
from tqdm import tqdm

import hardware
from nppsim import errors
from nppsim.files import write_json
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelSet
from rl.config import EvaluationConfig, VideoConfig, check_output_dir
from rl.judge.evaluation import EvaluationSuite, NoOpPolicy, RandomPolicy
from rl.judge.results import aggregate, format_table
from rl.judge.video import record_evaluation
from rl.policy.checkpoint import load_policy


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0, 2 for bad input, 130 after Ctrl-C."""
    arguments = parse(argv)
    return errors.run(lambda: run(arguments), debug=arguments.debug)


def run(arguments: argparse.Namespace) -> None:
    check_output_dir(arguments.output_dir)
    policy, facts = load_policy(arguments.checkpoint, arguments.device)
    plan = hardware.plan(policy.observations, hardware.Wishes(device=arguments.device))
    torch.set_num_threads(plan.torch_threads)
    suite = EvaluationSuite(
        [(Level.load(arguments.levels), "single")] if arguments.levels.is_file() else LevelSet.open(arguments.levels),
        episodes_per_category=None,
        episodes_per_level=arguments.episodes_per_level,
        seed=arguments.seed,
        frame_skip=facts["frame_skip"],
        observations=policy.observations,
    )
    with tqdm(total=len(suite), unit="episode", disable=not sys.stderr.isatty()) as bar:
        episodes = suite.run(policy, deterministic=arguments.deterministic, progress=bar.update)
    methods = {
        arguments.checkpoint.name: aggregate(episodes),
        "random play": aggregate(suite.run(RandomPolicy(), deterministic=False)),
        "doing nothing": aggregate(suite.run(NoOpPolicy(), deterministic=True)),
    }
    folder = arguments.output_dir / f"evaluate_{datetime.now():%Y%m%d_%H%M%S}"
    settings = {name: value for name, value in vars(arguments).items() if name != "debug"}
    write_json(
        folder / "results.json",
        {
            "settings": settings | {"frame_skip": facts["frame_skip"]},
            "suites": methods,
            "episodes": [
                {
                    "level": e.level_name,
                    "category": e.category,
                    "outcome": e.outcome,
                    "frames": e.frames,
                    "gold": e.gold,
                }
                for e in episodes
            ],
        },
    )
    print(format_table(methods))
    print(f"results: {folder / 'results.json'}")
    if arguments.record_videos:
        films = record_evaluation(episodes, folder, arguments.max_videos_per_category, arguments.video_fps)
        print(f"films: {len(films)} in {folder / 'videos'}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    evaluation, video = EvaluationConfig(), VideoConfig()
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", help="file written by training")
    add("--levels", type=Path, required=True, help="folder of levels, or one level file")
    add("--episodes-per-level", type=int, default=1, metavar="N", help="how often each level is played")
    add("--seed", type=int, default=evaluation.seed, metavar="N", help="of sampled actions")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--deterministic", action="store_true", help="take the likeliest actions")
    how.add_argument("--stochastic", action="store_false", dest="deterministic", help="sample actions")
    parser.set_defaults(deterministic=evaluation.deterministic)
    add("--record-videos", action="store_true", help="film some episodes of each category")
    add("--max-videos-per-category", type=int, default=video.max_videos_per_category, metavar="N", help="films")
    add("--video-fps", type=int, default=video.video_fps, metavar="N", help="film frames per second; the game has 60")
    add("--output-dir", type=Path, default=Path("experiments"), help="folder for the folder of results")
    add("--device", choices=hardware.DEVICES, default="cpu", help="where the network computes")
    add("--debug", action="store_true", help="show the traceback of an error")
    arguments = parser.parse_args(argv)
    limits = {
        "episodes-per-level": (1, None),
        "max-videos-per-category": (1, None),
        "video-fps": (1, 60),
        "seed": (0, None),
    }
    for name, (low, high) in limits.items():
        value = getattr(arguments, name.replace("-", "_"))
        if value < low or (high is not None and value > high):
            parser.error(
                f"--{name} {value}: give a whole number of at least {low}" + (f", at most {high}" if high else "")
            )
    return arguments


if __name__ == "__main__":
    sys.exit(main())
