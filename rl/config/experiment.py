"""The configuration of an experiment: frozen dataclasses, which define all defaults.

    config = ExperimentConfig(experiment_name="first", architectures=("mlp_baseline",))
    config.to_dict()          # plain values for config.json, without secrets

A setting is one field with a default, a flag, a help text and limits (``nppsim.settings``).  Invalid values and combinations
raise ConfigError.  The hardware plan chooses the sizes that are ``None``, and never changes other values.
"""

import re
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from bc.dataset import DatasetConfig
from bc.train import BCConfig
from hardware import PlanRequest
from nppsim.errors import ConfigError, did_you_mean, redact
from nppsim.settings import check_settings, require, same_setting, setting
from rl.config.curriculum import CurriculumConfig
from rl.config.distillation import IMITATION, DistillationConfig
from rl.config.evaluation import EvaluationConfig, VideoConfig
from rl.config.machine import HardwareConfig, ProfilingConfig
from rl.config.networks import (
    DEEP,
    HIERARCHICAL,
    STATE,
    VISUAL,
    ForesightConfig,
    HeadsConfig,
    HierarchyConfig,
    StackingConfig,
)
from rl.config.ppo import PPOConfig
from rl.config.rewards import RewardSettings
from rl.policy.architectures import WITH_MEMORY, ArchitectureError, get_architecture
from rl.seeds import LARGEST_SEED

RUN_BYTES = 100 << 20  # upper estimate of the size of one training's files: final checkpoint, curves, results
CHECKPOINT_BYTES = 25 << 20  # upper estimate of the size of one checkpoint
DEV_SHARE = 0.1  # share of each category's training levels that is held out without --dev-dataset
DEV_LEVELS = 50  # largest number of held-out levels per category
AUDITS = ("off", "first", "all")  # values of --audit
WARNINGS = (  # values of --silence
    *("scalars", "gradients", "inputs"),
    *("kl", "clipping", "entropy", "actions", "critic", "unrewarded", "wins", "episodes", "progress"),
    *("speed", "memory", "curriculum", "curves", "random", "levels", "actor", "rewards", "dying"),
)
_REPLAYS = "replay_data_dir"
_FOR_STARTS = f"{_REPLAYS} and pretraining or curriculum.start_states"

_upload = partial(setting, needs="upload.bucket")
_data = partial(setting, group="data")
_output = partial(setting, group="output")
_imitation = partial(setting, group=IMITATION)


@dataclass(frozen=True)
class UploadConfig:
    """Upload to S3 (``rl.upload``), with credentials from the environment, which are never stored."""

    flag_prefix: ClassVar[str] = "s3-"
    group: ClassVar[str] = "output"
    bucket: str | None = setting(None, "S3 bucket for the run's folder; credentials come from the environment")
    prefix: str = _upload("experiments/", "prefix of the names of uploaded objects")
    sync_freq: int = _upload(500_000, "decisions between uploads", low=1)

    def __post_init__(self) -> None:
        check_settings(self)
        valid = self.bucket is None or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}", self.bucket)
        advice = "is not a bucket name; give the name without s3:// and path"
        require(valid, advice, "bucket", redact(str(self.bucket)))
        advice = "is empty; give the folder in the bucket, e.g. experiments/"
        require(self.prefix.strip("/"), advice, "prefix", self.prefix)


def _architecture(name: str) -> str:
    """Return an architecture's name, with aliases resolved; ConfigError for an unknown architecture."""
    try:
        return get_architecture(name).name
    except ArchitectureError as error:
        raise ConfigError(str(error), "architectures", name) from error


@dataclass(frozen=True)
class ExperimentConfig:
    """Settings of an experiment, which trains each architecture under each condition with each seed."""

    flag_prefix: ClassVar[str] = ""
    group: ClassVar[str] = "experiment"
    experiment_name: str = setting(MISSING, "name of the experiment; its folder is NAME_DATE_TIME")
    architectures: tuple[str, ...] = setting(MISSING, "networks to train, one after another", aliases=("architecture",))
    train_dataset: tuple[Path, ...] = _data(
        (Path("datasets/train"),), "folders of training levels, or level files; duplicates count once"
    )
    num_train_levels: int | None = _data(
        None, "train on this number of levels, the first ones of each category in turn; default: all", low=1
    )
    dev_dataset: tuple[Path, ...] = _data(
        (), "levels for evaluation during training; default: a tenth of the training levels, at most 50 per category"
    )
    test_dataset: tuple[Path, ...] = _data(
        (Path("datasets/test"),), "folders of levels, or level files, for the final evaluation only"
    )
    skip_bad_levels: bool = _data(
        False, "skip levels that are unreadable or, in training, without a path; default: an error"
    )
    allow_unsupported: bool = _data(False, "load levels without their unsupported entities; default: skip such levels")
    single_level: Path | None = _data(None, "train and evaluate on this level file, without datasets")
    output_dir: Path = _output(Path("experiments"), "parent folder of the folder of the run", aliases=("out",))
    seeds: tuple[int, ...] = setting(
        (0,), "random seeds, one training each", aliases=("seed",), metavar="SEED", low=0, high=LARGEST_SEED
    )
    resume_from: Path | None = setting(
        None, "folder of an interrupted run, to resume with its settings", aliases=("resume",)
    )
    resume_override: tuple[str, ...] = setting(
        (), "settings to change when resuming, e.g. total-timesteps=20000000", metavar="NAME=VALUE", needs="resume_from"
    )
    previous_checkpoint: bool = setting(False, "resume from the second newest checkpoint", needs="resume_from")
    save_freq: int = _output(500_000, "largest number of decisions between checkpoints", low=1)
    keep_checkpoints: int = _output(3, "newest checkpoints to keep, besides the best and the final one", low=1)
    audit: str = _output("first", "check the first or all updates, and warn of known problems", choices=AUDITS)
    silence: tuple[str, ...] = _output((), f"names of warnings to suppress: {', '.join(WARNINGS)}")
    frame_skip: int = same_setting(DatasetConfig, "frame_skip", group="data")
    recipe: str | None = setting(None, "named settings (docs/configuration.md); files and flags override them")
    config_files: tuple[Path, ...] = setting(
        (), "TOML files of settings; later ones override", flag="config", metavar="FILE"
    )
    plugins: tuple[str, ...] = setting(
        (),
        "Python files or modules with networks, curricula, presets (docs/own_network.md)",
        flag="plugin",
        metavar="FILE",
    )
    replay_data_dir: tuple[Path, ...] = _imitation(
        (), "folders of replays for behavioural cloning, or .replay and .h5 files; default: no behavioural cloning"
    )
    mirror_demonstrations: bool = same_setting(DatasetConfig, "mirror", needs=_FOR_STARTS, group=IMITATION)
    max_demonstrations_per_category: int | None = same_setting(
        DatasetConfig, "max_per_category", needs=_FOR_STARTS, group=IMITATION
    )
    validation_share: float = same_setting(
        DatasetConfig, "validation_share", needs=f"{_REPLAYS} and pretraining", group=IMITATION
    )
    pretraining: bool = _imitation(
        True, "skip behavioural cloning; --start-states still uses the replays", flag="no-pretraining"
    )
    test_pretraining: bool = _imitation(
        False, "train both with and without behavioural cloning, and compare", needs=f"{_REPLAYS} and pretraining"
    )
    init_from: Path | None = _imitation(
        None, "agent (.safetensors) from which imitation, or PPO without it, starts", metavar="CHECKPOINT"
    )
    visualize_training: bool = _output(False, "show curves and policy in the browser (docs/play.md)", switch=True)
    debug: bool = _output(False, "show the traceback of an error")
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
    foresight: ForesightConfig = field(default_factory=ForesightConfig)
    heads: HeadsConfig = field(default_factory=HeadsConfig)
    hierarchy: HierarchyConfig = field(default_factory=HierarchyConfig)
    profiling: ProfilingConfig = field(default_factory=ProfilingConfig)
    sources: dict[str, str] = field(default_factory=dict, compare=False)  # dotted name -> source of the value

    def __post_init__(self) -> None:
        check_settings(self)
        valid = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", self.experiment_name)
        advice = "is not a valid folder name; use letters, digits and . _ -"
        require(valid, advice, "experiment_name", self.experiment_name)
        object.__setattr__(self, "architectures", tuple(map(_architecture, self.architectures)))
        for field_name, values in (("architectures", self.architectures), ("seeds", self.seeds)):
            once = values and len(set(values)) == len(values)
            require(once, "give at least one, and each only once", field_name, values)
        for name in self.silence:
            near = did_you_mean(name, WARNINGS) or f"; they are {', '.join(WARNINGS)}"
            require(name in WARNINGS, f"is not the name of a warning{near}", "silence", name)
        check_folders(self, needed=("train_dataset", "test_dataset"), others=("dev_dataset", "replay_data_dir"))
        advice = "replaces random weights; leave out --test-pretraining and --teacher"
        random = self.init_from is None or not (self.test_pretraining or self.teacher.name)
        require(random, advice, "init_from", self.init_from)
        advice = "compares training with and without imitation; give --replay-data-dir, not --no-pretraining"
        imitates = self.pretraining and self.replay_data_dir
        require(imitates or not self.test_pretraining, advice, "test_pretraining")
        advice = "films the final evaluation; leave out --skip-final-eval"
        filmed = self.video.record_eval_videos and self.evaluation.skip_final_eval
        require(not filmed, advice, "--record-eval-videos")
        self._check_networks()
        if self.teacher.name:
            self._check_teacher(self.teacher.name)

    def _check_networks(self) -> None:
        """Raise ConfigError for networks that contradict other settings."""
        deep, stacked = self.heads.deep, self.stacking.visual or self.stacking.state
        looking = [name for name in self.architectures if "foresight" in get_architecture(name).observations]
        advice = "no network observes look-ahead; leave out --foresight-..., or give NAME_foresight"
        require(looking or not self.foresight.suffixes, advice, "architectures", self.architectures)
        for name in self.architectures:
            network = get_architecture(name)
            sees = network.foresight or network.shield == "off"
            for twice, advice in (
                (self.foresight.suffixes and sees, "already has settings of look-ahead; leave out --foresight-..."),
                (deep and network.deep, f"already has deep heads; leave out --{DEEP}"),
                (stacked and network.stacking, f"already stacks frames; leave out --{VISUAL} and --{STATE}"),
                (self.hierarchy.hierarchical and network.subtasks, f"already has subtasks; leave out --{HIERARCHICAL}"),
            ):
                require(not twice, advice, "architectures", name)
            _architecture(self._with_settings(name))  # ConfigError if the network has no observations to stack
        networks = [get_architecture(name) for name in self.networks]
        recurrent, ppo = any(network.memory for network in networks), self.ppo
        for network in networks:
            fits = "foresight" not in network.observations or self.frame_skip <= network.foresight.horizon
            most = network.foresight.horizon
            advice = f"{network.name} observes {most} frames of look-ahead; give at most {most}"
            require(fits, advice, "frame_skip", self.frame_skip)
        single = self.hardware.processes == 1 or not any(network.subtasks for network in networks)
        require(single, "hierarchical PPO trains in one process; leave out --num-processes and --num-gpus")
        advice = f"needs a recurrent network; give NAME+{WITH_MEMORY}"
        require(recurrent or not ppo.memory_segment, advice, "--memory-segment", ppo.memory_segment)
        advice = f"samples single decisions, but recurrent networks (+{WITH_MEMORY}) need sequences; leave it out"
        uniform = not (ppo.prioritised_alpha and recurrent)
        require(uniform, advice, "--prioritised-alpha", ppo.prioritised_alpha)
        staged = self.hierarchy.hierarchical and self.hierarchy.from_stage
        advice = "needs a curriculum with stages; give --curriculum stages, or leave it out"
        fits = not staged or self.curriculum.chosen == "stages"
        require(fits, advice, "--hierarchical-from-stage", self.hierarchy.from_stage)

    def _check_teacher(self, name: str) -> None:
        """Raise ConfigError for a teacher that contradicts other settings."""
        recurrent = any(get_architecture(network).memory for network in self.networks)
        advice = f"distillation trains on single decisions; leave it out, or recurrent networks (+{WITH_MEMORY})"
        require(not recurrent, advice, "--teacher", name)
        advice = "needs a BC policy to distil into; add --replay-data-dir"
        require("with_pretrain" in self.conditions, advice, "--teacher", name)
        if self.teacher.file is not None:
            return
        names = ", ".join(self.networks)
        advice = f"is neither a checkpoint (*.safetensors) nor an architecture of this experiment ({names})"
        require(name in self.networks, advice, "--teacher", name)
        plain = not (get_architecture(name).stacking or get_architecture(name).subtasks)
        advice = "uses stacked frames or subtasks, but a teacher must act on single observations; give another"
        require(plain, advice, "--teacher", name)
        first = self.networks[0] == name and len(self.networks) > 1
        advice = "must be trained before its students; make it the first of several architectures"
        require(first, advice, "--teacher", name)

    @property
    def networks(self) -> tuple[str, ...]:
        """Names of the architectures, including look-ahead, stacks, heads and subtasks from the settings."""
        return tuple(map(self._with_settings, self.architectures))

    def _with_settings(self, name: str) -> str:
        name = self.foresight.named(name)
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
        once = len({folder.resolve() for folder in folders}) == len(folders)
        require(once, "contains a folder twice; give each once", name, folders)
        require(folders or name in others, "give at least one folder", name)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return redact(str(value)) if isinstance(value, (str, Path)) else value
