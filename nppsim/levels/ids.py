"""Ids of the game's levels as the community writes them, such as ``SI-A-00-00``, ``SU-C-09-02`` and ``?-B-05``.

An id has the code of the tab, the row (A to E, then X), the column, and the number within an episode of five levels.  The
levels of a file follow the columns: ``S-A-00-00`` to ``S-A-00-04``, ``S-B-00-00``, ..., ``S-E-19-04``, and then row X.
The secret tabs have no episodes; their ids end with the column.

    level_id("S", 489, 600)            # "S-C-19-04"
    level_id("SL2", 12, 240)           # "SL2-012": the ids of this file are not known

The source of the mapping is docs/campaign.md, section "Ids".
"""

from typing import NamedTuple

LEVELS_OF_EPISODE = 5
ROWS = "ABCDE"
LAST_ROW = "X"


class Tab(NamedTuple):
    """One tab of the game.

    code: as in ids.
    levels: lines of its file.
    last_row: True if the last sixth of the file is row X.
    episodes: False for the secret tabs, whose ids have no number within an episode.
    """

    code: str
    levels: int
    last_row: bool = True
    episodes: bool = True


TABS = {
    "SI": Tab("SI", 125, last_row=False),
    "S": Tab("S", 600),
    "S2": Tab("SU", 600),
    "SL": Tab("SL", 600),
    "SS": Tab("?", 120, episodes=False),
    "SS2": Tab("!", 120, episodes=False),
}  # by the name of the file


def level_id(file: str, number: int, count: int) -> str:
    """Return the id of line ``number`` (from 0) of a campaign file.

    file: its name without suffix.  count: its number of lines; the community's ids are known for complete files only.
    Other files have the ids ``FILE-NUMBER``, with three digits or more.
    """
    tab = TABS.get(file.upper())
    if tab is None or tab.levels != count:
        return f"{file}-{number:03d}"
    episode, place = divmod(number, LEVELS_OF_EPISODE) if tab.episodes else (number, 0)
    regular = count // (LEVELS_OF_EPISODE if tab.episodes else 1)
    regular = regular * len(ROWS) // (len(ROWS) + 1) if tab.last_row else regular
    if episode < regular:
        column, row = divmod(episode, len(ROWS))
        found = f"{tab.code}-{ROWS[row]}-{column:02d}"
    else:
        found = f"{tab.code}-{LAST_ROW}-{episode - regular:02d}"
    return f"{found}-{place:02d}" if tab.episodes else found
