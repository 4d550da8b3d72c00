"""Routes of agents and their episodes; the page plays most agents itself (``nppsim/wasm/agent.js``), except for live play.

    GET  /api/agents               cards of the agents (``AgentRegistry.agents``)
    GET  /api/agents/{id}/policy   file of an agent for the page (``rl.studio.policy_file``)
    POST /api/agents/{id}/play     PLAY -> one line of JSON per message (``episodes``)
    GET  /api/experiment           state of the displayed experiment, or null

If the page stops to read, an episode waits.
"""

import json
from collections.abc import AsyncIterator, Generator, Iterator

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from nppsim.errors import UserError
from nppsim.studio.documents import Document
from nppsim.studio.errors import answering, read_message

THREADS = 2  # number of threads in which agents play
PLAY: dict = {
    "maps": [str],
    "episodes": int,
    "seed": int,
    "deterministic": bool,
    "inputs": str,
    "endings_only": bool,
    "live": str,
}


async def _lines(documents: Iterator[Document], limiter: CapacityLimiter) -> AsyncIterator[str]:
    while (document := await to_thread.run_sync(next, documents, None, limiter=limiter)) is not None:
        yield f"{json.dumps(document)}\n"


def _with_error(documents: Generator[Document, None, None]) -> Iterator[Document]:
    try:
        yield from documents
    except UserError as error:
        yield {"error": str(error)}


async def _play(request: Request) -> Response:
    message, studio = await read_message(request, PLAY), request.app.state.studio

    def start() -> Iterator[Document]:
        from nppsim.studio.episodes import messages

        return _with_error(messages(studio.registry.agent(request.path_params["id"]), message))

    documents = await to_thread.run_sync(start, limiter=studio.limiter)
    return StreamingResponse(_lines(documents, studio.limiter), media_type="application/x-ndjson")


def _policy(request: Request) -> Response:
    data = request.app.state.studio.registry.policy(request.path_params["id"])
    return Response(data, media_type="application/octet-stream")


routes: list[BaseRoute] = [
    Route("/api/agents", answering(lambda studio, _: studio.registry.agents())),
    Route("/api/agents/{id}/policy", _policy),
    Route("/api/agents/{id}/play", _play, methods=["POST"]),
    Route("/api/experiment", answering(lambda studio, _: studio.registry.experiment())),
]
