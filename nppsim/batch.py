"""BatchSimulator: N environments over a LevelBank, one call per decision.

One kernel (``nppsim.decision``) advances every environment by ``frame_skip`` frames, adds up rewards, restarts finished
episodes and writes observations straight into arrays that the caller keeps.  An environment is one row of bytes; nothing
depends on the number of threads or on which environments share a batch.
"""

import itertools
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from nppsim import _cache
from nppsim import _phases as clock
from nppsim import reward as rewards
from nppsim.actions import FRAME_SKIP, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.decision import (
    EPISODE_DTYPE,
    NUM_BLOCKS,
    PROFILE_EVERY,
    PROGRESS_DTYPE,
    Output,
    State,
    Static,
    Views,
    advance,
    make_fields,
    masks,
    prepare_static,
)
from nppsim.levels.level import Level
from nppsim.observe import layout, vectors
from nppsim.physics.state import ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE, allocate

MIN_ENVS_TO_SPREAD = 32  # fewer are not worth waking a thread for


class BatchSimulator:
    """N environments, stepped together.

    levels: a LevelBank or a sequence of levels.  num_envs: N.  frame_skip: frames per decision, at least 1.
    observations: names or keys of ``layout``.  reward: a preset's name or a RewardConfig.  gamma: discount per decision,
    used by the shaping term; give PPO the same.  threads: CPU threads; all usable ones if None.
    profile: measure the phases of every call (``step_timing``); None: if the environment variable NPPSIM_PROFILING is 1.
    shadow: compare every step with slow twins (``nppsim.shadow``); None: if NPPSIM_SHADOW=1 is in the environment.

    Arrays, written in place by ``reset`` and ``step`` (copy what you keep):
    obs, final_obs: key -> [N, ...]; row i of final_obs is valid where ``truncated[i]``: the state that was cut off.
    rewards float32[N], terminated bool[N], truncated bool[N]; episode EPISODE_DTYPE[N], rows ``finished`` are valid.
    next_level int32[N]: the level that each environment loads at its next restart; the caller sets it.
    Environments restart in the very step that ends their episode (Gymnasium's SAME_STEP autoreset).
    """

    def __init__(
        self,
        levels: LevelBank | Sequence[Level],
        num_envs: int,
        *,
        frame_skip: int = FRAME_SKIP,
        observations: Sequence[str] = layout.VISION_FREE,
        reward: str | rewards.RewardConfig = "default",
        gamma: float = 0.995,
        threads: int | None = None,
        profile: bool | None = None,
        shadow: bool | None = None,
    ):
        if num_envs < 1 or frame_skip < 1:
            raise ValueError(f"num_envs and frame_skip must be at least 1; got {num_envs} and {frame_skip}")
        if not 0.0 < gamma <= 1.0:
            raise ValueError(f"gamma must be in (0, 1]; got {gamma}")
        self.bank = levels if isinstance(levels, LevelBank) else LevelBank(levels)
        self.num_envs = int(num_envs)
        self.frame_skip = int(frame_skip)
        self.gamma = float(gamma)
        self.keys = layout.observation_keys(observations)
        self.reward_config = rewards.reward_config(reward)
        self.threads = _usable_threads(threads)
        spread = self.threads > 1 and num_envs >= MIN_ENVS_TO_SPREAD
        self._pool = ThreadPoolExecutor(self.threads - 1, "nppsim") if spread else None
        self._allocate_state()
        rows = self._allocate_observations()
        self.obs = {key: rows[key][:num_envs] for key in self.keys}
        self.final_obs = {key: rows[key][num_envs:] for key in self.keys}
        self._views = self._as_views(rows)
        wants_view = "global_view" in self.keys
        solid = np.empty((len(self.bank), *vectors.SOLID_SHAPE), np.uint8)
        background = np.empty((len(self.bank) if wants_view else 0, *layout.GLOBAL_VIEW_SHAPE), np.uint8)
        prepare_static(self.bank.stage, solid, background)
        reward_vector = self.reward_config.vector()
        self._static = Static(
            self.bank.stage, solid, background, self.bank.time_limit, self.bank.path_length, reward_vector
        )
        self.rewards = np.zeros(num_envs, np.float32)
        self.terminated = np.zeros(num_envs, bool)
        self.truncated = np.zeros(num_envs, bool)
        episodes = np.zeros(max(num_envs, 2), EPISODE_DTYPE)
        self.episode = episodes[:num_envs]
        self.next_level = np.arange(num_envs, dtype=np.int32) % len(self.bank)
        self.profile = os.environ.get("NPPSIM_PROFILING") == "1" if profile is None else bool(profile)
        self._laps = np.zeros((num_envs, clock.NUM_PHASES if self.profile else 0), np.int64)
        self._turn = 0  # timed environments: this one, and every PROFILE_EVERY-th from there
        records = (episodes[name] for name in EPISODE_DTYPE.names)
        self._out = Output(self.rewards, self.terminated, self.truncated, *records, self._laps)
        self.finished = np.empty(0, np.int64)
        self._started = False
        self.shadow = None
        if os.environ.get("NPPSIM_SHADOW") == "1" if shadow is None else shadow:
            from nppsim import shadow as twins  # which build on this module

            self.shadow = twins.Shadow(self)

    def _allocate_state(self):
        # At least one byte of each part: a view of nothing counts as contiguous too (see ``allocate``).
        blocks = NUM_BLOCKS if self.reward_config.exploration else 1
        terms = (np.dtype("f8"), (rewards.NUM_TERMS,))
        parts = [
            (NINJA_DTYPE, ()),
            (PROGRESS_DTYPE, ()),
            terms,
            (ENTITY_DTYPE, (self.bank.max_entities,)),
            (MOVER_DTYPE, (self.bank.max_movers,)),
        ]
        parts.append((np.dtype("u1"), (blocks,)))
        self._rows, views = allocate(self.num_envs, parts)
        self.state = State(*views)
        self._fields = make_fields(self.bank, self.num_envs)

    def _allocate_observations(self) -> dict[str, np.ndarray]:
        """Arrays [2 N, ...] of the wanted keys; hazards and surroundings are made together."""
        pair = ("hazards", "surroundings")
        wanted = {*self.keys, *(pair if set(pair) & set(self.keys) else ())}
        specs = (layout.SPECS[key] for key in layout.SPECS if key in wanted)
        return {spec.key: np.zeros((2 * self.num_envs, *spec.shape), spec.dtype) for spec in specs}

    def _as_views(self, rows: dict[str, np.ndarray]) -> Views:
        views = (rows.get(s.key, np.zeros((0, *s.shape), s.dtype)) for s in layout.SPECS.values())
        return Views(*views, np.empty((2 * self.num_envs, layout.NUM_HAZARDS)))

    @property
    def level(self) -> np.ndarray:
        """int32[N]: index of the level that each environment plays now."""
        return self.state.ninja["level"][: self.num_envs]

    @property
    def step_timing(self) -> dict[str, float]:
        """Nanoseconds of each of ``laps.PHASES`` in the last step or reset, all environments and threads together.

        Empty without profiling.  One environment in PROFILE_EVERY is timed, but at least one, and counted for the others.
        """
        if not self.profile:
            return {}
        timed = self._laps[self._turn :: min(PROFILE_EVERY, self.num_envs)]
        return dict(zip(clock.PHASES, (self.num_envs / len(timed) * np.add.reduce(timed)).tolist(), strict=True))

    def reset(self, levels: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Start every environment on ``levels`` (int[N]; default: ``next_level``) and return the observations.

        An entry of -1 leaves that environment as it is.
        """
        levels = self._checked_levels(self.next_level if levels is None else levels)
        if not self._started and (levels < 0).any():
            raise ValueError("the first reset must start every environment; levels contains -1")
        self._started = True
        self._run(np.full(self.num_envs, -1), levels)
        if self.shadow:
            self.shadow.after_reset(levels)
        return self.obs

    def step(self, actions: np.ndarray) -> dict[str, np.ndarray]:
        """Advance by one decision.  actions: int[N], 0..5.  Returns the observations; see the class for the rest."""
        if not self._started:
            raise RuntimeError("call reset() before step()")
        next_level = self._checked_levels(self.next_level)
        if (next_level < 0).any():
            raise ValueError(f"next_level must be in 0..{len(self.bank) - 1}; got {next_level!r}")
        return self._step(actions, next_level, every_end=False)

    def _step(self, actions: np.ndarray, next_level: np.ndarray, every_end: bool) -> dict[str, np.ndarray]:
        """One decision of each environment; no restart where ``next_level`` is -1.  every_end: see ``advance``."""
        actions = np.ascontiguousarray(actions, np.int64)
        if actions.shape != (self.num_envs,) or (actions.view(np.uint64) >= NUM_ACTIONS).any():
            raise ValueError(f"actions must be int[{self.num_envs}] in 0..{NUM_ACTIONS - 1}; got {actions!r}")
        if self.shadow:
            self.shadow.before(actions)
        self._run(actions, next_level, every_end)
        ended = self.terminated | self.truncated
        self.finished = np.flatnonzero(ended)
        if self.shadow:
            self.shadow.after(ended & (next_level >= 0) if every_end else self.truncated)
        return self.obs

    def _run(self, actions: np.ndarray, next_level: np.ndarray, every_end: bool = False) -> None:
        """Run the kernel over all environments, in parts that the threads take one after another.

        Plain threads and kernels without the interpreter's lock, rather than Numba's parallel loops: OpenMP's waiting
        threads spin, and a second busy process on the machine then costs a factor of six.
        """
        self._turn = (self._turn + 1) % min(PROFILE_EVERY, self.num_envs)
        arguments = (
            self._turn, actions, next_level, every_end, self.frame_skip, self.gamma, self.state, self.bank.world,
            self._fields, self._static, self._out, self._views,
        )  # fmt: skip
        with _announced_compilation(advance):
            if self._pool is None or not getattr(advance, "signatures", ()):
                advance(0, self.num_envs, *arguments)
                return
            edges = np.linspace(0, self.num_envs, 2 * self.threads + 1).astype(int).tolist()
            parts = iter(list(itertools.pairwise(edges)))

            def work():
                for begin, end in parts:
                    advance(begin, end, *arguments)

            others = [self._pool.submit(work) for _ in range(self.threads - 1)]
            work()
            for other in others:
                other.result()

    def _checked_levels(self, levels: np.ndarray) -> np.ndarray:
        levels = np.ascontiguousarray(levels, np.int32)
        if levels.shape != (self.num_envs,) or levels.max(initial=-1) >= len(self.bank) or levels.min(initial=0) < -1:
            raise ValueError(f"levels must be int[{self.num_envs}] below {len(self.bank)}; got {levels!r}")
        return levels

    def snapshot(self, i) -> np.ndarray:
        """uint8[..., B]: everything that the future of environment i, or of each of several, depends on."""
        return self._rows[i].copy()

    def restore(self, i, snapshot: np.ndarray) -> None:
        """Put environment i, or several, into states taken by ``snapshot`` (of any environments of this simulator, or of
        another one with the same bank)."""
        if snapshot.shape[-1] != self._rows.shape[1]:
            raise ValueError(f"a snapshot has {snapshot.shape[-1]} bytes, this simulator's have {self._rows.shape[1]}")
        self._rows[i] = snapshot
        self._started = True

    def observe(self) -> dict[str, np.ndarray]:
        """Write the observations of the present states (after ``restore``) and return them."""
        return self.reset(np.full(self.num_envs, -1, np.int32))

    def action_masks(self) -> np.ndarray:
        """bool[N, 6]: actions that can have an effect."""
        allowed = np.empty((self.num_envs, NUM_ACTIONS), bool)
        masks(self.state, allowed)
        return allowed


def _usable_threads(threads: int | None) -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1; got {threads}")
    return threads or usable


class _announced_compilation:
    """Say so, once, when a kernel is about to be compiled rather than loaded."""

    def __init__(self, kernel):
        compiles = hasattr(kernel, "signatures")  # not with NUMBA_DISABLE_JIT=1
        self.announce = (
            compiles
            and not kernel.signatures
            and not any(_cache.CACHE_FOLDER.rglob(f"{kernel.__module__.split('.')[-1]}.{kernel.__name__}*"))
        )

    def __enter__(self):
        self.begin = time.monotonic()
        if self.announce:
            print("nppsim: compiling a kernel for this machine (once per version) ...", file=sys.stderr, flush=True)

    def __exit__(self, *_):
        if self.announce:
            print(f"nppsim: compiled in {time.monotonic() - self.begin:.0f} s", file=sys.stderr, flush=True)
