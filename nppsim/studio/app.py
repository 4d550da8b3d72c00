"""The studio as an ASGI application: routes and their handlers (docs/lab/studio.md)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from nppsim._numba.progress import compilation
from nppsim.bank import LevelBank
from nppsim.errors import UserError
from nppsim.pictures.schemes import stylesheet
from nppsim.planner.settings import OBJECTIVES, TIME
from nppsim.replays.score import score
from nppsim.studio import editing, playing, watching
from nppsim.studio.agent_registry import AgentRegistry
from nppsim.studio.demonstrations import Demonstrations
from nppsim.studio.documents import Document, level_of
from nppsim.studio.errors import StudioError
from nppsim.studio.leaderboard import Leaderboard
from nppsim.studio.library import Library
from nppsim.studio.plans import Plans
from nppsim.studio.security import Access, Guard

STATIC = Path(__file__).parent / "static"
KERNELS = Path(__file__).parents[1] / "wasm"


class Studio:
    """State that the handlers share, as ``request.app.state.studio``.

    library: levels and replays.
    demonstrations: folder to which the page adds runs.
    leaderboard: best runs of each level; by default stored in memory only.
    plans: runs of the planner.
    registry: agents, and the displayed experiment.
    watchers: open watch sockets.  limiter: limits the threads of all watch sockets together.
    editors: open editors.
    prepares: compile the kernels of the planner and of agents in the background when the app starts.
    """

    prepares = False

    def __init__(
        self,
        library: Library,
        demonstrations: str | Path = "demonstrations",
        registry: AgentRegistry | None = None,
        leaderboard: Leaderboard | None = None,
    ):
        self.library = library
        self.leaderboard = leaderboard or Leaderboard()
        self.plans = Plans(self.leaderboard)
        self.demonstrations = Demonstrations(demonstrations, library.categories)
        self.registry = registry or AgentRegistry()
        self.watchers: set[watching.Watcher] = set()
        self.limiter = CapacityLimiter(watching.THREADS)
        self.editors: set[editing.Checker] = set()


def create_app(studio: Studio, access: Access) -> Starlette:
    """Return the ASGI application.  access: conditions under which a request is answered."""
    guard = Middleware(Guard, access=access)
    handlers: dict[Any, Any] = {UserError: _refused, OSError: _failed}

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if studio.prepares:
            studio.plans.prepare(studio.registry.files)
        yield
        await studio.plans.close()

    app = Starlette(routes=routes, middleware=[guard], exception_handlers=handlers, lifespan=lifespan)
    app.state.studio = studio
    return app


def _refused(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, error.status if isinstance(error, StudioError) else 400)


def _failed(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, OSError)
    return JSONResponse({"error": f"{error.filename or 'the studio'}: {error.strerror or error}"}, 500)


def _studio(request: Request) -> Studio:
    return request.app.state.studio


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
    """Return {"follows": true if an experiment is displayed, "demonstrations", "folders", "compiled"}.

    demonstrations, folders: true: this studio writes demonstrations, and levels into its folders; a site of files does not.
    compiled: number of functions compiled so far while Numba compiles kernels, else null.
    """
    studio = _studio(request)
    compiled = compilation.count if compilation.busy else studio.plans.compiled
    return JSONResponse(
        {"follows": studio.registry.has_experiment, "demonstrations": True, "folders": True, "compiled": compiled}
    )


def _levels(request: Request) -> JSONResponse:
    answer, pars = _studio(request).library.levels(), _studio(request).plans.times()
    cards = [card | {"par": card["par"] or pars.get(card["id"])} for card in answer["levels"]]
    return JSONResponse(answer | {"levels": cards})


def _film(request: Request) -> JSONResponse:
    return JSONResponse({"run": _studio(request).library.film()})


def _level(request: Request) -> JSONResponse:
    id = request.path_params["id"]
    document = _studio(request).library.document(id)
    return JSONResponse(document | {"par": document["par"] or _studio(request).plans.times().get(id)})


async def _par(request: Request) -> JSONResponse:
    """Return {"par": frames, "gold", "score"} of the planner's run for an objective; search if it is unknown.

    ?objective=time (the default), score or all-gold.  {"par": null} if the planner finds no run; only "par" of a par time
    in the index of a level set.
    """
    studio, id = _studio(request), request.path_params["id"]
    objective = _one_of(request, "objective", OBJECTIVES)
    shown = await run_in_threadpool(studio.library.level, id)
    if objective == TIME and shown.par:
        return JSONResponse({"par": shown.par})
    if stored := studio.plans.par(id, objective):
        return JSONResponse(stored)
    found = await studio.plans.answer(shown.level, objective)
    if found["par"] is None:
        return JSONResponse({"par": None})
    gold = found["gold"]
    return JSONResponse({"par": found["par"], "gold": gold, "score": score(found["par"], gold)})


async def _add_level(request: Request) -> JSONResponse:
    """Add a level of the page, {"map": base64 of its file, "name", "category"}, for agents to play; return {"level": id}."""
    message = await playing.read_message(request, {"map": str, "name": str, "category": str})
    level = await run_in_threadpool(level_of, message["map"])
    return JSONResponse({"level": _studio(request).library.add(level, message["name"], message["category"] or None)})


def _replays(request: Request) -> JSONResponse:
    return JSONResponse(_studio(request).library.replays())


def _replay_run(request: Request) -> JSONResponse:
    library = _studio(request).library
    replay, label = library.replay(request.path_params["number"])
    return JSONResponse(library.run(replay.level, replay.inputs, label))


def _demonstrations(request: Request) -> JSONResponse:
    return JSONResponse(_studio(request).demonstrations.summary())


async def _add_demonstration(request: Request) -> JSONResponse:
    """Write a run, {"map": base64 of the level's file, "inputs": base64, "category"}, to the demonstrations."""
    message = await playing.read_message(request, {"map": str, "inputs": str, "category": str})
    demonstrations, inputs = _studio(request).demonstrations, playing.checked_inputs(message)

    def add() -> Document:
        return demonstrations.add(inputs, LevelBank([level_of(message["map"])]), message["category"] or None)

    return JSONResponse(await run_in_threadpool(add))


routes: list[BaseRoute] = [
    Route("/", _page),
    Route("/studio/static/colours.css", _colours),
    Mount("/studio/static", StaticFiles(directory=STATIC)),
    Mount("/wasm", StaticFiles(directory=KERNELS)),
    Route("/api/state", _state),
    Route("/api/levels", _levels),
    Route("/api/levels", _add_level, methods=["POST"]),
    Route("/api/levels/{id}", _level),
    Route("/api/levels/{id}/par", _par),
    Route("/api/film", _film),
    Route("/api/replays", _replays),
    Route("/api/replays/{number:int}/run", _replay_run),
    Route("/api/demonstrations", _demonstrations),
    Route("/api/demonstrations", _add_demonstration, methods=["POST"]),
    *playing.routes,
    *watching.routes,
    *editing.routes,
]
