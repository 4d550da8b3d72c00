"""The studio as an ASGI application: routes and their handlers (docs/lab/studio.md)."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from nppsim.errors import UserError
from nppsim.levels.text import to_text
from nppsim.progress import announcement
from nppsim.replays.replay import FORMATS
from nppsim.studio import editing, sessions, watching
from nppsim.studio.errors import StudioError
from nppsim.studio.leaderboard import Leaderboard
from nppsim.studio.library import LEVEL_FORMATS, Library
from nppsim.studio.recordings import FILE_OF_ALL, Demonstrations, Recordings
from nppsim.studio.roster import Roster
from nppsim.studio.security import Access, Guard

STATIC = Path(__file__).parent / "static"
_ODD_IN_NAMES = re.compile(r"^\.|[^A-Za-z0-9 _.-]")


class Studio:
    """State that the handlers share, as ``request.app.state.studio``.

    library: levels and replays.
    recordings, demonstrations: stored runs.
    leaderboard: best runs; by default in memory.
    sessions: games, one per open play socket.
    roster: agents, and the displayed experiment.
    watchers: open watch sockets.  limiter: limits the threads of all watch sockets together.
    editors: open editors.
    """

    def __init__(
        self,
        library: Library,
        demonstrations: str | Path = "demonstrations",
        roster: Roster | None = None,
        leaderboard: Leaderboard | None = None,
    ):
        self.library = library
        self.leaderboard = leaderboard or Leaderboard()
        self.recordings = Recordings()
        self.demonstrations = Demonstrations(demonstrations, library.categories)
        self.sessions: set[sessions.Session] = set()
        self.roster = roster or Roster()
        self.watchers: set[watching.Watcher] = set()
        self.limiter = CapacityLimiter(watching.THREADS)
        self.editors: set[editing.Checker] = set()


def create_app(studio: Studio, access: Access) -> Starlette:
    """Return the application.  access: conditions for answering a request."""
    guard = Middleware(Guard, access=access)
    handlers: dict[Any, Any] = {UserError: _refused, OSError: _failed}
    app = Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)
    app.state.studio = studio
    return app


async def respond(job: Callable[..., Any], *arguments: Any) -> JSONResponse:
    """Run a function in a thread, so that live games continue, and return its result as JSON."""
    return JSONResponse(await run_in_threadpool(job, *arguments))


def _refused(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, error.status if isinstance(error, StudioError) else 400)


def _failed(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, OSError)
    return JSONResponse({"error": f"{error.filename or 'the studio'}: {error.strerror or error}"}, 500)


def _studio(request: Request) -> Studio:
    return request.app.state.studio


def _download(data: bytes, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type="application/octet-stream", headers=headers)


def _one_of(request: Request, name: str, known: tuple[str, ...]) -> str:
    """Return a query parameter that must be one of ``known``; the default is the first."""
    value = request.query_params.get(name, known[0])
    if value not in known:
        raise StudioError(f"{name} is {value!r}; give one of {', '.join(known)}")
    return value


# ---------------------------------------------------------------------------------------------------------------------
# Handlers


def page(_: Request) -> FileResponse:
    """Return the page."""
    return FileResponse(STATIC / "index.html")


async def state(request: Request) -> JSONResponse:
    """Return {"sessions": number of games, "follows": true if an experiment is displayed, "compiled"}.

    compiled: number of functions compiled so far while the studio compiles, else null.
    """
    studio = _studio(request)
    compiled = announcement.count if announcement.busy else None
    answer = {"sessions": len(studio.sessions), "follows": studio.roster.has_experiment, "compiled": compiled}
    return JSONResponse(answer)


async def levels(request: Request) -> JSONResponse:
    """Return the gallery."""
    return await respond(_studio(request).library.levels)


async def level(request: Request) -> JSONResponse:
    """Return a level document."""
    return await respond(_studio(request).library.document, request.path_params["id"])


async def best(request: Request) -> JSONResponse:
    """Return the best runs of a level."""
    return await respond(_studio(request).leaderboard.best, request.path_params["id"])


async def level_file(request: Request) -> Response:
    """Return a level as a map file of the game, or as text."""
    format = _one_of(request, "format", tuple(LEVEL_FORMATS))
    found = (await run_in_threadpool(_studio(request).library.level, request.path_params["id"])).level
    data = found.to_bytes() if format == "map" else to_text(found).encode()
    name = _ODD_IN_NAMES.sub("_", found.title.strip()) or found.fingerprint[:8]
    return _download(data, name + LEVEL_FORMATS[format])


async def open_file(request: Request) -> JSONResponse:
    """Open the file in the body of the request; its name is in the header X-File-Name."""
    name = unquote(request.headers.get("x-file-name", ""))
    return await respond(_studio(request).library.open, await request.body(), name)


async def replays(request: Request) -> JSONResponse:
    """Return the list of replays."""
    return await respond(_studio(request).library.replays)


async def replay_run(request: Request) -> JSONResponse:
    """Return the run document of a replay."""

    def run() -> Any:
        library = _studio(request).library
        replay, label = library.replay(request.path_params["number"])
        return library.run(replay.level, replay.inputs, label)

    return await respond(run)


async def recordings(request: Request) -> JSONResponse:
    """Return the stored runs and the folder of demonstrations."""
    studio = _studio(request)
    return await respond(
        lambda: {"recordings": studio.recordings.cards(), "demonstrations": studio.demonstrations.summary()}
    )


async def recording_run(request: Request) -> JSONResponse:
    """Return the run document of a stored run."""
    studio = _studio(request)
    run = studio.recordings.recording(request.path_params["number"])
    studio.library.add(run.level)
    return await respond(studio.library.run, run.level, run.inputs, run.label)


async def recording_file(request: Request) -> Response:
    """Return a stored run as a replay file."""
    format, stored = _one_of(request, "format", FORMATS), _studio(request).recordings
    name, data = stored.recording(request.path_params["number"]).file(format)
    stored.saved(request.path_params["number"])
    return _download(data, name)


async def recordings_file(request: Request) -> Response:
    """Return all stored runs as one replay set."""
    stored = _studio(request).recordings
    data, numbers = await run_in_threadpool(stored.file_of_all)
    stored.saved(*numbers)
    return _download(data, FILE_OF_ALL)


async def remove_recording(request: Request) -> JSONResponse:
    """Delete a stored run."""
    _studio(request).recordings.remove(request.path_params["number"])
    return JSONResponse({})


async def add_demonstration(request: Request) -> JSONResponse:
    """Check a stored run and write it to the folder of demonstrations."""
    studio = _studio(request)
    run = studio.recordings.recording(request.path_params["number"])
    studio.library.add(run.level)

    def add() -> Any:
        added = studio.demonstrations.add(run, studio.library.bank(run.level.fingerprint))
        studio.recordings.saved(run.number)
        return added

    return await respond(add)


routes: list[BaseRoute] = [
    Route("/", page),
    Mount("/static", StaticFiles(directory=STATIC)),
    Route("/api/state", state),
    Route("/api/levels", levels),
    Route("/api/levels/{id}", level),
    Route("/api/levels/{id}/file", level_file),
    Route("/api/levels/{id}/best", best),
    Route("/api/open", open_file, methods=["POST"]),
    Route("/api/replays", replays),
    Route("/api/replays/{number:int}/run", replay_run),
    Route("/api/recordings", recordings),
    Route("/api/recordings/file", recordings_file),
    Route("/api/recordings/{number:int}", remove_recording, methods=["DELETE"]),
    Route("/api/recordings/{number:int}/run", recording_run),
    Route("/api/recordings/{number:int}/file", recording_file),
    Route("/api/recordings/{number:int}/demonstration", add_demonstration, methods=["POST"]),
    WebSocketRoute("/ws/play", sessions.play),
    *watching.routes,
    *editing.routes,
]
