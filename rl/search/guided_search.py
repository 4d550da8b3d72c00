"""Beam search in the exact simulator, guided by a trained policy, and episodes of the policy.

**Beam search** advances all states of the beam by one decision.  It simulates the most probable action sequences under the
policy, about two per state, and continues with the resulting states that are nearest to the exit by path distance.  A beam
of width 1 plays the deterministic actions of the policy.  (The planner, ``nppsim.planner``, simulates all six actions.)

States in the same cell (``nppsim.planner.kernels.cell``) are equal, except in beams of width 1.  The critic is not used: as
part of the score it neither solved more levels nor shortened runs.

**Episodes** with sampled actions and exploration find runs in levels where the most probable actions fail.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from nppsim.actions import NUM_ACTIONS
from nppsim.bank import GAME_TIME, LevelBank
from nppsim.batch import BatchSimulator
from nppsim.levels.level import Level
from nppsim.observe.foresight import SAME_AS
from nppsim.physics.outcomes import WON
from nppsim.planner.budget import FrameBudget
from nppsim.planner.kernels import cell
from nppsim.planner.search import PlanStart, WinningRun, actions_to, first_state, winning_run
from nppsim.reward import MIN_PATH, RewardConfig
from rl.policy.checkpoint import CheckpointError, load_policy
from rl.policy.constants import PATIENCE
from rl.policy.inference import CompiledPolicy, compiled
from rl.policy.player import player_of
from rl.policy.policy import NppPolicy

_PATH_FRACTION = RewardConfig(shaping=1.0)  # reward whose shaping potential is the covered fraction of the path


@dataclass(frozen=True)
class GuidePolicy:
    """A trained policy in evaluation mode on the CPU, with its frame skip."""

    policy: NppPolicy | CompiledPolicy
    frame_skip: int

    @classmethod
    def load(cls, path: Path) -> "GuidePolicy":
        """Load a checkpoint.  Raises CheckpointError for an invalid file and for a recurrent policy."""
        policy, stored = load_policy(path)
        if policy.memory is not None:
            raise CheckpointError(
                f"{path}: {policy.architecture} is recurrent, and a search evaluates states out of order; give an agent "
                "without +gru"
            )
        return cls(compiled(policy), stored["frame_skip"])

    @property
    def foreseen(self) -> int:
        """Largest number of frames simulated for the observation ``foresight`` of one state; 0 if it is not observed."""
        if "foresight" not in self.policy.observations:
            return 0
        settings = self.policy.foresight
        simulated = SAME_AS[: settings.branches // NUM_ACTIONS]
        continuations = np.count_nonzero(np.arange(len(simulated))[:, None] == simulated)
        return NUM_ACTIONS * self.frame_skip + int(continuations) * (settings.horizon - self.frame_skip)

    def action_costs(self, observations: dict[str, np.ndarray], count: int) -> np.ndarray:
        """Return the negative log-probability of each action, float64[count, 6], for the first ``count`` raw observations."""
        logits, _ = self.policy.compute({key: observations[key][:count] for key in self.policy.observations})
        below = logits.max(axis=1, keepdims=True) - logits.astype(np.float64)
        return below + np.log(np.exp(-below).sum(axis=1, keepdims=True))


class BeamSettings(NamedTuple):
    """Parameters of a beam search.  Scores of states are in px of covered path."""

    width: int  # number of states in the beam
    branching: int = 2  # average number of simulated actions per state, 1 to 6
    speed_weight: float = 4.0  # weight of the speed along the path, in frames
    cost_weight: float = 10.0  # penalty for improbable sequences, in px per nat
    noise: float = 2.0  # largest random part of a score, in px


class GuidedSearch:
    """Searches on one level.

    rng: random generator for noise.
    threads: number of threads of the simulators; None: all usable cores.
    start: uint8[B], snapshot of the initial state of all searches: the spawn, unless it is set to another state.
    """

    def __init__(self, level: Level, agent: GuidePolicy, rng: np.random.Generator, threads: int | None = None):
        self.bank, self.agent, self.rng, self.threads = LevelBank([level], least_time=GAME_TIME), agent, rng, threads
        self.time_limit = int(self.bank.time_limit[0])  # time limit of an episode, in frames
        self.evaluated = 0  # states evaluated by the policy so far
        self._simulators: dict[tuple[int, tuple[str, ...]], BatchSimulator] = {}
        self.start = self.playing_envs(1).snapshot(0)

    @property
    def first_row(self) -> np.ndarray:
        """Bytes of the initial state for searches of the planner (``nppsim.planner.search.first_state``)."""
        envs = self.playing_envs(1)
        envs.restore(0, self.start)
        row: np.ndarray = first_state(self.bank, PlanStart.of(envs, 0))[0][0]
        return row

    def playing_envs(self, count: int) -> BatchSimulator:
        """Return environments for simulation; they compute only the observations that the policy stacks."""
        policy = self.agent.policy
        return self._simulator(count, tuple(policy.stacking.stacked(policy.observations)) or ("game_state",))

    def observing_envs(self, count: int) -> BatchSimulator:
        """Return environments that compute the observations of the policy for restored states."""
        return self._simulator(count, self.agent.policy.observations)

    def _simulator(self, count: int, observations: tuple[str, ...]) -> BatchSimulator:
        if (count, observations) not in self._simulators:
            made = BatchSimulator(
                self.bank,
                count,
                frame_skip=self.agent.frame_skip,
                observations=observations,
                reward=_PATH_FRACTION,
                threads=self.threads,
                stacking=self.agent.policy.stacking,
                foresight=self.agent.policy.foresight,
            )
            made.reset()
            self._simulators[count, observations] = made
        return self._simulators[count, observations]

    def beam(
        self,
        settings: BeamSettings,
        budget: FrameBudget,
        most_frames: int | None = None,
        start: np.ndarray | None = None,
        patience: int | None = None,
    ) -> WinningRun | None:
        """Return the first win that a beam search finds, or None.

        most_frames: largest length of the run, counted from the initial state; None: time limit of the episode.
        start: uint8[B], snapshot to start from; None: the initial state.
        patience: number of decisions without a shorter path to the exit after which the search ends; None: no limit.
        """
        most_frames = self.time_limit if most_frames is None else most_frames
        beam = _Beam(self, settings, most_frames, self.start if start is None else start)
        farthest, waited = -np.inf, 0
        while budget.left and len(beam.rows) and beam.frame < most_frames and waited != patience:
            won = beam.advance(budget)
            if won is not None:
                return won
            covered = beam.covered_px.max(initial=-np.inf)
            waited = waited + 1 if covered <= farthest else 0
            farthest = max(farthest, covered)
        return None

    def episodes(self, count: int, seed: int, budget: FrameBudget, patience: int | None = None) -> WinningRun | None:
        """Play ``count`` episodes in parallel, with sampled actions and exploration; return the first win, or None.

        patience: number of decisions without a shorter path to the exit after which an episode ends; None: no limit.
        """
        envs, frame_skip = self.observing_envs(count), self.agent.frame_skip
        envs.restore(slice(0, count), np.repeat(self.start[None], count, axis=0))
        player, rng = player_of(self.agent.policy, count, PATIENCE), torch.Generator().manual_seed(seed)
        obs, running, played = envs.observe(), np.ones(count, bool), []
        farthest, waited = np.full(count, -np.inf), np.zeros(count, np.int64)
        while budget.left and running.any():
            active, actions = np.flatnonzero(running), np.zeros(count, np.int64)
            seen = {key: values[active] for key, values in obs.items()}
            actions[active] = player.act(seen, active, deterministic=False, rng=rng)
            obs = envs._step(actions, np.full(count, -1, np.int32), every_end=False, asleep=~running)
            played.append(actions)
            budget.spend(len(active) * frame_skip)
            self.evaluated += len(active)
            won = running & envs.terminated & (envs.episode["outcome"] == WON)
            if won.any():
                i = int(np.argmax(won))
                return _winning_run(np.array(played)[:, i], int(envs.state.ninja["frame"][i]), frame_skip)
            covered = envs.state.progress["potential"][:count]
            waited = np.where(covered > farthest, 0, waited + 1)
            farthest = np.maximum(farthest, covered)
            running &= ~(envs.terminated | envs.truncated | (waited == patience))
        return None

    def states_along(self, actions: np.ndarray, budget: FrameBudget) -> np.ndarray:
        """Return snapshots uint8[decisions, B] of the states before each action of a run from the initial state."""
        simulator = self.playing_envs(1)
        simulator.restore(0, self.start)
        states = [self.start]
        for action in actions[:-1]:
            simulator._step(np.array([action]), np.full(1, -1, np.int32), every_end=False)
            states.append(simulator.snapshot(0))
        budget.spend((len(actions) - 1) * self.agent.frame_skip)
        return np.stack(states)


def _winning_run(actions: np.ndarray, frames: int, frame_skip: int) -> WinningRun:
    """Return the run of a win after ``frames`` frames of the episode."""
    # only the last decision may have fewer frames than the others, because the win ends it
    return winning_run(actions, (frames - 1) % frame_skip + 1, frame_skip)


class _Beam:
    """A beam search in progress.  Its tree has a numbered node per stored state; the root is node 0.

    rows: uint8[states, B], snapshots of the states in the beam.
    nodes: int64[states], node of each state in the search tree.
    costs: float64[states], negative log-probability of their action sequences, minus the smallest one.
    covered_px: float64[states], covered path length.
    next_costs: float64[states, 6], negative log-probability of each next action.
    frame: frame of the episode, equal for all states.
    """

    def __init__(self, search: GuidedSearch, settings: BeamSettings, most_frames: int, start: np.ndarray):
        self.search, self.settings, self.most_frames = search, settings, most_frames
        self.envs = search.playing_envs(settings.width * settings.branching)
        self.observing = search.observing_envs(settings.width)
        self.frame_skip = search.agent.frame_skip
        self.length = float(search.bank.path_length[0])  # px
        self.visited: set[int] = set()  # hashes of visited cells
        self._parents, self._actions = [-1], [-1]  # parent of each node, and the action that leads from it to the node
        self.envs.restore(0, start)
        self.nodes, self.costs, self.rows = np.zeros(1, int), np.zeros(1), start[None]
        self.covered_px = self.covered(1)
        self.frame = int(self.envs.state.ninja["frame"][0])
        self.next_costs = self.evaluate(self.rows)

    def advance(self, budget: FrameBudget) -> WinningRun | None:
        """Advance the beam by one decision; return a winning run, or None."""
        costs = (self.costs[:, None] + self.next_costs).ravel()
        chosen = np.argsort(costs, kind="stable")[: self.envs.num_envs]
        parents, actions, costs = chosen // NUM_ACTIONS, chosen % NUM_ACTIONS, costs[chosen]
        winner = self.play(self.rows[parents], actions, budget)
        if winner is not None:
            return self.actions_to(self.nodes[parents[winner]], int(actions[winner]), winner)
        chosen = self.ranked(parents, costs)
        if self.settings.width > 1:  # a policy that stands still and waits for a mover stays in one cell
            chosen = self.select_unvisited(chosen, self.settings.width)
        self.rows, self.frame = self.envs.snapshot(chosen), self.frame + self.frame_skip
        if chosen.size:
            self.covered_px = self.covered(len(parents))[chosen]
            self.nodes = self.add_nodes(self.nodes[parents[chosen]], actions[chosen])
            self.costs = costs[chosen] - costs[chosen].min()
            self.next_costs = self.evaluate(self.rows)
        return None

    def ranked(self, parents: np.ndarray, costs: np.ndarray) -> np.ndarray:
        """Return the environments with running episodes, in descending order of their scores."""
        covered, settings = self.covered(len(parents)), self.settings
        speed = (covered - self.covered_px[parents]) / self.frame_skip
        scores = covered + settings.speed_weight * speed - settings.cost_weight * costs
        scores += settings.noise * self.search.rng.random(len(parents))
        order = np.argsort(-scores, kind="stable")
        return order[self.running(len(parents))[order]]

    def play(self, rows: np.ndarray, actions: np.ndarray, budget: FrameBudget) -> int | None:
        """Simulate one action from each state; return the index of the environment with the fastest win, or None."""
        envs, count = self.envs, len(rows)
        envs.restore(slice(0, count), rows)
        before = envs.state.ninja["frame"][:count].copy()
        envs._step(
            np.resize(actions, envs.num_envs),
            np.full(envs.num_envs, -1, np.int32),
            every_end=False,
            asleep=np.arange(envs.num_envs) >= count,
        )
        frames = envs.state.ninja["frame"][:count]
        budget.spend(int((frames - before).sum()))
        won = envs.terminated[:count] & (envs.episode["outcome"][:count] == WON)
        winning = np.flatnonzero(won & (frames <= self.most_frames))
        return int(winning[np.argmin(frames[winning])]) if winning.size else None

    def running(self, count: int) -> np.ndarray:
        """Return bool[count], True for each of the first environments whose episode has not ended."""
        return ~(self.envs.terminated[:count] | self.envs.truncated[:count])

    def covered(self, count: int) -> np.ndarray:
        """Return the covered path length in px, float64[count], of the first environments.

        It is negative if the path to the exit is longer than at the start.
        """
        return self.envs.state.progress["potential"][:count] * max(self.length, MIN_PATH)

    def select_unvisited(self, environments: Iterable[int], limit: int) -> np.ndarray:
        """Select the first ``limit`` environments whose states are in unvisited cells, and mark these cells as visited."""
        state, world = self.envs.state, self.search.bank.world
        chosen: list[int] = []
        with np.errstate(over="ignore"):  # with NUMBA_DISABLE_JIT, numpy warns about the overflow of hashes
            for i in environments:
                if len(chosen) == limit:
                    break
                key = cell(state.ninja[i], state.entities[i], state.movers[i], world, self.frame_skip)
                if key not in self.visited:
                    self.visited.add(key)
                    chosen.append(i)
        return np.array(chosen, np.int64)

    def evaluate(self, rows: np.ndarray) -> np.ndarray:
        """Return the negative log-probability of each action in these states, float64[states, 6]."""
        self.observing.restore(slice(0, len(rows)), rows)
        self.search.evaluated += len(rows)
        return self.search.agent.action_costs(self.observing.observe(np.arange(len(rows))), len(rows))

    def add_nodes(self, nodes: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Create one child of each given node; return the new nodes."""
        first = len(self._parents)
        self._parents += nodes.tolist()
        self._actions += actions.tolist()
        return np.arange(first, len(self._parents))

    def actions_to(self, node: int, action: int, environment: int) -> WinningRun:
        """Return the action sequence from the root to a node, followed by ``action``.

        environment: index of the environment that contains the final state.
        """
        frames = int(self.envs.state.ninja["frame"][environment])
        actions = actions_to(self._parents, self._actions, node, action)
        return _winning_run(actions, frames, self.frame_skip)
