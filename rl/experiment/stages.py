"""One training as a sequence of stages.

    training = run_stages(job)               # imitate -> distill -> ppo -> evaluate -> report
    run_stages(job, last="imitate")          # up to this stage

Each stage is a function that adds its result to a ``Training`` and stores it in the run's folder.  A stage whose result is
stored loads it instead, so an interrupted training resumes.
"""

import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hardware
from bc import train as imitation
from bc.dataset import BCDataset
from bc.train import BCResult
from hardware.thread_pool import ThreadPool
from nppsim.io.files import write_json
from nppsim.io.signals import deferred_signals
from rl.checks.check import BEFORE, IMITATION
from rl.checks.doctor import FirstUpdateChecks
from rl.config import PPOConfig
from rl.config.resume import stored_metadata
from rl.evaluation.results import EpisodeRecord
from rl.evaluation.suite import Policy, RandomPolicy
from rl.evaluation.video import record_evaluation
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
from rl.experiment.data import load_demonstrations, runs_without_imitation, statistics_of_random_play
from rl.experiment.distill import distill_teacher, teacher_of
from rl.experiment.evaluator import dev_evaluation, remote_evaluator, stop_if
from rl.experiment.follower import Task, make_env
from rl.experiment.initial_agent import fresh_tensors, initial_agent_of
from rl.experiment.jobs import Job
from rl.experiment.plan import plan_of
from rl.policy import checkpoint
from rl.policy.policy import NppPolicy, build_policy
from rl.policy.weight_map import check_same_policy, transfer
from rl.ppo import make_ppo
from rl.ppo.logs import BOARD, FunctionOutput, cut_events, speed, write_settings
from rl.ppo.ppo import PPO
from rl.ppo.variants.recurrent import segment_length
from rl.ppo.vec_env import BatchVecEnv
from rl.training import training_state
from rl.training.alarms import Audit
from rl.training.callbacks import profilers
from rl.training.digests import DigestTrail, read_trail
from rl.training.monitor import TrainingMonitor
from rl.training.runs import DEMONSTRATIONS_FILE, RUN_FILE

UNFINISHED = f"pretrain/unfinished{checkpoint.SUFFIX}"
PROBE_ROWS = 512  # number of held-out demonstrated decisions on which the BC policy and PPO's initial policy must agree


@dataclass
class Training:
    """State of one training.

    plan: hardware plan for all processes together (number of environments, rollout length, ...).
    own_plan: this process's share of the hardware plan.
    settings: PPO settings, with values from the hardware plan instead of None.
    started: ``time.monotonic`` at the start.
    record: content of finished.json, with the results of the stages so far.
    pretrained: result of ``imitate`` and ``distill``; None without imitation.
    agent: result of ``ppo``.
    """

    job: Job
    plan: hardware.Plan
    own_plan: hardware.Plan
    settings: PPOConfig
    env: BatchVecEnv
    started: float
    record: RunRecord
    pretrained: PretrainedPolicy | None = None
    agent: PPO = field(init=False)

    def add(self, **results: Any) -> None:
        """Add results of a stage to the record."""
        self.record = replace(self.record, **results)


def run_stages(job: Job, last: str = "report") -> Training:
    """Plan a training, make its environments, and run or resume the stages up to ``last``; return their results."""
    started = time.monotonic()
    job.folder.mkdir(parents=True, exist_ok=True)
    plan = plan_of(job)
    settings = job.config.ppo.settled(plan)
    sources = settings_with_sources(job.config, settings, plan)
    metadata = {"label": job.label, "seed": job.seed, "pretrained": job.pretrained}
    write_json(job.folder / RUN_FILE, metadata | {"settings": sources})
    write_settings(job.folder / BOARD, sources)
    own_plan = plan.of_each(job.ranks.size)
    if job.architecture.memory:
        segment_length(settings, own_plan)  # raises errors about rollout and segment lengths before imitation
    env = make_env(job.config, job.data, job.architecture, own_plan, job.seed, job.ranks)
    record = RunRecord(
        job.architecture.name, job.pretrained, job.label, job.title, job.seed, job.folder, plan, settings=sources
    )
    training = Training(job, plan, own_plan, settings, env, started, record)
    check_before_training(training)
    for stage in STAGES:
        stage(training)
        if stage.__name__ == last:
            break
    return training


def check_before_training(training: Training) -> None:
    """Run the doctor's checks of data and settings, and give the doctor the objects that later checks need."""
    job = training.job
    if job.pretrained:
        job.doctor.add(replays=job.config.replay_data_dir)
    else:
        absent = ("replays", "dataset", "statistics", "bc_policy", "bc_result", "probe")
        job.doctor.skip(**dict.fromkeys(absent, "no imitation in this run"))
    job.doctor.add(
        config=job.config,
        levels={"train": job.data.train, "dev": job.data.dev, "test": job.data.test},
        bank=job.data.bank,
        suites=job.suites.all(job.architecture),
        settings=training.settings,
        env=training.env,
        folder=job.folder,
    )
    job.doctor.run(BEFORE)


# ---------------------------------------------------------------------------------------------------------------------
# Imitation and distillation


def imitate(training: Training) -> None:
    """Train the BC policy, or load the stored one; do nothing in a run without imitation."""
    job, plan = training.job, training.plan
    if not job.pretrained:
        return
    training.pretrained = load_pretrained(job.folder, plan.device, job.config.frame_skip)
    if training.pretrained is not None:
        job.log(f"imitation is done: {job.folder / BC_POLICY}")
        job.doctor.skip(dataset="imitation was done before the run was interrupted")
        job.doctor.add(statistics=training.pretrained.policy.statistics)
        return
    dataset = load_demonstrations(job.config, job.data, job.architecture.observations, job.seed, job.log)
    dataset = dataset.stacked(job.architecture.stacking)
    write_json(job.folder / "pretrain" / DEMONSTRATIONS_FILE, {"key": dataset.key, "decisions": len(dataset)})
    initial = initial_agent_of(job.config, job.architecture, job.folder)
    statistics = initial.statistics if initial else dataset.statistics()
    job.doctor.add(statistics=statistics)
    job.doctor.run(IMITATION, dataset=dataset)
    torch.manual_seed(job.seed)  # for the initial weights
    policy = build_policy(job.architecture.imitated.name, statistics, precision=plan.precision, device=plan.device)
    if initial:
        report = transfer(initial.state_dict(), policy)
        job.log(f"imitation starts from {job.config.init_from}; {report}")
    result, before = clone_behaviour(job, policy, dataset, ThreadPool(plan.torch_threads))
    job.log(result.table())
    probe = dataset.observe(dataset.rows(validation=True)[:PROBE_ROWS])
    training.pretrained = PretrainedPolicy(policy, result, probe, dataset.runs(), spent_before=before)
    save_pretrained(job.folder, training.pretrained, job.config.frame_skip, {"bc": asdict(job.config.bc)})
    (job.folder / UNFINISHED).unlink(missing_ok=True)


def clone_behaviour(job: Job, policy: NppPolicy, dataset: BCDataset, pool: ThreadPool) -> tuple[BCResult, float]:
    """Fit the policy to the demonstrations, resuming after the last finished epoch.

    Writes the best weights so far to ``bc_best.safetensors``, and the state to resume from to ``unfinished.safetensors``.
    Returns the result of imitation, and the seconds spent in earlier, interrupted processes.
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
    """Distil the teacher into the BC policy, or load the result; do nothing without a teacher."""
    teacher = teacher_of(training.job)
    if training.pretrained is not None and teacher is not None:
        training.pretrained = distill_teacher(training.job, training.plan, training.pretrained, teacher)


# ---------------------------------------------------------------------------------------------------------------------
# PPO


def ppo(training: Training) -> None:
    """Train with PPO, resuming from the newest checkpoint.

    The first Ctrl-C ends training after the current update, with a checkpoint; a second Ctrl-C ends it immediately.  The
    KeyboardInterrupt names the newest checkpoint.
    """
    job = training.job
    training.agent = agent = make_agent(training)
    with (
        deferred_signals(lambda name: job.log(f"{name}: training ends after this update, with a checkpoint")) as stop,
        remote_evaluator(job, training.plan, stop) as remote,
    ):
        evaluate_dev = dev_evaluation(job, stop)
        monitor = TrainingMonitor(
            job.config, job.root, job.folder, evaluate_dev, job.uploader, job.log, stop=stop, remote=remote
        )
        job.ranks.stop = stop
        try:
            learn(job, agent, monitor)
        except KeyboardInterrupt as interruption:
            made = monitor.checkpoints.existing()
            newest = f"checkpoint: {made[-1]}" if made else "no update was finished"
            raise KeyboardInterrupt(*interruption.args, newest) from None
        path = job.folder / "agent.safetensors"
        checkpoint.save(path, agent.policy, frame_skip=job.config.frame_skip, config=job.config.to_dict())
        if agent.policy.memory is None:
            training_state.save_sb3_zip(agent, job.folder / "final_model.zip")
        else:
            name = job.architecture.name
            job.log(f"{name}: no final_model.zip, as PPO of Stable-Baselines3 has no recurrent policies")
        stop_if(stop)
    events, summary = monitor.events + agent.sampler.events, agent.sampler.summary()
    training.add(events=events, curriculum=summary, speed=speed(agent))


def make_agent(training: Training) -> PPO:
    """Make PPO's agent in all processes; its initial weights are random, or those of the BC policy or of --init-from.

    Initial weights are also the reference of the KL penalty.
    """
    job, pretrained = training.job, training.pretrained
    initial = None if pretrained else initial_agent_of(job.config, job.architecture, job.folder)
    source = pretrained.policy if pretrained else initial
    statistics = source.statistics if source else None
    if statistics is None:
        statistics = statistics_of_random_play(training.env, job.seed)
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
    if source:
        fresh = fresh_tensors(source, job.architecture)
        training.add(transfer=transfer(source.state_dict(), agent.policy, fresh=fresh))
        agent.set_reference(agent.policy)
    if pretrained:
        agreement = check_same_policy(pretrained.policy, agent.policy, pretrained.probe)
        job.log(
            f"{training.record.transfer}; {agreement:.0%} of greedy actions agree with the BC policy on held-out decisions"
        )
        job.doctor.add(bc_policy=pretrained.policy, bc_result=pretrained.result, probe=pretrained.probe)
    if initial:
        job.log(f"PPO starts from {job.config.init_from}; {training.record.transfer}")
    demonstrated: dict[str, np.ndarray] = {}  # runs along which --start-states lets episodes begin
    if (starts := training.env.sampler.starts) is not None:
        runs = pretrained.runs if pretrained else runs_without_imitation(job.config, job.data, job.log)
        levels = [level.fingerprint for level, _ in job.data.train if level.fingerprint in runs]
        demonstrated = {level: runs[level] for level in levels}
        count = f"{starts.add(demonstrated)} of {len(job.data.train)} training levels"
        job.log(f"start states: demonstrations of {count}, the agent's best runs on the others")
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
            demonstrated,
        )
    )
    return agent


def learn(job: Job, agent: PPO, monitor: TrainingMonitor) -> None:
    """Train in all processes, from the newest checkpoint to the end; return immediately if training is finished."""
    finished = monitor.begin(agent, job.previous_checkpoint)
    if job.on_metrics is not None:
        agent.logger.output_formats.append(FunctionOutput(job.on_metrics))
    if not agent.updates and not job.previous_checkpoint:
        check_lost_checkpoints(job)
    total = job.config.ppo.total_timesteps
    job.ranks.release(None if finished else total)
    if not finished:
        callbacks = [*profilers(job.config.profiling, job.folder), DigestTrail(job.folder)]
        if job.config.audit != "off":
            callbacks.append(Audit(job.config.audit, job.folder, monitor.warn, job.config.silence))
        if job.doctor.trial:
            callbacks.append(FirstUpdateChecks(job.doctor))
        agent.learn(total, callback=[*callbacks, monitor])
        stop_if(monitor.stop)
        agent.logger.close()
        monitor.save(monitor.checkpoints.final)
    job.ranks.release(None)


def check_lost_checkpoints(job: Job) -> None:
    """Raise CheckpointError if a run's checkpoints were removed.

    The run has no checkpoint, but its digests (``rl.training.digests``) record enough decisions to have written one.
    """
    decisions = [row.get("decisions", 0) for row in read_trail(job.folder)]
    if len(decisions) < 2:  # no update was finished
        return
    changes = [entry["overrides"].get("save-freq", [0]) for entry in stored_metadata(job.root)["resumed"]]
    longest = max([job.config.save_freq, *(before for before, *_ in changes)])
    if len(decisions) > 2 and decisions[-2] >= longest:  # a checkpoint was written before the last update
        problem = f"{job.folder}: checkpoints of {decisions[-1]:,} decisions are missing"
        raise checkpoint.CheckpointError(f"{problem}; restore {job.folder / 'checkpoints'}, or begin a new run")
    job.log(f"PPO left no checkpoint of its first {decisions[-1]:,} decisions: it starts from the beginning")


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation and report


def evaluate(training: Training) -> None:
    """Evaluate random play, the BC policy and PPO's policy on the test levels, and record films of PPO's episodes.

    No other stage plays the test levels.
    """
    job, pretrained = training.job, training.pretrained
    evaluation = job.config.evaluation
    policies: dict[str, Policy | None] = {
        "random": RandomPolicy(),
        "bc": pretrained.policy if pretrained else None,
        "ppo": training.agent.policy,
    }
    played: dict[str, list[EpisodeRecord]] = {method: [] for method in policies}
    if not evaluation.skip_final_eval:
        suite = job.suites.final(job.architecture)
        for method, policy in policies.items():
            if policy:
                played[method] = suite.run(policy, deterministic=evaluation.deterministic)
    films = record_evaluation(played["ppo"], job.folder, job.config.video, frame_skip=job.config.frame_skip)
    training.add(played=played, films=films)


def report(training: Training) -> None:
    """Complete the record of the training, and store it in finished.json."""
    pretrained = training.pretrained
    before = training.agent.elapsed_before_s + (pretrained.spent_before if pretrained else 0.0)
    training.add(
        bc_result=pretrained.result if pretrained else None,
        wall_time_s=time.monotonic() - training.started + before,
    )
    save_run(training.record)


STAGES = (imitate, distill, ppo, evaluate, report)
