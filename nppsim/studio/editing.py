"""Server side of the editor: convert drafts to levels and files, and check them while they are edited.

    GET  /api/edit/drafts/{id}  {"draft", "lost"}, the result of ``drafts.draft_of`` for a level of the library
    POST /api/edit/level        {"draft"} -> {"level": id}; adds the level to the library
    GET  /api/edit/folders      {"folders": names of the folders in which levels can be saved}
    POST /api/edit/save         {"draft", "folder": index in "folders", "name", "replace"} -> {"saved": file name}, or
                                {"exists": file name} if the file exists and "replace" is false

The socket /ws/edit takes two messages; a new message cancels the work for earlier ones.  Answers repeat the "number"
of their message.

    {"check": draft, "number"}         -> {"findings"}; then, for a valid level, {"search": {"state"}}.  The state is first
                                          "starting" or "searching", then "found" (with the planner's answer), "none",
                                          "barred" (no path leads to an exit), "timeout" or "failed" (with "why")
    {"tries": draft, "agent", "number"} -> {"tries": {"wins", "tries": episodes so far, "of": TRIES}}, repeatedly
"""

import asyncio
import itertools
import json
import re
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import CancelScope
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from nppsim.errors import UserError
from nppsim.levels.level import Level
from nppsim.outcomes import NAMES, WON
from nppsim.reading import mismatch, parse_json
from nppsim.studio.drafts import draft_of, findings, level_of
from nppsim.studio.errors import StudioError
from nppsim.studio.planner_process import PlannerError, PlannerProcess

if TYPE_CHECKING:
    from nppsim.studio.library import Library

MAX_EDITORS = 8  # maximum number of open editors; each may run a process of the planner
TRIES = 64  # number of episodes that an agent plays on a draft
_TOGETHER = 8  # number of episodes between two messages with their results
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .-]{0,79}")
_SUFFIXES = (".map", ".level")


async def _message(request: Request, shape: dict) -> dict:
    """Return the JSON body of a request.  Raises StudioError if the JSON does not have the given shape."""
    message = parse_json(await request.body(), "the request", StudioError, "docs/lab/studio.md has the protocol")
    if wrong := mismatch(message, shape):
        raise StudioError(f"the request is wrong at {wrong} (docs/lab/studio.md)")
    return message


def _library(request: Request) -> "Library":
    return request.app.state.studio.library


async def _draft(request: Request) -> JSONResponse:
    def made() -> dict:
        found, lost = draft_of(_library(request).level(request.path_params["id"]).level)
        return {"draft": found, "lost": lost}

    return JSONResponse(await run_in_threadpool(made))


async def _level(request: Request) -> JSONResponse:
    message = await _message(request, {"draft": {}})
    return JSONResponse({"level": await run_in_threadpool(lambda: _library(request).add(level_of(message["draft"])))})


async def _folders(request: Request) -> JSONResponse:
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
        raise StudioError(f"{name!r} is not a valid name: use at most 80 letters, digits, spaces and _ . -")
    return folders[number] / (name if name.lower().endswith(_SUFFIXES) else name + _SUFFIXES[0])


# ---------------------------------------------------------------------------------------------------------------------
# Checks while the level is edited


class Checker:
    """Checks of one open editor.

    socket: socket for the answers.
    planner: planner process of this editor.
    """

    def __init__(self, socket: WebSocket):
        self._socket = socket
        self.planner = PlannerProcess()
        self._search_task: asyncio.Task | None = None
        self._tries_task: asyncio.Task | None = None

    async def answer(self, message: Any) -> None:
        """Handle a message; start long work as a task.  Raises UserError for an invalid message."""
        tries = isinstance(message, dict) and "tries" in message
        shape = {"tries": {}, "agent": str, "number": int} if tries else {"check": {}, "number": int}
        if wrong := mismatch(message, shape):
            raise StudioError(f"the message is wrong at {wrong} (docs/lab/studio.md)")
        await _cancel(self._tries_task)
        if tries:
            level = level_of(message["tries"])
            self._tries_task = asyncio.create_task(self._try(level, message["agent"], message["number"]))
        else:
            await _cancel(self._search_task)
            await self._check(message)

    async def _check(self, message: dict) -> None:
        number = message["number"]
        found = await run_in_threadpool(findings, message["check"])
        await self._send(number, findings=[asdict(finding) for finding in found])
        if not any(finding.severity == "error" for finding in found):
            self._search_task = asyncio.create_task(self._search(level_of(message["check"]), number))

    async def _search(self, level: Level, number: int) -> None:
        await self._send(number, search={"state": "searching" if self.planner.ready else "starting"})
        await self._socket.app.state.studio.plans.ready()
        try:
            answer = await self.planner.search(level)
        except TimeoutError:
            answer = {"state": "timeout"}
        except PlannerError as error:
            answer = {"state": "failed", "why": str(error)}
        else:
            answer["state"] = "found" if answer["par"] else "none" if answer["reachable"] else "barred"
        await self._send(number, search=answer)

    async def _try(self, level: Level, agent_id: str, number: int) -> None:
        await self._socket.app.state.studio.plans.ready()
        try:
            agent = await run_in_threadpool(self._socket.app.state.studio.roster.agent, agent_id)
            with closing(agent.tries([level], TRIES)) as endings:
                wins = tries = 0
                while group := await run_in_threadpool(lambda: list(itertools.islice(endings, _TOGETHER))):
                    tries += len(group)
                    wins += sum(one.outcome == NAMES[WON] for one in group)
                    await self._send(number, tries={"wins": wins, "tries": tries, "of": TRIES})
        except UserError as error:
            await self._send(number, error=str(error))

    async def _send(self, number: int, **answer: Any) -> None:
        await self._socket.send_text(json.dumps({**answer, "number": number}))

    async def close(self) -> None:
        """Cancel all work and end the planner process."""
        await _cancel(self._tries_task)
        await _cancel(self._search_task)
        await self.planner.close()


async def _cancel(work: asyncio.Task | None) -> None:
    if work is not None:
        work.cancel()
        with suppress(asyncio.CancelledError, WebSocketDisconnect):
            await work


async def edit(socket: WebSocket) -> None:
    """Serve one editor socket until it closes."""
    editors: set[Checker] = socket.app.state.studio.editors
    await socket.accept()
    checker = Checker(socket) if len(editors) < MAX_EDITORS else None
    if checker is not None:
        editors.add(checker)
    try:
        with suppress(WebSocketDisconnect):  # may also be raised by sending an answer
            while (received := await socket.receive())["type"] == "websocket.receive":
                data = (received.get("text") or "").encode() or received.get("bytes") or b""
                await _answer(checker, socket, data)
    finally:
        if checker is not None:
            editors.discard(checker)
            with CancelScope(shield=True):  # close also when the server shuts down
                await checker.close()


async def _answer(checker: Checker | None, socket: WebSocket, data: bytes) -> None:
    message: Any = None
    try:
        message = parse_json(data, "the message", StudioError, "docs/lab/studio.md has the protocol")
        if checker is None:
            raise StudioError(f"{MAX_EDITORS} editors are open already; close some tabs, then edit the level again")
        await checker.answer(message)
    except UserError as error:
        number = message.get("number") if isinstance(message, dict) else None
        await socket.send_text(json.dumps({"error": str(error), "number": number}))


routes: list[BaseRoute] = [
    Route("/api/edit/drafts/{id}", _draft),
    Route("/api/edit/level", _level, methods=["POST"]),
    Route("/api/edit/folders", _folders),
    Route("/api/edit/save", _save, methods=["POST"]),
    WebSocketRoute("/ws/edit", edit),
]
