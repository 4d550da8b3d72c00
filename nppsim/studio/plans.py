"""Runs of the planner for all pages: one search at a time, in one process, and each level only once.

    plans = Plans(leaderboard)
    answer = await plans.answer(level)          # as in ``planner_process``, without the route
    plans.par(level.fingerprint)                # frames of the fastest run that the planner has found, now or earlier

The leaderboard stores the results of the runs, so par times survive a restart.
"""

import asyncio
from collections import OrderedDict

from nppsim.levels.level import Level
from nppsim.studio.leaderboard import PLANNER, Leaderboard
from nppsim.studio.planner_process import PlannerError, PlannerProcess

_ANSWERS = 1000  # answers in memory


class Plans:
    """Searches of the planner and their results.

    process: the process that searches.  A search continues when its page is closed; it takes at most
        ``planner_process.TIME_LIMIT``.
    """

    def __init__(self, leaderboard: Leaderboard):
        self.process = PlannerProcess()
        self._leaderboard = leaderboard
        self._searches: OrderedDict[str, asyncio.Task[dict]] = OrderedDict()

    def par(self, id: str) -> int | None:
        """Return the frames of the planner's fastest run of a level, or None if it has found none.  id: fingerprint."""
        return self._leaderboard.times(PLANNER).get(id)

    async def answer(self, level: Level) -> dict:
        """Return the planner's answer for a level; a search that reaches the time limit has found no run."""
        id = level.fingerprint
        if id not in self._searches:
            self._searches[id] = asyncio.create_task(self._search(level))
            while len(self._searches) > _ANSWERS:
                self._searches.popitem(last=False)
        return await asyncio.shield(self._searches[id])

    async def _search(self, level: Level) -> dict:
        try:
            answer = await self.process.search(level)
        except TimeoutError:
            return {"par": None, "reachable": True}
        except PlannerError:
            self._searches.pop(level.fingerprint, None)  # the next request tries again
            raise
        answer.pop("route", None)
        if answer["par"] is not None:
            self._leaderboard.add(level.fingerprint, PLANNER, "planner", answer["par"], answer["gold"])
        return answer

    async def close(self) -> None:
        """Cancel all searches and end the process."""
        for search in self._searches.values():
            search.cancel()
        await asyncio.gather(*self._searches.values(), return_exceptions=True)
        await self.process.close()
