"""Run the planner in a separate process, so that a search can be cancelled at any time.

Answers of the planner, as dictionaries:

    {"par": frames, "inputs": base64, "route": [[x, y], ...], "gold": pieces}    a run was found
    {"par": null, "reachable": bool}                                             no run was found

``par`` and ``inputs`` are length and input bytes of the run found; ``route`` has the positions of the ninja (px), from the
spawn or the state in which the search began.
``reachable`` is true if a path leads from the spawn over an exit switch to its exit.
"""

import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
from anyio import CancelScope

from nppsim._numba.progress import compilation
from nppsim.bank import LevelBank
from nppsim.errors import UserError
from nppsim.levels import tiles
from nppsim.levels.level import Level
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.parallel.workers import begin_work
from nppsim.planner.settings import SCORE, TIME, PlannerSettings
from nppsim.studio.documents import packed_text
from nppsim.studio.game import Game

TIME_LIMIT = 30.0  # s, maximum duration of a search
GOLD_TIME = 10.0  # s, time in which a run is improved for another objective than "time"
_REPORT_S = 0.5  # interval at which the process updates ``PlannerProcess.compiled``
_SPAWN = multiprocessing.get_context("spawn")


class PlannerError(UserError):
    """The search failed for a reason other than the level."""


class PlannerProcess:
    """Runs one search at a time in a process, which the first search starts.

    process: the process, or None if it is not running.
    searches: number of searches submitted to the process.

    Cancelling ``search`` ends the process, unless it is still starting (compilation can take minutes); the next search
    starts a new one.
    """

    def __init__(self) -> None:
        self.process: BaseProcess | None = None
        self.searches = 0
        self._compiled = _SPAWN.Value("i", -1)
        self._started: asyncio.Task | None = None
        self._turn = asyncio.Lock()

    @property
    def compiled(self) -> int | None:
        """Number of functions compiled so far while the process compiles, else None."""
        count = self._compiled.value
        return None if self.process is None or count < 0 else count

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
        objective: that of the planner; the run is improved for it during GOLD_TIME.
        """
        async with self._turn:
            await self._begin()
            try:
                self.searches += 1
                async with asyncio.timeout(TIME_LIMIT):
                    return await self._run(find_run, level, budget, inputs, objective, GOLD_TIME)
            except BaseException:  # also if cancelled: a late answer must not be taken for that of the next search
                with CancelScope(shield=True):
                    await self.close()
                raise

    async def prepare(self, agents: list[str]) -> None:
        """Compile the kernels of the planner and of the first agent (default: the shipped one) into the cache."""
        async with self._turn:
            await self._begin()
            await self._run(play_agent, agents)

    async def _begin(self) -> None:
        if self._started is None:
            self._started = asyncio.create_task(self._start())
        await asyncio.shield(self._started)

    async def _start(self) -> None:
        self._pipe, other = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(other, self._compiled), daemon=True)
        try:
            self.process.start()
        except OSError as error:
            await self.close()
            raise PlannerError(
                f"the planner's process cannot start ({error.strerror}); close other programs"
            ) from error
        other.close()
        await self._run(find_run, corridor_level(), 1000, b"", SCORE, GOLD_TIME)

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in the process and return its result."""
        try:
            self._pipe.send((function, arguments))
            return await asyncio.to_thread(self._pipe.recv)
        except (EOFError, OSError) as error:
            await self.close()
            raise PlannerError(
                "the planner's process died, perhaps for lack of memory; close other programs"
            ) from error

    async def close(self) -> None:
        """End the process."""
        started, process = self._started, self.process
        self._started = self.process = None
        if process is not None:
            process.kill()
            await asyncio.to_thread(process.join)
        if started is not None and started is not asyncio.current_task():
            started.cancel()
            await asyncio.gather(started, return_exceptions=True)


def corridor_level() -> Level:
    """Return a level with one corridor; planning it compiles (or loads) all kernels."""
    cells = np.ones((ROWS, COLUMNS), np.uint8)
    cells[10:12, 2:14] = tiles.OPEN
    return Level.build(cells, (14, 50), exits=[((32, 50), (44, 50))])


# ---------------------------------------------------------------------------------------------------------------------
# In the process


def _serve(pipe: Connection, compiled: Any) -> None:
    """Run the functions that the pipe delivers, until it closes.  compiled: shared integer, -1 unless kernels compile."""
    begin_work()
    if hasattr(os, "nice"):
        os.nice(10)  # live games need the cores

    def report() -> None:
        while True:
            time.sleep(_REPORT_S)
            compiled.value = compilation.count if compilation.busy else -1

    threading.Thread(target=report, daemon=True).start()
    with suppress(EOFError):
        while True:
            function, arguments = pipe.recv()
            pipe.send(function(*arguments))


def find_run(level: Level, budget: int, inputs: bytes, objective: str, seconds: float) -> dict:
    """Search for a run that continues after the inputs; return the answer described at the top of this file."""
    from nppsim.planner import better_runs, plan

    game = Game(level)
    game.play(np.frombuffer(inputs, np.uint8))
    start = game.start
    run = plan(level, budget=budget, start=start)
    if run is None:
        return {"par": None, "reachable": bool(LevelBank([level]).reachable[0])}
    if objective != TIME:
        until = time.monotonic() + seconds
        for better in better_runs(level, run, objective, budget=budget, start=start):
            run = better
            if time.monotonic() > until:
                break
    route = _route(game, run.inputs)  # plays ``game`` to its end
    return {"par": run.frames, "inputs": packed_text(run.inputs), "route": route, "gold": int(game.ninja["gold"])}


def play_agent(files: list[str]) -> None:
    """Let the first agent play episodes one by one and together, if there is one."""
    from nppsim.studio.agent_registry import AgentRegistry

    with suppress(UserError):  # pages report this error when an agent is needed
        agent = AgentRegistry(files).agent("0")
        for _ in (*agent.play(corridor_level()), *agent.evaluate([corridor_level()], 1)):
            pass


def _route(game: Game, inputs: np.ndarray) -> list[list[float]]:
    """Return [x, y] of the ninja at the start and after each frame, in px, rounded to one decimal place."""
    route = [[float(game.ninja["x"]), float(game.ninja["y"])]]
    for frame in range(len(inputs)):
        game.play(inputs[frame : frame + 1])
        route.append([round(float(game.ninja["x"]), 1), round(float(game.ninja["y"]), 1)])
    return route
