"""Agents that play on from a frame of a run; checks of messages from the page."""

from typing import Any

import numpy as np
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from nppsim.io.reading import mismatch, parse_json
from nppsim.physics.outcomes import UNFINISHED
from nppsim.studio.documents import MAX_RUN_FRAMES, Document, input_bytes, packed_text
from nppsim.studio.errors import StudioError
from nppsim.studio.game import Game
from nppsim.studio.sockets import HELP


async def read_message(request: Request, shape: dict) -> dict:
    """Return the JSON body of a request.  Raises StudioError if the JSON does not have the given shape."""
    message = parse_json(await request.body(), "the request", StudioError, HELP)
    if wrong := mismatch(message, shape):
        raise StudioError(f"the request is wrong at {wrong}; {HELP}")
    return message


async def _continue(request: Request) -> JSONResponse:
    """Let an agent play on after inputs; return {"inputs": base64 of the inputs after them, "name": of the agent}."""
    message = await read_message(request, {"level": str, "inputs": str, "agent": str})
    inputs, studio = checked_inputs(message), request.app.state.studio

    def played() -> Document:
        game = Game(studio.library.bank(message["level"]))
        game.play(inputs)
        if game.outcome != UNFINISHED:
            raise StudioError("the run has ended there; give an earlier frame")
        agent = studio.registry.agent(message["agent"])
        decisions = agent.play(game.level, deterministic=True, start=game.start)
        pressed = np.concatenate([one.inputs for one in decisions])
        return {"inputs": packed_text(pressed), "name": agent.name}

    return JSONResponse(await to_thread.run_sync(played, limiter=studio.limiter))


def checked_inputs(message: dict[str, Any]) -> np.ndarray:
    """Return the inputs of a message, uint8[frames].  Raises StudioError for invalid and for too many inputs."""
    inputs = input_bytes(message["inputs"])
    if len(inputs) > MAX_RUN_FRAMES:
        raise StudioError(f"the run has {len(inputs):,} frames; at most {MAX_RUN_FRAMES:,} are allowed")
    return inputs


routes: list[BaseRoute] = [
    Route("/api/continue", _continue, methods=["POST"]),
]
