"""BatchSimulator: N environments over a LevelBank, one call per decision.

One kernel advances every environment by ``frame_skip`` frames, adds up rewards, restarts finished episodes and writes
observations straight into arrays that the caller keeps.  An environment is one row of bytes; nothing depends on the
number of threads or on which environments share a batch.
"""

import itertools
import os
import sys
import time
from collections import namedtuple
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from nppsim import _cache, paths
from nppsim import laps as clock
from nppsim import reward as rewards
from nppsim._kernel import allocating, inlined, kernel
from nppsim.bank import LevelBank
from nppsim.geometry import CELLS_X, CELLS_Y
from nppsim.level import EXIT, EXIT_SWITCH, Level
from nppsim.observe import images, layout, vectors
from nppsim.physics.segments import clamped_cell
from nppsim.physics.state import CELEBRATING, DEAD, ENTITY, MOVER, NINJA, allocate
from nppsim.physics.tick import start, tick
from nppsim.replay import ACTION_INPUT, NUM_ACTIONS

TIMEOUT, WON, DIED = 0, 1, 2
MIN_ENVS_TO_SPREAD = 32  # fewer are not worth waking a thread for
# With profiling only every so-manieth environment is timed, others in each call: reading the clock costs as much as the
# shorter phases.
PROFILE_EVERY = 64

# The running episode of an environment.
RUNNING = np.dtype(
    [
        ("potential", "f8"),  # phi of the present state
        ("path_start", "f8"),  # px, length of the level's way
        ("best", "f8"),  # px, smallest straight distance to the current objective so far
        ("decisions", "i4"),
        ("near", "i4"),  # bit p: the proximity reward of phase p has been given
    ],
    align=True,
)
# A finished episode; ``ret`` is the undiscounted return and the sum of ``terms``.
EPISODE = np.dtype(
    [("level", "i4"), ("outcome", "i1"), ("frames", "i4"), ("decisions", "i4"), ("gold", "i4"), ("ret", "f8")]
    + [("terms", "f8", (rewards.NUM_TERMS,))],
    align=True,
)
_NUM_BLOCKS = CELLS_X * CELLS_Y + 11 * 7 + 6 * 4 + 3 * 2  # cells and blocks of 4, 8, 16 cells

# Arrays of observations, in the order of ``layout.SPECS``: rows 0 to N - 1 the present ones, then the last ones of episodes;
# those not wanted have length 0.  gaps: float64[2 N, 8], room to work in.
Views = namedtuple("Views", (*layout.SPECS, "gaps"))
# Everything of the environments, one row each; visited is empty unless exploration is rewarded.
State = namedtuple("State", "ninja running terms entities movers visited")
# Path fields: of each level with its doors as at the start, and of environments whose doors are otherwise (a cache:
# recomputed when the key differs).
Fields = namedtuple("Fields", "nodes distance hop key own_distance own_hop own_switch_to_exit")
Static = namedtuple("Static", "stage solid background time_limit path_length reward")
# The last: int64[N, NUM_PHASES], nanoseconds of each phase of the last call, or int64[N, 0] to measure nothing.
Output = namedtuple("Output", "rewards terminated truncated level outcome frames decisions gold ret terms laps")


def make_fields(bank: LevelBank, count: int) -> Fields:
    """Path fields of a bank, with room for ``count`` environments' own ones where doors can change."""
    rows = count if bank.ways_change else 1
    return Fields(
        bank.nodes,
        bank.distance,
        bank.hop,
        np.full(count, -1, np.int64),
        np.zeros((rows, 2, paths.NUM_NODES), np.uint16),
        np.zeros((rows, 2, paths.NUM_NODES), np.uint8),
        np.zeros(rows, np.int64),
    )


@allocating
def _compute_own_fields(i, state, world, fields):
    """Path fields of environment i for its doors and exits as they are now."""
    record = world.level[state.ninja[i]["level"]]
    first, exits, base = record["switches_first"], record["exits_first"], record["entity_first"]
    closed = np.empty(record["switches_end"] - first, np.uint8)
    for k in range(len(closed)):
        closed[k] = state.entities[i, first - base + k]["closed"]
    opened = np.empty(record["exits_end"] - exits, np.uint8)
    for k in range(len(opened)):
        opened[k] = state.entities[i, exits - base + k]["clock"] > 0
    level = state.ninja[i]["level"]
    fields.own_switch_to_exit[i] = paths.compute_fields(
        world, fields.nodes[level], level, closed, opened, fields.own_distance[i], fields.own_hop[i]
    )


@inlined
def _has_own_fields(i, state, world, fields):
    """Whether the doors and exits of environment i are not as at the start of its level: its own path fields, which are
    computed now if need be, then hold instead of the level's."""
    level = state.ninja[i]["level"]
    exits, exits_end = world.level[level]["exits_first"], world.level[level]["exits_end"]
    first, end = world.level[level]["switches_first"], world.level[level]["switches_end"]
    base = world.level[level]["entity_first"]
    changed = False
    key = np.int64(0)
    for k in range(first, end):
        closed = state.entities[i, k - base]["closed"]
        changed |= closed != world.entity[k]["closed"]
        key = key * 3 + closed + 1
    if exits_end - exits > 2:
        for k in range(exits, exits_end):
            is_open = state.entities[i, k - base]["clock"] > 0
            changed |= is_open
            key = key * 3 + is_open  # an odd factor: no bit of an earlier one is ever lost
    key = (key << 22) + level  # levels differ in their number of doors: the level goes into bits of its own
    if changed and fields.key[i] != key:
        _compute_own_fields(i, state, world, fields)
        fields.key[i] = key
    return changed


@inlined
def _way(i, state, world, fields):
    """(length in px of the way that is left to environment i, the lattice point it leads over or -1)."""
    ninja = state.ninja[i]
    phase = 1 if ninja["switch_taken"] else 0
    if _has_own_fields(i, state, world, fields):
        return paths.nearest_node(fields.own_distance[i, phase], ninja["x"], ninja["y"])
    return paths.nearest_node(fields.distance[ninja["level"], phase], ninja["x"], ninja["y"])


@kernel
def _straight_distance(ninja, entities, world, level):
    """Straight distance in px to the current objective: the nearest switch left, or the nearest open exit."""
    base = world.level[level]["entity_first"]
    wanted = EXIT if ninja["switch_taken"] else EXIT_SWITCH
    best = rewards.DIAGONAL
    for k in range(world.level[level]["exits_first"], world.level[level]["exits_end"]):
        if world.entity[k]["type"] == wanted and (wanted == EXIT_SWITCH or entities[k - base]["clock"] > 0):
            dx, dy = world.entity[k]["x"] - ninja["x"], world.entity[k]["y"] - ninja["y"]
            best = min(best, np.sqrt(dx * dx + dy * dy))
    return best


@inlined
def _potential(i, state, world, fields, reward):
    """phi of the present state of environment i."""
    ninja = state.ninja[i]
    if reward[4] == 0.0:
        return 0.0
    if reward[5] == rewards.STRAIGHT_LINE:
        distance = _straight_distance(ninja, state.entities[i], world, ninja["level"])
        return reward[4] * (1.0 - distance / rewards.DIAGONAL)
    length, _node = _way(i, state, world, fields)
    reach = state.running[i]["path_start"]
    return reward[4] * (reach - min(length, 2.0 * reach)) / max(reach, rewards.MIN_PATH)


@kernel
def _restart(i, level, state, world, fields, static):
    ninja, running = state.ninja[i], state.running[i]
    start(ninja, state.entities[i], state.movers[i], world, level)
    running["path_start"] = static.path_length[level]
    running["decisions"] = 0
    running["near"] = 0
    running["best"] = _straight_distance(ninja, state.entities[i], world, level)
    state.terms[i, :] = 0.0
    state.visited[i, :] = 0
    if static.reward[8] != 0.0:
        _explore(ninja, state.visited[i])
    running["potential"] = _potential(i, state, world, fields, static.reward)


@kernel
def _explore(ninja, visited):
    """Mark the cell under the ninja and its blocks; returns how many of the four are new."""
    cx, cy = clamped_cell(ninja["x"], CELLS_X), clamped_cell(ninja["y"], CELLS_Y)
    new = 0
    first = 0
    size, rows = 1, CELLS_Y
    for columns in (CELLS_X, 11, 6, 3):
        block = first + (cx // size) * rows + cy // size
        new += 1 - visited[block]
        visited[block] = 1
        first += columns * rows
        size = 4 if size == 1 else size * 2
        rows = (CELLS_Y + size - 1) // size
    return new


@inlined
def _decide(i, input_byte, frame_skip, gamma, state, world, fields, static, out, laps):
    """One decision of one environment: frames, reward terms, end of the episode."""
    since = clock.begin(laps)
    ninja, running, reward, terms = state.ninja[i], state.running[i], static.reward, state.terms[i]
    had_switch = ninja["switch_taken"]
    before = ninja["frame"]
    new_blocks = 0
    since = clock.stamp(laps, clock.ACTIONS, since)
    for _ in range(frame_skip):
        tick(ninja, state.entities[i], state.movers[i], world, input_byte, laps)
        if reward[8] != 0.0:
            new_blocks += _explore(ninja, state.visited[i])
        if ninja["state"] == DEAD or ninja["state"] == CELEBRATING:
            break
    since = clock.begin(laps)
    running["decisions"] += 1
    level = ninja["level"]
    won, died = ninja["state"] == CELEBRATING, ninja["state"] == DEAD
    terminal = won or died
    since = clock.stamp(laps, clock.EVENTS, since)
    truncated = not terminal and ninja["frame"] >= static.time_limit[level]
    since = clock.stamp(laps, clock.TRUNCATION, since)

    total = 0.0
    for term in range(len(terms)):
        value = 0.0
        if term == 0:
            value = reward[0] if won else 0.0
        elif term == 1:
            value = reward[1] if died else 0.0
        elif term == 2:
            value = reward[2] if ninja["switch_taken"] and not had_switch else 0.0
        elif term == 3:
            value = reward[3] * (ninja["frame"] - before)
        elif term == 4:
            since = clock.stamp(laps, clock.REWARDS, since)
            after = 0.0 if terminal else _potential(i, state, world, fields, reward)
            since = clock.stamp(laps, clock.PATH, since)
            value = gamma * after - running["potential"]
            running["potential"] = after
        elif term == 5 and reward[6] != 0.0:
            distance = _straight_distance(ninja, state.entities[i], world, level)
            if ninja["switch_taken"] and not had_switch:
                running["best"] = distance
            elif distance < running["best"]:
                value = reward[6] * (running["best"] - distance)
                running["best"] = distance
        elif term == 6 and reward[7] != 0.0:
            phase = 1 if ninja["switch_taken"] else 0
            if not running["near"] >> phase & 1:
                distance = _straight_distance(ninja, state.entities[i], world, level)
                if distance < rewards.PROXIMITY_REACH:
                    value = reward[7]
                    running["near"] |= 1 << phase
        elif term == 7:
            value = reward[8] * new_blocks
        terms[term] += value
        total += value
    since = clock.stamp(laps, clock.REWARDS, since)
    out.rewards[i] = total
    out.terminated[i] = terminal
    out.truncated[i] = truncated
    if terminal or truncated:
        out.level[i] = level
        out.outcome[i] = WON if won else (DIED if died else TIMEOUT)
        out.frames[i] = ninja["frame"]
        out.decisions[i] = running["decisions"]
        out.gold[i] = ninja["gold"]
        out.ret[i] = 0.0
        for term in range(len(terms)):  # added up one by one: sum() goes another way outside of compiled code
            out.terms[i, term] = terms[term]
            out.ret[i] += terms[term]
    clock.stamp(laps, clock.EVENTS, since)


@inlined
def _observe(i, row, state, world, fields, static, views, laps):
    """Write the observations of environment i that are wanted into a row of ``views``."""
    since = clock.begin(laps)
    ninja, entities = state.ninja[i], state.entities[i]
    level = ninja["level"]
    if len(views.game_state):
        vectors.game_state(ninja, views.game_state[row])
        since = clock.stamp(laps, clock.GAME_STATE, since)
    if len(views.reachability_features):
        if _has_own_fields(i, state, world, fields):
            distance, hop, onward = fields.own_distance[i], fields.own_hop[i], fields.own_switch_to_exit[i]
        else:
            distance, hop, onward = fields.distance[level], fields.hop[level], world.level[level]["switch_to_exit"]
        since = clock.stamp(laps, clock.PATH, since)
        vectors.reachability_features(ninja, distance, hop, onward, views.reachability_features[row])
        since = clock.stamp(laps, clock.REACHABILITY, since)
    if len(views.entity_positions):
        vectors.entity_positions(ninja, entities, world, level, views.entity_positions[row])
        since = clock.stamp(laps, clock.ENTITY_POSITIONS, since)
    if len(views.switch_states):
        vectors.switch_states(entities, world, level, views.switch_states[row])
        since = clock.stamp(laps, clock.SWITCH_STATES, since)
    if len(views.hazards):
        vectors.hazards_and_surroundings(
            ninja,
            entities,
            state.movers[i],
            world,
            level,
            static.solid[level],
            views.gaps[row],
            views.hazards[row],
            views.surroundings[row],
        )
        since = clock.stamp(laps, clock.HAZARDS, since)
    if len(views.player_frame):
        images.player_frame(
            ninja, entities, state.movers[i], world, level, static.stage[level], views.player_frame[row]
        )
        since = clock.stamp(laps, clock.PLAYER_FRAME, since)
    if len(views.global_view):
        images.global_view(
            ninja, entities, state.movers[i], world, level, static.background[level], views.global_view[row]
        )
        clock.stamp(laps, clock.GLOBAL_VIEW, since)


@inlined
def _phases_timed(i, turn, out):
    """Number of phases of environment i to time in this call, all or none; clears its times."""
    phases = out.laps.shape[1]
    if phases == 0 or i % min(PROFILE_EVERY, len(out.laps)) != turn:
        return 0
    for phase in range(phases):
        out.laps[i, phase] = 0
    return phases


@kernel
def _advance(
    begin, end, turn, actions, next_level, every_end, frame_skip, gamma, state, world, fields, static, out, views
):
    """A decision, restart and observations of environments ``begin`` to ``end``.

    actions[i] below 0: no decision, and a restart in any case; else one at the end of an episode.  next_level[i] below 0:
    no restart.  every_end: keep the last observations of deaths and wins too, not only of time-outs.
    """
    for i in range(begin, end):
        laps = out.laps[i, : _phases_timed(i, turn, out)]
        restart, final = next_level[i] >= 0, False
        if actions[i] >= 0:
            _decide(i, ACTION_INPUT[actions[i]], frame_skip, gamma, state, world, fields, static, out, laps)
            restart = restart and (out.terminated[i] or out.truncated[i])
            final = restart and (every_end or out.truncated[i])
        for row in (len(out.rewards) + i, i):
            if row == i and restart:
                since = clock.begin(laps)
                _restart(i, next_level[i], state, world, fields, static)
                clock.stamp(laps, clock.RESET, since)
            if row == i or final:
                _observe(i, row, state, world, fields, static, views, laps)


@kernel
def _masks(state, out):
    for i in range(len(out)):
        vectors.action_mask(state.ninja[i], out[i])


@kernel
def _prepare_static(stage, solid, background):
    for level in range(len(solid)):
        vectors.solid_map(stage[level], solid[level])
    for level in range(len(background)):
        images.background(stage[level], background[level])


class BatchSimulator:
    """N environments, stepped together.

    levels: a LevelBank or a sequence of levels.  num_envs: N.  frame_skip: frames per decision, at least 1.
    observations: names or keys of ``layout``.  reward: a preset's name or a RewardConfig.  gamma: discount per decision,
    used by the shaping term; give PPO the same.  threads: CPU threads; all usable ones if None.
    profile: measure the phases of every call (``step_timing``); None: if the environment variable NPPSIM_PROFILING is 1.
    shadow: compare every step with slow twins (``nppsim.shadow``); None: if NPPSIM_SHADOW=1 is in the environment.

    Arrays, written in place by ``reset`` and ``step`` (copy what you keep):
    obs, final_obs: key -> [N, ...]; row i of final_obs is valid where ``truncated[i]``: the state that was cut off.
    rewards float32[N], terminated bool[N], truncated bool[N]; episode EPISODE[N], rows ``finished`` are valid.
    next_level int32[N]: the level that each environment loads at its next restart; the caller sets it.
    Environments restart in the very step that ends their episode (Gymnasium's SAME_STEP autoreset).
    """

    def __init__(
        self,
        levels: LevelBank | Sequence[Level],
        num_envs: int,
        *,
        frame_skip: int = 4,
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
        self.keys = layout.resolve(observations)
        self.reward_config = rewards.resolve(reward)
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
        _prepare_static(self.bank.stage, solid, background)
        reward_vector = self.reward_config.vector()
        self._static = Static(
            self.bank.stage, solid, background, self.bank.time_limit, self.bank.path_length, reward_vector
        )
        self.rewards = np.zeros(num_envs, np.float32)
        self.terminated = np.zeros(num_envs, bool)
        self.truncated = np.zeros(num_envs, bool)
        episodes = np.zeros(max(num_envs, 2), EPISODE)
        self.episode = episodes[:num_envs]
        self.next_level = np.arange(num_envs, dtype=np.int32) % len(self.bank)
        self.profile = os.environ.get("NPPSIM_PROFILING") == "1" if profile is None else bool(profile)
        self._laps = np.zeros((num_envs, clock.NUM_PHASES if self.profile else 0), np.int64)
        self._turn = 0  # timed environments: this one, and every PROFILE_EVERY-th from there
        records = (episodes[name] for name in EPISODE.names)
        self._out = Output(self.rewards, self.terminated, self.truncated, *records, self._laps)
        self.finished = np.empty(0, np.int64)
        self._started = False
        self.shadow = None
        if os.environ.get("NPPSIM_SHADOW") == "1" if shadow is None else shadow:
            from nppsim import shadow as twins  # which build on this module

            self.shadow = twins.Shadow(self)

    def _allocate_state(self):
        # At least one byte of each part: a view of nothing counts as contiguous too (see ``allocate``).
        blocks = _NUM_BLOCKS if self.reward_config.exploration else 1
        terms = (np.dtype("f8"), (rewards.NUM_TERMS,))
        parts = [
            (NINJA, ()),
            (RUNNING, ()),
            terms,
            (ENTITY, (self.bank.max_entities,)),
            (MOVER, (self.bank.max_movers,)),
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
        """One decision of each environment; no restart where ``next_level`` is -1.  every_end: see ``_advance``."""
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
        with _announced_compilation(_advance):
            if self._pool is None or not getattr(_advance, "signatures", ()):
                _advance(0, self.num_envs, *arguments)
                return
            edges = np.linspace(0, self.num_envs, 2 * self.threads + 1).astype(int).tolist()
            parts = iter(list(itertools.pairwise(edges)))

            def work():
                for begin, end in parts:
                    _advance(begin, end, *arguments)

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
        masks = np.empty((self.num_envs, NUM_ACTIONS), bool)
        _masks(self.state, masks)
        return masks


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
