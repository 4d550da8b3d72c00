"""Replace the prefix ``campaign:`` of command-line arguments by the folder with the game's levels.

``nppsim-campaign.toml`` in the current folder contains one line, ``folder = "PATH"``.  Every command then replaces

    campaign:                by  PATH
    campaign:S.txt#12        by  PATH/S.txt#12
    campaign:S-C-12-03       by  PATH#S-C-12-03
"""

import os
import re

from nppsim.errors import ConfigError
from nppsim.io.reading import read_toml

FILE = "nppsim-campaign.toml"
PREFIX = "campaign:"
_ARGUMENT = re.compile(rf"(--[\w-]+=)?{PREFIX}(.*)", re.DOTALL)  # campaign:S.txt or --levels=campaign:S.txt
_MAX_BYTES = 1 << 16
_REMEDY = f'write the line folder = "PATH OF THE GAME\'S LEVELS" in {FILE}, in the current folder'


def expanded(argument: str) -> str:
    """Return the argument with the prefix replaced by the folder; other arguments are returned unchanged.

    Raises ConfigError if the file or the folder is missing.
    """
    match = _ARGUMENT.fullmatch(argument)
    if not match:
        return argument
    if not os.path.exists(FILE):
        raise ConfigError(f"there is no {FILE}; {_REMEDY}", PREFIX)
    folder = read_toml(FILE, ConfigError, _MAX_BYTES, _REMEDY).get("folder")
    if not isinstance(folder, str):
        raise ConfigError(f"has no folder; {_REMEDY}", FILE)
    folder = os.path.expanduser(folder)
    if not os.path.isdir(folder):
        raise ConfigError(f"this folder does not exist; correct it in {FILE}", "folder", folder)
    item = match[2]
    address = os.path.join(folder, item) if ".txt" in item.lower() else f"{folder}#{item}" if item else folder
    return (match[1] or "") + address
