"""Between imitation and PPO: lessons from a trained agent, where one is asked for (docs/distillation.md).

    clone = learn_from_teacher(job, plan, clone, path)

The result takes the clone's place: PPO starts from it, is pulled towards it and held against it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import hardware
from hardware.team import Team
from nppsim.observe import layout
from nppsim.progress import progress_bar
from rl.curriculum_config import CurriculumConfig
from rl.distillation import Figures, Lessons, TeacherError, as_tags
from rl.evaluation.results import ALL, aggregate
from rl.events import EventWriter
from rl.experiment.follower import make_env
from rl.experiment.kept import CLONE, TAUGHT, Clone, read_clone, save_clone
from rl.policy import checkpoint
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy
from rl.ppo.logs import BOARD, LESSONS, cut_events
from rl.ppo.written import write

if TYPE_CHECKING:
    from rl.experiment.job import Job

UNFINISHED = f"pretrain/unfinished_lessons{checkpoint.SUFFIX}"
SAVE_SECONDS = 60.0  # between two states to go on from
WORSE, ROUNDING = 1.5, 0.05  # a pupil may part from its teacher by so many times as much as at first, and nats
TOLD = 8  # lines about lessons, where there is no progress bar


def load_teacher(path: Path, frame_skip: int) -> NppPolicy:
    """A policy that can teach; TeacherError for one that sees or plays otherwise, CheckpointError for what is none."""
    policy, facts = checkpoint.load_policy(path)
    if facts["frame_skip"] != frame_skip:
        raise TeacherError(
            f"{path}: decides every {facts['frame_skip']} frames, the pupil every {frame_skip}; give another teacher or "
            f"--frame-skip {facts['frame_skip']}"
        )
    if policy.stacking or policy.commander is not None or policy.memory is not None:
        raise TeacherError(
            f"{path}: {policy.architecture} acts on more than it sees now, its stacks, subtask or memory; a teacher is "
            "asked about states that it has not come to by itself: give one without"
        )
    return policy.requires_grad_(False)


def learn_from_teacher(job: "Job", plan: hardware.Plan, clone: Clone, path: Path) -> Clone:
    """The clone after its lessons, unless they were given before an interruption.  path: of the teacher."""
    kept = read_clone(job.folder, plan.device, job.config.frame_skip, TAUGHT)
    if kept is not None:
        job.log(f"lessons are done: {job.folder / TAUGHT}")
        return kept
    teacher = load_teacher(path, job.config.frame_skip).to(plan.device)
    pupil, unfinished = clone.policy, job.folder / UNFINISHED
    keys = layout.observation_keys({*pupil.observations, *teacher.observations})
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
    lessons = Lessons(
        pupil,
        teacher,
        env,
        job.config.teacher,
        rollout_length=plan.rollout_length,
        team=Team(plan.torch_threads),
        seed=job.seed,
    )
    if unfinished.is_file():
        stored = checkpoint.load(unfinished)
        pupil.load_state_dict(stored["policy"])
        lessons.load(stored["training"])
        job.log(f"lessons go on after {lessons.decisions:,} decisions")
    else:
        check_worth(job, pupil, teacher, path)
    before = lessons.seconds
    cloned = checkpoint.load(job.folder / CLONE)["policy"]
    cut_events(job.folder / BOARD, 0, lessons=lessons.lessons)
    with EventWriter(job.folder / BOARD) as writer, _told(job, lessons) as tell:
        saved, first, last = lessons.seconds, 0.0, 0.0
        while not lessons.lessons or lessons.progress < 1:
            figures = lessons.give()
            first, last = first or figures.divergence, figures.divergence
            for tag, value in as_tags(figures).items():
                writer.add_scalar(LESSONS + tag, value, lessons.lessons)
            writer.flush()
            tell(figures)
            if lessons.seconds - saved >= SAVE_SECONDS:
                write(unfinished, pupil, frame_skip=job.config.frame_skip, training=lessons.state())
                saved = lessons.seconds
    pupil.set_training_mode(False)
    check_learned(pupil, cloned, first, last)
    check_given(job, lessons)
    taught = replace(clone, policy=pupil, taught_s=lessons.seconds, spent_before=clone.spent_before + before)
    save_clone(job.folder, taught, job.config.frame_skip, {"teacher": asdict(job.config.teacher)}, TAUGHT)
    unfinished.unlink(missing_ok=True)
    job.log(
        f"lessons: {lessons.decisions:,} decisions in {lessons.seconds / 60:.1f} min, of {job.title}, by {path}"
        + _success_told(job, pupil)
    )
    return taught


def check_worth(job: "Job", pupil: NppPolicy, teacher: NppPolicy, path: Path) -> None:
    """TeacherError unless the teacher finishes more of the dev levels than its pupil, where these are played at all."""
    if not job.config.evaluation.in_training:
        return
    theirs, mine = _success(job, teacher), _success(job, pupil)
    job.log(f"teacher {path}: {teacher.architecture}, finishes {theirs:.0%} of the dev levels, its pupil {mine:.0%}")
    if theirs <= mine:
        raise TeacherError(
            f"{path}: finishes {theirs:.1%} of the dev levels and its pupil {mine:.1%}: there is nothing to learn; give a "
            "better teacher, or leave out --teacher"
        )


def check_learned(pupil: NppPolicy, cloned: Mapping[str, torch.Tensor], first: float, last: float) -> None:
    """TeacherError where lessons have done nothing, or the opposite of what they are for.

    cloned: weights before the first.
    first, last: divergence in the first lesson since the run was begun or gone on with, and in the last one, nats.
    """
    moved = [name for name, tensor in pupil.state_dict().items() if not torch.equal(tensor.cpu(), cloned[name].cpu())]
    if not moved:
        raise TeacherError("lessons have left every weight as it was; raise --teacher-learning-rate")
    if last > WORSE * first + ROUNDING:
        raise TeacherError(
            f"lessons have led away from the teacher: divergence {first:.3f} nats in the first, {last:.3f} in the last; "
            "lower --teacher-learning-rate"
        )


def check_given(job: "Job", lessons: Lessons) -> None:
    """TeacherError unless lessons were on the training levels, and as many as were asked for."""
    train = [level.fingerprint for level, _ in job.data.train]
    asked, minutes = job.config.teacher.decisions, job.config.teacher.minutes
    if [level.fingerprint for level in lessons.env.sim.bank.levels] != train:
        raise TeacherError("lessons were given on other levels than those to train on; please report this")
    if lessons.decisions < asked and (minutes is None or lessons.seconds < 60 * minutes):
        raise TeacherError(
            f"lessons ended after {lessons.decisions:,} decisions, meant were {asked:,}; please report this"
        )


def _success(job: "Job", policy: NppPolicy) -> float:
    suite = job.suites.periodic(get_architecture(policy.architecture))
    return aggregate(suite.run(policy, deterministic=job.config.evaluation.deterministic))[ALL]["success"]


def _success_told(job: "Job", policy: NppPolicy) -> str:
    return f"; now {_success(job, policy):.0%} of the dev levels" if job.config.evaluation.in_training else ""


@contextmanager
def _told(job: "Job", lessons: Lessons) -> Iterator[Callable[[Figures], None]]:
    """What tells of a lesson: a progress bar, or lines where there is no terminal."""
    marks = [number / TOLD for number in range(1, TOLD + 1)]
    with progress_bar(total=100, title="lessons", unit="%") as bar:

        def tell(figures: Figures) -> None:
            won = f", success {figures.wins / figures.episodes:.0%}" if figures.episodes else ""
            line = f"divergence {figures.divergence:.3f} nats, agreement {figures.agreement:.0%}{won}"
            bar.update(int(100 * lessons.progress) - bar.n)
            bar.set_postfix_str(line)
            if bar.disable and marks and lessons.progress >= marks[0]:
                while marks and lessons.progress >= marks[0]:
                    marks.pop(0)
                job.log(
                    f"lessons {lessons.progress:4.0%}: {lessons.decisions:,} decisions, "
                    f"{figures.decisions_per_s:,.0f}/s, {line}"
                )

        yield tell
