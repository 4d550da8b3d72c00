"""Live play: the agent plays while the clock of the game runs, and searches between its decisions.

    played = LivePlayer(level, GuidePolicy.load(path)).play()
    played.actions, played.won, played.thought

docs/evaluate.md defines live play.  The player commits itself to actions that lead to a *root*, a state in which the ninja
can wait, and searches for a run from there (``rl.search.solve.find``) until the root is due.  If the search finds a run, the
player tries to begin it before the root.  Otherwise it commits itself to a longer wait and searches again.  Where waiting is
deadly, it first follows the policy to a state where it is not.  When no wait is left, it plays the policy with backtracking.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from nppsim.actions import FRAMES_PER_SECOND
from nppsim.levels.level import Level
from nppsim.physics.outcomes import WON
from nppsim.planner.search import WinningRun
from rl.policy.backtracking import with_backtracking
from rl.policy.constants import HORIZON, PATIENCE
from rl.policy.player import player_of
from rl.search.guided_search import FrameBudget, GuidedSearch, GuidePolicy
from rl.search.solve import UNLIMITED, find

# Prices of the counted clock, in s: medians of one core of an Intel Xeon, rounded up (docs/lab/results.md).
FRAME_SECONDS = 1.5e-6  # a simulated frame
EVALUATION_SECONDS = 400e-6  # observations of a state with look-ahead, and an evaluation of the network
EVALUATION_FRAMES = round(EVALUATION_SECONDS / FRAME_SECONDS)
CALL_FRAMES = 20  # price of a call of the simulator for one decision, in frames, besides those that it simulates

WAITS = (8, 30, 90, 210, 450)  # decisions from one root to the next; the last one is repeated
LAST_ROOT = 850  # latest decision of a root
MARGIN = 20  # decisions that the ninja must survive after a wait
MIN_WAIT = 4  # decisions; shorter waits leave no time for a search
NO_ACTION = 0
# Search for a state in which the ninja can wait.
ROLLOUTS = 4  # number of rollouts of the policy; the first one is deterministic
ROLLOUT_DECISIONS = 30
STOP_EVERY = 5  # decisions between the states of a rollout in which waiting is tried
TRIED_DECISIONS = 120  # decisions for which waiting is tried
TRIED_BEGINS = 8  # number of earlier states from which a run is tried


class CountedBudget(FrameBudget):
    """Budget of simulated frames, from which evaluations by the policy of ``search`` are subtracted at their price."""

    def __init__(self, search: GuidedSearch, frames: int):
        super().__init__(frames)
        self._search, self._evaluated = search, search.evaluated

    @property
    def left(self) -> int:
        """See ``FrameBudget``."""
        return max(super().left - EVALUATION_FRAMES * (self._search.evaluated - self._evaluated), 0)


class Thinking:
    """Account of thinking time.

    measured: True to measure the wall time, False to count simulated frames and evaluations at their prices.
    used: thinking time so far, in s.
    """

    def __init__(self, search: GuidedSearch, measured: bool):
        self._search, self._measured = search, measured
        self.used = 0.0

    @contextmanager
    def until(self, seconds: float) -> Iterator[FrameBudget]:
        """Yield a budget with which ``used`` may grow to ``seconds``; afterwards, add what was used."""
        search, begin, evaluated = self._search, time.monotonic(), self._search.evaluated
        seconds = max(seconds - self.used, 0.0)
        budget = (
            FrameBudget(UNLIMITED, begin + seconds)
            if self._measured
            else CountedBudget(search, int(seconds / FRAME_SECONDS))
        )
        yield budget
        counted = FRAME_SECONDS * budget.simulated + EVALUATION_SECONDS * (search.evaluated - evaluated)
        self.used += time.monotonic() - begin if self._measured else counted


@dataclass(frozen=True)
class LivePlay:
    """An episode of live play.

    actions: int64[decisions].
    won: True if the last action finishes the level.
    found: number of executed decisions when the search had found the run; None if it found none.
    waits: decision at which each search had to be finished.
    thought: thinking time, in s.
    borrowed: largest thinking time beyond that of the executed decisions at any decision, in s; 0 with the counted clock.
    """

    actions: np.ndarray
    won: bool
    found: int | None
    waits: list[int]
    thought: float
    borrowed: float


@dataclass
class LivePlayer:
    """Player of one episode of a level.

    seed: seed of the search.
    measured: True to measure the thinking time, which makes results depend on the machine; False to count it.
    """

    level: Level
    agent: GuidePolicy
    seed: int = 0
    measured: bool = False
    search: GuidedSearch = field(init=False)

    def __post_init__(self) -> None:
        self.search = GuidedSearch(self.level, self.agent, np.random.default_rng(self.seed), threads=1)
        self.decision_seconds = self.agent.frame_skip / FRAMES_PER_SECOND
        self._thinking = Thinking(self.search, self.measured)
        self._committed: list[int] = []  # actions that lead to the root, which cannot be taken back
        self._states = [self.search.start]  # uint8[B], state before each of them, and the root
        self._borrowed = 0.0

    def play(self) -> LivePlay:
        """Play the episode."""
        roots: list[int] = []
        run = None
        while run is None and self.search.bank.reachable[0]:
            wait = min(WAITS[min(len(roots), len(WAITS) - 1)], LAST_ROOT - len(self._committed))
            if wait < MIN_WAIT or not self._commit(wait):
                break
            roots.append(len(self._committed))
            self.search.start = self._states[-1]
            with self._thinking.until(self.decision_seconds * len(self._committed)) as budget:
                run, _ = find(self.search, self.seed + len(roots), budget)
            self._check()
        if run is None:
            found, (rest, won) = None, self._follow_policy()
        else:
            found, rest, won = self._executed, run.actions.tolist(), True
            self._begin_early(run)
        actions = np.array(self._committed + rest, np.int64)
        return LivePlay(actions, won, found, roots, self._thinking.used, self._borrowed)

    @property
    def _executed(self) -> int:
        """Number of decisions that are executed by now: thinking time is granted before each decision."""
        return min(max(int(np.ceil(self._thinking.used / self.decision_seconds)) - 1, 0), len(self._committed))

    def _check(self) -> None:
        """Update ``_borrowed``: the search must be finished before the root is due."""
        allowed = self.decision_seconds * (len(self._committed) + 1)
        self._borrowed = max(self._borrowed, self._thinking.used - allowed)

    def _commit(self, wait: int) -> bool:
        """Append actions to the committed ones that lead to a new root, at most ``wait`` decisions later.

        Returns False if no state was found in which the ninja survives.
        """
        with self._thinking.until(self.decision_seconds * (len(self._committed) + 1)) as budget:
            survived, states = self._waiting(self._states[-1:], wait + MARGIN, budget)
            if survived[0] >= wait + MARGIN:
                actions = [NO_ACTION] * wait
                states = states[: wait + 1, 0]
            else:
                actions, states = self._walk(wait, int(survived[0]), budget)
        self._check()
        self._committed += actions
        self._states += list(states[1:])
        return len(actions) >= MIN_WAIT

    def _waiting(self, starts: list[np.ndarray], decisions: int, budget: FrameBudget) -> tuple[np.ndarray, np.ndarray]:
        """Wait in each state; return survived decisions, int64[n], and the states uint8[decisions + 1, n, B]."""
        envs, count = self.search.playing_envs(len(starts)), len(starts)
        envs.restore(slice(0, count), np.stack(starts))
        survived, running, states = np.zeros(count, np.int64), np.ones(count, bool), [np.stack(starts)]
        for _ in range(decisions):
            envs._step(np.zeros(count, np.int64), np.full(count, -1, np.int32), every_end=False, asleep=~running)
            budget.spend(int(running.sum()) * self.agent.frame_skip + CALL_FRAMES)
            running &= ~(envs.terminated | envs.truncated)
            survived += running
            states.append(envs.snapshot(slice(0, count)))
            if not running.any():
                break
        return survived, np.stack(states)

    def _walk(self, wait: int, survived: int, budget: FrameBudget) -> tuple[list[int], np.ndarray]:
        """Return actions and states of the policy's rollout to the state in which the ninja can wait for longest.

        survived: number of decisions that it survives in the present state.
        """
        search, envs = self.search, self.search.observing_envs(ROLLOUTS)
        envs.restore(slice(0, ROLLOUTS), np.repeat(self._states[-1][None], ROLLOUTS, axis=0))
        states = [np.repeat(self._states[-1][None], ROLLOUTS, axis=0)]
        played: list[np.ndarray] = []
        running, alive = np.ones(ROLLOUTS, bool), np.zeros(ROLLOUTS, np.int64)
        obs = envs.observe()
        while len(played) < ROLLOUT_DECISIONS and running.any() and budget.left > ROLLOUTS * EVALUATION_FRAMES:
            costs = self.agent.action_costs(obs, ROLLOUTS)
            search.evaluated += ROLLOUTS
            noise = search.rng.gumbel(size=costs.shape)
            noise[0] = 0.0
            actions = (noise - costs).argmax(axis=1)
            obs = envs._step(actions, np.full(ROLLOUTS, -1, np.int32), every_end=False, asleep=~running)
            budget.spend(int(running.sum()) * self.agent.frame_skip)
            running &= ~(envs.terminated | envs.truncated)
            alive += running
            played.append(actions)
            states.append(envs.snapshot(slice(0, ROLLOUTS)))
        ends = [(k, i) for i in range(ROLLOUTS) for k in range(STOP_EVERY, alive[i] + 1, STOP_EVERY)]
        best, rest = (survived, 0, 0), None
        if ends:
            waited, rest = self._waiting([states[k][i] for k, i in ends], TRIED_DECISIONS, budget)
            for n, (k, _) in enumerate(ends):
                best = max(best, (min(k + int(waited[n]), wait + MARGIN), -k, n))
        total, walked, n = best
        count = min(wait, total - MARGIN)
        if not walked or rest is None:
            _, rest = self._waiting(self._states[-1:], max(count, 0), budget)
            return [NO_ACTION] * max(count, 0), rest[: max(count, 0) + 1, 0]
        k, i = ends[n]
        idle = max(count - k, 0)
        actions = [int(one[i]) for one in played[:k]] + [NO_ACTION] * idle
        return actions, np.concatenate([np.stack([one[i] for one in states[: k + 1]]), rest[1 : idle + 1, n]])

    def _begin_early(self, run: WinningRun) -> None:
        """Leave out the last committed actions if the run also wins from an earlier state that is not executed yet."""
        now = min(self._executed + 1, len(self._committed))  # testing takes less than a decision
        begins = np.unique(np.linspace(now, len(self._committed), TRIED_BEGINS).astype(int))
        envs, stay, running = self.search.playing_envs(len(begins)), np.full(len(begins), -1, np.int32), len(begins)
        envs.restore(slice(0, len(begins)), np.stack([self._states[begin] for begin in begins]))
        over, won = np.zeros(len(begins), bool), np.zeros(len(begins), bool)
        with self._thinking.until(self.decision_seconds * (len(self._committed) + 1)) as budget:
            for action in run.actions:
                envs._step(np.full(len(begins), action), stay, every_end=False, asleep=over)
                budget.spend(running * self.agent.frame_skip + CALL_FRAMES)
                won |= envs.terminated & (envs.episode["outcome"] == WON)
                over |= envs.terminated | envs.truncated
                running = int((~over).sum())
        del self._committed[int(begins[won][0]) :]  # the last one is the root, from which the run wins

    def _follow_policy(self) -> tuple[list[int], bool]:
        """Play the policy with exploration and backtracking from the root; return its actions, and True for a win."""
        policy, envs, first = self.agent.policy, self.search.observing_envs(1), np.zeros(1, np.int64)
        envs.restore(0, self._states[-1])
        player = with_backtracking(player_of(policy, 1, PATIENCE), envs, HORIZON)
        rng, over = torch.Generator().manual_seed(self.seed), False
        played: list[int] = []
        obs = envs.observe()
        while not over:
            with self._thinking.until(UNLIMITED):
                played.append(int(player.act(obs, first, deterministic=True, rng=rng)[0]))
                self.search.evaluated += 1
                obs = envs._step(np.array(played[-1:]), np.full(1, -1, np.int32), every_end=False)
                undone = player.backtrack(rng)
            over = bool(envs.finished.size) and not undone
            del played[len(played) - undone.get(0, 0) :]
        return played, bool(envs.episode["outcome"][0] == WON)
