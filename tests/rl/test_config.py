"""Flags: every one works or is refused, none is accepted and ignored; and what is wrong is said before training."""

import json
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import flags_page
import pytest

import rl.config.command_line
from hardware import PROFILES, PlanRequest, plan
from hardware.profiles import BASE_LEARNING_RATE
from nppsim.errors import ConfigError, MissingPackageError, redact
from nppsim.levels.campaign import to_line
from nppsim.levels.level import LevelError
from nppsim.observe import layout
from rl.config import EvaluationConfig, PPOConfig, UploadConfig
from rl.config.command_line import FLAGS, REFUSED, resolve
from rl.config.curriculum import STRATEGIES_WITH, CurriculumConfig
from rl.config.files import table_settings, text_settings
from rl.config.resume import changes, stored_config
from rl.experiment.run import warn_about_networks
from rl.policy.architectures import ALIASES, ARCHITECTURES

from programs import load_script
from worlds import straight


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with datasets and replays where the defaults expect them; nothing in them is read here."""
    for name in (
        "datasets/train/a.map",
        "datasets/dev/e.map",
        "datasets/test/b.map",
        "other/c.map",
        "replays/d.replay",
        "old/config.json",
        "mine.toml",
        "agent.safetensors",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old" / "config.json").write_text(json.dumps(resolve(REQUIRED).to_dict()))
    return tmp_path


REQUIRED = ["--experiment-name", "first", "--architectures", "mlp_baseline"]
CLONED = [*REQUIRED, "--replay-data-dir", "replays"]

# Every flag with a value that is not its default, and what it needs besides.
EXAMPLES = {
    "experiment-name": ["second"],
    "architectures": ["vision_free"],
    "train-dataset": ["other"],
    "dev-dataset": ["other"],
    "test-dataset": ["other"],
    "skip-bad-levels": [],
    "allow-unsupported": [],
    "single-level": ["other/c.map"],
    "output-dir": ["elsewhere"],
    "seeds": ["1", "2"],
    "resume-from": ["old"],
    "resume-override": ["save-freq=1000"],
    "init-from": ["agent.safetensors"],
    "previous-checkpoint": [],
    "save-freq": ["1000"],
    "keep-checkpoints": ["1"],
    "frame-skip": ["1"],
    "recipe": ["predecessor_2025_10"],
    "config": ["mine.toml"],
    "plugin": ["json"],
    "reward-preset": ["legacy_october"],
    "force": [],
    "reward-win": ["3"],
    "reward-death": ["-2"],
    "reward-switch": ["1"],
    "reward-time": ["-0.001"],
    "reward-shaping": ["1"],
    "reward-potential": ["straight_line"],
    "reward-closest": ["0.001"],
    "reward-proximity": ["0.1"],
    "reward-exploration": ["0.01"],
    "debug": [],
    "audit": ["off"],
    "silence": ["rewards"],
    "replay-data-dir": ["replays"],
    "mirror-demonstrations": [],
    "max-demonstrations-per-category": ["100"],
    "no-pretraining": [],
    "test-pretraining": [],
    "bc-epochs": ["3"],
    "bc-batch-size": ["32"],
    "bc-num-workers": ["4"],
    "bc-learning-rate": ["1e-3"],
    "bc-weight-decay": ["0"],
    "bc-max-grad-norm": ["0.5"],
    "bc-patience": ["3"],
    "bc-class-weight-power": ["0.5"],
    "validation-share": ["0.2"],
    "teacher": ["agent.safetensors"],
    "teacher-decisions": ["1000"],
    "teacher-minutes": ["2"],
    "teacher-learning-rate": ["1e-4"],
    "teacher-epochs": ["1"],
    "teacher-minibatch-size": ["64"],
    "total-timesteps": ["2000000"],
    "time-budget-minutes": ["1.5"],
    "gamma": ["0.99"],
    "pbrs-gamma": ["0.99"],
    "n-epochs": ["4"],
    "gae-lambda": ["0.9"],
    "clip-range": ["0.1"],
    "clip-range-end": ["0.1"],
    "clip-range-vf": ["1"],
    "clip-range-vf-end": ["0.5"],
    "schedules": ["--no-schedules"],
    "gradient-accumulation": ["2"],
    "gradient-zeroing": ["minibatch"],
    "returns-from": ["current"],
    "vtrace-rho-clip": ["1"],
    "vtrace-c-clip": ["0.9"],
    "prioritised-alpha": ["0.6"],
    "prioritised-beta": ["0.4"],
    "memory-segment": ["16"],
    "gradient-statistics-freq": ["10"],
    "ent-coef-start": ["0.02"],
    "ent-coef-end": ["0.01"],
    "lr-end-share": ["0"],
    "vf-coef": ["1"],
    "scale-value-loss": ["--no-scale-value-loss"],
    "max-grad-norm": ["1"],
    "target-kl": ["none"],
    "critic-warmup-explained-variance": ["0.8"],
    "critic-warmup-min-updates": ["1"],
    "bc-kl-share": ["0.5"],
    "critic-warmup-max-updates": ["0"],
    "learning-rate-warmup-updates": ["0"],
    "bc-kl-coef": ["0"],
    "initial-lr": ["1e-4"],
    "enable-lr-annealing": ["--no-enable-lr-annealing"],
    "mixed-precision": [],
    "use-hierarchical-ppo": [],
    "high-level-update-freq": ["10"],
    "hierarchical-from-stage": ["medium"],
    "use-deep-resnet-policy": [],
    "deep-resnet-use-residual": ["--no-deep-resnet-use-residual"],
    "deep-resnet-use-layer-norm": ["--no-deep-resnet-use-layer-norm"],
    "deep-resnet-blocks": ["3"],
    "deep-resnet-dropout": ["0.1"],
    "enable-visual-frame-stacking": [],
    "visual-stack-size": ["2"],
    "enable-state-stacking": [],
    "state-stack-size": ["2"],
    "frame-stack-padding": ["repeat"],
    "use-curriculum": [],
    "curriculum-start-stage": ["simple"],
    "curriculum": ["learnability"],
    "curriculum-uniform-share": ["0.1"],
    "curriculum-track-levels": ["3"],
    "curriculum-stage-thresholds": ["simple=0.5"],
    "curriculum-stage-gamma": ["medium=0.99"],
    "curriculum-stage-learning-rate": ["medium=0.0001"],
    "curriculum-stage-ent-coef": ["medium=0"],
    "curriculum-stage-clip-range": ["medium=0.1"],
    "start-states": [],
    "start-states-share": ["0.1"],
    "start-states-threshold": ["0.3"],
    "curriculum-mixing-share": ["0.2"],
    "curriculum-regression-threshold": ["0.2"],
    "curriculum-preset": ["stable"],
    "curriculum-formulas": ["original"],
    "curriculum-basic-progress": [],
    "curriculum-active-levels": ["100"],
    "curriculum-lp-timescale": ["0.05"],
    "curriculum-lp-slow": ["0.1"],
    "curriculum-lp-early": ["0.1"],
    "curriculum-lp-exploration-bonus": ["0.2"],
    "curriculum-lp-success-bonus": ["0.2"],
    "curriculum-lp-amplification": ["5"],
    "curriculum-lp-temperature": ["0.1"],
    "curriculum-lp-min-samples": ["5"],
    "curriculum-performance-mode": [],
    "curriculum-replay-score": ["positive"],
    "curriculum-replay-temperature": ["0.3"],
    "curriculum-replay-staleness": ["0.3"],
    "desync-episodes": [],
    "curriculum-threshold": ["0.6"],
    "curriculum-min-episodes": ["50"],
    "curriculum-window": ["50"],
    "curriculum-stage-order": ["simple", "simplest"],
    "curriculum-next-share": ["0.1"],
    "curriculum-early-success": ["0.95"],
    "curriculum-trend-rise": ["0.2"],
    "curriculum-adjustment-step": ["0.1"],
    "disable-trend-advancement": [],
    "disable-early-advancement": [],
    "enable-auto-curriculum-adjustment": ["--no-enable-auto-curriculum-adjustment"],
    "curriculum-adjustment-freq": ["500"],
    "curriculum-min-threshold": ["0.3"],
    "eval-freq": ["0"],
    "eval-every-minutes": ["5"],
    "num-eval-episodes": ["10"],
    "eval-episodes-per-category": ["5"],
    "eval-seed": ["1"],
    "exploration-patience": ["30"],
    "early-stopping-improvement": ["0.02"],
    "early-stopping-min-evaluations": ["3"],
    "deterministic-eval": [],
    "skip-final-eval": [],
    "no-retention-guard": [],
    "remote-evaluation": [],
    "enable-early-stopping": [],
    "early-stopping-patience": ["3"],
    "record-eval-videos": [],
    "max-videos-per-category": ["5"],
    "video-ghost": [],
    "video-fps": ["60"],
    "video-colours": ["neon"],
    "visualize-training": [],
    "vis-render-freq": ["10"],
    "vis-env-idx": ["1"],
    "vis-fps": ["30"],
    "hardware-profile": ["cpu-testing"],
    "num-envs": ["128"],
    "rollout-length": ["32"],
    "minibatch-size": ["256"],
    "torch-threads": ["1"],
    "simulator-threads": ["1"],
    "device": ["cpu"],
    "num-gpus": ["0"],
    "num-processes": ["2"],
    "distributed-backend": ["gloo"],
    "enable-profiling": [],
    "enable-pytorch-profiler": [],
    "profiler-wait": ["2"],
    "profiler-warmup": ["2"],
    "profiler-active": ["2"],
    "profiler-repeat": ["2"],
    "enable-memory-profiling": [],
    "memory-snapshot-freq": ["100"],
    "s3-bucket": ["bucket"],
    "s3-prefix": ["elsewhere/"],
    "s3-sync-freq": ["1000"],
}
NEEDED = {
    "resume-from": ["--resume-from", "old"],
    "replay-data-dir": ["--replay-data-dir", "replays"],
    "replay-data-dir or init-from": ["--init-from", "agent.safetensors"],
    "teacher": ["--replay-data-dir", "replays", "--teacher", "agent.safetensors"],
    "use-curriculum": ["--use-curriculum"],
    "start-states": ["--start-states"],
    "record-eval-videos": ["--record-eval-videos"],
    "use-deep-resnet-policy": ["--use-deep-resnet-policy"],
    "enable-visual-frame-stacking": ["--enable-visual-frame-stacking"],
    "enable-state-stacking": ["--enable-state-stacking"],
    "use-hierarchical-ppo": ["--use-hierarchical-ppo"],
    "enable-pytorch-profiler": ["--enable-pytorch-profiler"],
    "enable-memory-profiling": ["--enable-memory-profiling"],
    "enable-early-stopping": ["--enable-early-stopping"],
    "s3-bucket": ["--s3-bucket", "bucket"],
    "vtrace-rho-clip": ["--returns-from", "current", "--vtrace-rho-clip", "1"],
    "prioritised-alpha": ["--prioritised-alpha", "0.6"],
    "clip-range-vf": ["--clip-range-vf", "1"],
}


KNOWN = {name: flag for name, (_, flag) in FLAGS.items()} | REFUSED


def arguments(name):
    """Arguments with the flag, its value, and what it needs."""
    values = EXAMPLES[name]
    own = values if values and values[0].startswith("--") else [f"--{name}", *values]
    more = {
        "pbrs-gamma": ["--gamma", "0.99"],
        "vtrace-rho-clip": ["--returns-from", "current"],
        "gradient-zeroing": ["--gradient-accumulation", "2"],
        "frame-stack-padding": ["--enable-state-stacking"],
        "teacher": ["--replay-data-dir", "replays"],
        "curriculum-lp-exploration-bonus": ["--curriculum-formulas", "original"],
        "hierarchical-from-stage": ["--curriculum", "stages"],
        "memory-segment": ["--architectures", "vision_free+gru"],
    }.get(name, [])
    strategies = STRATEGIES_WITH.get(KNOWN[name].name, ()) if "curriculum" in name else ()
    chosen = ["--curriculum", strategies[0]] if strategies else []
    return REQUIRED + NEEDED.get(KNOWN[name].needs, []) + more + chosen, own


def value_of(config, name):
    section, flag = FLAGS[name]
    return getattr(getattr(config, section) if section else config, flag.name)


_SPECIFIED = (  # flags that the pipeline's specification lists
    "architectures bc-batch-size bc-epochs bc-num-workers curriculum-adjustment-freq curriculum-min-episodes "
    "curriculum-min-threshold curriculum-start-stage curriculum-threshold debug deep-resnet-dropout "
    "deep-resnet-use-layer-norm deep-resnet-use-residual disable-early-advancement disable-trend-advancement "
    "distributed-backend early-stopping-patience enable-auto-curriculum-adjustment enable-early-stopping "
    "enable-lr-annealing enable-memory-profiling enable-profiling enable-pytorch-profiler enable-state-stacking "
    "enable-visual-frame-stacking eval-freq experiment-name frame-skip frame-stack-padding hardware-profile "
    "high-level-update-freq initial-lr max-videos-per-category memory-snapshot-freq mixed-precision "
    "no-pretraining num-envs num-eval-episodes num-gpus output-dir pbrs-gamma profiler-active profiler-repeat "
    "profiler-wait profiler-warmup record-eval-videos replay-data-dir resume-from s3-bucket s3-prefix "
    "s3-sync-freq save-freq single-level skip-final-eval state-stack-size test-dataset test-pretraining "
    "total-timesteps train-dataset use-curriculum use-deep-resnet-policy use-hierarchical-ppo video-fps "
    "vis-env-idx vis-fps vis-render-freq visual-stack-size visualize-training "
)


@pytest.mark.parametrize("name", _SPECIFIED.split())
def test_every_flag_of_the_specification_is_accepted_or_refused_with_a_reason(name, folder):
    flag = next(flag for flag in KNOWN.values() if name in (flag.flag, *flag.aliases))
    others, own = arguments(flag.flag)
    if flag.refusal:
        with pytest.raises(ConfigError, match=re.escape(flag.refusal)):
            resolve(others + own)
    else:
        resolve([*others, *(part.replace(f"--{flag.flag}", f"--{name}") for part in own)])


def test_the_examples_cover_every_flag():
    assert set(EXAMPLES) == set(KNOWN)


@pytest.mark.parametrize("name", FLAGS)
def test_every_flag_changes_the_configuration(name, folder):
    others, own = arguments(name)
    without, changed = resolve(others), resolve(others + own)
    assert value_of(without, name) != value_of(changed, name)


@pytest.mark.parametrize("name", [name for name, (_, flag) in FLAGS.items() if flag.aliases])
def test_another_name_of_a_flag_means_the_same(name, folder):
    others, own = arguments(name)
    if name == "architectures":
        others = REQUIRED[:2]
    both = ["--ent-coef-end", *EXAMPLES[name]] if name == "ent-coef-start" else []  # --ent-coef sets both ends
    for alias in KNOWN[name].aliases:
        assert resolve([*others, *(part.replace(f"--{name}", f"--{alias}") for part in own)]) == resolve(
            others + own + both
        )


@pytest.mark.parametrize("name", REFUSED)
def test_a_flag_without_machinery_is_refused_unless_it_is_left_at_its_default(name, folder):
    _, own = arguments(name)
    with pytest.raises(ConfigError, match=re.escape(f"--{name}: {REFUSED[name].refusal}")):
        resolve(REQUIRED + own)
    default = REFUSED[name].default
    given = [f"--{name}" if default else f"--no-{name}"] if isinstance(default, bool) else [f"--{name}", str(default)]
    assert resolve(REQUIRED + given) == resolve(REQUIRED)


@pytest.mark.parametrize("name", [name for name, (_, flag) in FLAGS.items() if flag.needs])
def test_a_flag_that_would_have_no_effect_is_an_error(name, folder):
    _, own = arguments(name)
    message = (
        "--test-pretraining: compares"
        if name == "test-pretraining"
        else f"no effect without --{KNOWN[name].needs.split()[0]}"
    )
    with pytest.raises(ConfigError, match=message):
        resolve(REQUIRED + own)


def test_the_documents_command_works(folder):
    command = """
        --experiment-name mlp_baseline_fix_v1 --architectures mlp_baseline --train-dataset datasets/train
        --test-dataset datasets/test --use-curriculum --curriculum-threshold 0.6 --curriculum-min-episodes 50
        --replay-data-dir replays --bc-epochs 50 --bc-batch-size 128 --hardware-profile auto --total-timesteps 2000000
        --num-envs 128 --eval-freq 100000 --record-eval-videos --max-videos-per-category 5 --num-eval-episodes 10
        --video-fps 30 --s3-bucket bucket --s3-prefix some/where --output-dir out"""
    config = resolve(shlex.split(command))
    assert config.conditions == ("with_pretrain",)
    assert config.hardware.plan_request(10**6).num_envs == 128
    assert config.curriculum == replace(CurriculumConfig(), use_curriculum=True, threshold=0.6, min_episodes=50)
    assert json.loads(json.dumps(config.to_dict()))["upload"]["bucket"] == "bucket"


def test_flags_document_is_up_to_date_and_so_no_default_changes_unnoticed():
    assert flags_page.PAGE.read_text(encoding="utf-8") == flags_page.flags_document(), (
        "python tests/support/flags_page.py"
    )


def test_defaults_without_a_flag_change_only_on_purpose():
    ppo = PPOConfig()
    assert (ppo.gae_lambda, ppo.clip_range, ppo.vf_coef, ppo.max_grad_norm) == (0.95, 0.2, 0.5, 0.5)
    assert (EvaluationConfig().early_stopping_improvement, EvaluationConfig().early_stopping_min_evaluations) == (
        0.01,
        5,
    )
    assert (CurriculumConfig().early_success, CurriculumConfig().trend_rise) == (0.9, 0.15)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "required: --experiment-name, --architectures"),
        (["--experimant-name", "x", *REQUIRED], "unknown flag --experimant-name; did you mean '--experiment-name'?"),
        ([*REQUIRED, "--xyz"], "unknown flag --xyz; --help lists"),
        ([*REQUIRED, "--use-curric"], "unknown flag --use-curric; did you mean '--use-curriculum'"),
        ([*REQUIRED, "--s3-secret-key=hunter2hunter2"], r"unknown flag --s3-secret-key(?!.*hunter2)"),
        ([*REQUIRED, "--bc-epochs"], "--bc-epochs: expected one argument"),
        ([*REQUIRED, "--num-envs", "many"], "--num-envs: 'many' is not a whole number"),
        ([*REQUIRED, "--num-envs", "0"], "--num-envs 0: give a whole number of at least 1"),
        ([*REQUIRED, "--num-processes", "1e12"], "--num-processes 1000000000000: give a whole number from 1 to 1,024"),
        ([*REQUIRED, "--initial-lr", "2"], "--initial-lr 2.0: give a number above 0 and at most 1"),
        ([*REQUIRED, "--vf-coef", "1e9"], "--vf-coef 1000000000.0: give a number above 0 and at most 1,000"),
        ([*REQUIRED, "--gamma", "nan"], "--gamma nan: give a number above 0 and at most 1"),
        ([*REQUIRED, "--time-budget-minutes", "inf"], "--time-budget-minutes inf: give a number above 0"),
        ([*REQUIRED, "--pbrs-gamma", "1.0"], "--pbrs-gamma 1.0: differs .* 0.995"),
        (
            [*REQUIRED, "--use-curriculum", "--curriculum-threshold", "60"],
            "--curriculum-threshold 60.0: .* at most 1",
        ),
        ([*REQUIRED, "--use-curriculum", "--curriculum-threshold", "0.3"], "--curriculum-min-threshold 0.4: is above"),
        ([*REQUIRED, "--replay-data-dir", "replays", "--bc-epochs", "0"], "--bc-epochs 0"),
        (
            [*REQUIRED, "--train-dataset", "other", "./other"],
            "--train-dataset other other: contains a folder twice",
        ),
        ([*REQUIRED, "--replay-data-dir", "replays", "--no-pretraining", "--bc-epochs", "2"], "with --no-pretraining"),
        ([*REQUIRED, "--test-pretraining"], "give --replay-data-dir"),
        ([*REQUIRED, "--mirror-demonstrations"], "no effect without --replay-data-dir"),
        (
            [*REQUIRED, "--replay-data-dir", "replays", "--no-pretraining", "--mirror-demonstrations"],
            "--mirror-demonstrations: has no effect with --no-pretraining",
        ),
        (
            [*REQUIRED, "--replay-data-dir", "replays", "--max-demonstrations-per-category", "0"],
            "--max-demonstrations-per-category 0: give a whole number of at least 1",
        ),
        ([*REQUIRED, "--skip-final-eval", "--record-eval-videos"], "leave out --skip-final-eval"),
        (
            [*REQUIRED, "--replay-data-dir", "replays", "--no-pretraining", "--bc-kl-coef", "0"],
            "--bc-kl-coef: has no effect with --no-pretraining",
        ),
        ([*REQUIRED, "--no-schedules", "--ent-coef-end", "0"], "--ent-coef-end: has no effect with --no-schedules"),
        (
            [*REQUIRED, "--reward-shaping", "0", "--reward-potential", "path"],
            "--reward-potential path: has no effect with --reward-shaping 0",
        ),
        (
            [*REQUIRED, "--no-enable-lr-annealing", "--lr-end-share", "0.5"],
            "--lr-end-share: has no effect with --no-enable-lr-annealing",
        ),
        (
            [*REQUIRED, "--use-curriculum", "--disable-trend-advancement", "--curriculum-trend-rise", "0.3"],
            "--curriculum-trend-rise: has no effect with --disable-trend-advancement",
        ),
        (
            [*REQUIRED, "--curriculum", "stages", "--curriculum-regression-threshold", "0.7"],
            "--curriculum-regression-threshold 0.7: a stage that ends at 0.7 would be left for the previous one",
        ),
        (
            [*REQUIRED, "--use-curriculum", "--curriculum-threshold", "0.7"],
            "--curriculum-threshold: has no effect with --curriculum learnability, only with stages",
        ),
        (
            [*REQUIRED, "--curriculum", "stages", "--curriculum-stage-learning-rate", "simple=30000"],
            "--curriculum-stage-learning-rate simple=30000: give STAGE=X with X above 0 and at most 1",
        ),
        (
            [*REQUIRED, "--curriculum", "stages", "--curriculum-stage-gamma", "simple=0.9", "simple=0.8"],
            "--curriculum-stage-gamma simple=0.9 simple=0.8: gives a stage twice",
        ),
        ([*CLONED, "--bc-kl-coef", "0", "--bc-kl-share", "0.5"], "--bc-kl-share: has no effect with --bc-kl-coef 0"),
        ([*CLONED, "--bc-kl-share", "0", "--bc-kl-coef", "0.5"], "--bc-kl-coef: has no effect with --bc-kl-share 0"),
        (
            [*CLONED, "--critic-warmup-max-updates", "0", "--critic-warmup-explained-variance", "0.9"],
            "--critic-warmup-explained-variance: has no effect with --critic-warmup-max-updates 0",
        ),
        (
            [*CLONED, "--critic-warmup-max-updates", "3", "--critic-warmup-min-updates", "5"],
            "--critic-warmup-min-updates 5: is above --critic-warmup-max-updates 3",
        ),
        ([*REQUIRED, "--enable-early-stopping", "--eval-freq", "0"], "--eval-freq above 0"),
        ([*REQUIRED, "--remote-evaluation", "--eval-freq", "0"], "--remote-evaluation needs evaluations during"),
        (
            [*REQUIRED, "--eval-every-minutes", "5", "--eval-freq", "0"],
            "--eval-every-minutes 5.0: --eval-freq 0 disables evaluations",
        ),
        ([*REQUIRED, "--num-gpus", "8", "--num-processes", "2"], "--num-gpus 8: starts one process per GPU"),
        ([*REQUIRED, "--distributed-backend", "nccl", "--num-gpus", "0"], "--distributed-backend nccl: needs GPUs"),
        ([*REQUIRED, "--num-gpus", "0", "--device", "cuda"], "contradict"),
        ([*REQUIRED, "--hardware-profile", "8xA100"], "--hardware-profile 8xA100: .*did you mean '8xA100"),
        ([*REQUIRED, "--reward-preset", "november"], "known: default, legacy_october, legacy_recommended"),
        ([*REQUIRED, "--seeds", "1", "1"], "--seeds 1 1: .* each only once"),
        ([*REQUIRED, "--seed", "-1"], "--seeds -1: give whole numbers from 0 to 2,147,483,647"),
        ([*REQUIRED, "--bc-epochs=2", "extra"], "unexpected argument 'extra'"),
        ([*REQUIRED, "--single-level", "other/c.map", "--dev-dataset", "other"], "leave out --dev-dataset"),
        (["--experiment-name", "../x", "--architectures", "mlp_baseline"], "is not a valid folder name"),
        (["--experiment-name", "x", "--architectures", "mlp_basline"], "did you mean 'mlp_baseline'"),
        (
            [*REQUIRED, "--frame-stack-padding", "repeat"],
            "--frame-stack-padding repeat: needs stacks of several frames",
        ),
        (
            [
                *("--experiment-name", "a", "--architectures", "vision_free+subtasks50", "mlp_baseline"),
                *("--replay-data-dir", "replays", "--teacher", "vision_free+subtasks50"),
            ],
            "--teacher vision_free.subtasks50: uses stacked frames or subtasks",
        ),
        (
            [*REQUIRED, "--architectures", "vision_free+gru", "--teacher", "mlp_baseline"],
            "--teacher mlp_baseline: distillation trains on single decisions",
        ),
        ([*REQUIRED, "--memory-segment", "4"], "--memory-segment 4: needs a recurrent network; give NAME.gru"),
        (
            ["--experiment-name", "x", "--architectures", "vision_free+gru", "--prioritised-alpha", "0.5"],
            "--prioritised-alpha 0.5: samples single decisions, but recurrent networks",
        ),
        ([*REQUIRED, "--enable-state-stacking", "--state-stack-size", "13"], "--state-stack-size 13: .* from 1 to 12"),
        (
            ["--experiment-name", "x", "--architectures", "vision_free", "--enable-visual-frame-stacking"],
            "vision_free.visual4.*stacks visual frames",
        ),
        (
            ["--experiment-name", "x", "--architectures", "vision_free_frame_stacked", "--enable-state-stacking"],
            "vision_free.state4: already stacks frames",
        ),
        (
            ["--experiment-name", "x", "--architectures", "vision_free", "vision_free_foresight", "--frame-skip", "41"],
            "--frame-skip 41: vision_free_foresight observes 40 frames of look-ahead",
        ),
        ([*REQUIRED, "--s3-bucket", "s3://bucket/x"], "is not a bucket name"),
        ([*REQUIRED, "--s3-bucket", "bucket", "--s3-prefix", "/"], "--s3-prefix /: is empty"),
    ],
)
def test_bad_flags_get_one_clear_error(argv, message, folder):
    with pytest.raises(ConfigError, match=message) as error:
        resolve(argv)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("flags", "periods"),
    [
        ([], (500_000, 0)),
        (["--total-timesteps", "1000"], (50, 0)),
        (["--time-budget-minutes", "30"], (0, 180)),
        (["--time-budget-minutes", "30", "--eval-freq", "7"], (7, 0)),
        (["--time-budget-minutes", "30", "--eval-every-minutes", "5"], (0, 300)),
        (["--eval-every-minutes", "5", "--eval-freq", "7"], (7, 300)),
        (["--eval-freq", "0"], (0, 0)),
    ],
)
@pytest.mark.usefixtures("folder")
def test_evaluations_follow_the_length_of_the_training(flags, periods):
    config = resolve([*REQUIRED, *flags])
    assert config.evaluation.periods(config.ppo.total_timesteps, config.ppo.time_budget_minutes) == periods


def test_a_run_is_gone_on_with_as_it_was_begun(folder):
    assert resolve(["--resume-from", "old"]) == replace(resolve(REQUIRED), resume_from=Path("old"))
    changed = ["--resume-from", "old", "--resume-override", "total-timesteps=5", "ppo.gamma=0.9", "seeds=1,2"]
    config = resolve([*changed, "--resume-override", "pretraining=off", "dev-dataset=none", "--gamma", "0.9"])
    assert (config.ppo.total_timesteps, config.ppo.gamma, config.seeds, config.pretraining) == (5, 0.9, (1, 2), False)
    assert changes(stored_config(folder / "old"), config)["seeds"] == [(0,), (1, 2)]
    together = ["--resume-from", "old", "--resume-override", "vtrace-rho-clip=1", "returns-from=current"]
    assert resolve(together).ppo.vtrace_rho_clip == 1


def test_how_trainings_are_judged_stays_once_one_is_over(folder):
    flags = ["--resume-from", "old", "--resume-override", "num-eval-episodes=70"]
    assert resolve(flags).evaluation.num_eval_episodes == 70
    (folder / "old" / "vision_free" / "seed_0").mkdir(parents=True)
    (folder / "old" / "vision_free" / "seed_0" / "finished.json").touch()
    with pytest.raises(ConfigError, match="num-eval-episodes: old/vision_free/seed_0 .* scripts/evaluate.py"):
        resolve(flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--gamma", "0.9"],
            "--resume-from old: .*: gamma is 0.995 in the run and 0.9 here.*--resume-override gamma=0.9",
        ),
        (["--frame-skip", "2"], "frame-skip is 4 in the run and 2 here. Leave them out .*, or begin a new run"),
        (["--seeds", "0", "1"], "seeds is 0 in the run and 0,1 here.*--resume-override seeds=0,1"),
        (["--gamma", "0.9", "--no-pretraining"], "pretraining is on in the run and off here; gamma is .* here. Leave"),
        (["--resume-override", "gamma"], "--resume-override gamma: give NAME=VALUE"),
        (["--resume-override", "gama=1"], "gama: is not a setting; did you mean 'gamma'"),
        (["--resume-override", "debug=on"], "debug: is not a setting"),
        (["--resume-override", "gamma=x"], "'x' is not a number"),
        (["--resume-override", "gamma=2"], "gamma 2.0: give a number"),
        (["--resume-override", "pretraining=1"], "give on or off"),
        (
            ["--resume-override", "curriculum-window=50"],
            "cannot change within a run: the stored curves .*; begin a new run",
        ),
        (["--resume-override", "deterministic-eval=on"], "cannot change within a run: policies .* same episodes"),
        (["--resume-override", "eval-episodes-per-category=7"], "cannot change within a run"),
        (
            ["--resume-override", "curriculum=stages"],
            "cannot change within a run: the stored state .*; begin a new run",
        ),
        (["--resume-override", "curriculum-stage-order=simple,medium"], "cannot change within a run"),
        (["--resume-override", "start-states=on"], "cannot change within a run"),
        (["--resume-override", "curriculum-threshold=0.5"], "cannot change within a run: the stored state"),
        (["--resume-override", "curriculum-lp-timescale=0.5"], "cannot change within a run: the stored state"),
        (["--resume-override", "curriculum-lp-min-samples=5"], "cannot change within a run: the stored state"),
        (["--resume-override", "curriculum-replay-score=positve"], "positve: give one of absolute, positive"),
        (
            ["--resume-override", "ppo.clip_range_vf_end=0.1"],
            "clip_range_vf_end: has no effect without --clip-range-vf",
        ),
        (["--resume-override", "use-deep-resnet-policy=on"], "cannot change within a run: it would be another network"),
        (["--resume-override", "desync-episodes=on"], "cannot change within a run: the first episodes"),
        (["--resume-override", "frame-skip=2"], "cannot change within a run: the policy .*; begin a new run"),
        (["--resume-override", "num-envs=8"], "cannot change within a run: the hardware plan .*; begin a new run"),
    ],
)
def test_other_settings_than_those_of_the_run_are_refused_or_written_down(flags, message, folder):
    with pytest.raises(ConfigError, match=message):
        resolve(["--resume-from", "old", *flags])


def test_a_resumed_run_needs_no_teacher_file(folder):
    begun = resolve([*CLONED, "--teacher", "agent.safetensors"])
    (folder / "old" / "config.json").write_text(json.dumps(begun.to_dict()))
    (folder / "agent.safetensors").unlink()
    assert resolve(["--resume-from", "old"]).teacher.name == "agent.safetensors"


def test_an_explicit_end_of_the_entropy_bonus_wins_in_any_order(folder):
    for names in (["ent-coef=0.02", "ppo.ent_coef_end=0.001"], ["ppo.ent_coef_end=0.001", "ent-coef=0.02"]):
        ppo = resolve(["--resume-from", "old", "--resume-override", *names]).ppo
        assert (ppo.ent_coef_start, ppo.ent_coef_end) == (0.02, 0.001)


def test_demonstrations_for_start_states_can_be_limited(folder):
    flags = ["--no-pretraining", "--use-curriculum", "--start-states", "--max-demonstrations-per-category", "10"]
    assert resolve([*CLONED, *flags]).max_demonstrations_per_category == 10


def test_levels_of_campaign_files_are_levels(folder):
    (folder / "pack.txt").write_text(to_line(replace(straight(), title="one")) + "\n")
    assert resolve([*REQUIRED, "--single-level", "pack.txt#0"]).single_level == Path("pack.txt#0")
    assert resolve([*REQUIRED, "--train-dataset", "pack.txt#one"]).train_dataset == (Path("pack.txt#one"),)
    with pytest.raises(LevelError, match=r"pack\.txt#two"):
        resolve([*REQUIRED, "--train-dataset", "pack.txt#two"])


def test_the_curriculum_strategy_stays_although_settings_imply_another_one(folder):
    begun = resolve([*REQUIRED, "--use-curriculum"])
    (folder / "old" / "config.json").write_text(json.dumps(begun.to_dict()))
    with pytest.raises(
        ConfigError, match="curriculum-min-episodes=100: would change --curriculum from learnability to"
    ):
        resolve(["--resume-from", "old", "--resume-override", "curriculum-min-episodes=100"])


def test_a_run_without_the_retention_guard_does_not_get_one_later(folder, monkeypatch):
    """By then the present policy would be taken for the BC policy; without imitation there is none."""
    path = folder / "old" / "config.json"
    for begun in (["--eval-freq", "0"], ["--no-retention-guard"]):
        path.write_text(json.dumps(resolve([*REQUIRED, "--replay-data-dir", "replays", *begun]).to_dict()))
        late = ["--resume-from", "old", "--resume-override", "eval-freq=1000", "evaluation.retention_guard=on"]
        with pytest.raises(ConfigError, match="retention guard cannot start within a run"):
            resolve(late)
        assert resolve([*late[:-1], "evaluation.retention_guard=off"]).evaluation.in_training
    path.write_text(json.dumps(resolve([*REQUIRED, "--eval-freq", "0"]).to_dict()))
    assert resolve(late).evaluation.retention_guard


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ("{}", "missing or unknown"),
        (None, "possible secret"),
    ],
)
def test_a_stored_configuration_that_cannot_be_used_is_named(content, message, folder):
    path = folder / "old" / "config.json"
    if content is None:
        content = json.dumps(resolve(REQUIRED).to_dict() | {"upload": vars(UploadConfig()) | {"bucket": "[redacted]"}})
        message = "not a bucket name"
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        resolve(["--resume-from", "old"])


@pytest.mark.parametrize(
    ("option", "path", "message"),
    [
        ("--train-dataset", "nowhere", "does not exist; make one with"),
        ("--dev-dataset", "empty", "contains no levels; make one with"),
        ("--test-dataset", "empty", "contains no levels; make one with"),
        ("--replay-data-dir", "nowhere", r"is neither a folder nor a \*.replay or \*.h5 file"),
        ("--replay-data-dir", "other/c.map", "is neither a folder nor"),
        ("--replay-data-dir", "other", r"contains no \*.replay or \*.h5 files"),
        ("--single-level", "other", "is no file"),
        ("--resume-from", "other", "contains no config.json"),
        ("--output-dir", "other/c.map/below", r"cannot be written \(.*c.map is a file\)"),
    ],
)
def test_paths_are_checked_before_anything_starts(option, path, message, folder):
    (folder / "empty").mkdir()
    with pytest.raises(ConfigError, match=f"{option} {re.escape(path)}: {message}"):
        resolve([*REQUIRED, option, path])


def test_replays_may_be_a_replay_set_or_a_folder_of_them(folder):
    (folder / "sets").mkdir()
    (folder / "sets" / "a.h5").write_bytes(b"")
    for path in ("sets", "sets/a.h5", "replays/d.replay"):
        assert resolve([*REQUIRED, "--replay-data-dir", path]).replay_data_dir == (Path(path),)
    assert resolve([*REQUIRED, "--replay-data-dir", "sets", "replays"]).replay_data_dir == (
        Path("sets"),
        Path("replays"),
    )


def test_several_folders_are_stored_and_gone_on_with(folder):
    flags = [*REQUIRED, "--train-dataset", "datasets/train", "other", "--dev-dataset", "datasets/dev"]
    (folder / "old" / "config.json").write_text(json.dumps(resolve(flags).to_dict()))
    config = resolve(["--resume-from", "old"])
    assert config.train_dataset == (Path("datasets/train"), Path("other"))
    same = resolve(["--resume-from", "old", *flags])
    assert same == config
    with pytest.raises(ConfigError, match="train-dataset is datasets/train,other in the run and other here"):
        resolve(["--resume-from", "old", "--train-dataset", "other"])
    config = resolve(
        ["--resume-from", "old", "--resume-override", "dev-dataset=none", "train-dataset=other,datasets/dev"]
    )
    assert (config.dev_dataset, config.train_dataset) == ((), (Path("other"), Path("datasets/dev")))


def test_an_output_folder_without_permission_is_refused(folder, monkeypatch):
    monkeypatch.setattr("nppsim.io.files.os.access", lambda path, mode: False)
    with pytest.raises(ConfigError, match=r"--output-dir experiments: cannot be written \(no permission"):
        resolve(REQUIRED)


def test_a_full_disk_is_told_before_training(folder, monkeypatch):
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr("nppsim.io.files.shutil.disk_usage", lambda path: usage._replace(free=200 << 20))
    resolve(REQUIRED)
    for more in (["--seeds", "1", "2"], ["--record-eval-videos"]):
        with pytest.raises(ConfigError, match="--output-dir experiments: the disk is too full: .* GB may be needed"):
            resolve(REQUIRED + more)


@pytest.mark.parametrize(
    ("package", "flags", "extra"),
    [
        ("av", ["--record-eval-videos"], "video"),
        ("PIL", ["--record-eval-videos"], "video"),
        ("boto3", ["--s3-bucket", "bucket"], "s3"),
    ],
)
def test_packages_that_a_run_needs_at_its_end_are_looked_for_at_its_beginning(
    package, flags, extra, folder, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    resolve(REQUIRED)
    with pytest.raises(MissingPackageError, match=rf"{package} .* pip install 'nppsim\[{extra}\]'"):
        resolve(REQUIRED + flags)


def test_a_configuration_error_carries_field_value_and_advice():
    with pytest.raises(ConfigError) as error:
        PPOConfig(gamma=2.0)
    assert (error.value.field, error.value.value) == ("gamma", 2.0)
    assert error.value.advice == "give a number above 0 and at most 1"
    assert str(error.value) == "gamma 2.0: give a number above 0 and at most 1"


def test_resolving_makes_no_folders(folder):
    resolve([*REQUIRED, "--output-dir", "new/deep"])
    assert not (folder / "new").exists()


def test_conditions(folder):
    replays = ["--replay-data-dir", "replays"]
    assert resolve(REQUIRED).conditions == ("no_pretrain",)
    assert resolve(REQUIRED + replays).conditions == ("with_pretrain",)
    assert resolve([*REQUIRED, *replays, "--no-pretraining"]).conditions == ("no_pretrain",)
    assert resolve([*REQUIRED, *replays, "--test-pretraining"]).conditions == ("no_pretrain", "with_pretrain")


def test_secrets_never_reach_the_saved_configuration(folder, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very/secret+value")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    (folder / "very" / "secret+value").mkdir(parents=True)
    (folder / "AKIAABCDEFGHIJKLMNOP").mkdir()
    saved = json.dumps(
        resolve(
            [
                *REQUIRED,
                "--output-dir",
                "very/secret+value",
                "--s3-bucket",
                "b-1",
                "--s3-prefix",
                "AKIAABCDEFGHIJKLMNOP",
            ]
        ).to_dict()
    )
    assert "secret+value" not in saved
    assert "AKIA" not in saved
    assert redact("http://user:word@host/x") == "http://[redacted]@host/x"
    assert not {"credential", "secret", "key", "token"} & set(vars(UploadConfig()))


def test_explicit_flags_win_over_the_plan(folder):
    config = resolve([*REQUIRED, "--num-envs", "96", "--no-mixed-precision", "--num-gpus", "0"])
    made = plan(layout.VISION_FREE, config.hardware.plan_request(10**6))
    assert (made.num_envs, made.precision, made.device) == (96, "float32", "cpu")
    assert made.settings["num_envs"].source == "flag"


def test_settled_ppo_settings_come_from_flag_then_profile_then_default():
    made = plan(layout.VISION_FREE, PlanRequest(total_timesteps=10**6, device="cpu"))
    assert PPOConfig().settled(made).learning_rate == BASE_LEARNING_RATE
    assert PPOConfig().settled(made).n_epochs == made.epochs
    server = PROFILES["1xA100-80GB"]
    preset = plan(layout.VISION_FREE, PlanRequest(profile=server.name), machine=server.machine())
    assert PPOConfig().settled(preset).learning_rate == server.learning_rate != BASE_LEARNING_RATE
    explicit = PPOConfig(learning_rate=1e-5, n_epochs=7).settled(made)
    assert (explicit.learning_rate, explicit.n_epochs) == (1e-5, 7)


def test_schedules_run_from_start_to_end():
    config = PPOConfig(learning_rate=1e-3)
    assert config.learning_rate_at(0) == 1e-3
    assert config.learning_rate_at(1) == pytest.approx(1e-3 * config.learning_rate_end_share)
    assert replace(config, anneal_learning_rate=False).learning_rate_at(0.7) == 1e-3
    assert config.ent_coef_at(0) == config.ent_coef_start
    assert config.ent_coef_at(2) == pytest.approx(config.ent_coef_start / 10)
    assert replace(config, ent_coef_start=0.0005, ent_coef_end=0.001).ent_coef_at(1) == 0.001
    assert config.bc_kl_coef_at(0) == config.bc_kl_coef_start
    assert config.bc_kl_coef_at(config.bc_kl_share) == 0 == config.bc_kl_coef_at(1)
    assert replace(config, bc_kl_share=0).bc_kl_coef_at(0) == 0


def test_final_evaluation_is_spread_over_the_categories():
    assert EvaluationConfig(num_eval_episodes=10).episodes_per_category(3) == 4


def test_help_names_every_flag(capsys):
    with pytest.raises(SystemExit):
        resolve(["--help-all"])
    text = capsys.readouterr().out
    assert all(re.search(rf"--{name}\b(?!-)", text) for name in KNOWN)


@pytest.fixture(scope="module")
def script():
    """scripts/train_and_compare.py as a module."""
    return load_script("train_and_compare")


def test_the_script_prints_one_line_for_what_the_user_can_mend(script, folder, capsys):
    assert script.main(["--experiment-name", "x"]) == 2
    assert capsys.readouterr().err == ("error: the following arguments are required: --architectures/--architecture\n")
    with pytest.raises(ConfigError):
        script.main(["--experiment-name", "x", "--debug"])


@pytest.mark.parametrize(("raised", "status"), [(LevelError("a.map: broken"), 2), (KeyboardInterrupt(), 130)])
def test_the_script_turns_errors_into_exit_statuses(script, folder, monkeypatch, capsys, raised, status):
    def run(config, ranks):
        raise raised

    monkeypatch.setattr("rl.experiment.train.run", run)
    assert script.main(REQUIRED) == status
    assert capsys.readouterr().err.strip() in ("error: a.map: broken", "interrupted")


def test_bugs_of_ours_keep_their_traceback(script, folder, monkeypatch):
    monkeypatch.setattr("rl.experiment.train.run", lambda config, ranks: {}["missing"])
    with pytest.raises(KeyError):
        script.main(REQUIRED)


def test_the_first_page_of_the_help_is_short():
    short, long = (
        rl.config.command_line._parser(everything).format_help().count("\n  -") for everything in (False, True)
    )
    assert short <= 50 < long


def test_a_field_is_set_by_its_name():
    first = ["--experiment-name", "x", "--architectures", "mlp_baseline"]
    parser = rl.config.command_line._parser()
    given = rl.config.command_line._given(parser.parse_args([*first, "--set", "ppo.gae_lambda=0.9"]))
    assert given["ppo", "gae_lambda"].value == 0.9
    with pytest.raises(ConfigError, match="learning_rate"):
        text_settings(["ppo.lr=1"], "--set", "command line")
    with pytest.raises(ConfigError, match="--initial-lr"):
        parser.parse_args([*first, "--learning-rate", "1"])


def test_one_entropy_coefficient_sets_both_ends(folder):
    both = table_settings({"ppo": {"ent-coef": 0.0005}}, "mine.toml", "file mine.toml")
    assert {name: one.value for (_, name), one in both.items()} == {"ent_coef_start": 0.0005, "ent_coef_end": 0.0005}
    argv = rl.config.command_line._entropy_of_both_ends(["--ent-coef", "0.0005"])
    assert argv == ["--ent-coef-end=0.0005", "--ent-coef", "0.0005"]
    config = resolve([*REQUIRED, "--ent-coef", "0.01", "--ent-coef", "0.02"])
    assert (config.ppo.ent_coef_start, config.ppo.ent_coef_end) == (0.02, 0.02)


@pytest.mark.parametrize("name", ALIASES)
def test_documented_names_of_architectures_are_accepted(name, folder):
    """They stand for a network of another name, which is no contradiction of the flag."""
    (network,) = resolve([*REQUIRED[:-1], name]).architectures
    assert network != name


@pytest.mark.parametrize(("flag", "value"), [(name, one) for name, flag in KNOWN.items() for one in flag.choices])
def test_every_documented_value_of_a_flag_is_parsed(flag, value):
    parsed = rl.config.command_line._parser().parse_args([*REQUIRED, f"--{flag}", value])
    assert value in str(getattr(parsed, flag.replace("-", "_")))


def printed(flags, capsys):
    with pytest.raises(SystemExit):
        resolve(flags)
    return capsys.readouterr().out


def test_the_printed_configuration_is_read_back(folder, capsys):
    flags = "--use-curriculum --curriculum-threshold 0.6 --target-kl none --seeds 1 2 --reward-win 3"
    config = resolve([*REQUIRED, *flags.split()])
    text = printed([*REQUIRED, *flags.split(), "--show-config"], capsys)
    assert "threshold = 0.6  # command line" in text and "gae_lambda = 0.95  # default" in text
    (folder / "shown.toml").write_text(text)
    assert resolve(["--config", "shown.toml"]) == replace(config, config_files=(Path("shown.toml"),))


def test_the_configuration_of_a_run_is_read_from_its_config_json(folder):
    config = resolve([*REQUIRED, "--single-level", "other/c.map", "--gamma", "0.9", "--clip-range-vf", "1"])
    (folder / "old" / "config.json").write_text(json.dumps(config.to_dict()))
    again = resolve(["--config", "old/config.json", "--experiment-name", "again"])
    assert again == replace(config, experiment_name="again", config_files=(Path("old/config.json"),))
    assert again.sources["ppo.gamma"] == "run old/config.json"
    assert resolve(["--config", "old/config.json", "--gamma", "0.8"]).ppo.gamma == 0.8


def test_the_agent_of_a_run_with_imitation_is_trained_further_with_its_configuration(folder):
    config = resolve([*REQUIRED, "--replay-data-dir", "replays", "--bc-epochs", "3"])
    (folder / "old" / "config.json").write_text(json.dumps(config.to_dict()))
    further = ["--config", "old/config.json", "--init-from", "agent.safetensors"]
    assert resolve(further).conditions == ("with_pretrain",)
    assert resolve([*further, "--no-pretraining"]).conditions == ("no_pretrain",)


def test_architectures_are_listed_with_parameters_and_inputs(capsys):
    text = printed(["--list-architectures"], capsys)
    for name, known in ARCHITECTURES.items():
        (line,) = [line for line in text.splitlines() if line.split()[0] == name]
        assert known.observations[0] in line and re.search(r" \d[\d,]+ ", line)
    assert all(alias in text for alias in ALIASES)


@pytest.mark.parametrize(
    ("typed", "meant"), [("--learning-rate", "--initial-lr"), ("--architecures", "--architectures")]
)
def test_an_unknown_flag_names_the_one_that_is_meant(typed, meant):
    with pytest.raises(ConfigError, match=f"did you mean '?{meant}"):
        resolve([*REQUIRED, typed, "1"])


def test_constant_schedules_win_over_annealing_with_one_warning(folder):
    lines = []
    for more in (["--enable-lr-annealing"], []):
        warn_about_networks(resolve([*REQUIRED, "--no-schedules", *more]), lines.append)
    assert len(lines) == 1 and "--no-schedules" in lines[0]
