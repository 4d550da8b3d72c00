"""The configuration of an experiment: frozen dataclasses, which define all defaults.

    config = ExperimentConfig(experiment_name="first", architectures=("mlp_baseline",))
    config.ppo.gamma, config.to_dict()          # plain values for config.json, with secrets removed

A setting is one field: its default, its flag if it has one, its help and its limits (``nppsim.settings``).  Whatever is
wrong, a value, a combination or a path, is a ``ConfigError`` before anything starts.  A ``None`` where a size belongs means
that the hardware plan chooses; a number that the user gave is never changed.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from bc.dataset import DatasetConfig
from bc.train import BCConfig
from hardware import DEVICES, PlanError, PlanRequest
from hardware.profiles import AUTO, find_profile
from nppsim.actions import FRAMES_PER_SECOND
from nppsim.errors import ConfigError, did_you_mean, needed, redact
from nppsim.generate import CATEGORIES
from nppsim.observe.foresight import HORIZON
from nppsim.observe.stacking import MOST_FRAMES, PADDINGS, Stacking
from nppsim.settings import check_settings, same_setting, setting
from rl.config.curriculum import CurriculumConfig
from rl.config.distillation import DistillationConfig
from rl.config.ppo import PPOConfig
from rl.config.rewards import RewardSettings
from rl.policy.architectures import (
    MOST_BLOCKS,
    MOST_DECISIONS,
    WITH_MEMORY,
    WITH_SUBTASKS,
    ArchitectureError,
    ResidualBlocks,
    get_architecture,
)
from rl.seeds import LARGEST_SEED

BACKENDS = ("nccl", "gloo")
RUN_BYTES = 100 << 20  # of one training run on disk: final checkpoint, curves, results; generous
CHECKPOINT_BYTES = 25 << 20  # of one checkpoint to resume from; generous
FILM_BYTES = 2 << 20  # of one film and its picture; generous

DEV_SHARE = 0.1  # of the training levels of each category, held out if no dev levels are given
DEV_LEVELS = 50  # of a category, at most
MOST_EPISODES = 1_000_000  # of an evaluation; the records of all are in memory
EVALUATIONS = 20  # during a training, by default
EVALUATIONS_IN_BUDGET = 10  # of a training that ends by the clock
REPLAYS = "replay-data-dir"
INIT_FROM = "init-from"
_VIDEOS = "record-eval-videos"
_STOPPING = "enable-early-stopping"
_BUCKET = "s3-bucket"
_TRACING = "enable-pytorch-profiler"
_MEMORY = "enable-memory-profiling"
_DEEP = "use-deep-resnet-policy"
_VISUAL, _STATE = "enable-visual-frame-stacking", "enable-state-stacking"
_HIERARCHICAL = "use-hierarchical-ppo"
IMITATION = "imitation"


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation on dev levels during training and on test levels at its end, with the same seed each time."""

    flag_prefix: ClassVar[str] = ""
    eval_freq: int | None = setting(
        None, "decisions between evaluations during training; 0: none; default: a twentieth of --total-timesteps", low=0
    )
    eval_every_minutes: float | None = setting(
        None,
        "minutes between them, whatever the speed; with --eval-freq, too, whichever comes first; default: a tenth of "
        "--time-budget-minutes where neither is given",
        above=0,
    )
    periodic_episodes_per_category: int = setting(
        20,
        "episodes of each category in those evaluations",
        flag="eval-episodes-per-category",
        low=1,
        high=MOST_EPISODES,
    )
    num_eval_episodes: int = setting(
        250, "episodes of the final evaluation, spread evenly over the categories", low=1, high=MOST_EPISODES
    )
    skip_final_eval: bool = setting(False, "no final evaluation")
    deterministic: bool = setting(  # off: sampled actions do not repeat the same mistake forever
        False,
        "evaluate the deterministic actions instead of sampled ones",
        flag="deterministic-eval",
        aliases=("deterministic",),
        switch=True,
    )
    seed: int = setting(20_251, "of the evaluations' sampled actions", flag="eval-seed", low=0, high=LARGEST_SEED)
    remote: bool = setting(
        False,
        "evaluate in a separate process while training continues; a result takes effect when the next evaluation is due "
        "(docs/evaluate.md)",
        flag="remote-evaluation",
        switch=True,
    )
    retention_guard: bool = setting(
        True,
        "neither go back to better weights when dev success falls clearly below the BC policy's, nor deliver the "
        "best ones: the last weights are delivered, whatever they can do",
        flag="no-retention-guard",
    )
    early_stopping: bool = setting(False, "end PPO when evaluations no longer improve", flag=_STOPPING)
    early_stopping_patience: int = setting(
        10, "evaluations without improvement before training ends", needs=_STOPPING, low=1
    )
    early_stopping_improvement: float = setting(
        0.01, "rise of the success that counts as improvement", needs=_STOPPING, low=0, below=1
    )
    early_stopping_min_evaluations: int = setting(
        5, "evaluations before training can end early", needs=_STOPPING, low=1
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.eval_every_minutes is not None and self.eval_freq == 0:
            raise ConfigError(
                "--eval-freq 0 means none; leave one of them out", "eval_every_minutes", self.eval_every_minutes
            )
        if self.remote and not self.in_training:
            advice = (
                "--remote-evaluation is about evaluations during training; give an --eval-freq above 0, or leave it out"
            )
            raise ConfigError(advice, "eval_freq", self.eval_freq)
        if self.early_stopping and not self.in_training:
            advice = "--enable-early-stopping needs evaluations during training; give an --eval-freq above 0"
            raise ConfigError(advice, "eval_freq", self.eval_freq)

    @property
    def in_training(self) -> bool:
        """True if there are evaluations during training."""
        return self.eval_freq != 0

    def periods(self, total_timesteps: int, time_budget_minutes: float | None) -> tuple[int, float]:
        """(decisions, seconds) between evaluations, settled for a training of that length; 0: never for this reason."""
        if not self.in_training:
            return 0, 0.0
        by_time = 60 * (self.eval_every_minutes or 0.0)
        if self.eval_freq is not None or by_time:
            return self.eval_freq or 0, by_time
        if time_budget_minutes is not None:
            return 0, 60 * time_budget_minutes / EVALUATIONS_IN_BUDGET
        return math.ceil(total_timesteps / EVALUATIONS), 0.0

    def episodes_per_category(self, categories: int) -> int:
        """Episodes of each category in the final evaluation: ``num_eval_episodes`` shared out, rounded up."""
        return math.ceil(self.num_eval_episodes / categories)


@dataclass(frozen=True)
class VideoConfig:
    """Films of the final evaluation."""

    flag_prefix: ClassVar[str] = ""
    record_eval_videos: bool = setting(False, "film the final evaluation", flag=_VIDEOS, aliases=("record-videos",))
    max_videos_per_category: int = setting(10, "films of each category", needs=_VIDEOS, low=1)
    video_fps: int = setting(
        30, f"film frames per second; the game has {FRAMES_PER_SECOND}", needs=_VIDEOS, low=1, high=FRAMES_PER_SECOND
    )

    ghost: bool = setting(
        False, "films show a run of the planner, too, pale, where it finds one", flag="video-ghost", needs=_VIDEOS
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def check_packages(self) -> None:
        """MissingPackageError if films are wanted and what makes them is not installed."""
        if self.record_eval_videos:
            needed("av", "video")
            needed("PIL", "video")

    def expected_bytes(self) -> int:
        """Disk space that the films of one evaluation may take."""
        return FILM_BYTES * self.max_videos_per_category * len(CATEGORIES) if self.record_eval_videos else 0


@dataclass(frozen=True)
class UploadConfig:
    """Upload to S3; see ``rl.upload``.  Credentials are read from the environment there, and never stored."""

    flag_prefix: ClassVar[str] = "s3-"
    bucket: str | None = setting(
        None, "upload the run's folder to this bucket; credentials come from the environment only", flag=_BUCKET
    )
    prefix: str = setting("experiments/", "put before the names of uploaded objects", needs=_BUCKET)
    sync_freq: int = setting(500_000, "decisions between uploads", needs=_BUCKET, low=1)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.bucket is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}", self.bucket):
            raise ConfigError("is no bucket name; give the bare name, no s3:// or path", "bucket", redact(self.bucket))
        if not self.prefix.strip("/"):
            raise ConfigError("is empty; give the folder in the bucket, e.g. experiments/", "prefix", self.prefix)


@dataclass(frozen=True)
class HardwareConfig:
    """Settings of the hardware plan; None leaves the choice to it."""

    flag_prefix: ClassVar[str] = ""
    hardware_profile: str = setting(AUTO, "auto, or a profile's name (python -m hardware plan --help lists them)")
    num_envs: int | None = setting(None, "environments, summed over all processes; default: the hardware plan's", low=1)
    rollout_length: int | None = setting(None, "decisions per environment and update; default: the plan's", low=1)
    minibatch_size: int | None = setting(
        None, "decisions per gradient step, of all processes together; default: the plan's", low=1
    )
    torch_threads: int | None = setting(
        None,
        "that share a gradient step, of each process; default: measured once on each machine; others round differently",
        low=1,
        high=1024,
    )
    simulator_threads: int | None = setting(
        None,
        "threads of the simulator, per process; results do not depend on it; default: the plan's",
        low=1,
        high=1024,
    )
    mixed_precision: bool | None = setting(
        None, "networks compute in bfloat16; default: where that is fast", switch=True
    )
    device: str | None = setting(None, "default: a GPU if there is one", choices=DEVICES)
    num_gpus: int = setting(1, "at most; 0 means CPU; from 2 on, that many, with a process for each", low=0)
    num_processes: int | None = setting(
        None,
        "processes that train together, on this machine or as torchrun has started them (docs/long_runs.md); default: one, "
        "or one for each GPU",
        low=1,
        high=1024,
    )
    distributed_backend: str | None = setting(
        None, "how several processes share gradients; default: nccl on GPUs, gloo on CPUs", choices=BACKENDS
    )

    def __post_init__(self) -> None:
        check_settings(self)
        try:
            find_profile(self.hardware_profile)
        except PlanError as error:
            raise ConfigError(str(error), "hardware_profile", self.hardware_profile) from error
        if self.num_gpus == 0 and self.device == "cuda":
            raise ConfigError("--num-gpus 0 and --device cuda contradict each other; leave one of them out")
        if self.num_gpus > 1 and (self.device == "cpu" or self.num_processes not in (None, self.num_gpus)):
            raise ConfigError(
                "there is one process for each GPU; leave out --num-processes and --device", "num_gpus", self.num_gpus
            )
        if self.distributed_backend == "nccl" and (self.device == "cpu" or self.num_gpus == 0):
            raise ConfigError("is for GPUs; use gloo", "distributed_backend", "nccl")

    @property
    def processes(self) -> int:
        """Number of processes that train together."""
        return self.num_processes or max(self.num_gpus, 1)

    def plan_request(self, total_timesteps: int | None) -> PlanRequest:
        """Return the explicit settings for ``hardware.plan``; total_timesteps: decisions of the whole run."""
        return PlanRequest(
            total_timesteps=total_timesteps,
            profile=self.hardware_profile,
            num_envs=self.num_envs,
            rollout_length=self.rollout_length,
            minibatch_size=self.minibatch_size,
            torch_threads=self.torch_threads,
            simulator_threads=self.simulator_threads,
            precision={None: None, True: "bf16", False: "float32"}[self.mixed_precision],
            device={0: "cpu", 1: self.device}.get(self.num_gpus, "cuda"),
            processes=self.processes if self.processes > 1 else None,
        )


def _architecture(name: str) -> str:
    """The name that folders and results have; ConfigError for one that is unknown."""
    try:
        return get_architecture(name).name
    except ArchitectureError as error:
        raise ConfigError(str(error), "architectures", name) from error


@dataclass(frozen=True)
class HeadsConfig:
    """Deep heads for every network of the experiment; ``--architectures NAME NAME+deep2`` compares with and without."""

    deep: bool = setting(
        False, "residual blocks in the heads of actor and critic, as NAME+deepN has them", flag=_DEEP, switch=True
    )
    blocks: int = setting(
        2, "residual blocks in each head", flag="deep-resnet-blocks", needs=_DEEP, low=1, high=MOST_BLOCKS
    )
    residual: bool = setting(
        True, "a block adds to what it is given", flag="deep-resnet-use-residual", needs=_DEEP, switch=True
    )
    layer_norm: bool = setting(
        True, "layer norm before each block", flag="deep-resnet-use-layer-norm", needs=_DEEP, switch=True
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def named(self, architecture: str) -> str:
        """The name of an architecture with these heads."""
        blocks = ResidualBlocks(self.blocks, self.residual, self.layer_norm)
        return f"{architecture}+{blocks.name}" if self.deep else architecture


@dataclass(frozen=True)
class StackingConfig:
    """Stacks of frames for every network of the experiment; ``--architectures NAME NAME+state4`` compares both."""

    visual: bool = setting(
        False, "show the latest images together, as NAME+visualN has them", flag=_VISUAL, switch=True
    )
    visual_size: int = setting(4, "images in a stack", flag="visual-stack-size", needs=_VISUAL, low=1, high=MOST_FRAMES)
    state: bool = setting(
        False, "show the latest state vectors together, as NAME+stateN has them", flag=_STATE, switch=True
    )
    state_size: int = setting(
        4, "state vectors in a stack", flag="state-stack-size", needs=_STATE, low=1, high=MOST_FRAMES
    )
    padding: str = setting(
        PADDINGS[0],
        "padding before an episode's first frame: zeros, or that frame repeated",
        flag="frame-stack-padding",
        choices=PADDINGS,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.padding not in PADDINGS:
            raise ConfigError(f"give {' or '.join(PADDINGS)}", "padding", self.padding)
        if self.padding != PADDINGS[0] and max(self.sizes) == 1:
            raise ConfigError(
                f"pads stacks of several frames; give --{_VISUAL} or --{_STATE}, too",
                "--frame-stack-padding",
                self.padding,
            )

    @property
    def sizes(self) -> tuple[int, int]:
        """Images and state vectors in a stack."""
        return self.visual_size if self.visual else 1, self.state_size if self.state else 1

    def named(self, architecture: str) -> str:
        """The name of an architecture with these stacks."""
        stacks = Stacking(*self.sizes, self.padding).name
        return f"{architecture}+{stacks}" if stacks else architecture


@dataclass(frozen=True)
class HierarchyConfig:
    """Hierarchical PPO; see ``rl.ppo.hierarchy``."""

    hierarchical: bool = setting(
        False,
        "hierarchical PPO: a high level chooses subtasks, a low level acts on them (docs/architectures.md)",
        flag=_HIERARCHICAL,
        switch=True,
    )
    update_freq: int = setting(
        50,
        "decisions after which a new subtask is chosen at the latest; when it is completed, and with each episode, sooner",
        flag="high-level-update-freq",
        needs=_HIERARCHICAL,
        low=1,
        high=MOST_DECISIONS,
    )
    from_stage: str | None = setting(
        None,
        "category of levels, e.g. medium: plain PPO until the curriculum has come to it, without a jump in the policy then",
        flag="hierarchical-from-stage",
        needs=_HIERARCHICAL,
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def named(self, architecture: str) -> str:
        """The name of an architecture with these subtasks."""
        return f"{architecture}+{WITH_SUBTASKS}{self.update_freq}" if self.hierarchical else architecture


@dataclass(frozen=True)
class ProfilingConfig:
    """Profiling of training (``rl.ppo.callbacks``).  It costs time and does not change results."""

    flag_prefix: ClassVar[str] = "profiler-"
    phases: bool = setting(
        False, "where the time goes, phase by phase, in profiling/phases.json", flag="enable-profiling", switch=True
    )
    pytorch: bool = setting(
        False, "traces of PyTorch's operations for Chrome, in profiling/", flag=_TRACING, switch=True
    )
    wait: int = setting(1, "updates that are left alone before a trace", needs=_TRACING, low=0)
    warmup: int = setting(1, "updates then that warm the profiler up", needs=_TRACING, low=0)
    active: int = setting(3, "updates then that are traced", needs=_TRACING, low=1)
    repeat: int = setting(1, "traces, one after the other; 0: as many as the run is long", needs=_TRACING, low=0)
    memory: bool = setting(False, "snapshots of the memory in use, in profiling/memory.txt", flag=_MEMORY, switch=True)
    memory_snapshot_freq: int = setting(
        500,
        "steps, summed over environments, between snapshots; each is taken after the current update",
        flag="memory-snapshot-freq",
        needs=_MEMORY,
        low=1,
    )

    def __post_init__(self) -> None:
        check_settings(self)


AUDITS = ("off", "first", "all")  # levels of ``rl.audit``
WARNINGS = (  # names that ``--silence`` takes
    *("scalars", "gradients", "inputs"),
    *("kl", "clipping", "entropy", "actions", "critic", "unrewarded", "wins", "episodes", "progress"),
    *("speed", "memory", "actor", "rewards", "dying"),
)


@dataclass(frozen=True)
class ExperimentConfig:
    """Settings of an experiment: each architecture is trained under each condition and from each seed."""

    flag_prefix: ClassVar[str] = ""
    experiment_name: str = setting(MISSING, "names the run's folder, NAME_DATE_TIME")
    architectures: tuple[str, ...] = setting(MISSING, "networks, trained one after another", aliases=("architecture",))
    train_dataset: tuple[Path, ...] = setting(
        (Path("datasets/train"),),
        "folders of training levels, or level files; a level that several of them have counts once",
        group="data",
    )
    dev_dataset: tuple[Path, ...] = setting(
        (),
        "folders of dev levels, or level files, on which policies are evaluated during training; default: a tenth of the "
        "training levels is held out, at most 50 per category",
        group="data",
    )
    test_dataset: tuple[Path, ...] = setting(
        (Path("datasets/test"),),
        "folders of test levels, or level files, played in the final evaluation only",
        group="data",
    )
    skip_bad_levels: bool = setting(
        False,
        "leave out levels that cannot be read, and training levels without a path to their exit; else they are an "
        "error that names them all",
        group="data",
    )
    allow_unsupported: bool = setting(
        False,
        "use levels with entities that the simulator leaves out, without these entities; else such levels are left out",
        group="data",
    )
    single_level: Path | None = setting(
        None, "train and evaluate on this one level file, without datasets", group="data"
    )
    output_dir: Path = setting(Path("experiments"), "folder for the folders of runs", group="output", aliases=("out",))
    seeds: tuple[int, ...] = setting(
        (0,), "one training run for each", aliases=("seed",), metavar="SEED", low=0, high=LARGEST_SEED
    )
    resume_from: Path | None = setting(
        None, "folder of an interrupted run to resume, with its settings", aliases=("resume",)
    )
    resume_override: tuple[str, ...] = setting(
        (),
        "resume with changed settings, e.g. total-timesteps=20000000; the change is recorded",
        metavar="NAME=VALUE",
        needs="resume-from",
    )
    previous_checkpoint: bool = setting(
        False, "resume from the checkpoint before the newest, which is set aside", needs="resume-from"
    )
    save_freq: int = setting(
        500_000,
        "decisions between checkpoints, at most: there are more as long as they take no more than a twentieth of the time",
        group="output",
        low=1,
    )
    keep_checkpoints: int = setting(
        3, "newest checkpoints to keep, besides the best and the final one", group="output", low=1
    )
    audit: str = setting(
        "first",
        "check the first update, or all, and warn of known problems during training",
        group="output",
        choices=AUDITS,
    )
    silence: tuple[str, ...] = setting(
        (), f"names of warnings that are not reported: {', '.join(WARNINGS)}", group="output"
    )
    frame_skip: int = same_setting(DatasetConfig, "frame_skip", group="data")
    recipe: str | None = setting(
        None, "settings by a name, docs/configuration.md lists them; files and flags win over them"
    )
    config_files: tuple[Path, ...] = setting(
        (),
        "TOML files of settings; a later file wins over an earlier one, and flags win over all files",
        flag="config",
        metavar="FILE",
    )
    plugins: tuple[str, ...] = setting(
        (),
        "Python files, or modules that are installed, to import first: they register networks, strategies and presets of "
        "your own (docs/own_network.md)",
        flag="plugin",
        metavar="FILE",
    )
    replay_data_dir: tuple[Path, ...] = setting(
        (),
        "folders of replays for behavioural cloning, or single .replay and .h5 files; without them there is none",
        flag=REPLAYS,
        group=IMITATION,
    )
    mirror_demonstrations: bool = same_setting(DatasetConfig, "mirror", needs=REPLAYS, group=IMITATION)
    max_demonstrations_per_category: int | None = same_setting(
        DatasetConfig, "max_per_category", needs=REPLAYS, group=IMITATION
    )
    validation_share: float = same_setting(DatasetConfig, "validation_share", needs=REPLAYS, group=IMITATION)
    pretraining: bool = setting(
        True, "no behavioural cloning, even with replays", flag="no-pretraining", group=IMITATION
    )
    test_pretraining: bool = setting(
        False, "train both with and without it, and compare", needs=REPLAYS, group=IMITATION
    )
    init_from: Path | None = setting(
        None,
        "start PPO from this trained agent, a .safetensors file: its policy, value and normaliser weights, without imitation "
        "(docs/configuration.md)",
        flag=INIT_FROM,
        metavar="CHECKPOINT",
        group=IMITATION,
    )
    visualize_training: bool = setting(
        False,
        "show curves and the newest weights at play in the browser while it trains (docs/play.md)",
        group="output",
        switch=True,
    )
    debug: bool = setting(False, "show the traceback of an error", group="output")
    bc: BCConfig = field(default_factory=BCConfig)
    teacher: DistillationConfig = field(default_factory=DistillationConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    video: VideoConfig = field(default_factory=VideoConfig)
    upload: UploadConfig = field(default_factory=UploadConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    reward: RewardSettings = field(default_factory=RewardSettings)
    stacking: StackingConfig = field(default_factory=StackingConfig)
    heads: HeadsConfig = field(default_factory=HeadsConfig)
    hierarchy: HierarchyConfig = field(default_factory=HierarchyConfig)
    profiling: ProfilingConfig = field(default_factory=ProfilingConfig)
    sources: dict[str, str] = field(default_factory=dict, compare=False)  # dotted name -> where it was given

    def __post_init__(self) -> None:
        check_settings(self)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", self.experiment_name):
            advice = "cannot name a folder; use letters, digits and . _ -"
            raise ConfigError(advice, "experiment_name", self.experiment_name)
        object.__setattr__(self, "architectures", tuple(map(_architecture, self.architectures)))
        self._check_architectures()
        self._check_names()
        check_folders(self, needed=("train_dataset", "test_dataset"), others=("dev_dataset", "replay_data_dir"))
        self._check_imitation()
        self._check_teacher()
        self._check_networks()
        if self.evaluation.skip_final_eval and self.video.record_eval_videos:
            raise ConfigError("films the final evaluation; leave out --skip-final-eval", "--record-eval-videos")

    def _check_architectures(self) -> None:
        for name in self.architectures:
            if self.heads.deep and get_architecture(name).deep:
                raise ConfigError(f"has heads of its own; leave out --{_DEEP}", "architectures", name)
            if (self.stacking.visual or self.stacking.state) and get_architecture(name).stacking:
                raise ConfigError(f"has stacks of its own; leave out --{_VISUAL} and --{_STATE}", "architectures", name)
            if self.hierarchy.hierarchical and get_architecture(name).subtasks:
                raise ConfigError(f"has subtasks of its own; leave out --{_HIERARCHICAL}", "architectures", name)
            _architecture(self._with_settings(name))  # which may have nothing to stack

    def _check_names(self) -> None:
        if self.audit not in AUDITS:
            raise ConfigError(f"give one of {', '.join(AUDITS)}", "audit", self.audit)
        for name in self.silence:
            if name not in WARNINGS:
                near = did_you_mean(name, WARNINGS) or f"; they are {', '.join(WARNINGS)}"
                raise ConfigError(f"is no name of a warning{near}", "silence", name)
        for name, values in (("architectures", self.architectures), ("seeds", self.seeds)):
            if not values or len(set(values)) != len(values):
                raise ConfigError("give at least one, and none of them twice", name, values)

    def _check_imitation(self) -> None:
        if self.init_from is not None and (self.test_pretraining or self.teacher.name):
            advice = "PPO starts from this agent, without imitation; leave out --test-pretraining and --teacher"
            raise ConfigError(advice, "init_from", self.init_from)
        if self.test_pretraining and not (self.pretraining and self.replay_data_dir):
            raise ConfigError(
                "compares with imitation against without; give --replay-data-dir, and leave out --no-pretraining",
                "test_pretraining",
            )

    def _check_networks(self) -> None:
        """Raise ConfigError for settings of PPO or the curriculum that do not suit the networks or each other."""
        if self.curriculum.stage_learning_rate and self.ppo.desired_kl:
            raise ConfigError(
                "--desired-kl steers the learning rate, whatever the stage; leave one of them out",
                "--curriculum-stage-learning-rate",
            )
        foreseeing = [name for name in self.networks if "foresight" in get_architecture(name).observations]
        if foreseeing and self.frame_skip > HORIZON:
            raise ConfigError(
                f"foresight, which {foreseeing[0]} reads, looks {HORIZON} frames ahead; give at most that, or another "
                "architecture",
                "frame_skip",
                self.frame_skip,
            )
        if self.hardware.processes > 1 and any(get_architecture(name).subtasks for name in self.networks):
            raise ConfigError("hierarchical PPO trains in one process; leave out --num-processes and --num-gpus")
        remembering = any(get_architecture(name).memory for name in self.networks)
        for flag, value in (("segment", self.ppo.memory_segment), ("burn-in", self.ppo.memory_burn_in)):
            if value and not remembering:
                raise ConfigError(f"is for networks with a memory; give NAME+{WITH_MEMORY}", f"--memory-{flag}", value)
        if self.ppo.prioritised_alpha and remembering:
            raise ConfigError(
                f"draws single decisions, and networks with a memory (+{WITH_MEMORY}) learn from sequences; leave it out",
                "--prioritised-alpha",
                self.ppo.prioritised_alpha,
            )
        if self.hierarchy.hierarchical and self.hierarchy.from_stage and self.curriculum.chosen != "stages":
            raise ConfigError(
                "waits for a stage, and only the curriculum stages goes from one to the next; give --curriculum stages, or "
                "leave it out",
                "--hierarchical-from-stage",
                self.hierarchy.from_stage,
            )

    def _check_teacher(self) -> None:
        name = self.teacher.name
        if name and any(get_architecture(network).memory for network in self.networks):
            advice = f"lessons are of single decisions; leave it out, or networks with a memory (+{WITH_MEMORY})"
            raise ConfigError(advice, "--teacher", name)
        if name is None:
            return
        if "with_pretrain" not in self.conditions:
            raise ConfigError("teaches a policy pretrained by BC; give --replay-data-dir, too", "--teacher", name)
        if self.teacher.file is None and name not in self.networks:
            known = ", ".join(self.networks)
            raise ConfigError(
                f"is neither a checkpoint (*.safetensors) nor an architecture of this experiment ({known})",
                "--teacher",
                name,
            )
        if self.teacher.file is None and (get_architecture(name).stacking or get_architecture(name).subtasks):
            raise ConfigError(
                "uses stacked frames or subtasks; a teacher is evaluated on single decisions: name another",
                "--teacher",
                name,
            )
        if self.teacher.file is None and (self.networks[0] != name or len(self.networks) < 2):
            raise ConfigError(
                "is to be trained before those that it teaches; name it first of several", "--teacher", name
            )

    @property
    def networks(self) -> tuple[str, ...]:
        """Names of the architectures with the configured stacks, heads and subtasks."""
        return tuple(map(self._with_settings, self.architectures))

    def _with_settings(self, name: str) -> str:
        name, plus, memory = name.partition(f"+{WITH_MEMORY}")
        plain, also, deep = name.partition("+deep")  # in a name stacks come before the heads, and these before a memory
        return self.hierarchy.named(self.heads.named(self.stacking.named(plain) + also + deep) + plus + memory)

    @property
    def plan_request(self) -> PlanRequest:
        """Request for the hardware plan."""
        return replace(self.hardware.plan_request(self.ppo.total_timesteps), evaluator=self.evaluation.remote or None)

    @property
    def conditions(self) -> tuple[str, ...]:
        """Conditions of each architecture: "with_pretrain", "no_pretrain" or both."""
        if self.init_from is not None:
            return ("no_pretrain",)
        if self.test_pretraining:
            return ("no_pretrain", "with_pretrain")
        return ("with_pretrain",) if self.pretraining and self.replay_data_dir else ("no_pretrain",)

    def to_dict(self) -> dict:
        """Nested plain values for config.json; whatever looks like a secret is replaced by "[redacted]"."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    def expected_bytes(self) -> int:
        """Disk space that the run may take."""
        runs = len(self.architectures) * len(self.conditions) * len(self.seeds)
        return runs * (RUN_BYTES + self.keep_checkpoints * CHECKPOINT_BYTES + self.video.expected_bytes())


def check_folders(config: object, needed: Sequence[str] = (), others: Sequence[str] = ()) -> None:
    """ConfigError for a list of folders that names one twice, or is empty though it is needed."""
    for name in (*needed, *others):
        folders = getattr(config, name)
        if len({folder.resolve() for folder in folders}) != len(folders):
            raise ConfigError("names the same folder twice; give each once", name, " ".join(map(str, folders)))
        if name in needed and not folders:
            raise ConfigError("give at least one folder", name)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return redact(str(value)) if isinstance(value, (str, Path)) else value
