"""The studio as an ASGI application: routes and their handlers (docs/lab/studio.md)."""

import sys
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from nppsim.errors import UserError
from nppsim.pictures.schemes import stylesheet
from nppsim.studio import agent_routes, editing
from nppsim.studio.agent_registry import AgentRegistry
from nppsim.studio.demonstrations import Demonstrations
from nppsim.studio.documents import Document, input_bytes, level_of
from nppsim.studio.errors import StudioError, answering, read_message
from nppsim.studio.library import Library
from nppsim.studio.modules import STATIC, WASM, index_page
from nppsim.studio.security import Access, Guard

MOST_DIGITS = 10  # of a number in an address


class Studio:
    """State that the handlers share, as ``request.app.state.studio``.

    library: levels and replays.
    demonstrations: folder to which the page adds runs.
    registry: agents, and the displayed experiment.
    limiter: limits the threads in which agents play.
    """

    def __init__(
        self,
        library: Library,
        demonstrations: str | Path = "demonstrations",
        registry: AgentRegistry | None = None,
    ):
        self.library = library
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


# ---------------------------------------------------------------------------------------------------------------------
# Handlers.  Starlette calls those that are not coroutines in threads, so that live games continue.


def _page(_: Request) -> HTMLResponse:
    return HTMLResponse(index_page())


def _colours(_: Request) -> Response:
    return Response(stylesheet(), media_type="text/css")


def _state(studio: Studio, _: dict[str, str]) -> Document:
    """Return {"follows": true if an experiment is displayed, "demonstrations", "folders", "compiled"}.

    demonstrations, folders: true; a site of files cannot write demonstrations and levels.
    compiled: number of functions compiled so far while Numba compiles kernels, else null.
    """
    progress = sys.modules.get("nppsim._numba.progress")  # is imported with the first kernel
    compiled = progress.compilation.count if progress and progress.compilation.busy else None
    can = dict.fromkeys(("demonstrations", "folders"), True)
    return {"follows": studio.registry.has_experiment, "compiled": compiled} | can


def _replay_run(studio: Studio, path: dict[str, str]) -> Document:
    number = path["number"]
    replay, label = studio.library.replay(int(number) if len(number) < MOST_DIGITS and number.isdecimal() else -1)
    return studio.library.run(replay.level, replay.inputs, label)


async def _add_demonstration(request: Request) -> JSONResponse:
    """Write a run, {"map": base64 of the level's file, "inputs": base64, "category"}, to the demonstrations."""
    message = await read_message(request, {"map": str, "inputs": str, "category": str})
    demonstrations, inputs = request.app.state.studio.demonstrations, input_bytes(message["inputs"])

    def add() -> Document:
        return demonstrations.add(inputs, level_of(message["map"]), message["category"] or None)

    return JSONResponse(await run_in_threadpool(add))


routes: list[BaseRoute] = [
    Route("/", _page),
    Route("/studio/static/colours.css", _colours),
    Mount("/studio/static", StaticFiles(directory=STATIC)),
    Mount("/wasm", StaticFiles(directory=WASM)),
    Route("/api/state", answering(_state)),
    Route("/api/levels", answering(lambda studio, _: studio.library.levels())),
    Route("/api/levels/{id}", answering(lambda studio, path: studio.library.document(path["id"]))),
    Route("/api/film", answering(lambda studio, _: {"run": studio.library.film()})),
    Route("/api/replays", answering(lambda studio, _: studio.library.replays())),
    Route("/api/replays/{number}/run", answering(_replay_run)),
    Route("/api/demonstrations", answering(lambda studio, _: studio.demonstrations.summary())),
    Route("/api/demonstrations", _add_demonstration, methods=["POST"]),
    *agent_routes.routes,
    *editing.routes,
]
