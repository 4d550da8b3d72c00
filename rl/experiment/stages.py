"""One training as a list of stages over one state.

    training = run_stages(job)               # imitate -> distill -> ppo -> evaluate -> report
    run_stages(job, last="imitate")          # only as far as this stage

Each stage is a function of a ``Training``: it reads what earlier stages put there, and adds its own result.  Results are
also in the run's folder, and a stage whose result is there loads it.  So a training can end after any stage, or in the
middle of one, and continue later.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

import hardware
from bc import train as imitation
from bc.dataset import BCDataset
from bc.train import BCResult
from hardware.thread_pool import ThreadPool
from nppsim.files import write_json
from nppsim.signals import StopRequest, deferred_signals
from rl.audit.callback import Audit
from rl.config import PPOConfig
from rl.config.resume import stored_facts
from rl.doctor.checks_learning import parts_of
from rl.doctor.doctor import BEFORE, IMITATION, UPDATE, Doctor
from rl.doctor.runs import DEMONSTRATIONS_FILE, RUN_FILE
from rl.evaluation.results import DevHistory, EpisodeRecord
from rl.evaluation.suite import Policy, RandomPolicy
from rl.evaluation.video import Film, record_evaluation
from rl.events import EventWriter
from rl.experiment.artifacts import (
    BC_POLICY,
    PretrainedPolicy,
    RunRecord,
    load_pretrained,
    save_pretrained,
    save_run,
    settings_with_sources,
)
from rl.experiment.data import load_demonstrations, statistics_of_random_play
from rl.experiment.distill import distill_teacher, teacher_of
from rl.experiment.evaluator import DevTask, Evaluator, evaluator, play_dev_levels, stop_if
from rl.experiment.follower import Task, make_env
from rl.experiment.initial_agent import initial_agent_of, start_from
from rl.experiment.jobs import Job
from rl.experiment.plan import plan_of
from rl.policy import checkpoint
from rl.policy.policy import NppPolicy, build_policy
from rl.policy.weight_map import TransferReport, check_same_policy, transfer
from rl.ppo import make_ppo, training_state
from rl.ppo.callbacks import PPOCallback, profilers
from rl.ppo.digests import DigestTrail, read_trail
from rl.ppo.logs import BOARD, cut_events, write_settings
from rl.ppo.model_selection import Evaluate, Evaluation
from rl.ppo.monitor import TrainingMonitor
from rl.ppo.ppo import PHASES, PPO
from rl.ppo.recurrent import segment_length
from rl.ppo.vec_env import BatchVecEnv

UNFINISHED = f"pretrain/unfinished{checkpoint.SUFFIX}"
PROBE_ROWS = 512  # held-out decisions on which the transferred policy must act like the BC policy


@dataclass
class Training:
    """State of one training.

    plan: of all processes; own_plan: of this one.
    settings: of PPO, settled by the plan.  sources: the same and all others, with their sources, for run.json.
    teacher: checkpoint of the agent to distil, None without distillation.
    started: ``time.monotonic`` at the start.
    pretrained: result of ``imitate`` and ``distill``; None without imitation.
    agent, transfer, events, speed: results of ``ppo``.
    played, films: results of ``evaluate``: method -> episodes on the test levels, [] if it was not run.
    record: result of ``report``.
    """

    job: Job
    plan: hardware.Plan
    own_plan: hardware.Plan
    settings: PPOConfig
    sources: dict[str, dict]
    env: BatchVecEnv
    started: float
    teacher: Path | None = None
    pretrained: PretrainedPolicy | None = None
    agent: PPO = field(init=False)
    transfer: TransferReport | None = None
    events: list[dict] = field(default_factory=list)
    speed: dict = field(default_factory=dict)
    played: dict[str, list[EpisodeRecord]] = field(default_factory=dict)
    films: list[Film] = field(default_factory=list)
    record: RunRecord = field(init=False)


def run_stages(job: Job, last: str = "report") -> Training:
    """Run the stages up to ``last``, or what is left of them; return the state with their results."""
    training = prepare(job)
    for stage in STAGES:
        stage(training)
        if stage.__name__ == last:
            break
    return training


def prepare(job: Job) -> Training:
    """Plan a training, write its settings, make its environments, and check all that can be checked before training."""
    started = time.monotonic()
    job.folder.mkdir(parents=True, exist_ok=True)
    plan = plan_of(job)
    settings = job.config.ppo.settled(plan)
    sources = settings_with_sources(job.config, settings, plan)
    facts = {"label": job.label, "seed": job.seed, "pretrained": job.pretrained}
    write_json(job.folder / RUN_FILE, facts | {"settings": sources})
    write_settings(job.folder / BOARD, sources)
    own_plan = plan.of_each(job.ranks.size)
    if job.architecture.memory:
        segment_length(settings, own_plan)  # sizes that do not fit are refused before imitation, not after it
    env = make_env(job.config, job.data, job.architecture, own_plan, job.seed, job.ranks)
    training = Training(job, plan, own_plan, settings, sources, env, started)
    examine_before_training(training)
    training.teacher = teacher_of(job)
    return training


def examine_before_training(training: Training) -> None:
    """Check data and settings before training; provide what later checks need."""
    job = training.job
    if job.pretrained:
        job.doctor.provide(replays=job.config.replay_data_dir)
    else:
        absent = ("replays", "dataset", "statistics", "clone", "cloning", "probe")
        job.doctor.lack(**dict.fromkeys(absent, "no imitation in this run"))
    if not job.doctor.rehearses:  # a rehearsal is smaller, and has provided the full-size ones
        job.doctor.provide(full_config=job.config, full_plan=training.plan)
    job.doctor.provide(
        config=job.config,
        levels={"train": job.data.train, "dev": job.data.dev, "test": job.data.test},
        bank=job.data.bank,
        suites=job.suites.all(job.architecture),
        settings=training.settings,
        env=training.env,
        folder=job.folder,
    )
    job.doctor.examine(BEFORE)


# ---------------------------------------------------------------------------------------------------------------------
# Imitation and distillation


def imitate(training: Training) -> None:
    """Clone the demonstrations, unless that is done; their memory is free again afterwards."""
    job, plan = training.job, training.plan
    if not job.pretrained:
        return
    training.pretrained = load_pretrained(job.folder, plan.device, job.config.frame_skip)
    if training.pretrained is not None:
        job.log(f"imitation is done: {job.folder / BC_POLICY}")
        job.doctor.lack(dataset="imitation was done before the run was interrupted")
        job.doctor.provide(statistics=training.pretrained.statistics)
        return
    dataset = load_demonstrations(job.config, job.data, job.architecture.observations, job.seed, job.log)
    dataset = dataset.stacked(job.architecture.stacking)
    facts = {"key": dataset.key, "decisions": len(dataset)}
    write_json(job.folder / "pretrain" / DEMONSTRATIONS_FILE, facts)
    statistics = dataset.statistics()
    job.doctor.provide(statistics=statistics)
    job.doctor.examine(IMITATION, dataset=dataset)
    torch.manual_seed(job.seed)  # for the initial weights
    policy = build_policy(job.architecture.imitated.name, statistics, precision=plan.precision, device=plan.device)
    result, before = clone_behaviour(job, policy, dataset, ThreadPool(plan.torch_threads))
    job.log(result.table())
    probe = dataset.observe(dataset.rows(validation=True)[:PROBE_ROWS])
    training.pretrained = PretrainedPolicy(policy, statistics, result, probe, dataset.runs(), spent_before=before)
    save_pretrained(job.folder, training.pretrained, job.config.frame_skip, {"bc": asdict(job.config.bc)})
    (job.folder / UNFINISHED).unlink(missing_ok=True)


def clone_behaviour(job: Job, policy: NppPolicy, dataset: BCDataset, pool: ThreadPool) -> tuple[BCResult, float]:
    """Fit the policy to the demonstrations, from the last finished epoch; return the result and seconds spent before.

    The best weights so far are always in ``bc_best.safetensors``, the latest ones with the training state in
    ``unfinished.safetensors``.
    """
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
        job.log(f"imitation resumes after epoch {len(state['history'])}")
    cut_events(board, 0, epochs=len(state["history"]) if state else -1)
    with EventWriter(board) as writer:
        result = imitation.pretrain(
            policy,
            dataset,
            replace(job.config.bc, seed=job.seed),
            writer,
            hooks=imitation.Hooks(
                on_improvement=lambda _, epoch: save(job.folder / "pretrain" / "bc_best.safetensors", epoch),
                on_epoch=lambda state: save(unfinished, len(state["history"]), state),
            ),
            state=state,
            pool=pool,
            log=job.log,
        )
    return result, state["seconds"] if state else 0.0


def distill(training: Training) -> None:
    """Distil the teacher into the BC policy, if the experiment has one, unless that is done."""
    if training.pretrained is not None and training.teacher is not None:
        training.pretrained = distill_teacher(training.job, training.plan, training.pretrained, training.teacher)


# ---------------------------------------------------------------------------------------------------------------------
# PPO


def ppo(training: Training) -> None:
    """Train with PPO, from the newest checkpoint if there is one.

    A first Ctrl-C ends it after the update in progress, with a checkpoint; a second one immediately.  KeyboardInterrupt
    names the newest checkpoint.
    """
    job = training.job
    training.agent = make_agent(training)
    with (
        deferred_signals(lambda name: job.log(f"{name}: ends after this update, with a checkpoint")) as stop,
        remote_evaluator(training, stop) as remote,
    ):
        evaluate_dev = dev_evaluation(job, stop)
        monitor = TrainingMonitor(
            job.config, job.root, job.folder, evaluate_dev, job.uploader, job.log, stop=stop, remote=remote
        )
        job.ranks.stop = stop
        try:
            learn(job, training.agent, monitor)
        except KeyboardInterrupt as interruption:
            made = monitor.checkpoints.existing()
            newest = f"checkpoint: {made[-1]}" if made else "no update was finished"
            raise KeyboardInterrupt(*interruption.args, newest) from None
        save_agent(job, training.agent)
        stop_if(stop)
    training.events = monitor.events + training.agent.sampler.events
    training.speed = speed_of(training.agent)


def make_agent(training: Training) -> PPO:
    """Make PPO's agent, with the weights of the BC policy or of --init-from, here and in the other processes."""
    job, pretrained = training.job, training.pretrained
    initial = initial_agent_of(job.config, job.architecture, job.folder)
    source = pretrained or initial
    statistics = source.statistics if source else statistics_of_random_play(training.env, job.seed)
    agent = make_ppo(
        training.env,
        job.architecture.name,
        training.settings,
        training.own_plan,
        from_stage=job.config.hierarchy.from_stage,
        statistics=statistics,
        seed=job.seed,
        device=training.plan.device,
        ranks=job.ranks,
    )
    if pretrained:
        training.transfer = transfer_weights(job, pretrained, agent)
    if initial:
        training.transfer = start_from(initial, agent)
        job.log(f"PPO starts from {job.config.init_from}; {training.transfer}")
    job.ranks.release(
        Task(
            job.architecture.name,
            training.settings,
            training.own_plan,
            job.seed,
            job.data.fingerprints,
            statistics,
            agent.policy.state_dict(),
            None if agent.reference is None else agent.reference.state_dict(),
            add_start_states(job, pretrained, training.env),
        )
    )
    return agent


def transfer_weights(job: Job, pretrained: PretrainedPolicy, agent: PPO) -> TransferReport:
    """Copy the BC policy's weights to PPO's policy, check that both act the same, and set the KL penalty's reference.

    The reference is PPO's own policy at this moment; it may have parts, still without effect, that the BC policy lacks.
    """
    report = transfer(pretrained.policy.state_dict(), agent.policy, fresh=job.architecture.fresh)
    agreement = check_same_policy(pretrained.policy, agent.policy, pretrained.probe)
    count = len(next(iter(pretrained.probe.values())))
    job.log(f"{report}; {agreement:.0%} of greedy actions agree on {count} held-out decisions")
    agent.set_reference(agent.policy)
    job.doctor.provide(clone=pretrained.policy, cloning=pretrained.result, probe=pretrained.probe)
    return report


def add_start_states(job: Job, pretrained: PretrainedPolicy | None, env: BatchVecEnv) -> dict[str, np.ndarray]:
    """With --start-states, add the demonstrations of training levels to the curriculum; return them, else {}."""
    starts = env.sampler.starts
    if starts is None:
        return {}
    demonstrated = pretrained.runs if pretrained else {}
    levels = [level.fingerprint for level, _ in job.data.train if level.fingerprint in demonstrated]
    runs = {level: demonstrated[level] for level in levels}
    job.log(
        f"start states: demonstrations of {starts.add(runs)} of {len(job.data.train)} training levels, elsewhere the agent's "
        "own best runs"
    )
    return runs


def learn(job: Job, agent: PPO, monitor: TrainingMonitor) -> None:
    """Train from the newest checkpoint to the end, here and in the other processes; returns immediately if that is done."""
    finished = monitor.begin(agent, job.previous_checkpoint)
    if not agent.updates and not job.previous_checkpoint:
        check_lost_checkpoints(job)
    DevHistory(job.folder).cut(agent.num_timesteps)
    total = job.config.ppo.total_timesteps
    job.ranks.release(None if finished else total)
    if not finished:
        agent.learn(total, callback=callbacks_of(job, monitor))
        stop_if(monitor.stop)
        agent.logger.close()
        monitor.save_final()
    job.ranks.release(None)


def check_lost_checkpoints(job: Job) -> None:
    """For a run without a checkpoint: CheckpointError if one was written before, as the digest trail shows."""
    decisions = [row.get("decisions", 0) for row in read_trail(job.folder)]
    if len(decisions) < 2:  # no update was finished
        return
    changes = [entry["overrides"].get("save-freq", [0]) for entry in stored_facts(job.root)["resumed"]]
    longest = max([job.config.save_freq, *(before for before, *_ in changes)])
    if len(decisions) > 2 and decisions[-2] >= longest:  # one was written before the last update began
        raise checkpoint.CheckpointError(
            f"{job.folder}: the run had {decisions[-1]:,} decisions, but its checkpoints are missing: restore "
            f"{job.folder / 'checkpoints'}, or begin a new run"
        )
    job.log(f"PPO had {decisions[-1]:,} decisions and left no checkpoint: it starts from the beginning")


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
    """Return the function that plays the dev levels in this process; a stop request ends it."""
    suite = job.suites.periodic(job.architecture)
    history = DevHistory(job.folder)

    def play(policy: NppPolicy, decisions: int) -> Evaluation:
        found, wins = play_dev_levels(suite, policy, job.config.evaluation.deterministic, lambda _: stop_if(stop))
        history.add(decisions, wins)
        return found

    return play


@contextmanager
def remote_evaluator(training: Training, stop: StopRequest) -> Iterator[Evaluator | None]:
    """Process that plays the dev levels during training, with --remote-evaluation; else None."""
    job, plan = training.job, training.plan
    if not job.config.evaluation.remote:
        yield None
        return
    threads = plan.evaluator_threads or 1  # None where --resume-override added the evaluator
    task = DevTask(job.config, job.data.dev, job.architecture.name, plan.device, threads)
    with evaluator(task, job.folder, stop) as made:
        yield made


def save_agent(job: Job, agent: PPO) -> None:
    """Write the delivered policy as agent.safetensors and, without a memory, as an archive of Stable-Baselines3."""
    path = job.folder / "agent.safetensors"
    checkpoint.save(path, agent.policy, frame_skip=job.config.frame_skip, config=job.config.to_dict())
    if agent.policy.memory is None:
        training_state.save_sb3_zip(agent, job.folder / "final_model.zip")
    else:
        job.log(
            f"{job.architecture.name}: no final_model.zip, as PPO of Stable-Baselines3 carries no memory; the policy is in "
            "agent.safetensors"
        )


def speed_of(agent: PPO) -> dict:
    """Decisions and seconds of PPO; decisions per second, mean cores in use and share of each phase without evaluations."""
    seconds = max(agent.seconds, 1e-9)
    share = {part: agent.phase_seconds[part] / seconds for part in PHASES}
    rest = max(0.0, 1.0 - sum(share.values()))
    return {
        "decisions": agent.num_timesteps,
        "ppo_time_s": agent.elapsed_s,
        "decisions_per_s": agent.decisions_played / seconds,
        "cores_used": agent.cpu_seconds / seconds,
        "share": share | {"rest": rest},
    }


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation and report


def evaluate(training: Training) -> None:
    """Play the test levels once with each policy, and record films of PPO's episodes if requested.

    No other stage plays the test levels.
    """
    job, pretrained = training.job, training.pretrained
    evaluation, video = job.config.evaluation, job.config.video
    policies: dict[str, Policy | None] = {
        "random": RandomPolicy(),
        "bc": pretrained.policy if pretrained else None,
        "ppo": training.agent.policy,
    }
    training.played = {method: [] for method in policies}
    if not evaluation.skip_final_eval:
        suite = job.suites.final(job.architecture)
        for method, policy in policies.items():
            if policy:
                training.played[method] = suite.run(policy, deterministic=evaluation.deterministic)
    if video.record_eval_videos:
        training.films = record_evaluation(
            training.played["ppo"],
            job.folder,
            frame_skip=job.config.frame_skip,
            max_per_category=video.max_videos_per_category,
            fps=video.video_fps,
            ghost=video.ghost,
        )


def report(training: Training) -> None:
    """Store the record of the training; its file, finished.json, is the last one that a run writes."""
    job, pretrained, agent = training.job, training.pretrained, training.agent
    before = agent.elapsed_before_s + (pretrained.spent_before if pretrained else 0.0)
    training.record = RunRecord(
        job.architecture.name,
        job.pretrained,
        job.label,
        job.title,
        job.seed,
        job.folder,
        training.played,
        cloning=pretrained.result if pretrained else None,
        transfer=training.transfer,
        speed=training.speed,
        plan=training.plan,
        films=training.films,
        events=training.events,
        wall_time_s=time.monotonic() - training.started + before,
        curriculum=agent.sampler.summary(),
        settings=training.sources,
    )
    save_run(training.record)


STAGES = (imitate, distill, ppo, evaluate, report)
