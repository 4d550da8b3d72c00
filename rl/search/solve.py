"""Solve one level: policy-guided searches, then the planner's, then a search for shorter runs or for more gold.

solution = solve(level, GuidePolicy.load(path), SolveSettings())
solution.run.inputs, solution.found_by
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nppsim.actions import NUM_ACTIONS
from nppsim.errors import ConfigError
from nppsim.levels.level import Level
from nppsim.parallel.workers import usable_cores
from nppsim.planner import PlannedRun, better_runs
from nppsim.planner.kernels import SearchParams
from nppsim.planner.plan import BEST_FIRST
from nppsim.planner.search import BestFirst, Search, WinningRun, beam_search, verified
from nppsim.planner.settings import OBJECTIVE_HELP, OBJECTIVES, TIME, PlannerSettings
from nppsim.settings import check_settings, setting
from rl.evaluation.breakdown import Loss, losses
from rl.evaluation.suite import EvaluationSuite
from rl.search import single_frames
from rl.search.guided_search import BeamSettings, FrameBudget, GuidedSearch, GuidePolicy

PLANNER = "planner"  # name of the best-first searches of the planner
EPISODES = "episodes"  # name of the search by sampled episodes of the agent
# Searches, made in this order until one finds a run, and then the planner: (name, number of states or episodes; frames for
# the planner).
ATTEMPTS = (("agent", 1), (PLANNER, 1_000_000), ("beam of 4", 4), (EPISODES, 16), ("beam of 16", 16))
# Decisions without a shorter path to the exit after which a beam or an episode ends.
BEAM_PATIENCE, EPISODE_PATIENCE = 200, 600
# Parameters of the best-first searches of the planner, which run in parallel if all guided searches fail.
PLANNER_PARAMS = (BEST_FIRST._replace(min_hold=2), BEST_FIRST)
FRAMES_PER_TURN = 200_000  # frames that each of them simulates before their results are compared
LOST_EPISODES = 4  # episodes of the agent that show why a level is lost
UNLIMITED = 10**12  # budget in frames of searches with a time limit
# Searches for a shorter run: a beam of the planner with this share of the frames, guided beams with at most GUIDED_FRAMES,
# then ``better_runs`` with the rest.
PLANNER_SHARE = 0.5
GUIDED_FRAMES = 100_000
PLANNER_BEAM = SearchParams(width=384, noise=12.0, fill=0.5, momentum=4.0, min_hold=1)
LEAST_WIDTH = 16  # of the planner's beam; the search is left out if its frames suffice only for a narrower beam
# Parameters of beams that search for shorter runs: these first, then random combinations of the values below.
FIRST_BEAMS = (BeamSettings(64), BeamSettings(64, cost_weight=0.0))
WIDTHS = (16, 32, 64, 128)
BRANCHINGS = (2, 3)
SPEED_WEIGHTS = (0.0, 4.0, 8.0)
COST_WEIGHTS = (0.0, 5.0, 10.0)
NOISES = (2.0, 12.0)


@dataclass(frozen=True)
class SolveSettings:
    """Objective and budget of the search."""

    objective: str = setting(TIME, OBJECTIVE_HELP, flag="objective", choices=OBJECTIVES)
    budget: int | None = setting(
        None,
        "largest number of simulated frames per level to find a run; what is left is used to collect gold; default: "
        f"{PlannerSettings.budget:,}, unlimited with --seconds",
        flag="budget",
        low=1,
    )
    polish: int = setting(
        2_000_000, "largest number of additional frames per level to shorten the run", flag="polish", low=0
    )
    improve: int = setting(
        0,
        "largest number of frames per level, simulated after --polish, to shorten the run at single frames (objective time)",
        flag="improve",
        low=0,
    )
    seconds: float | None = setting(
        None,
        "time limit per level in seconds; makes results depend on the speed of the machine",
        flag="seconds",
        above=0,
    )
    seed: int = setting(0, "random seed of the search", flag="seed", aliases=("seeds",), low=0)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.improve and self.objective != TIME:
            raise ConfigError(f"is for the objective {TIME}; leave it out", "--improve", self.improve)

    @property
    def frames(self) -> int:
        """Largest number of simulated frames to find a run."""
        return self.budget or (PlannerSettings.budget if self.seconds is None else UNLIMITED)


@dataclass(frozen=True)
class Solution:
    """Result for a level."""

    run: PlannedRun | None  # best run, or None
    objective: str
    found_by: str  # name in ATTEMPTS, or PLANNER; "" without a run
    first_frames: int | None  # length of the first run that was found, or None
    finding: int  # number of frames simulated to find a run
    shortening: int  # number of frames simulated to shorten the run
    improving: int  # number of frames simulated to shorten it at single frames
    collecting: int  # number of frames simulated for more gold or a higher score
    evaluated: int  # number of states evaluated by the policy
    foreseen: int  # upper bound of the frames simulated for the observation ``foresight``, which are not counted above
    losses: Sequence[Loss] = ()  # why episodes of the agent are lost, if there is no run
    thoughts: Sequence[tuple[float, float, int]] = ()  # periods of thinking, for live play (``rl.search.live.Thought``)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a run was being improved; ``solution`` has the best run so far."""

    def __init__(self, solution: Solution):
        super().__init__()
        self.solution = solution


def solve(
    level: Level, agent: GuidePolicy, settings: SolveSettings, *, bar: Any = None, threads: int | None = None
) -> Solution:
    """Find a run that finishes ``level``, then shorten it, and improve it for the objective.

    bar: progress bar (``nppsim.io.progress``), or None.
    threads: number of threads of the simulator; None: all usable cores.
    Without ``settings.seconds`` the result depends only on level, agent and settings.
    Raises Interrupted if Ctrl-C is pressed after a run was found.
    """
    until = None if settings.seconds is None else time.monotonic() + settings.seconds
    search = GuidedSearch(level, agent, np.random.default_rng(settings.seed), threads)
    finding = FrameBudget(settings.frames, until, _stage(bar, "searching", settings.frames))
    first, found_by = find(search, settings.seed, finding) if search.bank.reachable[0] else (None, "")
    if first is None:
        evaluated = search.evaluated, search.evaluated * agent.foreseen
        lost = _losses(level, agent, settings.seed) if search.bank.reachable[0] else []
        return Solution(None, settings.objective, "", None, finding.simulated, 0, 0, 0, *evaluated, lost)
    title = f"shortening {len(first.inputs)} frames"
    shortening = FrameBudget(settings.polish, until, _stage(bar, title, settings.polish))
    improving = FrameBudget(settings.improve, until, lambda frames: None)

    def solution(run: PlannedRun) -> Solution:
        collecting = max(run.simulated - shortening.simulated, 0) if settings.objective != TIME else 0
        simulated = finding.simulated, shortening.simulated, improving.simulated, collecting
        evaluated = search.evaluated, search.evaluated * agent.foreseen
        return Solution(run, settings.objective, found_by, len(first.inputs), *simulated, *evaluated)

    run = verified(search.bank, first, None, 0)
    try:
        planned = _planned_run(search, first, settings.seed, shortening.part(int(PLANNER_SHARE * settings.polish)))
        if planned is not None:
            run = verified(search.bank, planned, None, shortening.simulated)
        for shorter in _shorter_runs(search, planned or first, shortening.part(GUIDED_FRAMES)):
            run = verified(search.bank, shorter, None, shortening.simulated)
        run = replace(run, simulated=shortening.simulated)
        for better in _better_runs(level, run, TIME, agent.frame_skip, settings.seed, shortening):
            run = better
        if settings.improve:
            improving = FrameBudget(settings.improve, until, _stage(bar, "single frames", settings.improve))
            for inputs in single_frames.shorten(search.bank, run.inputs, search.rng, improving):
                run = verified(search.bank, single_frames.run_of(inputs), None, run.simulated)
        if settings.objective != TIME:
            collecting = FrameBudget(finding.left, until, _stage(bar, "collecting gold", finding.left))
            for better in _better_runs(level, run, settings.objective, agent.frame_skip, settings.seed, collecting):
                run = better
    except KeyboardInterrupt:
        raise Interrupted(solution(run)) from None
    return solution(run)


def _losses(level: Level, agent: GuidePolicy, seed: int) -> list[Loss]:
    """Play LOST_EPISODES episodes of the agent with backtracking; return why they are lost."""
    suite = EvaluationSuite(
        [(level, "")], episodes_per_level=LOST_EPISODES, seed=seed, frame_skip=agent.frame_skip, threads=1
    )
    return losses(suite.run(agent.policy, deterministic=False))


def _better_runs(
    level: Level, run: PlannedRun, objective: str, frame_skip: int, seed: int, budget: FrameBudget
) -> Iterator[PlannedRun]:
    """Yield runs that are better and better for the objective, within the budget."""
    simulated = run.simulated
    if not budget.left:
        return
    for better in better_runs(level, run, objective, frame_skip, budget=budget.left, seed=seed):
        budget.spend(better.simulated - simulated)
        simulated = better.simulated
        yield better
        if not budget.left:
            return


def _stage(bar: Any, title: str, frames: int) -> Callable[[int], object]:
    """Start a stage of a progress bar; return its update function."""
    if bar is None:
        return lambda frames: None
    bar.set_description(title)
    bar.reset()
    bar.total = frames if frames < UNLIMITED // 2 else None  # also for what is left of an unlimited budget
    return bar.update


def find(search: GuidedSearch, seed: int, budget: FrameBudget) -> tuple[WinningRun | None, str]:
    """Find a run from ``search.start``; return it and the name of the search that found it, or (None, "")."""
    planner = Planner(search, seed)
    for name, width in (*ATTEMPTS, (PLANNER, UNLIMITED)):
        if name == PLANNER:
            winning_run = planner.advance(budget.part(width))
        elif name == EPISODES:
            winning_run = search.episodes(width, seed, budget, EPISODE_PATIENCE)
        else:
            beam = BeamSettings(width, branching=min(width, BeamSettings._field_defaults["branching"]))
            winning_run = search.beam(beam, budget, patience=BEAM_PATIENCE)
        if winning_run is not None:
            return winning_run, name
    return None, ""


class Planner:
    """The planner's best-first searches, which can be continued.

    They run in parallel threads, and begin again with another seed when all have ended.
    """

    def __init__(self, search: GuidedSearch, seed: int):
        self._search, self._seed = search, seed
        self._searches: list[BestFirst] = []

    def advance(self, budget: FrameBudget) -> WinningRun | None:
        """Continue the searches; return the shortest of the runs found in the first successful turn, or None."""
        search = self._search
        with ThreadPoolExecutor(min(len(PLANNER_PARAMS), search.threads or usable_cores())) as pool:
            while budget.left:
                if all(one.is_exhausted for one in self._searches):
                    self._searches = [
                        BestFirst(
                            search.bank,
                            search.agent.frame_skip,
                            search.first_row,
                            np.random.default_rng(self._seed),
                            params,
                            search.time_limit,
                        )
                        for params in PLANNER_PARAMS
                    ]
                    self._seed += 1
                frames = min(FRAMES_PER_TURN, budget.left // len(self._searches) + 1)
                before = sum(one.simulated for one in self._searches)
                found = list(pool.map(BestFirst.advance, self._searches, [frames] * len(self._searches)))
                budget.spend(sum(one.simulated for one in self._searches) - before)
                runs = [run for run in found if run is not None]
                if runs:
                    return min(runs, key=lambda run: len(run.inputs))
        return None


def _planned_run(search: GuidedSearch, best: WinningRun, seed: int, budget: FrameBudget) -> WinningRun | None:
    """Return a shorter run than ``best``, found by a beam of the planner that is as wide as the budget allows, or None."""
    frame_skip = search.agent.frame_skip
    decisions = (len(best.inputs) - 1) // frame_skip
    width = min(budget.left // (NUM_ACTIONS * frame_skip * max(decisions, 1)), PLANNER_BEAM.width)
    if width < LEAST_WIDTH:
        return None
    params, rng = PLANNER_BEAM._replace(width=width), np.random.default_rng(seed)
    beam = Search(search.bank, frame_skip, search.first_row, rng, params)
    run = beam_search(beam, decisions, budget.left)
    budget.spend(beam.simulated)
    return run


def _shorter_runs(search: GuidedSearch, best: WinningRun, budget: FrameBudget) -> Iterator[WinningRun]:
    """Yield successively shorter runs.

    They are found by guided beams that start at the initial state or at a random decision of the shortest run so far.
    """
    states = None
    for turn in range(budget.left):  # enough turns: each beam simulates at least one frame
        if not budget.left:
            break
        if states is None:
            states = search.states_along(best.actions, budget)
        known = turn < len(FIRST_BEAMS)
        cut = 0 if known or turn % 2 == 0 else int(search.rng.integers(len(best.actions)))
        beam = FIRST_BEAMS[turn] if known else _random_beam(search.rng)
        end = search.beam(beam, budget, len(best.inputs) - 1, states[cut])
        if end is not None:
            before = best.inputs[: cut * search.agent.frame_skip]
            best = WinningRun(np.concatenate([best.actions[:cut], end.actions]), np.concatenate([before, end.inputs]))
            states = None
            yield best


def _random_beam(rng: np.random.Generator) -> BeamSettings:
    return BeamSettings(
        *(rng.choice(values).item() for values in (WIDTHS, BRANCHINGS, SPEED_WEIGHTS, COST_WEIGHTS, NOISES))
    )
