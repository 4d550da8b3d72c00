"""BatchSimulator: N environments over a LevelBank, one call per decision.

One kernel (``nppsim.decision``) advances each environment by ``frame_skip`` frames, sums rewards, restarts finished
episodes and writes observations into preallocated arrays.  The state of an environment is one row of bytes.  Results
depend neither on the number of threads nor on the other environments of the batch.
"""

import functools
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from nppsim import reward as rewards
from nppsim._numba import phases as clock
from nppsim._numba.cache import CACHE_FOLDER
from nppsim._numba.decorators import numba_config
from nppsim.actions import FRAME_SKIP, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.decision import (
    ASLEEP,
    EPISODE_DTYPE,
    NUM_BLOCKS,
    PROFILE_EVERY,
    PROGRESS_DTYPE,
    RESTING,
    Output,
    State,
    Static,
    Views,
    advance,
    make_fields,
    masks,
    prepare_static,
)
from nppsim.errors import ConfigError
from nppsim.levels.level_set import Levels, read_levels
from nppsim.observe import graph, layout, vectors
from nppsim.observe.foresight import allocate_branches
from nppsim.observe.foresight_settings import FORESIGHT, Foresight
from nppsim.observe.stacking import NO_STACKS, Stacking, Stacks
from nppsim.parallel.workers import usable_cores
from nppsim.physics.state import ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE, TRAIL_DTYPE, allocate

MIN_ENVS_TO_SPREAD = 32  # with fewer environments, threads cost more than they save


class BatchSimulator:
    """N environments stepped together.

    levels: a LevelBank, levels, or one or several paths (``nppsim.levels.level_set.read_levels``).
    num_envs: N.
    frame_skip: frames per decision, at least 1.
    observations: names or keys of ``layout``.
    reward: a preset's name or a RewardConfig.
    gamma: discount per decision for the shaping term; must equal PPO's discount.
    threads: number of CPU threads; None: one per usable core.
    profile: measure the phases of every call (``step_timing``); None: True if the environment variable NPPSIM_PROFILING
        is 1.
    shadow: compare every step with a reference implementation (``nppsim.shadow``); None: True if the environment
        variable NPPSIM_SHADOW is 1.
    stacking: frames per observation; the stacked frames are part of an environment's state.
    foresight: settings of the observation ``foresight``.
    static: level data prepared by another simulator of the same bank (see ``sibling``).

    Environments restart in the step that ends their episode (Gymnasium's SAME_STEP autoreset).

    Arrays, overwritten by ``reset`` and ``step`` (copy them if needed later):
    obs: key -> [N, ...], or [N, frames, ...] for stacked keys.
    final_obs: the last observations of episodes, in the same shapes.  Row i is valid if ``truncated[i]``; after
        ``step(every_end=True)``, all rows in ``finished`` are valid.
    latest, latest_final: the newest frame of ``obs`` and of ``final_obs``.
    rewards, terminated, truncated: float32[N], bool[N], bool[N].
    episode: EPISODE_DTYPE[N]; only the rows in ``finished`` are valid.
    finished: int64[k], the environments whose episode ended in the last step.
    next_level: int32[N], the level that each environment loads at its next restart; the caller sets it.
    """

    def __init__(
        self,
        levels: LevelBank | Levels,
        num_envs: int,
        *,
        frame_skip: int = FRAME_SKIP,
        observations: Sequence[str] = layout.VISION_FREE,
        reward: str | rewards.RewardConfig = "default",
        gamma: float = rewards.GAMMA,
        threads: int | None = None,
        profile: bool | None = None,
        shadow: bool | None = None,
        stacking: Stacking = NO_STACKS,
        foresight: Foresight = FORESIGHT,
        static: Static | None = None,
    ):
        _check_arguments(num_envs, frame_skip, gamma, threads, stacking, foresight)
        self.bank = levels if isinstance(levels, LevelBank) else LevelBank(read_levels(levels)[0])
        self.num_envs = int(num_envs)
        self.frame_skip = int(frame_skip)
        self.gamma = float(gamma)
        self.keys = layout.observation_keys(observations)
        if inapplicable := stacking.inapplicable(self.keys):
            raise ValueError(
                f"there are no {' or '.join(inapplicable)} observations to stack: only {', '.join(self.keys)} are observed"
            )
        if "foresight" in self.keys and frame_skip > foresight.horizon:
            most = foresight.horizon
            raise ConfigError(
                f"foresight simulates {most} frames, so longer decisions are not supported; give at most {most}, or "
                "remove foresight from the observations",
                "frame_skip",
                frame_skip,
            )
        self.stacking, self.foresight = stacking, foresight
        self.reward_config = rewards.reward_config(reward)
        self.threads = threads or usable_cores()
        self._spread = self.threads > 1 and num_envs >= MIN_ENVS_TO_SPREAD
        self._pool: ThreadPoolExecutor | None = None
        self._pool_process = os.getpid()
        compile_ahead()
        self._allocate_state()
        self._allocate_observations()
        self._static = static or self._make_static()
        self.profile = _enabled(profile, "NPPSIM_PROFILING")
        self._out = self._allocate_output()
        self.next_level = np.arange(num_envs, dtype=np.int32) % len(self.bank)
        self.finished = np.empty(0, np.int64)
        self._turn = 0  # first of the timed environments, see PROFILE_EVERY
        self._started = False
        self.shadow = None
        if _enabled(shadow, "NPPSIM_SHADOW"):
            from nppsim.shadow import Shadow  # rarely needed, and slow to import

            self.shadow = Shadow(self)

    def close(self) -> None:
        """End the threads; the next step starts new ones."""
        if self._pool and self._pool_process == os.getpid():
            self._pool.shutdown()
        self._pool = None

    def _allocate_state(self) -> None:
        parts: list[tuple[np.dtype, tuple[int, ...]]] = [
            (NINJA_DTYPE, ()),
            (PROGRESS_DTYPE, ()),
            (np.dtype("f8"), (rewards.NUM_TERMS,)),
            (ENTITY_DTYPE, (self.bank.max_entities,)),
            (MOVER_DTYPE, (self.bank.max_movers,)),
            (TRAIL_DTYPE, (self.bank.max_trail,)),
            # At least one byte, because numpy also flags an empty view as contiguous (see ``allocate``).
            (np.dtype("u1"), (NUM_BLOCKS if self.reward_config.exploration else 1,)),
        ]
        rows, views = allocate(self.num_envs, parts)
        self._rows = rows[: self.num_envs]
        self._parts: dict[int, list[slice]] = {}  # level -> result of ``_used_parts``
        self.state = State(*views)
        self._fields = make_fields(self.bank, self.num_envs)

    def _allocate_observations(self) -> None:
        pair = {"hazards", "surroundings"}  # one kernel writes both, so the other needs an array, too
        made = {*self.keys, *(pair if pair & {*self.keys} else ())}
        rows = {
            spec.key: np.zeros((2 * self.num_envs if spec.key in made else 0, *spec.shape), spec.dtype)
            for spec in layout.SPECS.values()
        }
        gaps = np.empty((2 * self.num_envs, layout.NUM_HAZARDS))
        foresight_envs = self.num_envs if "foresight" in made else 0
        branches = allocate_branches(foresight_envs, self.bank.max_entities, self.bank.max_movers, self.foresight)
        self._views = Views._make([*rows.values(), gaps, branches])
        self.latest = {key: rows[key][: self.num_envs] for key in self.keys}
        self.latest_final = {key: rows[key][self.num_envs :] for key in self.keys}
        self._stacks = Stacks(self.stacking, self.latest, self.latest_final) if self.stacking else None
        self.obs = self._stacks.obs if self._stacks else self.latest
        self.final_obs = self._stacks.final_obs if self._stacks else self.latest_final

    def _make_static(self) -> Static:
        bank = self.bank
        solid = np.empty((len(bank), *vectors.SOLID_SHAPE), np.uint8)
        pictures = len(bank) if "global_view" in self.keys else 0
        background = np.empty((pictures, *layout.GLOBAL_VIEW_SHAPE), np.uint8)
        prepare_static(bank.stage, solid, background)
        level_ids = np.empty(0, np.int64)
        if "graph_state" in self.keys:
            level_ids = bank.level_ids
            graph.register_bank(bank)
        reward = self.reward_config.record()
        return Static(bank.stage, solid, background, bank.time_limit, bank.path_length, level_ids, reward)

    def _allocate_output(self) -> Output:
        count = self.num_envs
        self.rewards = np.zeros(count, np.float32)
        self.terminated = np.zeros(count, bool)
        self.truncated = np.zeros(count, bool)
        # At least two rows, because numpy flags a column of one row as contiguous (see ``allocate``).
        episodes = np.zeros(max(count, 2), EPISODE_DTYPE)
        self.episode = episodes[:count]
        self._laps = np.zeros((count, clock.NUM_PHASES if self.profile else 0), np.int64)
        columns = (episodes[name] for name in EPISODE_DTYPE.fields or ())
        return Output._make([self.rewards, self.terminated, self.truncated, *columns, self._laps])

    @property
    def time_limit(self) -> np.ndarray:
        """int32[L]: frames after which an episode is truncated, for each level of the bank."""
        return self._static.time_limit

    @property
    def level(self) -> np.ndarray:
        """int32[N]: index of the current level of each environment."""
        return self.state.ninja["level"][: self.num_envs]

    @property
    def step_timing(self) -> dict[str, float]:
        """Nanoseconds of each of ``phases.PHASES`` in the last step or reset, summed over environments and threads.

        Empty without profiling.  The times are extrapolated from every PROFILE_EVERY-th environment, at least one.
        """
        if not self.profile:
            return {}
        timed = self._laps[self._turn :: min(PROFILE_EVERY, self.num_envs)]
        return dict(zip(clock.PHASES, (self.num_envs / len(timed) * np.add.reduce(timed)).tolist(), strict=True))

    def reset(self, levels: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Start every environment on ``levels`` (int[N]; default: ``next_level``) and return the observations.

        An entry of -1 leaves that environment unchanged.
        """
        levels = self._checked_levels(self.next_level if levels is None else levels)
        if not self._started and (levels < 0).any():
            raise ValueError("the first reset must start every environment, but 'levels' contains -1")
        self._started = True
        self._run(np.full(self.num_envs, RESTING), levels)
        if self._stacks:
            self._stacks.write_latest()
            self._stacks.pad(np.flatnonzero(levels >= 0))
        if self.shadow:
            self.shadow.after_reset(levels)
        return self.obs

    def step(
        self, actions: np.ndarray, asleep: np.ndarray | None = None, *, every_end: bool = False
    ) -> dict[str, np.ndarray]:
        """Advance by one decision and return the observations; the other results are attributes, see the class.

        actions: int[N], 0..5.
        asleep: bool[N], environments to skip; their state and observations stay unchanged.
        every_end: write ``final_obs`` for all finished episodes, not only for truncated ones.
        """
        self._check_started("step")
        next_level = self._checked_levels(self.next_level)
        if (next_level < 0).any():
            raise ValueError(f"next_level must be in 0..{len(self.bank) - 1}; got {next_level!r}")
        if asleep is not None and (asleep.shape != (self.num_envs,) or asleep.dtype != bool):
            raise ValueError(f"'asleep' must be bool[{self.num_envs}]; got {asleep!r}")
        return self._step(actions, next_level, every_end, asleep=asleep)

    def _step(
        self,
        actions: np.ndarray,
        next_level: np.ndarray,
        every_end: bool,
        restarting: np.ndarray | None = None,
        asleep: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """Advance by one decision.

        next_level: int32[N]; -1 for environments that do not restart.
        every_end: see ``step``.
        restarting: bool[N], environments that restart instead of making a decision.  Not allowed together with ``asleep``.
        """
        actions = np.asarray(actions)  # no dtype argument, which would truncate floats
        if (
            actions.shape != (self.num_envs,)
            or actions.dtype.kind not in "iu"
            or actions.min() < 0
            or actions.max() >= NUM_ACTIONS
        ):
            raise ValueError(f"actions must be int[{self.num_envs}] in 0..{NUM_ACTIONS - 1}; got {actions!r}")
        actions = np.require(actions, np.int64, ["C", "W", "A"])  # Numba would compile again for other arrays
        idle = restarting if asleep is None else asleep
        if idle is not None:
            actions = np.where(idle, RESTING if asleep is None else ASLEEP, actions)
            self.rewards[idle], self.terminated[idle], self.truncated[idle] = 0.0, False, False
        if self.shadow:
            self.shadow.before(actions)
        if self._stacks:
            self._stacks.shift(slice(None) if idle is None else ~idle)
        self._run(actions, next_level, every_end)
        ended = self.terminated | self.truncated
        self.finished = np.flatnonzero(ended)
        if self._stacks:
            self._stacks.write_final(self.finished)
            self._stacks.write_latest()
            self._stacks.pad(np.flatnonzero((ended if restarting is None else ended | restarting) & (next_level >= 0)))
        if self.shadow:
            self.shadow.after(ended & (next_level >= 0) if every_end else self.truncated)
        return self.obs

    def _run(self, actions: np.ndarray, next_level: np.ndarray, every_end: bool = False) -> None:
        """Run the kernel over all environments, in parts that the threads take from a shared queue.

        These are plain threads with kernels that release the GIL.  Numba's parallel loops use OpenMP threads, which spin
        while they wait; a second busy process on the machine then costs a factor of six.
        """
        self._turn = (self._turn + 1) % min(PROFILE_EVERY, self.num_envs)
        arguments = (
            self._turn, actions, next_level, bool(every_end), self.frame_skip, self.gamma, self.state, self.bank.world,
            self._fields, self._static, self._out, self._views,
        )  # fmt: skip
        if not self._spread or not getattr(advance, "overloads", ()):
            advance(0, self.num_envs, *arguments)
            return
        if self._pool is None or self._pool_process != os.getpid():  # threads do not survive a fork
            self._pool, self._pool_process = ThreadPoolExecutor(self.threads - 1, "nppsim"), os.getpid()
        pool = self._pool
        edges = np.linspace(0, self.num_envs, 2 * self.threads + 1).astype(int).tolist()
        parts = iter(list(itertools.pairwise(edges)))

        def work():
            for begin, end in parts:
                advance(begin, end, *arguments)

        others = [pool.submit(work) for _ in range(self.threads - 1)]
        work()
        for other in others:
            other.result()

    def _checked_levels(self, levels: np.ndarray) -> np.ndarray:
        levels = np.asarray(levels)  # no dtype argument: 2**32 would become 0 in 32 bits
        if (
            levels.shape != (self.num_envs,)
            or levels.dtype.kind not in "iu"
            or levels.max(initial=0) >= len(self.bank)
            or levels.min(initial=0) < -1
        ):
            raise ValueError(f"levels must be int[{self.num_envs}] below {len(self.bank)}; got {levels!r}")
        return np.require(levels, np.int32, ["C", "W", "A"])

    def _check_started(self, method: str) -> None:
        if not self._started:
            raise RuntimeError(f"call reset() before {method}()")

    def snapshot(self, i: int | slice | np.ndarray) -> np.ndarray:
        """Return a copy of the complete state of environment i, uint8[B], or of k environments, uint8[k, B]."""
        if self._stacks is None:
            return self._rows[i].copy()
        return np.concatenate([self._rows[i], *self._stacks.rows(i)], axis=-1)

    def restore(self, i: int | slice | np.ndarray, snapshot: np.ndarray) -> None:
        """Set the state of environment i, or of several, to a ``snapshot``.

        The snapshot may be of any environment of this simulator, or of another one with the same bank and stacking.
        """
        own = self._rows.shape[1]
        expected = own + (self._stacks.row_bytes if self._stacks else 0)
        if snapshot.shape[-1] != expected:
            raise ValueError(
                f"the snapshot has {snapshot.shape[-1]} bytes, expected {expected}; restore snapshots of this simulator, or "
                "of one with the same bank and stacking"
            )
        self._rows[i] = snapshot[..., :own]
        if self._stacks:
            self._stacks.restore(i, snapshot[..., own:])
        self._started = True

    def compact_snapshot(self, i: int) -> np.ndarray:
        """Return a snapshot of environment i for ``restore_compact``, uint8[b], without bytes that its level does not use.

        ``snapshot`` returns as many bytes as the largest level of the bank needs.
        """
        self._check_started("compact_snapshot")
        parts = self._used_parts(int(self.level[i]))
        stacks = [] if self._stacks is None else self._stacks.rows(i)
        return np.concatenate([*(self._rows[i, part] for part in parts), *stacks])

    def restore_compact(self, i: int, snapshot: np.ndarray) -> None:
        """Set the state of environment i to a ``compact_snapshot`` of any environment of this simulator."""
        head, parts = snapshot[: NINJA_DTYPE.itemsize], []
        if head.size == NINJA_DTYPE.itemsize and 0 <= (level := int(head.view(NINJA_DTYPE)["level"][0])) < len(
            self.bank
        ):
            parts = self._used_parts(level)
        expected = sum(part.stop - part.start for part in parts) + (self._stacks.row_bytes if self._stacks else 0)
        if not parts or snapshot.size != expected:
            raise ValueError(
                f"no compact snapshot of a simulator with these levels and this stacking ({snapshot.size} bytes)"
            )
        begin = 0
        for part in parts:
            end = begin + part.stop - part.start
            self._rows[i, part] = snapshot[begin:end]
            begin = end
        if self._stacks:
            self._stacks.restore(i, snapshot[begin:])
        self._started = True

    def _used_parts(self, level: int) -> list[slice]:
        """Return the parts of a state that a level uses."""
        if level not in self._parts:
            record = self.bank.world.level[level]
            counts = {
                "entities": record["entity_end"] - record["entity_first"],
                "movers": record["mover_end"] - record["mover_first"],
                "trail": record["trail"],
            }
            self._parts[level] = []
            for name, values in self.state._asdict().items():
                begin = values.ctypes.data - self._rows.ctypes.data
                self._parts[level].append(slice(begin, begin + values.itemsize * int(counts.get(name, values[0].size))))
        return self._parts[level]

    def forget_frames(self, envs: np.ndarray) -> None:
        """Reset the stacks of environments int[k] to the current frame, as at the start of an episode."""
        if self._stacks:
            self._stacks.pad(envs)

    def observe(self, envs: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Compute the observations of the current states (after ``restore``) and return them.

        envs: int[k], environments to update; None: all.
        """
        self._check_started("observe")
        stay = np.full(self.num_envs, -1, np.int32)
        if envs is None:
            return self.reset(stay)
        actions = np.full(self.num_envs, ASLEEP)
        actions[envs] = RESTING
        self._run(actions, stay)
        if self._stacks:
            self._stacks.write_latest(envs)
        if self.shadow:
            self.shadow.after_observing(envs)
        return self.obs

    def sibling(self, num_envs: int = 1, observations: Sequence[str] = ("game_state",)) -> "BatchSimulator":
        """Create a simulator with the same levels and settings, on one thread; both accept each other's snapshots.

        observations: names or keys of ``layout``.  The stacked keys, which are part of a state, are always added.
        """
        wanted = (*observations, *self.stacking.stacked(self.keys))
        return BatchSimulator(
            self.bank,
            num_envs,
            frame_skip=self.frame_skip,
            observations=wanted,
            reward=self.reward_config,
            gamma=self.gamma,
            threads=1,
            profile=False,
            shadow=False,
            stacking=self.stacking,
            foresight=self.foresight,
            static=self._static if {*layout.observation_keys(wanted)} <= {*self.keys} else None,
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a BatchSimulator can be neither pickled nor deep-copied, because its arrays are views of shared memory; "
            "use sibling(), or a new one with the same arguments, and snapshot() and restore()"
        )

    def action_masks(self) -> np.ndarray:
        """Return bool[N, 6]: actions with a distinct effect in the current state, for action masking."""
        self._check_started("action_masks")
        allowed = np.empty((self.num_envs, NUM_ACTIONS), bool)
        masks(self.state, allowed)
        return allowed


def _check_arguments(
    num_envs: int, frame_skip: int, gamma: float, threads: int | None, stacking: Stacking, foresight: Foresight
) -> None:
    """Raise ValueError or TypeError for invalid arguments of a ``BatchSimulator``."""
    if num_envs < 1 or frame_skip < 1 or num_envs % 1 or frame_skip % 1:
        raise ValueError(
            f"num_envs and frame_skip must be whole numbers of at least 1; got {num_envs} and {frame_skip}"
        )
    if not 0.0 < gamma <= 1.0:
        raise ValueError(f"gamma must be in (0, 1]; got {gamma}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1; got {threads}")
    if not isinstance(stacking, Stacking) or not isinstance(foresight, Foresight):
        raise TypeError(f"give a Stacking and a Foresight (docs/api.md); got {stacking!r} and {foresight!r}")


@functools.cache
def compile_ahead() -> None:
    """Compile ``advance`` in a second process if no process has begun to; ``decorators.SharedCache`` waits for it.

    Only the first call of a process has an effect, and only one such process runs per machine.
    """
    if usable_cores() > 1 and not numba_config.DISABLE_JIT and not any(CACHE_FOLDER.glob("*/decision.advance*")):
        options: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        sources = os.pathsep.join((str(Path(__file__).parents[1]), *sys.path))  # import this version of the package
        options["env"] = {**os.environ, "PYTHONPATH": sources}
        command = [sys.executable, "-P", "-m", "nppsim._numba.ahead"]
        threading.Thread(target=subprocess.run, args=(command,), kwargs=options, daemon=True).start()


def _enabled(choice: bool | None, variable: str) -> bool:
    """Return ``choice``; if it is None, return True if the environment variable is 1."""
    return os.environ.get(variable) == "1" if choice is None else bool(choice)
