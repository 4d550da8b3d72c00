"""Budget of simulated frames."""

import time
from collections.abc import Callable


class FrameBudget:
    """Budget of simulated frames for one stage of a search.

    frames: largest number of simulated frames.
    until: deadline (value of ``time.monotonic``); None: no deadline.
    progress: function that is called with the number of newly simulated frames.
    """

    def __init__(
        self, frames: int, until: float | None = None, progress: Callable[[int], object] = lambda frames: None
    ):
        self._frames, self.until, self._progress = frames, until, progress
        self.simulated = 0  # frames simulated so far

    def part(self, frames: int) -> "FrameBudget":
        """Return a budget for a part of the stage, with at most the frames that are left."""
        return FrameBudget(min(frames, self.left), self.until, self.spend)

    def share(self, fraction: float) -> "FrameBudget":
        """Return a budget for a part of the stage, with a fraction of the frames and of the time that are left."""
        now = time.monotonic()
        until = None if self.until is None else now + fraction * max(self.until - now, 0.0)
        return FrameBudget(int(fraction * self.left), until, self.spend)

    def spend(self, frames: int) -> None:
        """Count simulated frames."""
        self.simulated += frames
        self._progress(frames)

    @property
    def left(self) -> int:
        """Number of frames left; 0 after the deadline."""
        if self.until is not None and time.monotonic() >= self.until:
            return 0
        return max(self._frames - self.simulated, 0)
