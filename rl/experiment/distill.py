"""Distillation stage of the main job, between imitation and PPO (docs/distillation.md).

    pretrained = distill_teacher(setup, plan, pretrained, teacher)

The distilled policy replaces the BC policy as PPO's initial policy and as the reference of the KL penalty.
"""

from dataclasses import asdict, replace
from pathlib import Path

import hardware
from bc.thread_pool import ThreadPool
from nppsim.io.progress import progress_bar
from rl.config.curriculum import CurriculumConfig
from rl.distillation import DistillationError, Distiller
from rl.events import open_events
from rl.experiment.dev_evaluation import play_dev_levels
from rl.experiment.record import AGENT, DISTILLED_POLICY, PretrainedPolicy, load_pretrained, save_pretrained
from rl.experiment.setup import TrainingSetup, folder_of, make_env
from rl.policy import checkpoint
from rl.policy.policy import NppPolicy
from rl.ppo.logs import TENSORBOARD_FOLDER

UNFINISHED = f"pretrain/unfinished_distillation{checkpoint.SUFFIX}"
SAVE_SECONDS = 60.0  # time between saved states, from which an interrupted distillation resumes
ENVS = 512  # number of environments, if PPO has fewer
MIN_ROLLOUT_LENGTH = 16  # minimum number of decisions per environment in a rollout
LOG_LINES = 8  # number of progress lines in the log if there is no terminal for a progress bar


def teacher_of(setup: TrainingSetup) -> Path | None:
    """Return the checkpoint of the teacher, None without distillation."""
    teacher = setup.config.teacher
    if teacher.name in (None, setup.architecture.name) or not setup.pretrained:
        return None
    trained = folder_of(setup.config, setup.root, str(teacher.name), "with_pretrain", setup.seed) / AGENT
    return teacher.file or trained


def load_teacher(path: Path, frame_skip: int) -> NppPolicy:
    """Load a teacher; DistillationError for an unsuitable frame skip or architecture, CheckpointError for a damaged file."""
    policy, stored = checkpoint.load_policy(path)
    if stored["frame_skip"] != frame_skip:
        problem = f"{path}: decides every {stored['frame_skip']} frames, the student every {frame_skip}"
        raise DistillationError(f"{problem}; give another teacher or --frame-skip {stored['frame_skip']}")
    if policy.stacking or policy.high_level is not None or policy.memory is not None:
        problem = f"{path}: {policy.architecture} uses stacked frames, subtasks or a recurrent state"
        raise DistillationError(f"{problem}, but a teacher must act on single observations; give another")
    return policy.requires_grad_(False)


def distill_teacher(
    setup: TrainingSetup, plan: hardware.Plan, pretrained: PretrainedPolicy, teacher: NppPolicy
) -> PretrainedPolicy:
    """Distil the teacher into the BC policy, or load the stored result."""
    done = load_pretrained(setup.folder, plan.device, setup.config.frame_skip, DISTILLED_POLICY)
    if done is not None:
        setup.log(f"distillation is done: {setup.folder / DISTILLED_POLICY}")
        return done
    student, unfinished = pretrained.policy, setup.folder / UNFINISHED
    distiller = make_distiller(setup, plan, student, teacher)
    if unfinished.is_file():
        stored = checkpoint.load(unfinished)
        student.load_state_dict(stored["policy"])
        distiller.load(stored["training"])
        setup.log(f"distillation resumes after {distiller.decisions:,} decisions")
    else:
        check_worth(setup, student, teacher, teacher_of(setup))
    before = distiller.seconds
    run_distiller(setup, distiller)
    student.eval()
    distilled = replace(
        pretrained, policy=student, distillation_s=distiller.seconds, spent_before=pretrained.spent_before + before
    )
    config = {"teacher": asdict(setup.config.teacher)}
    save_pretrained(setup.folder, distilled, setup.config.frame_skip, config, DISTILLED_POLICY)
    unfinished.unlink(missing_ok=True)
    setup.log(
        f"distillation: {distiller.decisions:,} decisions in {distiller.seconds / 60:.1f} min, {teacher_of(setup)} into "
        + setup.title
        + (f"; now {_success(setup, student):.0%} of the dev levels" if setup.config.evaluation.in_training else "")
    )
    return distilled


def make_distiller(setup: TrainingSetup, plan: hardware.Plan, student: NppPolicy, teacher: NppPolicy) -> Distiller:
    """Make the distiller, with its own environments, whose observations include those of student and teacher.

    A rollout has as many decisions as in PPO, but in more environments: distillation needs no consecutive decisions, and two
    policies act faster in large batches.
    """
    num_envs = max(plan.num_envs, min(ENVS, plan.batch_size // MIN_ROLLOUT_LENGTH))
    env = make_env(
        replace(setup.config, curriculum=CurriculumConfig()),
        setup.data,
        setup.architecture,
        plan,
        setup.seed,
        teacher=teacher,
        num_envs=num_envs,
    )
    pool = ThreadPool(plan.torch_threads)
    settings, length = setup.config.teacher, plan.batch_size // num_envs
    return Distiller(student, teacher, env, settings, rollout_length=length, pool=pool, seed=setup.seed)


def run_distiller(setup: TrainingSetup, distiller: Distiller) -> None:
    """Distil until the limit of decisions or minutes; log metrics, and save the state every SAVE_SECONDS for resuming."""
    with (
        open_events(setup.folder / TENSORBOARD_FOLDER) as writer,
        progress_bar(total=100, title="distillation", unit="%") as bar,
    ):
        saved, logged = distiller.seconds, int(LOG_LINES * distiller.progress)
        while not distiller.updates or distiller.progress < 1:
            metrics = distiller.update()
            for tag, value in metrics.items():
                writer.add_scalar(f"bc/teacher/{tag}", value, distiller.updates)
            writer.flush()
            won = f", success {metrics['success']:.0%}" if "success" in metrics else ""
            line = f"divergence {metrics['divergence']:.3f} nats, agreement {metrics['agreement']:.0%}{won}"
            bar.update(int(100 * distiller.progress) - bar.n)
            bar.set_postfix_str(line)
            if bar.disable and int(LOG_LINES * distiller.progress) > logged:  # there is no terminal for the bar
                logged = int(LOG_LINES * distiller.progress)
                setup.log(
                    f"distillation {distiller.progress:4.0%}: {distiller.decisions:,} decisions, "
                    f"{metrics['decisions_per_s']:,.0f}/s, {line}"
                )
            if distiller.seconds - saved >= SAVE_SECONDS:
                frame_skip, state = setup.config.frame_skip, distiller.state()
                checkpoint.save(setup.folder / UNFINISHED, distiller.student, frame_skip=frame_skip, training=state)
                saved = distiller.seconds


def check_worth(setup: TrainingSetup, student: NppPolicy, teacher: NppPolicy, path: Path | None) -> None:
    """Raise DistillationError if the teacher wins no more dev levels than the student.

    Without evaluations on the dev levels, nothing is checked.
    """
    if not setup.config.evaluation.in_training:
        return
    theirs, mine = _success(setup, teacher), _success(setup, student)
    setup.log(
        f"teacher {path}: {teacher.architecture}, finishes {theirs:.0%} of the dev levels, the student {mine:.0%}"
    )
    if theirs <= mine:
        problem = f"{path}: finishes {theirs:.1%} of the dev levels, no more than the student ({mine:.1%})"
        raise DistillationError(f"{problem}; give a better teacher, or leave out --teacher")


def _success(setup: TrainingSetup, policy: NppPolicy) -> float:
    return play_dev_levels(setup.suites.periodic, policy, setup.config.evaluation.deterministic)[0].overall
