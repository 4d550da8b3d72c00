"""One training as a sequence of stages.

    training = run_stages(setup)               # imitate -> distill -> ppo -> evaluate -> report
    run_stages(setup, last="imitate")          # up to this stage

Each stage is a function that adds its result to a ``Training`` and stores it in the run's folder.  A stage whose result is
stored loads it instead, so an interrupted training resumes.

All processes of a distributed training run these functions.  Only PPO uses several: rank 0 alone runs the other stages, and
writes all files.
"""

import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

import hardware
from bc import train as imitation
from bc.dataset import BCDataset
from bc.thread_pool import ThreadPool
from bc.train import BCResult
from nppsim.io.files import write_json
from nppsim.io.signals import deferred_signals
from nppsim.observe.statistics import ObservationStatistics
from rl.checks.check import BEFORE, IMITATION
from rl.checks.doctor import FirstUpdateChecks
from rl.config import PPOConfig
from rl.config.resume import DEMONSTRATIONS_FILE, RUN_FILE
from rl.evaluation.results import EpisodeRecord
from rl.evaluation.suite import Policy, RandomPolicy
from rl.evaluation.video import record_evaluation
from rl.events import open_events
from rl.experiment.data import load_demonstrations, runs_without_imitation, statistics_of_random_play
from rl.experiment.dev_evaluation import dev_evaluation, raise_if_stopped, remote_evaluator
from rl.experiment.distill import distill_teacher, load_teacher, teacher_of
from rl.experiment.plan import plan_of
from rl.experiment.record import (
    AGENT,
    BC_POLICY,
    PretrainedPolicy,
    RunRecord,
    load_pretrained,
    save_pretrained,
    save_run,
    settings_with_sources,
)
from rl.experiment.setup import TrainingSetup, fresh_tensors, initial_agent_of, make_env
from rl.log import warn
from rl.policy import checkpoint
from rl.policy.policy import NppPolicy, build_policy
from rl.policy.weight_map import check_same_policy, transfer
from rl.ppo import make_ppo
from rl.ppo.logs import TENSORBOARD_FOLDER, FunctionOutput, write_settings
from rl.ppo.ppo import PPO
from rl.ppo.variants.recurrent import segment_length
from rl.ppo.vec_env import BatchVecEnv
from rl.training import training_state
from rl.training.alarms import Audit
from rl.training.callbacks import profilers
from rl.training.digests import TRAIL_FILE, DigestTrail, read_trail
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
    started, ranks = time.monotonic(), setup.ranks
    if not ranks.rank:
        setup.folder.mkdir(parents=True, exist_ok=True)
    plan = ranks.broadcast(plan_of(setup) if not ranks.rank else None)
    torch.set_num_threads(1)  # threads for parts of a minibatch (``ThreadPool``) are faster than threads in operations
    settings = setup.config.ppo.settled(plan)
    sources = settings_with_sources(setup.config, settings, plan)
    if not ranks.rank:
        metadata = {"label": setup.label, "seed": setup.seed, "pretrained": setup.pretrained}
        write_json(setup.folder / RUN_FILE, metadata | {"settings": sources})
        write_settings(setup.folder / TENSORBOARD_FOLDER, sources)
    own_plan = plan.per_process(ranks.size)
    if setup.architecture.memory:
        segment_length(settings, own_plan)  # raises errors about rollout and segment lengths before imitation
    env = make_env(setup.config, setup.data, setup.architecture, own_plan, setup.seed)
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
    if not ranks.rank:
        check_before_training(training)
    for stage in STAGES:
        if not ranks.rank or stage is ppo:
            stage(training)
        if stage.__name__ == last:
            break
    return training


def check_before_training(training: Training) -> None:
    """Run the doctor's checks of data and settings, and give the doctor the objects that later checks need."""
    setup = training.setup
    if setup.pretrained:
        setup.doctor.add(replays=setup.config.replay_data_dir)
    else:
        absent = ("replays", "dataset", "bc_policy", "bc_result", "probe")
        setup.doctor.skip(**dict.fromkeys(absent, "no imitation in this run"))
        if setup.config.init_from is None:
            setup.doctor.skip(statistics="no imitation in this run")
    setup.doctor.add(
        config=setup.config,
        levels={"train": setup.data.train, "dev": setup.data.dev, "test": setup.data.test},
        bank=setup.data.bank,
        suites=setup.suites.all(),
        settings=training.settings,
        env=training.env,
        folder=setup.folder,
    )
    setup.doctor.run(BEFORE)


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
        setup.doctor.skip(dataset="imitation was done before the run was interrupted")
        setup.doctor.add(statistics=training.pretrained.policy.statistics)
        return
    network = setup.architecture
    dataset = load_demonstrations(
        setup.config, setup.data, network.observations, setup.seed, setup.log, network.foresight
    )
    dataset = dataset.stacked(network.stacking)
    write_json(setup.folder / "pretrain" / DEMONSTRATIONS_FILE, {"key": dataset.key, "decisions": len(dataset)})
    initial = initial_agent_of(setup)
    statistics = initial.statistics if initial else dataset.statistics()
    setup.doctor.add(statistics=statistics)
    setup.doctor.run(IMITATION, dataset=dataset)
    torch.manual_seed(setup.seed)  # for the initial weights
    policy = build_policy(setup.architecture.imitated.name, statistics, precision=plan.precision, device=plan.device)
    if initial:
        report = transfer(initial.state_dict(), policy)
        setup.log(f"imitation starts from {setup.config.init_from}; {report}")
    result, before = train_bc_policy(setup, policy, dataset, ThreadPool(plan.torch_threads))
    setup.log(result.table())
    probe = dataset.observe(dataset.rows(validation=True)[:PROBE_ROWS])
    training.pretrained = PretrainedPolicy(policy, result, probe, dataset.runs(), spent_before=before)
    save_pretrained(setup.folder, training.pretrained, setup.config.frame_skip, {"bc": asdict(setup.config.bc)})
    (setup.folder / UNFINISHED).unlink(missing_ok=True)


def train_bc_policy(
    setup: TrainingSetup, policy: NppPolicy, dataset: BCDataset, pool: ThreadPool
) -> tuple[BCResult, float]:
    """Fit the policy to the demonstrations, resuming after the last finished epoch.

    Writes the best weights so far to ``bc_best.safetensors``, and the state to resume from to ``unfinished.safetensors``.
    Returns the result of imitation, and the seconds spent in earlier, interrupted processes.
    """
    unfinished = setup.folder / UNFINISHED

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
    with open_events(setup.folder / TENSORBOARD_FOLDER) as writer:
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
    setup, path = training.setup, teacher_of(training.setup)
    if training.pretrained is not None and path is not None:
        teacher = load_teacher(path, setup.config.frame_skip).to(training.plan.device)
        training.pretrained = distill_teacher(setup, training.plan, training.pretrained, teacher)


# ---------------------------------------------------------------------------------------------------------------------
# PPO


def ppo(training: Training) -> None:
    """Train with PPO, resuming from the newest checkpoint.

    The first Ctrl-C ends training after the current update, with a checkpoint; a second Ctrl-C ends it immediately.  The
    KeyboardInterrupt names the newest checkpoint.
    """
    setup, ranks = training.setup, training.setup.ranks
    training.agent = agent = make_agent(training)
    with deferred_signals(
        lambda name: setup.log(f"{name}: training ends after this update, with a checkpoint")
    ) as stop:
        ranks.stop = stop
        with remote_evaluator(setup, training.plan, stop) if not ranks.rank else nullcontext() as remote:
            evaluate = dev_evaluation(setup, stop)
            monitor = TrainingMonitor(
                setup.config, setup.root, setup.folder, evaluate, setup.uploader, setup.log, stop=stop, remote=remote
            )
            try:
                learn(setup, agent, monitor)
            except KeyboardInterrupt as interruption:
                made = monitor.checkpoints.existing()
                newest = f"checkpoint: {made[-1]}" if made else "no update was finished"
                raise KeyboardInterrupt(*interruption.args, newest) from None
        if not ranks.rank:
            save_agent(setup, agent)
        raise_if_stopped(stop)
    events, summary = monitor.events + agent.sampler.events, agent.sampler.summary()
    training.add(events=events, curriculum=summary, speed=agent.speed())


def save_agent(setup: TrainingSetup, agent: PPO) -> None:
    """Write the resulting policy, also as an archive for Stable-Baselines3."""
    checkpoint.save(
        setup.folder / AGENT, agent.policy, frame_skip=setup.config.frame_skip, config=setup.config.to_dict()
    )
    if agent.policy.memory is None:
        training_state.save_sb3_zip(agent, setup.folder / "final_model.zip")
    else:
        name = setup.architecture.name
        setup.log(f"{name}: no final_model.zip, as PPO of Stable-Baselines3 has no recurrent policies")


@dataclass(frozen=True)
class _InitialState:
    """State with which PPO begins, as sent by rank 0 to the other processes.

    statistics: of the policy's normaliser.
    weights: of the policy.
    has_reference: True if the policy is also the reference of the KL penalty.
    runs: level fingerprint -> actions int8[n] of a demonstration, whose states serve as start states.
    """

    statistics: ObservationStatistics
    weights: dict[str, torch.Tensor]
    has_reference: bool
    runs: dict[str, np.ndarray]


def make_agent(training: Training) -> PPO:
    """Make PPO's agent; its initial weights are random, or those of the BC policy or of --init-from.

    Initial weights are also the reference of the KL penalty.
    """
    setup, ranks = training.setup, training.setup.ranks
    if not ranks.rank:
        agent, start = _make_first_agent(training)
        ranks.broadcast(start)
    else:
        start = ranks.broadcast(None)
        agent = _make_ppo(training, start.statistics)
        agent.policy.load_state_dict(start.weights)
    if start.has_reference:
        agent.set_reference(agent.policy)
    if (starts := training.env.sampler.starts) is not None:
        count = f"{starts.add(start.runs)} of {len(setup.data.train)} training levels"
        setup.log(f"start states: demonstrations of {count}, the agent's best runs on the others")
    return agent


def _make_ppo(training: Training, statistics: ObservationStatistics) -> PPO:
    setup = training.setup
    return make_ppo(
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


def _make_first_agent(training: Training) -> tuple[PPO, _InitialState]:
    """Make the agent of rank 0; return it and the state with which all processes begin."""
    setup, pretrained = training.setup, training.pretrained
    initial = None if pretrained else initial_agent_of(setup)
    source = pretrained.policy if pretrained else initial
    statistics = source.statistics if source else None
    if statistics is None:
        statistics = statistics_of_random_play(training.env, setup.seed)
    agent = _make_ppo(training, statistics)
    if source:
        fresh = fresh_tensors(source, setup.architecture)
        training.add(transfer=transfer(source.state_dict(), agent.policy, fresh=fresh))
    if pretrained:
        agreement = check_same_policy(pretrained.policy, agent.policy, pretrained.probe)
        setup.log(
            f"{training.record.transfer}; {agreement:.0%} of greedy actions agree with the BC policy on held-out decisions"
        )
        setup.doctor.add(bc_policy=pretrained.policy, bc_result=pretrained.result, probe=pretrained.probe)
    if initial:
        setup.doctor.add(statistics=statistics)
        setup.log(f"PPO starts from {setup.config.init_from}; {training.record.transfer}")
    runs: dict[str, np.ndarray] = {}
    if training.env.sampler.starts is not None:
        planned = pretrained.runs if pretrained else runs_without_imitation(setup.config, setup.data, setup.log)
        levels = [level.fingerprint for level, _ in setup.data.train if level.fingerprint in planned]
        runs = {level: planned[level] for level in levels}
    return agent, _InitialState(statistics, agent.policy.state_dict(), source is not None, runs)


def learn(setup: TrainingSetup, agent: PPO, monitor: TrainingMonitor) -> None:
    """Train in all processes, from the newest checkpoint to the end; return immediately if training is finished."""
    finished = monitor.begin(agent, setup.previous_checkpoint)
    callbacks: list[BaseCallback] = []
    if not setup.ranks.rank:
        check_digests(setup, agent)
    if not setup.ranks.rank and not finished:
        if setup.on_metrics is not None:
            agent.logger.output_formats.append(FunctionOutput(setup.on_metrics))
        callbacks = [*profilers(setup.config.profiling, setup.folder), DigestTrail(setup.folder), *setup.callbacks]
        if setup.config.audit != "off":
            callbacks.append(Audit(setup.config.audit, setup.folder, monitor.warn, setup.config.silence))
        if setup.doctor.trial:
            callbacks.append(FirstUpdateChecks(setup.doctor))
    if not finished:
        total = setup.config.ppo.total_timesteps
        try:
            agent.learn(total - agent.num_timesteps, callback=[*callbacks, monitor], reset_num_timesteps=False)
        finally:
            agent.logger.close()
        setup.ranks.share_stop(monitor.stop)
        raise_if_stopped(monitor.stop)
        monitor.save(monitor.checkpoints.final)


def check_digests(setup: TrainingSetup, agent: PPO) -> None:
    """Raise CheckpointError if the run's checkpoints were removed; log a warning if its digests were."""
    if not agent.updates and not setup.previous_checkpoint:
        check_lost_checkpoints(setup)
    if agent.updates and not (setup.folder / TRAIL_FILE).is_file():
        warn(
            setup.log,
            f"{setup.folder / TRAIL_FILE} is missing: the state of update {agent.updates} is not verified, and "
            "compare_runs.py cannot compare the updates before it; restore the file to keep both",
        )


def check_lost_checkpoints(setup: TrainingSetup) -> None:
    """Raise CheckpointError if a run's checkpoints were removed.

    The run has no checkpoint, but its digests (``rl.training.digests``) record enough decisions to have written one.
    """
    decisions = [row.get("decisions", 0) for row in read_trail(setup.folder)]
    if len(decisions) < 2:  # no update was finished
        return
    changes = [entry["overrides"].get("save-freq", [0]) for entry in setup.resumed]
    longest = max([setup.config.save_freq, *(before for before, *_ in changes)])
    if len(decisions) > 2 and decisions[-2] >= longest:  # a checkpoint was written before the last update
        problem = f"{setup.folder}: checkpoints of {decisions[-1]:,} decisions are missing"
        raise checkpoint.CheckpointError(f"{problem}; restore {setup.folder / 'checkpoints'}, or begin a new run")
    setup.log(f"PPO left no checkpoint of its first {decisions[-1]:,} decisions: it starts from the beginning")


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation and report


def evaluate(training: Training) -> None:
    """Evaluate random play, the policies of all stages on the test levels, and record films of PPO's episodes.

    No other stage plays the test levels.  With --num-train-levels, the resulting policy also plays training levels.
    """
    setup, pretrained = training.setup, training.pretrained
    evaluation = setup.config.evaluation
    imitated = load_pretrained(setup.folder, training.plan.device, setup.config.frame_skip) if pretrained else None
    policies: dict[str, Policy | None] = {
        "random": RandomPolicy(),
        "bc": imitated.policy if imitated else None,
        "distilled": pretrained.policy if pretrained and pretrained.distillation_s else None,
        "ppo": training.agent.policy,
    }
    played: dict[str, list[EpisodeRecord]] = {method: [] for method in policies}
    if not evaluation.skip_final_eval:
        suite = setup.suites.final
        for method, policy in policies.items():
            if policy:
                played[method] = suite.run(policy, deterministic=evaluation.deterministic)
    if setup.config.num_train_levels is not None and not evaluation.skip_final_eval:
        own = setup.suites.train.run(training.agent.policy, deterministic=evaluation.deterministic)
        training.add(train_success=sum(episode.won for episode in own) / len(own))
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
