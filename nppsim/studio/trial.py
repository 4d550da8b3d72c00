"""Search by the planner in a process of its own, so that it can be cancelled at any moment.

    python -m nppsim.studio.trial

reads one job per line from standard input, ``{"level": base64 of a level file, "budget": simulated frames}``, and answers
each with a line: ``{"par": frames, "inputs": base64, "route": [[x, y], ...]}`` (px, the spawn first, then after each frame),
or ``{"par": null, "reachable": whether a path leads over an exit switch to its exit}`` where no run was found.  It ends with
its input.
"""

import asyncio
import base64
import json
import os
import sys
from asyncio.subprocess import PIPE, Process

import numpy as np

from nppsim.bank import LevelBank
from nppsim.errors import UserError
from nppsim.levels import tiles
from nppsim.levels.level import Level
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.planner.settings import PlannerSettings
from nppsim.studio.game import Game

TIME_LIMIT = 30.0  # s that a search may take
_ANSWER_LIMIT = 1 << 20  # bytes of a line; a route of 6,000 frames has less than a tenth


class TrialError(UserError):
    """A search that could not be made."""


class Trials:
    """Searches, one at a time, in a process that is started when it is first needed.

    process: None where none is running.
    asked: searches submitted to the process.

    Cancelling ``finish`` ends the process; the next one starts a new one.  A process that is
    still starting, which on a fresh machine takes minutes of compiling, continues for the next search.
    """

    def __init__(self) -> None:
        self.process: Process | None = None
        self._started: asyncio.Task | None = None
        self._turn = asyncio.Lock()
        self.asked = 0

    @property
    def ready(self) -> bool:
        """True if the process has started, so that an answer takes seconds."""
        return self._started is not None and self._started.done()

    async def finish(self, level: Level, budget: int = PlannerSettings.budget) -> dict:
        """The planner's answer (see above).  Raises TrialError where there is none, TimeoutError after TIME_LIMIT."""
        async with self._turn:
            if self._started is None:
                self._started = asyncio.create_task(self._start())
            await asyncio.shield(self._started)
            try:
                self.asked += 1
                async with asyncio.timeout(TIME_LIMIT):
                    return await self._ask({"level": base64.b64encode(level.to_bytes()).decode(), "budget": budget})
            except BaseException:  # cancelled, too: what the process still says answers no later question
                await self.close()
                raise

    async def _start(self) -> None:
        command = (sys.executable, "-m", __name__)
        self.process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=_ANSWER_LIMIT)
        await self._ask({"level": base64.b64encode(_first_level().to_bytes()).decode(), "budget": 1000})

    async def _ask(self, job: dict) -> dict:
        process = self.process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(job).encode() + b"\n")
        line = await process.stdout.readline()
        if not line:
            await self.close()
            raise TrialError("the planner's process has died, perhaps for lack of memory; end other programs")
        return json.loads(line)

    async def close(self) -> None:
        """End the process."""
        started, process = self._started, self.process
        self._started = self.process = None
        if process is not None and process.returncode is None:
            process.kill()
        if started is not None and started is not asyncio.current_task():
            started.cancel()
            await asyncio.gather(started, return_exceptions=True)
        if process is not None:
            await process.communicate()  # until it has ended and its pipes are closed


def _first_level() -> Level:
    """A corridor: its search loads, or compiles, all that later ones need."""
    cells = np.ones((ROWS, COLUMNS), np.uint8)
    cells[10:12, 2:14] = tiles.OPEN
    return Level.build(cells, (14, 50), exits=[((32, 50), (44, 50))])


def attend() -> None:
    """The process: answer jobs until standard input ends."""
    if hasattr(os, "nice"):
        os.nice(10)  # who plays beside it needs 60 frames a second
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is announced of compiling is no answer
    from nppsim.planner.plan import plan

    for line in sys.stdin:
        job = json.loads(line)
        level = Level.from_bytes(base64.b64decode(job["level"]))
        run = plan(level, budget=job["budget"])
        if run is None:
            answer: dict = {"par": None, "reachable": bool(LevelBank([level]).reachable[0])}
        else:
            answer = {
                "par": run.frames,
                "inputs": base64.b64encode(run.inputs.tobytes()).decode(),
                "route": _route(Game(level), run.inputs),
            }
        print(json.dumps(answer), file=answers, flush=True)


def _route(game: Game, inputs: np.ndarray) -> list[list[float]]:
    """[x, y] of the ninja at the start and after each frame, rounded to tenths of a px."""
    route = [[float(game.ninja["x"]), float(game.ninja["y"])]]
    for frame in range(len(inputs)):
        game.play(inputs[frame : frame + 1])
        route.append([round(float(game.ninja["x"]), 1), round(float(game.ninja["y"]), 1)])
    return route


if __name__ == "__main__":
    attend()
