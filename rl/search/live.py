"""Live play: the agent plays while the clock of the game runs, and searches between its decisions.

    played = LivePlayer(level, GuidePolicy.load(path)).play()
    played.actions, played.won, played.thoughts

docs/evaluate.md defines live play.  The player commits itself to actions that lead to a *root*, a state in which the ninja
can wait, and searches for a run from there (``rl.search.solve.find``) until the root is due.  If the search finds a run, the
player tries to begin it before the root.  Otherwise it commits itself to a longer wait and searches again.  Where waiting is
deadly, it first follows the policy to a state where it is not.  When no wait is left, it plays the policy with backtracking.
Decisions for which thinking came too late have no action.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch

from nppsim.actions import FRAMES_PER_SECOND
from nppsim.generate import generate
from nppsim.levels.level import Level
from nppsim.physics.outcomes import WON
from nppsim.planner.budget import FrameBudget
from nppsim.planner.search import WinningRun
from rl.evaluation.results import EpisodeRecord
from rl.evaluation.suite import EvaluationSuite, RecordedPolicy
from rl.policy.backtracking import with_backtracking
from rl.policy.constants import HORIZON, PATIENCE
from rl.policy.player import player_of
from rl.search.guided_search import BeamSettings, GuidedSearch, GuidePolicy
from rl.search.solve import UNLIMITED, Planner, find

# Prices of the counted clock, in s: medians of one core of an Intel Xeon, rounded up (docs/lab/results.md).
FRAME_SECONDS = 1.5e-6  # a simulated frame
EVALUATION_SECONDS = 400e-6  # observations of a state with look-ahead, and an evaluation of the network
EVALUATION_FRAMES = round(EVALUATION_SECONDS / FRAME_SECONDS)
FIRST_FRAMES = 20_000  # frames left at the beginning of a budget of the measured clock
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


class MeasuredBudget(FrameBudget):
    """Budget until a deadline (value of ``time.monotonic``): frames for which half of the remaining time is sufficient."""

    def __init__(self, until: float, frames: int = UNLIMITED, progress: Callable[[int], object] = lambda frames: None):
        super().__init__(frames, progress=progress)
        self._end = until

    def part(self, frames: int) -> "MeasuredPart":
        """See ``FrameBudget``."""
        return MeasuredPart(self._end, frames, self.spend)

    @property
    def left(self) -> int:
        """See ``FrameBudget``."""
        return min(super().left, int(max(self._end - time.monotonic(), 0.0) / (2 * FRAME_SECONDS)))


class MeasuredPart(MeasuredBudget):
    """Part of a ``MeasuredBudget`` for a search that simulates what is left in one call.

    At first, FIRST_FRAMES are left, then at most as many more as were simulated and as half of the remaining time is
    sufficient for at the measured speed, so that the search ends in time also on a busy core.
    """

    def __init__(self, until: float, frames: int, progress: Callable[[int], object]):
        super().__init__(until, frames, progress)
        self._begin = time.monotonic()

    @property
    def left(self) -> int:
        """See ``FrameBudget``."""
        now = time.monotonic()
        if not self.simulated:
            return min(super().left, FIRST_FRAMES)
        affordable = self.simulated * 0.5 * max(self._end - now, 0.0) / max(now - self._begin, FRAME_SECONDS)
        return min(super().left, FIRST_FRAMES + self.simulated, int(affordable))


class CountedClock:
    """Clock of the game that advances by the prices of what ``search`` simulates and evaluates.

    now: time since the level is shown, in s.
    simulated: number of simulated frames, except for those of look-ahead.
    """

    def __init__(self, search: GuidedSearch):
        self._search, self.now, self.simulated = search, 0.0, 0

    @contextmanager
    def until(self, seconds: float) -> Iterator[FrameBudget]:
        """Yield a budget that ends at a time of this clock; afterwards, advance the clock by what was spent."""
        evaluated = self._search.evaluated
        budget = CountedBudget(self._search, int(max(seconds - self.now, 0.0) / FRAME_SECONDS))
        yield budget
        self.simulated += budget.simulated
        self.now += FRAME_SECONDS * budget.simulated + EVALUATION_SECONDS * (self._search.evaluated - evaluated)


class MeasuredClock:
    """Clock of the game that is the wall time of this process, from the construction of the clock.

    simulated: number of simulated frames, except for those of look-ahead.
    stopped: if it is set to True, searches end with a CancelledError.
    """

    def __init__(self, search: GuidedSearch):
        self._begin, self.simulated, self.stopped = time.monotonic(), 0, False

    @property
    def now(self) -> float:
        """Time since the level is shown, in s."""
        return time.monotonic() - self._begin

    @contextmanager
    def until(self, seconds: float) -> Iterator[FrameBudget]:
        """Yield a budget that ends at a time of this clock."""
        budget = MeasuredBudget(self._begin + seconds, progress=self._continue)
        yield budget
        self.simulated += budget.simulated

    def _continue(self, frames: int) -> None:
        if self.stopped:
            raise CancelledError


COUNTED, MEASURED = "counted", "measured"
CLOCKS: dict[str, type[CountedClock] | type[MeasuredClock]] = {COUNTED: CountedClock, MEASURED: MeasuredClock}


class Thought(NamedTuple):
    """A period in which the agent thinks.

    begin, end: time since the level is shown, in s.
    planned: number of decisions whose actions are final during this period.
    """

    begin: float
    end: float
    planned: int


@dataclass(frozen=True)
class LivePlay:
    """An episode of live play.

    actions: int64[decisions].
    won: True if the last action finishes the level.
    found: number of executed decisions when the search had found the run; None if it found none.
    thoughts: periods of thinking, in order.
    simulated: number of simulated frames, except for those of look-ahead.
    backtracks: how often the policy took decisions back.
    """

    actions: np.ndarray
    won: bool
    found: int | None
    thoughts: list[Thought]
    simulated: int
    backtracks: int

    @property
    def thought(self) -> float:
        """Thinking time, in s."""
        return sum(thought.end - thought.begin for thought in self.thoughts)

    def record(self, pair: tuple[Level, str], frame_skip: int) -> EpisodeRecord:
        """Return the record of the episode.  pair: the level and its category."""
        suite = EvaluationSuite([pair], frame_skip=frame_skip, num_envs=1, threads=1, patience=0, horizon=0)
        (record,) = suite.run(RecordedPolicy(self.actions), deterministic=True)
        return replace(record, thoughts=self.thoughts, backtracks=self.backtracks)


class LiveDecision(NamedTuple):
    """An executed decision of live play.

    action: 0..5.
    thinks: True if the agent thinks meanwhile.
    ahead: number of final decisions from this one on.
    """

    action: int
    thinks: bool
    ahead: int


def timeline(actions: Sequence[int], thoughts: Sequence[Thought], decision_seconds: float) -> list[LiveDecision]:
    """Return the decisions of a play.  decision_seconds: length of a decision, in s."""
    count = len(actions)
    thinks, planned = np.zeros(count, bool), np.full(count, count)
    for begin, end, final in thoughts:
        during = slice(int(begin / decision_seconds), int(np.ceil(end / decision_seconds)))
        thinks[during], planned[during] = True, final
    ahead = np.maximum(planned - np.arange(count), 0)
    return list(map(LiveDecision, actions, thinks.tolist(), ahead.tolist()))


@dataclass
class LivePlayer:
    """Player of one episode of a level.

    seed: seed of the search.
    clock: name in CLOCKS; with the measured clock, results depend on the machine.
    """

    level: Level
    agent: GuidePolicy
    seed: int = 0
    clock: str = COUNTED
    search: GuidedSearch = field(init=False)

    def __post_init__(self) -> None:
        self.search = GuidedSearch(self.level, self.agent, np.random.default_rng(self.seed), threads=1)
        self.decision_seconds = self.agent.frame_skip / FRAMES_PER_SECOND
        self._committed: list[int] = []  # actions that lead to the root, which cannot be taken back
        self._states = [self.search.start]  # uint8[B], state before each of them, and the root
        self._final = 0  # number of committed actions that will not be taken back
        self._dead = False  # True if the ninja dies before the root
        self._thoughts: list[Thought] = []
        self._found: int | None = None
        self._won = False
        self._backtracks = 0

    def play(self) -> LivePlay:
        """Play the episode."""
        actions = [decision.action for decision in self.decisions()]
        counts = self._clock.simulated, self._backtracks
        return LivePlay(np.array(actions, np.int64), self._won, self._found, self._thoughts, *counts)

    def decisions(self) -> Iterator[LiveDecision]:
        """Play the episode; yield each decision once the clock has reached it, or no thinking is left."""
        self._clock = CLOCKS[self.clock](self.search)
        thoughts, executed = self._thoughts, 0
        run = found = None
        while run is None and self.search.bank.reachable[0] and not self._dead:
            begin = self._clock.now
            wait = min(WAITS[min(len(thoughts), len(WAITS) - 1)], LAST_ROOT - len(self._committed))
            if wait < MIN_WAIT or not self._commit(wait):
                break
            root = len(self._committed)
            self.search.start = self._states[-1]
            with self._clock.until(self.decision_seconds * root) as budget:
                run, _ = find(self.search, self.seed + len(thoughts) + 1, budget)
            found = min(self._due, root)
            self._act_late()
            if run is not None and (self._dead or not self._begin_early(run)):
                run = None
            thoughts.append(Thought(begin, self._clock.now, root))
            due = min(self._due, len(self._committed))
            yield from timeline(self._committed, thoughts, self.decision_seconds)[executed:due]
            executed = due
        if run is not None:
            self._commit_to(run.actions.tolist())
            self._found, self._won = found, True
        elif not self._dead:
            begin, root = self._clock.now, len(self._committed)
            self._won = self._follow_policy()
            thoughts.append(Thought(begin, self._clock.now, root))
        yield from timeline(self._committed, thoughts, self.decision_seconds)[executed:]

    def decisions_in_time(self) -> Iterator[LiveDecision]:
        """Play the episode with the measured clock in a thread; yield each decision when it is executed.

        After the end of thinking, yields the rest of the decisions.  Closing the iterator ends the play.
        Raises ValueError for another clock.
        """
        if self.clock != MEASURED:
            raise ValueError(f"decisions_in_time() needs the {MEASURED} clock, not {self.clock}; use decisions()")
        with ThreadPoolExecutor(1) as pool:
            playing = pool.submit(self.play)
            executed = 0
            try:
                while not wait([playing], self.decision_seconds / 4).done:
                    final = self._final
                    due = min(self._due, final, len(self._committed)) if final else 0
                    for n in range(executed, due):
                        yield LiveDecision(self._committed[n], thinks=True, ahead=final - n)
                    executed = max(executed, due)
                played = playing.result()
                yield from timeline(played.actions.tolist(), played.thoughts, self.decision_seconds)[executed:]
            finally:
                if not playing.done():
                    assert isinstance(self._clock, MeasuredClock)
                    self._clock.stopped = True

    @property
    def _due(self) -> int:
        """Number of decisions that are due by now: thinking time is granted before each decision."""
        return max(int(np.ceil(self._clock.now / self.decision_seconds)) - 1, 0)

    def _act_late(self) -> None:
        """Commit the player to no action for each decision that is due and has no action."""
        late = self._due - len(self._committed)
        if late > 0:
            with self._clock.until(UNLIMITED) as budget:
                survived, states = self._waiting(self._states[-1:], late, budget)
            self._dead = survived[0] < late
            self._commit_to([NO_ACTION] * (len(states) - 1))
            self._states += list(states[1:, 0])

    def _commit(self, wait: int) -> bool:
        """Append actions to the committed ones that lead to a new root, at most ``wait`` decisions later.

        Returns False if no state was found in which the ninja survives.
        """
        with self._clock.until(self.decision_seconds * (len(self._committed) + 1)) as budget:
            survived, states = self._waiting(self._states[-1:], wait + MARGIN, budget)
            if survived[0] >= wait + MARGIN:
                actions = [NO_ACTION] * wait
                states = states[: wait + 1, 0]
            else:
                actions, states = self._walk(wait, int(survived[0]), budget)
        self._commit_to(actions)
        self._states += list(states[1:])
        return len(actions) >= MIN_WAIT

    def _commit_to(self, actions: list[int]) -> None:
        self._committed += actions
        self._final = len(self._committed)

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

    def _begin_early(self, run: WinningRun) -> bool:
        """Return True if the run wins from a committed state that is not executed yet, and leave out the later actions."""
        now = self._final = min(self._due + 1, len(self._committed))
        begins = np.unique(np.linspace(now, len(self._committed), TRIED_BEGINS).astype(int))
        envs, stay, running = self.search.playing_envs(len(begins)), np.full(len(begins), -1, np.int32), len(begins)
        envs.restore(slice(0, len(begins)), np.stack([self._states[begin] for begin in begins]))
        over, won = np.zeros(len(begins), bool), np.zeros(len(begins), bool)
        with self._clock.until(self.decision_seconds * (len(self._committed) + 1)) as budget:
            for action in run.actions:
                envs._step(np.full(len(begins), action), stay, every_end=False, asleep=over)
                budget.spend(running * self.agent.frame_skip + CALL_FRAMES)
                won |= envs.terminated & (envs.episode["outcome"] == WON)
                over |= envs.terminated | envs.truncated
                running = int((~over).sum())
        won &= begins >= self._due  # testing takes time, too
        if won.any():
            del self._committed[int(begins[won][0]) :]
        self._final = len(self._committed)
        return bool(won.any())

    def _follow_policy(self) -> bool:
        """Play the policy with exploration and backtracking from the root; return True for a win.

        Decisions that are due are not taken back, and have no action if the policy is late.
        """
        policy, envs, first = self.agent.policy, self.search.observing_envs(1), np.zeros(1, np.int64)
        envs.restore(0, self._states[-1])
        player = with_backtracking(player_of(policy, 1, PATIENCE), envs, HORIZON)
        rng, over = torch.Generator().manual_seed(self.seed), False
        played, root = self._committed, len(self._committed)
        obs = envs.observe()
        while not over:
            with self._clock.until(UNLIMITED):
                action = int(player.act(obs, first, deterministic=True, rng=rng)[0])
                self.search.evaluated += 1
                due = self._due - root
                played.append(action if due <= len(played) - root else NO_ACTION)
                self._final = root + max(due, 0)
                obs = envs._step(np.array(played[-1:]), np.full(1, -1, np.int32), every_end=False)
                undone = player.backtrack(rng, final=due)
            self._backtracks += len(undone)
            over = bool(envs.finished.size) and not undone
            del played[len(played) - undone.get(0, 0) :]
        return bool(envs.episode["outcome"][0] == WON)


def load_kernels(agent: GuidePolicy) -> None:
    """Call each search once, so that the measured clock does not include the load time of compiled kernels."""
    player = LivePlayer(generate("simplest_with_mines", 0)[0], agent)
    player.search.beam(BeamSettings(2), FrameBudget(1))
    player.search.episodes(2, 0, FrameBudget(1))
    Planner(player.search, 0).advance(FrameBudget(1))
    player.play()
