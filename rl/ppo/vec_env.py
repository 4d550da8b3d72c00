"""BatchVecEnv: the batched simulator as a vector environment for the algorithms of Stable-Baselines3.

    env = make_sb3("datasets/train", num_envs=64)  # draws levels uniformly
    PPO("MultiInputPolicy", env, policy_kwargs={"features_extractor_class": ScaledFeatures}).learn(100_000)

    sampler = make_sampler(categories, CurriculumConfig(use_curriculum=True), seed=0)  # with a curriculum
    env = BatchVecEnv(BatchSimulator(levels, 64), sampler)

``ScaledFeatures`` (``rl.policy.sb3``) scales the raw observations, without which networks learn slowly.

Episodes restart inside ``step``.  An environment whose episode has just ended gets an info dictionary with "episode" {"r":
return, "l": decisions, "t": seconds since the start}, "is_success", "level" (index), "outcome", "TimeLimit.truncated" and
"terminal_observation".  The others are empty.  Episodes that began at a start state (``rl.curriculum.start_states``) have
neither "episode" nor "is_success", as statistics do not count them.
"""

import hashlib
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from nppsim.actions import NUM_ACTIONS
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.gym.env import Levels, as_bank, level_option
from nppsim.gym.spaces import flatten_vectors, observation_space
from nppsim.physics.outcomes import NAMES, WON
from nppsim.states import impossible
from rl.curriculum import CurriculumConfig, CurriculumManager, make_sampler

EPISODES_PER_UPDATE = 256  # number of episodes between updates of the curriculum
# ``env_is_wrapped`` must be True for ``evaluate_policy``, but then VecMonitor warns of a wrapper that does not exist.
warnings.filterwarnings(
    "ignore", "The environment is already wrapped with a `Monitor`", UserWarning, VecMonitor.__module__
)


class BatchVecEnv(VecEnv):
    """Vector environment with a BatchSimulator and a sampler, which draws levels and gets the outcomes of episodes.

    sim: the simulator.
    sampler: sampler for the levels of ``sim.bank``.
    ``set_options`` chooses levels for the next reset.
    ``reset_infos`` has "level" and "level_name" of the current episode of each environment.
    ``get_attr`` returns the attributes "level" (index in the bank), "action_space", "observation_space", "spec" and
    "render_mode" (both None).
    ``env_method`` calls the methods "action_masks" -> bool[6], "snapshot" -> uint8[...] and "restore" (snapshot).
    """

    observation_space: spaces.Dict
    action_space: spaces.Discrete

    def __init__(self, sim: BatchSimulator, sampler: CurriculumManager):
        if len(sampler.stage_of) != len(sim.bank):
            raise ValueError(
                f"the sampler has {len(sampler.stage_of)} levels, the simulator {len(sim.bank)}; they must be the same"
            )
        self.sim = sim
        self.sampler = sampler
        self._actions: np.ndarray | None = None
        self._since_update = 0  # number of episodes since the latest update of the curriculum
        self._begin = time.monotonic()
        super().__init__(sim.num_envs, observation_space(sim.keys, sim.stacking), spaces.Discrete(NUM_ACTIONS))

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the sampler; None draws a seed.  The simulator itself is deterministic."""
        seeds = [int(each) for each in super().seed(seed) if each is not None]
        self.sampler.seed(seeds[0])
        return seeds

    def set_options(self, options: list[dict] | dict | None = None) -> None:
        """Choose levels for the next reset: ``{"level": index}`` for all environments, or a list of one each.

        Raises ValueError for a list of another length, an unknown option, or an index without a level in the bank.
        """
        super().set_options(options)
        if len(self._options) != self.num_envs:
            raise ValueError(
                f"options has {len(self._options)} entries; expected one for each of {self.num_envs} environments"
            )
        for env in self._options:
            level_option(env, len(self.sim.bank), ("level",), ())

    def reset(self) -> VecEnvObs:
        levels = [options.get("level", -1) for options in self._options]
        self.sampler.start(self.sim, np.array(levels, np.int32))
        self.reset_infos = [self._start_info(env) for env in range(self.num_envs)]
        self._actions = None
        self._reset_seeds()
        self._reset_options()
        return self._observations()

    def state(self) -> dict[str, Any]:
        """Return the state of the environments for ``load``, without that of the sampler.

        levels: digest of the levels in their order.
        snapshots: uint8[N, bytes], from ``sim.snapshot``.
        next_level: int32[N], level of the next episode.
        """
        sim = self.sim
        return {
            "levels": self._levels_digest(),
            "snapshots": sim.snapshot(slice(None)),
            "next_level": sim.next_level.copy(),
        }

    def load(self, state: dict[str, Any]) -> dict[str, np.ndarray]:
        """Restore a ``state``; return the observations.  Raises ConfigError for a state of other environments."""
        if state["levels"] != self._levels_digest():
            raise ConfigError("the stored episodes are of other levels, or in another order; use the same dataset")
        stored, expected = state["snapshots"].shape, self.sim.snapshot(slice(None)).shape
        if stored != expected:
            raise ConfigError(
                f"the stored episodes are of {stored[0]} environments of {stored[1]} bytes, expected {expected[0]} of "
                f"{expected[1]} bytes; use the same settings"
            )
        self.sim.restore(slice(None), state["snapshots"])
        next_level = np.asarray(state["next_level"])
        problem = impossible(self.sim.state, self.sim.bank, self.num_envs)
        if next_level.shape != (self.num_envs,) or next_level.min() < 0 or next_level.max() >= len(self.sim.bank):
            problem = problem or "next levels that do not exist"
        if problem:
            raise ConfigError(f"the stored episodes are impossible: {problem}; the file was changed, use another one")
        self.sim.next_level[:] = next_level
        self.sim.observe()
        return self._observations()

    def _levels_digest(self) -> str:
        names = "".join(level.fingerprint for level in self.sim.bank.levels)
        return hashlib.sha256(names.encode()).hexdigest()[:16]

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = np.asarray(actions)

    def step_wait(self) -> VecEnvStepReturn:
        if self._actions is None:
            raise RuntimeError("step_wait() without step_async(); call step()")
        if self.sampler.wants_advantages:
            raise ConfigError(
                "learns from the advantages of this project's PPO, which other algorithms do not pass on; all levels would "
                "stay equally likely: choose another one",
                "curriculum",
                self.sampler.config.strategy,
            )
        actions, self._actions = self._actions, None
        sim = self.sim
        self.sampler.watch(sim, actions)
        sim.step(actions, every_end=True)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        finished = sim.finished
        if len(finished):
            for env in finished.tolist():
                infos[env] = self._info(env)
            self.sampler.next_episodes(sim)
            for env in finished.tolist():
                self.reset_infos[env] = self._start_info(env)
            self._since_update += len(finished)
            if self._since_update >= EPISODES_PER_UPDATE:
                self.sampler.update(sim)
                self._since_update = 0
        # Stable-Baselines3 uses these arrays after the next step, so the simulator's arrays are copied.
        return self._observations(), sim.rewards.copy(), sim.terminated | sim.truncated, infos

    def close(self) -> None:
        """End the simulator's threads."""
        self.sim.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        rows = list(self._get_indices(indices))
        if attr_name == "level":
            return [int(self.sim.level[row]) for row in rows]
        if attr_name in ("action_space", "observation_space"):
            return [getattr(self, attr_name)] * len(rows)
        if attr_name in ("spec", "render_mode"):
            return [None] * len(rows)
        if attr_name == "action_masks":  # sb3-contrib tests for this attribute
            return [lambda row=row: self.sim.action_masks()[row] for row in rows]
        raise AttributeError(
            f"environments have no attribute {attr_name!r}; they have level, action_space, observation_space, spec and "
            "render_mode"
        )

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        raise AttributeError(
            f"{attr_name!r} cannot be set on single environments: levels come from the sampler, and other settings are "
            "fixed when the simulator is created"
        )

    def env_method(self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any) -> list[Any]:
        rows = list(self._get_indices(indices))
        if method_name == "action_masks":
            return list(self.sim.action_masks(*args, **kwargs)[rows])
        if method_name in ("snapshot", "restore"):
            return [getattr(self.sim, method_name)(row, *args, **kwargs) for row in rows]
        raise AttributeError(
            f"environments have no method {method_name!r}; they have action_masks, snapshot and restore"
        )

    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        """Return True for Monitor, whose "episode" entries the infos contain; there is no other wrapper."""
        return [wrapper_class is Monitor for _ in self._get_indices(indices)]

    def _info(self, env: int) -> dict[str, Any]:
        sim = self.sim
        episode, truncated = sim.episode[env], bool(sim.truncated[env])
        info = {"level": int(episode["level"]), "outcome": NAMES[episode["outcome"]], "TimeLimit.truncated": truncated}
        if self.sampler.counts(env):
            info["is_success"] = bool(episode["outcome"] == WON)
            info["episode"] = {
                "r": float(episode["ret"]),
                "l": int(episode["decisions"]),
                "t": round(time.monotonic() - self._begin, 6),
            }
        final = flatten_vectors(sim.final_obs)
        info["terminal_observation"] = {key: values[env].copy() for key, values in final.items()}
        return info

    def _start_info(self, env: int) -> dict[str, Any]:
        level = int(self.sim.level[env])
        return {"level": level, "level_name": self.sim.bank.levels[level].name}

    def _observations(self) -> dict[str, np.ndarray]:
        return {key: values.copy() for key, values in flatten_vectors(self.sim.obs).items()}


def make_sb3(levels: Levels | None = None, num_envs: int = 64, *, seed: int = 0, **settings: Any) -> BatchVecEnv:
    """Create a vector environment for Stable-Baselines3, which draws the level of each episode uniformly.

    levels: as in ``NppEnv``; None: the levels in the package nppsim.
    settings: arguments of ``BatchSimulator``, e.g. observations, frame_skip, reward, gamma, threads.
    """
    bank = as_bank(levels)
    sampler = make_sampler([""] * len(bank), CurriculumConfig(), seed)
    return BatchVecEnv(BatchSimulator(bank, num_envs, **settings), sampler)


def desynchronize(sim: BatchSimulator, rng: np.random.Generator) -> None:
    """Advance the clock of each environment's episode by a random time, so that time-outs are spread evenly."""
    limit = sim.bank.time_limit[sim.level]
    frames = rng.integers(0, limit) // sim.frame_skip * sim.frame_skip
    sim.state.ninja["frame"][: sim.num_envs] = frames
    sim.observe()
