"""WebSockets with JSON messages, and the background tasks that their messages start."""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from anyio import CancelScope, create_task_group
from anyio.abc import TaskGroup
from starlette.websockets import WebSocket, WebSocketDisconnect

from nppsim.errors import UserError
from nppsim.io.reading import parse_json
from nppsim.studio.documents import Document
from nppsim.studio.errors import StudioError

HELP = "docs/lab/studio.md has the protocol"
_TRY_LATER = 1013  # WebSocket close code "try again later"


async def serve(
    socket: WebSocket,
    members: set,
    member: object,
    most: int,
    answer: Callable[[Any, "BackgroundTasks"], Awaitable[Document | None]],
) -> None:
    """Handle the messages of a socket until it closes; then cancel its tasks.

    members: one object per open socket of this kind; contains ``member`` until the socket closes.
    most: maximum number of open sockets of this kind.
    answer: returns the answer to a message, or None; may start tasks.  The answer after a UserError is {"error"}, with the
        "number" of the message if it has one.
    """
    await socket.accept()
    if len(members) >= most:
        await socket.close(_TRY_LATER, f"{most} tabs are open already; close some")
        return
    members.add(member)
    try:
        async with create_task_group() as group:
            tasks = BackgroundTasks(group)
            while (received := await socket.receive())["type"] == "websocket.receive":
                message: Any = None
                try:
                    data = (received.get("text") or "").encode() or received.get("bytes") or b""
                    message = parse_json(data, "the message", StudioError, HELP)
                    reply = await answer(message, tasks)
                except UserError as error:
                    numbered = isinstance(message, dict) and "number" in message
                    reply = {"error": str(error)} | ({"number": message["number"]} if numbered else {})
                if reply is not None:
                    await send(socket, reply)
            group.cancel_scope.cancel()
    finally:
        members.discard(member)


async def send(socket: WebSocket, document: Document) -> None:
    """Send a document, unless the page has closed the socket; ``serve`` then receives the disconnection and ends."""
    with suppress(WebSocketDisconnect):
        await socket.send_text(json.dumps(document))


class BackgroundTasks:
    """Background tasks of one socket.  A new task cancels the previous one of the same kind.  group: runs the tasks."""

    def __init__(self, group: TaskGroup):
        self._group = group
        self._scopes: dict[str, CancelScope] = {}

    def start(self, kind: str, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Start ``task(*arguments)``."""
        self.cancel(kind)
        self._scopes[kind] = CancelScope()
        self._group.start_soon(self._run, self._scopes[kind], task, *arguments)

    def cancel(self, kind: str) -> None:
        """Cancel the task of a kind if there is one."""
        if kind in self._scopes:
            self._scopes.pop(kind).cancel()

    @staticmethod
    async def _run(scope: CancelScope, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        with scope:
            await task(*arguments)
