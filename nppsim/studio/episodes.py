"""An agent's episode for the page: played a little at a time, with what the agent thought, as documents.

decision document
    f        frame at which it was made
    a        action 0..5;  p: probabilities of the six actions;  v: value;  h: entropy, nats
    r        reward terms that are not 0: {name: reward}
    note     such as the current subtask, or absent
    s        what the agent saw: key of ``observe.layout`` -> numbers of a vector in a flat list, rounded; a picture as
             base64 of uint8, in the layout's order of axes

``way`` of a run part: base64 of little-endian uint16[4539], the length of the path to the objective from each point of a
lattice of 12 px, x first, in steps of 1.2 px (65534 and 65535: none), from that decision on; null if unchanged.
"""

from collections.abc import Sequence

import numpy as np

from nppsim import paths
from nppsim.bank import LevelBank
from nppsim.observe.layout import SPECS
from nppsim.studio.agents import Agent, Decision
from nppsim.studio.documents import Document, RunWriter, packed_text
from nppsim.studio.game import Game

_DIGITS = 3  # of numbers that people read


class Episode:
    """One episode of an agent on a bank's only level, as far as it was played.

    start: the frame document of the start.
    outcome: one of ``outcomes.NAMES``, None while it goes on.
    """

    def __init__(self, bank: LevelBank, agent: Agent, *, seed: int, deterministic: bool):
        self._writer = RunWriter(bank)
        self._fields = PathFields(bank)
        self._decisions = agent.play(bank.levels[0], seed=seed, deterministic=deterministic)
        self.start = self._writer.start
        self.outcome: str | None = None
        self._pressed: list[np.ndarray] = []

    @property
    def game(self) -> Game:
        """The game that it plays."""
        return self._writer.game

    @property
    def frame(self) -> int:
        """Frames played."""
        return self._writer.game.frame

    @property
    def inputs(self) -> np.ndarray:
        """uint8[frames] so far."""
        return np.concatenate([np.zeros(0, np.uint8), *self._pressed])

    def play(self, frames: int) -> list[Document]:
        """Play on for at least so many frames, or to the end: a run part per decision, with ``decision`` and ``way``."""
        parts: list[Document] = []
        game = self._writer.game
        until = game.frame + frames
        while game.frame < until and self.outcome is None:
            way, frame = self._fields.changed(game), game.frame
            one = next(self._decisions)
            self._pressed.append(one.inputs)
            self.outcome = one.outcome
            parts.append(self._writer.play(one.inputs) | {"decision": decision_document(one, frame), "way": way})
        return parts

    def close(self) -> None:
        """Play no further."""
        self._decisions.close()


def decision_document(one: Decision, frame: int) -> Document:
    """The document of a decision made at a frame."""
    document: Document = {
        "f": frame,
        "a": one.action,
        "p": _numbers(one.probabilities, 4),
        "v": round(one.value, _DIGITS),
        "h": round(one.entropy, _DIGITS),
        "r": {name: round(reward, 5) for name, reward in one.terms.items() if reward},
        "s": {key: _seen(key, values) for key, values in one.seen.items()},
    }
    return document | ({"note": one.note} if one.note else {})


def _seen(key: str, values: np.ndarray) -> str | list[float]:
    """Encode the observation of one key."""
    return packed_text(values) if SPECS[key].dtype == "uint8" else _numbers(values, _DIGITS)


def _numbers(values: np.ndarray, digits: int) -> list[float]:
    return np.round(values.astype(np.float64).ravel(), digits).tolist()


def layout_document(keys: Sequence[str]) -> Document:
    """Layout of ``s``: key -> {"shape", "picture": whether it is one, "components": names along the last axis}."""
    return {
        key: {
            "shape": list(SPECS[key].shape),
            "picture": SPECS[key].dtype == "uint8",
            "components": list(SPECS[key].components),
        }
        for key in keys
    }


class PathFields:
    """Path lengths of a game's current state, recomputed when a door or an exit changes.  bank: of one level."""

    def __init__(self, bank: LevelBank):
        self._bank = bank
        self._before: bytes | None = None

    def changed(self, game: Game) -> str | None:
        """Return the field as ``way`` above; None if it has not changed since the last call."""
        record, entities = self._bank.world.level[0], game.entities
        base = record["entity_first"]
        doors = slice(record["switches_first"] - base, record["switches_end"] - base)
        exits = slice(record["exits_first"] - base, record["exits_end"] - base)
        closed = entities["closed"][doors].astype(np.uint8)
        opened = (entities["clock"][exits] > 0).astype(np.uint8)
        taken = int(game.ninja["switch_taken"] != 0)
        key = closed.tobytes() + opened.tobytes() + bytes([taken])
        if key == self._before:
            return None
        self._before = key
        distance, hop = np.empty_like(self._bank.paths.distance[0]), np.empty_like(self._bank.paths.hop[0])
        paths.compute_fields(self._bank.world, *self._bank.paths.lattice(0), 0, closed, opened, distance, hop)
        return packed_text(distance[taken].astype("<u2"))
