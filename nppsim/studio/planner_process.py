"""Run the planner in a separate process, so that a search can be cancelled at any time.

``python -m nppsim.studio.planner_process`` reads jobs from standard input until it closes, and writes one JSON line per job:

    {"level": base64 of a level file, "budget": simulated frames, "inputs": base64, "objective",
     "seconds"}                                                         a job
    {"par": frames, "inputs": base64, "route": [[x, y], ...], "gold": pieces}    answer with a run; route: ninja, px
    {"par": null, "reachable": bool}                                    answer without a run
    {"agents": [file, ...]}                                             job that compiles the kernels of the first agent
    {"prepared": true}                                                  its answer
    {"compiled": functions so far}                                      message while the process compiles

The search begins after ``inputs``.  ``objective`` is that of the planner; runs are improved for it during ``seconds``.
``par`` and ``inputs`` are length and input bytes of the run found; ``route`` begins at the spawn.
``reachable`` is true if a path leads from the spawn over an exit switch to its exit.
"""

import asyncio
import base64
import json
import os
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress

import numpy as np
from anyio import CancelScope

from nppsim.bank import LevelBank
from nppsim.errors import UserError
from nppsim.levels import tiles
from nppsim.levels.level import Level
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.planner.settings import SCORE, TIME, PlannerSettings
from nppsim.progress import announcement
from nppsim.studio.game import Game

TIME_LIMIT = 30.0  # s, maximum duration of a search
GOLD_TIME = 10.0  # s, time in which a run is improved for another objective than "time"
_REPORT_S = 0.5  # interval of messages on compilation
_ANSWER_LIMIT = 1 << 20  # maximum bytes per line; a route of 6,000 frames needs less than a tenth

_COMMAND = (sys.executable, "-m", "nppsim.studio.planner_process")


class PlannerError(UserError):
    """The search failed for a reason other than the level."""


class PlannerProcess:
    """Runs one search at a time in a process, which the first search starts.

    process: the process, or None if it is not running.
    compiled: number of functions compiled so far while the process compiles, else None.
    searches: number of searches submitted to the process.

    Cancelling ``search`` ends the process, unless it is still starting (compilation can take minutes); the next search
    starts a new one.
    """

    def __init__(self) -> None:
        self.process: Process | None = None
        self.compiled: int | None = None
        self._started: asyncio.Task | None = None
        self._turn = asyncio.Lock()
        self.searches = 0

    @property
    def ready(self) -> bool:
        """True if the process has started and compiled its kernels."""
        return self._started is not None and self._started.done()

    async def search(
        self, level: Level, budget: int = PlannerSettings.budget, inputs: bytes = b"", objective: str = TIME
    ) -> dict:
        """Return the planner's answer (see above).

        Raises PlannerError if the search fails, TimeoutError after TIME_LIMIT.

        budget: maximum number of simulated frames.
        inputs: input bytes after which the search begins; the answer has the frames after them.
        """
        async with self._turn:
            await self._begin()
            try:
                self.searches += 1
                async with asyncio.timeout(TIME_LIMIT):
                    return await self._request(_job(level, budget, inputs, objective))
            except BaseException:  # also if cancelled: a late answer must not be taken for that of the next search
                with CancelScope(shield=True):
                    await self.close()
                raise

    async def prepare(self, agents: list[str]) -> None:
        """Compile the kernels of the planner and of the first agent (default: the shipped one) into the cache."""
        async with self._turn:
            await self._begin()
            await self._request({"agents": agents})

    async def _begin(self) -> None:
        if self._started is None:
            self._started = asyncio.create_task(self._start())
        await asyncio.shield(self._started)

    async def _start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(*_COMMAND, stdin=PIPE, stdout=PIPE, limit=_ANSWER_LIMIT)
        await self._request(_job(_first_level(), 1000, b"", SCORE))

    async def _request(self, job: dict) -> dict:
        process = self.process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(job).encode() + b"\n")
        while line := await process.stdout.readline():
            answer = json.loads(line)
            self.compiled = answer.get("compiled")
            if self.compiled is None:
                return answer
        self.compiled = None
        await self.close()
        raise PlannerError("the planner's process died, perhaps for lack of memory; close other programs")

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
            await process.communicate()  # waits until it has ended and its pipes are closed


def _job(level: Level, budget: int, inputs: bytes, objective: str) -> dict:
    encoded = (base64.b64encode(data).decode() for data in (level.to_bytes(), inputs))
    return dict(zip(("level", "inputs"), encoded, strict=True)) | {
        "budget": budget,
        "objective": objective,
        "seconds": GOLD_TIME,
    }


def _first_level() -> Level:
    """Return a level with one corridor; planning it compiles (or loads) all kernels."""
    cells = np.ones((ROWS, COLUMNS), np.uint8)
    cells[10:12, 2:14] = tiles.OPEN
    return Level.build(cells, (14, 50), exits=[((32, 50), (44, 50))])


def main() -> None:
    """Answer jobs until standard input closes."""
    if hasattr(os, "nice"):
        os.nice(10)  # live games need the cores
    answers, writing = os.fdopen(os.dup(1), "w"), threading.Lock()

    def write(answer: dict) -> None:
        with writing:
            print(json.dumps(answer), flush=True, file=answers)

    def report() -> None:
        while True:
            time.sleep(_REPORT_S)
            if announcement.busy:
                write({"compiled": announcement.count})

    threading.Thread(target=report, daemon=True).start()
    os.dup2(2, 1)  # messages about compilation must not mix with the answers
    from nppsim.planner import better_runs, plan

    for line in sys.stdin:
        job = json.loads(line)
        if "agents" in job:
            _play_agent(job["agents"])
            write({"prepared": True})
            continue
        level = Level.from_bytes(base64.b64decode(job["level"]))
        game = Game(level)
        game.play(np.frombuffer(base64.b64decode(job["inputs"]), np.uint8))
        start = game.start
        run = plan(level, budget=job["budget"], start=start)
        if run is not None and job["objective"] != TIME:
            until = time.monotonic() + job["seconds"]
            for better in better_runs(level, run, job["objective"], budget=job["budget"], start=start):
                run = better
                if time.monotonic() > until:
                    break
        if run is None:
            answer: dict = {"par": None, "reachable": bool(LevelBank([level]).reachable[0])}
        else:
            answer = {
                "par": run.frames,
                "inputs": base64.b64encode(run.inputs.tobytes()).decode(),
                "route": _route(game, run.inputs),
                "gold": int(game.ninja["gold"]),
            }
        write(answer)


def _play_agent(files: list[str]) -> None:
    """Let the first agent play episodes one by one and together, if there is one."""
    from nppsim.studio.roster import Roster

    with suppress(UserError):  # pages report this error when an agent is needed
        agent = Roster(files).agent("0")
        for _ in (*agent.play(_first_level()), *agent.tries([_first_level()], 1)):
            pass


def _route(game: Game, inputs: np.ndarray) -> list[list[float]]:
    """Return [x, y] of the ninja at the start and after each frame, in px, rounded to one decimal place."""
    route = [[float(game.ninja["x"]), float(game.ninja["y"])]]
    for frame in range(len(inputs)):
        game.play(inputs[frame : frame + 1])
        route.append([round(float(game.ninja["x"]), 1), round(float(game.ninja["y"]), 1)])
    return route


if __name__ == "__main__":
    main()
