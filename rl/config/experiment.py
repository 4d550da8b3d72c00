"""The configuration of an experiment: frozen dataclasses, which define all defaults.

    config = ExperimentConfig(experiment_name="first", architectures=("mlp_baseline",))
    config.ppo.gamma, config.to_dict()          # plain values for config.json, with secrets removed

A setting is one field: its default, its flag if it has one, its help and its limits (``nppsim.settings``).  Whatever is
wrong, a value, a combination or a path, is a ``ConfigError`` before anything starts.  A ``None`` where a size belongs means
that the hardware plan chooses; a number that the user gave is never changed.
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
from rl.policy.architectures import (
    WITH_MEMORY,
    ArchitectureError,
    get_architecture,
)
from rl.seeds import LARGEST_SEED

RUN_BYTES = 100 << 20  # of one training run on disk: final checkpoint, curves, results; generous
CHECKPOINT_BYTES = 25 << 20  # of one checkpoint to resume from; generous

DEV_SHARE = 0.1  # of the training levels of each category, held out if no dev levels are given
DEV_LEVELS = 50  # of a category, at most
REPLAYS = "replay-data-dir"
INIT_FROM = "init-from"
_BUCKET = "s3-bucket"
IMITATION = "imitation"


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


def _architecture(name: str) -> str:
    """The name that folders and results have; ConfigError for one that is unknown."""
    try:
        return get_architecture(name).name
    except ArchitectureError as error:
        raise ConfigError(str(error), "architectures", name) from error


AUDITS = ("off", "first", "all")  # levels of ``rl.audit``
WARNINGS = (  # names that ``--silence`` takes
    *("scalars", "gradients", "inputs"),
    *("kl", "clipping", "entropy", "actions", "critic", "unrewarded", "wins", "episodes", "progress"),
    *("speed", "memory", "curriculum", "curves", "random", "levels", "actor", "rewards", "dying"),
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
                raise ConfigError(f"has heads of its own; leave out --{DEEP}", "architectures", name)
            if (self.stacking.visual or self.stacking.state) and get_architecture(name).stacking:
                raise ConfigError(f"has stacks of its own; leave out --{VISUAL} and --{STATE}", "architectures", name)
            if self.hierarchy.hierarchical and get_architecture(name).subtasks:
                raise ConfigError(f"has subtasks of its own; leave out --{HIERARCHICAL}", "architectures", name)
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
