"""Shadow validation: slow reference implementations of observations, path distances and rewards.

    sim = BatchSimulator(levels, 16, shadow=True)   # or NPPSIM_SHADOW=1 in the environment
    sim.step(actions)
    sim.shadow.comparisons, sim.shadow.mismatches

They are written in Python and numpy from the pages in docs/.  They use other methods than the kernels, e.g. pictures of
the whole level and a path search with a heap, and import only constants and layouts from the kernels' modules.
``docs/development.md`` gives the slowdown.
"""

import atexit
import functools
import os
import sys
import weakref
from collections import Counter
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from nppsim.actions import ACTION_INPUT
from nppsim.bank import LevelBank
from nppsim.decision import Fields, State
from nppsim.observe import layout
from nppsim.observe.foresight_settings import Foresight
from nppsim.physics.outcomes import DIED, TIMEOUT, WON
from nppsim.physics.state import CELEBRATING, DEAD, ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE
from nppsim.physics.tick import start
from nppsim.reward import PATH_SHAPING, TERMS, RewardConfig
from nppsim.shadow.foresight import foresight
from nppsim.shadow.geometry import ReferenceState
from nppsim.shadow.paths import COLUMNS, ROWS, UNREACHED
from nppsim.shadow.reference_level import ReferenceLevel
from nppsim.shadow.rewards import EpisodeRewards, sum_in_order
from nppsim.shadow.state_simulator import Rows, StateSimulator
from nppsim.shadow.views import VIEWS

CACHED_LEVELS = 2048  # maximum number of ReferenceLevels in memory
_FIRST_REPORTS = (1_000, 10_000)  # a line is printed after these numbers of comparisons
_REPORT_EVERY = 100_000  # a line is also printed after each multiple of this number
_NO_STEPS = np.empty(0, np.uint8)


class Simulator(Protocol):
    """Settings, states and results that ``Shadow`` reads; implemented by BatchSimulator, which imports this module."""

    bank: LevelBank
    num_envs: int
    frame_skip: int
    gamma: float
    keys: tuple[str, ...]
    foresight: Foresight
    reward_config: RewardConfig
    state: State
    latest: dict[str, np.ndarray]
    latest_final: dict[str, np.ndarray]
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    episode: np.ndarray
    next_level: np.ndarray
    _fields: Fields

    @property
    def time_limit(self) -> np.ndarray: ...


class Shadow:
    """Comparison of a BatchSimulator's results with those of the reference implementations, byte for byte.

    simulator: a BatchSimulator; it calls ``before`` and ``after`` around each step and ``after_reset`` after each reset.

    One comparison covers one environment at one step or reset: physics replayed frame by frame with the kernel ``play_on``,
    all reward terms, the end of the episode and the restart, all observations, and the path fields that they use.
    Attributes: ``comparisons_of``, ``mismatches_of``, int64[N], numbers of comparisons and mismatches per environment;
    ``kinds``, Counter of mismatches by kind.  A comparison counts at most one mismatch per kind.
    A mismatch raises no error; the first one of each kind is printed to stderr.
    """

    def __init__(self, simulator: Simulator):
        bank = simulator.bank
        self._simulator = weakref.proxy(simulator)  # weak, because the simulator owns this object
        self._reference = functools.lru_cache(CACHED_LEVELS)(
            lambda level: ReferenceLevel(bank.levels[level], bank.completions)
        )
        self._step, self._branches = (
            StateSimulator(bank),
            StateSimulator(bank),
        )  # for the step; for branches of ``foresight``
        self.comparisons_of = np.zeros(simulator.num_envs, np.int64)
        self.mismatches_of = np.zeros(simulator.num_envs, np.int64)
        self.kinds: Counter[str] = Counter()
        self._found: set[str] = set()  # kinds of mismatches in the current comparison
        self._described_state = ""  # environment, level and frame of the current comparison, for messages
        if os.environ.get("NPPSIM_SHADOW") == "1":
            atexit.register(self._print_total)

    @property
    def comparisons(self) -> int:
        """Number of comparisons."""
        return int(self.comparisons_of.sum())

    @property
    def mismatches(self) -> int:
        """Number of mismatches."""
        return self.kinds.total()

    def _print_total(self) -> None:
        """Print the numbers of comparisons and mismatches; scripts/run_training_validation.sh reads this line."""
        print(
            f"shadow: total of {len(self.comparisons_of)} environments: {self.comparisons} comparisons, at least "
            f"{self.comparisons_of.min()} in each, {self.mismatches} mismatches",
            file=sys.stderr,
        )

    # ------------------------------------------------------------------------------------------ called by the simulator
    def before(self, actions: np.ndarray) -> None:
        """Store the states before a step.  actions: int[N]; environments with negative actions are not compared."""
        self._before = State(*(part.copy() for part in self._simulator.state))
        self._actions = actions.copy()

    def after(self, final: np.ndarray) -> None:
        """Compare the step.  final: bool[N], True if ``latest_final`` has the last observations of the episode."""
        for i in np.flatnonzero(self._actions >= 0).tolist():
            self._compare_step(i, bool(final[i]))
            self._count(i)

    def after_reset(self, levels: np.ndarray) -> None:
        """Compare all environments after a reset.  levels: int[N], as for ``reset``; -1: not restarted."""
        for i, level in enumerate(levels.tolist()):
            self._compare_present(i, level)
            self._count(i)

    def after_observing(self, envs: np.ndarray) -> None:
        """Compare environments int[k] whose states were set externally."""
        for i in envs.tolist():
            self._compare_present(i)
            self._count(i)

    # ------------------------------------------------------------------------------------------------------ comparisons
    def _compare_step(self, i: int, final: bool) -> None:
        """Compare the step of environment i."""
        simulator = self._simulator
        before = State(*(part[i] for part in self._before))
        level = int(before.ninja["level"])
        reference = self._reference(level)
        rewards = EpisodeRewards(
            simulator.reward_config,
            simulator.gamma,
            reference,
            reference.state_of(before.ninja, before.entities, before.movers),
        )
        rewards.resume(before.progress, before.terms, before.visited)

        self._step.load((before.ninja, before.entities, before.movers, before.trail))
        ninja, entities, movers, _ = self._step.rows
        frames = []
        for _ in range(simulator.frame_skip):
            self._step.play([ACTION_INPUT[self._actions[i]]])
            frames.append(reference.state_of(ninja, entities, movers))
            if ninja["state"] in (DEAD, CELEBRATING):
                break
        now = frames[-1]
        self._described_state = self._described(i, level, now)
        values = rewards.decide(frames)
        won, died = now.ninja["state"] == CELEBRATING, now.ninja["state"] == DEAD
        truncated = not (won or died) and now.ninja["frame"] >= simulator.time_limit[level]
        self._check("reward", simulator.rewards[i], sum_in_order(values))
        self._check("terminated", simulator.terminated[i], won or died)
        self._check("truncated", simulator.truncated[i], truncated)
        ended = bool(simulator.terminated[i] or simulator.truncated[i])  # a wrong flag is reported only once
        if ended:
            outcome = WON if won else (DIED if died else TIMEOUT)
            length = (now.ninja["frame"], rewards.decisions, now.ninja["gold"])
            record = (level, outcome, *length, sum_in_order(rewards.terms), rewards.terms)
            self._check("episode", simulator.episode[i], np.array(record, simulator.episode.dtype))
        if final:
            self._check_views("final ", i, simulator.latest_final, reference, self._step.rows)
        restarted_on = int(simulator.next_level[i]) if ended else -1
        if restarted_on < 0:
            self._check_state(i, ninja, entities[: len(reference.listed)], movers)
            self._check_rewards(i, rewards)
        self._compare_present(i, restarted_on)

    def _compare_present(self, i: int, started_on: int = -1) -> None:
        """Compare the current state of environment i.  started_on: level on which it was just started; -1: not started."""
        simulator, state = self._simulator, self._simulator.state
        level = int(state.ninja["level"][i]) if started_on < 0 else started_on
        reference = self._reference(level)
        rows = state.ninja[i], state.entities[i], state.movers[i], state.trail[i]
        now = reference.state_of(*rows[:3])
        self._described_state = self._described(i, level, now)
        if started_on >= 0:
            ninja, entities = np.zeros(1, NINJA_DTYPE), np.zeros((1, simulator.bank.max_entities), ENTITY_DTYPE)
            movers = np.zeros((1, simulator.bank.max_movers), MOVER_DTYPE)
            start(ninja[0], entities[0], movers[0], simulator.bank.world, level)
            self._check_state(i, ninja[0], entities[0, : len(reference.listed)], movers[0])
            self._check_rewards(i, EpisodeRewards(simulator.reward_config, simulator.gamma, reference, now))
        self._check_views("", i, simulator.latest, reference, rows)

    def _check_state(self, i: int, ninja: np.void, entities: np.ndarray, movers: np.ndarray) -> None:
        state, bank = self._simulator.state, self._simulator.bank
        count = len(bank.compiled[int(ninja["level"])].world.mover)
        self._check("ninja", state.ninja[i], ninja)
        self._check("entities", state.entities[i, : len(entities)], entities)
        self._check("movers", state.movers[i, :count], movers[:count])

    def _check_rewards(self, i: int, rewards: EpisodeRewards) -> None:
        state = self._simulator.state
        for name, value in rewards.progress().items():
            self._check(f"progress {name}", state.progress[name][i], value)
        self._check("reward sums", state.terms[i], rewards.terms, TERMS)
        self._check("visited blocks", state.visited[i], rewards.visited_flags(state.visited.shape[1]))

    def _check_views(
        self,
        prefix: str,
        i: int,
        obs: dict[str, np.ndarray],
        reference: ReferenceLevel,
        rows: Rows,
    ) -> None:
        """Compare all observations.  rows: ninja, entities, movers and trail of the observed state."""
        simulator, now = self._simulator, reference.state_of(*rows[:3])
        next_step = self._check_paths(i, reference, now)
        for key, values in obs.items():
            if key == "foresight":
                wanted = foresight(reference, rows, self._branches, simulator.frame_skip, simulator.foresight)
                self._check(prefix + key, values[i], wanted, layout.SPECS[key].components)
            elif key != "reachability_features" or len(next_step):  # if it is empty, its error is already reported
                self._check(
                    prefix + key, values[i], VIEWS[key](reference, now, next_step), layout.SPECS[key].components
                )

    def _check_paths(self, i: int, reference: ReferenceLevel, now: ReferenceState) -> np.ndarray:
        """Compare the path fields; return ``next_step`` uint8[2, 4539], or an empty array if it is unused or wrong."""
        simulator, config, level = self._simulator, self._simulator.reward_config, now.ninja["level"]
        over = now.ninja["state"] in (CELEBRATING, DEAD)
        shaped = config.shaping and config.potential == PATH_SHAPING and not over
        if not shaped and not {"reachability_features", "foresight"} & {*simulator.keys}:
            return _NO_STEPS
        if reference.door_state(now) == reference.at_start:
            distance, next_step = simulator.bank.paths.distance[level], simulator.bank.paths.next_step[level]
            switch_to_exit = simulator.bank.paths.switch_to_exit[level]
        else:
            fields = simulator._fields
            distance, next_step = fields.own_distance[i], fields.own_next_step[i]
            switch_to_exit = fields.own_switch_to_exit[i]
        wanted = reference.path_fields(now)
        self._check("path distance", distance.reshape(2, COLUMNS, ROWS), wanted.distances.reshape(2, COLUMNS, ROWS))
        length = UNREACHED if wanted.switch_to_exit is None else wanted.switch_to_exit
        self._check("path from switch to exit", switch_to_exit, length)
        wrong = wanted.wrong_steps(next_step)
        if len(wrong):
            index = tuple(wrong[0].tolist())
            got = next_step.reshape(2, COLUMNS, ROWS)[index]
            self._mismatch("path step", index, "", got, "the direction of a shortest path")
            return _NO_STEPS
        return next_step

    # ------------------------------------------------------------------------------------------------------- bookkeeping
    def _described(self, i: int, level: int, now: ReferenceState) -> str:
        return f"environment {i}, level {self._simulator.bank.levels[level].name!r}, frame {now.ninja['frame']}"

    def _check(
        self, kind: str, got: ArrayLike, wanted: ArrayLike, names: tuple[str, ...] = (), field: str = ""
    ) -> None:
        """Compare the bytes of two arrays, records or numbers, after a cast of ``wanted`` to the dtype of ``got``.

        names: names of the components along the last axis.
        """
        got = np.asarray(got)
        wanted = np.asarray(wanted, got.dtype)
        if got.tobytes() == wanted.tobytes():
            return
        for name in got.dtype.names or ():  # bytes between the fields are ignored
            self._check(kind, got[name], wanted[name], field=name)
        if got.dtype.names is None:
            bits = f"u{got.dtype.itemsize}"
            index = tuple(np.argwhere(got.view(bits) != wanted.view(bits))[0].tolist())
            self._mismatch(kind, index, names[index[-1]] if names else field, got[index], wanted[index])

    def _mismatch(self, kind: str, index: tuple[int, ...], name: str, got: object, wanted: object) -> None:
        if kind not in self.kinds and kind not in self._found:
            where = f"index {index}" + (f" ({name})" if name else "")
            print(
                f"shadow: first mismatch of {kind}: {self._described_state}, {where}: simulator {got}, reference {wanted}",
                file=sys.stderr,
                flush=True,
            )
        self._found.add(kind)

    def _count(self, i: int) -> None:
        self.comparisons_of[i] += 1
        self.mismatches_of[i] += len(self._found)
        self.kinds.update(sorted(self._found))
        self._found.clear()
        count = self.comparisons
        if count in _FIRST_REPORTS or count % _REPORT_EVERY == 0:
            print(f"shadow: {count:,} comparisons, {self.mismatches:,} mismatches", file=sys.stderr, flush=True)
