"""Two searches over states of the exact simulator that a trained agent guides.

**A beam** goes forward in time, all states equally old.  From decision to decision *the agent proposes*: of all ways that
lead one action further, those that it finds most probable as a whole are played, about two for each state.  *The distance
disposes*: of the states that come of them, those nearest to the exit are kept.  A beam of one state is the agent alone, with
its deterministic actions; the planner's beam (``nppsim.planner``) plays all six actions of each state.

**Best-first search** goes on from the most promising way met so far, however old: it leads out of dead ends, in which all
states of a beam die.  Promising are ways that are probable, short, and near the exit: PHS* of Orseau and Lelis,
"Policy-guided heuristic search with guarantees" (AAAI 2021).

In both, states in one cell (``nppsim.planner.kernels.cell``) count as the same.  What the critic says is not used: as a
further part of the beam's score it neither finished more levels nor shortened runs when it was tried.
"""

import heapq
import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from nppsim.actions import ACTION_INPUT, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.levels.level import Level
from nppsim.observe.foresight import HORIZON, SAME_AS
from nppsim.outcomes import WON
from nppsim.planner.kernels import cell
from nppsim.planner.search import Way
from nppsim.reward import MIN_PATH, RewardConfig
from rl.policy.checkpoint import CheckpointError, load_policy
from rl.policy.policy import NppPolicy

PACE = 1.5  # px per frame that a run covers of its way, as the best-first search takes it
BATCH = 64  # ways that the best-first search plays at once
_SHARE = RewardConfig(shaping=1.0)  # its potential is the share of the way that is covered


@dataclass(frozen=True)
class Agent:
    """A trained policy, in evaluation mode on the CPU, and the number of frames that its actions last."""

    policy: NppPolicy
    frame_skip: int

    @classmethod
    def load(cls, path: Path) -> "Agent":
        """The agent of a checkpoint.  Raises CheckpointError, also for a network with a memory."""
        policy, facts = load_policy(path)
        if policy.memory is not None:
            raise CheckpointError(
                f"{path}: {policy.architecture} remembers what led to a state, and a search goes on from many states: give "
                "an agent without a memory"
            )
        return cls(policy, facts["frame_skip"])

    @property
    def foreseen(self) -> int:
        """Frames that are played for ``foresight`` of one state, at most; 0 for an agent that does not read it."""
        if "foresight" not in self.policy.observations:
            return 0
        onward = np.count_nonzero(np.arange(len(SAME_AS))[:, None] == SAME_AS)
        return NUM_ACTIONS * self.frame_skip + int(onward) * (HORIZON - self.frame_skip)

    @torch.no_grad()
    def surprise(self, observations: dict[str, np.ndarray], count: int) -> np.ndarray:
        """float64[count, 6], nats: -log of the probability of each action, for the first ``count`` rows of raw
        observations."""
        seen = {key: observations[key][:count] for key in self.policy.observations}
        logits, _ = self.policy.logits_and_values(self.policy.to_tensors(seen))
        return -torch.log_softmax(logits.double(), dim=1).numpy()


class Effort:
    """What one stage of a search may still spend.

    frames: of simulation.
    until: time on the clock (``time.monotonic``) at which everything ends; None: whenever the frames are spent.
    told: called with the frames that have just been simulated.
    """

    def __init__(self, frames: int, until: float | None = None, told: Callable[[int], object] = lambda frames: None):
        self._granted, self._until, self._told = frames, until, told
        self.simulated = 0

    def part(self, frames: int) -> "Effort":
        """So many of these frames, or what is left, for a part of the stage."""
        return Effort(min(frames, self.left), self._until, self.spend)

    def spend(self, frames: int) -> None:
        """Count frames that were simulated."""
        self.simulated += frames
        self._told(frames)

    @property
    def left(self) -> int:
        """Frames that may still be simulated; 0 once the time is up."""
        if self._until is not None and time.monotonic() >= self._until:
            return 0
        return max(self._granted - self.simulated, 0)


class Manner(NamedTuple):
    """How a beam searches.

    width: states kept per decision.
    branching: ways played per state kept, on average; 1 to 6.
    momentum: frames, how far ahead speed along the way counts.
    trust: px per nat; an improbable way counts as that much farther from the exit.
    noise: px, random part of a score.
    """

    width: int
    branching: int = 2
    momentum: float = 4.0
    trust: float = 10.0
    noise: float = 2.0


class GuidedSearch:
    """Searches on one level; simulators are made once for each size.

    rng: of the noise.
    threads: of the simulators; all usable cores if None.
    bank: holds the level alone.  time_limit: of an episode, in frames.
    spawn: uint8[B], a snapshot of the beginning.
    asked: states so far for which the agent was asked.
    """

    def __init__(self, level: Level, agent: Agent, rng: np.random.Generator, threads: int | None = None):
        self.bank, self.agent, self.rng, self.threads = LevelBank([level]), agent, rng, threads
        self.time_limit = int(self.bank.time_limit[0])
        self.asked = 0
        self._simulators: dict[tuple[int, tuple[str, ...]], BatchSimulator] = {}
        self.spawn = self.player(1).snapshot(0)

    def player(self, count: int) -> BatchSimulator:
        """Environments to play in; what they observe is as little as can be: the frames that are part of a stack."""
        policy = self.agent.policy
        return self._simulator(count, tuple(policy.stacking.stacked(policy.observations)) or ("game_state",))

    def viewer(self, count: int) -> BatchSimulator:
        """Environments in which the agent looks at states."""
        return self._simulator(count, self.agent.policy.observations)

    def _simulator(self, count: int, observations: tuple[str, ...]) -> BatchSimulator:
        if (count, observations) not in self._simulators:
            made = BatchSimulator(
                self.bank,
                count,
                frame_skip=self.agent.frame_skip,
                observations=observations,
                reward=_SHARE,
                threads=self.threads,
                stacking=self.agent.policy.stacking,
            )
            made.reset()
            self._simulators[count, observations] = made
        return self._simulators[count, observations]

    def beam(
        self, manner: Manner, effort: Effort, most_frames: int | None = None, start: np.ndarray | None = None
    ) -> Way | None:
        """The way to the first win that a beam comes to, from a snapshot (default: the spawn); None if it comes to none.

        most_frames: the win must be reached in so many, counted from the spawn.
        """
        most_frames = self.time_limit if most_frames is None else most_frames
        beam = _Beam(self, manner, most_frames, self.spawn if start is None else start)
        while effort.left and len(beam.rows) and beam.frame < most_frames:
            won = beam.advance(effort)
            if won is not None:
                return won
        return None

    def best_first(self, effort: Effort) -> Way | None:
        """The way from the spawn to the first win that a best-first search comes to."""
        search = _BestFirst(self)
        while effort.left and search.heap:
            won = search.advance(effort)
            if won is not None:
                return won
        return None

    def states_along(self, actions: np.ndarray, effort: Effort) -> np.ndarray:
        """uint8[decisions, B]: snapshots before each action of a run from the spawn."""
        simulator = self.player(1)
        simulator.restore(0, self.spawn)
        states = [self.spawn]
        for action in actions[:-1]:
            simulator._step(np.array([action]), np.full(1, -1, np.int32), every_end=False)
            states.append(simulator.snapshot(0))
        effort.spend((len(actions) - 1) * self.agent.frame_skip)
        return np.stack(states)


class _Guided:
    """What both searches do: play actions, ask the agent, tell states apart, and remember the ways.

    players, viewers: the environments for it.
    A state that was kept is a node, a number; the first one is 0.
    """

    def __init__(self, search: GuidedSearch, players: int, viewers: int, most_frames: int):
        self.search, self.most_frames = search, most_frames
        self.players, self.viewers = search.player(players), search.viewer(viewers)
        self.frame_skip = search.agent.frame_skip
        self.length = float(search.bank.path_length[0])  # px
        self.visited: set[int] = set()  # cells
        self._parents, self._actions = [-1], [-1]  # of each node

    def play(self, rows: np.ndarray, actions: np.ndarray, effort: Effort) -> int | None:
        """Play an action from each of these states, in the first environments; returns that of the fastest win."""
        players, count = self.players, len(rows)
        players.restore(slice(0, count), rows)
        before = players.state.ninja["frame"][:count].copy()
        players._step(
            np.resize(actions, players.num_envs),
            np.full(players.num_envs, -1, np.int32),
            every_end=False,
            asleep=np.arange(players.num_envs) >= count,
        )
        frames = players.state.ninja["frame"][:count]
        effort.spend(int((frames - before).sum()))
        won = players.terminated[:count] & (players.episode["outcome"][:count] == WON)
        winning = np.flatnonzero(won & (frames <= self.most_frames))
        return int(winning[np.argmin(frames[winning])]) if winning.size else None

    def going_on(self, count: int) -> np.ndarray:
        """bool[count]: whether the episodes in the first environments have not ended."""
        return ~(self.players.terminated[:count] | self.players.truncated[:count])

    def covered(self, count: int) -> np.ndarray:
        """float64[count], px of the way covered in the first environments; negative behind the spawn."""
        return self.players.state.progress["potential"][:count] * max(self.length, MIN_PATH)

    def fresh(self, environments: Iterable[int], limit: int) -> np.ndarray:
        """The first ``limit`` of these environments whose cells are new; they are visited from now on."""
        state, world = self.players.state, self.search.bank.world
        found: list[int] = []
        with np.errstate(over="ignore"):  # hashes, where nothing is compiled
            for i in environments:
                if len(found) == limit:
                    break
                key = cell(state.ninja[i], state.entities[i], state.movers[i], world, self.frame_skip)
                if key not in self.visited:
                    self.visited.add(key)
                    found.append(i)
        return np.array(found, np.int64)

    def ask(self, rows: np.ndarray) -> np.ndarray:
        """float64[states, 6], nats: how surprising the agent finds each action in these states."""
        self.viewers.restore(slice(0, len(rows)), rows)
        self.search.asked += len(rows)
        return self.search.agent.surprise(self.viewers.observe(np.arange(len(rows))), len(rows))

    def keep(self, nodes: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Make nodes of the states that these actions lead to."""
        first = len(self._parents)
        self._parents += nodes.tolist()
        self._actions += actions.tolist()
        return np.arange(first, len(self._parents))

    def way(self, node: int, action: int, environment: int) -> Way:
        """From the first state over a node and on with an action, as it was played in an environment."""
        backwards = [action]
        while node:
            backwards.append(self._actions[node])
            node = self._parents[node]
        way = np.array(backwards[::-1], np.int64)
        ninja = self.players.state.ninja[environment]
        lengths = np.full(len(way), self.frame_skip)
        lengths[-1] = (int(ninja["frame"]) - 1) % self.frame_skip + 1  # all before were whole decisions
        return Way(way, np.repeat(ACTION_INPUT[way], lengths))


class _Beam(_Guided):
    """One beam.

    rows: uint8[states, B], snapshots of its states.
    nodes: their nodes.
    costs: nats, by which the way to each is more surprising than that to the most probable one.
    covered_there: px of the way that each has covered.
    surprise: float64[states, 6], of the next action.
    frame: of the episode, the same in all states.
    """

    def __init__(self, search: GuidedSearch, manner: Manner, most_frames: int, start: np.ndarray):
        super().__init__(search, manner.width * manner.branching, manner.width, most_frames)
        self.manner = manner
        self.players.restore(0, start)
        self.nodes, self.costs, self.rows, self.covered_there = (
            np.zeros(1, int),
            np.zeros(1),
            start[None],
            self.covered(1),
        )
        self.frame = int(self.players.state.ninja["frame"][0])
        self.surprise = self.ask(self.rows)

    def advance(self, effort: Effort) -> Way | None:
        """One decision; the way to a win, if there is one."""
        costs = (self.costs[:, None] + self.surprise).ravel()
        chosen = np.argsort(costs, kind="stable")[: self.players.num_envs]
        parents, actions, costs = chosen // NUM_ACTIONS, chosen % NUM_ACTIONS, costs[chosen]
        winner = self.play(self.rows[parents], actions, effort)
        if winner is not None:
            return self.way(self.nodes[parents[winner]], int(actions[winner]), winner)
        kept = self.fresh(self.ranked(parents, costs), self.manner.width)
        self.rows, self.frame = self.players.snapshot(kept), self.frame + self.frame_skip
        if kept.size:
            self.covered_there = self.covered(len(parents))[kept]
            self.nodes = self.keep(self.nodes[parents[kept]], actions[kept])
            self.costs = costs[kept] - costs[kept].min()
            self.surprise = self.ask(self.rows)
        return None

    def ranked(self, parents: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """The environments whose episodes go on, the best first."""
        covered, manner = self.covered(len(parents)), self.manner
        speed = (covered - self.covered_there[parents]) / self.frame_skip
        scores = covered + manner.momentum * speed - manner.trust * costs
        scores += manner.noise * self.search.rng.random(len(parents))
        order = np.argsort(-scores, kind="stable")
        return order[self.going_on(len(parents))[order]]


class _BestFirst(_Guided):
    """One best-first search from the spawn.

    heap: (rank, number, node, action, cost, decisions) of each way that was not played yet; the lowest rank is next.  cost:
        of the whole way, in nats.  decisions: of the whole way.
    rows: snapshots of the nodes.
    """

    def __init__(self, search: GuidedSearch):
        super().__init__(search, BATCH, BATCH, search.time_limit)
        self.heap: list[tuple[float, int, int, int, float, int]] = []
        self._numbers = itertools.count()
        self.rows = [search.spawn]
        self.players.restore(0, search.spawn)
        self.push([0], np.zeros(1), np.zeros(1, int), self.covered(1), self.ask(search.spawn[None]))

    def push(
        self, nodes: Iterable[int], costs: np.ndarray, decisions: np.ndarray, covered: np.ndarray, surprise: np.ndarray
    ) -> None:
        """Note all actions of these nodes for later."""
        ahead = np.maximum(self.length - covered, 0.0) / (PACE * self.frame_skip)  # decisions to the exit
        for node, cost, made, left, surprises in zip(nodes, costs, decisions + 1, ahead, surprise, strict=True):
            for action in range(NUM_ACTIONS):
                total = cost + surprises[action]
                # PHS*: the cost so far goes on at the same rate to the exit
                rank = np.log(made + left) + (1 + left / made) * total
                heapq.heappush(self.heap, (rank, next(self._numbers), node, action, total, int(made)))

    def advance(self, effort: Effort) -> Way | None:
        """The best ways one decision further; the way to a win, if there is one."""
        batch = [heapq.heappop(self.heap) for _ in range(min(BATCH, len(self.heap)))]
        _, _, *columns = zip(*batch, strict=True)
        nodes, actions, costs, decisions = (np.array(column) for column in columns)
        winner = self.play(np.stack([self.rows[node] for node in nodes]), actions, effort)
        if winner is not None:
            return self.way(nodes[winner], int(actions[winner]), winner)
        kept = self.fresh(np.flatnonzero(self.going_on(len(batch))), BATCH)
        if kept.size:
            rows = self.players.snapshot(kept)
            self.rows += list(rows)
            made = self.keep(nodes[kept], actions[kept])
            self.push(made.tolist(), costs[kept], decisions[kept], self.covered(len(batch))[kept], self.ask(rows))
        return None
