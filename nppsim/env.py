"""Gymnasium environments over the batched simulator: ``NppEnv`` (one) and ``NppVectorEnv`` (many).

Importing this module registers both as ``nppsim/Npp-v0``.  Both play the same way: with the same seed, environment i of
a ``NppVectorEnv`` seeded with s sees what a ``NppEnv`` seeded with s + i sees, whatever the number of threads.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from nppsim import outcomes
from nppsim import reward as rewards
from nppsim.actions import ACTION_INPUT, FRAME_SKIP, FRAMES_PER_SECOND, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelSet
from nppsim.observe import layout
from nppsim.reward import RewardConfig

ENV_ID = "nppsim/Npp-v0"
NO_RESTART = -1  # in ``next_level``: leave the environment in the last state of its episode

Levels = LevelBank | LevelSet | Sequence[Level] | str | Path
Observations = dict[str, np.ndarray]  # key of ``layout`` -> array


def as_bank(levels: Levels) -> LevelBank:
    """A LevelBank of a bank (itself), levels, a LevelSet, or the folder of one.

    Raises LevelSetError for a folder that is no level set, or holds a level that cannot be read.
    """
    if isinstance(levels, LevelBank):
        return levels
    return LevelBank(LevelSet.open(levels) if isinstance(levels, str | Path) else levels)


def observation_space(observations: Sequence[str]) -> spaces.Dict:
    """The space of one environment's observations; names or keys as in ``layout``."""
    specs = [layout.SPECS[key] for key in layout.observation_keys(observations)]
    return spaces.Dict({s.key: spaces.Box(s.low, s.high, s.shape, np.dtype(s.dtype).type) for s in specs})


class _Simulator(BatchSimulator):
    """A BatchSimulator whose ``final_obs`` is valid in every finished row, and that can leave out restarts.

    Training looks only at the last observation of a time-out, to bootstrap from; Gymnasium hands out all of them.
    """

    def step(self, actions: np.ndarray) -> Observations:
        """As ``BatchSimulator.step``; with NO_RESTART as ``next_level`` an environment stays where it ended."""
        if not self._started:
            raise ResetNeeded("there is no running episode: call reset() before step()")
        return self._step(actions, self.next_level, every_end=True)

    def row(self, observations: Observations, i: int) -> Observations:
        """A copy of environment i's observations."""
        return {key: values[i].copy() for key, values in observations.items()}

    def start_info(self, level: int) -> dict[str, Any]:
        """What ``reset`` reports about the level that an environment was started on."""
        return {"level": int(level), "level_name": self.bank.levels[level].name}

    def episode_info(self, i: int) -> dict[str, Any]:
        """What ``step`` reports about the episode of environment i that just ended."""
        episode = self.episode[i]
        return {
            **self.start_info(episode["level"]),
            "is_success": bool(episode["outcome"] == outcomes.WON),
            "outcome": outcomes.NAMES[episode["outcome"]],
            "frames": int(episode["frames"]),
            "decisions": int(episode["decisions"]),
            "gold": int(episode["gold"]),
            "episode_return": float(episode["ret"]),
            "reward_terms": dict(zip(rewards.TERMS, episode["terms"].tolist(), strict=True)),
        }


def _level_option(
    options: dict[str, Any] | None, num_levels: int, known: Sequence[str], shape: tuple[int, ...]
) -> np.ndarray | None:
    """``options["level"]`` as an int64 array of ``shape``, checked; None if it is absent."""
    options = options or {}
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(f"reset got the unknown option {unknown[0]!r}; known: {', '.join(known)}")
    if "level" not in options:
        return None
    levels = np.asarray(options["level"])
    inside = levels.dtype.kind in "iu" and ((levels >= 0) & (levels < num_levels)).all()
    if not inside or levels.shape not in ((), shape):
        raise ValueError(f"options['level'] is {options['level']!r}; needed are indices of levels, 0..{num_levels - 1}")
    return np.broadcast_to(levels, shape).astype(np.int64)


class NppEnv(gymnasium.Env):
    """N++: reach the exit switch, then the exit, without dying.

    ## Description
    One ninja on one level, in the exact physics of the game (60 frames a second).  At every decision the agent chooses
    which keys are held for the next ``frame_skip`` frames.

    ## Action space
    ``Discrete(6)``: 0 no-op, 1 left, 2 right, 3 jump, 4 jump + left, 5 jump + right.
    ``action_masks()`` says which of them can have an effect of their own, for learners that mask actions.

    ## Observation space
    A ``Dict`` of the chosen observations, as raw values (px, px per frame, frames, flags); every component is described
    in ``docs/observations.md``.

    | name           | key                     | shape         | dtype   | meaning                                  |
    |----------------|-------------------------|---------------|---------|------------------------------------------|
    | `state`        | `game_state`            | (26,)         | float32 | position, velocity, contacts, timers     |
    | `reachability` | `reachability_features` | (9,)          | float32 | path lengths, two way-points, phase      |
    | `entities`     | `entity_positions`      | (6,)          | float32 | ninja, exit switch, exit                 |
    | `switches`     | `switch_states`         | (25,)         | float32 | five locked doors and their switches     |
    | `hazards`      | `hazards`               | (8, 5)        | float32 | nearest hazards                          |
    | `foresight`    | `foresight`             | (6, 4, 11)    | float32 | what each action leads to                |
    | `surroundings` | `surroundings`          | (3, 19, 19)   | uint8   | solid, deadly and one-way parts nearby  |
    | `player_frame` | `player_frame`          | (84, 84, 1)   | uint8   | picture of 168 px around the ninja       |
    | `global_view`  | `global_view`           | (176, 100, 1) | uint8   | picture of the whole level, x first      |

    ## Reward
    The sum of the terms of a preset of ``nppsim.reward`` ("default", "october", "recommended") or of a RewardConfig:
    win, death, switch, time and, with the same ``gamma`` as the learner's, potential-based shaping along the path.

    ## Start of an episode
    The ninja stands at the spawn of a level: ``options={"level": index}`` chooses it; without, it is drawn uniformly
    with the environment's own generator (``reset(seed=...)``).  ``info``: ``level``, ``level_name``.

    ## End of an episode
    Terminated: the exit is reached, or the ninja dies.  Truncated: the level's time limit (``LevelBank.time_limit``,
    300 frames and 2 more per px of the way, at most 6000) is over.  ``info`` of the last step: ``is_success``,
    ``outcome`` ("won", "died", "timeout"), ``level``, ``level_name``, ``frames``, ``decisions``, ``gold``,
    ``episode_return`` and ``reward_terms`` (name -> sum; they add up to the return).

    ## Arguments
    levels: LevelBank, LevelSet, levels, or the path of a dataset folder.
    observations: names or keys of the table.
    frame_skip: frames per decision, at least 1.
    reward: preset or RewardConfig.
    gamma: discount per decision.
    render_mode: None or "rgb_array", a picture of level, ninja and the way so far (extra ``video``).
    profile: measure the phases of every call (``step_timing``); None: if NPPSIM_PROFILING=1 is in the environment.

        env = gymnasium.make("nppsim/Npp-v0", levels="datasets/test", observations=("state", "reachability"))

    ## Version history
    * v0: initial version
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_SECOND // FRAME_SKIP}  # noqa: RUF012  # as in gymnasium.Env

    def __init__(
        self,
        levels: Levels,
        observations: Sequence[str] = layout.VISION_FREE,
        frame_skip: int = FRAME_SKIP,
        reward: str | RewardConfig = "default",
        gamma: float = rewards.GAMMA,
        render_mode: str | None = None,
        profile: bool | None = None,
    ):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is {render_mode!r}; needed is None or 'rgb_array'")
        self.simulator = _Simulator(
            as_bank(levels), 1, frame_skip=frame_skip, observations=observations, reward=reward, gamma=gamma, threads=1,
            profile=profile,
        )  # fmt: skip
        self.simulator.next_level[:] = NO_RESTART
        self.observation_space = observation_space(observations)
        self.action_space = spaces.Discrete(NUM_ACTIONS)
        self.metadata = {**self.metadata, "render_fps": FRAMES_PER_SECOND / frame_skip}
        self.render_mode = render_mode
        self._inputs: list[np.ndarray] = []  # of this episode
        self._playing = False

    @property
    def bank(self) -> LevelBank:
        """The levels; ``options={"level": i}`` is an index into them."""
        return self.simulator.bank

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode.  options: {"level": index} chooses the level.  Returns observations and info."""
        super().reset(seed=seed)
        chosen = _level_option(options, len(self.bank), ("level",), (1,))
        levels = self.np_random.integers(len(self.bank), size=1) if chosen is None else chosen
        observations = self.simulator.reset(levels)
        self._inputs, self._playing = [], True
        return self.simulator.row(observations, 0), self.simulator.start_info(levels[0])

    def step(self, action: int) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        """One decision.  Returns observations, reward, terminated, truncated and info (empty except at the end)."""
        if not self._playing:
            raise ResetNeeded("there is no running episode: call reset() first, and again when an episode has ended")
        if not self.action_space.contains(action):
            raise ValueError(f"the action is {action!r}; needed is an integer 0..{NUM_ACTIONS - 1}")
        before = self._frame
        observations = self.simulator.step(np.array([action], np.int64))
        self._inputs.append(np.full(self._frame - before, ACTION_INPUT[action], np.uint8))
        self._playing = len(self.simulator.finished) == 0
        return (
            self.simulator.row(observations, 0),
            float(self.simulator.rewards[0]),
            bool(self.simulator.terminated[0]),
            bool(self.simulator.truncated[0]),
            {} if self._playing else self.simulator.episode_info(0),
        )

    @property
    def step_timing(self) -> dict[str, float]:
        """Nanoseconds of each phase of the last step or reset; empty without profiling.  See ``nppsim._phases``."""
        return self.simulator.step_timing

    @property
    def _frame(self) -> int:
        return int(self.simulator.state.ninja["frame"][0])

    @property
    def inputs(self) -> np.ndarray:
        """uint8[frames]: input bytes of this episode so far; with the level they reproduce it exactly."""
        return np.concatenate([np.empty(0, np.uint8), *self._inputs])

    def action_masks(self) -> np.ndarray:
        """bool[6]: actions that can have an effect of their own now."""
        return self.simulator.action_masks()[0]

    def render(self) -> np.ndarray | None:
        """uint8[H, W, 3]: level, ninja and way so far; None without render_mode.  For films: ``nppsim.pictures.render``."""
        if self.render_mode is None:
            return None
        if self._frame == 0 and not self._playing:
            raise ResetNeeded("there is nothing to show yet: call reset() first")
        from nppsim.pictures import render  # Pillow is an extra

        *_, picture = render.frames(self.bank.levels[self.simulator.level[0]], self.inputs, fps=1)
        return picture


class NppVectorEnv(VectorEnv):
    """Many ``NppEnv``, stepped together by one kernel.

    Autoreset mode SAME_STEP: the step that ends an episode returns the first observation of the next one; the last
    observation and the info of the episode are ``infos["final_obs"][i]`` (dict) and ``infos["final_info"]`` (arrays,
    with masks ``_final_info``...), for the environments where the mask ``infos["_final_obs"]`` is set.

    levels, observations, frame_skip, reward, gamma, profile: as for ``NppEnv``.
    num_envs: number of environments.
    threads: CPU threads, all usable ones if None; results do not depend on it.
    copy: hand out copies of the observations; with False the arrays are written again by the next step.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  # likewise

    def __init__(
        self,
        levels: Levels,
        num_envs: int = 1,
        observations: Sequence[str] = layout.VISION_FREE,
        frame_skip: int = FRAME_SKIP,
        reward: str | RewardConfig = "default",
        gamma: float = rewards.GAMMA,
        threads: int | None = None,
        copy: bool = True,
        profile: bool | None = None,
    ):
        self.simulator = _Simulator(
            as_bank(levels),
            num_envs,
            frame_skip=frame_skip,
            observations=observations,
            reward=reward,
            gamma=gamma,
            threads=threads,
            profile=profile,
        )
        self.num_envs = num_envs
        self.copy = copy
        self.single_observation_space = observation_space(observations)
        self.single_action_space = spaces.Discrete(NUM_ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        # A step must know the next level, so each generator is one draw ahead: ``next_level`` holds what it drew.
        seeded = [seeding.np_random() for _ in range(num_envs)]
        self._generators = [generator for generator, _ in seeded]
        self._seeds = [seed for _, seed in seeded]
        for i in range(num_envs):
            self._draw(i)

    @property
    def bank(self) -> LevelBank:
        """The levels; ``options={"level": i}`` are indices into them."""
        return self.simulator.bank

    @property
    def step_timing(self) -> dict[str, float]:
        """As of ``NppEnv``, all environments together."""
        return self.simulator.step_timing

    @property  # type: ignore[misc]  # read-only, and one of each environment, as in Gymnasium's SyncVectorEnv
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The generator of each environment, from which its levels are drawn."""
        return tuple(self._generators)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]  # likewise
        """The seed of each environment's generator."""
        return tuple(self._seeds)

    def _draw(self, i: int) -> None:
        self.simulator.next_level[i] = self._generators[i].integers(len(self.bank))

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode in every environment.

        seed: environment i gets seed + i, or its own of a sequence; None: its generator goes on.
        options: "level", one index or int[num_envs]; "reset_mask", bool[num_envs], starts only these environments.
        Returns observations and info: ``level`` and ``level_name``, with masks ``_level`` and ``_level_name``.
        """
        if seed is None or isinstance(seed, int | np.integer):
            seeds = [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed has {len(seeds)} entries; needed is one for each of {self.num_envs} environments")
        chosen = _level_option(options, len(self.bank), ("level", "reset_mask"), (self.num_envs,))
        started = np.flatnonzero(self._reset_mask(options)).tolist()
        for i in started:
            if seeds[i] is not None:
                self._generators[i], self._seeds[i] = seeding.np_random(seeds[i])
                self._draw(i)
        levels = np.full(self.num_envs, -1, np.int32)
        levels[started] = (self.simulator.next_level if chosen is None else chosen)[started]
        observations = self.simulator.reset(levels)
        infos: dict[str, Any] = {}
        for i in started:
            if chosen is None:
                self._draw(i)
            infos = self._add_info(infos, self.simulator.start_info(levels[i]), i)
        return self._handed_out(observations), infos

    def _reset_mask(self, options: dict[str, Any] | None) -> np.ndarray:
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        if mask.dtype != bool or mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(f"options['reset_mask'] is {mask!r}; needed is bool[{self.num_envs}] with a True entry")
        return mask

    def step(self, actions: np.ndarray) -> tuple[Observations, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One decision of every environment.  actions: int[num_envs], 0..5.

        Returns observations, rewards float64[num_envs], terminated and truncated bool[num_envs], and infos, which is
        empty unless an episode has ended.
        """
        simulator = self.simulator
        observations = simulator.step(actions)
        infos: dict[str, Any] = {}
        for i in simulator.finished.tolist():
            last = {"final_obs": simulator.row(simulator.final_obs, i), "final_info": simulator.episode_info(i)}
            infos = self._add_info(infos, {**last, **simulator.start_info(simulator.level[i])}, i)
            self._draw(i)
        return (
            self._handed_out(observations),
            simulator.rewards.astype(np.float64),
            simulator.terminated.copy(),
            simulator.truncated.copy(),
            infos,
        )

    def _handed_out(self, observations: Observations) -> Observations:
        return {key: values.copy() if self.copy else values for key, values in observations.items()}

    def action_masks(self) -> np.ndarray:
        """bool[num_envs, 6]: actions that can have an effect of their own now."""
        return self.simulator.action_masks()


gymnasium.register(ENV_ID, entry_point="nppsim.env:NppEnv", vector_entry_point="nppsim.env:NppVectorEnv")
