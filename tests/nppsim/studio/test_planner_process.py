"""The planner beside the server: it finishes levels, reports failure, and is cancelled immediately."""

import asyncio
import base64
import sys

import numpy as np
import pytest

import nppsim
from nppsim.levels.level import Level
from nppsim.studio import planner_process
from nppsim.studio import plans as plans_module
from nppsim.studio.leaderboard import Leaderboard
from nppsim.studio.planner_process import PlannerProcess
from nppsim.studio.plans import Plans

from worlds import corridor

OPEN = Level.build(np.zeros((23, 42), np.uint8), (20, 96), exits=[((160, 8), (80, 8))])  # out of reach


def test_levels_are_finished_and_searches_given_up():
    async def story():
        planner = PlannerProcess()
        try:
            assert not planner.ready
            level = corridor()
            found = await planner.search(level)
            assert planner.ready
            run = nppsim.simulate(level, np.frombuffer(base64.b64decode(found["inputs"]), np.uint8))
            assert (run.won, run.frames) == (True, found["par"])
            assert found["route"][0] == list(level.spawn) and len(found["route"]) == run.frames + 1
            assert found["route"][-1] == pytest.approx(run.position[-1], abs=0.06)
            both = await asyncio.gather(planner.search(level), planner.search(OPEN, budget=1000))  # one after the other
            assert both == [found, {"par": None, "reachable": True}]
            search = asyncio.create_task(planner.search(OPEN, budget=10**9))
            while planner.searches < 4:  # until its process has the job
                await asyncio.sleep(0)
            search.cancel()
            with pytest.raises(asyncio.CancelledError):
                await search
            assert not planner.ready
        finally:
            await planner.close()

    asyncio.run(asyncio.wait_for(story(), 500))


ECHO = """import sys, time
for line in sys.stdin:
    for answer in ('{"compiled": 3}', '{"compiled": 4}', '{"par": null, "reachable": true}'):
        print(answer, flush=True)
        time.sleep(0.2)
"""


def test_progress_of_compilation_is_reported(monkeypatch):
    async def story():
        planner = PlannerProcess()
        monkeypatch.setattr(planner_process, "_COMMAND", (sys.executable, "-c", ECHO))
        seen = set()
        search = asyncio.create_task(planner.search(corridor()))
        while not search.done():
            seen.add(planner.compiled)
            await asyncio.sleep(0.01)
        assert {3, 4} <= seen and planner.compiled is None
        assert await search == {"par": None, "reachable": True}
        await planner.close()

    asyncio.run(asyncio.wait_for(story(), 100))


def test_kernels_are_prepared_once(monkeypatch, tmp_path):
    async def story():
        plans = Plans(Leaderboard())
        for _ in range(2):
            plans.prepare([])
            await plans.ready()
        assert plans.compiled is None
        await plans.close()

    begun = []
    monkeypatch.setattr(planner_process, "_COMMAND", (sys.executable, "-c", ECHO))
    monkeypatch.setattr(PlannerProcess, "_begin", counted(PlannerProcess._begin, begun))
    monkeypatch.setattr(plans_module.config, "CACHE_DIR", str(tmp_path))
    asyncio.run(asyncio.wait_for(story(), 100))
    assert len(begun) == 1


def counted(method, calls):
    def call(self):
        calls.append(self)
        return method(self)

    return call
