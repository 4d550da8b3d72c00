"""Gymnasium vector environment ``NppVectorEnv``, registered as ``nppsim/Npp-v0``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from nppsim import reward as rewards
from nppsim.actions import FRAME_SKIP, FRAMES_PER_SECOND, NUM_ACTIONS
from nppsim.gym.env import (
    NO_RESTART,
    EnvProperties,
    GymSimulator,
    Levels,
    Observations,
    Renderer,
    level_option,
)
from nppsim.gym.spaces import environment_space, flatten_vectors
from nppsim.observe import layout
from nppsim.observe.foresight_settings import FORESIGHT, Foresight
from nppsim.observe.stacking import NO_STACKS, Stacking
from nppsim.pictures.live import SMALL_PICTURE_SIZE
from nppsim.reward import RewardConfig


class NppVectorEnv(EnvProperties, VectorEnv):
    """Batch of ``NppEnv``, stepped together by one kernel.

    ``autoreset_mode`` selects what happens at the end of an episode, as in Gymnasium's vector environments:

    * NEXT_STEP (default, supported by all Gymnasium wrappers): the step that ends an episode returns its last
      observation, and the info of the episode in ``infos``.  The next step ignores the action of that environment,
      and returns the first observation of its next episode and reward 0.
    * SAME_STEP: the step that ends an episode returns the first observation of the next one.  The last observation and
      the info of the episode are ``infos["final_obs"][i]`` (dict) and ``infos["final_info"]`` (arrays, with masks
      ``_final_info``...), for the environments where the mask ``infos["_final_obs"]`` is set.
    * DISABLED: like NEXT_STEP, but the environment waits for ``reset(options={"reset_mask": ...})``.

    levels, observations, frame_skip, reward, gamma, profile, stacking, foresight: see ``NppEnv``.
    num_envs: number of environments.
    autoreset_mode: an AutoresetMode, or its name or value ("SAME_STEP", "SameStep").
    render_mode: None; "rgb_array": ``render()`` returns a picture of each environment (extra ``gym``).
    render_size: width and height of each picture, px.  Drawing and videos take time in proportion to the pixels.
    threads: number of CPU threads; None uses all available ones.  Results do not depend on their number.
    max_episode_steps: decisions after which an episode is truncated, as with Gymnasium's ``TimeLimit``.
    copy: True returns copies of the observations; with False, the next step overwrites the returned arrays.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  # as in gymnasium.Env

    def __init__(
        self,
        levels: Levels | None = None,
        num_envs: int = 1,
        observations: Sequence[str] = layout.VISION_FREE,
        frame_skip: int = FRAME_SKIP,
        reward: str | RewardConfig = "default",
        gamma: float = rewards.GAMMA,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        render_size: tuple[int, int] = SMALL_PICTURE_SIZE,
        threads: int | None = None,
        copy: bool = True,
        profile: bool | None = None,
        stacking: Stacking = NO_STACKS,
        foresight: Foresight = FORESIGHT,
        max_episode_steps: int | None = None,
    ):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is {render_mode!r}; expected None or 'rgb_array'")
        self.autoreset_mode = _mode(autoreset_mode)
        self.simulator = GymSimulator(
            levels,
            num_envs,
            frame_skip=frame_skip,
            observations=observations,
            reward=reward,
            gamma=gamma,
            threads=threads,
            profile=profile,
            stacking=stacking,
            foresight=foresight,
            max_episode_steps=max_episode_steps,
        )
        self.num_envs = num_envs
        self.copy = copy
        self.single_observation_space = environment_space(observations, stacking)
        self.single_action_space = spaces.Discrete(NUM_ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.metadata = {
            **self.metadata,
            "autoreset_mode": self.autoreset_mode,
            "render_fps": FRAMES_PER_SECOND / frame_skip,
        }
        self.render_mode = render_mode
        self._renderer = Renderer(self.simulator, render_mode, render_size)
        self._began = False  # True after the first reset
        self._ended = np.zeros(num_envs, bool)  # environments in the last state of their episode
        # A step must know the level of the next episode, so each generator is one draw ahead.
        self._drawn = np.zeros(num_envs, np.int32)
        self._seeded = [seeding.np_random() for _ in range(num_envs)]  # (generator, seed)
        for i in range(num_envs):
            self._draw(i)

    @property  # type: ignore[misc]  # read-only, one per environment, as in Gymnasium's SyncVectorEnv
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Random generator of each environment, from which its levels are drawn."""
        return tuple(generator for generator, _ in self._seeded)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # one per environment
        """Seed of each environment's generator."""
        return tuple(seed for _, seed in self._seeded)

    def _draw(self, i: int) -> None:
        self._drawn[i] = self._seeded[i][0].integers(len(self.bank))

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode in every environment.

        seed: an integer (environment i gets seed + i), or one per environment; None continues with the same generator.
        options: "level": one index or int[num_envs].  "reset_mask": bool[num_envs], environments to start; default: all.
        Returns observations and info as ``NppEnv.reset``, each entry with a mask (``_level``, ...).
        """
        if seed is None or isinstance(seed, int | np.integer):
            seeds = [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed has {len(seeds)} entries; expected one for each of {self.num_envs} environments")
        chosen = level_option(options, len(self.bank), ("level", "reset_mask"), (self.num_envs,))
        started = np.flatnonzero(self._reset_mask(options)).tolist()
        for i in started:
            if seeds[i] is not None:
                self._seeded[i] = seeding.np_random(seeds[i])
                self._draw(i)
        levels = np.full(self.num_envs, -1, np.int32)
        levels[started] = (self._drawn if chosen is None else chosen)[started]
        observations = self.simulator.begin(levels)
        self._began, self._ended[started] = True, False
        infos: dict[str, Any] = {}
        for i in started:
            if chosen is None:
                self._draw(i)
            self._renderer.record_start(i)
            infos = self._add_info(infos, self.simulator.start_info(levels[i]), i)
        return self.simulator.rows(observations, self.copy), infos

    def _reset_mask(self, options: dict[str, Any] | None) -> np.ndarray:
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        if mask.dtype != bool or mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(f"options['reset_mask'] is {mask!r}; expected bool[{self.num_envs}] with a True entry")
        return mask

    def step(self, actions: np.ndarray) -> tuple[Observations, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one action in every environment.  actions: int[num_envs], 0..5.

        Returns observations, rewards float64[num_envs], terminated and truncated bool[num_envs], and infos.  ``infos`` is
        empty unless an episode ended or began.
        """
        simulator, same_step = self.simulator, self.autoreset_mode is AutoresetMode.SAME_STEP
        restarting = self._ended.copy()
        if restarting.any() and self.autoreset_mode is AutoresetMode.DISABLED:
            raise ResetNeeded(
                f"the episode of environment {int(np.argmax(restarting))} has ended; call "
                "reset(options={'reset_mask': ...}) before the next step"
            )
        simulator.next_level[:] = self._drawn if same_step else np.where(restarting, self._drawn, NO_RESTART)
        observations = simulator.decide(actions, restarting if restarting.any() else None)
        infos: dict[str, Any] = {}
        for i in np.flatnonzero(restarting).tolist():
            infos = self._begun(infos, i)
        for i in simulator.finished.tolist():
            info = simulator.episode_info(i)
            if same_step:
                final = simulator.row(flatten_vectors(simulator.final_obs), i)
                infos = self._begun(self._add_info(infos, {"final_obs": final, "final_info": info}, i), i)
            else:
                infos = self._add_info(infos, info, i)
        if not same_step:
            self._ended[:] = False
            self._ended[simulator.finished] = True
        self._record(actions, restarting)
        return (
            simulator.rows(observations, self.copy),
            simulator.rewards.astype(np.float64),
            simulator.terminated.copy(),
            simulator.truncated.copy(),
            infos,
        )

    def _begun(self, infos: dict[str, Any], i: int) -> dict[str, Any]:
        """Add the start info of environment i's next episode to ``infos``, and draw the level of the episode after that."""
        infos = self._add_info(infos, self.simulator.start_info(self.simulator.level[i]), i)
        self._draw(i)
        return infos

    def _record(self, actions: np.ndarray, restarting: np.ndarray) -> None:
        """Pass the step to the renderer."""
        if self.render_mode is None:
            return
        restarted = restarting.copy()
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            restarted[self.simulator.finished] = True
        for i, action in enumerate(np.asarray(actions).tolist()):
            if restarted[i]:
                self._renderer.record_start(i)
            else:
                self._renderer.record_step(i, action)

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Draw each environment: uint8[height, width, 3] of ``render_size``; None without render_mode."""
        if self.render_mode is None:
            return None
        if not self._began:
            raise ResetNeeded("no episode has started: call reset() before render()")
        return tuple(self._renderer.picture(i) for i in range(self.num_envs))

    def close_extras(self) -> None:
        """End the simulator's threads."""
        self.simulator.close()

    def action_masks(self) -> np.ndarray:
        """Return bool[num_envs, 6]: False for jump actions that now have the same effect as without the jump key."""
        return self.simulator.action_masks()


def _mode(mode: AutoresetMode | str) -> AutoresetMode:
    if isinstance(mode, str) and mode in AutoresetMode.__members__:
        return AutoresetMode[mode]
    return AutoresetMode(mode)
