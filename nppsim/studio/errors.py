"""Messages of the page: how they are read and answered, and the exception for failed requests."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nppsim.errors import UserError
from nppsim.io.reading import mismatch, parse_json

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

HELP = "docs/lab/studio.md has the protocol"


class StudioError(UserError, ValueError):
    """A request of the page failed.  status: HTTP status of the response."""

    def __init__(self, message: str, status: int = 400):
        super().__init__(message)
        self.status = status


async def read_message(request: "Request", shape: dict) -> Any:
    """Return the JSON body of a request.  Raises StudioError if the JSON does not have the given shape."""
    message = parse_json(await request.body(), "the request", StudioError, HELP)
    if wrong := mismatch(message, shape):
        raise StudioError(f"the request is wrong at {wrong}; {HELP}")
    return message


def answering(answer: Callable[[Any, dict[str, Any]], Any]) -> "Callable[[Request], Response]":
    """Return a handler of GET requests.

    answer: function of the ``Studio`` and the parameters of the path that returns the JSON of the response.  Starlette
        calls it in a thread.
    """
    from starlette.responses import JSONResponse  # the extra ``studio``

    return lambda request: JSONResponse(answer(request.app.state.studio, request.path_params))
