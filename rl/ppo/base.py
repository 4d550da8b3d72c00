"""Construction, state and public interface of a PPO training; ``rl.ppo.ppo`` adds rollouts and updates.

The interface is that of Stable-Baselines3's algorithms (``learn``, ``predict``, ``save``, ``load``, ``get_env``), so its
callbacks and loggers work.
"""

import copy
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback, ProgressBarCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.utils import get_device, safe_mean, set_random_seed

import hardware
from bc.thread_pool import ThreadPool
from hardware import Plan, PlanRequest
from nppsim.errors import ConfigError
from nppsim.observe.statistics import ObservationStatistics
from rl.config.ppo import PPOConfig
from rl.distributed.ranks import SINGLE_PROCESS, SingleProcess
from rl.policy import checkpoint
from rl.policy.checkpoint import CheckpointError
from rl.policy.policy import NppPolicy
from rl.ppo.losses import Losses
from rl.ppo.rollout_buffer import RolloutBuffer
from rl.ppo.vec_env import BatchVecEnv, desynchronize
from rl.seeds import spawn_seeds

PHASES = ("environment", "inference", "update")  # measured phases of training
EPISODE_WINDOW = 100  # number of latest episodes in the means of ``rollout/``
COUNTERS = (  # attributes that checkpoints store under their names
    *("updates", "actor_updates", "critic_only", "kl_penalty_scale", "kl_penalty_start"),
    *("seconds", "cpu_seconds", "decisions_played", "num_timesteps", "n_passes"),
)
MODEL = "model"  # key in a checkpoint's ``config``: arguments of the constructor, for ``load``
Callback = BaseCallback | list[BaseCallback] | Callable | None


class BasePPO:
    """Base class of PPO: everything except rollouts and updates.

    env: environments.
    architecture: name of an architecture.
    config: settings that ``PPOConfig.settled`` has returned.
    plan: hardware plan with sizes, precision and number of threads.
    statistics: statistics for the normaliser of the policy; None if weights with statistics are loaded afterwards.
    seed: seed of the training, the same in all processes.
    ranks: the processes that train together; each has its own environments, sampler and random generators.
    active_config: the settings with the changes of the curriculum's current stage.
    rollout_config: the active settings of the latest rollout.
    seconds: duration of all rollouts and updates.
    phase_seconds: duration of each of PHASES.
    stop_training: callbacks set it to True to end training before the next rollout.
    reserved_s: seconds of the time budget that are reserved for evaluations after training.
    Training raises DivergedError for losses or gradients that are not finite.
    """

    buffer_class: type[RolloutBuffer] = RolloutBuffer
    buffer_settings: Mapping[str, Any] = MappingProxyType({})  # additional arguments of the buffer

    def __init__(
        self,
        env: BatchVecEnv,
        architecture: str,
        config: PPOConfig,
        plan: Plan,
        *,
        statistics: ObservationStatistics | None,
        seed: int = 0,
        device: str | torch.device = "cpu",
        ranks: SingleProcess = SINGLE_PROCESS,
    ):
        if config.learning_rate is None or config.n_epochs is None:
            raise ValueError("config has no learning rate or number of epochs: pass config.settled(plan)")
        if env.sim.gamma != config.gamma:
            raise ValueError(f"the simulator shapes with gamma={env.sim.gamma}, PPO discounts with {config.gamma}")
        self.config, self.ranks, rate = config, ranks, float(config.learning_rate)
        self.env, self.sim, self.sampler = env, env.sim, env.sampler
        self.device = get_device(device)
        seeds = spawn_seeds(seed, 4, ranks.rank)  # of weights, levels, minibatches and actions
        set_random_seed(seeds[0], using_cuda=self.device.type == "cuda")
        env.seed(seeds[1])
        self.n_steps, self.batch_size, self.n_epochs = plan.rollout_length, plan.minibatch_size, config.n_epochs
        self.gamma, self.gae_lambda = config.gamma, config.gae_lambda
        self.rollout_buffer = self.buffer_class(
            self.n_steps,
            env.observation_space,
            env.action_space,
            device=self.device,
            n_envs=env.num_envs,
            stacking=env.sim.stacking,
            **self.buffer_settings,
        )
        self.rollout_buffer.all_gather = ranks.all_gather
        # ``rate`` is only the initial learning rate: each update sets the scheduled one.
        self.policy = NppPolicy(env.observation_space, architecture, statistics, plan.precision, rate).to(self.device)
        if env.sim.stacking != self.policy.stacking:
            raise ValueError(f"the simulator shows {env.sim.stacking}, {architecture} reads {self.policy.stacking}")
        if "foresight" in self.policy.observations and env.sim.foresight != self.policy.foresight:
            raise ValueError(f"the simulator shows {env.sim.foresight}, {architecture} reads {self.policy.foresight}")
        self.logger = Logger(None, [])
        self.rng = np.random.default_rng(seeds[2])
        self.action_rng = torch.Generator().manual_seed(seeds[3])
        self.pool = ThreadPool(plan.torch_threads)
        # Index of the level of each decision in the rollout; -1 in episodes that began at a start state.
        self._decided = np.zeros((self.n_steps, env.num_envs), np.int32)
        self._init_progress()
        self.active_config = self.rollout_config = config
        self.apply_stage_settings()

    def _init_progress(self) -> None:
        """Initialise the attributes that training changes."""
        self.num_timesteps = 0
        self._total_timesteps = self.config.total_timesteps  # num_timesteps at the end of ``learn``
        self.updates = 0
        self.actor_updates = 0  # number of updates that changed the actor
        self.n_passes = 0  # number of passes over rollouts
        self.reference: NppPolicy | None = None  # reference policy of the KL penalty
        self.kl_penalty_scale = 1.0  # factor of the coefficient in the settings
        self.kl_penalty_start = 0.0  # progress at which the schedule of the penalty began
        self.critic_only = False  # True if the next update leaves the actor unchanged
        self.explained_variance = math.nan  # explained variance in the latest rollout
        self.losses: list[Losses[float]] = []  # losses of each step of the latest update
        self.episode_returns: deque[float] = deque(maxlen=EPISODE_WINDOW)
        self.episode_lengths: deque[int] = deque(maxlen=EPISODE_WINDOW)
        self.episode_wins: deque[bool] = deque(maxlen=EPISODE_WINDOW)
        # Episodes of all processes that ended in the latest rollout, without those from start states.
        self.counted_episodes = np.empty(0, self.sim.episode.dtype)
        self.decisions_played = 0
        self.seconds = self.cpu_seconds = 0.0  # wall time and CPU time of rollouts and updates
        self.phase_seconds = dict.fromkeys(PHASES, 0.0)
        self.stop_training = self.started = False
        self.reserved_s = self.elapsed_before_s = 0.0
        self._began = math.nan  # time.perf_counter() when ``learn`` began

    # Training

    def learn(
        self,
        total_timesteps: int,
        callback: Callback = None,
        *,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train for ``total_timesteps`` decisions of all processes together, or until a callback ends training.

        callback: callback of Stable-Baselines3, a list of callbacks, or a function of (locals, globals).  The locals of a
            step are "actions", "rewards" and "dones", arrays [N].
        reset_num_timesteps: True to count decisions and time from 0, so that schedules begin again, with new episodes.
            False to continue: the schedules then end after the decisions so far plus ``total_timesteps``.
        progress_bar: True to show a progress bar.
        """
        total_timesteps, callback = self._setup_learn(total_timesteps, callback, reset_num_timesteps, progress_bar)
        callback.on_training_start(locals(), globals())
        while self.num_timesteps < total_timesteps and self.collect_rollouts(callback):
            self.dump_logs()
            self.update()
        callback.on_training_end()
        return self

    def collect_rollouts(self, callback: BaseCallback) -> bool:
        """Fill the buffer; return False if training must end."""
        raise NotImplementedError

    def update(self) -> None:
        """Train on the rollout in the buffer."""
        raise NotImplementedError

    def _setup_learn(
        self, total_timesteps: int, callback: Callback, reset_num_timesteps: bool = True, progress_bar: bool = False
    ) -> tuple[int, BaseCallback]:
        """Start the clock, and new episodes if necessary; return ``num_timesteps`` at the end, and one callback."""
        if reset_num_timesteps and self.num_timesteps:
            self.num_timesteps, self.kl_penalty_start, self.elapsed_before_s = 0, 0.0, 0.0
            self.started = False
            for window in (self.episode_returns, self.episode_lengths, self.episode_wins):
                window.clear()
        elif not math.isnan(self._began):
            self.elapsed_before_s = self.elapsed_s
        self._total_timesteps = total_timesteps + self.num_timesteps
        self._began = time.perf_counter()
        if isinstance(callback, list):
            callback = CallbackList(callback)
        if not isinstance(callback, BaseCallback):
            callback = ConvertCallback(callback)
        if progress_bar:
            callback = CallbackList([callback, ProgressBarCallback()])
        callback.init_callback(self)  # type: ignore[arg-type]  # no subclass of BaseAlgorithm
        if not self.started:
            self.env.reset()
            if self.config.desync_episodes:
                desynchronize(self.sim, self.rng)
                self.sampler.sync_episodes(self.sim)
            self.started = True
        return self._total_timesteps, callback

    @property
    def progress(self) -> float:
        """Progress of ``learn``, 0 to 1: by decisions or by the time budget, whichever is larger."""
        done = self.num_timesteps / self._total_timesteps
        if self.config.time_budget_minutes:
            budget = 60 * self.config.time_budget_minutes - self.reserved_s
            done = max(done, self.elapsed_s / budget if budget > 0 else 1.0)
        return min(done, 1.0)

    @property
    def elapsed_s(self) -> float:
        """Seconds of training with evaluations and checkpoints, without the time of interruptions."""
        return self.elapsed_before_s + (0.0 if math.isnan(self._began) else time.perf_counter() - self._began)

    def _clocks(self) -> tuple[float, float]:
        """Return wall time and CPU time of the process in seconds."""
        return time.perf_counter(), time.process_time()

    def _count_time(self, begin: tuple[float, float]) -> float:
        """Add the time since ``begin``, a result of ``_clocks``, to the totals; return the wall time in seconds."""
        seconds, cpu_seconds = (now - then for now, then in zip(self._clocks(), begin, strict=True))
        self.seconds += seconds
        self.cpu_seconds += cpu_seconds
        return seconds

    def record(self, metrics: Mapping[str, float]) -> None:
        """Record metrics by tag, for the next ``dump_logs``."""
        for tag, value in metrics.items():
            self.logger.record(tag, value)

    def dump_logs(self) -> None:
        """Write all recorded metrics, with means over the latest episodes and the speed of training."""
        record, elapsed = self.logger.record, max(self.elapsed_s, 1e-9)
        record("time/iterations", self.updates + 1, exclude="tensorboard")
        if self.episode_returns:
            record("rollout/ep_rew_mean", safe_mean(self.episode_returns))
            record("rollout/ep_len_mean", safe_mean(self.episode_lengths))
            record("rollout/success_rate", safe_mean(self.episode_wins))
        record("time/fps", int(self.num_timesteps / elapsed))
        record("time/time_elapsed", int(elapsed), exclude="tensorboard")
        record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(step=self.num_timesteps)

    def speed(self) -> dict[str, Any]:
        """Return the content of "speed" in results.json; rates and shares of time exclude evaluations."""
        seconds = max(self.seconds, 1e-9)
        share = {phase: spent / seconds for phase, spent in self.phase_seconds.items()}
        return {
            "decisions": self.num_timesteps,
            "ppo_time_s": self.elapsed_s,
            "decisions_per_s": self.decisions_played / seconds,
            "cores_used": self.cpu_seconds / seconds,
            "share": share | {"rest": max(0.0, 1.0 - sum(share.values()))},
        }

    def apply_stage_settings(self) -> None:
        """Apply the settings of the curriculum's current stage; its discount also applies to reward shaping."""
        before = self.active_config.gamma
        changes: dict[str, Any] = self.sampler.config.changes_in(self.sampler.stage)
        self.active_config = replace(self.config, **changes)
        if self.active_config.gamma != before:
            self.gamma = self.sim.gamma = self.active_config.gamma

    # Interface for callbacks and evaluations

    def get_env(self) -> BatchVecEnv:
        """Return the environments."""
        return self.env

    def get_vec_normalize_env(self) -> None:
        """Return None, as the policy normalises its inputs itself."""
        return None

    def predict(
        self,
        observation: dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """Return actions and recurrent states, see ``NppPolicy.predict``."""
        return self.policy.predict(observation, state, episode_start, deterministic)

    # Reference policy

    def set_reference(self, policy: NppPolicy) -> None:
        """Set the BC policy: first train the critic alone until it explains the returns, then add the KL penalty."""
        self.reference = copy.deepcopy(policy).requires_grad_(False)
        self.critic_only = True

    def increase_kl_penalty(self) -> None:
        """Double the KL penalty, make the current policy its reference, and restart its schedule."""
        self.reference = copy.deepcopy(self.policy).requires_grad_(False)
        self.kl_penalty_scale *= 2
        self.kl_penalty_start = self.progress

    # Checkpoints

    def save(self, path: str | os.PathLike) -> None:
        """Write a checkpoint for ``load`` and ``rl.policy.checkpoint.load_policy``.  A path without suffix gets one."""
        path = Path(path)
        plan = {
            "num_envs": self.env.num_envs,
            "rollout_length": self.n_steps,
            "minibatch_size": self.batch_size,
            "torch_threads": self.pool.threads,
            "precision": self.policy.precision,
        }
        checkpoint.save(
            path if path.suffix else path.with_suffix(checkpoint.SUFFIX),
            self.policy,
            frame_skip=self.sim.frame_skip,
            config={MODEL: {"settings": asdict(self.config), "plan": plan}},
            training=self.training_state(),
        )

    @classmethod
    def load(cls, path: str | os.PathLike, env: BatchVecEnv, device: str = "cpu", **keywords: Any) -> Self:
        """Restore a training that ``save`` has stored; on a CPU, it continues bit for bit.

        env: environments like those of the stored training.
        keywords: other arguments of the constructor.
        Raises CheckpointError for a file that ``save`` has not written, and ConfigError for other environments.
        """
        path = Path(path)
        data = checkpoint.load(path)
        stored, training = data["config"].get(MODEL), data["training"]
        if stored is None or training is None:
            raise CheckpointError(f"{path}: PPO.save() has not written it; use rl.policy.checkpoint.load_policy()")
        checkpoint.check_frame_skip(path, data, env.sim.frame_skip)
        plan = hardware.plan(env.sim.keys, PlanRequest(**stored["plan"], device=device))
        config = PPOConfig(**stored["settings"])
        ppo = cls(env, data["architecture"], config, plan, statistics=None, device=device, **keywords)
        ppo.load_training_state(data["policy"], training)
        return ppo

    def restore(self, policy_state: Mapping[str, Any], optimizer_state: Mapping[str, Any], actor_updates: int) -> None:
        """Load weights and optimiser state of an earlier update.  actor_updates: value of this attribute at that update."""
        self.policy.load_state_dict(policy_state)
        # A copy, as the optimiser would change the tensors of the argument.
        self.policy.optimizer.load_state_dict(copy.deepcopy(dict(optimizer_state)))
        self.actor_updates = actor_updates

    def process_state(self) -> dict[str, Any]:
        """Return the state that differs between processes: environments, curriculum and random generators."""
        return {
            **self.extra_state(),
            "environments": self.env.state(),
            "curriculum": self.sampler.state_dict(),
            "shuffling": self.rng.bit_generator.state,
            "sampling": self.action_rng.get_state(),
            "torch": torch.get_rng_state(),
        }

    def extra_state(self) -> dict[str, Any]:
        """Return the additional state of a subclass for checkpoints."""
        return {}

    def load_extra_state(self, training: Mapping[str, Any]) -> None:
        """Load ``extra_state`` from the training state of a checkpoint."""

    def training_state(self) -> dict[str, Any]:
        """Return everything except the weights that training needs to resume between two updates, bit for bit on a CPU.

        All processes call this method together.  The entry "others" has the ``process_state`` of ranks 1, 2, ....
        """
        own, *others = self.ranks.all_gather_objects(self.process_state())
        infos = [
            {"r": ret, "l": length} for ret, length in zip(self.episode_returns, self.episode_lengths, strict=True)
        ]
        return {
            "optimizer": self.policy.optimizer.state_dict(),
            **{name: getattr(self, name) for name in COUNTERS},
            "elapsed_s": self.elapsed_s,
            "phase_seconds": dict(self.phase_seconds),
            "episodes": [infos, list(self.episode_wins)],
            "reference": None if self.reference is None else self.reference.state_dict(),
            **own,
            **({"others": others} if others else {}),
        }

    def load_training_state(self, policy_state: Mapping[str, Any], training: Mapping[str, Any]) -> None:
        """Load the weights and the ``training_state`` of a checkpoint; all processes do so with the same state.

        Raises ConfigError for other environments or another number of processes.
        """
        others = training.get("others", [])
        if len(others) + 1 != self.ranks.size:
            raise ConfigError(
                f"the run was trained by {len(others) + 1} processes, not {self.ranks.size}; resume it with "
                f"--num-processes {len(others) + 1}"
            )
        if self.ranks.rank:
            training = {**training, **others[self.ranks.rank - 1]}
        self.restore(policy_state, training["optimizer"], training["actor_updates"])
        for name in COUNTERS:
            setattr(self, name, training[name])
        self.elapsed_before_s = training["elapsed_s"]
        self.kl_penalty_start = min(self.kl_penalty_start, self.progress)  # progress is smaller if the run was extended
        self.phase_seconds.update(training["phase_seconds"])
        self.env.load(training["environments"])
        self.started = True
        infos, wins = training["episodes"]
        self.episode_returns.extend(info["r"] for info in infos)
        self.episode_lengths.extend(info["l"] for info in infos)
        self.episode_wins.extend(wins)
        self.sampler.load_state_dict(training["curriculum"])
        self.apply_stage_settings()
        self.rng.bit_generator.state = training["shuffling"]
        self.action_rng.set_state(training["sampling"])
        torch.set_rng_state(training["torch"])
        if training["reference"] is not None:
            self.reference = copy.deepcopy(self.policy).requires_grad_(False)
            self.reference.load_state_dict(training["reference"])
        self.load_extra_state(training)
