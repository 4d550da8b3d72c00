"""Server side of the editor: convert drafts to levels and files, and check them while they are edited.

    GET  /api/edit/drafts/{id}  {"draft", "lost"}, the result of ``drafts.draft_of`` for a level of the library
    POST /api/edit/level        {"draft"} -> {"level": id}; adds the level to the library
    GET  /api/edit/folders      {"folders": names of the folders in which levels can be saved}
    POST /api/edit/save         {"draft", "folder": index in "folders", "name", "replace"} -> {"saved": file name}, or
                                {"exists": file name} if the file exists and "replace" is false

The socket /ws/edit takes two messages; a new message cancels the work for earlier ones.  Answers repeat the "number"
of their message.

    {"check": draft, "number"}         -> {"diagnostics"}; then, for a valid level, {"search": {"state"}}.  The state is first
                                          "starting" or "searching", then "found" (with the planner's answer), "none",
                                          "barred" (no path leads to an exit), "timeout" or "failed" (with "why")
    {"evaluate": draft, "agent", "number"} -> {"evaluated": {"wins", "episodes": episodes so far, "of": EPISODES}}, repeatedly
"""

import itertools
import re
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from nppsim.errors import UserError
from nppsim.io.reading import mismatch, parse_json
from nppsim.levels.level import Level
from nppsim.physics.outcomes import NAMES, WON
from nppsim.studio.drafts import diagnostics, draft_of, level_of
from nppsim.studio.errors import StudioError
from nppsim.studio.planner_process import PlannerError, PlannerProcess
from nppsim.studio.sockets import HELP, BackgroundTasks, send, serve

if TYPE_CHECKING:
    from nppsim.studio.library import Library

MAX_EDITORS = 8  # maximum number of open editors; each may run a process of the planner
EPISODES = 64  # number of episodes that an agent plays on a draft
_EPISODES_PER_MESSAGE = 8
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .-]{0,79}")
_SUFFIXES = (".map", ".level")


async def _message(request: Request, shape: dict) -> dict:
    """Return the JSON body of a request.  Raises StudioError if the JSON does not have the given shape."""
    message = parse_json(await request.body(), "the request", StudioError, HELP)
    if wrong := mismatch(message, shape):
        raise StudioError(f"the request is wrong at {wrong}; {HELP}")
    return message


def _library(request: Request) -> "Library":
    return request.app.state.studio.library


def _draft(request: Request) -> JSONResponse:
    found, lost = draft_of(_library(request).level(request.path_params["id"]).level)
    return JSONResponse({"draft": found, "lost": lost})


async def _level(request: Request) -> JSONResponse:
    message = await _message(request, {"draft": {}})
    return JSONResponse(
        {"level": await run_in_threadpool(lambda: _library(request).add(level_of(message["draft"]), edited=True))}
    )


def _folders(request: Request) -> JSONResponse:
    return JSONResponse({"folders": [str(folder) for folder in _library(request).folders]})


async def _save(request: Request) -> JSONResponse:
    message = await _message(request, {"draft": {}, "folder": int, "name": str, "replace": bool})
    return JSONResponse(await run_in_threadpool(_write, _library(request), message))


def _write(library: "Library", message: dict) -> dict:
    made = level_of(message["draft"])
    path = place_of(library.folders, message["folder"], message["name"])
    replaced = path.exists()
    if replaced and not message["replace"]:
        return {"exists": path.name}
    made.save(path)
    if replaced:
        library.reread()
    library.add(made, path.stem)
    return {"saved": path.name}


def place_of(folders: list[Path], number: int, name: str) -> Path:
    """Return the path of file ``name`` in ``folders[number]``.

    Raises StudioError if ``number`` is out of range or ``name`` is invalid.
    """
    if not 0 <= number < len(folders):
        raise StudioError("there is no such folder; start the studio with --levels FOLDER")
    if not _NAME.fullmatch(name):
        raise StudioError(
            f"{name!r} is not a valid name: use a letter, digit or _, then at most 79 of these, spaces, . and -"
        )
    return folders[number] / (name if name.lower().endswith(_SUFFIXES) else name + _SUFFIXES[0])


# ---------------------------------------------------------------------------------------------------------------------
# Checks while the level is edited


class Checker:
    """Checks of one open editor.

    planner: planner process of this editor.
    """

    def __init__(self, socket: WebSocket):
        self._socket, self._studio = socket, socket.app.state.studio
        self.planner = PlannerProcess()

    async def answer(self, message: Any, tasks: BackgroundTasks) -> None:
        """Handle a message; start long work as a background task.  Raises UserError for an invalid message."""
        evaluates = isinstance(message, dict) and "evaluate" in message
        shape = {"evaluate": {}, "agent": str, "number": int} if evaluates else {"check": {}, "number": int}
        if wrong := mismatch(message, shape):
            raise StudioError(f"the message is wrong at {wrong}; {HELP}")
        number = message["number"]
        tasks.cancel("evaluate")
        if evaluates:
            tasks.start("evaluate", self._evaluate, level_of(message["evaluate"]), message["agent"], number)
            return
        tasks.cancel("search")
        found = await run_in_threadpool(diagnostics, message["check"])
        await self._send(number, diagnostics=[asdict(diagnostic) for diagnostic in found])
        if not any(diagnostic.severity == "error" for diagnostic in found):
            tasks.start("search", self._search, level_of(message["check"]), number)

    async def _search(self, level: Level, number: int) -> None:
        await self._send(number, search={"state": "searching" if self.planner.ready else "starting"})
        await self._studio.plans.ready()
        try:
            answer = await self.planner.search(level)
        except TimeoutError:
            answer = {"state": "timeout"}
        except PlannerError as error:
            answer = {"state": "failed", "why": str(error)}
        else:
            answer["state"] = "found" if answer["par"] else "none" if answer["reachable"] else "barred"
        await self._send(number, search=answer)

    async def _evaluate(self, level: Level, agent_id: str, number: int) -> None:
        await self._studio.plans.ready()
        try:
            agent = await run_in_threadpool(self._studio.registry.agent, agent_id)
            with closing(agent.evaluate([level], EPISODES)) as endings:
                wins = episodes = 0
                while group := await run_in_threadpool(lambda: list(itertools.islice(endings, _EPISODES_PER_MESSAGE))):
                    episodes += len(group)
                    wins += sum(one.outcome == NAMES[WON] for one in group)
                    await self._send(number, evaluated={"wins": wins, "episodes": episodes, "of": EPISODES})
        except UserError as error:
            await self._send(number, error=str(error))

    async def _send(self, number: int, **answer: Any) -> None:
        await send(self._socket, {**answer, "number": number})


async def edit(socket: WebSocket) -> None:
    """Serve one editor socket until it closes."""
    checker = Checker(socket)
    try:
        await serve(socket, socket.app.state.studio.editors, checker, MAX_EDITORS, checker.answer)
    finally:
        with anyio.CancelScope(shield=True):  # also when the server shuts down
            await checker.planner.close()


routes: list[BaseRoute] = [
    Route("/api/edit/drafts/{id}", _draft),
    Route("/api/edit/level", _level, methods=["POST"]),
    Route("/api/edit/folders", _folders),
    Route("/api/edit/save", _save, methods=["POST"]),
    WebSocketRoute("/ws/edit", edit),
]
