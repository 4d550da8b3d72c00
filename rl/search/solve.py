"""Solve one level: policy-guided searches, then the planner's, then a search for shorter runs or for more gold.

solution = solve(level, GuidePolicy.load(path), SolveSettings())
solution.run.inputs, solution.found_by
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from nppsim.actions import INPUT_ACTION, NUM_ACTIONS
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.parallel.workers import usable_cores
from nppsim.planner import PlannedRun, better_runs
from nppsim.planner.budget import FrameBudget
from nppsim.planner.gold import rank
from nppsim.planner.kernels import SearchParams
from nppsim.planner.plan import BEST_FIRST
from nppsim.planner.search import BestFirst, Search, WinningRun, beam_search, verified
from nppsim.planner.settings import ALL_GOLD, LOW_GOLD, OBJECTIVE_HELP, OBJECTIVES, SCORE, TIME, PlannerSettings
from nppsim.planner.single_frames import improve
from nppsim.settings import check_settings, setting
from nppsim.simulate import is_active, simulate
from rl.evaluation.breakdown import Loss, losses
from rl.evaluation.suite import EvaluationSuite
from rl.search.guided_search import BeamSettings, GuidedSearch, GuidePolicy

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
# Share of the budget for runs with little gold; with a time limit, the rest of the time is for shorter runs.
AVOIDING_SHARE = 0.5
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

    objective: str = setting(
        TIME,
        f"{OBJECTIVE_HELP}; {LOW_GOLD}: least gold, then fastest",
        flag="objective",
        choices=(*OBJECTIVES, LOW_GOLD),
    )
    budget: int | None = setting(
        None,
        "largest number of simulated frames per level to find a run; what is left is used to collect or avoid gold; default: "
        f"{PlannerSettings.budget:,}, unlimited with --seconds",
        flag="budget",
        low=1,
    )
    polish: int = setting(
        2_000_000, "largest number of additional frames per level to shorten the run", flag="polish", low=0
    )
    improve: int = setting(
        0,
        "largest number of frames per level, simulated at the end, to improve the run at single frames, for any objective",
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
    improving: int  # number of frames simulated to improve it at single frames
    collecting: int  # number of frames simulated for more or less gold, or a higher score
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
    threads: number of threads of the simulator, and of processes that improve the run; None: all usable cores.
    Without ``settings.seconds`` the result depends only on level, agent and settings.
    Raises Interrupted if Ctrl-C is pressed after a run was found.
    """
    until = None if settings.seconds is None else time.monotonic() + settings.seconds
    update = (lambda frames: None) if bar is None else bar.update
    search = GuidedSearch(level, agent, np.random.default_rng(settings.seed), threads)
    _stage(bar, "searching", settings.frames)
    finding = FrameBudget(settings.frames, until, update)
    first, found_by = find(search, settings.seed, finding) if search.bank.reachable[0] else (None, "")
    if first is None:
        evaluated = search.evaluated, search.evaluated * agent.foreseen
        lost = _losses(level, agent, settings.seed) if search.bank.reachable[0] else []
        return Solution(None, settings.objective, "", None, finding.simulated, 0, 0, 0, *evaluated, lost)
    frames = settings.polish, settings.improve, finding.left
    shortening, improving, collecting = (FrameBudget(count, until, update) for count in frames)

    def better(run: PlannedRun, found: WinningRun) -> PlannedRun:
        runs = run, verified(search.bank, found, None, shortening.simulated)
        return min(runs, key=lambda candidate: rank(settings.objective, candidate.frames, candidate.gold))

    def solution(run: PlannedRun) -> Solution:
        simulated = finding.simulated, shortening.simulated, improving.simulated, collecting.simulated
        evaluated = search.evaluated, search.evaluated * agent.foreseen
        return Solution(run, settings.objective, found_by, len(first.inputs), *simulated, *evaluated)

    run = verified(search.bank, first, None, 0)
    try:
        for found in _better_on_grid(level, search, first, settings, (shortening, collecting), bar):
            run = better(run, found)
        if settings.improve:
            _stage(bar, "single frames", settings.improve)
        for inputs in improve(level, run.inputs, settings.objective, settings.seed, improving, threads):
            run = better(run, WinningRun(INPUT_ACTION[inputs].astype(np.int64), inputs))
    except KeyboardInterrupt:
        raise Interrupted(solution(run)) from None
    return solution(run)


def _better_on_grid(
    level: Level,
    search: GuidedSearch,
    run: WinningRun,
    settings: SolveSettings,
    budgets: tuple[FrameBudget, FrameBudget],
    bar: Any,
) -> Iterator[WinningRun]:
    """Yield runs with one action per decision, the last of which is best for the objective.

    run: first run.  budgets: for shorter runs, and for those with more or less gold, or a higher score.
    """
    (shortening, collecting), objective, seed = budgets, settings.objective, settings.seed
    searched, guided = level, search
    if objective == LOW_GOLD:
        _stage(bar, "avoiding gold", collecting.left)
        for less in _avoid_gold(level, search, run, seed, collecting.share(AVOIDING_SHARE)):
            yield (run := less)
        searched = fenced(level, gold_taken(level, run.inputs))
        guided = GuidedSearch(searched, search.agent, search.rng, search.threads)
    _stage(bar, f"shortening {len(run.inputs)} frames", settings.polish)
    for shorter in _shortened(searched, guided, run, seed, shortening):
        yield (run := shorter)
    if guided is not search:
        search.evaluated += guided.evaluated
    if objective in (SCORE, ALL_GOLD):
        _stage(bar, "collecting gold", collecting.left)
        yield from _better_runs(level, search, run, objective, seed, collecting)


def _shortened(
    level: Level, search: GuidedSearch, run: WinningRun, seed: int, budget: FrameBudget
) -> Iterator[WinningRun]:
    """Yield shorter and shorter runs."""
    best = _planned_run(search, run, seed, budget.part(int(PLANNER_SHARE * budget.left))) or run
    yield best
    for shorter in _shorter_runs(search, best, budget.part(GUIDED_FRAMES)):
        yield (best := shorter)
    yield from _better_runs(level, search, best, TIME, seed, budget)


def gold_taken(level: Level, inputs: np.ndarray) -> list[int]:
    """Return the indices in ``level.records`` of the gold that a run collects."""
    run = simulate(level, inputs)
    active = is_active(run.entity_state[-1, run.entities[:, 0] == kinds.GOLD])
    return np.flatnonzero(level.records[:, 0] == kinds.GOLD)[active == 0].tolist()


def fenced(level: Level, allowed: Sequence[int]) -> Level:
    """Return a copy of a level with mines in place of gold, except for the gold ``allowed`` (indices of records).

    A mine is smaller than gold, so runs that win on this level also win on ``level``, and rarely collect other gold.
    """
    records = level.records.copy()
    replaced = np.setdiff1d(np.flatnonzero(records[:, 0] == kinds.GOLD), allowed)
    records[replaced, 0] = kinds.MINE
    return Level(level.tiles, records, level.name, level.exit_count, level.ball_count)


def _avoid_gold(
    level: Level, search: GuidedSearch, run: WinningRun, seed: int, budget: FrameBudget
) -> Iterator[WinningRun]:
    """Yield runs that collect less and less gold: first a run without gold, then without single pieces."""
    taken = gold_taken(level, run.inputs)
    attempts = [taken, *([piece] for piece in taken)]
    for number, avoided in enumerate(attempts):
        allowed = [piece for piece in taken if piece not in avoided]
        part = budget.share(1 / (len(attempts) - number) if number else 0.5)
        if len(allowed) == len(taken) or not part.left:
            continue
        guided = GuidedSearch(fenced(level, allowed), search.agent, search.rng, search.threads)
        found, _ = find(guided, seed, part) if guided.bank.reachable[0] else (None, "")
        search.evaluated += guided.evaluated
        if found is not None:
            taken = gold_taken(level, found.inputs)
            yield found


def _losses(level: Level, agent: GuidePolicy, seed: int) -> list[Loss]:
    """Play LOST_EPISODES episodes of the agent with backtracking; return why they are lost."""
    suite = EvaluationSuite(
        [(level, "")], episodes_per_level=LOST_EPISODES, seed=seed, frame_skip=agent.frame_skip, threads=1
    )
    return losses(suite.run(agent.policy, deterministic=False))


def _better_runs(
    level: Level, search: GuidedSearch, run: WinningRun, objective: str, seed: int, budget: FrameBudget
) -> Iterator[WinningRun]:
    """Yield runs that are better and better for the objective, within the budget."""
    if not budget.left:
        return
    known, simulated = verified(search.bank, run, None, 0), 0
    for better in better_runs(level, known, objective, search.agent.frame_skip, budget=budget.left, seed=seed):
        budget.spend(better.simulated - simulated)
        simulated = better.simulated
        yield WinningRun(better.actions, better.inputs)
        if not budget.left:
            return


def _stage(bar: Any, title: str, frames: int) -> None:
    """Start a stage of a progress bar."""
    if bar is not None:
        bar.set_description(title)
        bar.reset()
        bar.total = frames if frames < UNLIMITED // 2 else None  # also for what is left of an unlimited budget


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
                if all(member.is_exhausted for member in self._searches):
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
                before = sum(member.simulated for member in self._searches)
                results = list(pool.map(BestFirst.advance, self._searches, [frames] * len(self._searches)))
                budget.spend(sum(member.simulated for member in self._searches) - before)
                runs = [run for run in results if run is not None]
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
