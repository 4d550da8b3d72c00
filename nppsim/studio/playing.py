"""Results of play in the page: stored runs and the leaderboard."""

from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from nppsim.io.reading import mismatch, parse_json
from nppsim.physics.outcomes import DIED, NAMES, UNFINISHED, WON
from nppsim.studio.documents import MAX_RUN_FRAMES, Document, input_bytes
from nppsim.studio.errors import HELP, StudioError
from nppsim.studio.leaderboard import PERSON
from nppsim.studio.library import Library
from nppsim.studio.recordings import Recordings

MAX_LABEL = 100  # characters
_OUTCOMES = (UNFINISHED, NAMES[WON], NAMES[DIED])


async def _message(request: Request) -> Any:
    return parse_json(await request.body(), "the request", StudioError, HELP)


def _check(message: Any, shape: dict) -> None:
    if wrong := mismatch(message, shape):
        raise StudioError(f"the request is wrong at {wrong}; {HELP}")


def store(library: Library, recordings: Recordings, message: Any) -> Document:
    """Store a run, {"level": id, "inputs": base64, "outcome", "gold", "label"}; return {"stored": ``Recording.card``}."""
    _check(message, {"level": str, "inputs": str, "outcome": str, "gold": int, "label": str})
    label, outcome = message["label"], message["outcome"]
    if len(label) > MAX_LABEL:
        raise StudioError(f"the label has {len(label)} characters; at most {MAX_LABEL} are allowed")
    if not label.isprintable():
        raise StudioError(f"the label {label!r} has unprintable characters; use printable ones")
    if outcome not in _OUTCOMES:
        raise StudioError(f"outcome is {outcome!r}; give one of {', '.join(_OUTCOMES)}")
    shown = library.level(message["level"])
    stored = recordings.store(shown.level, _inputs(message), outcome, label, shown.category, message["gold"])
    return {"stored": stored.card()}


async def _store(request: Request) -> JSONResponse:
    studio = request.app.state.studio
    return JSONResponse(store(studio.library, studio.recordings, await _message(request)))


async def _score_level(request: Request) -> JSONResponse:
    id = request.path_params["id"]
    request.app.state.studio.library.level(id)  # raises an error for an unknown level
    return await _score(request, id, 1)


async def _score_episode(request: Request) -> JSONResponse:
    code = request.path_params["code"]
    return await _score(request, code, len(request.app.state.studio.library.episode(code)))


async def _score(request: Request, id: str, levels: int) -> JSONResponse:
    """Add a run that won to the leaderboard; return the best runs."""
    message = await _message(request)
    _check(message, {"name": str, "frames": int, "gold": int})
    name, frames, gold = message["name"], message["frames"], message["gold"]
    if not 0 < len(name) <= MAX_LABEL:
        raise StudioError(f"the name {name!r} needs 1 to {MAX_LABEL} characters")
    if frames < levels or gold < 0:
        raise StudioError(f"a run of {frames} frames with {gold} pieces of gold is impossible")
    board = request.app.state.studio.leaderboard
    board.add(id, PERSON, name, frames, gold, levels)
    return JSONResponse(board.best(id))


def _inputs(message: dict[str, Any]) -> np.ndarray:
    inputs = input_bytes(message["inputs"])
    if len(inputs) > MAX_RUN_FRAMES:
        raise StudioError(f"the run has {len(inputs):,} frames; at most {MAX_RUN_FRAMES:,} are allowed")
    return inputs


routes: list[BaseRoute] = [
    Route("/api/recordings", _store, methods=["POST"]),
    Route("/api/levels/{id}/best", _score_level, methods=["POST"]),
    Route("/api/episodes/{code}/best", _score_episode, methods=["POST"]),
]
