"""The main job: for each architecture, condition and seed, imitation -> PPO -> evaluation -> films, then one report.

    run(resolve(argv))        # writes <output>/<name>_<time>/, prints the table, returns the folder

Layout of the folder: ``docs/file_formats.md``.  Everything that can be checked is checked before anything is trained.
"""

import hashlib
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from stable_baselines3.common.logger import CSVOutputFormat, Logger, TensorBoardOutputFormat
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

import hardware
from bc import dataset as demonstrations
from bc import train as imitation
from nppsim import LevelBank, reward
from nppsim.batch import BatchSimulator
from nppsim.files import write_json
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelSet, check_disjoint
from nppsim.measure.machine import git_state
from nppsim.observe.statistics import ObservationStatistics
from rl.config import ConfigError, ExperimentConfig
from rl.curriculum import make_sampler
from rl.experiment.report import write_report
from rl.judge.evaluation import EvaluationSuite, RandomPolicy
from rl.judge.results import EpisodeRecord, aggregate, format_table
from rl.judge.video import record_evaluation
from rl.policy import checkpoint
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy, build_policy
from rl.policy.weight_map import check_same_policy, transfer
from rl.train.monitor import TrainingMonitor
from rl.train.ppo import PHASES, BatchPPO
from rl.train.probe import UpdateProbe
from rl.train.vec_env import BatchVecEnv
from rl.upload import Uploader

RANDOM_PLAY_DECISIONS = 20_000  # for the normaliser's statistics where there are no demonstrations
PROBE_ROWS = 512  # held-out decisions on which the transferred policy must act like the cloned one
_VERSIONS = ("numpy", "numba", "torch", "stable-baselines3", "gymnasium", "h5py", "tensorboard")


@dataclass(frozen=True)
class Data:
    """What an experiment trains and tests on: (level, category) pairs; bank: the training levels, compiled."""

    train: list[tuple[Level, str]]
    test: list[tuple[Level, str]]
    bank: LevelBank

    @property
    def train_categories(self) -> list[str]:
        return [category for _, category in self.train]


def run(config: ExperimentConfig, log: Callable[[str], None] = print) -> Path:
    """Run an experiment; returns its folder.

    Raises the named errors of the package for bad input, before training; KeyboardInterrupt passes through once a
    checkpoint has been written.
    """
    machine = hardware.detect()
    data = load_data(config, log)
    audit = audit_rewards(config, data, log)
    folder = config.resume_from or config.output_dir / f"{config.experiment_name}_{datetime.now():%Y%m%d_%H%M%S}"
    folder.mkdir(parents=True, exist_ok=True)
    uploader = Uploader(config.upload, folder.name) if config.upload.bucket else None
    versions = {name: version(name) for name in _VERSIONS} | {"python": platform.python_version()} | git_state()
    facts = {"machine": machine.name, "versions": versions}
    write_json(folder / "config.json", config.to_dict() | {"data": fingerprints(data)} | facts)
    log(f"experiment folder: {folder}")

    report = {"name": config.experiment_name, "created": f"{datetime.now():%Y-%m-%d %H:%M}", "config": config.to_dict()}
    report |= facts | {"architectures": {}}
    results = {"architectures": {}, "config": config.to_dict(), **facts}
    suites = Suites(config, data)
    for name in config.architectures:
        for condition in config.conditions:
            label = name if len(config.conditions) == 1 else f"{name}, {condition}"
            for seed in config.seeds:
                where = folder / name if len(config.conditions) == 1 else folder / name / condition
                where = where if len(config.seeds) == 1 else where / f"seed_{seed}"
                entry = train_one(config, data, suites, machine, name, condition, seed, folder, where, uploader, log)
                entry["audit"] = [asdict(row) for row in audit]
                title = label if len(config.seeds) == 1 else f"{label}, seed {seed}"
                report["architectures"][title] = entry
                seeds = results["architectures"].setdefault(label, {"seeds": {}})["seeds"]
                seeds[str(seed)] = {
                    "suites": {"test": entry["results"]["ppo"] or {}},
                    "baselines": {"random": entry["results"]["random"], "bc": entry["results"]["bc"]},
                    "speed": entry["speed"],
                    "wall_time_s": entry["wall_time_s"],
                }
                write_json(folder / "results.json", results)
                write_json(folder / "experiment.json", report)
                write_report(report, folder / "report.html")
    if uploader:
        uploader.sync(folder)
    for title, entry in report["architectures"].items():
        names = {"random": "random play", "bc": "BC alone", "ppo": "after PPO"}
        log(f"\n{title}, held-out levels\n" + format_table({names[key]: entry["results"][key] for key in names}))
        log(f"films: {len(entry['paths']['films'])} below {Path(entry['paths']['run']) / 'videos'}")
    log(f"report: {folder / 'report.html'}")
    return folder


def load_data(config: ExperimentConfig, log: Callable[[str], None]) -> Data:
    """Read and compile the levels; LevelError or LevelSetError names what cannot be used."""
    if config.single_level is not None:
        level = Level.load(config.single_level)
        return Data([(level, "single")], [(level, "single")], LevelBank([level]))
    train, test = LevelSet.open(config.train_dataset), LevelSet.open(config.test_dataset)
    check_disjoint(train, test)
    pairs = [[(level_set[i], level_set.category(i)) for i in range(len(level_set))] for level_set in (train, test)]
    begin = time.monotonic()
    bank = LevelBank([level for level, _ in pairs[0]])
    log(f"{len(train)} training levels compiled in {time.monotonic() - begin:.1f} s; {len(test)} held-out levels")
    lost = [level.name for level, ok in zip(bank.levels, bank.reachable, strict=True) if not ok]
    if lost:
        raise ConfigError(
            f"--train-dataset {config.train_dataset}: no way from the start to the exit in {len(lost)} levels, e.g. "
            f"{lost[0]}; remove them (scripts/generate_levels.py writes only levels that a run has finished)"
        )
    return Data(*pairs, bank)


def audit_rewards(config: ExperimentConfig, data: Data, log: Callable[[str], None]) -> list[reward.AuditRow]:
    """The arithmetic of the rewards, per category, before training; the default preset must pass."""
    lengths: dict[str, list[float]] = {}
    for category, length in zip(data.train_categories, data.bank.path_length, strict=True):
        lengths.setdefault(category, []).append(float(length))
    rows = reward.audit(reward.PRESETS[config.reward_preset], config.ppo.gamma, config.frame_skip, lengths)
    for row in rows:
        verdict = "; ".join(row.problems) or "in order"
        log(
            f"rewards on {row.category} (way {row.path_px:.0f} px): win {row.win_return:+.2f}, "
            f"time-out {row.timeout_return:+.2f}, death {row.death_return:+.2f}: {verdict}"
        )
    problems = [problem for row in rows for problem in row.problems]
    if problems and config.reward_preset == "default":
        raise ConfigError(
            f"the rewards do not add up on these levels: {problems[0]}; raise --gamma towards 1, or train on shorter levels"
        )
    return rows


class Suites:
    """The evaluations of an experiment, compiled when first needed: one per kind and set of observations."""

    def __init__(self, config: ExperimentConfig, data: Data):
        self.config, self.data = config, data
        self._made: dict[tuple, EvaluationSuite] = {}

    def get(self, observations: tuple[str, ...], *, periodic: bool = False) -> EvaluationSuite:
        evaluation = self.config.evaluation
        categories = len({category for _, category in self.data.test})
        episodes = (
            evaluation.periodic_episodes_per_category if periodic else evaluation.episodes_per_category(categories)
        )
        key = (observations, episodes)
        if key not in self._made:
            self._made[key] = EvaluationSuite(
                self.data.test,
                episodes_per_category=episodes,
                seed=evaluation.seed,
                frame_skip=self.config.frame_skip,
                observations=observations,
                reward=self.config.reward_preset,
            )
        return self._made[key]


def train_one(config, data, suites, machine, name, condition, seed, root: Path, folder: Path, uploader, log) -> dict:
    """One architecture, condition and seed; returns its entry of the report."""
    begin = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    architecture = get_architecture(name)
    torch.manual_seed(seed)
    wishes = config.hardware.wishes(config.ppo.total_timesteps)
    first = hardware.plan(architecture.observations, wishes, machine=machine)  # the device and precision to measure on
    probe = UpdateProbe(name, first.device, first.precision)
    threads = probe.seconds if torch.device(first.device).type == "cpu" else None
    plan = hardware.plan(
        architecture.observations, wishes, machine=machine, probe=probe.peak_bytes, thread_probe=threads
    )
    log(f"\n{name}, {condition}, seed {seed}\n{plan}")
    torch.set_num_threads(plan.torch_threads)
    device = torch.device(plan.device)
    pretrained = condition == "with_pretrain"
    settled = config.ppo.settled(plan, pretrained=pretrained)
    sim = BatchSimulator(
        data.bank,
        plan.num_envs,
        frame_skip=config.frame_skip,
        observations=architecture.observations,
        reward=config.reward_preset,
        gamma=settled.gamma,
        threads=plan.simulator_threads,
    )
    env = BatchVecEnv(sim, make_sampler(data.train_categories, config.curriculum, seed))
    final = suites.get(architecture.observations)
    evaluate = not config.evaluation.skip_final_eval
    results: dict[str, dict | None] = {"random": None, "bc": None, "ppo": None}
    if evaluate:
        results["random"] = aggregate(final.run(RandomPolicy(), deterministic=False))

    writer = SummaryWriter(str(folder / "tensorboard"))
    cloned_result = cloned = None
    if pretrained:
        dataset = load_demonstrations(config, architecture.observations, seed, log)
        if config.single_level is None:
            dataset.check_held_out(level for level, _ in data.test)
        statistics = dataset.statistics()
        cloned = build_policy(name, statistics, precision=plan.precision, device=device)
        cloned_result = pretrain(config, cloned, dataset, folder / "pretrain", writer, device, seed, log)
        if evaluate:
            results["bc"] = aggregate(play(final, cloned, config))
    else:
        statistics = statistics_of_random_play(env, seed)
    writer.close()

    ppo = BatchPPO(env, name, settled, plan, statistics=statistics, seed=seed, device=device)
    moved = None
    if cloned is not None:
        moved = transfer(cloned.state_dict(), ppo.policy)
        rows = dataset.rows(validation=True)[:PROBE_ROWS]
        agreement = check_same_policy(cloned, ppo.policy, dataset.observe(rows))
        log(f"{moved}; {agreement:.0%} of greedy actions agree on {len(rows)} held-out decisions")
        ppo.anchor_to(cloned)
        del dataset  # nothing below needs its memory
    ppo.set_logger(
        Logger(
            str(folder),
            [TensorBoardOutputFormat(str(folder / "tensorboard")), CSVOutputFormat(str(folder / "progress.csv"))],
        )
    )
    monitor = TrainingMonitor(config, root, folder, suites.get(architecture.observations, periodic=True), uploader, log)
    if config.resume_from is not None:
        monitor.resume(ppo)
    try:
        ppo.learn(settled.total_timesteps, callback=monitor, reset_num_timesteps=config.resume_from is None)
    except KeyboardInterrupt:
        path = monitor.save(ppo, "interrupted")
        raise KeyboardInterrupt(f"checkpoint: {path}; go on with --resume-from {root}") from None
    ppo.logger.close()
    monitor.save(ppo, "final")
    ppo.save_plain(folder / "final_model.zip")

    films, episodes = [], []
    if evaluate:
        episodes = play(final, ppo.policy, config)
        results["ppo"] = aggregate(episodes)
    if config.video.record_eval_videos:
        films = record_evaluation(episodes, folder, config.video.max_videos_per_category, config.video.video_fps)
    share = {phase: ppo.speed[phase] / max(ppo.seconds, 1e-9) for phase in PHASES[:-1]}
    share["rest"] = max(0.0, 1.0 - sum(share.values()))
    entry = {
        "results": results,
        "bc": cloned_result and cloned_result.as_dict(),
        "transfer": moved and asdict(moved),
        "speed": {"decisions_per_s": ppo.decisions_played / max(ppo.seconds, 1e-9), "share": share},
        "plan": plan.to_dict(),
        "wall_time_s": time.monotonic() - begin,
        "paths": {
            "tensorboard": str(folder / "tensorboard"),
            "run": str(folder),
            "films": [asdict(film) for film in films],
        },
        "events": monitor.events + env.sampler.events,
    }
    write_json(folder / "eval_results.json", results)
    return entry


def _progress_bar(files):
    return tqdm(files, desc="playing back demonstrations", unit="replay", disable=not sys.stderr.isatty())


def play(suite: EvaluationSuite, policy: NppPolicy, config: ExperimentConfig) -> list[EpisodeRecord]:
    """The suite's episodes, acting as the configuration says."""
    return suite.run(policy, deterministic=config.evaluation.deterministic)


def load_demonstrations(config: ExperimentConfig, observations, seed: int, log) -> demonstrations.BCDataset:
    """The demonstrations as a dataset, from the cache beside the experiments if they are the same."""
    settings = demonstrations.DatasetConfig(
        config.frame_skip,
        observations,
        seed=seed,
        mirror=config.mirror_demonstrations,
        max_per_category=config.max_demonstrations_per_category,
    )
    return demonstrations.load_or_build(
        config.replay_data_dir, config.output_dir / "cache", settings, log=log, progress=_progress_bar
    )


def pretrain(config, policy, dataset, folder: Path, writer, device, seed, log):
    """Behavioural cloning; the best weights so far are always on disk as ``bc_best.pt``."""
    folder.mkdir(parents=True, exist_ok=True)

    def save(policy, epoch):
        checkpoint.save(
            folder / "bc_best.pt",
            policy,
            frame_skip=config.frame_skip,
            config={"bc": asdict(config.bc), "epoch": epoch},
        )

    result = imitation.pretrain(
        policy, dataset, replace(config.bc, seed=seed), writer, device, on_improvement=save, log=log
    )
    log(result.table())
    return result


def statistics_of_random_play(env: BatchVecEnv, seed: int) -> ObservationStatistics:
    """Means and spreads of what random actions meet on the training levels."""
    sim, rng = env.sim, np.random.default_rng(seed)
    statistics = ObservationStatistics(sim.keys)
    env.reset()
    for _ in range(-(-RANDOM_PLAY_DECISIONS // sim.num_envs)):
        sim.step(rng.integers(0, 6, sim.num_envs))
        sim.next_level[sim.finished] = env.sampler.draw(len(sim.finished))
        statistics.update({key: sim.obs[key] for key in statistics.float_keys})
    return statistics


def fingerprints(data: Data) -> dict[str, str]:
    """One digest for the levels of each dataset, whatever their order."""
    return {
        name: hashlib.sha256("".join(sorted(level.fingerprint for level, _ in pairs)).encode()).hexdigest()[:16]
        for name, pairs in (("train", data.train), ("test", data.test))
    }
