"""The studio as an ASGI application: routes and their handlers (docs/lab/studio.md)."""

import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from nppsim.errors import UserError
from nppsim.pictures.schemes import stylesheet
from nppsim.replays.replay import FORMATS
from nppsim.studio import agent_routes, editing, playing
from nppsim.studio.agent_registry import AgentRegistry
from nppsim.studio.errors import StudioError
from nppsim.studio.leaderboard import Leaderboard
from nppsim.studio.library import LEVEL_FORMATS, Library
from nppsim.studio.recordings import FILE_OF_ALL, Demonstrations, Recordings, file_name
from nppsim.studio.security import Access, Guard

STATIC = Path(__file__).parent / "static"
KERNELS = Path(__file__).parents[1] / "wasm"


class Studio:
    """State that the handlers share, as ``request.app.state.studio``.

    library: levels and replays.
    recordings, demonstrations: stored runs.
    leaderboard: best runs of each level; by default stored in memory only.
    registry: agents, and the displayed experiment.
    limiter: limits the threads in which agents play.
    """

    def __init__(
        self,
        library: Library,
        demonstrations: str | Path = "demonstrations",
        registry: AgentRegistry | None = None,
        leaderboard: Leaderboard | None = None,
    ):
        self.library = library
        self.leaderboard = leaderboard or Leaderboard()
        self.recordings = Recordings()
        self.demonstrations = Demonstrations(demonstrations, library.categories)
        self.registry = registry or AgentRegistry()
        self.limiter = CapacityLimiter(agent_routes.THREADS)


def create_app(studio: Studio, access: Access) -> Starlette:
    """Return the ASGI application.  access: conditions under which a request is answered."""
    guard = Middleware(Guard, access=access)
    handlers: dict[Any, Any] = {UserError: _refused, OSError: _failed}
    app = Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)
    app.state.studio = studio
    return app


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
    """Return the query parameter ``name``, which must be one of ``known``; if it is missing, the first of ``known``."""
    value = request.query_params.get(name, known[0])
    if value not in known:
        raise StudioError(f"{name} is {value!r}; give one of {', '.join(known)}")
    return value


# ---------------------------------------------------------------------------------------------------------------------
# Handlers.  Starlette calls those that are not coroutines in threads, so that live games continue.


def _page(_: Request) -> FileResponse:
    return FileResponse(STATIC / "index.html")


def _colours(_: Request) -> Response:
    return Response(stylesheet(), media_type="text/css")


def _state(request: Request) -> JSONResponse:
    """Return {"follows": true if an experiment is displayed, "compiled"}.

    compiled: number of functions compiled so far while Numba compiles kernels, else null.
    """
    studio = _studio(request)
    progress = sys.modules.get("nppsim._numba.progress")  # is imported with the first kernel
    compiled = progress.compilation.count if progress and progress.compilation.busy else None
    return JSONResponse({"follows": studio.registry.has_experiment, "compiled": compiled})


def _levels(request: Request) -> JSONResponse:
    return JSONResponse(_studio(request).library.levels())


def _film(request: Request) -> JSONResponse:
    return JSONResponse({"run": _studio(request).library.film()})


def _level(request: Request) -> JSONResponse:
    return JSONResponse(_studio(request).library.document(request.path_params["id"]))


def _best(request: Request) -> JSONResponse:
    return JSONResponse(_studio(request).leaderboard.best(request.path_params["id"]))


def _episode(request: Request) -> JSONResponse:
    """Return {"code", "levels": ids of the five levels, "best": best runs of the episode}."""
    studio, code = _studio(request), request.path_params["code"]
    return JSONResponse({"code": code, "levels": studio.library.episode(code), "best": studio.leaderboard.best(code)})


def _level_file(request: Request) -> Response:
    format = _one_of(request, "format", tuple(LEVEL_FORMATS))
    found = _studio(request).library.level(request.path_params["id"]).level
    data = found.to_bytes() if format == "map" else found.to_text().encode()
    return _download(data, file_name(found) + LEVEL_FORMATS[format])


async def _open_file(request: Request) -> JSONResponse:
    """Open the file in the body of the request; the file's name is in the header X-File-Name."""
    name = unquote(request.headers.get("x-file-name", ""))
    return JSONResponse(await run_in_threadpool(_studio(request).library.open, await request.body(), name))


def _replays(request: Request) -> JSONResponse:
    return JSONResponse(_studio(request).library.replays())


def _replay_run(request: Request) -> JSONResponse:
    library = _studio(request).library
    replay, label = library.replay(request.path_params["number"])
    return JSONResponse(library.run(replay.level, replay.inputs, label))


def _recordings(request: Request) -> JSONResponse:
    studio = _studio(request)
    return JSONResponse({"recordings": studio.recordings.cards(), "demonstrations": studio.demonstrations.summary()})


def _recording_run(request: Request) -> JSONResponse:
    studio = _studio(request)
    run = studio.recordings.recording(request.path_params["number"])
    studio.library.add(run.level)
    return JSONResponse(studio.library.run(run.level, run.inputs, run.label))


def _recording_file(request: Request) -> Response:
    format, stored = _one_of(request, "format", FORMATS), _studio(request).recordings
    name, data = stored.recording(request.path_params["number"]).file(format)
    stored.mark_saved(request.path_params["number"])
    return _download(data, name)


def _recordings_file(request: Request) -> Response:
    stored = _studio(request).recordings
    data, numbers = stored.file_of_all()
    stored.mark_saved(*numbers)
    return _download(data, FILE_OF_ALL)


def _remove_recording(request: Request) -> JSONResponse:
    _studio(request).recordings.remove(request.path_params["number"])
    return JSONResponse({})


def _add_demonstration(request: Request) -> JSONResponse:
    studio = _studio(request)
    run = studio.recordings.recording(request.path_params["number"])
    studio.library.add(run.level)
    added = studio.demonstrations.add(run, studio.library.bank(run.level.fingerprint))
    studio.recordings.mark_saved(run.number)
    return JSONResponse(added)


routes: list[BaseRoute] = [
    Route("/", _page),
    Route("/static/colours.css", _colours),
    Mount("/static", StaticFiles(directory=STATIC)),
    Mount("/wasm", StaticFiles(directory=KERNELS)),
    Route("/api/state", _state),
    Route("/api/levels", _levels),
    Route("/api/levels/{id}", _level),
    Route("/api/levels/{id}/file", _level_file),
    Route("/api/levels/{id}/best", _best),
    Route("/api/episodes/{code}", _episode),
    Route("/api/film", _film),
    Route("/api/open", _open_file, methods=["POST"]),
    Route("/api/replays", _replays),
    Route("/api/replays/{number:int}/run", _replay_run),
    Route("/api/recordings", _recordings),
    Route("/api/recordings/file", _recordings_file),
    Route("/api/recordings/{number:int}", _remove_recording, methods=["DELETE"]),
    Route("/api/recordings/{number:int}/run", _recording_run),
    Route("/api/recordings/{number:int}/file", _recording_file),
    Route("/api/recordings/{number:int}/demonstration", _add_demonstration, methods=["POST"]),
    *playing.routes,
    *agent_routes.routes,
    *editing.routes,
]
