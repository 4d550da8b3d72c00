"""One training: imitation where it is wished for, PPO, evaluation and films; ``train_one`` is the table of contents."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

import hardware
from bc import train as imitation
from bc.dataset import BCDataset
from bc.train import BCResult
from hardware.thread_pool import ThreadPool
from nppsim.actions import NUM_ACTIONS
from nppsim.files import write_json
from nppsim.observe.statistics import ObservationStatistics
from nppsim.signals import StopRequest, deferred_signals
from rl.audit.callback import Audit
from rl.config import ExperimentConfig, PPOConfig
from rl.config.resume import stored_facts
from rl.distributed.ranks import SINGLE_PROCESS, SingleProcess
from rl.doctor.checks_learning import parts_of
from rl.doctor.digests import DigestTrail, read_trail
from rl.doctor.doctor import BEFORE, IMITATION, UPDATE, Doctor
from rl.doctor.runs import DEMONSTRATIONS_FILE, RUN_FILE
from rl.evaluation.history import DevHistory
from rl.evaluation.results import EpisodeRecord
from rl.evaluation.suite import Policy, RandomPolicy
from rl.evaluation.video import Film, record_evaluation
from rl.events import EventWriter
from rl.experiment.data import Data, Log, Suites, load_demonstrations
from rl.experiment.distill import distill, load_teacher
from rl.experiment.evaluator import DevTask, Evaluator, evaluator, play_dev_levels, stop_if
from rl.experiment.follower import Task, make_env
from rl.experiment.kept import (
    CLONED,
    PretrainedPolicy,
    load_pretrained,
    read_facts,
    read_plan,
    save_plan,
    save_pretrained,
    save_run,
)
from rl.experiment.record import RunRecord
from rl.experiment.resolved import resolved
from rl.policy import checkpoint
from rl.policy.architectures import Architecture, get_architecture
from rl.policy.policy import NppPolicy, build_policy
from rl.policy.weight_map import TransferReport, check_same_policy, transfer
from rl.ppo import make_ppo, training_state
from rl.ppo.callbacks import PPOCallback, profilers
from rl.ppo.logs import BOARD, cut_events, write_settings
from rl.ppo.model_selection import Evaluate, Evaluation
from rl.ppo.monitor import TrainingMonitor
from rl.ppo.ppo import PHASES, PPO
from rl.ppo.recurrent import segment_length
from rl.ppo.update_benchmark import UpdateBenchmark, stored_timings
from rl.ppo.vec_env import BatchVecEnv
from rl.upload import Uploader

RANDOM_PLAY_DECISIONS = 20_000  # for the normaliser's statistics where there are no demonstrations
UNFINISHED = f"pretrain/unfinished{checkpoint.SUFFIX}"
PROBE_ROWS = 512  # held-out decisions on which the transferred policy must act like the BC policy


@dataclass(frozen=True)
class Job:
    """One training and all that it needs.

    config, data, suites, machine, uploader, log: the same in all jobs of an experiment.
    architecture: of the network.
    pretrained: whether imitation comes before PPO.
    seed: of everything random.
    label: the architecture, with the condition where the experiment has several.
    title: the same, with the seed where there are several.
    root, folder: of the experiment, and of this job inside it.
    ranks: the processes that train together, of which this is the first.
    doctor: examines it; its findings are in the folder's ``doctor.json``.
    previous_checkpoint: go on from the checkpoint before the newest, if it has begun.
    """

    config: ExperimentConfig
    data: Data
    suites: Suites
    machine: hardware.Machine
    uploader: Uploader | None
    log: Log
    architecture: Architecture
    pretrained: bool
    seed: int
    label: str
    title: str
    root: Path
    folder: Path
    doctor: Doctor
    previous_checkpoint: bool = False
    ranks: SingleProcess = SINGLE_PROCESS

    @property
    def observations(self) -> tuple[str, ...]:
        """Keys that the network reads."""
        return self.architecture.observations


def make_jobs(
    config: ExperimentConfig,
    data: Data,
    machine: hardware.Machine,
    root: Path,
    uploader: Uploader | None,
    log: Log,
    previous_checkpoint: bool = False,
    ranks: SingleProcess = SINGLE_PROCESS,
) -> Iterator[Job]:
    """The jobs of an experiment: every architecture, under every condition, from every seed."""
    suites = Suites(config, data)
    for name in config.networks:
        for condition in config.conditions:
            several = len(config.conditions) > 1
            label = f"{name}, {condition}" if several else name
            for seed in config.seeds:
                folder = folder_of(config, root, name, condition, seed)
                yield Job(
                    config=config,
                    data=data,
                    suites=suites,
                    machine=machine,
                    uploader=uploader,
                    log=log,
                    architecture=get_architecture(name),
                    pretrained=condition == "with_pretrain",
                    seed=seed,
                    label=label,
                    title=f"{label}, seed {seed}" if len(config.seeds) > 1 else label,
                    root=root,
                    folder=folder,
                    doctor=Doctor(log, folder / "doctor.json", only=("data",)),
                    previous_checkpoint=previous_checkpoint,
                    ranks=ranks,
                )


def folder_of(config: ExperimentConfig, root: Path, name: str, condition: str, seed: int) -> Path:
    """Where a run is that has begun, or will be: an experiment may have had fewer seeds or conditions when it began."""
    place = root / name / condition if len(config.conditions) > 1 else root / name
    usual = place / f"seed_{seed}" if len(config.seeds) > 1 else place
    places = [folder / last for folder in (root / name, root / name / condition) for last in ("", f"seed_{seed}")]
    begun = {"seed": seed, "pretrained": condition == "with_pretrain"}
    return next((place for place in places if begun.items() <= read_facts(place / RUN_FILE).items()), usual)


def train_one(job: Job) -> RunRecord:
    """Do the job, or what is left of it; what came of it."""
    begin = time.monotonic()
    job.folder.mkdir(parents=True, exist_ok=True)
    plan = make_plan(job)
    settings = job.config.ppo.settled(plan)
    facts = {"label": job.label, "seed": job.seed, "pretrained": job.pretrained}
    found = resolved(job.config, settings, plan)
    write_json(job.folder / RUN_FILE, facts | {"settings": found})
    write_settings(job.folder / BOARD, found)
    own = plan.of_each(job.ranks.size)
    if job.architecture.memory:
        segment_length(settings, own)  # what does not fit is said now, and not after imitation
    env = make_env(job.config, job.data, job.architecture, settings, own, job.seed, job.ranks)
    introduce(job, settings, plan, env)
    teacher = teacher_of(job)
    clone = imitate(job, plan) if job.pretrained else None
    if clone and teacher:
        clone = distill(job, plan, clone, teacher)
    statistics = clone.statistics if clone else statistics_of_random_play(env, job.seed)
    ppo = make_ppo(
        env,
        job.architecture.name,
        settings,
        own,
        from_stage=job.config.hierarchy.from_stage,
        statistics=statistics,
        seed=job.seed,
        device=plan.device,
        ranks=job.ranks,
    )
    moved = hand_over(job, clone, ppo) if clone else None
    runs = runs_to_lend(job, clone, env)
    job.ranks.release(
        Task(
            job.architecture.name,
            settings,
            own,
            job.seed,
            job.data.fingerprints,
            statistics,
            ppo.policy.state_dict(),
            None if ppo.reference is None else ppo.reference.state_dict(),
            runs,
        )
    )
    events = fine_tune(job, ppo, plan)
    speed = speed_of(ppo)  # before the final evaluation, which is no part of PPO
    played = judge(job, clone, ppo)
    films = make_films(job, played["ppo"])
    record = record_of(job, begin, plan, found, played, clone, moved, ppo, speed, films, events)
    save_run(record)
    return record


def introduce(job: Job, settings: PPOConfig, plan: hardware.Plan, env: BatchVecEnv) -> None:
    """Check data and settings before training; provide what later checks need."""
    data = job.data
    if not job.pretrained:
        absent = ("replays", "dataset", "statistics", "clone", "cloning", "probe")
        job.doctor.lack(**dict.fromkeys(absent, "no imitation in this run"))
    else:
        job.doctor.provide(replays=job.config.replay_data_dir)
    if not job.doctor.rehearses:  # a rehearsal has smaller ones
        job.doctor.provide(full_config=job.config, full_plan=plan)
    job.doctor.provide(
        config=job.config,
        levels={"train": data.train, "dev": data.dev, "test": data.test},
        bank=data.bank,
        suites=job.suites.all(job.architecture),
        settings=settings,
        env=env,
        folder=job.folder,
    )
    job.doctor.examine(BEFORE)


def teacher_of(job: Job) -> Path | None:
    """The checkpoint of the agent that teaches this one between imitation and PPO, which can teach; None: nobody does."""
    teacher = job.config.teacher
    if teacher.name in (None, job.architecture.name) or not job.pretrained:
        return None
    trained = folder_of(job.config, job.root, str(teacher.name), "with_pretrain", job.seed) / "agent.safetensors"
    path = teacher.file or trained
    load_teacher(path, job.config.frame_skip)
    return path


def make_plan(job: Job) -> hardware.Plan:
    """Sizes, precision and threads: those that the run has begun with, or for this machine, from measured updates."""
    plan_request = job.config.plan_request
    condition = "with imitation" if job.pretrained else "without imitation"
    heading = f"\n{job.architecture.name}, {condition}, seed {job.seed}"
    plan = read_plan(job.folder, plan_request)
    if plan is not None:
        job.log(f"{heading}: goes on with the plan that it began with\n{plan}")
        if plan.machine.cpu != job.machine.cpu:
            job.log(f"begun on {plan.machine.name}: another processor need not compute the same bits")
    else:
        plan = measured_plan(job, plan_request)
        job.log(f"{heading}\n{plan}")
        save_plan(job.folder, plan, plan_request)
    torch.set_num_threads(1)  # of single operations, which are too short to be split: a pool shares out minibatches
    return plan


def measured_plan(job: Job, plan_request: hardware.PlanRequest) -> hardware.Plan:
    """The plan for this machine as it is now."""
    machine = job.machine.times(job.ranks.machines)
    network = job.architecture
    planned = partial(
        hardware.plan,
        job.observations,
        plan_request,
        stacking=network.stacking,
        carried_bytes=network.carried_bytes,
        machine=machine,
    )
    first = planned()  # device and precision to measure memory with
    probe = UpdateBenchmark(network.name, first.device, first.precision)
    return planned(probe=probe.peak_bytes, benchmark=stored_timings(probe, job.machine))


def judge(job: Job, clone: PretrainedPolicy | None, ppo: PPO) -> dict[str, list[EpisodeRecord]]:
    """The final evaluation, after everything else: method -> its episodes; none where it was not run.

    Only here are the test levels played, once by each method.
    """
    policies: dict[str, Policy | None] = {
        "random": RandomPolicy(),
        "bc": clone.policy if clone else None,
        "ppo": ppo.policy,
    }
    evaluation = job.config.evaluation
    if evaluation.skip_final_eval:
        return {method: [] for method in policies}
    suite = job.suites.final(job.architecture)
    played = {
        method: suite.run(policy, deterministic=evaluation.deterministic) if policy else []
        for method, policy in policies.items()
    }
    return played


def statistics_of_random_play(env: BatchVecEnv, seed: int) -> ObservationStatistics:
    """Means and spreads of what random actions meet on the training levels."""
    sim, rng = env.sim, np.random.default_rng(seed)
    statistics = ObservationStatistics(sim.keys)
    env.reset()
    for _ in range(-(-RANDOM_PLAY_DECISIONS // sim.num_envs)):
        sim.step(rng.integers(0, NUM_ACTIONS, sim.num_envs))
        sim.next_level[sim.finished] = env.sampler.draw(len(sim.finished))
        statistics.update({key: sim.latest[key] for key in statistics.float_keys})
    return statistics


def imitate(job: Job, plan: hardware.Plan) -> PretrainedPolicy:
    """Behavioural cloning, unless it is done; the demonstrations' memory is free again when this returns."""
    kept = load_pretrained(job.folder, plan.device, job.config.frame_skip)
    if kept is not None:
        job.log(f"imitation is done: {job.folder / CLONED}")
        job.doctor.lack(dataset="imitation was done before the run was interrupted")
        job.doctor.provide(statistics=kept.statistics)
        return kept
    dataset = load_demonstrations(job.config, job.data, job.observations, job.seed, job.log)
    dataset = dataset.stacked(job.architecture.stacking)
    facts = {"key": dataset.key, "decisions": len(dataset)}
    write_json(job.folder / "pretrain" / DEMONSTRATIONS_FILE, facts)
    statistics = dataset.statistics()
    job.doctor.provide(statistics=statistics)
    job.doctor.examine(IMITATION, dataset=dataset)
    torch.manual_seed(job.seed)  # for the first weights
    policy = build_policy(job.architecture.imitated.name, statistics, precision=plan.precision, device=plan.device)
    result, before = clone_behaviour(job, policy, dataset, ThreadPool(plan.torch_threads))
    job.log(result.table())
    probe = dataset.observe(dataset.rows(validation=True)[:PROBE_ROWS])
    clone = PretrainedPolicy(policy, statistics, result, probe, dataset.runs(), spent_before=before)
    save_pretrained(job.folder, clone, job.config.frame_skip, {"bc": asdict(job.config.bc)})
    (job.folder / UNFINISHED).unlink(missing_ok=True)
    return clone


def clone_behaviour(job: Job, policy: NppPolicy, dataset: BCDataset, pool: ThreadPool) -> tuple[BCResult, float]:
    """Fit the policy to the demonstrations, from where that was interrupted, and tell how many seconds it had taken by then.

    The best weights so far are always on disk as ``bc_best.safetensors``, the latest ones and what it takes to go on from
    them as ``unfinished.safetensors``.
    """
    settings = replace(job.config.bc, seed=job.seed)
    unfinished, board = job.folder / UNFINISHED, job.folder / BOARD

    def save(path: Path, epoch: int, state: dict | None = None) -> None:
        config = {"bc": asdict(job.config.bc), "epoch": epoch}
        checkpoint.save(path, policy, frame_skip=job.config.frame_skip, config=config, training=state)

    state = None
    if unfinished.is_file():
        stored = checkpoint.load(unfinished)
        checkpoint.check_frame_skip(unfinished, stored, job.config.frame_skip)
        policy.load_state_dict(stored["policy"])
        state = stored["training"]
        job.log(f"imitation goes on after epoch {len(state['history'])}")
    cut_events(board, 0, epochs=len(state["history"]) if state else -1)
    with EventWriter(board) as writer:
        result = imitation.pretrain(
            policy,
            dataset,
            settings,
            writer,
            policy.device,
            on_improvement=lambda _, epoch: save(job.folder / "pretrain" / "bc_best.safetensors", epoch),
            on_epoch=lambda state: save(unfinished, len(state["history"]), state),
            state=state,
            pool=pool,
            log=job.log,
        )
    return result, state["seconds"] if state else 0.0


def hand_over(job: Job, clone: PretrainedPolicy, ppo: PPO) -> TransferReport:
    """Give PPO the BC policy's weights, prove that it acts alike, and tie it to the BC policy for a while.

    That is PPO's own policy as it is now, as it may have parts that the BC policy has not, which do nothing yet.
    """
    moved = transfer(clone.policy.state_dict(), ppo.policy, fresh=job.architecture.fresh)
    agreement = check_same_policy(clone.policy, ppo.policy, clone.probe)
    count = len(next(iter(clone.probe.values())))
    job.log(f"{moved}; {agreement:.0%} of greedy actions agree on {count} held-out decisions")
    ppo.set_reference(ppo.policy)
    job.doctor.provide(clone=clone.policy, cloning=clone.result, probe=clone.probe)
    return moved


def runs_to_lend(job: Job, clone: PretrainedPolicy | None, env: BatchVecEnv) -> dict[str, np.ndarray]:
    """Where start states are wished for, the demonstrations of training levels, which these are given; else nothing."""
    starts = env.sampler.starts
    if starts is None:
        return {}
    demonstrated = clone.runs if clone else {}
    levels = [level.fingerprint for level, _ in job.data.train if level.fingerprint in demonstrated]
    runs = {level: demonstrated[level] for level in levels}
    job.log(
        f"start states: demonstrations of {starts.add(runs)} of {len(job.data.train)} training levels, elsewhere the agent's "
        "own best runs"
    )
    return runs


def check_nothing_is_lost(job: Job) -> None:
    """For a run without a checkpoint: CheckpointError if there was one, by the trail of its updates; else it is told what is
    done again."""
    before = [row.get("decisions", 0) for row in read_trail(job.folder)]
    if len(before) > 2 and before[-2] >= _longest_save_freq(job):  # one was written before the last update began
        raise checkpoint.CheckpointError(
            f"{job.folder}: the run had come to {before[-1]:,} decisions, but its checkpoints are gone: restore "
            f"{job.folder / 'checkpoints'}, or begin a new run"
        )
    if len(before) > 1:
        job.log(f"PPO had come to {before[-1]:,} decisions and has left no checkpoint: it begins anew")


def _longest_save_freq(job: Job) -> int:
    """The longest that this run has ever gone without a checkpoint by its settings, in decisions."""
    changes = [entry["overrides"].get("save-freq", [0]) for entry in stored_facts(job.root)["resumed"]]
    return max([job.config.save_freq, *(before for before, *_ in changes)])


def fine_tune(job: Job, ppo: PPO, plan: hardware.Plan) -> list[dict]:
    """PPO until its end, from the newest checkpoint if there is one; returns what happened, in words and numbers.

    Ctrl-C and its like end it after the update in progress, with a checkpoint that KeyboardInterrupt names; a second
    Ctrl-C ends it at once, and the newest checkpoint is named.
    """
    with (
        deferred_signals(lambda name: job.log(f"{name}: ends after this update, with a checkpoint")) as stop,
        evaluator_of(job, plan, stop) as remote,
    ):
        monitor = TrainingMonitor(
            job.config,
            job.root,
            job.folder,
            dev_evaluation(job, stop),
            job.uploader,
            job.log,
            stop=stop,
            remote=remote,
        )
        job.ranks.stop = stop
        try:
            over = monitor.begin(ppo, job.previous_checkpoint)
            if not ppo.updates and not job.previous_checkpoint:
                check_nothing_is_lost(job)
            DevHistory(job.folder).cut(ppo.num_timesteps)
            total = job.config.ppo.total_timesteps
            job.ranks.release(None if over else total)
            if not over:
                ppo.learn(total, callback=callbacks_of(job, monitor))
                stop_if(stop)
                ppo.logger.close()
                monitor.save_final()
            job.ranks.release(None)
        except KeyboardInterrupt as interruption:
            made = monitor.checkpoints.made()
            told = f"checkpoint: {made[-1]}" if made else "no update was done yet"
            raise KeyboardInterrupt(*interruption.args, told) from None
        checkpoint.save(
            job.folder / "agent.safetensors", ppo.policy, frame_skip=job.config.frame_skip, config=job.config.to_dict()
        )  # the delivered policy alone: a quarter of the size
        if ppo.policy.memory is None:
            training_state.save_sb3_zip(ppo, job.folder / "final_model.zip")
        else:
            job.log(
                f"{job.architecture.name}: no final_model.zip, as PPO of Stable-Baselines3 carries no memory; the policy is "
                "in agent.safetensors"
            )
        stop_if(stop)
    return monitor.events + ppo.sampler.events


def callbacks_of(job: Job, monitor: TrainingMonitor) -> list[BaseCallback]:
    """Callbacks of PPO: profilers, digests, audit, the doctor's checks of the first update, and the monitor."""
    config = job.config
    audit = [] if config.audit == "off" else [Audit(config.audit, job.folder, monitor.warn, config.silence)]
    examine = [ExamineFirstUpdate(job.doctor)] if job.doctor.rehearses else []
    return [*profilers(config.profiling, job.folder), DigestTrail(job.folder), *audit, *examine, monitor]


class ExamineFirstUpdate(PPOCallback):
    """Run the doctor's checks after the first update in which the actor learned."""

    def __init__(self, doctor: Doctor):
        super().__init__()
        self.doctor, self._done = doctor, False

    def _on_rollout_start(self) -> None:
        if self.model.actor_updates and not self._done:
            self._done = True
            self.doctor.provide(**parts_of(self.model))
            self.doctor.examine(UPDATE)

    _on_training_end = _on_rollout_start


def dev_evaluation(job: Job, stop: StopRequest) -> Evaluate:
    """What plays the dev levels between updates, in this process; stops at once if somebody asks."""
    suite = job.suites.periodic(job.architecture)
    history = DevHistory(job.folder)

    def play(policy: NppPolicy, decisions: int) -> Evaluation:
        found, wins = play_dev_levels(suite, policy, job.config.evaluation.deterministic, lambda _: stop_if(stop))
        history.add(decisions, wins)
        return found

    return play


@contextmanager
def evaluator_of(job: Job, plan: hardware.Plan, stop: StopRequest) -> Iterator[Evaluator | None]:
    """The process that plays them while training goes on; None where it is not wished for."""
    if not job.config.evaluation.remote:
        yield None
        return
    simulator_threads = plan.evaluator_threads or 1  # the plan knows no evaluator where it was added later
    task = DevTask(job.config, job.data.dev, job.architecture.name, plan.device, simulator_threads)
    with evaluator(task, job.folder, job.suites.periodic(job.architecture), stop) as made:
        yield made


def make_films(job: Job, episodes: list[EpisodeRecord]) -> list[Film]:
    """Films of the evaluation, where they are wished for."""
    video = job.config.video
    if not video.record_eval_videos:
        return []
    return record_evaluation(
        episodes,
        job.folder,
        frame_skip=job.config.frame_skip,
        max_per_category=video.max_videos_per_category,
        fps=video.video_fps,
        ghost=video.ghost,
    )


def speed_of(ppo: PPO) -> dict:
    """Decisions and seconds of PPO; of rollouts and updates alone decisions per second, cores that computed in the mean, and
    the share of each phase in that time."""
    seconds = max(ppo.seconds, 1e-9)
    share = {part: ppo.phase_seconds[part] / seconds for part in PHASES}
    rest = max(0.0, 1.0 - sum(share.values()))
    return {
        "decisions": ppo.num_timesteps,
        "ppo_time_s": ppo.elapsed_s,
        "decisions_per_s": ppo.decisions_played / seconds,
        "cores_used": ppo.cpu_seconds / seconds,
        "share": share | {"rest": rest},
    }


def record_of(
    job: Job,
    begin: float,
    plan: hardware.Plan,
    settings: dict,
    played: dict[str, list[EpisodeRecord]],
    clone: PretrainedPolicy | None,
    moved: TransferReport | None,
    ppo: PPO,
    speed: dict,
    films: list[Film],
    events: list[dict],
) -> RunRecord:
    """The record of a finished job.

    begin: when it began, by ``time.monotonic``.
    plan: sizes it ran with.
    settings: resolved, with their sources.
    played: the final evaluation's episodes by method.
    clone, moved: of the imitation, None without.
    ppo: after training.
    speed: of that training.
    films: of its evaluation.
    events: what happened during training.
    """
    return RunRecord(
        job.architecture.name,
        job.pretrained,
        job.label,
        job.title,
        job.seed,
        job.folder,
        played,
        cloning=clone.result if clone else None,
        transfer=moved,
        speed=speed,
        plan=plan,
        films=films,
        events=events,
        wall_time_s=time.monotonic() - begin + ppo.elapsed_before_s + (clone.spent_before if clone else 0.0),
        curriculum=ppo.sampler.summary(),
        settings=settings,
    )
