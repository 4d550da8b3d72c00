"""Evaluation of a checkpoint or an exported network (``scripts/evaluate.py``).

    run(*parse(argv))

Writes ``<output-dir>/evaluate_<time>/`` with ``results.json`` (per category, level and episode), ``replays.h5`` (all
episodes), and with --record-eval-videos ``videos/`` and ``route_visualizations/``.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

import torch

from hardware import DEVICES
from nppsim.errors import ConfigError
from nppsim.io.files import check_output_folder, locked, new_folder, write_json
from nppsim.io.progress import progress_bar
from nppsim.levels.level import Level
from nppsim.parallel.cluster import EXECUTION_SETTINGS, Workers
from nppsim.parallel.executor import open_executor
from nppsim.parallel.workers import usable_cores
from nppsim.physics.outcomes import DIED, NAMES
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplayWriter
from nppsim.replays.score import seconds
from nppsim.settings import Parser, check_settings, same_setting, setting
from rl import plugins
from rl.config.evaluation import MOST_EPISODES, EvaluationConfig, VideoConfig
from rl.config.experiment import ExperimentConfig, check_folders
from rl.evaluation.breakdown import Ending, by_contents, endings, format_endings, with_enough_levels
from rl.evaluation.comparison import compare, comparison_table
from rl.evaluation.levels import Pairs, read_pairs
from rl.evaluation.results import ALL, EpisodeRecord, LevelWins, Stats, by_category_and_support, format_table
from rl.evaluation.suite import EvaluationSuite, NoOpPolicy, RandomPolicy
from rl.evaluation.video import record_evaluation
from rl.policy.backtracking import MAX_HORIZON
from rl.policy.checkpoint import load_policy
from rl.policy.constants import HORIZON
from rl.policy.onnx import OnnxPolicy, is_onnx
from rl.policy.player import PickledPolicy
from rl.policy.policy import NppPolicy
from rl.search.guided_search import GuidePolicy
from rl.search.live import CLOCKS, COUNTED, MEASURED, LivePlayer, load_kernels
from rl.seeds import batch_seed

REPLAYS = "replays.h5"  # all episodes
BATCH_EPISODES = 128  # approximate episodes per batch: larger batches are faster, but occupy fewer processes
MIN_PARALLEL = 8  # smallest number of batches for which several processes are faster than one

Progress = Callable[[int], None]


@dataclass(frozen=True)
class EvaluateSettings:
    """Settings of ``scripts/evaluate.py``, except those of films."""

    checkpoint: Path
    levels: tuple[Path, ...] = setting(
        MISSING, "folders of levels, or level files", flag="levels", aliases=("test-dataset",)
    )
    episodes_per_level: int = setting(1, "episodes per level", flag="episodes-per-level", low=1, high=MOST_EPISODES)
    skip_bad_levels: bool = setting(
        False, "skip unreadable levels; default: an error that lists them", flag="skip-bad-levels"
    )
    allow_unsupported: bool = same_setting(ExperimentConfig, "allow_unsupported")
    seed: int = same_setting(EvaluationConfig, "seed", flag="seed", aliases=("seeds",))
    deterministic: bool = same_setting(EvaluationConfig, "deterministic")
    exploration_patience: int = same_setting(EvaluationConfig, "exploration_patience")
    backtracking_horizon: int = setting(
        HORIZON,
        "number of decisions that agents with foresight can take back where they die or exploration fails "
        "(docs/evaluate.md); 0: none",
        flag="backtracking-horizon",
        low=0,
        high=MAX_HORIZON,
    )
    live: str | None = setting(
        None,
        "also play each level live once, with this clock (docs/evaluate.md); a checkpoint without GRU only",
        flag="live",
        choices=tuple(CLOCKS),
    )
    compare: Path | None = setting(
        None, "also evaluate this agent, and print the paired difference", flag="compare", metavar="CHECKPOINT"
    )
    output_dir: Path = same_setting(ExperimentConfig, "output_dir")
    device: str = setting("cpu", "device of the network", flag="device", choices=DEVICES)
    workers: int | None = same_setting(Workers, "workers")
    cluster: str | None = same_setting(Workers, "cluster")
    plugins: tuple[str, ...] = same_setting(ExperimentConfig, "plugins")
    debug: bool = same_setting(ExperimentConfig, "debug")

    def __post_init__(self) -> None:
        check_settings(self)
        check_folders(self, needed=("levels",))
        Workers(self.workers, self.cluster)  # checks the address
        if self.device != "cpu" and (self.cluster or (self.workers or 1) > 1):
            raise ConfigError(
                "several processes use CPUs only; leave out this flag, or --workers and --cluster",
                "device",
                self.device,
            )


def run(settings: EvaluateSettings, video: VideoConfig) -> None:
    """Evaluate the agents, print tables of the results, and write results and films."""
    check_output_folder(settings.output_dir, "--output-dir", video.expected_bytes())
    video.check_packages()
    plugins.load(settings.plugins)
    agents = _agents(settings)
    levels = read_pairs(
        settings.levels, skip_bad_levels=settings.skip_bad_levels, allow_unsupported=settings.allow_unsupported
    )
    workers = settings.workers if settings.device == "cpu" else 1
    total = len(levels) * settings.episodes_per_level * len(agents)
    with progress_bar(title="evaluation", total=total, unit="episode") as bar:
        played = {
            name: play(agent, levels, bar.update, workers=workers, cluster=settings.cluster)
            for name, agent in agents.items()
        }
    by_agent = {agent: by_method.pop(AGENT) for agent, by_method in played.items()}
    name, *others = by_agent
    episodes, frame_skip = by_agent[name], agents[name].frame_skip
    methods = {method: by_category_and_support(own) for method, own in (by_agent | played[name]).items()}
    breakdown = {agent: by_contents(own) for agent, own in by_agent.items()}
    wins = {agent: LevelWins.count(own) for agent, own in by_agent.items()}
    comparisons = [compare(name, other, wins[name], wins[other]) for other in others]
    ended, by_level = endings(episodes), level_results(episodes)
    used = vars(settings) | vars(video) | {"frame_skip": frame_skip}
    results = {
        "settings": {name: value for name, value in used.items() if name not in EXECUTION_SETTINGS},
        "suites": methods,
        "breakdown": breakdown,
        "comparisons": [comparison.to_dict() for comparison in comparisons],
        "levels": by_level,
        **({"live": live_results(played[name][LIVE])} if settings.live else {}),
        "episodes": [episode_entry(i, *pair) for i, pair in enumerate(zip(episodes, ended, strict=True))],
    }
    folder = new_folder(settings.output_dir / f"evaluate_{datetime.now():%Y%m%d_%H%M%S}")
    with locked(folder):
        write_replays(folder / REPLAYS, episodes, frame_skip)
        write_json(folder / "results.json", results)
        print(format_table(methods))
        if sentence := wins_text(methods[name][ALL]):
            print(sentence)
        printed = {agent: with_enough_levels(rows, settings.episodes_per_level) for agent, rows in breakdown.items()}
        if any(len(rows) > 1 for rows in printed.values()):  # an agent has rows besides "all"
            print(format_table(printed))
        print(format_endings(ended))
        print(failures(by_level))
        if not all(episode.won for episode in episodes):
            print(lost_episodes(episodes, ended))
        if comparisons:
            print(comparison_table(comparisons))
        print(
            f"results: {folder / 'results.json'}; episodes: {folder / REPLAYS} (nppsim film {folder / REPLAYS}#0 OUT.mp4)"
        )
        if video.record_eval_videos:
            films = record_evaluation(episodes, folder, video, frame_skip=frame_skip)
            print(f"films: {len(films)} in {folder / 'videos'}")


def _agents(settings: EvaluateSettings) -> "dict[str, PlaySettings]":
    """Return name -> settings of the agent, and of the agent of --compare; names are paths if the file names are equal."""
    paths = [settings.checkpoint] if settings.compare is None else [settings.checkpoint, settings.compare]
    names = {path.name for path in paths}
    agents: dict[str, PlaySettings] = {}
    for path in paths:
        policy, frame_skip = policy_of(path, settings.device)
        agents[path.name if len(names) == len(paths) else str(path)] = PlaySettings(
            PickledPolicy.of(policy, settings.plugins),
            frame_skip,
            settings.episodes_per_level,
            settings.seed,
            settings.deterministic,
            settings.exploration_patience,
            settings.backtracking_horizon,
            baselines=path == settings.checkpoint,
            live=PickledPolicy.of(GuidePolicy.load(path), settings.plugins)
            if settings.live and path == settings.checkpoint
            else None,
            clock=settings.live or COUNTED,
        )
    if len(agents) < len(paths):
        raise ConfigError("is the agent itself; give another checkpoint", "compare", str(settings.compare))
    return agents


# ---------------------------------------------------------------------------------------------------------------------
# Episodes


@dataclass(frozen=True)
class PlaySettings:
    """An agent and the settings of its evaluation, as in ``EvaluationSuite``."""

    agent: PickledPolicy
    frame_skip: int
    episodes_per_level: int
    seed: int
    deterministic: bool
    patience: int
    horizon: int
    baselines: bool = True  # also play the levels with random actions, and without actions
    live: PickledPolicy | None = None  # the agent as a GuidePolicy for live play; None: no live play
    clock: str = COUNTED  # clock of live play, name in ``rl.search.live.CLOCKS``


AGENT, LIVE, RANDOM, NO_OP = "agent", "live", "random play", "doing nothing"  # names of the evaluated policies
Episodes = dict[str, list[EpisodeRecord]]  # method -> episodes in the order of the levels


def play(
    settings: PlaySettings,
    levels: Pairs,
    progress: Progress,
    *,
    workers: int | None = None,
    cluster: str | None = None,
) -> Episodes:
    """Play every level, in batches.  Results do not depend on the number of processes.

    progress: called with the number of the agent's newly finished episodes.
    workers, cluster: as in ``nppsim.parallel.cluster.Workers``.
    Raises ConfigError without levels or if a worker dies, and ClusterError.
    """
    size = max(1, BATCH_EPISODES // settings.episodes_per_level)
    starts = range(0, max(1, len(levels)), size)  # without levels, the suite raises the error
    batches = [(number, levels[start : start + size]) for number, start in enumerate(starts)]
    if workers is None and cluster is None:
        workers = usable_cores() if len(batches) >= MIN_PARALLEL else 1
    if workers is not None:
        workers = min(workers, len(batches))
    here = cluster is None and workers == 1
    play_batch = partial(_play_batch, settings, progress) if here else partial(_play_batch, settings, None)
    played: Episodes = {}
    with open_executor(workers, ConfigError, cluster) as executor, executor.map(play_batch, batches) as results:
        for start, by_method in zip(starts, results, strict=True):
            for method, episodes in by_method.items():
                moved = [replace(episode, level_index=start + episode.level_index) for episode in episodes]
                played.setdefault(method, []).extend(moved)
            if not here:
                progress(len(by_method[AGENT]))
    return played


def _play_batch(settings: PlaySettings, progress: Progress | None, batch: tuple[int, Pairs]) -> Episodes:
    """Play one batch of levels.

    progress: as in ``play``; None if several processes play batches, so that each uses one thread.
    batch: (number of the batch, its levels).
    """
    number, levels = batch
    policy = settings.agent.unpack()
    suite = EvaluationSuite(
        levels,
        episodes_per_category=None,
        episodes_per_level=settings.episodes_per_level,
        seed=batch_seed(settings.seed, number),
        frame_skip=settings.frame_skip,
        threads=1 if progress is None else None,
        patience=settings.patience,
        horizon=settings.horizon,
    )
    played = {AGENT: suite.run(policy, deterministic=settings.deterministic, progress=progress)}
    if settings.live is not None:
        guide = settings.live.unpack()
        if settings.clock == MEASURED:
            load_kernels(guide)
        played[LIVE] = [_play_live(guide, settings, i, pair) for i, pair in enumerate(levels)]
    if settings.baselines:
        played[RANDOM] = suite.run(RandomPolicy(), deterministic=False)
        played[NO_OP] = suite.run(NoOpPolicy(), deterministic=True)
    return played


def _play_live(agent: GuidePolicy, settings: PlaySettings, number: int, pair: tuple[Level, str]) -> EpisodeRecord:
    """Play a level live; return the record of the episode.  number: index of the level."""
    played = LivePlayer(pair[0], agent, settings.seed, settings.clock).play()
    return replace(played.record(pair, agent.frame_skip), level_index=number)


# ---------------------------------------------------------------------------------------------------------------------
# Input


def policy_of(path: Path, device: str) -> tuple[NppPolicy | OnnxPolicy, int]:
    """Load the policy of a checkpoint or an exported network; return (policy, frame skip)."""
    if is_onnx(path):
        if device != "cpu":
            raise ConfigError("exported networks run on the CPU; leave out this flag", "--device", device)
        network = OnnxPolicy.load(path)
        return network, network.metadata.frame_skip
    policy, stored = load_policy(path)
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("torch finds no GPU; leave out this flag to use the CPU", "--device", device)
    return policy.to(device), stored["frame_skip"]


def write_replays(path: Path, episodes: Sequence[EpisodeRecord], frame_skip: int) -> None:
    """Write all episodes as a replay set."""
    with ReplayWriter(path) as writer:
        for episode in episodes:
            replay = Replay(episode.level, episode.inputs, episode.won, episode.level_name, frame_skip)
            writer.append(replay, category=episode.category, source="agent", outcome=episode.outcome)


def level_results(episodes: Sequence[EpisodeRecord]) -> list[dict[str, object]]:
    """Return one dict per level, in the order of the levels.

    frames, time: frames and seconds of the fastest win, None without a win.
    score: highest score of a win, None without a win.
    """
    of_level: dict[int, list[EpisodeRecord]] = {}
    for episode in episodes:
        of_level.setdefault(episode.level_index, []).append(episode)
    return [
        {
            "level": played[0].level_name,
            "id": played[0].level.id,
            "title": played[0].level.title.strip(),
            "category": played[0].category,
            "support": played[0].level.support,
            "episodes": len(played),
            "wins": sum(episode.won for episode in played),
            "deaths": sum(episode.outcome == NAMES[DIED] for episode in played),
            "frames": min((episode.frames for episode in played if episode.won), default=None),
            "time": min((seconds(episode.frames) for episode in played if episode.won), default=None),
            "score": max((episode.score for episode in played if episode.score is not None), default=None),
        }
        for _, played in sorted(of_level.items())
    ]


def live_results(episodes: Sequence[EpisodeRecord]) -> list[dict[str, object]]:
    """Return ``level_results`` of live play with ``thoughts``, lists of begin and end in s and number of decisions."""
    return [
        level | {"thoughts": [[round(begin, 3), round(end, 3), planned] for begin, end, planned in episode.thoughts]}
        for level, episode in zip(level_results(episodes), episodes, strict=True)
    ]


def wins_text(stats: Stats) -> str:
    """Return a line with the mean time and mean score of the won episodes; "" without wins."""
    if stats["mean_time"] is None or stats["mean_score"] is None:
        return ""
    return f"wins: mean time {stats['mean_time']:.3f} s, mean score {stats['mean_score']:.3f}"


def failures(levels: Sequence[Mapping[str, object]], most: int = 10) -> str:
    """Return a line with the levels that were never won.  most: largest number of levels to name."""
    names = [
        f"{level['id']} {level['title']}" if level["id"] else str(level["level"])
        for level in levels
        if not level["wins"]
    ]
    if not names:
        return f"won at least once: all {len(levels)} levels"
    more = f" and {len(names) - most} more (results.json lists them)" if len(names) > most else ""
    return f"never won: {len(names)} of {len(levels)} levels: {', '.join(names[:most])}{more}"


def lost_episodes(episodes: Sequence[EpisodeRecord], ended: Sequence[Ending], most: int = 10) -> str:
    """Return a line for each lost episode that says why it is lost.  most: largest number of lines."""
    lines = [
        f"{REPLAYS}#{number} {episode.level.caption}: {ending.text(episode.backtracks)}"
        for number, (episode, ending) in enumerate(zip(episodes, ended, strict=True))
        if not episode.won
    ]
    more = [f"and {len(lines) - most} more (results.json has them)"] if len(lines) > most else []
    return "\n".join(["why episodes were lost:", *lines[:most], *more])


def episode_entry(number: int, episode: EpisodeRecord, ending: Ending) -> dict[str, object]:
    """Return the entry of an episode in results.json."""
    return {
        "level": episode.level_name,
        "category": episode.category,
        "outcome": episode.outcome,
        "cause": ending.cause,
        "x": ending.place[0],
        "y": ending.place[1],
        "why": None if episode.won else ending.text(episode.backtracks),
        "switch_taken": ending.switch_taken,
        "path_covered": ending.share,
        "frames": episode.frames,
        "gold": episode.gold,
        "time": seconds(episode.frames),
        "score": episode.score,
        "replay": f"{REPLAYS}#{number}",
    }


def parse(argv: Sequence[str]) -> tuple[EvaluateSettings, VideoConfig]:
    """Parse the command line."""
    parser = Parser(prog="evaluate.py", description="Evaluate a checkpoint, random play and doing nothing.")
    parser.add_argument(
        "checkpoint", type=Path, metavar="CHECKPOINT", help="file written by training, or by export.py (*.onnx)"
    )
    sampling = parser.add_mutually_exclusive_group()
    parser.add_setting(EvaluateSettings, "deterministic", sampling)
    sampling.add_argument(
        "--stochastic",
        dest="deterministic_eval",
        action="store_false",
        default=argparse.SUPPRESS,
        help="evaluate sampled actions (the default)",
    )
    parser.add_settings(EvaluateSettings)
    parser.add_settings(VideoConfig)
    arguments = parser.parse_args(argv)
    return parser.build(EvaluateSettings, arguments, checkpoint=arguments.checkpoint), parser.build(
        VideoConfig, arguments
    )
