"""The command line of ``scripts/train_and_compare.py`` as a table: one row for each flag, and nothing else.

A flag fills one field of ``rl.config.ExperimentConfig`` (``target``), whose default it takes, or it is one whose
machinery does not exist and which is refused with ``refusal`` as soon as it differs from ``default``.  No flag is
accepted and ignored.  ``docs/flags.md`` is made from this table: ``python -m rl.config > docs/flags.md``.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

STAGES = ("simplest", "simplest_few_mines", "simplest_with_mines", "simpler", "simple", "medium") + (
    "complex",
    "exploration",
    "mine_heavy",
    "advanced",  # as long as "medium", but with hazards that occur nowhere else
)  # the curriculum's order; other categories of a dataset come after them


@dataclass(frozen=True)
class Flag:
    """One command-line flag.

    target: "field" or "section.field" of ExperimentConfig; "" for a refused flag.
    kind: int, float, str or Path (a value follows), "on" and "off" (setting it stores True, False), or "switch" (also
    as ``--no-...``).  many: one or more values.  needs: the flag without which this one has no effect.
    """

    name: str
    help: str
    target: str = ""
    kind: Any = str
    many: bool = False
    choices: tuple = ()
    metavar: str | None = None
    needs: str = ""
    refusal: str = ""
    default: Any = None

    @property
    def option(self) -> str:
        return f"--{self.name}"


_REPLAYS, _CURRICULUM, _VIDEOS = "replay-data-dir", "use-curriculum", "record-eval-videos"
_STOPPING, _BUCKET = "enable-early-stopping", "s3-bucket"

_NO_HIERARCHY = "hierarchical PPO comes later; train without it, as --architectures mlp_baseline does"
_NO_STACKING = "frame stacking comes later; the state already holds velocities and buffers, so train without it"
_NO_RESNET = "the deep residual policy comes later; choose another network with --architectures"
_ONE_GPU = "training on several GPUs comes later; use one GPU, or start one run per GPU with different --seeds"
_NO_WINDOW = "a live window comes later; use --record-eval-videos and TensorBoard"
_NO_TRACE = "tracing comes later; the share of each phase is in results.json under 'speed'"
_NO_MEMORY_TRACE = "memory tracing comes later; 'python -m hardware plan' prints what a run needs"

GROUPS: dict[str, tuple[Flag, ...]] = {
    "experiment": (
        Flag("experiment-name", "names the run's folder, NAME_DATE_TIME", "experiment_name"),
        Flag("architectures", "networks, trained one after another", "architectures", many=True, metavar="NAME"),
        Flag("train-dataset", "folder of training levels", "train_dataset", Path),
        Flag("test-dataset", "folder of held-out levels, for evaluation only", "test_dataset", Path),
        Flag("single-level", "train and evaluate on this one level file, without datasets", "single_level", Path),
        Flag("output-dir", "folder for the folders of runs", "output_dir", Path),
        Flag("seeds", "one training run for each", "seeds", int, many=True, metavar="SEED"),
        Flag("resume-from", "folder of an interrupted run, to go on with", "resume_from", Path),
        Flag("save-freq", "decisions between checkpoints", "save_freq", int),
        Flag("frame-skip", "frames (1/60 s) per decision; 1 means 1", "frame_skip", int),
        Flag("reward-preset", "reward terms and their sizes", "reward_preset", metavar="NAME"),
        Flag("debug", "show the traceback of an error", "debug", "on"),
    ),
    "imitation": (
        Flag("replay-data-dir", "replays for behavioural cloning; without them there is none", "replay_data_dir", Path),
        Flag(
            "mirror-demonstrations",
            "learn from the mirror images of the replays, too",
            "mirror_demonstrations",
            "on",
            needs=_REPLAYS,
        ),
        Flag(
            "max-demonstrations-per-category",
            "replays of each category at most, drawn by lot from the seed; default: all",
            "max_demonstrations_per_category",
            int,
            needs=_REPLAYS,
        ),
        Flag("no-pretraining", "no behavioural cloning, even with replays", "pretraining", "off"),
        Flag(
            "test-pretraining", "train both with and without it, and compare", "test_pretraining", "on", needs=_REPLAYS
        ),
        Flag("bc-epochs", "passes over the demonstrations", "bc.epochs", int, needs=_REPLAYS),
        Flag(
            "bc-batch-size", "decisions per gradient step of behavioural cloning", "bc.batch_size", int, needs=_REPLAYS
        ),
        Flag(
            "bc-num-workers",
            "processes that load demonstrations",
            kind=int,
            default=0,
            refusal="demonstrations are held in memory and need no loading processes; leave it out",
        ),
    ),
    "reinforcement learning": (
        Flag("total-timesteps", "decisions for each architecture, condition and seed", "ppo.total_timesteps", int),
        Flag("time-budget-minutes", "end PPO after this wall time at the latest", "ppo.time_budget_minutes", float),
        Flag("gamma", "discount per decision; reward shaping uses the same", "ppo.gamma", float),
        Flag(
            "pbrs-gamma", "discount of the reward shaping: PPO's own; another value is refused", "ppo.pbrs_gamma", float
        ),
        Flag("initial-lr", "learning rate at the start", "ppo.learning_rate", float),
        Flag("enable-lr-annealing", "lower the learning rate linearly", "ppo.anneal_learning_rate", "switch"),
        Flag("mixed-precision", "networks compute in bfloat16", "hardware.mixed_precision", "switch"),
        Flag("use-hierarchical-ppo", "two-level policy", kind="on", default=False, refusal=_NO_HIERARCHY),
        Flag("high-level-update-freq", "its period", kind=int, default=50, refusal=_NO_HIERARCHY),
        Flag("use-deep-resnet-policy", "residual heads", kind="on", default=False, refusal=_NO_RESNET),
        Flag("deep-resnet-use-residual", "their skip connections", kind="switch", default=True, refusal=_NO_RESNET),
        Flag("deep-resnet-use-layer-norm", "their layer norm", kind="switch", default=True, refusal=_NO_RESNET),
        Flag("deep-resnet-dropout", "their dropout", kind=float, default=0.1, refusal=_NO_RESNET),
        Flag("enable-visual-frame-stacking", "stack images", kind="on", default=False, refusal=_NO_STACKING),
        Flag("visual-stack-size", "images in a stack", kind=int, default=4, refusal=_NO_STACKING),
        Flag("enable-state-stacking", "stack state vectors", kind="on", default=False, refusal=_NO_STACKING),
        Flag("state-stack-size", "vectors in a stack", kind=int, default=4, refusal=_NO_STACKING),
        Flag("frame-stack-padding", "zero or repeat", default="zero", choices=("zero", "repeat"), refusal=_NO_STACKING),
    ),
    "curriculum": (
        Flag("use-curriculum", "from easy stages to hard ones", "curriculum.use_curriculum", "on"),
        Flag(
            "curriculum-start-stage",
            "first stage; default: the easiest there is",
            "curriculum.start_stage",
            choices=STAGES,
            metavar="STAGE",
            needs=_CURRICULUM,
        ),
        Flag(
            "curriculum-threshold",
            "success that opens the next stage",
            "curriculum.threshold",
            float,
            needs=_CURRICULUM,
        ),
        Flag(
            "curriculum-min-episodes",
            "episodes in a stage before it can end",
            "curriculum.min_episodes",
            int,
            needs=_CURRICULUM,
        ),
        Flag(
            "disable-trend-advancement",
            "no earlier end for a stage that is improving fast",
            "curriculum.trend_advancement",
            "off",
            needs=_CURRICULUM,
        ),
        Flag(
            "disable-early-advancement",
            "no earlier end for a stage with success of 90 % or more",
            "curriculum.early_advancement",
            "off",
            needs=_CURRICULUM,
        ),
        Flag(
            "enable-auto-curriculum-adjustment",
            "lower the threshold of a stage that is stuck",
            "curriculum.auto_adjustment",
            "switch",
            needs=_CURRICULUM,
        ),
        Flag(
            "curriculum-adjustment-freq",
            "episodes in a stage until it counts as stuck, and between two lowerings",
            "curriculum.adjustment_freq",
            int,
            needs=_CURRICULUM,
        ),
        Flag(
            "curriculum-min-threshold",
            "the threshold is never lowered below this",
            "curriculum.min_threshold",
            float,
            needs=_CURRICULUM,
        ),
    ),
    "evaluation": (
        Flag("eval-freq", "decisions between evaluations during training; 0: none", "evaluation.eval_freq", int),
        Flag(
            "num-eval-episodes",
            "episodes of the final evaluation, spread evenly over the categories",
            "evaluation.num_eval_episodes",
            int,
        ),
        Flag(
            "deterministic-eval",
            "evaluate the likeliest actions instead of sampled ones",
            "evaluation.deterministic",
            "switch",
        ),
        Flag("skip-final-eval", "no final evaluation", "evaluation.skip_final_eval", "on"),
        Flag("enable-early-stopping", "end PPO when evaluations no longer improve", "evaluation.early_stopping", "on"),
        Flag(
            "early-stopping-patience",
            "evaluations without improvement until then",
            "evaluation.early_stopping_patience",
            int,
            needs=_STOPPING,
        ),
        Flag("record-eval-videos", "film the final evaluation", "video.record_eval_videos", "on"),
        Flag("max-videos-per-category", "films of each category", "video.max_videos_per_category", int, needs=_VIDEOS),
        Flag("video-fps", "film frames per second; the game has 60", "video.video_fps", int, needs=_VIDEOS),
        Flag("visualize-training", "live window", kind="on", default=False, refusal=_NO_WINDOW),
        Flag("vis-render-freq", "its period", kind=int, default=100, refusal=_NO_WINDOW),
        Flag("vis-env-idx", "the environment it shows", kind=int, default=0, refusal=_NO_WINDOW),
        Flag("vis-fps", "its speed", kind=int, default=60, refusal=_NO_WINDOW),
    ),
    "hardware": (
        Flag(
            "hardware-profile",
            "auto, or a profile's name (python -m hardware plan --help lists them)",
            "hardware.hardware_profile",
            metavar="NAME",
        ),
        Flag("num-envs", "environments stepped together; default: the hardware plan's", "hardware.num_envs", int),
        Flag(
            "rollout-length",
            "decisions per environment and update; default: the plan's",
            "hardware.rollout_length",
            int,
        ),
        Flag("minibatch-size", "decisions per gradient step; default: the plan's", "hardware.minibatch_size", int),
        Flag("device", "default: a GPU if there is one", "hardware.device", choices=("cpu", "cuda")),
        Flag("num-gpus", "0 means CPU", "hardware.num_gpus", int),
        Flag("distributed-backend", "of several GPUs", default="nccl", choices=("nccl", "gloo"), refusal=_ONE_GPU),
        Flag("enable-profiling", "phase timings", kind="on", default=False, refusal=_NO_TRACE),
        Flag("enable-pytorch-profiler", "trace", kind="switch", default=False, refusal=_NO_TRACE),
        Flag("profiler-wait", "its schedule", kind=int, default=1, refusal=_NO_TRACE),
        Flag("profiler-warmup", "its schedule", kind=int, default=1, refusal=_NO_TRACE),
        Flag("profiler-active", "its schedule", kind=int, default=3, refusal=_NO_TRACE),
        Flag("profiler-repeat", "its schedule", kind=int, default=1, refusal=_NO_TRACE),
        Flag("enable-memory-profiling", "memory trace", kind="on", default=False, refusal=_NO_MEMORY_TRACE),
        Flag("memory-snapshot-freq", "its period", kind=int, default=500, refusal=_NO_MEMORY_TRACE),
    ),
    "upload": (
        Flag(
            "s3-bucket",
            "upload the run's folder to this bucket; credentials come from the environment only",
            "upload.bucket",
        ),
        Flag("s3-prefix", "put before the names of uploaded objects", "upload.prefix", needs=_BUCKET),
        Flag("s3-sync-freq", "decisions between uploads", "upload.sync_freq", int, needs=_BUCKET),
    ),
}
FLAGS: dict[str, Flag] = {flag.name: flag for flags in GROUPS.values() for flag in flags}

_PREFACE = """# Flags of `scripts/train_and_compare.py`

Made by `python -m rl.config > docs/flags.md`. No flag is accepted and ignored: one whose machinery comes later (last
table) is refused unless it is left at its default, and so is one that has no effect without another (*needs*).
Explicit flags win over hardware profiles and automatic choices. A *decision* is one action, which lasts
`--frame-skip` frames of 1/60 s. `--seed` is another spelling of `--seeds`.
"""


def metavar(flag: Flag) -> str | None:
    """What stands for the value in the help; None where the choices do."""
    return flag.metavar or (None if flag.choices else {int: "N", float: "X", Path: "PATH"}.get(flag.kind, "NAME"))


def shown_default(flag: Flag, value) -> str:
    """A default as people write it."""
    if value is MISSING:
        return "required"
    if value is None:
        return "–"
    if flag.kind in ("on", "off", "switch"):
        return "on" if flag.kind == "switch" and value else "off"
    return " ".join(map(str, value)) if flag.many else f"{value:,}" if flag.kind is int else str(value)


def document(defaults: Mapping) -> str:
    """The text of docs/flags.md, from the default of each flag."""
    lines = [_PREFACE.rstrip()]
    for group, flags in GROUPS.items():
        rows = [f"| {_spelling(f)} | {shown_default(f, defaults[f.name])} | {_meaning(f)} |" for f in flags if f.target]
        lines += ["", f"## {group.capitalize()}", "", "| flag | default | meaning |", "|---|---|---|", *rows]
    lines += ["", "## Refused", "", "| flag | default | refused with |", "|---|---|---|"]
    refused = [flag for flag in FLAGS.values() if flag.refusal]
    lines += [f"| {_spelling(f)} | {shown_default(f, defaults[f.name])} | {f.refusal} |" for f in refused]
    return "\n".join(lines) + "\n"


def _meaning(flag: Flag) -> str:
    choices = f"; one of {', '.join(flag.choices)}" if flag.choices else ""
    return flag.help + choices + (f" (*needs* `--{flag.needs}`)" if flag.needs else "")


def _spelling(flag: Flag) -> str:
    if flag.kind == "switch":
        return f"`{flag.option}`, `--no-{flag.name}`"
    value = "" if flag.kind in ("on", "off") else metavar(flag) or "NAME"
    return f"`{flag.option} {value}".rstrip() + (" ...`" if flag.many else "`")
