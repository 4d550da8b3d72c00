"""Ids of the game's levels in the notation of the community, such as ``SI-A-00-00``, ``SU-C-09-02`` and ``?-B-05``.

An id consists of a tab of the game's level menu, a row (A to E, or X), a column and a number.  Row and column select an
episode of five levels, the number one of these levels.  The levels of a file are in the order ``S-A-00-00`` to
``S-A-00-04``, ``S-B-00-00``, ..., ``S-E-19-04``; row X comes last.
The secret tabs have no episodes, so their ids end with the column.

    level_id("S", 489, 600)            # "S-C-19-04"
    level_id("SL2", 12, 240)           # "SL2-012": the ids of this file are not known
    episode_of("S-C-19-04")            # "S-C-19"

The source of the mapping is docs/campaign.md, section "Ids".
"""

import re
from typing import NamedTuple

LEVELS_OF_EPISODE = 5
ROWS = "ABCDE"
LAST_ROW = "X"


class Tab(NamedTuple):
    """One tab of the game's level menu, e.g. "Intro" or "Legacy"; each tab has one campaign file.

    code: first part of the ids.
    levels: number of levels in the tab's file.
    last_row: True if the last sixth of the file is row X.
    episodes: True if the levels form episodes; False for the secret tabs.
    """

    code: str
    levels: int
    last_row: bool = True
    episodes: bool = True


TABS = {  # name of the campaign file without suffix -> tab
    "SI": Tab("SI", 125, last_row=False),
    "S": Tab("S", 600),
    "S2": Tab("SU", 600),
    "SL": Tab("SL", 600),
    "SS": Tab("?", 120, episodes=False),
    "SS2": Tab("!", 120, episodes=False),
}


_ID = re.compile(rf"(?:(\w+|[?!])-)?[{ROWS}{LAST_ROW}]-\d\d(?:-\d\d)?", re.IGNORECASE)


def level_id(file: str, number: int, count: int) -> str:
    """Return the id of line ``number`` (from 0) of a campaign file.

    file: name of the file without suffix.  count: number of lines of the file.
    Incomplete files and files that are not in ``TABS`` have ids ``FILE-NUMBER`` with at least three digits.
    """
    tab = TABS.get(file.upper())
    if tab is None or tab.levels != count:
        return f"{file}-{number:03d}"
    episode, position = divmod(number, LEVELS_OF_EPISODE) if tab.episodes else (number, 0)
    regular = count // (LEVELS_OF_EPISODE if tab.episodes else 1)
    regular = regular * len(ROWS) // (len(ROWS) + 1) if tab.last_row else regular
    if episode < regular:
        column, row = divmod(episode, len(ROWS))
        episode_id = f"{tab.code}-{ROWS[row]}-{column:02d}"
    else:
        episode_id = f"{tab.code}-{LAST_ROW}-{episode - regular:02d}"
    return f"{episode_id}-{position:02d}" if tab.episodes else episode_id


def why_no_id(item: str, file: str, count: int) -> str:
    """Return why the lines of an incomplete campaign file have no ids of the game, if ``item`` is such an id; else "".

    file: name of the file without suffix.  count: number of lines of the file.
    """
    tab = TABS.get(file.upper())
    match = _ID.fullmatch(item)
    if tab is None or tab.levels == count or match is None or (match[1] or tab.code).upper() != tab.code:
        return ""
    return (
        f"{file}.txt has {count} lines instead of {tab.levels}, so its lines have the ids {file}-000, {file}-001, ..."
    )


def episode_of(level_id: str) -> str:
    """Return the id of the episode of a level, or "" for a level without an episode."""
    code = level_id.partition("-")[0]
    grouped = any(tab.code == code and tab.episodes for tab in TABS.values()) and level_id.count("-") == 3
    return level_id.rpartition("-")[0] if grouped else ""
