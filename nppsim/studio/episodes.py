"""Episodes of an agent for the page: run parts with the agent's decisions as documents.

decision document
    f        frame of the decision
    a        action 0..5;  p: probabilities of the six actions;  v: state value;  h: entropy of p, nats
    r        reward terms other than 0: {name: reward}
    note     additional text, such as the active subtask; may be missing
    s        observation before the decision: key of ``observe.layout`` -> flat list of rounded numbers, or base64 of
             uint8 for an image; axes in the order of the layout

A run part of an agent also has ``paths``: the path lengths from all points of a lattice of 12 px to the objective (the
exit switch, later the exit), valid from this decision on; null if they are unchanged since the previous run part.
Format: base64 of little-endian uint16[4539] (x is the slow axis), in steps of 1.2 px.
The values 65534 and 65535 mean that there is no path.
"""

from collections.abc import Sequence

import numpy as np

from nppsim import paths
from nppsim.bank import LevelBank
from nppsim.observe.layout import SPECS
from nppsim.studio.agents import Decision, StudioAgent
from nppsim.studio.documents import Document, packed_text
from nppsim.studio.game import Game
from nppsim.studio.writers import RunWriter

_DIGITS = 3  # decimal places of displayed numbers


class Episode:
    """One episode of an agent on a bank with a single level.

    game: the game being played.
    start: frame document of the first state.
    outcome: one of ``outcomes.NAMES``; None until the episode ends.
    """

    def __init__(self, bank: LevelBank, agent: StudioAgent, *, seed: int, deterministic: bool):
        self._writer = RunWriter(bank)
        self.game = self._writer.game
        self._fields = PathTracker(bank)
        self._decisions = agent.play(bank.levels[0], seed=seed, deterministic=deterministic)
        self.start = self._writer.start
        self.outcome: str | None = None
        self._inputs: list[np.ndarray] = []

    @property
    def inputs(self) -> np.ndarray:
        """Inputs played so far, uint8[frames]."""
        return np.concatenate([np.zeros(0, np.uint8), *self._inputs])

    def play(self, frames: int) -> list[Document]:
        """Play at least ``frames`` more frames, or to the end of the episode; return a run part per decision."""
        parts: list[Document] = []
        game = self.game
        until = game.frame + frames
        while game.frame < until and self.outcome is None:
            lengths, frame = self._fields.changed(game), game.frame
            decision = next(self._decisions)
            self._inputs.append(decision.inputs)
            self.outcome = decision.outcome
            parts.append(
                self._writer.play(decision.inputs) | {"decision": decision_document(decision, frame), "paths": lengths}
            )
        return parts

    def close(self) -> None:
        """Stop the agent."""
        self._decisions.close()


def decision_document(decision: Decision, frame: int) -> Document:
    """Return the document of a decision made at a frame."""
    document: Document = {
        "f": frame,
        "a": decision.action,
        "p": _numbers(decision.probabilities, 4),
        "v": round(decision.value, _DIGITS),
        "h": round(decision.entropy, _DIGITS),
        "r": {name: round(reward, 5) for name, reward in decision.terms.items() if reward},
        "s": {key: _observation_value(key, values) for key, values in decision.seen.items()},
    }
    return document | ({"note": decision.note} if decision.note else {})


def _observation_value(key: str, values: np.ndarray) -> str | list[float]:
    return packed_text(values) if SPECS[key].dtype == "uint8" else _numbers(values, _DIGITS)


def _numbers(values: np.ndarray, digits: int) -> list[float]:
    return np.round(values.astype(np.float64).ravel(), digits).tolist()


def layout_document(keys: Sequence[str]) -> Document:
    """Describe ``s`` of a decision document: key -> description of the observation.

    Each description is {"shape", "picture": true for an image, "components": names along the last axis}.
    """
    return {
        key: {
            "shape": list(SPECS[key].shape),
            "picture": SPECS[key].dtype == "uint8",
            "components": list(SPECS[key].components),
        }
        for key in keys
    }


class PathTracker:
    """Path lengths of a game's current state, recomputed when a door or an exit changes.  bank: has a single level."""

    def __init__(self, bank: LevelBank):
        self._bank = bank
        self._before: bytes | None = None

    def changed(self, game: Game) -> str | None:
        """Return the path lengths as ``paths`` of a run part; None if they have not changed since the last call."""
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
        distance, next_step = np.empty_like(self._bank.paths.distance[0]), np.empty_like(self._bank.paths.next_step[0])
        paths.compute_fields(self._bank.world, *self._bank.paths.lattice(0), 0, closed, opened, distance, next_step)
        return packed_text(distance[taken].astype("<u2"))
