"""Agents and their episodes.  The page plays most agents itself (``nppsim/wasm/agent.js``); the server plays the others.

    GET  /api/agents               cards of the agents (``AgentRegistry.agents``)
    GET  /api/agents/{id}/policy   file of an agent for the page (``rl.policy.browser``)
    POST /api/agents/{id}/play     PLAY -> one line of JSON per message
    GET  /api/experiment           state of the displayed experiment, or null

PLAY is {"maps": [base64 of map files], "episodes", "seed", "deterministic", "inputs": base64 of inputs to play first,
"endings_only"}.  The messages are those of ``nppsim/wasm/agent_worker.js``:

    {"layout"}                 before the first decision: key of ``observe.layout`` -> {"shape", "picture", "components"}
    {"decisions": [...]}       see ``decision_document``
    {"ending": [index of the map, outcome, frames, x, y]}   end of an episode
    {"error"}                  a message for people; the last line

Without ``endings_only``, there is one map and one episode.  If the page stops to read, the episode waits.
"""

import base64
import binascii
import json
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import closing
from itertools import islice

import numpy as np
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from nppsim import paths
from nppsim.bank import LevelBank
from nppsim.errors import UserError
from nppsim.levels.level import Level
from nppsim.observe.layout import SPECS
from nppsim.physics.outcomes import UNFINISHED
from nppsim.studio.agents import Decision, StudioAgent, layout_document
from nppsim.studio.documents import Document, input_bytes, packed_text
from nppsim.studio.errors import HELP, StudioError, read_message
from nppsim.studio.game import Game

THREADS = 2  # number of threads in which agents play
MAX_LEVELS, MAX_EPISODES = 1000, 4000  # maximum numbers per request
_MAX_SEED = (1 << 53) - 1  # largest integer that JavaScript represents exactly
_LINES_PER_PART = 8
_DIGITS = 3  # decimal places of displayed numbers
PLAY: dict = {
    "maps": [str],
    "episodes": int,
    "seed": int,
    "deterministic": bool,
    "inputs": str,
    "endings_only": bool,
}


def messages(agent: StudioAgent, request: Document) -> Generator[Document, None, None]:
    """Play episodes and yield the messages (see above).  request: PLAY.  Raises StudioError for an invalid request."""
    levels = [_level(data) for data in request["maps"]]
    if not (1 <= len(levels) <= MAX_LEVELS and 1 <= request["episodes"] * len(levels) <= MAX_EPISODES):
        raise StudioError(f"an agent plays 1 to {MAX_EPISODES:,} episodes on at most {MAX_LEVELS:,} levels")
    if not 0 <= request["seed"] <= _MAX_SEED:
        raise StudioError(f"a seed is a number from 0 to {_MAX_SEED}")
    settings = {"seed": request["seed"], "deterministic": request["deterministic"]}
    if not request["endings_only"]:
        return _episode(agent, levels[0], input_bytes(request["inputs"]), settings)
    return _endings(agent, levels, request["episodes"], settings)


def _episode(
    agent: StudioAgent, level: Level, inputs: np.ndarray, settings: Document
) -> Generator[Document, None, None]:
    game = Game(level)
    game.play(inputs)
    if game.outcome != UNFINISHED:
        raise StudioError("the run has ended there; give an earlier frame")
    yield {"layout": layout_document(agent.observations)}
    tracker, start = PathTracker(game.bank), game.start if len(inputs) else None
    with closing(agent.play(game.level, **settings, start=start)) as decisions:
        for decision in decisions:
            yield {"decisions": [decision_document(decision, game.frame) | {"paths": tracker.changed(game)}]}
            game.play(decision.inputs)
            outcome = decision.outcome
    yield {"ending": [0, outcome, game.frame, float(game.ninja["x"]), float(game.ninja["y"])]}


def _level(text: str) -> Level:
    try:
        return Level.from_bytes(base64.b64decode(text, validate=True), "the level")
    except binascii.Error as error:
        raise StudioError(f"a map must be base64 ({error}); {HELP}") from error


def _endings(
    agent: StudioAgent, levels: Sequence[Level], episodes: int, settings: Document
) -> Generator[Document, None, None]:
    with closing(agent.evaluate(levels, episodes, **settings)) as endings:
        for one in endings:
            yield {"ending": [one.level, one.outcome, one.frames, one.x, one.y]}


def decision_document(decision: Decision, frame: int) -> Document:
    """Return the document of a decision made at a frame, as in ``nppsim/wasm/agent.js``.

    Observations are flat lists of rounded numbers, or base64 of uint8; inputs are base64.
    """
    return {
        "f": frame,
        "a": decision.action,
        "p": _numbers(decision.probabilities, 4),
        "v": round(decision.value, _DIGITS),
        "h": round(decision.entropy, _DIGITS),
        "r": {name: round(reward, 5) for name, reward in decision.terms.items() if reward},
        "s": {key: _observation_value(key, values) for key, values in decision.seen.items()},
        "inputs": packed_text(decision.inputs),
        "outcome": decision.outcome,
        "note": decision.note,
    }


def _observation_value(key: str, values: np.ndarray) -> str | list[float]:
    return packed_text(values) if SPECS[key].dtype == "uint8" else _numbers(values, _DIGITS)


def _numbers(values: np.ndarray, digits: int) -> list[float]:
    return np.round(values.astype(np.float64).ravel(), digits).tolist()


class PathTracker:
    """Path lengths of a game's current state, recomputed when a door or an exit changes.  bank: has a single level."""

    def __init__(self, bank: LevelBank):
        self._bank = bank
        self._before: bytes | None = None

    def changed(self, game: Game) -> str | None:
        """Return the path lengths as ``paths`` of a run part; None if they have not changed since the last call."""
        record, entities = self._bank.world.level[0], game.entities
        base = record["entity_first"]
        doors = slice(record["switches_first"] - base, record["switches_end"] - base)
        exits = slice(record["exits_first"] - base, record["exits_end"] - base)
        closed = entities["closed"][doors].astype(np.uint8)
        opened = (entities["clock"][exits] > 0).astype(np.uint8)
        taken = int(game.ninja["switch_taken"] != 0)
        key = closed.tobytes() + opened.tobytes() + bytes([taken])
        if key == self._before:
            return None
        self._before = key
        distance, next_step = np.empty_like(self._bank.paths.distance[0]), np.empty_like(self._bank.paths.next_step[0])
        paths.compute_fields(self._bank.world, *self._bank.paths.lattice(0), 0, closed, opened, distance, next_step)
        return packed_text(distance[taken].astype("<u2"))


# ---------------------------------------------------------------------------------------------------------------------
# Routes


async def _lines(documents: Iterator[Document], limiter: CapacityLimiter) -> AsyncIterator[str]:
    while part := await to_thread.run_sync(lambda: list(islice(documents, _LINES_PER_PART)), limiter=limiter):
        yield "".join(f"{json.dumps(document)}\n" for document in part)


def _with_error(documents: Generator[Document, None, None]) -> Iterator[Document]:
    try:
        yield from documents
    except UserError as error:
        yield {"error": str(error)}


async def _play(request: Request) -> Response:
    message, studio = await read_message(request, PLAY), request.app.state.studio

    def start() -> Iterator[Document]:
        return _with_error(messages(studio.registry.agent(request.path_params["id"]), message))

    documents = await to_thread.run_sync(start, limiter=studio.limiter)
    return StreamingResponse(_lines(documents, studio.limiter), media_type="application/x-ndjson")


def _agents(request: Request) -> JSONResponse:
    return JSONResponse(request.app.state.studio.registry.agents())


def _policy(request: Request) -> Response:
    data = request.app.state.studio.registry.policy(request.path_params["id"])
    return Response(data, media_type="application/octet-stream")


def _experiment(request: Request) -> JSONResponse:
    registry = request.app.state.studio.registry
    return JSONResponse(registry.experiment() if registry.has_experiment else None)


routes: list[BaseRoute] = [
    Route("/api/agents", _agents),
    Route("/api/agents/{id}/policy", _policy),
    Route("/api/agents/{id}/play", _play, methods=["POST"]),
    Route("/api/experiment", _experiment),
]
