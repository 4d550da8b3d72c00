"""Evaluation of a checkpoint or an exported network, as ``scripts/evaluate.py`` does it: success per category, and films.

    run(*parse(argv))

Writes ``results.json`` (per category, level and episode), ``replays.h5`` with every episode, and with --record-eval-videos
``videos/`` and ``route_visualizations/``, into ``<output-dir>/evaluate_<time>/``.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from datetime import datetime
from pathlib import Path

import torch

from hardware import DEVICES
from nppsim.cluster import HOW, Workers, check_cluster
from nppsim.errors import ConfigError
from nppsim.files import check_output_folder, locked, new_folder, write_json
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelSet
from nppsim.outcomes import DIED, NAMES
from nppsim.progress import progress_bar
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplayWriter
from nppsim.settings import Parser, check_settings, same_setting, setting
from rl.config import plugins
from rl.config.experiment import MOST_EPISODES, EvaluationConfig, ExperimentConfig, VideoConfig, check_folders
from rl.config.shipped import Shipped
from rl.evaluation.results import EpisodeRecord, aggregate, format_table
from rl.evaluation.video import record_evaluation
from rl.experiment.data import joined, leave_out, readable
from rl.experiment.units import Play, play
from rl.policy.checkpoint import load_policy
from rl.policy.onnx import OnnxPolicy, is_onnx
from rl.policy.policy import NppPolicy

REPLAYS = "replays.h5"  # every episode of an evaluation, in its folder


@dataclass(frozen=True)
class Job:
    """What is asked for, beside the films."""

    checkpoint: Path
    levels: tuple[Path, ...] = setting(
        MISSING, "folders of levels, or level files", flag="levels", aliases=("test-dataset",)
    )
    episodes_per_level: int = setting(
        1, "how often each level is played", flag="episodes-per-level", low=1, high=MOST_EPISODES
    )
    skip_bad_levels: bool = setting(
        False,
        "leave out levels that cannot be read; without this they are an error that names them all",
        flag="skip-bad-levels",
    )
    seed: int = same_setting(EvaluationConfig, "seed", flag="seed", aliases=("seeds",))
    deterministic: bool = same_setting(EvaluationConfig, "deterministic")
    output_dir: Path = same_setting(ExperimentConfig, "output_dir")
    device: str = setting("cpu", "where the network computes", flag="device", choices=DEVICES)
    workers: int | None = same_setting(Workers, "workers")
    cluster: str | None = same_setting(Workers, "cluster")
    plugins: tuple[str, ...] = same_setting(ExperimentConfig, "plugins")
    debug: bool = same_setting(ExperimentConfig, "debug")

    def __post_init__(self) -> None:
        check_settings(self)
        check_folders(self, needed=("levels",))
        check_cluster(self.cluster, self.workers)
        if self.device != "cpu" and (self.cluster or (self.workers or 1) > 1):
            raise ConfigError(
                "several processes play on CPUs; leave it out, or --workers and --cluster", "device", self.device
            )


def run(job: Job, video: VideoConfig) -> None:
    """Play, print the table, write the results and perhaps films."""
    check_output_folder(job.output_dir, "--output-dir", video.expected_bytes())
    video.check_packages()
    plugins.load(job.plugins)
    policy, frame_skip = policy_of(job.checkpoint, job.device)
    how = Play(
        Shipped.of(policy, job.plugins),
        observations=policy.observations,
        stacking=policy.stacking,
        frame_skip=frame_skip,
        episodes_per_level=job.episodes_per_level,
        seed=job.seed,
        deterministic=job.deterministic,
    )
    levels = levels_of(job.levels, job.skip_bad_levels)
    workers = job.workers if job.device == "cpu" else 1
    with progress_bar(title="evaluation", total=len(levels) * job.episodes_per_level, unit="episode") as bar:
        played = play(how, levels, bar.update, workers=workers, cluster=job.cluster)
    episodes = played.agent
    methods = {
        job.checkpoint.name: aggregate(episodes),
        "random play": aggregate(played.random),
        "doing nothing": aggregate(played.nothing),
    }
    settings = vars(job) | vars(video) | {"frame_skip": frame_skip}
    settings = {name: value for name, value in settings.items() if name not in HOW}
    records = [facts_of(episode) | {"replay": f"{REPLAYS}#{i}"} for i, episode in enumerate(episodes)]
    of_levels = level_results(episodes)
    folder = new_folder(job.output_dir / f"evaluate_{datetime.now():%Y%m%d_%H%M%S}")
    with locked(folder):
        write_replays(folder / REPLAYS, episodes, frame_skip)
        results = {"settings": settings, "suites": methods, "levels": of_levels, "episodes": records}
        write_json(folder / "results.json", results)
        print(format_table(methods))
        print(failures(of_levels))
        print(
            f"results: {folder / 'results.json'}; every run: {folder / REPLAYS} (nppsim film {folder / REPLAYS}#0 OUT.mp4)"
        )
        if video.record_eval_videos:
            films = record_evaluation(
                episodes,
                folder,
                frame_skip=frame_skip,
                max_per_category=video.max_videos_per_category,
                fps=video.video_fps,
                ghost=video.ghost,
            )
            print(f"films: {len(films)} in {folder / 'videos'}")


def policy_of(path: Path, device: str) -> tuple[NppPolicy | OnnxPolicy, int]:
    """The policy of a checkpoint or of an exported network, ready to play on a device, and its frames per decision."""
    if is_onnx(path):
        if device != "cpu":
            raise ConfigError("exported networks are played on the CPU; leave it out", "--device", device)
        network = OnnxPolicy.load(path)
        return network, network.facts.frame_skip
    policy, facts = load_policy(path)
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "there is no GPU here that torch can use; leave it out to play on the CPU", "--device", device
        )
    return policy.to(device), facts["frame_skip"]


def levels_of(places: Sequence[Path], skip_bad_levels: bool) -> list[tuple[Level, str]]:
    """The levels of folders and files, each once, with their categories.  LevelSetError names all that cannot be read."""
    bad: list[str] = []
    sets = [readable(LevelSet.at(place), bad) for place in places]
    leave_out(bad, skip_bad_levels, print)
    return joined(sets, print)


def write_replays(path: Path, episodes: Sequence[EpisodeRecord], frame_skip: int) -> None:
    """All episodes as a replay set, in their order; what is not in a replay stands in the metadata."""
    with ReplayWriter(path) as writer:
        for episode in episodes:
            replay = Replay(episode.level, episode.inputs, episode.won, episode.level_name, frame_skip)
            writer.append(replay, category=episode.category, source="agent", outcome=episode.outcome)


def level_results(episodes: Sequence[EpisodeRecord]) -> list[dict[str, object]]:
    """How each level went, in the order of the level set; frames: of the quickest win, None without one."""
    of_level: dict[int, list[EpisodeRecord]] = {}
    for episode in episodes:
        of_level.setdefault(episode.level_index, []).append(episode)
    return [
        {
            "level": played[0].level_name,
            "category": played[0].category,
            "episodes": len(played),
            "wins": sum(episode.won for episode in played),
            "deaths": sum(episode.outcome == NAMES[DIED] for episode in played),
            "frames": min((episode.frames for episode in played if episode.won), default=None),
        }
        for _, played in sorted(of_level.items())
    ]


def failures(levels: Sequence[Mapping[str, object]], most: int = 10) -> str:
    """A line about the levels that were never won."""
    names = [str(level["level"]) for level in levels if not level["wins"]]
    if not names:
        return f"won at least once: all {len(levels)} levels"
    more = f" and {len(names) - most} more (results.json lists them)" if len(names) > most else ""
    return f"never won: {len(names)} of {len(levels)} levels: {', '.join(names[:most])}{more}"


def facts_of(episode: EpisodeRecord) -> dict[str, object]:
    """What the results file says about one episode."""
    return {
        "level": episode.level_name,
        "category": episode.category,
        "outcome": episode.outcome,
        "frames": episode.frames,
        "gold": episode.gold,
    }


def parse(argv: Sequence[str]) -> tuple[Job, VideoConfig]:
    """What the command line asks for."""
    parser = Parser(prog="evaluate.py", description="Evaluate a checkpoint, against random play and doing nothing.")
    parser.add_argument(
        "checkpoint", type=Path, metavar="CHECKPOINT", help="file written by training, or by export.py (*.onnx)"
    )
    how = parser.add_mutually_exclusive_group()
    parser.add_setting(Job, "deterministic", how)
    how.add_argument(
        "--stochastic",
        dest="deterministic_eval",
        action="store_false",
        default=argparse.SUPPRESS,
        help="sample actions",
    )
    parser.add_settings(Job)
    parser.add_settings(VideoConfig)
    arguments = parser.parse_args(argv)
    return parser.build(Job, arguments, checkpoint=arguments.checkpoint), parser.build(VideoConfig, arguments)
