"""Access control of the studio.

Any web page open in a browser on this machine can send requests to the studio.  A request must therefore

* name this machine in its ``Host`` header; a DNS rebinding attack uses a foreign name that resolves to this machine;
* come from a page of the studio itself (``Origin`` header);
* carry the token that was printed at the start;
* have at most MAX_BODY bytes.

Response headers forbid foreign scripts, frames and connections.
"""

import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
MAX_BODY = 4 << 20  # maximum bytes of a request; enough for a campaign file of 1,300 levels
TOKEN_HEADER = b"x-studio-token"
GUARDED = "/api/"  # prefix of paths that require the token
_HOST = re.compile(r"(?:(?P<name>[\w.-]+)|\[(?P<address>[\da-fA-F:.]+)\])(?::\d+)?", re.ASCII)
_LOCAL_NAMES = ("localhost", LOOPBACK, "::1")
_CSP = (
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; img-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; "
)
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
    """Conditions under which a request is answered.

    host: address that the studio listens at.
    token: secret, drawn at each start of the studio.
    """

    host: str = LOOPBACK
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Accepted names of this machine, lower case."""
        return _LOCAL_NAMES if is_local(self.host) else (*_LOCAL_NAMES, self.host.lower(), socket.gethostname().lower())

    def refusal(self, path: str, headers: Mapping[bytes, list[bytes]]) -> tuple[int, str]:
        """Return (HTTP status, reason) if a request must be refused, (0, "") if it is accepted.

        headers: lower-case name -> all its values.
        """
        hosts, origins = (headers.get(name, []) for name in (b"host", b"origin"))
        host = hosts[0].decode("latin-1") if len(hosts) == 1 else ""
        if not self._is_ours(host):
            return _FORBIDDEN, f"the host {host!r} is not this machine; use the address printed at the start"
        own = f"http://{host}"
        if len(origins) > 1 or (origins and origins[0].decode("latin-1") != own):
            return _FORBIDDEN, f"the request does not come from a page of {own}"
        if path.startswith(GUARDED):
            token = headers.get(TOKEN_HEADER, [b""])[0]
            if not hmac.compare_digest(token, self.token.encode()):
                return _NO_TOKEN, "the token is missing or from an earlier start; use the address printed last"
        return 0, ""

    def _is_ours(self, host: str) -> bool:
        """Return True if a Host header is a valid name of this machine, with any port (tunnels use other ports)."""
        match = _HOST.fullmatch(host)
        name = (match["name"] or match["address"]).lower() if match else ""
        return name in self.names or (not is_local(self.host) and _is_address(name))


def is_local(host: str) -> bool:
    """Return True for a loopback address, which other machines cannot reach."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    """Return True for an IP address, False for a host name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """ASGI middleware that makes the four checks listed above and adds HEADERS to every response."""

    def __init__(self, app: "ASGIApp", access: Access):
        self.app, self.access = app, access

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Handle a request."""
        from starlette.responses import JSONResponse  # the extra ``studio``

        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        status, why = self.access.refusal(scope["path"], headers)
        length = headers.get(b"content-length", [b"0"])[0]
        if not status and (b"transfer-encoding" in headers or int(length) > MAX_BODY):
            status, why = _TOO_LARGE, f"more than {MAX_BODY:,} bytes, or of unknown length; open a smaller file"
        if status:
            refusal = JSONResponse({"error": why}, status, {"connection": "close"})  # the body is not read
            await refusal(scope, receive, _with_headers(send))
        else:
            await self.app(scope, receive, _with_headers(send))


def _with_headers(send: "Send") -> "Send":
    from starlette.datastructures import MutableHeaders

    async def sending(message: "Message") -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return sending
