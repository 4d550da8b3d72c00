"""The watch socket: several runs of one level side by side, and maps of where an agent's episodes end.

The protocol is in docs/lab/studio.md.

Agents play live, at most AHEAD frames ahead of the display.  Agents run in a few threads that all sockets share.
A task is cancelled when its socket closes or requests another task of the same
kind.
"""

import itertools
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
from anyio import Event, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from nppsim.errors import UserError
from nppsim.io.reading import mismatch
from nppsim.levels.level import Level
from nppsim.physics.outcomes import NAMES, WON
from nppsim.replays.replay import Replay
from nppsim.studio.documents import Document, input_bytes
from nppsim.studio.errors import StudioError
from nppsim.studio.leaderboard import AGENT
from nppsim.studio.sockets import HELP, BackgroundTasks, send, serve

if TYPE_CHECKING:
    from nppsim.bank import LevelBank

AHEAD = 600  # maximum number of frames that an agent plays ahead of the displayed frame
PART = 40  # minimum number of frames of an agent per message
THREADS = 2  # number of threads for the work of all sockets
MAX_RUNS = 6  # maximum number of runs side by side
MAX_WATCHERS = 16  # maximum number of open sockets
MAX_EPISODES = 4000  # maximum number of episodes in a map of deaths
MAX_LEVELS = 1000  # maximum number of levels in a map of deaths
_ENDS_PER_MESSAGE = 64
_MAX_SEED = (1 << 53) - 1  # largest integer that JavaScript represents exactly
_RUN = (
    {"agent": str, "seed": int, "deterministic": bool},
    {"label": str, "inputs": str},
    {"replay": int},
    {"recording": int},
)
_SHAPES: dict[str, Any] = {
    "watch": {"number": int, "level": str, "runs": [_RUN]},
    "at": int,
    "deaths": {"number": int, "agent": str, "level": (str, None), "category": (str, None), "episodes": int},
    "stop": str,
}


class Watcher:
    """State of one watch socket: handles its messages and sends the results."""

    def __init__(self, socket: WebSocket):
        self._socket, self._studio = socket, socket.app.state.studio
        self._at, self._moved = 0, Event()

    async def answer(self, message: Any, tasks: BackgroundTasks) -> None:
        """Handle a message.  Raises UserError for an invalid one."""
        verb, request = _parse(message)
        if verb == "at":
            self._at, moved, self._moved = request, self._moved, Event()
            moved.set()
        elif verb == "stop":
            tasks.cancel(request)
        else:
            tasks.start(verb, self._do, verb, request)

    async def _do(self, kind: str, request: Document) -> None:
        try:
            await (self._show(request) if kind == "watch" else self._count_deaths(request))
        except UserError as error:
            await self._send({kind: request["number"], "error": str(error)})

    async def _send(self, document: Document) -> None:
        await send(self._socket, document)

    async def _in_thread(self, function: Any, *arguments: Any) -> Any:
        """Run a function in one of the threads and return its result."""
        return await to_thread.run_sync(function, *arguments, limiter=self._studio.limiter)

    # ------------------------------------------------------------------------------------------------ runs side by side
    async def _show(self, request: Document) -> None:
        self._at = 0
        bank = await self._in_thread(self._studio.library.bank, request["level"])
        inputs_of_run: dict[int, np.ndarray] = {}
        async with anyio.create_task_group() as group:
            for number, run in enumerate(request["runs"]):
                group.start_soon(self._play, {"watch": request["number"], "run": number}, run, bank, inputs_of_run)
        for number in sorted(inputs_of_run)[1:]:
            first = min(inputs_of_run)
            difference = await self._in_thread(_difference, bank.levels[0], inputs_of_run[first], inputs_of_run[number])
            await self._send({"watch": request["number"], "runs": [first, number], "difference": difference})

    async def _play(
        self, head: Document, run: Document, bank: "LevelBank", inputs_of_run: dict[int, np.ndarray]
    ) -> None:
        """Play one run and store its inputs in ``inputs_of_run`` when it is over.  head: fields of all its messages."""
        try:
            if "agent" in run:
                inputs_of_run[head["run"]] = await self._play_agent(head, run, bank)
                return
            from nppsim.studio.writers import RunWriter

            inputs, label = await self._recorded(run, bank)
            writer = await self._in_thread(RunWriter, bank)
            await self._send(head | {"label": label, "start": writer.start})
            part = await self._in_thread(writer.play, inputs)
        except UserError as error:
            await self._send(head | {"error": str(error)})
            return
        await self._send(head | {"parts": [part], "over": part["outcome"]})
        inputs_of_run[head["run"]] = inputs[: part["frames"]]

    async def _play_agent(self, head: Document, run: Document, bank: "LevelBank") -> np.ndarray:
        from nppsim.studio.episodes import Episode, layout_document

        agent = await self._in_thread(self._studio.registry.agent, run["agent"])
        settings = {"seed": run["seed"], "deterministic": run["deterministic"]}
        episode = await self._in_thread(lambda: Episode(bank, agent, **settings))
        about = {"facts": dict(agent.facts), "layout": layout_document(agent.observations)}
        await self._send(head | {"label": agent.name, "start": episode.start} | about)
        try:
            while episode.outcome is None:
                while episode.game.frame > self._at + AHEAD:
                    await self._moved.wait()
                parts = await self._in_thread(episode.play, PART)
                await self._send(head | {"parts": parts, "over": episode.outcome})
        finally:
            episode.close()
        if episode.outcome == NAMES[WON]:
            level, gold = bank.levels[0].fingerprint, int(episode.game.ninja["gold"])
            await self._in_thread(self._studio.leaderboard.add, level, AGENT, agent.name, episode.game.frame, gold)
        return episode.inputs

    async def _recorded(self, run: Document, bank: "LevelBank") -> tuple[np.ndarray, str]:
        if "inputs" in run:
            return input_bytes(run["inputs"]), run["label"]
        if "replay" in run:
            replay, label = await self._in_thread(self._studio.library.replay, run["replay"])
            level, inputs = replay.level, replay.inputs
        else:
            stored = self._studio.recordings.recording(run["recording"])
            level, inputs, label = stored.level, stored.inputs, stored.label
        if level.fingerprint != bank.levels[0].fingerprint:
            raise StudioError(f"{label} was recorded on another level")
        return inputs, label

    # ---------------------------------------------------------------------------------------------- where episodes end
    async def _count_deaths(self, request: Document) -> None:
        library = self._studio.library
        if request["level"] is not None:
            ids = [request["level"]]
        else:
            cards = (await self._in_thread(library.levels))["levels"]
            ids = [card["id"] for card in cards if card["category"] == request["category"]]
            if not ids:
                raise StudioError(f"there are no levels of the category {request['category']!r}", 404)
        ids = [ids[k * len(ids) // MAX_LEVELS] for k in range(MAX_LEVELS)] if len(ids) > MAX_LEVELS else ids
        each = -(-request["episodes"] // len(ids))
        agent = await self._in_thread(self._studio.registry.agent, request["agent"])
        levels: list[Level] = [(await self._in_thread(library.level, id)).level for id in ids]
        head = {"deaths": request["number"]}
        with closing(agent.evaluate(levels, each)) as endings:
            await self._send(head | {"levels": ids, "episodes": each * len(ids)})
            while group := await self._in_thread(lambda: list(itertools.islice(endings, _ENDS_PER_MESSAGE))):
                rows = [[one.level, one.outcome, one.frames, round(one.x, 1), round(one.y, 1)] for one in group]
                await self._send(head | {"endings": rows})
        await self._send(head | {"counted": each * len(ids)})


def _parse(message: Any) -> tuple[str, Any]:
    """Return the only key of a message (the verb) and the value of this key (the request).

    Raises StudioError for a message that violates the protocol.
    """
    verbs = [verb for verb in _SHAPES if isinstance(message, dict) and verb in message]
    if len(verbs) != 1 or len(message) != 1:
        raise StudioError(f"a message has one of {', '.join(_SHAPES)}; {HELP}")
    verb, request = verbs[0], message[verbs[0]]
    wrong = mismatch(request, _SHAPES[verb], verb)
    if not wrong and verb == "watch":
        if not 1 <= len(request["runs"]) <= MAX_RUNS:
            wrong = f"watch shows 1 to {MAX_RUNS} runs side by side"
        elif not all(0 <= run.get("seed", 0) <= _MAX_SEED for run in request["runs"]):
            wrong = f"a seed is a number from 0 to {_MAX_SEED}"
    if not wrong and verb == "deaths":
        if not 1 <= request["episodes"] <= MAX_EPISODES:
            wrong = f"deaths takes 1 to {MAX_EPISODES:,} episodes"
        elif (request["level"] is None) == (request["category"] is None):
            wrong = "deaths needs either a level or a category"
    if not wrong and verb == "stop" and request not in ("watch", "deaths"):
        wrong = "stop ends watch or deaths"
    if wrong:
        raise StudioError(f"{wrong}; {HELP}")
    return verb, request


def _difference(level: Level, a: np.ndarray, b: np.ndarray) -> Document:
    """Return where two runs diverge and where one gains or loses frames against the other (``nppsim.replays.diff``)."""
    from nppsim.replays.diff import compare_replays

    difference, _, _ = compare_replays(Replay(level, a, name="the first run"), Replay(level, b, name="the other run"))
    return asdict(difference)


# ---------------------------------------------------------------------------------------------------------------------
# Routes


async def watch(socket: WebSocket) -> None:
    """Serve one watch socket until it closes."""
    watcher = Watcher(socket)
    await serve(socket, socket.app.state.studio.watchers, watcher, MAX_WATCHERS, watcher.answer)


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
    Route("/api/experiment", _experiment),
    WebSocketRoute("/ws/watch", watch),
]
