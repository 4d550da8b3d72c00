"""Server side of the editor: save levels in folders, and let agents play them.

    GET  /api/edit/folders  {"folders": names of the folders in which levels can be saved}
    POST /api/edit/save     {"map": base64 of the level's file, "folder": index in "folders", "name", "replace"}
                            -> {"saved": file name}, or {"exists": file name} if the file exists and "replace" is false

The socket /ws/edit takes {"evaluate": base64 of the level's file, "agent"}; answers are {"evaluated": {"wins", "episodes":
episodes so far, "of": EPISODES}}, repeatedly.  A new message cancels the work for earlier ones.
"""

import itertools
import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from nppsim.errors import UserError
from nppsim.io.reading import mismatch
from nppsim.levels.level import Level
from nppsim.physics.outcomes import NAMES, WON
from nppsim.studio.documents import level_of
from nppsim.studio.errors import StudioError
from nppsim.studio.playing import read_message
from nppsim.studio.sockets import HELP, BackgroundTasks, send, serve

if TYPE_CHECKING:
    from nppsim.studio.library import Library

MAX_EDITORS = 8  # maximum number of drafts that agents play at the same time
EPISODES = 64  # number of episodes that an agent plays on a draft
_EPISODES_PER_MESSAGE = 8
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .-]{0,79}")
_SUFFIXES = (".map", ".level")


def _library(request: Request) -> "Library":
    return request.app.state.studio.library


def _folders(request: Request) -> JSONResponse:
    return JSONResponse({"folders": [str(folder) for folder in _library(request).folders]})


async def _save(request: Request) -> JSONResponse:
    message = await read_message(request, {"map": str, "folder": int, "name": str, "replace": bool})
    return JSONResponse(await run_in_threadpool(_write, _library(request), message))


def _write(library: "Library", message: dict) -> dict:
    made = level_of(message["map"])
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
# Episodes of an agent


async def _evaluate(socket: WebSocket, level: Level, agent_id: str) -> None:
    studio = socket.app.state.studio
    try:
        agent = await run_in_threadpool(studio.registry.agent, agent_id)
        with closing(agent.evaluate([level], EPISODES)) as endings:
            wins = episodes = 0
            while group := await run_in_threadpool(lambda: list(itertools.islice(endings, _EPISODES_PER_MESSAGE))):
                episodes += len(group)
                wins += sum(one.outcome == NAMES[WON] for one in group)
                await send(socket, {"evaluated": {"wins": wins, "episodes": episodes, "of": EPISODES}})
    except UserError as error:
        await send(socket, {"error": str(error)})


async def edit(socket: WebSocket) -> None:
    """Serve one editor socket until it closes."""

    async def answer(message: Any, tasks: BackgroundTasks) -> None:
        if wrong := mismatch(message, {"evaluate": str, "agent": str}):
            raise StudioError(f"the message is wrong at {wrong}; {HELP}")
        tasks.start("evaluate", _evaluate, socket, level_of(message["evaluate"]), message["agent"])

    await serve(socket, socket.app.state.studio.editors, object(), MAX_EDITORS, answer)


routes: list[BaseRoute] = [
    Route("/api/edit/folders", _folders),
    Route("/api/edit/save", _save, methods=["POST"]),
    WebSocketRoute("/ws/edit", edit),
]
