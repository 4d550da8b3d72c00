"""Stacks: the latest frames of an episode together, oldest first, for networks that are to see what has moved.

    sim = BatchSimulator(levels, 64, stacking=Stacking(state=4))
    sim.obs["game_state"]    # float32[64, 4, 26]; [:, -1] is what is seen now

Where an episode has had fewer frames, the places before its first one are padded: with zeros, or with that first frame.
A simulator carries its stacks along (``Stacks``).  Rollouts and datasets keep frames in a row, each of them once, and look up
where those of a stack are (``frames_back``).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nppsim.observe import layout

MOST_FRAMES = 12
PADDINGS = ("zero", "repeat")
STATE = "game_state"
_NAME = re.compile(r"(?:visual(\d+))?-?(?:state(\d+))?(-repeat)?")
ADVICE = (
    "frames are stacked. The state already holds velocities, timers and buffers, so that a network that reads it is not "
    "expected to gain, and stacks take memory and time: compare it with itself (--architectures NAME NAME+state4)"
)
HOW_NAMED = (
    f"visualN, stateM or visualN-stateM, N and M from 2 to {MOST_FRAMES}, and -repeat behind it for that padding"
)


@dataclass(frozen=True)
class Stacking:
    """How many frames are shown together; 1: the present one, without an axis for frames.

    visual: of ``player_frame`` and ``global_view``.
    state: of ``game_state``.
    padding: "zero" or "repeat", what stands in the places before an episode's first frame.
    Other observations are never stacked.
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
        """Whether anything is stacked."""
        return max(self.visual, self.state) > 1

    @property
    def name(self) -> str:
        """As it stands behind the + of an architecture's name; "" where nothing is stacked."""
        parts = [f"{what}{count}" for what, count in (("visual", self.visual), ("state", self.state)) if count > 1]
        return "-".join([*parts, self.padding] if parts and self.padding != PADDINGS[0] else parts)

    @classmethod
    def named(cls, name: str) -> "Stacking":
        """The stacks of that name; ValueError says how names are built."""
        found = _NAME.fullmatch(name)
        if found is not None:
            visual, state, repeat = found.groups()
            if all(count is None or 2 <= int(count) <= MOST_FRAMES for count in (visual, state)):
                stacking = cls(int(visual or 1), int(state or 1), PADDINGS[bool(repeat)])
                if stacking and stacking.name == name:
                    return stacking
        raise ValueError(f"give {HOW_NAMED}")

    def frames(self, key: str) -> int:
        """Frames of a key that are shown together."""
        return self.visual if key in layout.IMAGES else self.state if key == STATE else 1

    def stacked(self, keys: Iterable[str]) -> dict[str, int]:
        """Frames of each of these keys that is stacked."""
        return {key: self.frames(key) for key in keys if self.frames(key) > 1}

    def shape(self, key: str) -> tuple[int, ...]:
        """Shape of one observation of a key."""
        one = layout.SPECS[key].shape
        return (self.frames(key), *one) if self.frames(key) > 1 else one

    def bytes(self, keys: Iterable[str]) -> int:
        """Bytes of one observation of these keys."""
        return sum(self.frames(key) * layout.SPECS[key].bytes for key in keys)

    def useless(self, keys: Iterable[str]) -> list[str]:
        """What is to be stacked, but is none of these keys: "visual", "state"."""
        known = set(keys)
        absent = {
            "visual": self.visual > 1 and not known & set(layout.IMAGES),
            "state": self.state > 1 and STATE not in known,
        }
        return [name for name, is_absent in absent.items() if is_absent]


NO_STACKS = Stacking()


def frames_back(back: Any, age: Any) -> tuple[Any, Any]:
    """Where the frames of stacks are: (how many frames before the newest one, whether that place is padded).

    back: int[k], k - 1 to 0.
    age: int[n, 1], frames of the episode before the newest one; at most as many need be counted as a stack has.
    Both int[n, k] and bool[n, k], arrays or tensors as they are given; a padded place shows the episode's first frame, which
    whoever pads with zeros has to wipe out.
    """
    padded = back > age
    return back - (back - age) * padded, padded


class Stacks:
    """The stacks of N environments, as their simulator keeps them.

    latest, final: key -> [N, ...], the arrays that the kernel writes: what is seen now, and what was seen last of an episode
        that is over.
    obs, final_obs: the same where nothing is stacked, else key -> [N, frames, ...].
    """

    def __init__(self, stacking: Stacking, latest: Mapping[str, np.ndarray], final: Mapping[str, np.ndarray]):
        self.latest, self.final = dict(latest), dict(final)
        self._repeat = stacking.padding == "repeat"
        self._frames = stacking.stacked(self.latest)
        self.obs, self.final_obs = (
            given | {key: np.zeros((len(given[key]), *stacking.shape(key)), given[key].dtype) for key in self._frames}
            for given in (self.latest, self.final)
        )

    def move(self, envs: np.ndarray | slice) -> None:
        """The oldest frame goes, what was the newest is the one before: a decision is about to be made there."""
        for key, frames in self._frames.items():
            stack = self.obs[key]
            for place in range(frames - 1):
                stack[envs, place] = stack[envs, place + 1]

    def end(self, envs: np.ndarray) -> None:
        """The episodes of these environments are over: what was seen last, with what was seen before."""
        for key in self._frames:
            self.final_obs[key][envs, :-1] = self.obs[key][envs, :-1]
            self.final_obs[key][envs, -1] = self.final[key][envs]

    def show(self, envs: np.ndarray | slice = slice(None)) -> None:
        """What is seen now in these environments is the newest frame."""
        for key in self._frames:
            self.obs[key][envs, -1] = self.latest[key][envs]

    def begin(self, envs: np.ndarray) -> None:
        """Episodes begin in these environments with the newest frame: nothing was seen before it."""
        for key in self._frames:
            stack = self.obs[key]
            stack[envs, :-1] = stack[envs, -1:] if self._repeat else 0

    def rows(self, i: int | slice | np.ndarray) -> list[np.ndarray]:
        """uint8[..., B] of each stacked key: the stacks of environment i, or of several."""
        found = []
        for key in self._frames:
            stack = self.obs[key]
            part = np.ascontiguousarray(stack[i])
            several = part.shape[: part.ndim - stack.ndim + 1]  # () for one environment
            found.append(part.reshape(*several, stack[0].size).view(np.uint8))
        return found

    @property
    def row_bytes(self) -> int:
        """Bytes of all ``rows`` of an environment."""
        return sum(self.obs[key][0].nbytes for key in self._frames)

    def put(self, i: int | slice | np.ndarray, rows: np.ndarray) -> None:
        """Stacks as ``rows`` gave them, one key behind the other.  rows: uint8[..., B]."""
        begin = 0
        for key in self._frames:
            stack = self.obs[key]
            end = begin + stack[0].nbytes
            part = np.ascontiguousarray(rows[..., begin:end]).view(stack.dtype)
            stack[i] = part.reshape(*rows.shape[:-1], *stack.shape[1:])
            begin = end
