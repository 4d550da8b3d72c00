"""The studio's own error."""

from nppsim.errors import UserError


class StudioError(UserError, ValueError):
    """What the page asked for cannot be done; the message says why.

    status: of the HTTP answer.
    """

    def __init__(self, message: str, status: int = 400):
        super().__init__(message)
        self.status = status
