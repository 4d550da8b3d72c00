"""A window on the screen that shows pictures at a fixed rate.  Needs the extra ``gym`` (pygame)."""

from typing import Any

import numpy as np

from nppsim.errors import needed


class Window:
    """A window that opens when the first picture is shown.

    fps: pictures per second; ``show`` waits between them.
    Raises MissingPackageError without pygame.
    """

    def __init__(self, title: str, fps: float):
        self._pygame: Any = needed("pygame", "gym")
        self.title, self.fps = title, fps
        self._screen: Any = None

    def show(self, picture: np.ndarray) -> None:
        """Show a picture: uint8[H, W, 3], always of the same size."""
        pygame = self._pygame
        size = picture.shape[1], picture.shape[0]
        if self._screen is None:
            pygame.display.init()
            pygame.display.set_caption(self.title)
            self._screen, self._clock = pygame.display.set_mode(size), pygame.time.Clock()
        self._screen.blit(pygame.image.frombuffer(np.ascontiguousarray(picture), size, "RGB"), (0, 0))
        pygame.event.pump()  # without this, the window system reports that the program does not respond
        pygame.display.flip()
        self._clock.tick(self.fps)

    def close(self) -> None:
        """Close the window if it is open."""
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None
