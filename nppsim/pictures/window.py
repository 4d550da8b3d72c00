"""A window on the screen that shows pictures one after another, in time (extra ``gym``: pygame)."""

from typing import Any

import numpy as np

from nppsim.errors import needed


class Window:
    """Opens with the first picture.

    title: of the window.
    fps: pictures per second; ``show`` waits for the moment of the next one.
    Raises MissingPackageError without pygame.
    """

    def __init__(self, title: str, fps: float):
        self._pygame: Any = needed("pygame", "gym")
        self.title, self.fps = title, fps
        self._screen: Any = None

    def show(self, picture: np.ndarray) -> None:
        """picture: uint8[H, W, 3]; all of one size."""
        pygame = self._pygame
        size = picture.shape[1], picture.shape[0]
        if self._screen is None:
            pygame.display.init()
            pygame.display.set_caption(self.title)
            self._screen, self._clock = pygame.display.set_mode(size), pygame.time.Clock()
        self._screen.blit(pygame.image.frombuffer(np.ascontiguousarray(picture), size, "RGB"), (0, 0))
        pygame.event.pump()  # the window system believes a program dead that never asks
        pygame.display.flip()
        self._clock.tick(self.fps)

    def close(self) -> None:
        """Close the window, if it was opened."""
        if self._screen is not None:
            self._pygame.display.quit()
            self._screen = None
