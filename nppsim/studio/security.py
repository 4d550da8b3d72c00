"""Access control of the studio.

The studio runs on the user's own machine, where any web page that is open in a browser can send requests, too.  A
request must be addressed to a name of this machine (DNS rebinding uses a foreign name that resolves to it), come from a
page of the studio itself (``Origin``), have the token that was printed at the start, and be small.  The answers forbid
scripts, frames and connections that are not the studio's own.
"""

import hmac
import ipaddress
import json
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
MAX_BODY = 4 << 20  # bytes of a request, or of a message on a socket: a campaign file of 1,300 levels
TOKEN_HEADER = b"x-studio-token"
GUARDED = ("/api/", "/ws/")  # prefixes of paths that require the token
_HOST = re.compile(r"(?:(?P<name>[\w.-]+)|\[(?P<address>[\da-fA-F:.]+)\])(?::\d+)?", re.ASCII)
_LOCAL_NAMES = ("localhost", LOOPBACK, "::1")
_CSP = "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; "
HEADERS = {
    "content-security-policy": _CSP + "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",  # the token is in the address
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_FORBIDDEN, _NO_TOKEN, _TOO_LARGE = 403, 401, 413


@dataclass(frozen=True)
class Access:
    """Conditions for answering a request.

    host: the address that the studio listens at.
    token: random, for one start of the studio.
    """

    host: str = LOOPBACK
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which this machine may be called."""
        return _LOCAL_NAMES if is_local(self.host) else (*_LOCAL_NAMES, self.host.lower(), socket.gethostname().lower())

    def refusal(
        self, path: str, headers: Mapping[bytes, list[bytes]], query: bytes, is_socket: bool
    ) -> tuple[int, str]:
        """(status, why) of a request that gets no answer; (0, "") for one that does.

        headers: all values of each, names in small letters.
        """
        hosts, origins = (headers.get(name, []) for name in (b"host", b"origin"))
        host = hosts[0].decode("latin-1") if len(hosts) == 1 else ""
        if not self._is_ours(host):
            return _FORBIDDEN, f"the host {host!r} is not this machine; use the address that was printed at the start"
        own = f"http://{host}"
        if len(origins) > 1 or (is_socket and not origins) or (origins and origins[0].decode("latin-1") != own):
            return _FORBIDDEN, f"the request does not come from a page of {own}"
        if path.startswith(GUARDED):
            if is_socket:
                given = parse_qs(query.decode("latin-1")).get("token", [""])[0].encode()
            else:
                given = headers.get(TOKEN_HEADER, [b""])[0]
            if not hmac.compare_digest(given, self.token.encode()):
                return _NO_TOKEN, "the token is missing or from an earlier start; use the address that was printed last"
        return 0, ""

    def _is_ours(self, host: str) -> bool:
        """Return True if a Host header names this machine and contains only a name; the port may be that of a tunnel."""
        found = _HOST.fullmatch(host)
        name = (found["name"] or found["address"]).lower() if found else ""
        return name in self.names or (not is_local(self.host) and _is_address(name))


def is_local(host: str) -> bool:
    """Return True if only this machine reaches the address."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    """Return True for an IP address, False for a name that a foreign server resolves."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """The outermost layer of the application: makes the four checks, and adds HEADERS to every answer."""

    def __init__(self, app: "ASGIApp", access: Access):
        self.app, self.access = app, access

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """One request, or one socket."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        is_socket = scope["type"] == "websocket"
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        status, why = self.access.refusal(scope["path"], headers, scope["query_string"], is_socket)
        if is_socket:
            if status:
                await receive()  # the request to connect
                await send({"type": "websocket.close", "code": 1008, "reason": why[:120]})
            else:
                await self.app(scope, receive, send)
            return
        body = None if status else await _body(receive)
        if status or body is None:
            why = why or f"more than {MAX_BODY:,} bytes; open a smaller file"
            await _refuse(send, status or _TOO_LARGE, why)
            return
        await self.app(scope, _replayed(body, receive), _with_headers(send))


async def _body(receive: "Receive") -> bytes | None:
    """The body of a request; None if it is too large, or its sender has gone."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            return None
        if not message.get("more_body", False):
            return body


def _replayed(body: bytes, receive: "Receive") -> "Receive":
    """Return a ``receive`` that gives the body already read, then what follows."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> "Message":
        return waiting.pop() if waiting else await receive()

    return replay


def _with_headers(send: "Send") -> "Send":
    added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def sending(message: "Message") -> None:
        if message["type"] == "http.response.start":
            others = [pair for pair in message.get("headers", []) if pair[0].lower().decode() not in HEADERS]
            message = {**message, "headers": others + added}
        await send(message)

    return sending


async def _refuse(send: "Send", status: int, why: str) -> None:
    answer = json.dumps({"error": why}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    sending = _with_headers(send)
    await sending({"type": "http.response.start", "status": status, "headers": headers})
    await sending({"type": "http.response.body", "body": answer})
