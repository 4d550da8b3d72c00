"""Runs of the planner for all pages: one search at a time, in one process, and each level only once.

    plans = Plans(leaderboard)
    answer = await plans.answer(level)          # as in ``planner_process``, without the route
    plans.par(level.fingerprint)                # the planner's result for an objective, found now or earlier

The leaderboard stores the results of the runs under a name per objective, so they survive a restart.
"""

import asyncio
from pathlib import Path
from typing import Any

from numba import config

from nppsim.levels.level import Level
from nppsim.planner.gold import rank
from nppsim.planner.settings import ALL_GOLD, SCORE, TIME
from nppsim.studio.leaderboard import PLANNER, Leaderboard
from nppsim.studio.planner_process import PlannerError, PlannerProcess

PLANNERS = {TIME: "planner", SCORE: "planner (score)", ALL_GOLD: "planner (all gold)"}  # by objective


def prepared_file() -> Path:
    """Return the file that exists if all kernels of the studio are in the cache."""
    return Path(config.CACHE_DIR) / "studio-prepared"  # type: ignore[attr-defined]  # numba sets its options at run time


class Plans:
    """Searches of the planner and their results.

    process: the process that searches.  A search continues when its page is closed; it takes at most
        ``planner_process.TIME_LIMIT``.
    """

    def __init__(self, leaderboard: Leaderboard):
        self.process = PlannerProcess()
        self._leaderboard = leaderboard
        self._searches: dict[tuple[str, str], asyncio.Task[dict]] = {}
        self._helper: PlannerProcess | None = None  # compiles the kernels
        self._preparation: asyncio.Task[None] | None = None

    @property
    def compiled(self) -> int | None:
        """Number of functions compiled so far while a process compiles kernels, else None."""
        return (self._helper or self.process).compiled

    def prepare(self, agents: list[str]) -> None:
        """Begin to compile the kernels of the planner and of the agents, unless an earlier start has done it."""
        self._preparation = asyncio.create_task(self._prepare(agents))

    async def _prepare(self, agents: list[str]) -> None:
        if prepared_file().exists():
            return
        self._helper = PlannerProcess()
        try:
            await self._helper.prepare(agents)
            prepared_file().touch()
        except (OSError, PlannerError):  # kernels are then compiled when they are needed
            pass
        finally:
            await self._helper.close()
            self._helper = None

    async def ready(self) -> None:
        """Wait until no kernels are compiled in the background, instead of compiling them twice."""
        if self._preparation is not None:
            await asyncio.shield(self._preparation)

    def par(self, id: str, objective: str = TIME) -> dict[str, Any] | None:
        """Return {"par": frames, "gold", "score"} of the planner's best run for an objective, or None if it has found none.

        id: fingerprint of the level.
        """
        player = PLANNER, PLANNERS[objective]
        runs = [run for run in self._leaderboard.runs(id) if (run["kind"], run["name"]) == player]
        best = min(runs, key=lambda run: rank(objective, run["frames"], run["gold"]), default=None)
        return best and {"par": best["frames"], "gold": best["gold"], "score": best["score"]}

    def times(self) -> dict[str, int]:
        """Return the frames of the planner's fastest run of each level, {level: frames}."""
        return self._leaderboard.times(PLANNER, PLANNERS[TIME])

    async def answer(self, level: Level, objective: str = TIME) -> dict:
        """Return the planner's answer for a level; a search that reaches the time limit has found no run."""
        key = level.fingerprint, objective
        if key not in self._searches:
            self._searches[key] = asyncio.create_task(self._search(level, objective))
        return await asyncio.shield(self._searches[key])

    async def _search(self, level: Level, objective: str) -> dict:
        try:
            await self.ready()
            answer = await self.process.search(level, objective=objective)
            answer.pop("route", None)
            if answer["par"] is not None:
                self._leaderboard.add(level.fingerprint, PLANNER, PLANNERS[objective], answer["par"], answer["gold"])
        except TimeoutError:
            return {"par": None, "reachable": True}
        except BaseException:
            self._searches.pop((level.fingerprint, objective), None)  # the next request tries again
            raise
        return answer

    async def close(self) -> None:
        """Cancel all searches and end the process."""
        tasks = [*self._searches.values(), *([self._preparation] if self._preparation else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.process.close()
