"""Frame stacking: the latest frames of an episode, oldest first.

    sim = BatchSimulator(levels, 64, stacking=Stacking(state=4))
    sim.obs["game_state"]    # float32[64, 4, 26]; [:, -1] is the current frame

At the start of an episode, missing frames are padded with zeros or with the first frame.  A simulator stores its stacks
(``Stacks``).  Rollouts and datasets store each frame once and gather stacks by index (``frames_back``).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nppsim.observe import layout

MOST_FRAMES = 12  # maximum number of frames in a stack
PADDINGS = ("zero", "repeat")
STATE = "game_state"
_NAME = re.compile(r"(?:visual(\d+))?-?(?:state(\d+))?(-repeat)?")
ADVICE = (
    "frames are stacked. The state already contains velocities, timers and buffers, so stacking is unlikely to help a "
    "network that reads it, and costs memory and time: compare with and without (--architectures NAME NAME+state4)"
)
NAME_SYNTAX = f"visualN, stateM or visualN-stateM, N and M from 2 to {MOST_FRAMES}; append -repeat for repeat padding"


@dataclass(frozen=True)
class Stacking:
    """Number of stacked frames.  1 disables stacking: the observation has no axis for frames.

    visual: frames of ``player_frame`` and ``global_view``.
    state: frames of ``game_state``.  Other observations are never stacked.
    padding: content of the positions before an episode's first frame: "zero", or "repeat" for a copy of the first frame.
    """

    visual: int = 1
    state: int = 1
    padding: str = "zero"

    def __post_init__(self) -> None:
        for count in (self.visual, self.state):
            if not 1 <= count <= MOST_FRAMES:
                raise ValueError(f"a stack of {count} frames: give 1 to {MOST_FRAMES}")
        if self.padding not in PADDINGS:
            raise ValueError(f"padding {self.padding!r}: give {' or '.join(PADDINGS)}")

    def __bool__(self) -> bool:
        """True if any key is stacked."""
        return max(self.visual, self.state) > 1

    @property
    def name(self) -> str:
        """Suffix of an architecture's name, without the "+"; "" if no key is stacked."""
        parts = [f"{what}{count}" for what, count in (("visual", self.visual), ("state", self.state)) if count > 1]
        return "-".join([*parts, self.padding] if parts and self.padding != PADDINGS[0] else parts)

    @classmethod
    def named(cls, name: str) -> "Stacking":
        """Parse a ``name``; raise ValueError with a description of the syntax if it is invalid."""
        match = _NAME.fullmatch(name)
        if match is not None:
            visual, state, repeat = match.groups()
            if all(count is None or 2 <= int(count) <= MOST_FRAMES for count in (visual, state)):
                stacking = cls(int(visual or 1), int(state or 1), PADDINGS[bool(repeat)])
                if stacking and stacking.name == name:
                    return stacking
        raise ValueError(f"give {NAME_SYNTAX}")

    def frames(self, key: str) -> int:
        """Return the number of stacked frames of a key."""
        return self.visual if key in layout.IMAGES else self.state if key == STATE else 1

    def stacked(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the number of frames of each stacked key."""
        return {key: self.frames(key) for key in keys if self.frames(key) > 1}

    def shape(self, key: str) -> tuple[int, ...]:
        """Return the shape of one observation of a key."""
        frame_shape = layout.SPECS[key].shape
        return (self.frames(key), *frame_shape) if self.frames(key) > 1 else frame_shape

    def bytes(self, keys: Iterable[str]) -> int:
        """Return the bytes of one observation of these keys."""
        return sum(self.frames(key) * layout.SPECS[key].bytes for key in keys)

    def inapplicable(self, keys: Iterable[str]) -> list[str]:
        """Return the names ("visual", "state") of the stack sizes above 1 that apply to none of ``keys``."""
        of_field = {"visual": {*layout.IMAGES}, "state": {STATE}}
        return [name for name, stacked in of_field.items() if getattr(self, name) > 1 and stacked.isdisjoint(keys)]


NO_STACKS = Stacking()


def frames_back(back: Any, age: Any) -> tuple[Any, Any]:
    """Return the offset of each frame of n stacks from the newest frame, int[n, k], and a padding mask, bool[n, k].

    back: int[k], the numbers k - 1 to 0.
    age: int[n, 1], number of earlier frames of the episode; all values from k - 1 on are equivalent.
    Arguments and results are arrays or tensors.  Padded positions refer to the episode's first frame; for padding with
    zeros, the caller must overwrite them.
    """
    padded = back > age
    return back - (back - age) * padded, padded


class Stacks:
    """Frame stacks of the N environments of a simulator.

    latest, final: key -> [N, ...], arrays written by the kernel: current observations, and last observations of finished
        episodes.
    obs, final_obs: key -> [N, frames, ...] for stacked keys; the arrays of ``latest`` and ``final`` for other keys.
    """

    def __init__(self, stacking: Stacking, latest: Mapping[str, np.ndarray], final: Mapping[str, np.ndarray]):
        self.latest, self.final = dict(latest), dict(final)
        self._repeat = stacking.padding == "repeat"
        self._frames = stacking.stacked(self.latest)
        self.obs, self.final_obs = (
            observations
            | {
                key: np.zeros((len(observations[key]), *stacking.shape(key)), observations[key].dtype)
                for key in self._frames
            }
            for observations in (self.latest, self.final)
        )

    def shift(self, envs: np.ndarray | slice) -> None:
        """Shift the stacks by one frame, before a decision."""
        for key, frames in self._frames.items():
            stack = self.obs[key]
            for frame in range(frames - 1):
                stack[envs, frame] = stack[envs, frame + 1]

    def write_final(self, envs: np.ndarray) -> None:
        """Write ``final_obs`` of environments whose episode ended."""
        for key in self._frames:
            self.final_obs[key][envs, :-1] = self.obs[key][envs, :-1]
            self.final_obs[key][envs, -1] = self.final[key][envs]

    def write_latest(self, envs: np.ndarray | slice = slice(None)) -> None:
        """Write the current observation as the newest frame."""
        for key in self._frames:
            self.obs[key][envs, -1] = self.latest[key][envs]

    def pad(self, envs: np.ndarray) -> None:
        """Start an episode: pad all positions before the newest frame."""
        for key in self._frames:
            stack = self.obs[key]
            stack[envs, :-1] = stack[envs, -1:] if self._repeat else 0

    def rows(self, i: int | slice | np.ndarray) -> list[np.ndarray]:
        """Copy the stacks of one or several environments: uint8[..., bytes of one stack] for each stacked key."""
        parts = []
        for key in self._frames:
            stack = self.obs[key]
            part = np.ascontiguousarray(stack[i])
            several = part.shape[: part.ndim - stack.ndim + 1]  # () for one environment
            parts.append(part.reshape(*several, stack[0].size).view(np.uint8))
        return parts

    @property
    def row_bytes(self) -> int:
        """Total bytes of the ``rows`` of one environment."""
        return sum(self.obs[key][0].nbytes for key in self._frames)

    def restore(self, i: int | slice | np.ndarray, rows: np.ndarray) -> None:
        """Restore stacks from the concatenated results of ``rows``, uint8[..., B]."""
        begin = 0
        for key in self._frames:
            stack = self.obs[key]
            end = begin + stack[0].nbytes
            part = np.ascontiguousarray(rows[..., begin:end]).view(stack.dtype)
            stack[i] = part.reshape(*rows.shape[:-1], *stack.shape[1:])
            begin = end
