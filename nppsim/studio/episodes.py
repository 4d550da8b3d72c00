"""Episodes of agents that the server plays, as messages to the page.

A request (``agent_routes.PLAY``) is {"maps": [base64 of map files], "episodes", "seed", "deterministic", "inputs": base64 of
inputs to play first, "endings_only", "live": clock of live play or ""}.  The messages are those of
``nppsim/wasm/agent_worker.js``; decisions of live play also have "thinks" and "ahead" (``agents.Decision``):

    {"layout"}                 before the first decision: key of ``observe.layout`` -> {"shape", "picture", "components"}
    {"decisions": [...]}       see ``decision_document``
    {"ending": [index of the map, outcome, frames, x, y, share], "why"}   end of an episode (``agents.EpisodeEnd``), and
                               why it is lost (``Ending.text``), with one episode only
    {"error"}                  a message for people; the last line

Without ``endings_only``, there is one map and one episode.
"""

from collections.abc import Generator, Sequence
from contextlib import closing

import numpy as np

from nppsim import paths
from nppsim.bank import LevelBank
from nppsim.levels.level import Level
from nppsim.observe.layout import SPECS
from nppsim.physics.outcomes import UNFINISHED
from nppsim.replays.ending import ending_of
from nppsim.studio.agents import CLOCKS, Decision, StudioAgent, layout_document
from nppsim.studio.documents import Document, input_bytes, level_of, packed_text
from nppsim.studio.errors import StudioError
from nppsim.studio.game import Game

MAX_LEVELS, MAX_EPISODES = 1000, 4000  # maximum numbers per request
_MAX_SEED = (1 << 53) - 1  # largest integer that JavaScript represents exactly
_DIGITS = 3  # decimal places of displayed numbers


def messages(agent: StudioAgent, request: Document) -> Generator[Document, None, None]:
    """Play episodes and yield the messages (see above).  request: PLAY.  Raises StudioError for an invalid request."""
    levels = [level_of(data) for data in request["maps"]]
    if not (1 <= len(levels) <= MAX_LEVELS and 1 <= request["episodes"] * len(levels) <= MAX_EPISODES):
        raise StudioError(f"an agent plays 1 to {MAX_EPISODES:,} episodes on at most {MAX_LEVELS:,} levels")
    if not 0 <= request["seed"] <= _MAX_SEED:
        raise StudioError(f"a seed is a number from 0 to {_MAX_SEED}")
    if request["live"] not in ("", *CLOCKS):
        raise StudioError(f"clocks of live play are {', '.join(CLOCKS)}")
    settings = {"seed": request["seed"], "deterministic": request["deterministic"]}
    if not request["endings_only"]:
        return _episode(agent, levels[0], input_bytes(request["inputs"]), settings | {"live": request["live"]})
    return _endings(agent, levels, request["episodes"], settings)


def _episode(
    agent: StudioAgent, level: Level, inputs: np.ndarray, settings: Document
) -> Generator[Document, None, None]:
    game = Game(level)
    game.play(inputs)
    if game.outcome != UNFINISHED:
        raise StudioError("the run has ended there; give an earlier frame")
    yield {"layout": layout_document(agent.observations)}
    tracker, start = PathTracker(game.bank), game.start if len(inputs) else None
    played = [inputs]
    with closing(agent.play(game.level, **settings, start=start)) as decisions:
        for decision in decisions:
            yield {"decisions": [decision_document(decision, game.frame) | {"paths": tracker.changed(game)}]}
            game.play(decision.inputs)
            played.append(decision.inputs)
    ending = ending_of(level, np.concatenate(played))
    numbers = [0, decision.outcome, ending.frames, *ending.place, ending.share]
    yield {"ending": numbers, "why": ending.text(decision.backtracks)}


def _endings(
    agent: StudioAgent, levels: Sequence[Level], episodes: int, settings: Document
) -> Generator[Document, None, None]:
    with closing(agent.evaluate(levels, episodes, **settings)) as endings:
        for ending in endings:
            yield {"ending": [ending.level, ending.outcome, ending.frames, ending.x, ending.y, ending.share]}


def decision_document(decision: Decision, frame: int) -> Document:
    """Return the document of a decision made at a frame, as in ``nppsim/wasm/agent.js``.

    Observations are flat lists of rounded numbers, or base64 of uint8; inputs are base64.
    """
    return {
        "f": frame,
        "a": decision.action,
        "p": _numbers(decision.probabilities, 4),
        "v": round(decision.value, _DIGITS),
        "h": round(decision.entropy, _DIGITS),
        "r": {name: round(reward, 5) for name, reward in decision.terms.items() if reward},
        "s": {key: _observation_value(key, values) for key, values in decision.seen.items()},
        "inputs": packed_text(decision.inputs),
        "outcome": decision.outcome,
        "note": decision.note,
        "thinks": decision.thinks,
        "ahead": decision.ahead,
    }


def _observation_value(key: str, values: np.ndarray) -> str | list[float]:
    return packed_text(values) if SPECS[key].dtype == "uint8" else _numbers(values, _DIGITS)


def _numbers(values: np.ndarray, digits: int) -> list[float]:
    return np.round(values.astype(np.float64).ravel(), digits).tolist()


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
