"""One training as a sequence of stages.

    training = run_stages(setup)               # imitate -> distill -> ppo -> evaluate -> report
    run_stages(setup, last="imitate")          # up to this stage

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
from rl.checks.doctor import BEFORE, IMITATION
from rl.checks.learning import ExamineFirstUpdate
from rl.config import PPOConfig
from rl.config.resume import DEMONSTRATIONS_FILE, RUN_FILE, stored_metadata
from rl.evaluation.results import EpisodeRecord
from rl.evaluation.suite import Policy, RandomPolicy
from rl.evaluation.video import record_evaluation
from rl.events import EventWriter
from rl.experiment.data import load_demonstrations, runs_without_imitation, statistics_of_random_play
from rl.experiment.dev_evaluation import dev_evaluation, remote_evaluator, stop_if
from rl.experiment.distill import distill_teacher, teacher_of
from rl.experiment.follower import Task, make_env
from rl.experiment.initial_agent import fresh_tensors, initial_agent_of
from rl.experiment.plan import plan_of
from rl.experiment.record import (
    BC_POLICY,
    PretrainedPolicy,
    RunRecord,
    load_pretrained,
    save_pretrained,
    save_run,
    settings_with_sources,
)
from rl.experiment.setup import TrainingSetup
from rl.policy import checkpoint
from rl.policy.policy import NppPolicy, build_policy
from rl.policy.weight_map import check_same_policy, transfer
from rl.ppo import make_ppo
from rl.ppo.logs import BOARD, FunctionOutput, cut_events, write_settings
from rl.ppo.ppo import PPO
from rl.ppo.variants.recurrent import segment_length
from rl.ppo.vec_env import BatchVecEnv
from rl.training import training_state
from rl.training.alarms import Audit
from rl.training.callbacks import profilers
from rl.training.digests import DigestTrail, read_trail
from rl.training.monitor import TrainingMonitor

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

    setup: TrainingSetup
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


def run_stages(setup: TrainingSetup, last: str = "report") -> Training:
    """Plan a training, make its environments, and run or resume the stages up to ``last``; return their results."""
    started = time.monotonic()
    setup.folder.mkdir(parents=True, exist_ok=True)
    plan = plan_of(setup)
    settings = setup.config.ppo.settled(plan)
    sources = settings_with_sources(setup.config, settings, plan)
    metadata = {"label": setup.label, "seed": setup.seed, "pretrained": setup.pretrained}
    write_json(setup.folder / RUN_FILE, metadata | {"settings": sources})
    write_settings(setup.folder / BOARD, sources)
    own_plan = plan.of_each(setup.ranks.size)
    if setup.architecture.memory:
        segment_length(settings, own_plan)  # raises errors about rollout and segment lengths before imitation
    env = make_env(setup.config, setup.data, setup.architecture, own_plan, setup.seed, setup.ranks)
    record = RunRecord(
        setup.architecture.name,
        setup.pretrained,
        setup.label,
        setup.title,
        setup.seed,
        setup.folder,
        plan,
        settings=sources,
    )
    training = Training(setup, plan, own_plan, settings, env, started, record)
    examine_before_training(training)
    for stage in STAGES:
        stage(training)
        if stage.__name__ == last:
            break
    return training


def examine_before_training(training: Training) -> None:
    """Run the doctor's checks of data and settings, and give the doctor the objects that later checks need."""
    setup = training.setup
    if setup.pretrained:
        setup.doctor.provide(replays=setup.config.replay_data_dir)
    else:
        absent = ("replays", "dataset", "statistics", "bc_policy", "bc_result", "probe")
        setup.doctor.lack(**dict.fromkeys(absent, "no imitation in this run"))
    setup.doctor.provide(
        config=setup.config,
        levels={"train": setup.data.train, "dev": setup.data.dev, "test": setup.data.test},
        bank=setup.data.bank,
        suites=setup.suites.all(setup.architecture),
        settings=training.settings,
        env=training.env,
        folder=setup.folder,
    )
    setup.doctor.examine(BEFORE)


# ---------------------------------------------------------------------------------------------------------------------
# Imitation and distillation


def imitate(training: Training) -> None:
    """Train the BC policy, or load the stored one; do nothing in a run without imitation."""
    setup, plan = training.setup, training.plan
    if not setup.pretrained:
        return
    training.pretrained = load_pretrained(setup.folder, plan.device, setup.config.frame_skip)
    if training.pretrained is not None:
        setup.log(f"imitation is done: {setup.folder / BC_POLICY}")
        setup.doctor.lack(dataset="imitation was done before the run was interrupted")
        setup.doctor.provide(statistics=training.pretrained.policy.statistics)
        return
    dataset = load_demonstrations(setup.config, setup.data, setup.architecture.observations, setup.seed, setup.log)
    dataset = dataset.stacked(setup.architecture.stacking)
    write_json(setup.folder / "pretrain" / DEMONSTRATIONS_FILE, {"key": dataset.key, "decisions": len(dataset)})
    initial = initial_agent_of(setup.config, setup.architecture, setup.folder)
    statistics = initial.statistics if initial else dataset.statistics()
    setup.doctor.provide(statistics=statistics)
    setup.doctor.examine(IMITATION, dataset=dataset)
    torch.manual_seed(setup.seed)  # for the initial weights
    policy = build_policy(setup.architecture.imitated.name, statistics, precision=plan.precision, device=plan.device)
    if initial:
        report = transfer(initial.state_dict(), policy)
        setup.log(f"imitation starts from {setup.config.init_from}; {report}")
    result, before = clone_behaviour(setup, policy, dataset, ThreadPool(plan.torch_threads))
    setup.log(result.table())
    probe = dataset.observe(dataset.rows(validation=True)[:PROBE_ROWS])
    training.pretrained = PretrainedPolicy(policy, result, probe, dataset.runs(), spent_before=before)
    save_pretrained(setup.folder, training.pretrained, setup.config.frame_skip, {"bc": asdict(setup.config.bc)})
    (setup.folder / UNFINISHED).unlink(missing_ok=True)


def clone_behaviour(
    setup: TrainingSetup, policy: NppPolicy, dataset: BCDataset, pool: ThreadPool
) -> tuple[BCResult, float]:
    """Fit the policy to the demonstrations, resuming after the last finished epoch.

    Writes the best weights so far to ``bc_best.safetensors``, and the state to resume from to ``unfinished.safetensors``.
    Returns the result of imitation, and the seconds spent in earlier, interrupted processes.
    """
    unfinished, board = setup.folder / UNFINISHED, setup.folder / BOARD

    def save(path: Path, epoch: int, state: dict | None = None) -> None:
        config = {"bc": asdict(setup.config.bc), "epoch": epoch}
        checkpoint.save(path, policy, frame_skip=setup.config.frame_skip, config=config, training=state)

    state = None
    if unfinished.is_file():
        stored = checkpoint.load(unfinished)
        checkpoint.check_frame_skip(unfinished, stored, setup.config.frame_skip)
        policy.load_state_dict(stored["policy"])
        state = stored["training"]
        setup.log(f"imitation resumes after epoch {len(state['history'])}")
    cut_events(board, 0, epochs=len(state["history"]) if state else -1)
    with EventWriter(board) as writer:
        result = imitation.pretrain(
            policy,
            dataset,
            replace(setup.config.bc, seed=setup.seed),
            writer,
            hooks=imitation.Hooks(
                on_improvement=lambda _, epoch: save(setup.folder / "pretrain" / "bc_best.safetensors", epoch),
                on_epoch=lambda state: save(unfinished, len(state["history"]), state),
            ),
            state=state,
            pool=pool,
            log=setup.log,
        )
    return result, state["seconds"] if state else 0.0


def distill(training: Training) -> None:
    """Distil the teacher into the BC policy, or load the result; do nothing without a teacher."""
    teacher = teacher_of(training.setup)
    if training.pretrained is not None and teacher is not None:
        training.pretrained = distill_teacher(training.setup, training.plan, training.pretrained, teacher)


# ---------------------------------------------------------------------------------------------------------------------
# PPO


def ppo(training: Training) -> None:
    """Train with PPO, resuming from the newest checkpoint.

    The first Ctrl-C ends training after the current update, with a checkpoint; a second Ctrl-C ends it immediately.  The
    KeyboardInterrupt names the newest checkpoint.
    """
    setup = training.setup
    training.agent = agent = make_agent(training)
    with (
        deferred_signals(lambda name: setup.log(f"{name}: training ends after this update, with a checkpoint")) as stop,
        remote_evaluator(setup, training.plan, stop) as remote,
    ):
        evaluate_dev = dev_evaluation(setup, stop)
        monitor = TrainingMonitor(
            setup.config, setup.root, setup.folder, evaluate_dev, setup.uploader, setup.log, stop=stop, remote=remote
        )
        setup.ranks.stop = stop
        try:
            learn(setup, agent, monitor)
        except KeyboardInterrupt as interruption:
            made = monitor.checkpoints.existing()
            newest = f"checkpoint: {made[-1]}" if made else "no update was finished"
            raise KeyboardInterrupt(*interruption.args, newest) from None
        path = setup.folder / "agent.safetensors"
        checkpoint.save(path, agent.policy, frame_skip=setup.config.frame_skip, config=setup.config.to_dict())
        if agent.policy.memory is None:
            training_state.save_sb3_zip(agent, setup.folder / "final_model.zip")
        else:
            name = setup.architecture.name
            setup.log(f"{name}: no final_model.zip, as PPO of Stable-Baselines3 has no recurrent policies")
        stop_if(stop)
    events, summary = monitor.events + agent.sampler.events, agent.sampler.summary()
    training.add(events=events, curriculum=summary, speed=agent.speed())


def make_agent(training: Training) -> PPO:
    """Make PPO's agent in all processes; its initial weights are random, or those of the BC policy or of --init-from.

    Initial weights are also the reference of the KL penalty.
    """
    setup, pretrained = training.setup, training.pretrained
    initial = None if pretrained else initial_agent_of(setup.config, setup.architecture, setup.folder)
    source = pretrained.policy if pretrained else initial
    statistics = source.statistics if source else None
    if statistics is None:
        statistics = statistics_of_random_play(training.env, setup.seed)
    agent = make_ppo(
        training.env,
        setup.architecture.name,
        training.settings,
        training.own_plan,
        from_stage=setup.config.hierarchy.from_stage,
        statistics=statistics,
        seed=setup.seed,
        device=training.plan.device,
        ranks=setup.ranks,
    )
    if source:
        fresh = fresh_tensors(source, setup.architecture)
        training.add(transfer=transfer(source.state_dict(), agent.policy, fresh=fresh))
        agent.set_reference(agent.policy)
    if pretrained:
        agreement = check_same_policy(pretrained.policy, agent.policy, pretrained.probe)
        setup.log(
            f"{training.record.transfer}; {agreement:.0%} of greedy actions agree with the BC policy on held-out decisions"
        )
        setup.doctor.provide(bc_policy=pretrained.policy, bc_result=pretrained.result, probe=pretrained.probe)
    if initial:
        setup.log(f"PPO starts from {setup.config.init_from}; {training.record.transfer}")
    demonstrated: dict[str, np.ndarray] = {}  # runs along which --start-states lets episodes begin
    if (starts := training.env.sampler.starts) is not None:
        runs = pretrained.runs if pretrained else runs_without_imitation(setup.config, setup.data, setup.log)
        levels = [level.fingerprint for level, _ in setup.data.train if level.fingerprint in runs]
        demonstrated = {level: runs[level] for level in levels}
        count = f"{starts.add(demonstrated)} of {len(setup.data.train)} training levels"
        setup.log(f"start states: demonstrations of {count}, the agent's best runs on the others")
    setup.ranks.release(
        Task(
            setup.architecture.name,
            training.settings,
            training.own_plan,
            setup.seed,
            setup.data.fingerprints,
            statistics,
            agent.policy.state_dict(),
            None if agent.reference is None else agent.reference.state_dict(),
            demonstrated,
        )
    )
    return agent


def learn(setup: TrainingSetup, agent: PPO, monitor: TrainingMonitor) -> None:
    """Train in all processes, from the newest checkpoint to the end; return immediately if training is finished."""
    finished = monitor.begin(agent, setup.previous_checkpoint)
    if setup.on_metrics is not None:
        agent.logger.output_formats.append(FunctionOutput(setup.on_metrics))
    if not agent.updates and not setup.previous_checkpoint:
        check_lost_checkpoints(setup)
    total = setup.config.ppo.total_timesteps
    setup.ranks.release(None if finished else total)
    if not finished:
        callbacks = [*profilers(setup.config.profiling, setup.folder), DigestTrail(setup.folder)]
        if setup.config.audit != "off":
            callbacks.append(Audit(setup.config.audit, setup.folder, monitor.warn, setup.config.silence))
        if setup.doctor.rehearses:
            callbacks.append(ExamineFirstUpdate(setup.doctor))
        agent.learn(total - agent.num_timesteps, callback=[*callbacks, monitor], reset_num_timesteps=False)
        stop_if(monitor.stop)
        agent.logger.close()
        monitor.save(monitor.checkpoints.final)
    setup.ranks.release(None)


def check_lost_checkpoints(setup: TrainingSetup) -> None:
    """Raise CheckpointError if a run's checkpoints were removed.

    The run has no checkpoint, but its digests (``rl.training.digests``) record enough decisions to have written one.
    """
    decisions = [row.get("decisions", 0) for row in read_trail(setup.folder)]
    if len(decisions) < 2:  # no update was finished
        return
    changes = [entry["overrides"].get("save-freq", [0]) for entry in stored_metadata(setup.root)["resumed"]]
    longest = max([setup.config.save_freq, *(before for before, *_ in changes)])
    if len(decisions) > 2 and decisions[-2] >= longest:  # a checkpoint was written before the last update
        problem = f"{setup.folder}: checkpoints of {decisions[-1]:,} decisions are missing"
        raise checkpoint.CheckpointError(f"{problem}; restore {setup.folder / 'checkpoints'}, or begin a new run")
    setup.log(f"PPO left no checkpoint of its first {decisions[-1]:,} decisions: it starts from the beginning")


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation and report


def evaluate(training: Training) -> None:
    """Evaluate random play, the BC policy and PPO's policy on the test levels, and record films of PPO's episodes.

    No other stage plays the test levels.
    """
    setup, pretrained = training.setup, training.pretrained
    evaluation = setup.config.evaluation
    policies: dict[str, Policy | None] = {
        "random": RandomPolicy(),
        "bc": pretrained.policy if pretrained else None,
        "ppo": training.agent.policy,
    }
    played: dict[str, list[EpisodeRecord]] = {method: [] for method in policies}
    if not evaluation.skip_final_eval:
        suite = setup.suites.final(setup.architecture)
        for method, policy in policies.items():
            if policy:
                played[method] = suite.run(policy, deterministic=evaluation.deterministic)
    films = record_evaluation(played["ppo"], setup.folder, setup.config.video, frame_skip=setup.config.frame_skip)
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
