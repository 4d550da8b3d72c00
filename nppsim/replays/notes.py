"""One-line notes about levels: par time, and results of the runs in a replay set."""

from collections.abc import Sequence

from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelEntry
from nppsim.physics.outcomes import DIED, NAMES, WON
from nppsim.replays.replay_set import ReplaySet
from nppsim.replays.score import time_text


def level_notes(
    levels: Sequence[Level], entries: Sequence[LevelEntry], path: str | None
) -> tuple[list[str], list[str]]:
    """Return two lists: a note per level, and the outcome of each level's best run ("won", "died", or "" without runs).

    path: path of a replay set with runs of the levels, or None to report only the par times.
    """
    played: dict[str, list[int | None]] = {}  # fingerprint of a level -> frames of each run, None unless it wins
    if path is not None:
        with ReplaySet(path) as replays:
            for replay in map(replays.entry, range(len(replays))):
                played.setdefault(replay.level_fingerprint, []).append(replay.frames if replay.success else None)
    notes, outcomes = [], []
    for level, entry in zip(levels, entries, strict=True):
        runs = played.get(level.fingerprint, [])
        wins = [frames for frames in runs if frames is not None]
        parts = [] if entry.par_frames is None else [f"par {time_text(entry.par_frames)}"]
        if runs:
            best = f", {time_text(min(wins))}" if wins else ""
            parts.append(f"finished {len(wins)} of {len(runs)}{best}")
        elif path is not None:
            parts.append("not played")
        notes.append(", ".join(parts))
        outcomes.append(NAMES[WON] if wins else NAMES[DIED] if runs else "")
    return notes, outcomes
