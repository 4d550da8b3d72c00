"""Flags: each one has an effect or is refused; invalid settings are one-line errors before training."""

import functools
import json
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import flags_page
import pytest

from hardware import PROFILES, PlanRequest, plan
from hardware.request import BASE_LEARNING_RATE
from nppsim.errors import ConfigError, MissingPackageError, redact
from nppsim.levels.campaign import to_line
from nppsim.levels.level import LevelError
from nppsim.observe import layout
from nppsim.reward import PRESETS, RewardConfig
from nppsim.settings import settings_of
from rl.config import EvaluationConfig, PPOConfig, UploadConfig
from rl.config.command_line import FLAGS, REFUSED, resolve
from rl.config.conditions import described
from rl.config.curriculum import CurriculumConfig
from rl.config.files import SECTIONS, value_of
from rl.config.resume import changes, stored_config
from rl.experiment.run import warn_about_networks
from rl.policy.architectures import ALIASES, ARCHITECTURES

from programs import load_script
from worlds import straight

REQUIRED = ["--experiment-name", "first", "--architectures", "mlp_baseline"]
REPLAYS = ["--replay-data-dir", "replays"]
KNOWN = {name: flag for name, (_, flag) in FLAGS.items()} | REFUSED
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
VALUES = {  # flag -> a value that is not the default, where the type of the setting does not suggest one
    "experiment-name": "second",
    "architectures": "vision_free",
    **dict.fromkeys(("train-dataset", "dev-dataset", "test-dataset"), "other"),
    "single-level": "other/c.map",
    "output-dir": "elsewhere",
    "resume-from": "old",
    "resume-override": "save-freq=1000",
    "init-from": "agent.safetensors",
    "recipe": "foresight",
    "config": "mine.toml",
    "plugin": "json",
    "reward-preset": "mine",
    "silence": "rewards",
    "replay-data-dir": "replays",
    "teacher": "agent.safetensors",
    "target-kl": "none",
    "curriculum": "plr",
    "curriculum-start-stage": "simple",
    "hierarchical-from-stage": "medium",
    "curriculum-stage-order": "simple",
    **dict.fromkeys(("curriculum-stage-thresholds", "curriculum-stage-gamma"), "simple=0.9"),
    **dict.fromkeys(("curriculum-stage-learning-rate", "curriculum-stage-clip-range"), "medium=0.1"),
    "curriculum-stage-ent-coef": "medium=0",
    "curriculum-threshold": "0.6",
    "hardware-profile": "cpu-testing",
    "device": "cpu",
    "num-gpus": "0",
    "distributed-backend": "gloo",
    "foresight-branches": "12",
    "foresight-horizon": "20",
    "s3-bucket": "bucket",
    "s3-prefix": "elsewhere/",
}
MORE = {  # flag -> further flags without which its value is refused
    "pbrs-gamma": ["--gamma", "0.5"],
    "vtrace-rho-clip": ["--returns-from", "current"],
    "teacher": REPLAYS,
    "hierarchical-from-stage": ["--curriculum", "stages"],
    "memory-segment": ["--architectures", "vision_free+gru"],
    **{
        f"foresight-{name}": ["--architectures", "vision_free_foresight"]
        for name in ("horizon", "branches", "escapes", "noise", "shield")
    },
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with empty datasets and replays where the defaults expect them, and a begun run ``old``."""
    for name in (
        *("datasets/train/a.map", "datasets/dev/e.map", "datasets/test/b.map", "other/c.map", "replays/d.replay"),
        *("datasets/demonstrations/d.replay", "old/config.json", "mine.toml", "agent.safetensors"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PRESETS, "mine", RewardConfig(win=7.0))
    (tmp_path / "old" / "config.json").write_text(begun())
    return tmp_path


@functools.cache
def begun():
    """Content of config.json of the run ``old``."""
    return json.dumps(resolve(REQUIRED).to_dict())


def begin(*flags):
    """Store the configuration of these flags as that of the run ``old``; return it."""
    config = resolve([*REQUIRED, *flags])
    Path("old/config.json").write_text(json.dumps(config.to_dict()))
    return config


def own_arguments(known):
    """The flag of a setting with a value that is not its default."""
    if known.kind is bool:
        return [f"--no-{known.flag}" if known.switch and known.default else known.option]
    if known.flag in VALUES:
        return [known.option, VALUES[known.flag]]
    candidates = known.choices or ([1, 2, 3, 50] if known.kind is int else [0.5, 1.0, 0.1, 0.01])
    value = next(one for one in candidates if one not in (known.default, 0) and not known.problem(one))
    return [known.option, str(value)]


def needed_arguments(known):
    """Flags that fulfil the condition ``needs`` of a setting."""
    found = list(MORE.get(known.flag, []))
    for part in known.needs.split(" and ") if known.needs else ():
        alternative = part.split(" or ")[0]
        name, _, values = alternative.partition("=")
        section, _, field = name.rpartition(".")
        if values:
            found += ["--curriculum", values.split("|")[0]]
        elif not alternative.startswith("not ") and not (other := settings_of(SECTIONS[section])[field]).default:
            found += [*needed_arguments(other), *own_arguments(other)]
    return found


def split(flags):
    """REQUIRED and further flags as a list.  flags: text; "!" at the beginning omits REQUIRED."""
    return shlex.split(flags[1:]) if flags.startswith("!") else [*REQUIRED, *shlex.split(flags)]


@pytest.mark.parametrize("name", _SPECIFIED.split())
def test_resolve_specified_flag_accepted_or_refused_with_a_reason(name, folder):
    flag = next(flag for flag in KNOWN.values() if name in (flag.flag, *flag.aliases))
    argv = [*REQUIRED, *needed_arguments(flag), *own_arguments(flag)]
    if flag.refusal:
        with pytest.raises(ConfigError, match=re.escape(flag.refusal)):
            resolve(argv)
    else:
        resolve([part.replace(flag.option, f"--{name}") for part in argv])


@pytest.mark.parametrize("name", FLAGS)
def test_resolve_flag_with_another_value_changes_the_configuration(name, folder):
    (section, known), needed = FLAGS[name], needed_arguments(FLAGS[name][1])
    before, after = resolve(REQUIRED + needed), resolve(REQUIRED + needed + own_arguments(known))
    assert value_of(before, section, known.name) != value_of(after, section, known.name)


@pytest.mark.parametrize("name", [name for name, (_, flag) in FLAGS.items() if flag.aliases])
def test_resolve_alias_equals_flag(name, folder):
    known = KNOWN[name]
    argv = [*(REQUIRED[:2] if name == "architectures" else REQUIRED), *needed_arguments(known), *own_arguments(known)]
    for alias in known.aliases:
        assert resolve([part.replace(known.option, f"--{alias}") for part in argv]) == resolve(argv)


@pytest.mark.parametrize("name", REFUSED)
def test_resolve_refused_flag_accepts_only_its_default(name, folder):
    with pytest.raises(ConfigError, match=re.escape(f"--{name}: {REFUSED[name].refusal}")):
        resolve([*REQUIRED, f"--{name}", "minibatch" if REFUSED[name].kind is str else "5"])
    assert resolve([*REQUIRED, f"--{name}", str(REFUSED[name].default)]) == resolve(REQUIRED)


@pytest.mark.parametrize("name", [name for name, (_, flag) in FLAGS.items() if flag.needs])
def test_resolve_flag_without_effect_raises(name, folder):
    known = KNOWN[name]
    unmet = [described(part) for part in known.needs.split(" and ")]
    if all(text.startswith("with ") for text in unmet):
        disabling = {"--no-schedules": ["--no-schedules"], "--ent-coef": ["--ent-coef", "0.1"]}
        needed = disabling[unmet[0].removeprefix("with ")]
    else:
        needed = []
    message = "--test-pretraining: compares" if name == "test-pretraining" else f"--{name}: has no effect with"
    with pytest.raises(ConfigError, match=message):
        resolve([*REQUIRED, *needed, *own_arguments(known)])


@pytest.mark.parametrize("name", [name for name, (_, flag) in FLAGS.items() if flag.needs and flag.kind is not bool])
def test_resolve_flag_with_its_default_counts_as_given(name, folder):
    known = KNOWN[name]
    if not known.default or known.choices:
        return
    argv = [known.option, *(map(str, known.default) if known.many else [str(known.default)])]
    assert resolve([*REQUIRED, *needed_arguments(known), *argv]).sources
    if "curriculum.strategy" in known.needs or known.needs.startswith(("replay_data_dir", "video", "teacher")):
        with pytest.raises(ConfigError, match=f"--{name}: has no effect without"):
            resolve([*REQUIRED, *argv])


@pytest.mark.parametrize(
    ("flags", "strategy"),
    [
        ("", "uniform"),
        ("--use-curriculum", "learnability"),
        ("--use-curriculum --curriculum-threshold 0.7", "stages"),
        ("--use-curriculum --curriculum-threshold 0.6 --curriculum-window 50", "stages"),
        ("--use-curriculum --curriculum-replay-staleness 0.1", "plr"),
        ("--use-curriculum --curriculum-preset default", "learning_progress"),
        ("--use-curriculum --curriculum-uniform-share 0.1", "learnability"),
        ("--set curriculum.use_curriculum=on --set curriculum.threshold=0.7", "stages"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_resolve_use_curriculum_takes_the_strategy_of_the_given_flags(flags, strategy):
    assert resolve(split(flags)).curriculum.chosen == strategy


def test_resolve_command_of_the_specification(folder):
    command = """
        --experiment-name mlp_baseline_fix_v1 --architectures mlp_baseline --train-dataset datasets/train
        --test-dataset datasets/test --use-curriculum --curriculum-threshold 0.6 --curriculum-min-episodes 50
        --replay-data-dir replays --bc-epochs 50 --bc-batch-size 128 --hardware-profile auto --total-timesteps 2000000
        --num-envs 128 --eval-freq 100000 --record-eval-videos --max-videos-per-category 5 --num-eval-episodes 10
        --video-fps 30 --s3-bucket bucket --s3-prefix some/where --output-dir out"""
    config = resolve(shlex.split(command))
    assert config.conditions == ("with_pretrain",)
    assert config.hardware.plan_request(10**6).num_envs == 128
    assert config.curriculum == CurriculumConfig(strategy="stages", threshold=0.6, min_episodes=50)
    assert json.loads(json.dumps(config.to_dict()))["upload"]["bucket"] == "bucket"


def test_flags_document_is_up_to_date_and_so_no_default_changes_unnoticed():
    assert flags_page.PAGE.read_text(encoding="utf-8") == flags_page.flags_document(), (
        "python tests/support/flags_page.py"
    )


CLONED, STAGES, LP = "--replay-data-dir replays", "--curriculum stages", "--curriculum learning_progress"
GRU = "!--experiment-name x --architectures vision_free+gru"
SUBTASKS = "!--experiment-name a --architectures vision_free+subtasks50 mlp_baseline --replay-data-dir replays"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("!", "required: --experiment-name, --architectures"),
        ("--experimant-name x", "unknown flag --experimant-name; did you mean '--experiment-name'?"),
        ("--architecures x", "unknown flag --architecures; did you mean '--architectures'?"),
        ("--xyz", "unknown flag --xyz; --help lists"),
        ("--use-curric", "unknown flag --use-curric; did you mean '--use-curriculum'"),
        ("--s3-secret-key=hunter2hunter2", r"unknown flag --s3-secret-key(?!.*hunter2)"),
        ("--bc-epochs", "--bc-epochs: expected one argument"),
        ("--num-envs many", "--num-envs: 'many' is not a whole number"),
        ("--num-envs 0", "--num-envs 0: give a whole number of at least 1"),
        ("--num-processes 1e12", "--num-processes 1000000000000: give a whole number from 1 to 1,024"),
        ("--initial-lr 2", "--initial-lr 2.0: give a number above 0 and at most 1"),
        ("--vf-coef 1e9", "--vf-coef 1000000000.0: give a number above 0 and at most 1,000"),
        ("--gamma nan", "--gamma nan: give a number above 0 and at most 1"),
        ("--time-budget-minutes inf", "--time-budget-minutes inf: give a number above 0"),
        ("--pbrs-gamma 1.0", "--pbrs-gamma 1.0: differs .* 0.995"),
        ("--vtrace-rho-clip 1", "--vtrace-rho-clip 1.0: .* add --returns-from current"),
        ("--use-curriculum --curriculum-threshold 60", "--curriculum-threshold 60.0: .* at most 1"),
        ("--use-curriculum --curriculum-threshold 0.3", "--curriculum-min-threshold 0.4: is above"),
        ("--curriculum quick", "--curriculum quick: known strategies are uniform, stages"),
        (f"{CLONED} --bc-epochs 0", "--bc-epochs 0"),
        ("--train-dataset other ./other", "--train-dataset other other: contains a folder twice"),
        (f"{CLONED} --no-pretraining --bc-epochs 2", "--bc-epochs: has no effect with --no-pretraining"),
        ("--test-pretraining", "give --replay-data-dir"),
        (f"{CLONED} --no-pretraining --mirror-demonstrations", "no effect with --no-pretraining"),
        (f"{CLONED} --max-demonstrations-per-category 0", "-category 0: give a whole number"),
        ("--skip-final-eval --record-eval-videos", "leave out --skip-final-eval"),
        (f"{CLONED} --no-pretraining --bc-kl-coef 0", "--bc-kl-coef: has no effect with --no-pretraining"),
        ("--no-schedules --ent-coef-end 0", "--ent-coef-end: has no effect with --no-schedules"),
        (
            "--ent-coef 0.02 --ent-coef-end 0.001",
            "--ent-coef-end: has no effect with --ent-coef; leave one of them out",
        ),
        (
            "--reward-shaping 0 --reward-potential path",
            "--reward-potential path: has no effect with --reward-shaping 0",
        ),
        ("--no-enable-lr-annealing --lr-end-share 0.5", "--lr-end-share: has no effect with --no-enable-lr-annealing"),
        (
            "--use-curriculum --disable-trend-advancement --curriculum-trend-rise 0.3",
            "rise: has no effect with --disable-trend-advancement",
        ),
        (f"{STAGES} --curriculum-regression-threshold 0.7", "a stage that ends at 0.7 would be left for the"),
        ("--curriculum plr --curriculum-threshold 0.7", "threshold: has no effect without --curriculum stages"),
        (
            f"{STAGES} --curriculum-stage-learning-rate simple=30000",
            "simple=30000: give STAGE=X with X above 0 and at most 1",
        ),
        (f"{STAGES} --curriculum-stage-gamma simple=0.9 simple=0.8", "simple=0.9 simple=0.8: gives a stage twice"),
        (
            f"{LP} --curriculum-lp-temperature 1 --curriculum-lp-amplification 2",
            "amplification: has no effect with --curriculum-lp-temperature",
        ),
        (
            f"{LP} --curriculum-basic-progress --curriculum-lp-slow 0.5",
            "lp-slow: has no effect with --curriculum-basic-progress",
        ),
        (f"{CLONED} --bc-kl-coef 0 --bc-kl-share 0.5", "--bc-kl-share: has no effect with --bc-kl-coef 0"),
        (f"{CLONED} --bc-kl-share 0 --bc-kl-coef 0.5", "--bc-kl-coef: has no effect with --bc-kl-share 0"),
        (
            f"{CLONED} --critic-warmup-max-updates 0 --critic-warmup-explained-variance 0.9",
            "variance: has no effect with --critic-warmup-max-updates 0",
        ),
        (
            f"{CLONED} --critic-warmup-max-updates 3 --critic-warmup-min-updates 5",
            "updates 5: is above --critic-warmup-max-updates 3",
        ),
        ("--enable-early-stopping --eval-freq 0", "--eval-freq above 0"),
        ("--remote-evaluation --eval-freq 0", "--remote-evaluation needs evaluations during"),
        ("--eval-every-minutes 5 --eval-freq 0", "--eval-every-minutes 5.0: --eval-freq 0 disables evaluations"),
        ("--num-gpus 8 --num-processes 2", "--num-gpus 8: starts one process per GPU"),
        ("--distributed-backend nccl --num-gpus 0", "--distributed-backend nccl: needs GPUs"),
        ("--num-gpus 0 --device cuda", "contradict"),
        ("--hardware-profile 8xA100", "--hardware-profile 8xA100: .*did you mean '8xA100"),
        ("--reward-preset november", "--reward-preset november: is not a preset; known: default"),
        ("--silence speeed", "--silence speeed: is not the name of a warning; did you mean 'speed'"),
        ("--seeds 1 1", "--seeds 1 1: .* each only once"),
        ("--seed -1", "--seeds -1: give whole numbers from 0 to 2,147,483,647"),
        ("--bc-epochs=2 extra", "unexpected argument 'extra'"),
        ("--single-level other/c.map --dev-dataset other", "leave out --dev-dataset"),
        ("!--experiment-name ../x --architectures mlp_baseline", "is not a valid folder name"),
        ("!--experiment-name x --architectures mlp_basline", "did you mean 'mlp_baseline'"),
        ("--frame-stack-padding repeat", "without --enable-visual-frame-stacking or --enable-state-stacking"),
        (f"{SUBTASKS} --teacher vision_free+subtasks50", "uses stacked frames or subtasks"),
        (f"{GRU} --teacher mlp_baseline", "--teacher mlp_baseline: distillation trains on single decisions"),
        (f"{GRU} --prioritised-alpha 0.5", "--prioritised-alpha 0.5: samples single decisions, but recurrent networks"),
        ("--memory-segment 4", "--memory-segment 4: needs a recurrent network; give NAME.gru"),
        ("--enable-state-stacking --state-stack-size 13", "--state-stack-size 13: .* from 1 to 12"),
        ("--architectures vision_free --enable-visual-frame-stacking", "vision_free.visual4.*stacks visual frames"),
        ("--architectures vision_free_frame_stacked --enable-state-stacking", "already stacks frames"),
        ("--architectures vision_free_foresight --frame-skip 41", "observes 40 frames of look-ahead"),
        ("--s3-bucket s3://bucket/x", "is not a bucket name"),
        ("--s3-bucket bucket --s3-prefix /", "--s3-prefix /: is empty"),
        ("--set ppo.nonsense=3", r"--set ppo.nonsense: is not a setting; did you mean '[\w-]+'\?$"),
        ("--set ppo.gae_lambda=2", "--set ppo.gae_lambda 2.0: give a number from 0 to 1"),
    ],
)
def test_resolve_invalid_flags_raise_one_line(flags, message, folder):
    argv = split(flags)
    with pytest.raises(ConfigError, match=message) as error:
        resolve([*REQUIRED[:2], *argv[4:]] if "--architectures" in argv[4:] else argv)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("flags", "periods"),
    [
        ("", (500_000, 0)),
        ("--total-timesteps 1000", (50, 0)),
        ("--time-budget-minutes 30", (0, 180)),
        ("--time-budget-minutes 30 --eval-freq 7", (7, 0)),
        ("--time-budget-minutes 30 --eval-every-minutes 5", (0, 300)),
        ("--eval-every-minutes 5 --eval-freq 7", (7, 300)),
        ("--eval-freq 0", (0, 0)),
    ],
)
@pytest.mark.usefixtures("folder")
def test_periods_follow_the_length_of_training(flags, periods):
    config = resolve(split(flags))
    assert config.evaluation.periods(config.ppo.total_timesteps, config.ppo.time_budget_minutes) == periods


def test_resolve_resume_returns_the_stored_configuration_with_overrides(folder):
    assert resolve(["--resume-from", "old"]) == replace(resolve(REQUIRED), resume_from=Path("old"))
    changed = ["--resume-from", "old", "--resume-override", "total-timesteps=5", "ppo.gamma=0.9", "seeds=1,2"]
    config = resolve([*changed, "--resume-override", "pretraining=off", "dev-dataset=none", "--gamma", "0.9"])
    assert (config.ppo.total_timesteps, config.ppo.gamma, config.seeds, config.pretraining) == (5, 0.9, (1, 2), False)
    assert changes(stored_config(folder / "old"), config)["seeds"] == [(0,), (1, 2)]
    together = ["--resume-from", "old", "--resume-override", "vtrace-rho-clip=1", "returns-from=current"]
    assert resolve(together).ppo.vtrace_rho_clip == 1


def test_resolve_resume_after_a_finished_training_keeps_the_evaluation(folder):
    flags = ["--resume-from", "old", "--resume-override", "num-eval-episodes=70"]
    assert resolve(flags).evaluation.num_eval_episodes == 70
    (folder / "old" / "vision_free" / "seed_0").mkdir(parents=True)
    (folder / "old" / "vision_free" / "seed_0" / "finished.json").touch()
    with pytest.raises(ConfigError, match="num-eval-episodes: old/vision_free/seed_0 .* scripts/evaluate.py"):
        resolve(flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--gamma 0.9", "--resume-from old: .*: gamma is 0.995 in the run and 0.9 here.*--resume-override gamma=0.9"),
        ("--frame-skip 2", "frame-skip is 4 in the run and 2 here. Leave them out .*, or begin a new run"),
        ("--seeds 0 1", "seeds is 0 in the run and 0,1 here.*--resume-override seeds=0,1"),
        ("--gamma 0.9 --no-pretraining", "pretraining is on in the run and off here; gamma is .* here. Leave"),
        ("--resume-override gamma", "--resume-override gamma: give NAME=VALUE"),
        ("--resume-override gama=1", "gama: is not a setting; did you mean 'gamma'"),
        ("--resume-override debug=on", "debug: is not a setting"),
        ("--resume-override gamma=x", "'x' is not a number"),
        ("--resume-override gamma=2", "gamma 2.0: give a number"),
        ("--resume-override pretraining=1", "give on or off"),
        ("--resume-override curriculum-window=50", "cannot change within a run: the stored curves .*; begin a new run"),
        ("--resume-override deterministic-eval=on", "cannot change within a run: policies .* same episodes"),
        ("--resume-override eval-episodes-per-category=7", "cannot change within a run"),
        ("--resume-override curriculum=stages", "cannot change within a run: the stored state .*; begin a new run"),
        ("--resume-override curriculum-stage-order=simple,medium", "cannot change within a run"),
        ("--resume-override start-states=on", "cannot change within a run"),
        ("--resume-override curriculum-lp-min-samples=5", "cannot change within a run: the stored state"),
        ("--resume-override curriculum-replay-score=positve", "positve: give one of absolute, positive"),
        ("--resume-override curriculum-min-episodes=100", "has no effect without --curriculum stages"),
        ("--resume-override ppo.clip_range_vf_end=0.1", "has no effect without --clip-range-vf"),
        ("--resume-override use-deep-resnet-policy=on", "cannot change within a run: it would be another network"),
        ("--resume-override desync-episodes=on", "cannot change within a run: the first episodes"),
        ("--resume-override frame-skip=2", "cannot change within a run: the policy .*; begin a new run"),
        ("--resume-override num-envs=8", "cannot change within a run: the hardware plan .*; begin a new run"),
    ],
)
def test_resolve_resume_with_other_settings_raises(flags, message, folder):
    begin("--use-curriculum")
    with pytest.raises(ConfigError, match=message):
        resolve(["--resume-from", "old", *flags.split()])


def test_resolve_resume_needs_no_teacher_file(folder):
    begin(*REPLAYS, "--teacher", "agent.safetensors")
    (folder / "agent.safetensors").unlink()
    assert resolve(["--resume-from", "old"]).teacher.name == "agent.safetensors"


def test_resolve_demonstrations_for_start_states_without_imitation(folder):
    flags = ["--no-pretraining", "--use-curriculum", "--start-states", "--max-demonstrations-per-category", "10"]
    assert resolve([*REQUIRED, *REPLAYS, *flags]).max_demonstrations_per_category == 10


def test_resolve_levels_of_campaign_files(folder):
    (folder / "pack.txt").write_text(to_line(replace(straight(), title="one")) + "\n")
    assert resolve([*REQUIRED, "--single-level", "pack.txt#0"]).single_level == Path("pack.txt#0")
    assert resolve([*REQUIRED, "--train-dataset", "pack.txt#one"]).train_dataset == (Path("pack.txt#one"),)
    with pytest.raises(LevelError, match=r"pack\.txt#two"):
        resolve([*REQUIRED, "--train-dataset", "pack.txt#two"])


def test_resolve_resume_cannot_start_the_retention_guard(folder):
    """By then the current policy would be taken for the BC policy; without imitation there is none."""
    late = ["--resume-from", "old", "--resume-override", "eval-freq=1000", "evaluation.retention_guard=on"]
    for begun in (["--eval-freq", "0"], ["--no-retention-guard"]):
        begin(*REPLAYS, *begun)
        with pytest.raises(ConfigError, match="retention guard cannot start within a run"):
            resolve(late)
        assert resolve([*late[:-1], "evaluation.retention_guard=off"]).evaluation.in_training
    begin("--eval-freq", "0")
    assert resolve(late).evaluation.retention_guard


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "not JSON"), ("[]", "should be an object"), ("{}", "missing or unknown"), (None, "not a bucket name")],
)
def test_resolve_resume_with_unusable_configuration_raises(content, message, folder):
    if content is None:
        content = json.dumps(resolve(REQUIRED).to_dict() | {"upload": vars(UploadConfig()) | {"bucket": "[redacted]"}})
    (folder / "old" / "config.json").write_text(content)
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
def test_resolve_unusable_path_raises(option, path, message, folder):
    (folder / "empty").mkdir()
    with pytest.raises(ConfigError, match=f"{option} {re.escape(path)}: {message}"):
        resolve([*REQUIRED, option, path])


def test_resolve_replays_of_files_and_folders(folder):
    (folder / "sets").mkdir()
    (folder / "sets" / "a.h5").write_bytes(b"")
    for paths in (["sets"], ["sets/a.h5"], ["replays/d.replay"], ["sets", "replays"]):
        found = resolve([*REQUIRED, "--replay-data-dir", *paths]).replay_data_dir
        assert found == tuple(map(Path, paths))


def test_resolve_resume_with_several_folders(folder):
    flags = ["--train-dataset", "datasets/train", "other", "--dev-dataset", "datasets/dev"]
    begin(*flags)
    config = resolve(["--resume-from", "old"])
    assert config.train_dataset == (Path("datasets/train"), Path("other"))
    assert resolve(["--resume-from", "old", *REQUIRED, *flags]) == config
    with pytest.raises(ConfigError, match="train-dataset is datasets/train,other in the run and other here"):
        resolve(["--resume-from", "old", "--train-dataset", "other"])
    overrides = ["dev-dataset=none", "train-dataset=other,datasets/dev"]
    config = resolve(["--resume-from", "old", "--resume-override", *overrides])
    assert (config.dev_dataset, config.train_dataset) == ((), (Path("other"), Path("datasets/dev")))


def test_resolve_output_folder_without_permission_or_space_raises(folder, monkeypatch):
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr("nppsim.io.files.shutil.disk_usage", lambda path: usage._replace(free=200 << 20))
    resolve([*REQUIRED, "--output-dir", "new/deep"])
    assert not (folder / "new").exists()
    for more in (["--seeds", "1", "2"], ["--record-eval-videos"]):
        with pytest.raises(ConfigError, match="--output-dir experiments: the disk is too full: .* GB may be needed"):
            resolve(REQUIRED + more)
    monkeypatch.setattr("nppsim.io.files.os.access", lambda path, mode: False)
    with pytest.raises(ConfigError, match=r"--output-dir experiments: cannot be written \(no permission"):
        resolve(REQUIRED)


@pytest.mark.parametrize(
    ("package", "flags", "extra"),
    [
        ("av", ["--record-eval-videos"], "video"),
        ("PIL", ["--record-eval-videos"], "video"),
        ("boto3", ["--s3-bucket", "bucket"], "s3"),
    ],
)
def test_resolve_missing_package_raises(package, flags, extra, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    resolve(REQUIRED)
    with pytest.raises(MissingPackageError, match=rf"{package} .* pip install 'nppsim\[{extra}\]'"):
        resolve(REQUIRED + flags)


def test_config_error_has_field_value_and_advice():
    with pytest.raises(ConfigError) as error:
        PPOConfig(gamma=2.0)
    assert (error.value.field, error.value.value) == ("gamma", 2.0)
    assert str(error.value) == f"gamma 2.0: {error.value.advice}" == "gamma 2.0: give a number above 0 and at most 1"


@pytest.mark.parametrize(
    ("flags", "conditions"),
    [
        ("", ("no_pretrain",)),
        ("--replay-data-dir replays", ("with_pretrain",)),
        ("--replay-data-dir replays --no-pretraining", ("no_pretrain",)),
        ("--replay-data-dir replays --test-pretraining", ("no_pretrain", "with_pretrain")),
    ],
)
@pytest.mark.usefixtures("folder")
def test_conditions(flags, conditions):
    assert resolve(split(flags)).conditions == conditions


def test_to_dict_contains_no_secrets(folder, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very/secret+value")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    (folder / "very" / "secret+value").mkdir(parents=True)
    (folder / "AKIAABCDEFGHIJKLMNOP").mkdir()
    upload = ["--s3-bucket", "b-1", "--s3-prefix", "AKIAABCDEFGHIJKLMNOP"]
    saved = json.dumps(resolve([*REQUIRED, "--output-dir", "very/secret+value", *upload]).to_dict())
    assert "secret+value" not in saved
    assert "AKIA" not in saved
    assert redact("http://user:word@host/x") == "http://[redacted]@host/x"
    assert not {"credential", "secret", "key", "token"} & set(vars(UploadConfig()))


def test_plan_request_prefers_flags(folder):
    config = resolve([*REQUIRED, "--num-envs", "96", "--no-mixed-precision", "--num-gpus", "0"])
    made = plan(layout.VISION_FREE, config.hardware.plan_request(10**6))
    assert (made.num_envs, made.precision, made.device) == (96, "float32", "cpu")
    assert made.settings["num_envs"].source == "flag"


def test_settled_takes_flag_then_profile_then_default():
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
    assert replace(config, ent_coef=0.02).ent_coef_at(0) == replace(config, ent_coef=0.02).ent_coef_at(1) == 0.02
    assert config.bc_kl_coef_at(0) == config.bc_kl_coef_start
    assert config.bc_kl_coef_at(config.bc_kl_share) == 0 == config.bc_kl_coef_at(1)
    assert replace(config, bc_kl_share=0).bc_kl_coef_at(0) == 0


def test_episodes_per_category_rounds_up():
    assert EvaluationConfig(num_eval_episodes=10).episodes_per_category(3) == 4


def printed(argv, capsys):
    """Output of a flag that prints and exits."""
    with pytest.raises(SystemExit):
        resolve(argv)
    return capsys.readouterr().out


def test_help_lists_some_flags_and_help_all_lists_all(capsys):
    short, text = printed(["--help"], capsys), printed(["--help-all"], capsys)
    assert all(re.search(rf"--{name}\b(?!-)", text) for name in KNOWN)
    assert short.count("\n  -") <= 50 < text.count("\n  -")


@pytest.fixture(scope="module")
def script():
    """scripts/train_and_compare.py as a module."""
    return load_script("train_and_compare")


def test_main_user_error_prints_one_line(script, folder, capsys):
    assert script.main(["--experiment-name", "x"]) == 2
    assert capsys.readouterr().err == "error: the following arguments are required: --architectures/--architecture\n"
    with pytest.raises(ConfigError):
        script.main(["--experiment-name", "x", "--debug"])


@pytest.mark.parametrize(("raised", "status"), [(LevelError("a.map: broken"), 2), (KeyboardInterrupt(), 130)])
def test_main_turns_errors_into_exit_statuses(script, folder, monkeypatch, capsys, raised, status):
    def run(config, ranks):
        raise raised

    monkeypatch.setattr("rl.experiment.train.run", run)
    assert script.main(REQUIRED) == status
    assert capsys.readouterr().err.strip() in ("error: a.map: broken", "interrupted")


def test_main_other_error_is_raised(script, folder, monkeypatch):
    monkeypatch.setattr("rl.experiment.train.run", lambda config, ranks: {}["missing"])
    with pytest.raises(KeyError):
        script.main(REQUIRED)


def test_resolve_set_field_by_name(folder):
    for name in ("learning_rate", "lr", "initial-lr"):
        assert resolve([*REQUIRED, "--set", f"ppo.{name}=0.5"]).ppo.learning_rate == 0.5
    assert resolve([*REQUIRED, "--ent-coef", "0.01", "--ent-coef", "0.02"]).ppo.ent_coef == 0.02


@pytest.mark.parametrize("name", ALIASES)
def test_resolve_documented_alias_of_an_architecture(name, folder):
    (network,) = resolve([*REQUIRED[:-1], name]).architectures
    assert network != name


@pytest.mark.parametrize(("flag", "value"), [(name, one) for name, flag in KNOWN.items() for one in flag.choices])
def test_resolve_every_documented_value(flag, value, folder):
    argv = [*REQUIRED, *needed_arguments(KNOWN[flag]), f"--{flag}", value]
    assert value_of(resolve(argv), FLAGS[flag][0], KNOWN[flag].name) == value


def test_show_config_output_is_a_valid_file(folder, capsys):
    flags = "--use-curriculum --curriculum-threshold 0.6 --target-kl none --seeds 1 2 --reward-win 3"
    config = resolve([*REQUIRED, *flags.split()])
    text = printed([*REQUIRED, *flags.split(), "--show-config"], capsys)
    assert "threshold = 0.6  # command line" in text and "gae_lambda = 0.95  # default" in text
    (folder / "shown.toml").write_text(text)
    assert resolve(["--config", "shown.toml"]) == replace(config, config_files=(Path("shown.toml"),))


def test_resolve_config_json_of_a_run(folder):
    config = begin("--single-level", "other/c.map", "--gamma", "0.9", "--clip-range-vf", "1")
    again = resolve(["--config", "old/config.json", "--experiment-name", "again"])
    assert again == replace(config, experiment_name="again", config_files=(Path("old/config.json"),))
    assert again.sources["ppo.gamma"] == "run old/config.json"
    assert resolve(["--config", "old/config.json", "--gamma", "0.8"]).ppo.gamma == 0.8
    begin(*REPLAYS, "--bc-epochs", "3")
    further = ["--config", "old/config.json", "--init-from", "agent.safetensors"]
    assert resolve(further).conditions == ("with_pretrain",)
    assert resolve([*further, "--no-pretraining"]).conditions == ("no_pretrain",)


@pytest.mark.parametrize(
    "flags",
    [
        ["--config", "old/config.json", "--experiment-name", "again"],
        ["--resume-from", "old"],
        ["--config", "shared.toml", *REQUIRED],
    ],
)
def test_resolve_plugins_of_a_file_need_trust(flags, folder):
    """Importing a plug-in runs its code, so settings of another person must not do it."""
    begin()
    Path("mine.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    stored = json.loads(Path("old/config.json").read_text())
    Path("old/config.json").write_text(json.dumps(stored | {"plugins": ["mine.py"]}))
    Path("shared.toml").write_text('plugins = ["mine.py"]\n')
    with pytest.raises(ConfigError, match=rf"{flags[1]}.*names plug-ins, .*: mine\.py; .*--trust-plugins, or --plugin"):
        resolve(flags)
    assert not Path("executed").exists()
    assert resolve([*flags, "--trust-plugins"]).plugins == ("mine.py",)
    assert Path("executed").exists()
    assert resolve(flags).plugins == ("mine.py",), "the user has imported this file"


def test_resolve_plugin_given_by_the_user_is_trusted_in_a_file(folder):
    Path("own.py").touch()
    Path("shared.toml").write_text('plugins = ["own.py"]\n')
    assert resolve(["--config", "shared.toml", *REQUIRED, "--plugin", str(Path("own.py").resolve())]).plugins


def test_list_architectures_prints_parameters_and_inputs(capsys):
    text = printed(["--list-architectures"], capsys)
    for name, known in ARCHITECTURES.items():
        (line,) = [line for line in text.splitlines() if line.split()[0] == name]
        assert known.observations[0] in line and re.search(r" \d[\d,]+ ", line)
    assert all(alias in text for alias in ALIASES)


def test_warn_about_networks_constant_schedules_override_annealing(folder):
    lines = []
    for more in (["--enable-lr-annealing"], []):
        warn_about_networks(resolve([*REQUIRED, "--no-schedules", *more]), lines.append)
    assert len(lines) == 1 and "--no-schedules" in lines[0]
