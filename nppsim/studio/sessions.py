"""Live play: one game per socket, advanced by exactly the frames that the page requests (protocol: docs/lab/studio.md).

A session stores all inputs of its game, and a snapshot of the state every SNAPSHOT_EVERY frames; less often on levels
with large states.
A rewind restores the last earlier snapshot and replays the inputs from there.
In an episode, five levels are played in their order, and the session adds up their frames and gold.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from anyio import to_thread
from starlette.websockets import WebSocket

from nppsim.actions import ACTION_INPUT
from nppsim.bank import LevelBank
from nppsim.io.reading import mismatch
from nppsim.levels.ids import episode_of
from nppsim.physics.outcomes import NAMES, UNFINISHED, WON
from nppsim.studio.documents import (
    MAX_RUN_FRAMES,
    Document,
    FrameWriter,
    RunWriter,
    input_bytes,
    packed_text,
    run_document,
)
from nppsim.studio.errors import StudioError
from nppsim.studio.game import Game
from nppsim.studio.leaderboard import PERSON, Leaderboard
from nppsim.studio.library import Library
from nppsim.studio.recordings import Recordings
from nppsim.studio.sockets import HELP, BackgroundTasks, serve

SNAPSHOT_EVERY = 60  # minimum number of frames between snapshots
SNAPSHOT_BYTES = 16 << 20  # maximum bytes of snapshots per session
MAX_STEP = 600  # maximum number of frames that a message may request
MAX_SESSIONS = 64
MAX_LABEL = 100  # characters
_SHAPES: dict[str, Any] = {
    "step": [int],
    "rewind": int,
    "store": {"label": str},
    "score": {"name": str},
    "start": str,
    "edit": {"frame": int, "inputs": str},
    "run": str,
    "preview": int,
}
PREVIEW_FRAMES = 60  # the paths of all six actions from a frame on are shown; frames for which each action lasts


class Session:
    """One game and its inputs.

    library: source of the levels.
    recordings: storage for runs that the person at the page stores.
    leaderboard: storage for the results of runs that win.
    """

    def __init__(self, library: Library, recordings: Recordings, leaderboard: Leaderboard):
        self._library, self._recordings, self._leaderboard = library, recordings, leaderboard
        self._started = False
        self._episode: list[str] = []  # ids of the levels of the episode that is played
        self._frames = self._gold = 0  # sums over the levels of the episode that were won before the current one

    def answer(self, message: Any) -> Document:
        """Handle a message from the page and return the answer.

        Raises UserError for an invalid request, which leaves the game unchanged.
        """
        verbs = [verb for verb in _SHAPES if isinstance(message, dict) and verb in message]
        allowed = {*verbs, "inputs", "episode"} if verbs == ["start"] else {*verbs}
        if len(verbs) != 1 or message.keys() - allowed:
            raise StudioError(f"a message has one of {', '.join(_SHAPES)}; {HELP}")
        verb = verbs[0]
        if wrong := mismatch(message, {verb: _SHAPES[verb]}):
            raise StudioError(f"{wrong}; {HELP}")
        if verb == "start":
            inputs = input_bytes(message.get("inputs", ""))
            self._enter_episode(message["start"], message.get("episode"))
            return self._start(message["start"], inputs)
        if not self._started:
            raise StudioError("no level has been started on this socket")
        handlers: dict[str, Callable[[Any], Document]] = {
            "step": self._step,
            "rewind": self._rewind,
            "store": lambda about: self._store(about["label"]),
            "score": lambda about: self._score(about["name"]),
            "edit": lambda change: self._edit(change["frame"], input_bytes(change["inputs"])),
            "run": lambda inputs: {"run": run_document(self._game.bank, input_bytes(inputs))},
            "preview": self._preview,
        }
        return handlers[verb](message[verb])

    def _enter_episode(self, id: str, code: Any) -> None:
        """Prepare the start of a level as part of the episode ``code``, or alone if ``code`` is no episode."""
        if code is None:
            self._episode, self._frames, self._gold = [], 0, 0
            return
        levels = self._library.episode(str(code))
        if id not in levels:
            raise StudioError(f"the level is not in the episode {code}")
        if self._episode == levels and self._id == id:  # the same level again
            return
        if levels[0] == id:
            self._episode, self._frames, self._gold = levels, 0, 0
            return
        before = levels[levels.index(id) - 1]
        if self._episode != levels or self._id != before or self._game.outcome != NAMES[WON]:
            raise StudioError("the level before it has not been won; start the episode again")
        self._frames += len(self._inputs)
        self._gold += int(self._game.ninja["gold"])

    def _start(self, id: str, inputs: np.ndarray) -> Document:
        bank = self._library.bank(id)
        _check_length(len(inputs))
        self._game, self._id, self._started = Game(bank), id, True
        self._writer = FrameWriter(self._game)
        self._run_writer = RunWriter(bank, self._game, self._play)
        self._inputs = bytearray()
        self._snapshots = [self._game.snapshot()]
        self._snapshot_interval = max(SNAPSHOT_EVERY, -(-MAX_RUN_FRAMES * self._snapshots[0].nbytes // SNAPSHOT_BYTES))
        self._play(inputs)
        return {"level": id, "frame": self._frame(all=True)}

    def _step(self, inputs: list[int]) -> Document:
        if len(inputs) > MAX_STEP or any(not 0 <= byte <= 15 for byte in inputs):
            raise StudioError(f"step takes at most {MAX_STEP} input bytes, each 0 to 15")
        _check_length(len(self._inputs) + len(inputs))
        frames = []
        for byte in inputs:
            if not self._play(np.array([byte], np.uint8)):
                break
            frames.append(self._frame())
        return {"frames": frames}

    def _rewind(self, frame: int) -> Document:
        self._return_to(frame)
        return {"frame": self._frame(all=True)}

    def _edit(self, frame: int, inputs: np.ndarray) -> Document:
        """Replace all inputs after a frame; return the frames after it as a run part."""
        _check_length(frame + len(inputs))
        self._return_to(frame)
        self._run_writer.jumped()
        return {"part": self._run_writer.play(inputs)}

    def _preview(self, frame: int) -> Document:
        """Return the path [[x, y], ...] and the outcome for each action, held from a frame on."""
        inputs, branches = bytes(self._inputs), []
        self._return_to(frame)
        state = self._game.snapshot()
        for byte in ACTION_INPUT:
            self._game.restore(state)
            path = [_place(self._game)]
            while len(path) <= PREVIEW_FRAMES and self._game.play(np.array([byte], np.uint8)):
                path.append(_place(self._game))
            branches.append({"points": path, "outcome": self._game.outcome})
        self._game.restore(state)
        self._play(np.frombuffer(inputs[frame:], np.uint8))
        return {"preview": branches}

    def prefix(self, frame: int) -> tuple[LevelBank, np.ndarray]:
        """Return the bank of the level, and the inputs up to a frame at which the run has not ended."""
        if not self._started:
            raise StudioError("no level has been started on this socket")
        self._check_frame(frame)
        inputs = np.frombuffer(bytes(self._inputs[:frame]), np.uint8)
        if self._game.outcome != UNFINISHED and frame >= len(self._inputs):
            raise StudioError("the run has ended there; give an earlier frame")
        return self._game.bank, inputs

    def _check_frame(self, frame: int) -> None:
        if not 0 <= frame <= len(self._inputs):
            raise StudioError(f"cannot go to frame {frame}: give one from 0 to {len(self._inputs)}")

    def _return_to(self, frame: int) -> None:
        """Restore the state after a frame and forget the inputs after it."""
        self._check_frame(frame)
        snapshot = frame // self._snapshot_interval
        replayed = np.frombuffer(bytes(self._inputs[snapshot * self._snapshot_interval : frame]), np.uint8)
        self._game.restore(self._snapshots[snapshot])
        self._game.play(replayed)
        del self._inputs[frame:], self._snapshots[snapshot + 1 :]

    def _store(self, label: str) -> Document:
        if len(label) > MAX_LABEL:
            raise StudioError(f"the label has {len(label)} characters; at most {MAX_LABEL} are allowed")
        if not label.isprintable():
            raise StudioError(f"the label {label!r} has unprintable characters; use printable ones")
        inputs = np.frombuffer(bytes(self._inputs), np.uint8)
        level, category = self._game.level, self._library.level(self._id).category
        gold = int(self._game.ninja["gold"])
        return {"stored": self._recordings.store(level, inputs, self._game.outcome, label, category, gold).card()}

    def _score(self, name: str) -> Document:
        """Add the run that has just won to the leaderboard; return the best runs of the level.

        With the last level of an episode, also add the episode, and return its best runs as "episode".
        """
        if self._game.outcome != NAMES[WON]:
            raise StudioError("the run has not won, so it has no score")
        if not 0 < len(name) <= MAX_LABEL:
            raise StudioError(f"the name {name!r} needs 1 to {MAX_LABEL} characters")
        frames, gold = len(self._inputs), int(self._game.ninja["gold"])
        self._leaderboard.add(self._id, PERSON, name, frames, gold)
        answer = {"best": self._leaderboard.best(self._id)}
        if self._episode and self._episode[-1] == self._id:
            code = episode_of(self._game.level.id)
            frames, gold = self._frames + frames, self._gold + gold
            self._leaderboard.add(code, PERSON, name, frames, gold, levels=len(self._episode))
            answer["episode"] = self._leaderboard.best(code)
        return answer

    def _play(self, inputs: np.ndarray) -> int:
        """Play inputs, store them and the snapshots that fall due, and return the number of frames played."""
        played = 0
        while played < len(inputs):
            part = inputs[played : played + self._snapshot_interval - len(self._inputs) % self._snapshot_interval]
            frames = self._game.play(np.ascontiguousarray(part))
            self._inputs += part[:frames].tobytes()
            played += frames
            if frames and len(self._inputs) % self._snapshot_interval == 0:
                self._snapshots.append(self._game.snapshot())
            if frames < len(part):
                break
        return played

    def _frame(self, all: bool = False) -> Document:
        if all:
            self._writer.reset()
        return self._writer.frame(self._inputs[-1] if self._inputs else 0)


def _place(game: Game) -> list[float]:
    return [round(float(game.ninja["x"]), 1), round(float(game.ninja["y"]), 1)]


async def _continued(studio: Any, session: Session, message: Any) -> Document:
    """Let an agent play on from a frame; return {"inputs": base64 of the inputs after it, "name"}."""
    if wrong := mismatch(message, {"continue": {"frame": int, "agent": str}}):
        raise StudioError(f"{wrong}; {HELP}")
    request = message["continue"]
    bank, inputs = session.prefix(request["frame"])

    def played() -> Document:
        agent = studio.registry.agent(request["agent"])
        game = Game(bank)
        game.play(inputs)
        decisions = agent.play(bank.levels[0], deterministic=True, start=game.start)
        pressed = np.concatenate([one.inputs for one in decisions])
        return {"inputs": packed_text(pressed), "name": agent.name}

    return await to_thread.run_sync(played, limiter=studio.limiter)


def _check_length(frames: int) -> None:
    if frames > MAX_RUN_FRAMES:
        raise StudioError(f"a run has at most {MAX_RUN_FRAMES:,} frames; store it and start again")


async def play(socket: WebSocket) -> None:
    """Serve one play socket until it closes."""
    studio = socket.app.state.studio
    session = Session(studio.library, studio.recordings, studio.leaderboard)

    async def answer(message: Any, _: BackgroundTasks) -> Document:
        if isinstance(message, dict) and "continue" in message:
            return await _continued(studio, session, message)
        if isinstance(message, dict) and "step" in message:
            return session.answer(message)
        return await to_thread.run_sync(session.answer, message)

    await serve(socket, studio.sessions, session, MAX_SESSIONS, answer)
