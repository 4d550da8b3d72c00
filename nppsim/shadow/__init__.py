"""Shadow validation: a second, slow path for observations, path distances and rewards, beside the kernels.

    sim = BatchSimulator(levels, 16, shadow=True)   # or NPPSIM_SHADOW=1 in the environment
    sim.step(actions)
    sim.shadow.comparisons, sim.shadow.mismatches

The twins here are plain Python and numpy, written from the documents by other methods (tiles are outlines cut from
pictures of the whole level, paths are found with a heap); from the kernels' modules they take constants and layouts only.
What is compared, and what it costs: ``docs/development.md``.
"""

import sys
import time
import weakref
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from nppsim.actions import ACTION_INPUT
from nppsim.decision import State
from nppsim.observe import layout
from nppsim.outcomes import DIED, TIMEOUT, WON
from nppsim.physics.state import CELEBRATING, DEAD, ENTITY_DTYPE, MOVER_DTYPE, NINJA_DTYPE
from nppsim.physics.tick import start, tick
from nppsim.reward import PATH_SHAPING, TERMS
from nppsim.shadow import report
from nppsim.shadow.foresight import foresight
from nppsim.shadow.geometry import StateTwin
from nppsim.shadow.level_twin import LevelTwin
from nppsim.shadow.paths import COLUMNS, ROWS, UNREACHED
from nppsim.shadow.rewards import Ledger, sum_in_order
from nppsim.shadow.views import VIEWS

if TYPE_CHECKING:
    from nppsim.batch import BatchSimulator

KEPT_LEVELS = 2048  # level twins in memory
_FIRST_REPORTS = (1_000, 10_000)  # comparisons after which a line is printed,
_REPORT_EVERY = 100_000  # and after each multiple of this
_NO_HOPS = np.empty(0, np.uint8)


class Shadow:
    """Compares what a BatchSimulator gives with what the twins compute, environment by environment, byte by byte.

    simulator: a BatchSimulator; it calls ``before`` and ``after`` around each step and ``after_reset`` after each reset.
    every: check every n-th step of each environment, staggered, so that each step checks num_envs / n of them.

    One comparison is one environment at one step (or reset): physics replayed frame by frame with the kernel ``tick``,
    all terms of the reward, the end of the episode and the restart, all observations, and the path fields behind them.
    comparisons, mismatches: int; a comparison finds one mismatch for each kind of value that differs.
    comparisons_of, mismatches_of: int64[N], the same for each environment.  kinds: Counter, kind -> mismatches.
    A mismatch raises nothing: the first one of each kind is printed to stderr.
    """

    def __init__(self, simulator: "BatchSimulator", every: int = 1):
        if every < 1:
            raise ValueError(f"every must be at least 1; got {every}")
        self._simulator = weakref.proxy(simulator)  # which owns this shadow
        self._facts = {
            "environments": simulator.num_envs,
            "levels": len(simulator.bank),
            "observations": list(simulator.keys),
            "every": every,
        }
        self.every = every
        self.comparisons = 0
        self.comparisons_of = np.zeros(simulator.num_envs, np.int64)
        self.mismatches_of = np.zeros(simulator.num_envs, np.int64)
        self.kinds: Counter[str] = Counter()
        self._found: set[str] = set()  # kinds of mismatches in the present comparison
        self._place = ""  # of the present comparison, for messages
        self._steps = self._timed = 0
        self._slow_s = self._fast_s = 0.0
        self._twins: OrderedDict[int, LevelTwin] = OrderedDict()
        report.register(self.summary)

    @property
    def mismatches(self) -> int:
        return self.kinds.total()

    @property
    def ms_per_comparison(self) -> float:
        """Wall time of a comparison in a step, the first step left out (it compiles)."""
        return 1e3 * self._slow_s / max(self._timed, 1)

    @property
    def slow_to_fast(self) -> float:
        """Time of the comparisons to the simulator's own for the same decisions."""
        return self._slow_s / max(self._fast_s, 1e-9)

    def summary(self) -> dict:
        """Return the facts for a report, JSON types only."""
        return self._facts | {
            "comparisons": self.comparisons,
            "mismatches": self.mismatches,
            "mismatches_of_kind": dict(self.kinds),
            "comparisons_of_environment": self.comparisons_of.tolist(),
            "mismatches_of_environment": self.mismatches_of.tolist(),
            "ms_per_comparison": self.ms_per_comparison,
            "slow_to_fast": self.slow_to_fast,
        }

    # ------------------------------------------------------------------------------------------ called by the simulator
    def before(self, actions: np.ndarray) -> None:
        """Store the states before the next step for its comparison.  actions: int[N]; below 0: no action, no comparison."""
        self._began = time.perf_counter()
        self._rows = np.flatnonzero(((np.arange(len(actions)) + self._steps) % self.every == 0) & (actions >= 0))
        self._before = State(*(part[self._rows] for part in self._simulator.state))
        self._actions = actions.copy()
        self._kept = time.perf_counter()

    def after(self, final: np.ndarray) -> None:
        """Compare the step.  final: bool[N], rows whose last observations of an episode are in ``latest_final``."""
        stepped = time.perf_counter()
        for place, i in enumerate(self._rows.tolist()):
            self._compare_step(i, place, bool(final[i]))
            self._count(i)
        if self._steps:
            self._timed += len(self._rows)
            self._fast_s += (stepped - self._kept) * len(self._rows) / len(final)
            self._slow_s += self._kept - self._began + time.perf_counter() - stepped
        self._steps += 1

    def after_reset(self, levels: np.ndarray) -> None:
        """Compare all environments after a reset.  levels: int[N] as given to it; -1: not restarted."""
        for i, level in enumerate(levels.tolist()):
            self._compare_present(i, None if level < 0 else level)
            self._count(i)

    def after_observing(self, envs: np.ndarray) -> None:
        """Compare these environments, which have been put somewhere.  envs: int[k]."""
        for i in envs.tolist():
            self._compare_present(i, None)
            self._count(i)

    # ------------------------------------------------------------------------------------------------------ comparisons
    def _compare_step(self, i: int, place: int, final: bool) -> None:
        """Environment i, whose state before the step is in row ``place``."""
        simulator = self._simulator
        before = State(*(part[place] for part in self._before))
        level = int(before.ninja["level"])
        twin = self._twin(level)
        count = len(twin.listed)
        began = twin.state_twin(before.ninja, before.entities, before.movers)
        ledger = Ledger(simulator.reward_config, simulator.gamma, twin, began)
        ledger.resume(before.progress, before.terms, before.visited)

        ninja, entities, movers, trail, frames = before.ninja, before.entities, before.movers, before.trail, []
        for _ in range(simulator.frame_skip):
            tick(ninja, entities, movers, trail, simulator.bank.world, ACTION_INPUT[self._actions[i]])
            frames.append(twin.state_twin(ninja, entities, movers))
            if ninja["state"] in (DEAD, CELEBRATING):
                break
        now = frames[-1]
        self._place = self._described(i, level, now)
        values = ledger.decide(frames)
        won, died = now.ninja["state"] == CELEBRATING, now.ninja["state"] == DEAD
        truncated = not (won or died) and now.ninja["frame"] >= simulator.time_limit[level]
        self._check("reward", simulator.rewards[i], sum_in_order(values))
        self._check("terminated", simulator.terminated[i], won or died)
        self._check("truncated", simulator.truncated[i], truncated)
        ended = bool(simulator.terminated[i] or simulator.truncated[i])  # one wrong flag is reported once
        if ended:
            outcome = WON if won else (DIED if died else TIMEOUT)
            length = (now.ninja["frame"], ledger.decisions, now.ninja["gold"])
            record = (level, outcome, *length, sum_in_order(ledger.terms), ledger.terms)
            self._check("episode", simulator.episode[i], np.array(record, simulator.episode.dtype))
        if final:
            self._check_views("final ", i, simulator.latest_final, twin, (ninja, entities, movers, trail))
        restarted_on = int(simulator.next_level[i]) if ended else -1
        if restarted_on < 0:
            self._check_state(i, ninja, entities[:count], movers)
            self._check_ledger(i, ledger)
        self._compare_present(i, None if restarted_on < 0 else restarted_on)

    def _compare_present(self, i: int, started_on: int | None) -> None:
        """The state that environment i is in now; started_on: the level on which it has just been started, if any."""
        simulator = self._simulator
        level = int(simulator.state.ninja["level"][i]) if started_on is None else started_on
        twin = self._twin(level)
        count = len(twin.listed)
        state = simulator.state
        now = twin.state_twin(state.ninja[i], state.entities[i], state.movers[i])
        self._place = self._described(i, level, now)
        if started_on is not None:
            ninja, entities = np.zeros(1, NINJA_DTYPE), np.zeros((1, simulator.bank.max_entities), ENTITY_DTYPE)
            movers = np.zeros((1, simulator.bank.max_movers), MOVER_DTYPE)
            start(ninja[0], entities[0], movers[0], simulator.bank.world, level)
            self._check_state(i, ninja[0], entities[0, :count], movers[0])
            self._check_ledger(i, Ledger(simulator.reward_config, simulator.gamma, twin, now))
        self._check_views(
            "", i, simulator.latest, twin, (state.ninja[i], state.entities[i], state.movers[i], state.trail[i])
        )

    def _check_state(self, i: int, ninja: np.void, entities: np.ndarray, movers: np.ndarray) -> None:
        state, bank = self._simulator.state, self._simulator.bank
        count = len(bank.compiled[int(ninja["level"])].movers)
        self._check("ninja", state.ninja[i], ninja)
        self._check("entities", state.entities[i, : len(entities)], entities)
        self._check("movers", state.movers[i, :count], movers[:count])

    def _check_ledger(self, i: int, ledger: Ledger) -> None:
        state = self._simulator.state
        for name, value in ledger.progress().items():
            self._check(f"ledger {name}", state.progress[name][i], value)
        self._check("ledger terms", state.terms[i], ledger.terms, TERMS)
        self._check("ledger visited", state.visited[i], ledger.visited_flags(state.visited.shape[1]))

    def _check_views(
        self,
        prefix: str,
        i: int,
        obs: dict[str, np.ndarray],
        twin: LevelTwin,
        rows: tuple[np.void, np.ndarray, np.ndarray, np.ndarray],
    ) -> None:
        """rows: ninja, entities, movers and trail of the state that is seen."""
        simulator, now = self._simulator, twin.state_twin(*rows[:3])
        hop = self._check_paths(i, twin, now)
        for key, values in obs.items():
            if key == "foresight":
                wanted = foresight(twin, *rows, simulator.bank.world, simulator.frame_skip)
                self._check(prefix + key, values[i], wanted, layout.SPECS[key].components)
            elif key != "reachability_features" or len(hop):  # wrong hops lead nowhere; they are reported already
                self._check(prefix + key, values[i], VIEWS[key](twin, now, hop), layout.SPECS[key].components)

    def _check_paths(self, i: int, twin: LevelTwin, now: StateTwin) -> np.ndarray:
        """The path fields of environment i; returns the simulator's hops, empty if it needed none or they are wrong."""
        simulator, config, level = self._simulator, self._simulator.reward_config, now.ninja["level"]
        ended = now.ninja["state"] in (CELEBRATING, DEAD)
        shaped = config.shaping and config.potential == PATH_SHAPING and not ended
        if not shaped and not {"reachability_features", "foresight"} & {*simulator.keys}:
            return _NO_HOPS
        if twin.touched(now) == twin.at_start:
            distance, hop = simulator.bank.paths.distance[level], simulator.bank.paths.hop[level]
            onward = simulator.bank.paths.switch_to_exit[level]
        else:
            fields = simulator._fields
            distance, hop, onward = fields.own_distance[i], fields.own_hop[i], fields.own_switch_to_exit[i]
        wanted = twin.path_fields(now)
        self._check("path distance", distance.reshape(2, COLUMNS, ROWS), wanted.distances.reshape(2, COLUMNS, ROWS))
        self._check("path from switch to exit", onward, UNREACHED if wanted.onward is None else wanted.onward)
        wrong = wanted.wrong_hops(hop)
        if len(wrong):
            index = tuple(wrong[0].tolist())
            got = hop.reshape(2, COLUMNS, ROWS)[index]
            self._mismatch("path hop", index, "", got, "the direction of a shortest path")
            return _NO_HOPS
        return hop

    # ------------------------------------------------------------------------------------------------------- bookkeeping
    def _twin(self, level: int) -> LevelTwin:
        if level not in self._twins:
            bank = self._simulator.bank
            self._twins[level] = LevelTwin(bank.levels[level], bank.completions)
            if len(self._twins) > KEPT_LEVELS:
                self._twins.popitem(last=False)
        self._twins.move_to_end(level)
        return self._twins[level]

    def _described(self, i: int, level: int, now: StateTwin) -> str:
        return f"environment {i}, level {self._simulator.bank.levels[level].name!r}, frame {now.ninja['frame']}"

    def _check(self, kind: str, got: ArrayLike, wanted: ArrayLike, names: tuple[str, ...] = ()) -> None:
        """got: an array, a record or a number of the simulator's; wanted: the same, or what becomes it by rounding.

        names: of the components along the last axis.
        """
        got = np.asarray(got)
        wanted = np.asarray(wanted, got.dtype)
        if got.tobytes() == wanted.tobytes():
            return
        if got.shape != wanted.shape:
            raise AssertionError(f"the twin of {kind} has shape {wanted.shape}; needed is {got.shape}")
        if got.dtype.names:
            for field in got.dtype.names:  # bytes between the fields do not count
                self._check_field(kind, field, got[field], wanted[field])
        else:
            self._check_field(kind, "", got, wanted, names)

    def _check_field(
        self, kind: str, field: str, got: np.ndarray, wanted: np.ndarray, names: tuple[str, ...] = ()
    ) -> None:
        size = got.dtype.itemsize
        got_bytes, wanted_bytes = (np.frombuffer(a.tobytes(), np.uint8).reshape(-1, size) for a in (got, wanted))
        different = np.flatnonzero((got_bytes != wanted_bytes).any(axis=1))
        if len(different):
            index = tuple(int(k) for k in np.unravel_index(different[0], got.shape))
            name = names[index[-1]] if names else field
            self._mismatch(kind, index, name, got[index], wanted[index])

    def _mismatch(self, kind: str, index: tuple[int, ...], name: str, got: object, wanted: object) -> None:
        if kind not in self.kinds and kind not in self._found:
            where = f"index {index}" + (f" ({name})" if name else "")
            print(
                f"shadow: first mismatch of {kind}: {self._place}, {where}: simulator {got}, twin {wanted}",
                file=sys.stderr,
                flush=True,
            )
        self._found.add(kind)

    def _count(self, i: int) -> None:
        self.comparisons += 1
        self.comparisons_of[i] += 1
        self.mismatches_of[i] += len(self._found)
        self.kinds.update(sorted(self._found))
        self._found.clear()
        if self.comparisons in _FIRST_REPORTS or self.comparisons % _REPORT_EVERY == 0:
            print(
                f"shadow: {self.comparisons:,} comparisons, {self.mismatches:,} mismatches; {self.ms_per_comparison:.2f} ms "
                f"each, {self.slow_to_fast:.0f} times the simulator's own time",
                file=sys.stderr,
                flush=True,
            )
