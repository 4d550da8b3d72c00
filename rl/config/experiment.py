"""The configuration of an experiment: frozen dataclasses, which define all defaults.

    config = ExperimentConfig(experiment_name="first", architectures=("mlp_baseline",))
    config.to_dict()          # plain values for config.json, without secrets

A setting is one field with a default, a flag, a help text and limits (``nppsim.settings``).  Invalid values and combinations
raise ConfigError.  The hardware plan chooses the sizes that are ``None``, and never changes other values.
"""

import re
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from bc.dataset import DatasetConfig
from bc.train import BCConfig
from hardware import PlanRequest
from nppsim.errors import ConfigError, did_you_mean, redact
from nppsim.observe.foresight import HORIZON
from nppsim.settings import check_settings, same_setting, setting
from rl.config.curriculum import CurriculumConfig
from rl.config.distillation import DistillationConfig
from rl.config.evaluation import EvaluationConfig, VideoConfig
from rl.config.machine import HardwareConfig, ProfilingConfig
from rl.config.networks import DEEP, HIERARCHICAL, STATE, VISUAL, HeadsConfig, HierarchyConfig, StackingConfig
from rl.config.ppo import PPOConfig
from rl.config.rewards import RewardSettings
from rl.policy.architectures import WITH_MEMORY, ArchitectureError, get_architecture
from rl.seeds import LARGEST_SEED

RUN_BYTES = 100 << 20  # upper estimate of the size of one training's files: final checkpoint, curves, results
CHECKPOINT_BYTES = 25 << 20  # upper estimate of the size of one checkpoint

DEV_SHARE = 0.1  # share of each category's training levels that is held out without --dev-dataset
DEV_LEVELS = 50  # largest number of held-out levels per category
REPLAYS = "replay-data-dir"
INIT_FROM = "init-from"
_BUCKET = "s3-bucket"
IMITATION = "imitation"


@dataclass(frozen=True)
class UploadConfig:
    """Upload to S3 (``rl.upload``), with credentials from the environment, which are never stored."""

    flag_prefix: ClassVar[str] = "s3-"
    bucket: str | None = setting(
        None, "upload the run's folder to this S3 bucket. Credentials come from the environment only", flag=_BUCKET
    )
    prefix: str = setting("experiments/", "prefix of the names of uploaded objects", needs=_BUCKET)
    sync_freq: int = setting(500_000, "decisions between uploads", needs=_BUCKET, low=1)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.bucket is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}", self.bucket):
            advice = "is not a bucket name; give the name without s3:// and path"
            raise ConfigError(advice, "bucket", redact(self.bucket))
        if not self.prefix.strip("/"):
            raise ConfigError("is empty; give the folder in the bucket, e.g. experiments/", "prefix", self.prefix)


def _architecture(name: str) -> str:
    """Return an architecture's name, with aliases resolved; ConfigError for an unknown architecture."""
    try:
        return get_architecture(name).name
    except ArchitectureError as error:
        raise ConfigError(str(error), "architectures", name) from error


AUDITS = ("off", "first", "all")  # values of --audit
WARNINGS = (  # values of --silence
    *("scalars", "gradients", "inputs"),
    *("kl", "clipping", "entropy", "actions", "critic", "unrewarded", "wins", "episodes", "progress"),
    *("speed", "memory", "curriculum", "curves", "random", "levels", "actor", "rewards", "dying"),
)


@dataclass(frozen=True)
class ExperimentConfig:
    """Settings of an experiment, which trains each architecture under each condition with each seed."""

    flag_prefix: ClassVar[str] = ""
    experiment_name: str = setting(MISSING, "name of the experiment; its folder is NAME_DATE_TIME")
    architectures: tuple[str, ...] = setting(MISSING, "networks to train, one after another", aliases=("architecture",))
    train_dataset: tuple[Path, ...] = setting(
        (Path("datasets/train"),), "folders of training levels, or level files; duplicates count once", group="data"
    )
    dev_dataset: tuple[Path, ...] = setting(
        (),
        "folders of levels, or level files, for evaluation during training; default: a tenth of the training levels, "
        "held out, at most 50 per category",
        group="data",
    )
    test_dataset: tuple[Path, ...] = setting(
        (Path("datasets/test"),), "folders of levels, or level files, for the final evaluation only", group="data"
    )
    skip_bad_levels: bool = setting(
        False, "skip unreadable levels, and training levels without a path to the exit; default: an error", group="data"
    )
    allow_unsupported: bool = setting(
        False, "load levels with unsupported entities, without these entities; default: skip such levels", group="data"
    )
    single_level: Path | None = setting(None, "train and evaluate on this level file, without datasets", group="data")
    output_dir: Path = setting(
        Path("experiments"), "folder in which the folder of the run is created", group="output", aliases=("out",)
    )
    seeds: tuple[int, ...] = setting(
        (0,), "random seeds, one training each", aliases=("seed",), metavar="SEED", low=0, high=LARGEST_SEED
    )
    resume_from: Path | None = setting(
        None, "folder of an interrupted run to resume, with its settings", aliases=("resume",)
    )
    resume_override: tuple[str, ...] = setting(
        (), "settings to change when resuming, e.g. total-timesteps=20000000", metavar="NAME=VALUE", needs="resume-from"
    )
    previous_checkpoint: bool = setting(
        False, "resume from the second newest checkpoint; the newest is renamed", needs="resume-from"
    )
    save_freq: int = setting(
        500_000,
        "largest number of decisions between checkpoints. There are more as long as saving takes at most 5 % of the "
        "time",
        group="output",
        low=1,
    )
    keep_checkpoints: int = setting(
        3, "number of newest checkpoints to keep, besides the best and the final one", group="output", low=1
    )
    audit: str = setting(
        "first", "check the first or all updates, and warn of known problems", group="output", choices=AUDITS
    )
    silence: tuple[str, ...] = setting((), f"names of warnings to suppress: {', '.join(WARNINGS)}", group="output")
    frame_skip: int = same_setting(DatasetConfig, "frame_skip", group="data")
    recipe: str | None = setting(None, "named settings (docs/configuration.md); files and flags override them")
    config_files: tuple[Path, ...] = setting(
        (), "TOML files of settings; later files and flags override earlier files", flag="config", metavar="FILE"
    )
    plugins: tuple[str, ...] = setting(
        (),
        "Python files or installed modules to import first. They register your networks, curricula and presets "
        "(docs/own_network.md)",
        flag="plugin",
        metavar="FILE",
    )
    replay_data_dir: tuple[Path, ...] = setting(
        (),
        "folders of replays for behavioural cloning, or .replay and .h5 files; default: no behavioural cloning",
        flag=REPLAYS,
        group=IMITATION,
    )
    mirror_demonstrations: bool = same_setting(DatasetConfig, "mirror", needs=REPLAYS, group=IMITATION)
    max_demonstrations_per_category: int | None = same_setting(
        DatasetConfig, "max_per_category", needs=REPLAYS, group=IMITATION
    )
    validation_share: float = same_setting(DatasetConfig, "validation_share", needs=REPLAYS, group=IMITATION)
    pretraining: bool = setting(
        True, "skip behavioural cloning; --start-states still uses the replays", flag="no-pretraining", group=IMITATION
    )
    test_pretraining: bool = setting(
        False, "train both with and without behavioural cloning, and compare", needs=REPLAYS, group=IMITATION
    )
    init_from: Path | None = setting(
        None,
        "start from this agent, a .safetensors file, instead of random weights: imitation of --replay-data-dir, or PPO "
        "if there is none (docs/configuration.md). Policy, value and normaliser weights are copied",
        flag=INIT_FROM,
        metavar="CHECKPOINT",
        group=IMITATION,
    )
    visualize_training: bool = setting(
        False, "show curves and the newest policy in the browser (docs/play.md)", group="output", switch=True
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
    sources: dict[str, str] = field(default_factory=dict, compare=False)  # dotted name -> source of the value

    def __post_init__(self) -> None:
        check_settings(self)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", self.experiment_name):
            advice = "is not a valid folder name; use letters, digits and . _ -"
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
                raise ConfigError(f"already has deep heads; leave out --{DEEP}", "architectures", name)
            if (self.stacking.visual or self.stacking.state) and get_architecture(name).stacking:
                raise ConfigError(f"already stacks frames; leave out --{VISUAL} and --{STATE}", "architectures", name)
            if self.hierarchy.hierarchical and get_architecture(name).subtasks:
                raise ConfigError(f"already has subtasks; leave out --{HIERARCHICAL}", "architectures", name)
            _architecture(self._with_settings(name))  # ConfigError if the network has no observations to stack

    def _check_names(self) -> None:
        for name in self.silence:
            if name not in WARNINGS:
                near = did_you_mean(name, WARNINGS) or f"; they are {', '.join(WARNINGS)}"
                raise ConfigError(f"is not the name of a warning{near}", "silence", name)
        for name, values in (("architectures", self.architectures), ("seeds", self.seeds)):
            if not values or len(set(values)) != len(values):
                raise ConfigError("give at least one, and each only once", name, values)

    def _check_imitation(self) -> None:
        if self.init_from is not None and (self.test_pretraining or self.teacher.name):
            advice = "replaces random weights; leave out --test-pretraining and --teacher"
            raise ConfigError(advice, "init_from", self.init_from)
        if self.test_pretraining and not (self.pretraining and self.replay_data_dir):
            advice = "compares training with and without imitation; give --replay-data-dir, not --no-pretraining"
            raise ConfigError(advice, "test_pretraining")

    def _check_networks(self) -> None:
        """Raise ConfigError for settings of PPO or the curriculum that contradict the networks or each other."""
        foreseeing = [name for name in self.networks if "foresight" in get_architecture(name).observations]
        if foreseeing and self.frame_skip > HORIZON:
            advice = f"{foreseeing[0]} observes {HORIZON} frames of look-ahead; give at most {HORIZON}"
            raise ConfigError(advice, "frame_skip", self.frame_skip)
        if self.hardware.processes > 1 and any(get_architecture(name).subtasks for name in self.networks):
            raise ConfigError("hierarchical PPO trains in one process; leave out --num-processes and --num-gpus")
        recurrent = any(get_architecture(name).memory for name in self.networks)
        if self.ppo.memory_segment and not recurrent:
            advice = f"needs a recurrent network; give NAME+{WITH_MEMORY}"
            raise ConfigError(advice, "--memory-segment", self.ppo.memory_segment)
        if self.ppo.prioritised_alpha and recurrent:
            advice = f"samples single decisions, but recurrent networks (+{WITH_MEMORY}) need sequences; leave it out"
            raise ConfigError(advice, "--prioritised-alpha", self.ppo.prioritised_alpha)
        if self.hierarchy.hierarchical and self.hierarchy.from_stage and self.curriculum.chosen != "stages":
            advice = "needs a curriculum with stages; give --curriculum stages, or leave it out"
            raise ConfigError(advice, "--hierarchical-from-stage", self.hierarchy.from_stage)

    def _check_teacher(self) -> None:
        name = self.teacher.name
        if name and any(get_architecture(network).memory for network in self.networks):
            advice = f"distillation trains on single decisions; leave it out, or recurrent networks (+{WITH_MEMORY})"
            raise ConfigError(advice, "--teacher", name)
        if name is None:
            return
        if "with_pretrain" not in self.conditions:
            raise ConfigError("needs a BC policy to distil into; add --replay-data-dir", "--teacher", name)
        if self.teacher.file is not None:
            return
        if name not in self.networks:
            known = ", ".join(self.networks)
            advice = f"is neither a checkpoint (*.safetensors) nor an architecture of this experiment ({known})"
            raise ConfigError(advice, "--teacher", name)
        if get_architecture(name).stacking or get_architecture(name).subtasks:
            advice = "uses stacked frames or subtasks, but a teacher must act on single observations; give another"
            raise ConfigError(advice, "--teacher", name)
        if self.networks[0] != name or len(self.networks) < 2:
            advice = "must be trained before its students; make it the first of several architectures"
            raise ConfigError(advice, "--teacher", name)

    @property
    def networks(self) -> tuple[str, ...]:
        """Names of the architectures, including stacks, heads and subtasks from the settings."""
        return tuple(map(self._with_settings, self.architectures))

    def _with_settings(self, name: str) -> str:
        name, plus, memory = name.partition(f"+{WITH_MEMORY}")
        plain, also, deep = name.partition("+deep")  # order of the parts: stacks, heads, memory
        return self.hierarchy.named(self.heads.named(self.stacking.named(plain) + also + deep) + plus + memory)

    @property
    def plan_request(self) -> PlanRequest:
        """Request for the hardware plan."""
        return replace(self.hardware.plan_request(self.ppo.total_timesteps), evaluator=self.evaluation.remote or None)

    @property
    def conditions(self) -> tuple[str, ...]:
        """Conditions of each architecture: "with_pretrain", "no_pretrain" or both."""
        if self.test_pretraining:
            return ("no_pretrain", "with_pretrain")
        return ("with_pretrain",) if self.pretraining and self.replay_data_dir else ("no_pretrain",)

    def to_dict(self) -> dict:
        """Return nested plain values for config.json; possible secrets are replaced by "[redacted]"."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    def expected_bytes(self) -> int:
        """Return an upper estimate of the disk space of the experiment."""
        runs = len(self.architectures) * len(self.conditions) * len(self.seeds)
        return runs * (RUN_BYTES + self.keep_checkpoints * CHECKPOINT_BYTES + self.video.expected_bytes())


def check_folders(config: object, needed: Sequence[str] = (), others: Sequence[str] = ()) -> None:
    """Raise ConfigError for a folder that is listed twice, and for an empty list of a ``needed`` field.

    needed: names of fields with lists of folders that must not be empty.
    others: names of fields with lists of folders that may be empty.
    """
    for name in (*needed, *others):
        folders = getattr(config, name)
        if len({folder.resolve() for folder in folders}) != len(folders):
            raise ConfigError("contains a folder twice; give each once", name, " ".join(map(str, folders)))
        if name in needed and not folders:
            raise ConfigError("give at least one folder", name)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return redact(str(value)) if isinstance(value, (str, Path)) else value
