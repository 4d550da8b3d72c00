"""Exception for failed requests of the studio."""

from nppsim.errors import UserError


class StudioError(UserError, ValueError):
    """A request of the page failed.  status: HTTP status of the response."""

    def __init__(self, message: str, status: int = 400):
        super().__init__(message)
        self.status = status
