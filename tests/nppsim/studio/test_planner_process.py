"""The planner in its own process: results, failures, cancellation."""

import asyncio
import base64
import time
from pathlib import Path

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


def test_search_finishes_and_cancels():
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


def compile_slowly(file):
    """Stand in for a function that compiles; runs in the planner's process."""
    planner_process.compilation._depth, planner_process.compilation.count = 1, 3
    time.sleep(1)
    planner_process.compilation._depth = 0
    time.sleep(1)
    Path(file).touch()


def test_search_reports_compilation_progress(tmp_path):
    async def story():
        planner = PlannerProcess()
        await planner.search(corridor())
        work = asyncio.create_task(planner._run(compile_slowly, str(tmp_path / "done")))
        seen = []
        while not work.done():
            seen.append(planner.compiled)
            await asyncio.sleep(0.01)
        await planner.close()
        return seen

    seen = asyncio.run(asyncio.wait_for(story(), 500))
    assert 3 in seen and seen[-1] is None and (tmp_path / "done").exists()


def test_prepare_compiles_kernels_once(monkeypatch, tmp_path):
    async def story():
        plans = Plans(Leaderboard())
        for _ in range(2):
            plans.prepare([])
            await plans.ready()
        assert plans.compiled is None
        await plans.close()

    begun = []
    monkeypatch.setattr(PlannerProcess, "prepare", counted(PlannerProcess.prepare, begun))
    monkeypatch.setattr(plans_module.config, "CACHE_DIR", str(tmp_path))
    asyncio.run(asyncio.wait_for(story(), 500))
    assert len(begun) == 1


def counted(method, calls):
    def call(self, agents):
        calls.append(self)
        return method(self, agents)

    return call
