"""The configuration of an experiment: frozen dataclasses, the only home of defaults, and ``resolve``, from the flags.

    config = resolve(["--experiment-name", "first", "--architectures", "mlp_baseline"])
    config.ppo.gamma, config.to_dict()          # plain values for config.json, with secrets removed

Whatever is wrong, a value, a combination or a path, is a ``ConfigError`` before anything starts.  A ``None`` where a
size belongs means that the hardware plan chooses; a number there was somebody's wish and is never changed.
``python -m rl.config`` prints ``docs/flags.md``.
"""

import argparse
import difflib
import math
import os
import re
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path

from bc.train import BCConfig
from hardware import Plan, PlanError, Wishes
from hardware.profiles import find_profile
from nppsim.errors import ConfigError, redact
from nppsim.replays.playback import SUFFIXES
from nppsim.reward import PRESETS as REWARD_PRESETS
from rl.flags import FLAGS, GROUPS, Flag, document, metavar, shown_default
from rl.policy.architectures import ARCHITECTURES

GRAPH_ARCHITECTURES = (
    "full_hgt",
    "simplified_hgt",
    "gat",
    "gcn",
    "vision_free_gat",
    "vision_free_gcn",
    "vision_free_simplified",
) + (
    "no_global_view",
    "full_hgt_frame_stacked",
    "vision_free_frame_stacked",
    "visual_frame_stacked_only",
)  # names of the predecessor whose machinery comes later
BASE_LEARNING_RATE = 5e-4  # where neither a flag nor a hardware profile sets one


def _check(config, name: str, *, low=None, high=None, above=None) -> None:
    """ConfigError unless low <= field <= high and field > above; None is always fine, NaN never."""
    value = getattr(config, name)
    if value is None:
        return
    wanted = [
        text
        for limit, text in ((low, f"at least {low}"), (above, f"above {above}"), (high, f"at most {high}"))
        if limit is not None
    ]
    good = (low is None or value >= low) and (high is None or value <= high) and (above is None or value > above)
    if not good or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"{_label(type(config), name)} is {value}; give a number {' and '.join(wanted)}")


def _label(kind: type, name: str) -> str:
    """How a field is called by people: its flag if it has one, else its name in the configuration."""
    section = next((f.name for f in fields(ExperimentConfig) if f.type is kind), "")
    target = f"{section}.{name}" if section else name
    return next((flag.option for flag in FLAGS.values() if flag.target == target), target)


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation.  Schedules run over the progress of training, 0 to 1."""

    total_timesteps: int = 10_000_000  # decisions
    time_budget_minutes: float | None = None  # wall time of PPO; training ends at whichever limit comes first
    gamma: float = 0.995  # per decision; the shaping of rewards uses this same value
    pbrs_gamma: float | None = None  # None: gamma
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    ent_coef_start: float = 0.01
    ent_coef_end: float = 0.001
    learning_rate: float | None = None  # None: the hardware profile's, else BASE_LEARNING_RATE
    learning_rate_end_share: float = 0.1  # of the learning rate at the start, if it is annealed
    anneal_learning_rate: bool = True
    pretrained_learning_rate_share: float = 0.5  # after behavioural cloning, where no flag sets the learning rate
    n_epochs: int | None = None  # None: the hardware plan's
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    target_kl: float | None = 0.03  # an update ends where the policy has moved 1.5 times as far
    critic_warmup_updates: int = 5  # after behavioural cloning the critic learns alone first
    bc_kl_coef_start: float = 0.2  # pull towards the cloned policy,
    bc_kl_share: float = 0.3  # ... gone after this share of training

    def __post_init__(self):
        _check(self, "total_timesteps", low=1)
        _check(self, "time_budget_minutes", above=0)
        _check(self, "gamma", above=0, high=1)
        for name in ("gae_lambda", "learning_rate_end_share", "bc_kl_share"):
            _check(self, name, low=0, high=1)
        for name in ("clip_range", "learning_rate", "max_grad_norm", "target_kl"):
            _check(self, name, above=0)
        _check(self, "pretrained_learning_rate_share", above=0, high=1)
        for name in ("ent_coef_start", "ent_coef_end", "vf_coef", "critic_warmup_updates", "bc_kl_coef_start"):
            _check(self, name, low=0)
        _check(self, "n_epochs", low=1)
        if self.pbrs_gamma is not None and self.pbrs_gamma != self.gamma:
            raise ConfigError(
                f"--pbrs-gamma {self.pbrs_gamma} differs from PPO's discount {self.gamma}: shaping would then change "
                f"which policy is best; leave it out, or set both with --gamma"
            )

    def settled(self, plan: Plan, *, pretrained: bool) -> "PPOConfig":
        """The same with the numbers that were left to the hardware plan; ``pretrained``: after behavioural cloning."""
        rate = self.learning_rate
        if rate is None:
            rate = plan.learning_rate or BASE_LEARNING_RATE
            rate *= self.pretrained_learning_rate_share if pretrained else 1
        return replace(self, learning_rate=rate, n_epochs=self.n_epochs or plan.epochs)

    def learning_rate_at(self, progress: float) -> float:
        """Learning rate at this progress of training (0 to 1); only for a settled configuration."""
        return self.learning_rate * (
            _line(1, self.learning_rate_end_share, progress) if self.anneal_learning_rate else 1
        )

    def ent_coef_at(self, progress: float) -> float:
        """Weight of the entropy bonus at this progress of training (0 to 1)."""
        return _line(self.ent_coef_start, self.ent_coef_end, progress)

    def bc_kl_coef_at(self, progress: float) -> float:
        """Weight of the divergence from the cloned policy at this progress (0 to 1); 0 from bc_kl_share on."""
        return _line(self.bc_kl_coef_start, 0, progress / self.bc_kl_share) if progress < self.bc_kl_share else 0.0


def _line(start: float, end: float, progress: float) -> float:
    return start + (end - start) * min(max(progress, 0.0), 1.0)


@dataclass(frozen=True)
class CurriculumConfig:
    """Stage curriculum; see ``rl.curriculum.stages`` for the rules."""

    use_curriculum: bool = False
    start_stage: str | None = None  # None: the easiest stage of the dataset
    threshold: float = 0.7  # success over the window that opens the next stage
    min_episodes: int = 100  # in a stage
    window: int = 100  # latest episodes of a stage that its success is taken over
    next_share: float = 0.05  # of the levels drawn come from the next stage already
    early_advancement: bool = True  # success >= early_success after half of min_episodes
    early_success: float = 0.9
    trend_advancement: bool = True  # a steep rise allows 80 % of min_episodes and a threshold lower by .05
    trend_rise: float = 0.15  # second half of the window minus the first half
    auto_adjustment: bool = True  # lower the threshold of a stage that is stuck
    adjustment_freq: int = 2_000  # episodes in a stage until then, and between two lowerings
    adjustment_step: float = 0.05
    min_threshold: float = 0.4

    def __post_init__(self):
        for name in ("threshold", "early_success", "trend_rise", "min_threshold", "adjustment_step"):
            _check(self, name, above=0, high=1)
        _check(self, "next_share", low=0, high=0.5)
        for name in ("min_episodes", "adjustment_freq"):
            _check(self, name, low=1)
        _check(self, "window", low=2)
        if self.auto_adjustment and self.min_threshold > self.threshold:
            raise ConfigError(
                f"--curriculum-min-threshold {self.min_threshold} is above --curriculum-threshold {self.threshold}; "
                f"lower it, or use --no-enable-auto-curriculum-adjustment"
            )


@dataclass(frozen=True)
class EvaluationConfig:
    """Evaluation on held-out levels, during training and at its end, with the same seed each time."""

    eval_freq: int = 100_000  # decisions between evaluations during training; 0: none
    periodic_episodes_per_category: int = 20
    num_eval_episodes: int = 250  # of the final evaluation, over all categories
    skip_final_eval: bool = False
    deterministic: bool = False  # sampled actions slip free where the likeliest ones repeat the same mistake
    seed: int = 20_251
    early_stopping: bool = False
    early_stopping_patience: int = 10  # evaluations without improvement
    early_stopping_improvement: float = 0.01  # what counts as one
    early_stopping_min_evaluations: int = 5

    def __post_init__(self):
        _check(self, "eval_freq", low=0)
        for name in ("periodic_episodes_per_category", "num_eval_episodes", "early_stopping_patience"):
            _check(self, name, low=1)
        if self.early_stopping and not self.eval_freq:
            raise ConfigError("--enable-early-stopping needs evaluations during training; give an --eval-freq above 0")

    def episodes_per_category(self, categories: int) -> int:
        """Episodes of each category in the final evaluation: ``num_eval_episodes`` shared out, rounded up."""
        return math.ceil(self.num_eval_episodes / categories)


@dataclass(frozen=True)
class VideoConfig:
    """Films of the final evaluation."""

    record_eval_videos: bool = False
    max_videos_per_category: int = 10
    video_fps: int = 30  # frames of film per second of play

    def __post_init__(self):
        _check(self, "max_videos_per_category", low=1)
        _check(self, "video_fps", low=1, high=60)


@dataclass(frozen=True)
class UploadConfig:
    """Upload to S3; see ``rl.upload``.  Credentials are read from the environment there, and never stored."""

    bucket: str | None = None
    prefix: str = "experiments/"
    sync_freq: int = 500_000  # decisions

    def __post_init__(self):
        _check(self, "sync_freq", low=1)
        if self.bucket is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}", self.bucket):
            raise ConfigError(
                f"--s3-bucket {redact(self.bucket)!r} is no bucket name; give the bare name, no s3:// or path"
            )
        if not self.prefix.strip("/"):
            raise ConfigError(f"--s3-prefix {self.prefix!r} is empty; give the folder in the bucket, e.g. experiments/")


@dataclass(frozen=True)
class HardwareConfig:
    """Wishes for the hardware plan; None leaves the choice to it."""

    hardware_profile: str = "auto"
    num_envs: int | None = None
    rollout_length: int | None = None  # decisions per environment and update
    minibatch_size: int | None = None
    mixed_precision: bool | None = None
    device: str | None = None
    num_gpus: int = 1  # at most; 0: CPU

    def __post_init__(self):
        for name in ("num_envs", "rollout_length", "minibatch_size"):
            _check(self, name, low=1)
        try:
            find_profile(self.hardware_profile)
        except PlanError as error:
            raise ConfigError(f"--hardware-profile: {error}") from error
        _check(self, "num_gpus", low=0)
        if self.num_gpus > 1:
            raise ConfigError(f"--num-gpus {self.num_gpus}: {FLAGS['distributed-backend'].refusal}")
        if self.num_gpus == 0 and self.device == "cuda":
            raise ConfigError("--num-gpus 0 and --device cuda contradict each other; leave one of them out")

    def wishes(self, total_timesteps: int) -> Wishes:
        """What the user asked for explicitly, for ``hardware.plan``; total_timesteps: decisions of the whole run."""
        return Wishes(
            total_timesteps=total_timesteps,
            profile=self.hardware_profile,
            num_envs=self.num_envs,
            rollout_length=self.rollout_length,
            minibatch_size=self.minibatch_size,
            precision={None: None, True: "bf16", False: "float32"}[self.mixed_precision],
            device="cpu" if self.num_gpus == 0 else self.device,
        )


@dataclass(frozen=True)
class ExperimentConfig:
    """One run of the main job: every architecture, with and without imitation as wished, for every seed."""

    experiment_name: str
    architectures: tuple[str, ...]
    train_dataset: Path = Path("datasets/train")
    test_dataset: Path = Path("datasets/test")
    single_level: Path | None = None  # stands for both datasets
    output_dir: Path = Path("experiments")
    seeds: tuple[int, ...] = (0,)
    resume_from: Path | None = None
    save_freq: int = 500_000  # decisions between checkpoints
    frame_skip: int = 4  # frames per decision
    reward_preset: str = "default"
    replay_data_dir: Path | None = None
    mirror_demonstrations: bool = False
    max_demonstrations_per_category: int | None = None  # None: all
    pretraining: bool = True
    test_pretraining: bool = False
    debug: bool = False
    bc: BCConfig = field(default_factory=BCConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    video: VideoConfig = field(default_factory=VideoConfig)
    upload: UploadConfig = field(default_factory=UploadConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)

    def __post_init__(self):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", self.experiment_name):
            raise ConfigError(
                f"--experiment-name {self.experiment_name!r} cannot name a folder; use letters, digits and . _ -"
            )
        for name in self.architectures:
            _check_architecture(name)
        for option, values in (("--architectures", self.architectures), ("--seeds", self.seeds)):
            if not values or len(set(values)) != len(values):
                raise ConfigError(f"{option} {' '.join(map(str, values))}: give at least one, and none of them twice")
        if not all(0 <= seed < 2**31 for seed in self.seeds):
            raise ConfigError(f"--seeds {' '.join(map(str, self.seeds))}: give numbers from 0 to 2**31 - 1")
        _check(self, "save_freq", low=1)
        _check(self, "frame_skip", low=1, high=60)
        _check(self, "max_demonstrations_per_category", low=1)
        if self.reward_preset not in REWARD_PRESETS:
            raise ConfigError(f"--reward-preset {self.reward_preset!r} is unknown; known: {', '.join(REWARD_PRESETS)}")
        if self.test_pretraining and not (self.pretraining and self.replay_data_dir):
            raise ConfigError(
                "--test-pretraining compares with imitation against without: give --replay-data-dir, "
                "and leave out --no-pretraining"
            )
        if self.evaluation.skip_final_eval and self.video.record_eval_videos:
            raise ConfigError("--record-eval-videos films the final evaluation: leave out --skip-final-eval")

    @property
    def conditions(self) -> tuple[str, ...]:
        """What each architecture is trained with: "with_pretrain", "no_pretrain" or both."""
        if self.test_pretraining:
            return ("no_pretrain", "with_pretrain")
        return ("with_pretrain",) if self.pretraining and self.replay_data_dir else ("no_pretrain",)

    def to_dict(self) -> dict:
        """Nested plain values for config.json; whatever looks like a secret is replaced by "[redacted]"."""
        return _plain(self)


def resolve(argv: Sequence[str]) -> ExperimentConfig:
    """The configuration that these command-line flags (without the program's name) ask for, checked with all its paths.

    Raises ConfigError.  ``--help`` prints the flags and exits.
    """
    parser = _parser()
    given, unknown = parser.parse_known_args(list(argv))
    if unknown:
        raise ConfigError(_unknown_message(unknown[0], parser))
    given = vars(given)  # only what was given: defaults live in the dataclasses
    for name, value in given.items():
        if FLAGS[name].refusal and value != FLAGS[name].default:
            raise ConfigError(f"{FLAGS[name].option}: {FLAGS[name].refusal}")
    if "single-level" in given and ("train-dataset" in given or "test-dataset" in given):
        raise ConfigError("--single-level stands for both datasets; leave out --train-dataset and --test-dataset")
    config = _assemble({FLAGS[name].target: value for name, value in given.items() if FLAGS[name].target})
    for name in given:
        _check_needs(config, FLAGS[name])
    check_paths(config)
    return config


def check_paths(config: ExperimentConfig) -> None:
    """ConfigError, naming flag, path and remedy, unless every folder and file that the run needs is there."""
    if config.single_level is not None:
        _require(config.single_level.is_file(), "--single-level", config.single_level, "is no file; give a level file")
    else:
        for option, folder in (("--train-dataset", config.train_dataset), ("--test-dataset", config.test_dataset)):
            remedy = "make one with scripts/generate_levels.py, or give the path of an existing one"
            _require(folder.is_dir(), option, folder, f"is no folder; {remedy}")
            _require(any(f.is_file() for f in folder.rglob("*")), option, folder, f"holds no levels; {remedy}")
    replays = config.replay_data_dir
    if replays is not None:
        one_file = replays.suffix in SUFFIXES and replays.is_file()
        what = "is no folder, nor a *.replay or *.h5 file; give what holds the replays"
        _require(one_file or replays.is_dir(), "--replay-data-dir", replays, what)
        what = "holds no *.replay or *.h5 files; give another folder, or leave the flag out to train without imitation"
        held = one_file or any(file.suffix in SUFFIXES for file in replays.rglob("*"))
        _require(held, "--replay-data-dir", replays, what)
    if config.resume_from is not None:
        found = (config.resume_from / "config.json").is_file()
        _require(found, "--resume-from", config.resume_from, "holds no config.json; give the folder of a run")
    check_output_dir(config.output_dir)


def check_output_dir(folder: Path) -> None:
    """ConfigError, naming --output-dir and what is in the way, unless the folder can be made and written."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    _require(existing.is_dir(), "--output-dir", folder, f"cannot be made: {existing} is a file")
    writable = os.access(existing, os.W_OK | os.X_OK)
    _require(writable, "--output-dir", folder, f"cannot be written: no permission for {existing}")


def default_of(flag: Flag):
    """What a flag is if it is not given; MISSING if it must be."""
    if not flag.target:
        return flag.default
    section, _, name = flag.target.rpartition(".")
    owner = _section_types()[section] if section else ExperimentConfig
    return next(f.default for f in fields(owner) if f.name == name)


def flags_document() -> str:
    """The text of docs/flags.md."""
    return document({name: default_of(flag) for name, flag in FLAGS.items()})


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise ConfigError(redact(message))


def _parser() -> _Parser:
    parser = _Parser(
        prog="train_and_compare.py",
        usage="%(prog)s --experiment-name NAME --architectures NAME [NAME ...] [flags]",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        description="Imitation, then PPO, then evaluation with films and a report, for one or more networks.",
    )
    for group, flags in GROUPS.items():
        section = parser.add_argument_group(group)
        for flag in flags:
            options = ["--seed", flag.option] if flag.name == "seeds" else [flag.option]
            keywords: dict = {
                "dest": flag.name,
                "help": f"{flag.help} (default: {shown_default(flag, default_of(flag))})".replace("%", "%%"),
            }
            if flag.kind in ("on", "off"):
                keywords |= {"action": "store_true" if flag.kind == "on" else "store_false"}
            elif flag.kind == "switch":
                keywords |= {"action": argparse.BooleanOptionalAction}
            else:
                keywords |= {"type": flag.kind, "choices": flag.choices or None, "metavar": metavar(flag)}
                keywords |= {"nargs": "+"} if flag.many else {}
            if default_of(flag) is MISSING:
                keywords |= {"required": True, "help": flag.help}
            section.add_argument(*options, **keywords)
    return parser


def _section_types() -> dict[str, type]:
    return {f.name: f.type for f in fields(ExperimentConfig) if is_dataclass(f.type)}


def _assemble(values: dict) -> ExperimentConfig:
    """The configuration from values by target ("field" or "section.field")."""
    whole, sections = {}, {name: {} for name in _section_types()}
    for target, value in values.items():
        section, _, name = target.rpartition(".")
        (sections[section] if section else whole)[name] = tuple(value) if isinstance(value, list) else value
    for name, kind in _section_types().items():
        try:
            whole[name] = kind(**sections[name])
        except ConfigError as error:
            option = next((f.option for f in FLAGS.values() if f.target == f"{name}.{error.field}"), "")
            raise (error.named(option) if option else error) from None
    return ExperimentConfig(**whole)


def _check_needs(config: ExperimentConfig, flag: Flag) -> None:
    value = config
    for name in FLAGS[flag.needs].target.split(".") if flag.needs else ():
        value = getattr(value, name)
    if not value:
        raise ConfigError(f"{flag.option} has no effect without --{flag.needs}; add that, or leave {flag.option} out")
    if flag.needs == "replay-data-dir" and not config.pretraining:
        raise ConfigError(f"{flag.option} has no effect with --no-pretraining; leave one of them out")


def _check_architecture(name: str) -> None:
    if name in ARCHITECTURES:
        return
    known = ", ".join(ARCHITECTURES)
    if name in GRAPH_ARCHITECTURES:
        raise ConfigError(f"--architectures {name}: graph networks and frame stacking come later; choose from {known}")
    near = difflib.get_close_matches(name, ARCHITECTURES, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ConfigError(f"--architectures {name}: no such network; {hint}known: {known}")


def _unknown_message(argument: str, parser: argparse.ArgumentParser) -> str:
    name = argument.split("=")[0]  # never echo a value: it may be a secret
    if not name.startswith("-"):
        return f"unexpected argument {redact(name)!r}; values follow a flag, e.g. --experiment-name first"
    options = [option for action in parser._actions for option in action.option_strings]
    near = difflib.get_close_matches(name, options, n=1)
    return f"unknown flag {redact(name)}; " + (f"did you mean {near[0]}?" if near else "--help lists all flags")


def _require(good: bool, option: str, path: Path, what: str) -> None:
    if not good:
        raise ConfigError(f"{option} {path} {what}")


def _plain(value):
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return redact(str(value)) if isinstance(value, str | Path) else value


if __name__ == "__main__":
    print(flags_document(), end="")
