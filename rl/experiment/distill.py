"""Distillation stage of the main job, between imitation and PPO (docs/distillation.md).

    pretrained = distill(job, plan, pretrained, path)

The result replaces the BC policy: PPO starts from it, and the KL penalty refers to it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import hardware
from hardware.thread_pool import ThreadPool
from nppsim.observe import layout
from nppsim.progress import progress_bar
from rl.config.curriculum import CurriculumConfig
from rl.distillation import DistillationError, DistillationMetrics, Distiller, as_tags
from rl.evaluation.results import ALL, aggregate
from rl.events import EventWriter
from rl.experiment.follower import make_env
from rl.experiment.kept import CLONED, DISTILLED, PretrainedPolicy, load_pretrained, save_pretrained
from rl.policy import checkpoint
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy
from rl.ppo.logs import BOARD, DISTILLATION, cut_events

if TYPE_CHECKING:
    from rl.experiment.stages import Job

UNFINISHED = f"pretrain/unfinished_lessons{checkpoint.SUFFIX}"
SAVE_SECONDS = 60.0  # between two states to resume from
WORSE, ROUNDING = 1.5, 0.05  # largest final divergence: factor of the first one, plus nats
LOG_LINES = 8  # without a progress bar


def load_teacher(path: Path, frame_skip: int) -> NppPolicy:
    """Load a teacher; DistillationError if its frame skip or architecture does not suit, CheckpointError if damaged."""
    policy, facts = checkpoint.load_policy(path)
    if facts["frame_skip"] != frame_skip:
        raise DistillationError(
            f"{path}: decides every {facts['frame_skip']} frames, the student every {frame_skip}; give another teacher or "
            f"--frame-skip {facts['frame_skip']}"
        )
    if policy.stacking or policy.commander is not None or policy.memory is not None:
        raise DistillationError(
            f"{path}: {policy.architecture} uses stacked frames, subtasks or a memory; a teacher is evaluated on single "
            "states of the student's episodes: give one without"
        )
    return policy.requires_grad_(False)


def distill(job: "Job", plan: hardware.Plan, pretrained: PretrainedPolicy, path: Path) -> PretrainedPolicy:
    """Distil the teacher at ``path`` into the policy, or load the result of an earlier call."""
    done = load_pretrained(job.folder, plan.device, job.config.frame_skip, DISTILLED)
    if done is not None:
        job.log(f"distillation is done: {job.folder / DISTILLED}")
        return done
    teacher = load_teacher(path, job.config.frame_skip).to(plan.device)
    student, unfinished = pretrained.policy, job.folder / UNFINISHED
    keys = layout.observation_keys({*student.observations, *teacher.observations})
    env = make_env(
        job.config,
        job.data,
        job.architecture,
        job.config.ppo,
        plan,
        job.seed,
        job.ranks,
        observations=keys,
        curriculum=CurriculumConfig(),
    )
    distiller = Distiller(
        student,
        teacher,
        env,
        job.config.teacher,
        rollout_length=plan.rollout_length,
        pool=ThreadPool(plan.torch_threads),
        seed=job.seed,
    )
    if unfinished.is_file():
        stored = checkpoint.load(unfinished)
        student.load_state_dict(stored["policy"])
        distiller.load(stored["training"])
        job.log(f"distillation resumes after {distiller.decisions:,} decisions")
    else:
        check_worth(job, student, teacher, path)
    before = distiller.seconds
    weights = checkpoint.load(job.folder / CLONED)["policy"]
    cut_events(job.folder / BOARD, 0, distillation=distiller.updates)
    with EventWriter(job.folder / BOARD) as writer, _progress(job, distiller) as show:
        saved, first, last = distiller.seconds, 0.0, 0.0
        while not distiller.updates or distiller.progress < 1:
            metrics = distiller.update()
            first, last = first or metrics.divergence, metrics.divergence
            for tag, value in as_tags(metrics).items():
                writer.add_scalar(DISTILLATION + tag, value, distiller.updates)
            writer.flush()
            show(metrics)
            if distiller.seconds - saved >= SAVE_SECONDS:
                checkpoint.save(unfinished, student, frame_skip=job.config.frame_skip, training=distiller.state())
                saved = distiller.seconds
    student.set_training_mode(False)
    check_learned(student, weights, first, last)
    check_given(job, distiller)
    distilled = replace(
        pretrained, policy=student, distillation_s=distiller.seconds, spent_before=pretrained.spent_before + before
    )
    save_pretrained(job.folder, distilled, job.config.frame_skip, {"teacher": asdict(job.config.teacher)}, DISTILLED)
    unfinished.unlink(missing_ok=True)
    job.log(
        f"distillation: {distiller.decisions:,} decisions in {distiller.seconds / 60:.1f} min, {path} into {job.title}"
        + (f"; now {_success(job, student):.0%} of the dev levels" if job.config.evaluation.in_training else "")
    )
    return distilled


def check_worth(job: "Job", student: NppPolicy, teacher: NppPolicy, path: Path) -> None:
    """Raise DistillationError unless the teacher finishes more dev levels than the student, if these are evaluated."""
    if not job.config.evaluation.in_training:
        return
    theirs, mine = _success(job, teacher), _success(job, student)
    job.log(f"teacher {path}: {teacher.architecture}, finishes {theirs:.0%} of the dev levels, the student {mine:.0%}")
    if theirs <= mine:
        raise DistillationError(
            f"{path}: finishes {theirs:.1%} of the dev levels, the student {mine:.1%}: there is nothing to learn; give a "
            "better teacher, or leave out --teacher"
        )


def check_learned(student: NppPolicy, before: Mapping[str, torch.Tensor], first: float, last: float) -> None:
    """Raise DistillationError if no weight changed or the divergence grew.

    before: weights before distillation.
    first, last: divergence of the first update since start or resume, and of the last one, nats.
    """
    moved = [name for name, tensor in student.state_dict().items() if not torch.equal(tensor.cpu(), before[name].cpu())]
    if not moved:
        raise DistillationError("distillation has not changed any weight; raise --teacher-learning-rate")
    if last > WORSE * first + ROUNDING:
        raise DistillationError(
            f"distillation diverges: {first:.3f} nats from the teacher in the first update, {last:.3f} in the last; "
            "lower --teacher-learning-rate"
        )


def check_given(job: "Job", distiller: Distiller) -> None:
    """Raise DistillationError unless training levels were used, for as many decisions as configured."""
    train = [level.fingerprint for level, _ in job.data.train]
    wanted, minutes = job.config.teacher.decisions, job.config.teacher.minutes
    if [level.fingerprint for level in distiller.env.sim.bank.levels] != train:
        raise DistillationError("distillation did not use the training levels")
    if distiller.decisions < wanted and (minutes is None or distiller.seconds < 60 * minutes):
        raise DistillationError(f"distillation ended after {distiller.decisions:,} of {wanted:,} decisions")


def _success(job: "Job", policy: NppPolicy) -> float:
    suite = job.suites.periodic(get_architecture(policy.architecture))
    return aggregate(suite.run(policy, deterministic=job.config.evaluation.deterministic))[ALL]["success"]


@contextmanager
def _progress(job: "Job", distiller: Distiller) -> Iterator[Callable[[DistillationMetrics], None]]:
    """Show metrics in a progress bar, or in log lines without a terminal."""
    marks = [number / LOG_LINES for number in range(1, LOG_LINES + 1)]
    with progress_bar(total=100, title="distillation", unit="%") as bar:

        def show(metrics: DistillationMetrics) -> None:
            won = f", success {metrics.wins / metrics.episodes:.0%}" if metrics.episodes else ""
            line = f"divergence {metrics.divergence:.3f} nats, agreement {metrics.agreement:.0%}{won}"
            bar.update(int(100 * distiller.progress) - bar.n)
            bar.set_postfix_str(line)
            if bar.disable and marks and distiller.progress >= marks[0]:
                while marks and distiller.progress >= marks[0]:
                    marks.pop(0)
                job.log(
                    f"distillation {distiller.progress:4.0%}: {distiller.decisions:,} decisions, "
                    f"{metrics.decisions_per_s:,.0f}/s, {line}"
                )

        yield show
