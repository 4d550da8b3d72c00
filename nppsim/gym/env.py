"""Gymnasium environment ``NppEnv`` on the batched simulator.  The vector environment is in ``nppsim.gym.vector_env``.

Importing this module registers both environments under the id ``nppsim/Npp-v0``.  Both give equal results: environment i
of a ``NppVectorEnv`` seeded with s has the same episodes as a ``NppEnv`` seeded with s + i, for any number of threads.
"""

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded

from nppsim import reward as rewards
from nppsim.actions import ACTION_INPUT, FRAME_SKIP, FRAMES_PER_SECOND, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.gym.spaces import GRAPH, environment_space, flatten_vectors, graph_instance, shown_keys, simulated_keys
from nppsim.levels import level_set
from nppsim.levels.level_set import STARTER_LEVELS
from nppsim.observe import layout
from nppsim.observe.foresight_settings import FORESIGHT, Foresight
from nppsim.observe.stacking import NO_STACKS, Stacking
from nppsim.physics import outcomes
from nppsim.pictures.live import PICTURE_SIZE, LivePicture, PictureState
from nppsim.reward import RewardConfig

NO_RESTART = -1  # value of ``next_level``: stay in the last state after the end of an episode

Levels = LevelBank | level_set.Levels
Observations = dict[str, np.ndarray]  # key of ``layout`` -> array


def as_bank(levels: Levels | None) -> LevelBank:
    """Return a LevelBank of levels, or of the levels at one or several paths; return a LevelBank unchanged.

    None selects the levels shipped with nppsim.  Raises LevelSetError for a folder without levels or an unreadable level.
    """
    return levels if isinstance(levels, LevelBank) else LevelBank(STARTER_LEVELS if levels is None else levels)


class GymSimulator(BatchSimulator):
    """BatchSimulator that writes ``final_obs`` for every finished episode, and need not restart finished environments.

    BatchSimulator alone writes ``final_obs`` for truncated episodes only, for bootstrapping.
    levels: as in ``as_bank``.
    max_episode_steps: decisions after which an episode is truncated, unless its level's time limit is shorter.
    Attributes: ``shown``, keys of all observations except ``graph``; ``graphs``, True if ``graph`` is observed.
    """

    def __init__(
        self,
        levels: Levels | None,
        num_envs: int,
        *,
        observations: Sequence[str],
        max_episode_steps: int | None = None,
        **settings: Any,
    ):
        super().__init__(as_bank(levels), num_envs, observations=simulated_keys(observations), **settings)
        if max_episode_steps is not None:
            if max_episode_steps < 1:
                raise ValueError(f"max_episode_steps must be at least 1; got {max_episode_steps}")
            most = min(max_episode_steps * self.frame_skip, np.iinfo(np.int32).max)
            limit = np.minimum(self.time_limit, most).astype(np.int32)
            limit.setflags(write=self.time_limit.flags.writeable)  # Numba would compile again if this changed
            self._static = self._static._replace(time_limit=limit)
        self.shown, self.graphs = shown_keys(observations), GRAPH in observations

    def decide(self, actions: np.ndarray, restarting: np.ndarray | None = None) -> Observations:
        """Advance by one decision; return observations in the shapes of the spaces, valid until the next call.

        An environment whose ``next_level`` is NO_RESTART stays in the last state of its episode.
        restarting: bool[N], environments that ignore their action and start an episode on their ``next_level``.
        """
        if not self._started:
            raise ResetNeeded("there is no running episode: call reset() before step()")
        return flatten_vectors(self._step(actions, self.next_level, every_end=True, restarting=restarting))

    def begin(self, levels: np.ndarray) -> Observations:
        """Start episodes (``BatchSimulator.reset``); return observations in the shapes of the spaces."""
        return flatten_vectors(self.reset(levels))

    def row(self, observations: Observations, i: int) -> dict[str, Any]:
        """Copy the observations of environment i, in the form of ``environment_space``."""
        row: dict[str, Any] = {key: observations[key][i].copy() for key in self.shown}
        return row | {GRAPH: graph_instance(observations["graph_state"][i])} if self.graphs else row

    def rows(self, observations: Observations, copy: bool) -> dict[str, Any]:
        """Return the observations of all environments, in the batched form of ``environment_space``."""
        rows: dict[str, Any] = {key: observations[key].copy() if copy else observations[key] for key in self.shown}
        return rows | {GRAPH: tuple(map(graph_instance, observations["graph_state"]))} if self.graphs else rows

    def start_info(self, level: int) -> dict[str, Any]:
        """Return the ``info`` of ``reset``: index, name, category and generator of the level, "" if they are unknown."""
        entry = self.bank.entries[level]
        return {
            "level": int(level),
            "level_name": self.bank.levels[level].name,
            "category": entry.category,
            "generator": entry.generator,
            "generator_parameters": json.dumps(entry.parameters) if entry.generator else "",
        }

    def episode_info(self, i: int) -> dict[str, Any]:
        """Return the ``info`` of the step that ended the episode of environment i."""
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


class Renderer:
    """Pictures of the environments of a simulator; does nothing if ``render_mode`` is None."""

    def __init__(self, simulator: GymSimulator, render_mode: str | None, size: tuple[int, int]):
        if np.shape(size) != (2,):
            raise ValueError(f"render_size must be (width, height) in px; got {size!r}")
        self._simulator = simulator
        self._views = [LivePicture(size) for _ in range(simulator.num_envs if render_mode else 0)]

    def record_start(self, i: int) -> None:
        """Record the start of an episode of environment i."""
        if self._views:
            level, bank = self._simulator.level[i], self._simulator.bank
            self._views[i].start(bank.levels[level], bank.compiled[level])

    def record_step(self, i: int, action: int) -> None:
        """Record a decision of environment i."""
        if self._views:
            self._views[i].follow(self._simulator.state.ninja[i], int(ACTION_INPUT[action]))

    def state(self, i: int) -> PictureState | None:
        """Return the state of the picture of environment i, for ``restore``."""
        return self._views[i].state() if self._views else None

    def restore(self, i: int, state: PictureState | None) -> None:
        """Restore the picture of environment i.  Raises ValueError for a state of an environment without pictures."""
        if self._views:
            if state is None:
                raise ValueError("the snapshot has no picture: it is of an environment without render_mode")
            level, bank = self._simulator.level[i], self._simulator.bank
            self._views[i].restore(bank.levels[level], bank.compiled[level], state)

    def picture(self, i: int) -> np.ndarray:
        """Draw environment i: uint8[H, W, 3]."""
        return self._views[i].draw(self._simulator.state.entities[i], self._simulator.state.movers[i])


def level_option(
    options: dict[str, Any] | None, num_levels: int, known: Sequence[str], shape: tuple[int, ...]
) -> np.ndarray | None:
    """Validate ``options["level"]``; return an int64 array of ``shape``, or None if absent."""
    options = options or {}
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(f"reset got the unknown option {unknown[0]!r}; known: {', '.join(known)}")
    if "level" not in options:
        return None
    levels = np.asarray(options["level"])
    inside = levels.dtype.kind in "iu" and ((levels >= 0) & (levels < num_levels)).all()
    if not inside or levels.shape not in ((), shape):
        raise ValueError(f"options['level'] is {options['level']!r}; expected level indices 0..{num_levels - 1}")
    return np.broadcast_to(levels, shape).astype(np.int64)


class EnvProperties:
    """Properties of ``NppEnv`` and ``NppVectorEnv``."""

    simulator: GymSimulator
    _spec: EnvSpec | None = None

    @property
    def bank(self) -> LevelBank:
        """The levels; ``reset(options={"level": i})`` selects the level with index i."""
        return self.simulator.bank

    @property
    def step_timing(self) -> dict[str, float]:
        """Nanoseconds of each phase of the last step or reset, summed over environments; empty without profiling.

        ``nppsim._numba.phases`` lists the phases.
        """
        return self.simulator.step_timing

    @property
    def spec(self) -> EnvSpec | None:
        """Gymnasium's specification; paths and enumerations in its arguments are text, as ``to_json()`` requires."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            for name, value in spec.kwargs.items():
                if isinstance(value, Path | Enum):
                    spec.kwargs[name] = value.name if isinstance(value, Enum) else str(value)
        self._spec = spec


@dataclass(frozen=True, eq=False)
class EnvSnapshot:
    """State of the episode of an ``NppEnv``, see ``NppEnv.snapshot``."""

    simulator: np.ndarray  # uint8[B]
    inputs: tuple[np.ndarray, ...]  # input bytes of each decision
    playing: bool  # False after the end of the episode
    picture: PictureState | None  # None without render_mode


class NppEnv(EnvProperties, gymnasium.Env):
    """N++: reach the exit switch, then the exit, without dying.

    ## Description
    One ninja on one level, in the exact physics of the game (60 frames per second).  Each action sets the pressed keys for
    the next ``frame_skip`` frames.

    ## Action space
    ``Discrete(6)``: 0 no-op, 1 left, 2 right, 3 jump, 4 jump + left, 5 jump + right.
    ``action_masks()`` is False for jump actions that currently have the same effect as without the jump key.

    ## Observation space
    A ``Dict`` of the chosen observations.  Values are not normalised (px, px per frame, frames, flags);
    ``docs/observations.md`` describes every component.  Pictures are [H, W, 1]; arrays of all other keys are
    flattened (``nppsim.gym.spaces``).

    | name           | key                     | shape         | dtype   | meaning                                  |
    |----------------|-------------------------|---------------|---------|------------------------------------------|
    | `state`        | `game_state`            | (26,)         | float32 | position, velocity, contacts, timers     |
    | `reachability` | `reachability_features` | (9,)          | float32 | path lengths, way-points, switch taken   |
    | `entities`     | `entity_positions`      | (6,)          | float32 | ninja, exit switch, exit                 |
    | `switches`     | `switch_states`         | (25,)         | float32 | five locked doors and their switches     |
    | `hazards`      | `hazards`               | (40,)         | float32 | eight nearest hazards, [8, 5]            |
    | `foresight`    | `foresight`             | (264,)        | float32 | simulator look-ahead per action, [6, 4, 11] |
    | `surroundings` | `surroundings`          | (1083,)       | uint8   | solid, deadly, one-way cells, [3, 19, 19] |
    | `player_frame` | `player_frame`          | (84, 84, 1)   | uint8   | picture of 168 px around the ninja       |
    | `global_view`  | `global_view`           | (176, 100, 1) | uint8   | picture of the whole level, x first      |
    | `graph_state`  | `graph_state`           | (8,)          | int64   | key of the level's current graph         |
    | `graph`        | `graph`                 | Graph         |         | that graph: nodes, types of edges, links    |

    ## Reward
    The sum of the terms of a RewardConfig or of a preset of ``nppsim.reward``.  The preset "default" rewards a win and the
    exit switch, penalises death and time, and adds potential-based shaping along the path.  ``gamma`` must equal the
    learner's discount.

    ## Start of an episode
    The ninja starts at the spawn of a level.  ``options={"level": index}`` chooses the level; by default it is drawn
    uniformly with the environment's generator (``reset(seed=...)``).  ``info``: ``level``, ``level_name``,
    ``category``, ``generator`` and ``generator_parameters`` (JSON text; "" if unknown).

    ## End of an episode
    Terminated: the ninja reaches the exit, or dies.  Truncated: the episode reaches the level's time limit
    (``LevelBank.time_limit``: 300 frames plus 2 frames per px of path, at most 6000).  ``info`` of the last step:
    the same, ``is_success``, ``outcome`` ("won", "died", "timeout"), ``frames``,
    ``decisions``, ``gold``, ``episode_return`` and ``reward_terms`` (name -> sum; they add up to the return).

    ## Arguments
    levels: LevelBank, LevelSet, levels, or one or several paths of levels, campaign files and folders; None: the 30 levels
        shipped with nppsim.
    observations: names or keys of the table above.
    frame_skip: frames per decision, at least 1; at most the horizon (40) with foresight.
    reward: name of a preset, or a RewardConfig.
    gamma: discount per decision.
    render_mode: None; "rgb_array": ``render()`` returns a picture of level, ninja and its trail (extra ``gym``).  With
        "human", ``gymnasium.make`` shows these pictures in a window (wrapper ``HumanRendering``).
    render_size: width and height of pictures, px, the same for all levels.
    profile: True measures the time of each phase of every call (``step_timing``); None measures it if the environment
        variable NPPSIM_PROFILING is 1.
    stacking: frames per observation; must equal the network's (``policy.stacking``).  Stacked pictures are [frames,
        H, W, 1], stacked vectors are concatenated; the oldest frame is first.
    foresight: settings of the observation ``foresight``; should equal the network's (``policy.foresight``).

        env = gymnasium.make("nppsim/Npp-v0", levels="datasets/test", observations=("state", "reachability"))

    ## Search
    ``snapshot()`` and ``restore(snapshot)`` save the state of an episode and return to it.  ``clone()`` and
    ``copy.deepcopy`` make an independent environment in the same state; pickling works, too.

    ## Version history
    * v0: initial version
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_SECOND // FRAME_SKIP}  # noqa: RUF012  # as in gymnasium.Env

    def __init__(
        self,
        levels: Levels | None = None,
        observations: Sequence[str] = layout.VISION_FREE,
        frame_skip: int = FRAME_SKIP,
        reward: str | RewardConfig = "default",
        gamma: float = rewards.GAMMA,
        render_mode: str | None = None,
        render_size: tuple[int, int] = PICTURE_SIZE,
        profile: bool | None = None,
        stacking: Stacking = NO_STACKS,
        foresight: Foresight = FORESIGHT,
    ):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(
                f"render_mode is {render_mode!r}; expected None or 'rgb_array'; only gymnasium.make accepts 'human'"
            )
        self._settings: dict[str, Any] = {
            "frame_skip": frame_skip, "observations": observations, "reward": reward, "gamma": gamma, "threads": 1,
            "profile": profile, "stacking": stacking, "foresight": foresight,
        }  # fmt: skip
        self._render_size = render_size
        self.render_mode = render_mode
        self._create_simulator(levels)
        self.observation_space = environment_space(observations, stacking)
        self.action_space = spaces.Discrete(NUM_ACTIONS)
        self.metadata = {**self.metadata, "render_fps": FRAMES_PER_SECOND / frame_skip}
        self._inputs: list[np.ndarray] = []  # input bytes of each decision of the episode
        self._playing = False

    def _create_simulator(self, levels: Levels | None, **settings: Any) -> None:
        self.simulator = GymSimulator(levels, 1, **self._settings, **settings)
        self.simulator.next_level[:] = NO_RESTART
        self._renderer = Renderer(self.simulator, self.render_mode, self._render_size)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Start an episode; return observations and info.  options: {"level": index} chooses the level."""
        super().reset(seed=seed)
        chosen = level_option(options, len(self.bank), ("level",), (1,))
        levels = self.np_random.integers(len(self.bank), size=1) if chosen is None else chosen
        observations = self.simulator.begin(levels)
        self._inputs, self._playing = [], True
        self._renderer.record_start(0)
        return self.simulator.row(observations, 0), self.simulator.start_info(levels[0])

    def step(self, action: int) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        """Take one action; return observations, reward, terminated, truncated and info (empty before the episode ends)."""
        if not self._playing:
            raise ResetNeeded("there is no running episode: call reset() first, and again when an episode has ended")
        if not self.action_space.contains(action):
            raise ValueError(f"the action is {action!r}; expected an integer 0..{NUM_ACTIONS - 1}")
        action, before = int(action), self._frame
        observations = self.simulator.decide(np.array([action], np.int64))
        self._inputs.append(np.full(self._frame - before, ACTION_INPUT[action], np.uint8))
        self._playing = len(self.simulator.finished) == 0
        self._renderer.record_step(0, action)
        return (
            self.simulator.row(observations, 0),
            float(self.simulator.rewards[0]),
            bool(self.simulator.terminated[0]),
            bool(self.simulator.truncated[0]),
            {} if self._playing else self.simulator.episode_info(0),
        )

    def snapshot(self) -> EnvSnapshot:
        """Return a copy of the state of the episode, for ``restore``.

        The generator that draws the levels of later episodes is not part of it.  Raises ResetNeeded before ``reset``.
        """
        if not self.simulator._started:
            raise ResetNeeded("no episode has started: call reset() before snapshot()")
        picture = self._renderer.state(0)
        return EnvSnapshot(self.simulator.compact_snapshot(0), tuple(self._inputs), self._playing, picture)

    def restore(self, snapshot: EnvSnapshot) -> Observations:
        """Return to the state of a ``snapshot``; return the observations of this state.

        The snapshot may be of this environment, a clone, or another one with the same levels, stacking and render_mode.
        Raises ValueError for a snapshot of an environment with other levels, and TypeError for other types.
        """
        if not isinstance(snapshot, EnvSnapshot):
            raise TypeError(f"restore() takes the result of snapshot(); got {type(snapshot).__name__}")
        self.simulator.restore_compact(0, snapshot.simulator)
        self._inputs, self._playing = list(snapshot.inputs), snapshot.playing
        self._renderer.restore(0, snapshot.picture)
        return self.simulator.row(flatten_vectors(self.simulator.observe()), 0)

    def clone(self) -> "NppEnv":
        """Return an independent environment in the same state, which shares the compiled levels."""
        create, (kind, variables, bank, snapshot) = self.__reduce__()
        return create(kind, copy.deepcopy(variables), bank, snapshot, static=self.simulator._static)

    def __deepcopy__(self, memo: dict[int, Any]) -> "NppEnv":
        return self.clone()

    def __reduce__(self) -> tuple[Callable[..., "NppEnv"], tuple[Any, ...]]:
        variables = {name: value for name, value in vars(self).items() if name not in ("simulator", "_renderer")}
        snapshot = self.snapshot() if self.simulator._started else None
        return _recreated, (type(self), variables, self.bank, snapshot)

    @property
    def _frame(self) -> int:
        return int(self.simulator.state.ninja["frame"][0])

    @property
    def inputs(self) -> np.ndarray:
        """Input bytes of this episode so far, uint8[frames]; replaying them on the same level reproduces it exactly."""
        return np.concatenate([np.empty(0, np.uint8), *self._inputs])

    def action_masks(self) -> np.ndarray:
        """Return bool[6]: False for jump actions that now have the same effect as without the jump key."""
        return self.simulator.action_masks()[0]

    def render(self) -> np.ndarray | None:
        """Draw the reachable part of the level, the ninja and its trail: uint8[height, width, 3] of ``render_size``.

        Returns None without render_mode.  ``nppsim.pictures.render`` makes films of episodes.
        """
        if self.render_mode is None:
            return None
        if self._frame == 0 and not self._playing:
            raise ResetNeeded("no episode has started: call reset() before render()")
        return self._renderer.picture(0)


def _recreated(
    kind: type[NppEnv],
    variables: dict[str, Any],
    bank: LevelBank,
    snapshot: EnvSnapshot | None,
    **settings: Any,
) -> NppEnv:
    """Return an environment from the parts of another one.  settings: further arguments of the simulator."""
    env = kind.__new__(kind)
    vars(env).update(variables)
    env._create_simulator(bank, **settings)
    if snapshot is not None:
        env.restore(snapshot)
    return env
